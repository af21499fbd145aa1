"""Runs that were not asked for all examples, imported, recorded or of folds: what folders
say of them, against loops over NumPy arrays.
"""

import json

import numpy as np
import pandas as pd
import pytest

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.reports.summaries import summarize
from vmapseeds.stats.reading import NOT_ASKED
from vmapseeds.training import names

RNG = np.random.default_rng(0)
N, SEEDS, FOLDS, CLASSES = 60, 3, 5, 3
LABELS = RNG.integers(0, CLASSES, N)
FOLD = RNG.permutation(N) % FOLDS
RUNS = SEEDS * FOLDS
ASKED = np.array([run % FOLDS == FOLD for run in range(RUNS)])
ANSWERS = np.where(RNG.random((RUNS, N)) < 0.92, LABELS, (LABELS + 1) % CLASSES)
PADDED = np.where(ASKED, ANSWERS, -2)
VALUES = {"seed": np.repeat(np.arange(SEEDS), FOLDS), "fold": np.arange(RUNS) % FOLDS}
ACCURACIES = np.array(
  [np.mean(ANSWERS[r, a] == LABELS[a]) for r, a in enumerate(ASKED)]
)
# The runs that were asked for an example, as rows of a table of three runs on all.
WHOLE = np.array(
  [ANSWERS[[s * FOLDS + FOLD[e] for s in range(SEEDS)], e] for e in range(N)]
).T


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("asked") / "padded"
  vs.import_runs(path, predictions=PADDED, labels=LABELS, values=VALUES, progress=False)
  return path


def test_the_code_is_the_same_everywhere():
  assert NOT_ASKED == names.NOT_ASKED == -2


def test_accuracy_is_over_what_was_asked(folder):
  results = vs.open_results(folder)
  np.testing.assert_allclose(results.accuracy, ACCURACIES)
  mean = vs.report(folder).table.xs("mean_accuracy", level="statistic")
  assert mean.value.item() == pytest.approx(ACCURACIES.mean())
  assert 0.85 < ACCURACIES.mean() < 0.97
  np.testing.assert_allclose(vs.run_table(folder).accuracy, ACCURACIES)


@pytest.mark.parametrize(
  "form", ["masked", "floats", "csv", "npy", "frame", "recorder"]
)
def test_all_ways_to_say_it_are_stored_alike(form, folder, tmp_path):
  given = {
    "masked": np.ma.masked_array(ANSWERS, ~ASKED),
    "floats": np.where(ASKED, ANSWERS, np.nan),
    "frame": pd.DataFrame(np.where(ASKED, ANSWERS, np.nan)),
    "recorder": np.ma.masked_array(ANSWERS, ~ASKED),
    "csv": tmp_path / "p.csv",
    "npy": tmp_path / "p.npy",
  }[form]
  out = tmp_path / "out"
  if form == "csv":
    pd.DataFrame(ANSWERS).where(ASKED).to_csv(given, index=False)
  if form == "npy":
    np.save(given, np.where(ASKED, ANSWERS, np.nan))
  if form == "recorder":
    recorder = vs.Recorder(out, labels=LABELS)
    for run, predictions in enumerate(given):
      recorder.add(predictions, **{name: VALUES[name][run] for name in VALUES})
  else:
    # A block holds the runs of some folds alone: others may have no missing entry.
    how = dict(block_runs=4, progress=False, header=True if form == "csv" else None)
    vs.import_runs(out, predictions=given, labels=LABELS, values=VALUES, **how)
  stored, due = vs.open_results(out), vs.open_results(folder)
  np.testing.assert_array_equal(stored.predictions, due.predictions)
  np.testing.assert_array_equal(stored.accuracy, due.accuracy)


def test_logits_of_examples_that_were_not_asked_are_nan(tmp_path):
  logits = RNG.normal(size=(RUNS, N, CLASSES)).astype(np.float32)
  padded = np.where(ASKED[..., None], logits, np.nan)
  how = dict(labels=LABELS, keep_logits=True, progress=False)
  results = vs.import_runs(tmp_path / "a", logits=padded, **how)
  due = np.where(ASKED, logits.argmax(2), -2)
  np.testing.assert_array_equal(results.predictions, due)
  masked = np.ma.masked_array(logits, np.broadcast_to(~ASKED[..., None], logits.shape))
  of_masked = vs.import_runs(tmp_path / "b", logits=masked, **how)
  np.testing.assert_array_equal(of_masked.predictions, due)

  p = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
  mean = np.stack([p[ASKED[:, e], e].mean(0) for e in range(N)])
  found = vs.held_out(results)
  np.testing.assert_allclose(found.probabilities, mean, rtol=1e-5)
  statistics = vs.report(tmp_path / "a")[0]["statistics"]
  assert statistics["probability_accuracy"]["value"] == pytest.approx(
    np.mean(mean.argmax(1) == LABELS)
  )
  log_loss = -np.log(mean[np.arange(N), LABELS]).mean()
  assert statistics["ensemble_log_loss"]["value"] == pytest.approx(log_loss, rel=1e-5)
  brier = ((mean - np.eye(CLASSES)[LABELS]) ** 2).sum(1).mean()
  assert statistics["ensemble_brier"]["value"] == pytest.approx(brier, rel=1e-5)
  measured = vs.measure(results, ["brier"]).brier
  own = [
    ((p[r, a] - np.eye(CLASSES)[LABELS[a]]) ** 2).sum(1).mean()
    for r, a in enumerate(ASKED)
  ]
  np.testing.assert_allclose(measured, own, rtol=1e-4)


