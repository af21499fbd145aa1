import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from experiments import measures
from experiments.measures import gaps as measured_gaps
from experiments.measures.gaps import _least_accepted, _sides, _trimmed
from vmapseeds import UserError

KEY = jax.random.key(0)


def by_linear_program(reference, candidate, alpha):
  """min d over weights 0 ≤ w ≤ 1/(n (1 - α)) of the candidate's gaps, Σ w = 1, |Ĝ(x) -
  Σ_{c ≤ x} w| ≤ d.
  """
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
    given = measures.trimmed_ks_distance(reference, candidate, alpha)
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
    assert measures.trimmed_ks_distance(reference, candidate, alpha) == pytest.approx(
      expected, abs=1e-12
    )


def test_ks_distance_equals_scipy():
  rng = np.random.default_rng(0)
  reference, candidates = rng.normal(size=(3, 40)), rng.normal(0.2, 1, (5, 25))
  for rounding in (9, 1):
    a, b = reference.round(rounding), candidates.round(rounding)
    expected = [scipy.stats.ks_2samp(a.ravel(), c).statistic for c in b]
    np.testing.assert_allclose(measures.ks_distance(a, b), expected, rtol=1e-12)
    np.testing.assert_allclose(
      measures.ks_distance(jnp.asarray(a), b[0]), expected[0], atol=0.02
    )
  assert measures.ks_distance([[1.0, 2.0]], [1.0, 2.0]) == 0
  assert measures.ks_distance([[1.0, 2.0]], [3.0]) == 1


def test_ecdf_counts_what_is_at_most_each_point():
  rng = np.random.default_rng(6)
  rows, at = (
    rng.integers(-3, 4, (4, 15)) / 2,
    np.arange(-9, 9) / 4,
  )  # on gaps and between them
  expected = [[np.mean([g <= z for g in row]) for z in at] for row in rows]
  np.testing.assert_allclose(measures.ecdf(rows, at), expected, rtol=1e-12)
  np.testing.assert_allclose(measures.ecdf(rows[2], at), expected[2], rtol=1e-12)
  np.testing.assert_allclose(
    measures.reference_ecdf(rows, at), np.mean(expected, 0), rtol=1e-12
  )
  np.testing.assert_allclose(
    measures.ecdf(np.repeat(rows, 3, axis=1), at), expected, rtol=1e-12
  )
  # One example: just before its gap, at the gap, and after it.
  np.testing.assert_array_equal(
    measures.ecdf([[2.0]], [np.nextafter(2, 1), 2, 3]), [[0, 1, 1]]
  )
  assert np.isnan(measures.ecdf(np.zeros((2, 0)), at)).all()
  assert np.isnan(measures.reference_ecdf(np.zeros((0, 2)), at)).all()
  assert measures.ecdf(np.zeros((0, 2)), at).shape == (0, len(at))


def test_interpolated_reference_is_near_the_step_function():
  rng = np.random.default_rng(7)
  reference = rng.normal(size=(3, 20))
  at = np.linspace(-4, 4, 999)
  step, line = (
    measures.reference_ecdf(reference, at, interpolated=i) for i in (False, True)
  )
  assert 0 < abs(step - line).max() <= 1 / 60 + 1e-12
  assert (line >= step - 1e-12)[at >= reference.min()].all()
  middle = np.sort(reference.ravel())[[10, 11]].mean()
  assert measures.reference_ecdf(
    reference, [middle], interpolated=True
  ) == pytest.approx(11.5 / 60)
  outside = measures.reference_ecdf(reference, [-9.0, 9.0], interpolated=True)
  np.testing.assert_array_equal(outside, [0, 1])


def test_ensembles_average_the_gaps_of_their_members():
  gaps = np.random.default_rng(9).normal(size=(6, 8))
  members = [[0, 3, 5], [1, 0, 2], [4, 4, 1]]
  expected = [np.mean([gaps[m] for m in row], axis=0) for row in members]
  np.testing.assert_allclose(
    measures.ensemble_gaps(gaps, members), expected, rtol=1e-12
  )
  np.testing.assert_allclose(measures.ensemble_gaps(gaps), gaps.mean(0), rtol=1e-12)
  np.testing.assert_array_equal(
    measures.ensemble_gaps(gaps, np.arange(6)[:, None]), gaps
  )
  # Its eCDF is not the mean eCDF of its members.
  assert measures.ks_distance(gaps, measures.ensemble_gaps(gaps)) > 0.05
  assert np.isnan(measures.ensemble_gaps(np.zeros((0, 3)))).all()
  assert np.isnan(measures.ensemble_gaps(gaps, np.zeros((2, 0), int))).all()


