"""Calibration of the ensemble of votes, the generalization-disagreement equality,
correlations (Jiang 2022).

h~_k(x) is the fraction of the R runs that vote for class k on example x: the ensemble's
confidence in k.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, Num

from vmapseeds.mistakes import Mistake, at_least, one_of
from vmapseeds.stats._arrays import Array, Given, bins_of, ratio, real
from vmapseeds.stats.counts import VoteCounts, counts_of_votes
from vmapseeds.stats.disagreement import expected_disagreement, plurality
from vmapseeds.stats.reading import (
  read_key,
  read_level,
  read_reals,
  read_within,
)
from vmapseeds.stats.resampling import Bootstrap, from_replicates, resamples


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
  bin. That CACE bounds the gap in theorem 4.2 (`cace_exact_levels`); wider bins can
  only lower it.

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
  counts: VoteCounts, of: str, bins: int, weights: Given["bins"] = 1.0
) -> Float[Array, ""]:
  """Return Σ_i w_i |Σ_{items of B_i} (hit - votes/R)| / n, in integer votes: |B_i|
  cancels the divisor of the bin's means.
  """
  votes, hits = _items(counts, of)
  excess = _by_bin(votes, real(hits) * counts.runs - votes, counts.runs, bins)[0]
  return ratio((abs(excess) * weights).sum(), counts.examples * counts.runs)


class CalibrationCurve(NamedTuple):
  """The bins of a calibration curve, (bins,), or (classes, bins) for one curve per
  class.
  """

  confidence: Float[
    Array, "..."
  ]  # conf(B_i), the mean confidence of the items; NaN in an empty bin
  accuracy: Float[
    Array, "..."
  ]  # acc(B_i), the fraction of the items that is right; NaN in an empty bin
  weight: Float[Array, "..."]  # |B_i|/n
  items: Int[Array, "..."]  # |B_i|


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
  counts = counts_of_votes(predictions, num_classes, labels)
  votes, hits = _items(counts, of)
  items, voted, right = (
    _by_bin(votes, x, counts.runs, bins) for x in (np.ones_like(votes), votes, hits)
  )
  if of != "classes":
    items, voted, right = items[0], voted[0], right[0]
  return CalibrationCurve(
    ratio(voted, items * counts.runs),
    ratio(right, items),
    ratio(items, counts.examples),
    items.astype(np.int64),
  )


def _items(counts: VoteCounts, of: str) -> tuple[Array, Array]:
  """Return the votes of each item and whether it is right, each (curves, examples,
  items of an example).
  """
  one_of("items of", of, ("pairs", "classes", "top"))
  votes, labels = counts.votes, counts.labels
  if of == "top":
    hits = plurality(counts) == labels
    return votes.max(1)[None, :, None], hits[None, :, None]
  hits = labels[:, None] == np.arange(votes.shape[1])
  if of == "pairs":
    return votes[None], hits[None]
  return votes.T[..., None], hits.T[..., None]


def _by_bin(
  votes: Int[Array, "curves *items"], weights: Array, runs: int, bins: int
) -> Num[Array, "curves bins"]:
  """Sum the weights of each curve's items in each bin."""
  curves, bins = len(votes), at_least("bins", bins, 1)
  first = bins * np.arange(curves)[:, None, None]
  places = (bins_of(votes, runs, bins) + first).ravel()
  sums = np.bincount(places, real(weights).ravel(), curves * bins)
  # Without runs there are no votes, and nothing is in a bin.
  return sums.reshape(curves, bins) * int(runs > 0)


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
  counts = counts_of_votes(predictions, num_classes, labels)
  drawn = real(resamples(counts.examples, key=key, replicates=replicates))

  def accuracy(votes: np.ndarray, hits: np.ndarray) -> np.ndarray:
    right, items = (
      drawn @ _by_bin(votes[:, None], x, counts.runs, bins)
      for x in (hits, np.ones_like(votes))
    )
    return ratio(right, items)

  curves = [accuracy(*curve) for curve in zip(*_items(counts, of), strict=True)]
  return from_replicates(
    np.stack(curves, 1) if of == "classes" else curves[0], level=level
  )


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
  runs, bins = at_least("runs", runs, 1), at_least("bins", bins, 1)
  replicates = at_least("replicates", replicates, 1)
  rng = np.random.default_rng(np.asarray(jax.random.key_data(read_key(key))))
  total = fractions.sum(1)
  if (total > 1 + 1e-4).any():  # fractions in float32 sum to 1 only so far
    i = total.argmax()
    raise Mistake(
      f"fractions of example {i} sum to {total[i]:.6g}: give fractions that sum to at most 1"
    )
  # What a row lacks to sum to 1 is an extra class: labels that nobody votes for, and
  # runs that do not vote.
  law = np.append(fractions, np.maximum(1 - total[:, None], 0), axis=1)
  law /= law.sum(1, keepdims=True)
  simulated = np.empty((replicates, 2))
  for both in simulated:
    labels = rng.multinomial(1, law).argmax(1)
    counts = VoteCounts(rng.multinomial(runs, law)[:, :-1], runs, labels)
    both[:] = cace(counts, bins=bins), ece(counts, bins=bins)
  mean, sd = simulated.mean(0), from_replicates(simulated).se
  return FiniteEnsemble(*(np.asarray(x[i]) for i in range(2) for x in (mean, sd)))


def gde_gap(
  predictions: Given["runs examples"] | VoteCounts,
  labels: Given["examples"] | None = None,
  num_classes: int | None = None,
  self_pairs: bool = False,
) -> Float[Array, ""]:
  """Return the gap of the generalization-disagreement equality: |mean test error -
  expected disagreement|.

  Args:
    predictions: (runs, examples), class indices; -1 is an error, and one class more in
      the disagreement.
    labels: (examples,), class indices.
    num_classes: K.
    self_pairs: as in `expected_disagreement`; False is the gap that the paper reports,
      True the one that theorem 4.2 bounds by the exact-level CACE of the same runs.

  Returns:
    0-d, from 0 to 1; NaN for a single run (without self_pairs) or without examples.

  Source: jiang2022, section 3 and tables 1 to 3.

  >>> print(gde_gap([[0, 1], [0, 0], [1, 0]], labels=[0, 0], num_classes=2).round(6))
  0.333333
  """
  counts = counts_of_votes(predictions, num_classes, labels)
  error = ratio(counts.wrong.sum(), counts.runs * counts.examples)
  return np.asarray(abs(error - expected_disagreement(counts, self_pairs=self_pairs)))
