import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from vmapseeds import stats
from vmapseeds.errors import Mistake
from vmapseeds.stats.gaps import _least_accepted, _sides, _trimmed


def by_linear_program(reference, candidate, alpha):
  """min d over weights 0 ≤ w ≤ 1/(n (1 - α)) of the candidate's gaps, Σ w = 1, |Ĝ(x) - Σ_{c ≤ x} w| ≤ d."""
  reference, candidate = np.ravel(reference), np.asarray(candidate)
  n = len(candidate)
  rows, bounds = [], []
  for x in np.union1d(reference, candidate):
    g, below = (reference <= x).mean(), (candidate <= x).astype(float)
    rows += [np.r_[below, -1], np.r_[-below, -1]]
    bounds += [g, -g]
  solved = scipy.optimize.linprog(
    np.r_[np.zeros(n), 1],
    A_ub=np.array(rows),
    b_ub=bounds,
    A_eq=np.r_[np.ones(n), 0][None],
    b_eq=[1],
    bounds=[(0, 1 / (n * (1 - alpha)))] * n + [(0, None)],
  )
  assert solved.status == 0
  return solved.fun


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tied", [False, True])
def test_trimmed_distance_equals_a_linear_program(seed, tied):
  rng = np.random.default_rng(seed)
  models, n = int(rng.integers(1, 4)), int(rng.integers(1, 14))
  reference, candidate = rng.normal(0, 2, (models, n + seed % 2)), rng.normal(0.7, 3, n)
  if tied:
    reference, candidate = reference.round(), candidate.round()
  for alpha in (0.0, 0.1, 0.3, 0.5, 0.9):
    expected = by_linear_program(reference, candidate, alpha)
    given = stats.trimmed_ks_distance(reference, candidate, alpha)
    assert given == pytest.approx(expected, abs=1e-9)


def test_trimmed_distance_is_the_papers_formula_without_its_misprint():
  rng = np.random.default_rng(3)
  reference, candidate = rng.normal(size=(2, 9)), rng.normal(1, 2, 9)
  for alpha in (0.0, 0.2, 0.6):
    t = np.repeat(np.arange(10) / 9, 2)[1:-1]
    at = [(reference <= c).mean() for c in np.sort(candidate)]
    gamma = np.repeat(at, 2)
    B = gamma - t / (1 - alpha)
    U, L = np.maximum.accumulate(B[::-1])[::-1], np.minimum.accumulate(B)
    h = np.maximum(np.minimum((U + L) / 2, 0), -alpha / (1 - alpha))
    expected = max(abs(h - B).max(), 0)
    assert stats.trimmed_ks_distance(reference, candidate, alpha) == pytest.approx(expected, abs=1e-12)


def test_ks_distance_equals_scipy():
  rng = np.random.default_rng(0)
  reference, candidates = rng.normal(size=(3, 40)), rng.normal(0.2, 1, (5, 25))
  for rounding in (9, 1):
    a, b = reference.round(rounding), candidates.round(rounding)
    expected = [scipy.stats.ks_2samp(a.ravel(), c).statistic for c in b]
    np.testing.assert_allclose(stats.ks_distance(a, b), expected, rtol=1e-12)
    np.testing.assert_allclose(stats.ks_distance(jnp.asarray(a), b[0]), expected[0], atol=0.02)
  assert stats.ks_distance([[1.0, 2.0]], [1.0, 2.0]) == 0
  assert stats.ks_distance([[1.0, 2.0]], [3.0]) == 1


def test_trimmed_distance_never_rises():
  rng = np.random.default_rng(1)
  reference, candidates = rng.normal(size=(2, 30)), rng.normal(1, 1, (4, 20))
  distances = np.array([stats.trimmed_ks_distance(reference, candidates, a) for a in np.arange(0, 1, 0.05)])
  assert (np.diff(distances, axis=0) <= 1e-12).all()
  assert (distances[-1] < distances[0]).all()


def test_thresholds():
  np.testing.assert_allclose(stats.ks_threshold([8000, 8018]), [0.036395, 0.036354], atol=5e-7)
  np.testing.assert_allclose(stats.dkw_threshold(8000, 800), 0.02737, atol=5e-6)
  # Equation 13 with m = n = N/2, solved for ε again.
  assert 2 * np.exp(-2 * (500 / 2) * stats.ks_threshold(1000, 0.05) ** 2) == pytest.approx(0.05)
  assert 2 * 30 * np.exp(-2 * 1000 * stats.dkw_threshold(1000, 30, 0.05) ** 2) == pytest.approx(0.05)


def test_logit_gap_subtracts_in_float64():
  logits = np.array([[[1000.0, 1000.5], [0.1, 2.7]]], np.float16)
  expected = [[float(b) - float(a) for a, b in logits[0]]]
  np.testing.assert_array_equal(stats.logit_gap(logits), expected)
  np.testing.assert_array_equal(stats.logit_gap(jnp.asarray(logits, jnp.bfloat16)).dtype, np.float64)
  np.testing.assert_array_equal(stats.logit_gap(logits[0]), expected[0])
  assert stats.logit_gap(logits)[0, 1] != logits[0, 1, 1] - logits[0, 1, 0]


def slow_level(reference, candidate, drawn, alphas, threshold):
  """Algorithm 1 with resampled arrays and a scan of the levels."""
  levels = []
  for for_reference, for_candidate in drawn:
    G, c = reference[:, for_reference], candidate[for_candidate]
    accepted = [a for a in alphas if stats.trimmed_ks_distance(G, c, a) <= threshold + 1e-12]
    levels.append(accepted[0] if accepted else np.nan)
  return np.array(levels)