def test_label_of_a_gap_of_zero_is_one():
  np.testing.assert_array_equal(
    measures.gap_labels([[-0.0, 0.0, -1e-300, 1e-300]]), [[1, 1, 0, 1]]
  )
  logits = np.random.default_rng(0).normal(size=(2, 9, 2))
  np.testing.assert_array_equal(
    measures.gap_labels(measures.logit_gap(logits)), logits.argmax(-1)
  )


@pytest.mark.parametrize("lowest", [0.0, 0.5])
@pytest.mark.parametrize("bins", [1, 4, 10])
def test_ece_equals_a_loop(lowest, bins):
  rng = np.random.default_rng(10)
  rows, labels = rng.normal(0, 2, (3, 60)), rng.integers(0, 2, 60)
  rows[:, :4] = [0, -np.log(3), 40, -800]  # confidence 1/2, 3/4, nearly and exactly 1
  edges = np.linspace(lowest, 1, bins + 1)
  expected = []
  for row in rows:
    confidence = [1 / (1 + np.exp(-abs(m))) for m in row]
    right = [(m >= 0) == (y == 1) for m, y in zip(row, labels, strict=True)]
    total = 0
    for r in range(bins):
      inside = [
        j
        for j, p in enumerate(confidence)
        if edges[r] <= p + 1e-12 and (p < edges[r + 1] - 1e-12 or r == bins - 1)
      ]
      if inside:
        total += (
          len(inside)
          / 60
          * abs(
            np.mean([right[j] for j in inside])
            - np.mean([confidence[j] for j in inside])
          )
        )
    expected.append(total)
  np.testing.assert_allclose(
    measures.gap_ece(rows, labels, bins, lowest), expected, rtol=1e-9
  )
  np.testing.assert_allclose(
    measures.gap_ece(rows[1], labels, bins, lowest), expected[1], rtol=1e-9
  )
  # Class 0 called 1, and class 1 called 0.
  relabelled = measures.gap_ece(-rows[:, 1:], 1 - labels[1:], bins, lowest)
  np.testing.assert_allclose(
    relabelled, measures.gap_ece(rows[:, 1:], labels[1:], bins, lowest), rtol=1e-9
  )


def test_ece_of_constant_confidence_and_of_nothing():
  assert measures.gap_ece([0.0, 0.0], [1, 1]) == 0.5  # all right, confidence 1/2
  assert measures.gap_ece([0.0, 0.0], [0, 1]) == 0
  assert measures.gap_ece([-50.0], [1]) == pytest.approx(1)
  np.testing.assert_array_equal(
    measures.gap_ece(np.zeros((2, 0)), []), [np.nan, np.nan]
  )


def test_trimmed_distance_never_rises():
  rng = np.random.default_rng(1)
  reference, candidates = rng.normal(size=(2, 30)), rng.normal(1, 1, (4, 20))
  distances = np.array(
    [
      measures.trimmed_ks_distance(reference, candidates, a)
      for a in np.arange(0, 1, 0.05)
    ]
  )
  assert (np.diff(distances, axis=0) <= 1e-12).all()
  assert (distances[-1] < distances[0]).all()


def test_thresholds():
  np.testing.assert_allclose(
    measures.ks_threshold([8000, 8018]), [0.036395, 0.036354], atol=5e-7
  )
  np.testing.assert_allclose(measures.dkw_threshold(8000, 800), 0.02737, atol=5e-6)
  # Equation 13 with m = n = N/2, solved for ε again.
  assert 2 * np.exp(
    -2 * (500 / 2) * measures.ks_threshold(1000, 0.05) ** 2
  ) == pytest.approx(0.05)
  assert 2 * 30 * np.exp(
    -2 * 1000 * measures.dkw_threshold(1000, 30, 0.05) ** 2
  ) == pytest.approx(0.05)


def test_logit_gap_subtracts_in_float64():
  logits = np.array([[[1000.0, 1000.5], [0.1, 2.7]]], np.float16)
  expected = [[float(b) - float(a) for a, b in logits[0]]]
  np.testing.assert_array_equal(measures.logit_gap(logits), expected)
  np.testing.assert_array_equal(
    measures.logit_gap(jnp.asarray(logits, jnp.bfloat16)).dtype, np.float64
  )
  np.testing.assert_array_equal(measures.logit_gap(logits[0]), expected[0])
  assert measures.logit_gap(logits)[0, 1] != logits[0, 1, 1] - logits[0, 1, 0]


def slow_level(reference, candidate, drawn, alphas, threshold):
  """Algorithm 1 with resampled arrays and a scan of the levels."""
  levels = []
  for for_reference, for_candidate in drawn:
    G, c = reference[:, for_reference], candidate[for_candidate]
    accepted = [
      a for a in alphas if measures.trimmed_ks_distance(G, c, a) <= threshold + 1e-12
    ]
    levels.append(accepted[0] if accepted else np.nan)
  return np.array(levels)


