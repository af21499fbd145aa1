import itertools

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.integrate
import scipy.stats

from experiments import measures
from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats.resampling import resamples

A, B = [0.9, 0.8, 0.7, 0.6, 0.5], [0.8, 0.8, 0.6, 0.7, 0.1]


def test_paired_probability():
  assert stats.probability_of_outperforming(A, B) == 3.5 / 5


def test_unpaired_probability_equals_all_pairs():
  b = B[:3]
  wins, even = sum(x > y for x in A for y in b), sum(x == y for x in A for y in b)
  given = stats.probability_of_outperforming(A, b, paired=False)
  assert given == pytest.approx((wins + even / 2) / 15)
  assert given == pytest.approx(scipy.stats.mannwhitneyu(A, b).statistic / 15)


def test_all_tied_pairs():
  assert stats.probability_of_outperforming([1, 1], [1, 1]) == 0.5
  assert np.isnan(stats.probability_of_outperforming([], []))
  assert np.isnan(stats.probability_of_outperforming([], [1], paired=False))


def pairs(wins, ties, losses):
  return np.r_[np.ones(wins), np.zeros(ties), -np.ones(losses)], np.zeros(
    wins + ties + losses
  )


@pytest.mark.parametrize("wins", [0, 7, 17, 20, 29])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_interval_without_ties_is_binomial(wins, alpha):
  result = measures.decide(*pairs(wins, 0, 29 - wins), alpha=alpha)
  expected = scipy.stats.binom.ppf([alpha / 2, 1 - alpha / 2], 29, wins / 29) / 29
  np.testing.assert_allclose([result.low, result.high], expected, rtol=1e-12)
  assert result.probability == wins / 29


@pytest.mark.parametrize("wins", [10_100, 19_990])
def test_interval_of_very_many_pairs_is_binomial(wins):
  result = measures.decide(*pairs(wins, 0, 20_000 - wins))
  expected = scipy.stats.binom.ppf([0.025, 0.975], 20_000, wins / 20_000) / 20_000
  np.testing.assert_allclose([result.low, result.high], expected, rtol=1e-12)


def test_interval_with_ties_equals_all_resamples():
  a, b = pairs(3, 2, 1)
  score = [1, 1, 1, 0.5, 0.5, 0]
  means = np.sort([np.mean(s) for s in itertools.product(score, repeat=len(score))])
  for alpha in (0.05, 0.33):
    result = measures.decide(a, b, alpha=alpha)
    ranks = [int(np.ceil(q * len(means))) - 1 for q in (alpha / 2, 1 - alpha / 2)]
    np.testing.assert_allclose([result.low, result.high], means[ranks], rtol=1e-12)


def test_unpaired_interval_equals_a_loop_over_the_same_resamples():
  rng = np.random.default_rng(1)
  a, b = rng.integers(1, 5, 6), rng.integers(0, 4, 9)
  of_a, of_b = jax.random.split(jax.random.key(2))
  times = zip(
    *(resamples(len(x), key=k, replicates=41) for x, k in ((a, of_a), (b, of_b))),
    strict=True,
  )
  means = []
  for n, m in times:
    drawn = [(x, y) for x in np.repeat(a, n) for y in np.repeat(b, m)]
    won, tied = sum(x > y for x, y in drawn), sum(x == y for x, y in drawn)
    means.append((won + tied / 2) / 54)
  result = measures.decide(
    a, b, alpha=0.2, paired=False, key=jax.random.key(2), replicates=41
  )
  np.testing.assert_allclose(
    [result.low, result.high], [sorted(means)[4], sorted(means)[36]], rtol=1e-12
  )


@pytest.mark.slow
def test_unpaired_interval_equals_a_plain_bootstrap():
  rng = np.random.default_rng(0)
  a, b = rng.normal(0.5, 1, 30).round(1), rng.normal(0, 1, 40).round(1)
  plain = np.sort(
    [
      stats.probability_of_outperforming(
        rng.choice(a, 30), rng.choice(b, 40), paired=False
      )
      for _ in range(2000)
    ]
  )
  result = measures.decide(a, b, paired=False)
  assert tuple(result) == tuple(
    measures.decide(a, b, paired=False, key=jax.random.key(0))
  )
  np.testing.assert_allclose([result.low, result.high], plain[[49, 1949]], atol=0.02)
  assert result.probability == pytest.approx(
    stats.probability_of_outperforming(a, b, paired=False)
  )
  assert result.low < result.probability < result.high


