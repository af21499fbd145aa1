"""The unit of inference: what a mean or a difference rests on, by what runs share."""

import doctest

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats

import vmapseeds as vs
from vmapseeds import UserError, stats
from vmapseeds.stats import designs

RNG = np.random.default_rng(0)


def grid(*counts):
  """The labels of a full table, an array for each axis."""
  return np.indices(counts).reshape(len(counts), -1)


def test_examples_in_docstrings_run():
  failed, tried = doctest.testmod(designs)
  assert not failed
  assert tried >= 8


def test_each_score_alone_is_a_run():
  scores = RNG.normal(size=9)
  found = stats.design(scores)
  assert found.independent_runs
  mean = found.mean(level=0.9)
  test = scipy.stats.ttest_1samp(scores, 0)
  assert mean.se == pytest.approx(scores.std(ddof=1) / 3)
  ends = test.confidence_interval(0.9)
  assert mean.interval == pytest.approx((ends.low, ends.high))


def test_seeds_are_the_units_of_seeds_and_folds():
  """As a t test of the means of seeds, in whatever order the runs are given."""
  seeds, folds = grid(7, 5)
  table = RNG.normal(size=(7, 5)) + RNG.normal(size=(7, 1))
  other = RNG.normal(size=(7, 5))
  order = RNG.permutation(35)
  a = stats.design(table.ravel()[order], {"seed": seeds[order]}, folds=folds[order])
  b = stats.design(other.ravel(), {"seed": seeds}, folds=folds)
  assert (a.drawn, a.counts, a.averaged) == (("seed",), (7,), {"fold": 5})
  frame = pd.DataFrame({"seed": seeds, "score": table.ravel()})
  means = frame.groupby("seed").score.mean()
  assert a.mean().se == pytest.approx(means.sem())
  # Pairs of the same seeds, and not of seeds and folds: fewer, and so less sure.
  expected = stats.compare_means(table.mean(1), other.mean(1))
  np.testing.assert_allclose(stats.compare_designs(a, b), expected)
  unpaired = stats.compare_means(table.mean(1), other.mean(1), paired=False)
  np.testing.assert_allclose(stats.compare_designs(a, b, paired=False), unpaired)


def test_a_seed_that_lacks_a_fold_is_left_out():
  seeds, folds = grid(6, 3)
  scores = RNG.normal(size=18)
  kept = np.arange(18) != 4
  found = stats.design(scores[kept], {"seed": seeds[kept]}, folds=folds[kept])
  assert found.levels[0].tolist() == [0, 2, 3, 4, 5]
  expected = scores.reshape(6, 3).mean(1)[[0, 2, 3, 4, 5]]
  np.testing.assert_allclose(found.values, expected)
  # Divisions that each seed has for itself need not be whole.
  nested = stats.design(scores[kept], {"seed": seeds[kept]}, folds=np.arange(17))
  assert nested.counts == (6,)
  with pytest.raises(UserError, match="lack runs of what they have in common: 1 of 5"):
    rows = np.r_[0, 1, 2, 4, 7, 10, 13]
    stats.design(scores[rows], {"seed": seeds[rows]}, folds=folds[rows])


def test_folds_alone_are_corrected_for_their_overlap():
  """Nadeau and Bengio's t, written out."""
  scores, others = RNG.normal(size=(2, 50))
  folds = np.arange(50)
  a = stats.design(scores, {"seed": np.zeros(50)}, folds=folds, test_to_train=1 / 9)
  b = stats.design(others, folds=folds, test_to_train=1 / 9)
  assert a.drawn == ("fold",)
  assert a.one == ("seed",)
  difference = scores - others
  se = np.sqrt(difference.var(ddof=1) * (1 / 50 + 1 / 9))
  found = stats.compare_designs(a, b)
  t = difference.mean() / se
  assert found.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(t), 49))
  reach = scipy.stats.t.ppf(0.975, 49) * se
  assert found.high == pytest.approx(difference.mean() + reach)
  assert a.mean().se == pytest.approx(scores.std(ddof=1) * (1 / 50 + 1 / 9) ** 0.5)
  with pytest.raises(UserError, match="folds are what is drawn anew"):
    stats.design(scores, folds=folds)