@pytest.mark.parametrize("tied", [False, True])
def test_trimming_level_equals_algorithm_1_on_resampled_arrays(tied):
  rng = np.random.default_rng(5)
  reference = rng.normal(size=(3, 41))
  candidates = reference[0] + rng.normal(0, 1, (4, 41)) * (
    rng.uniform(size=(4, 41)) < 0.6
  )
  candidates[3] += 3
  if tied:
    reference, candidates = reference.round(1), candidates.round(1)
  alphas, key = np.arange(0, 0.9, 0.07), jax.random.key(3)
  result = measures.trimming_level(
    reference, candidates, alphas, key=key, replicates=12, threshold=0.2
  )
  drawn = np.asarray(jax.random.randint(key, (12, 2, 20), 0, 41))
  expected = [slow_level(reference, c, drawn, alphas, 0.2) for c in candidates]
  np.testing.assert_array_equal(result.replicates, expected)
  np.testing.assert_array_equal(result.failed, np.isnan(expected).sum(1))
  np.testing.assert_array_equal(result.level, np.mean(expected, axis=1))
  assert result.failed[3] > 0
  assert result.failed[0] == 0
  assert len(np.unique(result.replicates[:3])) > 3
  alone = measures.trimming_level(
    reference, candidates[1], alphas, key=key, replicates=12, threshold=0.2
  )
  np.testing.assert_array_equal(alone.level, result.level[1])


def test_trimming_level_does_not_depend_on_blocks(monkeypatch):
  rng = np.random.default_rng(8)
  reference, candidates = rng.normal(size=(2, 50)), rng.normal(0.3, 1, (7, 50))

  def levels(candidates):
    return measures.trimming_level(
      reference, candidates, key=KEY, replicates=4, threshold=0.2
    ).replicates

  together = levels(candidates)
  monkeypatch.setattr(measured_gaps, "_GAPS_AT_ONCE", 100)
  np.testing.assert_array_equal(levels(candidates), together)
  assert levels(candidates[:0]).shape == (0, 4)


def test_trimming_level_defaults():
  gaps = np.random.default_rng(0).normal(size=(2, 1000))
  near = measures.trimming_level(gaps, gaps[0], key=jax.random.key(0), replicates=10)
  astray = np.where(np.arange(1000) % 4, gaps[1], 9)
  far = measures.trimming_level(gaps, astray, key=jax.random.key(0), replicates=10)
  assert near.level < 0.05
  assert 0.1 < far.level < 0.25
  # A laxer threshold needs less trimming.
  lax = measures.trimming_level(
    gaps, astray, key=jax.random.key(0), replicates=10, epsilon=1e-6
  )
  assert lax.level < far.level


def by_bisection(low, high, t, alphas, threshold):
  """The least accepted level of each row. Bisection is right because the distance never
  rises with the level.
  """
  first, last = np.zeros(len(low), int), np.full(len(low), len(alphas))
  for _ in range(len(alphas).bit_length()):
    middle = (first + last) // 2
    tried = alphas[np.minimum(middle, len(alphas) - 1)]
    distance = np.array(
      [_trimmed(*row) for row in zip(low, high, t, tried, strict=True)]
    )
    accepted = (distance <= threshold + 1e-12) | (middle >= len(alphas))
    first, last = (
      np.where(accepted, first, middle + 1),
      np.where(accepted, middle, last),
    )
  return np.append(alphas, np.nan)[first]


def some_steps(rng, fine):
  """A reference eCDF at the steps of some candidates' eCDFs. Steps may tie, and some
  gaps have no weight.
  """
  n, rows = int(rng.integers(1, 40)), int(rng.integers(1, 6))
  scale = int(rng.integers(100, 10_000)) if fine else int(rng.integers(1, 30))
  at = np.sort(rng.integers(0, scale + 1, (rows, 2 * n)), axis=1) / scale
  drawn = rng.integers(0, 3, (rows, n))
  drawn[:, 0] += 1
  t = np.concatenate(
    [np.zeros((rows, 1)), drawn.cumsum(1) / drawn.sum(1)[:, None]], axis=1
  )
  return *_sides(at[:, ::2], at[:, 1::2]), t, scale


