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

from vmapseeds.errors import check_at_least, check_one_of
from vmapseeds.stats._arrays import (
  Array,
  Given,
  as_float64,
  bins_of,
  safe_divide,
  times_drawn,
)
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
  check_one_of("over", over, ("runs", "examples", "both"))
  bins = check_at_least("bins", bins, 1)
  read_level(level)
  predictions, labels = read_votes(predictions, labels, num_classes)
  predictions = np.asarray(predictions)
  labels = np.asarray(labels)
  if num_classes > FEW_CLASSES:
    predictions, labels, num_classes = renumber_classes(predictions, labels)
  runs, examples = predictions.shape
  key_of_runs, key_of_examples = jax.random.split(read_key(key))
  # How often each run, and each example, is drawn; what is not resampled has one row.
  w = np.ones((1, runs), int)
  v = np.ones((1, examples), int)
  if over != "examples":
    w = resamples(runs, key=key_of_runs, replicates=replicates)
  if over != "runs":
    v = resamples(examples, key=key_of_examples, replicates=replicates)

  errors = predictions != labels
  # Each run's errors on the even and on the odd examples of each resample.
  even = _counts(v[:, 0::2], errors[:, 0::2].T)
  odd = _counts(v[:, 1::2], errors[:, 1::2].T)
  votes = _of_votes(predictions, labels, num_classes, w, v, bins)
  values = _statistics(even, odd, votes, w, v)
  if over == "runs":
    halves = np.stack([even[0], odd[0]])
    values["top_fraction_gain"] = gain_of_halves(halves, w, examples, 0.25).mean
  return {name: from_replicates(x, level=level) for name, x in values.items()}


def _statistics(
  even: Int[np.ndarray, "*replicates runs"],
  odd: Int[np.ndarray, "*replicates runs"],
  votes: dict[str, Array],
  w: Int[np.ndarray, "_ runs"],
  v: Int[np.ndarray, "_ examples"],
) -> dict[str, Array]:
  """Return the statistics of each resample, from the runs' errors on its even and odd
  examples, and from the sums over its votes.
  """
  runs = w.shape[1]
  examples = v.shape[1]
  both = even + odd
  # Pairs of a run, or of an example, with itself are no pairs of two, and do not count.
  pairs_of_runs = runs**2 - (w**2).sum(1)
  pairs_of_examples = examples**2 - (v**2).sum(1)

  mean_error = safe_divide((w * both).sum(1), runs * examples)
  squared = safe_divide(_covariances(w, both, both), pairs_of_runs)
  independent = safe_divide(votes["independent"], examples**2 * pairs_of_runs)
  with_itself = safe_divide(votes["with_itself"], pairs_of_runs)
  distribution = safe_divide(squared - with_itself, pairs_of_examples)
  spread_even = np.sqrt(_covariances(w, even, even))
  spread_odd = np.sqrt(_covariances(w, odd, odd))
  split_correlation = safe_divide(_covariances(w, even, odd), spread_even * spread_odd)
  disagreement = safe_divide(votes["disagreeing"], examples * pairs_of_runs)
  return {
    "mean_error": mean_error,
    "test_set_variance": safe_divide(squared, examples**2),
    "independent_errors_variance": independent,
    "distribution_variance": distribution,
    "split_correlation": split_correlation,
    "ensemble_accuracy": safe_divide(votes["right"], examples),
    "expected_disagreement": disagreement,
    "gde_gap": abs(mean_error - disagreement),
    "cace": safe_divide(votes["cace"], examples * runs),
    "ece": safe_divide(votes["ece"], examples * runs),
  }


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


def calibration_bootstrap_of_votes(
  counts: VoteCounts,
  *,
  key: jax.Array,
) -> dict[str, Bootstrap]:
  """Return CACE and ECE of `bootstrap` over examples."""
  runs = counts.runs
  examples = counts.examples
  bins = 10
  # What each example adds to the excess of right items over votes in each bin: by its
  # pairs with classes, and by its plurality class.
  excess = np.zeros((2, examples, bins))
  cells = counts.cells
  pair_bins = bins_of(cells.votes, runs, bins)
  pair_excess = cells.right * runs - cells.votes
  # An example may have several pairs in one bin, which an assignment would not add.
  np.add.at(excess[0], (cells.example, pair_bins), pair_excess)

  first_classes, first_votes = counts.first_classes(1)
  top = first_classes[:, 0]
  most = first_votes[:, 0]
  top_is_right = (top == counts.labels) & (most > 0)
  top_bins = bins_of(most, runs, bins)
  excess[1, np.arange(examples), top_bins] = top_is_right * runs - most

  # `bootstrap` draws examples with the second of two keys.
  _, key_of_examples = jax.random.split(key)
  sums = []
  for drawn in parts_of_resamples(examples, key=key_of_examples, replicates=1000):
    by_bin = abs(as_float64(drawn) @ excess)
    sums.append(by_bin.sum(2))
  cace, ece = safe_divide(np.concatenate(sums, axis=1), examples * runs)
  return {"cace": from_replicates(cace), "ece": from_replicates(ece)}


