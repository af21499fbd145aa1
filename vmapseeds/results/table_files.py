"""Tables as others write them: text with any separator, Parquet, Excel, JSON, frames of
pandas and polars; and text files of predictions and labels, which may have no line of
names. pandas reads them; here is decided how, and refused what can be read in two ways.
"""

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import numpy as np
import pandas as pd

from vmapseeds.errors import UserError
from vmapseeds.results.formatting import count_of
from vmapseeds.store.files import short_message

TEXTS = (".csv", ".tsv", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (*TEXTS, *JSON_LINES, ".json", ".parquet", ".xlsx", ".xls")
# What a suffix needs besides pandas.
PACKAGES = {".parquet": "pyarrow", ".xlsx": "openpyxl", ".xls": "xlrd"}
# In the order in which they are tried: decimal commas stand beside the first three.
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
SPACE, SPACES = " ", r"\s+"
HEAD = 100  # lines by which separators and names are recognised
SHOWN_NAMES = 6
MISSING = ("", "-", "–", "—", "na", "nan", "n/a", "null", "none", "#n/a", "<na>")
# What pandas calls the column of an index that it wrote without a name, or that
# `reset_index` made.
UNNAMED = re.compile(r"|Unnamed: 0(_level_\d)?")
RESET = ("index", "level_0")
DECIMAL_COMMA = r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?"
THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:,\d{3})+"


class Read(NamedTuple):
  """A table, and what was understood of how it is written: a few words each."""

  frame: pd.DataFrame
  remarks: list[str]


def is_table(source: Any) -> bool:
  """Return whether something is a frame, or the path of a file with a table."""
  if isinstance(source, pd.DataFrame) or _is_polars(source):
    return True
  if not isinstance(source, str | os.PathLike):
    return False
  # A results folder may have any name.
  return _suffix(source) in SUFFIXES and not os.path.isdir(source)


def read_table(source: Any) -> Read:
  """Return a table with a name for each column, without pandas' index.

  Args:
    source: a frame of pandas or polars, or the path or URL of a file.

  Raises:
    UserError: it cannot be read, or a name is missing or there twice.
  """
  if isinstance(source, str | os.PathLike):
    read = _read_file(source)
    what = str(source)
  elif hasattr(source, "columns"):
    read = Read(_as_pandas(source), [])
    what = "the table"
  else:
    raise UserError(
      f"the table is {source!r:.100}: give a frame of pandas or polars, or the path of a "
      "file"
    )
  frame, index = without_index(read.frame)
  check_column_names(what, frame)
  if not len(frame):
    raise UserError(f"{what} has no rows below its names: give a row for each run")
  remarks = list(read.remarks)
  if index is not None:
    remarks.append(f"without pandas' index {index}".rstrip())
  return Read(frame.reset_index(drop=True), remarks)


def _suffix(source: Any) -> str:
  # A compressed file has its own suffix behind that of the table.
  name = re.sub(r"\.(gz|bz2|xz|zst)$", "", os.fspath(source).lower())
  return Path(name).suffix


def _is_polars(source: Any) -> bool:
  return type(source).__module__.partition(".")[0] == "polars"


def _as_pandas(frame: Any) -> pd.DataFrame:
  """Return a frame whose index, if it says something, is columns."""
  if _is_polars(frame):
    # Without pyarrow, which polars' own way needs.
    return pd.DataFrame(frame.to_dict(as_series=False))
  if isinstance(frame.columns, pd.MultiIndex):
    raise UserError(
      "the frame has several levels of columns: give them one name each, such as by "
      "frame.columns = ['_'.join(map(str, c)) for c in frame.columns]"
    )
  names = [name for name in frame.index.names if name is not None]
  return frame.reset_index(names) if names else frame


def _read_file(source: str | os.PathLike) -> Read:
  """Return the table of a file as it stands there."""
  suffix = _suffix(source)
  with reading(source, f"give a table as {', '.join(SUFFIXES)}"):
    with fsspec.open(os.fspath(source), "rb", compression="infer") as stream:
      content = stream.read()
    if suffix in TEXTS:
      return _read_text(str(source), content)
    data = io.BytesIO(content)
    if suffix == ".parquet":
      return Read(_as_pandas(pd.read_parquet(data)), [])
    if suffix in (".xlsx", ".xls"):
      return Read(pd.read_excel(data), [])
    records: Any
    if suffix in JSON_LINES:
      records = [json.loads(line) for line in content.splitlines() if line.strip()]
    else:
      records = json.loads(content)
    # pandas' own reader rounds numbers, and makes dates of them.
    frame = pd.DataFrame(records)
    _check_flat(source, frame)
    return Read(frame, [])


