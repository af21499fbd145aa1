"""The command line: `vmapseeds demo`, `train`, `work`, `verify` and the others that
`vmapseeds --help` lists.
"""

import collections
import contextlib
import functools
import io
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg
from tyro.extras import subcommand_cli_from_dict

import vmapseeds
from vmapseeds.campaign.options import Options, WorkOptions, hint
from vmapseeds.mistakes import Failure, Mistake, at_least, one_line, one_of
from vmapseeds.training.recipes import RECIPES, from_text, plugins

Folder = Annotated[str, arg(metavar="DIR")]
Folders = Annotated[
  Positional[tuple[str, ...]], arg(metavar="DIR", help_behavior_hint="(one or more)")
]
Count = Annotated[int, arg(metavar="N")]
Name = Annotated[str, arg(metavar="NAME")]
Recipe = Annotated[Positional[str], arg(metavar="RECIPE")]
Settings = Annotated[tuple[str, ...], hint("FIELD=VALUE", "none")]
Epoch = Annotated[int | None, hint("N", "the end of the training")]
Dataset = Annotated[str | None, hint("PATH", "where they were")]


def demo(out: Folder = "results/demo", runs: Count = 256) -> None:
  """Trains digits_cnn for 1 and for 16 epochs and reports both: half a minute to a
  minute on two idle CPU cores.

  Args:
    out: folder for the results; started again with the same one, it goes on where it
      stopped
    runs: runs of each duration
  """
  from vmapseeds.campaign import loop
  from vmapseeds.reports.results_page import report
  from vmapseeds.store.files import place
  from vmapseeds.store.folders import check_writable
  from vmapseeds.training.runs import Runs

  seeds = Runs.independent(runs)
  check_writable(out)
  folders = []
  for epochs in (1, 16):
    folders.append(str(place(out) / f"{epochs}_epochs"))
    print(
      f"digits_cnn, {epochs} epoch{'s' * (epochs > 1)}, {runs} runs", file=sys.stderr
    )
    loop.train(vmapseeds.recipe("digits_cnn", epochs=epochs), seeds, folders[-1])
  report(folders, out=str(place(out) / "report"))


def train(
  recipe: Recipe,
  *,
  out: Folder,
  runs: Count = 256,
  first_seed: Count = 0,
  until: Annotated[str | None, hint("'NAME rel X%'", "no more than --runs")] = None,
  most_runs: Count = 100_000,
  vary: Annotated[tuple[str, ...], hint("SOURCE", "all vary")] = (),
  sweep: Annotated[tuple[str, ...], hint("NAME=X,Y", "none")] = (),
  subset: Annotated[int | None, hint("N", "all")] = None,
  bootstrap: Annotated[tuple[int, ...] | None, hint("[N]", "none")] = None,
  poke: Annotated[str | None, hint("STEP[:FACTOR]", "none")] = None,
  set: Settings = (),
  engine: Name = "local",
  workers: Annotated[int | None, hint("N", "one an accelerator")] = None,
  coordinator: Annotated[str | None, hint("HOST:PORT", "this process alone")] = None,
  processes: Annotated[int | None, hint("N", "none")] = None,
  process: Annotated[int | None, hint("N", "none")] = None,
  quiet: bool = False,
  campaign: OmitArgPrefixes[Options],
) -> None:
  """Trains runs of a recipe or a task, or goes on where an earlier call stopped.

  Args:
    recipe: a name that `vmapseeds recipes` lists, or package.module:name, where the
      module may be in this folder
    out: folder for the results; with more runs than it holds, it is extended
    runs: number of runs in the results; with --sweep, of each combination
    first_seed: seed of the first run; the others take the seeds after it. Folders of
      different seeds can be merged
    until: train more than --runs, until half the width of a statistic's 95 % interval
      is at most X, e.g. 'distribution_variance rel 10%' or 'mean_accuracy abs 0.02%'
    most_runs: with --until, the most runs to train
    vary: sources of randomness that vary; the others stay fixed. A recipe has those of
      init order augment dropout data that it uses, a task those that it names
    sweep: values to sweep, in every combination, e.g. lr=0.01,0.05 momentum=0.8,0.9
    subset: train each run on N of the training examples, drawn by its data seed
    bootstrap: train each run on N examples, drawn with replacement by its data seed;
      without N, as many as there are
    poke: before training step STEP, counted from 0, multiply one random weight of each
      run by FACTOR, by default 1.001
    set: fields of the recipe to change, or values of the recipe or the task, e.g.
      epochs=4 lr=0.25 dataset=cifar10
    engine: where to train: local, on this machine's devices; ray, on the cluster at
      RAY_ADDRESS or one started here
    workers: with --engine ray, the number of workers
    coordinator: address of process 0, if several hosts train under jax.distributed;
      needs --processes and --process
    processes: with --coordinator, the number of processes
    process: with --coordinator, the number of this process, from 0
    quiet: print neither progress nor what was chosen
    campaign: how the runs are trained together, and what is kept of them
  """
  from vmapseeds.campaign import hosts, loop
  from vmapseeds.campaign import until as rule
  from vmapseeds.campaign.preparing import found

  one_of("engine", engine, ("local", "ray"))
  if engine == "ray" and coordinator:
    raise Mistake("--engine ray with --coordinator: give one of them")
  if workers is not None and engine != "ray":
    raise Mistake(
      f"--workers {workers} without --engine ray: it says how many workers Ray has"
    )
  wanted = rule.Until.parse(until) if until is not None else None
  if wanted and sweep:
    raise Mistake(
      "--until with --sweep: a statistic is of runs of the same values, give one of them"
    )
  host = hosts.checked(coordinator, processes, process)
  if host and not hosts.is_child():
    return hosts.train_as_child(sys.argv[1:], host.coordinator)
  task = found(recipe).replace(**overrides(set))
  count = (
    runs
    if wanted is None
    else at_least("most runs", most_runs, at_least("runs", runs, 1))
  )
  what = (
    task,
    table(task, count, first_seed, vary, sweep, subset, bootstrap, poke),
    out,
  )
  how = {**vars(campaign), "progress": not quiet}
  if host:
    hosts.join(host)
  trains = loop.train
  if engine == "ray":
    from vmapseeds.campaign import ray_engine

    trains = functools.partial(ray_engine.train, workers=workers)
  results = (
    trains(*what, **how)
    if wanted is None
    else rule.train(*what, wanted, first=runs, trains=trains, **how)
  )
  if host:
    hosts.leave(host)
  print(held(results, out))


