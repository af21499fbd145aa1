"""The command line: what it prints, and one line with status 2 for a mistake."""

import ast
import importlib
import importlib.metadata
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import test_campaign

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.campaign import loop
from vmapseeds.training.recipes import RECIPES


def run(capsys, *argv):
  """(exit status, stdout, stderr) of `vmapseeds argv`."""
  try:
    cli.main([str(a) for a in argv])
    status = 0
  except SystemExit as end:
    status = end.code or 0
  return status, *capsys.readouterr()


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    ([], "Expected one of {demo, train, work, verify, replay, merge, import, report, compare, recipes, bench}"),
    (["trian"], "Unrecognized options: trian"),
    (["train"], "Missing from vmapseeds train: RECIPE"),
    (["train", "digits_cnn"], "--out DIR"),
    (["train", "digit_cnn", "--out", "{}"], "unknown recipe 'digit_cnn'"),
    (["train", "digits_cnn", "--out", "{}", "--runs", "0"], "runs is 0: give a whole number of at least 1"),
    (["train", "digits_cnn", "--out", "{}", "--runs", "many"], "--runs is 'many': give a whole number"),
    (["train", "digits_cnn", "--out", "{}", "--seed-batch", "1.5"], "error: --seed-batch is '1.5': give a whole number"),
    (["bench", "digits_cnn", "--widths", "1", "wide"], "error: --widths is '1', 'wide': give a whole number"),
    (["compare", "{}", "{}", "--gamma", "x"], "error: --gamma is 'x': give a number"),
    (["bench", "digits_cnn", "--set", "batch_size=100000000"], "batch_size 100000000 with 1000 training examples"),
    (["train", "digits_cnn", "--out", "{}", "--rums", "3"], "Unrecognized options: --rums"),
    (["train", "digits_cnn", "--out", "{}", "--vary", "ordr"], "unknown source of randomness 'ordr'"),
    (["train", "digits_cnn", "--out", "{}", "--set", "epochs"], "--set epochs: write FIELD=VALUE"),
    (["train", "digits_cnn", "--out", "{}", "--set", "epoch=1"], "did you mean 'epochs'?"),
    (["train", "digits_cnn", "--out", "{}", "--set", "epochs=x"], "epochs is 'x': give a whole number"),
    (["train", "digits_cnn", "--out", "{}", "--set", "dataset=no_such_set"], "no_such_set"),
    (["train", "digits_cnn", "--out", "{}", "--set", "dataset=no.npz"], "no.npz"),
    (["train", "digits_cnn", "--out", "{}", "--set", "test_sets=exam"], "unknown test set 'exam'"),
    (["train", "digits_cnn", "--out", "{}", "--seed-batch", "0"], "seed batch is 0"),
    (["train", "digits_cnn", "--out", "{}", "--checkpoint-every", "0"], "checkpoint_every is 0: give a whole number"),
    (["train", "digits_cnn", "--out", "{}", "--lane-width", "0"], "lane width is 0"),
    (["train", "digits_cnn", "--out", "{}", "--lane-width", "300"], "lane width 300 with 256 runs"),
    (["train", "digits_cnn", "--out", "{}", "--lane-width", "9", "--seed-batch", "8"], "lane width 9 with seed batch 8"),
    (["train", "digits_cnn", "--out", "{}", "--lowering", "im2row"], "unknown lowering 'im2row'"),
    (["train", "digits_cnn", "--out", "{}", "--set", "lr=1", "--set", "lr=2"], "--set gives lr twice, 1 and 2: give it once"),
    (["train", "digits_cnn", "--out", "{}", "--set", "lr=1", "lr=2"], "--set gives lr twice, 1 and 2: give it once"),
    (["train", "digits_cnn", "--out", "{}", "--runs", "3", "--runs=4"], "--runs is given 2 times: give it once"),
    (["train", "digits_cnn", "--out", "{}", "--lane-width", "1", "--lane_width", "1"], "--lane-width is given 2 times"),
    (["train", "digits_cnn", "--out", "{}", "--first-seed", "-1"], "seed is -1: give a whole number of at least 0"),
    (["train", "digits_cnn", "--out", "{}/a/b", "--set", "width=1000"], "small_cnn of width 1000 has 4,609,"),
    (["bench", "digits_cnn", "--set", "width=1000"], "more than there is memory for, give a smaller width"),
    (["report"], "no DIR given: give one or more results folders"),
    (["report", "{}"], "is no results folder"),
    (["compare", "{}", "{}"], "is no results folder"),
    (["bench", "digits_cnn", "--widths", "0"], "lane width is 0"),
    (["bench", "digits_cnn", "--lowerings", "fast"], "unknown lowering 'fast'"),
    (["bench", "digits_cnn", "--target", "v9"], "unknown target 'v9': choose one of v5e, v6e, v4, v3, v2, h100"),
    (["bench", "digits_cnn", "--json", "no/such/folder/t.json"], "--json no/such/folder/t.json cannot be written (No such"),
    (["demo", "--runs", "0"], "runs is 0"),
  ],
)
def test_a_mistake_is_one_line_and_status_2(argv, message, tmp_path, capsys):
  argv = [a.format(tmp_path / "r") for a in argv]
  if argv[:1] == ["demo"]:
    argv += ["--out", str(tmp_path / "r")]
  status, out, err = run(capsys, *argv)
  assert status == 2
  assert message in err
  assert out == ""
  assert [line for line in err.splitlines() if "epoch, 0 runs" not in line] == [err.splitlines()[-1]]
  assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
  ("argv", "once"),
  [
    (["--set", "lr=0.1", "--set", "epochs=2"], ["--set", "lr=0.1", "epochs=2"]),
    (["--set=lr=0.1", "--runs", "3", "--set", "epochs=2", "lr=0.1", "--quiet"], ["--set", "lr=0.1", "epochs=2", "lr=0.1", "--runs", "3", "--quiet"]),
    (["--vary", "init", "--quiet", "--vary=order", "--vary", "data", "--quiet"], ["--vary", "init", "order", "data", "--quiet"]),
  ],
)  # fmt: skip
def test_a_flag_of_several_values_given_again_adds_to_them(argv, once):
  train = ["digits_cnn", "--out", "r"]
  assert cli.parse(cli.Train, train + argv) == cli.parse(cli.Train, train + once)
  assert cli.parse(cli.Train, [*argv, "--out", "r", "digits_cnn"]).recipe == "digits_cnn"


