"""Calibration of the ensemble of votes, the generalization-disagreement equality,
correlations (Jiang 2022).

h~_k(x) is the fraction of the R runs that vote for class k on example x: the ensemble's
confidence in k. Where runs were not asked for an example, R are those that were; examples
that no run was asked for are left out.
"""

from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int, Num

from vmapseeds.errors import check_at_least, check_one_of
from vmapseeds.stats._arrays import Array, Given, as_float64, bins_of, safe_divide
from vmapseeds.stats.counts import VoteCounts, counts_of_votes
from vmapseeds.stats.disagreement import mean_disagreement, plurality
from vmapseeds.stats.intervals import (
  disagreement_of_each_run,
  mean_over_pairs_se,
  nonnegative_interval,
)
from vmapseeds.stats.reading import (
  read_level,
  read_predictions,
)
from vmapseeds.stats.resampling import (
  Bootstrap,
  from_replicates,
  parts_of_resamples,
)
from vmapseeds.stats.uncertainty import Estimate, Uncertainty

# Bins of equal width where the caller has no choice of them.
BINS = 10


def cace(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
  bins: int = 10,
) -> Float[Array, ""]:
  """Return the class-aggregated calibration error of the ensemble of votes:

      CACE = Σ_i (|B_i|/n) |acc(B_i) - conf(B_i)|

  The items are all n K pairs of an example and a class k. An item has confidence
  h~_k(x) and is right if y = k. B_i holds the items with a confidence in [(i - 1)/bins,
  i/bins); the last bin is closed. The weights |B_i|/n sum to K. Bins are computed from
  integer votes, so that 3 votes of 10 are in the bin that starts at 0.3. Empty bins add
  nothing.

  CACE falls with the number of runs even for a perfectly calibrated law of runs (to .36
  at 2 runs and .03 at 30 in a typical case), so report R with it, or
  compare ensembles of as many. `bins = runs + 1` gives each number of votes its own
  bin. That CACE bounds the gap in theorem 4.2; wider bins can only lower it.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    labels: (examples,), class indices.
    num_classes: K.
    bins: how many bins of equal width.

  Returns:
    0-d, from 0 (perfect) to num_classes; NaN without runs or examples.

  Source: jiang2022, equations 56 to 58 (which put a confidence of 1 in no bin).

  >>> print(cace([[0, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 1]], labels=[0, 0, 1], num_classes=2).round(6))
  0.666667
  """
  counts = counts_of_votes(predictions, num_classes, labels)
  return calibration_error(counts, "pairs", bins)


def ece(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
  bins: int = 10,
) -> Float[Array, ""]:
  """Return the expected calibration error of the ensemble of votes:

      ECE = Σ_i (|B_i|/n) |acc(B_i) - conf(B_i)|

  The items are the n examples. An item has the confidence h~_ŷ(x) of its plurality
  class ŷ (the lowest of tied classes) and is right if y = ŷ. Bins as in `cace`. An
  example on which no run has a prediction has confidence 0 and is wrong. Like CACE it
  falls with the number of runs.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    labels: (examples,), class indices.
    num_classes: K.
    bins: how many bins of equal width.

  Returns:
    0-d, from 0 (perfect) to 1; NaN without runs or examples.

  Source: jiang2022, equations 59 to 62.

  >>> print(ece([[0, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 1]], labels=[0, 0, 1], num_classes=2).round(6))
  0.5
  """
  counts = counts_of_votes(predictions, num_classes, labels)
  return calibration_error(counts, "top", bins)


def calibration_error(
  counts: VoteCounts,
  kind: str,
  bins: int,
  weights: Given["bins"] = 1.0,
) -> Float[Array, ""]:
  """Return Σ_i w_i |Σ_{items of B_i} (hit - votes/R)| / n, in integer votes: |B_i|
  cancels the divisor of the bin's means. R are the runs that were asked for the example.
  """
  counts = counts.of_asked_examples()
  items = _items(counts, kind)
  excess_of_items = items.right * items.runs - items.votes
  # A vote of a run on an example counts 1 / (n R).
  runs = counts.runs
  if counts.asked is not None:
    excess_of_items = excess_of_items / items.runs
    runs = 1
  excess = _by_bin(items, excess_of_items, bins)[0]
  return safe_divide((abs(excess) * weights).sum(), counts.examples * runs)


class CalibrationCurve(NamedTuple):
  """The bins of a calibration curve, (bins,), or (classes, bins) for one curve per
  class.
  """

  # conf(B_i), the mean confidence of the items; NaN in an empty bin.
  confidence: Float[Array, "..."]
  # acc(B_i), the fraction of the items that is right; NaN in an empty bin.
  accuracy: Float[Array, "..."]
  # |B_i|/n.
  weight: Float[Array, "..."]
  # |B_i|.
  items: Int[Array, "..."]