def table(
  task: Any,
  runs: int,
  first_seed: int,
  vary: Sequence[str],
  sweep: Sequence[str],
  subset: int | None,
  bootstrap: Sequence[int] | None,
  poke: str | None,
) -> Any:
  """The runs table that these flags of `train` ask for."""
  from vmapseeds.training.runs import Runs

  made = (
    Runs.vary(vary, runs, start=first_seed)
    if vary
    else Runs.independent(runs, start=first_seed)
  )
  if swept := once(sweep, "--sweep", "NAME=X,Y", "lr=0.01,0.05"):
    for name in swept:
      one_of("value to sweep", name, getattr(task, "hyperparameters", task.values))
    columns: Any = {
      name: [from_text(name, value) for value in text.split(",")]
      for name, text in swept.items()
    }
    made = Runs.sweep(seeds=made, **columns)
  if subset is not None and bootstrap is not None:
    raise Mistake("--subset with --bootstrap: give one of them")
  if subset is not None:
    made = made.subset(subset)
  if bootstrap is not None:
    if len(bootstrap) > 1:
      raise Mistake(
        f"--bootstrap {' '.join(map(str, bootstrap))}: give at most one number"
      )
    made = made.bootstrap(*bootstrap)
  if poke is not None:
    step, _, factor = poke.partition(":")
    if not re.fullmatch(r"\d{1,9}", step):
      raise Mistake(f"--poke {poke}: write STEP or STEP:FACTOR, e.g. --poke 0:1.001")
    made = made.poke(
      int(step), **({"factor": from_text("factor", factor)} if factor else {})
    )
  return made


def work(
  folder: Positional[Folder],
  *,
  blocks: Annotated[str, hint("A:B", "all")] = ":",
  dataset: Dataset = None,
  quiet: bool = False,
  campaign: OmitArgPrefixes[WorkOptions],
) -> None:
  """Trains the runs that are left in a folder that `train` began. Several machines may
  do so at once.

  Args:
    folder: results folder
    blocks: which blocks: from A up to but not including B
    dataset: where the data are now, if they were moved; they must be the same
    quiet: no progress
    campaign: how the runs are trained together
  """
  from vmapseeds.campaign import loop

  found = re.fullmatch(r"(\d{0,9}):(\d{0,9})", blocks)
  if not found:
    raise Mistake(f"--blocks {blocks!r}: write A:B, A: or :B, e.g. 0:10")
  first, stop = (int(end) if end else None for end in found.groups())
  how = {**vars(campaign), "progress": not quiet}
  print(held(loop.work(folder, (first, stop), dataset=dataset, **how), folder))


