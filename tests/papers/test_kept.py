"""Runs that are kept beside a gallery, beside the folders that they are from."""

import shutil
from pathlib import Path

import flax.linen as nn
import numpy as np
import pytest

import vmapseeds as vs
from experiments import banerjee2024, frame, kept
from vmapseeds.campaign.options import Options
from vmapseeds.errors import UserError

RECIPE = vs.recipe("digits_cnn", model="linear", epochs=2, evaluate_every=1)
RUNS = 3
POINTS = np.arange(16, dtype=np.float32)[:, None], np.arange(16, dtype=np.float32)
LINE = vs.Dataset(train=POINTS, test=POINTS, num_classes=None, name="line")


def trained(place, kept_runs=None, runs=RUNS) -> frame.Trained:
  campaigns = {
    "few": frame.Campaign(RECIPE, vs.Runs.vary("order", runs).subset(200), ("logits",))
  }
  options = Options(lane_width=1)
  return frame.Trained("paper", "smoke", campaigns, place, options, {}, kept=kept_runs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> frame.Trained:
  """All runs, trained."""
  of = trained(tmp_path_factory.mktemp("whole"))
  of("few")
  return of


def keep(place, runs) -> None:
  """As for `place*`, which names the times beside the folder, too."""
  kept.main([*map(str, place.parent.glob(f"{place.name}*")), "--out", str(runs)])


@pytest.fixture
def two(tmp_path) -> frame.Trained:
  """The same runs, of which two are kept, and those lacking are trained."""
  first = trained(tmp_path / "first", runs=2)
  first("few")
  keep(first.place("few"), tmp_path / "kept")
  return trained(tmp_path / "second", tmp_path / "kept")


def gaps(logits) -> np.ndarray:
  return (logits - logits.isel({"class": slice(1)}).values).values


@pytest.mark.slow
def test_kept_runs_and_those_trained_after_them_are_the_runs_of_one_campaign(
  whole, two, tmp_path
):
  expected, found = whole("few"), two("few")
  assert two.place("few", 2).name == f"{whole.place('few').name}-2"
  seeds = vs.open_results(two.place("few", 2)).seed_order.values
  np.testing.assert_array_equal(seeds, expected.seed_order.values[2:])
  assert [of["runs"] for of in two.used.values()] == [2, 1]
  keep(two.place("few", 2), tmp_path / "kept")
  all_kept = trained(tmp_path / "third", tmp_path / "kept")
  for of in (found, all_kept("few")):
    # Kept logits are rounded to half precision, which may decide between two classes
    # that are as close.
    top = np.sort(expected.logits.values, axis=-1)[..., -2:]
    decided = np.ptp(top, axis=-1) > 1e-3 * np.ptp(expected.logits.values, axis=-1)
    assert decided.mean() > 0.99
    np.testing.assert_array_equal(
      of.predictions.values[decided], expected.predictions.values[decided]
    )
    np.testing.assert_array_equal(of.diverged, expected.diverged)
    np.testing.assert_array_equal(of.labels, expected.labels)
    np.testing.assert_array_equal(of.epoch, expected.epoch)
    for name in ("logits", "epoch_logits"):
      np.testing.assert_allclose(gaps(of[name]), gaps(expected[name]), 1e-3, 1e-3)
      assert (gaps(of[name]) != 0).mean() > 0.8
  assert not (tmp_path / "third").exists(), "kept runs are not trained"
  assert {of["identity"] for of in all_kept.used.values()} == {
    whole.used["few"]["identity"]
  }


@pytest.mark.slow
def test_fewer_runs_than_are_kept_are_the_first_of_them(two, tmp_path):
  found = trained(tmp_path / "third", tmp_path / "kept", runs=1)("few")
  assert found.sizes["run"] == 1


@pytest.mark.slow
def test_another_recipe_does_not_take_kept_runs(two, tmp_path):
  of = trained(tmp_path / "third", tmp_path / "kept", runs=1)
  of.campaigns["few"] = of.campaigns["few"]._replace(recipe=RECIPE.replace(lr=0.01))
  of("few")
  assert of.place("few").exists()


def test_runs_without_logits_keep_their_predictions(tmp_path):
  campaigns = {
    "few": frame.Campaign(RECIPE, vs.Runs.vary("order", RUNS).subset(200)),
  }

  def of(place, runs) -> frame.Trained:
    options = Options(lane_width=1)
    first = campaigns["few"]._replace(runs=campaigns["few"].runs[:runs])
    return frame.Trained(
      "paper", "smoke", {"few": first}, place, options, {}, kept=tmp_path / "kept"
    )

  whole = of(tmp_path / "whole", RUNS)
  expected = whole("few")
  two = of(tmp_path / "first", 2)
  two("few")
  keep(two.place("few"), tmp_path / "kept")
  (file,) = (tmp_path / "kept").glob("*.npz")
  with np.load(file) as arrays:
    assert arrays["predictions"].dtype == np.int8
    assert arrays["predictions"].shape == (expected.sizes["example"], 2)
    assert arrays["predictions"].flags.c_contiguous, (
      "an example's runs lie side by side"
    )
  both = of(tmp_path / "second", RUNS)("few")
  for name in ("predictions", "labels", "diverged"):
    np.testing.assert_array_equal(both[name], expected[name])
  assert both.attrs["num_classes"] == expected.attrs["num_classes"]


@pytest.mark.slow
def test_runs_that_predict_no_classes_keep_their_scores(tmp_path):
  recipe = vs.Recipe(
    name="line",
    dataset=f"{__name__}:LINE",
    model=nn.Dense(1),
    loss="squared_error",
    predict="outputs",
    epochs=1,
    batch_size=8,
    lr=0.1,
  )
  campaigns = {"line": frame.Campaign(recipe.replace(metrics=["rmse"]), RUNS)}

  def of(place, runs) -> frame.Trained:
    first = campaigns["line"]._replace(runs=runs)
    return frame.Trained(
      "paper", "smoke", {"line": first}, place, Options(), {}, kept=tmp_path / "kept"
    )

  expected = of(tmp_path / "whole", RUNS)("line")
  two = of(tmp_path / "first", 2)
  two("line")
  keep(two.place("line"), tmp_path / "kept")
  both = of(tmp_path / "second", RUNS)("line")
  assert {*both} == {"rmse", "diverged"}
  for name in both:
    assert both[name].dims == ("run",)
    np.testing.assert_array_equal(both[name], expected[name])


@pytest.mark.slow
def test_files_that_overlap_are_refused(two, tmp_path):
  (file,) = (tmp_path / "kept").glob("*.npz")
  shutil.copy(file, file.with_name(f"{file.stem}-1.npz"))
  with pytest.raises(UserError, match=r"keeps 2 runs of .* and others from run 1 on"):
    two("few")


def test_at_least_one_folder_is_needed(tmp_path, capsys):
  with pytest.raises(SystemExit) as stopped:
    kept.main(["--out", str(tmp_path)])
  assert stopped.value.code == 2
  assert "no folder is given" in capsys.readouterr().err


def test_a_folder_without_kept_runs_is_refused(tmp_path, capsys):
  place = str(Path(banerjee2024.__file__).with_name("__main__.py"))
  with pytest.raises(SystemExit) as stopped:
    frame.main(place, ["fig09", "--kept", str(tmp_path), "--out", str(tmp_path / "o")])
  assert stopped.value.code == 2
  said = " ".join(capsys.readouterr().err.split())
  assert "no runs of banerjee2024 at scale smoke are kept" in said
  assert not (tmp_path / "o").exists()


def test_a_folder_without_finished_runs_is_refused(whole, tmp_path, capsys):
  empty = tmp_path / "empty"
  shutil.copytree(whole.place("few"), empty)
  for record in (empty / "blocks").glob("*.json"):
    record.unlink()
  with pytest.raises(SystemExit) as stopped:
    keep(empty, tmp_path / "kept")
  assert stopped.value.code == 2
  assert "no finished runs" in capsys.readouterr().err
