"""The bootstrap: what other runs, or other test examples, would have given.

A resample is stored as how often each run, or each example, was drawn. A statistic that
is a sum is then the product of these counts with one array, for many resamples at once,
and nothing is gathered or recounted.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from vmapseeds.errors import check_at_least
from vmapseeds.stats._arrays import (
  Array,
  Given,
  times_drawn,
)
from vmapseeds.stats.counts import Counts, counts_of_errors
from vmapseeds.stats.reading import read_key, read_level, read_within
from vmapseeds.stats.variance import gain_of_halves

# How many numbers a block of resamples may have in memory.
_AT_ONCE = 2**24
_PART = 2**21


class Bootstrap(NamedTuple):
  """Standard error and percentile interval of a statistic, from its bootstrap
  replicates.
  """

  se: Float[Array, "..."]
  low: Float[Array, "..."]
  high: Float[Array, "..."]


def resamples(
  size: int,
  *,
  key: jax.Array,
  replicates: int,
) -> Int[np.ndarray, "replicates size"]:
  """Return how often each of `size` things is drawn in `size` draws with replacement,
  in each of many resamples.

  Args:
    size: how many things there are, and draws from them.
    key: a JAX random key; the same key gives the same resamples.
    replicates: B, at least 1.

  Returns:
    (replicates, size), whole numbers with rows that sum to `size`.

  Source: Efron 1979.

  >>> import jax
  >>> resamples(4, key=jax.random.key(0), replicates=3).sum(1)
  array([4, 4, 4])
  """
  size = check_at_least("size", size, 0)
  key = read_key(key)
  replicates = check_at_least("replicates", replicates, 1)
  draws = _draws(key, replicates, size)
  return times_drawn(draws, size)


def parts_of_resamples(
  size: int,
  *,
  key: jax.Array,
  replicates: int,
) -> Iterator[Int[np.ndarray, "some size"]]:
  """Yield `resamples`, a few of them at a time: all would take several arrays of 8
  bytes a number.
  """
  key = read_key(key)
  replicates = check_at_least("replicates", replicates, 1)
  draws = np.asarray(_draws(key, replicates, size))
  at_once = max(1, _PART // max(1, size))
  for start in range(0, replicates, at_once):
    yield times_drawn(draws[start : start + at_once], size)


def blocks_of_resamples(
  *things: tuple[int, jax.Array], replicates: int
) -> Iterator[list[Int[np.ndarray, "block size"]]]:
  """Yield `resamples` of several things, each given as its size and key, a block of the
  replicates at a time.
  """
  replicates = check_at_least("replicates", replicates, 1)
  largest = max(size for size, _ in things)
  at_once = max(1, _AT_ONCE // max(1, largest))
  for start in range(0, replicates, at_once):
    count = min(at_once, replicates - start)
    block = []
    for size, key in things:
      # The first block is what `resamples` gives, where it is the only one.
      if start:
        key = jax.random.fold_in(key, start)
      block.append(resamples(size, key=key, replicates=count))
    yield block


@partial(jax.jit, static_argnums=(1, 2))
def _draws(
  key: jax.Array,
  replicates: int,
  size: int,
) -> Int[jax.Array, "replicates size"]:
  if size > 2**16:
    return jax.random.randint(key, (replicates, size), 0, size)
  # Several times as fast as randint, and as even as the 23 bits of a uniform number
  # allow.
  uniform = jax.random.uniform(key, (replicates, size), jnp.float32)
  return jnp.minimum((uniform * size).astype(jnp.int32), size - 1)


def from_replicates(
  replicates: Given["replicates ..."],
  *,
  level: float = 0.95,
) -> Bootstrap:
  """Return the standard deviation (ddof = 1) and percentiles of bootstrap replicates,
  over the first axis; NaN are left out.

  Args:
    replicates: (replicates, ...), the statistic of each resample; finite, or NaN where
      it has none.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `se`, `low` and `high`, each of the shape of one replicate; NaN with fewer than two
    replicates that are numbers.

  Source: Efron 1979; the percentile interval is that of bouthillier2021, appendix C.5.

  >>> from_replicates([1.0, 2.0, 3.0], level=0.5).low
  array(1.5)
  """
  quantiles = read_level(level)
  x = read_within("replicates", replicates, "(-inf, inf)", nan=True)
  few = (~np.isnan(x)).sum(0) < 2
  if few.all():
    unknown = np.full(few.shape, np.nan)
    return Bootstrap(unknown, unknown, unknown)
  # So that NumPy does not warn.
  x = np.where(few, 0.0, x)
  se = np.nanstd(x, axis=0, ddof=1)
  low, high = np.nanquantile(x, quantiles, axis=0)
  return Bootstrap(
    se=np.where(few, np.nan, se),
    low=np.where(few, np.nan, low),
    high=np.where(few, np.nan, high),
  )


def top_fraction_gain_bootstrap(
  errors: Given["runs examples"] | Counts,
  fraction: float = 0.25,
  *,
  key: jax.Array,
  level: float = 0.95,
  replicates: int = 1000,
) -> Bootstrap:
  """Return the standard error and interval of `top_fraction_gain`'s mean, by the
  bootstrap over runs.

  It answers what other runs on the same test examples would give.

  Args:
    errors: (runs, examples), bool or 0/1.
    fraction: the fraction of the runs that is taken, above 0 and at most 1.
    key: a JAX random key.
    level: the coverage of the interval, between 0 and 1.
    replicates: how many resamples.

  Returns:
    `se`, `low` and `high`, 0-d, fractions of accuracy; NaN for a single example or no
    run.

  Source: ours; jordan2024 gives no error for figure 2's gain.

  >>> errors = np.arange(40) < np.arange(0, 40, 2)[:, None]
  >>> print(top_fraction_gain_bootstrap(errors, key=jax.random.key(0)).se.round(3))
  0.05
  """
  read_level(level)
  counts = counts_of_errors(errors)
  # Sorted, so that the order of the runs does not matter.
  halves = counts.halves[:, np.lexsort(counts.halves[::-1])]
  at_once = max(1, _PART // max(1, counts.runs))
  gains = []
  for (drawn,) in blocks_of_resamples((counts.runs, key), replicates=replicates):
    for start in range(0, len(drawn), at_once):
      times = drawn[start : start + at_once]
      gain = gain_of_halves(halves, times, counts.examples, fraction)
      gains.append(gain.mean)
  return from_replicates(np.concatenate(gains), level=level)
