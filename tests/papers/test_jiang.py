"""The scripts of Jiang's figures, beside loops and SciPy."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from experiments import frame, jiang2022
from experiments.jiang2022 import fig01, fig06, fig11

SWEPT = {"weight_decay": [1e-3, 0.0, 1e-4], "lr": [0.1, 0.01]}


def predicted(runs: int, examples: int = 997) -> tuple[np.ndarray, np.ndarray]:
  """Return predictions of three classes, each right with its example's own chance."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, examples)
  is_right = rng.random((runs, examples)) < rng.uniform(0.3, 1, examples)
  return np.where(is_right, labels, rng.integers(0, 3, (runs, examples))), labels


def test_a_scatter_plot_equals_loops_and_leaves_out_what_diverged():
  predictions, labels = predicted(6 * 6)
  predictions[5 * 6 + 2] = -1  # the third setting's SameData diverged
  numbers = fig01.measure(predictions, labels, SWEPT)
  rows = {row["quantity"]: row["value"] for row in numbers["rows"]}
  assert numbers["settings"]["lr"] == [0.1, 0.01] * 3
  for i, group in enumerate(fig01.PARTNERS, 1):
    error, apart = [], []
    for setting in (0, 2, 4):  # of rate 0.1
      if group == "SameData" and setting == 2:
        continue
      first, other = predictions[setting], predictions[6 * i + setting]
      error.append(np.mean(first != labels))
      apart.append(np.mean(first != other))
    ratio = np.sum(error) / np.sum(apart)
    assert rows[f"error ÷ disagreement at rate 0.1, {group}"] == pytest.approx(ratio)
    r = scipy.stats.pearsonr(apart, error).statistic
    assert rows[f"R² at rate 0.1, {group}"] == pytest.approx(r**2)
    tau = scipy.stats.kendalltau(apart, error).statistic
    assert rows[f"τ at rate 0.1, {group}"] == pytest.approx(tau)
    off = [abs(e - d) / (0.5 * (e + d)) for e, d in zip(error, apart, strict=True)]
    for name in ("of a pair", "of the mean of all pairs"):  # there is one
      quantity = f"deviation {name} at rate 0.1, {group}"
      assert rows[quantity] == pytest.approx(np.mean(off))


def test_the_mean_of_pairs_is_nearer_to_the_line():
  """Equation 63: independent noise of four pairs is halved, and what they share stays."""
  rng = np.random.default_rng(0)
  law = rng.uniform(0.2, 0.4, 300)
  noisy = law + 0.01 * rng.normal(size=(4, 300))
  of_pair, of_mean = fig01.agreement(noisy, np.tile(law, (4, 1)))[3:]
  assert of_mean == pytest.approx(of_pair / 2, rel=0.1)
  shared = np.tile(1.5 * law, (4, 1))
  of_pair, of_mean = fig01.agreement(shared, np.tile(law, (4, 1)))[3:]
  assert of_mean == pytest.approx(of_pair) == pytest.approx(0.4)
  noisy[1, 3] = np.nan  # a pair that diverged: the others of its setting make no mean
  assert np.isfinite(fig01.agreement(noisy, np.tile(law, (4, 1)))).all()


def test_partners_differ_in_what_their_group_says():
  runs = fig01.stars(100, 20, 2, {"lr": [0.1]})
  shape = 2, 1 + len(fig01.PARTNERS)
  sets = runs.values["subset"].reshape(*shape, 20)
  for i, varied in enumerate(fig01.PARTNERS.values(), 1):
    shared = [len({*a} & {*b}) for a, b in zip(sets[:, 0], sets[:, i], strict=True)]
    assert shared == [0 if "data" in varied else 20] * 2
  for source in ("init", "order"):
    seeds = np.reshape(runs.seeds[source], shape)
    for i, varied in enumerate(fig01.PARTNERS.values(), 1):
      assert ((seeds[:, i] != seeds[:, 0]) == (source in varied)).all()


