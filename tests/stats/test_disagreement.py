import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats import scoring


def some_predictions(runs=6, examples=13, classes=4, seed=0, least=0):
  rng = np.random.default_rng(seed)
  return rng.integers(least, classes, (runs, examples))


def slow_churn(a, b):
  return sum(int(x != y) for x, y in zip(a, b, strict=True)) / len(a)


def test_churn_equals_a_loop_in_each_layout():
  P = some_predictions(least=-1)
  Q = some_predictions(seed=1, least=-1)
  assert stats.churn(P[0], Q[0]) == slow_churn(P[0], Q[0])
  by_run = [slow_churn(p, q) for p, q in zip(P, Q, strict=True)]
  np.testing.assert_array_equal(stats.churn(P, Q), by_run)
  np.testing.assert_array_equal(
    stats.churn(jnp.asarray(P, jnp.int8), jnp.asarray(Q, jnp.int8)), by_run
  )
  against_one = [slow_churn(p, Q[0]) for p in P]
  np.testing.assert_array_equal(stats.churn(P, Q[0]), against_one)
  np.testing.assert_array_equal(stats.churn(Q[0], P), against_one)
  assert stats.churn(P[:1], Q[0]).shape == (1,)
  assert np.isnan(stats.churn([], []))


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_disagreement_matrix_equals_loops(array):
  P = some_predictions(least=-1)
  expected = [[slow_churn(p, q) for q in P] for p in P]
  np.testing.assert_array_equal(stats.disagreement_matrix(array(P)), expected)
  assert stats.disagreement_matrix(P[:1]).shape == (1, 1)
  assert stats.disagreement_matrix(P[:0]).shape == (0, 0)


@pytest.mark.parametrize("runs", [2, 3, 6])
@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_expected_disagreement_equals_the_mean_over_pairs(runs, array):
  P = some_predictions(runs, least=-1)
  distinct = np.mean([slow_churn(p, q) for p, q in itertools.combinations(P, 2)])
  all_pairs = np.mean([slow_churn(p, q) for p in P for q in P])
  np.testing.assert_allclose(
    stats.expected_disagreement(array(P), 4), distinct, rtol=1e-14
  )
  np.testing.assert_allclose(
    stats.expected_disagreement(array(P), 4, self_pairs=True), all_pairs, rtol=1e-14
  )
  assert distinct != pytest.approx(all_pairs)


def test_expected_disagreement_is_unbiased_over_all_tuples():
  rows, p = (
    np.array([[0, 1, 2, 2], [1, 1, 2, -1], [0, 2, 1, 2]]),
    np.array([0.5, 0.3, 0.2]),
  )
  truth = sum(
    p[g] * p[h] * slow_churn(rows[g], rows[h]) for g in range(3) for h in range(3)
  )
  for runs in (2, 3):
    mean = sum(
      np.prod(p[list(chosen)]) * stats.expected_disagreement(rows[list(chosen)], 3)
      for chosen in itertools.product(range(3), repeat=runs)
    )
    assert mean == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("dtype", [np.int8, np.int32])
