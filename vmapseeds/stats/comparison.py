"""Whether the runs of two algorithms show one to be better, and how often such a
decision is right.

Bouthillier et al. 2021, with its misprints corrected. A higher performance is better:
an accuracy, not a risk.
"""

import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from vmapseeds.mistakes import Mistake, one_of
from vmapseeds.stats import resampling
from vmapseeds.stats._arrays import Array, Given, ratio, real
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.intervals import log_ratio_reach, variance_interval
from vmapseeds.stats.reading import (
  read_key,
  read_level,
  read_number,
  read_positive,
  read_reals,
  read_within,
)

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
    return (
      "significant and meaningful" if self.meaningful else "significant, not meaningful"
    )


class MeanDifference(NamedTuple):
  """mean A - mean B and its interval."""

  difference: Float[Array, ""]
  low: Float[Array, ""]
  high: Float[Array, ""]


class VarianceRatio(NamedTuple):
  """Var(A) / Var(B) and its interval."""

  ratio: Float[Array, ""]
  low: Float[Array, ""]
  high: Float[Array, ""]


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
  a: Given["pairs"], b: Given["pairs"], ties: str = "half", paired: bool = True
) -> Float[Array, ""]:
  """Return the probability that a run of A outperforms one of B: P(A > B) = (1/k) Σ_i [
  1{a_i > b_i} + ½ 1{a_i = b_i} ].

  With half credit for ties this is the Mann-Whitney functional, and P(A > B) + P(B > A)
  = 1. `"strict"` gives ties none, as equation 9 is printed, and so favours B; `"drop"`
  leaves tied pairs out.

  Args:
    a: (pairs,) performances of A, higher is better; give risks with their sign changed.
    b: (pairs,) performances of B, run i under the same splits and seeds as a's run i.
    ties: "half", "strict" or "drop".
    paired: False compares every run of A with every run of B, U/(n m), for runs that
      are not paired; A and B may then have different numbers of runs.

  Returns:
    0-d, from 0 to 1; NaN without pairs, or if all are dropped.

  Source: bouthillier2021, equation 9 (written in risks) and appendix C.4.

  >>> print(probability_of_outperforming([0.9, 0.8, 0.7, 0.6], [0.8, 0.8, 0.6, 0.7]))
  0.625
  """
  won, tied, decided = _outcomes(*read_performances(a, b, paired), ties, paired)
  return ratio(won + 0.5 * tied, decided)


def read_performances(a: object, b: object, paired: bool) -> tuple[Array, Array]:
  a, b = read_reals("a", a, "runs"), read_reals("b", b, "runs")
  if paired and a.shape != b.shape:
    raise Mistake(
      f"a has shape {a.shape} and b {b.shape}: give as many, or paired=False for runs "
      "that make no pairs"
    )
  return a, b


def _outcomes(a: Array, b: Array, ties: str, paired: bool) -> Int[np.ndarray, "3"]:
  """Return how many comparisons A wins, how many give it half credit, and how many
  count.
  """
  if paired:
    return _credit((a > b).sum(), (a == b).sum(), len(a), ties)
  once = (np.ones((1, len(x)), int) for x in (a, b))
  return _credit(*_compare_all(a, b, *once), ties)[:, 0]


def _compare_all(
  a: Array, b: Array, times_a: Array, times_b: Array
) -> tuple[Array, Array, Array]:
  """Return how many comparisons of all runs of A with all of B are won, tied and made,
  for resamples in which each run is drawn so many times.
  """
  order = np.argsort(b)
  first, last = (np.searchsorted(b[order], a, side) for side in ("left", "right"))
  # Runs of B before each place in their order.
  lower = np.pad(np.cumsum(times_b[:, order], axis=1), ((0, 0), (1, 0)))
  won, up_to = ((times_a * lower[:, place]).sum(1) for place in (first, last))
  return won, up_to - won, times_a.sum(1) * times_b.sum(1)


