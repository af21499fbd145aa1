"""Figures from committed predictions of many runs."""

import json

import figures
import numpy as np
import pytest

import vmapseeds as vs
from experiments.jordan2024 import campaigns, real
from vmapseeds import stats

EPOCHS, RUNS = (0, 1, 2, 4), 6


@pytest.mark.slow
def test_predictions_are_kept_and_drawn_without_training(tmp_path, monkeypatch):
  recipe = vs.recipe("digits_cnn", model="linear", batch_size=100)
  monkeypatch.setitem(real.STUDIES, "mnist", real.Study(recipe, EPOCHS, 4))
  out, campaigns = tmp_path / "out", tmp_path / "campaigns"
  command = ["mnist", "--out", str(out), "--campaigns", str(campaigns)]
  real.main([*command, "--runs", str(RUNS)])
  for epochs in EPOCHS:
    results = vs.open_results(campaigns / f"mnist-{epochs}")
    assert results.sizes["run"] == RUNS
    with np.load(out / f"predictions-{epochs}-0.npz") as file:
      assert file["predictions"].dtype == np.int8
      assert file["predictions"].flags.c_contiguous, (
        "an example's runs lie side by side"
      )
      np.testing.assert_array_equal(file["predictions"].T, results.predictions)
      np.testing.assert_array_equal(file["labels"], results.labels)
      record = json.loads(str(file["record"]))
    assert record["recipe"]["epochs"] == epochs
    assert record["runs"] == RUNS
  page = (out / "index.html").read_bytes()
  record = json.loads((out / "fig05.json").read_text())
  wrong = vs.error_matrix(campaigns / "mnist-4")
  found = {row["quantity"]: row["value"] for row in record["rows"]}
  share = stats.distribution_variance(wrong) / wrong.mean(1).var(ddof=1)
  assert found["share of the variance, 4 epochs"] == pytest.approx(
    100 * max(0.0, share)
  )
  monkeypatch.setattr(vs, "train", None)
  for path in out.glob("[!p]*"):
    path.unlink()
  real.main(["mnist", "--out", str(out), "--campaigns", str(tmp_path / "none")])
  assert (out / "index.html").read_bytes() == page


@pytest.mark.slow
def test_another_machine_goes_on(tmp_path, monkeypatch):
  recipe = vs.recipe("digits_cnn", model="linear", batch_size=100)
  monkeypatch.setitem(real.STUDIES, "mnist", real.Study(recipe, (0, 1, 2, 3), 2))

  def trained(out, campaigns, runs):
    places = ["--out", str(tmp_path / out), "--campaigns", str(tmp_path / campaigns)]
    real.main(["mnist", *places, "--runs", str(runs), "--no-figures"])
    assert not (tmp_path / out / "index.html").exists()
    stored = real.Stored(tmp_path / out, "mnist")
    return stored("medium")["predictions"], stored.used

  together, _ = trained("together", "c", 5)
  first, _ = trained("parts", "a", 2)
  both, used = trained("parts", "b", 5)
  assert [*vs.open_results(tmp_path / "b" / "mnist-2").seed_init] == [2, 3, 4]
  assert [used[name]["runs"] for name in ("medium", "medium, part 2")] == [2, 3]
  np.testing.assert_array_equal(both[:, :2], first)
  np.testing.assert_array_equal(both, together)
  same, _ = trained("parts", "b", 5)
  np.testing.assert_array_equal(same, both)
  assert len(list((tmp_path / "parts").glob("predictions-2-*.npz"))) == 2


@pytest.mark.slow
def test_figures_of_other_runs_are_made_once_and_drawn_anew(tmp_path, monkeypatch):
  recipe = vs.recipe("digits_cnn", batch_size=100, augment="", optimizer="nesterov")
  study = real.Study(recipe, (0, 1, 2, 3), 4, real.OTHER)
  monkeypatch.setitem(real.STUDIES, "mnist", study)
  monkeypatch.setattr(real.frame, "draw_png", figures.plotted)
  small = campaigns.Studies(
    recipe.replace(epochs=2), 1, 0, 4, 2, (1, 2), 6, (1, 2), 4, (0, 4)
  )
  monkeypatch.setitem(campaigns.STUDIES, "mnist", small)
  out = tmp_path / "out"
  command = ["mnist", "--out", str(out), "--campaigns", str(tmp_path / "campaigns")]
  real.main([*command, "--runs", "6", "--other"])
  made = json.loads((out / "index.json").read_text())["figures"]
  assert made == [
    "fig08_learning_rate",
    "fig09_distribution_shift",
    "fig10_randomness_sources",
    "fig11_poking",
    "fig12_shift_correlations",
    "fig14_dependent_pairs",
  ]
  rates = json.loads((out / "fig08_learning_rate.json").read_text())["numbers"]
  assert [n["rate"] for n in rates] == pytest.approx(
    [0.05 * 2 ** (k / 2) for k in range(-18, 7)]
  )
  sources = json.loads((out / "fig10_randomness_sources.json").read_text())["numbers"]
  assert [*sources["2"]] == ["all", "init", "order"]
  page = (out / "index.html").read_bytes()
  monkeypatch.setattr(vs, "train", None)
  for path in out.glob("*.png"):
    path.unlink()
  real.main(["mnist", "--out", str(out), "--campaigns", str(tmp_path / "none")])
  assert (out / "index.html").read_bytes() == page
  scripts = {real.name_of(script) for script in real.SCRIPTS}
  assert {path.stem for path in out.glob("*.png")} == {*made} | scripts
