"""Read what a caller gives as arrays, or raise a `UserError`: one line that says what was
given and what is allowed.
"""

import contextlib
import re
from typing import Any, NoReturn

import jax
import numpy as np

from vmapseeds.errors import (
  UserError,
  as_numpy,
  check_at_least,
  check_number,
)
from vmapseeds.stats._arrays import Array, Given, as_float64

# In predictions: the run was not asked for this example. -1 is an answer, and wrong.
NOT_ASKED = -2


def refuse_traced(what: str, x: object) -> None:
  """Raises: UserError: `x` is traced, as under `jit` and `vmap`."""
  # NumPy would raise JAX's error, which does not say what to do.
  if isinstance(x, jax.core.Tracer):
    raise UserError(
      f"{what} is traced: this statistic is computed in NumPy, call it outside jit and "
      "vmap"
    )


def read_array(
  what: str,
  x: Any,
  axes: str,
  at_least: int = 0,
) -> Array:
  """Return `x` as an array of the named axes; with `at_least`, that many of the last
  axes are enough.
  """
  refuse_traced(what, x)
  on_device = isinstance(x, jax.Array)
  if not on_device:
    # `np.asarray` would leave the mask out without a word.
    if np.ma.is_masked(x):
      raise UserError(
        f"{what} has masked entries: fill them, or leave their runs or examples out, "
        "first"
      )
    try:
      x = plain_array(x)
    except ValueError:
      raise UserError(
        f"{what} has rows of unequal length: give one array, {describe_axes(axes)}"
      ) from None
    # RuntimeError: a torch tensor with a gradient.
    except (TypeError, RuntimeError) as error:
      raise UserError(
        f"{what} is a {type(x).__name__}: give one array, {describe_axes(axes)} ({error})"
      ) from None
  check_axes(what, x.shape, axes, at_least)
  return x


def plain_array(x: Any) -> np.ndarray:
  """Return `x` as an array, of numbers where objects are numbers: pandas' frames of
  columns such as Int64 become objects.
  """
  array = as_numpy(x)
  if array.dtype.kind == "O" and array.ndim:
    # Rows of unequal length stay objects.
    with contextlib.suppress(ValueError):
      return np.array(array.tolist())
  return array


def check_axes(
  what: str,
  shape: tuple[int, ...],
  axes: str,
  at_least: int = 0,
) -> None:
  """Raises: UserError: a shape does not have the named axes."""
  most = len(axes.split())
  least = at_least or most
  dims = len(shape)
  if not least <= dims <= most:
    remedy = ""
    if axes.startswith("runs") and dims == most - 1:
      remedy = f"; for a single run give {what}[None]"
    raise UserError(f"{what} has shape {shape}: give {describe_axes(axes)}{remedy}")


def describe_axes(axes: str) -> str:
  """Return the axes of an array in the words of a `UserError`."""
  names = axes.split()
  if not names:
    return "a single number"
  shape = ", ".join(names)
  if len(names) == 1:
    # As Python writes a tuple of one.
    shape += ","
  numbered = ", ".join(f"axis {i} {name}" for i, name in enumerate(names))
  return f"({shape}), {numbered}"


def read_errors(errors: object, what: str = "errors") -> Array:
  """Return errors (runs, examples), bool or 0/1 integers."""
  axes = "runs examples"
  errors = read_array(what, errors, axes)
  if errors.dtype.kind == "b":
    return errors
  return read_classes(what, errors, axes, 2, contents="predictions != labels, bool or")


