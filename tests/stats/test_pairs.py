import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats import counting, counts

ARRAYS = pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
BLOCKS = pytest.mark.parametrize("block", [3, 4, 100])


def some_errors(runs=8, examples=11, seed=0):
  """Errors that vary by run and by example."""
  rng = np.random.default_rng(seed)
  rate = np.clip(
    rng.uniform(0, 1, examples)[None] + rng.normal(0, 0.3, (runs, 1)), 0.05, 0.95
  )
  return rng.uniform(size=(runs, examples)) < rate


def slow_pairs(errors):
  """Every pair in order: i, j, R² P(C_i, C_j) and R² P(C_i) P(C_j), in Python's whole
  numbers.
  """
  right, runs = (1 - errors.astype(int)).T.tolist(), len(errors)
  return [
    (
      i,
      j,
      runs * sum(a * b for a, b in zip(right[i], right[j], strict=True)),
      sum(right[i]) * sum(right[j]),
    )
    for i, j in itertools.combinations(range(errors.shape[1]), 2)
  ]


def assert_pairs(given, expected, runs):
  assert given.i.tolist() == [p[0] for p in expected]
  assert given.j.tolist() == [p[1] for p in expected]
  np.testing.assert_allclose(
    given.joint, [p[2] / runs**2 for p in expected], rtol=1e-15
  )
  np.testing.assert_allclose(
    given.product, [p[3] / runs**2 for p in expected], rtol=1e-15
  )


@BLOCKS
@ARRAYS
def test_dependent_pairs_equal_loops(block, array, monkeypatch):
  monkeypatch.setattr(counts, "BLOCK", block)
  errors = some_errors()
  expected = [p for p in slow_pairs(errors) if abs(p[2] - p[3]) > 0.1 * 8**2]
  assert 0 < len(expected) < 55
  assert_pairs(stats.dependent_pairs(array(errors), threshold=0.1), expected, 8)


def test_dependent_pairs_leave_out_the_threshold_itself():
  # 10 runs, each right 5 times and together 3 times: 3/10 - 1/4 = 0.05.
  errors = np.array([[0] * 5 + [1] * 5, [0] * 3 + [1] * 5 + [0] * 2]).T
  assert len(stats.dependent_pairs(errors, 0.05).i) == 0
  assert len(stats.dependent_pairs(errors, 0.0499).i) == 1
  # 20 runs, right 6 and 7 times and together 5 times: 0.145, and 0.145 * 20**2 is less
  # than 58 in floating point.
  errors = np.array([[0] * 6 + [1] * 14, [1] + [0] * 7 + [1] * 12]).T
  assert len(stats.dependent_pairs(errors, 0.145).i) == 0
  assert len(stats.dependent_pairs(errors, 0.1449).i) == 1


@pytest.mark.parametrize("k", [1, 20, 60])
@BLOCKS
@ARRAYS
def test_most_dependent_pairs_equal_a_sort_of_all(k, block, array, monkeypatch):
  """With 4 runs nearly all deviations are tied with others, some of them at the cut."""
  monkeypatch.setattr(counts, "BLOCK", block)
  for errors in (some_errors(4), some_errors(9), np.zeros((3, 11), bool)):
    ordered = sorted(slow_pairs(errors), key=lambda p: (-abs(p[2] - p[3]), p[0], p[1]))
    assert_pairs(stats.most_dependent_pairs(array(errors), k), ordered[:k], len(errors))


def test_most_dependent_pairs_are_those_of_largest_covariance():
  errors = some_errors(40, 30)
  covariance = np.abs(np.triu(np.cov(errors.T), 1))
  found = stats.most_dependent_pairs(errors, 5)
  np.testing.assert_allclose(
    covariance[found.i, found.j], np.sort(covariance.ravel())[:-6:-1], rtol=1e-12
  )
  np.testing.assert_allclose(
    np.abs(found.joint - found.product) * 40 / 39,
    covariance[found.i, found.j],
    rtol=1e-12,
  )