def test_votes_and_plurality_equal_loops(array, dtype):
  P = some_predictions(5, 40, least=-1).astype(dtype)
  P[:, 0] = -1
  P[:, 1] = [3, 3, 2, 2, -1]
  votes = [[sum(int(h == k) for h in column) for k in range(4)] for column in P.T]
  np.testing.assert_array_equal(stats.vote_fractions(array(P), 4), np.array(votes) / 5)
  top = [v.index(max(v)) if max(v) else -1 for v in votes]
  assert top[:2] == [-1, 2]
  np.testing.assert_array_equal(stats.plurality(array(P), 4), top)
  labels = np.arange(40) % 4
  accuracy = np.mean([t == y for t, y in zip(top, labels, strict=True)])
  assert stats.ensemble_accuracy(array(P), array(labels), 4) == accuracy
  assert stats.ensemble_accuracy(P, jnp.asarray(labels), 4) == accuracy


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
@pytest.mark.parametrize(
  ("dtype", "classes"), [(np.uint8, 256), (np.int8, 300), (np.int16, 300)]
)
def test_narrow_predictions_are_not_mixed_up(array, dtype, classes):
  """255 is not -1, and class 256 is not class 0, in 8 bits."""
  P = some_predictions(6, 50, min(classes, np.iinfo(dtype).max + 1))
  P[:, 0] = P.max()
  P[:3, 1] = 0
  expected = [[(column == k).mean() for k in range(classes)] for column in P.T]
  np.testing.assert_allclose(
    stats.vote_fractions(array(P.astype(dtype)), classes), expected, rtol=1e-15
  )
  np.testing.assert_array_equal(
    stats.plurality(array(P.astype(dtype)), classes), stats.plurality(P, classes)
  )


def test_one_run_no_run_and_no_example():
  P = some_predictions(1)
  assert np.isnan(stats.expected_disagreement(P, 4))
  assert stats.expected_disagreement(P, 4, self_pairs=True) == 0
  np.testing.assert_array_equal(stats.plurality(P, 4), P[0])
  assert np.isnan(stats.vote_fractions(P[:0], 4)).all()
  np.testing.assert_array_equal(stats.plurality(P[:0], 4), [-1] * 13)
  none = np.zeros((3, 0), int)
  assert np.isnan(stats.ensemble_accuracy(none, [], 4))
  assert np.isnan(stats.expected_disagreement(none, 4))
  assert stats.plurality(none, 4).shape == (0,)


def some_logits(runs=9, examples=60, classes=4, seed=0):
  rng = np.random.default_rng(seed)
  return 2 * rng.normal(size=(runs, examples, classes)) * rng.exponential(
    size=(runs, 1, 1)
  ), np.arange(examples) % classes


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_named(wrong, monkeypatch):
  monkeypatch.setattr(scoring, "_AT_ONCE", 480)
  logits, y = some_logits()
  logits[7, 11, 2] = wrong
  with pytest.raises(
    UserError, match=f"logits is {wrong} at run 7, example 11, class 2: leave"
  ):
    stats.brier_score(logits, y)


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.churn([0, 1], [0, 1, 2]),
      r"predictions_a has shape \(2,\) and predictions_b \(3,\): give",
    ),
    (
      lambda: stats.churn([[0, 1]], [[0, 1]] * 2),
      r"predictions_a has shape \(1, 2\) and predictions_b \(2, 2\)",
    ),
    (lambda: stats.churn(0, 1), r"predictions_a has shape \(\)"),
    (
      lambda: stats.churn([0.5], [1]),
      "predictions_a has dtype float64: give class indices, integers",
    ),
    (
      lambda: stats.disagreement_matrix([[0, -3]]),
      "predictions is -3 at run 0, example 1: .* 0 or more, -1 for none, -2 where a run",
    ),
    (
      lambda: stats.expected_disagreement([0, 1], 2),
      r"predictions has shape \(2,\): give \(runs, examples\)",
    ),
    (
      lambda: stats.expected_disagreement([[0, 3]], 3),
      "predictions is 3 at run 0, example 1: .* 0 to 2, -1 for none",
    ),
    (
      lambda: stats.vote_fractions([[0]], 0),
      "num_classes is 0: .*at least 1",
    ),
    (lambda: stats.plurality([[True]], 2), "predictions has dtype bool"),
    (
      lambda: stats.ensemble_accuracy([[0, 1]], [0, -1], 2),
      "labels is -1 at example 1: .* 0 to 1",
    ),
    (
      lambda: stats.ensemble_accuracy([[0, 1, 1]] * 2, [0, 1], 2),
      r"labels has shape \(2,\) beside predictions of shape \(2, 3\), of which axis 1 is examples: "
      r"give one label an example, 3; are the axes of predictions in another order\?",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