def calibration_curve(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
  bins: int = 10,
  of: str = "pairs",
) -> CalibrationCurve:
  """Return the calibration curve of the ensemble of votes: acc(B_i) against conf(B_i),
  on y = x if calibrated.

  Bins as in `cace`. `of` chooses the items: "pairs" are all n K pairs of an example and
  a class (class-aggregated, as in `cace`), "classes" the n examples once for each class
  (class-wise, one row per class), "top" the n examples with their plurality class (as
  in `ece`). Σ weight |accuracy - confidence| over the nonempty bins is CACE, the
  calibration error of each class, or ECE.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    labels: (examples,), class indices.
    num_classes: K.
    bins: how many bins of equal width.
    of: "pairs", "classes" or "top".

  Returns:
    `confidence`, `accuracy`, `weight` and `items`, (bins,) or (classes, bins). A class
    that no label has keeps its row, with an accuracy of 0. Without runs all bins are
    empty; without examples the weights are NaN too.

  Source: jiang2022, definitions 4.2 and 4.3, equations 56 and 57, figures 6 and 14.

  >>> curve = calibration_curve([[0, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 1]], [0, 0, 1], num_classes=2, bins=2)
  >>> print(curve.confidence, curve.accuracy, curve.items)
  [0.   0.75] [0.5 0.5] [2 4]
  """
  counts = counts_of_votes(predictions, num_classes, labels).of_asked_examples()
  items = _items(counts, of)
  runs = counts.runs
  size = _by_bin(items, np.ones_like(items.votes), bins)
  right = _by_bin(items, items.right, bins)
  votes = items.votes
  if counts.asked is not None:
    votes = votes / items.runs
    runs = 1
  votes = _by_bin(items, votes, bins)
  if counts.runs:
    # Items that are left out are in the first bin.
    size[:, 0] += items.total * counts.examples - size.sum(1)
  if of != "classes":
    # There is one curve.
    size = size[0]
    votes = votes[0]
    right = right[0]
  return CalibrationCurve(
    confidence=safe_divide(votes, size * runs),
    accuracy=safe_divide(right, size),
    weight=safe_divide(size, counts.examples),
    items=size.astype(np.int64),
  )


class _Items(NamedTuple):
  """Items of calibration curves. Items that are left out have no votes, and are wrong:
  they are in the first bin.
  """

  example: Int[Array, "items"]
  curve: Int[Array, "items"]
  votes: Int[Array, "items"]
  right: Bool[Array, "items"]
  curves: int
  # How many items of a curve each example has.
  total: int
  # How many runs were asked for each item's example.
  runs: Int[Array, "items"] | int


def _items(counts: VoteCounts, kind: str) -> _Items:
  check_one_of("items of", kind, ("pairs", "classes", "top"))

  def runs_of(example: Int[Array, "items"]) -> Int[Array, "items"] | int:
    if counts.asked is None:
      return counts.runs
    return counts.asked[example]

  if kind == "top":
    example = np.arange(counts.examples)
    _, most_votes = counts.first_classes(1)
    return _Items(
      example=example,
      curve=np.zeros_like(example),
      votes=most_votes[:, 0],
      right=plurality(counts) == counts.labels,
      curves=1,
      total=1,
      runs=runs_of(example),
    )
  cells = counts.cells
  if kind == "pairs":
    return _Items(
      example=cells.example,
      curve=np.zeros_like(cells.example),
      votes=cells.votes,
      right=cells.right,
      curves=1,
      total=counts.classes,
      runs=runs_of(cells.example),
    )
  return _Items(
    example=cells.example,
    curve=cells.class_index,
    votes=cells.votes,
    right=cells.right,
    curves=counts.classes,
    total=1,
    runs=runs_of(cells.example),
  )


def _by_bin(
  items: _Items,
  weights: Array,
  bins: int,
) -> Num[Array, "curves bins"]:
  """Sum the weights of each curve's items in each bin."""
  bins = check_at_least("bins", bins, 1)
  sums = np.bincount(_places(items, bins), as_float64(weights), items.curves * bins)
  sums = sums.reshape(items.curves, bins)
  if not np.any(items.runs):
    # There are no votes, and nothing is in a bin.
    return np.zeros_like(sums)
  return sums


def _places(items: _Items, bins: int) -> Int[Array, "items"]:
  """Return each item's place among the bins of all curves."""
  return bins * items.curve + bins_of(items.votes, items.runs, bins)


def _by_example(
  items: _Items,
  weights: Array,
  examples: int,
  bins: int,
) -> scipy.sparse.csr_array:
  """Return what each example adds to each bin of each curve, (examples, curves * bins).
  Most bins have nothing of an example.
  """
  coordinates = items.example, _places(items, bins)
  shape = examples, items.curves * bins
  return scipy.sparse.csr_array((as_float64(weights), coordinates), shape)


