"""Intervals and standard errors of statistics in closed form; where there is none, see
`vmapseeds.stats.resampling`.

Every interval and standard error answers a question, which its docstring names: what
other runs on the same test examples would have given (over runs), or the same runs on
other test examples (over examples).
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from vmapseeds.mistakes import at_least, one_of
from vmapseeds.stats._arrays import (
  Array,
  Given,
  as_float64,
  centred,
  correlation,
  safe_divide,
)
from vmapseeds.stats.counts import Counts, counts_of_errors, vote_blocks
from vmapseeds.stats.estimators import ideal_estimate
from vmapseeds.stats.reading import (
  read_errors,
  read_level,
  read_positive,
  read_predictions,
  read_reals,
  read_series,
  read_votes,
  read_within,
)
from vmapseeds.stats.variance import (
  distribution_variance,
  distribution_variance_se,
  error_rates,
  independent_errors_variance,
  test_set_variance,
)


class Interval(NamedTuple):
  """The ends of an interval."""

  low: Float[Array, "..."]
  high: Float[Array, "..."]


def mean_interval(values: Given["runs"], *, level: float = 0.95) -> Interval:
  """Return Student's interval of a mean over runs: mean ± t_{R-1} sd/√R.

  It answers what the mean over infinitely many runs is, on the same test examples.

  Args:
    values: (runs,), one number a run, such as its accuracy.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `low` and `high`, 0-d; NaN for fewer than two runs.

  Source: Student 1908.

  >>> print(mean_interval([0.1, 0.2, 0.3]).high.round(4))
  0.4484
  """
  _, upper = read_level(level)
  values = read_reals("values", values, "runs")
  mean, _, se = ideal_estimate(values)
  reach = scipy.special.stdtrit(len(values) - 1, upper) * se
  return Interval(np.asarray(mean - reach), np.asarray(mean + reach))


def variance_interval(values: Given["runs"], *, level: float = 0.95) -> Interval:
  """Return the interval of the variance between runs, whatever their law: the jackknife
  of log S².

      low = S²/(1 + u),    high = S² (1 + u + u² + u³),    u = t_ν SE(log S²)

  The jackknife takes the fourth moment into account. Its standard error is uncertain
  itself, the more so the heavier the tails: ν is Satterthwaite's, 2 R/(k - 1), where k is the kurtosis of the R values
  of log S² with one run left out. An outlying run raises S² and its error together, so
  u reaches equally far up and down on the scale of 1/S². The high end takes the first
  terms of 1/(1 - u), which is infinite at u = 1. The scale and the terms are chosen by
  simulation. The interval answers what the variance of infinitely many runs is, on the
  same test examples. Its square roots are the interval of the standard deviation.

  Args:
    values: (runs,), one number a run, such as its accuracy.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `low` and `high`, 0-d, squares; NaN for fewer than three runs or where all are
    equal.

  Source: ours; Miller 1968 for the jackknife of log S², Satterthwaite 1946.

  >>> low, high = variance_interval(np.arange(50) / 10)
  >>> print(low.round(3), high.round(3))
  1.682 2.872
  """
  _, upper = read_level(level)
  values = np.sort(read_reals("values", values, "runs"))
  runs = len(values)
  if runs < 3 or values[0] == values[-1]:
    return _unknown()
  squares = centred(values) ** 2
  variance = squares.sum() / (runs - 1)
  u = _reach(_logs_without_each(squares), upper)
  low = variance / (1 + u)
  high = variance * (1 + u + u**2 + u**3)
  return Interval(np.asarray(low), np.asarray(high))


def log_ratio_reach(
  a: np.ndarray,
  b: np.ndarray,
  level: float,
) -> float:
  """Return half the width of the interval of log(S_a²/S_b²) over pairs of runs, by the
  jackknife.
  """
  _, upper = read_level(level)
  logs_a = _logs_without_each(centred(a) ** 2)
  logs_b = _logs_without_each(centred(b) ** 2)
  # A run of both is left out together, so what they share cancels.
  return _reach(logs_a - logs_b, upper)


def _logs_without_each(squares: np.ndarray) -> np.ndarray:
  """Return log S² with each run left out in turn, up to a constant, from the squared
  deviations.
  """
  runs = len(squares)
  shares = 1 - runs / (runs - 1) * squares / squares.sum()
  # If a single run differs from all others, the variance without it is 0 up to
  # rounding.
  return np.log(np.maximum(shares, np.finfo(float).eps))


def _reach(without_each: np.ndarray, upper: float) -> float:
  """Return t_ν SE by the jackknife, from a statistic with each run left out in turn; ν
  is Satterthwaite's.
  """
  runs = len(without_each)
  squares = (without_each - without_each.mean()) ** 2
  total = squares.sum()
  if not total:
    return 0.0
  # The relative variance of the jackknife's variance, at least that of normal values.
  uncertainty = (squares**2).sum() / total**2 - 1 / runs
  of_normal = 2 / (runs - 1)
  freedom = 2 / max(uncertainty, of_normal)
  se = np.sqrt((runs - 1) / runs * total)
  return float(scipy.special.stdtrit(freedom, upper) * se)


def _unknown() -> Interval:
  return Interval(as_float64(np.nan), as_float64(np.nan))


def distribution_variance_interval(
  errors: Given["runs examples"] | Counts,
  *,
  level: float = 0.95,
) -> Interval:
  """Return the interval of `distribution_variance` over runs: n/(n - 1) times that of
  S² minus the independent-errors variance.

  S² has its `variance_interval`. The independent-errors variance is estimated far more
  precisely and is taken as known. The low end is negative if there may be no variance
  at all. The high end is at most 1/4, which no error rate's variance exceeds. It
  answers what infinitely many runs would give on the same examples. The sampling of the
  examples adds uncertainty that one test set cannot show.

  Args:
    errors: (runs, examples), bool or 0/1.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `low` and `high`, 0-d, squared fractions; NaN for fewer than three runs, a single
    example, or where the runs' errors are equal.

  Source: ours; jordan2024 gives none.

  >>> low, high = distribution_variance_interval([[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
  >>> print(low.round(4), high.round(4))
  -0.0052 0.25
  """
  counts = counts_of_errors(errors)
  if not counts.examples:
    return _unknown()
  scale = safe_divide(counts.examples, counts.examples - 1)
  independent = independent_errors_variance(counts)
  low, high = variance_interval(error_rates(counts), level=level)
  # No variance of a number from 0 to 1 is larger than 1/4.
  low = np.minimum(scale * (low - independent), 0.25)
  high = np.minimum(scale * (high - independent), 0.25)
  return Interval(np.asarray(low), np.asarray(high))


def correlation_interval(
  x: Given["runs"],
  y: Given["runs"],
  *,
  level: float = 0.95,
) -> Interval:
  """Return the interval of Pearson's correlation over runs, whatever their law:
  tanh(artanh r ± t_ν SE), by the jackknife.

  ν is Satterthwaite's, as in `variance_interval`. It answers what infinitely many runs
  would give on the same test examples.

  Args:
    x: (runs,), one number a run.
    y: (runs,), another number of each run.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `low` and `high`, 0-d; NaN for fewer than four runs, or where x or y is the same in
    all runs but one.

  Source: ours; Fisher 1921 for the scale, Hinkley 1978 for the jackknife of a
    correlation, Satterthwaite 1946.

  >>> low, high = correlation_interval([1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 9])
  >>> print(low.round(3), high.round(3))
  0.053 0.989
  """
  x, y = read_series("runs", x=x, y=y)
  _, upper = read_level(level)
  # Sorted, so that the order of the runs does not change even the last bit.
  order = np.lexsort((y, x))
  x = x[order]
  y = y[order]
  without_each = _correlations_without_each(x, y)
  r = correlation(x, y)
  if len(x) < 4 or np.isnan(without_each).any():
    return _unknown()
  if abs(r) == 1:
    return Interval(r, r)

  # Fisher's transform of 1 is infinite.
  most = 1 - np.finfo(float).eps
  transformed = np.arctanh(np.clip(without_each, -most, most))
  reach = _reach(transformed, upper)
  middle = np.arctanh(r)
  low = np.tanh(middle - reach)
  high = np.tanh(middle + reach)
  return Interval(np.asarray(low), np.asarray(high))


def _correlations_without_each(x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """Return Pearson's r with each run left out in turn; NaN where x or y is then
  constant.
  """
  runs = len(x)
  x = centred(x)
  y = centred(y)
  # Without a run the mean moves too: its product counts R/(R - 1) times.
  factor = safe_divide(runs, runs - 1)
  xx = (x * x).sum() - factor * x * x
  yy = (y * y).sum() - factor * y * y
  xy = (x * y).sum() - factor * x * y
  # The sum of squares of a constant is 0 up to rounding.
  x_is_constant = xx <= 1e-13 * (x**2).sum()
  y_is_constant = yy <= 1e-13 * (y**2).sum()
  constant = x_is_constant | y_is_constant
  norms = np.sqrt(np.where(constant, 1, xx * yy))
  correlations = np.where(constant, np.nan, xy / norms)
  return np.clip(correlations, -1, 1)


def split_correlation_se(errors: Given["runs examples"] | Counts) -> Float[Array, ""]:
  """Return the standard error over runs of `split_correlation`, by the jackknife.

  It answers what other runs on the same test examples would give.

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d; NaN for fewer than four runs, or where a half's error is the same in all runs
    but one.

  Source: ours; Hinkley 1978.

  >>> print(split_correlation_se([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]]).round(4))
  0.1339
  """
  even, odd = counts_of_errors(errors).halves
  return correlation_se(even, odd)


def correlation_se(x: np.ndarray, y: np.ndarray) -> Float[Array, ""]:
  """Return the jackknife standard error of Pearson's correlation over runs."""
  runs = len(x)
  if runs < 4:
    return as_float64(np.nan)
  # Sorted, so that the order of the runs does not change even the last bit.
  order = np.lexsort((y, x))
  without_each = _correlations_without_each(x[order], y[order])
  squares = centred(without_each) ** 2
  return np.asarray(np.sqrt((runs - 1) / runs * squares.sum()))


def split_correlation_interval(
  errors: Given["runs examples"] | Counts,
  *,
  level: float = 0.95,
) -> Interval:
  """Return the `correlation_interval` of `split_correlation`.

  Args:
    errors: (runs, examples), bool or 0/1.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `low` and `high`, 0-d; NaN for fewer than four runs, or where a half's error is the
    same in all runs but one.

  Source: ours; jordan2024 gives none.

  >>> low, high = split_correlation_interval([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]])
  >>> print(low.round(3), high.round(3))
  0.089 0.966
  """
  even, odd = counts_of_errors(errors).halves
  return correlation_interval(even, odd, level=level)


def nonnegative_interval(
  value: Any,
  se: Any,
  runs: int,
) -> Interval:
  """Return Student's 95 % interval of a quantity that cannot be negative, from its
  standard error over runs.
  """
  reach = np.nan
  if runs > 1:
    reach = float(scipy.special.stdtrit(runs - 1, 0.975)) * se
  return Interval(np.maximum(0.0, value - reach), value + reach)


def sd_interval(ends: Interval) -> Interval:
  """Return the interval of a standard deviation between runs from that of the variance,
  which is at most 1/4 for accuracies.
  """
  return Interval(*np.sqrt(np.clip(ends, 0.0, 0.25)))


def proportion_interval(
  rate: Given["..."],
  examples: int,
  *,
  level: float = 0.95,
) -> Interval:
  """Return Wilson's interval of a proportion of test examples, such as one network's
  accuracy.

  It answers what the same network, or ensemble, would have on infinitely many examples.

  Args:
    rate: the proportion seen, any shape.
    examples: n, the number of examples.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `low` and `high`, of the rate's shape; NaN without examples.

  Source: Wilson 1927; bouthillier2021, figure 2, has the binomial variance of
    accuracies.

  >>> low, high = proportion_interval(0.9, examples=100)
  >>> print(low.round(4), high.round(4))
  0.8256 0.9448
  """
  rate = read_within("rate", rate, "[0, 1]", nan=True)
  _, upper = read_level(level)
  z = scipy.special.ndtri(upper)
  # Without examples the result is NaN.
  n = at_least("examples", examples, 0) or np.nan
  shrink = 1 + z**2 / n
  middle = (rate + z**2 / (2 * n)) / shrink
  spread = np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
  reach = z / shrink * spread
  # Rounding can carry an end over 0 or 1.
  low = np.clip(middle - reach, 0, 1)
  high = np.clip(middle + reach, 0, 1)
  return Interval(np.asarray(low), np.asarray(high))


def runs_for_precision(
  errors: Given["runs examples"] | Counts,
  relative: Given["..."] = 0.1,
  statistic: str = "distribution_variance",
  *,
  level: float = 0.95,
) -> Float[Array, "..."]:
  """Return how many runs it takes until the interval of a variance has at most this
  relative half-width.

      R' = 1 + (R - 1) (z SE/(p V))²,    SE the standard error of the variance V by the R runs here, p the precision

  V is the test-set variance or the distribution-wise one. The latter has the noise of
  the former too, so it takes many more runs where most of the test-set variance comes
  from independent errors. SE is the jackknife's: it takes the fourth moment into
  account and is as uncertain as that. From few runs of a long-tailed law the answer is
  too small.

  Args:
    errors: (runs, examples), bool or 0/1.
    relative: p, half the interval's width as a fraction of the estimate, above 0.
    statistic: "distribution_variance" or "test_set_variance".
    level: the coverage of the interval, between 0 and 1.

  Returns:
    The shape of `relative`: a whole number as a float; infinite where the estimated
    variance is not above 0, NaN for fewer than three runs or, for the distribution-wise
    variance, a single example.

  Source: ours, from `distribution_variance_se`.

  >>> errors = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
  >>> print(runs_for_precision(errors, 0.1, "test_set_variance"))
  555.0
  """
  one_of("statistic", statistic, ("distribution_variance", "test_set_variance"))
  counts = counts_of_errors(errors)
  variance = distribution_variance(counts)
  se = distribution_variance_se(counts)
  if statistic == "test_set_variance":
    variance = test_set_variance(counts)
    se = safe_divide(counts.examples - 1, counts.examples) * se
  return runs_needed(variance, se, counts.runs, relative, level=level)


def runs_needed(
  variance: Any,
  se: Any,
  runs: int,
  relative: Given["..."],
  *,
  level: float = 0.95,
) -> Float[Array, "..."]:
  """Return `runs_for_precision` from a variance by so many runs and its standard
  error.
  """
  _, upper = read_level(level)
  z = scipy.special.ndtri(upper)
  relative = read_positive("relative", relative)
  # How many times the interval is too wide.
  excess = z * safe_divide(se, relative * variance)
  needed = np.ceil(1 + (runs - 1) * excess**2)
  # Of a variance that is not above 0, no number of runs gives a relative precision.
  otherwise = np.where(np.isnan(variance), np.nan, np.inf)
  return np.where(variance > 0, needed, otherwise)


# Pairs of runs: the independent-errors variance and disagreement are means over pairs,
# so a run's share is known.


def independent_errors_variance_se(errors: Given["runs examples"]) -> Float[Array, ""]:
  """Return the standard error over runs of `independent_errors_variance`, by the
  jackknife, in closed form.

  The unbiased estimate is the mean over pairs of runs of H/(2n²), H the number of
  examples that exactly one of the two has wrong. With h_r the mean over run r's pairs
  and U the mean over all pairs,

      SE² = 4 (R - 1) / (R (R - 2)²) Σ_r (h_r - U)²

  It answers what other runs on the same test examples would give.

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d, squared fractions; NaN for fewer than three runs or without examples.

  Source: ours; Arvesen 1969 for the jackknife of such means.

  >>> print(independent_errors_variance_se([[1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]]).round(4))
  0.0321
  """
  errors = read_errors(errors).astype(np.int8)
  # H/n is the disagreement of two runs whose predictions are their errors.
  disagreement_se = _jackknife(_pairs_of_each_run(errors, 2))
  return safe_divide(disagreement_se, 2 * errors.shape[1])


def expected_disagreement_se(
  predictions: Given["runs examples"],
  num_classes: int,
) -> Float[Array, ""]:
  """Return the standard error over runs of `expected_disagreement`, by the jackknife of
  its pairs, in closed form.

  It answers what other runs on the same test examples would give; see
  `independent_errors_variance_se`.

  Args:
    predictions: (runs, examples), class indices.
    num_classes: how many classes there are.

  Returns:
    0-d, a fraction; NaN for fewer than three runs or without examples.

  Source: ours; Arvesen 1969.

  >>> print(expected_disagreement_se([[0, 1, 2], [0, 1, 1], [0, 2, 2], [1, 1, 0]], num_classes=3).round(4))
  0.2152
  """
  predictions = read_predictions(predictions, num_classes)
  return _jackknife(_pairs_of_each_run(predictions, num_classes))


def gde_gap_se(
  predictions: Given["runs examples"],
  labels: Given["examples"],
  num_classes: int,
) -> Float[Array, ""]:
  """Return the standard error over runs of mean error - expected disagreement, the
  signed gap whose size is `gde_gap`.

  By the jackknife, in closed form. It answers what other runs on the same test examples
  would give.

  Args:
    predictions: (runs, examples), class indices.
    labels: (examples,), class indices.
    num_classes: how many classes there are.

  Returns:
    0-d, a fraction; NaN for fewer than three runs or without examples.

  Source: ours; Arvesen 1969.

  >>> print(gde_gap_se([[0, 1, 2], [0, 1, 1], [0, 2, 2], [1, 1, 0]], [0, 1, 2], num_classes=3).round(4))
  0.0962
  """
  predictions, labels = read_votes(predictions, labels, num_classes)
  error = safe_divide((predictions != labels).sum(1), predictions.shape[1])
  return _jackknife(_pairs_of_each_run(predictions, num_classes), error)


def _pairs_of_each_run(
  predictions: Array,
  num_classes: int,
) -> Float[np.ndarray, "runs"]:
  """Return each run's mean disagreement with the other runs."""
  predictions = np.asarray(predictions)
  runs, examples = predictions.shape
  agreeing = np.zeros(runs, np.int64)
  for some, votes in vote_blocks(predictions, num_classes):
    # Runs without a prediction agree with each other: they form one more class, the
    # last, which -1 indexes.
    no_votes = runs - votes.sum(1, keepdims=True)
    votes = np.append(votes, no_votes, axis=1)
    block = predictions[:, some].astype(np.int64)
    agreeing += votes[np.arange(len(votes)), block].sum(1)
  # A run agrees with itself too, which is no pair.
  return safe_divide(runs * examples - agreeing, examples * (runs - 1))


def _jackknife(
  of_pairs: Float[Array, "runs"],
  of_runs: Float[Array, "runs"] | None = None,
) -> Array:
  """Return the standard error of a mean over pairs of runs, from each run's mean over
  its pairs.

  With `of_runs`, that of the mean over runs minus the mean over pairs.
  """
  runs = len(of_pairs)
  if runs < 3:
    return as_float64(np.nan)
  # How far the mean over pairs moves without each run.
  moved = 2 * (of_pairs - of_pairs.mean()) / (runs - 2)
  if of_runs is not None:
    moved = (of_runs - of_runs.mean()) / (runs - 1) - moved
  variance = (runs - 1) / runs * (moved**2).sum()
  return np.asarray(np.sqrt(variance))
