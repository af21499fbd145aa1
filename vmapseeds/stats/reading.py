"""Reads what a caller gives as arrays, or raises a `Mistake`: one line that says what
was given and what is allowed.
"""

import re
from typing import Any, NoReturn

import jax
import numpy as np

from vmapseeds.mistakes import Mistake, at_least, number
from vmapseeds.stats._arrays import Array, Given, namespace, real, traced, votes_of


def untraced(what: str, x: Any) -> Any:
  if traced(x):
    raise Mistake(
      f"{what} is traced: this statistic is computed in NumPy, call it outside jit and vmap"
    )
  return x


# Traced input is refused unless a statistic asks for `traceable`.


def read(
  what: str, x: Any, axes: str, at_least: int = 0, traceable: bool = False
) -> Array:
  """`x` as an array of the named axes; with `at_least`, that many of the last axes are
  enough.
  """
  if not isinstance(x if traceable else untraced(what, x), jax.Array):
    if np.ma.is_masked(x):
      raise Mistake(
        f"{what} has masked entries: fill them, or leave their runs or examples out, first"
      )
    try:
      x = np.asarray(x)
    except ValueError:
      raise Mistake(
        f"{what} has rows of unequal length: give one array, {layout(axes)}"
      ) from None
    except (
      TypeError,
      RuntimeError,
    ) as error:  # RuntimeError: a torch tensor with a gradient
      raise Mistake(
        f"{what} is a {type(x).__name__}: give one array, {layout(axes)} ({error})"
      ) from None
  check_axes(what, x.shape, axes, at_least)
  return x


def check_axes(what: str, shape: tuple[int, ...], axes: str, at_least: int = 0) -> None:
  wanted = len(axes.split())
  if not (at_least or wanted) <= len(shape) <= wanted:
    remedy = (
      f"; for a single run give {what}[None]"
      if axes[:4] == "runs" and len(shape) == wanted - 1
      else ""
    )
    raise Mistake(f"{what} has shape {shape}: give {layout(axes)}{remedy}")


def layout(axes: str) -> str:
  """The axes of an array in the words of a `Mistake`."""
  names = axes.split()
  if not names:
    return "a single number"
  numbered = ", ".join(f"axis {i} {name}" for i, name in enumerate(names))
  return f"({', '.join(names)}{',' if len(names) == 1 else ''}), {numbered}"


def read_errors(errors: object, traceable: bool = False, what: str = "errors") -> Array:
  """Errors (runs, examples), bool or 0/1 integers."""
  axes, of = "runs examples", "predictions != labels, bool or"
  errors = read(what, errors, axes, traceable=traceable)
  return (
    errors
    if errors.dtype.kind == "b"
    else read_classes(what, errors, axes, 2, traceable=traceable, of=of)
  )


def read_classes(
  what: str,
  x: object,
  axes: str,
  num_classes: int | None,
  least: int = 0,
  at_least: int = 0,
  traceable: bool = False,
  of: str = "class indices,",
  first_run: int = 0,
) -> Array:
  """Integers from `least` (-1 where a run may have no prediction) to num_classes - 1. A
  `Mistake` calls them `of`.
  """
  x = read(what, x, axes, at_least, traceable)
  if not x.size:
    return x.astype(np.int32)
  if x.dtype.kind not in "iu":
    raise Mistake(f"{what} has dtype {x.dtype}: give {of} integers")
  most = np.inf if num_classes is None else num_classes - 1
  if not traced(x) and (int(x.min()) < least or int(x.max()) > most):
    allowed = f"{least} or more" if num_classes is None else f"{least} to {most}"
    found = np.asarray(x)
    refuse(
      what,
      found,
      (found < least) | (found > most),
      axes,
      f"give {of} {allowed}",
      first_run,
    )
  return x


def read_predictions(
  predictions: object, num_classes: int, traceable: bool = False
) -> Array:
  num_classes = at_least("num_classes", num_classes, 1)
  return read_classes(
    "predictions", predictions, "runs examples", num_classes, -1, traceable=traceable
  )


def read_votes(
  predictions: object, labels: object, num_classes: int, traceable: bool = False
) -> tuple[Array, Array]:
  """Predictions (runs, examples) and the labels (examples,) that fit them."""
  predictions = read_predictions(predictions, num_classes, traceable)
  return predictions, read_labels(
    labels, num_classes, "predictions", predictions.shape, traceable=traceable
  )


