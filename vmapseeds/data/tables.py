"""Tables of pandas, and labels that are names, as arrays."""

from typing import Any

import numpy as np
from jaxtyping import Shaped

from vmapseeds.mistakes import Mistake, one_line

MOST_LETTERS = 60  # of the id of an example
FILL = (
  "fill them from training examples, such as with their median, or leave these rows out"
)


def is_table(given: Any) -> bool:
  """Return whether `given` is a frame or a series of pandas, or of a like library."""
  return all(hasattr(given, name) for name in ("isna", "to_numpy", "index"))


def numbers_of(given: Any, where: str) -> np.ndarray:
  """Return an array, or the numbers of a table.

  Raises:
    Mistake: a column of the table lacks values or holds no numbers.
  """
  if not is_table(given):
    array = np.asarray(given)
    if array.ndim == 2 and array.dtype.kind == "f":
      _check_complete(np.isnan(array), where)
    return array
  is_frame = hasattr(given, "columns")
  columns = dict(given.items()) if is_frame else {given.name: given}
  kinds = set()
  for name, column in columns.items():
    lacking = int(column.isna().sum())
    if lacking:
      raise Mistake(_said(f"column {name!r}", where, lacking, len(column)))
    kind = getattr(column.dtype, "kind", "")
    if kind not in (*"biuf",):
      raise Mistake(
        f"column {name!r} of {where} holds {column.dtype}: make numbers of it, such as by "
        f"pandas.get_dummies(table, columns=[{name!r}])"
      )
    kinds.add(kind)
  dtype = {frozenset("b"): bool, frozenset("i"): np.int64, frozenset("u"): np.uint64}
  return given.to_numpy(dtype.get(frozenset(kinds), np.float64))


def _check_complete(lacks: Shaped[np.ndarray, "examples columns"], where: str) -> None:
  counts = lacks.sum(0)
  if counts.any():
    column = int(counts.argmax())
    raise Mistake(_said(f"column {column}", where, counts[column], len(lacks)))


def _said(what: str, where: str, lacking: int, rows: int) -> str:
  return f"{what} of {where} lacks {lacking} of {rows} values: {FILL}"


def labels_of(given: Any, where: str) -> tuple[np.ndarray, list[str] | None]:
  """Return targets as an array: of texts if they are names of classes, and then the names
  of categories in their order, if they have one.

  Raises:
    Mistake: targets are missing.
  """
  categories = getattr(getattr(given, "cat", given), "categories", None)
  if categories is not None:
    codes = np.asarray(getattr(given, "cat", given).codes)
    _check_present(codes < 0, where)
    names = [str(name) for name in categories]
    if categories.dtype.kind in "iu" and np.array_equal(
      categories, np.arange(len(names))
    ):
      return codes.astype(np.int64), None
    return np.array(names)[codes], names
  if is_table(given):
    if not hasattr(given, "columns"):
      _check_present(given.isna().to_numpy(), where)
    dtypes = given.dtypes.tolist() if hasattr(given, "columns") else [given.dtype]
    kinds = {dtype.kind for dtype in dtypes}
    numbers = kinds <= {*"biuf"}
    array = numbers_of(given, where) if numbers else given.to_numpy(object)
  else:
    array = np.asarray(given)
  if array.ndim == 1 and array.dtype.kind == "b":
    array = array.astype(np.int64)
  if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.ravel()):
    array = array.astype(str)
  return array, None


def _check_present(lacks: Shaped[np.ndarray, " examples"], where: str) -> None:
  if lacks.any():
    raise Mistake(
      f"{where} has {lacks.sum()} of {len(lacks)} examples without a target: leave these "
      "out"
    )


def ids_of(given: Any) -> np.ndarray | None:
  """Return the index of a table as texts; None if it only counts rows from 0, or if there
  is none.
  """
  if not is_table(given):
    return None
  index = given.index
  if index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index))):
    return None
  return as_ids(list(index))


def as_ids(given: Any) -> np.ndarray:
  """Return ids of examples as texts that a page can show."""
  return np.array([one_line(each)[:MOST_LETTERS] for each in given], dtype=str)


def as_classes(
  texts: Shaped[np.ndarray, " examples"], names: list[str], where: str
) -> np.ndarray:
  """Return the number of each class, by its name.

  Raises:
    Mistake: a name is not among `names`.
  """
  places = {name: place for place, name in enumerate(names)}
  unknown = sorted({*texts.tolist()} - {*names})
  if unknown:
    raise Mistake(
      f"{where} has the class {unknown[0]!r:.60}, which is none of {', '.join(names)}: the "
      "training set needs examples of it, or class_names its name"
    )
  return np.array([places[text] for text in texts.tolist()], np.int64)
