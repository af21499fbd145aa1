"""Intervals and standard errors against SciPy, leave-one-out loops and simulated
campaigns.
"""

import numpy as np
import pytest
import scipy.stats

from vmapseeds import UserError, stats

RNG = np.random.default_rng(5)
ERRORS = RNG.random((9, 31)) < np.clip(
  RNG.beta(0.5, 1.5, 31) + 0.1 * RNG.standard_normal((9, 1)), 0, 1
)
LABELS = RNG.integers(0, 3, 31)
PREDICTIONS = np.where(ERRORS, (LABELS + RNG.integers(1, 3, ERRORS.shape)) % 3, LABELS)
PREDICTIONS[2, 5] = -1


def jackknife(statistic, *arrays):
  """The jackknife standard error over the runs of the first array; the other arrays are
  passed on whole.
  """
  runs = len(arrays[0])
  left = np.array(
    [statistic(np.delete(arrays[0], r, axis=0), *arrays[1:]) for r in range(runs)]
  )
  return np.sqrt((runs - 1) / runs * ((left - left.mean()) ** 2).sum())


def test_standard_errors_are_those_of_leaving_runs_out():
  signed_gap = lambda p: (p != LABELS).mean() - stats.expected_disagreement(p, 3)  # noqa: E731
  assert stats.independent_errors_variance(ERRORS).se == pytest.approx(
    jackknife(stats.independent_errors_variance, ERRORS)
  )
  assert stats.expected_disagreement(PREDICTIONS, 3).se == pytest.approx(
    jackknife(lambda p: stats.expected_disagreement(p, 3), PREDICTIONS)
  )
  assert stats.gde_gap(PREDICTIONS, LABELS, 3).se == pytest.approx(
    jackknife(signed_gap, PREDICTIONS)
  )


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_too_few_runs_for_a_jackknife(runs):
  assert np.isnan(stats.independent_errors_variance(ERRORS[:runs]).se)
  assert np.isnan(stats.gde_gap(PREDICTIONS[:runs], LABELS, 3).se)


def test_intervals_are_scipys():
  x = RNG.normal(size=12)
  expected = scipy.stats.t.interval(0.9, 11, x.mean(), scipy.stats.sem(x))
  mean = stats.mean_over_runs(x, level=0.9)
  np.testing.assert_allclose(mean.interval, expected)
  np.testing.assert_allclose([mean.value, mean.se], [x.mean(), scipy.stats.sem(x)])
  assert mean.level == 0.9
  for k, n in ((0, 7), (3, 50), (50, 50)):
    wilson = scipy.stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    proportion = stats.proportion_over_examples(k / n, n)
    np.testing.assert_allclose(proportion.interval, wilson, atol=1e-15)
    se = scipy.stats.binom.std(n, k / n) / n
    np.testing.assert_allclose([proportion.value, proportion.se], [k / n, se])


def jackknife_ends(estimate, left, level):
  """estimate ± t_ν SE in a loop: ν of Satterthwaite, from SciPy's kurtosis."""
  runs = len(left)
  freedom = min(runs - 1, 2 * runs / (scipy.stats.kurtosis(left, fisher=False) - 1))
  reach = scipy.stats.t.ppf((1 + level) / 2, freedom) * np.sqrt(
    (runs - 1) * np.var(left)
  )
  return estimate - reach, estimate + reach


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_intervals_by_the_jackknife_equal_loops(level):
  x = RNG.exponential(size=13)
  y = x + RNG.normal(size=13)
  without = [np.delete([x, y], h, axis=1) for h in range(13)]
  logs = [np.log(a.var(ddof=1)) for a, _ in without]
  down, up = jackknife_ends(0, logs, level)
  expected = x.var(ddof=1) / (1 - down), x.var(ddof=1) * (1 + up + up**2 + up**3)
  variance = stats.variance_over_runs(x, level=level)
  np.testing.assert_allclose(variance.interval, expected, rtol=1e-9)
  assert variance.value == pytest.approx(x.var(ddof=1))
  assert variance.se == pytest.approx(jackknife(lambda some: some.var(ddof=1), x))
  # A shift changes nothing; a factor of 3 multiplies the variance's interval by 9.
  np.testing.assert_allclose(
    stats.variance_over_runs(3 * x + 5, level=level).interval,
    9 * np.array(expected),
    rtol=1e-9,
  )
  z = [np.arctanh(scipy.stats.pearsonr(a, b).statistic) for a, b in without]
  expected = np.tanh(
    jackknife_ends(np.arctanh(scipy.stats.pearsonr(x, y).statistic), z, level)
  )
  correlation = stats.correlation_over_runs(x, y, level=level)
  np.testing.assert_allclose(correlation.interval, expected, rtol=1e-9)
  pearson = scipy.stats.pearsonr
  assert correlation.value == pytest.approx(pearson(x, y).statistic)
  assert correlation.se == pytest.approx(
    jackknife(lambda pairs: pearson(*pairs.T).statistic, np.stack([x, y], 1))
  )
  even, odd = ERRORS[:, 0::2].mean(1), ERRORS[:, 1::2].mean(1)
  np.testing.assert_allclose(
    stats.split_correlation(ERRORS, level=level).interval,
    stats.correlation_over_runs(even, odd, level=level).interval,
    rtol=1e-9,
  )
  assert stats.split_correlation(ERRORS).se == pytest.approx(
    jackknife(stats.split_correlation, ERRORS)
  )
  n = ERRORS.shape[1]
  ends = np.array(
    stats.variance_over_runs(ERRORS.mean(1), level=level).interval
  ) - stats.independent_errors_variance(ERRORS)
  expected = np.minimum(n / (n - 1) * ends, 0.25)
  np.testing.assert_allclose(
    stats.distribution_variance(ERRORS, level=level).interval, expected, rtol=1e-9
  )
  test_set = stats.test_set_variance(ERRORS, level=level)
  of_rates = stats.variance_over_runs(ERRORS.mean(1), level=level)
  np.testing.assert_allclose(
    [test_set.value, test_set.se, *test_set.interval],
    [of_rates.value, of_rates.se, of_rates.low, min(of_rates.high, 0.25)],
    rtol=1e-9,
  )


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_means_over_pairs_have_students_interval_from_0_on(level):
  quantile = scipy.stats.t.ppf((1 + level) / 2, len(ERRORS) - 1)
  for estimate in (
    stats.independent_errors_variance(ERRORS, level=level),
    stats.expected_disagreement(PREDICTIONS, 3, level=level),
    stats.gde_gap(PREDICTIONS, LABELS, 3, level=level),
  ):
    low, high = estimate + quantile * np.array([-1, 1]) * estimate.se
    np.testing.assert_allclose(estimate.interval, [max(low, 0), high], rtol=1e-9)


