"""The scripts of Banerjee 2024: their numbers against NumPy and SciPy, of made-up gaps,
of kept runs and of runs that they train.
"""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

import vmapseeds as vs
from experiments import banerjee2024, frame, measures
from experiments.banerjee2024 import (
  fig03,
  fig12,
  groups,
  others,
  runs,
  table1,
  table2,
)
from experiments.banerjee2024.runs import Gaps

GALLERY = Path(__file__).parents[2] / "docs" / "gallery" / "banerjee2024"
NO_EPOCHS = np.zeros(0, int)


def gaps_of(reference: np.ndarray, candidates: np.ndarray, labels: np.ndarray) -> Gaps:
  return Gaps(reference, candidates, labels, NO_EPOCHS, 0)


def some_gaps(candidates: int = 6, examples: int = 200) -> Gaps:
  """Return gaps of runs that are right more often than not, of one law."""
  rng = np.random.default_rng(0)
  labels = np.arange(examples) % 2
  sides = 2 * labels - 1 + rng.normal(0, 1, examples)
  every = sides + rng.normal(0, 0.7, (4 + candidates, examples))
  return gaps_of(every[:4], every[4:], labels)


def rows_of(numbers: dict) -> dict[str, dict]:
  return {row["quantity"]: row for row in numbers["rows"]}


def test_candidates_are_compared_with_the_reference():
  n = some_gaps()
  of = table2.candidates(n)
  found = measures.trimming_level(
    n.reference, n.candidates, key=jax.random.key(0), replicates=100
  )
  np.testing.assert_array_equal(of["level"], found.level)
  predictions = (n.candidates >= 0).astype(int)
  np.testing.assert_allclose(of["accuracy"], (predictions == n.labels).mean(1))
  together = n.candidates.mean(0) >= 0
  assert of["ensemble"] == pytest.approx((together == n.labels).mean())
  np.testing.assert_allclose(of["churn"], (predictions != together).mean(1))
  pairs = [
    (predictions[i] != predictions[j]).mean() for i in range(6) for j in range(i + 1, 6)
  ]
  np.testing.assert_allclose(of["pairs"], pairs)
  assert of["mean_churn"][0] == pytest.approx(np.mean(pairs[:5]))
  pooled = n.reference.ravel()
  far = [scipy.stats.ks_2samp(pooled, x).statistic for x in n.candidates]
  np.testing.assert_allclose(of["distance"], far)


def test_rows_of_sources():
  n = some_gaps()
  spread = n._replace(candidates=n.candidates + np.linspace(0, 2, 6)[:, None])
  rows = rows_of(table2.measure({"S_init": n, "S_batch": spread, "S_all": n}))
  a, b = ((x.candidates >= 0) == x.labels for x in (spread, n))
  ratio = rows["variance of accuracy with another order ÷ with another initialisation"]
  expected = a.mean(1).var(ddof=1) / b.mean(1).var(ddof=1)
  assert ratio["value"] == pytest.approx(expected)
  accuracy = 100 * a.mean(1)
  sd = rows["S_batch: sd of accuracy"]
  assert sd["value"] == pytest.approx(accuracy.std(ddof=1))
  assert sd["low"] < sd["value"] < sd["high"]
  range_of = rows["S_batch: accuracies, least to largest"]
  assert (range_of["low"], range_of["high"]) == pytest.approx(
    (accuracy.min(), accuracy.max())
  )
  far = n._replace(candidates=100 + n.candidates)  # no level is accepted
  rows = rows_of(table2.measure({"S_init": far, "S_batch": far, "S_all": far}))
  assert rows["S_all: α̂ ≤ 0.05"]["value"] == 0
  assert "S_all: accuracies where α̂ is small" not in rows


def test_the_error_of_tau_is_that_of_samples():
  rng = np.random.default_rng(0)
  x = rng.normal(size=(300, 40))
  y = x + rng.normal(size=x.shape)
  of_samples = [
    scipy.stats.kendalltau(a, b).statistic for a, b in zip(x, y, strict=True)
  ]
  found = [table2.tau(a, b) for a, b in zip(x[:50], y[:50], strict=True)]
  assert found[0].value == pytest.approx(of_samples[0])
  reach = np.mean([(each.high - each.low) / 2 for each in found])
  assert reach == pytest.approx(1.96 * np.std(of_samples), rel=0.15)


