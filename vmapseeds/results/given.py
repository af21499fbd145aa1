"""Arrays and tables of runs trained elsewhere, from memory or files."""

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Shaped

from vmapseeds.data.tables import as_ids, ids_of_table
from vmapseeds.errors import (
  UserError,
  as_numpy,
  check_one_of,
  option,
  printable,
  safe_name,
  whole_number,
)
from vmapseeds.machine import local_path
from vmapseeds.results.formatting import count_of
from vmapseeds.results.table_files import (
  SUFFIXES,
  TEXTS,
  is_table,
  listed,
  numbers_of,
  read_matrix,
  read_table,
  reading,
)
from vmapseeds.stats.reading import (
  NOT_ASKED,
  check_axes,
  describe_axes,
  fill_masked,
  fill_missing,
  plain_array,
  read_array,
  refuse_entry,
)
from vmapseeds.training.names import (
  DIVERGED,
  FOLDER_NAMES,
  OF_TEST_SETS,
)
from vmapseeds.training.recipes import check_test_sets
from vmapseeds.training.runs import as_text, as_values

# What is given, by its kind; "numbers" are predictions that are no classes.
AXES = {
  "predictions": "runs examples",
  "numbers": "runs examples",
  "losses": "runs examples",
  "logits": "runs examples classes",
  "probabilities": "runs examples classes",
  "labels": "examples",
  "targets": "examples",
}
ARGUMENTS = {"numbers": "predictions"}  # kinds that the user calls otherwise
FLOATS = ("numbers", "losses", "targets")  # kinds of any numbers
SUM_OF_PROBABILITIES = 0.01  # how far from 1 that of one example may be
# In Fortran order a run is scattered over the whole file, and every block would read
# nearly all of it.
FORTRAN_BYTES = 2**31
ROWS_AT_ONCE = 2**22  # numbers of predictions that are looked at together
TEXTS_LOOKED_AT = 100  # rows by which texts are told from numbers
# Names that a column of the runs table would share with an array of the folder.
ARRAY_NAMES = (*FOLDER_NAMES, *OF_TEST_SETS, DIVERGED)
# Names of the runs table that mean seeds.
SEED = "seed"
ARRAY_FILES = (
  "give a .npy file, as np.save writes one array, or .npz, .csv, .tsv, .txt or .parquet"
)


