"""The pages of docs/gallery, from what is kept there: runs, tallies and records.

    python -m experiments.pages             records of kept runs anew, then all pages
    python -m experiments.pages --stored    pages from the records as they are, in seconds

A page is a module that has its `PAGE`: a few pictures, and what its text, a template
beside the module, says from the records. All of our numbers come from records. What else
they have goes into the page's appendix.
"""

import csv
import dataclasses
import functools
import importlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NamedTuple

import jinja2
import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from experiments.estimates import format_interval
from vmapseeds.cli import one_line_errors
from vmapseeds.flags import metavar, parse_flags
from vmapseeds.store import files

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
PAGES = (
  "jordan2024.page_sixty_thousand",
  "jordan2024.page",
  "jiang2022.page",
  "jiang2022.page_noise_of_sgd",
  "banerjee2024.page",
  "bouthillier2021.page",
  "page_runs_against_examples",
)
WORDS, PICTURES = 700, 6  # the most of a page
TEMPLATES = jinja2.Environment(
  loader=jinja2.FileSystemLoader(Path(__file__).parent),
  trim_blocks=True,
  lstrip_blocks=True,
  undefined=jinja2.StrictUndefined,
)


class Colors(NamedTuple):
  """Colours of one theme."""

  page: str
  ink: str
  quiet: str
  blue: str
  vermilion: str
  green: str
  orange: str
  purple: str

  def each(self) -> tuple[str, ...]:
    return self[3:]


THEMES = {
  "light": Colors(
    *("#ffffff", "#1b1f24", "#6a737d"),
    *("#0072b2", "#c44e00", "#00805f", "#b87a00", "#a6508a"),
  ),
  "dark": Colors(
    *("#14181e", "#e8eaed", "#9aa4af"),
    *("#62b6f0", "#ff9a66", "#3fcb9f", "#f0bb45", "#e0a0cc"),
  ),
}


class Picture(NamedTuple):
  """A figure of a page.

  Args:
    draw: puts it on axes, from the records, in some colours.
    caption: what it shows, of what.
    panels: beside each other.
    height: in inches, where the width is 5.6.
  """

  draw: Callable[["Records", np.ndarray, Colors], None]
  caption: str
  panels: int = 1
  height: float = 2.9


class Page(NamedTuple):
  """A page of the gallery.

  Args:
    folder: in docs/gallery.
    title: of the page.
    appendix: paths of records in docs/gallery, without their endings.
    pictures: by name.
    values: what the text says beside rows of records, by name.
  """

  folder: str
  title: str
  appendix: Sequence[str]
  pictures: Mapping[str, Picture]
  values: Callable[["Records"], Mapping[str, Any]] = lambda _: {}


class Records:
  """The records of docs/gallery."""

  def __init__(self, root: Path = GALLERY):
    self.root = root
    self._read: dict[str, dict[str, Any]] = {}

  def __getitem__(self, path: str) -> dict[str, Any]:
    """Return a record as it is stored."""
    if path not in self._read:
      self._read[path] = json.loads((self.root / f"{path}.json").read_text())
    return self._read[path]

  def row(self, path: str, quantity: str) -> dict[str, Any]:
    """Return the row of a record with this quantity, or else the only one that begins
    so.
    """
    rows = {row["quantity"]: row for row in self[path]["rows"]}
    if quantity in rows:
      return rows[quantity]
    matches = [row for name, row in rows.items() if name.startswith(quantity)]
    if len(matches) != 1:
      raise ValueError(f"{len(matches)} rows of {path} begin with {quantity!r}")
    return matches[0]

  def ours(self, path: str, quantity: str) -> str:
    """Return our number as a row says it."""
    return words_of(self.row(path, quantity))


def words_of(row: Mapping[str, Any]) -> str:
  """Return our number as a row of a record has it, with its interval."""
  if row["low"] == row["high"]:  # known exactly
    if abs(row["value"]) >= 1000:
      return f"{row['value']:,.0f}{row['unit']}"
    return f"{row['value']:.3g}{row['unit']}"
  return format_interval(row["value"], row["low"], row["high"], 1, row["unit"])


