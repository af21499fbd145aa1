"""Exact counts of the arrays that `reading` has read, and the few moments that all
files share.

Concrete input is reduced to integer counts where it lies (a JAX array on its device)
and everything after the counts is NumPy float64. Traced input, where a statistic takes
it, stays JAX, at whatever precision JAX is set to.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

if TYPE_CHECKING:
  Shape = TypeVar("Shape")
  Given: TypeAlias = Any | Shape
  Array = np.ndarray  # a JAX array has the same methods
else:
  Array = np.ndarray | jax.Array

  class Given:
    """`Given["runs examples"]`: a NumPy array, a JAX array or nested lists of that
    shape.

    The shape is documentation only. `reading.read` checks it instead, so that a user
    gets a `Mistake`.
    """

    def __class_getitem__(cls, shape: str) -> object:
      return ArrayLike | Sequence


def traced(*arrays: object) -> bool:
  return any(isinstance(a, jax.core.Tracer) for a in arrays)


def namespace(*arrays: object) -> ModuleType:
  return jnp if traced(*arrays) else np


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


# Counting


def count(errors: Array, axis: int) -> Array:
  """How many errors along an axis, exactly."""
  return settled(
    errors.sum(axis, dtype=np.int64 if isinstance(errors, np.ndarray) else np.int32)
  )


def votes_of(predictions: Array, num_classes: int) -> Array:
  """How many runs predict each class for each example, (examples, classes)."""
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
  """As int32 if the dtype cannot hold -1 and all classes: comparing arrays of two
  dtypes is several times slower.
  """
  fits = (
    predictions.dtype.kind == "i"
    and num_classes - 1 <= jnp.iinfo(predictions.dtype).max
  )
  return predictions if fits else predictions.astype(jnp.int32)


def count_votes(predictions: jax.Array, num_classes: int) -> jax.Array:
  """How many runs predict each class for each example, (examples, classes), int32; -1
  is not counted.
  """
  predictions = in_one_type(predictions, num_classes)
  classes = jnp.arange(num_classes, dtype=predictions.dtype)[None, :, None]

  def add(counts, runs):
    # A byte holds the counts, because a block has at most 128 runs, and bytes are added
    # many at a time.
    return counts + (runs[:, None] == classes).sum(0, dtype=jnp.uint8).astype(
      jnp.int32
    ), None

  size = min(128, max(1, len(predictions)))
  whole = jnp.pad(
    predictions, ((0, -len(predictions) % size), (0, 0)), constant_values=-1
  )
  start = jnp.zeros((num_classes, predictions.shape[1]), jnp.int32)
  return lax.scan(add, start, whole.reshape(len(whole) // size, size, whole.shape[1]))[
    0
  ].T


_count_votes = jax.jit(count_votes, static_argnums=1)


def count_halves(errors: jax.Array) -> jax.Array:
  """Each run's number of errors on the examples of even and of odd index, (runs, 2),
  int32.
  """
  # Counting the bits of words of 32 examples is many times as fast as adding single
  # examples.
  padded = jnp.pad(errors, ((0, 0), (0, -errors.shape[1] % 64)))
  bits = padded.reshape(len(errors), padded.shape[1] // 64, 32, 2).astype(jnp.uint32)
  words = (bits << jnp.arange(32, dtype=jnp.uint32)[None, None, :, None]).sum(
    2, dtype=jnp.uint32
  )
  return lax.population_count(words).sum(1, dtype=jnp.uint32).astype(jnp.int32)


def bincount(places: Array, weights: Array | None, size: int) -> Array:
  if traced(places, weights):
    return jnp.bincount(places, weights, length=size)  # type: ignore[return-value]  # as said of Array
  return np.bincount(places, weights, minlength=size)


def bins_of(votes: Array, runs: int, bins: int) -> Array:
  """The bin of each confidence votes/runs among so many of equal width; the last one is
  closed.
  """
  # A table, because bins * votes can be too large for traced votes, which are int32.
  table = np.minimum(bins * np.arange(runs + 1) // max(runs, 1), bins - 1)
  return namespace(votes).asarray(table, np.int32)[votes]


def times_drawn(drawn: Array, size: int) -> np.ndarray:
  """How often each of `size` things was drawn, a row for each row of draws."""
  width: type[np.signedinteger] = np.int32 if len(drawn) * size < 2**31 else np.int64
  places = np.asarray(drawn, width) + np.arange(len(drawn), dtype=width)[
    :, None
  ] * width(size)
  return np.bincount(places.ravel(), minlength=len(drawn) * size).reshape(
    len(drawn), size
  )


# Moments over axis 0


def centred(x: Array) -> Array:
  """x minus its mean. The first entry is subtracted first: counts stay exact and a
  constant becomes exactly 0.
  """
  x = real(x - x[:1])
  return x - ratio(x.sum(0), len(x))


def correlation(x: Array, y: Array) -> Array:
  """Pearson's r; NaN where either series is constant."""
  x, y = centred(x), centred(y)
  xp = namespace(x, y)
  r = (ratio(x, xp.sqrt((x**2).sum(0))) * ratio(y, xp.sqrt((y**2).sum(0)))).sum(0)
  # An empty sum would be 0.
  return xp.where(len(x) > 1, xp.clip(r, -1.0, 1.0), xp.nan)