def read_labels(
  labels: object,
  num_classes: int,
  what: str,
  shape: tuple[int, ...],
  axis: int = 1,
  traceable: bool = False,
) -> Array:
  """Labels, int32, one for each example along an axis of `what`, which has the given
  shape.
  """
  labels = read_classes("labels", labels, "examples", num_classes, traceable=traceable)
  if len(labels) != shape[axis]:
    hint = f"; are the axes of {what} in another order?" if len(labels) in shape else ""
    given = f"labels has shape {labels.shape} beside {what} of shape {shape}, of which axis {axis} is examples"
    raise Mistake(f"{given}: give one label an example, {shape[axis]}{hint}")
  return namespace(labels).asarray(labels, np.int32)


def read_numbers(what: str, x: object, axes: str, at_least: int = 0) -> np.ndarray:
  """Finite numbers in the type that they have; a `Mistake` names the place of the first
  that is not finite.
  """
  x = np.asarray(read(what, x, axes, at_least))
  if x.dtype.kind in "OSUc":
    raise Mistake(f"{what} has dtype {x.dtype}: give numbers")
  check_finite(what, x, axes)
  return x


def read_reals(what: str, x: object, axes: str, at_least: int = 0) -> np.ndarray:
  """`read_numbers` in float64."""
  return real(read_numbers(what, x, axes, at_least))


def read_series(axis: str, **given: object) -> list[np.ndarray]:
  """Series of equal length, given by name: finite numbers in float64."""
  series = [read_reals(what, x, axis) for what, x in given.items()]
  if len({len(x) for x in series}) > 1:
    shapes = " and ".join(
      f"{what} of shape {x.shape}" for what, x in zip(given, series, strict=True)
    )
    raise Mistake(
      f"{shapes}: give series of one length, a number for each of the same {axis}"
    )
  return series


def check_finite(what: str, x: np.ndarray, axes: str, first_run: int = 0) -> None:
  if not (finite := np.isfinite(x)).all():
    refuse(
      what, x, ~finite, axes, "leave such entries out, or repair them, first", first_run
    )


def refuse(
  what: str,
  x: np.ndarray,
  wrong: np.ndarray,
  axes: str,
  remedy: str,
  first_run: int = 0,
) -> NoReturn:
  """Raises a `Mistake` that names the place of the first wrong entry. The axes of `x`
  are the last of `axes`.
  """
  where = np.unravel_index(wrong.argmax(), wrong.shape)
  names = axes.split()[len(axes.split()) - x.ndim :]
  numbers = (where[0] + first_run, *where[1:])
  place = ", ".join(
    f"{re.sub('(?<=s)es$|s$', '', name)} {i}"
    for name, i in zip(names, numbers, strict=True)
  )
  raise Mistake(f"{what} is {x[where]} at {place}: {remedy}")


def within(what: str, x: Given["..."], interval: str, nan: bool = False) -> np.ndarray:
  """Numbers in an interval, such as "[0, 1)"; with `nan` also NaN, which stands for a
  statistic of too little data.
  """
  untraced(what, x)
  try:
    x = real(x)
  except (TypeError, ValueError):
    raise Mistake(f"{what} is {x!r:.200}: give numbers") from None
  low, high = map(float, interval[1:-1].split(","))
  right = (
    (x > low) & (x < high)
    | (x == low) & (interval[0] == "[")
    | (x == high) & (interval[-1] == "]")
  )
  wrong = x[~(right | nan & np.isnan(x))]
  if wrong.size:
    allowed = (
      f"{'of at least' if interval[0] == '[' else 'above'} {low:g}"
      if low > -np.inf
      else "that is finite"
    )
    if high < np.inf:
      allowed += f" and {'at most' if interval[-1] == ']' else 'below'} {high:g}"
    raise Mistake(f"{what} is {wrong.flat[0]:.12g}: give a number {allowed}")
  return x


def positive(what: str, x: Given["..."]) -> np.ndarray:
  return within(what, x, "(0, inf]")


def one_within(what: str, x: object, interval: str) -> float:
  return float(within(what, number(what, x), interval))


def read_key(key: Any) -> jax.Array:
  try:
    single = jax.random.key_data(untraced("key", key)).ndim == 1
  except TypeError:
    single = False
  if not single:
    raise Mistake(
      f"key is {key!r:.200}: give one JAX random key, such as jax.random.key(0)"
    )
  return key


def ends(level: float) -> tuple[float, float]:
  """The probabilities of the two quantiles that enclose the central `level` of a law."""
  level = one_within("level", level, "(0, 1)")
  return (1 - level) / 2, (1 + level) / 2


def counted(
  predictions: object, labels: object, num_classes: int, traceable: bool = True
) -> tuple[Array, Array, int]:
  """Votes (examples, classes), labels (examples,), both NumPy unless one is traced, and
  how many runs there are.
  """
  predictions, labels = read_votes(predictions, labels, num_classes, traceable)
  votes = votes_of(predictions, num_classes)
  xp = namespace(votes, labels)
  return xp.asarray(votes), xp.asarray(labels), len(predictions)