# Writing.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """Makes the pages of docs/gallery from the runs, tallies and records kept there."""

  stored: bool = False
  """take all records as they are; otherwise those of kept runs are made anew"""

  out: Annotated[Path, metavar("DIR")] = GALLERY
  """the gallery's folder"""


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    flags = parse_flags(
      Flags,
      argv,
      prog="python -m experiments.pages",
      description=__doc__,
    )
    modules = [importlib.import_module(f"experiments.{name}") for name in PAGES]
    for module in modules:
      if not flags.stored:
        module.recompute(flags.out)
    records = Records(flags.out)
    index = TEMPLATES.get_template("index.md.j2")
    files.write(flags.out / "index.md", index.render().encode())
    for module in modules:
      write_page(flags.out, module, records)
      print(f"wrote {flags.out / module.PAGE.folder / 'index.md'}")


def write_page(out: Path, module: ModuleType, records: Records) -> None:
  """Writes a page, its pictures in both themes, and its appendix."""
  page: Page = module.PAGE
  folder = out / page.folder
  for name, picture in page.pictures.items():
    for theme, colors in THEMES.items():
      image = draw_svg(picture, records, colors)
      files.write(folder / f"{name}-{theme}.svg", image)
  files.write(folder / "index.md", page_text(module, records).encode())
  if not page.appendix:
    return
  rows = appendix(page, records)
  files.write(folder / "appendix.csv", as_csv(rows).encode())


def page_text(module: ModuleType, records: Records) -> str:
  """Return a page in Markdown."""
  page: Page = module.PAGE
  place = module.__name__.removeprefix("experiments.").replace(".", "/")
  return TEMPLATES.get_template(f"{place}.md.j2").render(
    page=page,
    ours=records.ours,
    figure=functools.partial(figure, page),
    **page.values(records),
  )


def figure(page: Page, name: str) -> str:
  """Return a picture with its caption. The site shows its dark form on dark pages."""
  return f"![{name}]({name}-light.svg)\n\n*{page.pictures[name].caption}*"


STYLE = {
  "axes.spines.top": False,
  "axes.spines.right": False,
  "grid.alpha": 0.25,
  "grid.linewidth": 0.7,
  "legend.frameon": False,
  "font.size": 9.5,
  "axes.titlesize": 9.5,
  "legend.fontsize": 9,
  "lines.linewidth": 1.4,
  "svg.fonttype": "none",
  "svg.hashsalt": "vmapseeds",
}


def draw_svg(picture: Picture, records: Records, colors: Colors) -> bytes:
  """Return a picture as SVG: 403 units wide, no letter smaller than 8."""
  theme = {
    "figure.facecolor": colors.page,
    "axes.facecolor": colors.page,
    "grid.color": colors.quiet,
    "text.color": colors.ink,
    "axes.labelcolor": colors.ink,
    "axes.edgecolor": colors.ink,
    "xtick.color": colors.ink,
    "ytick.color": colors.ink,
  }
  with matplotlib.rc_context(STYLE | theme):
    size = (5.6, picture.height)
    figure = Figure(figsize=size, layout="constrained")
    canvas = FigureCanvasSVG(figure)
    stream = io.BytesIO()
    axes = figure.subplots(1, picture.panels, squeeze=False).ravel()
    picture.draw(records, axes, colors)
    canvas.print_svg(stream, metadata={"Date": None})
  return stream.getvalue()


APPENDIX = ("figure", "quantity", "here", "runs")


def appendix(page: Page, records: Records) -> list[tuple[str, ...]]:
  """Return the rows of all records of a page."""
  rows = []
  for path in page.appendix:
    record = records[path]
    for table in record.get("tables", ()):
      rows += table_rows(table)
    title = record.get("title", "").partition(":")[0]
    for row in record.get("rows", ()):
      runs = row["runs"]
      if isinstance(runs, int):
        runs = f"{runs:,}"
      rows.append((title, row["quantity"], words_of(row), runs))
  return rows


def table_rows(table: Mapping[str, Any]) -> list[tuple[str, ...]]:
  """Return the rows of a table that a record has beside its rows."""
  title = table["title"].partition(":")[0]
  rows = []
  heads = table["head"][1:]
  for first, *others in table["rows"]:
    cells = [f"{head}: {cell}" for head, cell in zip(heads, others, strict=True)]
    rows.append((title, first, "; ".join(cells), ""))
  return rows


def as_csv(rows: Sequence[Sequence[str]]) -> str:
  stream = io.StringIO()
  csv.writer(stream, lineterminator="\n").writerows([APPENDIX, *rows])
  return stream.getvalue()


if __name__ == "__main__":
  main()
