"""Algorithms on several tasks: Demšar's table 6 with the numbers of his article, and
those that scikit-posthocs 0.17.1 and SciPy give for the same scores.
"""

import itertools

import jax
import numpy as np
import pytest
import scipy.stats

from vmapseeds import UserError, stats

# AUC of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets (Demšar 2006, table 6). Of the
# two that it prints as 0.975 it ranks the first one higher.
AUC = np.array(
  [
    [0.763, 0.768, 0.771, 0.798],
    [0.599, 0.591, 0.590, 0.569],
    [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657],
    [0.882, 0.888, 0.886, 0.898],
    [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685],
    [0.583, 0.583, 0.563, 0.625],
    [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000],
    [0.940, 0.962, 0.965, 0.962],
    [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.9751, 0.975],
    [0.957, 0.978, 0.946, 0.970],
  ]
).T
NEMENYI = [
  [1.0, 0.088673, 0.956177, 0.074185],
  [0.088673, 1.0, 0.259228, 0.999859],
  [0.956177, 0.259228, 1.0, 0.226697],
  [0.074185, 0.999859, 0.226697, 1.0],
]
rng = np.random.default_rng(1)


def test_mean_ranks_are_those_of_the_article():
  np.testing.assert_allclose(stats.mean_ranks(AUC), [3.143, 2, 2.893, 1.964], atol=5e-4)
  assert stats.critical_difference(4, 14, level=0.95) == pytest.approx(1.25, abs=5e-3)
  assert stats.critical_difference(4, 14, level=0.9) == pytest.approx(1.12, abs=5e-3)


def test_two_differ_as_in_scikit_posthocs():
  """`posthoc_nemenyi_friedman` has p below 0.1 for the pairs that the ranks tell."""
  p_values = np.array(NEMENYI)
  ranks = stats.mean_ranks(AUC)
  gaps = np.abs(ranks[:, None] - ranks)
  tell = gaps > stats.critical_difference(4, 14, level=0.9)
  np.testing.assert_array_equal(tell, p_values < 0.1)


def test_wins_are_counted():
  wins = stats.win_matrix(AUC)
  for i, j in itertools.permutations(range(4), 2):
    won = sum(x > y for x, y in zip(AUC[i], AUC[j], strict=True))
    tied = sum(x == y for x, y in zip(AUC[i], AUC[j], strict=True))
    assert wins[i, j] == pytest.approx((won + tied / 2) / 14)


def of_tasks(runs, tasks, difference, noise=1.0):
  """Return scores of A and B, paired, and their tasks."""
  common = rng.normal(size=(tasks, runs)) + 100 * rng.normal(size=(tasks, 1))
  a = common + difference + noise * rng.normal(size=(tasks, runs))
  return a.ravel(), common.ravel(), np.repeat(np.arange(tasks), runs)


def test_few_runs_of_each_task_tell_together():
  """Three splits of five tasks: SciPy's test that changes signs, over all of them."""
  a, b, tasks = of_tasks(3, 5, 1.5)
  alone = [
    float(stats.compare_means(a[tasks == task], b[tasks == task]).p_value)
    for task in range(5)
  ]
  assert min(alone) >= 0.25
  found = stats.compare_within_tasks(a, b, tasks)
  exact = scipy.stats.permutation_test(
    (a, b),
    lambda x, y, axis: (x - y).mean(axis),
    permutation_type="samples",
    n_resamples=np.inf,
  )
  assert found.p_value == pytest.approx(exact.pvalue, rel=0.2)
  assert found.p_value < 0.001
  assert found.low > 0


@pytest.mark.parametrize("paired", [True, False])
def test_the_p_value_is_that_of_rearranging_within_tasks(paired):
  """Of numbers of runs that differ between tasks: SciPy's, with our weights."""
  a, b, tasks = of_tasks(4, 4, 0.6)
  kept = ~((tasks == 0) & (np.arange(16) > 1))
  a, b, tasks = a[kept], b[kept], tasks[kept]

  shuffled = np.random.default_rng(0)
  x, y = np.tile(a, (20_000, 1)), np.tile(b, (20_000, 1))
  if paired:
    swap = shuffled.random(x.shape) < 0.5
    x, y = np.where(swap, y, x), np.where(swap, x, y)
  else:
    for task in range(4):
      rows = np.flatnonzero(tasks == task)
      both = shuffled.permuted(np.hstack([x[:, rows], y[:, rows]]), axis=1)
      x[:, rows], y[:, rows] = np.split(both, 2, axis=1)

  def difference(x, y):
    of_tasks = [(x - y)[..., tasks == task].mean(-1) for task in range(4)]
    return np.mean(of_tasks, axis=0)

  observed = difference(a, b)
  expected = (abs(difference(x, y)) >= abs(observed) - 1e-12).mean()
  found = stats.compare_within_tasks(a, b, tasks, None if paired else tasks)
  assert found.difference == pytest.approx(observed)
  if paired:
    assert found.p_value == pytest.approx(expected, abs=0.01)
  else:
    # It holds Welch's, too.
    assert found.p_value >= expected - 0.01


def test_welch_s_interval_is_held():
  """Of one task it is SciPy's, and of unpaired runs no narrower."""
  a, b = rng.normal(size=12) + 1, rng.normal(size=9)
  found = stats.compare_within_tasks(a, b, [0] * 12, [0] * 9)
  welch = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval()
  assert found.low <= welch.low < welch.high <= found.high
  assert found.high - found.low < 1.3 * (welch.high - welch.low)


@pytest.mark.parametrize("paired", [True, False])
def test_equal_algorithms_are_told_apart_in_5_percent(paired):
  """Three or four runs of each of four tasks, with other spreads, skewed."""
  called = 0
  for study in range(60):
    key = jax.random.key(study)
    spreads = np.repeat([0.1, 1, 1, 5], [3, 4, 3, 4])
    a, b = rng.exponential(size=(2, 14)) * spreads
    tasks = np.repeat(range(4), [3, 4, 3, 4])
    of_b = None if paired else tasks
    called += stats.compare_within_tasks(a, b, tasks, of_b, key=key).p_value <= 0.05
  assert called <= scipy.stats.binom.ppf(0.999, 60, 0.05)


def test_few_runs_have_no_ends():
  one = stats.compare_within_tasks([1, 2], [0, 1], ["x", "y"], ["x", "y"])
  assert (one.difference, one.low, one.high, one.p_value) == (1, -np.inf, np.inf, 1)
  pair = stats.compare_within_tasks([1], [0], ["x"])
  assert (pair.low, pair.high) == (-np.inf, np.inf)


def test_tasks_must_be_the_same():
  with pytest.raises(UserError, match="one of A and B alone has runs on y: give runs"):
    stats.compare_within_tasks([1, 2], [0, 1], ["x", "y"], ["x", "x"])
  with pytest.raises(UserError, match=r"tasks has shape \(1,\) beside 2 runs"):
    stats.compare_within_tasks([1, 2], [0, 1], ["x"])
