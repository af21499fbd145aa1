"""How many runs a question takes, and how often so many runs answer it."""

import math
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float
from scipy.special import ndtri

from vmapseeds.errors import check_one_of
from vmapseeds.stats._arrays import Array, Given, safe_divide
from vmapseeds.stats.comparison import least_p_value
from vmapseeds.stats.counts import Counts, counts_of_errors
from vmapseeds.stats.reading import read_level, read_number, read_positive, read_within
from vmapseeds.stats.variance import distribution_variance, test_set_variance


def runs_for_mean(
  sd: Given["..."],
  reach: float,
  test_to_train: float = 0.0,
  *,
  level: float = 0.95,
) -> Float[Array, "..."]:
  """Return how many runs it takes until the interval of their mean is ± `reach`: the
  least R with t_{R-1} sd √(1/R + q) ≤ reach.

  Args:
    sd: the standard deviation of a run, a number or an array.
    reach: half the width of the interval, in the unit of `sd`.
    test_to_train: q, the size of a test set over that of a training set where folds are
      counted, whose training sets overlap; 0 for independent runs.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    The shape of `sd`: whole numbers as floats of at least 2; infinite or NaN where `sd`
    is, and infinite where no number of folds is enough.

  Source: Student 1908; Nadeau and Bengio 2003.

  >>> print(runs_for_mean(0.5, 0.1))
  99.0
  """
  _, upper = read_level(level)
  reach = read_number("reach", reach, "(0, inf]")
  overlap = read_number("test_to_train", test_to_train, "[0, inf)")

  def guess(sd: float) -> float:
    return _independent_runs((ndtri(upper) * sd / reach) ** 2, overlap)

  def enough(runs: int, sd: float) -> bool:
    quantile = scipy.stats.t.ppf(upper, runs - 1)
    return quantile * sd * math.sqrt(1 / runs + overlap) <= reach

  return _least(sd, 2, guess, enough)


def _independent_runs(runs: float, overlap: float) -> float:
  """Return how many folds know as much as so many independent runs, which is at most
  as much as 1/overlap.
  """
  left = 1 / runs - overlap if runs else math.inf
  return 1 / left if left > 0 else math.inf


def runs_for_variance(
  errors: Given["runs examples"] | Counts,
  relative: Given["..."] = 0.1,
  statistic: str = "distribution_variance",
  *,
  level: float = 0.95,
) -> Float[Array, "..."]:
  """Return how many runs it takes until the interval of a variance has at most this
  relative half-width.

      R' = 1 + (R - 1) (z SE/(p V))²,    SE the standard error of the variance V by the R runs here, p the precision

  V is the test-set variance or the distribution-wise one. The latter has the noise of
  the former too, so it takes many more runs where most of the test-set variance comes
  from independent errors. SE is the jackknife's: it takes the fourth moment into
  account and is as uncertain as that. From few runs of a long-tailed law the answer is
  too small.

  Args:
    errors: (runs, examples), bool or 0/1.
    relative: p, half the interval's width as a fraction of the estimate, above 0.
    statistic: "distribution_variance" or "test_set_variance".
    level: the coverage of the interval, between 0 and 1.

  Returns:
    The shape of `relative`: a whole number as a float; infinite where the estimated
    variance is not above 0, NaN for fewer than three runs or, for the distribution-wise
    variance, a single example.

  Source: ours, from the standard error of `distribution_variance`.

  >>> errors = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]]
  >>> print(runs_for_variance(errors, 0.1, "test_set_variance"))
  555.0
  """
  check_one_of("statistic", statistic, ("distribution_variance", "test_set_variance"))
  counts = counts_of_errors(errors)
  variance = distribution_variance(counts)
  if statistic == "test_set_variance":
    variance = test_set_variance(counts)
  return runs_needed(variance.value, variance.se, counts.runs, relative, level=level)


def runs_needed(
  variance: Any,
  se: Any,
  runs: int,
  relative: Given["..."],
  *,
  level: float = 0.95,
) -> Float[Array, "..."]:
  """Return `runs_for_variance` from a variance by so many runs and its standard error."""
  _, upper = read_level(level)
  z = ndtri(upper)
  relative = read_positive("relative", relative)
  # How many times the interval is too wide.
  excess = z * safe_divide(se, relative * variance)
  needed = np.ceil(1 + (runs - 1) * excess**2)
  # Of a variance that is not above 0, no number of runs gives a relative precision.
  otherwise = np.where(np.isnan(variance), np.nan, np.inf)
  return np.where(variance > 0, needed, otherwise)


