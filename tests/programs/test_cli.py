"""The command line: what it prints, and one line with status 2 for a mistake."""

import ast
import html
import importlib
import importlib.metadata
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from cases import words_of

import vmapseeds as vs
from vmapseeds import cli, commands, flags, removed
from vmapseeds.campaign.options import Options, WorkOptions
from vmapseeds.reports import groups
from vmapseeds.training.names import SOURCES
from vmapseeds.training.recipes import RECIPES


def run(capsys, *argv):
  """(exit status, stdout, stderr) of `vmapseeds argv`."""
  try:
    cli.main([str(a) for a in argv])
    status = 0
  except SystemExit as end:
    status = end.code or 0
  return status, *capsys.readouterr()


def given(*argv):
  """What a command is called with, by name."""
  _, bound, _ = commands.APP.parse_args(argv, exit_on_error=False, print_error=False)
  bound.apply_defaults()
  return bound.arguments


# Those of a recipe's fields, of folders and of files are in test_hostile.py.
TRAINING = {
  "--out": "error: --out has no value: give --out DIR\n",
  "--runs many": "--runs is 'many': give a whole number",
  "--checkpoint-every often": "--checkpoint-every is 'often': give a whole number or auto or never",
  "--checkpoint-every 0": "checkpoint_every is 0: give a whole number",
  "more": "error: unknown flag or word 'more': `vmapseeds train --help` says what there is\n",
  "--rums 3": "error: unknown flag or word '--rums': did you mean --runs? `vmapseeds train --help` says what there is\n",
  # `replay` has a flag --run, but the answer must be about `train`.
  "--run 3": "unknown flag or word '--run': did you mean --runs?",
  "--set lr=1 --set lr=2": "--set gives lr twice, 1 and 2: give it once",
  "--set lr=1 lr=2": "--set gives lr twice, 1 and 2: give it once",
  "--runs 3 --runs=4": "--runs is given several times: give it once",
  "--lane-width 1 --lane_width 1": "--lane_width is given several times",
  "--quiet --quiet": "--quiet is given several times: give it once",
  "--first-seed -1": "seed is -1: give a whole number of at least 0",
  "--sweep lr": "--sweep lr: write NAME=X,Y, e.g. --sweep lr=0.01,0.05",
  "--sweep rate=1,2": "unknown value to sweep 'rate': choose one of lr, momentum, weight_decay",
  "--sweep seeds=1,2": "unknown value to sweep 'seeds'",
  "--sweep lr=0.1,fast": "lr is 'fast': give a number",
  "--sweep lr=0.1,0.1": "lr is swept over 0.1, 0.1: give at least one value, each once",
  "--sweep gamma=0.1,0.2": "digits_cnn does not read gamma: a sweep of it would train the same run",
  "--sweep lr=1,2 --until 'mean_accuracy abs 1%'": "--until with --sweep",
  "--subset 2000": "training subset of 2000 of 1000 examples: give at most 1000",
  "--subset 0": "training subset is 0: give a whole number of at least 1",
  "--bootstrap --subset 9": "--subset with --bootstrap: give one of them",
  "--bootstrap 8 9": "--bootstrap 8 9: give at most one number",
  "--k-fold 4 3 2": "--k-fold 4 3 2: write K or K REPEATS, e.g. --k-fold 5",
  "--stratified": "--stratified without --k-fold: it says how folds are made",
  "--k-fold 4 --bootstrap": "--bootstrap with --k-fold: give one of them",
  "--k-fold 4 --until 'mean_accuracy abs 1%'": "--until with --k-fold",
}
EVERY = "choose one of demo, train, work, verify, replay, merge, import, list, report, compare, sample-size, examples, confusion, recipes"
MISTAKES = {
  "": f"unknown command '': {EVERY}",
  "trian": f"unknown command 'trian': {EVERY}; did you mean 'train'?",
  "train digits_cnn": "error: --out DIR is required: give it; `vmapseeds train",
  "train --out {}": "error: RECIPE is required: give it; `vmapseeds train",
  "train no_such_module:mine --out {}": "'no_such_module:mine' cannot be imported (ModuleNotFoundError: No",
  "train math:pi --out {}": "math:pi is float: give a vs.Recipe",
  "compare {} {} --margin x": "error: --margin is 'x': give a number",
  "examples {} --most hart": "error: --most is 'hart': give hard or mislabelled or split\n",
} | {f"train digits_cnn --out {{}} {more}": said for more, said in TRAINING.items()}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_status_2(command, tmp_path, capsys):
  status, out, err = run(capsys, *words_of(command.format(*[tmp_path / "r"] * 2)))
  assert (status, out) == (2, "")
  assert MISTAKES[command] in err
  assert [line for line in err.splitlines() if "epoch, 0 runs" not in line] == [
    err.splitlines()[-1]
  ]
  assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
  ("argv", "once"),
  [
    (["--set", "lr=0.1", "--set", "epochs=2"], ["--set", "lr=0.1", "epochs=2"]),
    (
      ["--set=lr=0.1", "--runs", "3", "--set", "epochs=2", "lr=0.1", "--quiet"],
      ["--set", "lr=0.1", "epochs=2", "lr=0.1", "--runs", "3", "--quiet"],
    ),
    (
      ["--vary", "init", "--quiet", "--vary=order", "--vary", "data"],
      ["--vary", "init", "order", "data", "--quiet"],
    ),
  ],
)
def test_a_flag_of_several_values_given_again_adds_to_them(argv, once):
  train = ["digits_cnn", "--out", "r"]
  assert given("train", *train, *argv) == given("train", *train, *once)
  assert given("train", *argv, "--out", "r", "digits_cnn")["recipe"] == "digits_cnn"


