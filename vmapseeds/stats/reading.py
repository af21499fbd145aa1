"""Read what a caller gives as arrays, or raise a `Mistake`: one line that says what was
given and what is allowed.
"""

import re
from typing import Any, NoReturn

import jax
import numpy as np

from vmapseeds.mistakes import Mistake, at_least, number
from vmapseeds.stats._arrays import Array, Given, real


def refuse_traced(what: str, x: object) -> None:
  """Raises: Mistake: `x` is traced, as under `jit` and `vmap`."""
  if isinstance(x, jax.core.Tracer):
    raise Mistake(
      f"{what} is traced: this statistic is computed in NumPy, call it outside jit and "
      "vmap"
    )


def read(what: str, x: Any, axes: str, at_least: int = 0) -> Array:
  """Return `x` as an array of the named axes; with `at_least`, that many of the last
  axes are enough.
  """
  refuse_traced(what, x)
  on_device = isinstance(x, jax.Array)
  if not on_device:
    if np.ma.is_masked(x):
      raise Mistake(
        f"{what} has masked entries: fill them, or leave their runs or examples out, "
        "first"
      )
    try:
      x = np.asarray(x)
    except ValueError:
      raise Mistake(
        f"{what} has rows of unequal length: give one array, {layout(axes)}"
      ) from None
    except (TypeError, RuntimeError) as error:
      # RuntimeError: a torch tensor with a gradient
      raise Mistake(
        f"{what} is a {type(x).__name__}: give one array, {layout(axes)} ({error})"
      ) from None
  check_axes(what, x.shape, axes, at_least)
  return x


def check_axes(what: str, shape: tuple[int, ...], axes: str, at_least: int = 0) -> None:
  """Raises: Mistake: a shape does not have the named axes."""
  wanted = len(axes.split())
  if not (at_least or wanted) <= len(shape) <= wanted:
    one_run = axes[:4] == "runs" and len(shape) == wanted - 1
    remedy = f"; for a single run give {what}[None]" if one_run else ""
    raise Mistake(f"{what} has shape {shape}: give {layout(axes)}{remedy}")


def layout(axes: str) -> str:
  """Return the axes of an array in the words of a `Mistake`."""
  names = axes.split()
  if not names:
    return "a single number"
  numbered = ", ".join(f"axis {i} {name}" for i, name in enumerate(names))
  return f"({', '.join(names)}{',' if len(names) == 1 else ''}), {numbered}"


def read_errors(errors: object, what: str = "errors") -> Array:
  """Return errors (runs, examples), bool or 0/1 integers."""
  axes = "runs examples"
  errors = read(what, errors, axes)
  if errors.dtype.kind == "b":
    return errors
  return read_classes(what, errors, axes, 2, of="predictions != labels, bool or")


def read_classes(
  what: str,
  x: object,
  axes: str,
  num_classes: int | None,
  least: int = 0,
  at_least: int = 0,
  of: str = "class indices,",
  first_run: int = 0,
) -> Array:
  """Return integers from `least` (-1 where a run may have no prediction) to num_classes
  - 1. A `Mistake` calls them `of`.
  """
  x = read(what, x, axes, at_least)
  if not x.size:
    return x.astype(np.int32)
  if x.dtype.kind not in "iu":
    raise Mistake(f"{what} has dtype {x.dtype}: give {of} integers")
  most = np.inf if num_classes is None else num_classes - 1
  if int(x.min()) < least or int(x.max()) > most:
    allowed = f"{least} or more" if num_classes is None else f"{least} to {most}"
    found = np.asarray(x)
    outside = (found < least) | (found > most)
    refuse(what, found, outside, axes, f"give {of} {allowed}", first_run)
  return x


def read_predictions(predictions: object, num_classes: int) -> Array:
  """Return predictions (runs, examples), -1 where there is none."""
  num_classes = at_least("num_classes", num_classes, 1)
  return read_classes("predictions", predictions, "runs examples", num_classes, -1)


