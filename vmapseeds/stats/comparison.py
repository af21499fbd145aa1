"""Comparing two algorithms by their runs, and the error of an estimate from few runs (Bouthillier 2021).

A performance is higher where a run is better: an accuracy, not a risk.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int

from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.stats._arrays import Array, Given, namespace, ratio, read_reals, real, tallies

_TIES = ("half", "strict", "drop")


class Decision(NamedTuple):
  """P(A > B), its percentile-bootstrap interval, and what follows."""

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
    return "significant and meaningful" if self.meaningful else "significant, not meaningful"


class MseDecomposition(NamedTuple):
  """Mean squared error of an estimator, mse = variance + bias², and what makes its variance."""

  mse: Float[Array, ""]
  bias: Float[Array, ""]
  variance: Float[Array, ""]
  total_variance: Float[Array, ""]
  correlation: Float[Array, ""]


def probability_of_outperforming(
  a: Given["pairs"], b: Given["pairs"], ties: str = "half", paired: bool = True
) -> Float[Array, ""]:
  """Probability that a run of A outperforms one of B: P(A > B) = (1/k) Σ_i [ 1{a_i > b_i} + ½ 1{a_i = b_i} ].

  With half credit for ties this is the Mann-Whitney functional, and P(A > B) + P(B > A) = 1. `"strict"` gives
  ties none, as equation 9 is printed, and leans to B; `"drop"` leaves tied pairs out.

  Args:
    a: (pairs,) performances of A, higher is better; give risks with their sign changed. b: (pairs,)
    performances of B, run i under the same splits and seeds as a's run i. ties: "half", "strict" or "drop".
    paired: False compares every run of A with every run of B, U/(n m), where runs do not belong together;
      their numbers may then differ.

  Returns:
    0-d, from 0 to 1; NaN without pairs, or if all are dropped.

  Raises:
    Mistake: shapes that do not fit, a performance that is not finite, or another `ties`.

  Source: bouthillier2021, equation 9 (written in risks) and appendix C.4.

  >>> print(probability_of_outperforming([0.9, 0.8, 0.7, 0.6], [0.8, 0.8, 0.6, 0.7]))
  0.625
  """
  win, tie, decided = _outcomes(*_performances(a, b, paired), ties, paired)
  return ratio(win.sum() + 0.5 * tie.sum(), decided.sum())


def _performances(a: object, b: object, paired: bool) -> tuple[Array, Array]:
  a, b = read_reals("a", a, "runs"), read_reals("b", b, "runs")
  if paired and a.shape != b.shape:
    raise Mistake(
      f"a has shape {a.shape} and b {b.shape}: give performances pair by pair, or paired=False for all pairs"
    )
  return a, b


def _outcomes(a: Array, b: Array, ties: str, paired: bool) -> tuple[Array, Array, Array]:
  """Which comparisons A wins, which give it half credit, and which count, as 0 and 1."""
  one_of("ties", ties, _TIES)
  if not paired:
    a, b = a[:, None], b[None, :]
  xp = namespace(a, b)
  win, tie = real(a > b), real(a == b)
  return win, tie if ties == "half" else xp.zeros_like(tie), 1 - tie if ties == "drop" else xp.ones_like(tie)


def decide(
  a: Given["pairs"],
  b: Given["pairs"],
  gamma: float = 0.75,
  alpha: float = 0.05,
  ties: str = "half",
  paired: bool = True,
  key: jax.Array | None = None,
  resamples: int = 10_000,
) -> Decision:
  """Decides whether A is better than B: P(A > B) with its percentile-bootstrap interval, against ½ and γ.

      CI_min ≤ ½ : not significant;  CI_max ≤ γ : not meaningful;  else both

  For pairs the interval is the bootstrap's own limit of infinitely many resamples, computed exactly: the α/2
  and 1 - α/2 quantiles of the mean of k outcomes drawn from those seen, a binomial where nothing ties. It has
  no Monte-Carlo noise and needs no key. With ties="drop" tied pairs are left out before resampling. With
  paired=False the runs of A and of B are resampled independently, `resamples` times, under `key`.

  The interval answers what other runs on the same task would give. Up to 58 pairs γ = 0.75 never changes the
  decision, and where A wins every pair, even a single one, the interval is [1, 1]: see `paired_sample_size`.

  Args:
    a: (pairs,) performances of A, higher is better.
    b: (pairs,) performances of B.
    gamma: γ, how often A must outperform to be meaningful, above ½ and at most 1.
    alpha: α; the interval covers 1 - α.
    ties: "half", "strict" or "drop", as in `probability_of_outperforming`.
    paired: False for runs that do not belong together.
    key: a JAX random key, for paired=False only.
    resamples: how many bootstrap resamples, for paired=False only.

  Returns:
    `probability`, `low`, `high`, 0-d; `significant` and `meaningful`, 0-d bool; and outside `jit` `decision`,
    a str. Without (decided) pairs the numbers are NaN and nothing is significant.

  Raises:
    Mistake: shapes that do not fit, a performance that is not finite, gamma, alpha, ties or resamples out of
      range, or no key where one is needed.

  Source: bouthillier2021, appendices C.5 and C.6 (the rule in section 4.1 is misprinted).

  >>> result = decide(np.arange(20) + 0.3, np.r_[np.arange(17), 99, 99, 99])
  >>> print(result.probability, result.low, result.high, result.decision)
  0.85 0.7 1.0 significant and meaningful
  """
  if not 0.5 < gamma <= 1:
    raise Mistake(f"gamma is {gamma!r}: give a probability above 0.5 and at most 1")
  if not 0 < alpha < 1:
    raise Mistake(f"alpha is {alpha!r}: give a number above 0 and below 1")
  resamples = at_least("resamples", resamples, 1)
  outcomes = _outcomes(*_performances(a, b, paired), ties, paired)
  if paired:
    low, high = _exact_interval(*outcomes, alpha)
  else:
    low, high = _resampled_interval(*outcomes, alpha, key, resamples)
  win, tie, decided = outcomes
  probability = ratio(win.sum() + 0.5 * tie.sum(), decided.sum())
  xp = namespace(probability)
  return Decision(probability, low, high, xp.asarray(low > 0.5), xp.asarray((low > 0.5) & (high > gamma)))


def _exact_interval(win: Array, tie: Array, decided: Array, alpha: float) -> tuple[Array, Array]:
  """Quantiles of the credit of as many draws from the outcomes as were decided; credit in halves."""
  xp = namespace(win)
  drawn = decided.sum()
  p_win, p_tie = ratio(win.sum(), drawn), ratio(tie.sum(), drawn)

  def draw(_, pmf):
    # Rolling brings only zeros to the front: the last entry that can be reached is the last.
    return pmf * (1 - p_win - p_tie) + xp.roll(pmf, 1) * p_tie + xp.roll(pmf, 2) * p_win

  pmf = xp.zeros(2 * len(win) + 3)
  pmf = pmf.at[0].set(1) if xp is jnp else np.where(np.arange(len(pmf)) == 0, 1.0, 0.0)
  if xp is jnp:
    pmf = jax.lax.fori_loop(0, drawn.astype(int), draw, pmf)
  else:
    for i in range(int(drawn)):
      pmf = draw(i, pmf)
  # The hair takes sums that equal a level exactly as equal, however they were rounded.
  cdf = xp.cumsum(pmf) + (1e-12 if pmf.dtype == np.float64 else 1e-6)
  return tuple(ratio(xp.argmax(cdf >= q), 2 * drawn) for q in (alpha / 2, 1 - alpha / 2))


def _resampled_interval(
  win: Array, tie: Array, decided: Array, alpha: float, key: jax.Array | None, resamples: int
) -> tuple[Array, Array]:
  """Quantiles of U/(n m) over resamples of A's runs and of B's."""
  if key is None:
    raise Mistake("paired=False needs a key for its bootstrap: give key=jax.random.key(0), for example")
  xp = namespace(win, key)
  runs_a, runs_b = win.shape
  if not runs_a or not runs_b:
    return (real(np.nan, xp),) * 2
  weights_a, weights_b = (
    real(tallies(jax.random.randint(k, (resamples, runs), 0, runs), runs, xp), xp)
    for k, runs in zip(jax.random.split(key), win.shape, strict=True)
  )
  credit = ((weights_a @ (win + 0.5 * tie)) * weights_b).sum(1)
  # A resample in which all pairs are dropped says nothing.
  means = xp.sort(ratio(credit, ((weights_a @ decided) * weights_b).sum(1)))
  said = (~xp.isnan(means)).sum()
  ranks = (xp.clip(xp.ceil(q * said).astype(int) - 1, 0, resamples - 1) for q in (alpha / 2, 1 - alpha / 2))
  return tuple(xp.asarray(means[r]) for r in ranks)


def noether_sample_size(
  gamma: Given["..."] = 0.75, alpha: Given["..."] = 0.05, beta: Given["..."] = 0.05
) -> Int[Array, "..."]:
  """Runs of each algorithm to detect P(A > B) > γ without pairing: N ≥ (z_{1-α} - z_β)² / (6 (γ - ½)²).

  Noether's size of a Mann-Whitney test with groups of N each: twice as many trainings. For pairs see
  `paired_sample_size`.

  Args:
    gamma: γ, above ½ and at most 1, a number or an array.
    alpha: one-sided rate of false positives.
    beta: rate of false negatives.

  Returns:
    Their common shape, whole numbers.

  Raises:
    Mistake: an argument out of range, or alpha + beta not below 1.

  Source: bouthillier2021, appendix C.3; Noether 1987.

  >>> print(noether_sample_size())
  29
  """
  return _sample_size(gamma, alpha, beta, 6)


def paired_sample_size(
  gamma: Given["..."] = 0.75, alpha: Given["..."] = 0.05, beta: Given["..."] = 0.05
) -> Int[Array, "..."]:
  """Pairs of runs to detect P(A > B) > γ: N ≥ (z_{1-α} - z_β)² / (4 (γ - ½)²).

  Equation 9 on pairs is a sign statistic, for which `noether_sample_size` is too few.

  Args:
    gamma: γ, above ½ and at most 1, a number or an array.
    alpha: one-sided rate of false positives.
    beta: rate of false negatives.

  Returns:
    Their common shape, whole numbers.

  Raises:
    Mistake: an argument out of range, or alpha + beta not below 1.

  Source: Noether 1987, the sign test; bouthillier2021 uses the Mann-Whitney size instead.

  >>> print(paired_sample_size())
  44
  """
  return _sample_size(gamma, alpha, beta, 4)


def _sample_size(gamma: object, alpha: object, beta: object, factor: int) -> Array:
  gamma, alpha, beta = real(gamma), real(alpha), real(beta)
  xp = namespace(gamma, alpha, beta)
  if xp is np:
    if not ((gamma > 0.5) & (gamma <= 1)).all():
      raise Mistake(f"gamma is {gamma}: give a probability above 0.5 and at most 1")
    if not ((alpha > 0) & (beta > 0) & (alpha + beta < 1)).all():
      raise Mistake(f"alpha is {alpha} and beta {beta}: give rates above 0 that add up to less than 1")
  ndtri = (scipy if xp is np else jax.scipy).special.ndtri
  z = ndtri(1 - alpha) - ndtri(beta)
  return xp.asarray(xp.ceil(z**2 / (factor * (gamma - 0.5) ** 2))).astype(int)


def average_correlation(performances: Given["repetitions k"]) -> Float[Array, ""]:
  """Average correlation ρ among the k measures of a repetition, which makes equation 7 hold for these
  samples:

      Var(mean of k) = V/k + (k - 1)/k ρ V

  V is the variance of one measure about the mean of all, over repetitions and measures alike, and the
  variances divide by their counts (ddof = 0): ρ is Fisher's intraclass correlation, and does not depend on
  the order of the measures. From few repetitions it is biased downwards.

  Args:
    performances: (repetitions, k), each row's measures having hyperparameters, or seeds, in common.

  Returns:
    0-d, from -1/(k - 1) to 1; NaN for one repetition, one measure or a constant.

  Raises:
    Mistake: performances is not (repetitions, k), or has a number that is not finite.

  Source: bouthillier2021, equation 7, whose Var(. | ξ) must be read as the total variance.

  >>> print(average_correlation([[0.0, 1.0], [2.0, 3.0]]).round(6))
  0.6
  """
  x = _repetitions(performances)
  repetitions, k = x.shape
  if repetitions < 2 or not k:
    return real(np.nan, namespace(x))
  return _intraclass(*_moments(x - x[0, 0]), k)


def _repetitions(performances: object) -> Array:
  return read_reals("performances", performances, "repetitions k")


def _moments(x: Array) -> tuple[Array, Array]:
  """Population variance of the rows' means, and of all entries."""
  x = x - ratio(x.sum(), x.size)
  return ratio((ratio(x.sum(1), x.shape[1]) ** 2).sum(), len(x)), ratio((x**2).sum(), x.size)