def test_held_out_takes_imported_folds(folder):
  found = vs.held_out(folder)
  assert (found.runs == SEEDS).all()
  votes = np.stack([(k == WHOLE).mean(0) for k in range(CLASSES)], axis=1)
  np.testing.assert_allclose(found.vote_fractions, votes)
  np.testing.assert_array_equal(found.prediction, votes.argmax(1))
  np.testing.assert_allclose(found.error_rate, (WHOLE != LABELS).mean(0))


def test_tallies_and_errors_are_of_what_was_asked(folder):
  errors = vs.error_matrix(folder)
  np.testing.assert_array_equal(errors.mask, ~ASKED)
  np.testing.assert_allclose(errors.mean(1), 1 - ACCURACIES)
  np.testing.assert_allclose(vs.stats.error_rates(errors), 1 - ACCURACIES)
  tallies = vs.tally(folder)
  assert tallies.ensemble_accuracy() == pytest.approx(
    vs.stats.ensemble_accuracy(WHOLE, LABELS, CLASSES)
  )
  np.testing.assert_array_equal(tallies.asked, np.full(N, SEEDS))


def test_reports_say_what_the_runs_that_were_asked_make_together(folder, tmp_path):
  report = vs.report(folder)
  (summary,) = report
  found = {name: s["value"] for name, s in summary["statistics"].items()}
  assert found["ensemble_accuracy"] == pytest.approx(
    vs.stats.ensemble_accuracy(WHOLE, LABELS, CLASSES)
  )
  assert found["expected_disagreement"] == pytest.approx(
    vs.stats.expected_disagreement(WHOLE, CLASSES).value.item()
  )
  # Of other examples for each run, no variance on a test set can be told.
  assert not {"distribution_sd", "independent_errors_sd", "dependent_pairs"} & set(
    found
  )
  assert any("asked for 20% of the examples" in text for text in summary["warnings"])
  hard = [row["example"] for row in summary["hard_examples"]]
  rates = (WHOLE != LABELS).mean(0)
  assert sorted(rates[hard]) == sorted(np.sort(rates[rates > 0])[::-1][: len(hard)])
  page = report.save(tmp_path / "page").read_text()
  assert "ensemble accuracy" in page
  assert json.loads((tmp_path / "page/report.json").read_text())["runs"] == RUNS


def test_example_tables_are_of_the_runs_that_were_asked(folder):
  table = vs.example_table(folder).table
  assert (table.runs == SEEDS).all()
  np.testing.assert_allclose(table.error_rate, (WHOLE != LABELS).mean(0))
  alike = (WHOLE[0] == WHOLE[1]) + 0 + (WHOLE[0] == WHOLE[2]) + (WHOLE[1] == WHOLE[2])
  np.testing.assert_allclose(table.agreement, alike / 3)


def test_minus_one_stays_an_answer_and_a_note_says_so(tmp_path, capsys):
  """Folds padded with -1, which is an error: 18 % where 92 % are right."""
  padded = np.maximum(PADDED, -1)
  np.save(tmp_path / "p.npy", padded)
  np.save(tmp_path / "y.npy", LABELS)
  files = [
    "--predictions",
    str(tmp_path / "p.npy"),
    "--labels",
    str(tmp_path / "y.npy"),
  ]
  cli.main(["import", *files, "--out", str(tmp_path / "a")])
  wrong = (padded == LABELS).mean()
  shown = capsys.readouterr()
  assert f"mean accuracy {wrong:.2%}" in shown.out
  assert "80% of the predictions are -1, which is an error" in shown.err
  assert "give -2 there, NaN or a mask" in shown.err
  summary = summarize(vs.open_results(tmp_path / "a"))
  assert any("give -2 there" in text for text in summary["warnings"])

  np.save(tmp_path / "p.npy", PADDED)
  cli.main(["import", *files, "--out", str(tmp_path / "b")])
  shown = capsys.readouterr()
  assert f"mean accuracy {ACCURACIES.mean():.2%}" in shown.out
  assert "which is an error" not in shown.err


def test_folders_of_such_runs_merge_and_compare(folder, tmp_path):
  other = np.where(ASKED, LABELS, -2)
  values = VALUES | {"seed": VALUES["seed"] + SEEDS}
  vs.import_runs(
    tmp_path / "b", predictions=other, labels=LABELS, values=values, progress=False
  )
  merged = vs.merge([folder, tmp_path / "b"], tmp_path / "both", progress=False)
  np.testing.assert_allclose(merged.accuracy, [*ACCURACIES, *np.ones(RUNS)])
  found = vs.compare(
    folder,
    tmp_path / "b",
    paired=True,
    where={"fold": range(FOLDS)},
    against={"fold": range(FOLDS)},
  ).only
  assert found.found.difference == pytest.approx(ACCURACIES.mean() - 1)
  # Other examples of each run: nothing is said of other examples.
  assert found.elsewhere is None


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (np.full((2, N), -3), "predictions is -3 at run 0, example 0: give class indices"),
    (
      np.where(np.arange(2)[:, None] == 1, -2, PADDED[:2] * 0),
      "run 1 was asked for no example",
    ),
    (
      np.where(PADDED[:2] == -2, np.nan, 0.5),
      "predictions are numbers that are no classes, such as 0.5: give",
    ),
  ],
)
def test_mistakes(given, message, tmp_path):
  with pytest.raises(vs.UserError, match=message):
    vs.import_runs(tmp_path / "a", predictions=given, labels=LABELS, progress=False)