def read_classes(
  what: str,
  x: object,
  axes: str,
  num_classes: int | None,
  least: int = 0,
  at_least: int = 0,
  contents: str = "class indices,",
  first_run: int = 0,
) -> Array:
  """Return integers from `least` (`NOT_ASKED` of predictions) to num_classes - 1. A
  `UserError` calls them `contents`.
  """
  x = read_array(what, x, axes, at_least)
  # An empty list has float64.
  if not x.size:
    return x.astype(np.int32)
  if x.dtype.kind not in "iu":
    raise UserError(
      f"{_not_whole(what, x)}: give {contents} integers{_remedy(what, x)}"
    )
  most = np.inf
  lowest_named = 0 if least == NOT_ASKED else least
  allowed = f"{lowest_named} or more"
  if num_classes is not None:
    most = num_classes - 1
    allowed = f"{lowest_named} to {most}"
  if least == NOT_ASKED:
    allowed += f", -1 for none, {NOT_ASKED} where a run was not asked"
  # Two reductions, on the device that holds the array, which is fetched only if wrong.
  if int(x.min()) < least or int(x.max()) > most:
    x = np.asarray(x)
    outside = (x < least) | (x > most)
    refuse_entry(what, x, outside, axes, f"give {contents} {allowed}", first_run)
  return x


def _not_whole(what: str, x: Array) -> str:
  if x.dtype.kind in "UT":
    return f"{what} holds texts, such as {str(x.flat[0])!r:.60}"
  return f"{what} has dtype {x.dtype}"


def _remedy(what: str, x: Array) -> str:
  """Return how entries become class indices. `what` may be "labels of test"."""
  name = what.partition(" ")[0]
  if x.dtype.kind in "UT":
    # Labels and predictions must be numbered alike.
    return f", such as np.searchsorted(np.unique(labels), {name})"
  if x.dtype.kind in "bf" and bool((x == np.rint(x)).all()):
    return f", such as np.asarray({name}).astype(int)"
  return ""


def read_predictions(
  predictions: object,
  num_classes: int | None,
  what: str = "predictions",
  at_least: int = 0,
) -> Array:
  """Return predictions (runs, examples): -1 where there is none, `NOT_ASKED` where the run
  was not asked, which may also be masked, or NaN among floats.
  """
  axes = "runs examples"
  if num_classes is not None:
    num_classes = check_at_least("num_classes", num_classes, 1)
  if isinstance(predictions, np.ma.MaskedArray):
    predictions = fill_masked(predictions)
  predictions = read_array(what, predictions, axes, at_least)
  predictions = fill_missing(predictions)
  return read_classes(what, predictions, axes, num_classes, NOT_ASKED, at_least)


def fill_masked(classes: np.ma.MaskedArray) -> np.ndarray:
  """Return integers with `NOT_ASKED` where they are masked; others as they are."""
  if classes.dtype.kind not in "iu":
    return classes
  # A type of few bytes without a sign could not hold it.
  return np.ma.filled(classes.astype(np.int64), NOT_ASKED)


def fill_missing(classes: Array, known_to_miss: bool = False) -> Array:
  """Return whole numbers in floats as integers with `NOT_ASKED` where they are NaN; other
  arrays as they are.

  Args:
    classes: the array.
    known_to_miss: whether these are some of the rows of an array that has NaN; floats of
      which none is NaN are no classes otherwise.
  """
  if classes.dtype.kind != "f":
    return classes
  numbers = np.asarray(classes)
  is_missing = np.isnan(numbers)
  whole = np.where(is_missing, NOT_ASKED, np.rint(numbers))
  has_missing = known_to_miss or is_missing.any()
  if not has_missing or (whole != numbers)[~is_missing].any():
    return classes
  return whole.astype(np.int64)


def read_asked_errors(errors: object) -> tuple[Array, Array | None]:
  """Return errors (runs, examples), False where the run was not asked, and which it was
  asked; None for all. The others are masked, or NaN among floats.
  """
  if isinstance(errors, np.ma.MaskedArray):
    mask = np.ma.getmaskarray(errors)
    errors = errors.filled(0)
  else:
    errors = read_array("errors", errors, "runs examples")
    mask = np.zeros(errors.shape, bool)
    if errors.dtype.kind == "f":
      numbers = np.asarray(errors)
      mask = np.isnan(numbers)
      if mask.any():
        whole = np.where(mask, 0, numbers)
        are_errors = np.isin(whole, (0, 1)).all()
        errors = whole.astype(np.int8) if are_errors else numbers
  errors = read_errors(errors)
  if not mask.any():
    return errors, None
  return errors, ~mask