@pytest.mark.parametrize("tied", [False, True])
def test_trimming_level_equals_algorithm_1_on_resampled_arrays(tied):
  rng = np.random.default_rng(5)
  reference = rng.normal(size=(3, 41))
  candidates = reference[0] + rng.normal(0, 1, (4, 41)) * (rng.uniform(size=(4, 41)) < 0.6)
  candidates[3] += 3
  if tied:
    reference, candidates = reference.round(1), candidates.round(1)
  alphas, key = np.arange(0, 0.9, 0.07), jax.random.key(3)
  result = stats.trimming_level(reference, candidates, key, alphas, replicates=12, threshold=0.2)
  drawn = np.asarray(jax.random.randint(key, (12, 2, 20), 0, 41))
  expected = [slow_level(reference, c, drawn, alphas, 0.2) for c in candidates]
  np.testing.assert_array_equal(result.replicates, expected)
  np.testing.assert_array_equal(result.failed, np.isnan(expected).sum(1))
  np.testing.assert_array_equal(result.level, np.mean(expected, axis=1))
  assert result.failed[3] > 0
  assert result.failed[0] == 0
  assert len(np.unique(result.replicates[:3])) > 3
  alone = stats.trimming_level(reference, candidates[1], key, alphas, replicates=12, threshold=0.2)
  np.testing.assert_array_equal(alone.level, result.level[1])


def test_trimming_level_defaults():
  gaps = np.random.default_rng(0).normal(size=(2, 1000))
  near = stats.trimming_level(gaps, gaps[0], jax.random.key(0), replicates=10)
  astray = np.where(np.arange(1000) % 4, gaps[1], 9)
  far = stats.trimming_level(gaps, astray, jax.random.key(0), replicates=10)
  assert near.level < 0.05
  assert 0.1 < far.level < 0.25
  # A laxer threshold needs less trimming.
  lax = stats.trimming_level(gaps, astray, jax.random.key(0), replicates=10, epsilon=1e-6)
  assert lax.level < far.level


def test_bisection_finds_the_least_of_any_number_of_levels():
  before = np.array([[0.0, 0.3, 0.6]])
  low, high = _sides(before, before + 0.2)
  t = np.arange(4)[None] / 3
  for size in range(1, 10):
    alphas = np.arange(size) / 10
    distance = [_trimmed(low, high, t, np.float64(a))[0] for a in alphas]
    for threshold in (0.0, 0.11, 0.15, 0.2, 1.0):
      fits = [a for a, d in zip(alphas, distance, strict=True) if d <= threshold]
      given = _least_accepted(low, high, t, alphas, np.float64(threshold))
      np.testing.assert_array_equal(given, [fits[0] if fits else np.nan])


def test_nothing_to_compare_is_nan():
  assert np.isnan(stats.ks_distance(np.zeros((0, 4)), [1.0]))
  assert np.isnan(stats.ks_distance([[1.0]], []))
  result = stats.trimming_level([[1.0]], [[1.0], [2.0]], jax.random.key(0), replicates=3)
  assert np.isnan(result.level).all()
  assert result.replicates.shape == (2, 3)
  np.testing.assert_array_equal(result.failed, [3, 3])


KEY = jax.random.key(0)


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.logit_gap(np.zeros((2, 3, 4))),
      r"logits has shape \(2, 3, 4\): a logit gap needs two classes",
    ),
    (lambda: stats.logit_gap([1.0, 2.0]), r"logits has shape \(2,\): give \(runs, examples, class\), axis 0"),
    (
      lambda: stats.logit_gap([[[0, 1], [0, 1]], [[0, 1], [0, np.nan]]]),
      "logits is nan at run 1, example 1, class 1: leave such entries out",
    ),
    (lambda: stats.logit_gap(jnp.array([[0, 1], [-jnp.inf, 1]])), "logits is -inf at example 1"),
    (lambda: stats.ks_threshold(0), "n is 0: give a number above 0"),
    (lambda: stats.ks_threshold(10, 0), "epsilon is 0"),
    (lambda: stats.dkw_threshold(10, 0), "models is 0"),
    (lambda: stats.ks_distance([1.0], [1.0]), r"reference_gaps has shape \(1,\): give \(models, examples\)"),
    (lambda: stats.ks_distance([[1.0]], [np.nan]), "candidate_gaps is nan at example 0"),
    (
      lambda: stats.trimmed_ks_distance([[1.0]], [1.0], 1),
      "alpha is 1.0: give a trimming level of at least 0",
    ),
    (lambda: stats.trimmed_ks_distance([[1.0]], [1.0], -0.1), "alpha is -0.1"),
    (
      lambda: stats.trimmed_ks_distance([[1.0]], [1.0], [0.1]),
      r"alpha has shape \(1,\): give a single number",
    ),
    (
      lambda: stats.trimming_level([[1.0, 2.0]], [1.0], KEY),
      r"reference_gaps has shape \(1, 2\) and candidate",
    ),
    (lambda: stats.trimming_level([[1.0]], [1.0], KEY, alphas=[0.2, 0.1]), "alphas does not rise"),
    (lambda: stats.trimming_level([[1.0]], [1.0], KEY, replicates=0), "replicates is 0"),
    (lambda: stats.trimming_level([[1.0, 2]], [1.0, 2], KEY, threshold=0), "threshold is 0"),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(Mistake, match=text):
    call()
