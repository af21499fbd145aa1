"""Show a document: in the terminal, as a page, as JSON."""

import base64
import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import rich.table
from markupsafe import Markup
from matplotlib.figure import Figure as MatplotlibFigure
from rich.console import Console
from rich.markup import escape

from vmapseeds.machine import print_what_can_be_encoded
from vmapseeds.reports import plots
from vmapseeds.reports.documents import (
  Cell,
  Document,
  Figure,
  Section,
  Table,
  text_of_cell,
)
from vmapseeds.target import moves_data

# Formats of figures beside SVG
IMAGES = ("png", "pdf")
MOST_SVG_BYTES = 300_000  # of a figure in a page; a PNG has about 60,000
TEMPLATES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(Path(__file__).parent),
  autoescape=True,
  trim_blocks=True,
  lstrip_blocks=True,
  undefined=jinja2.StrictUndefined,
)


# The terminal.


def make_console() -> Console:
  """Return a console for the standard output, whatever its encoding."""
  print_what_can_be_encoded(sys.stdout)
  return Console()


def print_brief(document: Document, console: Console, page: Any = None) -> None:
  """Print what is brief of a document, its notes, and where its page is."""
  for section in document.brief:
    _print_section(section, console)
  for note in document.notes:
    console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
  if page:
    # A path is copied whole.
    console.print(str(page), soft_wrap=True, highlight=False, markup=False)


def _print_section(section: Section, console: Console) -> None:
  if section.heading:
    console.print(f"\n{section.heading}", style="bold")
  if section.lead:
    print_line(section.lead, console)
  for sentence in section.sentences:
    print_line(sentence, console)
  for table in section.tables:
    console.print(terminal_table(table))


def print_line(text: str, console: Console) -> None:
  """Print a text: a terminal has it wrapped at its width. Elsewhere it stays one line,
  so that output can be searched and piped.
  """
  to_file = not console.is_terminal
  console.print(text, soft_wrap=to_file, highlight=False, markup=False)


def terminal_table(table: Table) -> rich.table.Table:
  """Return a table for the terminal."""
  lines = rich.table.Table(title=escape(table.caption), title_justify="left")
  # Folded, since a cut number would be another number.
  for i, heading in enumerate(table.headings):
    # The first column has names, all others numbers.
    justify = "right" if i else "left"
    lines.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
  for row in table.rows:
    cells = [escape(text_of_cell(cell)) for cell in row]
    style = None
    if len(cells) == 1 and len(table.headings) > 1:
      lines.add_section()
      style = "bold"
    lines.add_row(*cells, style=style)
  # Below the table: a title of two sentences would hide the names of columns.
  lines.caption = table.note or None
  lines.caption_justify = "left"
  return lines


# JSON.


def to_json(document: Document) -> str:
  """Return the numbers of a document. NaN, which JSON has not, is a fault of ours."""
  text = json.dumps(document.record, indent=2, ensure_ascii=False, allow_nan=False)
  return f"{text}\n"


# HTML.


def to_html(
  document: Document,
  sources: Mapping[str, str],
  pages: Mapping[str, str] | None = None,
  files: Sequence[str] = (),
  origin: str = "",
  back: str = "",
  base: str = "",
) -> str:
  """Return a page that loads nothing else.

  Args:
    document: what it shows.
    sources: name of a figure -> its address, such as a data URI.
    pages: name of another page -> its address, as seen from this one. Cells that lead
      to one that is not there are plain text.
    files: names of files beside the page that have its numbers.
    origin: where the page comes from: command, date, version.
    back: address of the page above it.
    base: address from which its links are seen, if not its own.
  """
  # A page in a notebook has no others beside it.
  addresses = pages or {}

  def cell_text(cell: str | Cell) -> str:
    if not isinstance(cell, Cell):
      return cell
    text = Markup("{}").format(cell.text)
    address = addresses.get(cell.leads_to)
    if address:
      text = Markup('<a href="{}">{}</a>').format(address, text)
    if cell.small:
      text += Markup("<small>{}</small>").format(cell.small)
    return text

  sections = [section for section in document.sections if section.has_contents]
  page = TEMPLATES.get_template("page.html.j2").render(
    document=document,
    sections=sections,
    headed=[section for section in sections if section.heading],
    sources=sources,
    files=files,
    origin=origin,
    back=back,
    base=base,
    anchor=_anchor,
    cell_text=cell_text,
  )
  # No line may break between a number and its unit.
  return page.replace(" %", "\N{NO-BREAK SPACE}%")


def _anchor(section: Section) -> str:
  """Return the name by which links reach a section: letters, numbers and hyphens."""
  return re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-")


def embedded_html(document: Document) -> str:
  """Return a page within a page, such as a notebook: in a frame, so that neither's styles
  change the other.
  """
  sources = {}
  for name, figure in document.figures.items():
    drawing = drawing_of(figure)
    sources[name] = page_image(drawing, image(drawing, "svg"))
  frame = Markup(
    '<iframe srcdoc="{}" style="width: 100%; height: 40rem; border: 0" '
    'title="{}"></iframe>'
  )
  # Links of a frame are seen from the page around it: the contents list would load that.
  page = to_html(document, sources, base="about:srcdoc")
  # As text, or Markup would take the page for a part of this one.
  return str(frame.format(str(page), document.title))


# Figures.


@moves_data
def drawing_of(figure: Figure, width: float = plots.WIDTH) -> MatplotlibFigure:
  """Return a figure as an object of Matplotlib, so many inches wide."""
  drawing, axes = plots.figure(figure.height, width=width)
  figure.draw(axes)
  return drawing


def drawings_of(
  figures: Mapping[str, Figure], width: float
) -> dict[str, MatplotlibFigure]:
  """Return figures as objects of Matplotlib, by name."""
  return {name: drawing_of(figure, width) for name, figure in figures.items()}


def image(drawing: MatplotlibFigure, format: str) -> bytes:
  """Return a figure as "svg", "pdf" or "png". Text stays text in the first two, and the
  same figure gives the same bytes.
  """
  options: Any = {
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "vmapseeds",
  }
  dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
  stream = io.BytesIO()
  with matplotlib.rc_context(options):
    drawing.savefig(
      stream,
      format=format,
      metadata=dates[format],
      transparent=format == "svg",
      # Sharp at the width of a page on screens of two pixels a point.
      dpi=160,
    )
  return stream.getvalue()


def page_image(drawing: MatplotlibFigure, lines: bytes) -> str:
  """Return a figure as a page shows it, as an address that holds it: its SVG `lines`, or
  a PNG if it has too many points for that.
  """
  if len(lines) <= MOST_SVG_BYTES:
    return data_uri(lines, "svg+xml")
  return data_uri(image(drawing, "png"), "png")


def data_uri(image: bytes, type: str) -> str:
  """Return an image as an address that holds it."""
  return f"data:image/{type};base64,{base64.b64encode(image).decode()}"
