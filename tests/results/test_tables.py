"""Results as frames of pandas, in Markdown and in a list, against plain NumPy."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from folders import outputs_folder
from test_cli import run

import vmapseeds as vs
from vmapseeds.reports import listing, plots, results_page

rng = np.random.default_rng(1)
LABELS = rng.integers(0, 3, 60)
PREDICTIONS = np.where(rng.random((10, 60)) < 0.8, LABELS, 0)
RIGHT = (PREDICTIONS == LABELS).mean(1)
SEEDS, LRS = np.repeat(np.arange(5), 2), np.tile([0.1, 0.4], 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("tables") / "r"
  vs.Recorder(path, labels=LABELS).add(PREDICTIONS, seed=SEEDS, lr=LRS)
  return path


def test_a_row_for_each_run(folder):
  frame = vs.run_table(folder)
  wanted = {"seed": SEEDS, "lr": LRS, "accuracy": RIGHT, "diverged": np.zeros(10, bool)}
  pd.testing.assert_frame_equal(frame, pd.DataFrame(wanted).rename_axis("run"))
  some = vs.run_table(vs.open_results(folder).isel(run=[3, 1]))
  assert some.accuracy.tolist() == RIGHT[[3, 1]].tolist()


def test_losses_and_scores_have_columns(tmp_path):
  losses, scores = rng.random((4, 5)), rng.random(4)
  outputs = {
    "errors": (losses, {"role": "loss"}),
    "reward": (scores, {"role": "score"}),
    "other": (np.arange(4), {"role": "value"}),
  }
  frame = vs.run_table(outputs_folder(tmp_path / "r", outputs))
  assert [*frame] == ["seed_init", "reward", "other", "mean_errors"]
  np.testing.assert_allclose(frame.mean_errors, losses.mean(1))
  np.testing.assert_array_equal(frame.reward, scores)
  plain = outputs_folder(tmp_path / "p", {"other": (np.arange(4), {"role": "value"})})
  assert vs.run_table(plain).other.tolist() == [0, 1, 2, 3]


@pytest.mark.slow
def test_statistics_as_a_frame(folder):
  table = vs.report(folder).table
  assert table.index.names == ["folder", "lr", "output", "statistic"]
  means = table.xs("mean_accuracy", level="statistic")
  for lr in (0.1, 0.4):
    (row,) = means.xs(lr, level="lr").itertuples()
    assert row.value == pytest.approx(RIGHT[lr == LRS].mean())
    assert row.se == pytest.approx(RIGHT[lr == LRS].std(ddof=1) / np.sqrt(5))
    assert (row.unit, row.runs) == ("fraction", 5)
  pooled = vs.report([folder, folder], by=()).table
  pd.testing.assert_frame_equal(vs.report(folder, folder, by=()).table, pooled)
  assert pooled.index.names == ["folder", "output", "statistic"]
  found = pooled.xs("sd_accuracy", level="statistic").value
  np.testing.assert_allclose(found, [RIGHT.std(ddof=1)] * 2)
  assert r"\toprule" in means[["value", "se"]].to_latex()


@pytest.mark.slow
def test_learning_curves(tmp_path):
  runs = vs.Runs.sweep(lr=[0.05, 0.2], seeds=3)
  recipe = vs.recipe("digits_cnn", model="linear", epochs=2, evaluate_every=1)
  results = vs.train(recipe, runs, tmp_path / "r", progress=False)
  vs.report(tmp_path / "r").save()
  assert (tmp_path / "r/report/learning_curves.svg").is_file()
  assert (tmp_path / "r/report/lr=0.2/learning_curve.svg").is_file()
  of = results.isel(run=results.lr.values == 0.2)
  (measured,) = results_page.measure_outputs(of)
  epochs, values = results_page.read_learning_curves(measured)
  assert epochs.tolist() == [1, 2]
  np.testing.assert_array_equal(values, of.epoch_accuracy)
  _, ax = plots.figure()
  plots.learning_curves({"a": (epochs, values), "b": (epochs, values + 0.1)}, ax)
  np.testing.assert_allclose(ax.lines[1].get_ydata(), 100 * values.mean(0) + 10)
  band = ax.collections[0].get_paths()[0].vertices[:, 1]
  mean, sd = 100 * values[:, -1].mean(), 100 * values[:, -1].std(ddof=1)
  for end in (-1, 1):  # of Student's t with 2 degrees of freedom
    assert np.isclose(band, mean + end * 4.302653 * sd / np.sqrt(3)).any()


@pytest.mark.slow
def test_a_list_of_folders(folder, tmp_path, capsys):
  vs.train(
    vs.recipe("digits_cnn", model="linear", epochs=0),
    3,
    tmp_path / "a/b",
    progress=False,
  )
  vs.Recorder(tmp_path / "c", labels=LABELS).add(PREDICTIONS, seed=SEEDS, lr=LRS)
  (tmp_path / "d").mkdir()
  (tmp_path / "d" / "zarr.json").write_text("{}")
  status, out, _ = run(capsys, "list", tmp_path)
  assert status == 0
  rows = [[cell.strip() for cell in r.split("│")[1:-1]] for r in out.splitlines()]
  names = [row[0] for row in rows if row and row[0]]
  assert names == ["a/b", "c"]
  text = " ".join(out.split())
  assert "lr=0.1 or 0.4" in " ".join(row[2] for row in rows if row)
  assert f"{100 * RIGHT.mean():.1f}" in text
  assert run(capsys, "list", tmp_path / "d")[2].endswith(
    "holds no results: give a folder that has some in it\n"
  )
  assert "is no folder on this machine" in run(capsys, "list", tmp_path / "x")[2]


def test_a_list_says_what_cannot_be_read(tmp_path, monkeypatch):
  """Folders are listed, one that is damaged too, with the beginning of the reason."""
  for name in ("a", "b"):
    recorder = vs.Recorder(tmp_path / name, labels=LABELS)
    recorder.add(PREDICTIONS, seed=SEEDS, lr=LRS)

  def opened(path):
    if path.name == "b":
      raise vs.UserError("this folder is damaged: " + "x" * 200)
    return vs.open_results(path)

  monkeypatch.setattr(listing, "open_results", opened)
  (name, _, values, done, mean, _), damaged = listing.list_results(tmp_path).rows
  assert (name, values, done) == ("a", "lr=0.1 or 0.4", str(len(PREDICTIONS)))
  assert f"{100 * RIGHT.mean():.1f}" in mean
  reason = "this folder is damaged: " + "x" * 76
  assert damaged == ("b", "–", reason, "–", "–", "–")


@pytest.fixture(scope="module")
def of_each_door(tmp_path_factory):
  """Results that were recorded, trained on resampled examples with a metric, and read from a table."""
  path = tmp_path_factory.mktemp("netcdf")
  ids = [f"id {row}" for row in range(60)]
  recorder = vs.Recorder(
    path / "recorded", labels=LABELS, class_names=["a", "b", "é"], example_ids=ids
  )
  recorder.add(PREDICTIONS, seed=SEEDS, note=["p", "q"] * 5)
  inputs = rng.normal(size=(60, 4)).astype("float32")
  recipe = vs.Recipe(
    model="mlp",
    dataset=vs.Dataset(
      train=(inputs[:40], LABELS[:40]), test=(inputs[40:], LABELS[40:])
    ),
    metrics=["brier"],
    epochs=1,
    batch_size=20,
    lr=0.1,
    evaluate_every=1,
  )
  resampled = vs.Runs.independent(6).bootstrap()
  vs.train(recipe, resampled, path / "trained", progress=False)
  frame = pd.DataFrame({"model": ["a"] * 5 + ["b"] * 5, "accuracy": RIGHT})
  vs.import_runs(path / "table", scores=frame, by="model", score="accuracy")
  return path


@pytest.mark.parametrize("name", ["recorded", "trained", "table"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:scipy")
def test_opened_results_are_written_as_netcdf(name, of_each_door, tmp_path):
  opened = vs.open_results(of_each_door / name).load()
  opened.to_netcdf(tmp_path / "runs.nc", engine="scipy")  # its first version
  with xr.open_dataset(tmp_path / "runs.nc", engine="scipy") as read:
    read.load()
  assert set(read.variables) == set(opened.variables)
  for variable in opened.variables:
    np.testing.assert_array_equal(read[variable], opened[variable])
  stored = json.loads((of_each_door / name / "zarr.json").read_text())["attributes"]
  assert json.loads(read.attrs["versions"]) == stored["versions"]
  assert json.loads(read.attrs["test_sets"]) == stored["test_sets"]
  assert "networks_digest" not in read.attrs, "None has no form in netCDF"
  if name == "recorded":
    assert json.loads(read.labels.attrs["class_names"]) == ["a", "b", "é"]
  if name == "trained":
    assert read.brier.attrs["higher_is_better"] == 0
    assert json.loads(read.attrs["sampling"]) == stored["sampling"]
