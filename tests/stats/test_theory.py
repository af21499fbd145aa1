import itertools
import math

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from experiments import measures
from vmapseeds import UserError, stats


def test_predictions_of_the_variance():
  error, n = np.array([0.0, 0.1, 0.5]), np.array([10, 100, 1000])
  np.testing.assert_allclose(
    stats.binomial_variance(error, n), scipy.stats.binom.var(n, error) / n**2
  )
  np.testing.assert_allclose(
    measures.calibration_variance(error, n), [0, 0.0005, 0.00025]
  )
  np.testing.assert_allclose(
    stats.calibration_variance_bound(error, n, 10), [0, 0.0001, 0.00005]
  )
  assert np.isnan(stats.binomial_variance(np.nan, 10))


def test_equation_6_is_half_the_self_pair_disagreement():
  """For two classes Σ ε(1 - ε)/n² is Dis/(2n) with self pairs, identically."""
  errors = np.random.default_rng(0).uniform(size=(7, 11)) < np.linspace(0, 1, 11)
  disagreement = stats.expected_disagreement(errors.astype(int), 2, self_pairs=True)
  independent = stats.independent_errors_variance(errors, unbiased=False)
  np.testing.assert_allclose(
    measures.calibration_variance(disagreement, 11), independent, rtol=1e-12
  )


def test_poisson_binomial_equals_enumeration():
  rates = [0.1, 0.7, 0.0, 1.0, 0.35, 0.5]
  pmf = np.zeros(7)
  for outcome in itertools.product([0, 1], repeat=6):
    pmf[sum(outcome)] += math.prod(
      p if o else 1 - p for p, o in zip(rates, outcome, strict=True)
    )
  np.testing.assert_allclose(
    measures.poisson_binomial_pmf(rates), pmf, rtol=1e-12, atol=1e-18
  )
  equal = measures.poisson_binomial_pmf(np.full(300, 0.3))
  np.testing.assert_allclose(
    equal, scipy.stats.binom.pmf(np.arange(301), 300, 0.3), rtol=1e-9, atol=1e-300
  )
  np.testing.assert_array_equal(measures.poisson_binomial_pmf([]), [1])


def test_theorem_3_over_all_test_sets_of_a_calibrated_law():
  """Four networks, two classes. Among the examples that a share q of the networks calls
  1, a share q has label 1.
  """
  one_of_four, two_of_four = [1, 0, 0, 0], [1, 0, 1, 0]
  predictions = np.array([one_of_four] * 4 + [two_of_four] * 2).T
  labels = np.array([1, 0, 0, 0, 1, 0])
  errors = predictions != labels
  error = errors.mean()
  genuine = errors.mean(1).var()
  assert genuine > 0
  for n in (1, 2, 3):
    sets = np.array(list(itertools.product(range(6), repeat=n)))
    mean = np.mean([errors[:, S].mean(1).var() for S in sets])
    predicted = measures.calibration_variance(error, n) + (1 - 1 / n) * genuine
    assert mean == pytest.approx(predicted, rel=1e-12)
    assert mean != pytest.approx(
      stats.binomial_variance(error, n) + (1 - 1 / n) * genuine
    )


OBSERVED = np.array([1.0, 4.0, 2.0, 7.0, 0.0]) * 1e-5
PREDICTED = np.array([2.0, 3.0, 2.5, 9.0, 0.5]) * 1e-5


def test_variance_fit_equals_scikit_learn_and_scipy():
  fit = measures.variance_fit(OBSERVED, PREDICTED)
  sd, predicted_sd = OBSERVED**0.5, PREDICTED**0.5
  r2 = sklearn.metrics.r2_score
  expected = [
    scipy.stats.pearsonr(OBSERVED, PREDICTED)[0] ** 2,
    scipy.stats.pearsonr(sd, predicted_sd)[0] ** 2,
    r2(OBSERVED, PREDICTED),
    r2(sd, predicted_sd),
    sklearn.metrics.mean_squared_error(OBSERVED, PREDICTED),
  ]
  np.testing.assert_allclose(fit, expected, rtol=1e-12)
  assert len(set(np.round(expected, 6))) == 5  # the inputs tell all five apart


def test_variance_fit_of_another_unit():
  fit, other = (
    measures.variance_fit(OBSERVED, PREDICTED),
    measures.variance_fit(1e4 * OBSERVED, 1e4 * PREDICTED),
  )
  np.testing.assert_allclose(other[:4], fit[:4], rtol=1e-12)
  assert other.mean_squared_error == pytest.approx(1e8 * fit.mean_squared_error)
  # Pearson's correlation does not see a wrong scale.
  half = measures.variance_fit(OBSERVED, PREDICTED / 2)
  assert half.r_squared == pytest.approx(fit.r_squared)
  assert half.identity_r_squared != pytest.approx(fit.identity_r_squared)


def test_variance_fit_at_the_ends():
  perfect = measures.variance_fit(OBSERVED, OBSERVED)
  np.testing.assert_allclose(perfect, [1, 1, 1, 1, 0], atol=1e-15)
  one = measures.variance_fit([2.0], [3.0])
  np.testing.assert_array_equal(one, [np.nan] * 4 + [1])
  constant = measures.variance_fit(OBSERVED, np.full(5, OBSERVED.mean()))
  assert np.isnan(constant.r_squared)
  assert constant.identity_r_squared == pytest.approx(0)
  assert np.isnan(measures.variance_fit([1.0, 1.0], [1.0, 2.0]).identity_r_squared)
  assert np.isnan(measures.variance_fit([], [])).all()


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.binomial_variance(1.5, 10),
      "error is 1.5: give a number of at least 0 and at most 1",
    ),
    (lambda: stats.binomial_variance([0.5, -0.25], 10), "error is -0.25"),
    (
      lambda: stats.binomial_variance([[0.5], [0.5, 0.1]], 10),
      r"error is \[\[0.5\], \[0.5, 0.1\]\]: give numbers",
    ),
    (lambda: measures.calibration_variance(0.5, 0), "n is 0: give a number above 0"),
    (
      lambda: stats.calibration_variance_bound(0.5, 9, -2),
      "num_classes is -2: give a number above 0",
    ),
    (lambda: measures.poisson_binomial_pmf([0.5, np.nan]), "rates is nan at example 1"),
    (
      lambda: measures.poisson_binomial_pmf([0.5, 2]),
      "rates is 2: give a number of at least 0 and at most 1",
    ),
    (
      lambda: measures.poisson_binomial_pmf([[0.5]]),
      r"rates has shape \(1, 1\): give \(examples,\)",
    ),
    (
      lambda: measures.variance_fit([0.1, 0.2], [0.1]),
      r"observed of shape \(2,\) and predicted of shape \(1,\): give series of one length",
    ),
    (
      lambda: measures.variance_fit([0.1, -0.2], [0.1, 0.2]),
      "observed is -0.2: give a number of at least 0$",
    ),
    (
      lambda: measures.variance_fit([0.1, 0.2], [0.1, np.nan]),
      "predicted is nan at task 1",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
