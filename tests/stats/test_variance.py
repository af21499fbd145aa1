import itertools
import math
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import xarray as xr

from experiments import measures
from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats.counts import counts_of_errors


def some_errors(runs=7, examples=11, seed=0):
  """Errors that vary by run and by example, so that no two definitions below agree on
  them.
  """
  rng = np.random.default_rng(seed)
  rate = np.clip(
    rng.uniform(0, 1, examples)[None] + rng.normal(0, 0.3, (runs, 1)), 0.05, 0.95
  )
  return rng.uniform(size=(runs, examples)) < rate


def covariances(errors, ddof=1):
  runs, n = errors.shape
  mean = [sum(float(errors[h, i]) for h in range(runs)) / runs for i in range(n)]
  return [
    [
      sum((errors[h, i] - mean[i]) * (errors[h, j] - mean[j]) for h in range(runs))
      / (runs - ddof)
      for j in range(n)
    ]
    for i in range(n)
  ]


@pytest.mark.parametrize("shape", [(2, 2), (3, 5), (7, 11)])
def test_rates_and_variances_equal_loops(shape):
  errors = some_errors(*shape)
  runs, n = shape
  by_run = [sum(map(int, row)) / n for row in errors]
  by_example = [sum(map(int, column)) / runs for column in errors.T]
  np.testing.assert_allclose(stats.error_rates(errors), by_run, rtol=1e-15)
  np.testing.assert_allclose(stats.example_error_rates(errors), by_example, rtol=1e-15)
  cov = covariances(errors)
  np.testing.assert_allclose(
    stats.test_set_variance(errors), np.sum(cov) / n**2, rtol=1e-12
  )
  np.testing.assert_allclose(
    stats.independent_errors_variance(errors), np.trace(cov) / n**2, rtol=1e-12
  )
  plug_in = sum(e * (1 - e) for e in by_example) / n**2
  np.testing.assert_allclose(
    stats.independent_errors_variance(errors, unbiased=False), plug_in, rtol=1e-12
  )
  off_diagonal = (np.sum(cov) - np.trace(cov)) / (n * (n - 1))
  np.testing.assert_allclose(
    stats.distribution_variance(errors), off_diagonal, rtol=1e-10, atol=1e-16
  )
  both_plug_in = n / (n - 1) * (np.var(by_run) - plug_in)
  given = stats.distribution_variance(errors, unbiased=False)
  np.testing.assert_allclose(given, both_plug_in, rtol=1e-10, atol=1e-16)
  # The jackknife by leaving runs out; it needs two that are left.
  left = (
    [np.var(by_run[:h] + by_run[h + 1 :], ddof=1) for h in range(runs)]
    if runs > 2
    else [math.nan]
  )
  se = (
    n
    / (n - 1)
    * math.sqrt((runs - 1) / runs * sum((x - np.mean(left)) ** 2 for x in left))
  )
  np.testing.assert_allclose(stats.distribution_variance(errors).se, se, rtol=1e-10)


@pytest.mark.parametrize("shape", [(3, 5), (7, 11), (40, 30)])
def test_noise_share_equals_loops(shape):
  errors = some_errors(*shape)
  cov = covariances(errors)
  share = stats.noise_share(errors)
  assert float(share) == pytest.approx(min(1, np.trace(cov) / np.sum(cov)), rel=1e-10)
  low, high = stats.variance_over_runs(errors.mean(1)).interval
  independent = np.trace(cov) / shape[1] ** 2
  # Three runs, of which two are equally accurate, have no interval.
  expected = np.minimum(1, [independent / high, independent / low])
  assert np.isnan(expected).all() == (shape[0] == 3)
  np.testing.assert_allclose(share.interval, expected, rtol=1e-10)


def test_noise_share_is_1_of_errors_that_are_independent():
  rng = np.random.default_rng(3)
  independent = rng.random((3000, 200)) < rng.uniform(0.1, 0.4, 200)
  share = stats.noise_share(independent)
  assert share.low < 1 <= share.high
  assert share > 0.93
  # A run that is worse on all examples is no noise: twice the variance, half the share.
  worse = rng.normal(size=(3000, 1)) * (0.6 / 200) ** 0.5
  probability = 0.4 + worse * 0.63
  both = rng.random((3000, 200)) < probability
  share = stats.noise_share(both)
  expected = 0.24 / 200 / (0.24 / 200 + (0.63**2 * 0.6 / 200))
  assert share.low < expected < share.high