@pytest.mark.parametrize("runs", [1, 31, 32, 33, 700])
@pytest.mark.parametrize("in_bits", [False, True])
def test_joint_counts_of_both_ways(runs, in_bits):
  marks = some_errors(runs, 9)

  @jax.jit
  def count(marks):
    held = counting.pack_marks(marks, in_bits)
    return counting.count_both(held[..., :4], held[..., 4:], in_bits)

  both = count(marks)
  np.testing.assert_array_equal(
    both, marks[:, :4].T.astype(int) @ marks[:, 4:].astype(int)
  )


def test_few_runs_and_examples():
  for errors in (
    np.ones((1, 4), bool),
    np.array([[0], [1], [1]]),
    np.zeros((3, 0), bool),
  ):
    assert stats.dependent_pairs(errors, 0).i.shape == (0,)
  found = stats.most_dependent_pairs(np.ones((1, 4), bool), 2)
  assert (found.i.tolist(), found.j.tolist()) == ([0, 0], [1, 2])
  for errors in (np.array([[0], [1], [1]]), np.zeros((3, 0), bool)):
    assert stats.most_dependent_pairs(errors).joint.shape == (0,)


@pytest.mark.parametrize("runs", [50, 500])
def test_expected_false_pairs_equals_all_pairs(runs):
  rates = np.random.default_rng(0).beta(0.3, 1, 400)
  v = rates * (1 - rates)
  i, j = np.triu_indices(400, 1)
  slow = 2 * scipy.stats.norm.sf(0.03 / np.sqrt(v[i] * v[j] / runs)).sum()
  assert stats.expected_false_pairs(rates, runs, 0.03) == pytest.approx(slow, rel=2e-3)
  assert stats.expected_false_pairs(1 - rates, runs, 0.03) == pytest.approx(
    slow, rel=2e-3
  )


def test_expected_false_pairs_is_how_many_independent_errors_give():
  rng = np.random.default_rng(1)
  rates = rng.uniform(0, 0.5, 300)
  found = [
    len(stats.dependent_pairs(rng.uniform(size=(400, 300)) < rates, 0.02).i)
    for _ in range(8)
  ]
  assert stats.expected_false_pairs(rates, 400) == pytest.approx(
    np.mean(found), rel=0.05
  )


def test_expected_false_pairs_at_the_ends():
  assert stats.expected_false_pairs([0.5, 0.3, 0.0, 1.0], 9, threshold=0) == 1
  assert stats.expected_false_pairs([0.0, 1.0, 1.0], 9) == 0
  assert stats.expected_false_pairs([0.4], 9, threshold=0) == 0
  assert stats.expected_false_pairs([], 9) == 0
  assert stats.expected_false_pairs([0.5, 0.5], 100, threshold=0.05) == pytest.approx(
    2 * scipy.stats.norm.sf(2)
  )


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.dependent_pairs([[0, 1]], [0.01, 0.02]),
      r"threshold is \[0.01, 0.02\]: give a number",
    ),
    (
      lambda: stats.dependent_pairs([[0, 1]], -1),
      "threshold is -1: give a number of at least 0",
    ),
    (
      lambda: stats.dependent_pairs(np.zeros((2**24, 1), bool)),
      "errors has 16777216 runs",
    ),
    (
      lambda: stats.most_dependent_pairs([[0, 1]], 0),
      "k is 0: .*at least 1",
    ),
    (lambda: stats.most_dependent_pairs([[0.0, 1.0]]), "errors has dtype float64"),
    (
      lambda: stats.expected_false_pairs([0.1, 1.5], 9),
      "rates is 1.5: give a number of at least 0 and at most 1",
    ),
    (lambda: stats.expected_false_pairs([0.1, np.nan], 9), "rates is nan at example 1"),
    (
      lambda: stats.expected_false_pairs([0.1], 0),
      "runs is 0: .*at least 1",
    ),
    (lambda: stats.expected_false_pairs([0.1], 9, -1), "threshold is -1"),
    (
      lambda: stats.expected_false_pairs([[0.1]], 9),
      r"rates has shape \(1, 1\): give \(examples,\)",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
