"""The bootstrap against a loop over resamples that says each statistic's definition
again.
"""

from itertools import combinations

import jax
import numpy as np
import pytest

from experiments import measures
from experiments.measures import resampled
from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.stats import resampling

KEY = jax.random.key(3)
K = 3


def campaign(runs=7, n=11, seed=0):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, K, n)
  wrong = rng.random((runs, n)) < rng.beta(0.6, 1.2, n)
  predictions = np.where(wrong, rng.integers(-1, K, (runs, n)), labels)
  predictions[:, 0] = 1  # an example on which all agree
  return predictions, labels


def slow(predictions, labels, rows, columns):
  """All statistics of one resample. Copies of the same run or example are never paired
  with each other.
  """
  p, y = predictions[rows][:, columns], labels[columns]
  runs, n = p.shape
  errors = (p != y).astype(float)
  pairs = [(a, b) for a, b in combinations(range(runs), 2) if rows[a] != rows[b]]
  two = [(i, j) for i in range(n) for j in range(n) if columns[i] != columns[j]]

  def covariance(x, y):
    return sum((x[a] - x[b]) * (y[a] - y[b]) for a, b in pairs) / 2 / len(pairs)

  rates = errors.mean(1)
  votes = np.stack([(p == c).sum(0) for c in range(K)], 1)
  top = np.where(votes.sum(1) > 0, votes.argmax(1), -1)
  disagreement = np.mean([(p[a] != p[b]).mean() for a, b in pairs])
  even, odd = (errors[:, columns % 2 == half].sum(1) for half in (0, 1))

  def calibration(confidence, hits):
    bins = np.minimum(10 * confidence // runs, 9)
    return sum(abs((hits - confidence / runs)[bins == b].sum()) for b in range(10)) / n

  return {
    "mean_error": rates.mean(),
    "test_set_variance": covariance(rates, rates),
    "independent_errors_variance": sum(
      covariance(errors[:, i], errors[:, i]) for i in range(n)
    )
    / n**2,
    "distribution_variance": np.mean(
      [covariance(errors[:, i], errors[:, j]) for i, j in two]
    ),
    "split_correlation": covariance(even, odd)
    / (np.sqrt(covariance(even, even) * covariance(odd, odd)) or np.nan),
    "ensemble_accuracy": (top == y).mean(),
    "expected_disagreement": disagreement,
    "gde_gap": abs(rates.mean() - disagreement),
    "cace": calibration(votes, y[:, None] == np.arange(K)),
    "ece": calibration(votes.max(1), top == y),
  }


@pytest.mark.parametrize("over", ["runs", "examples", "both"])
def test_every_statistic_of_every_resample(over, monkeypatch):
  """With blocks of two examples, so that sums over blocks are tested too."""
  monkeypatch.setattr(resampled, "_AT_ONCE", 100)
  predictions, labels = campaign()
  runs, n = predictions.shape
  of_runs, of_examples = jax.random.split(KEY)
  w, v = (
    resampling.resamples(runs, key=of_runs, replicates=6),
    resampling.resamples(n, key=of_examples, replicates=6),
  )
  w = w if over != "examples" else np.ones_like(w)
  v = v if over != "runs" else np.ones_like(v)
  expected = [
    slow(predictions, labels, np.repeat(np.arange(runs), a), np.repeat(np.arange(n), b))
    for a, b in zip(w, v, strict=True)
  ]
  found = measures.bootstrap(predictions, labels, K, key=KEY, over=over, replicates=6)
  for name in expected[0]:
    replicates = np.array([e[name] for e in expected])
    assert found[name].se == pytest.approx(
      np.nanstd(replicates, ddof=1), rel=1e-5, abs=1e-7
    ), name
    assert found[name].high == pytest.approx(
      np.nanpercentile(replicates, 97.5), rel=1e-5, abs=1e-7
    ), name
  assert ("top_fraction_gain" in found) == (over == "runs")


def test_products_are_not_rounded_on_any_device():
  predictions, labels = campaign()
  one = np.ones((1, len(labels)))
  program = jax.make_jaxpr(
    lambda w: resampled._of_resampled_votes(predictions, labels, one, w, K, 10)
  )(np.ones((5, 7)))
  products = str(program).count("dot_general[")
  assert str(program).count("(Precision.HIGHEST, Precision.HIGHEST)") == products > 1


def test_blocks_of_resamples(monkeypatch):
  monkeypatch.setattr(resampling, "_AT_ONCE", 24)
  keys = jax.random.split(KEY)
  blocks = list(
    resampling.blocks_of_resamples((3, keys[0]), (6, keys[1]), replicates=10)
  )
  assert [(a.shape, b.shape) for a, b in blocks] == [
    ((4, 3), (4, 6)),
    ((4, 3), (4, 6)),
    ((2, 3), (2, 6)),
  ]
  for a, b in blocks:
    assert (a.sum(1) == 3).all()
    assert (b.sum(1) == 6).all()
  assert (blocks[0][1] != blocks[1][1]).any()


@pytest.mark.parametrize("size", [0, 1, 2])
def test_resamples_of_few(size, monkeypatch):
  monkeypatch.setattr(resampling, "_AT_ONCE", 4)
  drawn = np.concatenate(
    [block for (block,) in resampling.blocks_of_resamples((size, KEY), replicates=20)]
  )
  assert drawn.shape == (20, size)
  assert (drawn.sum(1) == size).all()
  assert len(np.unique(drawn, axis=0)) == [1, 1, 3][size]


def test_the_level_is_checked_before_anything_is_drawn(monkeypatch):
  monkeypatch.setattr(resampling, "_draws", None)
  predictions, labels = campaign()
  for call in (
    lambda: measures.bootstrap(predictions, labels, K, key=KEY, level=95),
    lambda: stats.top_fraction_gain_bootstrap(predictions != labels, key=KEY, level=95),
  ):
    with pytest.raises(
      UserError, match="level is 95: give a number above 0 and below 1"
    ):
      call()


def test_gain_of_resamples():
  predictions, labels = campaign(runs=9, n=24)
  errors = predictions != labels
  errors = errors[np.lexsort([errors[:, half::2].sum(1) for half in (1, 0)])]
  w = resampling.resamples(9, key=KEY, replicates=5)
  expected = [
    float(stats.top_fraction_gain(errors[np.repeat(np.arange(9), row)]).mean)
    for row in w
  ]
  found = stats.top_fraction_gain_bootstrap(errors[::-1], key=KEY, replicates=5)
  assert found.se == pytest.approx(np.std(expected, ddof=1), rel=1e-5)
  assert found.low == pytest.approx(np.percentile(expected, 2.5), rel=1e-5)


@pytest.mark.slow
def test_order_does_not_matter_beyond_the_draw():
  """Relabelling classes changes only ties; the dtype of the predictions changes
  nothing.
  """
  predictions, labels = campaign()
  as_bytes = measures.bootstrap(
    predictions.astype(np.int8), labels.astype(np.int8), K, key=KEY, replicates=20
  )
  on_device = measures.bootstrap(
    jax.numpy.asarray(predictions), labels, K, key=KEY, replicates=20
  )
  for name, value in measures.bootstrap(
    predictions, labels, K, key=KEY, replicates=20
  ).items():
    np.testing.assert_array_equal(value, as_bytes[name])
    np.testing.assert_array_equal(value, on_device[name])
  relabelled = np.where(predictions < 0, -1, np.array([2, 0, 1])[predictions])
  same = measures.bootstrap(
    relabelled, np.array([2, 0, 1])[labels], K, key=KEY, replicates=20
  )
  for name in ("mean_error", "distribution_variance", "expected_disagreement", "cace"):
    assert same[name].se == pytest.approx(
      measures.bootstrap(predictions, labels, K, key=KEY, replicates=20)[name].se
    )


@pytest.mark.slow
def test_few_runs_and_examples():
  predictions, labels = campaign()
  one_run = measures.bootstrap(
    predictions[:1], labels, K, key=KEY, over="examples", replicates=50
  )
  assert one_run["mean_error"].se > 0
  assert np.isnan(one_run["expected_disagreement"].se)
  one_example = measures.bootstrap(
    predictions[:, 1:2], labels[1:2], K, key=KEY, replicates=50
  )
  assert np.isnan(one_example["distribution_variance"].se)
  assert one_example["mean_error"].se >= 0
  for none in (predictions[:0], predictions[:, :0]):
    found = measures.bootstrap(none, labels[: none.shape[1]], K, key=KEY, replicates=5)
    assert np.isnan(
      [
        found[name].se
        for name in ("mean_error", "cace", "ece", "expected_disagreement")
      ]
    ).all()
  all_right = measures.bootstrap(
    np.tile(labels, (4, 1)), labels, K, key=KEY, replicates=20
  )
  assert all_right["mean_error"] == all_right["cace"] == (0, 0, 0)
  assert all_right["ensemble_accuracy"] == (0, 1, 1)


def test_from_replicates_leaves_out_nan():
  replicates = np.array([[1.0, np.nan], [2.0, 5.0], [4.0, np.nan]])
  found = stats.from_replicates(replicates)
  assert found.se[0] == pytest.approx(np.std([1, 2, 4], ddof=1))
  assert found.low[0] == pytest.approx(np.percentile([1, 2, 4], 2.5))
  assert np.isnan([found.se[1], found.low[1], found.high[1]]).all()
  with pytest.raises(
    UserError, match="replicates is inf: give a number that is finite"
  ):
    stats.from_replicates([1, np.inf, 2])
  with pytest.raises(UserError, match=r"replicates is .*: give numbers"):
    stats.from_replicates([[1], [1, 2]])


@pytest.mark.parametrize("size", [-1, 2.5])
def test_resamples_of_no_number_of_things(size):
  with pytest.raises(UserError, match=f"size is {size}: .*at least 0"):
    resampling.resamples(size, key=KEY, replicates=2)


@pytest.mark.parametrize("key", [0, None, jax.random.split(KEY)])
def test_a_key_is_one_jax_random_key(key):
  for call in (
    lambda: stats.resamples(3, key=key, replicates=2),
    lambda: measures.bootstrap(*campaign(), K, key=key),
  ):
    with pytest.raises(
      UserError, match=r"key is .*: give one JAX random key, such as jax.random.key"
    ):
      call()
  old = stats.resamples(3, key=jax.random.PRNGKey(3), replicates=2)
  np.testing.assert_array_equal(old, stats.resamples(3, key=KEY, replicates=2))


@pytest.mark.parametrize(
  ("change", "said"),
  [
    (dict(over="run"), "over 'run'"),
    (dict(replicates=0), "replicates"),
    (dict(bins=0), "bins"),
  ],
)
def test_mistakes(change, said):
  with pytest.raises(UserError, match=said):
    measures.bootstrap(*campaign(), K, key=KEY, **change)
  if "over" in change:
    with pytest.raises(UserError, match="outside jit"):
      jax.jit(lambda p: measures.bootstrap(p, campaign()[1], K, key=KEY))(campaign()[0])
