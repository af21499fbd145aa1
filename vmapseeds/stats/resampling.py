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

from vmapseeds.mistakes import at_least, one_of
from vmapseeds.stats._arrays import Array, Given, bins_of, ratio, real, times_drawn
from vmapseeds.stats.counts import (
  FEW_CLASSES,
  Counts,
  VoteCounts,
  counts_of_errors,
  renumber_classes,
  votes_of,
)
from vmapseeds.stats.reading import read_key, read_level, read_votes, read_within
from vmapseeds.stats.variance import gain_of_halves

# How many numbers a block of resamples, or of their votes, may have in memory.
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
  size: int, *, key: jax.Array, replicates: int
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
  size = at_least("size", size, 0)
  return times_drawn(
    _draws(read_key(key), at_least("replicates", replicates, 1), size), size
  )


def parts_of_resamples(
  size: int, *, key: jax.Array, replicates: int
) -> Iterator[Int[np.ndarray, "some size"]]:
  """Yield `resamples`, a few of them at a time: all would take several arrays of 8
  bytes a number.
  """
  draws = _draws(read_key(key), at_least("replicates", replicates, 1), size)
  drawn, at_once = np.asarray(draws), max(1, _PART // max(1, size))
  for start in range(0, replicates, at_once):
    yield times_drawn(drawn[start : start + at_once], size)


def blocks(
  *things: tuple[int, jax.Array], replicates: int
) -> Iterator[list[Int[np.ndarray, "block size"]]]:
  """Yield `resamples` of several things, each given as its size and key, a block of the
  replicates at a time.
  """
  at_once = max(1, _AT_ONCE // max(1, *(size for size, _ in things)))
  for start in range(0, at_least("replicates", replicates, 1), at_once):
    count = min(at_once, replicates - start)
    yield [
      resamples(n, key=jax.random.fold_in(k, start) if start else k, replicates=count)
      for n, k in things
    ]


@partial(jax.jit, static_argnums=(1, 2))
def _draws(
  key: jax.Array, replicates: int, size: int
) -> Int[jax.Array, "replicates size"]:
  if size > 2**16:
    return jax.random.randint(key, (replicates, size), 0, size)
  # Several times as fast as randint, and as even as the 23 bits of a uniform number
  # allow.
  uniform = jax.random.uniform(key, (replicates, size), jnp.float32)
  return jnp.minimum((uniform * size).astype(jnp.int32), size - 1)


def from_replicates(
  replicates: Given["replicates ..."], *, level: float = 0.95
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
  quantiles, x = (
    read_level(level),
    read_within("replicates", replicates, "(-inf, inf)", nan=True),
  )
  few = (~np.isnan(x)).sum(0) < 2
  if few.all():
    return Bootstrap(*(np.full(few.shape, np.nan),) * 3)
  x = np.where(few, 0.0, x)  # so that NumPy does not warn
  found = np.nanstd(x, axis=0, ddof=1), *np.nanquantile(x, quantiles, axis=0)
  return Bootstrap(*(np.where(few, np.nan, f) for f in found))


def bootstrap(
  predictions: Given["runs examples"],
  labels: Given["examples"],
  num_classes: int,
  over: str = "runs",
  bins: int = 10,
  *,
  key: jax.Array,
  level: float = 0.95,
  replicates: int = 1000,
) -> dict[str, Bootstrap]:
  """Return the standard errors and intervals of the statistics of errors and votes, all
  from the same resamples.

  Over runs it answers what other runs on the same test examples would give, over
  examples what the same runs on other examples would, over both what other runs on
  other examples would. A resample holds some runs, or examples, twice. Pairs of a run
  with itself say nothing of two different runs, so the statistics of pairs (variances
  and disagreement) leave them out, and likewise for examples. Otherwise they would be
  (R - 1)/R as large, or the distribution-wise variance would have part of the
  independent-errors variance. CACE, ECE and the absolute gap are biased upwards in
  every resample: trust their standard errors more than their intervals. For errors
  alone, give them as predictions, with all labels 0.

  Args:
    predictions: (runs, examples), class indices; -1 is an error and no vote.
    labels: (examples,), class indices.
    num_classes: K.
    over: "runs", "examples" or "both".
    bins: how many bins CACE and ECE have.
    key: a JAX random key; the same key gives the same resamples.
    level: the coverage of the intervals, between 0 and 1.
    replicates: B, how many resamples.

  Returns:
    `mean_error` and, by their names in `vmapseeds.stats`, `test_set_variance`,
    `independent_errors_variance`, `distribution_variance`, `split_correlation`,
    `ensemble_accuracy`, `expected_disagreement`, `gde_gap`, `cace`, `ece` and, over
    runs, `top_fraction_gain` (of the top quarter, the mean of both directions). NaN
    where the statistic is.

  Source: Efron 1979; for two axes at once: Owen 2007.

  >>> import jax
  >>> predictions, labels = np.eye(20, dtype=int)[:, :15], np.zeros(15, int)
  >>> found = bootstrap(predictions, labels, 2, key=jax.random.key(0))
  >>> print(found["expected_disagreement"].se.round(3), found["mean_error"].se.round(4))
  0.013 0.0067
  """
  one_of("over", over, ("runs", "examples", "both"))
  bins, _ = at_least("bins", bins, 1), read_level(level)
  predictions, labels = map(np.asarray, read_votes(predictions, labels, num_classes))
  if num_classes > FEW_CLASSES:
    predictions, labels, num_classes = renumber_classes(predictions, labels)
  runs, examples = predictions.shape
  of_runs, of_examples = jax.random.split(read_key(key))
  w, v = np.ones((1, runs), int), np.ones((1, examples), int)
  if over != "examples":
    w = resamples(runs, key=of_runs, replicates=replicates)
  if over != "runs":
    v = resamples(examples, key=of_examples, replicates=replicates)

  errors = predictions != labels
  even = _counts(v[:, 0::2], errors[:, 0::2].T)
  odd = _counts(v[:, 1::2], errors[:, 1::2].T)
  votes = _of_votes(predictions, labels, num_classes, w, v, bins)
  pairs_of_runs = runs**2 - (w**2).sum(1)
  pairs_of_examples = examples**2 - (v**2).sum(1)
  mean_error = ratio((w * (even + odd)).sum(1), runs * examples)
  squared = ratio(_covariances(w, even + odd, even + odd), pairs_of_runs)
  spread_even, spread_odd = (np.sqrt(_covariances(w, x, x)) for x in (even, odd))
  disagreement = ratio(votes["disagreeing"], examples * pairs_of_runs)
  found = {
    "mean_error": mean_error,
    "test_set_variance": ratio(squared, examples**2),
    "independent_errors_variance": ratio(
      votes["independent"], examples**2 * pairs_of_runs
    ),
    "distribution_variance": ratio(
      squared - ratio(votes["with_itself"], pairs_of_runs), pairs_of_examples
    ),
    "split_correlation": ratio(_covariances(w, even, odd), spread_even * spread_odd),
    "ensemble_accuracy": ratio(votes["right"], examples),
    "expected_disagreement": disagreement,
    "gde_gap": abs(mean_error - disagreement),
    "cace": ratio(votes["cace"], examples * runs),
    "ece": ratio(votes["ece"], examples * runs),
  }
  if over == "runs":
    halves = np.stack([even[0], odd[0]])
    found["top_fraction_gain"] = gain_of_halves(halves, w, examples, 0.25).mean
  return {name: from_replicates(values, level=level) for name, values in found.items()}


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
  gains = [
    gain_of_halves(halves, some, counts.examples, fraction).mean
    for (drawn,) in blocks((counts.runs, key), replicates=replicates)
    for some in np.split(drawn, range(at_once, len(drawn), at_once))
  ]
  return from_replicates(np.concatenate(gains), level=level)


def calibration_bootstrap_of_votes(
  counts: VoteCounts, *, key: jax.Array
) -> dict[str, Bootstrap]:
  """Return CACE and ECE of `bootstrap` over examples."""
  runs, examples, bins = counts.runs, counts.examples, 10
  cells = counts.cells
  classes, most = (x[:, 0] for x in counts.first_classes(1))
  top_is_right = (classes == counts.labels) & (most > 0)
  excess = np.zeros((2, examples, bins))
  of_cells = bins_of(cells.votes, runs, bins)
  np.add.at(excess[0], (cells.example, of_cells), cells.right * runs - cells.votes)
  of_top = bins_of(most, runs, bins)
  excess[1, np.arange(examples), of_top] = top_is_right * runs - most
  parts = parts_of_resamples(examples, key=jax.random.split(key)[1], replicates=1000)
  sums = [abs(real(drawn) @ excess).sum(2) for drawn in parts]
  of_cace, of_ece = ratio(np.concatenate(sums, axis=1), examples * runs)
  return {"cace": from_replicates(of_cace), "ece": from_replicates(of_ece)}


def _covariances(w: Array, x: Array, y: Array) -> Array:
  """Return Σ_{r<s} w_r w_s (x_r - x_s)(y_r - y_s) for each resample."""
  return w.sum(1) * (w * x * y).sum(1) - (w * x).sum(1) * (w * y).sum(1)


def _counts(a: Array, b: Array) -> Array:
  """Return the matrix product a b of whole numbers; float32 is exact, because results
  are below 2^24.
  """
  return (a.astype(np.float32) @ b.astype(np.float32)).astype(np.int64)


def _of_votes(
  predictions: Array, labels: Array, num_classes: int, w: Array, v: Array, bins: int
) -> dict[str, Array]:
  """Return the sums over examples that the statistics need from the votes of each
  resample, (replicates,) each.
  """
  runs, replicates = len(predictions), max(len(w), len(v))
  # Where all runs agree, no resample of runs changes anything.
  fixed = (predictions == predictions[:1]).all(0) | (len(w) == 1)
  votes = votes_of(predictions[:, fixed], num_classes)
  sums = _sums(_of_each_example(votes, labels[fixed], runs, bins), real(v[:, fixed]))
  total = {
    name: np.broadcast_to(x, (replicates, *x.shape[1:])) for name, x in sums.items()
  }
  varying = np.flatnonzero(~fixed)
  step = max(1, _AT_ONCE // ((runs + replicates) * num_classes))
  for start in range(0, len(varying), step):
    some = varying[start : start + step]
    # Padded to few different sizes, so that few programs are compiled; the padding is
    # drawn 0 times.
    more = min(step, 2 ** (len(some) - 1).bit_length()) - len(some)
    block = (x[..., some] for x in (predictions, labels, v))
    padded = (np.pad(x, (*[(0, 0)] * (x.ndim - 1), (0, more))) for x in block)
    sums = _of_resampled_votes(*padded, w, num_classes, bins)
    total = {name: total[name] + real(x) for name, x in sums.items()}
  return total | {name: abs(total[name]).sum(1) for name in ("cace", "ece")}


@partial(jax.jit, static_argnames=("num_classes", "bins"))
def _of_resampled_votes(predictions, labels, v, w, num_classes, bins):
  """Return `_sums` of the votes of each resample of the runs."""
  runs, examples = predictions.shape
  one_hot = jax.nn.one_hot(predictions, num_classes).reshape(
    runs, examples * num_classes
  )
  with jax.default_matmul_precision("highest"):  # counts are more than bfloat16 holds
    votes = (w.astype(jnp.float32) @ one_hot).reshape(-1, examples, num_classes)
    terms = jax.vmap(lambda votes: _of_each_example(votes, labels, runs, bins))(votes)
    v = v.astype(jnp.float32)
    return (
      jax.vmap(_sums)(terms, v)
      if len(v) > 1
      else jax.vmap(lambda x: _sums(x, v[0]))(terms)
    )


def _of_each_example(
  votes: Array, labels: Array, runs: int, bins: int
) -> dict[str, Array]:
  """Return what each example adds to the statistics, from its votes (examples,
  classes), which may be traced.
  """
  xp = np if isinstance(votes, np.ndarray) else jnp
  votes = votes.astype(float)
  hits = (labels[:, None] == xp.arange(votes.shape[1])[None]).astype(float)
  right, most, none = (votes * hits).sum(1), votes.max(1), runs - votes.sum(1)
  top_is_right = ((votes.argmax(1) == labels) & (most > 0)).astype(float)

  def excess(votes, hits):
    """Return Σ (hit R - votes) of an example's items in each bin, as in `cace`,
    (examples, bins).
    """
    bin_of = bins_of(votes.astype(int), runs, bins)
    return xp.stack(
      [xp.where(bin_of == i, hits * runs - votes, 0).sum(1) for i in range(bins)],
      axis=1,
    )

  return {
    "independent": right * (runs - right),
    "disagreeing": (votes * (runs - votes)).sum(1) + none * (runs - none),
    "right": top_is_right,
    "cace": excess(votes, hits),
    "ece": excess(most[:, None], top_is_right[:, None]),
  }


def _sums(terms: dict[str, Array], times: Array) -> dict[str, Array]:
  """Return the terms summed over examples, each example counted `times` times."""
  return {name: times @ x for name, x in terms.items()} | {
    "with_itself": times**2 @ terms["independent"]
  }
