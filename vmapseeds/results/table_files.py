"""Tables as others write them: text with any separator, Parquet, Excel, JSON, frames of
pandas and polars. pandas reads them; here is decided how, and refused what can be read in
two ways.
"""

import csv
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import numpy as np
import pandas as pd

from vmapseeds.errors import UserError
from vmapseeds.store.files import short_message

TEXTS = (".csv", ".tsv", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (*TEXTS, *JSON_LINES, ".json", ".parquet", ".xlsx", ".xls")
# What a suffix needs besides pandas.
PACKAGES = {".parquet": "pyarrow", ".xlsx": "openpyxl", ".xls": "xlrd"}
# In the order in which they are tried: decimal commas stand beside the first three.
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
SPACES = r"\s+"
HEAD = 100  # lines by which the separator is chosen
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
  else:
    read = Read(_as_pandas(source), [])
    what = "the table"
  frame, index = without_index(read.frame)
  check_column_names(what, frame)
  if not len(frame):
    raise UserError(f"{what} has no rows below its names: give a row for each run")
  remarks = read.remarks
  if index is not None:
    remarks = [*remarks, f"without pandas' index {index}".rstrip()]
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
  try:
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
  except UserError:
    raise
  except ImportError:
    package = PACKAGES.get(suffix, "its package")
    raise UserError(
      f"{source} needs {package}: pip install {package}, or give .csv"
    ) from None
  except Exception as error:  # what is no such file raises many kinds
    raise UserError(
      f"{source} cannot be read ({short_message(error)}): give a table as "
      f"{', '.join(SUFFIXES)}"
    ) from None
  _check_flat(source, frame)
  return Read(frame, [])


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
  frame = pd.read_csv(
    io.StringIO(text),
    sep=separator,
    index_col=False,  # pandas takes a column for the index where lines end in commas
    skipinitialspace=separator != SPACES,
    # In chunks, a column could have several types.
    low_memory=False,
  )
  header = next(csv.reader([text.splitlines()[0]], delimiter=separator[-1]))
  if separator != SPACES:
    # pandas renames columns of the same name.
    frame.columns = pd.Index([name.strip() for name in header])
  numbers = [name for name in frame.columns if _is_number(name)]
  if numbers and len(numbers) == frame.shape[1]:
    cells = ", ".join(map(str, numbers[:6]))
    raise UserError(
      f"{source} has no names of columns, its first line is {cells}: begin it with a "
      "line of names, such as seed,score"
    )
  if separator != ",":
    words = SEPARATORS.get(separator, "spaces")
    if frame.shape[1] > 1:
      remarks.append(f"separated by {words}")
  return Read(frame, remarks)


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
  for separator in SEPARATORS:
    counts = {len(cells) for cells in csv.reader(lines, delimiter=separator)}
    if len(counts) == 1 and counts != {1}:
      return separator
  counts = {len(line.split()) for line in lines}
  if len(counts) == 1 and counts != {1}:
    return SPACES
  if not any(separator in lines[0] for separator in SEPARATORS):
    return ","
  of_commas = [len(cells) for cells in csv.reader(lines, delimiter=",")]
  line = next(i for i, count in enumerate(of_commas) if count != of_commas[0])
  raise UserError(
    f"{source} is no table: line {line + 1} has {of_commas[line]} cells and the line of "
    f"names {of_commas[0]}, separated by commas; nor does another separator fit"
  )


def _is_number(name: object) -> bool:
  try:
    float(str(name).replace(",", "."))
  except ValueError:
    return False
  return True


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


class Numbers(NamedTuple):
  """The numbers of a column, NaN where a cell is empty, and whether they are percents."""

  values: pd.Series
  in_percent: bool = False


def numbers_of(column: pd.Series) -> Numbers | None:
  """Return the numbers of a column, whose cells may be texts of numbers; None if some
  cell is neither a number nor empty.

  Raises:
    UserError: commas may be decimal, or separate thousands.
  """
  if pd.api.types.is_bool_dtype(column):
    return None
  if pd.api.types.is_numeric_dtype(column):
    return Numbers(column.astype(np.float64))
  texts = column.astype(str).str.strip()
  is_missing = column.isna() | texts.str.lower().isin(MISSING)
  known = texts[~is_missing]
  in_percent = bool(len(known) and known.str.endswith("%").all())
  if in_percent:
    known = known.str.removesuffix("%").str.strip()
  has_comma = known.str.fullmatch(DECIMAL_COMMA)
  if has_comma.any():
    _check_decimals(str(column.name), known[has_comma])
    known = known.str.replace(",", ".")
  values = pd.to_numeric(known, errors="coerce")
  if values.isna().any() or not len(known):
    return None
  return Numbers(values.astype(np.float64).reindex(column.index), in_percent)


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
