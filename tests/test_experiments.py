"""Sources of randomness and poking with --quick: its numbers against NumPy on the stored runs, its files, its mistakes."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image

import vmapseeds as vs
from experiments import common
from experiments.jordan2024 import poking
from vmapseeds import stats

NAMES = ("randomness_sources", "poking")
RUNS, EXAMPLES = common.QUICK_RUNS, 797


def run(name: str, *flags: str) -> None:
  importlib.import_module(f"experiments.jordan2024.{name}").main(list(flags))


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Path:
  """A folder in which both experiments wrote, sharing their campaigns."""
  folder = tmp_path_factory.mktemp("experiments")
  for name in NAMES:
    run(name, "--quick", "--out", str(folder / name), "--campaigns", str(folder / "campaigns"))
  return folder


def record(quick: Path, name: str) -> dict:
  return json.loads((quick / name / f"{name}.json").read_text())


def stored(quick: Path, epochs: int, suffix: str = "") -> xr.Dataset:
  digits = f"digits_cnn-{epochs}epochs-" + "[0-9a-f]" * 8
  (folder,) = (quick / "campaigns").glob(digits + suffix)
  return vs.open_results(folder)


def wrong(results: xr.Dataset) -> np.ndarray:
  return results.predictions.values != results.labels.values


@pytest.mark.parametrize("name", NAMES)
def test_files(quick, name):
  written = record(quick, name)
  assert written["experiment"] == f"jordan2024.{name}"
  assert written["recipe"]["name"] == "digits_cnn"
  assert (written["quick"], written["runs"]) == (True, RUNS)
  for used in written["campaigns"].values():
    assert (used["runs"], used["diverged"]) == (RUNS, 0)
    assert {"device_kind", "lane_width", "lowering", "versions"} <= set(used)
  assert written["paper"]

  with Image.open(quick / name / f"{name}.png") as image:
    image.load()
    assert min(image.size) > 300
    assert len(image.convert("L").getcolors()) > 20

  table = (quick / name / f"{name}.md").read_text()
  assert "| paper |" in table
  assert "ours ± standard error" in table
  assert "not expected to agree, only the pattern is comparable" in table
  assert f"| {RUNS} |" in table


def test_randomness_sources(quick):
  n = record(quick, "randomness_sources")["numbers"]["1"]
  everything = stored(quick, 1).accuracy.values
  for source in ("init", "order", "augment"):
    runs = stored(quick, 1, f"-{source}")
    fixed = {s for s in ("init", "order", "augment") if len(set(runs[f"seed_{s}"].values)) == 1}
    assert fixed == {"init", "order", "augment"} - {source}
    accuracy = runs.accuracy.values
    assert n[source]["accuracy"]["sd"] == pytest.approx(accuracy.std(ddof=1))
    assert n[source]["ratio"] == pytest.approx(accuracy.var(ddof=1) / everything.var(ddof=1))
  assert n["all"]["ratio"] == 1


def test_poking(quick):
  first, later = record(quick, "poking")["numbers"]
  assert (first["step"], first["steps"], later["step"]) == (0, 31, 15)
  unpoked = stored(quick, 1).predictions.values
  for n in (first, later):
    poked = stored(quick, 1, f"-poke{n['step']}")
    assert (poked.poke_step.values == n["step"]).all()
    np.testing.assert_array_equal(poked.seed_init.values, np.arange(RUNS))
    differ = (poked.predictions.values != unpoked).mean(1)
    np.testing.assert_allclose(n["matched_pairs"], differ)
    assert n["matched"] == pytest.approx(differ.mean())
  distinct = [(unpoked[a] != unpoked[b]).mean() for a in range(RUNS) for b in range(a)]
  assert first["distinct"] == pytest.approx(np.mean(distinct))


def test_mean_disagreement_is_that_of_all_pairs():
  predictions = np.random.default_rng(2).integers(-1, 3, (7, 50))
  matrix = stats.disagreement_matrix(predictions)
  np.testing.assert_allclose(poking.mean_disagreement(predictions), matrix.sum(1) / 6)


MISTAKES = {
  "unknown recipe": ("--recipe", "digits_cn"),
  "no runs": ("--runs", "0"),
  "one run": ("--runs", "1"),
  "unknown flag": ("--seed-bach", "4"),
  "not a number": ("--runs", "many"),
  "negative duration": ("--epochs", "-1"),
  "no seed batch": ("--seed-batch", "0"),
  "no lanes": ("--lane-width", "0"),
  "unknown field": ("--set", "widht=0.5"),
  "no value": ("--set", "width"),
  "bad value": ("--set", "width=-1"),
  "file for a folder": ("--out", __file__),
}


@pytest.mark.parametrize("flags", MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("name", NAMES)
def test_mistakes(name, flags, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(vs, "train", lambda *_, **__: pytest.fail("trained"))
  with pytest.raises(SystemExit) as end:
    run(name, *flags)
  assert end.value.code == 2
  out, err = capsys.readouterr()
  assert not out
  assert len(err.splitlines()) == 1
  assert flags[-1].split("=")[0] in err or flags[0] in err
  assert not list(tmp_path.iterdir())


def test_poking_needs_training(tmp_path, capsys):
  with pytest.raises(SystemExit) as end:
    run("poking", "--epochs", "0", "--out", str(tmp_path / "out"), "--campaigns", str(tmp_path / "campaigns"))
  assert end.value.code == 2
  assert "--epochs is 0" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_help_describes_every_flag(name, capsys, monkeypatch):
  monkeypatch.setenv("COLUMNS", "200")
  with pytest.raises(SystemExit) as end:
    run(name, "--help")
  assert not end.value.code
  text = capsys.readouterr().out
  assert f"python -m experiments.jordan2024.{name}" in text
  assert "Jordan 2023/24" in text
  assert "resnet9_cifar10" in text
  for flag in ("recipe", "epochs", "runs", "seed-batch", "set", "out", "campaigns", "quick"):
    (line,) = (line for line in text.splitlines() if line.strip("│ ").startswith(f"--{flag} "))
    assert "(default:" in line
    assert len(line.split()) > 6


def test_as_a_program(tmp_path):
  command = [sys.executable, "-m", "experiments.jordan2024.poking", "--recipe", "nothing"]
  ended = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
  assert ended.returncode == 2
  assert len(ended.stderr.splitlines()) == 1
  assert "Traceback" not in ended.stderr


def setting(recipe: vs.Recipe, tmp_path: Path) -> common.Setting:
  return common.Setting(
    paper="jordan2024", experiment="x", recipe=recipe, epochs=(), runs=2, options=vs.Options(seed_batch=1), out=tmp_path,
    campaigns=tmp_path, quick=False, used={},
  )  # fmt: skip


def test_durations_stand_beside_each_other(tmp_path):
  spread = common.spread(np.eye(2, dtype=bool))

  def pairs(recipe, epochs):
    numbers = dict.fromkeys(epochs, spread)
    paper = {4: 0.5, 64: None}
    rows = common.rows(setting(vs.recipe(recipe), tmp_path), numbers, "q", "w", paper, lambda n: "ours")
    return [(row.epochs, row.paper, row.ours) for row in rows]

  assert pairs("digits_cnn", (1, 16)) == [("4 / 1", "50 %", "ours"), ("64 / 16", "not given", "ours")]
  assert pairs("digits_cnn", (4,)) == [("4 / 4", "50 %", "ours"), ("64 / —", "not given", "—")]
  assert pairs("resnet9_cifar10", (16, 64)) == [
    ("4 / —", "50 %", "—"),
    ("— / 16", "—", "ours"),
    ("64 / 64", "not given", "ours"),
  ]


ROWS = [
  common.Row("variance of initialisation over that of the training set", "4 / 1", "0.45 %", "figure 1", "0.00123", 16),
  common.Row("variance of initialisation over that of the training set", "64 / 16", "0.16 %", "figure 1", "∞", 16),
  common.Row("correlation", "64 / 16", "not given", "appendix D.1", "0.123456789 ± 0.000000012", 16),
]


@pytest.mark.parametrize("columns", ["20", "80", "300"])
def test_words_and_numbers_stay_whole_in_a_pipe_and_the_papers_stand_below_the_figure(
  columns, tmp_path, monkeypatch, capsys
):
  monkeypatch.setenv("COLUMNS", columns)
  drawn = []
  common.write(setting(vs.recipe("digits_cnn"), tmp_path), {}, {}, ROWS, "", lambda _, axes: drawn.extend(axes), panels=1)
  words = capsys.readouterr().out.replace("│", " ").replace("┃", " ").split()
  assert not {word for row in (common.HEAD, *ROWS) for cell in row for word in str(cell).split()} - {*words}
  said = drawn[0].figure.get_supxlabel().replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")
  assert said == f"The paper. {ROWS[0].quantity}: 0.45 % (4 epochs), 0.16 % (64 epochs)."


def test_the_papers_values_of_one_duration():
  rows = [ROWS[1], ROWS[1], common.Row("sd", "64 / —", "22", "", "", 2), ROWS[2]]
  expected = f"The paper, 64 epochs. {ROWS[0].quantity}: 0.16 %; sd: 22."
  assert common.of_paper(rows).replace("\N{NO-BREAK SPACE}", " ") == expected
  assert common.of_paper(ROWS[2:]) == common.of_paper([]) == ""
  assert common.of_paper([common.Row("ρ", "— / 1", "0.5", "", "", 2)]) == "The paper. ρ: 0.5."


@pytest.mark.parametrize(
  ("name", "changes", "papers"),
  [
    ("resnet9_cifar10", {"epochs": 4}, True),
    ("resnet9_cifar10_published", {}, True),
    ("resnet9_cifar10", {"width": 0.25}, False),
    ("digits_cnn", {}, False),
  ],
)
def test_only_the_papers_recipe_promises_values(name, changes, papers, tmp_path):
  given = setting(vs.recipe(name, **changes), tmp_path)
  assert given.is_papers == papers
  assert ("Ours is the paper's recipe" in common.note(given, "p")) == papers


@pytest.mark.parametrize(
  ("value", "se", "text"),
  [
    (0.00149, 0.000043, "0.1490 ± 0.0043 %"),
    (0.5, None, "50 %"),
    (np.nan, 0.1, "—"),
    (0.25, 0.0, "25.00 ± 0.00 %"),
    (-0.0001, 0.01, "0.0 ± 1.0 %"),
  ],
)
def test_percent(value, se, text):
  assert common.percent(value, se) == text