def _intraclass(of_means: Array, total: Array, k: int) -> Array:
  return ratio(k * of_means - total, (k - 1) * total)


def mse_decomposition(performances: Given["repetitions k"], truth: float) -> MseDecomposition:
  """Mean squared error of the mean of k measures as an estimate of μ:

      E[(μ~ - μ)²] = Var(μ~) + (E[μ~] - μ)²,    Var(μ~) = V/k + (k - 1)/k ρ V

  E and Var are population moments over the repetitions given (ddof = 0), for which both equations are exact.

  Args:
    performances: (repetitions, k), each row the k measures of one estimate μ~, their mean.
    truth: μ, for example the mean of an ideal estimator.

  Returns:
    `mse`, `bias` = E[μ~] - μ (signed), `variance` = Var(μ~), `total_variance` = V, `correlation` = ρ as in
    `average_correlation`, 0-d each. One repetition has variance 0 and no correlation (NaN); no measures give
    NaN.

  Raises:
    Mistake: performances is not (repetitions, k), or a number that is not finite.

  Source: bouthillier2021, equations 7 and 8.

  >>> parts = mse_decomposition([[0.0, 1.0], [2.0, 3.0]], truth=1.0)
  >>> print(parts.mse, parts.bias, parts.variance, parts.total_variance, parts.correlation.round(6))
  1.25 0.5 1.0 1.25 0.6
  """
  x, truth = _repetitions(performances), read_reals("truth", truth, "")
  repetitions, k = x.shape
  x = x - truth
  if not x.size:
    return MseDecomposition(*(real(np.nan, namespace(x)),) * 5)
  of_means, total = _moments(x)
  mse = ratio((ratio(x.sum(1), k) ** 2).sum(), repetitions)
  return MseDecomposition(mse, ratio(x.sum(), x.size), of_means, total, average_correlation(performances))
