"""Errors and their variance between runs (Jordan 2023, sections 3 and 4).

E is the array of errors, predictions != labels, (runs, examples): R runs, n examples. Error rates are
fractions.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Float, Int

from vmapseeds.errors import Mistake
from vmapseeds.stats._arrays import (
  Array,
  Given,
  centred,
  correlation,
  count,
  namespace,
  positive,
  ratio,
  read,
  read_errors,
  real,
  traced,
  within,
)

# Joint counts of example pairs are computed for blocks of this many examples.
_BLOCK = 1024


class TopFractionGain(NamedTuple):
  """Accuracy gained on one half of the examples by the runs that were best on the other half."""

  even_to_odd: Float[Array, ""]
  odd_to_even: Float[Array, ""]
  mean: Float[Array, ""]


class DependentPairs(NamedTuple):
  """Pairs i < j of examples, the probability that a run has both right, and the product of the two's own."""

  i: Int[Array, "pairs"]
  j: Int[Array, "pairs"]
  joint: Float[Array, "pairs"]
  product: Float[Array, "pairs"]


def error_rates(errors: Given["runs examples"]) -> Float[Array, "runs"]:
  """Each run's error rate: err_S(h) = (1/n) Σ_i err_i(h), with err_i(h) = errors[h, i].

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    (runs,), fractions from 0 to 1; NaN without examples.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: jordan2023, section 2.

  >>> error_rates([[True, False, False, False], [True, True, True, False]])
  array([0.25, 0.75])
  """
  errors = read_errors(errors)
  return ratio(count(errors, axis=1), errors.shape[1])


def example_error_rates(errors: Given["runs examples"]) -> Float[Array, "examples"]:
  """Each example's error rate over the runs: ε_i = (1/R) Σ_h err_i(h), with err_i(h) = errors[h, i].

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    (examples,), fractions from 0 to 1; a single run gives its errors as 0 and 1, no run gives NaN.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: jordan2023, section 3.3, where the mean is over the law of h; the mean over runs is unbiased for it.

  >>> example_error_rates([[True, False, False], [True, True, False]])
  array([1. , 0.5, 0. ])
  """
  errors = read_errors(errors)
  return ratio(count(errors, axis=0), errors.shape[0])


def test_set_variance(errors: Given["runs examples"]) -> Float[Array, ""]:
  """Variance of the test-set error between runs: S² = Σ_h (err_S(h) - mean)² / (R - 1).

  The errors' and the accuracies' variance are the same. This is the ddof = 1 variance, unbiased for
  Var_h(err_S(h)) on these examples; it overestimates the variance on the whole distribution, for which see
  `distribution_variance`.

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d, in squared fractions; NaN for a single run or without examples.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: jordan2023, section 3.1 (which leaves ddof open).

  >>> print(test_set_variance([[True, False, False, False], [True, True, True, False]]))
  0.125
  """
  errors = read_errors(errors)
  wrong = count(errors, axis=1)
  return ratio(_covariance(wrong, wrong), errors.shape[1] ** 2)


# pytest collects what is called test_*, wherever it is imported.
test_set_variance.__test__ = False


def _covariance(x: Array, y: Array) -> Array:
  """Covariance over runs (ddof = 1) of two counts a run, by exact sums unless traced; NaN for a single run."""
  if traced(x, y):
    return ratio((centred(x) * centred(y)).sum(), len(x) - 1)
  return covariance_of_sums(len(x), int(x.sum()), int(y.sum()), int((x * y).sum()))


def covariance_of_sums(runs: int, x: int, y: int, xy: int) -> Array:
  """(Σxy - Σx Σy/R) / (R - 1) from the sums over runs: whole numbers of Python's, which cannot cancel badly."""
  return ratio(runs * xy - x * y, runs * (runs - 1))


def independent_errors_variance(errors: Given["runs examples"], unbiased: bool = True) -> Float[Array, ""]:
  """Variance of the test-set error were errors independent between examples: (1/n²) Σ_i ε_i (1 - ε_i).

  With ε_i the rates seen in R runs this plug-in is (R - 1)/R of the truth on average; `unbiased` multiplies
  it by R/(R - 1).

  Args:
    errors: (runs, examples), bool or 0/1.
    unbiased: False for the papers' plug-in.

  Returns:
    0-d, in squared fractions. A single run gives NaN, and 0 as plug-in; no examples give NaN.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: jordan2023, section 3.3 (the plug-in).

  >>> E = [[True, False, False, False], [True, True, True, False]]
  >>> print(independent_errors_variance(E), independent_errors_variance(E, unbiased=False))
  0.0625 0.03125
  """
  errors = read_errors(errors)
  return independent_errors_of_counts(count(errors, axis=0), errors.shape[0], unbiased)


