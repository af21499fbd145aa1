"""The criteria of Bouthillier 2021 for whether A is better than B, with its misprints
corrected, how often they find it, and the sample sizes that it gives.

A higher performance is better: an accuracy, not a risk.
"""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int
from scipy.special import bdtr, ndtri

from vmapseeds.errors import UserError
from vmapseeds.stats import least_p_value, probability_of_outperforming
from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide
from vmapseeds.stats.comparison import read_performances
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.reading import read_key, read_number, read_positive, read_within
from vmapseeds.stats.resampling import blocks_of_resamples

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


def decide(
  a: Given["pairs"],
  b: Given["pairs"],
  gamma: float = 0.75,
  alpha: float = 0.05,
  paired: bool = True,
  *,
  key: jax.Array | None = None,
  replicates: int = 10_000,
) -> Decision:
  """Decide whether A is better than B: P(A > B) with its percentile-bootstrap interval,
  against ½ and γ.

      CI_min ≤ ½ : not significant;  CI_max ≤ γ : not meaningful;  else both

  If A wins all of few pairs, even a single one, the interval is [1, 1]. So nothing is
  significant, either, of so few runs that one of two equal algorithms wins all of them in
  more than α of cases: of less than 6 pairs, or 4 unpaired runs of each.

  For pairs the interval is the bootstrap's limit for infinitely many resamples,
  computed exactly: the α/2 and 1 - α/2 quantiles of the mean of k outcomes drawn from
  the observed ones, a binomial without ties. It has no Monte-Carlo noise and needs no
  key. With paired=False the runs of A and of B are resampled independently,
  `replicates` times, under `key`.

  The interval answers what other runs on the same task would give. With up to 58 pairs
  γ = 0.75 never changes the decision: see `runs_for_probability_of_outperforming`.

  Args:
    a: (pairs,) performances of A, higher is better.
    b: (pairs,) performances of B.
    gamma: γ, how often A must outperform to be meaningful, above ½ and at most 1.
    alpha: α; the interval covers 1 - α.
    paired: False for runs that are not paired.
    key: a JAX random key, for paired=False only; by default a fixed one.
    replicates: how many bootstrap resamples, for paired=False only.

  Returns:
    `probability`, `low`, `high`, 0-d; `significant` and `meaningful`, 0-d bool; and
    `decision`, a str. Without pairs the numbers are NaN and nothing is significant.

  Source: bouthillier2021, appendices C.5 and C.6 (the rule in section 4.1 is
    misprinted); the fewest runs are ours, `least_p_value`.

  >>> result = decide(np.arange(20) + 0.3, np.r_[np.arange(17), 99, 99, 99])
  >>> print(result.probability, result.low, result.high, result.decision)
  0.85 0.7 1.0 significant and meaningful
  """
  check_rule(gamma, alpha)
  a, b = read_performances(a, b, paired)
  if paired:
    low, high = _exact_interval(a, b, alpha)
  else:
    low, high = _resampled_interval(a, b, alpha, key, replicates)
  # So few outcomes that one of two equal algorithms may well win all of them decide
  # nothing.
  least = least_p_value(len(a), len(b), paired)
  significant = (low > 0.5) & (least <= alpha)
  meaningful = significant & (high > gamma)
  return Decision(
    probability=probability_of_outperforming(a, b, paired).value,
    low=low,
    high=high,
    significant=np.asarray(significant),
    meaningful=np.asarray(meaningful),
  )


def check_rule(gamma: float, alpha: float) -> None:
  read_number("gamma", gamma, "(0.5, 1]")
  read_number("alpha", alpha, "(0, 1)")


