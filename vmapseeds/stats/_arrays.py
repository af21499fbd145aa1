"""Reading what a caller hands over, counting it exactly, and the few moments that all files share.

Concrete input is reduced to integer counts where it lies (a JAX array on its device) and everything after the
counts is NumPy float64. Traced input, where a statistic takes it, stays JAX, at whatever precision JAX is set to.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from vmapseeds.mistakes import Mistake, at_least

if TYPE_CHECKING:
  Shape = TypeVar("Shape")
  Given: TypeAlias = Any | Shape
  Array = np.ndarray  # a JAX array has the same methods
else:
  Array = np.ndarray | jax.Array

  class Given:
    """`Given["runs examples"]`: a NumPy array, a JAX array or nested lists of that shape.

    The shape is for the reader. `read` is what checks it, because a user should meet a `Mistake`.
    """

    def __class_getitem__(cls, shape: str) -> object:
      return ArrayLike | Sequence


def traced(*arrays: object) -> bool:
  return any(isinstance(a, jax.core.Tracer) for a in arrays)


def namespace(*arrays: object) -> ModuleType:
  return jnp if traced(*arrays) else np


def untraced(what: str, x: Any) -> Any:
  if traced(x):
    raise Mistake(f"{what} is traced: this statistic is computed in NumPy, call it outside jit and vmap")
  return x


def real(x: Given[""], xp: ModuleType | None = None) -> Array:
  """`x` in float64, or in JAX's default float where it is traced."""
  return (xp or namespace(x)).asarray(x, float)


def ratio(a: Given[""], b: Given[""]) -> Array:
  """a / b, NaN where b is 0."""
  xp = namespace(a, b)
  a, b = real(a, xp), real(b, xp)
  return xp.where(b == 0, xp.nan, a / xp.where(b == 0, 1.0, b))


def settled(counts: Array) -> Array:
  """Counts as int64 in NumPy, unless they are traced."""
  return counts if traced(counts) else np.asarray(counts, np.int64)


# Reading. What is traced is refused unless a statistic says that it may be.


def read(what: str, x: Any, axes: str, at_least: int = 0, traceable: bool = False) -> Array:
  """`x` as an array of the named axes; with `at_least`, so many of the last of them are enough."""
  if not isinstance(x if traceable else untraced(what, x), jax.Array):
    if np.ma.is_masked(x):
      raise Mistake(f"{what} has masked entries: fill them, or leave their runs or examples out, first")
    try:
      x = np.asarray(x)
    except ValueError:
      raise Mistake(f"{what} has rows of unequal length: give one array, {_layout(axes)}") from None
    except TypeError:
      raise Mistake(f"{what} is a {type(x).__name__}: give one array, {_layout(axes)}") from None
  wanted = len(axes.split())
  if not (at_least or wanted) <= x.ndim <= wanted:
    remedy = f"; for a single run give {what}[None]" if x.ndim == 1 and axes == "runs examples" else ""
    raise Mistake(f"{what} has shape {x.shape}: give {_layout(axes)}{remedy}")
  return x


def _layout(axes: str) -> str:
  names = axes.split()
  if not names:
    return "a single number"
  numbered = ", ".join(f"axis {i} {name}" for i, name in enumerate(names))
  return f"({', '.join(names)}{',' if len(names) == 1 else ''}), {numbered}"


def read_errors(errors: object, traceable: bool = False) -> Array:
  """Errors (runs, examples), bool or 0/1 integers."""
  errors = read("errors", errors, "runs examples", traceable=traceable)
  if errors.size and errors.dtype.kind not in "biu":
    raise Mistake(f"errors has dtype {errors.dtype}: give predictions != labels, bool or integers 0 and 1")
  if errors.size and errors.dtype.kind != "b" and not traced(errors):
    low, high = int(errors.min()), int(errors.max())
    if low < 0 or high > 1:
      raise Mistake(f"errors has values from {low} to {high}: give predictions != labels, bool or integers 0 and 1")
  return errors


def read_classes(
  what: str, x: object, axes: str, num_classes: int | None, least: int = 0, at_least: int = 0, traceable: bool = False,
  of: str = "class",
) -> Array:  # fmt: skip
  """Indices, such `of` a class, from `least` (-1 where a run may have no prediction) to num_classes - 1."""
  x = read(what, x, axes, at_least, traceable)
  if not x.size:
    return x.astype(np.int32)
  if x.dtype.kind not in "iu":
    raise Mistake(f"{what} has dtype {x.dtype}: give {of} indices, integers")
  if not traced(x):
    low, high = int(x.min()), int(x.max())
    if low < least or (num_classes is not None and high >= num_classes):
      allowed = f"{least} or more" if num_classes is None else f"{least} to {num_classes - 1}"
      raise Mistake(f"{what} has values from {low} to {high}: give {of} indices, {allowed}")
  return x