def runs_for_difference(
  sd: Given["..."],
  difference: float,
  paired: bool = True,
  power: float = 0.8,
  alpha: float = 0.05,
  test_to_train: float = 0.0,
) -> Float[Array, "..."]:
  """Return how many pairs, or runs of each, it takes to show a true difference with this
  power by `compare_means`.

  It is the power of Student's t test at the error rate that rearranging so many runs
  allows: of normal runs, whose number `runs_for_significance` bounds from below.

  Args:
    sd: the standard deviation of the pairs' differences, or of a run of either where
      runs are not paired, a number or an array.
    difference: the true difference of means, in the unit of `sd`, above 0.
    paired: False for runs that are not paired.
    power: how often the difference is shown.
    alpha: the two-sided rate of errors.
    test_to_train: as in `runs_for_mean`, where folds are counted.

  Returns:
    The shape of `sd`: whole numbers as floats; infinite or NaN where `sd` is, and infinite
    where no number of folds is enough.

  Source: the noncentral t law; Owen 1965.

  >>> print(runs_for_difference(1.0, 0.5), runs_for_difference(1.0, 0.5, paired=False))
  34.0 64.0
  """
  # Rates lie between 0 and 1, as levels do.
  read_level(power)
  read_level(alpha)
  difference = read_number("difference", difference, "(0, inf]")
  overlap = read_number("test_to_train", test_to_train, "[0, inf)")
  groups = 1 if paired else 2
  z = ndtri(1 - alpha / 2) + ndtri(power)

  def guess(sd: float) -> float:
    return _independent_runs(groups * (z * sd / difference) ** 2, overlap)

  def enough(runs: int, sd: float) -> bool:
    reached = power_for_difference(
      runs, sd, difference, paired, alpha=alpha, test_to_train=overlap
    )
    return float(reached) >= power

  # Folds are not rearranged.
  least = 2 if overlap else runs_for_significance(paired, alpha=alpha)
  return _least(sd, least, guess, enough)


def power_for_difference(
  runs: int,
  sd: float,
  difference: float,
  paired: bool = True,
  alpha: float = 0.05,
  test_to_train: float = 0.0,
) -> Float[Array, ""]:
  """Return how often so many pairs, or runs of each, show a true difference: see
  `runs_for_difference`.

  >>> print(power_for_difference(34, 1.0, 0.5).round(3))
  0.808
  """
  # Rearrangements allow p-values that are multiples of the least one.
  least = least_p_value(runs, runs, paired)
  level = alpha
  if least > 1e-6 and not test_to_train:
    level = math.floor(alpha / least + 1e-9) * least
  # No p-value of so few runs is small enough.
  if not level or runs < 2:
    return np.asarray(0.0)
  # Runs that do not vary show any difference.
  if not sd:
    return np.asarray(1.0)

  groups = 1 if paired else 2
  freedom = groups * (runs - 1)
  shift = difference / sd / math.sqrt(groups * (1 / runs + test_to_train))
  if freedom > 1000:
    # The t laws are normal by then.
    return np.asarray(scipy.stats.norm.sf(-ndtri(level / 2) - shift))
  bound = scipy.stats.t.isf(level / 2, freedom)
  return np.asarray(scipy.stats.nct.sf(bound, freedom, shift))


def runs_for_significance(paired: bool = True, *, alpha: float = 0.05) -> int:
  """Return the fewest pairs, or runs of each, of which `compare_means` can say at an
  error rate of `alpha` that A and B differ, however large the difference.

  Args:
    paired: False for runs that are not paired.
    alpha: the rate of errors, two-sided.

  >>> runs_for_significance(), runs_for_significance(paired=False)
  (6, 4)
  """
  read_level(alpha)
  runs = 1
  while least_p_value(runs, runs, paired) > alpha:
    runs += 1
  return runs


def _least(sd, fewest, guess, enough):
  """Return the least number of runs that is enough for each sd, searched from a first
  guess, which the normal law gives and is a little low.
  """

  def search(sd: float) -> float:
    if not np.isfinite(sd):
      return sd
    guessed = guess(sd)
    if math.isinf(guessed):
      return guessed
    runs = max(fewest, math.ceil(guessed) - 1)
    # Of very many runs the guess is right.
    while runs < 1000 and not enough(runs, sd):
      runs += 1
    return float(runs)

  sd = read_within("sd", sd, "[0, inf]", nan=True)
  return np.vectorize(search, otypes=[float])(sd)