def independent_errors_of_counts(wrong: Array, runs: int, unbiased: bool) -> Array:
  """`independent_errors_variance` from how many runs have each example wrong, (examples,)."""
  examples, wrong = len(wrong), real(wrong)
  pairs = runs * (runs - 1) if unbiased else runs**2
  return ratio((wrong * (runs - wrong)).sum(), pairs * examples**2)


def distribution_variance(errors: Given["runs examples"], unbiased: bool = True) -> Float[Array, ""]:
  """Variance between runs of the error on the whole distribution, of which the examples are a sample:

      σ²_S = n/(n - 1) [ Var_h(err_S(h)) - (1/n²) Σ_i Var_h(err_i(h)) ]

  n is the number of examples. Theorem 2 has population variances over h. `unbiased` takes the ddof = 1
  variance in both places, `test_set_variance` and `independent_errors_variance`, which is unbiased for
  Var_h(err(h)) at any number of runs; otherwise ddof = 0 in both, exactly (R - 1)/R times that. Taking one of
  each would add 1/R of the independent-errors variance. The estimate is signed: where there is little
  variance it is often negative.

  Args:
    errors: (runs, examples), bool or 0/1.
    unbiased: False for the plug-in.

  Returns:
    0-d, in squared fractions; NaN for a single run or a single example.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: jordan2023, theorem 2, equation 3. The sum over pairs of covariances in its appendix B.2 is
  misprinted and twice this.

  >>> E = [[True, False, False, False], [True, True, True, False]]
  >>> print(distribution_variance(E).round(6), distribution_variance(E, unbiased=False).round(6))
  0.083333 0.041667
  """
  errors = read_errors(errors)
  return beyond_independence(test_set_variance(errors), independent_errors_variance(errors), *errors.shape, unbiased)


def beyond_independence(test_set: Array, independent: Array, runs: int, examples: int, unbiased: bool) -> Array:
  """`distribution_variance` from the two variances that it is the difference of, both unbiased."""
  estimate = ratio(examples, examples - 1) * (test_set - independent)
  return namespace(test_set).asarray(estimate if unbiased else estimate * ratio(runs - 1, runs))


def distribution_variance_se(errors: Given["runs examples"]) -> Float[Array, ""]:
  """Standard error over runs of `distribution_variance`: n/(n - 1) S² √(2/(R - 1)), S² the test-set variance.

  It takes the runs' errors as normal and the example rates as known; simulations agree within 7 %. It answers
  how far another R runs on the same examples would move the estimate; the sampling of the examples themselves
  comes on top and cannot be seen from one test set.

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d, in squared fractions; NaN for a single run or a single example.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: ours; jordan2023 gives none.

  >>> print(distribution_variance_se([[True, False, False, False], [True, True, True, False]]).round(6))
  0.235702
  """
  errors = read_errors(errors)
  return standard_error(test_set_variance(errors), *errors.shape)


def standard_error(test_set: Array, runs: int, examples: int) -> Array:
  """`distribution_variance_se` from the test-set variance."""
  spread = ratio(2, max(runs - 1, 0)) ** 0.5 * test_set
  return namespace(test_set).asarray(ratio(examples, examples - 1) * spread)


def halves(errors: Array) -> tuple[Array, Array]:
  """Each run's number of errors among the examples of even and of odd index (from 0)."""
  return count(errors[:, 0::2], axis=1), count(errors[:, 1::2], axis=1)


def split_correlation(errors: Given["runs examples"]) -> Float[Array, ""]:
  """Pearson's correlation over runs between the error on the examples of even and of odd index (from 0).

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d, from -1 to 1; NaN for a single run, a single example, or where a half's error is the same in all
    runs.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: jordan2023, section 3.2, figure 2 (whose R² is the square).

  >>> print(split_correlation([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]]).round(6))
  0.866025
  """
  x, y = halves(read_errors(errors))
  if traced(x):
    return correlation(x, y)
  return correlation_of_sums(len(x), *(int(s.sum()) for s in (x, y, x * x, y * y, x * y)))


