import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from experiments import measures
from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats.resampling import resamples


def some_votes(runs=10, examples=60, classes=3, seed=0, least=0):
  """Predictions that are right with a probability that varies by example, and labels."""
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, examples)
  right = rng.uniform(size=(runs, examples)) < rng.uniform(size=examples)[None]
  return np.where(
    right, labels[None], rng.integers(least, classes, (runs, examples))
  ), labels


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
    [Fraction(sum(int(h == k) for h in column), runs) for k in range(classes)]
    for column in predictions.T
  ]


@pytest.mark.parametrize("bins", [1, 7, 10])
@pytest.mark.parametrize("runs", [1, 2, 20])
@pytest.mark.parametrize("least", [0, -1])
def test_cace_and_ece_equal_exact_fractions(bins, runs, least):
  P, y = some_votes(runs, least=least)
  q = confidences(P, 3)
  all_items = [(q[i][k], int(y[i] == k)) for i in range(60) for k in range(3)]
  top_items = [
    (max(q[i]), int(max(q[i]) > 0 and q[i].index(max(q[i])) == y[i])) for i in range(60)
  ]
  for array in (np.asarray, jnp.asarray):
    cace, ece = (f(array(P), array(y), 3, bins) for f in (stats.cace, stats.ece))
    np.testing.assert_allclose(
      cace, slow_calibration(all_items, bins, 60), rtol=1e-12, atol=1e-16
    )
    np.testing.assert_allclose(
      ece, slow_calibration(top_items, bins, 60), rtol=1e-12, atol=1e-16
    )


def test_bins_are_found_from_whole_votes():
  """3, 6 and 7 votes of 10 are the lower edge of a bin; np.linspace(0, 1, 11) would put
  them one bin lower.
  """
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


@pytest.mark.parametrize("bins", [46_401, 46_399, 100_000])
def test_bins_of_very_many_runs(bins):
  """Each number of votes has a bin of its own, and bins times votes is more than an
  int32 holds, in which devices count.
  """
  votes, y = np.array([46_399, 30_000, 46_300]), np.array([1, 0, 1])
  P = (np.arange(46_400)[:, None] < votes).astype(np.int8)
  expected = 2 * abs(y - votes / 46_400).sum() / 3
  assert stats.cace(jnp.asarray(P), y, 2, bins) == pytest.approx(expected, rel=1e-12)
  curve = stats.calibration_curve(jnp.asarray(P), y, 2, bins)
  assert np.flatnonzero(curve.items).tolist() == sorted(
    int(v) * bins // 46_400 for v in [*votes, *(46_400 - votes)]
  )


@pytest.mark.parametrize("self_pairs", [False, True])
def test_gap_equals_its_parts(self_pairs):
  P, y = some_votes(6, 25, least=-1)
  expected = abs(
    stats.error_rates(y != P).mean() - stats.expected_disagreement(P, 3, self_pairs)
  )
  assert stats.gde_gap(P, y, 3, self_pairs) == pytest.approx(expected, rel=1e-12)
  assert stats.gde_gap(jnp.asarray(P), y, 3, self_pairs) == pytest.approx(
    expected, rel=1e-12
  )
  assert expected > 0.01


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


def slow_curve(items, bins):
  """Mean confidence, accuracy and number of the items (confidence, right) of each bin."""
  curve = []
  for b in range(bins):
    low, high = Fraction(b, bins), Fraction(b + 1, bins)
    inside = [(q, r) for q, r in items if low <= q < high or (q == high == 1)]
    means = [
      float(Fraction(sum(x), len(inside))) for x in zip(*inside, strict=True)
    ] or [np.nan, np.nan]
    curve.append([*means, len(inside)])
  return np.array(curve).T


@pytest.mark.parametrize("runs", [1, 2, 20])
@pytest.mark.parametrize("bins", [1, 10, 21])
@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_curves_equal_exact_fractions(runs, bins, array):
  P, y = some_votes(runs, 30, least=-1)
  y[y == 2] = 1  # a class without labels
  q = confidences(P, 3)
  by_class = [[(q[i][k], int(y[i] == k)) for i in range(30)] for k in range(3)]
  top = [
    (max(q[i]), int(max(q[i]) > 0 and q[i].index(max(q[i])) == y[i])) for i in range(30)
  ]
  for of, items in (("pairs", list(itertools.chain(*by_class))), ("top", top)):
    curve = stats.calibration_curve(array(P), array(y), 3, bins, of)
    np.testing.assert_allclose(
      [curve.confidence, curve.accuracy, curve.items],
      slow_curve(items, bins),
      rtol=1e-12,
    )
    np.testing.assert_allclose(curve.weight, curve.items / 30, rtol=1e-15)
    error = np.nansum(curve.weight * abs(curve.accuracy - curve.confidence))
    np.testing.assert_allclose(
      error,
      (stats.cace if of == "pairs" else stats.ece)(P, y, 3, bins),
      rtol=1e-12,
      atol=1e-15,
    )
  curves = stats.calibration_curve(array(P), array(y), 3, bins, "classes")
  assert curves.items.shape == (3, bins)
  for k in range(3):
    given = [curves.confidence[k], curves.accuracy[k], curves.items[k]]
    np.testing.assert_allclose(given, slow_curve(by_class[k], bins), rtol=1e-12)
  assert (curves.accuracy[2][curves.items[2] > 0] == 0).all()


