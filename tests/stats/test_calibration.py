from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.calibration import calibration_curve

from vmapseeds import stats
from vmapseeds.errors import Mistake


def some_votes(runs=10, examples=60, classes=3, seed=0, least=0):
  """Predictions that are right with a probability that varies by example, and labels."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, examples)
  right = rng.uniform(size=(runs, examples)) < rng.uniform(size=examples)[None]
  return np.where(right, labels[None], rng.integers(least, classes, (runs, examples))), labels


def slow_calibration(items, bins, examples):
  """Σ |B|/n |acc - conf| in exact fractions; items are (confidence, right)."""
  total = Fraction(0)
  for b in range(bins):
    low, high = Fraction(b, bins), Fraction(b + 1, bins)
    inside = [(q, r) for q, r in items if low <= q < high or (q == high == 1)]
    if inside:
      accuracy = Fraction(sum(r for _, r in inside), len(inside))
      confidence = sum(q for q, _ in inside) / len(inside)
      total += Fraction(len(inside), examples) * abs(accuracy - confidence)
  return float(total)


def confidences(predictions, classes):
  runs = len(predictions)
  return [
    [Fraction(sum(int(h == k) for h in column), runs) for k in range(classes)] for column in predictions.T
  ]


@pytest.mark.parametrize("bins", [1, 7, 10, 11])
@pytest.mark.parametrize("runs", [1, 2, 10, 20])
@pytest.mark.parametrize("least", [0, -1])
def test_cace_and_ece_equal_exact_fractions(bins, runs, least):
  P, y = some_votes(runs, least=least)
  q = confidences(P, 3)
  all_items = [(q[i][k], int(y[i] == k)) for i in range(60) for k in range(3)]
  top_items = [(max(q[i]), int(max(q[i]) > 0 and q[i].index(max(q[i])) == y[i])) for i in range(60)]
  for array in (np.asarray, jnp.asarray):
    cace, ece = (f(array(P), array(y), 3, bins) for f in (stats.cace, stats.ece))
    np.testing.assert_allclose(cace, slow_calibration(all_items, bins, 60), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(ece, slow_calibration(top_items, bins, 60), rtol=1e-12, atol=1e-16)


def test_bins_are_found_from_whole_votes():
  """3, 6 and 7 votes of 10 begin a bin; np.linspace(0, 1, 11) would put them one lower."""
  P = np.array([[1] * v + [0] * (10 - v) for v in (3, 6, 7, 2, 5)]).T
  y = np.array([1, 1, 0, 0, 0])
  q = confidences(P, 2)
  items = [(q[i][k], int(y[i] == k)) for i in range(5) for k in range(2)]
  edges = np.linspace(0, 1, 11)
  shifted = 0
  for b in range(10):
    inside = [(float(c), r) for c, r in items if edges[b] <= float(c) < edges[b + 1]]
    shifted += abs(sum(r - c for c, r in inside)) / 5
  assert stats.cace(P, y, 2) == pytest.approx(slow_calibration(items, 10, 5))
  assert stats.cace(P, y, 2) != pytest.approx(shifted)


def test_ece_agrees_with_scikit_learn():
  """R = 7 has no vote fraction on an edge between bins."""
  P, y = some_votes(7, 80)
  votes = stats.vote_fractions(P, 3)
  confidence, right = votes.max(1), votes.argmax(1) == y
  accuracy, mean = calibration_curve(right, confidence, n_bins=10)
  sizes = np.histogram(confidence, np.linspace(0, 1, 11))[0]
  expected = (sizes[sizes > 0] * abs(accuracy - mean)).sum() / 80
  assert stats.ece(P, y, 3) == pytest.approx(expected, rel=1e-12)


def test_ranges_are_reached():
  y = np.array([0, 1, 2])
  assert stats.cace(np.tile(y, (4, 1)), y, 3) == 0
  assert stats.ece(np.tile(y, (4, 1)), y, 3) == 0
  wrong = np.tile((y + 1) % 3, (4, 1))
  assert stats.cace(wrong, y, 3) == 2
  assert stats.ece(wrong, y, 3) == 1


@pytest.mark.parametrize("runs", [2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_theorem_4_2_holds_with_a_bin_for_each_number_of_votes(runs, seed):
  P, y = some_votes(runs, 12, seed=seed)
  gap = stats.gde_gap(P, y, 3, self_pairs=True)
  exact = stats.cace(P, y, 3, bins=runs + 1)
  assert gap <= exact + 1e-12
  assert stats.cace(P, y, 3, bins=2) <= exact + 1e-12


@pytest.mark.parametrize("self_pairs", [False, True])
def test_gap_equals_its_parts(self_pairs):
  P, y = some_votes(6, 25, least=-1)
  expected = abs(stats.error_rates(y != P).mean() - stats.expected_disagreement(P, 3, self_pairs))
  assert stats.gde_gap(P, y, 3, self_pairs) == pytest.approx(expected, rel=1e-12)
  assert stats.gde_gap(jnp.asarray(P), y, 3, self_pairs) == pytest.approx(expected, rel=1e-12)
  assert expected > 0.01


def test_relative_deviation():
  given = stats.relative_deviation([0.3, 0.0, 0.2, 0.0], [0.1, 0.2, 0.2, 0.0])
  np.testing.assert_allclose(given, [1, 2, 0, np.nan])


def test_correlations_equal_scipy():
  rng = np.random.default_rng(2)
  x = rng.integers(0, 6, 40)
  y = x + rng.integers(0, 8, 40)
  np.testing.assert_allclose(stats.kendall_tau(x, y), scipy.stats.kendalltau(x, y).statistic, rtol=1e-12)
  np.testing.assert_allclose(stats.r_squared(x, y), scipy.stats.pearsonr(x, y).statistic ** 2, rtol=1e-12)
  stuart = scipy.stats.kendalltau(x, y, variant="c").statistic
  assert stats.kendall_tau(x, y) != pytest.approx(stuart)
  # A large common offset leaves float64 digits enough.
  np.testing.assert_allclose(stats.r_squared(x + 1e9, y), stats.r_squared(x, y), rtol=1e-12)


@pytest.mark.parametrize("name", ["kendall_tau", "r_squared"])
def test_correlations_of_little(name):
  correlation = getattr(stats, name)
  assert np.isnan(correlation([], []))
  assert np.isnan(correlation([1], [2]))
  assert np.isnan(correlation([1, 2, 3], [0.1, 0.1, 0.1]))
  assert correlation([1, 2], [0.1, 0.2]) == pytest.approx(1)


def test_one_run_and_no_data():
  P, y = some_votes(1, 10)
  error = np.mean(P[0] != y)
  assert np.isnan(stats.gde_gap(P, y, 3))
  assert stats.gde_gap(P, y, 3, self_pairs=True) == pytest.approx(error)
  assert stats.cace(P, y, 3) == pytest.approx(2 * error)
  for name in ("cace", "ece", "gde_gap"):
    f = getattr(stats, name)
    assert np.isnan(f(P[:0], y, 3)), name
    assert np.isnan(f(np.zeros((4, 0), int), [], 3)), name


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (lambda: stats.cace([[0, 1]], [0], 2), r"labels has shape \(1,\) .* are the predictions transposed\?"),
    (lambda: stats.cace([[0, 1]], [0, 1], 2, bins=0), "bins is 0: give a whole number of at least 1"),
    (lambda: stats.ece([[0, 1]], [0, 2], 2), "labels has values from 0 to 2"),
    (lambda: stats.ece([[0, 1]], [0, 1], 2, bins=2.5), "bins is 2.5"),
    (lambda: stats.gde_gap([[0, 1]], [[0, 1]], 2), r"labels has shape \(1, 2\): give \(examples,\)"),
    (lambda: stats.relative_deviation(2, 0), "error is 2: give a number between 0 and 1"),
    (lambda: stats.relative_deviation(0, -1), "disagreement is -1"),
    (lambda: stats.kendall_tau([1, 2], [1]), r"x has shape \(2,\) and y \(1,\): give two series"),
    (lambda: stats.r_squared([1, np.nan], [1, 2]), "x is nan at point 1: leave such entries out"),
    (lambda: stats.r_squared([1, 2], [1, "a"]), "y has dtype"),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(Mistake, match=text):
    call()
