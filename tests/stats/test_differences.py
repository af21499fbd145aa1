"""Differences of means and how often they are found, against enumerations, textbooks and
simulations.
"""

import itertools

import jax
import numpy as np
import pytest
import scipy.stats
from cases import mostly_slow

from experiments.benchmarks import verdicts
from vmapseeds import UserError, stats

RNG = np.random.default_rng(0)


def sign_test(d):
  """The two-sided p-value of the mean over all changes of signs, one by one, with the
  smaller tail doubled.
  """
  sums = np.array(
    [np.dot(s, d) for s in itertools.product((-1, 1), repeat=len(d))]
  ).round(9)
  return min(
    1, 2 * min((sums >= sum(d).round(9)).mean(), (sums <= sum(d).round(9)).mean())
  )


def permutation_test(a, b):
  """Likewise over all divisions of the runs into two groups."""
  every, n = np.r_[a, b], len(a)
  found = []
  for places in itertools.combinations(range(len(every)), n):
    chosen = np.isin(np.arange(len(every)), places)
    found.append(every[chosen].mean() - every[~chosen].mean())
  found, seen = np.round(found, 9), round(a.mean() - b.mean(), 9)
  return min(1, 2 * min((found >= seen).mean(), (found <= seen).mean()))


@pytest.mark.parametrize("runs", [2, 5, 6, 9])
@pytest.mark.parametrize("grid", [0.25, None])
def test_pairs_equal_all_changes_of_signs(runs, grid):
  """Also moved by any difference: the interval is of those that the test does not
  refuse.
  """
  a, b = RNG.normal(0.5, 1, (2, runs))
  if grid:
    a, b = (np.round(x / grid) * grid for x in (a, b))
  found = stats.compare_means(a, b)
  assert found.p_value == pytest.approx(sign_test(a - b))
  if runs < 6:
    assert (found.low, found.high) == (-np.inf, np.inf)
    return
  # Ends are kept on a grid, and left out just beyond.
  for end, beyond in ((found.low, -1e-6), (found.high, 1e-6)):
    assert sign_test(a - b - end) > 0.05 >= sign_test(a - b - end - beyond * 0) - 1
    assert sign_test(a - b - (end + beyond)) <= 0.05


@pytest.mark.parametrize(("n", "m"), [(2, 3), (4, 4), (3, 6)])
def test_unpaired_equals_all_permutations_and_welch(n, m):
  a, b = RNG.normal(0.5, 1, n), RNG.normal(0, 2, m)
  found = stats.compare_means(a, b, paired=False)
  welch = scipy.stats.ttest_ind(a, b, equal_var=False)
  assert found.p_value == pytest.approx(max(permutation_test(a, b), welch.pvalue))
  ends = welch.confidence_interval()
  if (n, m) == (2, 3):
    assert (found.low, found.high) == (-np.inf, np.inf)
    return
  assert found.low <= ends.low
  assert found.high >= ends.high
  for end, beyond in ((found.low, -1e-6), (found.high, 1e-6)):
    assert permutation_test(a - (end + beyond), b) <= 0.05
    moved = scipy.stats.ttest_ind(a - (end + beyond), b, equal_var=False)
    assert moved.pvalue < 0.05


@pytest.mark.parametrize("paired", [True, False])
def test_of_many_runs_some_rearrangements_are_drawn(paired):
  a, b = RNG.normal(0.3, 1, 40), RNG.normal(0, 1, 40)
  first, again = (stats.compare_means(a, b, paired) for _ in range(2))
  assert first == again
  other = stats.compare_means(a, b, paired, key=jax.random.key(1))
  student = stats.mean_difference(a, b, paired)
  for found in (first, other):
    width = student.high - student.low
    assert abs(found.low - student.low) < 0.05 * width
    assert abs(found.high - student.high) < 0.05 * width
  assert first.high != other.high
  # Whatever the order of the runs.
  order = RNG.permutation(40)
  moved = stats.compare_means(a[order], b[order], paired)
  np.testing.assert_allclose(moved, first, rtol=1e-12)
  # Beyond a thousand runs it is Student's or Welch's.
  a, b = RNG.normal(size=(2, 1001))
  ends = stats.compare_means(a, b, paired)[:3]
  student = stats.mean_difference(a, b, paired)
  np.testing.assert_allclose(ends, [student.value, *student.interval])


