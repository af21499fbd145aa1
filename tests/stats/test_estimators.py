"""Ideal and biased estimators against loops and simulations."""

import itertools

import numpy as np
import pytest
import scipy.stats

from experiments import measures
from vmapseeds import UserError, stats


def test_estimates():
  x = np.random.default_rng(0).normal(0.9, 0.01, 7)
  ideal, biased = stats.mean_over_runs(x), measures.biased_estimate(x, 0.3)
  np.testing.assert_allclose(
    [ideal.value, ideal.se], [x.mean(), scipy.stats.sem(x)], rtol=1e-10
  )
  assert biased.value == pytest.approx(ideal.value, rel=1e-12)
  total = x.var(ddof=1) / 0.7
  assert biased.se == pytest.approx((total / 7 + 6 / 7 * 0.3 * total) ** 0.5)


def test_estimates_of_little():
  for estimate in (stats.mean_over_runs([0.5]), measures.biased_estimate([0.5], 0.2)):
    assert estimate.value == 0.5
    assert np.isnan([estimate.se, *estimate.interval]).all()
  for none in (stats.mean_over_runs([]), measures.biased_estimate([], 0.2)):
    assert np.isnan([none.value, none.se, *none.interval]).all()
  assert stats.mean_over_runs([0.1, 0.1, 0.1]).se == 0


@pytest.mark.slow
def test_biased_standard_error_is_that_of_repetitions():
  """Its square is unbiased for the estimator's variance between repetitions; s²/k is
  far too small.
  """
  rng, rho, k = np.random.default_rng(1), 0.4, 5
  x = rng.normal(0, rho**0.5, (2_500, 1)) + rng.normal(0, (1 - rho) ** 0.5, (2_500, k))
  squares = np.array([measures.biased_estimate(row, rho).se for row in x]) ** 2
  expected = measures.estimator_se(k, 1.0, rho) ** 2
  assert abs(squares.mean() - expected) < 3 * squares.std() / 50
  assert x.mean(1).var() == pytest.approx(expected, rel=3 * (2 / 2_500) ** 0.5)
  assert (x.var(1, ddof=1) / k).mean() < 0.4 * expected


def test_equation_7_as_a_curve():
  k = np.array([1, 2, 10, 100])
  curve = measures.estimator_se(k, 4.0, 0.25)
  # The variance of the mean of k equally correlated measures, from their whole
  # covariance matrix.
  slow = [np.sqrt((4 * (0.75 * np.eye(n) + 0.25)).sum() / n**2) for n in k]
  np.testing.assert_allclose(curve, slow, rtol=1e-12)
  np.testing.assert_allclose(measures.estimator_se(k, 4.0), 2 / np.sqrt(k), rtol=1e-12)
  np.testing.assert_allclose(
    measures.estimator_se(measures.equivalent_ideal_size(k, 0.25), 4.0),
    curve,
    rtol=1e-12,
  )
  np.testing.assert_allclose(
    measures.equivalent_ideal_size([7, np.inf], 0.0), [7, np.inf]
  )
  assert measures.equivalent_ideal_size(np.inf, 0.5) == 2
  np.testing.assert_allclose(measures.estimator_se(np.inf, 4.0, [0.25, 0.0]), [1, 0])
  assert measures.estimator_se(3, 0.0, 0.5) == 0


def test_normality():
  x = np.random.default_rng(2).normal(size=40)
  np.testing.assert_allclose(stats.normality(x), scipy.stats.shapiro(x), rtol=1e-12)
  assert stats.normality(x).p_value > 0.05
  assert stats.normality(np.exp(2 * x)).p_value < 1e-4
  for little in ([], [1.0], [1.0, 2.0], [0.1] * 5):
    assert np.isnan(stats.normality(little)).all()
  # SciPy warns about more than 5,000 values; our docstring says so instead.
  assert stats.normality(np.random.default_rng(3).normal(size=5001)).statistic > 0.99


def slow_correlation(x):
  """Fisher's intraclass correlation: the mean product of two values of a row, measured
  from the mean of all.
  """
  mean, k = x.mean(), x.shape[1]
  products = [
    (row[i] - mean) * (row[j] - mean)
    for row in x
    for i, j in itertools.permutations(range(k), 2)
  ]
  return np.mean(products) / np.mean((x - mean) ** 2)


@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (3, 7)])
def test_average_correlation_and_equation_7(shape):
  rng = np.random.default_rng(sum(shape))
  x = rng.normal(size=shape) + rng.normal(0, 2, (shape[0], 1))
  k = shape[1]
  rho = measures.average_correlation(x)
  np.testing.assert_allclose(rho, slow_correlation(x), rtol=1e-10)
  parts = measures.mse_decomposition(x, 0.3)
  V = x.var()
  np.testing.assert_allclose(V / k + (k - 1) / k * rho * V, x.mean(1).var(), rtol=1e-10)
  np.testing.assert_allclose(parts.mse, ((x.mean(1) - 0.3) ** 2).mean(), rtol=1e-12)
  np.testing.assert_allclose(parts.bias, x.mean() - 0.3, rtol=1e-10)
  np.testing.assert_allclose(parts.variance, x.mean(1).var(), rtol=1e-12)
  np.testing.assert_allclose(parts.total_variance, V, rtol=1e-12)
  np.testing.assert_allclose(parts.correlation, rho, rtol=1e-12)
  np.testing.assert_allclose(parts.mse, parts.variance + parts.bias**2, rtol=1e-12)


def test_average_correlation_on_little():
  for x in (
    [[1.0, 2.0]],
    [[1.0], [2.0]],
    [[0.1, 0.1], [0.1, 0.1]],
    np.zeros((0, 2)),
    np.zeros((2, 0)),
  ):
    assert np.isnan(measures.average_correlation(x))
  one = measures.mse_decomposition([[1.0, 2.0]], 1.0)
  assert (one.variance, one.bias, one.mse) == (0, 0.5, 0.25)
  assert np.isnan(one.correlation)
  assert measures.mse_decomposition([[0.1, 0.2, 0.4]], 0.9).variance == 0
  assert np.isnan(measures.mse_decomposition(np.zeros((2, 0)), 0)).all()


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: measures.average_correlation([1.0]),
      r"performances has shape \(1,\): give \(repetitions, k\)",
    ),
    (
      lambda: measures.mse_decomposition([[1.0, np.inf]], 0),
      "performances is inf at repetition 0, k 1",
    ),
    (
      lambda: measures.mse_decomposition([[1.0]], [0, 1]),
      r"truth is \[0, 1\]: give a number",
    ),
    (
      lambda: measures.mse_decomposition([[1.0]], np.nan),
      "truth is nan: give a number that is finite",
    ),
    (
      lambda: stats.mean_over_runs([[1.0]]),
      r"values has shape \(1, 1\): give \(runs,\)",
    ),
    (
      lambda: measures.biased_estimate([1.0], 1.0),
      "correlation is 1: give a number of at least 0 and below 1",
    ),
    (lambda: measures.estimator_se(0, 1.0), "k is 0: give a number above 0"),
    (lambda: measures.estimator_se(1, -1.0), "variance is -1"),
    (
      lambda: measures.equivalent_ideal_size(1, -0.1),
      "correlation is -0.1: give a number of at least 0 and below 1",
    ),
    (lambda: stats.normality([1.0, np.nan, 2.0]), "performances is nan at run 1"),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