def test_the_three_decisions():
  assert measures.decide(*pairs(16, 0, 13)).decision == "not significant"
  assert measures.decide(*pairs(26, 0, 3)).decision == "significant and meaningful"
  few_but_sure = measures.decide(*pairs(600, 0, 400))
  assert few_but_sure.decision == "significant, not meaningful"
  assert few_but_sure.significant
  assert not few_but_sure.meaningful
  assert (
    measures.decide(*pairs(600, 0, 400), gamma=0.6).decision
    == "significant and meaningful"
  )
  assert measures.decide(*pairs(3, 0, 26)).decision == "not significant"


def test_a_bound_at_one_half_is_not_significant():
  """29 pairs: with 19 wins the lower bound is 14/29, with 20 it is 15/29."""
  assert (
    measures.decide(*pairs(19, 0, 10)).low < 0.5 < measures.decide(*pairs(20, 0, 9)).low
  )
  # 2 pairs, a win and a tie: a resample's mean is at least ½.
  result = measures.decide(*pairs(1, 1, 0))
  assert result.low == 0.5
  assert not result.significant


def test_decisions_on_little():
  always = measures.decide([1.0], [0.0])
  assert (always.low, always.high) == (1, 1)
  nothing = measures.decide([], [])
  assert np.isnan([nothing.probability, nothing.low, nothing.high]).all()
  assert nothing.decision == "not significant"
  assert np.isnan(measures.decide([], [1.0], paired=False, key=jax.random.key(0)).low)


def test_sample_sizes():
  z = 2 * 1.6448536269514722
  runs_for = measures.runs_for_probability_of_outperforming
  assert runs_for(paired=False) == int(np.ceil(z**2 / (6 * 0.25**2))) == 29
  assert runs_for() == int(np.ceil(z**2 / (4 * 0.25**2))) == 44
  np.testing.assert_array_equal(
    runs_for([0.55, 0.6, 0.56], paired=False), [722, 181, 502]
  )
  z = scipy.stats.norm.ppf(0.99) + scipy.stats.norm.ppf(0.8)
  assert runs_for(0.7, False, 0.8, 0.01) == np.ceil(z**2 / 6 / 0.2**2)
  # The more power, the more runs; as many as the rule of the numbers of arguments.
  assert runs_for(0.7, True, [0.5, 0.8, 0.99], 0.05).tolist() == [17, 39, 99]


def test_power_equals_all_outcomes():
  """Every sequence of wins and losses, decided one by one."""
  for k, p, gamma, alpha in (
    (1, 0.7, 0.75, 0.05),
    (4, 0.8, 0.75, 0.4),
    (9, 0.75, 0.6, 0.1),
    (9, 0.6, 1.0, 0.3),
  ):
    expected = 0.0
    for wins in range(k + 1):
      result = measures.decide(*pairs(wins, 0, k - wins), gamma=gamma, alpha=alpha)
      expected += scipy.stats.binom.pmf(wins, k, p) * bool(result.meaningful)
    assert measures.power_for_probability_of_outperforming(
      k, p, gamma, alpha
    ) == pytest.approx(expected, abs=1e-12), (k, p, gamma, alpha)


def test_power_of_29_pairs_is_not_what_the_paper_promises():
  assert measures.power_for_probability_of_outperforming(29, 0.75) == pytest.approx(
    0.834, abs=5e-4
  )
  assert measures.power_for_probability_of_outperforming(29, 0.5) == pytest.approx(
    0.031, abs=5e-4
  )
  power = measures.power_for_probability_of_outperforming(np.arange(1, 300))
  assert power[49] < 0.95
  assert (power[50:] >= 0.95).all()
  np.testing.assert_array_equal(
    measures.power_for_probability_of_outperforming(50, [0.0, 1.0]), [0, 1]
  )
  # With gamma = 1 no result is meaningful: P cannot exceed 1.
  assert measures.power_for_probability_of_outperforming(50, 1.0, gamma=1.0) == 0


def test_gamma_is_inert_up_to_58_pairs():
  for k in (50, 58):
    assert measures.power_for_probability_of_outperforming(
      k, 0.7, gamma=0.75
    ) == measures.power_for_probability_of_outperforming(k, 0.7, gamma=0.5001)
  assert measures.power_for_probability_of_outperforming(
    59, 0.7, gamma=0.75
  ) < measures.power_for_probability_of_outperforming(59, 0.7, gamma=0.5001)


