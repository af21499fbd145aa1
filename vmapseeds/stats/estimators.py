"""The mean of few runs, its standard error, and whether runs are normal (Bouthillier
2021).
"""

import warnings
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from vmapseeds.stats._arrays import Array, Given, as_float64, centred, safe_divide
from vmapseeds.stats.reading import read_reals


class Estimate(NamedTuple):
  """A mean of k measures, their standard deviation (ddof = 1), and the standard error
  of the mean.
  """

  mean: Float[Array, ""]
  sd: Float[Array, ""]
  se: Float[Array, ""]


class Normality(NamedTuple):
  """The Shapiro-Wilk statistic W and its p value."""

  statistic: Float[Array, ""]
  p_value: Float[Array, ""]


def ideal_estimate(performances: Given["k"]) -> Estimate:
  """Return the mean of k independent measures with its error, the ideal estimator: se = s/√k.

  Args:
    performances: (k,), measures in which all sources of variation vary.

  Returns:
    `mean`, `sd` (ddof = 1), `se`, 0-d each; one measure has no `sd` or `se` (NaN), none
    has no `mean`.

  Source: bouthillier2021, algorithm 1 and equation 6 (ddof unstated there).

  >>> estimate = ideal_estimate([0.5, 0.75, 1.0])
  >>> print(estimate.mean, estimate.sd, estimate.se.round(6))
  0.75 0.25 0.144338
  """
  x = read_reals("performances", performances, "k")
  k = len(x)
  variance = sample_variance(x)
  return Estimate(
    mean=np.asarray(safe_divide(x.sum(), k)),
    sd=np.asarray(np.sqrt(variance)),
    se=np.asarray(np.sqrt(safe_divide(variance, k))),
  )


def sample_variance(x: Array) -> Array:
  """Return the variance with ddof = 1; NaN for fewer than two entries."""
  squares = centred(x) ** 2
  # Without runs the divisor would be -1, and the variance 0.
  return safe_divide(squares.sum(), max(len(x) - 1, 0))


def normality(performances: Given["runs"]) -> Normality:
  """Return the Shapiro-Wilk test of whether performances are normal over runs: a small
  p value says that they are not.

  Accuracies on few examples take few distinct values. With many runs the test then
  rejects normality, however bell-shaped their histogram is. Beyond 5,000 runs SciPy's p
  value is an extrapolation.

  Args:
    performances: (runs,).

  Returns:
    `statistic`, from 0 to 1, and `p_value`, 0-d; NaN for fewer than 3 runs or a
    constant.

  Source: bouthillier2021, figure G.3; `scipy.stats.shapiro`.

  >>> print(normality([1.0, 2.0, 3.0, 4.0, 50.0]).p_value.round(4))
  0.0007
  """
  x = read_reals("performances", performances, "runs")
  if len(x) < 3 or np.ptp(x) == 0:
    return Normality(as_float64(np.nan), as_float64(np.nan))
  with warnings.catch_warnings():
    # The docstring tells of the extrapolation that SciPy warns of.
    warnings.filterwarnings("ignore", "scipy.stats.shapiro: For N > 5000", UserWarning)
    test = scipy.stats.shapiro(centred(x))
  return Normality(as_float64(test.statistic), as_float64(test.pvalue))
