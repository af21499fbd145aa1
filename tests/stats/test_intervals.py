"""Intervals and standard errors against SciPy, leave-one-out loops and simulated campaigns."""

import jax
import numpy as np
import pytest
import scipy.stats

from vmapseeds import stats
from vmapseeds.errors import Mistake

RNG = np.random.default_rng(5)
ERRORS = RNG.random((9, 31)) < np.clip(RNG.beta(0.5, 1.5, 31) + 0.1 * RNG.standard_normal((9, 1)), 0, 1)
LABELS = RNG.integers(0, 3, 31)
PREDICTIONS = np.where(ERRORS, (LABELS + RNG.integers(1, 3, ERRORS.shape)) % 3, LABELS)
PREDICTIONS[2, 5] = -1


def jackknife(statistic, *arrays):
  """Over the runs of the first array, the others going along."""
  runs = len(arrays[0])
  left = np.array([statistic(np.delete(arrays[0], r, axis=0), *arrays[1:]) for r in range(runs)])
  return np.sqrt((runs - 1) / runs * ((left - left.mean()) ** 2).sum())


def test_standard_errors_are_those_of_leaving_runs_out():
  signed_gap = lambda p: (p != LABELS).mean() - stats.expected_disagreement(p, 3)  # noqa: E731
  assert stats.independent_errors_variance_se(ERRORS) == pytest.approx(
    jackknife(stats.independent_errors_variance, ERRORS)
  )
  assert stats.expected_disagreement_se(PREDICTIONS, 3) == pytest.approx(
    jackknife(lambda p: stats.expected_disagreement(p, 3), PREDICTIONS)
  )
  assert stats.gde_gap_se(PREDICTIONS, LABELS, 3) == pytest.approx(jackknife(signed_gap, PREDICTIONS))


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_too_few_runs_for_a_jackknife(runs):
  assert np.isnan(stats.independent_errors_variance_se(ERRORS[:runs]))
  assert np.isnan(stats.gde_gap_se(PREDICTIONS[:runs], LABELS, 3))


def test_intervals_are_scipys():
  x = RNG.normal(size=12)
  expected = scipy.stats.t.interval(0.9, 11, x.mean(), scipy.stats.sem(x))
  np.testing.assert_allclose(stats.mean_interval(x, level=0.9), expected)
  r, y = None, x + RNG.normal(size=12)
  r = scipy.stats.pearsonr(x, y)
  np.testing.assert_allclose(stats.correlation_interval(r.statistic, 12), r.confidence_interval(0.95))
  for k, n in ((0, 7), (3, 50), (50, 50)):
    wilson = scipy.stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(stats.proportion_interval(k / n, n), wilson, atol=1e-15)
  v = x.var(ddof=1)
  low, high = stats.variance_interval(v, 12)
  # The ends are the variances at which what was seen is just at the 2.5 and 97.5 % points.
  np.testing.assert_allclose(scipy.stats.chi2.cdf(11 * v / np.array([low, high]), 11), [0.975, 0.025])


def test_ends_of_the_domains():
  assert np.isnan(stats.mean_interval([0.5])).all()
  assert stats.mean_interval([0.5, 0.5]) == (0.5, 0.5)
  assert np.isnan(stats.variance_interval(0.1, 1)).all()
  assert stats.variance_interval(0.0, 5) == (0, 0)
  assert np.isnan(stats.correlation_interval(0.2, 3)).all()
  assert stats.correlation_interval(1.0, 10) == (1, 1)
  assert stats.correlation_interval(-1.0, 10) == (-1, -1)
  assert np.isnan(stats.proportion_interval(0.5, 0)).all()
  assert np.isnan(stats.distribution_variance_interval(ERRORS[:1])).all()
  assert np.isnan(stats.distribution_variance_interval(ERRORS[:, :1])).all()
  for call in (stats.mean_interval, stats.distribution_variance_interval):
    with pytest.raises(Mistake, match="level is 1"):
      call(ERRORS[0] * 1.0 if call is stats.mean_interval else ERRORS, level=1)


def test_runs_for_precision_gives_that_interval():
  """With the runs it names, the normal interval reaches exactly as far as asked."""
  z = scipy.stats.norm.ppf(0.975)
  n = ERRORS.shape[1]
  s2 = stats.test_set_variance(ERRORS)
  variance = stats.distribution_variance(ERRORS)
  assert variance > 0
  runs = stats.runs_for_precision(ERRORS, np.array([0.5, 0.01]))
  reach = z * n / (n - 1) * s2 * np.sqrt(2 / (runs - 1)) / variance
  np.testing.assert_allclose(reach, [0.5, 0.01], rtol=0.02)
  assert stats.runs_for_precision(ERRORS, 0.1, "test_set_variance") == np.ceil(1 + 2 * (z / 0.1) ** 2)
  assert np.isinf(stats.runs_for_precision(np.eye(6, dtype=bool)))
  assert np.isnan(stats.runs_for_precision(ERRORS[:1]))
  with pytest.raises(Mistake, match="relative is 0"):
    stats.runs_for_precision(ERRORS, 0.0)
  with pytest.raises(Mistake, match="statistic"):
    stats.runs_for_precision(ERRORS, 0.1, "variance")


def test_intervals_cover():
  """Fewer simulated campaigns than in docs/statistics.md, whose table `experiments.benchmarks.coverage` makes."""
  from experiments.benchmarks import coverage

  for name, covered in coverage.simulate(jax.random.key(1), campaigns=300, runs=40, examples=200).items():
    # 95 % of 300, give or take 3.5 standard errors.
    assert 0.905 < covered < 0.994, name
