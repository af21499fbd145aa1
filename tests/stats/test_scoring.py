import itertools
import math
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats import scoring

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (5, 7, 4))
LABELS = np.array([0, 1, 2, 3, 0, 0, 2])


def some_losses(runs=7, examples=11):
  """Losses that vary by run and by example, so that no two definitions agree on them."""
  return RNG.gamma(1, 1, (runs, examples)) * RNG.uniform(0.2, 3, examples) + RNG.normal(
    0, 0.3, (runs, 1)
  )


@pytest.mark.parametrize("at_once", [1, 2**22])
@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (7, 11), (4, 40)])
def test_loss_variance_equals_the_covariance_matrix(shape, at_once, monkeypatch):
  monkeypatch.setattr(scoring, "_AT_ONCE", at_once)
  x, (runs, n) = some_losses(*shape), shape
  covariance = np.cov(x.T)
  v = stats.loss_variance(x)
  assert v.mean == pytest.approx(x.mean(), rel=1e-13)
  assert v.test_set == pytest.approx(x.mean(1).var(ddof=1), rel=1e-12)
  assert v.independent == pytest.approx(np.trace(covariance) / n**2, rel=1e-12)
  off_diagonal = (covariance.sum() - np.trace(covariance)) / (n * (n - 1))
  assert v.distribution == pytest.approx(off_diagonal, rel=1e-10, abs=1e-15)
  left = (
    [np.delete(x, h, axis=0).mean(1).var(ddof=1) for h in range(runs)]
    if runs > 2
    else [np.nan]
  )
  jackknife = n / (n - 1) * math.sqrt((runs - 1) * np.var(left))
  assert v.distribution.se == pytest.approx(jackknife, rel=1e-9, nan_ok=True)
  expected = np.corrcoef(x[:, 0::2].mean(1), x[:, 1::2].mean(1))[0, 1]
  assert v.split_correlation == pytest.approx(expected, rel=1e-12)


def test_losses_become_float64_a_block_at_a_time(monkeypatch):
  monkeypatch.setattr(scoring, "_AT_ONCE", 10_000)
  x = RNG.uniform(size=(100, 5000)).astype(np.float32)
  tracemalloc.start()
  stats.loss_variance(x)
  most = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert most < x.nbytes


@pytest.mark.parametrize("dtype", [bool, np.int8, np.float16, np.float64])
@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (2, 2), (6, 9), (3, 0), (0, 3)])
def test_losses_of_0_and_1_are_errors(shape, dtype):
  errors = RNG.uniform(size=shape) < 0.4
  v = stats.loss_variance(errors.astype(dtype))
  rates = stats.error_rates(errors)
  mean = rates.mean() if len(rates) else np.nan
  np.testing.assert_allclose(v.mean, mean, rtol=1e-12, atol=1e-17)
  expected = (
    stats.test_set_variance(errors),
    stats.independent_errors_variance(errors),
    stats.distribution_variance(errors),
    stats.split_correlation(errors),
  )
  for of_losses, of_errors in zip(v[1:], expected, strict=True):
    np.testing.assert_allclose(of_losses, of_errors, rtol=1e-12, atol=1e-17)
    if isinstance(of_losses, stats.Estimate):
      # No loss is bounded as error rates are.
      high = np.minimum(of_losses.high, 0.25 if of_losses is not v[-1] else 1)
      np.testing.assert_allclose(
        [of_losses.se, of_losses.low, high],
        [of_errors.se, of_errors.low, of_errors.high],
        rtol=1e-11,
        atol=1e-17,
      )


def test_a_constant_half_has_no_correlation():
  x = np.array([[1, 0.5, 0], [0, 0.25, 1], [1, 0.75, 0]])
  assert np.isnan(stats.loss_variance(x).split_correlation)


def test_loss_variance_is_unbiased_over_all_tuples_and_test_sets_of_a_small_law():
  """Theorem 2 holds for any loss."""
  rows, p = (
    np.array([[0.0, 2.5, 1.0], [1.0, 0.5, -3.0], [0.25, 1.0, 1.0]]),
    np.array([0.5, 0.3, 0.2]),
  )
  mean_loss = rows.mean(1)
  truth = p @ mean_loss**2 - (p @ mean_loss) ** 2
  mean = sum(
    p[g] * p[h] * stats.loss_variance(rows[[g, h]][:, list(S)]).distribution / 9
    for g, h in itertools.product(range(3), repeat=2)
    for S in itertools.product(range(3), repeat=2)
  )
  assert mean == pytest.approx(truth, rel=1e-12)


def test_a_large_common_part_costs_no_digits():
  x = np.round(some_losses() * 2**20) / 2**20
  near, far = stats.loss_variance(x), stats.loss_variance(x + 2.0**30)
  np.testing.assert_allclose(far[1:], near[1:], rtol=1e-10)
  assert far.mean - 2.0**30 == pytest.approx(near.mean, abs=1e-6)