TRUE_P = [0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99]
# "Exact operating characteristics of Sec. 4.2", k = 50.
SINGLE = [0.048, 0.079, 0.124, 0.188, 0.231, 0.285, 0.449, 0.593, 0.820]
AVERAGE = [0, 0, 0, 0, 0, 0, 0.180, 0.951, 1]
IDEAL = [0.000, 0.016, 0.237, 0.782, 0.945, 0.994, 1, 1, 1]
BIASED = [0.014, 0.095, 0.337, 0.702, 0.854, 0.949, 0.999, 1, 1]


def test_operating_characteristics_of_section_4_2():
  rates = measures.operating_characteristics(TRUE_P)
  np.testing.assert_allclose(rates, [SINGLE, AVERAGE, IDEAL], atol=5.1e-4)
  np.testing.assert_allclose(
    rates.outperforming,
    measures.power_for_probability_of_outperforming(50, TRUE_P),
    atol=1e-12,
  )
  biased = measures.operating_characteristics(TRUE_P, correlation=0.05)
  np.testing.assert_allclose(biased.outperforming, BIASED, atol=5.1e-4)
  np.testing.assert_allclose(biased.single_point, rates.single_point, rtol=1e-12)


@pytest.mark.parametrize(("rho", "k"), [(0.3, 7), (0.9, 50)])
def test_biased_characteristics_equal_an_integral(rho, k):
  """The integral is over the difference z of the two biases. Given z, pairs are
  independent.
  """
  for p in (0.4, 0.75):
    d = 2**0.5 * scipy.stats.norm.ppf(p)
    enough = next(
      w for w in range(k + 1) if measures.decide(*pairs(w, 0, k - w)).meaningful
    )

    def given(z, d=d, enough=enough):
      of_pair = scipy.stats.norm.cdf(
        (d + (2 * rho) ** 0.5 * z) / (2 * (1 - rho)) ** 0.5
      )
      return scipy.stats.norm.pdf(z) * scipy.stats.binom.sf(enough - 1, k, of_pair)

    expected = scipy.integrate.quad(given, -9, 9, limit=500)[0]
    rates = measures.operating_characteristics(p, rho, k)
    assert rates.outperforming == pytest.approx(expected, abs=1e-8)
    sd = (2 * rho + 2 * (1 - rho) / k) ** 0.5
    assert rates.average == pytest.approx(scipy.stats.norm.sf(1.9952, d, sd), rel=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.05, 0.6])
def test_simulated_detections_agree_with_the_exact_rates(rho):
  simulated = measures.detection_rates(TRUE_P, rho, key=jax.random.key(3))
  exact = measures.operating_characteristics(TRUE_P, rho)
  for name in exact._fields:
    rate, se, expected = (
      getattr(simulated, name),
      getattr(simulated, f"{name}_se"),
      getattr(exact, name),
    )
    np.testing.assert_allclose(se, np.sqrt(rate * (1 - rate) / 10_000), rtol=1e-12)
    assert (
      np.abs(rate - expected) <= 4 * np.sqrt(expected * (1 - expected) / 10_000) + 1e-4
    ).all(), name


@pytest.mark.slow
def test_detection_rates_on_little():
  def rates_of(pairs):
    return measures.detection_rates(
      [0.0, 1.0], key=jax.random.key(0), replicates=1, pairs=pairs
    )

  rates = rates_of(1)
  # One pair shows nothing, six that agree do.
  np.testing.assert_array_equal(rates.outperforming, [0, 0])
  np.testing.assert_array_equal(rates_of(6).outperforming, [0, 1])
  np.testing.assert_array_equal(rates.single_point, [0, 1])
  np.testing.assert_array_equal(rates.average_se, [0, 0])
  exact = measures.operating_characteristics([[0.0], [1.0]])
  np.testing.assert_allclose(exact.outperforming, [[0], [1]], atol=1e-12)
  assert (
    measures.detection_rates(0.5, key=jax.random.key(0), replicates=3).average.shape
    == ()
  )
  assert np.isnan(
    measures.detection_rates(np.nan, key=jax.random.key(0), replicates=3)
  ).all()


def test_thresholds():
  assert measures.difference_sd(3, 4) == 5
  assert measures.difference_sd(3, 4, -1) == 7  # what appendix C.2 prints
  assert measures.difference_sd(0.1, 0.1, 1) == 0
  delta = measures.equivalent_threshold([0.6, 0.75, 0.5], 0.3)
  # P(A > B) of two independent normal runs whose means differ by delta.
  np.testing.assert_allclose(
    scipy.stats.norm.cdf(delta, scale=0.3 * 2**0.5), [0.6, 0.75, 0.5], rtol=1e-12
  )
  assert scipy.stats.norm.cdf(1.9952 / 2**0.5) == pytest.approx(0.921, abs=5e-4)


