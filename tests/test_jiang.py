"""The experiment on disagreement with --quick: its numbers against NumPy on the stored runs, its files, its mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image

import vmapseeds as vs
from experiments import common
from experiments.jiang2022 import generalization_disagreement as experiment

NAME = "generalization_disagreement"
RUNS, EXAMPLES, TRAIN = common.QUICK_RUNS, 797, 500
GROUPS = ("AllDiff", "DiffData", "DiffInit", "DiffOrder")


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Path:
  folder = tmp_path_factory.mktemp("jiang")
  experiment.main(["--quick", "--out", str(folder / "out"), "--campaigns", str(folder / "campaigns")])
  return folder


def record(quick: Path) -> dict:
  return json.loads((quick / "out" / f"{NAME}.json").read_text())


def stored(quick: Path, group: str) -> xr.Dataset:
  (folder,) = (quick / "campaigns").glob(f"digits_cnn-1epochs-*-{group}{TRAIN}")
  return vs.open_results(folder)


def test_files(quick):
  written = record(quick)
  assert written["experiment"] == f"jiang2022.{NAME}"
  assert written["recipe"]["augment"] == ""
  assert [(used["runs"], used["diverged"]) for used in written["campaigns"].values()] == [(RUNS, 0)] * 4
  assert written["paper"]["table 1"]["cace"]["DiffInit"] == {"2": 0.4495, "5": 0.2776, "100": 0.0979}
  with Image.open(quick / "out" / f"{NAME}.png") as image:
    image.load()
    assert min(image.size) > 300
    assert len(image.convert("L").getcolors()) > 20
  table = (quick / "out" / f"{NAME}.md").read_text()
  assert "ours ± standard error" in table
  assert "not expected to agree, only the pattern is comparable" in table
  assert "| gap, DiffOrder | until 100 % of train / 1 | 3.3 % | table 1 |" in table
  assert f"| {RUNS} |" in table


@pytest.mark.parametrize("group", GROUPS)
def test_numbers_equal_loops_over_the_stored_runs(quick, group):
  n = record(quick)["numbers"]["groups"]["1"][group]
  results = stored(quick, group)
  P, y = results.predictions.values, results.labels.values
  error = (y != P).mean(1)
  assert (n["runs"], n["examples"]) == (RUNS, EXAMPLES)
  assert n["error"] == pytest.approx(error.mean())
  assert n["error_sd"] == pytest.approx(error.std(ddof=1))
  pairs = [(P[a] != P[b]).mean() for a in range(RUNS) for b in range(a)]
  assert n["disagreement"] == pytest.approx(np.mean(pairs))
  assert n["disagreement_sd"] == pytest.approx(np.std(pairs))
  assert n["gap"] == pytest.approx(abs(error.mean() - np.mean(pairs)))
  assert n["ratio"] == pytest.approx(error.mean() / np.mean(pairs))
  np.testing.assert_allclose(n["pairs"], [error[::2], (P[::2] != P[1::2]).mean(1)])
  assert {size: e["ensembles"] for size, e in n["cace"].items()} == {"2": 8, "5": 3, "16": 1}
  # Of two runs: 0, 1 or 2 votes.
  caces = [of_two(P[[i, i + 8]], y) for i in range(8)]
  assert n["cace"]["2"]["cace"] == pytest.approx(np.mean(caces))
  assert n["cace"]["2"]["cace_se"] == pytest.approx(np.std(caces, ddof=1) / 8**0.5)
  votes = (P[..., None] == np.arange(10)).mean(0)
  assert n["ensemble_error"] == pytest.approx(np.mean(votes.argmax(1) != y))
  self_pairs = 1 - (votes**2).sum(1).mean()
  assert abs(error.mean() - self_pairs) <= n["cace_bound"] + 1e-12
  # The law is calibrated: what is left comes from few runs, the less the more there are.
  calibrated = [e["calibrated"] for e in n["cace"].values()]
  assert calibrated == sorted(calibrated, reverse=True)
  assert calibrated[0] > self_pairs / 2


def of_two(P: np.ndarray, y: np.ndarray) -> float:
  votes = (P[..., None] == np.arange(10)).sum(0)
  hits = y[:, None] == np.arange(10)
  return sum(abs((hits - v / 2)[votes == v].sum()) for v in range(3)) / len(y)


def test_each_group_varies_what_it_says(quick):
  for group, sources in experiment.GROUPS.items():
    runs = stored(quick, group)
    varied = {s for s in ("init", "order", "data") if len(set(runs[f"seed_{s}"].values)) == RUNS}
    assert varied == set(sources)
    assert len(np.unique(runs["subset"].values, axis=0)) == (RUNS if "data" in sources else 1)
  assert (
    stored(quick, "DiffOrder")["subset"].values[3].tolist() == stored(quick, "AllDiff")["subset"].values[0].tolist()
  )


def test_training_sets_of_two_are_disjoint_and_of_more_runs_the_same():
  sets = experiment.training_sets(11, 5, 7)
  assert sets.shape == (7, 5)
  for a, b in ((0, 1), (2, 3), (4, 5)):
    assert len({*sets[a], *sets[b]}) == 10
  np.testing.assert_array_equal(experiment.training_sets(11, 5, 20)[:7], sets)
  assert len({*sets[1], *sets[2]}) < 10
  assert sets.max() == 10


def test_runs_that_diverged_are_left_out_with_their_pair():
  rng = np.random.default_rng(0)
  P, y = rng.integers(0, 3, (7, 40)), rng.integers(0, 3, 40)
  diverged = np.arange(7) == 2
  P[2] = -1
  n = experiment.compute(P, diverged, y, 3)
  assert n.runs == 6
  np.testing.assert_allclose(n.pairs[0], [(P[0] != y).mean(), (P[4] != y).mean()])
  np.testing.assert_allclose(n.pairs[1], [(P[0] != P[1]).mean(), (P[4] != P[5]).mean()])
  assert n.error == pytest.approx((P[~diverged] != y).mean())


def test_cifar100_stands_beside_its_own_table():
  rng = np.random.default_rng(0)
  P, y = rng.integers(0, 3, (6, 40)), rng.integers(0, 3, 40)
  group = experiment.compute(P, np.zeros(6, bool), y, 3)
  groups = {8: dict.fromkeys(GROUPS, group)}
  numbers = experiment.Numbers(10, groups, experiment.agreement(groups))
  rows = {row.quantity: row for row in experiment.table(numbers, "cifar100")}
  assert rows["test error, DiffInit"][2:4] == ("68.1 %, sd 1 %", "table 3")
  assert rows["CACE of 2, AllDiff"][2:4] == ("—", "—")
  few = experiment.Numbers(10, {8: dict.fromkeys(GROUPS, group._replace(cace={2: group.cace[2]}))}, numbers.agreement)
  assert not any("CACE of 5" in row.quantity for row in experiment.table(few, "cifar100"))
  assert rows["CACE of all, the paper's 100, AllDiff"].paper == "0.1300"


@pytest.mark.parametrize(
  "flags", [("--recipe", "digits_cn"), ("--runs", "1"), ("--epochs", "-1"), ("--set", "widht=0.5"), ("--out", __file__)]
)
def test_mistakes(flags, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  with pytest.raises(SystemExit) as end:
    experiment.main(list(flags))
  assert end.value.code == 2
  out, err = capsys.readouterr()
  assert not out
  assert len(err.splitlines()) == 1
  assert not list(tmp_path.iterdir())


def test_help(capsys, monkeypatch):
  monkeypatch.setenv("COLUMNS", "200")
  with pytest.raises(SystemExit) as end:
    experiment.main(["--help"])
  assert not end.value.code
  text = capsys.readouterr().out
  assert f"python -m experiments.jiang2022.{NAME}" in text
  assert "Jiang 2022, tables 1 and 3" in text
  assert "resnet9_cifar10" in text
