"""How the runs of two algorithms differ: P(A > B), means and variances.

A higher performance is better: an accuracy, not a risk.
"""

import math
import warnings

import numpy as np
import scipy
from jaxtyping import Float

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.intervals import log_ratio_reach, variance_ends
from vmapseeds.stats.reading import pair_by_index, read_level, read_reals
from vmapseeds.stats.uncertainty import Estimate, Uncertainty


def probability_of_outperforming(
  a: Given["runs"],
  b: Given["runs"],
  paired: bool = True,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the probability that a run of A outperforms one of B: P(A > B) = (1/k) Σ_i [
  1{a_i > b_i} + ½ 1{a_i = b_i} ].

  With half credit for ties this is the Mann-Whitney functional, and P(A > B) + P(B > A)
  = 1. Equation 9 as printed gives ties none, and so favours B.

  The interval is Clopper and Pearson's, in which a tie is half a win:

      low = B(α/2; w, k - w + 1),    high = B(1 - α/2; w + 1, k - w),    B the quantile of a Beta law

  There are w = P(A > B) k wins in k pairs. Without ties it is exact; ties only make it
  hold more often. Of unpaired runs k is the smaller number of runs: no smaller interval
  holds for every law, since all runs of A may beat or lose to all of B together.

  Args:
    a: (runs,) performances of A, higher is better; give risks with their sign changed.
    b: (runs,) performances of B, run i under the same splits and seeds as a's run i.
      Two series of pandas are paired by their index.
    paired: False compares every run of A with every run of B, U/(n m), for runs that
      are not paired; A and B may then have different numbers of runs.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, from 0 to 1; NaN without runs, where the interval is from 0 to 1. It
    has no standard error (NaN).

  Source: bouthillier2021, equation 9 (written in risks) and appendix C.4; Clopper and
    Pearson 1934.

  >>> probability_of_outperforming([0.9, 0.8, 0.7, 0.6], [0.8, 0.8, 0.6, 0.7])
  0.62 [0.12, 0.97]
  >>> probability_of_outperforming(np.arange(40) + 1, np.arange(40)).low.round(3)
  np.float64(0.912)
  """
  a, b = read_performances(a, b, paired)
  read_level(level)
  value = outperforming_share(a, b, paired)

  def uncertainty() -> Uncertainty:
    outside, inside = read_level(level)
    k = min(len(a), len(b))
    # Without pairs, the value is NaN.
    wins = 0.0
    if k:
      wins = value * k
    # A Beta law has no parameter of 0: the interval then ends at 0 or 1.
    low, high = 0.0, 1.0
    if wins > 0:
      low = scipy.special.betaincinv(wins, k - wins + 1, outside)
    if wins < k:
      high = scipy.special.betaincinv(wins + 1, k - wins, inside)
    return np.nan, low, high

  return Estimate.deferred(value, uncertainty, level)


def outperforming_share(
  a: Array,
  b: Array,
  paired: bool,
) -> Float[Array, ""]:
  """Return the value of `probability_of_outperforming`."""
  if paired:
    won = (a > b).sum()
    tied = (a == b).sum()
    return safe_divide(won + 0.5 * tied, len(a))
  # A run of A beats the runs of B that come before its place in their order.
  ordered = np.sort(b)
  won = np.searchsorted(ordered, a, "left").sum()
  won_or_tied = np.searchsorted(ordered, a, "right").sum()
  return safe_divide((won + won_or_tied) / 2, len(a) * len(b))


def read_performances(
  a: object,
  b: object,
  paired: bool,
) -> tuple[Array, Array]:
  if paired:
    a, b = pair_by_index(a=a, b=b)
  a = read_reals("a", a, "runs")
  b = read_reals("b", b, "runs")
  if paired and a.shape != b.shape:
    raise UserError(
      f"a has shape {a.shape} and b {b.shape}: give as many, or paired=False for runs "
      "that make no pairs"
    )
  return a, b


def least_p_value(
  runs_a: int,
  runs_b: int,
  paired: bool = True,
) -> float:
  """Return the smallest p-value that `compare_means` can give for so many runs: 2 over
  the number of rearrangements.

  It is how often chance alone puts all runs, or pairs, of one side ahead.

  Args:
    runs_a: how many runs A has.
    runs_b: how many runs B has; as many where `paired`.
    paired: False for runs that are not paired.

  Source: Fisher 1935.

  >>> least_p_value(5, 5), round(least_p_value(3, 3, paired=False), 3)
  (0.0625, 0.1)
  """
  n = check_at_least("runs_a", runs_a, 0)
  m = check_at_least("runs_b", runs_b, 0)
  few = min(n, m)
  if paired:
    return min(1.0, 2.0 ** (1 - few))
  if few < 2:
    return 1.0
  # The logarithm, as the number of rearrangements may be beyond all floats.
  runs = n + m
  log_share = scipy.special.betaln(n + 1, m + 1) + math.log(runs + 1)
  return min(1.0, 2 * math.exp(log_share))


def mean_difference(
  a: Given["runs"],
  b: Given["runs"],
  paired: bool = True,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return mean A - mean B with Student's interval of the differences of pairs, or
  Welch's interval for unpaired runs.

      paired: d ± t_{k-1} s_d/√k;    unpaired: d ± t_ν √(s_A²/n + s_B²/m)

  It answers what infinitely many runs on the same test examples would give.

  Args:
    a: (runs,) performances of A.
    b: (runs,) performances of B, run i under the same seeds as a's where `paired`.
    paired: False for runs that are not paired.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`; neither a standard error nor an interval (NaN) for fewer than two
    pairs or, unpaired, two runs of A or of B.

  Source: Student 1908; Welch 1947.

  >>> mean_difference([0.9, 0.8, 0.7], [0.8, 0.8, 0.5])
  0.100 ± 0.058 [-0.148, 0.348]
  """
  read_level(level)
  a, b = read_performances(a, b, paired)
  difference, low, high, _ = student(a, b, paired, level)
  if paired:
    variance = safe_divide(sample_variance(a - b), len(a))
  else:
    of_mean_a = safe_divide(sample_variance(a), len(a))
    of_mean_b = safe_divide(sample_variance(b), len(b))
    variance = of_mean_a + of_mean_b
  return Estimate(difference, np.sqrt(variance), low, high, level)


def student(
  a: np.ndarray,
  b: np.ndarray,
  paired: bool,
  level: float,
) -> list[Float[Array, ""]]:
  """Return the difference of means, the ends of Student's or Welch's interval, and the
  two-sided p-value.
  """
  difference = safe_divide(a.sum(), len(a)) - safe_divide(b.sum(), len(b))
  with warnings.catch_warnings():
    # SciPy warns of runs that are too few, or all equal.
    warnings.simplefilter("ignore", RuntimeWarning)
    if paired:
      test = scipy.stats.ttest_rel(a, b)
    else:
      test = scipy.stats.ttest_ind(a, b, equal_var=False)
    ends = test.confidence_interval(level)
  p = test.pvalue
  if np.isnan(p):
    # Of runs that do not vary, no quotient is defined.
    p = float(difference == 0)
  return [
    as_float64(difference),
    as_float64(ends.low),
    as_float64(ends.high),
    as_float64(p),
  ]


def variance_ratio(
  a: Given["runs"],
  b: Given["runs"],
  paired: bool = True,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return Var(A) / Var(B) with its interval, whatever the law of the performances.

  - paired: log(s_A²/s_B²) ± t_ν SE, by the jackknife over pairs, as in
    `variance_over_runs`
  - unpaired: log(s_A²/s_B²) - √(a_low² + b_high²) to log(s_A²/s_B²) + √(a_high² +
    b_low²)

  Runs with the same seeds are correlated, which makes the paired interval narrower. For
  unpaired runs, a_low and a_high are how far the interval of A's variance reaches down
  and up from s_A² on the log scale, b_low and b_high likewise for B. It answers what
  infinitely many runs on the same test examples would give.

  Args:
    a: (runs,) performances of A.
    b: (runs,) performances of B, run i under the same seeds as a's where `paired`.
    paired: False for runs that are not paired.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate` without a standard error (NaN); NaN for fewer than two runs or if the
    runs of B are equal. There is no interval for fewer than three runs of either, or if
    those of A are equal.

  Source: ours; Miller 1968 for the jackknife, Zou and Donner 2008 for the interval from
    two. Not in bouthillier2021.

  >>> variance_ratio([1.0, 2.0, 3.0, 4.0, 6.0], [1.0, 3.0, 5.0, 6.0, 8.0])
  0.51 [0.15, 1.72]
  """
  read_level(level)
  a, b = read_performances(a, b, paired)
  variance_a = sample_variance(a)
  variance_b = sample_variance(b)
  ratio = safe_divide(variance_a, variance_b)
  # A variance of 0 has no logarithm.
  if min(len(a), len(b)) < 3 or not ratio > 0:
    return Estimate(ratio, level=level)

  if paired:
    down = log_ratio_reach(a, b, level)
    up = down
  else:
    # The ratio is low where A's variance is low, or B's is high.
    ends_a = variance_ends(a, level)
    ends_b = variance_ends(b, level)
    a_down, a_up = abs(np.log(ends_a) - np.log(variance_a))
    b_down, b_up = abs(np.log(ends_b) - np.log(variance_b))
    down = np.hypot(a_down, b_up)
    up = np.hypot(a_up, b_down)
  low = ratio * np.exp(-down)
  high = ratio * np.exp(up)
  return Estimate(ratio, low=low, high=high, level=level)
