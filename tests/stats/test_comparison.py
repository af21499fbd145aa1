import itertools

import jax
import numpy as np
import pytest
import scipy.stats

from vmapseeds import stats
from vmapseeds.errors import Mistake

A, B = [0.9, 0.8, 0.7, 0.6, 0.5], [0.8, 0.8, 0.6, 0.7, 0.1]


@pytest.mark.parametrize(("ties", "expected"), [("half", 3.5 / 5), ("strict", 3 / 5), ("drop", 3 / 4)])
def test_paired_probability(ties, expected):
  assert stats.probability_of_outperforming(A, B, ties) == expected


@pytest.mark.parametrize("ties", ["half", "strict", "drop"])
def test_unpaired_probability_equals_all_pairs(ties):
  b = B[:3]
  wins, even = sum(x > y for x in A for y in b), sum(x == y for x in A for y in b)
  expected = {"half": (wins + even / 2) / 15, "strict": wins / 15, "drop": wins / (15 - even)}[ties]
  given = stats.probability_of_outperforming(A, b, ties, paired=False)
  assert given == pytest.approx(expected)
  if ties == "half":
    assert given == pytest.approx(scipy.stats.mannwhitneyu(A, b).statistic / 15)


def test_all_tied_pairs():
  assert stats.probability_of_outperforming([1, 1], [1, 1]) == 0.5
  assert stats.probability_of_outperforming([1, 1], [1, 1], "strict") == 0
  assert np.isnan(stats.probability_of_outperforming([1, 1], [1, 1], "drop"))
  assert np.isnan(stats.probability_of_outperforming([], []))
  assert np.isnan(stats.probability_of_outperforming([], [1], paired=False))


def pairs(wins, ties, losses):
  return np.r_[np.ones(wins), np.zeros(ties), -np.ones(losses)], np.zeros(wins + ties + losses)


@pytest.mark.parametrize("wins", [0, 7, 17, 20, 29])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_interval_without_ties_is_binomial(wins, alpha):
  result = stats.decide(*pairs(wins, 0, 29 - wins), alpha=alpha)
  expected = scipy.stats.binom.ppf([alpha / 2, 1 - alpha / 2], 29, wins / 29) / 29
  np.testing.assert_allclose([result.low, result.high], expected, rtol=1e-12)
  assert result.probability == wins / 29


@pytest.mark.parametrize("ties", ["half", "strict", "drop"])
def test_interval_with_ties_equals_all_resamples(ties):
  a, b = pairs(3, 2, 1)
  score = {"half": [1, 1, 1, 0.5, 0.5, 0], "strict": [1, 1, 1, 0, 0, 0], "drop": [1, 1, 1, 0]}[ties]
  means = np.sort([np.mean(s) for s in itertools.product(score, repeat=len(score))])
  for alpha in (0.05, 0.33):
    result = stats.decide(a, b, alpha=alpha, ties=ties)
    ranks = [int(np.ceil(q * len(means))) - 1 for q in (alpha / 2, 1 - alpha / 2)]
    np.testing.assert_allclose([result.low, result.high], means[ranks], rtol=1e-12)


def test_unpaired_interval_equals_a_plain_bootstrap():
  rng = np.random.default_rng(0)
  a, b = rng.normal(0.5, 1, 30).round(1), rng.normal(0, 1, 40).round(1)
  plain = np.sort(
    [
      stats.probability_of_outperforming(rng.choice(a, 30), rng.choice(b, 40), paired=False)
      for _ in range(2000)
    ]
  )
  result = stats.decide(a, b, paired=False, key=jax.random.key(0))
  np.testing.assert_allclose([result.low, result.high], plain[[49, 1949]], atol=0.02)
  assert result.probability == pytest.approx(stats.probability_of_outperforming(a, b, paired=False))
  assert result.low < result.probability < result.high


def test_the_three_decisions():
  assert stats.decide(*pairs(16, 0, 13)).decision == "not significant"
  assert stats.decide(*pairs(26, 0, 3)).decision == "significant and meaningful"
  few_but_sure = stats.decide(*pairs(600, 0, 400))
  assert few_but_sure.decision == "significant, not meaningful"
  assert few_but_sure.significant
  assert not few_but_sure.meaningful
  assert stats.decide(*pairs(600, 0, 400), gamma=0.6).decision == "significant and meaningful"
  assert stats.decide(*pairs(3, 0, 26)).decision == "not significant"


def test_a_bound_at_one_half_is_not_significant():
  """29 pairs: with 19 wins the lower bound is 14/29, with 20 it is 15/29."""
  assert stats.decide(*pairs(19, 0, 10)).low < 0.5 < stats.decide(*pairs(20, 0, 9)).low
  # 2 pairs: with a win and a tie the mean of a resample is ½ at the least.
  result = stats.decide(*pairs(1, 1, 0))
  assert result.low == 0.5
  assert not result.significant