def verify(folder: Positional[Folder], *, repair: bool = False) -> None:
  """Says what in a results folder is lost, damaged or foreign. Exit status 1 if
  anything is.

  Args:
    folder: results folder
    repair: remove the records of damaged blocks, so that their runs are trained again
  """
  from vmapseeds.store.verification import verify

  verdict = verify(folder, repair=repair)
  for what, lines in (
    ("repaired", verdict.repairs),
    ("note", verdict.notes),
    ("problem", verdict.problems),
  ):
    for line in lines:
      print(f"{what}: {one_line(line)}")
  if verdict.problems:
    sys.exit(1)
  print(f"sound: {verdict.done} of {verdict.runs} runs are done in {folder}")


def replay(folder: Positional[Folder], *, run: Count, dataset: Dataset = None) -> None:
  """Trains one run again and says whether its predictions agree bit for bit. Exit
  status 1 if they do not.

  Args:
    folder: results folder
    run: which run, from 0
    dataset: where the data are now, if they were moved; they must be the same
  """
  from vmapseeds.campaign.replaying import replay
  from vmapseeds.store.layout import require_metadata

  again = replay(folder, run, dataset=dataset)
  sets = require_metadata(folder)["test_sets"]
  for name, differing in again.differing.items():
    agree = f"differ in {differing} of" if differing else "agree bit for bit on all"
    what, unit = (
      (f"test set {name}: {again.compared}", "examples")
      if sets
      else (f"{name}: its numbers", "entries")
    )
    unit = "halves of the examples" if again.compared == "half_errors" else unit
    print(f"run {again.run}, {what} {agree} {again.examples[name]} {unit}")
  if not again.same:
    sys.exit(1)


def merge(
  folders: Folders, *, out: Folder, force_mixed: bool = False, quiet: bool = False
) -> None:
  """Makes one results folder of several whose runs were trained separately. The runs
  keep the order of the folders.

  Args:
    folders: results folders of one recipe
    out: folder for all the runs, new or empty; a run that several folders hold is taken
      once
    force_mixed: merge even where recipe, versions, device kind, lane width, lowering or
      precision differ
    quiet: no progress bar
  """
  from vmapseeds.results.merging import merge

  with nothing_written():
    results = merge(folders, out, force_mixed=force_mixed, progress=not quiet)
  print(held(results, out))


def export(
  folder: Positional[Folder],
  out: Annotated[Positional[str], arg(metavar="OUT")],
  *,
  run: Annotated[tuple[int, ...], hint("N", "all")] = (),
) -> None:
  """Writes kept networks as orbax checkpoints, one a run, which any Flax program
  restores.

  Args:
    folder: results folder that was trained with --keep-params
    out: folder for the checkpoints, new or empty
    run: which runs, from 0
  """
  from vmapseeds.results.networks import export_networks

  export_networks(folder, out, run or None)
  count = len(os.listdir(out))
  print(f"{count} network{'s' * (count > 1)} in {out}, as orbax checkpoints")


def import_runs(
  *,
  labels: Annotated[Path, arg(metavar="Y.npy")],
  out: Folder,
  predictions: Annotated[
    Path | None, arg(metavar="P.npy", help_behavior_hint="(or --logits)")
  ] = None,
  logits: Annotated[
    Path | None, arg(metavar="L.npy", help_behavior_hint="(or --predictions)")
  ] = None,
  keep_logits: bool = False,
  classes: Annotated[
    int | None, hint("N", "those of the logits, or up to the highest that occurs")
  ] = None,
  name: Annotated[str | None, hint("NAME", "the name of the file")] = None,
  quiet: bool = False,
) -> None:
  """Makes a results folder from runs trained elsewhere, for report and compare.

  Args:
    labels: the true classes, (examples,)
    out: folder for the results, new or empty
    predictions: predicted classes, (runs, examples), -1 for none
    logits: logits, (runs, examples, classes), of any size: they are read a block of
      runs at a time
    keep_logits: keep logits beside predictions
    classes: number of classes
    name: name of these runs in reports
    quiet: no progress bar
  """
  from vmapseeds.results.imports import import_runs

  with nothing_written():
    results = import_runs(
      out,
      predictions=predictions,
      logits=logits,
      labels=labels,
      num_classes=classes,
      keep_logits=keep_logits,
      name=name,
      progress=not quiet,
    )
  runs, examples = results.sizes["run"], results.sizes["example"]
  print(
    f"{runs} runs on {examples} examples of {results.attrs['num_classes']} classes in {out}, mean accuracy "
    f"{results.accuracy.values.mean():.2%}; next: vmapseeds report {shlex.quote(out)}"
  )


