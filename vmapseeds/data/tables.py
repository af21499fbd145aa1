"""Tables of pandas, and labels that are names, as arrays."""

from typing import Any

import numpy as np
from jaxtyping import Shaped

from vmapseeds.errors import UserError, as_numpy, printable, shortened

# NumPy's kinds of types that hold numbers: bool, int, uint and float.
NUMBER_KINDS = frozenset("biuf")
FILL = (
  "fill them from training examples, such as with their median, or leave these rows out"
)


def is_table(data: Any) -> bool:
  """Return whether `data` is a frame or a series of pandas, or of a like library."""
  return all(hasattr(data, name) for name in ("isna", "to_numpy", "index"))


def numbers_of(data: Any, where: str) -> np.ndarray:
  """Return an array, or the numbers of a table.

  Raises:
    UserError: a column of the table lacks values or holds no numbers.
  """
  if not is_table(data):
    array = as_numpy(data)
    # Rows of a table, of which the message can name the column.
    if array.ndim == 2 and array.dtype.kind == "f":
      _check_complete(np.isnan(array), where)
    return array

  columns = {}
  if hasattr(data, "columns"):
    columns.update(data.items())
  else:
    columns[data.name] = data
  kinds = set()
  for name, column in columns.items():
    lacking = int(column.isna().sum())
    if lacking:
      raise UserError(_lacks(f"column {name!r}", where, lacking, len(column)))
    # Some of pandas' own types have no kind.
    kind = getattr(column.dtype, "kind", "")
    if kind not in NUMBER_KINDS:
      raise UserError(
        f"column {name!r} of {where} holds {column.dtype}: make numbers of it, such as by "
        f"pandas.get_dummies(table, columns=[{name!r}])"
      )
    kinds.add(kind)

  # Whole numbers stay whole if no column has others.
  dtypes = {frozenset("b"): bool, frozenset("i"): np.int64, frozenset("u"): np.uint64}
  dtype = dtypes.get(frozenset(kinds), np.float64)
  return data.to_numpy(dtype)


def in_order_of_columns(table: Any, train: Any, where: str) -> Any:
  """Return a table with its columns in the order of the training set's table, or
  unchanged if one of the two is no table with columns.

  Raises:
    UserError: the columns are others.
  """
  # Frames of all libraries have columns.
  columns = getattr(table, "columns", None)
  train_columns = getattr(train, "columns", None)
  if columns is None or train_columns is None or list(columns) == list(train_columns):
    return table
  names = list(train_columns)
  lacking = [name for name in names if name not in columns]
  extra = [name for name in columns if name not in names]
  if lacking or extra or len(columns) != len(names):
    first = "some are there twice"
    if lacking:
      first = f"it has no column {lacking[0]!r}"
    elif extra:
      first = f"it has the column {extra[0]!r}"
    raise UserError(
      f"columns of {where} are not those of 'train', {first}: give the same, in any order"
    )
  return table[names]


def check_same_index(inputs: Any, targets: Any, where: str) -> None:
  """Raise `UserError` if inputs and targets are tables whose rows have other names, or
  the same ones in another order.
  """
  if not (is_table(inputs) and is_table(targets)) or inputs.index.equals(targets.index):
    return
  # Where one table only counts its rows, and the other names them, nothing contradicts
  # their order.
  counts = _counts_rows(inputs.index) or _counts_rows(targets.index)
  is_free = counts and not inputs.index.isin(targets.index).any()
  # Of another number of rows, the message that says so is clearer.
  if len(inputs) == len(targets) and not is_free:
    raise UserError(
      f"{where} has targets with another index than its inputs: give y.loc[x.index], or "
      "y.to_numpy() if the rows are in the same order"
    )


def _check_complete(lacks: Shaped[np.ndarray, "examples columns"], where: str) -> None:
  counts = lacks.sum(0)
  if counts.any():
    column = int(counts.argmax())
    raise UserError(_lacks(f"column {column}", where, counts[column], len(lacks)))