COMMANDS = [name for name in commands.APP.resolved_commands() if name.isidentifier()]
COMMANDS.append("sample-size")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_what_every_flag_does(command, capsys, monkeypatch):
  monkeypatch.setenv("COLUMNS", "400")  # each flag in a line
  status, out, err = run(capsys, command, "--help")
  assert (status, err) == (0, "")
  assert out.startswith(f"Usage: vmapseeds {command}")
  assert "Args" not in out
  assert "[default: ]" not in out
  for argument in commands.APP[command].assemble_argument_collection(
    parse_docstring=True
  ):
    if argument.name == "*" or not argument.parse:
      continue
    assert re.match(r"\w|\.csv", argument.parameter.help or ""), argument.name
    assert re.search(rf" {argument.name}\b", out)


def test_help_has_sections(capsys):
  _, out, _ = run(capsys, "train", "--help")
  titles = re.findall(r"^╭─ (.*?) ─+╮$", out, re.M)
  assert titles == [
    "Arguments",
    "Parameters",
    "Runs and what varies",
    "Training examples of each run",
    "Who trains",
    "How runs are trained, and what is kept of them",
  ]


def test_help_lists_the_commands(capsys):
  status, out, err = run(capsys, "--help")
  assert (status, err) == (0, "")
  assert out.startswith("usage: vmapseeds COMMAND [flags]\n")
  listed = re.findall(r"^([a-z-]+) +[A-Z].*[a-z]$", out, re.M)
  assert sorted(listed) == sorted(COMMANDS)


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
    assert {name, recipe.dataset + ",", recipe.model + ",", *summary.split()} <= {
      *words
    }
  if columns is None:
    assert [line.split()[0] for line in lines] == list(RECIPES)
  else:
    assert len(lines) > len(RECIPES)
    assert max(map(len, lines)) <= max(columns, 27 + max(map(len, words)))


def test_version_and_module(capsys):
  version = importlib.metadata.version("vmapseeds")
  assert run(capsys, "--version") == (0, f"vmapseeds {version}\n", "")
  assert vs.__version__ == version
  out = subprocess.run(
    [sys.executable, "-m", "vmapseeds", "--version"],
    capture_output=True,
    text=True,
    check=True,
  )
  assert out.stdout == f"vmapseeds {version}\n"


@pytest.mark.parametrize("argv", ["recipes", "--help"])
def test_a_reader_that_has_gone_is_no_error(argv):
  reader, writer = os.pipe()
  os.close(reader)
  buffered = {
    name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
  }
  command = [sys.executable, "-m", "vmapseeds", argv]
  ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=buffered)
  os.close(writer)
  assert (ended.returncode, ended.stderr) == (141, b"")


def test_what_trains_nothing_imports_nothing_large():
  program = """
import contextlib, io, sys
import vmapseeds, vmapseeds.training.recipes, vmapseeds.errors
from vmapseeds import cli
with contextlib.redirect_stdout(io.StringIO()):
  for argv in (["--help"], ["--version"]):
    cli.main(argv)
  assert "cyclopts" not in sys.modules, "the help of a program is not quick"
  for argv in (["recipes"], ["train", "--out", "r"]):
    with contextlib.suppress(SystemExit):
      cli.main(argv)
assert type(vmapseeds.recipe) is type(vmapseeds.Recipe.replace), "the module hides the function"
print(*sys.modules)
"""
  out = subprocess.run(
    [sys.executable, "-c", program], capture_output=True, text=True, check=True
  ).stdout
  large = {*words_of("jax flax numpy scipy xarray zarr fsspec matplotlib")}
  assert large & {*out.split()} == set()


