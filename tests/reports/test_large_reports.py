"""Reports need memory in proportion to runs, examples and the classes that are voted
for, and give what slow loops over all pairs and classes give.
"""

import itertools
import tracemalloc

import jax
import numpy as np
import pytest
import scipy.sparse
import xarray as xr

import vmapseeds as vs
from vmapseeds import stats
from vmapseeds.reports.example_cards import explorer_of
from vmapseeds.reports.pictures import Inputs
from vmapseeds.results.statistics import measure_runs
from vmapseeds.stats.calibration import finite_ensemble_of_votes
from vmapseeds.stats.counts import Counts, VoteCounts, sparse_votes
from vmapseeds.stats.pairs import scan_pairs
from vmapseeds.stats.resampling import calibration_bootstrap_of_votes

SIZES = [(0, 5, 3), (1, 4, 3), (2, 1, 2), (4, 30, 90), (7, 40, 5), (20, 12, 300)]


def campaign(runs, examples, classes):
  """Return predictions, some of which are missing, and labels."""
  rng = np.random.default_rng(runs)
  labels = rng.integers(0, classes, examples)
  wrong = rng.random((runs, examples)) < 0.4
  predictions = np.where(wrong, rng.integers(-1, classes, (runs, examples)), labels)
  return predictions.astype(np.int16), labels


def both(runs, examples, classes):
  """Return counts of the same votes, as an array and as SciPy's sparse array."""
  predictions, labels = campaign(runs, examples, classes)
  votes = np.zeros((examples, classes), np.int64)
  for run, example in itertools.product(range(runs), range(examples)):
    if predictions[run, example] >= 0:
      votes[example, predictions[run, example]] += 1
  sparse = sparse_votes(predictions, classes)
  np.testing.assert_array_equal(sparse.toarray(), votes, strict=True)
  return VoteCounts(votes, runs, labels), VoteCounts(sparse, runs, labels)


@pytest.mark.parametrize("size", SIZES)
def test_cells_are_the_votes(size):
  dense, sparse = both(*size)
  for counts in (dense, sparse):
    listed = {
      (i, c): (counts_of_cell, right)
      for i, c, counts_of_cell, right in np.transpose(counts.cells).tolist()
    }
    for i, c in np.ndindex(dense.votes.shape):
      votes, right = dense.votes[i, c], dense.labels[i] == c
      assert listed.pop((i, c), (0, False)) == (votes, right)
    assert not listed
    order = np.argsort(-dense.votes, axis=1, kind="stable")[:, :2]
    votes = np.take_along_axis(dense.votes, order, 1)
    classes, found = counts.first_classes(2)
    np.testing.assert_array_equal(found, votes)
    np.testing.assert_array_equal(classes, np.where(votes > 0, order, 0))


@pytest.mark.parametrize("size", SIZES)
def test_calibration_of_a_finite_ensemble_is_that_of_all_classes(size):
  """Against simulating votes for every class, also those without any."""
  dense, sparse = both(*size)
  runs, examples, classes = size
  if not runs:
    return
  key = jax.random.key(1)
  rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  fractions = dense.votes / runs
  law = np.append(fractions, np.maximum(1 - fractions.sum(1)[:, None], 0), axis=1)
  law /= law.sum(1, keepdims=True)
  values = []
  for _ in range(5):
    labels = rng.multinomial(1, law).argmax(1)
    votes = rng.multinomial(runs, law)[:, :-1]
    of_pairs, of_top = np.zeros((2, 10))
    for i, c in np.ndindex(votes.shape):
      place = min(10 * votes[i, c] // runs, 9)
      of_pairs[place] += (labels[i] == c) - votes[i, c] / runs
    for i, of_example in enumerate(votes):
      top = of_example.argmax()
      right = of_example[top] > 0 and top == labels[i]
      of_top[min(10 * of_example[top] // runs, 9)] += right - of_example[top] / runs
    values.append([abs(of_pairs).sum() / examples, abs(of_top).sum() / examples])
  mean, sd = np.mean(values, 0), np.std(values, 0, ddof=1)
  expected = [mean[0], sd[0], mean[1], sd[1]]
  np.testing.assert_allclose(
    finite_ensemble_of_votes(sparse, key=key, replicates=5),
    expected,
    rtol=1e-11,
    atol=1e-12,
  )


@pytest.mark.parametrize("size", SIZES[1:])
def test_statistics_of_sparse_votes(size):
  dense, sparse = both(*size)
  key = jax.random.key(0)
  for statistic in (stats.cace, stats.ece, stats.gde_gap, stats.ensemble_accuracy):
    np.testing.assert_array_equal(statistic(dense), statistic(sparse))
  for of in ("pairs", "classes", "top"):
    one, other = (stats.calibration_curve(x, of=of, bins=4) for x in (dense, sparse))
    jax.tree.map(np.testing.assert_array_equal, one, other)
    assert one.items.sum() == size[1] * (1 if of == "top" else size[2])
  for one, other in zip(
    *(calibration_bootstrap_of_votes(x, key=key).values() for x in (dense, sparse)),
    strict=True,
  ):
    np.testing.assert_array_equal(one.se, other.se)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("runs", "examples"), [(1, 3), (2, 2), (4, 9), (30, 40)])
def test_one_pass_over_pairs(runs, examples, rate):
  rng = np.random.default_rng(0)
  errors = rng.random((runs, examples)) < rate
  right, found = ~errors, []
  for i, j in itertools.combinations(range(examples), 2):
    both_right = int((right[:, i] & right[:, j]).sum())
    deviation = runs * both_right - int(right[:, i].sum()) * int(right[:, j].sum())
    found.append((-abs(deviation), i, j))
  for k in (1, 4, 2000):
    scan = scan_pairs(Counts(errors), k=k)
    assert scan.dependent == sum(-d > 0.02 * runs**2 for d, *_ in found)
    most = scan.most_dependent
    assert [*zip(most.i, most.j, strict=True)] == [x[1:] for x in sorted(found)[:k]]


def peak_of(runs, examples, classes):
  """Return the memory that a page's numbers of results take, in bytes."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, classes, examples)
  wrong = rng.random((runs, examples)) < 0.2
  predictions = np.where(wrong, (labels + 1) % classes, labels).astype(np.int16)
  about = {"role": "class", "labels": "labels", "num_classes": classes}
  results = xr.Dataset(
    {
      "predictions": (("run", "example"), predictions, about),
      "labels": ("example", labels, {"of": "predictions", "num_classes": classes}),
    }
  )
  tracemalloc.start()
  try:
    runs = measure_runs(results, "predictions")
    assert runs.pairs.dependent
    assert runs.tallies.cace() > 0
    finite_ensemble_of_votes(runs.tallies, key=jax.random.key(0), replicates=2)
    assert explorer_of(runs, Inputs())["confusions"]
    return tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()


def test_memory_is_linear_in_examples_and_not_in_classes():
  """A table of all pairs of 3,000 examples has 36 MB, one of 20,000 classes 3.2 GB."""
  assert peak_of(4, 3000, 10) < 30e6
  assert peak_of(4, 200, 20_000) < 150e6


def test_vote_fractions_are_an_array():
  dense, sparse = both(7, 40, 5)
  assert scipy.sparse.issparse(sparse.votes)
  np.testing.assert_array_equal(
    stats.vote_fractions(sparse), stats.vote_fractions(dense)
  )
  assert isinstance(vs.stats.tally(*campaign(7, 40, 5), 5).votes, np.ndarray)