def read_predictions(predictions: object, num_classes: int, traceable: bool = False) -> Array:
  num_classes = at_least("num_classes", num_classes, 1)
  return read_classes("predictions", predictions, "runs examples", num_classes, -1, traceable=traceable)


def read_votes(predictions: object, labels: object, num_classes: int, traceable: bool = False) -> tuple[Array, Array]:
  """Predictions (runs, examples) and the labels (examples,) that fit them."""
  predictions = read_predictions(predictions, num_classes, traceable)
  return predictions, read_labels(labels, num_classes, "predictions", predictions.shape, traceable=traceable)


def read_labels(
  labels: object, num_classes: int, what: str, shape: tuple[int, ...], axis: int = 1, traceable: bool = False
) -> Array:
  """Labels of the examples, which are one axis of something else, int32."""
  labels = read_classes("labels", labels, "examples", num_classes, traceable=traceable)
  if len(labels) != shape[axis]:
    hint = f"; are the {what} transposed?" if len(labels) == shape[0] else ""
    raise Mistake(
      f"labels has shape {labels.shape} beside {what} of shape {shape}, of which axis {axis} is examples: give one "
      f"label an example, {shape[axis]}{hint}"
    )
  return namespace(labels).asarray(labels, np.int32)


def read_reals(what: str, x: object, axes: str, at_least: int = 0) -> np.ndarray:
  """Finite numbers in float64; the first that is not is named by its place."""
  x = read(what, x, axes, at_least)
  if x.dtype.kind in "OSUc":
    raise Mistake(f"{what} has dtype {x.dtype}: give numbers")
  x = real(x)
  names = axes.split()[len(axes.split()) - x.ndim :]
  check_finite(what, x, names)
  return x


def read_series(axis: str, **given: object) -> list[np.ndarray]:
  """Series of one length, by their names: finite numbers in float64."""
  series = [read_reals(what, x, axis) for what, x in given.items()]
  if len({len(x) for x in series}) > 1:
    shapes = " and ".join(f"{what} of shape {x.shape}" for what, x in zip(given, series, strict=True))
    raise Mistake(f"{shapes}: give series of one length, a number for each of the same {axis}")
  return series


def check_finite(what: str, x: np.ndarray, names: Sequence[str], first_run: int = 0) -> None:
  if np.isfinite(x).all():
    return
  where = np.argwhere(~np.isfinite(x))[0]
  singular = (name if name == "class" else name.removesuffix("s") for name in names)
  offsets = [first_run, *[0] * len(names)]
  place = ", ".join(f"{name} {i + first}" for name, i, first in zip(singular, where, offsets, strict=False))
  raise Mistake(f"{what} is {x[tuple(where)]} at {place}: leave such entries out, or repair them, first")


def within(what: str, x: Given["..."], interval: str, nan: bool = False) -> np.ndarray:
  """Numbers in an interval, such as "[0, 1)"; with `nan` also NaN, which stands for a statistic of too little data."""
  x = real(untraced(what, x))
  low, high = map(float, interval[1:-1].split(","))
  right = (x > low) & (x < high) | (x == low) & (interval[0] == "[") | (x == high) & (interval[-1] == "]")
  wrong = x[~(right | nan & np.isnan(x))]
  if wrong.size:
    allowed = f"{'of at least' if interval[0] == '[' else 'above'} {low:g}"
    if high < np.inf:
      allowed += f" and {'at most' if interval[-1] == ']' else 'below'} {high:g}"
    raise Mistake(f"{what} is {wrong.flat[0]:.12g}: give a number {allowed}")
  return x


def positive(what: str, x: Given["..."]) -> np.ndarray:
  return within(what, x, "(0, inf]")


def ends(level: float) -> tuple[float, float]:
  """The quantiles between which `level` of a law lies, as much below as above."""
  within("level", level, "(0, 1)")
  return (1 - level) / 2, (1 + level) / 2


# Counting


def count(errors: Array, axis: int) -> Array:
  """How many errors along an axis, exactly."""
  return settled(errors.sum(axis, dtype=np.int64 if isinstance(errors, np.ndarray) else np.int32))


