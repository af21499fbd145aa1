"""Runs that are kept beside a gallery, beside the folders that they are from."""

import json
import shutil

import flax.linen as nn
import numpy as np
import pytest

import vmapseeds as vs
from experiments import kept
from vmapseeds.errors import UserError

RECIPE = vs.recipe("digits_cnn", model="linear", epochs=2, evaluate_every=1)
RUNS = 3
POINTS = np.arange(16, dtype=np.float32)[:, None], np.arange(16, dtype=np.float32)
LINE = vs.Dataset(train=POINTS, test=POINTS, num_classes=None, name="line")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """Runs with logits, and what a paper's command leaves beside them."""
  place = tmp_path_factory.mktemp("trained") / "few"
  runs = vs.Runs.vary("order", RUNS).subset(200)
  vs.train(RECIPE, runs, place, logits=True, lane_width=1)
  place.with_name("few.json").write_text('{"seconds": 1.0, "processor_seconds": 2.0}')
  return place


def keep(place, out) -> tuple[dict[str, np.ndarray], dict]:
  """As for `place*`, which names the times beside the folder, too."""
  kept.main([*map(str, sorted(place.parent.glob(f"{place.name}*"))), "--out", str(out)])
  ((arrays, record),) = kept.read_parts(out, place.name)
  return arrays, record


def test_logits_are_kept_less_the_first_class(folder, tmp_path):
  results = vs.open_results(folder)
  arrays, record = keep(folder, tmp_path)
  for name in ("logits", "epoch_logits"):
    whole = results[name].values
    gaps = (whole - whole[..., :1])[..., 1:]
    assert arrays[name].dtype == np.float16
    np.testing.assert_allclose(arrays[name], gaps, 1e-3, 1e-3)
  np.testing.assert_array_equal(arrays["labels"], results.labels)
  np.testing.assert_array_equal(arrays["epoch"], results.epoch)
  assert not arrays["diverged"].any()
  assert (record["runs"], record["processor_seconds"]) == (RUNS, 2.0)
  assert vs.Recipe.from_json(json.dumps(record["recipe"])).epochs == RECIPE.epochs


def test_runs_without_logits_keep_their_predictions(tmp_path):
  runs = vs.Runs.vary("order", RUNS).subset(200)
  results = vs.train(RECIPE, runs, tmp_path / "few", lane_width=1)
  arrays, _ = keep(tmp_path / "few", tmp_path / "kept")
  assert arrays["predictions"].dtype == np.int8
  assert arrays["predictions"].flags.c_contiguous, "an example's runs lie side by side"
  np.testing.assert_array_equal(arrays["predictions"].T, results.predictions)
  np.testing.assert_array_equal(arrays["labels"], results.labels)


def test_runs_that_predict_no_classes_keep_their_scores(tmp_path):
  recipe = vs.Recipe(
    name="line",
    dataset=f"{__name__}:LINE",
    model=nn.Dense(1),
    loss="squared_error",
    predict="outputs",
    metrics=["rmse"],
    epochs=1,
    batch_size=8,
    lr=0.1,
  )
  results = vs.train(recipe, RUNS, tmp_path / "line")
  arrays, _ = keep(tmp_path / "line", tmp_path / "kept")
  assert {*arrays} == {"rmse", "diverged"}
  np.testing.assert_array_equal(arrays["rmse"], results.rmse)


def test_parts_follow_each_other_by_the_runs_before_them(folder, tmp_path):
  keep(folder, tmp_path)
  shutil.copy(tmp_path / "few.npz", tmp_path / f"few-{RUNS}.npz")
  assert [record["runs"] for _, record in kept.read_parts(tmp_path, "few")] == [
    RUNS
  ] * 2
  shutil.copy(tmp_path / "few.npz", tmp_path / "few-1.npz")
  with pytest.raises(UserError, match=r"keeps 3 runs of .* and others from run 1 on"):
    kept.read_parts(tmp_path, "few")


def test_at_least_one_folder_is_needed(tmp_path, capsys):
  with pytest.raises(SystemExit) as stopped:
    kept.main(["--out", str(tmp_path)])
  assert stopped.value.code == 2
  assert "no folder is given" in capsys.readouterr().err


def test_a_folder_without_finished_runs_is_refused(folder, tmp_path, capsys):
  empty = tmp_path / "empty"
  shutil.copytree(folder, empty)
  for record in (empty / "blocks").glob("*.json"):
    record.unlink()
  with pytest.raises(SystemExit) as stopped:
    kept.main([str(empty), "--out", str(tmp_path / "kept")])
  assert stopped.value.code == 2
  assert "no finished runs" in capsys.readouterr().err