class GivenArray:
  """An array or a file whose slices along axis 0 are NumPy arrays.

  An `.npy` file is memory-mapped anew for each slice, because the pages of a lasting
  map would count as used memory. Other files are read whole.

  Args:
    kind: a key of `AXES`. Of probabilities, the slices are their logarithms, logits.
    array: the array, or the path of a file.
    test_set: whose array it is, for messages; empty if there is only one.
    header: of a text file whose first line may be names or numbers, whether it is
      names; None if that is not known.
    one_run: whether an array may be of one run, without an axis of runs.

  Attributes:
    note: how a text file was read.
    names: of entries that are names of classes, those that occur, sorted; else None.
      Entries are their numbers here, and those of `use_class_names` from then on.

  Raises:
    UserError: it cannot be read so.
  """

  def __init__(
    self,
    kind: str,
    array: Any,
    test_set: str = "",
    header: bool | None = None,
    one_run: bool = False,
  ):
    self.kind, self.axes = kind, AXES[kind]
    noun = ARGUMENTS.get(kind, kind)
    self.what = f"{noun} of {test_set}" if test_set else noun
    self.note = ""
    self.names: list[str] | None = None
    self._has_missing = False  # of floats, some of which are NaN
    self.file: Path | None = None
    self._open: Callable[[], Any]
    if isinstance(array, str | os.PathLike) and not one_run:
      self.file = local_path(array)
      self._open, self.note = open_file(self.file, noun, self.axes, header)
    else:
      array = self._array(array, one_run)
      self._open = lambda: array
    self._check(self._open())

  def _array(self, array: Any, one_run: bool) -> Any:
    """Return what was given as an array of runs."""
    # Arrays of other libraries stay as they are: a block at a time is converted. Those of
    # xarray take no `None` for a new axis.
    if not hasattr(array, "shape") or (one_run and isinstance(array, xr.DataArray)):
      with converted(self.what):
        array = read_array(self.what, array, self.axes, at_least=int(one_run))
    axes_of_run = len(self.axes.split()) - 1
    if one_run and len(array.shape) == axes_of_run:
      return array[None]
    return array

  @property
  def has_logits(self) -> bool:
    """Return whether slices are logits."""
    return self.kind in ("logits", "probabilities")

  def _check(self, array: Any) -> None:
    """Set `shape` and `dtype`, or raise `UserError` if an array cannot be read so."""
    what = self.what
    self.shape = tuple(array.shape)
    check_axes(what, self.shape, self.axes)
    if 0 in self.shape:
      raise UserError(f"{self}: give at least one of each")
    if self.has_logits and self.shape[2] < 2:
      raise UserError(f"{self}: give at least two classes")
    if self.kind in ("predictions", "labels"):
      if as_texts(array[:TEXTS_LOOKED_AT]) is not None:
        return self._number_texts(array)
      self._check_floats()
    # Of no rows, as they come out: bfloat16 is float32 then.
    self.dtype = self[:0].dtype
    if self.kind in FLOATS and self.dtype.kind not in "biuf":
      raise UserError(f"{what} has dtype {self.dtype}: give numbers")
    if self.has_logits and self.dtype not in (np.float16, np.float32, np.float64):
      remedy = "give float16, bfloat16, float32 or float64"
      if self.dtype == "V2":
        remedy = f"{remedy}; np.save loses bfloat16, save float32"
      raise UserError(f"{what} has dtype {self.dtype}: {remedy}")
    is_mapped = self.file is not None and isinstance(array, np.memmap)
    if is_mapped and not array.flags.c_contiguous and array.nbytes > FORTRAN_BYTES:
      raise UserError(
        f"{self.file} is in Fortran order, which is slow to read by runs: save "
        "np.ascontiguousarray of it"
      )

  def __str__(self) -> str:
    return f"{self.what} has shape {self.shape}, {describe_axes(self.axes)}"

  def _number_texts(self, array: Any) -> None:
    """Number names of classes, `NOT_ASKED` where there is none."""
    with converted(self.what):
      texts = as_texts(array[:])
      if texts is None:
        texts = np.asarray(array).astype(str)
    numbers, names = pd.factorize(texts.ravel(), sort=True)
    numbers, names = numbers.reshape(texts.shape), names.tolist()
    if names == [""]:
      raise UserError(f"{self.what} are empty texts: give each its class")
    if names[0] == "":  # nothing sorts first
      is_missing = numbers == 0
      if self.kind == "labels":
        remedy = "leave examples without a label out"
        refuse_entry(self.what, texts, is_missing, self.axes, remedy)
      numbers, names = np.where(is_missing, NOT_ASKED, numbers - 1), names[1:]
    self.names, self._numbers = names, numbers
    self.dtype = np.dtype(str)
    self._open = lambda: numbers

  def use_class_names(self, class_names: Sequence[str] | None) -> None:
    """Make names of classes their indices; nothing of numbers.

    Raises:
      UserError: classes have no names, or others.
    """
    if not self.names:
      return
    if class_names is None:
      raise UserError(
        f"{self.what} are names, such as {self.names[0]!r}, and classes have no "
        "names here: give them as class_names, the first that of 0"
      )
    is_named = self._numbers >= 0
    classes = pd.Index(class_names).get_indexer(self.names)[self._numbers]
    if (classes[is_named] < 0).any():
      names = np.array(self.names)[self._numbers]
      remedy = (
        f"classes are {listed(class_names)}; give all of them as class_names, to another "
        "folder"
      )
      refuse_entry(self.what, names, (classes < 0) & is_named, self.axes, remedy)
    indices = np.where(is_named, classes, NOT_ASKED)
    self._open = lambda: indices

  def _check_floats(self) -> None:
    """Look which floats are missing, of numbers that should be classes.

    Raises:
      UserError: some are fractions.
    """
    if self[:0].dtype.kind != "f":
      return
    rows = max(1, ROWS_AT_ONCE // math.prod(self.shape[1:]))
    for start in range(0, self.shape[0], rows):
      block = self[start : start + rows]
      # As integers, where some are NaN and the others whole.
      self._has_missing |= block.dtype.kind == "i"
      fractions = block[np.isfinite(block) & (block != np.rint(block))]
      if fractions.size:
        raise UserError(
          f"{self.what} are numbers that are no classes, such as {fractions[0]:.4g}: give "
          f"what is to be predicted as {option('targets')}, and predictions of it; or "
          f"{option('losses')}"
        )

  def __getitem__(self, rows: slice) -> Shaped[np.ndarray, "..."]:
    with converted(self.what):
      block = self._open()[rows]
      if np.ma.is_masked(block):
        block = self._fill_masked(block)
      block = plain_array(block)
    # A file may have been written on a machine of the other byte order.
    block = block.astype(block.dtype.newbyteorder("="), copy=False)
    if self.kind == "predictions":
      return np.asarray(fill_missing(block, self._has_missing))
    if self.kind == "probabilities":
      return self._logarithms(block, rows.start or 0)
    return block

  def _logarithms(self, block: np.ndarray, first: int) -> np.ndarray:
    """Return logits of probabilities: log p, of 0 that of the smallest number."""
    sums = block.sum(axis=-1, dtype=np.float64)
    is_missing = np.isnan(block).all(axis=-1)
    wrong = ~is_missing & ~(np.abs(sums - 1) <= SUM_OF_PROBABILITIES)
    wrong |= (block < 0).any(axis=-1)
    if wrong.any():
      refuse_entry(
        f"the sum of {self.what}",
        sums,
        wrong,
        "runs examples",
        "give a probability from 0 on for each class, 1 in all, or logits=, if they are "
        "logits",
        first,
      )
    return np.log(np.maximum(block, np.finfo(block.dtype).tiny))

  def _fill_masked(self, block: np.ma.MaskedArray) -> np.ndarray:
    """Return rows with what says that a run was not asked where they are masked."""
    if self.kind == "predictions":
      return fill_masked(block)
    if self.kind in ("labels", "targets"):
      raise UserError(
        f"{self.what} has masked entries: fill them, or leave their runs or examples out"
      )
    floats: Any = block.astype(np.promote_types(block.dtype, np.float16))
    return floats.filled(np.nan)


@contextlib.contextmanager
def converted(what: str) -> Iterator[None]:
  """Turn PyTorch's errors, for tensors that are sparse, have gradients or are on other
  devices, into a `UserError`.
  """
  try:
    yield
  except (TypeError, RuntimeError) as error:
    raise UserError(
      # PyTorch's errors may have several lines.
      f"{what} cannot be read as a NumPy array ({str(error).splitlines()[0]})"
    ) from None


def open_file(
  file: Path, name: str, axes: str, header: bool | None = None
) -> tuple[Callable[[], Any], str]:
  """Return a function that returns the array of a file, and a note on how a text file
  was read. Of an `.npz` file with several arrays it is the one of this name. Pickled
  objects are never loaded.
  """
  # These are pickles, which run code when they are loaded, or need their library.
  if file.suffix in (".pt", ".pth", ".pkl", ".ckpt", ".safetensors"):
    saved = file.with_suffix(".npy").name
    raise UserError(
      f"{file} holds objects of another library: load it, and np.save({saved!r}, "
      "tensor.cpu().numpy())"
    )
  if not os.path.isfile(file):
    raise UserError(f"{file} is no file: {ARRAY_FILES}")

  if file.suffix not in (*TEXTS, ".npz", ".parquet"):
    return functools.partial(memory_map, file), ""
  note = ""
  with reading(file, ARRAY_FILES):
    if file.suffix in TEXTS:
      table, note = read_matrix(file, name, describe_axes(axes), header)
      array = whole_numbers(table)
    elif file.suffix == ".npz":
      array = member(file, name)
    else:
      array = pd.read_parquet(file).to_numpy()
  # Labels and targets are the only row or column of a table.
  if axes == "examples" and 1 in array.shape:
    array = array.reshape(-1)
  return lambda: array, note


def memory_map(file: Path) -> Shaped[np.ndarray, "..."]:
  """Memory-map the array of a `.npy` file."""
  # Sizes in a broken header may overflow.
  with reading(file, ARRAY_FILES), np.errstate(over="raise"):
    return np.lib.format.open_memmap(file, mode="r")


def member(file: Path, name: str) -> Shaped[np.ndarray, "..."]:
  """Return an array of an `.npz` file: the one of this name, or the only one.

  Raises:
    UserError: there are others only.
  """
  with np.load(file, allow_pickle=False) as held:
    names = held.files
    if name in names:
      return held[name]
    if len(names) != 1:
      raise UserError(
        f"{file} holds {', '.join(names) or 'nothing'}: call the array {name!r}, or "
        "give a file with one array"
      )
    return held[names[0]]


def as_texts(array: Any) -> Shaped[np.ndarray, "..."] | None:
  """Return entries as texts, "" where nothing is; None if they are none."""
  if hasattr(array, "to_numpy"):
    array = array.to_numpy()
  if isinstance(array, np.ma.MaskedArray) and array.dtype.kind in "SUO":
    array = array.filled("")
  # Arrays of other libraries have numbers.
  if not isinstance(array, np.ndarray):
    return None
  if array.dtype.kind == "O":
    is_missing = pd.isna(array)
    known = array[~is_missing]
    if not known.size or not all(isinstance(entry, str) for entry in known):
      return None
    array = np.where(is_missing, "", array)
  elif array.dtype.kind not in "SUT":
    return None
  texts = np.char.strip(array.astype(str))
  # What NumPy makes of a missing entry beside texts.
  texts[texts == "nan"] = ""
  return texts


def whole_numbers(array: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
  """Return an array as integers if all its numbers are whole: text has no types."""
  if array.dtype.kind == "f" and (array == np.rint(array)).all():
    return array.astype(np.int64)
  return array


def read_values(values: Any, runs: int) -> dict[str, Shaped[np.ndarray, " runs"]]:
  """Return the columns of a runs table: seeds as int64, other numbers as float64, texts
  as they are.

  Args:
    values: name -> a number or a text, or one for each run; a frame of pandas; or a file of such
      a table. The index that pandas wrote as a column is left out.
    runs: how many there are.

  Raises:
    UserError: it is no such table.
  """
  if isinstance(values, str | os.PathLike):
    values, _ = read_values_file(values)
  elif is_table(values):
    values = read_table(values).frame
  try:
    # Frames of all libraries have columns.
    names = values.columns if hasattr(values, "columns") else values.keys()
    # A series without names of its own is one column, whose rows are numbered.
    if not all(isinstance(name, str) for name in names):
      raise TypeError
    table = {name: as_numpy(values[name]) for name in names}
  except (AttributeError, TypeError, ValueError, RuntimeError):
    raise UserError(
      f"values are {values!r:.100}: give name -> numbers, such as {{'seed': [0, 1]}}"
    ) from None
  return {name: _column(name, column, runs) for name, column in table.items()}


def read_values_file(file: str | os.PathLike) -> tuple[Any, str]:
  """Return the runs table of a file, and a note on how it was read."""
  if not is_table(file):
    path = local_path(file)
    if path.suffix != ".npz":
      raise UserError(
        f"values are in {path}: give a table as {', '.join(SUFFIXES)}, or .npz"
      )

    with reading(path, ARRAY_FILES), np.load(path, allow_pickle=False) as arrays:
      return dict(arrays), ""
  frame, remarks = read_table(file)
  for name in frame:
    # Whole numbers stay whole.
    if pd.api.types.is_numeric_dtype(frame[name]):
      continue
    numbers = numbers_of(frame[name])
    if numbers is not None:
      frame[name] = numbers
  rows = f"{count_of(len(frame), 'row')} with {listed(list(frame.columns))}"
  return frame, f"{os.fspath(file)}: {', '.join([rows, *remarks])}"


def read_names(
  what: str, names: Any, count: int | None = None
) -> Shaped[np.ndarray, " examples"]:
  """Return a name or number of each example as texts.

  Args:
    what: what they are, for messages.
    names: (examples,), or a `.npy`, `.npz`, `.csv`, `.tsv`, `.txt` or `.parquet` file of
      these: a text file has one a line, and may have a line above them.
    count: how many examples there are; None if that is not known yet. A text file then
      has a line above its numbers only if that is no number.

  Raises:
    UserError: there are more or fewer, or it is no such file.
  """
  if isinstance(names, str | os.PathLike):
    file = local_path(names)
    names = _names_in(file, what)
    has_line_above = len(names) - 1 == count
    if count is None:
      are_numbers = [name.lstrip("-").isdigit() for name in map(str, names)]
      has_line_above = are_numbers[:1] == [False] and all(are_numbers[1:])
    if has_line_above and file.suffix in TEXTS:
      names = names[1:]
  texts = np.array([printable(name) for name in np.atleast_1d(names).tolist()], str)
  if count is not None and len(texts) != count:
    raise UserError(f"{what} are {len(texts)} of {count} examples: give one for each")
  return texts


def _names_in(file: Path, what: str) -> Any:
  if file.suffix not in TEXTS:
    open_array, _ = open_file(file, what, "examples")
    return open_array()
  with reading(file, ARRAY_FILES):
    lines = file.read_text("utf-8-sig").splitlines()
  return [line.strip().strip('"') for line in lines]


def by_test_set(arrays: Any) -> dict[str, Any]:
  """Return arrays by the names of test sets: what is no mapping is of "test"."""
  if not isinstance(arrays, dict):
    return {"test": arrays}
  check_test_sets(list(arrays))
  return arrays


def arrays_by_test_set(
  kind: str, arrays: Any, header: bool | None = None, one_run: bool = False
) -> dict[str, GivenArray]:
  """Return the sources of test sets by their names."""
  sources = {}
  arrays = by_test_set(arrays)
  for name, array in arrays.items():
    # Messages about the only test set need not name it.
    shown_name = name if len(arrays) > 1 else ""
    sources[name] = GivenArray(kind, array, shown_name, header, one_run)
  return sources


def ids_by_test_set(
  example_ids: Any, labels: Any, counts: Mapping[str, int]
) -> dict[str, Shaped[np.ndarray, " examples"]]:
  """Return the ids of the examples of each test set that has some: those given, or the
  index of a series of labels.

  Args:
    example_ids: one test set's, or test set -> ids; None for those of the labels.
    labels: as they were given.
    counts: how many examples each test set has.

  Raises:
    UserError: an id is there twice, or they do not fit the examples.
  """
  if example_ids is not None and not counts:
    raise UserError("example ids without labels: give both, in one order")
  if example_ids is None:
    given = {name: ids_of_table(of_set) for name, of_set in by_test_set(labels).items()}
  elif isinstance(example_ids, dict):
    given = example_ids
  else:
    given = dict.fromkeys(counts, example_ids)
  ids = {}
  for name, of_set in given.items():
    if of_set is None:
      continue
    check_one_of("test set with example ids", name, counts)
    ids[name] = as_ids(read_names("example ids", of_set, counts[name]))
  return ids


def in_order_of_ids(
  kind: str, array: Any, ids: Shaped[np.ndarray, " examples"] | None
) -> Any:
  """Return predictions with their columns in the order of the examples' ids, if they are
  a frame with ids as its columns; others as they are.

  Raises:
    UserError: the columns are other ids.
  """
  columns: Any = getattr(array, "columns", None)
  if ids is None or columns is None or _only_count(columns):
    return array
  names = pd.Index(as_ids(list(columns)))
  if not names.is_unique or set(names) != set(ids.tolist()):
    raise UserError(
      f"the columns of {kind} are not the ids of the examples, such as {ids[0]}: give "
      "a column for each, or an array in their order"
    )
  return array.iloc[:, names.get_indexer(ids)]


def _only_count(columns: Any) -> bool:
  return np.array_equal(columns, np.arange(len(columns)))


def is_seed(name: str) -> bool:
  """Return whether a column of this name has seeds: `seed`, or `seed_<source>`."""
  return name == SEED or name.startswith(f"{SEED}_")


def _column(name, column, runs):
  if safe_name("value", name) in ARRAY_NAMES:
    raise UserError(f"value {name!r}: that name is already used in the results")
  # One number is of all runs, as of a single run that is added.
  if column.ndim == 0:
    column = np.repeat(column, runs)
  if column.shape != (runs,):
    raise UserError(
      f"{name} has shape {column.shape} beside {runs} runs: give one number a run"
    )
  if not is_seed(name) and all(isinstance(value, str) for value in column):
    return np.array([as_text(name, str(value)) for value in column])
  for run, value in enumerate(column):
    remedy = _remedy_of_value(name, value)
    if remedy:
      (number,) = column[run : run + 1].tolist()  # NumPy's scalars print their type
      raise UserError(f"{name} is {number!r:.50} at run {run}: {remedy}")
  if is_seed(name):
    return np.array([whole_number(seed) for seed in column], np.int64)
  return as_values(column)


def _remedy_of_value(name, value):
  """Return what to give in place of a value; nothing of one that is right."""
  if is_seed(name):
    seed = whole_number(value)
    # Stored as int64.
    if seed is None or not 0 <= seed < 2**63:
      return "give a whole number from 0 on"
  elif not _is_finite(value):
    return "give finite numbers, or leave the column out"
  return ""


def _is_finite(value):
  # `float` reads texts, too.
  if isinstance(value, str):
    return False
  try:
    return np.isfinite(float(value))
  except (TypeError, ValueError):
    return False