def counted(predictions: object, labels: object, num_classes: int, traceable: bool = True) -> tuple[Array, Array, int]:
  """Votes (examples, classes), labels (examples,), both NumPy unless one is traced, and how many runs there are."""
  predictions, labels = read_votes(predictions, labels, num_classes, traceable)
  votes = votes_of(predictions, num_classes)
  xp = namespace(votes, labels)
  return xp.asarray(votes), xp.asarray(labels), len(predictions)


def votes_of(predictions: Array, num_classes: int) -> Array:
  """How many runs give each example each class, (examples, classes)."""
  if not isinstance(predictions, np.ndarray):
    return settled(_count_votes(predictions, num_classes))
  votes = np.zeros((num_classes, predictions.shape[1]), np.int64)
  # A byte counts to 255, and NumPy compares and adds bytes many at a time.
  for start in range(0, len(predictions), 255):
    block = predictions[start : start + 255]
    for c, count in enumerate(votes):
      count += (block == c).view(np.uint8).sum(0, dtype=np.uint8)
  return votes.T


def in_one_type(predictions: jax.Array, num_classes: int) -> jax.Array:
  """In int32 where the class indices, or -1, would not fit: comparing two types takes several times as long."""
  fits = predictions.dtype.kind == "i" and num_classes - 1 <= jnp.iinfo(predictions.dtype).max
  return predictions if fits else predictions.astype(jnp.int32)


def count_votes(predictions: jax.Array, num_classes: int) -> jax.Array:
  """How many runs gave each example each class, (examples, classes), int32; runs of no class are in none."""
  predictions = in_one_type(predictions, num_classes)
  classes = jnp.arange(num_classes, dtype=predictions.dtype)[None, :, None]

  def add(counts, runs):
    # A byte counts to 255, and is added many at a time.
    return counts + (runs[:, None] == classes).sum(0, dtype=jnp.uint8).astype(jnp.int32), None

  size = min(128, max(1, len(predictions)))
  whole = jnp.pad(predictions, ((0, -len(predictions) % size), (0, 0)), constant_values=-1)
  start = jnp.zeros((num_classes, predictions.shape[1]), jnp.int32)
  return lax.scan(add, start, whole.reshape(len(whole) // size, size, whole.shape[1]))[0].T


_count_votes = jax.jit(count_votes, static_argnums=1)


def count_halves(errors: jax.Array) -> jax.Array:
  """Each run's number of errors on the examples of even and of odd index, (runs, 2), int32."""
  # Words of 32 examples are counted many times as fast as single ones.
  padded = jnp.pad(errors, ((0, 0), (0, -errors.shape[1] % 64)))
  bits = padded.reshape(len(errors), padded.shape[1] // 64, 32, 2).astype(jnp.uint32)
  words = (bits << jnp.arange(32, dtype=jnp.uint32)[None, None, :, None]).sum(2, dtype=jnp.uint32)
  return lax.population_count(words).sum(1, dtype=jnp.uint32).astype(jnp.int32)


def bincount(places: Array, weights: Array | None, size: int) -> Array:
  if traced(places, weights):
    return jnp.bincount(places, weights, length=size)  # type: ignore[return-value]  # as said of Array
  return np.bincount(places, weights, minlength=size)


def times_drawn(drawn: Array, size: int) -> np.ndarray:
  """How often each of `size` things was drawn, a row for each row of draws."""
  width: type[np.signedinteger] = np.int32 if len(drawn) * size < 2**31 else np.int64
  places = np.asarray(drawn, width) + np.arange(len(drawn), dtype=width)[:, None] * width(size)
  return np.bincount(places.ravel(), minlength=len(drawn) * size).reshape(len(drawn), size)


# Moments over axis 0


def centred(x: Array) -> Array:
  """x minus its mean. The first entry goes first: counts stay exact and a constant becomes exactly 0."""
  x = real(x - x[:1])
  return x - ratio(x.sum(0), len(x))


def correlation(x: Array, y: Array) -> Array:
  """Pearson's r; NaN where either series is constant."""
  x, y = centred(x), centred(y)
  xp = namespace(x, y)
  r = (ratio(x, xp.sqrt((x**2).sum(0))) * ratio(y, xp.sqrt((y**2).sum(0)))).sum(0)
  # An empty sum would be 0.
  return xp.where(len(x) > 1, xp.clip(r, -1.0, 1.0), xp.nan)