def test_average_comparison():
  rng = np.random.default_rng(1)
  a, b = rng.normal(0.5, 1, 8), rng.normal(0, 2, 20)
  result = measures.average_comparison(a, b)
  variances = a.var(ddof=1), b.var(ddof=1)
  assert result.difference == pytest.approx(a.mean() - b.mean())
  assert result.threshold == pytest.approx(1.9952 * (sum(variances) / 2) ** 0.5)
  expected = scipy.stats.norm.ppf(0.95) * (variances[0] / 8 + variances[1] / 20) ** 0.5
  assert result.least_significant == pytest.approx(expected)
  same = measures.average_comparison(a, a + 1, alpha=0.1)
  assert same.least_significant == pytest.approx(
    scipy.stats.norm.ppf(0.9) * (2 * a.var(ddof=1) / 8) ** 0.5
  )
  low = measures.average_comparison(a, a - 0.6, sigma=0.3)
  high = measures.average_comparison(a, a - 0.6, sigma=0.301)
  assert (bool(low.better), bool(high.better)) == (True, False)
  one = measures.average_comparison([0.9], [0.5], sigma=0.1)
  assert one.better
  assert not one.significant
  assert np.isnan(
    [one.least_significant, measures.average_comparison([0.9], [0.5]).threshold]
  ).all()
  assert np.isnan(measures.average_comparison([], [0.5]).difference)


@pytest.mark.slow
def test_z_test_finds_false_differences_at_its_rate():
  rng = np.random.default_rng(2)
  a, b = rng.normal(0, 1, (4000, 50)), rng.normal(0, 3, (4000, 50))
  found = np.mean(
    [measures.average_comparison(*pair).significant for pair in zip(a, b, strict=True)]
  )
  # Variances estimated from 50 runs raise the rate from 0.05 to 0.0532, by the t
  # distribution.
  assert found == pytest.approx(0.0532, abs=3 * (0.05 * 0.95 / 4000) ** 0.5)


def test_mean_difference_is_students_and_welchs():
  rng = np.random.default_rng(3)
  a, b = rng.normal(1, 1, 9), rng.normal(0, 3, 9)
  d = a - b
  reach = scipy.stats.t.ppf(0.975, 8) * d.std(ddof=1) / 3
  expected = d.mean() - reach, d.mean() + reach
  found = stats.mean_difference(a, b)
  np.testing.assert_allclose(
    [found.value, found.se, *found.interval],
    [d.mean(), d.std(ddof=1) / 3, *expected],
    rtol=1e-10,
  )
  c = b[:4]
  of_a, of_c = a.var(ddof=1) / 9, c.var(ddof=1) / 4
  freedom = (of_a + of_c) ** 2 / (of_a**2 / 8 + of_c**2 / 3)
  mean = a.mean() - c.mean()
  reach = scipy.stats.t.ppf(0.9, freedom) * np.sqrt(of_a + of_c)
  found = stats.mean_difference(a, c, paired=False, level=0.8)
  np.testing.assert_allclose(
    [found.value, found.se, *found.interval],
    [mean, np.sqrt(of_a + of_c), mean - reach, mean + reach],
    rtol=1e-10,
  )


def test_variance_ratio_equals_leaving_pairs_out():
  rng = np.random.default_rng(4)
  a = rng.exponential(size=12)
  b = 0.7 * a + rng.normal(size=12)
  paired = stats.variance_ratio(a, b)
  assert paired.value == pytest.approx(a.var(ddof=1) / b.var(ddof=1))
  left = np.array(
    [np.log(np.delete(a, h).var() / np.delete(b, h).var()) for h in range(12)]
  )
  freedom = 2 * 12 / (scipy.stats.kurtosis(left, fisher=False) - 1)
  reach = scipy.stats.t.ppf(0.975, freedom) * np.sqrt(11 * left.var())
  np.testing.assert_allclose(
    np.log(paired.interval), np.log(paired.value) + [-reach, reach], rtol=1e-9
  )
  swapped = stats.variance_ratio(b, a)
  np.testing.assert_allclose(
    [1 / swapped.high, 1 / swapped.low], [paired.low, paired.high], rtol=1e-9
  )