def test_decisions_on_little():
  always = stats.decide([1.0], [0.0])
  assert (always.low, always.high) == (1, 1)
  nothing = stats.decide([], [])
  assert np.isnan([nothing.probability, nothing.low, nothing.high]).all()
  assert nothing.decision == "not significant"
  assert np.isnan(stats.decide([1.0], [1.0], ties="drop").low)
  assert np.isnan(stats.decide([], [1.0], paired=False, key=jax.random.key(0)).low)
  tied = stats.decide([1.0], [1.0], ties="drop", paired=False, key=jax.random.key(0), resamples=5)
  assert np.isnan(tied.high)


def test_sample_sizes():
  z = 2 * 1.6448536269514722
  assert stats.noether_sample_size() == int(np.ceil(z**2 / (6 * 0.25**2))) == 29
  assert stats.paired_sample_size() == int(np.ceil(z**2 / (4 * 0.25**2))) == 44
  np.testing.assert_array_equal(stats.noether_sample_size([0.55, 0.6, 0.56]), [722, 181, 502])
  z = scipy.stats.norm.ppf(0.99) - scipy.stats.norm.ppf(0.2)
  assert stats.noether_sample_size(0.7, 0.01, 0.2) == np.ceil(z**2 / 6 / 0.2**2)


def slow_correlation(x):
  """Fisher's intraclass correlation: the mean product of two of a row, about the mean of all."""
  mean, k = x.mean(), x.shape[1]
  products = [(row[i] - mean) * (row[j] - mean) for row in x for i, j in itertools.permutations(range(k), 2)]
  return np.mean(products) / np.mean((x - mean) ** 2)


@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (3, 7)])
def test_average_correlation_and_equation_7(shape):
  rng = np.random.default_rng(sum(shape))
  x = rng.normal(size=shape) + rng.normal(0, 2, (shape[0], 1))
  k = shape[1]
  rho = stats.average_correlation(x)
  np.testing.assert_allclose(rho, slow_correlation(x), rtol=1e-10)
  parts = stats.mse_decomposition(x, 0.3)
  V = x.var()
  np.testing.assert_allclose(V / k + (k - 1) / k * rho * V, x.mean(1).var(), rtol=1e-10)
  np.testing.assert_allclose(parts.mse, ((x.mean(1) - 0.3) ** 2).mean(), rtol=1e-12)
  np.testing.assert_allclose(parts.bias, x.mean() - 0.3, rtol=1e-10)
  np.testing.assert_allclose(parts.variance, x.mean(1).var(), rtol=1e-12)
  np.testing.assert_allclose(parts.total_variance, V, rtol=1e-12)
  np.testing.assert_allclose(parts.correlation, rho, rtol=1e-12)
  np.testing.assert_allclose(parts.mse, parts.variance + parts.bias**2, rtol=1e-12)


def test_average_correlation_on_little():
  for x in ([[1.0, 2.0]], [[1.0], [2.0]], [[0.1, 0.1], [0.1, 0.1]], np.zeros((0, 2)), np.zeros((2, 0))):
    assert np.isnan(stats.average_correlation(x))
  one = stats.mse_decomposition([[1.0, 2.0]], 1.0)
  assert (one.variance, one.bias, one.mse) == (0, 0.5, 0.25)
  assert np.isnan(one.correlation)
  assert np.isnan(stats.mse_decomposition(np.zeros((2, 0)), 0)).all()


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.probability_of_outperforming([1], [1, 2]),
      r"a has shape \(1,\) and b \(2,\): .*paired=False",
    ),
    (lambda: stats.probability_of_outperforming([1], [np.nan]), "b is nan at run 0: leave such entries out"),
    (
      lambda: stats.probability_of_outperforming([1], [2],
      "halve"), "unknown ties 'halve': .*did you mean 'half'",
    ),
    (lambda: stats.decide([1], [2], gamma=0.5), "gamma is 0.5: give a probability above 0.5"),
    (lambda: stats.decide([1], [2], alpha=0), "alpha is 0: give a number above 0 and below 1"),
    (lambda: stats.decide([1], [2], paired=False), "paired=False needs a key for its bootstrap"),
    (lambda: stats.decide([1], [2], resamples=0), "resamples is 0"),
    (lambda: stats.noether_sample_size(0.5), "gamma is 0.5: give a probability above 0.5"),
    (lambda: stats.paired_sample_size(0.7, 0.5, 0.5), "alpha is 0.5 and beta 0.5: give rates above 0"),
    (lambda: stats.average_correlation([1.0]), r"performances has shape \(1,\): give \(repetitions, k\)"),
    (lambda: stats.mse_decomposition([[1.0, np.inf]], 0), "performances is inf at repetition 0, k 1"),
    (lambda: stats.mse_decomposition([[1.0]], [0, 1]), r"truth has shape \(2,\): give a single number"),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(Mistake, match=text):
    call()
