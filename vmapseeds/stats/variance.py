"""Errors and their variance between runs (Jordan 2024, section 3).

E is the array of errors, predictions != labels, (runs, examples): R runs, n examples.
Error rates are fractions.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide
from vmapseeds.stats.counts import (
  Counts,
  VoteCounts,
  counts_of_asked_errors,
  counts_of_errors,
)
from vmapseeds.stats.intervals import (
  Ends,
  correlation_uncertainty,
  disagreement_of_each_run,
  mean_over_pairs_se,
  nonnegative_interval,
  variance_ends,
  variance_se,
)
from vmapseeds.stats.reading import (
  read_level,
  read_number,
  read_within,
)
from vmapseeds.stats.uncertainty import Estimate, Uncertainty

# Of numbers from 0 to 1, such as error rates.
LARGEST_VARIANCE = 0.25


class TopFractionGain(NamedTuple):
  """Accuracy gained on one half of the examples by the runs that were best on the other
  half.
  """

  even_to_odd: Float[Array, ""]
  odd_to_even: Float[Array, ""]
  mean: Float[Array, ""]


def error_rates(errors: Given["runs examples"] | Counts) -> Float[Array, "runs"]:
  """Return each run's error rate: err_S(h) = (1/n) Σ_i err_i(h), with err_i(h) =
  errors[h, i].

  Args:
    errors: (runs, examples), bool or 0/1; masked, or NaN, where a run was not asked: n is
      then the number of examples that the run was asked for.

  Returns:
    (runs,), fractions from 0 to 1; NaN without examples. Of tallies in ascending order,
    because they do not keep which run has which rate.

  Source: jordan2024, section 2.

  >>> error_rates([[True, False, False, False], [True, True, True, False]])
  array([0.25, 0.75])
  """
  counts = counts_of_asked_errors(errors)
  return safe_divide(counts.run_errors, counts.run_examples)


def example_error_rates(
  errors: Given["runs examples"] | Counts,
) -> Float[Array, "examples"]:
  """Return each example's error rate over the runs: ε_i = (1/R) Σ_h err_i(h), with
  err_i(h) = errors[h, i].

  Args:
    errors: (runs, examples), bool or 0/1; masked, or NaN, where a run was not asked: R is
      then the number of runs that were asked for the example.

  Returns:
    (examples,), fractions from 0 to 1; a single run gives its errors as 0 and 1, no run
    gives NaN.

  Source: jordan2024, section 3.2, where the mean is over the law of h; the mean over
    runs is unbiased for it.

  >>> example_error_rates([[True, False, False], [True, True, False]])
  array([1. , 0.5, 0. ])
  """
  counts = counts_of_asked_errors(errors)
  return safe_divide(counts.wrong, counts.times_asked)


def test_set_variance(
  errors: Given["runs examples"] | Counts,
  *,
  level: float = 0.95,  # noqa: PT028
) -> Estimate:
  """Return the variance of the test-set error between runs: S² = Σ_h (err_S(h) - mean)²
  / (R - 1).

  The errors' and the accuracies' variance are the same. This is the ddof = 1 variance,
  unbiased for Var_h(err_S(h)) on these examples; it overestimates the variance on the
  whole distribution, for which see `distribution_variance`. Standard error and interval
  are those of `variance_over_runs`: they answer what other runs on the same examples
  would give.

      SE(S²)² = R/((R - 1)(R - 2)²) Σ_h (d_h² - mean d²)²,    d_h = err_S(h) - mean

  Args:
    errors: (runs, examples), bool or 0/1.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, in squared fractions; NaN for a single run or without examples. For
    fewer than three runs there is neither a standard error nor an interval, and no
    interval where the runs' errors are equal.

  Source: jordan2024, section 3.3 (which leaves ddof open); the standard error, the
    jackknife's in closed form, is ours.

  >>> test_set_variance([[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
  0.104 ± 0.072 [0.031, 0.250]
  """
  counts = counts_of_errors(errors)
  read_level(level)

  def uncertainty() -> Uncertainty:
    low, high = _ends_of_error_rates(counts, level)
    high = np.minimum(high, LARGEST_VARIANCE)
    return variance_se(error_rates(counts)), low, high

  return Estimate.deferred(_variance_of_runs(counts), uncertainty, level)


def _variance_of_runs(counts: Counts) -> Float[Array, ""]:
  """Return S² of `test_set_variance`."""
  variance = _covariance(counts.run_errors, counts.run_errors)
  return safe_divide(variance, counts.examples**2)


def _ends_of_error_rates(counts: Counts, level: float) -> Ends:
  """Return the ends of the interval of S²."""
  if not counts.examples:
    return np.nan, np.nan
  return variance_ends(error_rates(counts), level)


# Otherwise pytest would collect this function wherever it is imported, as its name is
# test_*.
vars(test_set_variance)["__test__"] = False


def _products(x: Int[Array, "runs"], y: Int[Array, "runs"]) -> int:
  """Return R Σxy - Σx Σy of two counts a run, exact if Σxy is below 2^63."""
  # Python's ints have no largest one.
  products = int((x * y).sum())
  return len(x) * products - int(x.sum()) * int(y.sum())


def _covariance(x: Int[Array, "runs"], y: Int[Array, "runs"]) -> Float[Array, ""]:
  """Return the covariance over runs (ddof = 1) of two counts a run."""
  runs = len(x)
  return safe_divide(_products(x, y), runs * (runs - 1))


def independent_errors_variance(
  errors: Given["runs examples"] | Counts,
  unbiased: bool = True,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the variance of the test-set error if errors were independent between
  examples: (1/n²) Σ_i ε_i (1 - ε_i).

  With ε_i the rates seen in R runs this plug-in is (R - 1)/R of the truth on average;
  `unbiased` multiplies it by R/(R - 1).

  The unbiased estimate is the mean over pairs of runs of H/(2n²), H the number of
  examples that exactly one of the two has wrong. Its standard error is the jackknife's
  in closed form: with h_r the mean over run r's pairs and U the mean over all pairs,

      SE² = 4 (R - 1) / (R (R - 2)²) Σ_r (h_r - U)²

  The interval is Student's, from 0 on. Both answer what other runs on the same test
  examples would give. They read the errors anew, which takes longer than the value.

  Args:
    errors: (runs, examples), bool or 0/1.
    unbiased: False for the papers' plug-in.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, in squared fractions. A single run gives NaN, and 0 as plug-in; no
    examples give NaN. There is neither a standard error nor an interval (NaN) for fewer
    than three runs, of the plug-in, or of tallies, which have no errors of single runs.

  Source: jordan2024, section 3.2 (the plug-in); Arvesen 1969 for the jackknife of means
    over pairs.

  >>> E = [[1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]]
  >>> independent_errors_variance(E)
  0.093 ± 0.032 [0.000, 0.195]
  >>> independent_errors_variance(E, unbiased=False)
  0.0694444
  """
  counts = counts_of_errors(errors)
  read_level(level)
  value = _independent_variance(counts, unbiased)
  if not unbiased or isinstance(counts, VoteCounts):
    return Estimate(value, level=level)

  def uncertainty() -> Uncertainty:
    # H/n is the disagreement of two runs whose predictions are their errors.
    of_pairs = disagreement_of_each_run(counts.errors.astype(np.int8), 2)
    se = safe_divide(mean_over_pairs_se(of_pairs), 2 * counts.examples)
    return se, *nonnegative_interval(value, se, counts.runs, level)

  return Estimate.deferred(value, uncertainty, level)


def _independent_variance(counts: Counts, unbiased: bool = True) -> Float[Array, ""]:
  """Return the value of `independent_errors_variance`."""
  runs = counts.runs
  wrong = as_float64(counts.wrong)
  # Pairs of runs of which one is wrong and the other right.
  disagreeing = (wrong * (runs - wrong)).sum()
  pairs = runs * (runs - 1) if unbiased else runs**2
  return safe_divide(disagreeing, pairs * counts.examples**2)


def distribution_variance(
  errors: Given["runs examples"] | Counts,
  unbiased: bool = True,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the variance between runs of the error on the whole distribution, of which
  the examples are a sample:

      σ²_S = n/(n - 1) [ Var_h(err_S(h)) - (1/n²) Σ_i Var_h(err_i(h)) ]

  n is the number of examples. Theorem 2 has population variances over h. `unbiased`
  takes the ddof = 1 variance in both places, `test_set_variance` and
  `independent_errors_variance`, which is unbiased for Var_h(err(h)) at any number of
  runs; otherwise ddof = 0 in both, exactly (R - 1)/R times that. Mixing the two would
  add 1/R of the independent-errors variance. The estimate is signed: where there is
  little variance it is often negative.

  The standard error is n/(n - 1) times that of `test_set_variance`, and the interval
  n/(n - 1) times that of S² minus the independent-errors variance, which is estimated
  far more precisely and taken as known. The low end is negative if there may be no
  variance at all; the high end is at most 1/4, which no error rate's variance exceeds.
  Both answer what other runs on the same examples would give. The sampling of the
  examples adds uncertainty that one test set cannot show.

  Args:
    errors: (runs, examples), bool or 0/1.
    unbiased: False for the plug-in.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, in squared fractions; NaN for a single run or a single example. There
    is neither a standard error nor an interval (NaN) for fewer than three runs or of
    the plug-in, and no interval where the runs' errors are equal.

  Source: jordan2024, theorem 2, equation 3. The sum over pairs of covariances in its
    appendix B.2 is misprinted and twice this. Standard error and interval are ours;
    Tukey 1958 and Miller 1968 for the jackknife.

  >>> E = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]
  >>> distribution_variance(E)
  0.12 ± 0.12 [-0.01, 0.25]
  >>> distribution_variance(E, unbiased=False)
  0.1
  """
  counts = counts_of_errors(errors)
  read_level(level)
  independent = _independent_variance(counts)
  scale = safe_divide(counts.examples, counts.examples - 1)
  value = scale * (_variance_of_runs(counts) - independent)
  if not unbiased:
    value = value * safe_divide(counts.runs - 1, counts.runs)
    return Estimate(value, level=level)

  def uncertainty() -> Uncertainty:
    se = scale * variance_se(error_rates(counts))
    low, high = _ends_of_error_rates(counts, level)
    low = np.minimum(scale * (low - independent), LARGEST_VARIANCE)
    high = np.minimum(scale * (high - independent), LARGEST_VARIANCE)
    return se, low, high

  return Estimate.deferred(value, uncertainty, level)


def noise_share(
  errors: Given["runs examples"] | Counts,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return the share of the variance between runs that is noise of the test set: the
  variance that errors independent between examples would give, over the variance that
  is seen.

      share = V/S², at most 1

  V is `independent_errors_variance` and S² is `test_set_variance`. Training runs on an
  endless test set would leave the rest, 1 - share of the variance, up to a factor of
  n/(n - 1): that is `distribution_variance`. A share of 1 means that the runs differ by
  no more than the luck of this test set explains.

  The interval is V over the ends of that of S², because V is estimated far more
  precisely and is taken as known, as in `distribution_variance`. Ends are at most 1. It
  answers what endlessly many runs on the same test examples would give.

  Args:
    errors: (runs, examples), bool or 0/1.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate` from 0 to 1; NaN for a single run, without examples, or where all runs
    make equally many errors. There is no standard error, and for fewer than three runs
    no interval (NaN).

  Source: jordan2024, sections 3.2 and 3.3, whose two variances it divides; the interval
    is ours.

  >>> E = [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
  >>> noise_share(E)
  0.47 [0.04, 1.00]
  """
  counts = counts_of_errors(errors)
  read_level(level)
  seen = _variance_of_runs(counts)
  independent = _independent_variance(counts)

  def uncertainty() -> Uncertainty:
    low, high = _ends_of_error_rates(counts, level)
    return (
      np.nan,
      share_of_variance(independent, high),
      share_of_variance(independent, low),
    )

  return Estimate.deferred(share_of_variance(independent, seen), uncertainty, level)


def share_of_variance(part: Given["..."], whole: Given["..."]) -> Float[Array, "..."]:
  """Return a part of a variance as a share of it, at most 1."""
  return np.asarray(np.minimum(safe_divide(part, whole), 1))


def split_correlation(
  errors: Given["runs examples"] | Counts,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return Pearson's correlation over runs between the error on the examples of even
  and of odd index (from 0).

  Standard error and interval are those of `correlation_over_runs`.

  Args:
    errors: (runs, examples), bool or 0/1.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate`, from -1 to 1; NaN for a single run, a single example, or where a
    half's error is the same in all runs. For fewer than four runs, or where a half's
    error is the same in all runs but one, there is neither a standard error nor an
    interval (NaN).

  Source: jordan2024, section 3.1, figure 2 (whose R² is the square); the standard error
    and the interval are ours.

  >>> E = [[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]]
  >>> split_correlation(E)
  0.79 ± 0.13 [0.09, 0.97]
  """
  counts = counts_of_errors(errors)
  read_level(level)
  even, odd = counts.halves
  spread_even = as_float64(_products(even, even)) ** 0.5
  spread_odd = as_float64(_products(odd, odd)) ** 0.5
  r = safe_divide(_products(even, odd), spread_even * spread_odd)
  # Rounding can carry it over 1.
  r = np.clip(r, -1.0, 1.0)

  def uncertainty() -> Uncertainty:
    return correlation_uncertainty(even, odd, level)

  return Estimate.deferred(r, uncertainty, level)


def correlation_p_value(r: Given["..."], runs: int) -> Float[Array, "..."]:
  """Return the two-sided p-value of a Pearson correlation over R runs: t = r √((R -
  2)/(1 - r²)) with R - 2 degrees of freedom.

  Args:
    r: correlations, any shape.
    runs: R, the number of runs.

  Returns:
    The shape of r. Two runs give 1, fewer give NaN, and so does a NaN correlation.

  Source: jordan2024, figure 12; no correction for the number of pairs compared.

  >>> print(correlation_p_value(0.5, runs=20).round(4))
  0.0248
  """
  r = read_within("r", r, "[-1, 1]", nan=True)
  if runs < 3:
    return np.where(np.isnan(r) | (runs < 2), np.nan, 1.0)
  # P(|t| > t_0) of Student's t in terms of r alone.
  p = scipy.special.betainc(runs / 2 - 1, 0.5, 1 - r**2)
  return np.asarray(p)


def split_covariance(errors: Given["runs examples"] | Counts) -> Float[Array, ""]:
  """Return the covariance over runs (ddof = 1) between the errors on the examples of
  even and of odd index (from 0).

  The halves are independent samples of the distribution, so this is unbiased for
  Var_h(err(h)), the same as `distribution_variance`, which uses all pairs of examples
  and is the less noisy of the two.

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d, in squared fractions, signed; NaN for a single run or a single example.

  Source: jordan2024, section 3.1.

  >>> print(split_covariance([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]]))
  0.125
  """
  counts = counts_of_errors(errors)
  even, odd = counts.halves
  pairs = (counts.examples // 2) * ((counts.examples + 1) // 2)
  return safe_divide(_covariance(even, odd), pairs)


def top_fraction_gain(
  errors: Given["runs examples"] | Counts,
  fraction: float = 0.25,
) -> TopFractionGain:
  """Return the accuracy on one half of the examples that is gained by taking the best
  runs of the other half.

      gain = mean accuracy there of the max(1, ⌊fraction R⌋) runs best here - mean
      accuracy there of all R

  Halves are the examples of even and of odd index (from 0); the paper does not say
  which half selects, so both are given. Runs tied at the cut share the places left, so
  the order of the runs does not matter.

  Args:
    errors: (runs, examples), bool or 0/1.
    fraction: the fraction of the runs that is taken, above 0 and at most 1.

  Returns:
    `even_to_odd` (selected on even, measured on odd), `odd_to_even` and their `mean`,
    0-d, as fractions of accuracy; 0 for a single run, NaN for a single example or no
    run.

  Source: jordan2024, section 3.1 (the top quarter).

  >>> gain = top_fraction_gain([[0, 0, 0, 1], [1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]])
  >>> print(gain.even_to_odd, gain.odd_to_even, gain.mean)
  0.375 0.5 0.4375
  """
  counts = counts_of_errors(errors)
  times = np.ones(counts.runs, int)
  return gain_of_halves(counts.halves, times, counts.examples, fraction)


def gain_of_halves(
  halves: Int[np.ndarray, "2 runs"],
  times: Int[np.ndarray, "*resamples runs"],
  examples: int,
  fraction: float,
) -> TopFractionGain:
  """Return `top_fraction_gain` with each run taken so many times; the sum of times is
  the same in all resamples.
  """
  fraction = read_number("fraction", fraction, "(0, 1]")
  even, odd = halves
  # The tolerance keeps 0.29 of 100 at 29, though 0.29 * 100 < 29 in floating point.
  runs = times.sum(-1).max()
  top = max(1, math.floor(fraction * runs + 1e-9))
  runs_by_even, odd_errors = _errors_by_count(even, odd, times)
  runs_by_odd, even_errors = _errors_by_count(odd, even, times)
  examples_odd = examples // 2
  examples_even = (examples + 1) // 2
  if examples == 1:
    # A single example is even, and nothing is left to select on.
    examples_even = 0
  even_to_odd = safe_divide(_gain(runs_by_even, odd_errors, top=top), examples_odd)
  odd_to_even = safe_divide(_gain(runs_by_odd, even_errors, top=top), examples_even)
  mean = np.asarray((even_to_odd + odd_to_even) / 2)
  return TopFractionGain(even_to_odd, odd_to_even, mean)


def _errors_by_count(
  here: np.ndarray,
  there: np.ndarray,
  runs: np.ndarray,
) -> np.ndarray:
  """Count the runs that make each number of errors here that any makes, in ascending
  order, and their errors there, (2, ..., numbers).
  """
  numbers, number_of_run = np.unique(here, return_inverse=True)
  size = max(1, len(numbers))
  rows = np.atleast_2d(runs)
  # Each row counts in places of its own, so that one pass counts all.
  places = (number_of_run + size * np.arange(len(rows))[:, None]).ravel()
  total = len(rows) * size
  # Float64 holds the sums exactly.
  runs_at = np.bincount(places, rows.ravel(), total)
  errors_at = np.bincount(places, (rows * there).ravel(), total)
  sums = np.stack([runs_at, errors_at]).astype(np.int64)
  return sums.reshape(2, *runs.shape[:-1], size)


def _gain(
  runs_at: Array,
  errors_at: Array,
  *,
  top: int,
) -> Array:
  """Return how many fewer errors there the `top` runs with the fewest errors here make
  than the mean run.
  """
  runs_at = as_float64(runs_at)
  errors_at = as_float64(errors_at)
  # Runs with fewer errors are taken first; those tied at the cut share the places.
  before = np.cumsum(runs_at, axis=-1) - runs_at
  taken = np.clip(top - before, 0, runs_at)
  share = taken / np.maximum(runs_at, 1)
  mean_errors = safe_divide(errors_at.sum(-1), runs_at.sum(-1))[..., None]
  excess = errors_at - runs_at * mean_errors
  # Not a minus sign, which would make -0 of 0.
  return 0.0 - safe_divide((share * excess).sum(-1), top)