def correlation_of_sums(runs: int, x: int, y: int, xx: int, yy: int, xy: int) -> Array:
  """Pearson's r from sums over runs, whole numbers of Python's; NaN where x or y is constant."""
  spread = real(runs * xx - x * x) ** 0.5 * real(runs * yy - y * y) ** 0.5
  return np.asarray(np.clip(ratio(runs * xy - x * y, spread), -1.0, 1.0))


def correlation_p_value(r: Given["..."], runs: int) -> Float[Array, "..."]:
  """Two-sided p-value of a Pearson correlation over R runs: t = r √((R - 2)/(1 - r²)) with R - 2 degrees.

  Args:
    r: correlations, any shape.
    runs: R, over how many runs.

  Returns:
    The shape of r. Two runs give 1, fewer give NaN, and so does a NaN correlation.

  Raises:
    Mistake: r is not between -1 and 1.

  Source: jordan2023, figure 12; no correction for the number of pairs compared.

  >>> print(correlation_p_value(0.5, runs=20).round(4))
  0.0248
  """
  r = within("r", r, -1, 1)
  xp = namespace(r)
  if runs < 3:
    return xp.where(xp.isnan(r) | (runs < 2), xp.nan, 1.0)
  beta = (jax.scipy if xp is jnp else scipy).special.betainc
  # P(|t| > t_0) of Student's t in terms of r alone.
  return xp.asarray(beta(xp.full_like(r, runs / 2 - 1), xp.full_like(r, 0.5), 1 - r**2))