def read_votes(
  predictions: object,
  labels: object,
  num_classes: int,
) -> tuple[Array, Array]:
  """Return predictions (runs, examples) and the labels (examples,) that fit them."""
  labels = label_by_column(predictions, labels)
  predictions = read_predictions(predictions, num_classes)
  return predictions, read_labels(labels, num_classes, "predictions", predictions.shape)


def read_labels(
  labels: object,
  num_classes: int,
  what: str,
  shape: tuple[int, ...],
  axis: int = 1,
) -> Array:
  """Return labels, int32, one for each example along an axis of `what`, which has the
  given shape.
  """
  labels = read_classes("labels", labels, "examples", num_classes)
  if len(labels) != shape[axis]:
    hint = ""
    if len(labels) in shape:
      hint = f"; are the axes of {what} in another order?"
    raise UserError(
      f"labels has shape {labels.shape} beside {what} of shape {shape}, of which axis "
      f"{axis} is examples: give one label an example, {shape[axis]}{hint}"
    )
  return np.asarray(labels, np.int32)


def read_numbers(
  what: str,
  x: object,
  axes: str,
  at_least: int = 0,
) -> np.ndarray:
  """Return finite numbers in the type that they have; a `UserError` names the place of
  the first that is not finite.
  """
  x = np.asarray(read_array(what, x, axes, at_least))
  # Objects, bytes, texts and complex numbers.
  if x.dtype.kind in "OSUc":
    raise UserError(f"{what} has dtype {x.dtype}: give numbers")
  check_finite(what, x, axes)
  return x


def read_reals(
  what: str,
  x: object,
  axes: str,
  at_least: int = 0,
) -> np.ndarray:
  """Return what `read_numbers` does, in float64."""
  return as_float64(read_numbers(what, x, axes, at_least))


def pair_by_index(**given: Any) -> list[Any]:
  """Return what is given by name, series of pandas in the order of the first one's index:
  position alone would pair numbers of different runs.

  Raises:
    UserError: two series have indices with other entries.
  """
  first = None
  paired = []
  for name, x in given.items():
    if not is_series(x):
      paired.append(x)
      continue
    if first is None:
      first, index = name, x.index
    if not x.index.equals(index):
      are_same = index.is_unique and x.index.is_unique and len(x) == len(index)
      if not are_same or not x.index.isin(index).all():
        raise UserError(
          f"{first} and {name} are series with different indices: give both the index that "
          f"pairs them, such as the seed, or {first}.to_numpy() and so on to pair them by "
          "position"
        )
      x = x.reindex(index)
    paired.append(x)
  return paired


def is_series(x: Any) -> bool:
  """Return whether this is a series of pandas, or of a like library."""
  # Lists have an `index`, too.
  return hasattr(x, "reindex") and getattr(x, "ndim", 0) == 1


def label_by_column(predictions: Any, labels: Any) -> Any:
  """Return labels in the order of the columns of a frame of predictions, if they are a
  series with these as its index; other labels as they are.

  Raises:
    UserError: their index has other entries than the columns.
  """
  columns = getattr(predictions, "columns", None)
  if columns is None or not is_series(labels):
    return labels
  # pandas numbers what no one names.
  if any(
    np.array_equal(each, np.arange(len(each))) for each in (columns, labels.index)
  ):
    return labels
  if columns.equals(labels.index):
    return labels
  are_same = columns.is_unique and labels.index.is_unique
  if not are_same or set(columns) != set(labels.index):
    raise UserError(
      "the index of the labels and the columns of the predictions are different examples: "
      "give a label for each column, or labels.to_numpy() to take them in their order"
    )
  return labels.reindex(columns)


