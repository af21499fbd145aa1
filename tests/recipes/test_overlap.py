"""Test examples that runs were trained on: said of each run's own training examples, in
training and in the report, which then leaves out what only new examples can show.
"""

import flax.linen as nn
import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.data.dataset import count_seen
from vmapseeds.reports.summaries import summarize
from vmapseeds.results.measurements import SEEN

HOW = dict(progress=True, lane_width=2, lowering="sequential")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)


def recipe(test):
  return vs.Recipe(
    name="overlap",
    dataset=vs.Dataset(train=(X, Y), test=test),
    model=nn.Dense,
    model_args={"features": 2},
    epochs=1,
    batch_size=10,
    lr=0.1,
  )


def folds():
  """Five hand-made folds: each run is trained on four of them."""
  rows = RNG.permutation(60).reshape(5, 12)
  return np.stack([np.delete(rows, fold, axis=0).ravel() for fold in range(5)])


def test_counts_are_those_of_a_loop_over_examples():
  twins = np.array([3, -1, 0, 0, 7])
  trained = np.array([[0, 1, 1], [7, 8, 9], [4, 4, 4]])
  due = [sum(t in {*row} for t in twins.tolist() if t >= 0) for row in trained.tolist()]
  assert count_seen(twins, trained) == np.mean(due) == 1
  assert count_seen(twins, None) == 4
  assert count_seen(np.array([-1, -1]), trained) == 0


@pytest.mark.parametrize("kind", mostly_slow(["subset", "bootstrap", "drawn"]))
def test_it_is_said_of_each_runs_own_examples(kind, tmp_path, capsys):
  runs = vs.Runs.independent(5)
  runs = {
    "subset": runs.subset(folds()),
    "bootstrap": runs.bootstrap(),
    "drawn": runs.subset(30),
  }[kind]
  trained = runs.training_examples(60)
  due = np.mean([np.isin(np.arange(60), row).sum() for row in trained])
  vs.train(recipe((X, Y)), runs, tmp_path / "a", **HOW)
  said = (
    f"note: on average {due:.4g} of the 60 examples of test are among a run's own "
    "training examples: give others"
  )
  assert said in capsys.readouterr().err
  summary = summarize(vs.open_results(tmp_path / "a"))
  assert any(f"On average {due:.4g} of the 60" in of for of in summary["warnings"])
  for name in ("distribution_variance", "distribution_sd", "runs_for_variance"):
    assert summary["statistics"][name]["value"] is None
  assert summary["statistics"]["distribution_sd"]["reading"] == SEEN
  assert "endless" not in summary["summary"]
  # The spread between runs on these examples is what it is.
  assert summary["statistics"]["sd_accuracy"]["value"] > 0


def test_a_run_that_left_the_test_examples_out_saw_none(tmp_path, capsys):
  """The test set is a part of the training set that no run is trained on."""
  runs = vs.Runs.independent(3).subset(np.arange(30))
  vs.train(recipe((X[30:], Y[30:])), runs, tmp_path / "a", **HOW)
  assert "note: " not in capsys.readouterr().err
  summary = summarize(vs.open_results(tmp_path / "a"))
  assert not any("trained on" in warning for warning in summary["warnings"])
  assert summary["statistics"]["distribution_variance"]["value"] is not None
