"""What theory says of the variance of errors between runs (Jordan 2024, sections 3.2 to
3.4): predictions from the mean error alone.
"""

from jaxtyping import Float

from vmapseeds.stats._arrays import Array, Given, safe_divide
from vmapseeds.stats.reading import read_positive, read_within


def binomial_variance(error: Given["..."], n: Given["..."]) -> Float[Array, "..."]:
  """Return the variance of the test-set error if every example had the same error rate:
  err (1 - err)/n.

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
  n = read_positive("n", n)
  return safe_divide(error * (1 - error), n)


def calibration_variance_bound(
  error: Given["..."],
  n: Given["..."],
  num_classes: Given["..."],
) -> Float[Array, "..."]:
  """Return the least variance of the test-set error of a class-wise calibrated
  classifier of k classes: err/(n k).

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
  error = read_within("error", error, "[0, 1]", nan=True)
  n = read_positive("n", n)
  num_classes = read_positive("num_classes", num_classes)
  return safe_divide(error, n * num_classes)
