"""Scores of several tasks together, against numbers that rliable 1.2.0 gave for the same
matrices.
"""

import jax
import numpy as np
import pytest

from vmapseeds import UserError, stats

A = np.array(
  [
    [1.668, 1.637, 1.746, 2.646],
    [1.109, 2.682, 2.406, 2.529],
    [0.464, 0.54, 1.107, 2.777],
    [1.605, 0.669, 2.463, 1.725],
    [0.826, 3.389, 2.127, 2.65],
    [1.767, 0.661, 2.426, 6.713],
    [0.548, 2.828, 3.313, 3.585],
    [0.938, 1.437, 1.156, 2.326],
    [3.625, 1.137, 0.791, 2.444],
    [2.725, 1.535, 5.109, 2.205],
  ]
)
B = np.array(
  [
    [1.668, 0.782, 1.526, 3.028],
    [2.15, 3.042, 2.631, 2.624],
    [0.142, 0.669, 5.855, 1.687],
    [1.91, 1.432, 2.546, 2.153],
    [0.514, 0.929, 2.142, 1.711],
    [0.151, 2.044, 3.013, 3.178],
    [2.311, 0.593, 4.045, 1.97],
  ]
)


def test_numbers_are_those_of_rliable():
  assert stats.interquartile_mean(A) == pytest.approx(1.98175, rel=1e-12)
  assert stats.interquartile_mean(B) == pytest.approx(1.991, rel=1e-12)
  assert stats.probability_of_improvement(A, B) == pytest.approx(
    0.5178571428571428, rel=1e-12
  )
  profile = stats.performance_profile(A, [0.5, 1, 2, 3, 4])
  np.testing.assert_allclose(profile, [0.975, 0.8, 0.5, 0.15, 0.05])


@pytest.mark.slow
def test_intervals_are_those_of_rliable():
  """Of 20,000 and 5,000 resamples there; a percentile of 2,000 differs by chance."""
  key = jax.random.key(0)
  iqm = stats.stratified_bootstrap(stats.interquartile_mean, A, key=key)
  assert (iqm.low, iqm.high) == pytest.approx((1.64855, 2.3154625), abs=0.03)
  better = stats.stratified_bootstrap(
    stats.probability_of_improvement, A, B, key=key, replicates=1000
  )
  assert (better.low, better.high) == pytest.approx((0.375, 0.65714286), abs=0.02)
  # Tasks are not mixed: where each has one score, nothing varies.
  fixed = np.tile([[1.0, 5.0, 9.0, 13.0]], (6, 1))
  found = stats.stratified_bootstrap(
    stats.interquartile_mean, fixed, key=key, replicates=9
  )
  assert found == (0, 7, 7)


def test_single_runs_are_all_that_is_resampled():
  estimate = stats.stratified_bootstrap(
    stats.interquartile_mean, A[:1], key=jax.random.key(0), replicates=5
  )
  mean = float(stats.interquartile_mean(A[:1]))
  assert estimate == pytest.approx((0, mean, mean))


def test_few_scores_and_mistakes():
  assert np.isnan(stats.interquartile_mean(np.zeros((0, 3))))
  assert np.isnan(stats.performance_profile(np.zeros((0, 3)), [1.0])).all()
  assert np.isnan(stats.probability_of_improvement(np.zeros((0, 3)), np.ones((2, 3))))
  assert stats.performance_profile([[1.0]], [1.0, 0.9]).tolist() == [0, 1]
  with pytest.raises(UserError, match="give scores of the same tasks"):
    stats.probability_of_improvement(A, B[:, :3])
