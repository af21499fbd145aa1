"""The bootstrap of the statistics of errors and votes, all from the same resamples: over
runs, over test examples, or over both.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from vmapseeds.errors import check_at_least, check_one_of
from vmapseeds.stats._arrays import Array, Given, as_float64, bins_of, safe_divide
from vmapseeds.stats.counting import COUNTERS, FEW_CLASSES, votes_of
from vmapseeds.stats.reading import read_key, read_level, read_votes
from vmapseeds.stats.resampling import Bootstrap, from_replicates, resamples
from vmapseeds.stats.variance import gain_of_halves

# How many numbers the votes of a block of examples, in all resamples, may have in memory.
_AT_ONCE = 2**24


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
  # How often each run (w), and each example (v), is drawn in each resample; what is not
  # resampled has one row.
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
    # Then the examples' one row is all there is of either half.
    halves = np.stack([even[0], odd[0]])
    values["top_fraction_gain"] = gain_of_halves(halves, w, examples, 0.25).mean
  return {name: from_replicates(x, level=level) for name, x in values.items()}


def renumber_classes(
  predictions: np.ndarray,
  labels: np.ndarray,
) -> tuple[Int[np.ndarray, "runs examples"], Int[np.ndarray, "examples"], int]:
  """Return predictions and labels in which the classes of each example are numbered from
  0, in their order, and how many numbers that takes.

  Only the classes that runs vote for and the label have numbers, so that arrays with
  an axis of classes are small. A prediction of -1 stays as it is.
  """
  rows = np.concatenate([labels[None].astype(np.int32), predictions.astype(np.int32)])
  numbered = np.empty_like(rows)
  size = max(1, COUNTERS // len(rows))
  for start in range(0, rows.shape[1], size):
    block = rows[:, start : start + size]
    order = np.argsort(block, axis=0)
    ascending = np.take_along_axis(block, order, axis=0)
    numbers = np.zeros_like(block)
    numbers[1:] = np.cumsum(ascending[1:] != ascending[:-1], axis=0)
    numbers -= ascending[:1] < 0
    np.put_along_axis(numbered[:, start : start + size], order, numbers, axis=0)
  return numbered[1:], numbered[0], int(numbered.max(initial=0)) + 1


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