def calibration_band(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
  bins: int = 10,
  of: str = "pairs",
  *,
  key: jax.Array,
  level: float = 0.95,
  replicates: int = 1000,
) -> Bootstrap:
  """Return the bootstrap of the accuracies of a `calibration_curve`, over test
  examples.

  An example is drawn with all its K pairs, since only one of them can be right. The
  band answers what the same runs would give on other test examples, with unchanged
  bins. A resample that leaves a bin empty is left out for that bin.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    labels: (examples,), class indices.
    num_classes: K.
    bins: how many bins of equal width.
    of: as in `calibration_curve`.
    key: a JAX random key.
    level: the coverage of the intervals, between 0 and 1.
    replicates: how many resamples.

  Returns:
    `se` (the paper's error bar), `low` and `high` of acc(B_i), (bins,) or (classes,
    bins); NaN for an empty bin.

  Source: jiang2022, figure 6 ("one bootstrapping standard deviation"; the paper leaves
    open of what).

  >>> band = calibration_band([[0, 1, 1], [0, 1, 0]], [0, 0, 1], num_classes=2, key=jax.random.key(0), bins=2)
  >>> bool((band.low <= band.high).all())
  True
  """
  read_level(level)
  counts = counts_of_votes(predictions, num_classes, labels).of_asked_examples()
  items = _items(counts, of)
  bins = check_at_least("bins", bins, 1)
  examples = counts.examples

  right = _by_example(items, items.right, examples, bins)
  size = _by_example(items, np.ones_like(items.votes), examples, bins)
  if not counts.runs:
    # Nothing is in a bin.
    right *= 0
    size *= 0

  accuracies = []
  for drawn in parts_of_resamples(examples, key=key, replicates=replicates):
    times = as_float64(drawn)
    curves_shape = len(drawn), items.curves, bins
    right_of = (times @ right).reshape(curves_shape)
    size_of = (times @ size).reshape(curves_shape)
    if counts.runs:
      # Every resample has as many examples.
      size_of[..., 0] += items.total * examples - size_of.sum(-1)
    accuracies.append(safe_divide(right_of, size_of))
  curves = np.concatenate(accuracies)
  if of != "classes":
    curves = curves[:, 0]
  return from_replicates(curves, level=level)


def calibration_bootstrap_of_votes(
  counts: VoteCounts,
  *,
  key: jax.Array,
) -> dict[str, Bootstrap]:
  """Return the standard error and interval of CACE and ECE in 10 bins, by the bootstrap
  over examples.
  """
  examples = counts.examples
  # By how many votes an example's right items exceed all votes, in each bin.
  excess = np.empty((2, examples, BINS))
  for number, kind in enumerate(("pairs", "top")):
    items = _items(counts, kind)
    excess_of_items = items.right * items.runs - items.votes
    excess[number] = _by_example(items, excess_of_items, examples, BINS).toarray()

  # The first of two keys would draw runs.
  _, key_of_examples = jax.random.split(key)
  sums = []
  for drawn in parts_of_resamples(examples, key=key_of_examples, replicates=1000):
    by_bin = abs(as_float64(drawn) @ excess)
    sums.append(by_bin.sum(2))
  cace, ece = safe_divide(np.concatenate(sums, axis=1), examples * counts.runs)
  return {"cace": from_replicates(cace), "ece": from_replicates(ece)}


def gde_gap(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
  self_pairs: bool = False,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the gap of the generalization-disagreement equality: |mean test error -
  expected disagreement|.

  The standard error is that of the signed gap, by the jackknife in closed form; the
  interval is Student's, from 0 on. They read the predictions anew, which takes longer
  than the value.

  Args:
    predictions: (runs, examples), class indices; -1 is an error, and one class more in
      the disagreement.
    labels: (examples,), class indices.
    num_classes: K.
    self_pairs: as in `expected_disagreement`; False is the gap that the paper reports,
      True the one that theorem 4.2 bounds by the exact-level CACE of the same runs.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, from 0 to 1; NaN for a single run (without self_pairs) or without
    examples. There is neither a standard error nor an interval (NaN) for fewer than
    three runs, with self_pairs, or of tallies, which have no single runs.

  Source: jiang2022, section 3 and tables 1 to 3; Arvesen 1969 for the jackknife.

  >>> P = [[0, 1, 2], [0, 1, 1], [0, 2, 2], [1, 1, 0]]
  >>> gde_gap(P, labels=[0, 1, 2], num_classes=3)
  0.278 ± 0.096 [0.000, 0.584]
  """
  counts = counts_of_votes(predictions, num_classes, labels)
  # Error and disagreement of the same examples: those of a pair of runs.
  counts = counts.of_asked_examples(1 if self_pairs else 2)
  read_level(level)
  if counts.asked is None:
    error = safe_divide(counts.wrong.sum(), counts.runs * counts.examples)
  else:
    errors = safe_divide(counts.wrong, counts.asked)
    error = safe_divide(errors.sum(), len(errors))
  value = abs(error - mean_disagreement(counts, self_pairs))
  if self_pairs or isinstance(predictions, VoteCounts) or counts.asked is not None:
    return Estimate(value, level=level)

  def uncertainty() -> Uncertainty:
    array = read_predictions(predictions, counts.classes)
    errors = safe_divide((array != counts.labels).sum(1), counts.examples)
    of_pairs = disagreement_of_each_run(array, counts.classes)
    se = mean_over_pairs_se(of_pairs, errors)
    return se, *nonnegative_interval(value, se, counts.runs, level)

  return Estimate.deferred(value, uncertainty, level)