def report(
  folders: Folders = (),
  *,
  by: Annotated[tuple[str, ...], hint("COLUMN", "all that are swept")] = (),
  where: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs")] = (),
  test_set: Name = "test",
  epoch: Epoch = None,
  out: Annotated[
    str | None,
    hint("DIR", "report in each DIR; side by side: report/side_by_side in the first"),
  ] = None,
) -> None:
  """Prints the statistics of results and writes pages with every number and figure.

  Each combination of swept values has its own row and page. Several folders are also
  set side by side.

  Args:
    folders: results folders
    by: columns of the runs table that group the runs, e.g. lr or seed_init; runs are
      pooled over all other columns
    where: take only the runs with these values, e.g. lr=0.02,0.05 momentum=0.9
    test_set: which test set
    epoch: report the results after this epoch, for runs trained with evaluate_every
    out: folder for the pages
  """
  from vmapseeds.reports.results_page import report

  report(
    folders,
    by=by or None,
    where=values(where, "--where"),
    test_set=test_set,
    epoch=epoch,
    out=out,
  )


def compare(
  a: Annotated[Positional[str], arg(metavar="DIR_A")],
  b: Annotated[Positional[str | None], hint("DIR_B", "DIR_A")] = None,
  *,
  where: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs of DIR_A")] = (),
  against: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs of DIR_B")] = (),
  gamma: float = 0.75,
  test_set: Name = "test",
  epoch: Epoch = None,
  paired: bool = False,
  out: Annotated[
    str | None, hint("DIR", "report/<test set, epoch, where>/against_<B> in DIR_A")
  ] = None,
) -> None:
  """Says whether runs A outperform runs B: P(A > B), its interval and the decision.
  Writes a page about it.

  To compare runs of one folder: vmapseeds compare DIR --where lr=0.02 --against lr=0.05

  Args:
    a: results of A
    b: results of B
    where: take only the runs of A with these values, e.g. lr=0.02,0.05 momentum=0.9
    against: take only the runs of B with these values
    gamma: P(A > B) from which a difference is meaningful
    test_set: which test set
    epoch: compare the results after this epoch, for runs trained with evaluate_every
    paired: pair the runs row by row; without this flag, runs with the same seeds are
      paired if most runs have a partner
    out: folder for the page
  """
  from vmapseeds.reports.comparison_page import compare

  compare(
    a,
    b,
    where=values(where, "--where"),
    against=values(against, "--against"),
    gamma=gamma,
    test_set=test_set,
    epoch=epoch,
    paired=paired or None,
    out=out,
  )


def recipes() -> None:
  """Lists the recipes: those built in, and those that installed packages add."""
  # A file or another program gets one line per recipe.
  width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
  lines = {
    name: f"{r.dataset}, {r.model}, {r.epochs} epochs: {said}"
    for name, (r, said) in RECIPES.items()
  }
  lines |= {
    one_line(name): one_line(f"{text}, of an installed package")
    for name, text in plugins().items()
  }
  column = max(map(len, lines)) + 2
  for name, said in lines.items():
    line = f"{name:<{column}}{said}"
    print(
      textwrap.fill(
        line,
        width,
        subsequent_indent=" " * column,
        break_long_words=False,
        break_on_hyphens=False,
      )
    )


def bench(
  recipe: Recipe = "digits_cnn",
  *,
  lowerings: Annotated[tuple[str, ...], hint("NAME", "all")] = (),
  widths: Annotated[tuple[int, ...], hint("W", "those that campaigns try")] = (),
  target: Annotated[str | None, hint("NAME", "the devices that are here")] = None,
  json: Annotated[Path | None, hint("FILE", "none")] = None,
  set: Settings = (),
) -> None:
  """Measures model-steps per second on this machine, for each lowering and lane width;
  campaigns take the fastest.

  With --target it compiles for a device that this machine need not have, and shows the
  compiler's estimates.

  Args:
    recipe: the recipe whose training step is timed, on random images
    lowerings: how convolutions run their lanes: im2col, grouped, sequential
    widths: lane widths
    target: device to compile for: v5e, v6e, v4, v3, v2 or h100; takes minutes and needs
      `pip install 'vmapseeds[aot]'`
    json: also write the table to FILE, as the `candidates` of a JSON object
    set: recipe fields to change
  """
  from json import dumps

  import jax

  from vmapseeds.campaign import benchmark

  what = vmapseeds.recipe(recipe, **overrides(set))
  if json is not None:
    folder = json.absolute().parent
    if (
      json.is_dir()
      or not folder.is_dir()
      or not os.access(json if json.exists() else folder, os.W_OK)
    ):
      raise Mistake(f"--json {json} cannot be written: give another file")
  if target is not None:
    # Nothing runs, so the devices of this machine need not start.
    jax.config.update("jax_platforms", "cpu")
  rows = benchmark.bench(what, widths, lowerings, target=target)
  if json is not None:
    record = {"recipe": what.name, "target": target or "here", "candidates": rows}
    json.write_text(dumps(record, indent=1) + "\n", "utf-8")