def test_what_has_no_standard_error():
  """The plug-ins, and tallies, which have no single runs."""
  tallies = stats.tally(PREDICTIONS, LABELS, 3)
  for estimate in (
    stats.distribution_variance(ERRORS, unbiased=False),
    stats.independent_errors_variance(ERRORS, unbiased=False),
    stats.expected_disagreement(PREDICTIONS, 3, self_pairs=True),
    stats.gde_gap(PREDICTIONS, LABELS, 3, self_pairs=True),
    tallies.independent_errors_variance(),
    tallies.expected_disagreement(),
    tallies.gde_gap(),
  ):
    assert np.isfinite(estimate.value)
    assert np.isnan([estimate.se, estimate.low, estimate.high]).all()


def test_a_single_run_that_differs_bounds_no_variance():
  """Without it the variance is 0: the jackknife of its logarithm has no standard error."""
  scores = np.array([1.0] * 14 + [0.2])
  for values in (scores, 100 * scores, -scores):
    assert np.isnan(stats.variance_over_runs(values).interval).all()
  assert np.isfinite(stats.variance_over_runs([*scores, 0.99]).interval).all()


def test_ends_of_the_domains():
  assert np.isnan(stats.mean_over_runs([0.5]).interval).all()
  assert stats.mean_over_runs([0.5, 0.5]).interval == (0.5, 0.5)
  for few in ([], [0.1], [0.1, 0.2], [0.1, 0.1, 0.1]):
    assert np.isnan(stats.variance_over_runs(few).interval).all()
    assert np.isnan(stats.correlation_over_runs(few, few).interval).all()
  x = np.arange(10.0)
  np.testing.assert_allclose(
    [
      *stats.correlation_over_runs(x, x).interval,
      *stats.correlation_over_runs(x, -x).interval,
    ],
    [1, 1, -1, -1],
  )
  assert np.isnan(stats.correlation_over_runs(x, x == 3).interval).all()
  assert np.isnan(stats.split_correlation(ERRORS[:3]).se)
  assert np.isnan(stats.split_correlation(np.zeros((9, 4), bool)).interval).all()
  assert np.isnan(stats.proportion_over_examples(0.5, 0).interval).all()
  assert np.isnan(stats.distribution_variance(ERRORS[:1]).interval).all()
  assert np.isnan(stats.distribution_variance(ERRORS[:, :1]).interval).all()
  assert np.isnan(
    stats.distribution_variance(np.eye(5, dtype=bool)[[0, 0, 0, 0, 0]]).interval
  ).all()
  for call, x in (
    (stats.mean_over_runs, ERRORS[0]),
    (stats.variance_over_runs, ERRORS[0]),
    (stats.distribution_variance, ERRORS),
    (stats.split_correlation, ERRORS),
  ):
    with pytest.raises(UserError, match="level is 1"):
      call(x, level=1)
  with pytest.raises(UserError, match=r"examples is -2: .*at least 0"):
    stats.proportion_over_examples(0.5, -2)
  with pytest.raises(
    UserError, match=r"x of shape \(3,\) and y of shape \(2,\): give series"
  ):
    stats.correlation_over_runs([1, 2, 3], [1, 2])


