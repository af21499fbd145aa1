"""Whether the runs of two algorithms show one to be better, and how often such a
decision is right.

Bouthillier et al. 2021, with its misprints corrected. A higher performance is better:
an accuracy, not a risk.
"""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from vmapseeds.errors import UserError, check_one_of
from vmapseeds.stats import resampling
from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.intervals import log_ratio_reach, variance_ends
from vmapseeds.stats.reading import (
  pair_by_index,
  read_key,
  read_level,
  read_number,
  read_positive,
  read_reals,
)
from vmapseeds.stats.uncertainty import Estimate, Uncertainty

# Section 4.2: the average published improvement, in standard deviations of a run, from
# the paper's regression.
PUBLISHED = 1.9952


class Decision(NamedTuple):
  """P(A > B), its percentile-bootstrap interval, and what they decide."""

  probability: Float[Array, ""]
  low: Float[Array, ""]
  high: Float[Array, ""]
  significant: Bool[Array, ""]
  meaningful: Bool[Array, ""]

  @property
  def decision(self) -> str:
    """The three scenarios of appendix C.6 in words."""
    if not self.significant:
      return "not significant"
    if not self.meaningful:
      return "significant, not meaningful"
    return "significant and meaningful"


class AverageComparison(NamedTuple):
  """mean A - mean B against a threshold δ, and against the differences that noise alone
  gives.
  """

  difference: Float[Array, ""]
  threshold: Float[Array, ""]
  better: Bool[Array, ""]
  least_significant: Float[Array, ""]
  significant: Bool[Array, ""]