def test_a_group_equals_loops():
  predictions, labels = predicted(7)
  numbers = fig06.measure(dict.fromkeys(fig06.GROUPS, (predictions, labels, 3)))
  rows = {row["quantity"]: row["value"] for row in numbers["rows"]}
  pairs = [np.mean(a != b) for a, b in itertools.combinations(predictions, 2)]
  error = np.mean(predictions != labels)
  assert rows["disagreement, DiffInit"] == pytest.approx(100 * np.mean(pairs))
  assert rows["gap, DiffInit"] == pytest.approx(100 * abs(error - np.mean(pairs)))
  assert rows["CACE on one training set ÷ on several"] == pytest.approx(1)
  votes = (predictions[..., None] == np.arange(3)).sum(0)
  hits = labels[:, None] == np.arange(3)
  levels = [abs((hits - v / 7)[votes == v].sum()) for v in range(8)]
  bound = rows["CACE of theorem 4.2, DiffInit"]
  assert bound == pytest.approx(100 * sum(levels) / len(labels))
  with_itself = np.mean([np.mean(a != b) for a in predictions for b in predictions])
  gap = rows["gap of theorem 4.2, DiffInit"]
  assert gap == pytest.approx(100 * abs(error - with_itself))
  *_, items = numbers["curves"]["AllDiff"]
  assert items == np.histogram(votes / 7, 10, (0, 1))[0].tolist()
  confidence, accuracy = numbers["classes"]["AllDiff"][2]
  shares = np.minimum(10 * votes[:, 2] // 7, 9)
  assert accuracy == [hits[shares == b, 2].mean() for b in np.unique(shares)]
  assert confidence == pytest.approx(
    [votes[shares == b, 2].mean() / 7 for b in np.unique(shares)]
  )


def test_an_ensemble_of_a_calibrated_law_is_on_the_diagonal_and_another_is_not():
  rng = np.random.default_rng(2)
  law = rng.dirichlet(np.full(4, 0.2), 3000)
  predictions = np.stack([rng.multinomial(1, law).argmax(1) for _ in range(60)])
  drawn = {}
  for group, power in (("AllDiff", 1), ("DiffInit", 3)):
    of_labels = law**power / (law**power).sum(1, keepdims=True)
    drawn[group] = predictions, rng.multinomial(1, of_labels).argmax(1), 4
  drawn |= {"DiffData": drawn["AllDiff"], "DiffOrder": drawn["DiffInit"]}
  numbers = fig06.measure(drawn)
  rows = {row["quantity"]: row for row in numbers["rows"]}
  for group in fig06.GROUPS:
    confidence, accuracy, se, _ = np.array(numbers["curves"][group])
    off = abs(accuracy - confidence)[1:-1] / se[1:-1]
    calibrated = rows[f"CACE were it calibrated, {group}"]
    if group in ("AllDiff", "DiffData"):
      assert off.max() < 4
      assert calibrated["low"] < rows[f"CACE, {group}"]["value"] < calibrated["high"]
    else:
      assert off.max() > 4
      assert rows[f"CACE, {group}"]["low"] > calibrated["high"]
  assert rows["CACE on one training set ÷ on several"]["low"] > 1.2


def test_training_sets_of_two_are_disjoint_and_of_more_runs_the_same():
  sets = fig01.training_sets(11, 5, 7)
  for a, b in ((0, 1), (2, 3), (4, 5)):
    assert len({*sets[a], *sets[b]}) == 10
  np.testing.assert_array_equal(fig01.training_sets(11, 5, 20)[:7], sets)
  assert len({*sets[1], *sets[2]}) < 10
  for group, sources in fig06.GROUPS.items():
    runs = fig06.runs_of(group, 11, 5, 7)
    own = np.broadcast_to(runs.values["subset"], (7, 5))
    np.testing.assert_array_equal(own, sets if "data" in sources else sets[[0] * 7])
    varied = {s for s in ("init", "order") if len({*runs.seeds[s].tolist()}) == 7}
    assert varied == {*sources} - {"data"}


def test_numbers_of_kept_predictions_are_the_committed_ones(tmp_path):
  gallery = Path(__file__).parents[2] / "docs" / "gallery" / "jiang2022"
  for script in (fig01, fig11):
    name = script.__name__.rpartition(".")[2]
    script.main(["--kept", str(gallery), "--out", str(tmp_path)])
    again = json.loads((tmp_path / f"{name}.json").read_text())
    assert again["rows"] == json.loads((gallery / f"{name}.json").read_text())["rows"]


def test_scripts_train_what_they_show(tmp_path):
  """All of the paper, as one command; its runs are there for the next."""
  frame.main(
    jiang2022.__file__, ["--out", str(tmp_path / "o"), "--campaigns", str(tmp_path)]
  )
  for name in ("fig01", "fig05", "fig06", "fig11"):
    assert json.loads((tmp_path / "o" / f"{name}.json").read_text())["rows"]
    assert (tmp_path / "o" / f"{name}.png").stat().st_size > 10_000


def test_counts_of_a_beta_law_are_near_it_and_those_of_easy_and_hard_are_not():
  counts = np.random.default_rng(0).multinomial(
    5000, scipy.stats.betabinom.pmf(np.arange(21), 20, 0.4, 2.0)
  )
  fitted, distance = fig11.fit_beta(counts)
  assert distance < 0.02
  law = scipy.stats.betabinom.pmf(np.arange(21), 20, 0.4, 2.0)
  np.testing.assert_allclose(fitted, law, atol=0.02)
  hard = scipy.stats.binom.pmf(np.arange(21), 20, 0.9)
  two_peaks = np.rint(4000 * np.eye(21)[0] + 1000 * hard).astype(int)
  assert fig11.fit_beta(two_peaks)[1] > 0.03