@pytest.mark.parametrize("of", ["pairs", "classes", "top"])
def test_band_equals_a_loop_over_the_same_resamples(of):
  """Whole examples are drawn. A bin that is empty in some resamples is estimated from
  the others.
  """
  P, y = some_votes(5, 12, seed=3)
  key = jax.random.key(1)
  drawn = [
    np.repeat(np.arange(12), counts) for counts in resamples(12, key=key, replicates=60)
  ]
  accuracies = np.array(
    [stats.calibration_curve(P[:, i], y[i], 3, 4, of).accuracy for i in drawn]
  )
  assert np.isnan(accuracies).any()
  known = np.isfinite(accuracies).sum(0) > 1
  band = stats.calibration_band(P, y, 3, 4, of, key=key, replicates=60, level=0.9)
  assert band.se.shape == accuracies.shape[1:]
  np.testing.assert_array_equal(np.isfinite(band.se), known)
  some = accuracies[:, known]
  np.testing.assert_allclose(
    band.se[known], np.nanstd(some, 0, ddof=1), rtol=1e-10, atol=1e-14
  )
  np.testing.assert_allclose(
    band.low[known], np.nanpercentile(some, 5, axis=0), rtol=1e-10, atol=1e-14
  )
  np.testing.assert_allclose(
    band.high[known], np.nanpercentile(some, 95, axis=0), rtol=1e-10, atol=1e-14
  )


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("least", [0, -1])
def test_theorem_4_2(runs, seed, least):
  """With a bin for each number of votes CACE bounds the gap of all pairs."""
  P, y = some_votes(runs, 9, seed=seed, least=least)
  gap = stats.gde_gap(P, y, 3, self_pairs=True)
  # Missing predictions count as a class of their own, as in the disagreement.
  classes = 3 - least
  exact = stats.cace(np.where(P < 0, 3, P), y, classes, bins=runs + 1)
  assert gap <= exact + 1e-12
  assert stats.cace(P, y, 3, bins=2) <= stats.cace(P, y, 3, bins=runs + 1) + 1e-12


def test_cace_of_ten_bins_bounds_nothing():
  """Confidences of 0.32, 0.32 and 0.36 share a bin. One of the three has label 1, so
  the bin looks calibrated.
  """
  P = np.array([[1] * v + [0] * (50 - v) for v in (16, 16, 18)]).T
  y = np.array([0, 0, 1])
  assert stats.cace(P, y, 2) == pytest.approx(0, abs=1e-15)
  assert stats.gde_gap(P, y, 2, self_pairs=True) == pytest.approx(0.0512 / 3)
  assert stats.gde_gap(P, y, 2) > 0.01
  assert stats.cace(P, y, 2, bins=51) >= 0.0512 / 3


@pytest.mark.slow
def test_finite_ensemble_calibration_equals_enumeration():
  """Two examples, two votes each: the mean and deviation over all labels and votes."""
  fractions = np.array([[0.7, 0.3], [0.2, 0.5]])
  rows = [
    [*row, 1 - row.sum()] for row in fractions
  ]  # the third column: neither class, no vote and no label
  mean, square = np.zeros(2), np.zeros(2)
  for label in itertools.product(range(3), repeat=2):
    for flat in itertools.product(range(3), repeat=4):
      p = np.prod([rows[i][label[i]] for i in range(2)]) * np.prod(
        [rows[i % 2][c] for i, c in enumerate(flat)]
      )
      if not p > 0:
        continue
      votes = [[[flat[i], flat[i + 2]].count(k) for k in range(2)] for i in range(2)]
      q = [[Fraction(v, 2) for v in row] for row in votes]
      pairs = [(q[i][k], int(label[i] == k)) for i in range(2) for k in range(2)]
      top = [
        (max(q[i]), int(max(q[i]) > 0 and q[i].index(max(q[i])) == label[i]))
        for i in range(2)
      ]
      errors = np.array([slow_calibration(items, 10, 2) for items in (pairs, top)])
      mean, square = mean + p * errors, square + p * errors**2
  sd = np.sqrt(square - mean**2)
  n = 5000
  given = measures.finite_ensemble_calibration(
    fractions, 2, key=jax.random.key(0), replicates=n
  )
  assert abs(given.cace - mean[0]) < 3 * sd[0] / n**0.5
  assert abs(given.ece - mean[1]) < 3 * sd[1] / n**0.5
  np.testing.assert_allclose([given.cace_sd, given.ece_sd], sd, rtol=0.05)


