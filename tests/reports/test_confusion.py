"""Confusion matrices over runs: against loops and scikit-learn."""

import json

import flax.linen as nn
import numpy as np
import pytest
import sklearn.metrics as sk

import vmapseeds as vs
from vmapseeds import cli

RNG = np.random.default_rng(0)
N, RUNS = 50, 6
NAMES = ["cat", "dog", "owl"]
LABELS = RNG.integers(0, 3, N)
ANSWERS = np.where(RNG.random((RUNS, N)) < 0.7, LABELS, RNG.integers(-1, 3, (RUNS, N)))


def by_hand(predictions, labels, classes):
  """Return the sum of scikit-learn's matrices of the runs, a class more for none."""
  counts = np.zeros((classes, classes + 1), int)
  for answers in predictions:
    asked = answers != -2
    given = np.where(answers[asked] == -1, classes, answers[asked])
    matrix = sk.confusion_matrix(labels[asked], given, labels=range(classes + 1))
    counts += matrix[:classes]
  return counts


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("confusion") / "a"
  how = dict(labels=LABELS, class_names=NAMES, progress=False)
  vs.import_runs(path, predictions=ANSWERS, **how)
  return path


def test_counts_and_rates_are_those_of_all_runs(folder):
  found = vs.confusion(folder)
  due = by_hand(ANSWERS, LABELS, 3)
  np.testing.assert_array_equal(found.counts, due)
  np.testing.assert_allclose(found.rates, due / due.sum(1, keepdims=True))
  assert found.counts.index.tolist() == NAMES
  assert found.counts.columns.tolist() == [*NAMES, "none"]
  assert found.rates.loc["cat", "dog"] == due[0, 1] / due[0].sum()
  # The diagonal is the recall of each class, as a mean over runs.
  recalls = [(ANSWERS[:, c == LABELS] == c).mean() for c in range(3)]
  np.testing.assert_allclose(np.diag(found.rates), recalls)
  tallies = vs.stats.tally(ANSWERS, LABELS, 3)
  np.testing.assert_array_equal(tallies.confusion_matrix().counts, due)


def test_only_what_was_asked_is_an_answer(tmp_path):
  padded = np.where(RNG.random(ANSWERS.shape) < 0.4, ANSWERS, -2)
  vs.import_runs(tmp_path / "a", predictions=padded, labels=LABELS, progress=False)
  found = vs.confusion(tmp_path / "a")
  np.testing.assert_array_equal(found.counts, by_hand(padded, LABELS, 3))
  assert found.counts.to_numpy().sum() == (padded != -2).sum()


def test_the_command_prints_rates_and_writes_a_page(folder, capsys, tmp_path):
  cli.main(["confusion", str(folder), "--out", str(tmp_path / "page")])
  printed = capsys.readouterr().out
  due = by_hand(ANSWERS, LABELS, 3)
  for row in due:
    assert str(row.sum()) in printed
    assert f"{100 * row[0] / row.sum():.2f}" in printed
  record = json.loads((tmp_path / "page" / "confusion.json").read_text())
  assert record["counts"] == due.tolist()
  assert record["labels"] == NAMES


def test_of_many_classes_the_most_frequent_confusions_are_printed(tmp_path):
  labels = np.arange(60) % 20
  answers = np.tile(labels, (3, 1))
  answers[:, labels == 4], answers[:2, 7] = 5, 8
  vs.import_runs(tmp_path / "a", predictions=answers, labels=labels, progress=False)
  found = vs.confusion(tmp_path / "a")
  (table,) = found.document.brief[0].tables
  assert [row[:3] for row in table.rows] == [["4", "5", "9"], ["7", "8", "2"]]


def test_of_folds_it_is_of_the_examples_that_were_held_out(tmp_path):
  x = RNG.normal(size=(N, 3)).astype(np.float32)
  data = vs.Dataset(train=(x, LABELS), class_names=NAMES)
  of = vs.Recipe(
    name="folds",
    dataset=data,
    model=nn.Dense,
    model_args={"features": 3},
    epochs=2,
    batch_size=10,
    lr=0.1,
  )
  runs = vs.Runs.independent(2).k_fold(4)
  how = dict(progress=False, lane_width=2, lowering="sequential")
  vs.train(of, runs, tmp_path / "a", **how)
  results = vs.open_results(tmp_path / "a")
  found = vs.confusion(tmp_path / "a")
  padded = np.where(results["mask"].values, results.predictions.values, -2)
  np.testing.assert_array_equal(found.counts, by_hand(padded, LABELS, 3))
  assert found.counts.index.tolist() == NAMES
  page = vs.report(tmp_path / "a").save(tmp_path / "page").read_text()
  assert "Which class the runs predict for examples of each class" in page
