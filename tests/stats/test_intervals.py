"""Intervals and standard errors against SciPy, leave-one-out loops and simulated
campaigns.
"""

import numpy as np
import pytest
import scipy.stats

from vmapseeds import stats
from vmapseeds.mistakes import Mistake

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
  assert stats.independent_errors_variance_se(ERRORS) == pytest.approx(
    jackknife(stats.independent_errors_variance, ERRORS)
  )
  assert stats.expected_disagreement_se(PREDICTIONS, 3) == pytest.approx(
    jackknife(lambda p: stats.expected_disagreement(p, 3), PREDICTIONS)
  )
  assert stats.gde_gap_se(PREDICTIONS, LABELS, 3) == pytest.approx(
    jackknife(signed_gap, PREDICTIONS)
  )


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_too_few_runs_for_a_jackknife(runs):
  assert np.isnan(stats.independent_errors_variance_se(ERRORS[:runs]))
  assert np.isnan(stats.gde_gap_se(PREDICTIONS[:runs], LABELS, 3))


def test_intervals_are_scipys():
  x = RNG.normal(size=12)
  expected = scipy.stats.t.interval(0.9, 11, x.mean(), scipy.stats.sem(x))
  np.testing.assert_allclose(stats.mean_interval(x, level=0.9), expected)
  for k, n in ((0, 7), (3, 50), (50, 50)):
    wilson = scipy.stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    np.testing.assert_allclose(stats.proportion_interval(k / n, n), wilson, atol=1e-15)


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
  np.testing.assert_allclose(
    stats.variance_interval(x, level=level), expected, rtol=1e-9
  )
  # A shift changes nothing; a factor of 3 multiplies the variance's interval by 9.
  np.testing.assert_allclose(
    stats.variance_interval(3 * x + 5, level=level), 9 * np.array(expected), rtol=1e-9
  )
  z = [np.arctanh(scipy.stats.pearsonr(a, b).statistic) for a, b in without]
  expected = np.tanh(
    jackknife_ends(np.arctanh(scipy.stats.pearsonr(x, y).statistic), z, level)
  )
  np.testing.assert_allclose(
    stats.correlation_interval(x, y, level=level), expected, rtol=1e-9
  )
  even, odd = ERRORS[:, 0::2].mean(1), ERRORS[:, 1::2].mean(1)
  np.testing.assert_allclose(
    stats.split_correlation_interval(ERRORS, level=level),
    stats.correlation_interval(even, odd, level=level),
    rtol=1e-9,
  )
  assert stats.split_correlation_se(ERRORS) == pytest.approx(
    jackknife(stats.split_correlation, ERRORS)
  )
  n = ERRORS.shape[1]
  ends = np.array(
    stats.variance_interval(ERRORS.mean(1), level=level)
  ) - stats.independent_errors_variance(ERRORS)
  expected = np.minimum(n / (n - 1) * ends, 0.25)
  np.testing.assert_allclose(
    stats.distribution_variance_interval(ERRORS, level=level), expected, rtol=1e-9
  )