COMMANDS: dict[str, Callable[..., Any]] = {
  "demo": demo,
  "train": train,
  "work": work,
  "verify": verify,
  "replay": replay,
  "merge": merge,
  "import": import_runs,
  "export": export,
  "report": report,
  "compare": compare,
  "recipes": recipes,
  "bench": bench,
}


@contextlib.contextmanager
def nothing_written() -> Iterator[None]:
  """Makes an interruption in this context say that nothing was written."""
  try:
    yield
  except KeyboardInterrupt:
    raise KeyboardInterrupt("nothing was written") from None


def held(results: Any, folder: str) -> str:
  """One line about what a folder holds and what to do next."""
  from vmapseeds.store.results import Results

  left = len(Results(folder)) - results.sizes["run"]
  said, following = (
    f"{results.sizes['run']} runs in {folder}",
    f"next: vs.open_results({folder!r})",
  )
  if "diverged" in results and results.diverged.any():
    said += f", {int(results.diverged.sum())} diverged"
  if {"accuracy", "diverged"} <= {*results.variables}:
    accuracy = results.accuracy.values[~results.diverged.values]
    said += (
      f", mean accuracy {accuracy.mean():.2%}" if len(accuracy) else ", no accuracy"
    )
    if len(accuracy):
      following = f"next: vmapseeds report {shlex.quote(folder)}"
    elif results.sizes["run"]:
      following = "next: train with a lower lr, in another folder"
  return f"{said}; {f'{left} are left: vmapseeds work {shlex.quote(folder)}' if left else following}"


def pairs(
  given: Sequence[str], flag: str, form: str, example: str
) -> list[tuple[str, str]]:
  """The names and texts of `NAME=TEXT ...`."""
  split = [pair.partition("=") for pair in given]
  for name, equals, _ in split:
    if not equals:
      raise Mistake(f"{flag} {name}: write {form}, e.g. {flag} {example}")
  return [(name, text) for name, _, text in split]


def once(given: Sequence[str], flag: str, form: str, example: str) -> dict[str, str]:
  """name -> text of `NAME=TEXT ...`. `Mistake` if a name has two texts."""
  texts: dict[str, str] = {}
  for name, text in pairs(given, flag, form, example):
    if texts.setdefault(name, text) != text:
      raise Mistake(
        f"{flag} gives {name} twice, {texts[name]} and {text}: give it once"
      )
  return texts


def overrides(settings: Sequence[str]) -> dict[str, Any]:
  """The recipe fields of `--set field=value ...`."""
  return {
    field: from_text(field, text)
    for field, text in once(settings, "--set", "FIELD=VALUE", "epochs=4").items()
  }


def values(conditions: Sequence[str], flag: str) -> dict[str, list[Any]]:
  """The values of each column in `--where lr=0.02,0.05 ...`."""
  found: dict[str, list[Any]] = {}
  for column, text in pairs(
    conditions, flag, "COLUMN=NUMBER", "lr=0.02; folders come first"
  ):
    found.setdefault(column, []).extend(
      from_text(column, value) for value in text.split(",")
    )
  return found


def called(command: Callable[..., Any]) -> Callable[..., functools.partial]:
  """A command for `parse` that only returns the call to make. So the command's errors
  are not taken for flag errors.
  """

  @functools.wraps(command)
  def call(**given: Any) -> functools.partial:
    return functools.partial(command, **given)

  return call