@contextlib.contextmanager
def reading(source: Any, remedy: str) -> Iterator[None]:
  """Say in a line what is wrong with a file that cannot be read."""
  try:
    yield
  except UserError:
    raise
  except ImportError:
    suffix = _suffix(source)
    package = PACKAGES.get(suffix, "its package")
    raise UserError(
      f"{source}: {suffix[1:]} files need {package}: pip install {package}, or give .csv"
    ) from None
  except Exception as error:  # what is no such file raises many kinds
    raise UserError(
      f"{source} cannot be read ({short_message(error)}): {remedy}"
    ) from None


def _check_flat(source: Any, frame: pd.DataFrame) -> None:
  """Raise `UserError` if cells of a JSON file hold lists or objects."""
  for name, column in frame.items():
    if column.map(lambda cell: isinstance(cell, list | dict)).any():
      raise UserError(
        f"{source} has lists or objects in {name}: make a row of each number, such as by "
        "pandas.json_normalize(data) or frame.explode(column), and give the frame"
      )


def _read_text(source: str, content: bytes) -> Read:
  """Return the table of a text file whose first line is names."""
  text, remarks = _decoded(content)
  separator = _separator_of(source, text)
  frame = _frame_of(text, separator, header=0)
  if separator != SPACES:
    # pandas renames columns of the same name.
    frame.columns = pd.Index([name.strip() for name in _cells(text, separator)[0]])
  numbers = [name for name in frame.columns if _is_number(name)]
  if numbers and len(numbers) == frame.shape[1]:
    cells = ", ".join(map(str, numbers[:SHOWN_NAMES]))
    raise UserError(
      f"{source} has no names of columns, its first line is {cells}: begin it with a "
      "line of names, such as seed,score"
    )
  if separator != "," and frame.shape[1] > 1:
    remarks.append(f"separated by {SEPARATORS.get(separator, 'spaces')}")
  return Read(frame, remarks)


def read_matrix(
  file: Path, kind: str, axes: str, header: bool | None
) -> tuple[np.ndarray, str]:
  """Return predictions or labels of a text file, numbers or texts: without a line of
  names, if there is one, and without pandas' index; and a line on how it was read.

  Args:
    file: the text file.
    kind: what they are, for messages.
    axes: what rows and columns are, for messages.
    header: whether the first line is names, if it may be names or entries.

  Raises:
    UserError: it may be both and `header` is None, or entries are of two kinds.
  """
  text, remarks = _decoded(file.read_bytes())
  separator = _separator_of(str(file), text)
  names = _names_of(file, kind, _cells(text, separator), header)
  frame = _frame_of(text, separator, header=0 if names else None)
  if names:
    frame.columns = pd.Index(names)
    # pandas' index has no name or one of its own, before columns 0, 1, ...
    if _is_index(names):
      frame, index = frame.iloc[:, 1:], names[0]
    else:
      frame, index = without_index(frame)
    if index is not None:
      remarks.append(f"without pandas' index {index}".rstrip())
  empty = int(frame.isna().to_numpy().sum())
  if empty:
    remarks.append(f"{count_of(empty, 'empty cell')}: not asked")
  array = _entries_of(file, frame, axes, 2 if names else 1)
  return array, _note(file, frame, separator, bool(names), remarks)


