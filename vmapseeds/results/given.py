"""Arrays and tables of runs trained elsewhere, from memory or files."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Shaped

from vmapseeds.mistakes import Mistake, safe_name, whole_number
from vmapseeds.results.text_tables import (
  SUFFIXES,
  check_names,
  read_numbers_table,
  read_values_table,
  without_index,
)
from vmapseeds.stats.reading import check_axes, layout, read
from vmapseeds.store.files import short_message
from vmapseeds.training.names import FOLDER_NAMES

AXES = {
  "predictions": "runs examples",
  "logits": "runs examples classes",
  "labels": "examples",
}
# In Fortran order a run is scattered over the whole file, and every block would read
# nearly all of it.
FORTRAN_BYTES = 2**31
ARRAY_NAMES = (*FOLDER_NAMES, *AXES, "accuracy", "diverged", "example", "class")
# Names of the runs table that mean seeds.
SEED = "seed"


class Source:
  """An array or a file whose slices along axis 0 are NumPy arrays.

  An `.npy` file is memory-mapped anew for each slice, because the pages of a lasting
  map would count as used memory. Other files are read whole.

  Args:
    kind: predictions, logits or labels.
    given: the array, or the path of a file.
    test_set: whose array it is, for messages; empty if there is only one.
    header: of a text file whose first line may be names or numbers, whether it is
      names; None if that is not known.

  Attributes:
    note: how a text file was read.

  Raises:
    Mistake: it cannot be read so.
  """

  def __init__(
    self, kind: str, given: Any, test_set: str = "", header: bool | None = None
  ):
    self.kind, self.what = kind, f"{kind} of {test_set}" if test_set else kind
    self.note = ""
    what = self.what
    self.file = Path(given) if isinstance(given, str | os.PathLike) else None
    if self.file is None and not hasattr(given, "shape"):
      with converted(what):
        given = read(what, given, AXES[kind])
    self._open: Callable[[], Any] = lambda: given
    if self.file is not None:
      self._open, self.note = opened(self.file, kind, header)
    array = self._open()
    self.shape = tuple(array.shape)
    check_axes(what, self.shape, AXES[kind])
    if 0 in self.shape:
      raise Mistake(
        f"{what} has shape {self.shape}, {layout(AXES[kind])}: give at least one of each"
      )
    self.dtype = self[:0].dtype
    if kind == "logits" and self.dtype not in (np.float16, np.float32, np.float64):
      lost = "; np.save loses bfloat16, save float32" if self.dtype == "V2" else ""
      raise Mistake(
        f"{what} has dtype {self.dtype}: give float16, bfloat16, float32 or float64{lost}"
      )
    fortran = self.file and not array.flags.c_contiguous
    if fortran and array.nbytes > FORTRAN_BYTES and isinstance(array, np.memmap):
      raise Mistake(
        f"{self.file} is in Fortran order, which is slow to read by runs: save np.ascontiguousarray of it"
      )

  def __getitem__(self, rows: slice) -> Shaped[np.ndarray, "..."]:
    with converted(self.what):
      block = self._open()[rows]
      if np.ma.is_masked(block):
        fill = (
          "-1 for none"
          if self.kind == "predictions"
          else "or leave their runs or examples out"
        )
        raise Mistake(f"{self.what} has masked entries: fill them, {fill}")
      if str(getattr(block, "dtype", "")).endswith(
        "bfloat16"
      ):  # PyTorch converts with `float()`
        block = block.float() if hasattr(block, "float") else block.astype(np.float32)
      block = np.asarray(block)
    return block.astype(block.dtype.newbyteorder("="), copy=False)


@contextlib.contextmanager
def converted(what: str) -> Iterator[None]:
  """Turn PyTorch's errors, for tensors that are sparse, have gradients or are on other
  devices, into a `Mistake`.
  """
  try:
    yield
  except (TypeError, RuntimeError) as error:
    raise Mistake(
      f"{what} cannot be read as a NumPy array ({str(error).splitlines()[0]})"
    ) from None


def opened(file: Path, kind: str, header: bool | None) -> tuple[Callable[[], Any], str]:
  """Return a function that returns the array of a file, and a note on how a text file
  was read. Of an `.npz` file with several arrays it is the one that is called `kind`.
  Pickled objects are never loaded.
  """
  note = ""
  if file.suffix in SUFFIXES:
    axes = layout(AXES[kind])
    table = readable_file(file, lambda: read_numbers_table(file, kind, axes, header))
    array, note = whole_numbers(numbers(table.frame, kind)), table.note
  elif file.suffix == ".npz":
    array = readable_file(file, lambda: member(file, kind))
  elif file.suffix == ".parquet":
    array = readable_file(file, lambda: numbers(pd.read_parquet(file), kind))
  else:
    return functools.partial(readable_file, file, lambda: mapped(file)), note
  return lambda: array, note


def readable_file(file: Path, reader: Callable[[], Any]) -> Any:
  """Return what a reader returns, or raise a `Mistake` that says what to give."""
  remedy = "give a .npy file, as np.save writes one array, or .npz, .csv, .tsv, .txt or .parquet"
  if file.suffix in (".pt", ".pth", ".pkl", ".ckpt", ".safetensors"):
    name = file.with_suffix(".npy").name
    remedy = f"load it, and np.save({name!r}, tensor.cpu().numpy())"
    raise Mistake(f"{file} holds objects of another library: {remedy}")
  if not os.path.isfile(file):
    raise Mistake(f"{file} is no file: {remedy}")
  try:
    with np.errstate(over="raise"):  # sizes in a broken header may overflow
      return reader()
  except Mistake:
    raise
  except ImportError:
    raise Mistake(
      f"{file}: parquet files need pyarrow: pip install pyarrow, or give .npy or .csv"
    ) from None
  except Exception as error:  # a missing or broken header raises many kinds
    raise Mistake(f"{file} cannot be read ({short_message(error)}): {remedy}") from None


def mapped(file: Path) -> Shaped[np.ndarray, "..."]:
  """Memory-map the array of a `.npy` file."""
  return np.lib.format.open_memmap(file, mode="r")


def member(file: Path, what: str) -> Shaped[np.ndarray, "..."]:
  """Return an array of an `.npz` file: the one called `what`, or the only one.

  Raises:
    Mistake: there are others only.
  """
  with np.load(file, allow_pickle=False) as held:
    names = held.files
    if what not in names and len(names) != 1:
      raise Mistake(
        f"{file} holds {', '.join(names) or 'nothing'}: call the array {what!r}, or "
        "give a file with one array"
      )
    return held[what if what in names else names[0]]


def numbers(table: pd.DataFrame, what: str) -> Shaped[np.ndarray, "..."]:
  """Return a table as an array: rows are runs. Labels are its only row or column."""
  array = table.to_numpy()
  return array.reshape(-1) if what == "labels" and 1 in array.shape else array


def whole_numbers(array: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
  """Return an array as integers if all its numbers are whole: text has no types."""
  if array.dtype.kind == "f" and (array == np.rint(array)).all():
    return array.astype(np.int64)
  return array


def read_values(given: Any, runs: int) -> dict[str, Shaped[np.ndarray, " runs"]]:
  """Return the columns of a runs table: seeds as int64, other values as float64.

  Args:
    given: name -> a number, or one for each run; a frame of pandas; or a file of such
      a table. The index that pandas wrote as a column is left out.
    runs: how many there are.

  Raises:
    Mistake: it is no such table.
  """
  if isinstance(given, str | os.PathLike):
    given, _ = read_table(Path(given))
  if isinstance(given, pd.DataFrame):
    given, _ = without_index(given)
    check_names("values", given)
  try:
    table = {str(name): np.asarray(column) for name, column in dict(given).items()}
  except (TypeError, ValueError, RuntimeError):
    raise Mistake(
      f"values are {given!r:.100}: give name -> numbers, such as {{'seed': [0, 1]}}"
    ) from None
  return {name: _column(name, column, runs) for name, column in table.items()}


def read_table(file: Path) -> tuple[Any, str]:
  """Return the table of a file with a name for each column, and a note on how a text
  file was read.
  """

  def of_npz():
    with np.load(file, allow_pickle=False) as held:
      return dict(held)

  if file.suffix in SUFFIXES:
    table = readable_file(file, lambda: read_values_table(file))
    return table.frame, table.note
  readers: dict[str, Callable[[], Any]] = {
    ".parquet": lambda: pd.read_parquet(file),
    ".npz": of_npz,
  }
  if file.suffix not in readers:
    raise Mistake(
      f"values are in {file}: give a .csv, .tsv, .txt, .parquet or .npz file"
    )
  return readable_file(file, readers[file.suffix]), ""


def is_seed(name: str) -> bool:
  """Return whether a column of this name has seeds: `seed`, or `seed_<source>`."""
  return name == SEED or name.startswith(f"{SEED}_")


def _column(name, column, runs):
  if safe_name("value", name) in ARRAY_NAMES:
    raise Mistake(f"value {name!r}: results have something else of that name")
  if column.ndim == 0:
    column = np.repeat(column, runs)
  if column.shape != (runs,):
    raise Mistake(
      f"{name} has shape {column.shape} beside {runs} runs: give one number a run"
    )
  if is_seed(name):
    seeds = [whole_number(seed) for seed in column]
    for run, seed in enumerate(seeds):
      if seed is None or not 0 <= seed < 2**63:
        raise Mistake(
          f"{name} is {_shown(column[run])} at run {run}: give a whole number from 0 on"
        )
    return np.array(seeds, np.int64)
  for run, x in enumerate(column):
    if not _is_finite(x):
      raise Mistake(f"{name} is {_shown(x)} at run {run}: give finite numbers")
  return column.astype(np.float64)


def _shown(x):
  return f"{getattr(x, 'item', lambda: x)()!r:.50}"


def _is_finite(x):
  try:
    return np.isfinite(float(x)) and not isinstance(x, str)
  except (TypeError, ValueError):
    return False


def sources(kind: str, given: Any, header: bool | None = None) -> dict[str, Source]:
  """Return the sources of test sets by their names. What is no mapping is of "test"."""
  if not isinstance(given, dict):
    return {"test": Source(kind, given, header=header)}
  return {
    safe_name("test set", name): Source(
      kind, of, name if len(given) > 1 else "", header
    )
    for name, of in given.items()
  }


def as_runs(kind: str, given: Any) -> Any:
  """Return arrays with a first axis of runs, which those of one run lack."""
  if isinstance(given, dict):
    return {name: as_runs(kind, of) for name, of in given.items()}
  if isinstance(given, xr.DataArray) or not hasattr(given, "shape"):
    with converted(kind):
      given = np.asarray(read(kind, given, AXES[kind], at_least=1))
  return given[None] if len(given.shape) == len(AXES[kind].split()) - 1 else given
