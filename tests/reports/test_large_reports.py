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
from cases import mostly_slow

import vmapseeds as vs
from experiments import measures
from experiments.measures.resampled import renumber_classes
from vmapseeds import stats
from vmapseeds.reports.example_cards import explorer_of
from vmapseeds.reports.pictures import ExampleInputs
from vmapseeds.results.measured_runs import measure_runs
from vmapseeds.stats.calibration import (
  calibration_bootstrap_of_votes,
)
from vmapseeds.stats.counting import sparse_votes
from vmapseeds.stats.counts import Counts, VoteCounts
from vmapseeds.stats.pairs import scan_pairs

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
    assert explorer_of(runs, ExampleInputs())["confusions"]
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


@pytest.mark.parametrize("size", [(1, 0, 3), (1, 1, 1), *SIZES])
def test_classes_are_numbered_in_each_example(size):
  predictions, labels = campaign(*size)
  numbered, numbered_labels, num_classes = renumber_classes(predictions, labels)
  most = 0
  for i in range(size[1]):
    classes = sorted({*predictions[:, i].tolist(), labels[i]} - {-1})
    most = max(most, len(classes))
    number_of = {-1: -1, **{c: number for number, c in enumerate(classes)}}
    assert numbered[:, i].tolist() == [number_of[c] for c in predictions[:, i]]
    assert numbered_labels[i] == number_of[labels[i]]
  assert num_classes == max(most, 1)


@pytest.mark.parametrize("over", mostly_slow(["both", "runs", "examples"]))
@pytest.mark.parametrize("size", [(2, 1, 70), (20, 12, 300)])
def test_bootstrap_of_many_classes(size, over):
  """Against gathering each resample, with all classes."""
  predictions, labels = campaign(*size)
  runs, examples, classes = size
  key = jax.random.key(3)
  intervals = measures.bootstrap(
    predictions, labels, classes, over, key=key, replicates=9
  )
  of_runs, of_examples = jax.random.split(key)
  times_runs = np.ones((9, runs), int)
  times_examples = np.ones((9, examples), int)
  if over != "examples":
    times_runs = stats.resamples(runs, key=of_runs, replicates=9)
  if over != "runs":
    times_examples = stats.resamples(examples, key=of_examples, replicates=9)
  values = []
  for of_run, of_example in zip(times_runs, times_examples, strict=True):
    rows = np.repeat(np.arange(runs), of_run)
    columns = np.repeat(np.arange(examples), of_example)
    drawn = predictions[np.ix_(rows, columns)], labels[columns], classes
    values.append(
      [stats.ensemble_accuracy(*drawn), stats.cace(*drawn), stats.ece(*drawn)]
    )
  for name, of in zip(
    ("ensemble_accuracy", "cace", "ece"), np.transpose(values), strict=True
  ):
    np.testing.assert_allclose(intervals[name].se, of.std(ddof=1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("pairs", [False, True])
def test_tallies_of_many_classes(pairs):
  """Against counting one vote after another."""
  runs, examples, classes = 5, 30, 1001
  predictions, labels = campaign(runs, examples, classes)
  votes = np.zeros((examples, classes), np.int64)
  for run, example in np.ndindex(runs, examples):
    if predictions[run, example] >= 0:
      votes[example, predictions[run, example]] += 1
  blocks = [predictions[:2], predictions[2:2], jax.numpy.asarray(predictions[2:])]
  tallies = stats.tally_blocks(blocks, labels, classes, pairs=pairs)
  added = stats.tally(predictions[:1], labels, classes, pairs=pairs) + stats.tally(
    predictions[1:], labels, classes, pairs=pairs
  )
  read = stats.Tallies.from_arrays(tallies.to_arrays())
  for of in (tallies, added, read):
    dense = of.votes.toarray() if scipy.sparse.issparse(of.votes) else of.votes
    np.testing.assert_array_equal(dense, votes, strict=True)
    np.testing.assert_array_equal(of.wrong, (predictions != labels).sum(0))
  assert scipy.sparse.issparse(tallies.votes)
  assert isinstance(read.votes, np.ndarray)
  np.testing.assert_array_equal(stats.vote_fractions(tallies), votes / runs)
  nothing = stats.tally_blocks([], labels, classes)
  assert nothing.runs == nothing.votes.sum() == 0


@pytest.mark.parametrize(
  "statistic",
  [
    lambda *of: measures.bootstrap(*of, key=jax.random.key(0), replicates=20),
    lambda *of: stats.tally(*of).cace(),
    stats.cace,
  ],
  ids=["bootstrap", "tally", "cace"],
)
def test_memory_of_22_000_classes(statistic):
  """Votes of 1,000 examples for all classes have 176 MB."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 22_000, 1000)
  wrong = rng.random((4, 1000)) < 0.2
  predictions = np.where(wrong, (labels + 1) % 22_000, labels).astype(np.int16)
  tracemalloc.start()
  try:
    statistic(predictions, labels, 22_000)
    assert tracemalloc.get_traced_memory()[1] < 120e6
  finally:
    tracemalloc.stop()
