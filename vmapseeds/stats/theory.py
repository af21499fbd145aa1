"""What theory says of the variance of errors between runs (Jordan 2024, sections 3.2 to
3.4), and how well it fits.

Predictions from the mean error alone, and the law of the number of errors if examples
go wrong independently.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vmapseeds.stats._arrays import Array, Given, centred, correlation, ratio
from vmapseeds.stats.reading import read_positive, read_reals, read_series, read_within


class VarianceFit(NamedTuple):
  """How well predicted variances fit observed ones over many tasks. `r_squared` is the
  squared Pearson correlation, `identity_r_squared` 1 - SS_res/SS_tot about the line
  observed = predicted.
  """

  r_squared: Float[Array, ""]
  r_squared_sd: Float[Array, ""]
  identity_r_squared: Float[Array, ""]
  identity_r_squared_sd: Float[Array, ""]
  mean_squared_error: Float[Array, ""]


def binomial_variance(error: Given["..."], n: Given["..."]) -> Float[Array, "..."]:
  """Variance of the test-set error if every example had the same error rate: err (1 -
  err)/n.

  Args:
    error: error rates, any shape, fractions.
    n: the number of examples, a number or an array.

  Returns:
    The arguments' broadcast shape, in squared fractions; NaN where error is.

  Source: jordan2024, section 3.2 and figure 13.

  >>> print(binomial_variance(0.5, 100))
  0.0025
  """
  error = read_within("error", error, "[0, 1]", nan=True)
  return ratio(error * (1 - error), read_positive("n", n))


def calibration_variance(error: Given["..."], n: Given["..."]) -> Float[Array, "..."]:
  """Variance of the test-set error of a class-wise calibrated binary classifier without
  variance between runs
  on the distribution: err/(2n).

  Theorem 3 adds (1 - 1/n) Var_h(err(h)). It holds for two classes only.

  Args:
    error: error rates, any shape, fractions.
    n: the number of examples, a number or an array.

  Returns:
    The arguments' broadcast shape, in squared fractions; NaN where error is.

  Source: jordan2024, equation 6.

  >>> print(calibration_variance(0.5, 100))
  0.0025
  """
  return calibration_variance_bound(error, n, num_classes=2)


def calibration_variance_bound(
  error: Given["..."], n: Given["..."], num_classes: Given["..."]
) -> Float[Array, "..."]:
  """Least variance of the test-set error of a class-wise calibrated classifier of k
  classes: err/(n k).

  It bounds the mean over test sets of the variance; on a single test set, or without
  calibration, the variance may be less.

  Args:
    error: error rates, any shape, fractions.
    n: the number of examples, a number or an array.
    num_classes: k, a number or an array.

  Returns:
    The arguments' broadcast shape, in squared fractions; NaN where error is.

  Source: jordan2024, theorem 4, equation 7.

  >>> print(calibration_variance_bound(0.5, 100, num_classes=10))
  0.0005
  """
  error, n = read_within("error", error, "[0, 1]", nan=True), read_positive("n", n)
  return ratio(error, n * read_positive("num_classes", num_classes))


def variance_fit(observed: Given["tasks"], predicted: Given["tasks"]) -> VarianceFit:
  """How well a formula predicts the variance between runs over many tasks: on
  variances, and on their square roots.

      R² = Pearson's r², how well the best line fits R² about y = x: 1 - Σ (observed -
      predicted)² / Σ (observed - mean)², which a wrong scale lowers
      mean squared error: the mean over tasks of (observed - predicted)², of variances

  The paper does not say which R² it gives or on which axis, so all four are given. The
  ratio of two formulas' mean squared errors says how many times closer one comes than
  the other. An observed variance is known to ±√(2/(R - 1)) of itself after R runs,
  which keeps even the truth from fitting perfectly.

  Args:
    observed: (tasks,), variances, for example `test_set_variance` of each task; 0 or
      more.
    predicted: (tasks,), variances, for example `calibration_variance` of each task's
      mean error; 0 or more.

  Returns:
    `r_squared` and `identity_r_squared`, `r_squared_sd` and `identity_r_squared_sd` of
    the square roots, and `mean_squared_error`, in fractions to the fourth power. R² are
    NaN for fewer than two tasks or a constant observed series, Pearson's also for a
    constant prediction; all are NaN without tasks.

  Source: jordan2024, section 3.4 and figure 6, which has R² = 0.996 and a ratio of
    70.5.

  >>> observed, predicted = [0.01, 0.02, 0.04], [0.02, 0.04, 0.08]
  >>> fit = variance_fit(observed, predicted)
  >>> print(fit.r_squared.round(6), fit.identity_r_squared.round(6), fit.mean_squared_error.round(6))
  1.0 -3.5 0.0007
  """
  x, y = read_series("tasks", observed=observed, predicted=predicted)
  read_within("observed", x, "[0, inf]")
  read_within("predicted", y, "[0, inf]")
  of_sd = np.sqrt(x), np.sqrt(y)
  return VarianceFit(
    r_squared=np.asarray(correlation(x, y) ** 2),
    r_squared_sd=np.asarray(correlation(*of_sd) ** 2),
    identity_r_squared=identity_r_squared(x, y),
    identity_r_squared_sd=identity_r_squared(*of_sd),
    mean_squared_error=ratio(((x - y) ** 2).sum(), len(x)),
  )


def identity_r_squared(observed: Array, predicted: Array) -> Array:
  """R² of the line observed = predicted."""
  return np.asarray(
    1 - ratio(((observed - predicted) ** 2).sum(), (centred(observed) ** 2).sum())
  )


def poisson_binomial_pmf(rates: Given["examples"]) -> Float[Array, "events"]:
  """Law of the number of errors when example i goes wrong with probability ε_i =
  rates[i], independently.

  P(k of the first i + 1) = (1 - ε_i) P(k of the first i) + ε_i P(k - 1 of the first i).
  All terms are positive, so nothing cancels. Takes n² additions.

  Args:
    rates: (examples,), probabilities, for example `example_error_rates(errors)`.

  Returns:
    (events,) = (examples + 1,), the probability of 0, 1, ..., n errors; [1.] for no
    examples.

  Source: jordan2024, section 3.2, which simulates it; this is exact.

  >>> poisson_binomial_pmf([0.5, 0.5, 1.0])
  array([0.  , 0.25, 0.5 , 0.25])
  """
  rates = read_within("rates", read_reals("rates", rates, "examples"), "[0, 1]")
  pmf = np.zeros(len(rates) + 1)
  pmf[0] = 1
  for i, p in enumerate(rates):
    head = pmf[: i + 1] * p
    pmf[: i + 1] *= 1 - p
    pmf[1 : i + 2] += head
  return pmf
