"""Intervals and standard errors of statistics in closed form; where there is none, see
`vmapseeds.stats.resampling`.

Every interval and standard error answers a question, which its docstring names: what
other runs on the same test examples would have given (over runs), or the same runs on
other test examples (over examples).
"""

from typing import Any

import numpy as np
import scipy.special
from jaxtyping import Float, Real

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import (
  Array,
  Given,
  as_float64,
  centred,
  correlation,
  safe_divide,
)
from vmapseeds.stats.counting import vote_blocks
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.reading import (
  NOT_ASKED,
  read_array,
  read_level,
  read_reals,
  read_series,
  read_within,
)
from vmapseeds.stats.uncertainty import UNKNOWN, Estimate, Uncertainty

Ends = tuple[Any, Any]


def variance_over_runs(values: Given["runs"], *, level: float = 0.95) -> Estimate:
  """Return the variance between runs (ddof = 1), with an interval that holds whatever
  their law: the jackknife of log S².

      low = S²/(1 + u),    high = S² (1 + u + u² + u³),    u = t_ν SE(log S²)

  The jackknife takes the fourth moment into account. Its standard error is uncertain
  itself, the more so the heavier the tails: ν is Satterthwaite's, 2 R/(k - 1), where k
  is the kurtosis of the R values of log S² with one run left out. An outlying run
  raises S² and its error together, so u reaches equally far up and down on the scale of
  1/S². The high end takes the first terms of 1/(1 - u), which is infinite at u = 1. The
  scale and the terms are chosen by simulation. The interval answers what the variance
  of infinitely many runs is, on the same test examples. For a standard deviation, take
  the square roots of the value and of both ends.

  Args:
    values: (runs,), one number a run, such as its accuracy.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, of squares; its se is that of `test_set_variance`. A single run has
    no variance. For fewer than three runs there is neither a standard error nor an
    interval (NaN), and no interval where all are equal.

  Source: ours; Miller 1968 for the jackknife of log S², Satterthwaite 1946.

  >>> variance_over_runs(np.arange(50) / 10)
  2.12 ± 0.28 [1.68, 2.87]
  """
  read_level(level)
  values = read_reals("values", values, "runs")
  variance = sample_variance(values)

  def uncertainty() -> Uncertainty:
    return variance_se(values), *variance_ends(values, level)

  return Estimate.deferred(variance, uncertainty, level)


def variance_ends(values: Float[np.ndarray, "runs"], level: float) -> Ends:
  """Return the ends of the interval of `variance_over_runs`."""
  _, upper = read_level(level)
  values = np.sort(values)
  runs = len(values)
  if runs < 3 or values[0] == values[-1]:
    return np.nan, np.nan
  squares = centred(values) ** 2
  # If a single run differs from all others, nothing bounds the variance.
  if squares.max() > (1 - 1e-9) * squares.sum() * (runs - 1) / runs:
    return np.nan, np.nan
  variance = squares.sum() / (runs - 1)
  u = _reach(_logs_without_each(squares), upper)
  return variance / (1 + u), variance * (1 + u + u**2 + u**3)


def variance_se(values: Float[Array, "runs"]) -> Float[Array, ""]:
  """Return the standard error of S², the variance of so many numbers: the jackknife in
  closed form.

      SE(S²)² = R/((R - 1)(R - 2)²) Σ_h (d_h² - mean d²)²,    d_h the distance of h from the mean
  """
  runs = len(values)
  # Sorted, so that the order of the runs does not change even the last bit.
  squares = centred(np.sort(values)) ** 2
  fourth = runs * (centred(squares) ** 2).sum()
  # Without runs the divisor would be below 0.
  divisor = max((runs - 1) * (runs - 2) ** 2, 0)
  return np.asarray(safe_divide(fourth, divisor) ** 0.5)


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