def _credit(won: Any, tied: Any, compared: Any, ties: str) -> Int[np.ndarray, "3 ..."]:
  """Return how many comparisons are won, give half credit and count."""
  one_of("ties", ties, ("half", "strict", "drop"))
  return np.stack([won, (ties == "half") * tied, compared - (ties == "drop") * tied])


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
  interval is [1, 1]: see `paired_sample_size`.

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
  probability = ratio(won + 0.5 * tied, decided)
  return Decision(
    probability,
    low,
    high,
    np.asarray(low > 0.5),
    np.asarray((low > 0.5) & (high > gamma)),
  )


def check_rule(gamma: float, alpha: float) -> None:
  read_number("gamma", gamma, "(0.5, 1]")
  read_number("alpha", alpha, "(0, 1)")


def _exact_interval(
  won: Array, tied: Array, decided: Array, alpha: float
) -> tuple[Array, Array]:
  """Return the quantiles of A's mean credit in as many draws from the outcomes as pairs
  are decided; `pmf` counts half credits.
  """
  drawn = int(decided)
  p_win, p_tie = ratio(won, drawn), ratio(tied, drawn)
  # The law of a sum of draws has a draw's transform to their number.
  pmf = np.fft.irfft(
    np.fft.rfft([1 - p_win - p_tie, p_tie, p_win], 2 * drawn + 1) ** drawn,
    2 * drawn + 1,
  )
  # The tolerance lets a sum that equals a level count as equal, however it was rounded.
  cdf = np.cumsum(pmf) + 1e-12
  low, high = (
    ratio(np.argmax(cdf >= q), 2 * drawn) for q in (alpha / 2, 1 - alpha / 2)
  )
  return low, high


def _resampled_interval(
  a: Array, b: Array, ties: str, alpha: float, key: jax.Array | None, replicates: int
) -> tuple[Array, Array]:
  """Return the quantiles of U/(n m) over resamples of A's runs and of B's."""
  keys = jax.random.split(read_key(jax.random.key(0) if key is None else key))
  blocks = resampling.blocks(
    *zip((len(a), len(b)), keys, strict=True), replicates=replicates
  )
  counted = [_credit(*_compare_all(a, b, *times), ties) for times in blocks]
  won, tied, decided = np.concatenate(counted, axis=1)
  means = ratio(2 * won + tied, 2 * decided)
  # A resample in which all pairs are dropped says nothing.
  said = means[~np.isnan(means)]
  levels = alpha / 2, 1 - alpha / 2
  low, high = (
    np.quantile(said, levels, method="inverted_cdf") if said.size else (np.nan, np.nan)
  )
  return real(low), real(high)


def noether_sample_size(
  gamma: Given["..."] = 0.75, alpha: Given["..."] = 0.05, beta: Given["..."] = 0.05
) -> Int[Array, "..."]:
  """Return how many runs of each algorithm it takes to detect P(A > B) > γ without
  pairing: N ≥ (z_{1-α} - z_β)² / (6 (γ - ½)²).

  Noether's sample size of a Mann-Whitney test with N runs in each group, which takes 2
  N trainings. For pairs see `paired_sample_size`.

  Args:
    gamma: γ, above ½ and at most 1, a number or an array.
    alpha: one-sided rate of false positives.
    beta: rate of false negatives.

  Returns:
    The arguments' broadcast shape, whole numbers.

  Source: bouthillier2021, appendix C.3; Noether 1987.

  >>> print(noether_sample_size())
  29
  """
  return _sample_size(gamma, alpha, beta, 6)


def paired_sample_size(
  gamma: Given["..."] = 0.75, alpha: Given["..."] = 0.05, beta: Given["..."] = 0.05
) -> Int[Array, "..."]:
  """Return how many pairs of runs it takes to detect P(A > B) > γ: N ≥ (z_{1-α} - z_β)²
  / (4 (γ - ½)²).

  On pairs, equation 9 is a sign statistic, and `noether_sample_size` gives too few.

  Args:
    gamma: γ, above ½ and at most 1, a number or an array.
    alpha: one-sided rate of false positives.
    beta: rate of false negatives.

  Returns:
    The arguments' broadcast shape, whole numbers.

  Source: Noether 1987, the sign test; bouthillier2021 uses the Mann-Whitney size
    instead.

  >>> print(paired_sample_size())
  44
  """
  return _sample_size(gamma, alpha, beta, 4)