def parse(
  target: Callable[..., Any], argv: Sequence[str] | None = None, **words: str
) -> Any:
  """Parses `argv` as `target`: a dataclass, or `called(command)`. `Mistake` if they do
  not fit.

  A flag with several values may be given several times. tyro would take the last and
  drop the others. `words` are `prog` and `description` of the help.
  """
  argv = list(sys.argv[1:] if argv is None else argv)
  for given in argv:
    # File names cannot hold a null character, and results cannot hold text that is not
    # UTF-8.
    if "\0" in given or (
      not given.isascii() and given != given.encode(errors="replace").decode()
    ):
      raise Mistake(
        f"argument {given!r} holds a null character or is no UTF-8: rename it"
      )
  parsed = _parsed(target, argv, **words)
  flags = collections.Counter(_flag(word) for word in argv if word.startswith("--"))
  repeated = {flag: times for flag, times in flags.items() if times > 1}
  fields = parsed.keywords if isinstance(parsed, functools.partial) else vars(parsed)
  for flag, times in repeated.items():
    if not isinstance(fields.get(flag[2:].replace("-", "_")), tuple):
      raise Mistake(f"{flag} is given {times} times: give it once")
  return _parsed(target, _collected(argv), **words) if repeated else parsed


def _flag(word: str) -> str:
  return word.partition("=")[0].replace("_", "-")


def _collected(argv: list[str]) -> list[str]:
  """`argv` with all values of each flag gathered behind its first occurrence."""
  groups: dict[str, list[str]] = {"": []}
  current = groups[""]
  for word in argv:
    if word.startswith("--"):
      current = groups.setdefault(_flag(word), [_flag(word)])
      current += word.split("=", 1)[1:]
    else:
      current.append(word)
  return [word for group in groups.values() for word in group]


def _parsed(target: Callable[..., Any], argv: list[str], **words: Any) -> Any:
  said = io.StringIO()
  # tyro draws boxes as wide as the terminal; a mistake is one line here, so only help
  # may be wrapped.
  wide = {} if {"-h", "--help"} & set(argv) else {"COLUMNS": "2000"}
  try:
    with contextlib.redirect_stderr(said), mock.patch.dict(os.environ, wide):
      return tyro.cli(
        target, args=argv, config=(tyro.conf.FlagCreatePairsOff,), **words
      )
  except SystemExit as end:
    if not end.code:
      raise
    error = end.__context__
    while error:
      if isinstance(
        error, Mistake
      ):  # raised by options; tyro would draw a box around it
        raise error from None
      error = error.__context__
  # tyro has several wordings for a text that is not a number.
  flag = re.search(r"Error parsing (--[\w-]+):", said.getvalue())
  value = re.search(
    r"(?:base 10: |to float: |arguments: \[|from \[)('[^\]\n]*')", said.getvalue()
  )
  if flag and value:
    raise Mistake(
      f"{flag[1]} is {value[1]}: give a {'' if 'to float' in said.getvalue() else 'whole '}number"
    )
  _, *parts = re.split("[─-]{4,}", re.sub("[│╭╮╰╯]", " ", said.getvalue()).lstrip(" ─"))
  raise Mistake("; ".join(filter(None, (" ".join(part.split()) for part in parts))))


class Terminated(KeyboardInterrupt):
  """SIGTERM, which ends a program as Ctrl-C does."""


def _terminate(*_) -> None:
  raise Terminated


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
  """Prints a user's mistake as one line on stderr and exits with status 2. Other
  expected ends print no traceback.
  """
  try:
    try:
      yield
    finally:  # also when help ends with an exit
      sys.stdout.flush()
  except BrokenPipeError:  # `vmapseeds recipes | head -1`
    os.dup2(
      os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
    )  # or Python complains of the pipe at its end
    sys.exit(141)
  except (Mistake, Failure) as error:
    print(f"error: {one_line(error)}", file=sys.stderr)
    sys.exit(2 if isinstance(error, Mistake) else 1)
  except KeyboardInterrupt as interrupt:
    said = (
      str(interrupt) or "what was written stays; the same command goes on from there"
    )
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
      sys.path.insert(
        0, here
      )  # `package.module:name` may be in this folder, as with `python -m`
    if argv == ["--version"]:
      return print(f"vmapseeds {vmapseeds.__version__}")
    if {*argv[:1]} & {"-h", "--help"}:
      said = f"{vmapseeds.__doc__} --version says which this is."
      return subcommand_cli_from_dict(
        COMMANDS, prog="vmapseeds", description=said, args=argv[:1]
      )
    name = argv[0] if argv else ""
    one_of("command", name, COMMANDS)
    parse(called(COMMANDS[name]), argv[1:], prog=f"vmapseeds {name}")()


if __name__ == "__main__":
  main()
