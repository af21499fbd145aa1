"""Pages: self-contained HTML, with its figures as PNG and its numbers as JSON beside
it.
"""

import base64
import hashlib
import io
import json
import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import matplotlib
import rich.table
import xarray as xr
from markupsafe import Markup
from matplotlib.axes import Axes
from rich.console import Console
from rich.markup import escape
from upath import UPath

from vmapseeds.machine import print_what_can_be_encoded
from vmapseeds.mistakes import MAX_NAME_LENGTH, Mistake, option
from vmapseeds.reports import plots
from vmapseeds.store.files import Folder, is_remote, place, write

MAX_FOLDER_BYTES = 255  # of a folder's name
TEMPLATES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(Path(__file__).parent),
  autoescape=True,
  trim_blocks=True,
  lstrip_blocks=True,
  undefined=jinja2.StrictUndefined,
)


class Figure(NamedTuple):
  """A figure of a page. `draw` draws it on the axes of a figure of this height, in
  inches.
  """

  title: str
  caption: str
  draw: Callable[[Axes], Axes]
  height: float = 4.0


class Table(NamedTuple):
  """A table of a page or of the terminal. Only the last cell of a row is wrapped on a
  page.
  """

  caption: str
  headings: Sequence[str]
  rows: Sequence[Sequence[str]]

  def for_terminal(self) -> rich.table.Table:
    table = rich.table.Table(title=escape(self.caption), title_justify="left")
    for i, heading in enumerate(self.headings):
      table.add_column(heading, justify="right" if i else "left", overflow="fold")
    for row in self.rows:
      table.add_row(*(escape(cell) for cell in row))
    return table


def terminal() -> Console:
  """Return a console for the standard output, whatever its encoding."""
  print_what_can_be_encoded(sys.stdout)
  return Console()


class Section(NamedTuple):
  """A part of a page, its contents in the order in which they are shown. One without
  contents is left out.

  Attributes:
    heading: its heading.
    lead: a sentence or two in larger type.
    sentences: a list.
    figures: name of the file -> figure.
    tables: with their captions.
    cards: single examples, with their captions.
    explorer: what the page's script needs to show others.
    kind: class of the stylesheet.
  """

  heading: str = ""
  lead: str = ""
  sentences: Sequence[str] = ()
  figures: Mapping[str, Figure] = {}
  tables: Sequence[Table] = ()
  cards: Sequence[Any] = ()
  explorer: Mapping[str, Any] = {}
  kind: str = ""


def markdown(table: Table) -> str:
  """Return a table in Markdown, its caption above it."""
  lines = []
  for row in (table.headings, *table.rows):
    # A bar would end the cell, a star begin emphasis, a line end the table.
    cells = [re.sub(r"([|*])", r"\\\1", cell).replace("\n", " ") for cell in row]
    lines.append(f"| {' | '.join(cells)} |")
  lines.insert(1, "|---" + "|---:" * (len(table.headings) - 1) + "|")
  return "\n".join([f"**{table.caption}**\n", *lines, ""])


def notes(warnings: Sequence[str]) -> Section:
  """Return the section of what a reader must know before believing the numbers."""
  return Section("Before you read on", sentences=warnings, kind="notes")


def with_small(text: str, small: str) -> str:
  """Return a cell with a line of small type below its text."""
  return Markup("{}<small>{}</small>").format(text, small) if small else text


def html(sections: Sequence[Section], sources: Mapping[str, str], **texts: str) -> str:
  """Render a page that loads nothing else: its title, what stands under the title, and
  its footer; and the figures' addresses by their names.
  """
  # All but the heading and the class of the stylesheet.
  with_contents = [section for section in sections if any(section[1:-1])]
  template = TEMPLATES.get_template("page.html.j2")
  page = template.render(sections=with_contents, sources=sources, **texts)
  # No line may break between a number and its unit.
  return page.replace(" %", "\N{NO-BREAK SPACE}%")


def write_page(
  out: Path | UPath,
  name: str,
  record: Any,
  sections: Sequence[Section],
  vector: str = "",
  **texts: str,
) -> Path | UPath:
  """Write NAME.html, NAME.json with the `record` and the figures into a folder, and
  return the page's path. `vector` is another format of the figures, such as "pdf".

  Raises:
    Mistake: the folder cannot be written.
  """
  page = out / f"{name}.html"
  try:
    sources = {
      key: _save_figure(figure, out / f"{key}.png", vector)
      for section in sections
      for key, figure in section.figures.items()
    }
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    write(out / f"{name}.json", f"{text}\n".encode())
    write(page, html(sections, sources, **texts).encode())
  except OSError as error:
    raise Mistake(
      f"{out} cannot be written ({error.strerror}): make it writable, or give another "
      f"place with {option('out')}"
    ) from error
  return page


def path_parts(folder: Folder) -> tuple[str, ...]:
  """Return the parts of a folder's absolute path or URL. The last is its name."""
  path = place(folder)
  whole = str(path) if is_remote(path) else os.path.abspath(path)
  return tuple(whole.rstrip("/").split("/"))


def join_names(*names: str, by: str = ", ") -> str:
  """Return the names that are not empty in one."""
  return by.join(filter(None, names))


def below(out: Path | UPath, *names: str) -> Path | UPath:
  """Return a folder in `out`: a subfolder in a subfolder for each name. Empty names are
  left out, and long ones cut.
  """
  for name in filter(None, names):
    if len(name.encode()) > MAX_FOLDER_BYTES:
      digest = hashlib.sha256(name.encode()).hexdigest()[:8]
      name = f"{name[:MAX_NAME_LENGTH]}... {digest}"
    out = out / name
  return out


def of_test_set(out: Path | UPath, results: xr.Dataset, test_set: str) -> Path | UPath:
  """Return the folder in `out` for results of a test set and an epoch: `out` itself for
  the recipe's first test set after the training.
  """
  sets, epoch = results.attrs.get("test_sets"), results.attrs.get("epoch")
  return below(
    out,
    test_set if sets and test_set != sets[0] else "",
    "" if epoch is None else f"epoch={epoch}",
  )


def link(text: str, page: Path | UPath, out: Path | UPath) -> str:
  """Return a cell that leads to a page, as seen from a page in `out`."""
  address = str(page)
  if is_remote(page) == is_remote(out):
    address = urllib.parse.quote(os.path.relpath(address, str(out)))
  return Markup('<a href="{}">{}</a>').format(address, text)


def _save_figure(figure: Figure, path: Path | UPath, vector: str = "") -> str:
  """Save a figure as PNG, and in a `vector` format, and return it as a data URI."""
  drawing, ax = plots.figure(height=figure.height)
  figure.draw(ax)
  drawn = io.BytesIO()
  drawing.savefig(drawn, dpi=160)
  write(path, drawn.getvalue())
  if vector:
    lines = io.BytesIO()
    # Text stays text, and the same figure gives the same bytes.
    fonts: Any = {
      "pdf.fonttype": 42,
      "svg.fonttype": "none",
      "svg.hashsalt": "vmapseeds",
    }
    dates = {"pdf": "CreationDate", "svg": "Date"}
    with matplotlib.rc_context(fonts):
      drawing.savefig(lines, format=vector, metadata={dates[vector]: None})
    write(path.with_suffix(f".{vector}"), lines.getvalue())
  return f"data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}"
