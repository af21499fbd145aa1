"""Calibration of the ensemble of votes, the generalization-disagreement equality, correlations (Jiang 2022).

h~_k(x) is the fraction of the R runs that vote for class k on example x; the ensemble's confidence.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from vmapseeds.errors import Mistake, at_least
from vmapseeds.stats._arrays import (
  Array,
  Given,
  class_counts,
  correlation,
  namespace,
  ratio,
  read_reals,
  read_votes,
  real,
  within,
)
from vmapseeds.stats.disagreement import disagreement_of_counts, top_class


def cace(
  predictions: Given["runs examples"], labels: Given["examples"], num_classes: int, bins: int = 10
) -> Float[Array, ""]:
  """Class-aggregated calibration error of the ensemble of votes:

      CACE = Σ_i (|B_i|/n) |acc(B_i) - conf(B_i)|

  The items are all n K pairs of an example and a class k, with confidence h~_k(x) and right where y = k. B_i
  are those of them with a confidence in [(i - 1)/bins, i/bins), the last bin closed; the weights |B_i|/n sum
  to K. Bins are found from whole votes, so that 3 votes of 10 are in the bin that starts at 0.3. Empty bins
  add nothing.

  It falls with the number of runs even for a perfectly calibrated law of runs (to .36 at 2 runs and .03 at 30
  in a typical case), so quote R beside it. `bins = runs + 1` gives each number of votes its own bin: the CACE
  that bounds the gap in theorem 4.2, as `gde_gap(self_pairs=True)` does it; binning can only lower it.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    labels: (examples,), class indices.
    num_classes: K.
    bins: how many bins of equal width.

  Returns:
    0-d, from 0 (perfect) to num_classes; NaN without runs or examples.

  Raises:
    Mistake: shapes that do not fit, predictions or labels out of range, bins below 1.

  Source: jiang2022, equations 56 to 58 (which put a confidence of 1 in no bin).

  >>> print(cace([[0, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 1]], labels=[0, 0, 1], num_classes=2).round(6))
  0.666667
  """
  num_classes, bins = at_least("num_classes", num_classes, 1), at_least("bins", bins, 1)
  predictions, labels = read_votes(predictions, labels, num_classes)
  return cace_of_votes(class_counts(predictions, num_classes)[:, :-1], labels, len(predictions), bins)


def cace_of_votes(votes: Array, labels: Array, runs: int, bins: int) -> Array:
  """`cace` from the votes (examples, classes)."""
  xp = namespace(votes, labels)
  hits = xp.asarray(labels)[:, None] == xp.arange(votes.shape[1])[None, :]
  return _calibration_error(votes.reshape(-1), hits.reshape(-1), runs, len(votes), bins)


def ece(
  predictions: Given["runs examples"], labels: Given["examples"], num_classes: int, bins: int = 10
) -> Float[Array, ""]:
  """Expected calibration error of the ensemble of votes:

      ECE = Σ_i (|B_i|/n) |acc(B_i) - conf(B_i)|

  The items are the n examples, with the confidence h~_ŷ(x) of their plurality class ŷ (of tied classes the
  lowest) and right where y = ŷ. Bins as in `cace`. An example on which no run has a prediction has confidence
  0 and is wrong. Like CACE it falls with the number of runs.

  Args:
    predictions: (runs, examples), class indices; -1 is no vote.
    labels: (examples,), class indices.
    num_classes: K.
    bins: how many bins of equal width.

  Returns:
    0-d, from 0 (perfect) to 1; NaN without runs or examples.

  Raises:
    Mistake: shapes that do not fit, predictions or labels out of range, bins below 1.

  Source: jiang2022, equations 59 to 62.

  >>> print(ece([[0, 1, 1], [0, 1, 0], [0, 1, 0], [0, 1, 1]], labels=[0, 0, 1], num_classes=2).round(6))
  0.5
  """
  num_classes, bins = at_least("num_classes", num_classes, 1), at_least("bins", bins, 1)
  predictions, labels = read_votes(predictions, labels, num_classes)
  return ece_of_votes(class_counts(predictions, num_classes)[:, :-1], labels, len(predictions), bins)


def ece_of_votes(votes: Array, labels: Array, runs: int, bins: int) -> Array:
  """`ece` from the votes (examples, classes)."""
  xp = namespace(votes, labels)
  hits = xp.asarray(top_class(votes)) == xp.asarray(labels)
  return _calibration_error(votes.max(1), hits, runs, len(votes), bins)


def _calibration_error(votes: Array, hits: Array, runs: int, examples: int, bins: int) -> Array:
  """Σ_i |Σ_{items of B_i} (hit - votes/R)| / n, in whole votes: |B_i| cancels from its own mean."""
  xp = namespace(votes, hits)
  if not runs or not examples:
    return real(np.nan, xp)
  votes, hits = xp.asarray(votes), xp.asarray(hits)
  bin_of = xp.minimum(bins * votes // runs, bins - 1)
  excess = real(hits) * runs - real(votes)
  if xp is np:
    totals = np.bincount(bin_of, excess, minlength=bins)
  else:
    totals = jnp.bincount(bin_of, excess, length=bins)
  return ratio(abs(totals).sum(), examples * runs)


def gde_gap(
  predictions: Given["runs examples"], labels: Given["examples"], num_classes: int, self_pairs: bool = False
) -> Float[Array, ""]:
  """Gap of the generalization-disagreement equality: |mean test error - expected disagreement|.

  Args:
    predictions: (runs, examples), class indices; -1 is an error, and one class more in the disagreement.
    labels: (examples,), class indices. num_classes: K. self_pairs: as in `expected_disagreement`; False is
    the reported gap, True the one theorem 4.2 bounds by the
      exact-level CACE of the same runs.

  Returns:
    0-d, from 0 to 1; NaN for a single run (without self_pairs) or without examples.

  Raises:
    Mistake: shapes that do not fit, predictions or labels out of range.

  Source: jiang2022, section 3 and tables 1 to 3.

  >>> print(gde_gap([[0, 1], [0, 0], [1, 0]], labels=[0, 0], num_classes=2).round(6))
  0.333333
  """
  num_classes = at_least("num_classes", num_classes, 1)
  predictions, labels = read_votes(predictions, labels, num_classes)
  return gap_of_counts(class_counts(predictions, num_classes), labels, len(predictions), self_pairs)


def gap_of_counts(counts: Array, labels: Array, runs: int, self_pairs: bool) -> Array:
  """`gde_gap` from the class counts (examples, classes), with every run in one class."""
  examples = len(counts)
  xp = namespace(counts, labels)
  right = xp.take_along_axis(xp.asarray(counts), xp.asarray(labels)[:, None], axis=1)
  error = ratio(real(runs - right).sum(), runs * examples)
  return xp.asarray(abs(error - disagreement_of_counts(counts, runs, examples, self_pairs)))


def relative_deviation(error: Given["..."], disagreement: Given["..."]) -> Float[Array, "..."]:
  """Distance from the line disagreement = error, relative to their mean: |err - dis| / (0.5 (err + dis)).

  Elementwise; the paper reports the mean over configurations.

  Args:
    error: error rates, any shape, fractions.
    disagreement: disagreements, likewise.

  Returns:
    Their common shape, from 0 to 2; NaN where both are 0.

  Raises:
    Mistake: an error or a disagreement outside 0 to 1.

  Source: jiang2022, equation 63.

  >>> print(relative_deviation(0.75, 0.25))
  1.0
  """
  error, disagreement = within("error", error, 0, 1), within("disagreement", disagreement, 0, 1)
  return ratio(abs(error - disagreement), 0.5 * (error + disagreement))


def kendall_tau(x: Given["points"], y: Given["points"]) -> Float[Array, ""]:
  """Kendall's τ_b: (C - D) / √((pairs untied in x) (pairs untied in y)), C concordant, D discordant pairs.

  Compares all pairs at once, in n² numbers.

  Args:
    x, y: (points,), numbers.

  Returns:
    0-d, from -1 to 1; NaN for fewer than two points or a constant series.

  Raises:
    Mistake: shapes that do not fit, or a number that is not finite.

  Source: jiang2022, section 3 (which leaves the variant open); Kendall 1945.

  >>> print(kendall_tau([1, 2, 3, 3], [1, 3, 2, 4]).round(6))
  0.547723
  """
  x, y = _series(x, y)
  xp = namespace(x, y)

  def order(v):
    return xp.sign(v[:, None] - v[None, :]).astype(xp.int8)

  def pairs(a, b):
    return real((a * b).sum(dtype=xp.int32 if xp is jnp else xp.int64))

  in_x, in_y = order(x), order(y)
  return ratio(pairs(in_x, in_y), xp.sqrt(pairs(in_x, in_x)) * xp.sqrt(pairs(in_y, in_y)))


def r_squared(x: Given["points"], y: Given["points"]) -> Float[Array, ""]:
  """Squared Pearson correlation R² of two series: how well the best line fits, not the line y = x.

  Args:
    x, y: (points,), numbers.

  Returns:
    0-d, from 0 to 1; NaN for fewer than two points or a constant series.

  Raises:
    Mistake: shapes that do not fit, or a number that is not finite.

  Source: jiang2022, section 3; jordan2023, figures 2, 6 and 12.

  >>> print(r_squared([1, 2, 3], [2, 4, 5]).round(6))
  0.964286
  """
  return namespace(x, y).asarray(correlation(*_series(x, y)) ** 2)


def _series(x: object, y: object) -> tuple[Array, Array]:
  x, y = read_reals("x", x, "points"), read_reals("y", y, "points")
  if x.shape != y.shape:
    raise Mistake(f"x has shape {x.shape} and y {y.shape}: give two series of one length, pair by pair")
  return x, y
