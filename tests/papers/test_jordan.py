"""Figures of Jordan 2024 from runs of some lengths: their numbers against loops over runs
and SciPy; and the paper's whole command.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats

import vmapseeds as vs
from experiments import frame, jordan2024
from experiments.jordan2024 import (
  campaigns,
  fig01,
  fig02,
  fig03,
  fig04,
  fig05,
  fig13,
  fig14,
  runs,
)
from vmapseeds import stats

RUNS, EXAMPLES = 40, 31


def drawn(seed: int, common: float) -> np.ndarray:
  """Errors of runs of which some are better than others."""
  rng = np.random.default_rng(seed)
  rates = np.linspace(0, 0.8, EXAMPLES) + common * rng.standard_normal((RUNS, 1))
  return rng.random((RUNS, EXAMPLES)) < rates


ERRORS = {
  name: drawn(k, common)
  for k, (name, common) in enumerate(
    {"untrained": 0.1, "short": 0.3, "medium": 0.1, "long": 0.0}.items()
  )
}


def tallied(errors: np.ndarray, pairs: bool = False) -> stats.Tallies:
  return stats.tally(errors.astype(int), np.zeros(errors.shape[1], int), 2, pairs=pairs)


PAIRS = tallied(ERRORS["long"], pairs=True)
BY_EPOCHS = dict(zip((0, 1, 4, 12), ERRORS.values(), strict=True))


def rows_of_script(script) -> dict[str, dict]:
  numbers = script.measure(BY_EPOCHS)
  figure = script.draw(numbers)
  assert figure.axes
  plt.close(figure)
  for row in numbers["rows"]:
    assert row["low"] <= row["value"] <= row["high"] or np.isnan(row["low"])
  return {row["quantity"]: row for row in numbers["rows"]}


@pytest.mark.parametrize("epochs", BY_EPOCHS)
def test_scripts_of_figures_equal_loops(epochs):
  """Figures 1, 2, 3, 5 and 13, without their intervals."""
  errors = BY_EPOCHS[epochs]
  accuracy = 1 - errors.mean(1)
  rates = errors.mean(0)
  independent = (rates * (1 - rates)).sum() / EXAMPLES**2 * RUNS / (RUNS - 1)
  covariance = np.cov(errors.T)
  off = (covariance.sum() - np.trace(covariance)) / (EXAMPLES * (EXAMPLES - 1))
  variance = accuracy.var(ddof=1)
  even, odd = errors[:, ::2].mean(1), errors[:, 1::2].mean(1)
  mean = accuracy.mean()
  expected = {
    fig01: {"mean accuracy": 100 * mean, "sd of accuracy": 100 * variance**0.5},
    fig02: {"correlation of the halves": np.corrcoef(even, odd)[0, 1]},
    fig03: {
      "variance ÷ independent errors'": variance / independent,
      "sd if errors were independent": 100 * independent**0.5,
    },
    fig05: {
      "sd on the test set": 100 * variance**0.5,
      "sd on the distribution": 100 * max(off, 0) ** 0.5,
      "share of the variance": 100 * max(off, 0) / variance,
    },
    fig13: {
      "binomial ÷ observed variance": mean * (1 - mean) / EXAMPLES / variance,
      "independent errors ÷ observed variance": independent / variance,
    },
  }
  for script, numbers in expected.items():
    found = rows_of_script(script)
    for quantity, value in numbers.items():
      row = found[f"{quantity}, {epochs} epochs"]
      assert row["value"] == pytest.approx(value), quantity
      assert row["runs"] == RUNS


def test_ends_of_ratios_are_those_of_the_observed_variance():
  errors = BY_EPOCHS[1]
  low, high = stats.variance_over_runs(errors.mean(1)).interval
  rates = errors.mean(0)
  independent = (rates * (1 - rates)).sum() / EXAMPLES**2 * RUNS / (RUNS - 1)
  ratio = rows_of_script(fig03)["variance ÷ independent errors', 1 epochs"]
  assert (ratio["low"], ratio["high"]) == pytest.approx(
    (low / independent, high / independent)
  )
  over = rows_of_script(fig13)["independent errors ÷ observed variance, 1 epochs"]
  assert (over["low"], over["high"]) == pytest.approx(
    (independent / high, independent / low)
  )


def test_a_script_of_kept_predictions(tmp_path, capsys):
  for first, count in ((0, 25), (25, 15)):
    part = ERRORS["short"][first : first + count]
    np.savez(
      tmp_path / f"predictions-1-{first}.npz",
      predictions=part.T.astype(np.int8),
      labels=np.zeros(EXAMPLES, np.int8),
    )
  fig05.main(["--kept", str(tmp_path), "--epochs", "1", "--out", str(tmp_path / "out")])
  written = json.loads((tmp_path / "out" / "fig05.json").read_text())
  expected = fig05.measure({1: ERRORS["short"]})
  assert [row["runs"] for row in written["rows"]] == [RUNS] * 3
  for row, other in zip(written["rows"], expected["rows"], strict=True):
    assert row["value"] == pytest.approx(other["value"])
  assert (tmp_path / "out" / "fig05.png").exists()
  assert "sd on the distribution, 1 epochs" in capsys.readouterr().out


def test_a_script_trains_runs_that_others_take_too(tmp_path):
  words = ["--epochs", "1", "--runs-in", str(tmp_path), "--out", str(tmp_path / "out")]
  fig05.main([*words, "--runs", "2"])
  blocks = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("blocks/**/*")}
  fig13.main([*words, "--runs", "2"])
  assert blocks
  assert blocks == {path: path.stat().st_mtime_ns for path in blocks}
  found = json.loads((tmp_path / "out" / "fig13.json").read_text())
  assert [row["runs"] for row in found["rows"]] == [2, 2]


def test_pair():
  n = fig04.measure(PAIRS)
  right = ~ERRORS["long"]
  rates = right.mean(0)
  first = np.abs(rates - 0.362).argmin()
  second = min(
    (i for i in range(EXAMPLES) if i != first), key=lambda i: abs(rates[i] - 0.607)
  )
  assert [*n["examples"]] == [first, second]
  both = (right[:, first] & right[:, second]).mean()
  table = [
    [(a & b).sum() for b in (right[:, second], ~right[:, second])]
    for a in (right[:, first], ~right[:, first])
  ]
  p_value = scipy.stats.chi2_contingency(table, correction=False).pvalue
  rows = {row["quantity"]: row for row in n["rows"]}
  less = rows["the same, less the product"]
  product = rates[first] * rates[second]
  assert rows["runs that have both right"]["value"] == pytest.approx(100 * both)
  assert less["value"] == pytest.approx(100 * (both - product))
  spread = (rates * (1 - rates))[[first, second]]
  reach = 100 * 1.959964 * np.sqrt(spread.prod() / RUNS)
  assert less["high"] == pytest.approx(less["value"] + reach)
  assert rows["p-value of the χ² test"]["value"] == pytest.approx(p_value)
  middle = ((rates >= 0.3) & (rates <= 0.7)).sum()
  assert n["counted"].sum() == middle * (middle - 1) // 2
  assert fig04.draw(n).axes


def test_a_pair_without_two_uncertain_examples():
  n = fig04.measure(tallied(np.zeros((5, 3), bool), pairs=True))
  rows = {row["quantity"]: row["value"] for row in n["rows"]}
  assert [*n["examples"]] == [0, 1]
  assert rows["p-value of the χ² test"] == 1
  assert np.isnan(rows["... with p < 0.05; 5 % by chance"])


def test_dependent_pairs():
  n = fig14.measure(PAIRS)
  right = ~ERRORS["long"]
  deviation = {  # times R², a whole number
    (i, j): RUNS * (right[:, i] & right[:, j]).sum()
    - right[:, i].sum() * right[:, j].sum()
    for i in range(EXAMPLES)
    for j in range(i + 1, EXAMPLES)
  }
  sizes = np.abs(list(deviation.values()))
  assert n["pairs"] == len(sizes)
  assert n["thresholds"][0] == 0.02
  assert n["found"][0] == (50 * sizes > RUNS**2).sum()
  np.testing.assert_array_equal(
    n["found"][1:-1],
    [(sizes > threshold * RUNS**2).sum() for threshold in n["thresholds"][1:-1]],
  )
  assert n["found"][-1] == 0 < n["by_chance"][0]
  (i, j), _ = max(deviation.items(), key=lambda pair: abs(pair[1]))
  both, product = (r["value"] for r in n["rows"] if r["quantity"].startswith("pair 1,"))
  assert abs(both - product) == pytest.approx(100 * sizes.max() / RUNS**2)
  assert fig14.draw(n).axes
  plt.close("all")


def test_tallies_of_kept_predictions(tmp_path):
  predictions = np.random.default_rng(0).integers(0, 3, (RUNS, EXAMPLES))
  labels = np.arange(EXAMPLES) % 3
  for first, stop in ((0, 25), (25, RUNS)):
    np.savez(
      tmp_path / f"predictions-12-{first}.npz",
      record=np.array(json.dumps({"runs": stop - first})),
      predictions=predictions[first:stop].T.astype(np.int8),
      labels=labels.astype(np.int8),
    )
  found = runs.kept_tallies(tmp_path, 12)
  wrong = (predictions != labels).astype(int)
  np.testing.assert_array_equal(found.joint_errors, wrong.T @ wrong)
  assert found.runs == RUNS


@pytest.mark.parametrize("scale", campaigns.RUNS)
def test_a_scale_says_what_each_script_trains(scale):
  for script in frame.script_names(figures_folder()):
    words = campaigns.script_flags(scale, script)
    recipe = words[len(words) - words[::-1].index("--recipe")]
    assert vs.recipe(recipe).name == recipe
    assert int(words[words.index("--runs") + 1]) >= 3


def figures_folder() -> Path:
  return Path(jordan2024.__file__).parent


def test_scripts_show_the_runs_that_they_train(tmp_path):
  """All of the paper, as one command; its runs are there for the next."""
  out = tmp_path / "out"
  words = ["--out", str(out), "--campaigns", str(tmp_path), "--seed-batch", "8"]
  frame.main(jordan2024.__file__, words)
  for name in frame.script_names(figures_folder()):
    rows = json.loads((out / f"{name}.json").read_text())["rows"]
    assert rows, name
    assert all(row["quantity"] and row["runs"] for row in rows)
    assert (out / f"{name}.png").stat().st_size > 8_000, name
  # The runs that vary all sources are the same in figures 10 and 11.
  n = json.loads((out / "fig10.json").read_text())["accuracies"]["2"]["all"]
  results = vs.open_results(tmp_path / "digits_cnn-2")
  accuracy = 1 - (results.predictions != results.labels).mean("example").values
  np.testing.assert_allclose(n, accuracy, atol=1e-6)
  # A poke at step -1 is none. The two programs may round otherwise; runs of other seeds
  # differ in a tenth of their predictions.
  twins = vs.open_results(tmp_path / "digits_cnn-2-poke_step")
  unchanged, changed = (
    twins.predictions.values[twins.poke_step.values == step] for step in (-1, 0)
  )
  assert (unchanged != results.predictions.values[:8]).mean() < 0.01
  n = json.loads((out / "fig11.json").read_text())["at_start"]["2 epochs"]["matched"]
  np.testing.assert_allclose(n, (unchanged != changed).mean(1), atol=1e-6)
  # Each binary task is learnt by its runs.
  tasks = json.loads((out / "fig06.json").read_text())["error"]
  results = vs.open_results(tmp_path / "digits_cnn-1-tasks-73")
  wrong = (results.predictions != results.labels).mean("example").values
  np.testing.assert_allclose(tasks, wrong.reshape(-1, len(tasks)).mean(0), atol=1e-6)