def test_a_nested_source_is_averaged_over():
  """Subjects in clinics of unequal size: clinics are the units."""
  clinics = np.repeat([0, 1, 2, 3], [2, 3, 4, 5])
  subjects = np.arange(14)
  scores = RNG.normal(size=14)
  found = stats.design(scores, {"subject": subjects, "clinic": clinics})
  assert (found.drawn, found.averaged) == (("clinic",), {"subject": 5})
  means = [scores[clinics == clinic].mean() for clinic in range(4)]
  np.testing.assert_allclose(found.values, means)
  assert found.mean().se == pytest.approx(np.std(means, ddof=1) / 2)


def test_sources_that_vary_together_are_one():
  seeds = np.arange(6)
  found = stats.design(RNG.normal(size=6), {"init": seeds, "order": seeds[::-1]})
  assert found.drawn == ("init and order",)
  assert found.counts == (6,)


def mean_squares(y):
  """The mean squares of a full table, by regression on dummy variables."""
  labels = np.indices(y.shape).reshape(y.ndim, -1)
  columns = {(): np.ones((y.size, 1))}
  found = {}
  sets = sorted(
    (tuple(np.flatnonzero(bits)) for bits in np.ndindex((2,) * y.ndim)), key=len
  )
  for chosen in sets[1:]:
    code = np.ravel_multi_index(
      [labels[i] for i in chosen], [y.shape[i] for i in chosen]
    )
    columns[chosen] = np.eye(code.max() + 1)[code]
    lower = np.hstack([columns[s] for s in columns if set(s) < set(chosen)])
    both = np.hstack([lower, columns[chosen]])
    fits = [x @ np.linalg.lstsq(x, y.ravel(), rcond=None)[0] for x in (lower, both)]
    freedom = np.linalg.matrix_rank(both) - np.linalg.matrix_rank(lower)
    found[chosen] = ((fits[1] - fits[0]) ** 2).sum() / freedom, freedom
  return found


def test_three_crossed_sources():
  """By least squares, and by Henderson's equations solved for the components."""
  shape = (5, 3, 4)
  y = RNG.normal(size=shape) + 2 * RNG.normal(size=(5, 1, 1)) + RNG.normal(size=(3, 1))
  labels = dict(zip(("init", "order", "augment"), grid(*shape), strict=True))
  order = RNG.permutation(y.size)
  columns = {name: column[order] for name, column in labels.items()}
  found = stats.design(y.ravel()[order], columns)
  assert found.counts == shape
  squares = mean_squares(y)
  sets = list(squares)
  # E MS_S = Σ_{T ⊇ S} σ²_T Π_{i ∉ T} n_i
  expectations = np.array(
    [
      [
        np.prod([shape[i] for i in range(3) if i not in t]) if set(s) <= set(t) else 0
        for t in sets
      ]
      for s in sets
    ]
  )
  expected = np.linalg.solve(expectations, [squares[s][0] for s in sets])
  components = {c.sources: c.variance for c in found.components()}
  names = ("init", "order", "augment")
  for chosen, variance in zip(sets, expected, strict=True):
    assert components[tuple(names[i] for i in chosen)] == pytest.approx(variance)
  # Var(mean) = Σ_T σ²_T / Π_{i ∈ T} n_i
  variance = sum(
    v / np.prod([shape[i] for i in t]) for t, v in zip(sets, expected, strict=True)
  )
  largest = max(squares[(i,)][0] for i in range(3)) / y.size
  assert found.mean().se == pytest.approx(max(variance, largest) ** 0.5)
  assert found.sd_of_run() == pytest.approx(expected.sum() ** 0.5)
  ends = {c.sources: (c.low, c.high) for c in found.components()}
  # The interval of what is left is by chi-square, exactly.
  square, freedom = squares[(0, 1, 2)]
  effects = designs._effects(y)[(0, 1, 2)]
  freedom = designs.effective_freedom(effects, freedom)
  quantiles = scipy.stats.chi2.ppf([0.975, 0.025], freedom)
  assert ends[names] == pytest.approx(tuple(square * freedom / quantiles))


