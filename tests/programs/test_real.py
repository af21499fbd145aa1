"""Figures from committed predictions of many runs."""

import json

import numpy as np
import pytest

import vmapseeds as vs
from experiments.jordan2024 import real
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
  record = json.loads((out / "fig05.json").read_text())
  wrong = vs.error_matrix(campaigns / "mnist-4")
  found = {row["quantity"]: row["value"] for row in record["rows"]}
  share = stats.distribution_variance(wrong) / wrong.mean(1).var(ddof=1)
  assert found["share of the variance, 4 epochs"] == pytest.approx(
    100 * max(0.0, share)
  )
  made = {path.name: path.read_bytes() for path in out.glob("fig*.json")}
  assert {*made} == {f"fig{n}.json" for n in ("01", "02", "03", "05", "13", "14")}
  monkeypatch.setattr(vs, "train", None)
  for name in made:
    (out / name).unlink()
  real.main(["mnist", "--out", str(out), "--campaigns", str(tmp_path / "none")])
  assert {name: (out / name).read_bytes() for name in made} == made


@pytest.mark.slow
def test_another_machine_goes_on(tmp_path, monkeypatch):
  recipe = vs.recipe("digits_cnn", model="linear", batch_size=100)
  monkeypatch.setitem(real.STUDIES, "mnist", real.Study(recipe, (0, 1, 2, 3), 2))

  def trained(out, campaigns, runs):
    places = ["--out", str(tmp_path / out), "--campaigns", str(tmp_path / campaigns)]
    real.main(["mnist", *places, "--runs", str(runs), "--no-figures"])
    assert not list((tmp_path / out).glob("fig*"))
    parts = real.kept_parts(tmp_path / out, 2)
    counts = [record["runs"] for _, record in parts]
    return np.hstack([arrays["predictions"] for arrays, _ in parts]), counts

  together, _ = trained("together", "c", 5)
  first, _ = trained("parts", "a", 2)
  both, counts = trained("parts", "b", 5)
  assert [*vs.open_results(tmp_path / "b" / "mnist-2").seed_init] == [2, 3, 4]
  assert counts == [2, 3]
  np.testing.assert_array_equal(both[:, :2], first)
  np.testing.assert_array_equal(both, together)
  same, _ = trained("parts", "b", 5)
  np.testing.assert_array_equal(same, both)
  assert len(list((tmp_path / "parts").glob("predictions-2-*.npz"))) == 2