def test_help_says_what_every_flag_does(capsys):
  for command in ("demo", "train", "work", "verify", "replay", "merge", "import", "report", "compare", "recipes", "bench"):
    status, out, err = run(capsys, command, "--help")
    assert status == 0
    assert f"vmapseeds {command}" in out
    assert "Args" not in out
  status, out, err = run(capsys, "train", "--help")
  for flag in ("--runs", "--seed-batch", "--out", "--vary", "--set", "--lane-width", "--lowering", "--logits", "--checkpoint-every", "--keep-params", "--quiet"):
    assert flag in out


@pytest.mark.parametrize("columns", [30, 80, None])
def test_recipes_are_never_cut(columns, monkeypatch):
  """On terminals of several widths, and in a pipe, where each is a line."""
  monkeypatch.setenv("COLUMNS", str(columns or 80))
  said = io.StringIO()
  said.isatty = lambda: columns is not None
  monkeypatch.setattr(sys, "stdout", said)
  cli.main(["recipes"])
  lines = said.getvalue().splitlines()
  words = " ".join(lines).split()
  for name, (recipe, summary) in RECIPES.items():
    assert {name, recipe.dataset + ",", recipe.model + ",", *summary.split()} <= {*words}
  if columns is None:
    assert [line.split()[0] for line in lines] == list(RECIPES)
  else:
    assert len(lines) > len(RECIPES)
    assert max(map(len, lines)) <= max(columns, 27 + max(map(len, words)))


def test_version_and_module(capsys):
  version = importlib.metadata.version("vmapseeds")
  assert run(capsys, "--version") == (0, f"vmapseeds {version}\n", "")
  assert vs.__version__ == version
  out = subprocess.run([sys.executable, "-m", "vmapseeds", "--version"], capture_output=True, text=True, check=True)
  assert out.stdout == f"vmapseeds {version}\n"


@pytest.mark.parametrize("argv", ["recipes", "--help"])
def test_a_reader_that_has_gone_is_no_error(argv):
  reader, writer = os.pipe()
  os.close(reader)
  ended = subprocess.run([sys.executable, "-m", "vmapseeds", argv], stdout=writer, stderr=subprocess.PIPE)
  os.close(writer)
  assert (ended.returncode, ended.stderr) == (141, b"")


def test_what_trains_nothing_imports_nothing_large():
  program = """
import contextlib, io, sys
import vmapseeds, vmapseeds.training.recipes, vmapseeds.mistakes
from vmapseeds import cli
with contextlib.redirect_stdout(io.StringIO()):
  for argv in (["--help"], ["--version"], ["recipes"], ["train", "--help"]):
    with contextlib.suppress(SystemExit):
      cli.main(argv)
assert type(vmapseeds.recipe) is type(vmapseeds.Recipe.replace), "the module hides the function"
print(*sys.modules)
"""
  out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
  large = {"jax", "flax", "numpy", "scipy", "xarray", "zarr", "fsspec", "matplotlib", "rich.console"}
  assert large & {*out.split()} == set()