def read_votes(
  predictions: object, labels: object, num_classes: int
) -> tuple[Array, Array]:
  """Return predictions (runs, examples) and the labels (examples,) that fit them."""
  predictions = read_predictions(predictions, num_classes)
  return predictions, read_labels(labels, num_classes, "predictions", predictions.shape)


def read_labels(
  labels: object, num_classes: int, what: str, shape: tuple[int, ...], axis: int = 1
) -> Array:
  """Return labels, int32, one for each example along an axis of `what`, which has the
  given shape.
  """
  labels = read_classes("labels", labels, "examples", num_classes)
  if len(labels) != shape[axis]:
    hint = f"; are the axes of {what} in another order?" if len(labels) in shape else ""
    raise Mistake(
      f"labels has shape {labels.shape} beside {what} of shape {shape}, of which axis "
      f"{axis} is examples: give one label an example, {shape[axis]}{hint}"
    )
  return np.asarray(labels, np.int32)


def read_numbers(what: str, x: object, axes: str, at_least: int = 0) -> np.ndarray:
  """Return finite numbers in the type that they have; a `Mistake` names the place of
  the first that is not finite.
  """
  x = np.asarray(read(what, x, axes, at_least))
  if x.dtype.kind in "OSUc":
    raise Mistake(f"{what} has dtype {x.dtype}: give numbers")
  check_finite(what, x, axes)
  return x


def read_reals(what: str, x: object, axes: str, at_least: int = 0) -> np.ndarray:
  """Return what `read_numbers` does, in float64."""
  return real(read_numbers(what, x, axes, at_least))


def read_series(axis: str, **given: object) -> list[np.ndarray]:
  """Return series of equal length, given by name: finite numbers in float64."""
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
  """Raises: Mistake: an entry is not finite; the message names its place."""
  if not (finite := np.isfinite(x)).all():
    remedy = "leave such entries out, or repair them, first"
    refuse(what, x, ~finite, axes, remedy, first_run)


def refuse(
  what: str,
  x: np.ndarray,
  wrong: np.ndarray,
  axes: str,
  remedy: str,
  first_run: int = 0,
) -> NoReturn:
  """Raise a `Mistake` that names the place of the first wrong entry. The axes of `x`
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


def read_within(
  what: str, x: Given["..."], interval: str, nan: bool = False
) -> np.ndarray:
  """Return numbers in an interval, such as "[0, 1)"; with `nan` also NaN, which stands
  for a statistic of too little data.
  """
  refuse_traced(what, x)
  try:
    x = real(x)
  except (TypeError, ValueError):
    raise Mistake(f"{what} is {x!r:.200}: give numbers") from None
  low, high = map(float, interval[1:-1].split(","))
  inside = (x > low) & (x < high)
  inside |= (x == low) & (interval[0] == "[")
  inside |= (x == high) & (interval[-1] == "]")
  outside = x[~(inside | nan & np.isnan(x))]
  if outside.size:
    allowed = (
      f"{'of at least' if interval[0] == '[' else 'above'} {low:g}"
      if low > -np.inf
      else "that is finite"
    )
    if high < np.inf:
      allowed += f" and {'at most' if interval[-1] == ']' else 'below'} {high:g}"
    raise Mistake(f"{what} is {outside.flat[0]:.12g}: give a number {allowed}")
  return x


def read_positive(what: str, x: Given["..."]) -> np.ndarray:
  """Return numbers above 0, or infinity."""
  return read_within(what, x, "(0, inf]")


def read_number(what: str, x: object, interval: str) -> float:
  """Return one number in an interval."""
  return float(read_within(what, number(what, x), interval))


def read_key(key: Any) -> jax.Array:
  """Return a JAX random key."""
  refuse_traced("key", key)
  try:
    single = jax.random.key_data(key).ndim == 1
  except TypeError:
    single = False
  if not single:
    raise Mistake(
      f"key is {key!r:.200}: give one JAX random key, such as jax.random.key(0)"
    )
  return key


def read_level(level: float) -> tuple[float, float]:
  """Return the probabilities of the two quantiles that enclose the central `level` of a
  law.
  """
  level = read_number("level", level, "(0, 1)")
  return (1 - level) / 2, (1 + level) / 2