def test_search_of_levels_equals_bisection():
  rng = np.random.default_rng(2)
  found = []
  for trial in range(1000):
    low, high, t, scale = some_steps(rng, fine=trial % 2)
    alphas = (
      np.arange(0, 0.995, rng.choice([0.005, 0.01, 0.07]))
      if trial % 3
      else np.sort(rng.uniform(size=5))
    )
    # The last two kinds of threshold can equal a distance exactly.
    threshold = rng.choice(
      [rng.uniform(0, 0.6), rng.integers(1, 10) / (2 * scale), rng.integers(1, 20) / 40]
    )
    given = _least_accepted(low, high, t, alphas, threshold)
    np.testing.assert_array_equal(given, by_bisection(low, high, t, alphas, threshold))
    found += list(np.isnan(given) - 1.0 * (given == alphas[0]))
  assert (
    min(found.count(which) for which in (-1, 0, 1)) > 300
  )  # the first level, a later one, none


def test_nothing_to_compare_is_nan():
  assert np.isnan(measures.ks_distance(np.zeros((0, 4)), [1.0]))
  assert np.isnan(measures.ks_distance([[1.0]], []))
  result = measures.trimming_level(
    [[1.0]], [[1.0], [2.0]], key=jax.random.key(0), replicates=3
  )
  assert np.isnan(result.level).all()
  assert result.replicates.shape == (2, 3)
  np.testing.assert_array_equal(result.failed, [3, 3])


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: measures.logit_gap(np.zeros((2, 3, 4))),
      r"logits has shape \(2, 3, 4\): a logit gap needs two classes",
    ),
    (
      lambda: measures.logit_gap([1.0, 2.0]),
      r"logits has shape \(2,\): give \(runs, examples, classes\), axis 0",
    ),
    (
      lambda: measures.logit_gap([[[0, 1], [0, 1]], [[0, 1], [0, np.nan]]]),
      "logits is nan at run 1, example 1, class 1: leave such entries out",
    ),
    (
      lambda: measures.logit_gap(jnp.array([[0, 1], [-jnp.inf, 1]])),
      "logits is -inf at example 1",
    ),
    (lambda: measures.gap_labels([np.nan]), "gaps is nan at example 0"),
    (
      lambda: measures.gap_ece([[1.0, 2.0]], [1]),
      r"labels has shape \(1,\) beside gaps of shape \(1, 2\)",
    ),
    (
      lambda: measures.gap_ece([1.0], [2]),
      "labels is 2 at example 0: give class indices, 0 to 1",
    ),
    (lambda: measures.gap_ece([1.0], [1], bins=0), "bins is 0"),
    (
      lambda: measures.gap_ece([1.0], [1], lowest=0.6),
      "lowest is 0.6: give a number of at least 0 and at most 0.5",
    ),
    (
      lambda: measures.ensemble_gaps([[1.0]], [[1]]),
      "members is 1 at ensemble 0, member 0: give model indices, 0 to 0",
    ),
    (
      lambda: measures.ensemble_gaps([[1.0]], [[0.0]]),
      "members has dtype float64: give model indices",
    ),
    (
      lambda: measures.ensemble_gaps([[1.0]], [0]),
      r"members has shape \(1,\): give \(ensembles, members\)",
    ),
    (lambda: measures.ecdf([1.0], 1.0), r"at has shape \(\): give \(points,\)"),
    (
      lambda: measures.reference_ecdf([1.0], [1.0]),
      r"reference_gaps has shape \(1,\): give \(models, examples\)",
    ),
    (lambda: measures.ks_threshold(0), "n is 0: give a number above 0"),
    (
      lambda: measures.ks_threshold(100, 3),
      "epsilon is 3: give a number above 0 and at most 1",
    ),
    (lambda: measures.dkw_threshold(10, 0), "models is 0: give a number of at least 1"),
    (
      lambda: measures.ks_distance([[1.0]], [np.nan]),
      "candidate_gaps is nan at example 0",
    ),
    (
      lambda: measures.trimmed_ks_distance([[1.0]], [1.0], 1),
      "alpha is 1: give a number of at least 0 and below 1",
    ),
    (lambda: measures.trimmed_ks_distance([[1.0]], [1.0], -0.1), "alpha is -0.1"),
    (
      lambda: measures.trimmed_ks_distance([[1.0]], [1.0], [0.1]),
      r"alpha is \[0.1\]: give a number",
    ),
    (
      lambda: measures.trimming_level([[1.0, 2.0]], [1.0], key=KEY),
      r"reference_gaps has shape \(1, 2\) and candidate",
    ),
    (
      lambda: measures.trimming_level([[1.0]], [1.0], key=KEY, alphas=[0.2, 0.1]),
      "alphas does not rise",
    ),
    (
      lambda: measures.trimming_level([[1.0]], [1.0], key=KEY, replicates=0),
      "replicates is 0",
    ),
    (
      lambda: measures.trimming_level([[1.0, 2]], [1.0, 2], key=KEY, threshold=0),
      "threshold is 0",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