def test_runs_for_variance_is_where_the_standard_error_is_small_enough():
  z = scipy.stats.norm.ppf(0.975)
  variance = stats.distribution_variance(ERRORS)
  assert variance > 0
  runs = stats.runs_for_variance(ERRORS, np.array([0.5, 0.01]))
  reach = z * variance.se * np.sqrt((len(ERRORS) - 1) / (runs - 1)) / variance
  np.testing.assert_allclose(reach, [0.5, 0.01], rtol=0.02)
  assert np.isinf(stats.runs_for_variance(np.eye(6, dtype=bool)))
  assert np.isnan(stats.runs_for_variance(ERRORS[:1]))
  assert np.isnan(stats.runs_for_variance(ERRORS[:2], 0.1, "test_set_variance"))
  # On a single example there is no other variance.
  one_example = ERRORS[:, :1]
  assert np.isnan(stats.runs_for_variance(one_example))
  variance = stats.variance_over_runs(one_example[:, 0])
  needed = np.ceil(1 + (len(ERRORS) - 1) * (z * variance.se / (0.1 * variance)) ** 2)
  assert stats.runs_for_variance(one_example, 0.1, "test_set_variance") == needed
  with pytest.raises(UserError, match="relative is 0"):
    stats.runs_for_variance(ERRORS, 0.0)
  with pytest.raises(UserError, match="relative is '10%': give numbers"):
    stats.runs_for_variance(ERRORS, "10%")
  with pytest.raises(UserError, match="statistic"):
    stats.runs_for_variance(ERRORS, 0.1, "variance")


def test_runs_for_variance_by_the_law_of_the_runs():
  """Normal runs need 1 + 2 (z/p)², exponential ones 1 + 8 (z/p)²: in both cases 1 + (κ
  - 1)(z/p)².
  """
  rng = np.random.default_rng(2)
  for draw, kurtosis in ((rng.standard_normal, 3), (rng.standard_exponential, 9)):
    # Each run errs on the first examples: for the test-set variance only the number of
    # errors matters.
    wrong = 100 + 20 * draw(20_000)
    errors = np.arange(400) < wrong[:, None].round()
    named = stats.runs_for_variance(errors, 0.1, "test_set_variance")
    assert named == pytest.approx(1 + (kurtosis - 1) * 19.6**2, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "absent", "skewed"])
def test_intervals_cover(law):
  """With fewer campaigns than the table docs/statistics/coverage.csv, which
  `experiments.benchmarks.coverage` makes.
  """
  from experiments.benchmarks import coverage

  rng = np.random.default_rng(1)
  found = coverage.coverage_by_interval(
    *coverage.simulated_campaigns(law, 100, rng), number=150, rng=rng
  )
  too_few = {"... were runs normal: chi-square"} if law == "skewed" else set()
  for name, covered in found.items():
    # 95 % less three standard errors, for 150 campaigns, or for the 37 that are
    # resampled.
    least = 0.84 if name == coverage.GAIN else 0.89
    assert (covered > least) != (name in too_few), name


@pytest.mark.slow
def test_intervals_cover_in_campaigns_drawn_from_runs():
  from experiments.benchmarks import coverage

  rng = np.random.default_rng(2)
  _, campaigns = coverage.simulated_campaigns("normal", 300, rng)
  truth, campaigns = coverage.resampled_campaigns(next(campaigns), 40, rng)
  found = coverage.coverage_by_interval(truth, campaigns, number=150, rng=rng)
  assert found.pop(coverage.GAIN) > 0.84
  assert min(found.values()) > 0.89, found


def test_intervals_over_groups_hold():
  """Of 20 subjects with 2 to 8 examples each, whose own rates differ."""
  rng = np.random.default_rng(0)
  holds = 0
  for _ in range(400):
    rates = rng.beta(4, 2, 20)
    groups = np.repeat(np.arange(20), rng.integers(2, 9, 20))
    found = stats.mean_over_groups(rng.random(len(groups)) < rates[groups], groups)
    holds += found.low <= 2 / 3 <= found.high
  assert 0.92 < holds / 400 < 0.975


def test_one_example_a_group_gives_students_interval():
  x = np.random.default_rng(0).normal(size=12)
  found = stats.mean_over_groups([*x, np.nan], [f"subject {i}" for i in range(13)])
  due = stats.mean_over_runs(x)
  np.testing.assert_allclose(found.interval, due.interval)
  assert np.isnan(stats.mean_over_groups(x, np.zeros(12, int)).se)
  with pytest.raises(UserError, match="give the group of each"):
    stats.mean_over_groups(x, [0, 1])