def test_two_runs_as_accurate_that_disagree_most():
  gaps = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, -1, -1], [1, 1, 1, 1.0]])
  n = gaps_of(gaps, gaps, np.ones(4, int))
  shown = table2.two_runs(table2.candidates(n), n)["gaps"]
  assert sorted(map(tuple, shown)) == sorted(map(tuple, gaps[:2]))


def test_ensembles_are_drawn_without_replacement():
  """Each ensemble leaves out one of the six candidates."""
  n = some_gaps()
  assert sorted(map(tuple, table1.member_sets(6, 5, 500))) == sorted(
    tuple(np.delete(np.arange(6), out)) for out in range(6)
  )
  some = table1.member_sets(40, 5, 500)
  assert some.shape == (500, 5)
  assert all(len({*one}) == 5 for one in some.tolist())
  of = table1.ensembles(n, 5)
  sets = table1.member_sets(6, 5, 500)
  accuracy = [((n.candidates[k].mean(0) >= 0) == n.labels).mean() for k in sets]
  np.testing.assert_allclose(of["accuracy"], accuracy)
  whole = table1.ensembles(n, 6)
  assert (whole["churn"].max(), np.ptp(whole["accuracy"])) == (0, 0)


def test_intervals_of_ensembles_are_over_runs():
  n = some_gaps(7)
  rows = rows_of(table1.measure(n))

  def ece(k) -> float:
    gap = n.candidates[list(k)].mean(0)
    confidence = scipy.special.expit(abs(gap))
    off = ((gap >= 0) == n.labels) - confidence
    return (
      abs(np.bincount((10 * confidence).astype(int), off, minlength=10)).sum() / 200
    )

  def mean(members: int, runs) -> float:
    sets = [k for k in table1.member_sets(7, members, 5000) if {*k} <= {*runs}]
    return np.mean([ece(k) for k in sets])

  whole = mean(5, range(7)) - mean(3, range(7))
  without = [{*range(7)} - {out} for out in range(7)]
  falls = [mean(5, runs) - mean(3, runs) for runs in without]
  reach = scipy.stats.t.ppf(0.975, 6) * np.sqrt(6 * np.var(falls))
  row = rows["ECE of 5 members less that of 3"]
  assert row["value"] == pytest.approx(100 * whole)
  assert row["high"] - row["value"] == pytest.approx(100 * reach)
  assert rows["3 members: ECE"]["value"] == pytest.approx(100 * mean(3, range(7)))
  pooled, together = n.candidates.ravel(), n.candidates.mean(0)
  far = scipy.stats.ks_2samp(pooled, together).statistic
  assert rows["distance of their ensemble from them"]["value"] == pytest.approx(far)


def test_runs_that_diverged_or_are_at_chance_are_left_out():
  """Of nine runs the second diverged, and the last of each half guesses."""
  rng = np.random.default_rng(0)
  labels = np.arange(400) % 2
  right = np.array([0.9, 0.9, 0.9, 0.8, 0.52, 0.7, 0.9, 0.8, 0.5])
  wrong = rng.permuted(np.arange(400) >= 400 * right[:, None], axis=1)
  gaps = np.where(labels ^ wrong, 1.0, -1.0)
  gaps[1] = np.nan
  n = runs.split(gaps, labels, np.arange(9) == 1, NO_EPOCHS)
  np.testing.assert_array_equal(n.reference, gaps[[0, 2, 3]])
  np.testing.assert_array_equal(n.candidates, gaps[[5, 6, 7]])
  assert n.left_out == 3
  by_epoch = np.stack([np.ones_like(gaps), gaps], 1)  # it counts what they end as
  n = runs.split(by_epoch, labels, np.arange(9) == 1, np.array([1, 2]))
  np.testing.assert_array_equal(n.candidates[:, -1], gaps[[5, 6, 7]])


def test_candidates_are_followed_through_training():
  n = some_gaps()
  early, late = (n._replace(candidates=x * n.candidates) for x in (0.3, 2.0))
  stacked = n._replace(
    reference=np.stack([n.reference] * 2, 1),
    candidates=np.stack([early.candidates, late.candidates], 1),
    epochs=np.array([1, 2]),
  )
  of = fig03.by_epoch(stacked)
  both = np.stack([np.zeros_like(late.candidates), late.candidates], -1)
  log_p = scipy.special.log_softmax(both, axis=-1)
  loss = -log_p[:, np.arange(200), n.labels].mean(1)
  np.testing.assert_allclose(of["loss"][1], loss)
  np.testing.assert_allclose(
    of["accuracy"][0], ((n.candidates >= 0) == n.labels).mean(1)
  )
  together = n.candidates.mean(0) >= 0
  np.testing.assert_allclose(of["churn"][1], ((n.candidates >= 0) != together).mean(1))
  rows = rows_of(fig03.measure(stacked))
  ece = rows["ECE of the ensemble less that of its members"]
  differences = 100 * (of["ensemble_ece"][1] - of["ece"][1])
  assert ece["value"] == pytest.approx(differences.mean())
  reach = scipy.stats.t.ppf(0.975, 5) * scipy.stats.sem(differences)
  assert ece["high"] - ece["value"] == pytest.approx(reach)