@pytest.mark.parametrize("errors", [np.zeros((1, 4)), np.zeros((5, 4)), np.eye(4)])
def test_noise_share_is_not_defined_where_runs_do_not_differ(errors):
  share = stats.noise_share(errors.astype(bool))
  assert np.isnan(float(share))
  assert np.isnan(share.interval).all()


LAW = [([0, 1, 1, 0, 0], 0.5), ([1, 1, 0, 0, 1], 0.3), ([0, 0, 0, 0, 1], 0.2)]


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_unbiased_over_all_tuples_of_a_small_law(runs):
  rows, p = np.array([r for r, _ in LAW]), np.array([q for _, q in LAW])
  n = rows.shape[1]
  rates = p @ rows
  independent = (rates * (1 - rates)).sum() / n**2
  between = p @ (rows.mean(1) - p @ rows.mean(1)) ** 2
  truth = n / (n - 1) * (between - independent)
  halves = rows[:, 0::2].mean(1), rows[:, 1::2].mean(1)
  split = p @ (halves[0] * halves[1]) - (p @ halves[0]) * (p @ halves[1])
  names = {
    "test_set_variance": between,
    "independent_errors_variance": independent,
    "distribution_variance": truth,
    "split_covariance": split,
  }
  mean = dict.fromkeys(names, 0.0)
  plug_in = 0.0
  for chosen in itertools.product(range(3), repeat=runs):
    weight = math.prod(p[c] for c in chosen)
    sample = rows[list(chosen)]
    for name in names:
      mean[name] += weight * getattr(stats, name)(sample)
    plug_in += weight * stats.distribution_variance(sample, unbiased=False)
  for name, expected in names.items():
    assert mean[name] == pytest.approx(expected, rel=1e-10), name
  assert plug_in == pytest.approx(truth * (runs - 1) / runs, rel=1e-10)


def test_distribution_variance_is_unbiased_over_all_test_sets():
  """Theorem 2: over all test sets of two examples and all pairs of runs, the mean is
  Var_h(err(h)).
  """
  rows, p = np.array([r for r, _ in LAW]), np.array([q for _, q in LAW])
  error = rows.mean(1)
  truth = p @ error**2 - (p @ error) ** 2
  mean = sum(
    p[g] * p[h] * stats.distribution_variance(rows[[g, h]][:, list(S)]) / 25
    for g, h in itertools.product(range(3), repeat=2)
    for S in itertools.product(range(5), repeat=2)
  )
  assert mean == pytest.approx(truth, rel=1e-10)


POPULATION = np.repeat([r for r, _ in LAW], [5, 3, 2], axis=0)


@pytest.mark.parametrize("n", [2, 3])
def test_theorems_1_and_2_and_lemma_2_over_all_test_sets(n):
  """On the law itself: all its ten equally likely networks are there, so no correction
  for few runs applies.
  """
  error = POPULATION.mean(1)
  sets = [POPULATION[:, list(S)] for S in itertools.product(range(5), repeat=n)]
  test_set = np.mean([stats.test_set_variance(s) for s in sets]) * 9 / 10
  independent = np.mean(
    [stats.independent_errors_variance(s, unbiased=False) for s in sets]
  )
  assert test_set > error.var() > 0
  assert test_set == pytest.approx((1 - 1 / n) * error.var() + independent, rel=1e-12)
  assert independent == pytest.approx(POPULATION.var(0).mean() / n, rel=1e-12)
  assert np.mean(
    [stats.distribution_variance(s, unbiased=False) for s in sets]
  ) == pytest.approx(error.var(), rel=1e-12)


def test_distribution_variance_se_is_the_spread_over_campaigns():
  rng = np.random.default_rng(1)
  rates = rng.uniform(0.1, 0.9, 100)
  shift = 0.05
  samples = [
    rng.uniform(size=(20, 100)) < rates[None] + rng.uniform(-shift, shift, (20, 1))
    for _ in range(600)
  ]
  counted = [counts_of_errors(sample) for sample in samples]
  estimates = [stats.distribution_variance(counts) for counts in counted]
  stated = np.mean([estimate.se for estimate in estimates])
  assert np.mean(estimates) == pytest.approx(
    shift**2 / 3, abs=3 * np.std(estimates) / 600**0.5
  )
  assert np.std(estimates) == pytest.approx(stated, rel=0.1)