def probability_of_outperforming(
  a: Given["runs"],
  b: Given["runs"],
  ties: str = "half",
  paired: bool = True,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the probability that a run of A outperforms one of B: P(A > B) = (1/k) Σ_i [
  1{a_i > b_i} + ½ 1{a_i = b_i} ].

  With half credit for ties this is the Mann-Whitney functional, and P(A > B) + P(B > A)
  = 1. `"strict"` gives ties none, as equation 9 is printed, and so favours B; `"drop"`
  leaves tied pairs out.

  The interval is Clopper and Pearson's, in which a tie is half a win:

      low = B(α/2; w, k - w + 1),    high = B(1 - α/2; w + 1, k - w),    B the quantile of a Beta law

  There are w = P(A > B) k wins in k pairs. Without ties it is exact; ties only make it
  hold more often. Of unpaired runs k is the smaller number of runs: no smaller interval
  holds for every law, since all runs of A may beat or lose to all of B together.

  Args:
    a: (runs,) performances of A, higher is better; give risks with their sign changed.
    b: (runs,) performances of B, run i under the same splits and seeds as a's run i.
      Two series of pandas are paired by their index.
    ties: "half", "strict" or "drop".
    paired: False compares every run of A with every run of B, U/(n m), for runs that
      are not paired; A and B may then have different numbers of runs.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, from 0 to 1; NaN without runs, where the interval is from 0 to 1, or
    if all pairs are dropped. It has no standard error (NaN), and an interval only where
    a tie is half a win.

  Source: bouthillier2021, equation 9 (written in risks) and appendix C.4; Clopper and
    Pearson 1934.

  >>> probability_of_outperforming([0.9, 0.8, 0.7, 0.6], [0.8, 0.8, 0.6, 0.7])
  0.62 [0.12, 0.97]
  >>> probability_of_outperforming(np.arange(40) + 1, np.arange(40)).low.round(3)
  np.float64(0.912)
  """
  a, b = read_performances(a, b, paired)
  read_level(level)
  value = outperforming_share(a, b, ties, paired)
  if ties != "half":
    return Estimate(value, level=level)

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
  ties: str,
  paired: bool,
) -> Float[Array, ""]:
  """Return the value of `probability_of_outperforming`."""
  won, tied, decided = _outcomes(a, b, ties, paired)
  return safe_divide(won + 0.5 * tied, decided)


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


def _outcomes(
  a: Array,
  b: Array,
  ties: str,
  paired: bool,
) -> Int[np.ndarray, "3"]:
  """Return how many comparisons A wins, how many give it half credit, and how many
  count.
  """
  if paired:
    won = (a > b).sum()
    tied = (a == b).sum()
    return _credit(won, tied, len(a), ties)
  # One resample that has each run once.
  once_a = np.ones((1, len(a)), int)
  once_b = np.ones((1, len(b)), int)
  won, tied, compared = _compare_all(a, b, once_a, once_b)
  return _credit(won, tied, compared, ties)[:, 0]


def _compare_all(
  a: Array,
  b: Array,
  times_a: Array,
  times_b: Array,
) -> tuple[Array, Array, Array]:
  """Return how many comparisons of all runs of A with all of B are won, tied and made,
  for resamples in which each run is drawn so many times.
  """
  order = np.argsort(b)
  # Runs of B between the first and the last place of a run of A are tied with it.
  first = np.searchsorted(b[order], a, "left")
  last = np.searchsorted(b[order], a, "right")
  # Runs of B before each place in their order.
  up_to = np.cumsum(times_b[:, order], axis=1)
  lower = np.pad(up_to, ((0, 0), (1, 0)))
  won = (times_a * lower[:, first]).sum(1)
  won_or_tied = (times_a * lower[:, last]).sum(1)
  compared = times_a.sum(1) * times_b.sum(1)
  return won, won_or_tied - won, compared


def _credit(
  won: Any,
  tied: Any,
  compared: Any,
  ties: str,
) -> Int[np.ndarray, "3 ..."]:
  """Return how many comparisons are won, give half credit and count."""
  check_one_of("ties", ties, ("half", "strict", "drop"))
  if ties == "half":
    return np.stack([won, tied, compared])
  if ties == "drop":
    compared = compared - tied
  return np.stack([won, np.zeros_like(tied), compared])


def decide(
  a: Given["pairs"],
  b: Given["pairs"],
  gamma: float = 0.75,
  alpha: float = 0.05,
  ties: str = "half",
  paired: bool = True,
  *,
  key: jax.Array | None = None,
  replicates: int = 10_000,
) -> Decision:
  """Decide whether A is better than B: P(A > B) with its percentile-bootstrap interval,
  against ½ and γ.

      CI_min ≤ ½ : not significant;  CI_max ≤ γ : not meaningful;  else both

  For pairs the interval is the bootstrap's limit for infinitely many resamples,
  computed exactly: the α/2 and 1 - α/2 quantiles of the mean of k outcomes drawn from
  the observed ones, a binomial without ties. It has no Monte-Carlo noise and needs no
  key. With ties="drop" tied pairs are left out before resampling. With paired=False the
  runs of A and of B are resampled independently, `replicates` times, under `key`.

  The interval answers what other runs on the same task would give. With up to 58 pairs
  γ = 0.75 never changes the decision, and if A wins every pair, even a single one, the
  interval is [1, 1]: see
  `runs_for_probability_of_outperforming`.

  Args:
    a: (pairs,) performances of A, higher is better.
    b: (pairs,) performances of B.
    gamma: γ, how often A must outperform to be meaningful, above ½ and at most 1.
    alpha: α; the interval covers 1 - α.
    ties: "half", "strict" or "drop", as in `probability_of_outperforming`.
    paired: False for runs that are not paired.
    key: a JAX random key, for paired=False only; by default a fixed one.
    replicates: how many bootstrap resamples, for paired=False only.

  Returns:
    `probability`, `low`, `high`, 0-d; `significant` and `meaningful`, 0-d bool; and
    `decision`, a str. Without (decided) pairs the numbers are NaN and nothing is
    significant.

  Source: bouthillier2021, appendices C.5 and C.6 (the rule in section 4.1 is
    misprinted).

  >>> result = decide(np.arange(20) + 0.3, np.r_[np.arange(17), 99, 99, 99])
  >>> print(result.probability, result.low, result.high, result.decision)
  0.85 0.7 1.0 significant and meaningful
  """
  check_rule(gamma, alpha)
  a, b = read_performances(a, b, paired)
  won, tied, decided = _outcomes(a, b, ties, paired)
  if paired:
    low, high = _exact_interval(won, tied, decided, alpha)
  else:
    low, high = _resampled_interval(a, b, ties, alpha, key, replicates)
  significant = low > 0.5
  meaningful = significant & (high > gamma)
  return Decision(
    probability=safe_divide(won + 0.5 * tied, decided),
    low=low,
    high=high,
    significant=np.asarray(significant),
    meaningful=np.asarray(meaningful),
  )


def check_rule(gamma: float, alpha: float) -> None:
  read_number("gamma", gamma, "(0.5, 1]")
  read_number("alpha", alpha, "(0, 1)")


def _exact_interval(
  won: Array,
  tied: Array,
  decided: Array,
  alpha: float,
) -> tuple[Array, Array]:
  """Return the quantiles of A's mean credit in as many draws from the outcomes as pairs
  are decided; `pmf` counts half credits.
  """
  pairs = int(decided)
  p_win = safe_divide(won, pairs)
  p_tie = safe_divide(tied, pairs)
  # A draw is 2 for a win, 1 for a tie and 0 for a loss: sums are 0 to 2 pairs.
  draw = [1 - p_win - p_tie, p_tie, p_win]
  sums = 2 * pairs + 1
  # The law of a sum of draws has a draw's transform to the power of their number.
  transform = np.fft.rfft(draw, sums)
  pmf = np.fft.irfft(transform**pairs, sums)
  # The tolerance lets a sum that equals a level count as equal, however it was rounded.
  cdf = np.cumsum(pmf) + 1e-12
  low = safe_divide(np.argmax(cdf >= alpha / 2), 2 * pairs)
  high = safe_divide(np.argmax(cdf >= 1 - alpha / 2), 2 * pairs)
  return low, high


def _resampled_interval(
  a: Array,
  b: Array,
  ties: str,
  alpha: float,
  key: jax.Array | None,
  replicates: int,
) -> tuple[Array, Array]:
  """Return the quantiles of U/(n m) over resamples of A's runs and of B's."""
  # A fixed key by default, so that the same runs give the same decision.
  if key is None:
    key = jax.random.key(0)
  key_a, key_b = jax.random.split(read_key(key))
  blocks = resampling.blocks_of_resamples(
    (len(a), key_a), (len(b), key_b), replicates=replicates
  )
  counts = []
  for times_a, times_b in blocks:
    won, tied, compared = _compare_all(a, b, times_a, times_b)
    counts.append(_credit(won, tied, compared, ties))
  won, tied, decided = np.concatenate(counts, axis=1)
  means = safe_divide(2 * won + tied, 2 * decided)
  # A resample in which all pairs are dropped says nothing.
  means = means[~np.isnan(means)]
  if not means.size:
    return as_float64(np.nan), as_float64(np.nan)
  levels = alpha / 2, 1 - alpha / 2
  low, high = np.quantile(means, levels, method="inverted_cdf")
  return as_float64(low), as_float64(high)


def fewest_wins(
  pairs: int,
  gamma: float,
  alpha: float,
) -> int:
  """Return the fewest wins of untied pairs that `decide` calls significant and
  meaningful; pairs + 1 if none are enough.
  """
  wins = np.arange(pairs + 1)
  shares = wins / pairs

  def quantile_is_above(bound: float, q: float) -> np.ndarray:
    # The q quantile of a resample's wins is above the bound iff wins up to the bound
    # have a probability below q.
    most = np.searchsorted(shares, bound, side="right") - 1
    return scipy.special.bdtr(most, pairs, shares) + 1e-12 < q

  significant = quantile_is_above(0.5, alpha / 2)
  meaningful = quantile_is_above(gamma, 1 - alpha / 2)
  enough = significant & meaningful
  # So few pairs decide nothing, even if all are won.
  if not enough.any():
    return pairs + 1
  return int(np.argmax(enough))


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

  Source: Student 1908; Welch 1947. bouthillier2021 has the z test of section 3.1: see
    `average_comparison`.

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


def average_comparison(
  a: Given["runs"],
  b: Given["runs"],
  sigma: Given[""] | None = None,
  threshold: float = PUBLISHED,
  alpha: float = 0.05,
) -> AverageComparison:
  """Return whether A is better on average by a threshold, mean A - mean B > δ = 1.9952
  σ, and by the z test of section 3.1.

      z test: mean A - mean B > z_{1-α} √(s_A²/n + s_B²/m)

  The threshold does not depend on the number of runs: at P(A > B) = 0.75 even many runs
  practically never pass it, because it corresponds to P(A > B) = Φ(1.9952/√2) = 0.921.

  Args:
    a: (runs,) performances of A.
    b: (runs,) performances of B, which may have another number of runs; pairs are not
      used.
    sigma: σ, the standard deviation of one run; by default √((s_A² + s_B²)/2).
    threshold: δ/σ; by default the average published improvement.
    alpha: one-sided rate of false positives of the z test.

  Returns:
    `difference`, `threshold` = δ, `better`, `least_significant` (the z test's
    threshold), `significant`, 0-d each. Without two runs of each there is no z test,
    and without `sigma` no δ: NaN, and not better.

  Source: bouthillier2021, sections 3.1 and 4.

  >>> result = average_comparison([0.9, 0.8, 0.7], [0.8, 0.8, 0.5])
  >>> print(result.difference.round(3), result.threshold.round(3), result.better, result.significant)
  0.1 0.282 False False
  """
  a, b = read_performances(a, b, paired=False)
  difference = safe_divide(a.sum(), len(a)) - safe_divide(b.sum(), len(b))
  variance_a = sample_variance(a)
  variance_b = sample_variance(b)
  if sigma is None:
    sigma = np.sqrt((variance_a + variance_b) / 2)
  else:
    sigma = read_positive("sigma", sigma)
  delta = threshold * sigma

  quantile = -ndtri(read_number("alpha", alpha, "(0, 1)"))
  # Of a mean, the variance is that of a run over their number.
  of_mean_a = safe_divide(variance_a, len(a))
  of_mean_b = safe_divide(variance_b, len(b))
  least = quantile * np.sqrt(of_mean_a + of_mean_b)
  return AverageComparison(
    difference=np.asarray(difference),
    threshold=np.asarray(delta),
    better=np.asarray(difference > delta),
    least_significant=np.asarray(least),
    significant=np.asarray(difference > least),
  )
