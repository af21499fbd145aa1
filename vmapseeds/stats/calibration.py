"""Calibration of the ensemble of votes, the generalization-disagreement equality,
correlations (Jiang 2022).

h~_k(x) is the fraction of the R runs that vote for class k on example x: the ensemble's
confidence in k. Where runs were not asked for an example, R are those that were; examples
that no run was asked for are left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int, Num

from vmapseeds.errors import UserError, check_at_least, check_one_of
from vmapseeds.stats._arrays import Array, Given, as_float64, bins_of, safe_divide
from vmapseeds.stats.counts import VoteCounts, counts_of_votes
from vmapseeds.stats.disagreement import mean_disagreement, plurality
from vmapseeds.stats.intervals import (
  disagreement_of_each_run,
  mean_over_pairs_se,
  nonnegative_interval,
)
from vmapseeds.stats.reading import (
  read_key,
  read_level,
  read_predictions,
  read_reals,
  read_within,
)
from vmapseeds.stats.resampling import (
  Bootstrap,
  from_replicates,
  parts_of_resamples,
)
from vmapseeds.stats.uncertainty import Estimate, Uncertainty

# Examples whose votes are simulated together, so that they stay in a core's cache.
EXAMPLES_AT_ONCE = 1024
# Fewer examples where there are very many classes.
LAWS_AT_ONCE = 2**18
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
  `finite_ensemble_calibration`. `bins = runs + 1` gives each number of votes its own
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


class FiniteEnsemble(NamedTuple):
  """Calibration errors of R runs of a perfectly calibrated law: their means and
  standard deviations.
  """

  cace: Float[Array, ""]
  cace_sd: Float[Array, ""]
  ece: Float[Array, ""]
  ece_sd: Float[Array, ""]


def finite_ensemble_calibration(
  fractions: Given["examples classes"],
  runs: int,
  bins: int = 10,
  *,
  key: jax.Array,
  replicates: int = 100,
) -> FiniteEnsemble:
  """Return CACE and ECE that R runs on n examples have if their law is perfectly
  calibrated: the part that comes from R and n.

  The law is given by the vote fractions h~_k of infinitely many of its runs; in
  practice, give those of all runs you have. In each simulation an example's label and
  the R votes on it are drawn independently from its fractions. Report
  this with `cace` and `ece` of R runs: only their excess over it is the runs' lack of
  calibration.

  Args:
    fractions: (examples, classes), such as `vote_fractions`. What a row lacks to sum to
      1 stands for runs without a prediction, and for examples of none of the classes.
    runs: R, at least 1.
    bins: as in `cace`.
    key: a JAX random key; the same key gives the same labels and votes.
    replicates: how many simulations.

  Returns:
    `cace`, `ece`: means over simulations, 0-d; `cace_sd`, `ece_sd`: their standard
    deviation (ddof = 1) from one simulation to another, NaN for a single one. NaN
    without examples.

  Source: ours; compare jiang2022, table 1, whose CACE of 5 and of 2 models mostly
    measures this.

  >>> certain = [[1.0, 0.0], [0.0, 1.0]]
  >>> print(finite_ensemble_calibration(certain, runs=2, key=jax.random.key(0)).cace)
  0.0
  >>> undecided = [[0.5, 0.5]] * 100
  >>> print(finite_ensemble_calibration(undecided, runs=1, key=jax.random.key(0)).cace.round(1))
  1.0
  """
  fractions = read_reals("fractions", fractions, "examples classes")
  read_within("fractions", fractions, "[0, 1]")
  runs = check_at_least("runs", runs, 1)
  bins = check_at_least("bins", bins, 1)
  replicates = check_at_least("replicates", replicates, 1)
  rng = _generator(read_key(key))
  total = fractions.sum(1)
  # Fractions in float32 sum to 1 only so far.
  if (total > 1 + 1e-4).any():
    i = total.argmax()
    raise UserError(
      f"fractions of example {i} sum to {total[i]:.6g}: give fractions that sum to at most 1"
    )
  starts = range(EXAMPLES_AT_ONCE, len(fractions), EXAMPLES_AT_ONCE)
  blocks = np.split(_laws(fractions), starts)
  laws = [_without_zeros(block) for block in blocks]
  return _simulate_calibrated(laws, runs, bins, rng, replicates)


def finite_ensemble_of_votes(
  counts: VoteCounts,
  *,
  key: jax.Array,
  replicates: int = 100,
) -> FiniteEnsemble:
  """Return `finite_ensemble_calibration` of the fractions of these votes, in memory that
  does not grow with the number of classes.
  """
  votes = scipy.sparse.csr_array(counts.votes)
  at_once = min(EXAMPLES_AT_ONCE, max(1, LAWS_AT_ONCE // counts.classes))
  laws = []
  for start in range(0, counts.examples, at_once):
    block = votes[start : start + at_once].toarray()
    laws.append(_without_zeros(_laws(block / counts.runs)))
  rng = _generator(key)
  return _simulate_calibrated(laws, counts.runs, BINS, rng, replicates)


def _generator(key: jax.Array) -> np.random.Generator:
  return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def _laws(
  fractions: Float[np.ndarray, "some classes"],
) -> Float[np.ndarray, "some columns"]:
  """Return each example's law of labels and votes. What a row of fractions lacks to sum
  to 1 is an extra class: labels that nobody votes for, and runs that do not vote.
  """
  lack = np.maximum(1 - fractions.sum(1, keepdims=True), 0)
  laws = np.append(fractions, lack, axis=1)
  return laws / laws.sum(1, keepdims=True)


def _without_zeros(
  laws: Float[np.ndarray, "some columns"],
) -> Float[np.ndarray, "some fewer"]:
  """Return laws without the classes that have probability 0, which take no random
  numbers; the extra class stays the last.
  """
  example, class_index = np.nonzero(laws[:, :-1])
  taken = np.bincount(example, minlength=len(laws))
  # Where each example's entries begin among all that are not 0.
  first = np.cumsum(taken) - taken
  place = np.arange(len(example)) - first[example]
  # One more for no prediction, which is last in all laws.
  columns = taken.max(initial=0) + 1
  short = np.zeros((len(laws), columns))
  short[example, place] = laws[example, class_index]
  short[:, -1] = laws[:, -1]
  return short


def _simulate_calibrated(
  laws: Sequence[np.ndarray],
  runs: int,
  bins: int,
  rng: np.random.Generator,
  replicates: int,
) -> FiniteEnsemble:
  """Return `finite_ensemble_calibration` of laws, a few examples at a time."""
  examples = sum(map(len, laws))
  simulated = np.empty((replicates, 2))
  for replicate in range(replicates):
    # All labels are drawn before all votes: the order of the draws decides the result.
    labels = [rng.multinomial(1, law).argmax(1) for law in laws]
    excess = np.zeros((2, bins))
    for law, block_labels in zip(laws, labels, strict=True):
      votes = rng.multinomial(runs, law)[:, :-1]
      excess += _excess_by_bin(votes, block_labels, runs, bins)
    simulated[replicate] = safe_divide(abs(excess).sum(1), examples * runs)
  mean = simulated.mean(0)
  sd = from_replicates(simulated).se
  return FiniteEnsemble(
    cace=np.asarray(mean[0]),
    cace_sd=np.asarray(sd[0]),
    ece=np.asarray(mean[1]),
    ece_sd=np.asarray(sd[1]),
  )


def _excess_by_bin(
  votes: Int[np.ndarray, "block classes"],
  labels: Int[np.ndarray, "block"],
  runs: int,
  bins: int,
) -> Float[np.ndarray, "2 bins"]:
  """Return by how many votes the right items of each bin exceed all votes: of pairs of
  an example and a class, and of plurality classes.
  """
  examples, classes = votes.shape
  right = labels[:, None] == np.arange(classes)
  # Votes for the label may be none; other classes without votes add nothing.
  counted = (votes > 0) | right
  pairs = _sum_excess(votes[counted], right[counted], runs, bins)

  most = votes.max(1, initial=0)
  # Where the fractions of no example leave a class, there is none to vote for.
  top = np.full(examples, -1)
  if classes:
    top = votes.argmax(1)
  top_is_right = (most > 0) & (top == labels)
  return np.stack([pairs, _sum_excess(most, top_is_right, runs, bins)])


def _sum_excess(
  votes: Int[np.ndarray, "items"],
  right: Bool[np.ndarray, "items"],
  runs: int,
  bins: int,
) -> Float[np.ndarray, "bins"]:
  places = bins_of(votes, runs, bins)
  excess = as_float64(right * runs - votes)
  # Of no items, NumPy returns whole numbers.
  return as_float64(np.bincount(places, excess, bins))


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
