"""Documents: what was found, as plain values, before it is shown anywhere.

A function computes a `Document`; `rendering` has one renderer each for the terminal, HTML
and JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes


class Figure(NamedTuple):
  """A figure. `draw` draws it on the axes of a figure of this height, in inches; None is
  what suits the width.

  `finding` says what it shows, for readers who do not see it.
  """

  title: str
  caption: str
  draw: Callable[[Axes], Axes]
  height: float | None = None
  finding: str = ""


class Cell(NamedTuple):
  """A cell of a table.

  Attributes:
    text: what it says.
    small: on a page, a line of small type below that.
    leads_to: name of another page of the same findings.
  """

  text: str
  small: str = ""
  leads_to: str = ""


class Table(NamedTuple):
  """A table. Only the last cell of a row is wrapped on a page.

  A row of one cell names the rows below it, and `note` stands below them, in a terminal.
  """

  caption: str
  headings: Sequence[str]
  rows: Sequence[Sequence[str | Cell]]
  note: str = ""


class Section(NamedTuple):
  """A part of a document, its contents in the order in which they are shown. One without
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

  @property
  def has_contents(self) -> bool:
    # An explorer looks for others than the cards, so it never stands alone.
    contents = (self.lead, self.sentences, self.figures, self.tables, self.cards)
    return any(contents)


class Document(NamedTuple):
  """What was found.

  Attributes:
    name: of its files: "report", "compare" or "sample_size".
    title: in a line.
    under: what it is about, under the title.
    brief: what a terminal shows.
    notes: what a reader must know before believing the numbers, a sentence each.
    sections: what a page shows.
    record: the numbers, ready for JSON.
    footer: what the numbers mean, at the end of a page.
  """

  name: str
  title: str
  under: str
  brief: Sequence[Section]
  notes: Sequence[str]
  sections: Sequence[Section]
  record: Any
  footer: str = ""

  @property
  def figures(self) -> dict[str, Figure]:
    """Return all figures by name, in the order of the page."""
    # No name occurs twice: those of several outputs begin with the output's.
    figures: dict[str, Figure] = {}
    for section in self.sections:
      figures |= section.figures
    return figures


def note_section(notes: Sequence[str]) -> Section:
  """Return the section of what a reader must know before believing the numbers."""
  return Section("Before you read on", sentences=notes, kind="notes")


def text_of_cell(cell: str | Cell) -> str:
  """Return what a cell says where there is no small type."""
  if isinstance(cell, Cell):
    return cell.text
  return cell
