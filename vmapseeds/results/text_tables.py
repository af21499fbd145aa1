"""Tables of numbers in text files. pandas reads them; here is decided how, and refused
what can be read in two ways.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vmapseeds.errors import UserError
from vmapseeds.results.formatting import count_of

SUFFIXES = (".csv", ".tsv", ".txt")
# In the order in which they are tried.
SEPARATORS = {
  ",": "commas",
  ";": "semicolons",
  "\t": "tabs",
  "|": "bars",
  " ": "spaces",
  r"\s+": "spaces",
}
HEAD = 100  # lines by which separators and decimals are chosen
SHOWN_NAMES = 6
MISSING = ("", "na", "nan", "n/a", "null", "none", "#n/a")
# What pandas calls the column of an index that it wrote without a name, or that
# `reset_index` made.
UNNAMED = re.compile(r"|Unnamed: 0(_level_\d)?")
RESET = ("index", "level_0")
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+")


class TextFormat(NamedTuple):
  """How the numbers of a text file are written."""

  encoding: str
  separator: str
  decimal: str


class TextTable(NamedTuple):
  """What a text file holds, and a line that says how it was read."""

  frame: pd.DataFrame  # columns are names, or 0, 1, ... if there are none
  note: str


def read_values_table(file: Path) -> TextTable:
  """Return a table with a name for each column, and without pandas' index.

  Raises:
    UserError: the first line is no names, or a name is missing or there twice.
  """
  layout, head = _understood(file)
  first = head.iloc[0]
  if not any(_is_text(cell, layout) for cell in first):
    cells = ", ".join(first[:SHOWN_NAMES])
    raise UserError(
      f"{file} has no names of columns, its first line is {cells}: begin it with a line "
      "of names, such as seed,lr"
    )
  frame = _read_all(file, layout, names=[name.strip() for name in first])
  frame, index = without_index(frame)
  check_column_names(file, frame)
  return TextTable(frame, _note(file, frame, layout, True, index))


def read_numbers_table(
  file: Path, kind: str, axes: str, header: bool | None
) -> TextTable:
  """Return predictions or labels: a table of numbers with a line of names or none, and
  without pandas' index.

  Args:
    file: the table.
    kind: what they are, for messages.
    axes: what rows and columns are, for messages.
    header: whether the first line is names, if it may be names or numbers.

  Raises:
    UserError: it may be both and `header` is None, or something is no number.
  """
  layout, head = _understood(file)
  first = [cell.strip() for cell in head.iloc[0]]
  is_text = [_is_text(cell, layout) for cell in first]
  several = len(first) > 1
  # pandas' index has no name or one of its own, before columns 0, 1, ...
  starts_with_name = several and (is_text[0] or not first[0])
  indexed = starts_with_name and _is_numbering(first[1:], layout)
  unnamed = several and not first[0] and all(is_text[1:])
  names = None
  if any(is_text) or indexed or unnamed:
    names = first
  elif header is None and _is_numbering(first, layout):
    # 0, 1, 2 may be the columns' names or the first row.
    names = _names_if_certain(file, kind, layout, first)
  elif header and _is_numbering(first, layout):
    names = first

  frame = _read_all(file, layout, names)
  index = None
  if indexed:
    index = first[0]
    frame = frame.iloc[:, 1:]
  elif names:
    frame, index = without_index(frame)
  # A run that was not asked for an example leaves its cell empty.
  may_be_empty = kind == "predictions"
  _check_numbers(file, frame, axes, names is not None, may_be_empty)
  note = _note(file, frame, layout, names is not None, index)
  empty = int(frame.isna().to_numpy().sum())
  if empty:
    note += f", {count_of(empty, 'empty cell')}: not asked"
  return TextTable(frame, note)


def without_index(frame: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
  """Return a table without the index that pandas wrote as its first column, and what
  that was called; None if there is none.
  """
  if frame.shape[1] < 2:
    return frame, None
  name = str(frame.columns[0])
  is_index = UNNAMED.fullmatch(name) is not None
  if name in RESET:
    # A column of such a name may well be the user's own.
    numbers = np.arange(len(frame))
    is_index = np.array_equal(frame.iloc[:, 0], numbers)
  if is_index:
    return frame.iloc[:, 1:], name
  return frame, None


def check_column_names(what: Any, frame: pd.DataFrame) -> None:
  """Raises: UserError: a column has no name, or two have the same."""
  names = [str(name) for name in frame.columns]
  for place, name in enumerate(names):
    if not name:
      raise UserError(f"column {place + 1} of {what} has no name: give it one")
    if name in names[:place]:
      raise UserError(f"{what} has two columns {name!r:.60}: give each its own name")


def _encoding(file: Path) -> str:
  with file.open("rb") as stream:
    start = stream.read(2)
  # Excel's "Unicode text" begins with a byte order mark. UTF-8 may have one, too.
  if start in (b"\xff\xfe", b"\xfe\xff"):
    return "utf-16"
  return "utf-8-sig"


class _Reading(NamedTuple):
  """A way to read a file; the smallest is the best."""

  minus_numbers: int  # cells below the first line that are numbers
  is_one_column: bool
  texts: int  # cells below the first line that are no numbers
  minus_columns: int
  place: int  # unique, so that layouts are never compared
  layout: TextFormat
  head: pd.DataFrame


def _understood(file: Path) -> tuple[TextFormat, pd.DataFrame]:
  """Return how a file is written, and its first lines as texts.

  Of all ways to separate columns that give every line equally many, the one is taken
  under which most cells are numbers, then the fewest texts.
  """
  encoding = _encoding(file)
  readings: list[_Reading] = []
  for separator in SEPARATORS:
    head = _head(file, encoding, separator)
    if head is None:
      continue
    # The first line may be names.
    body = head.iloc[1:] if len(head) > 1 else head
    for decimal in (".", ","):
      if separator == decimal:
        continue
      layout = TextFormat(encoding, separator, decimal)
      texts = sum(_is_text(cell, layout) for cell in np.ravel(body))
      columns = head.shape[1]
      readings.append(
        _Reading(
          texts - body.size, columns == 1, texts, -columns, len(readings), layout, head
        )
      )

  best = min(readings, default=None)
  is_text = best is not None and best.texts > 0 and best.is_one_column
  if best is None or (is_text and _has_separators(readings[0].head)):
    raise UserError(
      f"{file} is no table: its lines have different numbers of columns, whether "
      "separated by commas, semicolons, tabs or spaces"
    )
  if best.layout.decimal == ",":
    _check_decimals(file, best.head)
  return best.layout, best.head


def _head(file: Path, encoding: str, separator: str) -> pd.DataFrame | None:
  """Return the first lines as texts, None if they are not equally long."""
  try:
    head = pd.read_csv(
      file,
      sep=separator,
      header=None,
      nrows=HEAD,
      dtype=str,
      keep_default_na=False,
      skipinitialspace=separator != " ",
      encoding=encoding,
    )
  # Some line has more cells than the first.
  except pd.errors.ParserError:
    return None
  # Cells that a line lacks are NaN, empty ones are texts.
  if head.isna().to_numpy().any():
    return None
  return head


def _has_separators(head: pd.DataFrame) -> bool:
  return any(sign in cell for cell in np.ravel(head) for sign in ",;\t|")


def _check_decimals(file: Path, head: pd.DataFrame) -> None:
  """Raises: UserError: commas may be decimal, or separate thousands."""
  cells = [cell.strip() for cell in np.ravel(head) if "," in cell]
  if cells and all(THOUSANDS.fullmatch(cell) for cell in cells):
    cell = cells[0]
    decimal, whole = cell.replace(",", ".", 1), cell.replace(",", "")
    raise UserError(
      f"{file} has {cell}, which may be {decimal} or {whole}: write it without commas"
    )


def _number(cell: str, layout: TextFormat) -> float | None:
  """Return the number that a cell holds, None for none; NaN where it is missing."""
  cell = cell.strip()
  # A missing number is no text, which would make its line one of names.
  if cell.lower() in MISSING:
    return np.nan
  try:
    return float(cell.replace(layout.decimal, "."))
  except ValueError:
    return None


def _is_text(cell: str, layout: TextFormat) -> bool:
  return _number(cell, layout) is None


def _is_numbering(cells: list[str], layout: TextFormat) -> bool:
  """Return whether cells count from 0 on, as the columns of a frame do by default."""
  numbers = [_number(cell, layout) for cell in cells]
  # None and NaN are equal to no number.
  return numbers == list(range(len(cells)))


def _names_if_certain(
  file: Path, kind: str, layout: TextFormat, first: list[str]
) -> list[str] | None:
  """Return a first line that counts from 0 on as names, if no line below has its
  highest number: it would be the only one to hold that class.

  Raises:
    UserError: some line has, so that the first may be numbers too.
  """
  below = _read_all(file, layout, first).to_numpy()
  has_numbers = below.dtype.kind in "iuf" and below.size > 0
  if has_numbers and np.nanmax(below) < len(first) - 1:
    return first
  rows = len(below)
  line = ", ".join(first[:2])
  if len(first) > 2:
    line = f"{line}, ..., {len(first) - 1}"
  raise UserError(
    f"{file}: its first line, {line}, may be names, above {rows} rows of {kind}, or "
    f"numbers, the first of {rows + 1} rows: give a .npy file, or vs.import_runs(..., header=True) or False"
  )


def _read_all(file: Path, layout: TextFormat, names: list[str] | None) -> pd.DataFrame:
  """Return the numbers of a file; what is no number stays text."""
  frame = pd.read_csv(
    file,
    sep=layout.separator,
    decimal=layout.decimal,
    header=None if names is None else 0,
    index_col=False,  # pandas takes a column for the index where lines end in commas
    encoding=layout.encoding,
    skipinitialspace=layout.separator != " ",
    # In chunks, a column could have several types.
    low_memory=False,
  )
  if names is not None:
    # pandas renames columns of the same name.
    frame.columns = pd.Index(names)
  return frame


def _check_numbers(
  file: Path, frame: pd.DataFrame, axes: str, header: bool, may_be_empty: bool
) -> None:
  """Raises: UserError: an entry is missing, or no number; its place is named."""
  for column in range(frame.shape[1]):
    given = frame.iloc[:, column]
    cells = given
    if cells.dtype.kind not in "iuf":
      cells = pd.to_numeric(cells, errors="coerce")
    wrong = cells.isna().to_numpy()
    if may_be_empty:
      wrong = wrong & given.notna().to_numpy()
    if not wrong.any():
      continue
    row = int(wrong.argmax())
    cell = frame.iloc[row, column]
    content = "nothing" if pd.isna(cell) else repr(str(cell)[:60])
    line = row + 2 if header else row + 1
    raise UserError(
      f"{file} has {content} in line {line}, column {column + 1}: give "
      f"numbers only, {axes}; a run without a prediction has -1, one that was not asked -2"
    )


def _note(
  file: Path, frame: pd.DataFrame, layout: TextFormat, header: bool, index: str | None
) -> str:
  """Return what was understood of a file."""
  rows, columns = frame.shape
  parts = [f"{count_of(rows, 'row')} × {count_of(columns, 'column')}"]
  if columns > 1:
    parts.append(f"separated by {SEPARATORS[layout.separator]}")
  if layout.decimal == ",":
    parts.append("decimal commas")
  names = [str(name) for name in frame.columns[:SHOWN_NAMES]]
  if columns > SHOWN_NAMES:
    names.append("...")
  if header:
    parts.append(f"the first line is names ({', '.join(names)})")
  else:
    parts.append("no line of names")
  if index is not None:
    parts.append(f"without pandas' index {index}".rstrip())
  return f"{file}: {', '.join(parts)}"