def _sample_size(gamma: object, alpha: object, beta: object, factor: int) -> np.ndarray:
  gamma, alpha, beta = (
    read_within("gamma", gamma, "(0.5, 1]"),
    read_positive("alpha", alpha),
    read_positive("beta", beta),
  )
  if not (alpha + beta < 1).all():
    raise Mistake(
      f"alpha is {alpha} and beta {beta}: give rates above 0 that add up to less than 1"
    )
  z = ndtri(1 - alpha) - ndtri(beta)
  return np.asarray(np.ceil(z**2 / (factor * (gamma - 0.5) ** 2))).astype(int)


def paired_power(
  pairs: Given["..."],
  probability: Given["..."] = 0.75,
  gamma: float = 0.75,
  alpha: float = 0.05,
) -> Float[Array, "..."]:
  """Return the power of `decide` on pairs without ties: how often it finds A
  significantly and meaningfully better.

      Σ_{w ≥ w*} C(k, w) P^w (1 - P)^{k - w},    w* the fewest wins of k that are enough

  Appendix C.3 promises a power of 0.95 with 29 pairs at P(A > B) = 0.75. They have
  0.834; 0.95 takes 51 pairs.

  Args:
    pairs: k, whole numbers of at least 1.
    probability: the true P(A > B).
    gamma: γ of the decision.
    alpha: α of the decision.

  Returns:
    The arguments' broadcast shape. At a `probability` of ½ this is the rate of false
    positives.

  Source: ours, exactly from the binomial law; the rule is that of bouthillier2021,
    appendices C.5 and C.6.

  >>> paired_power([29, 51], 0.75).round(3)
  array([0.834, 0.965])
  """
  check_rule(gamma, alpha)
  given = read_within("pairs", pairs, "[1, inf)")
  if not ((pairs := given.astype(int)) == given).all():
    raise Mistake(f"pairs is {given}: give whole numbers of at least 1")
  fewest = np.vectorize(partial(fewest_wins, gamma=gamma, alpha=alpha), otypes=[int])(
    pairs
  )
  return real(
    scipy.stats.binom.sf(
      fewest - 1, pairs, read_within("probability", probability, "[0, 1]", nan=True)
    )
  )


def fewest_wins(pairs: int, gamma: float, alpha: float) -> int:
  """Return the fewest wins of untied pairs that `decide` calls significant and
  meaningful; pairs + 1 if none are enough.
  """
  wins = np.arange(pairs + 1)

  def lower_end_above(bound: float, q: float) -> np.ndarray:
    # The q quantile of a resample's wins is above the bound iff wins up to the bound
    # have a probability below q.
    most = np.searchsorted(wins / pairs, bound, side="right") - 1
    return scipy.special.bdtr(most, pairs, wins / pairs) + 1e-12 < q

  enough = lower_end_above(0.5, alpha / 2) & lower_end_above(gamma, 1 - alpha / 2)
  return int(np.argmax(enough)) if enough.any() else pairs + 1