def test_type_checkers_see_the_names_that_there_are():
  source = ast.parse(Path(vs.__file__).read_text())
  (block,) = (node for node in source.body if isinstance(node, ast.If))
  seen = {name.name: node.module for node in block.body for name in node.names}
  assert seen.keys() == {*vs.__all__}
  assert seen == {name: f"vmapseeds.{vs._HOME[name]}" if name in vs._HOME else "vmapseeds" for name in vs.__all__}
  for name in vs.__all__:
    assert getattr(vs, name) is not None


def test_train_report_compare(tmp_path, capsys):
  for name, lr in (("a", 0.05), ("b", 0.001)):
    status, out, err = run(
      capsys, "train", "digits_cnn", "--runs", 12, "--set", "epochs=1", f"lr={lr}", "--out", tmp_path / name, "--quiet"
    )
    assert (status, err) == (0, "")
    results = vs.open_results(tmp_path / name)
    assert results.sizes["run"] == 12
    assert f"12 runs in {tmp_path / name}, mean accuracy {results.accuracy.values.mean():.2%}" in out
  status, out, err = run(capsys, "report", tmp_path / "a")
  assert status == 0
  assert (tmp_path / "a" / "report" / "report.html").stat().st_size > 10_000
  status, out, err = run(capsys, "compare", tmp_path / "a", tmp_path / "b")
  assert status == 0
  assert "P(A > B) = 1.000, 95 % interval 1.000 to 1.000, over pairs of runs with the same seeds" in out
  assert "significant and meaningful" in out
  assert "Few runs: 44 pairs" in out
  status, out, err = run(capsys, "compare", tmp_path / "a", tmp_path / "b", "--gamma", "0.4")
  assert (status, err) == (2, "error: gamma is 0.4: give a probability above 0.5 and at most 1\n")


def test_vary_from_the_command_line(tmp_path, capsys):
  run(capsys, "train", "digits_cnn", "--runs", 2, "--set", "epochs=1", "--vary", "init", "order", "--first-seed", 4,
      "--out", tmp_path / "r")  # fmt: skip
  results = vs.open_results(tmp_path / "r")
  assert results.seed_order.values.tolist() == [4, 5]
  assert results.seed_augment.values.tolist() == [0, 0]


def test_demo_trains_and_reports(tmp_path, capsys):
  status, out, err = run(capsys, "demo", "--runs", 6, "--out", tmp_path / "demo")
  assert status == 0
  assert "6/6" in err
  assert vs.Recipe.from_json(vs.open_results(tmp_path / "demo" / "1_epochs").attrs["recipe"]) == test_campaign.RECIPE
  for page in ("", "1_epochs", "16_epochs"):
    assert (tmp_path / "demo" / "report" / page / "report.html").exists()
  assert "distribution" in out.lower()


def test_interrupting_says_how_to_go_on(tmp_path, capsys, monkeypatch):
  def interrupt(*args, **options):
    raise KeyboardInterrupt

  monkeypatch.setattr(loop, "train", interrupt)
  status, out, err = run(capsys, "train", "digits_cnn", "--out", tmp_path / "r")
  assert status == 130
  assert err == "interrupted: what was written stays; the same command goes on from there\n"


def test_bench(capsys, monkeypatch, tmp_path):
  from vmapseeds.campaign import benchmark
  from vmapseeds.lanes import LOWERINGS, choice
  from vmapseeds.training import supervised

  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  monkeypatch.setattr(benchmark, "REPETITIONS", 1)
  monkeypatch.setattr(supervised, "TRIAL_STEPS", 2)
  recipe = vs.recipe("digits_cnn", batch_size=4, model="linear")
  rows = benchmark.bench(recipe, [1])
  assert [row["lowering"] for row in rows] == list(LOWERINGS)
  assert all(row["model_steps_per_second"] > 0 and row["compile_seconds"] > 0 for row in rows)
  (chosen,) = (row for row in rows if row["chosen"])
  assert chosen["model_steps_per_second"] == max(row["model_steps_per_second"] for row in rows)
  out, _ = capsys.readouterr()
  assert "model-steps/s" in out
  assert f"campaigns take {chosen['lowering']}, lane width 1" in " ".join(out.split())

  # Campaigns find it, and what does not fit in memory is a row too.
  task = supervised.supervised(recipe, vs.Runs.independent(1))
  how = benchmark.choose(task, model_steps=1, most=8, shown=False)
  assert how == (chosen["lowering"], 1)
  monkeypatch.setattr(choice, "free_memory", lambda device: 1e4)
  status, out, err = run(
    capsys, "bench", "digits_cnn", "--lowerings", "grouped", "--widths", 1, 2, "--set", "model=linear", "batch_size=4"
  )
  assert (status, out.split().count("no"), err) == (0, 2, "")
