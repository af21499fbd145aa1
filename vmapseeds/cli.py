"""The command line: `vmapseeds demo`, `train`, `work`, `verify` and the others that `vmapseeds --help` lists."""

import collections
import contextlib
import dataclasses
import functools
import io
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import tyro
from tyro.conf import Positional, arg

import vmapseeds
from vmapseeds.campaign.options import Options, WorkOptions, hint
from vmapseeds.mistakes import Failure, Mistake, at_least, one_line, one_of
from vmapseeds.training.recipes import RECIPES, from_text, plugins, recipe

Folder = Annotated[str, arg(metavar="DIR")]

Dataset = Annotated[str | None, hint("PATH", "where they were")]


@dataclasses.dataclass(frozen=True)
class Demo:
  """Trains digits_cnn for 1 and for 16 epochs and reports both: half a minute to a minute on two idle CPU cores."""

  out: Folder = "results/demo"
  """folder for the results; started again with the same one, it goes on where it stopped"""

  runs: Annotated[int, arg(metavar="N")] = 256
  """runs of each duration"""

  def run(self) -> None:
    from vmapseeds.campaign import loop
    from vmapseeds.reports.results_page import report
    from vmapseeds.store.files import place
    from vmapseeds.store.folders import check_writable
    from vmapseeds.training.runs import Runs

    runs = Runs.independent(self.runs)
    check_writable(self.out)
    folders = []
    for epochs in (1, 16):
      folders.append(str(place(self.out) / f"{epochs}_epochs"))
      print(f"digits_cnn, {epochs} epoch{'s' * (epochs > 1)}, {self.runs} runs", file=sys.stderr)
      loop.train(recipe("digits_cnn", epochs=epochs), runs, folders[-1])
    report(folders, out=str(place(self.out) / "report"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train(Options):
  """Trains runs of a recipe or a task, or goes on where an earlier call stopped."""

  recipe: Annotated[Positional[str], arg(metavar="RECIPE")]
  """what to train: a name that `vmapseeds recipes` lists, or package.module:name, also of a module in this folder"""

  out: Folder
  """folder for the results; with more runs than it holds, it is extended"""

  runs: Annotated[int, arg(metavar="N")] = 256
  """number of runs in the results; with --sweep, of each combination"""

  first_seed: Annotated[int, arg(metavar="N")] = 0
  """seed of the first run; the others take the seeds after it. Folders of different seeds can be merged"""

  until: Annotated[str | None, hint("'NAME rel X%'", "no more than --runs")] = None
  """train more than --runs, until half the width of a statistic's 95 % interval is at most X, e.g.
  'distribution_variance rel 10%' or 'mean_accuracy abs 0.02%'"""

  most_runs: Annotated[int, arg(metavar="N")] = 100_000
  """with --until, the most runs to train"""

  vary: Annotated[tuple[str, ...], hint("SOURCE", "all vary")] = ()
  """sources of randomness that vary; the others stay fixed. Of a recipe: those of init order augment dropout data that
  it reads; of a task: those that it names"""

  sweep: Annotated[tuple[str, ...], hint("NAME=X,Y", "none")] = ()
  """values to sweep, every combination: e.g. lr=0.01,0.05 momentum=0.8,0.9"""

  subset: Annotated[int | None, hint("N", "all")] = None
  """train each run on N of the training examples, drawn by its data seed"""

  bootstrap: Annotated[tuple[int, ...] | None, hint("[N]", "none")] = None
  """train each run on N training examples, drawn with replacement by its data seed; without N, on as many as there
  are"""

  poke: Annotated[str | None, hint("STEP[:FACTOR]", "none")] = None
  """before training step STEP, counted from 0, multiply one random weight of each run by FACTOR, by default 1.001"""

  set: Annotated[tuple[str, ...], hint("FIELD=VALUE", "none")] = ()
  """fields of the recipe to change, or values of the recipe or the task, e.g. epochs=4 lr=0.25 dataset=cifar10"""

  engine: Annotated[str, arg(metavar="NAME")] = "local"
  """what trains: local, the devices of this machine; or ray, the cluster at RAY_ADDRESS, else one started here"""

  workers: Annotated[int | None, hint("N", "one an accelerator")] = None
  """with --engine ray, the number of workers"""

  coordinator: Annotated[str | None, hint("HOST:PORT", "this process alone")] = None
  """address of process 0, where several hosts train under jax.distributed; needs --processes and --process"""

  processes: Annotated[int | None, hint("N", "none")] = None
  """with --coordinator, the number of processes"""

  process: Annotated[int | None, hint("N", "none")] = None
  """with --coordinator, the number of this process, from 0"""

  progress: tyro.conf.Suppress[bool] = True
  quiet: bool = False
  """print neither progress nor what was chosen"""

  def run(self) -> None:
    from vmapseeds.campaign import hosts, loop, until
    from vmapseeds.campaign.preparing import found

    one_of("engine", self.engine, ("local", "ray"))
    if self.engine == "ray" and self.coordinator:
      raise Mistake("--engine ray with --coordinator: give one of them")
    if self.workers is not None and self.engine != "ray":
      raise Mistake(f"--workers {self.workers} without --engine ray: it says how many workers Ray has")
    wanted = until.Until.parse(self.until) if self.until is not None else None
    if wanted and self.sweep:
      raise Mistake("--until with --sweep: a statistic is of runs of the same values, give one of them")
    host = hosts.checked(self.coordinator, self.processes, self.process)
    if host and not hosts.is_child():
      return hosts.train_as_child(sys.argv[1:], host.coordinator)
    task = found(self.recipe).replace(**overrides(self.set))
    what, how = (task, self.table(task), self.out), options(self, Options)
    if host:
      hosts.join(host)
    trains = loop.train
    if self.engine == "ray":
      from vmapseeds.campaign import ray_engine

      trains = functools.partial(ray_engine.train, workers=self.workers)
    if wanted is None:
      results = trains(*what, **how)
    else:
      results = until.train(*what, wanted, first=self.runs, trains=trains, **how)
    if host:
      hosts.leave(host)
    print(held(results, self.out))

  def table(self, task: Any) -> Any:
    """The runs table."""
    from vmapseeds.training.runs import Runs

    count = self.runs if self.until is None else at_least("most runs", self.most_runs, at_least("runs", self.runs, 1))
    start = self.first_seed
    runs = Runs.vary(self.vary, count, start=start) if self.vary else Runs.independent(count, start=start)
    if swept := pairs(self.sweep, "--sweep", "NAME=X,Y", "lr=0.01,0.05"):
      for name in swept:
        one_of("value to sweep", name, getattr(task, "hyperparameters", task.values))
      columns: Any = {name: [from_text(name, value) for value in text.split(",")] for name, text in swept.items()}
      runs = Runs.sweep(seeds=runs, **columns)
    if self.subset is not None and self.bootstrap is not None:
      raise Mistake("--subset with --bootstrap: give one of them")
    if self.subset is not None:
      runs = runs.subset(self.subset)
    if self.bootstrap is not None:
      if len(self.bootstrap) > 1:
        raise Mistake(f"--bootstrap {' '.join(map(str, self.bootstrap))}: give at most one number")
      runs = runs.bootstrap(*self.bootstrap)
    if self.poke is not None:
      step, _, factor = self.poke.partition(":")
      if not re.fullmatch(r"\d{1,9}", step):
        raise Mistake(f"--poke {self.poke}: write STEP or STEP:FACTOR, e.g. --poke 0:1.001")
      runs = runs.poke(int(step), **({"factor": from_text("factor", factor)} if factor else {}))
    return runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work(WorkOptions):
  """Trains the runs that are left in a folder that `train` began. Several machines may do so at once."""

  folder: Annotated[Positional[str], arg(metavar="DIR")]
  """results folder"""

  blocks: Annotated[str, hint("A:B", "all")] = ":"
  """which blocks: from A up to B, without B"""

  dataset: Dataset = None
  """where the data are now, if they were moved; they must be the same"""

  progress: tyro.conf.Suppress[bool] = True
  quiet: bool = False
  """no progress"""

  def run(self) -> None:
    from vmapseeds.campaign import loop

    found = re.fullmatch(r"(\d{0,9}):(\d{0,9})", self.blocks)
    if not found:
      raise Mistake(f"--blocks {self.blocks!r}: write A:B, A: or :B, e.g. 0:10")
    first, stop = (int(end) if end else None for end in found.groups())
    results = loop.work(self.folder, (first, stop), dataset=self.dataset, **options(self, WorkOptions))
    print(held(results, self.folder))


@dataclasses.dataclass(frozen=True)
class Verify:
  """Says what in a results folder is lost, damaged or foreign. Exit status 1 if anything is."""

  folder: Annotated[Positional[str], arg(metavar="DIR")]
  """results folder"""

  repair: bool = False
  """remove the records of damaged blocks, so that their runs are trained again"""

  def run(self) -> None:
    from vmapseeds.store.verification import verify

    verdict = verify(self.folder, repair=self.repair)
    for what, lines in (("repaired", verdict.repairs), ("note", verdict.notes), ("problem", verdict.problems)):
      for line in lines:
        print(f"{what}: {one_line(line)}")
    if verdict.problems:
      sys.exit(1)
    print(f"sound: {verdict.done} of {verdict.runs} runs are done in {self.folder}")


@dataclasses.dataclass(frozen=True)
class Replay:
  """Trains one run again and says whether its predictions agree bit for bit. Exit status 1 if they do not."""

  folder: Annotated[Positional[str], arg(metavar="DIR")]
  """results folder"""

  run_: Annotated[int, arg(name="run", metavar="N")]
  """which run, from 0"""

  dataset: Dataset = None
  """where the data are now, if they were moved; they must be the same"""

  def run(self) -> None:
    from vmapseeds.campaign.replaying import replay
    from vmapseeds.store.layout import ours

    again = replay(self.folder, self.run_, dataset=self.dataset)
    sets = ours(self.folder)["test_sets"]
    for name, differing in again.differing.items():
      agree = f"differ in {differing} of" if differing else "agree bit for bit on all"
      what, unit = (f"test set {name}: {again.compared}", "examples") if sets else (f"{name}: its numbers", "entries")
      unit = "halves of the examples" if again.compared == "half_errors" else unit
      print(f"run {again.run}, {what} {agree} {again.examples[name]} {unit}")
    if not again.same:
      sys.exit(1)


@dataclasses.dataclass(frozen=True)
class Merge:
  """Makes one results folder of several whose runs were trained apart. The runs keep the order of the folders."""

  folders: Annotated[Positional[tuple[str, ...]], arg(metavar="DIR")]
  """results folders of one recipe"""

  out: Folder
  """folder for all the runs, new or empty; a run that several folders hold is taken once"""

  force_mixed: bool = False
  """merge even where recipe, versions, device kind, lane width, lowering or precision differ"""

  quiet: bool = False
  """no progress bar"""

  def run(self) -> None:
    from vmapseeds.results.merging import merge
    from vmapseeds.store.results import Results

    try:
      results = merge(self.folders, self.out, force_mixed=self.force_mixed, progress=not self.quiet)
    except KeyboardInterrupt:
      raise KeyboardInterrupt("nothing was written") from None
    print(held(results, self.out, len(Results(self.out)) - results.sizes["run"]))


@dataclasses.dataclass(frozen=True)
class Import:
  """Makes a results folder from runs trained elsewhere, for report and compare."""

  labels: Annotated[Path, arg(metavar="Y.npy")]
  """the true classes, (examples,)"""

  out: Folder
  """folder for the results, new or empty"""

  predictions: Annotated[Path | None, arg(metavar="P.npy", help_behavior_hint="(or --logits)")] = None
  """predicted classes, (runs, examples), -1 for none"""

  logits: Annotated[Path | None, arg(metavar="L.npy", help_behavior_hint="(or --predictions)")] = None
  """logits, (runs, examples, classes), of any size: they are read a block of runs at a time"""

  keep_logits: bool = False
  """keep logits beside predictions"""

  classes: Annotated[int | None, hint("N", "those of the logits, or up to the highest that occurs")] = None
  """number of classes"""

  name: Annotated[str | None, hint("NAME", "the name of the file")] = None
  """name of these runs in reports"""

  quiet: bool = False
  """no progress bar"""

  def run(self) -> None:
    from vmapseeds.results import imports

    try:
      results = imports.import_runs(
        self.out, predictions=self.predictions, logits=self.logits, labels=self.labels, num_classes=self.classes,
        keep_logits=self.keep_logits, name=self.name, progress=not self.quiet,
      )  # fmt: skip
    except KeyboardInterrupt:
      raise KeyboardInterrupt("nothing was written") from None
    runs, examples = results.sizes["run"], results.sizes["example"]
    print(
      f"{runs} runs on {examples} examples of {results.attrs['num_classes']} classes in {self.out}, mean accuracy "
      f"{results.accuracy.values.mean():.2%}; next: vmapseeds report {self.out}"
    )


@dataclasses.dataclass(frozen=True)
class Report:
  """Prints the statistics of results and writes pages with every number and figure.

  Runs of different swept values are reported apart, a row and a page each. Several folders are set side by side too.
  """

  folders: Annotated[Positional[tuple[str, ...]], arg(metavar="DIR")]
  """results folders"""

  by: Annotated[tuple[str, ...], hint("COLUMN", "all that are swept")] = ()
  """columns of the runs table that group the runs, e.g. lr or seed_init; runs are pooled over all other columns"""

  where: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs")] = ()
  """take only the runs with these values, e.g. lr=0.02 momentum=0.9; a column may have several"""

  test_set: Annotated[str, arg(metavar="NAME")] = "test"
  """which test set"""

  epoch: Annotated[int | None, hint("N", "the end of the training")] = None
  """take what was measured after this epoch, of runs that were trained with evaluate_every"""

  out: Annotated[str | None, hint("DIR", "report in each DIR; side by side: report/side_by_side in the first")] = None
  """folder for the pages"""

  def run(self) -> None:
    from vmapseeds.reports import groups
    from vmapseeds.reports.results_page import report

    where = groups.parsed(self.where, "--where")
    if not self.folders:
      raise Mistake("no DIR given: give one or more results folders that `vmapseeds train` or `import` made")
    report(self.folders, by=self.by or None, where=where, test_set=self.test_set, epoch=self.epoch, out=self.out)


@dataclasses.dataclass(frozen=True)
class Compare:
  """Says whether runs A outperform runs B: P(A > B), its interval and the decision; writes a page of it.

  To compare runs of one folder: vmapseeds compare DIR --where lr=0.02 --against lr=0.05
  """

  a: Annotated[Positional[str], arg(metavar="DIR_A")]
  """results of A"""

  b: Annotated[Positional[str | None], hint("DIR_B", "DIR_A")] = None
  """results of B"""

  where: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs of DIR_A")] = ()
  """take only the runs of A with these values, e.g. lr=0.02 momentum=0.9"""

  against: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs of DIR_B")] = ()
  """take only the runs of B with these values"""

  gamma: float = 0.75
  """P(A > B) from which a difference is meaningful"""

  test_set: Annotated[str, arg(metavar="NAME")] = "test"
  """which test set"""

  epoch: Annotated[int | None, hint("N", "the end of the training")] = None
  """take what was measured after this epoch, of runs that were trained with evaluate_every"""

  paired: bool = False
  """pair the runs row by row; without this flag, runs of the same seeds are pairs, if most have one"""

  out: Annotated[str | None, hint("DIR", "report/against_<B> in DIR_A")] = None
  """folder for the page"""

  def run(self) -> None:
    from vmapseeds.reports import groups
    from vmapseeds.reports.comparison_page import compare

    compare(
      self.a, self.b, where=groups.parsed(self.where, "--where"), against=groups.parsed(self.against, "--against"),
      gamma=self.gamma, test_set=self.test_set, epoch=self.epoch, paired=self.paired or None, out=self.out,
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Recipes:
  """Lists the recipes: those built in, and those that installed packages add."""

  def run(self) -> None:
    # A file or another program gets a line a recipe.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    lines = {name: f"{r.dataset}, {r.model}, {r.epochs} epochs: {said}" for name, (r, said) in RECIPES.items()}
    lines |= {one_line(name): one_line(f"{text}, of an installed package") for name, text in plugins().items()}
    column = max(map(len, lines)) + 2
    for name, said in lines.items():
      line = f"{name:<{column}}{said}"
      print(textwrap.fill(line, width, subsequent_indent=" " * column, break_long_words=False, break_on_hyphens=False))


@dataclasses.dataclass(frozen=True)
class Bench:
  """Measures model-steps a second on this machine, for each lowering and lane width; campaigns take the fastest.

  With --target it compiles for a device that need not be here, and shows what its compiler estimates."""

  recipe: Annotated[Positional[str], arg(metavar="RECIPE")] = "digits_cnn"
  """the recipe whose training step is timed, on random images"""

  lowerings: Annotated[tuple[str, ...], hint("NAME", "all")] = ()
  """how convolutions run their lanes: im2col, grouped, sequential"""

  widths: Annotated[tuple[int, ...], hint("W", "those that campaigns try")] = ()
  """lane widths"""

  target: Annotated[str | None, hint("NAME", "the devices that are here")] = None
  """device to compile for: v5e, v6e, v4, v3, v2 or h100; takes minutes and needs `pip install 'vmapseeds[aot]'`"""

  json: Annotated[Path | None, hint("FILE", "none")] = None
  """also write the table to FILE, as the `candidates` of a JSON object"""

  set: Annotated[tuple[str, ...], hint("FIELD=VALUE", "none")] = ()
  """recipe fields to change"""

  def run(self) -> None:
    import json

    import jax

    from vmapseeds.campaign import benchmark

    what = recipe(self.recipe, **overrides(self.set))
    if self.json is not None:
      try:
        self.json.open("a").close()
      except OSError as error:
        raise Mistake(f"--json {self.json} cannot be written ({error.strerror}): give another file") from None
    if self.target is not None:
      # Nothing runs: a device that is here need not start.
      jax.config.update("jax_platforms", "cpu")
    rows = benchmark.bench(what, self.widths, self.lowerings, target=self.target)
    if self.json is not None:
      record = {"recipe": what.name, "target": self.target or "here", "candidates": rows}
      self.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def options(given: "Train | Work", kind: type[WorkOptions]) -> dict[str, Any]:
  """The options of a command, by their names."""
  names = (field.name for field in dataclasses.fields(kind))
  return {name: getattr(given, name) for name in names} | {"progress": not given.quiet}


def held(results: Any, folder: str, left: int = 0) -> str:
  """What a folder holds and what to do with it, in a line."""
  said, following = f"{results.sizes['run']} runs in {folder}", f"next: vs.open_results({folder!r})"
  if "diverged" in results and results.diverged.any():
    said += f", {int(results.diverged.sum())} diverged"
  if {"accuracy", "diverged"} <= {*results.variables}:
    accuracy = results.accuracy.values[~results.diverged.values]
    said += f", mean accuracy {accuracy.mean():.2%}" if len(accuracy) else ", no accuracy"
    following = f"next: vmapseeds report {folder}"
  return f"{said}; {f'{left} are left: vmapseeds work {folder}' if left else following}"


def pairs(given: Sequence[str], flag: str, form: str, example: str) -> dict[str, str]:
  """The texts of `NAME=TEXT ...` by their names."""
  texts: dict[str, str] = {}
  for pair in given:
    name, equals, text = pair.partition("=")
    if not equals:
      raise Mistake(f"{flag} {pair}: write {form}, e.g. {flag} {example}")
    if texts.setdefault(name, text) != text:
      raise Mistake(f"{flag} gives {name} twice, {texts[name]} and {text}: give it once")
  return texts


def overrides(settings: Sequence[str]) -> dict[str, Any]:
  """The recipe fields of `--set field=value ...`."""
  return {field: from_text(field, text) for field, text in pairs(settings, "--set", "FIELD=VALUE", "epochs=4").items()}


def parse(target: Any, argv: Sequence[str] | None = None, **words: str) -> Any:
  """`argv` parsed as `target`, a dataclass or a union of some; a flag that does not fit becomes a `Mistake`.

  A flag of several values may be given several times. tyro would take the last and drop the others. `words` are `prog`
  and `description` of the help.
  """
  argv = list(sys.argv[1:] if argv is None else argv)
  for given in argv:
    # A file name has no null character, and what is no UTF-8 cannot be written into results.
    if "\0" in given or (not given.isascii() and given != given.encode(errors="replace").decode()):
      raise Mistake(f"argument {given!r} holds a null character or is no UTF-8: rename it")
  parsed = _parsed(target, argv, **words)
  flags = collections.Counter(_flag(word) for word in argv if word.startswith("--"))
  repeated = [flag for flag, times in flags.items() if times > 1]
  for flag in repeated:
    if not isinstance(getattr(parsed, flag[2:].replace("-", "_"), None), tuple | bool):
      raise Mistake(f"{flag} is given {flags[flag]} times: give it once")
  return _parsed(target, _collected(argv, repeated), **words) if repeated else parsed


def _flag(word: str) -> str:
  return word.partition("=")[0].replace("_", "-")


def _collected(argv: list[str], flags: Sequence[str]) -> list[str]:
  """`argv` with all values of each of these flags behind the first of it."""
  groups: dict[str | int, list[str]] = {"": []}
  current = groups[""]
  for i, word in enumerate(argv):
    if not word.startswith("--"):
      current.append(word)
    elif (flag := _flag(word)) in flags:
      current = groups.setdefault(flag, [flag])
      current += word.partition("=")[2:] if "=" in word else []
    else:
      current = groups[i] = [word]
  return [word for group in groups.values() for word in group]


def _flags(target: Any, command: Sequence[str], **words: Any) -> list[str]:
  """The flags that the help of a command lists."""
  with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.suppress(SystemExit):
    _tyro(target, [*command, "--help"], **words)
  return re.findall(r"^[│ ]*(--\w[\w-]*)", shown.getvalue(), re.MULTILINE)


def _tyro(target: Any, argv: Sequence[str], **words: Any) -> Any:
  return tyro.cli(target, args=argv, config=(tyro.conf.FlagCreatePairsOff,), **words)


def _parsed(target: Any, argv: list[str], **words: Any) -> Any:
  said = io.StringIO()
  # tyro draws boxes as wide as the terminal; a mistake is one line here, so only help may be wrapped.
  wide = {} if {"-h", "--help"} & set(argv) else {"COLUMNS": "2000"}
  try:
    with contextlib.redirect_stderr(said), mock.patch.dict(os.environ, wide):
      return _tyro(target, argv, **words)
  except SystemExit as end:
    if not end.code:
      raise
  # A text that tyro cannot read as a number, in each of its wordings.
  flag = re.search(r"Error parsing (--[\w-]+):", said.getvalue())
  value = re.search(r"(?:base 10: |to float: |arguments: \[|from \[)('[^\]\n]*')", said.getvalue())
  if flag and value:
    raise Mistake(f"{flag[1]} is {value[1]}: give a {'' if 'to float' in said.getvalue() else 'whole '}number")
  if unknown := re.search(r"Unrecognized[\w ]* options:[│\s]*([^\s,]+)", said.getvalue()):
    commands = [command.__name__.lower() for command in typing.get_args(target)]
    if commands:
      one_of("command", argv[0], commands)
    command = argv[: bool(commands)]
    if unknown[1].startswith("-"):
      one_of(" of ".join(["flag", *command]), unknown[1], _flags(target, command, **words))
    raise Mistake(f"{' '.join([*command, 'takes'])} no further value {unknown[1]!r}: leave it out")
  lines = [line.strip("│╭╮╰╯ ") for line in said.getvalue().splitlines()]
  parts = " ".join("|" if set(line) == {"─"} else line for line in lines if line and not line.startswith("─ "))
  raise Mistake("; ".join(" ".join(part.split()) for part in parts.split("|") if part.strip()))


class Terminated(KeyboardInterrupt):
  """SIGTERM, which ends a program as Ctrl-C does."""


def _terminate(*_) -> None:
  raise Terminated


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
  """Prints a user's mistake as one line on stderr and ends with status 2; so for other ends that need no traceback."""
  try:
    yield
    sys.stdout.flush()
  except BrokenPipeError:  # `vmapseeds recipes | head -1`
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would speak of it when it ends
    sys.exit(141)
  except (Mistake, Failure) as error:
    print(f"error: {one_line(error)}", file=sys.stderr)
    sys.exit(2 if isinstance(error, Mistake) else 1)
  except KeyboardInterrupt as interrupt:
    said = str(interrupt) or "what was written stays; the same command goes on from there"
    terminated = isinstance(interrupt, Terminated)
    print(f"{'terminated' if terminated else 'interrupted'}: {said}", file=sys.stderr)
    sys.exit(143 if terminated else 130)


def main(argv: Sequence[str] | None = None) -> None:
  """The program `vmapseeds`."""
  with mistakes():
    if threading.current_thread() is threading.main_thread():
      signal.signal(signal.SIGTERM, _terminate)
    argv = sys.argv[1:] if argv is None else list(argv)
    if (here := os.getcwd()) not in sys.path:
      sys.path.insert(0, here)  # `package.module:name` may be there, as with `python -m`
    if argv == ["--version"]:
      return print(f"vmapseeds {vmapseeds.__version__}")
    commands = Demo | Train | Work | Verify | Replay | Merge | Import | Report | Compare | Recipes | Bench
    parse(commands, argv, prog="vmapseeds", description=f"{vmapseeds.__doc__} --version says which this is.").run()


if __name__ == "__main__":
  main()