def _exact_interval(
  a: Array,
  b: Array,
  alpha: float,
) -> tuple[Array, Array]:
  """Return the quantiles of A's mean credit in as many draws from the outcomes as there
  are pairs; `pmf` counts half credits.
  """
  pairs = len(a)
  p_win = safe_divide((a > b).sum(), pairs)
  p_tie = safe_divide((a == b).sum(), pairs)
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
  alpha: float,
  key: jax.Array | None,
  replicates: int,
) -> tuple[Array, Array]:
  """Return the quantiles of U/(n m) over resamples of A's runs and of B's."""
  # A fixed key by default, so that the same runs give the same decision.
  if key is None:
    key = jax.random.key(0)
  key_a, key_b = jax.random.split(read_key(key))
  blocks = blocks_of_resamples((len(a), key_a), (len(b), key_b), replicates=replicates)
  if not len(a) * len(b):
    return as_float64(np.nan), as_float64(np.nan)
  order = np.argsort(b)
  # Runs of B between the first and the last place of a run of A are tied with it.
  first = np.searchsorted(b[order], a, "left")
  last = np.searchsorted(b[order], a, "right")
  half_wins = []
  for times_a, times_b in blocks:
    # Drawn runs of B before each place in their order.
    up_to = np.cumsum(times_b[:, order], axis=1)
    lower = np.pad(up_to, ((0, 0), (1, 0)))
    half_wins.append((times_a * (lower[:, first] + lower[:, last])).sum(1))
  means = np.concatenate(half_wins) / (2 * len(a) * len(b))
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
    return bdtr(most, pairs, shares) + 1e-12 < q

  significant = quantile_is_above(0.5, alpha / 2)
  meaningful = quantile_is_above(gamma, 1 - alpha / 2)
  enough = significant & meaningful & (least_p_value(pairs, pairs) <= alpha)
  # So few pairs decide nothing, even if all are won.
  if not enough.any():
    return pairs + 1
  return int(np.argmax(enough))


def runs_for_probability_of_outperforming(
  gamma: Given["..."] = 0.75,
  paired: bool = True,
  power: Given["..."] = 0.95,
  alpha: Given["..."] = 0.05,
) -> Int[Array, "..."]:
  """Return how many pairs, or runs of each, it takes to detect P(A > B) > γ.

      pairs: N ≥ (z_{1-α} + z_power)² / (4 (γ - ½)²);    unpaired: N ≥ (z_{1-α} + z_power)² / (6 (γ - ½)²)

  On pairs, the probability of outperforming is a sign statistic. Unpaired, this is
  Noether's sample size of a Mann-Whitney test with N runs in each group, which takes 2
  N trainings; appendix C.3 uses it for pairs too, for which it is too few.

  Args:
    gamma: γ, above ½ and at most 1, a number or an array.
    paired: False for runs that are not paired.
    power: how often it is detected, a number or an array.
    alpha: one-sided rate of false positives, a number or an array.

  Returns:
    The arguments' broadcast shape, whole numbers.

  Source: Noether 1987; bouthillier2021, appendix C.3.

  >>> print(runs_for_probability_of_outperforming())
  44
  >>> print(runs_for_probability_of_outperforming(paired=False))
  29
  """
  gamma = read_within("gamma", gamma, "(0.5, 1]")
  power = read_within("power", power, "(0, 1)")
  alpha = read_within("alpha", alpha, "(0, 1)")
  if not (alpha < power).all():
    raise UserError(
      f"alpha is {alpha} and power {power}: give a power above the rate of false "
      "positives"
    )
  z = ndtri(1 - alpha) + ndtri(power)
  factor = 4 if paired else 6
  size = np.ceil(z**2 / (factor * (gamma - 0.5) ** 2))
  return np.asarray(size).astype(int)


def power_for_probability_of_outperforming(
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

  >>> power_for_probability_of_outperforming([29, 51], 0.75).round(3)
  array([0.834, 0.965])
  """
  check_rule(gamma, alpha)
  numbers = read_within("pairs", pairs, "[1, inf)")
  pairs = numbers.astype(int)
  if not (pairs == numbers).all():
    raise UserError(f"pairs is {numbers}: give whole numbers of at least 1")
  probability = read_within("probability", probability, "[0, 1]", nan=True)
  fewest_of = partial(fewest_wins, gamma=gamma, alpha=alpha)
  fewest = np.vectorize(fewest_of, otypes=[int])(pairs)
  return as_float64(scipy.stats.binom.sf(fewest - 1, pairs, probability))


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