def correlation_over_runs(
  x: Given["runs"],
  y: Given["runs"],
  *,
  level: float = 0.95,
) -> Estimate:
  """Return Pearson's correlation over runs, with an interval that holds whatever their
  law: tanh(artanh r ± t_ν SE), by the jackknife.

  ν is Satterthwaite's, as in `variance_over_runs`. It answers what infinitely many runs
  would give on the same test examples.

  Args:
    x: (runs,), one number a run.
    y: (runs,), another number of each run.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`. A single run, or an x or y that is the same in all runs, has no
    correlation (NaN). For fewer than four runs, or where x or y is the same in all runs
    but one, there is neither a standard error nor an interval.

  Source: ours; Fisher 1921 for the scale, Hinkley 1978 for the jackknife of a
    correlation, Satterthwaite 1946.

  >>> correlation_over_runs([1, 2, 3, 4, 5, 6], [1, 3, 2, 5, 4, 9])
  0.87 ± 0.11 [0.05, 0.99]
  """
  x, y = read_series("runs", x=x, y=y)
  read_level(level)
  x, y = _in_order(x, y)

  def uncertainty() -> Uncertainty:
    return correlation_uncertainty(x, y, level)

  return Estimate.deferred(correlation(x, y), uncertainty, level)


def _in_order(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Return sorted pairs, so that the order of the runs does not change even the last
  bit.
  """
  order = np.lexsort((y, x))
  return x[order], y[order]


def correlation_uncertainty(
  x: Real[np.ndarray, "runs"],
  y: Real[np.ndarray, "runs"],
  level: float,
) -> Uncertainty:
  """Return the standard error and the ends of the interval of Pearson's correlation
  over runs.
  """
  _, upper = read_level(level)
  x, y = _in_order(as_float64(x), as_float64(y))
  runs = len(x)
  without_each = _correlations_without_each(x, y)
  if runs < 4 or np.isnan(without_each).any():
    return UNKNOWN
  squares = centred(without_each) ** 2
  se = np.sqrt((runs - 1) / runs * squares.sum())
  r = correlation(x, y)
  if abs(r) == 1:
    return se, r, r

  # Fisher's transform of 1 is infinite.
  most = 1 - np.finfo(float).eps
  transformed = np.arctanh(np.clip(without_each, -most, most))
  reach = _reach(transformed, upper)
  middle = np.arctanh(r)
  return se, np.tanh(middle - reach), np.tanh(middle + reach)


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


def nonnegative_interval(
  value: Any,
  se: Any,
  runs: int,
  level: float = 0.95,
) -> Ends:
  """Return Student's interval of a quantity that cannot be negative, from its standard
  error over runs.
  """
  _, upper = read_level(level)
  reach = np.nan
  if runs > 1:
    reach = float(scipy.special.stdtrit(runs - 1, upper)) * se
  return np.maximum(0.0, value - reach), value + reach


def proportion_over_examples(
  rate: Given["..."],
  examples: int,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return a proportion of test examples, such as one network's accuracy, with Wilson's
  interval.

  It answers what the same network, or ensemble, would have on infinitely many examples.

  Args:
    rate: the proportion seen, any shape.
    examples: n, the number of examples.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate` of the rate's shape, with se = √(rate (1 - rate)/n); without examples
    there is neither a standard error nor an interval (NaN).

  Source: Wilson 1927; bouthillier2021, figure 2, has the binomial variance of
    accuracies.

  >>> proportion_over_examples(0.9, examples=100)
  0.900 ± 0.030 [0.826, 0.945]
  """
  rate = read_within("rate", rate, "[0, 1]", nan=True)
  _, upper = read_level(level)
  z = scipy.special.ndtri(upper)
  # Without examples the result is NaN.
  n = check_at_least("examples", examples, 0) or np.nan
  shrink = 1 + z**2 / n
  middle = (rate + z**2 / (2 * n)) / shrink
  variance = rate * (1 - rate) / n
  spread = np.sqrt(variance + z**2 / (4 * n**2))
  reach = z / shrink * spread
  # Rounding can carry an end over 0 or 1.
  low = np.clip(middle - reach, 0, 1)
  high = np.clip(middle + reach, 0, 1)
  return Estimate(rate, np.sqrt(variance), low, high, level)


def mean_over_groups(
  values: Given["examples"],
  groups: Given["examples"],
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the mean over examples, with an interval that draws their groups anew: of
  subjects with several examples each, other subjects.

      SE² = G/((G - 1) n²) Σ_g (Σ_{i in g} (x_i - mean))²,    mean ± t_{G-1} SE

  for G groups: the ratio estimator's, by linearisation. Examples of one group may depend
  on each other in any way.

  Args:
    values: (examples,), a number of each, such as the share of runs that are right; NaN is
      left out.
    groups: (examples,), the number or name of each example's group.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`; for fewer than two groups there is neither a standard error nor an
    interval (NaN), and NaN without examples.

  Source: Cochran 1977, sections 2.11 and 9A.5; Liang and Zeger 1986.

  >>> mean_over_groups([1, 1, 0, 1, 0, 0], groups=[0, 0, 1, 1, 2, 2])
  0.50 ± 0.29 [-0.74, 1.74]
  """
  _, upper = read_level(level)
  x = np.asarray(read_array("values", values, "examples"), np.float64)
  names = read_array("groups", groups, "examples")
  if len(names) != len(x):
    raise UserError(
      f"groups has shape {names.shape} beside {len(x)} values: give the group of each"
    )
  known = ~np.isnan(x)
  x, names = x[known], np.asarray(names)[known]
  mean = safe_divide(x.sum(), len(x))
  _, group = np.unique(names, return_inverse=True)
  count = int(group.max(initial=-1)) + 1
  if count < 2:
    return Estimate(mean, level=level)
  of_groups = np.bincount(group, x - mean)
  se = np.sqrt(count / (count - 1) * (of_groups**2).sum()) / len(x)
  reach = float(scipy.special.stdtrit(count - 1, upper)) * se
  return Estimate(mean, se, mean - reach, mean + reach, level)


# Pairs of runs: the independent-errors variance and disagreement are means over pairs,
# so a run's share is known.


def disagreement_of_each_run(
  predictions: Array,
  num_classes: int,
) -> Float[np.ndarray, "runs"]:
  """Return each run's mean disagreement with the other runs, over the examples that both
  were asked for.
  """
  predictions = np.asarray(predictions)
  runs, examples = predictions.shape
  asked = predictions != NOT_ASKED
  if not asked.all():
    return _disagreement_of_asked(predictions, asked, num_classes)
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


def _disagreement_of_asked(
  predictions: np.ndarray, asked: np.ndarray, num_classes: int
) -> Float[np.ndarray, "runs"]:
  """Return each run's mean, over the examples that it and another run were asked for, of
  the share of these others that disagree.
  """
  total = np.zeros(len(predictions))
  for some, votes in vote_blocks(predictions, num_classes):
    times = asked[:, some].sum(0)
    votes = np.append(votes, (times - votes.sum(1))[:, None], axis=1)
    alike = votes[np.arange(len(votes)), predictions[:, some].astype(np.int64)]
    share = safe_divide(times - alike, times - 1)
    total += np.where(asked[:, some] & (times > 1), share, 0).sum(1)
  compared = (asked & (asked.sum(0) > 1)).sum(1)
  return safe_divide(total, compared)


def mean_over_pairs_se(
  of_pairs: Float[Array, "runs"],
  of_runs: Float[Array, "runs"] | None = None,
) -> Float[Array, ""]:
  """Return the standard error of U, a mean over pairs of runs, from each run's mean
  over its pairs; with `of_runs`, that of the mean over runs minus U.

      SE² = 4 (R - 1) / (R (R - 2)²) Σ_r (h_r - U)²,    h_r the mean over run r's pairs

  This is the jackknife in closed form: Arvesen 1969.
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