def split_covariance(errors: Given["runs examples"]) -> Float[Array, ""]:
  """Covariance over runs (ddof = 1) between the errors on the examples of even and of odd index (from 0).

  The halves are independent samples of the distribution, so this is unbiased for Var_h(err(h)), the same as
  `distribution_variance`, which uses all pairs of examples and is the less noisy of the two.

  Args:
    errors: (runs, examples), bool or 0/1.

  Returns:
    0-d, in squared fractions, signed; NaN for a single run or a single example.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values.

  Source: jordan2023, section 3.2.

  >>> print(split_covariance([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]]))
  0.125
  """
  errors = read_errors(errors)
  examples = errors.shape[1]
  return ratio(_covariance(*halves(errors)), (examples // 2) * ((examples + 1) // 2))


def top_fraction_gain(errors: Given["runs examples"], fraction: float = 0.25) -> TopFractionGain:
  """Accuracy on one half of the examples gained by taking the best runs of the other half.

      gain = mean accuracy there of the max(1, ⌊fraction R⌋) runs best here - mean accuracy there of all R

  Halves are the examples of even and of odd index (from 0); the paper does not say which half selects, so
  both are given. Runs tied at the cut share the places left, so the order of the runs does not matter.

  Args:
    errors: (runs, examples), bool or 0/1.
    fraction: of the runs taken, above 0 and at most 1.

  Returns:
    `even_to_odd` (selected on even, measured on odd), `odd_to_even` and their `mean`, 0-d, as fractions of
    accuracy; 0 for a single run, NaN for a single example or no run.

  Raises:
    Mistake: errors is not (runs, examples), or holds other values; fraction out of range.

  Source: jordan2023, section 3.2 (the top quarter).

  >>> gain = top_fraction_gain([[0, 0, 0, 1], [1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]])
  >>> print(gain.even_to_odd, gain.odd_to_even, gain.mean)
  0.375 0.5 0.4375
  """
  errors = read_errors(errors)
  runs, examples = errors.shape
  top = top_runs(fraction, runs)
  even, odd = even_there, odd_there = halves(errors)
  if traced(errors):
    # Float32 holds the differences from one run better, and they have the same gain.
    even_there, odd_there = even - even[:1], odd - odd[:1]
  by_even = errors_by_count(even, odd_there, (examples + 1) // 2)
  by_odd = errors_by_count(odd, even_there, examples // 2)
  return gain_of_counts(by_even, by_odd, examples, top)


def top_runs(fraction: float, runs: int) -> int:
  if not 0 < fraction <= 1:
    raise Mistake(f"fraction is {fraction!r}: give a number above 0 and at most 1")
  # The hair keeps 0.29 of 100 at 29, though 0.29 * 100 < 29 in floating point.
  return max(1, math.floor(fraction * runs + 1e-9))


def errors_by_count(here: Array, there: Array, most: int) -> Array:
  """How many runs make 0, 1, ..., `most` errors here, and how many errors they make there, (2, most + 1)."""
  if traced(here, there):
    nothing = jnp.zeros(most + 1, here.dtype)
    return jnp.stack([nothing.at[here].add(1), nothing.at[here].add(there)])
  # Float64 holds the sums exactly.
  return np.stack([np.bincount(here, weights, most + 1).astype(np.int64) for weights in (None, there)])


def gain_of_counts(by_even: Array, by_odd: Array, examples: int, top: int) -> TopFractionGain:
  """`top_fraction_gain` of the `top` runs from `errors_by_count` of each half, with the errors on the other."""
  forward = ratio(_gain(*by_even, top), examples // 2)
  back = ratio(_gain(*by_odd, top), (examples + 1) // 2)
  return TopFractionGain(forward, back, namespace(forward).asarray((forward + back) / 2))


def _gain(runs_at: Array, errors_at: Array, top: int) -> Array:
  """How many errors there the `top` runs with the fewest here save against the mean run."""
  xp = namespace(runs_at)
  runs_at, errors_at = real(runs_at), real(errors_at)
  before = xp.cumsum(runs_at) - runs_at
  share = xp.clip(top - before, 0, runs_at) / xp.maximum(runs_at, 1)
  excess = errors_at - runs_at * ratio(errors_at.sum(), runs_at.sum())
  return 0.0 - ratio((share * excess).sum(), top)


def binomial_variance(error: Given["..."], n: Given["..."]) -> Float[Array, "..."]:
  """Variance of the test-set error if every example had the same error rate: err (1 - err)/n.

  Args:
    error: error rates, any shape, fractions.
    n: the number of examples, a number or an array.

  Returns:
    Their common shape, in squared fractions; NaN where error is.

  Raises:
    Mistake: an error outside 0 to 1, or n not above 0.

  Source: jordan2023, section 3.2 and figure 14 (figure 13 of the preprint).

  >>> print(binomial_variance(0.5, 100))
  0.0025
  """
  error = within("error", error, 0, 1)
  return ratio(error * (1 - error), positive("n", n))


def calibration_variance(error: Given["..."], n: Given["..."]) -> Float[Array, "..."]:
  """Variance of the test-set error of a class-wise calibrated binary classifier without variance between runs
  on the distribution: err/(2n).

  Theorem 3 adds (1 - 1/n) Var_h(err(h)). It holds for two classes only.

  Args:
    error: error rates, any shape, fractions.
    n: the number of examples, a number or an array.

  Returns:
    Their common shape, in squared fractions; NaN where error is.

  Raises:
    Mistake: an error outside 0 to 1, or n not above 0.

  Source: jordan2023, equation 6.

  >>> print(calibration_variance(0.5, 100))
  0.0025
  """
  return calibration_variance_bound(error, n, num_classes=2)


def calibration_variance_bound(
  error: Given["..."], n: Given["..."], num_classes: Given["..."]
) -> Float[Array, "..."]:
  """Least variance of the test-set error of a class-wise calibrated classifier of k classes: err/(n k).

  It bounds the mean over test sets of the variance; on a single test set, or without calibration, the
  variance may be less.

  Args:
    error: error rates, any shape, fractions.
    n: the number of examples, a number or an array.
    num_classes: k, a number or an array.

  Returns:
    Their common shape, in squared fractions; NaN where error is.

  Raises:
    Mistake: an error outside 0 to 1, or n or num_classes not above 0.

  Source: jordan2023, theorem 4, equation 7.

  >>> print(calibration_variance_bound(0.5, 100, num_classes=10))
  0.0005
  """
  error, n = within("error", error, 0, 1), positive("n", n)
  return ratio(error, n * positive("num_classes", num_classes))


def poisson_binomial_pmf(rates: Given["examples"]) -> Float[Array, "events"]:
  """Law of the number of errors when example i goes wrong with probability ε_i = rates[i], independently.

  P(k of the first i + 1) = (1 - ε_i) P(k of the first i) + ε_i P(k - 1 of the first i). All terms are
  positive, so nothing cancels. Takes n² additions.

  Args:
    rates: (examples,), probabilities, for example `example_error_rates(errors)`.

  Returns:
    (events,) = (examples + 1,), the probability of 0, 1, ..., n errors; [1.] for no examples.

  Raises:
    Mistake: rates is not (examples,), or a rate is NaN or outside 0 to 1.

  Source: jordan2023, section 3.3, which simulates it; this is exact.

  >>> poisson_binomial_pmf([0.5, 0.5, 1.0])
  array([0.  , 0.25, 0.5 , 0.25])
  """
  rates = within("rates", read("rates", rates, "examples"), 0, 1)
  if not traced(rates) and np.isnan(rates).any():
    raise Mistake(f"rates is nan at example {int(np.isnan(rates).argmax())}: give probabilities")
  if traced(rates):
    start = jnp.zeros(len(rates) + 1, rates.dtype).at[0].set(1)
    # The last entry stays 0 until the last step, so that rolling brings no probability to the front.
    return jax.lax.scan(lambda pmf, p: (pmf * (1 - p) + jnp.roll(pmf, 1) * p, None), start, rates)[0]
  pmf = np.zeros(len(rates) + 1)
  pmf[0] = 1
  for i, p in enumerate(rates):
    head = pmf[: i + 1] * p
    pmf[: i + 1] *= 1 - p
    pmf[1 : i + 2] += head
  return pmf


def dependent_pairs(errors: Given["runs examples"], threshold: float = 0.02) -> DependentPairs:
  """Pairs of examples whose being right is far from independent over the runs.

      |P(C_i, C_j) - P(C_i) P(C_j)| > threshold

  C_i: the run has example i right (not wrong). P is the fraction of the runs, so a pair's deviation has a
  standard deviation of up to 0.25/√R by chance alone: of 10,000 examples' 5·10⁷ independent pairs about
  20,000 pass 0.02 at 500 runs, and none is expected to only from about 3,000 runs on. Counts are compared
  exactly, block by block of examples. Not under `jit`: the number of pairs depends on the values.

  Args:
    errors: (runs, examples), bool or 0/1.
    threshold: an absolute difference of probabilities, 0 or more; pairs exactly at it are left out.

  Returns:
    `i` < `j` (from 0, in order), `joint` = P(C_i, C_j) and `product` = P(C_i) P(C_j), (pairs,) each. Empty
    for a single run or a single example.

  Raises:
    Mistake: errors is not (runs, examples), holds other values, is traced, or has 2^24 runs or more.

  Source: jordan2023, section 3.3, figures 4 and 14.

  >>> pairs = dependent_pairs([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
  >>> print(pairs.i, pairs.j, pairs.joint, pairs.product)
  [0] [1] [0.5] [0.25]
  """
  errors = read_errors(errors)
  runs, examples = errors.shape
  if traced(errors):
    raise Mistake("errors is traced: call dependent_pairs outside jit, its number of pairs depends on values")
  if runs >= 2**24:
    raise Mistake(f"errors has {runs} runs: float32 products count exactly up to {2**24 - 1}, give fewer")
  right = runs - count(errors, axis=0)
  return pairs_of_counts(lambda i, j: _product(_right(errors[:, i]), _right(errors[:, j])), right, runs, threshold)


def pairs_of_counts(
  both_right: Callable[[slice, slice], np.ndarray], right: np.ndarray, runs: int, threshold: float
) -> DependentPairs:
  """`dependent_pairs` from how many runs have each example right, (examples,), and each two of them.

  Args:
    both_right: the counts of all pairs of an example of one slice and one of another, int64.
  """
  if not threshold >= 0:
    raise Mistake(f"threshold is {threshold!r}: give a number of at least 0")
  found = []
  for i in range(0, len(right), _BLOCK):
    for j in range(i, len(right), _BLOCK):
      rows, columns = slice(i, i + _BLOCK), slice(j, j + _BLOCK)
      both = both_right(rows, columns)
      expected = right[rows, None] * right[None, columns]
      far = np.abs(runs * both - expected) > threshold * runs**2
      if i == j:
        far = np.triu(far, 1)
      a, b = np.nonzero(far)
      found.append((a + i, b + j, both[far], expected[far]))
  if not found:
    found = [(np.zeros(0, np.int64),) * 4]
  i, j, both, expected = map(np.concatenate, zip(*found, strict=True))
  order = np.lexsort((j, i))
  return DependentPairs(i[order], j[order], ratio(both[order], runs), ratio(expected[order], runs**2))


def _right(errors: Array) -> Array:
  return (errors == 0).astype(np.float32)


def _product(a: Array, b: Array) -> np.ndarray:
  """aᵀ b, in which float32 holds every count below 2^24 exactly."""
  if isinstance(a, jax.Array):
    return np.asarray(jnp.matmul(a.T, b, precision="highest")).astype(np.int64)
  return (a.T @ b).astype(np.int64)
