"""Ideal and biased estimators of a mean performance, and their errors (Bouthillier
2021).

An ideal estimator draws everything anew for each measure. A biased one holds something
fixed, such as the hyperparameters: its k measures are correlated, and more of them help
less.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vmapseeds.stats import Estimate
from vmapseeds.stats._arrays import Array, Given, as_float64, centred, safe_divide
from vmapseeds.stats.estimators import sample_variance
from vmapseeds.stats.reading import read_number, read_positive, read_reals, read_within


class MseDecomposition(NamedTuple):
  """Mean squared error of an estimator, mse = variance + bias², and V and ρ, which
  determine its variance.
  """

  mse: Float[Array, ""]
  bias: Float[Array, ""]
  variance: Float[Array, ""]
  total_variance: Float[Array, ""]
  correlation: Float[Array, ""]


def biased_estimate(performances: Given["k"], correlation: Given[""]) -> Estimate:
  """Return the biased estimator: the mean of k measures of average correlation ρ.

      se² = V/k + (k - 1)/k ρ V,    V = s²/(1 - ρ)

  The k measures differ by less than independent ones would: s² estimates (1 - ρ) V, not
  V, and s/√k is too small an error by a factor that grows with k. ρ cannot be seen from
  one row of measures; it comes from repetitions of the whole procedure, see
  `average_correlation`.

  Args:
    performances: (k,), measures that have something in common, such as their
      hyperparameters.
    correlation: ρ, at least 0 and below 1.

  Returns:
    An `Estimate` without an interval (NaN); one measure has no standard error, none has
    no mean.

  Source: bouthillier2021, algorithm 2 and equation 7, whose Var(. | ξ) must be read as
    the total variance V.

  >>> biased_estimate([0.5, 0.75, 1.0], correlation=0.5)
  0.75 ± 0.29
  """
  x = read_reals("performances", performances, "k")
  rho = read_number("correlation", correlation, "[0, 1)")
  k = len(x)
  variance = sample_variance(x)
  if k == 0:
    return Estimate(safe_divide(x.sum(), k), variance)  # both NaN
  se = estimator_se(k, variance / (1 - rho), rho)
  return Estimate(safe_divide(x.sum(), k), se)


def estimator_se(
  k: Given["..."],
  variance: Given["..."],
  correlation: Given["..."] = 0.0,
) -> Float[Array, "..."]:
  """Return the standard error of the mean of k measures: √(V/k + (k - 1)/k ρ V), for an
  ideal estimator (ρ = 0) √(V/k).

  It falls to √(ρ V), not to 0: k correlated measures are worth `equivalent_ideal_size`
  independent ones.

  Args:
    k: numbers of measures, above 0; np.inf for the limit.
    variance: V, the variance of one measure over everything that varies, at least 0.
    correlation: ρ of two measures of a repetition, at least 0 and below 1.

  Returns:
    The arguments' broadcast shape.

  Source: bouthillier2021, equation 7 and figures 5 and H.4; V is the total variance.

  >>> estimator_se([1, 4, 100], variance=4.0, correlation=0.25).round(6)
  array([2.      , 1.322876, 1.014889])
  """
  variance = read_within("variance", variance, "[0, inf]", nan=True)
  return np.asarray(np.sqrt(variance / equivalent_ideal_size(k, correlation)))


def equivalent_ideal_size(
  k: Given["..."],
  correlation: Given["..."],
) -> Float[Array, "..."]:
  """Return how many independent measures have the error of k correlated ones: k / (1 +
  (k - 1) ρ), at most 1/ρ.

  Args:
    k: numbers of measures, above 0; np.inf for the limit.
    correlation: ρ of two measures of a repetition, at least 0 and below 1.

  Returns:
    The arguments' broadcast shape; infinite for k = ∞ and ρ = 0.

  Source: bouthillier2021, section 3.3 ("the equivalent of μ(k=2)") by equation 7.

  >>> equivalent_ideal_size([1, 10, np.inf], correlation=0.5).round(6)
  array([1.      , 1.818182, 2.      ])
  """
  k = read_positive("k", k)
  rho = read_within("correlation", correlation, "[0, 1)")
  # Numerator and denominator are divided by k, so that k = ∞ works as well.
  share = 1 / k + (1 - 1 / k) * rho
  return np.where(share > 0, 1 / np.where(share > 0, share, 1.0), np.inf)


def average_correlation(performances: Given["repetitions k"]) -> Float[Array, ""]:
  """Return the average correlation ρ among the k measures of a repetition, which makes
  equation 7 hold for these samples:

      Var(mean of k) = V/k + (k - 1)/k ρ V

  V is the variance of one measure about the mean of all, over repetitions and measures
  alike, and the variances divide by their counts (ddof = 0): ρ is Fisher's intraclass
  correlation, and does not depend on the order of the measures. From few repetitions it
  is biased downwards.

  Args:
    performances: (repetitions, k), the measures of a row share hyperparameters or
      seeds.

  Returns:
    0-d, from -1/(k - 1) to 1; NaN for one repetition, one measure or a constant.

  Source: bouthillier2021, equation 7, whose Var(. | ξ) must be read as the total
    variance.

  >>> print(average_correlation([[0.0, 1.0], [2.0, 3.0]]).round(6))
  0.6
  """
  x = read_reals("performances", performances, "repetitions k")
  repetitions, k = x.shape
  if repetitions < 2 or not k:
    return as_float64(np.nan)
  of_means, total = _moments(x)
  return safe_divide(k * of_means - total, (k - 1) * total)


def _moments(x: Array) -> tuple[Array, Array]:
  """Return the population variance of the rows' means, and of all entries."""
  x = x - x[:1, :1]  # so that a large common part costs no digits
  means = safe_divide(x.sum(1), x.shape[1])
  of_means = safe_divide((centred(means) ** 2).sum(), len(x))
  total = safe_divide((centred(x.reshape(-1)) ** 2).sum(), x.size)
  return of_means, total


def mse_decomposition(
  performances: Given["repetitions k"],
  truth: float,
) -> MseDecomposition:
  """Return the mean squared error of the mean of k measures as an estimate of μ:

      E[(μ~ - μ)²] = Var(μ~) + (E[μ~] - μ)²,    Var(μ~) = V/k + (k - 1)/k ρ V

  E and Var are population moments over the repetitions given (ddof = 0), for which both
  equations are exact.

  Args:
    performances: (repetitions, k), each row the k measures of one estimate μ~, their
      mean.
    truth: μ, for example the mean of an ideal estimator.

  Returns:
    `mse`, `bias` = E[μ~] - μ (signed), `variance` = Var(μ~), `total_variance` = V,
    `correlation` = ρ as in `average_correlation`, 0-d each. One repetition has variance
    0 and no correlation (NaN); no measures give NaN.

  Source: bouthillier2021, equations 7 and 8.

  >>> parts = mse_decomposition([[0.0, 1.0], [2.0, 3.0]], truth=1.0)
  >>> print(parts.mse, parts.bias, parts.variance, parts.total_variance, parts.correlation.round(6))
  1.25 0.5 1.0 1.25 0.6
  """
  x = read_reals("performances", performances, "repetitions k")
  truth = read_number("truth", truth, "(-inf, inf)")
  repetitions, k = x.shape
  x = x - truth
  of_means, total = _moments(x)
  mse = safe_divide((safe_divide(x.sum(1), k) ** 2).sum(), repetitions)
  return MseDecomposition(
    mse,
    safe_divide(x.sum(), x.size),
    of_means,
    total,
    average_correlation(performances),
  )