def test_splits_equal_numpy():
  errors = some_errors(9, 11)
  even, odd = errors[:, 0::2].mean(1), errors[:, 1::2].mean(1)
  np.testing.assert_allclose(
    stats.split_covariance(errors), np.cov(even, odd)[0, 1], rtol=1e-12
  )
  r, p = scipy.stats.pearsonr(even, odd)
  np.testing.assert_allclose(stats.split_correlation(errors), r, rtol=1e-12)
  np.testing.assert_allclose(stats.correlation_p_value(r, 9), p, rtol=1e-10)


def test_correlations_across_test_sets_equal_scipy():
  sets = {
    "photo": some_errors(9, 11),
    "sketch": some_errors(9, 30, seed=1),
    "art": some_errors(9, 5, seed=2),
  }
  found = measures.test_set_correlations(sets)
  for (i, a), (j, b) in itertools.product(enumerate(sets.values()), repeat=2):
    r, p = scipy.stats.pearsonr(a.mean(1), b.mean(1))
    assert found.r[i, j] == pytest.approx(r, rel=1e-12)
    assert found.r_squared[i, j] == pytest.approx(r**2, rel=1e-12)
    assert found.p_value[i, j] == pytest.approx(p if i != j else 0, rel=1e-9, abs=1e-40)
  np.testing.assert_array_equal(
    found.r, measures.test_set_correlations(list(sets.values())).r
  )


def test_correlations_across_test_sets_of_few_runs():
  a, b, constant = (
    np.array([[0, 1], [1, 1]]),
    np.array([[1, 0], [0, 0]]),
    np.ones((2, 3), bool),
  )
  found = measures.test_set_correlations([a, b, constant])
  np.testing.assert_allclose(
    found.r, [[1, -1, np.nan], [-1, 1, np.nan], [np.nan] * 3], rtol=1e-15
  )
  np.testing.assert_array_equal(
    found.p_value, [[1, 1, np.nan], [1, 1, np.nan], [np.nan] * 3]
  )
  assert np.isnan(measures.test_set_correlations([a[:1], b[:1]])).all()


def test_p_values_at_few_runs():
  np.testing.assert_array_equal(stats.correlation_p_value([0.3, 1.0], 2), [1, 1])
  np.testing.assert_array_equal(
    stats.correlation_p_value([np.nan, 1.0], 2), [np.nan, 1]
  )
  np.testing.assert_array_equal(stats.correlation_p_value(0.3, 1), np.nan)
  np.testing.assert_array_equal(
    stats.correlation_p_value([1.0, -1.0, 0.0], 5), [0, 0, 1]
  )


def gain_over_all_orders(here, there, top):
  """The mean gain over every order of the runs; ties at the cut are broken by the
  order.
  """
  orders = list(itertools.permutations(range(len(here))))
  best = [
    np.mean([there[h] for h in sorted(order, key=lambda h: here[h])[:top]])
    for order in orders
  ]
  return np.mean(there) - np.mean(best)


@pytest.mark.parametrize(
  ("fraction", "top"), [(0.25, 1), (0.5, 3), (0.34, 2), (1.0, 6)]
)
def test_top_fraction_gain_shares_ties(fraction, top):
  errors = some_errors(6, 7, seed=3)
  errors[3, 0::2] = errors[0, 0::2]
  even, odd = errors[:, 0::2].mean(1), errors[:, 1::2].mean(1)
  gain = stats.top_fraction_gain(errors, fraction)
  forward, back = (
    gain_over_all_orders(even, odd, top),
    gain_over_all_orders(odd, even, top),
  )
  np.testing.assert_allclose(gain.even_to_odd, forward, rtol=1e-12, atol=1e-15)
  np.testing.assert_allclose(gain.odd_to_even, back, rtol=1e-12, atol=1e-15)
  np.testing.assert_allclose(gain.mean, (forward + back) / 2, rtol=1e-12, atol=1e-15)
  if top < 6:
    assert forward != pytest.approx(back)


def test_top_fraction_counts_runs_as_decimals_do():
  errors = np.zeros((100, 4), bool)
  errors[28, :2] = True
  errors[29:] = True
  # In floating point ⌊0.29 · 100⌋ is 28, which would leave out run 28 and its error
  # rate of 1/2 on odd examples.
  assert stats.top_fraction_gain(errors, 0.29).even_to_odd == pytest.approx(
    0.715 - 0.5 / 29
  )


