"""The mean of few runs, its standard error, and whether runs are normal (Bouthillier
2021).
"""

import warnings
from typing import NamedTuple

import numpy as np
import scipy
import scipy.special
from jaxtyping import Float

from vmapseeds.stats._arrays import Array, Given, as_float64, centred, safe_divide
from vmapseeds.stats.reading import read_level, read_reals
from vmapseeds.stats.uncertainty import Estimate


class Normality(NamedTuple):
  """The Shapiro-Wilk statistic W and its p value."""

  statistic: Float[Array, ""]
  p_value: Float[Array, ""]


def mean_over_runs(values: Given["runs"], *, level: float = 0.95) -> Estimate:
  """Return the mean over runs, with Student's interval: mean ± t_{R-1} sd/√R.

  It answers what the mean over infinitely many runs is, on the same test examples. Of k
  runs in which all sources of randomness vary this is the ideal estimator.

  Args:
    values: (runs,), one number a run, such as its accuracy.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate` with se = sd/√R (ddof = 1). A single run has no standard error and no
    interval (NaN), no run has no mean.

  Source: Student 1908; bouthillier2021, algorithm 1 and equation 6 (ddof unstated
    there).

  >>> mean_over_runs([0.1, 0.2, 0.3])
  0.200 ± 0.058 [-0.048, 0.448]
  """
  _, upper = read_level(level)
  values = read_reals("values", values, "runs")
  runs = len(values)
  mean = safe_divide(values.sum(), runs)
  se = np.sqrt(safe_divide(sample_variance(values), runs))
  reach = scipy.special.stdtrit(runs - 1, upper) * se
  return Estimate(mean, se, mean - reach, mean + reach, level)


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