def test_half_precision_is_read_in_double():
  x = (some_losses(50, 300) + 100).astype(np.float16)
  np.testing.assert_allclose(
    stats.loss_variance(x), stats.loss_variance(x.astype(np.float64)), rtol=1e-14
  )


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
@pytest.mark.parametrize("at_once", [1, 60, 2**22])
def test_cross_entropy_and_brier_score_equal_scikit_learn(array, at_once, monkeypatch):
  monkeypatch.setattr(scoring, "_AT_ONCE", at_once)
  logits = LOGITS.astype(np.float32)
  entropy, brier = (
    f(array(logits), LABELS) for f in (stats.cross_entropy, stats.brier_score)
  )
  assert entropy.dtype == brier.dtype == np.float64
  probabilities = scipy.special.softmax(logits.astype(np.float64), axis=-1)
  for run in range(5):
    for i, label in enumerate(LABELS):
      q = probabilities[run, i]
      assert entropy[run, i] == pytest.approx(
        sklearn.metrics.log_loss([label], [q], labels=range(4)), rel=1e-12
      )
      assert brier[run, i] == pytest.approx(
        ((q - np.eye(4)[label]) ** 2).sum(), rel=1e-12
      )


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_the_brier_score_is_that_of_scikit_learn(classes):
  logits = LOGITS[..., :classes]
  labels = np.arange(len(LABELS)) % classes
  scores = stats.brier_score(logits, labels)
  probabilities = scipy.special.softmax(logits.astype(np.float64), axis=-1)
  for run in range(len(logits)):
    expected = sklearn.metrics.brier_score_loss(
      labels, probabilities[run], labels=range(classes)
    )
    assert scores[run].mean() == pytest.approx(expected, rel=1e-12)


def test_losses_far_from_0_and_near_it():
  logits = np.array([[[1e4, 0, -1e4]] * 3, [[60.0, 0, -700]] * 3])
  entropy, brier = (
    stats.cross_entropy(logits, [0, 1, 2]),
    stats.brier_score(logits, [0, 1, 2]),
  )
  np.testing.assert_array_equal(entropy[0], [0, 1e4, 2e4])
  np.testing.assert_allclose(entropy[1], [math.exp(-60), 60, 760], rtol=1e-13)
  np.testing.assert_allclose(brier[0], [0, 2, 2], rtol=1e-15)
  assert brier[1, 0] == pytest.approx(2 * math.exp(-120), rel=1e-12)


def test_losses_of_one_class_equal_logits_and_nothing():
  assert (stats.cross_entropy(np.ones((2, 3, 1)), [0, 0, 0]) == 0).all()
  assert (stats.brier_score(np.ones((2, 3, 1)), [0, 0, 0]) == 0).all()
  np.testing.assert_allclose(
    stats.cross_entropy(np.full((1, 1, 10), 7), [3]), math.log(10)
  )
  np.testing.assert_allclose(stats.brier_score(np.full((1, 1, 10), 7), [3]), 0.9)
  assert stats.cross_entropy(np.zeros((0, 3, 2)), [0, 1, 0]).shape == (0, 3)
  assert stats.brier_score(np.zeros((2, 0, 2)), np.zeros(0, int)).shape == (2, 0)


def test_relabelling_classes_changes_no_loss():
  order = np.array([2, 0, 3, 1])
  for f in (stats.cross_entropy, stats.brier_score):
    moved = f(LOGITS[..., order], np.argsort(order)[LABELS])
    np.testing.assert_allclose(moved, f(LOGITS, LABELS), rtol=1e-12)


class Unread:
  """Like a torch tensor with a gradient."""

  def __array__(self, dtype=None, copy=None):
    raise RuntimeError("use detach()")


def with_one(value):
  logits = LOGITS.astype(np.float16)
  logits[3, 5, 1] = value
  return logits


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.loss_variance([1.0, 0.5]),
      r"losses has shape \(2,\): give \(runs, examples\)",
    ),
    (lambda: stats.loss_variance([[1.0, np.inf]]), "losses is inf at run 0, example 1"),
    (
      lambda: stats.cross_entropy(with_one(np.nan), LABELS),
      "logits is nan at run 3, example 5, class 1",
    ),
    (
      lambda: stats.brier_score(with_one(-np.inf), LABELS),
      "logits is -inf at run 3, example 5, class 1",
    ),
    (
      lambda: stats.cross_entropy(LOGITS, LABELS + 1),
      "labels is 4 at example ..?: give class indices, 0 to 3",
    ),
    (
      lambda: stats.cross_entropy(np.zeros((2, 3, 0)), [0, 0, 0]),
      "classes in logits is 0: give a whole number of at le",
    ),
    (
      lambda: stats.cross_entropy(Unread(), [0]),
      r"logits is a Unread: give one array, .* \(use detach\(\)\)",
    ),
  ],
)
def test_mistakes(call, text, monkeypatch):
  monkeypatch.setattr(scoring, "_AT_ONCE", 60)  # two runs a block
  with pytest.raises(UserError, match=text):
    call()