def _names_of(
  file: Path, kind: str, cells: Sequence[Sequence[str]], header: bool | None
) -> list[str] | None:
  """Return a first line that is names, or None if it is entries.

  Raises:
    UserError: it may be either, and `header` does not say.
  """
  first, *below = ([cell.strip() for cell in line] for line in cells)
  if _is_index(first):
    return first
  # The first column may be an index of texts.
  entries = {cell for line in below for cell in (line[1:] or line)}
  if any(_is_text(cell) for cell in entries):
    if header is None:
      # Names of classes occur again below, as a rule; names of columns do not.
      header = entries.isdisjoint(first) or not first[0]
    return first if header else None
  if any(_is_text(cell) for cell in first):
    return first
  if not _is_numbering(first):
    return None
  if header is None:
    # 0, 1, 2 may be names, if no line below has their highest number: the first line
    # would be the only one to hold that class.
    numbers = [_number(cell) for cell in entries if cell.lower() not in MISSING]
    if not numbers or max(numbers) >= len(first) - 1:
      raise UserError(_both_ways(file, kind, first, len(below)))
    header = True
  return first if header else None


def _both_ways(file: Path, kind: str, first: Sequence[str], rows: int) -> str:
  line = ", ".join(first[:2])
  if len(first) > 2:
    line = f"{line}, ..., {len(first) - 1}"
  return (
    f"{file}: its first line, {line}, may be names, above {rows} rows of {kind}, or "
    f"numbers, the first of {rows + 1} rows: give a .npy file, or "
    "vs.import_runs(..., header=True) or False"
  )


def _is_index(names: Sequence[str]) -> bool:
  """Return whether a line of names begins with that of pandas' index."""
  if len(names) < 2 or not (_is_text(names[0]) or not names[0]):
    return False
  return _is_numbering(names[1:]) or (not names[0] and all(map(_is_text, names[1:])))


def _is_numbering(cells: Sequence[str]) -> bool:
  """Return whether cells count from 0 on, as the columns of a frame do by default."""
  numbers = [_number(cell) if _is_number(cell) else None for cell in cells]
  return numbers == list(range(len(cells)))


def _entries_of(
  file: Path, frame: pd.DataFrame, axes: str, first_line: int
) -> np.ndarray:
  """Return the entries of a table: numbers, or texts if none is a number.

  Raises:
    UserError: there are both.
  """
  columns = [numbers_of(frame.iloc[:, column]) for column in range(frame.shape[1])]
  numbers = [column for column in columns if column is not None]
  if len(numbers) == len(columns):
    return np.stack(numbers, axis=1)
  texts = frame.astype(object).where(frame.notna(), "").astype(str).to_numpy()
  is_number = np.vectorize(_is_number, otypes=[bool])(texts)
  if not is_number.any():
    return texts
  is_odd = np.array([column is None for column in columns]) & ~is_number
  is_odd &= texts != ""
  row, column = np.argwhere(is_odd)[0]
  raise UserError(
    f"{file} has {texts[row, column][:60]!r} in line {row + first_line}, column "
    f"{column + 1}: give numbers only, or names of classes only, {axes}; a run without a "
    "prediction has -1, one that was not asked -2"
  )


def _note(
  file: Path, frame: pd.DataFrame, separator: str, named: bool, remarks: Sequence[str]
) -> str:
  """Return what was understood of a file."""
  rows, columns = frame.shape
  parts = [f"{count_of(rows, 'row')} × {count_of(columns, 'column')}"]
  if columns > 1:
    parts.append(f"separated by {SEPARATORS.get(separator, 'spaces')}")
  if named:
    names = listed(list(frame.columns), SHOWN_NAMES)
    parts.append(f"the first line is names ({names})")
  else:
    parts.append("no line of names")
  return f"{file}: {', '.join([*parts, *remarks])}"


def _cells(text: str, separator: str) -> list[list[str]]:
  """Return the cells of each line."""
  lines = [line for line in text.splitlines() if line.strip()]
  if separator == SPACES:
    return [line.split() for line in lines]
  is_space = separator == SPACE
  return list(csv.reader(lines, delimiter=separator, skipinitialspace=not is_space))


def _frame_of(text: str, separator: str, header: int | None) -> pd.DataFrame:
  return pd.read_csv(
    io.StringIO(text),
    sep=separator,
    header=header,
    index_col=False,  # pandas takes a column for the index where lines end in commas
    skipinitialspace=separator not in (SPACE, SPACES),
    # A class or a model may be called None. What a number lacks is found by its column.
    keep_default_na=False,
    na_values=[""],
    # In chunks, a column could have several types.
    low_memory=False,
  )


