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

    The shape is documentation only. `reading.read` checks it instead, so that a user
    gets a `Mistake`.
    """

    def __class_getitem__(cls, shape: str) -> object:
      return ArrayLike | Sequence


def real(x: Given[""]) -> np.ndarray:
  """Convert to float64."""
  return np.asarray(x, np.float64)


def ratio(a: Given[""], b: Given[""]) -> np.ndarray:
  """Return a / b, NaN where b is 0."""
  a, b = real(a), real(b)
  return np.where(b == 0, np.nan, a / np.where(b == 0, 1.0, b))


def bins_of(votes: Array, runs: int, bins: int) -> Array:
  """Return the bin of each confidence votes/runs among so many of equal width; the last
  one is closed.
  """
  # A table, because bins * votes can be too large for votes that are int32.
  table = np.minimum(bins * np.arange(runs + 1) // max(runs, 1), bins - 1)
  return (np if isinstance(votes, np.ndarray) else jnp).asarray(table, np.int32)[votes]


def times_drawn(drawn: Array, size: int) -> np.ndarray:
  """Count how often each of `size` things was drawn, a row for each row of draws."""
  places = np.asarray(drawn) + size * np.arange(len(drawn))[:, None]
  counts = np.bincount(places.ravel(), minlength=len(drawn) * size)
  return counts.reshape(len(drawn), size)


# Moments over axis 0


def centred(x: Array) -> np.ndarray:
  """Return x minus its mean. The first entry is subtracted first: counts stay exact and
  a constant becomes exactly 0.
  """
  x = real(x - x[:1])
  return x - ratio(x.sum(0), len(x))


def correlation(x: Array, y: Array) -> np.ndarray:
  """Return Pearson's r; NaN where either series is constant."""
  x, y = centred(x), centred(y)
  r = (ratio(x, np.sqrt((x**2).sum(0))) * ratio(y, np.sqrt((y**2).sum(0)))).sum(0)
  # An empty sum would be 0.
  return np.where(len(x) > 1, np.clip(r, -1.0, 1.0), np.nan)
