"""The few conventions and moments that all files of this package share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
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

    The shape is documentation only. `reading.read_array` checks it instead, so that a user
    gets a `UserError`.
    """

    def __class_getitem__(cls, shape: str) -> object:
      return ArrayLike | Sequence


def as_float64(x: Given[""]) -> np.ndarray:
  """Convert to float64."""
  return np.asarray(x, np.float64)


def safe_divide(a: Given[""], b: Given[""]) -> np.ndarray:
  """Return a / b, NaN where b is 0."""
  a = as_float64(a)
  b = as_float64(b)
  # Where b is 0, 1 stands in its place, so that NumPy does not warn.
  is_zero = b == 0
  divisor = np.where(is_zero, 1.0, b)
  return np.where(is_zero, np.nan, a / divisor)


def bins_of(
  votes: Array,
  runs: Array | int,
  bins: int,
) -> Array:
  """Return the bin of each confidence votes/runs among so many of equal width; the last
  one is closed.
  """
  if not isinstance(runs, int):
    return np.minimum(bins * votes // np.maximum(runs, 1), bins - 1)
  # A table, because bins * votes can be too large for votes that are int32.
  votes_to_bin = bins * np.arange(runs + 1) // max(runs, 1)
  table = np.minimum(votes_to_bin, bins - 1).astype(np.int32)
  if isinstance(votes, np.ndarray):
    return table[votes]
  return jnp.asarray(table)[votes]


def times_drawn(drawn: Array, size: int) -> np.ndarray:
  """Count how often each of `size` things was drawn, a row for each row of draws."""
  rows = len(drawn)
  # Each row counts in places of its own, so that one pass counts all.
  places = np.asarray(drawn) + size * np.arange(rows)[:, None]
  counts = np.bincount(places.ravel(), minlength=rows * size)
  return counts.reshape(rows, size)


# Moments over axis 0


def centred(x: Array) -> np.ndarray:
  """Return x minus its mean. The first entry is subtracted first: counts stay exact and
  a constant becomes exactly 0.
  """
  x = as_float64(x - x[:1])
  return x - safe_divide(x.sum(0), len(x))


def correlation(x: Array, y: Array) -> np.ndarray:
  """Return Pearson's r; NaN where either series is constant."""
  x = centred(x)
  y = centred(y)
  # Each is divided by its own norm: the product of both norms could underflow.
  x_norm = np.sqrt((x**2).sum(0))
  y_norm = np.sqrt((y**2).sum(0))
  r = (safe_divide(x, x_norm) * safe_divide(y, y_norm)).sum(0)
  # An empty sum would be 0.
  return np.where(len(x) > 1, np.clip(r, -1.0, 1.0), np.nan)