def test_runs_that_are_equal_or_too_few():
  same = stats.compare_means([1.0] * 8, [1.0] * 8)
  assert same == (0, 0, 0, 1)
  assert stats.compare_means([2.0] * 8, [1.0] * 8).p_value == 2 / 2**8
  apart = stats.compare_means([2.0] * 5, [1.0] * 5, paired=False)
  assert (apart.low, apart.high, apart.p_value) == (1, 1, pytest.approx(2 / 252))
  for a, b in (([], []), ([1.0], [2.0])):
    found = stats.compare_means(a, b)
    assert (found.low, found.high, found.p_value) == (-np.inf, np.inf, 1)
  alone = stats.compare_means([1.0], np.arange(60.0), paired=False)
  assert alone.p_value == 1
  assert stats.probability_of_outperforming([], []).interval == (0, 1)


def test_runs_for_significance():
  assert [stats.least_p_value(n, n) for n in (0, 1, 5, 6)] == [1, 1, 1 / 16, 1 / 32]
  assert stats.least_p_value(3, 4, paired=False) == pytest.approx(2 / 35)
  assert stats.least_p_value(1, 99, paired=False) == 1
  assert stats.runs_for_significance() == 6
  assert stats.runs_for_significance(alpha=0.05 / 6) == 8
  assert stats.runs_for_significance(False) == 4


@pytest.mark.parametrize("pairs", [1, 3, 8, 30])
def test_the_interval_of_a_probability_holds_for_every_law_of_wins_and_ties(pairs):
  """Exactly, by all numbers of wins and ties, at a grid of their probabilities."""
  wins, ties = (x.ravel() for x in np.indices((pairs + 1,) * 2))
  wins, ties = (x[wins + ties <= pairs] for x in (wins, ties))
  outcomes = [
    stats.probability_of_outperforming(
      np.repeat([1, 0, -1], [w, t, pairs - w - t]), np.zeros(pairs)
    ).interval
    for w, t in zip(wins, ties, strict=True)
  ]
  low, high = np.array(outcomes).T
  for p_win, p_tie in itertools.product(np.linspace(0, 1, 21), repeat=2):
    if p_win + p_tie > 1:
      continue
    law = scipy.stats.multinomial(pairs, [p_win, p_tie, max(0, 1 - p_win - p_tie)])
    p = p_win + p_tie / 2
    held = (low <= p + 1e-9) & (p - 1e-9 <= high)
    counts = np.stack([wins, ties, pairs - wins - ties], axis=1)
    assert law.pmf(counts)[held].sum() >= 0.95
  exact = scipy.stats.binomtest(pairs, pairs).proportion_ci()
  assert outcomes[np.flatnonzero(wins == pairs)[0]] == pytest.approx(exact)


