"""Tables of test examples: by loops over runs and examples, from predictions and from
stored votes, in the terminal and in reports.
"""

from collections import Counter
from itertools import combinations

import flax.linen as nn
import folders
import numpy as np
import pytest
import test_report
import test_roles
import xarray as xr

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.errors import UserError
from vmapseeds.reports import examples_table
from vmapseeds.reports.summaries import summarize
from vmapseeds.results import by_example


def by_hand(predictions, labels):
  """The rows of the table, each by its own loop."""
  rows = []
  for label, column in zip(labels.tolist(), predictions.T.tolist(), strict=True):
    votes = Counter(c for c in column if c >= 0)
    others = Counter(c for c in column if c not in (-1, label))
    first = min(votes, key=lambda c, v=votes: (-v[c], c), default=-1)
    other = min(others, key=lambda c, v=others: (-v[c], c), default=-1)
    pairs = [a == b for a, b in combinations(column, 2)]
    runs = len(column)
    row = {
      "label": label,
      "most_voted": first,
      "votes": votes[first],
      "error_rate": sum(c != label for c in column) / runs,
      "agreement": np.mean(pairs) if pairs else np.nan,
      "other_class": other,
      "other_share": others[other] / runs,
    }
    rows.append(row | {"margin": column.count(label) / runs - row["other_share"]})
  keys = {
    "rank_hard": lambda i: (-rows[i]["error_rate"], rows[i]["margin"]),
    "rank_split": lambda i: rows[i]["agreement"],
    "rank_mislabelled": lambda i: -rows[i]["other_share"],
  }
  for name, key in keys.items():
    for rank, i in enumerate(sorted(range(len(rows)), key=key)):
      rows[i][name] = rank
  return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


