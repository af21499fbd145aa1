"""Laws and fits of the variance between runs over many tasks, and correlations across
test sets (Jordan 2024).
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vmapseeds.errors import UserError
from vmapseeds.stats import calibration_variance_bound, correlation_p_value
from vmapseeds.stats._arrays import Array, Given, centred, correlation, safe_divide
from vmapseeds.stats.counting import count_errors
from vmapseeds.stats.reading import read_errors, read_reals, read_series, read_within


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


def variance_fit(observed: Given["tasks"], predicted: Given["tasks"]) -> VarianceFit:
  """Return how well a formula predicts the variance between runs over many tasks: on
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
  sd_x = np.sqrt(x)
  sd_y = np.sqrt(y)
  squared_errors = (x - y) ** 2
  return VarianceFit(
    r_squared=np.asarray(correlation(x, y) ** 2),
    r_squared_sd=np.asarray(correlation(sd_x, sd_y) ** 2),
    identity_r_squared=identity_r_squared(x, y),
    identity_r_squared_sd=identity_r_squared(sd_x, sd_y),
    mean_squared_error=safe_divide(squared_errors.sum(), len(x)),
  )


def identity_r_squared(observed: Array, predicted: Array) -> Array:
  """Return R² of the line observed = predicted."""
  residual = ((observed - predicted) ** 2).sum()
  total = (centred(observed) ** 2).sum()
  return np.asarray(1 - safe_divide(residual, total))


def poisson_binomial_pmf(rates: Given["examples"]) -> Float[Array, "events"]:
  """Return the law of the number of errors when example i goes wrong with probability
  ε_i = rates[i], independently.

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
  # After i examples, i + 1 numbers of errors are possible.
  for i, rate in enumerate(rates):
    one_more = pmf[: i + 1] * rate
    pmf[: i + 1] *= 1 - rate
    pmf[1 : i + 2] += one_more
  return pmf


class TestSetCorrelations(NamedTuple):
  """Pearson's correlation of every two of some series over the same runs, its square,
  and the two-sided p-value.
  """

  r: Float[Array, "series series"]
  r_squared: Float[Array, "series series"]
  p_value: Float[Array, "series series"]


def test_set_correlations(
  errors: Mapping[str, Given["runs examples"]] | Given["sets runs examples"],
) -> TestSetCorrelations:
  """Return the correlations over runs between the errors on several test sets: is a run
  that is good on one good on another?

      r_kl = Pearson's correlation over runs of err_{S_k}(h) and err_{S_l}(h)

  p-values are two-sided, of Student's t with R - 2 degrees of freedom, for each pair
  alone: among k uncorrelated test sets, about 0.05 k (k - 1)/2 pairs have a p-value
  below 0.05.

  Args:
    errors: by name or in order, the errors (runs, examples) of the same runs in the
      same order on each test set, bool or 0/1; the numbers of examples may differ.

  Returns:
    `r`, `r_squared` and `p_value`, (sets, sets) each, in the order given, symmetric.
    NaN for fewer than two runs and for a test set on which all runs have the same
    error; two runs have p-values of 1.

  Source: jordan2024, appendix C and figure 12: 5 test sets, not corrected for 10 pairs.

  >>> found = test_set_correlations({"photo": [[1, 0], [0, 0], [1, 1]], "sketch": [[0, 1, 1], [0, 0, 1], [0, 1, 1]]})
  >>> print(found.r_squared.round(2)[0, 1], found.p_value.round(2)[0, 1])
  0.75 0.33
  """
  named = errors
  if not isinstance(errors, Mapping):
    named = dict(enumerate(errors))
  runs = {}
  wrong = []
  for name, array in named.items():
    of_set = read_errors(array, what=f"errors[{name!r}]")
    runs[name] = len(of_set)
    wrong.append(count_errors(of_set, axis=1))
  if len(set(runs.values())) != 1:
    listed = "no test set"
    if runs:
      listed = ", ".join(f"{runs_on} on {name}" for name, runs_on in runs.items())
    raise UserError(f"errors of {listed}: give the same runs on every test set")
  counts = np.stack(wrong, axis=1)
  r = correlation(counts[:, :, None], counts[:, None, :])
  p_value = correlation_p_value(r, len(counts))
  return TestSetCorrelations(r, r**2, p_value)


# Otherwise pytest would collect this function wherever it is imported, as its name is
# test_*.
vars(test_set_correlations)["__test__"] = False


def calibration_variance(error: Given["..."], n: Given["..."]) -> Float[Array, "..."]:
  """Return the variance of the test-set error of a class-wise calibrated binary
  classifier without variance between runs on the distribution: err/(2n).

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
