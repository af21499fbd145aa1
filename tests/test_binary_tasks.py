"""experiments.jordan2024.binary_tasks with --quick: its numbers against loops over the stored runs, its caps, its files."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vmapseeds as vs
from experiments import common
from experiments.jordan2024 import binary_tasks
from vmapseeds import stats

RUNS, TASKS, EXAMPLES = 3, 32, 797


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
  """A quick run of three runs of each task, of which the third are added to the first two."""
  folder = tmp_path_factory.mktemp("binary_tasks")
  for runs in (2, RUNS):
    where = ("--out", str(folder / f"out{runs}"), "--campaigns", str(folder / "campaigns"))
    binary_tasks.main(["--quick", "--runs", str(runs), *where])
  return folder


def test_there_are_511_ways_to_split_ten_classes():
  maps = binary_tasks.label_maps()
  assert maps.shape == (511, 10)
  # A split and its complement are one: no map is another, nor another's complement, nor without a second group.
  assert len({tuple(m) for m in maps} | {tuple(1 - m) for m in maps}) == 1022
  assert set(maps.ravel()) == {0, 1}
  assert (maps.max(1) == 1).all()


def test_more_runs_extend_the_table():
  maps = binary_tasks.label_maps()
  few, more = (binary_tasks.table_of_runs(maps, runs).columns() for runs in (2, 3))
  for name, column in few.items():
    np.testing.assert_array_equal(column, more[name][:1022])
  np.testing.assert_array_equal(more["label_map"][511:1022], maps)
  assert len(set(more["seed_init"])) == 1533


def test_numbers_equal_loops_over_the_stored_runs(folder):
  (campaign,) = (folder / "campaigns").glob("digits_cnn-1epochs-*-binary32")
  results = vs.open_results(campaign)
  assert results.sizes["run"] == RUNS * TASKS
  written = json.loads((folder / f"out{RUNS}" / "binary_tasks.json").read_text())
  n = written["numbers"]["1"]
  maps = binary_tasks.label_maps()[::16]
  predictions, labels = results.predictions.values, results.original_labels.values
  observed, error = np.zeros(TASKS), np.zeros(TASKS)
  for task, groups in enumerate(maps):
    wrong = predictions[task::TASKS] != groups[labels]
    assert len(wrong) == RUNS
    observed[task], error[task] = wrong.mean(1).var(ddof=1), wrong.mean()
    assert n["variance"][task] == pytest.approx(observed[task], rel=1e-9)
    assert n["independent"][task] == pytest.approx(stats.independent_errors_variance(wrong), rel=1e-9)
    assert n["distribution"][task] == pytest.approx(stats.distribution_variance(wrong), rel=1e-9, abs=1e-15)
  assert len(set(error)) > TASKS / 2
  equation_6, binomial = error / 2 / EXAMPLES, error * (1 - error) / EXAMPLES
  errors = {"equation_6": ((observed - equation_6) ** 2).mean(), "binomial": ((observed - binomial) ** 2).mean()}
  assert n["mse_ratio"]["value"] == pytest.approx(errors["binomial"] / errors["equation_6"], rel=1e-9)
  for name, predicted in {"equation_6": equation_6, "binomial": binomial}.items():
    assert n[name]["mean_squared_error"]["value"] == pytest.approx(errors[name], rel=1e-9)
    fit = 1 - ((observed**0.5 - predicted**0.5) ** 2).sum() / ((observed**0.5 - (observed**0.5).mean()) ** 2).sum()
    assert n[name]["identity_r_squared_sd"]["value"] == pytest.approx(fit, rel=1e-9)
    assert n[name]["r_squared"]["value"] == pytest.approx(np.corrcoef(observed, predicted)[0, 1] ** 2, rel=1e-9)
  # Theorem 3 with equation 3 in it leaves what equation 6 leaves of the independent-errors variance.
  theorem_3 = np.maximum(0, equation_6 + (1 - 1 / EXAMPLES) * np.array(n["distribution"]))
  expected = ((observed - theorem_3) ** 2).mean()
  assert n["theorem_3"]["mean_squared_error"]["value"] == pytest.approx(expected, rel=1e-9)


def counts(errors: np.ndarray, diverged: tuple[int, int] | None = None) -> binary_tasks.Counts:
  """Of errors (runs, tasks, examples), without one run of one task."""
  rates, kept = errors.mean(2), np.ones(errors.shape[:2], bool)
  if diverged:
    kept[diverged] = False
  return binary_tasks.Counts(np.where(kept, rates, np.nan), (errors & kept[..., None]).sum(0))


def test_runs_that_diverged_are_left_out():
  errors = np.random.default_rng(0).random((5, 4, 60)) < 0.3
  n = binary_tasks.compute(counts(errors, diverged=(3, 1)))
  others = np.delete(errors[:, 1], 3, axis=0)
  assert n.error[1] == pytest.approx(others.mean())
  assert n.independent[1] == pytest.approx(stats.independent_errors_variance(others))
  assert n.distribution[1] == pytest.approx(stats.distribution_variance(others))
  assert n.variance[0] == pytest.approx(stats.test_set_variance(errors[:, 0]))
  # Of two runs one is too few.
  assert len(binary_tasks.compute(counts(errors[:2], diverged=(1, 2))).error) == 3


@pytest.mark.parametrize(("runs", "r_squared", "mse_ratio"), [(100, 0.86, 38), (1000, 0.985, 380), (4000, 0.996, 1500)])
def test_caps_of_sampling_noise(runs, r_squared, mse_ratio):
  """With errors of 2 to 9 % they are these."""
  error = np.linspace(0.02, 0.09, 511)
  predicted = stats.calibration_variance(error, 10_000), stats.binomial_variance(error, 10_000)
  fit, ratio = binary_tasks.caps(*predicted, np.full(511, runs))
  assert fit["r_squared"].mean == pytest.approx(r_squared, abs=0.015 * (1 - r_squared) / 0.14)
  assert fit["r_squared"].low < fit["r_squared"].mean < fit["r_squared"].high
  assert ratio.mean == pytest.approx(mse_ratio, rel=0.1)


def test_equation_6_fits_errors_that_are_calibrated_and_independent():
  """Examples of which a share q of the runs says 1, and a share q has label 1, one by one."""
  rng = np.random.default_rng(2)
  tasks, n, runs = 40, 400, 200
  share = rng.uniform(0, 1, (tasks, n)) * np.linspace(0.1, 1, tasks)[:, None]
  label = rng.random((tasks, n)) < share
  found = binary_tasks.compute(counts((rng.random((runs, tasks, n)) < share) != label))
  assert found.equation_6["r_squared"].value == pytest.approx(found.cap["r_squared"].mean, abs=0.1)
  assert found.mse_ratio.value > 10
  assert found.independent_equation_6["identity_r_squared"].value > 0.9


def test_files(folder):
  out = folder / f"out{RUNS}"
  written = json.loads((out / "binary_tasks.json").read_text())
  assert (written["experiment"], written["runs"], written["quick"]) == ("jordan2024.binary_tasks", RUNS, True)
  (used,) = written["campaigns"].values()
  assert (used["runs"], used["diverged"]) == (RUNS * TASKS, 0)
  with Image.open(out / "binary_tasks.png") as image:
    image.load()
    assert min(image.size) > 300
    assert len(image.convert("L").getcolors()) > 20
  table = (out / "binary_tasks.md").read_text()
  assert "| 0.996 |" in table
  assert "not expected to agree, only the pattern is comparable" in table
  assert f"| {RUNS} |" in table


def test_plot_shows_the_tasks():
  errors = np.random.default_rng(0).random((4, 6, 60)) < 0.2
  n = binary_tasks.compute(counts(errors))
  axes = common.Figure().subplots(1, 2)
  binary_tasks.plot({1: n}, axes)
  for ax, variance in zip(axes, (n.variance, n.independent), strict=True):
    binomial, equation_6 = (c.get_offsets() for c in ax.collections)
    np.testing.assert_allclose(equation_6, 100 * np.stack([n.error / 120, variance], 1) ** 0.5)
    np.testing.assert_allclose(binomial[:, 0], 100 * (n.error * (1 - n.error) / 60) ** 0.5)


def test_mistakes(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  for flags in (("--runs", "1"), ("--recipe", "digits_cn"), ("--epochs", "-1")):
    with pytest.raises(SystemExit) as end:
      binary_tasks.main(list(flags))
    assert end.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(err.splitlines()) == 1