def test_an_analysis_of_variance_by_hand():
  """On other examples, against sums over all runs and examples one by one."""
  a, b = RNG.normal(size=(2, 5, 7))
  d = a - b
  grand, rows, columns = d.mean(), d.mean(1), d.mean(0)
  of_rows = 7 * sum((r - grand) ** 2 for r in rows) / 4
  of_columns = 5 * sum((c - grand) ** 2 for c in columns) / 6
  left = (
    sum(
      (d[i, j] - rows[i] - columns[j] + grand) ** 2 for i in range(5) for j in range(7)
    )
    / 24
  )
  v_rows, v_columns = of_rows / 35, of_columns / 35
  variance = max(v_rows, v_columns, v_rows + v_columns - left / 35)
  freedom = variance**2 / (v_rows**2 / 4 + v_columns**2 / 6)
  reach = scipy.stats.t.ppf(0.975, freedom) * variance**0.5
  found = stats.compare_means_on_other_examples(a, b)
  np.testing.assert_allclose(
    [found.value, found.se, *found.interval],
    [grand, variance**0.5, grand - reach, grand + reach],
  )
  # What is hard for both does not count.
  hard = RNG.normal(0, 9, 7)
  for paired in (True, False):
    np.testing.assert_allclose(
      stats.compare_means_on_other_examples(a + hard, b + hard, paired).interval,
      stats.compare_means_on_other_examples(a, b, paired).interval,
    )
  alone = stats.compare_means_on_other_examples(a[:1], b[:1])
  assert alone.interval == (-np.inf, np.inf)
  assert alone.value == pytest.approx(a[0].mean() - b[0].mean())
  assert np.isnan(stats.compare_means_on_other_examples(a[:0], b[:0]).value)
  same = stats.compare_means_on_other_examples(np.ones((2, 3)), np.zeros((2, 3)))
  assert same.interval == (1, 1)
  with pytest.raises(UserError, match=r"a has shape \(5, 7\) and b \(5, 6\)"):
    stats.compare_means_on_other_examples(a, b[:, :6])


def test_holm_by_hand():
  np.testing.assert_allclose(stats.holm([0.04, 0.001, 0.03]), [0.06, 0.003, 0.06])
  np.testing.assert_allclose(stats.holm([0.9, 0.8]), [1, 1])
  assert stats.holm([]).shape == (0,)


def test_planned_runs_against_the_power_of_students_test():
  """The power of SciPy's noncentral t; and by simulation, in the benchmark of which this
  is a part.
  """
  for difference, paired in ((0.3, True), (0.5, False)):
    runs = int(stats.runs_for_difference(1.0, difference, paired))
    powers = []
    for n in (runs - 1, runs):
      freedom = n - 1 if paired else 2 * (n - 1)
      shift = difference * (n if paired else n / 2) ** 0.5
      powers.append(
        scipy.stats.nct.sf(scipy.stats.t.isf(0.025, freedom), freedom, shift)
      )
    assert powers[0] < 0.8 <= powers[1]
  assert stats.runs_for_difference(0.0, 0.1) == 6
  assert np.isnan(stats.runs_for_mean(np.nan, 0.1))
  assert stats.runs_for_mean([0.0, np.inf], 0.1).tolist() == [2, np.inf]
  runs = int(stats.runs_for_mean(1.0, 0.5))
  reach = [scipy.stats.t.ppf(0.975, n - 1) / n**0.5 for n in (runs - 1, runs)]
  assert reach[1] <= 0.5 < reach[0]
  for given, message in (
    ({"sd": -1, "difference": 1}, "sd is -1"),
    ({"sd": 1, "difference": 0}, "difference is 0"),
    ({"sd": 1, "difference": 1, "power": 1}, "level is 1"),
  ):
    with pytest.raises(UserError, match=message):
      stats.runs_for_difference(**given)


@pytest.mark.parametrize("law", mostly_slow(verdicts.LAWS))
@pytest.mark.parametrize(
  ("runs", "paired"), mostly_slow([(6, True), (8, True), (5, False)])
)
def test_equal_algorithms_are_called_different_in_at_most_one_case_in_twenty(
  law, runs, paired
):
  """A reduced form of the benchmark, whose error rates are at most 5 %."""
  draw, rng = verdicts.LAWS[law], np.random.default_rng(1)
  better, held, won = verdicts.rates_of_verdicts(
    draw, draw, 0.0, runs, paired, 200, rng
  )
  # Three standard errors of 200 comparisons.
  assert better <= 0.05 + 3 * 0.016
  assert held >= 0.95 - 3 * 0.016
  assert won >= 0.95 - 3 * 0.016


@pytest.mark.slow
def test_planned_runs_show_what_they_are_planned_for():
  runs = int(stats.runs_for_difference(1.0, 1.0, paired=False))
  rng = np.random.default_rng(2)
  shown = verdicts.share_shown(runs, 1.0, False, "normal", 150, rng)
  assert abs(shown - 0.8) < 3 * 0.033