def _lacks(
  what: str,
  where: str,
  lacking: int,
  rows: int,
) -> str:
  return f"{what} of {where} lacks {lacking} of {rows} values: {FILL}"


def targets_of_column(data: Any, where: str) -> tuple[np.ndarray, list[str] | None]:
  """Return targets as an array: of texts if they are names of classes, and then the names
  of categories in their order, if they have one.

  Raises:
    UserError: targets are missing.
  """
  # A series has its categories under `cat`, pandas' Categorical has them itself.
  categorical = getattr(data, "cat", data)
  categories = getattr(categorical, "categories", None)
  if categories is not None:
    codes = np.asarray(categorical.codes)
    _check_present(codes < 0, where)
    names = [str(name) for name in categories]
    is_whole = categories.dtype.kind in "iu"
    if is_whole and np.array_equal(categories, np.arange(len(names))):
      return codes.astype(np.int64), None
    return np.array(names)[codes], names

  if is_table(data):
    array = _table_labels(data, where)
  else:
    array = as_numpy(data)
  # pandas holds texts, and what is of several types, as objects.
  if array.dtype.kind == "O" and array.ndim == 1:
    are_texts = [isinstance(value, str) for value in array]
    # A list of texts and numbers would become texts.
    if all(are_texts) or not any(are_texts):
      array = np.asarray(array.tolist())
  # Classes are whole numbers.
  if array.ndim == 1 and array.dtype.kind == "b":
    array = array.astype(np.int64)
  return array, None


def _table_labels(table: Any, where: str) -> np.ndarray:
  """Return a table's numbers, or its values as objects where some are no numbers."""
  if hasattr(table, "columns"):
    dtypes = table.dtypes.tolist()
  else:
    _check_present(table.isna().to_numpy(), where)
    dtypes = [table.dtype]
  if all(dtype.kind in NUMBER_KINDS for dtype in dtypes):
    return numbers_of(table, where)
  return table.to_numpy(object)


def _check_present(lacks: Shaped[np.ndarray, " examples"], where: str) -> None:
  if lacks.any():
    raise UserError(
      f"{where} has {lacks.sum()} of {len(lacks)} examples without a target: leave these "
      "out"
    )


def ids_of_table(data: Any) -> np.ndarray | None:
  """Return the index of a table as texts; None if it only counts rows from 0, or if there
  is none.
  """
  if not is_table(data):
    return None
  index = data.index
  if _counts_rows(index):
    return None
  return as_ids(list(index))


def _counts_rows(index: Any) -> bool:
  """Return whether an index only counts rows from 0, as where no one names them."""
  return index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index)))


def as_ids(ids: Any) -> np.ndarray:
  """Return ids of examples as texts of one line each.

  Raises:
    UserError: two examples have the same.
  """
  texts = np.array([printable(each) for each in ids], dtype=str)
  distinct, counts = np.unique(texts, return_counts=True)
  if len(distinct) < len(texts):
    repeated = shortened(str(distinct[counts.argmax()]), 60)
    raise UserError(
      f"{counts.max()} examples have the id {repeated!r}: give each its own, or number the "
      "rows of a frame by reset_index(drop=True)"
    )
  return texts


def as_classes(
  texts: Shaped[np.ndarray, " examples"],
  names: list[str],
  where: str,
) -> np.ndarray:
  """Return the number of each class, by its name.

  Raises:
    UserError: a name is not among `names`.
  """
  places = {name: place for place, name in enumerate(names)}
  unknown = sorted(set(texts.tolist()) - set(names))
  if unknown:
    raise UserError(
      f"{where} has the class {unknown[0]!r:.60}, which is none of {', '.join(names)}: the "
      "training set needs examples of it, or class_names its name"
    )
  return np.array([places[text] for text in texts.tolist()], np.int64)