def _decoded(content: bytes) -> tuple[str, list[str]]:
  """Return a file's text, and a remark if it is not in UTF-8."""
  # Excel's "Unicode text" begins with a byte order mark. UTF-8 may have one, too.
  if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
    return content.decode("utf-16"), ["UTF-16"]
  try:
    return content.decode("utf-8-sig"), []
  except UnicodeDecodeError:
    return content.decode("cp1252", errors="replace"), ["Windows-1252"]


def _separator_of(source: str, text: str) -> str:
  """Return what separates the columns: what gives the line of names several cells, and
  all lines as many.

  Raises:
    UserError: lines have different numbers of cells.
  """
  lines = [line for line in text.splitlines()[:HEAD] if line.strip()]
  if not lines:
    raise UserError(f"{source} is empty: give a line of names and a row for each run")
  found = []
  for separator in (*SEPARATORS, SPACE):
    rows = list(csv.reader(lines, delimiter=separator))
    counts = {len(cells) for cells in rows}
    if len(counts) == 1 and counts != {1}:
      found.append((len(rows), separator))
  if found:
    # A sign within quoted texts may make one row of several lines.
    return max(found, key=lambda pair: pair[0])[1]
  counts = {len(line.split()) for line in lines}
  if len(counts) == 1 and counts != {1}:
    return SPACES
  if not any(separator in lines[0] for separator in SEPARATORS):
    # One column, of numbers with decimal commas or of texts.
    unused = [separator for separator in SEPARATORS if separator not in text]
    return unused[-1] if unused else ","
  of_commas = [len(cells) for cells in csv.reader(lines, delimiter=",")]
  line = next(i for i, count in enumerate(of_commas) if count != of_commas[0])
  raise UserError(
    f"{source} is no table: line {line + 1} has {of_commas[line]} cells and the first "
    f"{of_commas[0]}, separated by commas; nor does another separator fit"
  )


def _number(cell: object) -> float:
  return float(str(cell).replace(",", "."))


def _is_number(cell: object) -> bool:
  try:
    _number(cell)
  except ValueError:
    return False
  return True


def _is_text(cell: str) -> bool:
  # A missing number is no text, which would make its line one of names.
  return cell.lower() not in MISSING and not _is_number(cell)


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
    is_index = np.array_equal(frame.iloc[:, 0], np.arange(len(frame)))
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


def numbers_of(column: pd.Series) -> pd.Series | None:
  """Return the numbers of a column, whose cells may be texts of numbers, or all percents:
  NaN where a cell is empty; None if some cell is neither a number nor empty.

  Raises:
    UserError: commas may be decimal, or separate thousands.
  """
  if pd.api.types.is_bool_dtype(column):
    return None
  if pd.api.types.is_numeric_dtype(column):
    return column.astype(np.float64)
  texts = column.astype(str).str.strip()
  is_missing = column.isna() | texts.str.lower().isin(MISSING)
  known = texts[~is_missing]
  if known.str.endswith("%").all():
    known = known.str.removesuffix("%").str.strip()
  has_comma = known.str.fullmatch(DECIMAL_COMMA)
  if has_comma.any():
    _check_decimals(str(column.name), known[has_comma])
    known = known.str.replace(",", ".")
  values = pd.to_numeric(known, errors="coerce")
  if values.isna().any() or not len(known):
    return None
  return values.astype(np.float64).reindex(column.index)


def _check_decimals(name: str, cells: pd.Series) -> None:
  """Raises: UserError: commas may be decimal, or separate thousands."""
  if cells.str.fullmatch(THOUSANDS).all():
    cell = cells.iloc[0]
    decimal, whole = cell.replace(",", ".", 1), cell.replace(",", "")
    raise UserError(
      f"{name} has {cell}, which may be {decimal} or {whole}: write it without commas"
    )


def is_whole(values: pd.Series) -> bool:
  """Return whether all numbers that are there are whole."""
  known = values.dropna().to_numpy()
  return bool(
    len(known) and np.isfinite(known).all() and (known == np.rint(known)).all()
  )


def listed(names: Sequence[str], most: int = 8) -> str:
  """Return names in a line, the first of many."""
  texts = [str(name) for name in names[:most]]
  if len(names) > most:
    texts.append("...")
  return ", ".join(texts)
