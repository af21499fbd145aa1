"""Runs with a number of each example: predictions of numbers, losses, probabilities, and
predictions without labels, against plain NumPy and SciPy.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats
from test_cli import run

import vmapseeds as vs

rng = np.random.default_rng(0)
RUNS, EXAMPLES, CLASSES = 6, 60, 3
TARGETS = rng.normal(size=EXAMPLES)
NUMBERS = TARGETS + 0.3 * rng.normal(size=(RUNS, EXAMPLES))
LOSSES = (NUMBERS - TARGETS) ** 2
LABELS = rng.integers(0, CLASSES, EXAMPLES)
LOGITS = rng.normal(size=(RUNS, EXAMPLES, CLASSES)) + 2 * np.eye(CLASSES)[LABELS]
VOTES = LOGITS.argmax(-1)


def statistics_of(folder):
  return vs.report(folder).tables["statistics"].reset_index().set_index("statistic")


def test_predictions_of_numbers(tmp_path):
  results = vs.import_runs(
    tmp_path / "r", predictions=NUMBERS, targets=TARGETS, progress=False
  )
  np.testing.assert_array_equal(results.predictions, NUMBERS)
  np.testing.assert_array_equal(results.targets, TARGETS)
  np.testing.assert_allclose(results.losses, LOSSES)
  found = statistics_of(tmp_path / "r")
  assert found.value["mean_loss"] == pytest.approx(LOSSES.mean())
  assert found.value["sd_loss"] == pytest.approx(LOSSES.mean(1).std(ddof=1))

  # The same runs, one after another.
  for row in range(RUNS):
    recorder = vs.Recorder(tmp_path / "s", targets=pd.Series(TARGETS))
    recorder.add(NUMBERS[row], seed=row)
  np.testing.assert_array_equal(vs.open_results(tmp_path / "s").losses, results.losses)
  assert vs.verify(tmp_path / "s").problems == []


def test_losses_of_two_fixed_networks(tmp_path, capsys):
  """A paired t test over examples, by SciPy."""
  for name, row in (("a", 0), ("b", 1)):
    recorder = vs.Recorder(tmp_path / "r")
    recorder.add(losses=LOSSES[row], model=name)
  vs.compare(tmp_path / "r", by="model").print()
  text = " ".join(capsys.readouterr().out.split())
  test = scipy.stats.ttest_rel(LOSSES[0], LOSSES[1])
  assert f"p = {test.pvalue:.2g}" in text
  assert f"{abs(np.mean(LOSSES[0] - LOSSES[1])):.2g}" in text


def test_probabilities_are_logits(tmp_path):
  probabilities = scipy.special.softmax(LOGITS, -1)
  probabilities[0, 0] = [0, 0, 1]
  results = vs.import_runs(
    tmp_path / "r",
    probabilities=probabilities,
    labels=LABELS,
    keep_logits=True,
    progress=False,
  )
  votes = probabilities.argmax(-1)
  np.testing.assert_array_equal(results.predictions, votes)
  again = scipy.special.softmax(results.logits.values, -1)
  np.testing.assert_allclose(again, probabilities, atol=1e-12)
  found = statistics_of(tmp_path / "r")
  right = probabilities.mean(0)[np.arange(EXAMPLES), LABELS]
  assert found.value["ensemble_log_loss"] == pytest.approx(-np.log(right).mean())


def test_predictions_without_labels(tmp_path):
  names = np.array(["cat", "dog", "owl"])
  vs.import_runs(tmp_path / "r", predictions=names[VOTES], progress=False)
  pairs = itertools.combinations(VOTES, 2)
  expected = np.mean([np.mean(a != b) for a, b in pairs])
  report = vs.report(tmp_path / "r")
  found = report.tables["statistics"].reset_index().set_index("statistic")
  assert found.value["expected_disagreement"] == pytest.approx(expected)
  assert found.se["expected_disagreement"] == pytest.approx(
    float(vs.stats.expected_disagreement(VOTES, CLASSES).se)
  )
  report.save(tmp_path / "page")

  table = vs.example_table(tmp_path / "r").table
  agreement = [
    np.mean(x[:, None] == x, where=~np.eye(RUNS, dtype=bool)) for x in VOTES.T
  ]
  np.testing.assert_allclose(table.agreement, agreement)
  refused = "predictions without labels, which say not"
  with pytest.raises(vs.UserError, match=refused):
    vs.compare(tmp_path / "r", tmp_path / "r")
  with pytest.raises(vs.UserError, match=refused):
    vs.sample_size(tmp_path / "r")


def test_annotators_without_labels(tmp_path):
  """Each has seen some of the images: a loop over pairs of annotators."""
  asked = rng.random(VOTES.shape) < 0.6
  votes = np.where(asked, VOTES, -2)
  results = vs.import_runs(tmp_path / "r", predictions=votes, progress=False)
  shares = []
  for image in range(EXAMPLES):
    answers = VOTES[asked[:, image], image]
    if len(answers) > 1:
      shares.append(np.mean([a != b for a, b in itertools.combinations(answers, 2)]))
  found = statistics_of(tmp_path / "r")
  assert found.value["expected_disagreement"] == pytest.approx(np.mean(shares))

  of_runs = vs.run_table(results).disagreement
  for row in range(RUNS):
    others = []
    for image in np.flatnonzero(asked[row] & (asked.sum(0) > 1)):
      there = asked[:, image].copy()
      there[row] = False
      others.append(np.mean(VOTES[there, image] != VOTES[row, image]))
    assert of_runs[row] == pytest.approx(np.mean(others))


def test_regression_of_folds(tmp_path):
  """Each run predicts the examples of its fold: the mean is over what it was asked."""
  fold = np.arange(EXAMPLES) % 3
  numbers = np.where(fold == np.arange(RUNS)[:, None] % 3, NUMBERS, np.nan)
  results = vs.import_runs(
    tmp_path / "r", predictions=numbers, targets=TARGETS, progress=False
  )
  expected = [LOSSES[row, fold == row % 3].mean() for row in range(RUNS)]
  np.testing.assert_allclose(vs.run_table(results).mean_losses, expected)
  with pytest.raises(vs.UserError, match="run 0 was asked for no example"):
    vs.Recorder(tmp_path / "r").add(np.full(EXAMPLES, np.nan))


def test_the_command_line(tmp_path, capsys, monkeypatch):
  monkeypatch.chdir(tmp_path)
  pd.DataFrame(NUMBERS).to_csv("p.csv", index=False)
  pd.Series(TARGETS).to_csv("y.csv", index=False, header=False)
  np.save("l.npy", LOSSES)
  np.save("q.npy", scipy.special.softmax(LOGITS, -1))
  np.save("c.npy", LABELS)
  given = "--predictions p.csv --targets y.csv --out r --quiet"
  status, out, _ = run(capsys, "import", *given.split())
  assert (status, out) == (0, "6 runs on 60 examples in r; next: vmapseeds report r\n")
  np.testing.assert_allclose(vs.open_results("r").losses, LOSSES)
  status, _, _ = run(capsys, "import", "--losses", "l.npy", "--out", "s", "--quiet")
  assert status == 0
  np.testing.assert_array_equal(vs.open_results("s").losses, LOSSES)
  given = "--probabilities q.npy --labels c.npy --out t --quiet"
  status, out, _ = run(capsys, "import", *given.split())
  assert out.startswith("6 runs on 60 examples of 3 classes in t, mean accuracy ")
  np.testing.assert_array_equal(vs.open_results("t").predictions, VOTES)


def test_a_function_of_ones_own_that_returns_losses(tmp_path):
  def train_one(repetition):
    return {"losses": LOSSES[repetition.seed]}

  results = vs.repeat(train_one, RUNS, tmp_path / "r", progress=False)
  np.testing.assert_array_equal(results.losses, LOSSES)


@pytest.mark.parametrize(
  ("given", "said"),
  [
    (
      {"predictions": NUMBERS, "labels": TARGETS},
      "labels are numbers that are no classes, such as .*: give what is to be predicted",
    ),
    ({"predictions": NUMBERS}, "predictions are numbers that are no classes"),
    (
      {"probabilities": LOGITS, "labels": LABELS},
      "the sum of probabilities is .* at run 0, example 0: .* or logits=, if they are",
    ),
    ({"predictions": NUMBERS[:, 1:], "targets": TARGETS}, "give one target an example"),
    ({"logits": LOGITS, "targets": TARGETS}, "logits of classes with targets: give"),
    ({"losses": LOSSES, "labels": LABELS}, "losses with labels or targets: leave"),
    ({"losses": np.where(LOSSES > 1e-3, LOSSES, np.inf)}, "losses is inf at run"),
    (
      {"predictions": VOTES, "labels": LABELS, "targets": TARGETS},
      "labels with targets",
    ),
  ],
)
def test_what_is_refused(given, said, tmp_path):
  with pytest.raises(vs.UserError, match=said):
    vs.import_runs(tmp_path / "r", **given, progress=False)
  assert not (tmp_path / "r").exists()


def test_a_folder_takes_one_kind(tmp_path):
  vs.Recorder(tmp_path / "r", targets=TARGETS).add(NUMBERS[0], seed=0)
  with pytest.raises(
    vs.UserError, match=r"losses beside targets of .*: give predictions"
  ):
    vs.Recorder(tmp_path / "r").add(losses=LOSSES[1], seed=1)
  with pytest.raises(
    vs.UserError, match="are of different examples, with other numbers"
  ):
    vs.Recorder(tmp_path / "r", targets=TARGETS + 1)