def test_a_source_of_few_seeds_reaches_as_far_as_these_know():
  """40 × 3: the quantile of 40 seeds would be for those of the first alone."""
  shape = (40, 3)
  labels = dict(zip(("init", "order"), grid(*shape), strict=True))
  y = RNG.normal(size=shape) + RNG.normal(size=(40, 1)) + 3 * RNG.normal(size=3)
  of_init, of_order, of_both = (
    mean_squares(y)[chosen][0] / 120 for chosen in ((0,), (1,), (0, 1))
  )
  t_init, t_order = scipy.stats.t.ppf(0.975, [39, 2])
  reach = max(
    t_init**2 * of_init + t_order**2 * (of_order - of_both),
    t_order**2 * of_order + t_init**2 * (of_init - of_both),
  )
  mean = stats.design(y.ravel(), labels).mean()
  assert mean.high - mean.value == pytest.approx(reach**0.5, rel=1e-6)
  assert mean.se == pytest.approx((of_init + of_order - of_both) ** 0.5)


def test_crossed_seeds_are_no_independent_runs():
  """5 × 2 × 2 seeds, of which those of init matter: 20 runs know its mean as 5 do."""
  values = np.random.default_rng(3)
  scores = 70 + values.normal(size=(5, 2, 2)) + 5 * values.normal(size=(5, 1, 1))
  init, order, augment = np.indices(scores.shape).reshape(3, -1)
  seeds = {"seed_init": init, "seed_order": order, "seed_augment": augment}
  report = vs.report(pd.DataFrame({**seeds, "score": scores.ravel()}), score="score")
  squares = mean_squares(scores)
  # V = Σ_S (-1)^{|S|+1} MS_S/N, and at least the largest of a source.
  variance = sum((-1) ** (len(s) + 1) * squares[s][0] / 20 for s in squares)
  variance = max(variance, *(squares[i,][0] / 20 for i in range(3)))
  mean = report.tables["statistics"].xs("mean", level="statistic").iloc[0]
  assert mean["se"] == pytest.approx(variance**0.5)
  assert mean["se"] > 2 * scores.std(ddof=1) / 20**0.5
  (note,) = [note for note in report.notes if "drawn anew" in note]
  assert "5 seeds of init, 2 seeds of order and 2 seeds of augment" in note
  for source in ("init", "order", "augment", "init × order × augment"):
    assert f"{source} " in str(report)


def test_two_seeds_of_a_source_give_no_interval():
  shape = (5, 2, 2)
  labels = dict(zip(("init", "order", "augment"), grid(*shape), strict=True))
  y = RNG.normal(size=shape) + 5 * RNG.normal(size=(5, 1, 1))
  mean = stats.design(y.ravel(), labels).mean()
  # That of all runs as independent is half as large.
  of_inits = y.mean((1, 2)).std(ddof=1) / 5**0.5
  assert mean.se >= of_inits
  assert mean.se > 1.7 * y.std(ddof=1) / 20**0.5
  assert np.isnan(mean.low)
  found = stats.design(y.ravel(), labels)
  assert stats.compare_designs(found, found).p_value == 1


def test_scores_without_labels_make_no_pairs_unless_asked():
  a, b = RNG.normal(size=(2, 8))
  designs_of = stats.design(a), stats.design(b)
  unpaired = stats.compare_means(a, b, paired=False)
  np.testing.assert_allclose(stats.compare_designs(*designs_of), unpaired)
  paired = stats.compare_designs(*designs_of, paired=True)
  np.testing.assert_allclose(paired, stats.compare_means(a, b))
  seeds = {"seed": np.arange(8)}
  others = {"seed": np.arange(8) + 7}
  with pytest.raises(UserError, match="A has 8 of seed and B 8 of seed, of which too"):
    stats.compare_designs(stats.design(a, seeds), stats.design(b, others), paired=True)


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"drawn": {"seed": [1, 2]}}, r"seed has shape \(2,\) beside 3 scores"),
    (
      {"folds": [0, 1, 2], "test_to_train": 0},
      "test_to_train is 0: give a number above",
    ),
  ],
)
def test_mistakes(options, message):
  with pytest.raises(UserError, match=message):
    stats.design([1.0, 2.0, 3.0], **options)