@pytest.mark.slow
def test_other_examples_are_covered():
  both, alone = verdicts.examples_rate(40, 100, 200, np.random.default_rng(3))
  assert both > 0.9
  assert alone < both


def test_the_probability_of_the_best_of_two_is_of_students_test():
  rng = np.random.default_rng(3)
  for runs in (2, 3, 20):
    a, b = rng.normal(0.3, 1, (2, runs))
    for paired, test in ((True, scipy.stats.ttest_rel), (False, None)):
      found = stats.probability_of_best(a, b, paired=paired, replicates=200_000)
      assert found.sum() == pytest.approx(1)
      if test:
        p = test(a, b, alternative="greater").pvalue
        assert found[0] == pytest.approx(1 - p, abs=0.005)
  # Unpaired, by draws of Student's law of each mean.
  a, b, c = rng.normal(size=5), rng.normal(size=4), rng.normal(0.5, 1, 7)
  draws = [
    x.mean() + scipy.stats.sem(x) * rng.standard_t(len(x) - 1, 400_000)
    for x in (a, b, c)
  ]
  expected = np.bincount(np.argmax(draws, axis=0), minlength=3) / 400_000
  found = stats.probability_of_best(a, b, c, paired=False, replicates=200_000)
  np.testing.assert_allclose(found, expected, atol=0.005)


def test_the_probability_of_the_best_of_equal_and_of_few_runs():
  x = np.array([0.5, 0.7, 0.9])
  np.testing.assert_allclose(stats.probability_of_best(x, x, x - 1), [0.5, 0.5, 0])
  np.testing.assert_allclose(stats.probability_of_best(x + 1, x), [1, 0])
  assert stats.probability_of_best(x).tolist() == [1.0]
  assert np.isnan(stats.probability_of_best([1.0], [2.0])).all()
  assert np.isnan(stats.probability_of_best([], [])).all()
  with pytest.raises(UserError, match=r"of 3, 2 runs: give as many of each, or paired"):
    stats.probability_of_best(x, x[:2])
  with pytest.raises(UserError, match="algorithms is 0"):
    stats.probability_of_best()


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "skewed"])
@pytest.mark.parametrize(("runs", "values"), [(3, 3), (5, 6), (20, 4)])
@pytest.mark.parametrize("paired", [True, False])
def test_the_probability_of_the_best_is_how_often_it_is(law, runs, values, paired):
  """Of values whose true means differ by chance, those that are called the best with
  probability p are it in a share p of cases.
  """
  rng = np.random.default_rng(runs)
  draw = (
    rng.standard_normal if law == "normal" else lambda s: 1 - rng.exponential(size=s)
  )
  said, best = [], []
  for _ in range(1000):
    truth = rng.normal(0, 3 / np.sqrt(runs), values)
    x = draw((values, runs))
    if paired:
      x = (x + draw((1, runs))) / np.sqrt(2)
    p = stats.probability_of_best(*(x + truth[:, None]), paired=paired, replicates=500)
    said.append(p.max())
    best.append(p.argmax() == truth.argmax())
  said, best = np.array(said), np.array(best)
  for low, high in ((0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
    of = (said >= low) & (said < high)
    error = np.sqrt(said[of].mean() * (1 - said[of].mean()) / of.sum())
    # Never surer than right; with skewed runs by a few per cent at most.
    assert best[of].mean() > said[of].mean() - 3 * error - 0.03 * (law == "skewed")
    assert best[of].mean() < said[of].mean() + 3 * error + 0.06


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("runs", [1, 2, 8, 30])
def test_either_order_gives_the_same_numbers(runs, paired):
  a, b = np.random.default_rng(runs).normal(size=(2, runs))
  forth, back = (stats.compare_means(*x, paired) for x in ((a, b), (b, a)))
  assert tuple(forth) == (-back.difference, -back.high, -back.low, back.p_value)