def test_every_public_name_is_there():
  stub = ast.parse(Path(vs.__file__).with_suffix(".pyi").read_text())
  for node in stub.body:
    if isinstance(node, ast.ImportFrom):
      home = importlib.import_module(
        f"vmapseeds.{node.module}" if node.module else "vmapseeds"
      )
      for name in node.names:
        assert name.name == name.asname
        assert getattr(vs, name.name) is getattr(home, name.name)
  assert (
    {"recipe", "train", "open_results", "stats", "Task"} <= {*vs.__all__} <= {*dir(vs)}
  )


def test_train_report_compare(tmp_path, capsys):
  for name, lr in (("a", 0.05), ("b", 0.001)):
    command = f"train digits_cnn --runs 12 --set epochs=1 model=linear lr={lr} --quiet"
    status, out, err = run(capsys, *words_of(command), "--out", tmp_path / name)
    assert (status, err) == (0, "")
    results = vs.open_results(tmp_path / name)
    assert results.sizes["run"] == 12
    assert (
      f"12 runs in {tmp_path / name}, mean accuracy {results.accuracy.values.mean():.2%}"
      in out
    )
  status, out, err = run(capsys, "report", tmp_path / "a")
  assert status == 0
  assert (tmp_path / "a" / "report" / "report.html").stat().st_size > 10_000
  status, out, err = run(capsys, "compare", tmp_path / "a", tmp_path / "b")
  assert status == 0
  assert out.startswith("A is better than B by ")
  assert "a run of A beats one of B in 100 % of pairs (74 to 100 %)." in out
  (page,) = tmp_path.glob("a/report/against_*/*.html")
  text = html.unescape(re.sub(r"<[^>]*>", "", page.read_text()))
  assert "Standard deviation of a run (95" in text


def table(*argv, recipe=None):
  """The columns of the runs table that `vmapseeds train digits_cnn argv` trains."""
  words = given("train", "digits_cnn", "--out", "r", *argv)
  made = words["seeds"].table(recipe or vs.recipe("digits_cnn"), 2)
  made = words["examples"].choose(made)
  return made.sampling, {
    name: column.tolist() for name, column in made.columns().items()
  }


def test_runs_from_the_command_line():
  seeds = {f"seed_{source}": [0, 1] for source in SOURCES}
  assert table() == (None, seeds)
  assert table("--subset", "100") == (("subset", 100), seeds)
  assert table("--bootstrap") == (("bootstrap", None), seeds)
  assert table("--bootstrap", "50") == (("bootstrap", 50), seeds)
  folds = table("--k-fold", "3", "2", "--stratified")
  assert folds[0] == ("stratified_k_fold", 3)
  assert folds[1]["fold"] == [*range(6)] * 2
  assert folds[1]["seed_init"] == [0] * 6 + [1] * 6
  assert table("--k-fold", "3")[0] == ("k_fold", 3)
  swept = table("--sweep", "lr=0.5,0.25", "momentum=0,0.5")[1]
  assert swept["seed_init"] == [0] * 4 + [1] * 4
  assert (
    list(zip(swept["lr"], swept["momentum"], strict=True))
    == [(0.5, 0), (0.5, 0.5), (0.25, 0), (0.25, 0.5)] * 2
  )
  swept = table("--sweep", "lr=0.5,0.25", "--vary", "order", "--first-seed", "7")[1]
  assert swept == seeds | {f"seed_{s}": [0] * 4 for s in SOURCES} | {
    "seed_order": [7, 7, 8, 8],
    "lr": [0.5, 0.25] * 2,
  }
  own = vs.recipe("digits_cnn", values={"temperature": 1})
  assert table("--sweep", "temperature=2,4", recipe=own)[1]["temperature"] == [2, 4] * 2
  assert flags.parse_overrides(["temperature=3"]) == {"temperature": 3}
  assert own.replace(temperature=3).hyperparameters["temperature"] == 3


