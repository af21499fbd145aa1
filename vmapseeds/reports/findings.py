"""What `report`, `compare` and `sample_size` return: tables, figures and notes, which are
printed, saved or shown in a notebook when that is asked for.
"""

import io
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as MatplotlibFigure
from rich.console import Console
from upath import UPath

from vmapseeds.errors import (
  UserError,
  check_number,
  check_one_of,
  hide_own_frames_of_methods,
  option,
)
from vmapseeds.reports import pages, plots, rendering
from vmapseeds.reports.documents import Document
from vmapseeds.results.score_tables import ScoreTable
from vmapseeds.store.files import Folder, as_folder
from vmapseeds.target import moves_data

WIDTH = 100  # of what `str` returns, in letters
Item = TypeVar("Item")


def check_image(image: str | None) -> str:
  """Return a format of figures beside SVG, empty for none.

  Raises:
    UserError: there is no such format.
  """
  if image is None:
    return ""
  check_one_of("image format", image, rendering.IMAGES)
  return image


def check_above_0(name: str, number: float | None) -> float | None:
  """Return a difference in the unit that is printed, or None.

  Raises:
    UserError: it is not above 0.
  """
  if number is None:
    return None
  number = check_number(name, number)
  if not 0 < number < np.inf:
    raise UserError(f"{name} is {number}: give a number above 0, in the unit printed")
  return number


def check_page_folder(folder: Path | UPath | None) -> Path | UPath:
  """Return the folder of pages.

  Raises:
    UserError: there is none, because results were in memory.
  """
  if folder is None:
    raise UserError(
      f"these results were not read from a folder: give {option('out')} to save in"
    )
  return folder


@hide_own_frames_of_methods
class Findings:
  """One document, and the frames that have its numbers.

  `tables`, `figures` and `notes` are what it shows. `print` prints it, `save` writes its
  page, and a notebook shows the page. Nothing else prints or writes.

  Attributes:
    document: what is shown.
    tables: name -> frame of pandas, numbers in their own unit: fractions are not in
      percent. The first is what the CSV file has.
    page: where the page is, once it was saved.
  """

  def __init__(
    self,
    document: Document,
    tables: Mapping[str, pd.DataFrame],
    folder: Path | UPath | None,
    call: str,
  ):
    self.document = document
    # A copy, so that nobody else changes which is the first.
    self.tables = dict(tables)
    self.page: Path | UPath | None = None
    self._folder = folder
    self._call = call

  @property
  def table(self) -> pd.DataFrame:
    """Return the first of the tables."""
    return next(iter(self.tables.values()))

  @property
  def notes(self) -> list[str]:
    """Return what a reader must know before believing the numbers."""
    return list(self.document.notes)

  @property
  def figures(self) -> dict[str, MatplotlibFigure]:
    """Return the figures as objects of Matplotlib, by the names of their files."""
    return self.draw()

  def draw(self, *, width: float = plots.WIDTH) -> dict[str, MatplotlibFigure]:
    """Return the figures as objects of Matplotlib, by the names of their files, to change
    them and to save them in any format.

    ::

      figures = vs.report("results/a").draw(width=3.3)
      figures["accuracy_distribution"].savefig("accuracies.pdf")

    Args:
      width: in inches. Narrower than 4.5, as in a column of a paper, text has 8 points, or
        what `plt.rcParams["font.size"]` was set to. Other settings of `plt.rcParams` are
        kept at any width.
    """
    # Drawn anew at each time, so that a figure that was changed changes no page.
    return rendering.drawings_of(self.document.figures, width)

  @moves_data
  def print(self, console: Console | None = None) -> None:
    """Print the numbers, the notes and, once it was saved, where the page is: to the
    standard output, or to another console.
    """
    console = console or rendering.make_console()
    rendering.print_brief(self.document, console, self.page)

  @moves_data
  def save(self, out: Folder | None = None, *, image: str | None = None) -> Any:
    """Write the page, its figures as SVG and its numbers as JSON and CSV, and return the
    page's path.

    Args:
      out: the folder; by default one in the folder `report` of the results.
      image: another format of the figures: "png" or "pdf".

    Raises:
      UserError: the folder cannot be written, or there is no such format.
    """
    image = check_image(image)
    self.page = pages.write_page(
      self._folder_of_page(out),
      self.document,
      table=self.table,
      image=image,
      origin=pages.describe_page_origin(self._call),
    )
    return self.page

  def _folder_of_page(self, out: Folder | None) -> Path | UPath:
    if out is not None:
      return as_folder(out)
    return check_page_folder(self._folder)

  @moves_data
  def _repr_html_(self) -> str:
    return rendering.embedded_html(self.document)

  def __str__(self) -> str:
    # `print(report)` is what many try first.
    # In a notebook, rich would show what is only to be a text.
    file = io.StringIO()
    console = Console(width=WIDTH, file=file, record=True, force_jupyter=False)
    self.print(console)
    return console.export_text()

  def __repr__(self) -> str:
    return f"<{type(self).__name__}: {self.document.title}>"


class FindingsOfMany(Findings, Generic[Item]):
  """Findings that are a sequence of what was found, too."""

  def __init__(self, items: Sequence[Item], *args: Any):
    super().__init__(*args)
    self._items = list(items)

  def __len__(self) -> int:
    return len(self._items)

  def __iter__(self) -> Iterator[Item]:
    return iter(self._items)

  def __getitem__(self, index: int) -> Item:
    return self._items[index]


def command_to_repeat(
  name: str, folders: Sequence[Folder | ScoreTable], **options: Any
) -> str:
  """Return the command that finds the same again, with an option for each that is not None,
  False, empty or the test set's default.
  """
  # As `vmapseeds` takes it, also where the call was made in Python: one form to copy.
  words = ["vmapseeds", name]
  for folder in folders:
    # A table's columns are named with it, and by which of them runs are grouped.
    words += folder.words if isinstance(folder, ScoreTable) else [str(folder)]
  for flag, value in options.items():
    is_empty = isinstance(value, (Mapping, tuple)) and not value
    is_default = (flag, value) == ("test_set", "test")
    if value is None or value is False or is_empty or is_default:
      continue
    words.append("--" + flag.replace("_", "-"))
    if isinstance(value, Mapping):
      for column, values in value.items():
        # The shell's signs in a value are quoted below.
        words.append(f"{column}={','.join(map(str, np.atleast_1d(values).tolist()))}")
    elif value is not True:
      words += [str(word) for word in np.atleast_1d(value).tolist()]
  return shlex.join(words)
