"""Comparisons over the values of another factor: against means and paired tests by SciPy."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.reports.sides import averaged_over, read_side

LABELS = np.arange(40) % 2
OPTIMIZERS = (0, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Runs of 8 seeds, with and without dropout, of two optimizers, imported."""
  out = tmp_path_factory.mktemp("over") / "a"
  rng = np.random.default_rng(0)
  rows, predictions = [], []
  for seed in range(8):
    for dropout in (0, 0.5):
      for optimizer in OPTIMIZERS:
        rate = 0.2 + 0.2 * optimizer - 0.2 * dropout
        wrong = rng.random(40) < rate
        predictions.append(np.where(wrong, 1 - LABELS, LABELS))
        rows.append({"seed": seed, "dropout": dropout, "optimizer": optimizer})
  values = out.with_suffix(".csv")
  pd.DataFrame(rows).to_csv(values, index=False)
  given = dict(predictions=np.stack(predictions), labels=LABELS, values=values)
  vs.import_runs(out, **given, progress=False)
  return out


def accuracies(folder):
  frame = vs.run_table(folder)
  means = frame.groupby(["dropout", "seed"]).accuracy.mean()
  return means[0.5], means[0.0]


def test_it_is_the_paired_comparison_of_means(folder):
  (found,) = vs.compare(
    folder, where={"dropout": 0.5}, against={"dropout": 0}, over=["optimizer"]
  )
  a, b = accuracies(folder)
  assert found.found.difference == pytest.approx((a - b).mean())
  due = scipy.stats.ttest_rel(a, b).confidence_interval()
  assert found.matching == "the same seeds"
  assert (found.found.low, found.found.high) == pytest.approx(
    (due.low, due.high), rel=0.35
  )
  side = read_side(folder, {"dropout": 0}, "", "test", None, None, ["optimizer"])
  np.testing.assert_allclose(side.values, b)


def test_seeds_without_all_values_are_left_out(folder):
  results = vs.open_results(folder)
  results = results.assign(y=("run", np.arange(32.0)))
  some = results.isel(run=np.arange(1, 32))
  means = averaged_over(some, "y", ["dropout", "optimizer"])
  np.testing.assert_array_equal(means.y, [5.5 + 4 * k for k in range(7)])


def test_the_command_line(folder, capsys):
  argv = ["--where", "dropout=0.5", "--against", "dropout=0", "--over", "optimizer"]
  cli.main(["compare", str(folder), *argv])
  out = capsys.readouterr().out
  assert "A run stands for the mean over optimizer=0 or 1 of runs of the same" in out
  cli.main(
    ["examples", str(folder), "--where", "dropout=0", "--n", "3", "--most", "hard"]
  )
  out = capsys.readouterr().out
  frame = vs.open_results(folder)
  wrong = (frame.predictions != frame.labels).values[frame.dropout.values == 0]
  assert f"{100 * wrong.mean(0).max():.1f}" in out


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({"where": {"dropout": 0.5}, "against": {"dropout": 0}}, "optimizer takes 0, 1"),
    ({"over": ["optimiser"], "against": {"dropout": 0}}, "did you mean 'optimizer'"),
    (
      {
        "where": {"optimizer": 0, "dropout": 0},
        "against": {"dropout": 0.5},
        "over": ["optimizer"],
      },
      "is averaged over optimizer=0, .* over optimizer=0 or 1: give runs of the same",
    ),
  ],
)
def test_mistakes(folder, given, message):
  with pytest.raises(vs.UserError, match=message):
    vs.compare(folder, **given)