def test_several_values_of_a_column():
  assert flags.parse_column_values(
    ["lr=0.01,0.05", "momentum=0.9", "lr=1"], "--where"
  ) == {
    "lr": [0.01, 0.05, 1],
    "momentum": [0.9],
  }
  with pytest.raises(vs.UserError, match=r"no run has lr=fast: lr takes 0\.1"):
    groups.select_runs(
      results_of([0.5], lr=("run", [0.1])),
      flags.parse_column_values(["lr=0.1,fast"], "--where"),
    )


def results_of(accuracy, diverged=False, **columns):
  """What `held` and `chosen` read of results."""
  data = {
    "accuracy": ("run", accuracy),
    "diverged": ("run", np.full(len(accuracy), diverged)),
  }
  return xr.Dataset(data, coords=columns)


def test_what_to_do_next(monkeypatch):
  def said(results, folder="r", left=0):
    monkeypatch.setattr(
      "vmapseeds.store.results.Results", lambda _: range(results.sizes["run"] + left)
    )
    return commands.summary_line(results, folder)

  assert said(results_of([0.5, 0.75]), "my runs").endswith(
    "mean accuracy 62.50%; next: vmapseeds report 'my runs'"
  )
  assert said(results_of([0.5]), "my runs", left=3).endswith(
    "; 3 are left: vmapseeds work 'my runs'"
  )
  assert said(results_of([])) == "0 runs in r, no accuracy; next: vs.open_results('r')"
  lost = "2 runs in r, 2 diverged, no accuracy; next: train with a lower lr, in another folder"
  assert said(results_of([np.nan] * 2, diverged=True)) == lost


def options(*argv):
  """The options that a command takes from flags, without defaults."""
  words = given(*argv)
  return commands.options_of(words["flags"], quiet=words["quiet"])


def test_the_options_of_a_campaign_are_those_of_the_command_line():
  train = ["train", "digits_cnn", "--out", "r"]
  few = ["--seed-batch", "4", "--lowering", "im2col", "--logits", "--quiet"]
  assert Options(**options(*train, *few)) == Options(
    seed_batch=4, lowering="im2col", logits=True, progress=False
  )
  assert options(*train) == vars(Options())
  assert options("work", "r") == vars(WorkOptions())
  for text, every in (("3", 3), ("never", "never")):
    made = options("work", "r", "--checkpoint-every", text)
    assert WorkOptions(**made) == WorkOptions(checkpoint_every=every)


@pytest.fixture
def package(tmp_path, monkeypatch):
  """An installed package that names recipes: one that exists, two that are broken, and
  one with a name of ours.
  """
  info = tmp_path / "own_package-1.0.dist-info"
  info.mkdir()
  (info / "METADATA").write_text(
    "Metadata-Version: 2.1\nName: own_package\nVersion: 1.0\n"
  )
  points = (
    "mine = own_package:fast",
    "lost = own_package:slow",
    "odd = own_package",
    "digits_cnn = own_package:fast",
  )
  (info / "entry_points.txt").write_text(
    "\n".join(["[vmapseeds.recipes]", *points, ""])
  )
  (tmp_path / "own_package.py").write_text(
    "import vmapseeds as vs\nfast = vs.recipe('digits_cnn', epochs=1)\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  yield
  sys.modules.pop("own_package", None)


def test_recipes_of_installed_packages(package, capsys):
  status, out, err = run(capsys, "recipes")
  assert (status, err) == (0, "")
  assert [line.split()[0] for line in out.splitlines()] == [
    *RECIPES,
    "mine",
    "lost",
    "odd",
  ]
  assert "own_package:fast, of an installed package" in out
  assert "own_package" not in sys.modules, "listing them imports nothing"
  found = vs.recipe("mine", lr=1)
  assert (found.epochs, found.lr, found.origin) == (1, 1, "own_package:fast")
  assert vs.recipe("digits_cnn") == RECIPES["digits_cnn"][0], (
    "a name of ours stays ours"
  )
  with pytest.raises(
    vs.UserError,
    match=r"unknown recipe 'mime': .*, mine, lost, odd, package.module:name; did you mean 'mine'",
  ):
    vs.recipe("mime")
  for name, why in (
    ("lost", "has no attribute 'slow'"),
    ("odd", "give package.module:attribute"),
  ):
    status, out, err = run(capsys, "train", name, "--out", "r")
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert why in err


def test_the_folder_one_is_in_is_importable(tmp_path, monkeypatch, capsys):
  (tmp_path / "own_recipes.py").write_text(
    "import vmapseeds as vs\nslow = vs.recipe('digits_cnn', epochs=-1)\n"
  )
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, "path", [*sys.path])
  status, out, err = run(capsys, "train", "own_recipes:slow", "--out", "r")
  assert (status, err) == (
    2,
    "error: epochs is -1: give a whole number of at least 0\n",
  )