def read_series(axis: str, **series: object) -> list[np.ndarray]:
  """Return series of equal length, given by name: finite numbers in float64. Series of
  pandas are paired by their index.
  """
  series = dict(zip(series, pair_by_index(**series), strict=True))
  arrays = {name: read_reals(name, x, axis) for name, x in series.items()}
  lengths = {len(x) for x in arrays.values()}
  if len(lengths) > 1:
    shapes = " and ".join(f"{name} of shape {x.shape}" for name, x in arrays.items())
    raise UserError(
      f"{shapes}: give series of one length, a number for each of the same {axis}"
    )
  return list(arrays.values())


def check_finite(
  what: str,
  x: np.ndarray,
  axes: str,
  first_run: int = 0,
) -> None:
  """Raises: UserError: an entry is not finite; the message names its place."""
  is_finite = np.isfinite(x)
  if not is_finite.all():
    remedy = "leave such entries out, or repair them, first"
    refuse_entry(what, x, ~is_finite, axes, remedy, first_run)


def refuse_entry(
  what: str,
  x: np.ndarray,
  wrong: np.ndarray,
  axes: str,
  remedy: str,
  first_run: int = 0,
) -> NoReturn:
  """Raise a `UserError` that names the place of the first wrong entry. The axes of `x`
  are the last of `axes`.
  """
  where = np.unravel_index(wrong.argmax(), wrong.shape)
  # A block of runs counts on from the runs before it.
  numbers = [where[0] + first_run, *where[1:]]
  axis_names = axes.split()
  axis_names = axis_names[len(axis_names) - x.ndim :]
  parts = []
  for name, number_on_axis in zip(axis_names, numbers, strict=True):
    # "classes" is "class", "runs" is "run".
    singular = re.sub("(?<=s)es$|s$", "", name)
    parts.append(f"{singular} {number_on_axis}")
  place = ", ".join(parts)
  raise UserError(f"{what} is {x[where]} at {place}: {remedy}")


def read_within(
  what: str,
  x: Given["..."],
  interval: str,
  nan: bool = False,
) -> np.ndarray:
  """Return numbers in an interval, such as "[0, 1)"; with `nan` also NaN, which stands
  for a statistic of too little data.
  """
  refuse_traced(what, x)
  # NumPy says neither what the array is called nor what is allowed.
  try:
    x = as_float64(x)
  except (TypeError, ValueError):
    raise UserError(f"{what} is {x!r:.200}: give numbers") from None
  low, high = map(float, interval[1:-1].split(","))
  has_low = interval[0] == "["
  has_high = interval[-1] == "]"
  inside = (x > low) & (x < high)
  if has_low:
    inside |= x == low
  if has_high:
    inside |= x == high
  if nan:
    inside |= np.isnan(x)

  outside = x[~inside]
  if outside.size:
    allowed = "that is finite"
    if low > -np.inf:
      relation = "of at least" if has_low else "above"
      allowed = f"{relation} {low:g}"
    if high < np.inf:
      relation = "at most" if has_high else "below"
      allowed += f" and {relation} {high:g}"
    raise UserError(f"{what} is {outside.flat[0]:.12g}: give a number {allowed}")
  return x


def read_positive(what: str, x: Given["..."]) -> np.ndarray:
  """Return numbers above 0, or infinity."""
  return read_within(what, x, "(0, inf]")


def read_number(
  what: str,
  x: object,
  interval: str,
) -> float:
  """Return one number in an interval."""
  return float(read_within(what, check_number(what, x), interval))


def read_key(key: Any) -> jax.Array:
  """Return a JAX random key."""
  refuse_traced("key", key)
  # An old key, of whole numbers, is its own data, and one more axis means several keys.
  try:
    is_single = jax.random.key_data(key).ndim == 1
  except TypeError:
    is_single = False
  if not is_single:
    raise UserError(
      f"key is {key!r:.200}: give one JAX random key, such as jax.random.key(0)"
    )
  return key


def read_level(level: float) -> tuple[float, float]:
  """Return the probabilities of the two quantiles that enclose the central `level` of a
  law.
  """
  level = read_number("level", level, "(0, 1)")
  return (1 - level) / 2, (1 + level) / 2