def test_the_ensemble_of_opposite_runs_has_small_gaps():
  gaps = np.array([[3.0, -3.0, 0.5, 9.0], [-3.0, 3.0, 0.5, 9.0]])[:, None]
  n = Gaps(gaps, gaps, np.array([0, 1, 1, 1]), np.array([1]), 0)
  rows = rows_of(fig03.measure(n))
  assert rows["gaps up to 1: the ensemble less its members"]["value"] == 50


def test_other_classes_are_those_left_out():
  data, digits = others.digits, vs.load_dataset("digits")
  left_out = np.flatnonzero(np.array(groups.GROUPS) < 0)
  assert data.num_classes == 2 * len(left_out)
  kept = np.isin(digits.train.targets, left_out)
  upright, turned = np.split(np.asarray(data.train.inputs), 2)
  np.testing.assert_array_equal(upright, np.asarray(digits.train.inputs)[kept])
  np.testing.assert_array_equal(turned, upright[:, ::-1])
  assert not hasattr(others, "mnist")


@pytest.mark.parametrize("path", sorted(GALLERY.glob("*.npz")), ids=lambda p: p.stem)
def test_kept_runs_were_trained_by_the_recipes_of_today(path):
  """Their records call the network and its two classes as the package did then."""
  with np.load(path) as file:
    kept = json.loads(str(file["record"]))["recipe"]
  assert (kept["dataset"], kept["model"]) == ("cifar10", "banerjee_cnn")
  assert tuple(kept["classes"]) == groups.GROUPS
  assert kept["predict"] in ("argmax", None)  # None is argmax, of classes
  assert kept["precision"] in ("float32", "auto")  # auto is float32, on a CPU
  named_otherwise = {"dataset", "model", "classes", "predict", "precision"}
  task = runs.TASKS["cifar10"]
  if "last_layers" in path.stem:
    today = task.last_layer
    changed = {"epochs", "evaluate_every", "start_from", "trainable"}
  else:
    today = task.recipe
    changed = {"evaluate_every"}  # None where no figure follows the training
  fields = json.loads(today.to_json())
  for name in kept.keys() - named_otherwise - changed:
    assert kept[name] == fields[name], name


def test_numbers_of_kept_runs_are_the_committed_ones(tmp_path):
  for script in (fig03, fig12):
    name = script.__name__.rpartition(".")[2]
    script.main(["--kept", str(GALLERY), "--out", str(tmp_path)])
    again = json.loads((tmp_path / f"{name}.json").read_text())
    assert again["rows"] == json.loads((GALLERY / f"{name}.json").read_text())["rows"]


def test_scripts_show_the_runs_that_they_train(tmp_path):
  """All of the paper, as one command; the numbers are those of its folders."""
  out = tmp_path / "out"
  frame.main(banerjee2024.__file__, ["--out", str(out), "--campaigns", str(tmp_path)])
  numbers = json.loads((out / "table2.json").read_text())
  for source, varied in runs.VARIED.items():
    results = vs.open_results(tmp_path / f"digits-{source}")
    for seed in ("init", "order"):
      assert len({*results[f"seed_{seed}"].values}) == (16 if seed in varied else 1)
    logits = results.logits.values.astype(float)
    accuracy = (logits.argmax(-1) == results.labels.values).mean(1)[8:]
    found = numbers["candidates"][source]["accuracy"]
    np.testing.assert_allclose(found, accuracy, atol=1e-6)
  by_epoch = json.loads((out / "fig03.json").read_text())["by_epoch"]
  assert by_epoch["epoch"] == [1, 2]
  found = numbers["candidates"]["S_all"]["accuracy"]
  np.testing.assert_allclose(by_epoch["accuracy"][-1], found)
  assert {*json.loads((out / "table1.json").read_text())["drawn"]} == {"3", "5"}
  for name in ("table1", "table2", "fig03", "fig12"):
    assert (out / f"{name}.png").stat().st_size > 10_000