def test_variance_ratio_without_pairs_is_made_of_both_intervals():
  rng = np.random.default_rng(4)
  a, b = rng.normal(size=12), rng.exponential(size=9)
  ratio = stats.variance_ratio(a, b, paired=False, level=0.9)
  low, high = ratio.interval
  variance_a, variance_b = a.var(ddof=1), b.var(ddof=1)
  a_low, a_high = stats.variance_over_runs(a, level=0.9).interval
  b_low, b_high = stats.variance_over_runs(b, level=0.9).interval
  assert low == pytest.approx(
    ratio * np.exp(-np.hypot(np.log(variance_a / a_low), np.log(b_high / variance_b)))
  )
  assert high == pytest.approx(
    ratio * np.exp(np.hypot(np.log(a_high / variance_a), np.log(variance_b / b_low)))
  )


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_differences_and_ratios_cover(paired):
  rng = np.random.default_rng(5)
  shared = rng.normal(size=(1500, 30)) * paired
  a, b = shared + rng.normal(2, 1, (1500, 30)), shared + rng.normal(1, 2, (1500, 30))
  truth = (1 + paired) / (4 + paired)
  ratios = [stats.variance_ratio(*x, paired=paired) for x in zip(a, b, strict=True)]
  differences = [
    stats.mean_difference(*x, paired=paired) for x in zip(a, b, strict=True)
  ]
  assert np.mean([x.low <= 1.0 <= x.high for x in differences]) == pytest.approx(
    0.95, abs=3 * 0.0056
  )
  assert 0.935 < np.mean([x.low <= truth <= x.high for x in ratios]) < 0.98


@pytest.mark.parametrize("paired", [True, False])
def test_intervals_of_ratios_cover_where_runs_are_not_normal(paired):
  """The F interval covers 72 % here."""
  rng = np.random.default_rng(6)
  shared = rng.exponential(size=(600, 100)) * paired
  a, b = (shared + rng.exponential(size=(600, 100)) for _ in "ab")
  ratios = [stats.variance_ratio(*x, paired=paired) for x in zip(a, b, strict=True)]
  assert 0.92 < np.mean([x.low <= 1 <= x.high for x in ratios]) < 0.985


def test_differences_and_ratios_of_little():
  one = stats.mean_difference([0.75], [0.5])
  assert one.value == 0.25
  assert np.isnan([one.low, one.high]).all()
  none = stats.mean_difference([], [])
  assert np.isnan([none.value, none.se, *none.interval]).all()
  assert np.isnan(stats.mean_difference([0.75], [0.5, 0.25], paired=False).low)
  for same in (
    stats.mean_difference([0.75, 0.5], [0.5, 0.25]),
    stats.mean_difference([0.5, 0.5], [0.25, 0.25], paired=False),
  ):
    np.testing.assert_array_equal([same.value, *same.interval], [0.25, 0.25, 0.25])
  single = stats.variance_ratio([1.0], [2.0])
  assert np.isnan([single.value, *single.interval]).all()
  two = stats.variance_ratio([1.0, 3.0], [1.0, 2.0])
  assert two.value == 4
  assert np.isnan([two.low, two.high]).all()
  over_0 = stats.variance_ratio([1.0, 2.0, 3.0], [0.1, 0.1, 0.1])
  assert np.isnan([over_0.value, *over_0.interval]).all()
  constant = stats.variance_ratio([0.1, 0.1, 0.1], [1.0, 2.0, 3.0], paired=False)
  assert constant.value == 0
  assert np.isnan([constant.low, constant.high]).all()
  doubled = stats.variance_ratio([1, 2, 3, 5], [2, 4, 6, 10])
  np.testing.assert_allclose([doubled.value, *doubled.interval], [0.25] * 3, rtol=1e-12)


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.probability_of_outperforming([1], [1, 2]),
      r"a has shape \(1,\) and b \(2,\): .*paired=False",
    ),
    (
      lambda: stats.probability_of_outperforming([1], [np.nan]),
      "b is nan at run 0: leave such entries out",
    ),
    (
      lambda: measures.decide([1], [2], gamma=0.5),
      "gamma is 0.5: give a number above 0.5 and at most 1",
    ),
    (
      lambda: measures.decide([1], [2], alpha=0),
      "alpha is 0: give a number above 0 and below 1",
    ),
    (
      lambda: measures.decide([1], [2], paired=False, key=0),
      "key is 0: give one JAX random key",
    ),
    (
      lambda: measures.decide(
        [1], [2], paired=False, key=jax.random.key(0), replicates=0
      ),
      "replicates is 0",
    ),
    (
      lambda: measures.runs_for_probability_of_outperforming(0.5),
      "gamma is 0.5: give a number above 0.5 and at most 1",
    ),
    (
      lambda: measures.runs_for_probability_of_outperforming(0.7, power=0.5, alpha=0.5),
      "alpha is 0.5 and power 0.5: give a power above the rate of false positives",
    ),
    (
      lambda: measures.power_for_probability_of_outperforming(0),
      "pairs is 0: give a number of at least 1",
    ),
    (
      lambda: measures.power_for_probability_of_outperforming(2.5),
      "pairs is 2.5: give whole numbers of at least 1",
    ),
    (
      lambda: measures.power_for_probability_of_outperforming([[1], [1, 2]]),
      r"pairs is \[\[1\], \[1, 2\]\]: give numbers",
    ),
    (
      lambda: measures.power_for_probability_of_outperforming(5, 1.5),
      "probability is 1.5: give a number of at least 0 and at most 1",
    ),
    (
      lambda: measures.detection_rates(0.5, key=jax.random.key(0), replicates=0),
      "replicates is 0",
    ),
    (
      lambda: measures.detection_rates(0.5, key=jax.random.key(0), correlation=1),
      "correlation is 1: .* below 1",
    ),
    (
      lambda: measures.operating_characteristics(0.5, [0.1, 0.2]),
      r"correlation is \[0.1, 0.2\]: give a number",
    ),
    (lambda: measures.operating_characteristics(-0.1), "probability is -0.1"),
    (lambda: stats.variance_ratio([1], [np.inf]), "b is inf at run 0"),
    (lambda: measures.difference_sd(-1, 1), "sd_a is -1"),
    (lambda: measures.difference_sd(1, 1, 2), "correlation is 2"),
    (
      lambda: measures.equivalent_threshold(0),
      "gamma is 0: give a number above 0 and below 1",
    ),
    (lambda: measures.average_comparison([1], [0], sigma=-1), "sigma is -1"),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()