def test_one_run_or_one_example():
  one_run, one_example = np.ones((1, 4), bool), np.array([[0], [1], [1]])
  np.testing.assert_array_equal(stats.example_error_rates(one_run), [1, 1, 1, 1])
  assert stats.independent_errors_variance(one_run, unbiased=False) == 0
  assert stats.top_fraction_gain(one_run).mean == 0
  for name in (
    "test_set_variance",
    "independent_errors_variance",
    "distribution_variance",
  ):
    assert np.isnan(getattr(stats, name)(one_run)), name
  for name in ("distribution_variance", "split_correlation", "split_covariance"):
    assert np.isnan(getattr(stats, name)(one_run)), name
    assert np.isnan(getattr(stats, name)(one_example)), name
  assert np.isnan(stats.distribution_variance(one_run, unbiased=False))
  assert np.isnan(stats.distribution_variance(one_example))
  assert stats.test_set_variance(one_example) == pytest.approx(1 / 3)
  gain = stats.top_fraction_gain(one_example)
  assert np.isnan(gain).all()


def test_a_constant_half_has_no_correlation():
  errors = np.array([[1, 0, 1], [1, 1, 1], [1, 0, 1]])
  assert np.isnan(stats.split_correlation(errors))
  assert stats.split_covariance(errors) == 0


def test_no_catastrophic_cancellation():
  """A difference of one error in 30,000 examples is seen."""
  errors = np.ones((400, 30_000), bool)
  errors[::2, 0] = False
  expected = 400 / 399 / 4 / 30_000**2
  np.testing.assert_allclose(stats.test_set_variance(errors), expected, rtol=1e-12)
  np.testing.assert_allclose(
    stats.test_set_variance(jnp.asarray(errors)), expected, rtol=1e-12
  )


def test_large_example_counts_are_exact():
  """Counts of more than 2^24 stay whole."""
  errors = np.ones((2, 2**24 + 3), np.int8)
  errors[0, 0] = 0
  assert stats.error_rates(jnp.asarray(errors))[0] == (2**24 + 2) / (2**24 + 3)


def test_the_first_of_many_wrong_entries_is_found_in_little_memory():
  errors = np.full((1000, 1000), 2, np.int8)
  tracemalloc.start()
  with pytest.raises(UserError, match="errors is 2 at run 0, example 0"):
    stats.error_rates(errors)
  most = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert most < 5 * errors.nbytes


@pytest.mark.parametrize(
  ("call", "text"),
  [
    (
      lambda: stats.error_rates([1, 0]),
      r"errors has shape \(2,\): give \(runs, examples\), axis 0 runs",
    ),
    (lambda: stats.error_rates([1, 0]), r"for a single run give errors\[None\]"),
    (lambda: stats.error_rates(np.zeros((2, 3, 4))), r"errors has shape \(2, 3, 4\)"),
    (lambda: stats.error_rates([[1, 0], [1]]), "errors has rows of unequal length"),
    (
      lambda: stats.error_rates(xr.Dataset()),
      r"errors is a Dataset: give one array, \(runs, examples\)",
    ),
    (
      lambda: stats.test_set_variance([[0, 2]]),
      "errors is 2 at run 0, example 1: give predictions != labels",
    ),
    (
      lambda: stats.test_set_variance(jnp.array([[0, -1]])),
      "errors is -1 at run 0, example 1",
    ),
    (
      lambda: stats.test_set_variance([[0.0, 1.0]]),
      "errors has dtype float64: give predictions != labels",
    ),
    (
      lambda: stats.top_fraction_gain([[0, 1]], 0),
      "fraction is 0: give a number above 0",
    ),
    (
      lambda: stats.top_fraction_gain([[0, 1]], [0.25, 0.5]),
      r"fraction is \[0.25, 0.5\]: give a number",
    ),
    (
      lambda: measures.test_set_correlations({}),
      "errors of no test set: give the same runs on every test set",
    ),
    (
      lambda: measures.test_set_correlations({"a": [[0, 1]], "b": [[0, 2]]}),
      r"errors\['b'\] is 2 at run 0, example 1",
    ),
    (
      lambda: measures.test_set_correlations({"a": [[0, 1]], "b": [[1], [0]]}),
      "errors of 1 on a, 2 on b: give the same runs",
    ),
    (
      lambda: stats.correlation_p_value(1.2, 5),
      "r is 1.2: give a number of at least -1 and at most 1",
    ),
  ],
)
def test_mistakes(call, text):
  with pytest.raises(UserError, match=text):
    call()
