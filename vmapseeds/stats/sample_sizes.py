"""How many runs a question takes, from the standard deviation of a run."""

import math

import numpy as np
import scipy.stats
from jaxtyping import Float
from scipy.special import ndtri

from vmapseeds.stats._arrays import Array, Given
from vmapseeds.stats.differences import fewest_runs, least_p_value
from vmapseeds.stats.reading import read_level, read_number, read_within


def runs_for_mean(
  sd: Given["..."],
  reach: float,
  *,
  level: float = 0.95,
) -> Float[Array, "..."]:
  """Return how many runs it takes until the interval of their mean is ± `reach`: the
  least R with t_{R-1} sd/√R ≤ reach.

  Args:
    sd: the standard deviation of a run, a number or an array.
    reach: half the width of the interval, in the unit of `sd`.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    The shape of `sd`: whole numbers as floats of at least 2; infinite or NaN where `sd`
    is.

  Source: Student 1908.

  >>> print(runs_for_mean(0.5, 0.1))
  99.0
  """
  _, upper = read_level(level)
  reach = read_number("reach", reach, "(0, inf]")

  def guess(sd: float) -> float:
    return (ndtri(upper) * sd / reach) ** 2

  def enough(runs: int, sd: float) -> bool:
    quantile = scipy.stats.t.ppf(upper, runs - 1)
    return quantile * sd / math.sqrt(runs) <= reach

  return _least(sd, 2, guess, enough)


def runs_for_difference(
  sd: Given["..."],
  difference: float,
  paired: bool = True,
  power: float = 0.8,
  alpha: float = 0.05,
) -> Float[Array, "..."]:
  """Return how many pairs, or runs of each, it takes to show a true difference with this
  power by `compare_means`.

  It is the power of Student's t test at the error rate that rearranging so many runs
  allows: of normal runs, whose number `fewest_runs` bounds from below.

  Args:
    sd: the standard deviation of the pairs' differences, or of a run of either where
      runs are not paired, a number or an array.
    difference: the true difference of means, in the unit of `sd`, above 0.
    paired: False for runs that are not paired.
    power: how often the difference is shown.
    alpha: the two-sided rate of errors.

  Returns:
    The shape of `sd`: whole numbers as floats; infinite or NaN where `sd` is.

  Source: the noncentral t law; Owen 1965.

  >>> print(runs_for_difference(1.0, 0.5), runs_for_difference(1.0, 0.5, paired=False))
  34.0 64.0
  """
  # Rates lie between 0 and 1, as levels do.
  read_level(power)
  read_level(alpha)
  difference = read_number("difference", difference, "(0, inf]")
  groups = 1 if paired else 2
  z = ndtri(1 - alpha / 2) + ndtri(power)

  def guess(sd: float) -> float:
    return groups * (z * sd / difference) ** 2

  def enough(runs: int, sd: float) -> bool:
    reached = difference_power(runs, sd, difference, paired, alpha=alpha)
    return float(reached) >= power

  least = fewest_runs(paired, alpha=alpha)
  return _least(sd, least, guess, enough)


def difference_power(
  runs: int,
  sd: float,
  difference: float,
  paired: bool = True,
  alpha: float = 0.05,
) -> Float[Array, ""]:
  """Return how often so many pairs, or runs of each, show a true difference: see
  `runs_for_difference`.

  >>> print(difference_power(34, 1.0, 0.5).round(3))
  0.808
  """
  # Rearrangements allow p-values that are multiples of the least one.
  least = least_p_value(runs, runs, paired)
  level = alpha
  if least > 1e-6:
    level = math.floor(alpha / least + 1e-9) * least
  # No p-value of so few runs is small enough.
  if not level:
    return np.asarray(0.0)
  # Runs that do not vary show any difference.
  if not sd:
    return np.asarray(1.0)

  groups = 1 if paired else 2
  freedom = groups * (runs - 1)
  shift = difference / sd * math.sqrt(runs / groups)
  if freedom > 1000:
    # The t laws are normal by then.
    return np.asarray(scipy.stats.norm.sf(-ndtri(level / 2) - shift))
  bound = scipy.stats.t.isf(level / 2, freedom)
  return np.asarray(scipy.stats.nct.sf(bound, freedom, shift))


def _least(sd, fewest, guess, enough):
  """Return the least number of runs that is enough for each sd, searched from a first
  guess, which the normal law gives and is a little low.
  """

  def search(sd: float) -> float:
    if not np.isfinite(sd):
      return sd
    runs = max(fewest, math.ceil(guess(sd)) - 1)
    # Of very many runs the guess is right.
    while runs < 1000 and not enough(runs, sd):
      runs += 1
    return float(runs)

  sd = read_within("sd", sd, "[0, inf]", nan=True)
  return np.vectorize(search, otypes=[float])(sd)