def reml(y):
  """Variances of a crossed model by maximising the restricted likelihood."""
  I, J = y.shape  # noqa: E741
  first, second = (
    np.kron(np.eye(I), np.ones((J, J))),
    np.kron(np.ones((I, I)), np.eye(J)),
  )
  one = np.ones((y.size, 1))

  def minus_log_likelihood(logs):
    a, b, c = np.exp(logs)
    V = a * first + b * second + c * np.eye(y.size)
    inverse = np.linalg.inv(V)
    of_mean = one.T @ inverse @ one
    left = y.reshape(-1, 1) - one * (one.T @ inverse @ y.reshape(-1, 1)) / of_mean
    parts = np.linalg.slogdet(V)[1], np.log(of_mean), left.T @ inverse @ left
    return float(sum(map(np.squeeze, parts)))

  start = np.log(np.full(3, y.var()))
  found = scipy.optimize.minimize(minus_log_likelihood, start, tol=1e-9)
  return np.exp(found.x)


def components_of(y):
  """Variances of two crossed sources and of their interaction, and their intervals."""
  rows, columns = grid(*y.shape)
  found = stats.design(y.ravel(), {"rows": rows, "columns": columns}).components()
  return tuple(np.array([c[1:] for c in found]).T)


def test_variances_of_two_sources_are_those_of_the_textbook_and_of_reml():
  rng = np.random.default_rng(4)
  y = 0.8 + rng.normal(0, 0.3, (6, 1)) + rng.normal(0, 0.2, (1, 4))
  y = y + rng.normal(0, 0.1, (6, 4))
  variance, low, high = components_of(y)
  np.testing.assert_allclose(variance, reml(y), rtol=1e-3)
  # By hand: sums of squares between rows, between columns, and what is left.
  rows, columns, all_ = y.mean(1), y.mean(0), y.mean()
  of_rows = sum(4 * (r - all_) ** 2 for r in rows) / 5
  of_columns = sum(6 * (c - all_) ** 2 for c in columns) / 3
  left = (
    sum(
      (y[i, j] - rows[i] - columns[j] + all_) ** 2 for i in range(6) for j in range(4)
    )
    / 15
  )
  np.testing.assert_allclose(
    variance, [(of_rows - left) / 4, (of_columns - left) / 6, left]
  )
  assert (low < variance).all()
  assert (variance < high).all()
  _, _, turned = components_of(y.T)
  np.testing.assert_allclose(turned[[1, 0, 2]], high)


def test_variances_of_constant_sources():
  np.testing.assert_array_equal(components_of(np.full((2, 2), 0.7)), np.zeros((3, 3)))
  variance, *_ = components_of(np.arange(3.0)[:, None] + np.zeros((1, 4)))
  np.testing.assert_allclose(variance, [1, 0, 0], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "least"), [("normal", 0.93), ("skewed", 0.8)])
def test_intervals_of_variances_of_sources_hold_the_truth(law, least):
  rng = np.random.default_rng(5)
  draw = (
    rng.standard_normal if law == "normal" else lambda s: rng.exponential(size=s) - 1
  )
  for shape in ((10, 3), (50, 5)):
    for sds in ((1.0, 0.3, 1.0), (0.0, 1.0, 0.5)):
      truth, held = np.square(sds), np.zeros(3)
      for _ in range(1000):
        axes = (shape[0], 1), (1, shape[1]), shape
        y = sum(sd * draw(axis) for sd, axis in zip(sds, axes, strict=True))
        _, low, high = components_of(y)
        held += (low <= truth) & (truth <= high)
      assert (held / 1000 > least).all()