@pytest.mark.parametrize("runs", [1, 2, 7, 300])
def test_classes_by_hand(runs):
  results = test_report.dataset(runs, 40, 4)
  predictions = results.predictions.values
  predictions[: runs // 2, 3] = -1
  predictions[:, 5] = -1
  found = vs.example_table(results).dataset
  expected = by_hand(predictions, results.labels.values)
  assert {*found.data_vars} == {*expected}
  for name, column in expected.items():
    np.testing.assert_allclose(found[name], column, rtol=1e-12, err_msg=name)
  if runs > 1:
    disagreement = vs.stats.expected_disagreement(predictions, 4)
    assert found.agreement.values.mean() == pytest.approx(1 - disagreement)
  table = found.to_dataframe()
  assert len(table) == 40
  assert table.label.tolist() == results.labels.values.tolist()


@pytest.mark.parametrize("runs", [1, 2, 40])
def test_losses_by_hand(runs):
  losses = test_roles.LOSSES[:runs]
  found = vs.example_table(test_roles.dataset(nats=(losses, test_roles.LOSS))).dataset
  columns = [[float(x) for x in column] for column in losses.T]
  mean = [sum(column) / runs for column in columns]
  sd = [np.std(column, ddof=1) if runs > 1 else np.nan for column in columns]
  np.testing.assert_allclose(found.mean_loss, mean, rtol=1e-12)
  np.testing.assert_allclose(found.sd, sd, rtol=1e-12)
  order = sorted(range(50), key=lambda i: -mean[i])
  assert found.rank_hard.values[order].tolist() == [*range(50)]
  order = sorted(range(50), key=lambda i: -sd[i]) if runs > 1 else range(50)
  assert found.rank_split.values[[*order]].tolist() == [*range(50)]


@pytest.mark.parametrize("examples", [0, 1])
def test_few_examples(examples):
  votes = np.array([[2, 1, 0]])[:examples]
  counts = vs.stats.tally(np.zeros((3, examples), int), [1] * examples, 3)
  counts.votes[:] = votes
  found = by_example.table_of_votes(counts)
  assert found.sizes["example"] == examples
  assert found.most_voted.values.tolist() == [0] * examples
  assert found.agreement.values.tolist() == pytest.approx([1 / 3] * examples)
  assert found.rank_hard.values.tolist() == [0] * examples


def test_examples_that_runs_held_out_by_hand(tmp_path):
  """Each share is of the runs that were not trained on the example, if there are any."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, 30)
  inputs = rng.normal(size=(30, 4)).astype(np.float32) + labels[:, None]
  recipe = vs.Recipe(
    model=nn.Dense(3),
    dataset=vs.Dataset(train=(inputs, labels)),
    epochs=1,
    batch_size=8,
    lr=0.1,
  )
  runs = vs.Runs.independent(6).out_of_bootstrap()
  vs.train(recipe, runs, tmp_path / "r", progress=False)
  table = vs.example_table(tmp_path / "r").dataset
  results = vs.open_results(tmp_path / "r", "held_out")
  mask, predictions = results.mask.values, results.predictions.values
  assert {0, 1, 2} <= {*mask.sum(0)}
  columns = {name: table[name].values for name in table.data_vars}
  for i, label in enumerate(labels):
    votes = predictions[mask[:, i], i].tolist()
    assert columns["runs"][i] == len(votes)
    if not votes:
      assert np.isnan(columns["error_rate"][i])
      assert columns["most_voted"][i] == -1
      continue
    right = votes.count(label)
    others = [votes.count(other) for other in range(3) if other != label]
    assert columns["error_rate"][i] == (len(votes) - right) / len(votes)
    assert columns["margin"][i] == (right - max(others)) / len(votes)
    pairs = list(combinations(votes, 2))
    agreement = np.mean([a == b for a, b in pairs]) if pairs else np.nan
    np.testing.assert_allclose(columns["agreement"][i], agreement)
  unseen = columns["runs"] == 0
  assert columns["rank_hard"][unseen].min() == 30 - unseen.sum()


def test_runs_that_diverged_are_left_out():
  results = test_report.dataset(6, 20)
  results.diverged[2] = True
  kept = results.isel(run=[0, 1, 3, 4, 5])
  assert vs.example_table(results).dataset.identical(vs.example_table(kept).dataset)
  results.diverged[:] = True
  with pytest.raises(
    UserError, match="no run is left: 6 are finished, and all of them"
  ):
    vs.example_table(results)
  with pytest.raises(UserError, match="no run is left: 0 are finished"):
    vs.example_table(results.isel(run=[]))


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
  """Folders of the same six runs, with their predictions and with votes alone."""
  made = {}
  for kept in ("all", "none"):
    made[kept] = tmp_path_factory.mktemp("counted") / kept
    recipe = vs.recipe("digits_cnn", model="linear", epochs=1)
    vs.train(recipe, 6, made[kept], predictions=kept, seed_batch=4, progress=False)
  return made


@pytest.mark.slow
def test_stored_votes_are_enough(counted, monkeypatch):
  alone, beside = (
    vs.example_table(counted["none"]).dataset,
    vs.example_table(str(counted["all"])).dataset,
  )
  assert alone.identical(beside)
  results = vs.open_results(counted["all"])
  expected = by_hand(results.predictions.values, results.labels.values)
  np.testing.assert_allclose(beside.margin, expected["margin"], rtol=1e-12)
  # Where votes are stored, no predictions are read; of some runs only, they are.
  read = []
  monkeypatch.setattr("vmapseeds.results.opening.prediction_blocks", read.append)
  assert vs.example_table(counted["all"]).dataset.identical(beside)
  assert read == []
  monkeypatch.undo()
  some = vs.example_table(results.isel(run=[0, 5])).dataset
  expected = by_hand(results.predictions.values[[0, 5]], results.labels.values)
  np.testing.assert_allclose(some.error_rate, expected["error_rate"])


@pytest.mark.slow
def test_the_terminal_shows_them(counted, capsys):
  table = vs.example_table(counted["all"]).table
  for most in ("split", "hard"):
    cli.main(["examples", str(counted["none"]), "--most", most, "--n", "5"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    shown = [int(line[1]) for line in lines if line and line[0] == "│"]
    assert shown == table.sort_values(f"rank_{most}").index[:5].tolist()
  with pytest.raises(SystemExit):
    cli.main(["examples", str(counted["all"]), "--most", "easy"])
  assert "--most is 'easy': give hard or mislabelled or split" in (
    capsys.readouterr().err
  )


@pytest.mark.slow
def test_a_likely_mislabelled_example_comes_first(tmp_path, capsys):
  labels = np.arange(30) % 3
  predictions = np.tile(labels, (8, 1))
  predictions[:, 7] = (labels[7] + 1) % 3  # all runs
  predictions[:5, 11] = (labels[11] + 2) % 3  # most of them
  predictions[:4, 12] = (labels[12] + 1) % 3  # half of them
  results = vs.import_runs(tmp_path / "r", predictions=predictions, labels=labels)
  found = summarize(results)["mislabelled_examples"]
  assert [row["example"] for row in found] == [7, 11]
  assert found[0]["other_share"] == 1
  assert found[1]["other_class"] == (labels[11] + 2) % 3
  assert [row["example"] for row in summarize(results)["hard_examples"]] == [7, 11, 12]
  cli.main(["examples", str(tmp_path / "r"), "--most", "mislabelled"])
  out = capsys.readouterr().out
  rows = [
    line.replace("│", " ").split() for line in out.splitlines() if line[:1] == "│"
  ]
  assert rows == [
    ["7", "1", "2", "100.0", "100.0", "-100.0", "2", "100.0"],
    ["11", "2", "1", "62.5", "46.4", "-25.0", "1", "62.5"],
  ]
  right = vs.import_runs(
    tmp_path / "s", predictions=predictions[5:, :7], labels=labels[:7]
  )
  assert summarize(right)["mislabelled_examples"] == []
  cli.main(["examples", str(tmp_path / "s"), "--most", "mislabelled"])
  assert "has no such examples" in capsys.readouterr().out


NAMES = ["cat", "[red]dog", "owl"]


@pytest.mark.slow
def test_classes_are_shown_by_their_names(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  labels = np.arange(30) % 3
  predictions = np.tile(labels, (8, 1))
  predictions[:, 7] = 2  # label 1
  predictions[:5, 11] = -1  # label 2
  np.save("p.npy", predictions)
  np.save("y.npy", labels)
  given = ["--predictions", "p.npy", "--labels", "y.npy", "--quiet"]
  cli.main(["import", "--out", "r", *given, "--class-names", *NAMES])
  vs.import_runs("s", predictions=predictions, labels=labels, progress=False)
  vs.Recorder("s", class_names=NAMES)  # named later
  assert vs.verify("s").problems == []
  capsys.readouterr()
  for folder in "rs":
    assert vs.example_table(folder).dataset.attrs["class_names"] == tuple(NAMES)
    cli.main(["examples", folder, "--most", "hard"])
    out = capsys.readouterr().out.replace("│", " ")
    rows = [line.split() for line in out.splitlines()]
    assert ["7", "[red]dog", "owl", "100.0", "100.0", "-100.0", "owl", "100.0"] in rows
    assert [row[1:3] for row in rows if row[:1] == ["11"]] == [["owl", "owl"]]
    cli.main(["report", folder])
    page = (tmp_path / folder / "report" / "report.html").read_text("utf-8")
    assert "<strong>#7, label [red]dog</strong>" in page
    assert "owl: 100.0" in page
    assert r'"class_names": ["cat", "[red]dog", "owl"]' in page
  vs.merge(["r"], "t", progress=False)
  assert vs.example_table("t").dataset.attrs["class_names"] == tuple(NAMES)
  unnamed = vs.import_runs("u", predictions=predictions, labels=labels, progress=False)
  assert "class_names" not in vs.example_table(unnamed).dataset.attrs


@pytest.mark.parametrize(
  ("names", "said"),
  [
    (["a", "b"], "u has 3 classes, not 2"),
    (["a", "b", "a"], "class_names is a, b, a: give each class another name"),
    (["a", "b", " "], "give a printable text for each class"),
    ("abc", "class_names is 'abc': give a printable text for each class"),
    (3, "class_names is 3: give a printable text for each class"),
  ],
)
def test_names_that_do_not_fit_the_classes(names, said, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  vs.Recorder("u", labels=[0, 1, 2]).add([0, 1, 2])
  with pytest.raises(UserError, match=said):
    vs.Recorder("u", class_names=names)
  with pytest.raises(UserError, match="2 class names for 3 classes: give one for each"):
    vs.Output(role="class", labels=[0, 2], class_names=["a", "b"])
  with pytest.raises(UserError, match="class_names with role 'score': leave them out"):
    vs.Output(role="score", class_names=["a", "b"])


def test_what_has_no_examples(tmp_path):
  scores = test_roles.dataset(reward=(test_roles.SCORES, test_roles.SCORE))
  with pytest.raises(UserError, match="these outputs have no numbers of examples"):
    vs.example_table(scores)
  path = folders.outputs_folder(
    tmp_path / "l", {"nats": (test_roles.LOSSES, test_roles.LOSS)}
  )
  assert isinstance(vs.example_table(path).dataset, xr.Dataset)
  with pytest.raises(SystemExit):
    cli.main(["examples", str(path), "--most", "mislabelled"])
  with pytest.raises(UserError, match="unknown output of role class or loss 'x'"):
    vs.example_table(path, output="x")


def test_a_real_number_of_an_example_is_shown_as_one(monkeypatch):
  monkeypatch.setitem(examples_table.HEADINGS, "entropy", "entropy")
  rows = [
    {"example": 12, "label": -1, "entropy": 0.371},
    {"example": 3, "label": 1, "entropy": -1.0},
  ]
  table = examples_table.table_of_rows(rows, "hard", ["a", "b"])
  assert table.headings == ["example", "label", "entropy"]
  assert table.rows == [["12", "none", "0.371"], ["3", "b", "-1.00"]]