def mean_difference(
  a: Given["runs"], b: Given["runs"], paired: bool = True, *, level: float = 0.95
) -> MeanDifference:
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
    `difference`, `low`, `high`, 0-d; no interval (NaN) for fewer than two pairs or,
    unpaired, two runs of A or of B.

  Source: Student 1908; Welch 1947. bouthillier2021 has the z test of section 3.1: see
    `average_comparison`.

  >>> result = mean_difference([0.9, 0.8, 0.7], [0.8, 0.8, 0.5])
  >>> print(result.difference.round(6), result.low.round(6), result.high.round(6))
  0.1 -0.148414 0.348414
  """
  read_level(level)
  return MeanDifference(*student(*read_performances(a, b, paired), paired, level)[:3])


def student(
  a: np.ndarray, b: np.ndarray, paired: bool, level: float
) -> list[Float[Array, ""]]:
  """Return the difference of means, the ends of Student's or Welch's interval, and the
  two-sided p-value.
  """
  difference = ratio(a.sum(), len(a)) - ratio(b.sum(), len(b))
  with warnings.catch_warnings():
    # Of runs that are too few, or all equal.
    warnings.simplefilter("ignore", RuntimeWarning)
    if paired:
      test = scipy.stats.ttest_rel(a, b)
    else:
      test = scipy.stats.ttest_ind(a, b, equal_var=False)
    ends = test.confidence_interval(level)
  # Of runs that do not vary, no quotient is defined.
  p = float(difference == 0) if np.isnan(test.pvalue) else test.pvalue
  return [*map(real, (difference, *ends, p))]


def variance_ratio(
  a: Given["runs"], b: Given["runs"], paired: bool = True, *, level: float = 0.95
) -> VarianceRatio:
  """Return Var(A) / Var(B) with its interval, whatever the law of the performances.

  - paired: log(s_A²/s_B²) ± t_ν SE, by the jackknife over pairs, as `variance_interval`
    has it
  - unpaired: log(s_A²/s_B²) - √(a_low² + b_high²) to log(s_A²/s_B²) + √(a_high² +
    b_low²)

  Runs with the same seeds are correlated, which makes the paired interval narrower. For
  unpaired runs, a_low and a_high are how far A's `variance_interval` reaches down and
  up from s_A² on the log scale, b_low and b_high likewise for B. It answers what
  infinitely many runs on the same test examples would give.

  Args:
    a: (runs,) performances of A.
    b: (runs,) performances of B, run i under the same seeds as a's where `paired`.
    paired: False for runs that are not paired.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `ratio`, `low`, `high`, 0-d; NaN for fewer than two runs or if the runs of B are
    equal. There is no interval for fewer than three runs of either, or if those of A
    are equal.

  Source: ours; Miller 1968 for the jackknife, Zou and Donner 2008 for the interval from
    two. Not in bouthillier2021.

  >>> result = variance_ratio([1.0, 2.0, 3.0, 4.0, 6.0], [1.0, 3.0, 5.0, 6.0, 8.0])
  >>> print(result.ratio.round(4), result.low.round(4), result.high.round(4))
  0.5068 0.1495 1.718
  """
  read_level(level)
  a, b = read_performances(a, b, paired)
  found = ratio(sample_variance(a), sample_variance(b))
  if min(len(a), len(b)) < 3 or not found > 0:
    return VarianceRatio(found, *(np.asarray(np.nan),) * 2)
  if paired:
    down = up = log_ratio_reach(a, b, level)
  else:
    reached = np.log([variance_interval(x, level=level) for x in (a, b)])
    (a_down, a_up), (b_down, b_up) = abs(
      reached - np.log([[sample_variance(x)] for x in (a, b)])
    )
    down, up = np.hypot(a_down, b_up), np.hypot(a_up, b_down)
  return VarianceRatio(
    found, *(np.asarray(found * np.exp(side)) for side in (-down, up))
  )


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
  difference = ratio(a.sum(), len(a)) - ratio(b.sum(), len(b))
  of_a, of_b = sample_variance(a), sample_variance(b)
  sigma = np.sqrt((of_a + of_b) / 2) if sigma is None else read_positive("sigma", sigma)
  least = -ndtri(read_number("alpha", alpha, "(0, 1)")) * np.sqrt(
    ratio(of_a, len(a)) + ratio(of_b, len(b))
  )
  delta = threshold * sigma
  return AverageComparison(
    *map(np.asarray, (difference, delta, difference > delta, least, difference > least))
  )