def test_interrupting_says_how_to_go_on(tmp_path, capsys, monkeypatch):
  def interrupt(*args, **options):
    raise KeyboardInterrupt

  monkeypatch.setattr(vs, "train", interrupt)
  status, out, err = run(capsys, "train", "digits_cnn", "--out", tmp_path / "r")
  assert status == 130
  assert (
    err == "interrupted: what was written stays; rerun the same command to resume\n"
  )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_an_interruption_before_there_is_a_folder_says_so(
  dry, number, tmp_path, capsys, monkeypatch
):
  def measure(*_, **__):
    signal.raise_signal(number)

  monkeypatch.setattr("vmapseeds.campaign.starting.choose_execution", measure)
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  given = "--set", "model=linear", "--runs", 2, "--out", tmp_path / "new" / "r"
  try:
    status, _, err = run(capsys, "train", "digits_cnn", *given, *dry)
  finally:
    signal.signal(signal.SIGINT, before)
  word = {130: "interrupted", 143: "terminated"}[status]
  again = "" if dry else "; run the same command again to begin"
  assert (status, err) == (128 + number, f"{word}: nothing was written{again}\n")
  assert list(tmp_path.iterdir()) == []


LONG = """
import os
import jax, vmapseeds as vs

def advance(data, run, state, first, last):
  jax.debug.callback(lambda: os.write(1, b"begun\\n"))
  return jax.lax.fori_loop(0, 10**9, lambda i, a: jax.numpy.tanh(a @ a), state)

task = vs.Task(
  name="long",
  start=lambda data, run: jax.random.normal(run.key("init"), (64, 64)),
  advance=advance,
  finish=lambda data, run, state: {"sum": state.sum()},
  rounds=1,
  version="1",
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_in_the_middle_of_a_step(number, tmp_path):
  """Which would take hours: Python waits for it at its end."""
  (tmp_path / "module.py").write_text(LONG)
  program = "import signal; from vmapseeds.cli import run; "
  program += "signal.signal(signal.SIGINT, signal.default_int_handler); run()"
  with subprocess.Popen(
    [sys.executable, "-c", program, "train", "module:task", "--out", "r"],
    cwd=tmp_path,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    try:
      assert process.stdout.readline() == "begun\n"
      process.send_signal(number)
      _, err = process.communicate(timeout=30)
    finally:
      process.kill()
  assert process.returncode == 128 + number
  assert err.splitlines()[-1].endswith("rerun the same command to resume")


class Garbage:
  """What is sent a signal while it is collected, where Python ignores exceptions."""

  def __init__(self, number):
    self.number = number

  def __del__(self):
    signal.raise_signal(self.number)


@pytest.mark.parametrize(
  ("number", "status", "said"),
  [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")],
)
def test_a_signal_while_garbage_is_collected_is_not_lost(
  number, status, said, capsys, monkeypatch
):
  def train(*args, **options):
    Garbage(number)
    time.sleep(30)

  monkeypatch.setattr(vs, "train", train)
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  try:
    ended, _, err = run(capsys, "train", "digits_cnn", "--out", "r")
  finally:
    signal.signal(signal.SIGINT, before)
  assert ended == status
  assert err.startswith(f"{said}: ")
  assert err.count("\n") == 1


@pytest.mark.slow
def test_a_dry_run_checks_and_writes_nothing(tmp_path, capsys, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  out = tmp_path / "r"
  small = ["--set", "epochs=1", "model=linear", "--quiet"]
  status, said, err = run(
    capsys, "train", "digits_cnn", "--out", out, "--runs", 7, *small, "--dry-run"
  )
  assert (status, err) == (0, "")
  assert re.fullmatch(
    r"7 runs; \S+ s each, 0:\d\d:\d\d in all; 0.0\d MB on disk\n", said
  )
  assert not out.exists()
  run(capsys, "train", "digits_cnn", "--out", out, "--runs", 4, *small)
  files = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
  more = "train", "digits_cnn", "--out", out, "--runs", 7, "--dry-run", *small
  assert run(capsys, *more)[1].startswith("3 runs; ")
  status, _, err = run(capsys, *more, "--set", "lr=0.3")
  assert status == 2
  assert "its recipe and this one differ in lr: 0.05, 0.3" in err
  assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == files
  until = "--until", "mean_accuracy abs 1%", "--most-runs", 20
  assert run(capsys, *more, *until)[1].startswith("at most 16 runs; ")


COMPLETED = {"re": ["recipes", "replay", "report"], "train --dr": ["--dry-run"]}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_flags(tmp_path, capsys):
  status, out, err = run(capsys, "--print-completion", "bash")
  assert (status, err) == (0, "")
  script = tmp_path / "completions.bash"
  script.write_text(out)
  for line, completed in COMPLETED.items():
    words = f"vmapseeds {line}"
    asked = f"""source {script}; COMP_WORDS=({words}); COMP_CWORD={line.count(" ") + 1}
      $(complete -p vmapseeds | sed "s/.*-F //; s/ .*//"); printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ended = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
    assert sorted(ended.stdout.split()) == completed, ended.stderr