def test_calibrated_law_has_errors_at_few_runs():
  """10,000 examples, error 0.27, 10 classes. The errors are close to those of another
  law like this.
  """
  rng = np.random.default_rng(0)
  fractions = rng.dirichlet(np.full(10, 0.1376), 10_000)
  fractions[rng.random(10_000) > 0.518] = np.eye(10)[0]
  assert 1 - (fractions**2).sum(1).mean() == pytest.approx(0.27, abs=0.003)
  expected = {5: (0.170, 0.067), 30: (0.034, 0.017)}
  for runs, (cace, ece) in expected.items():
    given = measures.finite_ensemble_calibration(
      fractions, runs, key=jax.random.key(0), replicates=5
    )
    assert given.cace == pytest.approx(cace, abs=0.01)
    assert given.ece == pytest.approx(ece, abs=0.01)
  # With two runs an item has no, one or two votes. `cace` for many examples follows
  # exactly from this.
  of_one = 2 * (fractions * (1 - fractions) * (fractions - 0.5)).sum(1).mean()
  given = measures.finite_ensemble_calibration(
    fractions, 2, key=jax.random.key(0), replicates=20
  )
  assert (given.cace, given.ece) == (
    pytest.approx(0.358, abs=0.01),
    pytest.approx(0.139, abs=0.01),
  )
  assert given.cace == pytest.approx(
    (fractions * (1 - fractions)).sum(1).mean() + abs(of_one), abs=0.004
  )


def test_runs_of_a_certain_law_have_no_calibration_error():
  certain = np.eye(3)[[0, 2, 1, 1]]
  assert all(
    x == 0
    for x in measures.finite_ensemble_calibration(certain, 4, key=jax.random.key(0))
  )
  assert np.isnan(
    measures.finite_ensemble_calibration(
      np.zeros((0, 3)), 2, key=jax.random.key(0)
    ).cace
  )
  assert np.isnan(
    measures.finite_ensemble_calibration(
      certain, 2, key=jax.random.key(0), replicates=1
    ).ece_sd
  )


def test_relabelling_classes_and_repeating_examples():
  P, y = some_votes(6, 20)
  moved = np.array([2, 0, 1])
  curve, other = (
    stats.calibration_curve(p, labels, 3, of="classes")
    for p, labels in ((P, y), (moved[P], moved[y]))
  )
  for a, b in zip(curve, other, strict=True):
    np.testing.assert_array_equal(a, b[moved])
  twice = stats.calibration_curve(np.tile(P, 2), np.tile(y, 2), 3)
  np.testing.assert_allclose(
    twice[:3], stats.calibration_curve(P, y, 3)[:3], rtol=1e-12
  )
  again = np.tile(moved[P], 2), np.tile(moved[y], 2)
  assert stats.cace(*again, 3) == pytest.approx(stats.cace(P, y, 3))


def test_curves_of_no_runs_and_no_examples():
  P, y = some_votes(3, 5)
  curve = stats.calibration_curve(P[:0], y, 3)
  assert not curve.items.any()
  assert np.isnan(curve.confidence).all()
  assert np.isnan(curve.accuracy).all()
  assert np.isnan(stats.calibration_curve(P[:, :0], [], 3).weight).all()
  assert np.isnan(
    stats.calibration_band(P[:, :0], [], 3, key=jax.random.key(0), replicates=5).se
  ).all()
  assert np.isnan(stats.cace(P[:0], y, 3))
  assert np.isnan(stats.cace(P[:, :0], [], 3))


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.cace([[0, 1]], [0], 2),
      r"labels has shape \(1,\) .* are the axes of predictions in another order\?",
    ),
    (
      lambda: stats.cace([[0, 1]], [0, 1], 2, bins=0),
      "bins is 0: .*at least 1",
    ),
    (lambda: stats.ece([[0, 1]], [0, 1], 2, bins=2.5), "bins is 2.5"),
    (
      lambda: stats.gde_gap([[0, 1]], [[0, 1]], 2),
      r"labels has shape \(1, 2\): give \(examples,\)",
    ),
    (
      lambda: stats.calibration_curve([[0, 1]], [0, 1], 2, of="pair"),
      "unknown items of 'pair': .* did you mean 'pairs'",
    ),
    (
      lambda: stats.calibration_band(
        [[0]], [0], 2, key=jax.random.key(0), replicates=0
      ),
      "replicates is 0",
    ),
    (
      lambda: measures.finite_ensemble_calibration([[2.0]], 2, key=jax.random.key(0)),
      "fractions is 2: give a number of at least 0",
    ),
    (
      lambda: measures.finite_ensemble_calibration(
        [[np.nan]], 2, key=jax.random.key(0)
      ),
      "fractions is nan at example 0",
    ),
    (
      lambda: measures.finite_ensemble_calibration(
        [[0.5, 0.5], [0.9, 0.2]], 2, key=jax.random.key(0)
      ),
      "fractions of example 1 sum to 1.1: give fractions that sum to at most 1",
    ),
    (
      lambda: measures.finite_ensemble_calibration([[1.0]], 0, key=jax.random.key(0)),
      "runs is 0: give a whole number",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