@pytest.mark.parametrize(
  "statistic",
  [
    lambda a, b: stats.compare_means(a, b),
    lambda a, b: stats.probability_of_outperforming(a, b).value,
    lambda a, b: stats.mean_difference(a, b).low,
    lambda a, b: measures.decide(a, b).low,
    lambda a, b: stats.probability_of_best(a, b),
    lambda a, b: stats.correlation_over_runs(a, b).value,
    lambda a, b: stats.variance_ratio(a, b).low,
  ],
)
def test_series_of_pandas_are_paired_by_their_index(statistic):
  rng = np.random.default_rng(0)
  base = rng.normal(size=12)
  a = pd.Series(base + rng.normal(size=12) / 9, index=np.arange(12))
  b = pd.Series(base + rng.normal(size=12) / 9 - 0.1, index=np.arange(12))
  due = statistic(a.to_numpy(), b.to_numpy())
  np.testing.assert_array_equal(statistic(a, b.iloc[::-1]), due)
  np.testing.assert_array_equal(statistic(a, b), due)
  # An array has no index, and is paired by its place.
  np.testing.assert_array_equal(statistic(a, b.to_numpy()), due)
  with pytest.raises(UserError, match=r"are series with different indices: give both"):
    statistic(a, b.set_axis(np.arange(12, 24)))


def test_series_that_are_not_paired_may_have_any_index():
  a, b = pd.Series([3.0, 4, 5, 6, 7]), pd.Series([1.0, 2, 3, 4], index=[*"abcd"])
  found = stats.compare_means(a, b, paired=False)
  assert found == stats.compare_means(a.to_numpy(), b.to_numpy(), paired=False)


def test_labels_belong_to_the_columns_of_a_frame_of_predictions():
  ids = ["x", "y", "z"]
  predictions = pd.DataFrame([[0, 1, 2], [0, 1, 1]], columns=ids)
  labels = pd.Series([0, 1, 2], index=ids)
  due = stats.ensemble_accuracy(predictions.to_numpy(), labels.to_numpy(), 3)
  assert stats.ensemble_accuracy(predictions, labels[["z", "x", "y"]], 3) == due
  assert stats.ensemble_accuracy(predictions, labels.to_numpy(), 3) == due
  tallied = stats.tally(predictions, labels[["z", "x", "y"]], 3)
  assert tallied.ensemble_accuracy() == due
  with pytest.raises(UserError, match="give a label for each column"):
    stats.ensemble_accuracy(predictions, labels.set_axis(["x", "y", "w"]), 3)