def _covariances(
  w: Array,
  x: Array,
  y: Array,
) -> Array:
  """Return Σ_{r<s} w_r w_s (x_r - x_s)(y_r - y_s) for each resample."""
  sum_x = (w * x).sum(1)
  sum_y = (w * y).sum(1)
  products = (w * x * y).sum(1)
  return w.sum(1) * products - sum_x * sum_y


def _counts(a: Array, b: Array) -> Array:
  """Return the matrix product a b of whole numbers; float32 is exact, because results
  are below 2^24.
  """
  product = a.astype(np.float32) @ b.astype(np.float32)
  return product.astype(np.int64)


def _of_votes(
  predictions: Array,
  labels: Array,
  num_classes: int,
  w: Array,
  v: Array,
  bins: int,
) -> dict[str, Array]:
  """Return the sums over examples that the statistics need from the votes of each
  resample, (replicates,) each.
  """
  runs = len(predictions)
  replicates = max(len(w), len(v))
  # Where all runs agree, no resample of runs changes anything.
  fixed = (predictions == predictions[:1]).all(0)
  if len(w) == 1:
    # Runs are not resampled.
    fixed[:] = True
  votes = votes_of(predictions[:, fixed], num_classes)
  terms = _of_each_example(votes, labels[fixed], runs, bins)
  total = {}
  for name, x in _sums(terms, as_float64(v[:, fixed])).items():
    # Where only runs are resampled, fixed examples have the same sums in all resamples.
    total[name] = np.broadcast_to(x, (replicates, *x.shape[1:]))

  varying = np.flatnonzero(~fixed)
  step = max(1, _AT_ONCE // ((runs + replicates) * num_classes))
  for start in range(0, len(varying), step):
    some = varying[start : start + step]
    # Padded to few different sizes, so that few programs are compiled; the padding is
    # drawn 0 times.
    size = min(step, 2 ** (len(some) - 1).bit_length())
    sums = _of_resampled_votes(
      _pad_examples(predictions[:, some], size),
      _pad_examples(labels[some], size),
      _pad_examples(v[:, some], size),
      w,
      num_classes,
      bins,
    )
    for name, x in sums.items():
      total[name] = total[name] + as_float64(x)
  for name in ("cace", "ece"):
    # Bins count by how far they are off, on either side, once all examples are in them.
    total[name] = abs(total[name]).sum(1)
  return total


def _pad_examples(x: Array, size: int) -> np.ndarray:
  """Pad the last axis with zeros up to a size."""
  padding = [(0, 0)] * x.ndim
  padding[-1] = (0, size - x.shape[-1])
  return np.pad(x, padding)


@partial(jax.jit, static_argnames=("num_classes", "bins"))
def _of_resampled_votes(predictions, labels, v, w, num_classes, bins):
  """Return `_sums` of the votes of each resample of the runs."""
  runs, examples = predictions.shape
  one_hot = jax.nn.one_hot(predictions, num_classes)
  one_hot = one_hot.reshape(runs, examples * num_classes)

  def terms_of(votes):
    return _of_each_example(votes, labels, runs, bins)

  # Counts are more than bfloat16 holds.
  with jax.default_matmul_precision("highest"):
    votes = w.astype(jnp.float32) @ one_hot
    votes = votes.reshape(-1, examples, num_classes)
    terms = jax.vmap(terms_of)(votes)
    v = v.astype(jnp.float32)
    if len(v) > 1:
      return jax.vmap(_sums)(terms, v)
    # Examples are not resampled: all resamples of runs share one row.
    return jax.vmap(_sums, in_axes=(0, None))(terms, v[0])


def _of_each_example(
  votes: Array,
  labels: Array,
  runs: int,
  bins: int,
) -> dict[str, Array]:
  """Return what each example adds to the statistics, from its votes (examples,
  classes), which may be traced.
  """
  xp = np if isinstance(votes, np.ndarray) else jnp
  votes = votes.astype(float)
  is_label = labels[:, None] == xp.arange(votes.shape[1])[None]
  hits = is_label.astype(float)
  right = (votes * hits).sum(1)
  most = votes.max(1)
  # Runs without a prediction agree with each other.
  no_vote = runs - votes.sum(1)
  top_is_right = (votes.argmax(1) == labels) & (most > 0)
  top_is_right = top_is_right.astype(float)

  def excess(votes, hits):
    """Return Σ (hit R - votes) of an example's items in each bin, as in `cace`,
    (examples, bins).
    """
    places = bins_of(votes.astype(int), runs, bins)
    difference = hits * runs - votes
    by_bin = []
    for i in range(bins):
      in_bin = xp.where(places == i, difference, 0)
      by_bin.append(in_bin.sum(1))
    return xp.stack(by_bin, axis=1)

  disagreeing = (votes * (runs - votes)).sum(1)
  return {
    "independent": right * (runs - right),
    "disagreeing": disagreeing + no_vote * (runs - no_vote),
    "right": top_is_right,
    "cace": excess(votes, hits),
    "ece": excess(most[:, None], top_is_right[:, None]),
  }


def _sums(terms: dict[str, Array], times: Array) -> dict[str, Array]:
  """Return the terms summed over examples, each example counted `times` times."""
  sums = {name: times @ x for name, x in terms.items()}
  # An example that is drawn several times is paired with itself.
  sums["with_itself"] = times**2 @ terms["independent"]
  return sums