def test_ends_of_the_domains():
  assert np.isnan(stats.mean_interval([0.5])).all()
  assert stats.mean_interval([0.5, 0.5]) == (0.5, 0.5)
  for few in ([], [0.1], [0.1, 0.2], [0.1, 0.1, 0.1]):
    assert np.isnan(stats.variance_interval(few)).all()
    assert np.isnan(stats.correlation_interval(few, few)).all()
  # One run that differs bounds the variance from below, and hardly from above.
  low, high = stats.variance_interval([0.1, 0.1, 0.1, 0.1, 0.2])
  assert 0 < low < 0.002
  assert high > 1e6 * low
  x = np.arange(10.0)
  np.testing.assert_allclose(
    [*stats.correlation_interval(x, x), *stats.correlation_interval(x, -x)],
    [1, 1, -1, -1],
  )
  assert np.isnan(stats.correlation_interval(x, x == 3)).all()
  assert np.isnan(stats.split_correlation_se(ERRORS[:3]))
  assert np.isnan(stats.split_correlation_interval(np.zeros((9, 4), bool))).all()
  assert np.isnan(stats.proportion_interval(0.5, 0)).all()
  assert np.isnan(stats.distribution_variance_interval(ERRORS[:1])).all()
  assert np.isnan(stats.distribution_variance_interval(ERRORS[:, :1])).all()
  assert np.isnan(
    stats.distribution_variance_interval(np.eye(5, dtype=bool)[[0, 0, 0, 0, 0]])
  ).all()
  for call, x in (
    (stats.mean_interval, ERRORS[0]),
    (stats.variance_interval, ERRORS[0]),
    (stats.distribution_variance_interval, ERRORS),
    (stats.split_correlation_interval, ERRORS),
  ):
    with pytest.raises(Mistake, match="level is 1"):
      call(x, level=1)
  with pytest.raises(
    Mistake, match="examples is -2: give a whole number of at least 0"
  ):
    stats.proportion_interval(0.5, -2)
  with pytest.raises(
    Mistake, match=r"x of shape \(3,\) and y of shape \(2,\): give series"
  ):
    stats.correlation_interval([1, 2, 3], [1, 2])


def test_runs_for_precision_is_where_the_standard_error_is_small_enough():
  z = scipy.stats.norm.ppf(0.975)
  se, variance = (
    stats.distribution_variance_se(ERRORS),
    stats.distribution_variance(ERRORS),
  )
  assert variance > 0
  runs = stats.runs_for_precision(ERRORS, np.array([0.5, 0.01]))
  reach = z * se * np.sqrt((len(ERRORS) - 1) / (runs - 1)) / variance
  np.testing.assert_allclose(reach, [0.5, 0.01], rtol=0.02)
  assert np.isinf(stats.runs_for_precision(np.eye(6, dtype=bool)))
  assert np.isnan(stats.runs_for_precision(ERRORS[:1]))
  assert np.isnan(stats.runs_for_precision(ERRORS[:2], 0.1, "test_set_variance"))
  with pytest.raises(Mistake, match="relative is 0"):
    stats.runs_for_precision(ERRORS, 0.0)
  with pytest.raises(Mistake, match="relative is '10%': give numbers"):
    stats.runs_for_precision(ERRORS, "10%")
  with pytest.raises(Mistake, match="statistic"):
    stats.runs_for_precision(ERRORS, 0.1, "variance")


def test_runs_for_precision_by_the_law_of_the_runs():
  """Normal runs need 1 + 2 (z/p)², exponential ones 1 + 8 (z/p)²: in both cases 1 + (κ
  - 1)(z/p)².
  """
  rng = np.random.default_rng(2)
  for draw, kurtosis in ((rng.standard_normal, 3), (rng.standard_exponential, 9)):
    # Each run errs on the first examples: for the test-set variance only the number of
    # errors matters.
    wrong = 100 + 20 * draw(20_000)
    errors = np.arange(400) < wrong[:, None].round()
    named = stats.runs_for_precision(errors, 0.1, "test_set_variance")
    assert named == pytest.approx(1 + (kurtosis - 1) * 19.6**2, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "absent", "skewed"])
def test_intervals_cover(law):
  """With fewer campaigns than the table in docs/statistics/coverage.md, which
  `experiments.benchmarks.coverage` makes.
  """
  from experiments.benchmarks import coverage

  rng = np.random.default_rng(1)
  found = coverage.coverage(*coverage.simulated(law, 100, rng), number=150, rng=rng)
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
  _, campaigns = coverage.simulated("normal", 300, rng)
  truth, campaigns = coverage.drawn(next(campaigns), 40, rng)
  found = coverage.coverage(truth, campaigns, number=150, rng=rng)
  assert found.pop(coverage.GAIN) > 0.84
  assert min(found.values()) > 0.89, found