@pytest.mark.parametrize("shell", cli.SHELLS)
def test_completions_are_of_all_commands(shell, capsys):
  status, out, err = run(capsys, "--print-completion", shell)
  assert (status, err) == (0, "")
  assert all(command in out for command in COMMANDS)


@pytest.mark.parametrize(
  ("given", "message"),
  [
    (["ksh"], "unknown shell 'ksh': choose one of bash, zsh, fish"),
    (["bash", "x"], "--print-completion bash x: give one shell"),
  ],
)
def test_completions_that_cannot_be_printed(given, message, capsys):
  status, out, err = run(capsys, "--print-completion", *given)
  assert (status, out) == (2, "")
  assert message in err


def test_what_is_gone_says_what_to_do_instead(capsys):
  status, _, said = run(capsys, "search", "digits_cnn", "--out", "s")
  assert status == 2
  assert said == (
    "error: vmapseeds search is gone: optuna searches over vs.train, as "
    "docs/programs/search.py does\n"
  )
  with pytest.raises(AttributeError, match=r"vmapseeds\.search is gone: optuna sear"):
    vs.search  # noqa: B018
  with pytest.raises(AttributeError, match=r"stats\.decide is gone: in a clone, exper"):
    vs.stats.decide  # noqa: B018
  with pytest.raises(vs.UserError, match="gamma is gone: in a clone"):
    vs.compare("a", "b", gamma=0.9)
  with pytest.raises(AttributeError, match="nothing_of_that_name"):
    vs.nothing_of_that_name  # noqa: B018


@pytest.mark.parametrize("choice", removed.CHOICES)
def test_a_choice_that_is_gone_says_what_to_do_instead(choice, capsys):
  kind, _, name = choice.rpartition(" ")
  said = f"{choice} is gone: {removed.CHOICES[choice]}"
  give = {
    "recipe": lambda: vs.recipe(name),
    "model": lambda: vs.recipe("digits_cnn", model=name),
    "recipe field": lambda: vs.recipe("digits_cnn", **{name: (0, 1)}),
  }
  with pytest.raises(vs.UserError) as mistake:
    give[kind]()
  assert str(mistake.value) == said
  words = {
    "recipe": [name],
    "model": ["digits_cnn", "--set", f"model={name}"],
    "recipe field": ["digits_cnn", "--set", f"{name}=0,1"],
  }
  status, _, printed = run(capsys, "train", *words[kind], "--out", "r")
  assert (status, printed) == (2, f"error: {said}\n")


@pytest.mark.parametrize("flag", removed.FLAGS)
def test_a_flag_that_is_gone_says_what_to_do_instead(flag, capsys):
  status, _, said = run(capsys, "compare", "a", "b", flag, "1")
  assert (status, said) == (2, f"error: {flag} is gone: {removed.FLAGS[flag]}\n")


def test_what_is_gone_is_in_the_documentation():
  page = Path(cli.__file__).parents[1] / "CHANGELOG.md"
  _, gone = page.read_text("utf-8").split("\n### Removed\n")
  for name in (*removed.FLAGS, *(f"vmapseeds {name}" for name in removed.COMMANDS)):
    assert f"`{name}`" in gone
  for name in removed.NAMES:
    assert f"`vs.{name}`" in gone
  for name in removed.STATISTICS:
    assert f"`stats.{name}`" in gone
  for choice in removed.CHOICES:
    assert choice.rpartition(" ")[2] in gone
