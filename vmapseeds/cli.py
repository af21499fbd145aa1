"""The command line: `vmapseeds demo`, `train`, `work`, `verify` and the others that
`vmapseeds --help` lists.
"""

import collections
import contextlib
import errno
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
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg
from tyro.extras import subcommand_cli_from_dict

import vmapseeds
from vmapseeds.campaign.options import Options, WorkOptions, hint
from vmapseeds.machine import (
  hide_absent_accelerators,
  print_what_can_be_encoded,
  use_cpu_alone,
)
from vmapseeds.mistakes import (
  Failure,
  Mistake,
  at_least,
  naming_flags,
  one_line,
  one_of,
  print_note,
  printing_notes,
  say,
  warn,
)
from vmapseeds.training.recipes import RECIPES, from_text, plugins

COMPLETION = "--tyro-write-completion"  # tyro writes them
SHELLS = ("bash", "zsh", "fish")

Folder = Annotated[str, arg(metavar="DIR")]
Folders = Annotated[
  Positional[tuple[str, ...]], arg(metavar="DIR", help_behavior_hint="(one or more)")
]
Count = Annotated[int, arg(metavar="N")]
Name = Annotated[str, arg(metavar="NAME")]
Recipe = Annotated[Positional[str], arg(metavar="RECIPE")]
Settings = Annotated[tuple[str, ...], hint("FIELD=VALUE", "none")]
Files = tuple[str, ...]
Epoch = Annotated[int | None, hint("N", "the end of the training")]
Dataset = Annotated[str | None, hint("PATH", "where they were")]


def demo(out: Folder = "results/demo", runs: Count = 256) -> None:
  """Train digits_cnn for 1 and for 16 epochs and report both: half a minute to a minute
  on two idle CPU cores.

  Args:
    out: results folder; rerun with the same folder to resume
    runs: runs of each duration
  """
  from vmapseeds.store.files import place
  from vmapseeds.store.folders import check_writable

  seeds = vmapseeds.Runs.independent(runs)
  check_writable(out)
  folders = []
  for epochs, duration in ((1, "1 epoch"), (16, "16 epochs")):
    folders.append(str(place(out) / f"{epochs}_epochs"))
    say(f"digits_cnn, {duration}, {runs} runs")
    vmapseeds.train(vmapseeds.recipe("digits_cnn", epochs=epochs), seeds, folders[-1])
  vmapseeds.report(folders, out=str(place(out) / "report"))


def train(
  recipe: Recipe,
  *,
  out: Folder,
  runs: Count = 256,
  first_seed: Count = 0,
  until: Annotated[str | None, hint("'NAME rel X%'", "no more than --runs")] = None,
  most_runs: Count = 100_000,
  vary: Annotated[tuple[str, ...], hint("SOURCE", "all vary")] = (),
  repeat: Annotated[tuple[str, ...], hint("SOURCE=N", "none")] = (),
  sweep: Annotated[tuple[str, ...], hint("NAME=X,Y", "none")] = (),
  subset: Annotated[int | None, hint("N", "all")] = None,
  bootstrap: Annotated[tuple[int, ...] | None, hint("[N]", "none")] = None,
  k_fold: Annotated[tuple[int, ...] | None, hint("K [REPEATS]", "none")] = None,
  stratified: bool = False,
  poke: Annotated[str | None, hint("STEP[:FACTOR]", "none")] = None,
  set: Settings = (),
  engine: Name = "local",
  workers: Annotated[int | None, hint("N", "one an accelerator")] = None,
  coordinator: Annotated[str | None, hint("HOST:PORT", "this process alone")] = None,
  processes: Annotated[int | None, hint("N", "none")] = None,
  process: Annotated[int | None, hint("N", "none")] = None,
  dry_run: bool = False,
  quiet: bool = False,
  campaign: OmitArgPrefixes[Options],
) -> None:
  """Train runs of a recipe or a task, or resume an earlier call.

  Args:
    recipe: a name that `vmapseeds recipes` lists, or package.module:name, where the
      module may be in this folder
    out: results folder; with more runs than it holds, it is extended
    runs: number of runs in the results; with --sweep, of each combination
    first_seed: seed of the first run; the others take the seeds after it. Folders of
      different seeds can be merged
    until: train more than --runs, until half the width of a statistic's 95 % interval
      is at most X, e.g. 'distribution_variance rel 10%' or 'mean_accuracy abs 0.02%'
    most_runs: with --until, the most runs to train
    vary: sources of randomness that vary; the others stay fixed. A recipe has those of
      init order augment dropout data that it uses, a task those that it names
    repeat: with --vary, train each of the --runs with each of N seeds of another source,
      e.g. --vary init --repeat order=5: the report says how much variance is due to each
    sweep: values to sweep, in every combination: numbers and names of fields of the
      recipe, of its values and model_args, e.g. lr=0.01,0.05 optimizer=sgd,adam
    subset: train each run on N of the training examples, drawn by its data seed
    bootstrap: train each run on N examples, drawn with replacement by its data seed;
      without N, as many as there are
    k_fold: train each run once for each of K folds of all examples, training and test:
      on the others, and test it on those of its own; REPEATS times, divided anew
    stratified: with --k-fold, give each fold its share of each class
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
    dry_run: check everything and say what the runs will take, but train and write
      nothing
    quiet: print neither progress nor what was chosen
    campaign: how the runs are trained together, and what is kept of them
  """
  from vmapseeds.campaign import hosts
  from vmapseeds.campaign.planning import resolve_task

  check_engine(engine, workers, coordinator)
  rule = parse_until(until, {"--sweep": sweep, "--repeat": repeat, "--k-fold": k_fold})
  host = hosts.parse_host(coordinator, processes, process)
  if host and dry_run:
    raise Mistake("--dry-run with --coordinator: give one of them")
  if host and not hosts.is_child():
    return hosts.train_as_child(sys.argv[1:], host.coordinator)

  task = resolve_task(recipe).replace(**overrides(set))
  most = runs
  if rule is not None:
    most = at_least("most runs", most_runs, at_least("runs", runs, 1))
  table_of_runs = table(
    task,
    most,
    first_seed,
    vary,
    repeat,
    sweep,
    subset,
    bootstrap,
    poke,
    k_fold,
    stratified,
  )
  options = {**vars(campaign), "progress": not quiet}

  if dry_run:
    with nothing_written():
      estimate = str(vmapseeds.estimate(task, table_of_runs, out, **options))
      print(f"at most {estimate}" if rule is not None else estimate)
    return plan_hint(out)
  # JAX must join the other hosts before anything asks it for devices.
  if host:
    hosts.join(host)
  trainer = trainer_of(engine, workers)
  if rule is None:
    results = trainer(task, table_of_runs, out, **options)
  else:
    from vmapseeds.campaign.until import train_until

    results = train_until(
      task, table_of_runs, out, rule, first=runs, trains=trainer, **options
    )
  if host:
    hosts.leave(host)
  conclude(results, out)


def check_engine(engine: str, workers: int | None, coordinator: str | None) -> None:
  """Raise `Mistake` if the flags that say where to train contradict each other."""
  one_of("engine", engine, ("local", "ray"))
  if engine == "ray" and coordinator:
    raise Mistake("--engine ray with --coordinator: give one of them")
  if workers is not None and engine != "ray":
    raise Mistake(
      f"--workers {workers} without --engine ray: it says how many workers Ray has"
    )


def parse_until(until: str | None, excluded: Mapping[str, Any]) -> Any:
  """Return the rule of `--until`, None without it.

  Raises:
    Mistake: it is no such rule, or one of the `excluded` flags is given, flag -> value.
  """
  if until is None:
    return None
  from vmapseeds.campaign.until import Until

  rule = Until.parse(until)
  for flag, value in excluded.items():
    if value:
      raise Mistake(
        f"--until with {flag}: a statistic is of independent runs of the same values, give "
        "one of them"
      )
  return rule


def trainer_of(engine: str, workers: int | None) -> Callable[..., Any]:
  """Return the function that trains with an engine."""
  if engine == "local":
    return vmapseeds.train
  from vmapseeds.campaign import ray_engine

  return functools.partial(ray_engine.train, workers=workers)


def search(
  recipe: Recipe,
  *,
  over: Annotated[
    tuple[str, ...], arg(metavar="'NAME=RANGE'", help_behavior_hint="(one or more)")
  ],
  out: Folder,
  trials: Count = 50,
  searches: Count = 20,
  first_seed: Count = 0,
  vary: Annotated[tuple[str, ...], hint("SOURCE", "all vary")] = (),
  sampler: Name = "random",
  at_once: Count = 1,
  rungs: Annotated[tuple[int, ...], hint("EPOCHS", "all train all epochs")] = (),
  repeats: Count = 0,
  objective: Annotated[str | None, hint("NAME", "validation accuracy or loss")] = None,
  measure: Annotated[str | None, hint("NAME", "test accuracy or loss")] = None,
  set: Settings = (),
  quiet: bool = False,
  campaign: OmitArgPrefixes[Options],
) -> None:
  """Search hyperparameters, many independent searches side by side, or resume an earlier
  call.

  Each search draws training, validation and test examples of its own from the whole data
  set. The best trial is chosen by validation examples and measured on test examples.

  Args:
    recipe: a name that `vmapseeds recipes` lists, or package.module:name, where the
      module may be in this folder
    over: what to search, e.g. 'lr=log 1e-3..1' momentum=0.5..0.99 'layers=int 1..4'
      temperature=1,2,4
    out: results folder; with more trials or searches than it holds, it is extended
    trials: trials of each search
    searches: number of independent searches
    first_seed: seed of the first search; the others take the seeds after it
    vary: sources of randomness that differ between searches; the others stay fixed.
      sampler is the source of what is drawn from the ranges
    sampler: random; noisy_grid; tpe, which needs optuna; or package.module:function,
      which makes a sampler of optuna from a seed
    at_once: trials of a search that optuna's sampler is asked for in a round
    rungs: epochs of shorter trainings, ascending, of which only the best go on to the
      next and at last to all epochs (successive halving)
    repeats: how often the best of each search is trained again, with other seeds
    objective: the output that is optimised
    measure: the output that is reported of the best
    set: fields of the recipe to change, or values of the recipe or the task
    quiet: no progress
    campaign: how the runs are trained together, and what is kept of them
  """
  from vmapseeds.campaign.planning import resolve_task
  from vmapseeds.training import objects

  Runs = vmapseeds.Runs
  ranges = unique_pairs(over, "--over", "'NAME=RANGE'", "'lr=log 1e-3..1'")
  if vary:
    seeds = Runs.vary(vary, searches, start=first_seed)
  else:
    seeds = Runs.independent(searches, start=first_seed)
  make_sampler = objects.imported(sampler) if objects.is_import(sampler) else sampler

  results = vmapseeds.search(
    resolve_task(recipe).replace(**overrides(set)),
    ranges,
    trials=trials,
    searches=seeds,
    sampler=make_sampler,
    at_once=at_once,
    rungs=rungs,
    repeats=repeats,
    objective=objective,
    measure=measure,
    out=out,
    **{**vars(campaign), "progress": not quiet},
  )
  print(search_line(results, out))


def search_line(results, folder: str) -> str:
  """Return one line about what a folder of searches holds and what to do next."""
  import numpy as np

  from vmapseeds.results.formatting import show
  from vmapseeds.searches.trials import trials_of

  trials = trials_of(results)
  count = len(trials.numbers())
  searches = "1 search" if count == 1 else f"{count} searches"
  line = f"{searches}, {len(trials.rows)} trials in {folder}"

  failed = trials.diverged | np.isnan(trials.objective)
  if failed.any():
    line += f", {int(failed.sum())} failed"
  best = trials.measured[list(trials.best().values())]
  if not len(best):
    return f"{line}; no trial succeeded: search in another range, in another folder"
  mean = show(best.mean(), None, trials.unit)
  return (
    f"{line}, mean {trials.about['measure']} of the best {mean}; next: vmapseeds report "
    f"{shlex.quote(folder)}"
  )


def plan_hint(out: str) -> None:
  """Say that the runs of a folder, if it has some, tell how many a question takes."""
  with contextlib.suppress(Mistake):
    runs = vmapseeds.open_results(out).sizes["run"]
    if runs > 2:
      command = f"vmapseeds plan {shlex.quote(out)}"
      print(f"{runs} runs are there: {command} says how many a question takes")


def table(
  task,
  runs: int,
  first_seed: int,
  vary: Sequence[str],
  repeat: Sequence[str],
  sweep: Sequence[str],
  subset: int | None,
  bootstrap: Sequence[int] | None,
  poke: str | None,
  k_fold: Sequence[int] | None = None,
  stratified: bool = False,
):
  """Return the runs table that these flags of `train` ask for."""
  table_of_runs = seeds_of(runs, first_seed, vary, repeat)
  swept = unique_pairs(sweep, "--sweep", "NAME=X,Y", "lr=0.01,0.05")
  if swept:
    table_of_runs = sweep_values(task, table_of_runs, swept)

  if subset is not None and bootstrap is not None:
    raise Mistake("--subset with --bootstrap: give one of them")
  if subset is not None:
    table_of_runs = table_of_runs.subset(subset)
  if bootstrap is not None:
    if len(bootstrap) > 1:
      numbers = " ".join(str(number) for number in bootstrap)
      raise Mistake(f"--bootstrap {numbers}: give at most one number")
    table_of_runs = table_of_runs.bootstrap(*bootstrap)

  if stratified and k_fold is None:
    raise Mistake("--stratified without --k-fold: it says how folds are made")
  if k_fold is not None:
    # All three say which examples a run is trained on.
    if subset is not None or bootstrap is not None:
      other = "--subset" if subset is not None else "--bootstrap"
      raise Mistake(f"{other} with --k-fold: give one of them")
    table_of_runs = divide_into_folds(table_of_runs, k_fold, stratified)
  if poke is not None:
    table_of_runs = poke_runs(table_of_runs, poke)
  return table_of_runs


def seeds_of(runs: int, first_seed: int, vary: Sequence[str], repeat: Sequence[str]):
  """Return the runs table of `--runs`, `--first-seed`, `--vary` and `--repeat`."""
  repeats = unique_pairs(repeat, "--repeat", "SOURCE=N", "order=5")
  if repeats and not vary:
    raise Mistake("--repeat without --vary: say which source varies, e.g. --vary init")
  times = {source: from_text(source, text) for source, text in repeats.items()}
  if vary:
    return vmapseeds.Runs.vary(vary, runs, start=first_seed, repeat=times)
  return vmapseeds.Runs.independent(runs, start=first_seed)


def sweep_values(task, seeds, swept: Mapping[str, str]):
  """Return the runs table of `--sweep`, each combination with all seeds."""
  # Before the texts are read as numbers, so that an unknown name is named first.
  if isinstance(task, vmapseeds.Recipe):
    task.check_swept(swept)
  if isinstance(task, vmapseeds.Task):
    for name in swept:
      one_of("value to sweep", name, task.values)

  columns: Any = {}
  for name, text in swept.items():
    columns[name] = [from_text(name, value) for value in text.split(",")]
  return vmapseeds.Runs.sweep(seeds=seeds, **columns)


def divide_into_folds(table_of_runs, k_fold: Sequence[int], stratified: bool):
  """Return the runs table of `--k-fold K [REPEATS]`."""
  if not 1 <= len(k_fold) <= 2:
    numbers = " ".join(str(number) for number in k_fold)
    raise Mistake(f"--k-fold {numbers}: write K or K REPEATS, e.g. --k-fold 5")
  repeats = k_fold[1] if len(k_fold) == 2 else 1
  return table_of_runs.k_fold(k_fold[0], stratified=stratified, repeats=repeats)


def poke_runs(table_of_runs, poke: str):
  """Return the runs table of `--poke STEP[:FACTOR]`."""
  step, _, factor = poke.partition(":")
  # `int` would also take signs, spaces and digits of other scripts.
  if not re.fullmatch(r"\d{1,9}", step):
    raise Mistake(f"--poke {poke}: write STEP or STEP:FACTOR, e.g. --poke 0:1.001")
  if not factor:
    return table_of_runs.poke(int(step))
  return table_of_runs.poke(int(step), factor=from_text("factor", factor))


def work(
  folder: Positional[Folder],
  *,
  blocks: Annotated[str, hint("A:B", "all")] = ":",
  dataset: Dataset = None,
  quiet: bool = False,
  campaign: OmitArgPrefixes[WorkOptions],
) -> None:
  """Train the runs that are left in a folder that `train` began. Several machines may
  do so at once.

  Args:
    folder: results folder
    blocks: which blocks: from A up to but not including B
    dataset: where the data are now, if they were moved; they must be the same
    quiet: no progress
    campaign: how the runs are trained together
  """
  ends = re.fullmatch(r"(\d{0,9}):(\d{0,9})", blocks)
  if not ends:
    raise Mistake(f"--blocks {blocks!r}: write A:B, A: or :B, e.g. 0:10")
  first = int(ends[1]) if ends[1] else None
  stop = int(ends[2]) if ends[2] else None

  options = {**vars(campaign), "progress": not quiet}
  results = vmapseeds.work(folder, (first, stop), dataset=dataset, **options)
  conclude(results, folder)


def verify(folder: Positional[Folder], *, repair: bool = False) -> None:
  """Validate a results folder: print what is lost, damaged or foreign. Exit status 1 if
  anything is.

  Args:
    folder: results folder
    repair: remove the records of damaged blocks, so that their runs are trained again
  """
  verdict = vmapseeds.verify(folder, repair=repair)
  for repaired in verdict.repairs:
    print(f"repaired: {one_line(repaired)}")
  for note in verdict.notes:
    print(f"note: {one_line(note)}")
  for problem in verdict.problems:
    print(f"problem: {one_line(problem)}")
  if verdict.problems:
    sys.exit(1)
  print(f"sound: {verdict.done} of {verdict.runs} runs are done in {folder}")


def replay(folder: Positional[Folder], *, run: Count, dataset: Dataset = None) -> None:
  """Train one run again and say whether its predictions agree bit for bit. Exit status
  1 if they do not.

  Args:
    folder: results folder
    run: which run, from 0
    dataset: where the data are now, if they were moved; they must be the same
  """
  from vmapseeds.store.layout import require_metadata

  again = vmapseeds.replay(folder, run, dataset=dataset)
  test_sets = require_metadata(folder)["test_sets"]
  for name, differing in again.differing.items():
    agree = "agree bit for bit on all"
    if differing:
      agree = f"differ in {differing} of"

    # A task of one's own has no test sets: its arrays are compared by their names.
    if test_sets:
      subject, unit = f"test set {name}: {again.compared}", "examples"
    else:
      subject, unit = f"{name}: its numbers", "entries"
    if again.compared == "half_errors":
      unit = "halves of the examples"
    print(f"run {again.run}, {subject} {agree} {again.examples[name]} {unit}")
  if not again.same:
    sys.exit(1)


def merge(
  folders: Folders,
  *,
  out: Folder,
  force_mixed: bool = False,
  allow_upgrade: bool = False,
  quiet: bool = False,
) -> None:
  """Merge results folders whose runs were trained separately. The runs keep the order
  of the folders.

  Args:
    folders: results folders of one recipe
    out: folder for all the runs, new or empty; a run that several folders hold is taken
      once
    force_mixed: merge even where recipe, versions, device kind, lane width, lowering or
      precision differ
    allow_upgrade: merge where the programs of the same recipe differ because versions of
      packages do
    quiet: no progress bar
  """
  with nothing_written():
    results = vmapseeds.merge(
      folders,
      out,
      force_mixed=force_mixed,
      allow_upgrade=allow_upgrade,
      progress=not quiet,
    )
  conclude(results, out)


def export(
  folder: Positional[Folder],
  out: Annotated[Positional[str], arg(metavar="OUT")],
  *,
  run: Annotated[tuple[int, ...], hint("N", "all")] = (),
) -> None:
  """Export kept networks as orbax checkpoints, one a run, which any Flax program
  restores.

  Args:
    folder: results folder that was trained with --keep-params
    out: folder for the checkpoints, new or empty
    run: which runs, from 0
  """
  vmapseeds.export_networks(folder, out, run or None)
  count = len(os.listdir(out))
  networks = "networks" if count > 1 else "network"
  print(f"{count} {networks} in {out}, as orbax checkpoints")


def import_runs(
  *,
  out: Folder,
  labels: Annotated[Files, hint("[SET=]FILE", "those of DIR")] = (),
  predictions: Annotated[
    Files, arg(metavar="[SET=]FILE", help_behavior_hint="(or --logits)")
  ] = (),
  logits: Annotated[
    Files, arg(metavar="[SET=]FILE", help_behavior_hint="(or --predictions)")
  ] = (),
  values: Annotated[Path | None, hint("FILE", "none")] = None,
  keep_logits: bool = False,
  classes: Annotated[
    int | None, hint("N", "those of the logits, or up to the highest that occurs")
  ] = None,
  class_names: Annotated[tuple[str, ...], hint("NAME", "numbers")] = (),
  name: Annotated[str | None, hint("NAME", "the name of the file")] = None,
  header: Annotated[str | None, hint("yes|no", "as the file shows")] = None,
  quiet: bool = False,
) -> None:
  """Import runs trained elsewhere into a results folder, for report and compare. Runs
  that it has from earlier imports stay.

  Files are .npy, .npz, .csv, .tsv, .txt or .parquet. Of several test sets, each is given as
  SET=FILE, e.g. --labels test=y.npy shift=y_shift.npy

  Args:
    out: folder for the results; new, empty, or with runs on the same examples
    labels: the true classes, (examples,)
    predictions: predicted classes, (runs, examples), -1 for none
    logits: logits, (runs, examples, classes); .npy files may have any size, they are
      read a block of runs at a time
    values: .csv, .tsv, .txt, .parquet or .npz file with a number for each run in columns: seed or
      seed_SOURCE, by which compare pairs runs, lr and others by any names
    keep_logits: keep logits beside predictions
    classes: number of classes
    class_names: what reports call the classes, the first class 0
    name: name of these runs in reports
    header: whether the first line of predictions and labels in text files is names,
      where it may be names or numbers, such as 0,1,2
    quiet: no progress bar, and no line on how a text file was read
  """
  first_line_is_names = None
  if header is not None:
    one_of("--header", header, ("yes", "no"))
    first_line_is_names = header == "yes"
  with nothing_written():
    results = vmapseeds.import_runs(
      out,
      predictions=files_of(predictions, "--predictions"),
      logits=files_of(logits, "--logits"),
      labels=files_of(labels, "--labels"),
      values=values,
      num_classes=classes,
      class_names=class_names or None,
      keep_logits=keep_logits,
      name=name,
      header=first_line_is_names,
      progress=not quiet,
    )
  runs = results.sizes["run"]
  examples = results.sizes["example"]
  print(
    f"{runs} runs on {examples} examples of {results.attrs['num_classes']} classes in "
    f"{out}, mean accuracy {results.accuracy.values.mean():.2%}; next: vmapseeds report "
    f"{shlex.quote(out)}"
  )


def report(
  folders: Folders = (),
  *,
  by: Annotated[tuple[str, ...], hint("COLUMN", "all that are swept")] = (),
  where: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs")] = (),
  test_set: Name = "test",
  epoch: Epoch = None,
  images: Annotated[
    str | None, hint("FILE", "the recipe's data set, if it is on the disk")
  ] = None,
  out: Annotated[
    str | None,
    hint("DIR", "report in each DIR; side by side: report/side_by_side in the first"),
  ] = None,
  format: Annotated[str, arg(metavar="text|md|svg|pdf")] = "text",
  open: bool = False,
) -> None:
  """Print the statistics of results and write pages with every number and figure.

  Each combination of swept values has its own row and page. Several folders are also
  set side by side.

  Args:
    folders: results folders
    by: columns of the runs table that group the runs, e.g. lr or seed_init; runs are
      pooled over all other columns
    where: take only the runs with these values, e.g. lr=0.02,0.05 momentum=0.9
    test_set: which test set
    epoch: report the results after this epoch, for runs trained with evaluate_every
    images: inputs of the test examples, shown on the pages: pictures, rows or texts; a
      .npy file, an .npz file with x_test or one array, or a data set, e.g. cifar10
    out: folder for the pages
    format: print tables for a terminal, or in Markdown; svg or pdf write figures in that
      format, too
    open: show the page in a browser
  """
  vmapseeds.report(
    folders,
    by=by or None,
    where=values(where, "--where"),
    test_set=test_set,
    epoch=epoch,
    images=images,
    out=out,
    format=format,
    open_page=open,
  )


def list_results(folder: Positional[Folder] = "results") -> None:
  """List the results folders in a folder: recipe, values, runs, accuracy, when.

  Args:
    folder: folder with results folders, at any depth
  """
  from vmapseeds.reports import listing
  from vmapseeds.reports.pages import terminal

  terminal().print(listing.list_results(folder).for_terminal())


def examples(
  folder: Positional[Folder],
  *,
  most: Name = "split",
  n: Count = 20,
  where: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs")] = (),
  output: Annotated[str | None, hint("NAME", "the first")] = None,
  test_set: Name = "test",
  epoch: Epoch = None,
) -> None:
  """Print the test examples that are hardest, divide the runs most, or are likely
  mislabelled.

  Args:
    folder: results folder
    most: which come first: split, where runs agree least; hard, where most are wrong;
      mislabelled, where most agree on another class than the label
    n: the most examples to print
    where: take only the runs with these values, e.g. lr=0.02,0.05 momentum=0.9
    output: the output of role class or loss
    test_set: which test set
    epoch: after which epoch, for runs trained with evaluate_every
  """
  from vmapseeds.reports.examples_table import print_examples

  print_examples(
    folder,
    most=most,
    n=n,
    where=values(where, "--where"),
    output=output,
    test_set=test_set,
    epoch=epoch,
  )


def compare(
  folders: Folders,
  *,
  where: Annotated[
    tuple[str, ...], hint("COLUMN=NUMBER", "all runs of the first")
  ] = (),
  against: Annotated[
    tuple[str, ...], hint("COLUMN=NUMBER", "all runs of the others")
  ] = (),
  over: Annotated[tuple[str, ...], hint("COLUMN", "none")] = (),
  all_pairs: bool = False,
  margin: Annotated[float | None, hint("X", "none")] = None,
  gamma: float = 0.75,
  test_set: Name = "test",
  epoch: Epoch = None,
  paired: bool = False,
  output: Annotated[str | None, hint("NAME", "the first of the first folder")] = None,
  out: Annotated[
    str | None,
    hint("DIR", "report/<test set, epoch, where>/against_<B> in the first folder"),
  ] = None,
) -> None:
  """Say which of two or more recipes is better, by how much and how surely. Write a page
  about it.

  If they are the same, one is called better in at most 5 % of cases. To compare runs of
  one folder: vmapseeds compare DIR --where lr=0.02 --against lr=0.05

  Args:
    folders: results of A, and of B, C and so on, each of which is compared with A
    where: take only the runs of A with these values, e.g. lr=0.02,0.05 momentum=0.9
    against: take only the runs of the others with these values
    over: swept columns over whose values runs of the same seeds are averaged, e.g.
      optimizer
    all_pairs: compare every two folders
    margin: a difference that does not matter, in percentage points of accuracy, or in
      the unit of the loss or score; A and B may then be called equal
    gamma: P(A > B) from which Bouthillier's criterion calls a difference meaningful
    test_set: which test set
    epoch: compare the results after this epoch, for runs trained with evaluate_every
    paired: pair the runs row by row; without this flag, runs with the same seeds are
      paired if most runs have a partner
    output: the output of role class, loss or score to compare
    out: folder for the page
  """
  if not folders:
    raise Mistake("no results folder given: give two or more to compare")
  vmapseeds.compare(
    *folders,
    where=values(where, "--where"),
    against=values(against, "--against"),
    over=over,
    all_pairs=all_pairs,
    margin=margin,
    gamma=gamma,
    test_set=test_set,
    epoch=epoch,
    paired=paired or None,
    output=output,
    out=out,
  )


def plan(
  a: Annotated[Positional[str], arg(metavar="DIR")],
  b: Annotated[Positional[str | None], hint("DIR_B", "none")] = None,
  *,
  detect: Annotated[float | None, hint("X", "about half a standard deviation")] = None,
  power: float = 0.8,
  where: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs of DIR")] = (),
  against: Annotated[tuple[str, ...], hint("COLUMN=NUMBER", "all runs of DIR_B")] = (),
  test_set: Name = "test",
  epoch: Epoch = None,
  output: Annotated[str | None, hint("NAME", "the first of DIR")] = None,
) -> None:
  """Say how many runs it takes to know a mean, to show a difference, and to know the
  variance, from a pilot of 10 to 30 runs.

  Args:
    a: results of the pilot
    b: results of another recipe with the same seeds: they say what pairing by seeds
      saves
    detect: the mean is wanted to within X, and a difference of X between two recipes is
      to be shown: in percentage points of accuracy, or in the unit of the loss or score
    power: how often such a difference is to be shown
    where: take only the runs of DIR with these values, e.g. lr=0.02
    against: take only the runs of DIR_B, by default of DIR, with these values
    test_set: which test set
    epoch: take the results after this epoch, for runs trained with evaluate_every
    output: the output of role class, loss or score
  """
  vmapseeds.plan(
    a,
    b,
    detect=detect,
    power=power,
    where=values(where, "--where"),
    against=values(against, "--against"),
    test_set=test_set,
    epoch=epoch,
    output=output,
  )


def recipes() -> None:
  """List the recipes: those built in, and those that installed packages add."""
  # A file or another program gets one line per recipe.
  width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
  descriptions = {
    name: f"{recipe.dataset}, {recipe.model}, {recipe.epochs} epochs: {purpose}"
    for name, (recipe, purpose) in RECIPES.items()
  }
  # Their names and texts are another package's: they may hold line ends.
  for name, text in plugins().items():
    descriptions[one_line(name)] = one_line(f"{text}, of an installed package")

  column = max(len(name) for name in descriptions) + 2
  for name, description in descriptions.items():
    wrapped = textwrap.fill(
      f"{name:<{column}}{description}",
      width,
      subsequent_indent=" " * column,
      break_long_words=False,
      break_on_hyphens=False,
    )
    print(wrapped)


def bench(
  recipe: Recipe = "digits_cnn",
  *,
  lowerings: Annotated[tuple[str, ...], hint("NAME", "all")] = (),
  widths: Annotated[tuple[int, ...], hint("W", "those that campaigns try")] = (),
  json: Annotated[Path | None, hint("FILE", "none")] = None,
  set: Settings = (),
) -> None:
  """Measure model-steps per second on this machine, for each lowering and lane width.
  Campaigns take the fastest.

  Args:
    recipe: the recipe whose training step is timed, on random images
    lowerings: how convolutions run their lanes: im2col, grouped, sequential
    widths: lane widths
    json: also write the table to FILE, as the `candidates` of a JSON object
    set: recipe fields to change
  """
  from json import dumps

  from vmapseeds.campaign.bench import bench

  timed = vmapseeds.recipe(recipe, **overrides(set))
  check_output_file(json)
  rows = bench(timed, widths, lowerings)
  if json is not None:
    text = dumps({"recipe": timed.name, "candidates": rows}, indent=1)
    json.write_text(text + "\n", "utf-8")


def check_output_file(path: Path | None, flag: str = "--json") -> None:
  """Raise `Mistake` if the file cannot be written."""
  if path is None:
    return
  folder = path.absolute().parent
  # A file that is there may be writable in a folder that is not.
  written = path if path.exists() else folder
  if path.is_dir() or not folder.is_dir() or not os.access(written, os.W_OK):
    raise Mistake(f"{flag} {path} cannot be written: give another file")


COMMANDS: dict[str, Callable[..., Any]] = {
  "demo": demo,
  "train": train,
  "search": search,
  "work": work,
  "verify": verify,
  "replay": replay,
  "merge": merge,
  "import": import_runs,
  "export": export,
  "list": list_results,
  "report": report,
  "compare": compare,
  "plan": plan,
  "examples": examples,
  "recipes": recipes,
  "bench": bench,
}


# Commands that train nothing. They use the CPU alone: a training may have the
# accelerator, or there may be none.
READING = frozenset(
  (
    "verify",
    "merge",
    "import",
    "export",
    "list",
    "report",
    "compare",
    "plan",
    "examples",
    "recipes",
  )
)


@contextlib.contextmanager
def nothing_written() -> Iterator[None]:
  """Say that nothing was written when this context is interrupted."""
  try:
    yield
  except KeyboardInterrupt as interrupt:
    interrupt.args = ("nothing was written",)
    raise


def conclude(results, folder: str) -> None:
  """Print one line about what a folder holds, and one for each mistake that its results
  show.
  """
  from vmapseeds.results.doubts import doubts

  print(summary_line(results, folder))
  for doubt in doubts(results):
    warn(f"note: {doubt}")


def summary_line(results, folder: str) -> str:
  """Return one line about what a folder holds and what to do next."""
  from vmapseeds.results.opening import converged
  from vmapseeds.store.results import Results

  runs = results.sizes["run"]
  line = f"{runs} runs in {folder}"
  following = f"next: vs.open_results({folder!r})"
  if "diverged" in results and results.diverged.any():
    line += f", {int(results.diverged.sum())} diverged"

  measured = [n for n in ("accuracy", "test_accuracy") if n in results.variables]
  if measured:
    accuracy = results[measured[0]].values[converged(results)]
    if len(accuracy):
      line += f", mean accuracy {accuracy.mean():.2%}"
      following = f"next: vmapseeds report {shlex.quote(folder)}"
    else:
      line += ", no accuracy"
      if runs:
        following = "next: train with a lower lr, in another folder"

  unfinished = len(Results(folder)) - runs
  if unfinished:
    following = f"{unfinished} are left: vmapseeds work {shlex.quote(folder)}"
  return f"{line}; {following}"


def split_pairs(
  words: Sequence[str], flag: str, form: str, example: str
) -> list[tuple[str, str]]:
  """Return the names and texts of `NAME=TEXT ...`."""
  pairs = []
  for word in words:
    name, equals, text = word.partition("=")
    if not equals:
      raise Mistake(f"{flag} {name}: write {form}, e.g. {flag} {example}")
    pairs.append((name, text))
  return pairs


def unique_pairs(
  words: Sequence[str], flag: str, form: str, example: str
) -> dict[str, str]:
  """Return name -> text of `NAME=TEXT ...`.

  Raises:
    Mistake: a name has two texts.
  """
  texts: dict[str, str] = {}
  for name, text in split_pairs(words, flag, form, example):
    if texts.setdefault(name, text) != text:
      raise Mistake(
        f"{flag} gives {name} twice, {texts[name]} and {text}: give it once"
      )
  return texts


def files_of(words: Files, flag: str) -> str | dict[str, str] | None:
  """Return the file of `FILE`, or test set -> file of `SET=FILE ...`."""
  # A file's own name may have an equals sign.
  if len(words) == 1 and ("=" not in words[0] or os.path.exists(words[0])):
    return words[0]
  return unique_pairs(words, flag, "SET=FILE", "test=y.npy shift=y_shift.npy") or None


def overrides(settings: Sequence[str]) -> dict[str, Any]:
  """Return the recipe fields of `--set field=value ...`."""
  texts = unique_pairs(settings, "--set", "FIELD=VALUE", "epochs=4")
  return {field: from_text(field, text) for field, text in texts.items()}


def values(conditions: Sequence[str], flag: str) -> dict[str, list[Any]]:
  """Return the values of each column in `--where lr=0.02,0.05 ...`."""
  selected: dict[str, list[Any]] = {}
  example = "lr=0.02; folders come first"
  for column, text in split_pairs(conditions, flag, "COLUMN=NUMBER", example):
    of_column = selected.setdefault(column, [])
    of_column.extend(from_text(column, value) for value in text.split(","))
  return selected


def deferred(command: Callable[..., Any]) -> Callable[..., functools.partial]:
  """Wrap a command for `parse`, so that it only returns the call to make. Then the
  command's errors are not taken for flag errors.
  """

  @functools.wraps(command)
  def call(**arguments):
    return functools.partial(command, **arguments)

  return call


def parse(target: Callable[..., Any], argv: Sequence[str] | None = None, **words: str):
  """Parse `argv` as `target`: a dataclass, or `deferred(command)`.

  A flag with several values may be given several times. tyro would take the last and
  drop the others. `words` are `prog` and `description` of the help.

  Raises:
    Mistake: they do not fit.
  """
  argv = list(sys.argv[1:] if argv is None else argv)
  for word in argv:
    check_text(word)
  grouped = group_by_flag(argv)
  times = collections.Counter(flag_of(word) for word in argv if word.startswith("--"))
  hints = typing.get_type_hints(target)
  for flag, number in times.items():
    takes_several = "tuple" in str(hints.get(flag[2:].replace("-", "_")))
    if number > 1 and not takes_several:
      raise Mistake(f"{flag} is given {number} times: give it once")
  # Words stay as they are where nothing needs to be collected.
  if max(times.values(), default=0) > 1:
    argv = grouped
  return _parse(target, argv, words)


def check_text(word: str) -> None:
  """Raise `Mistake` if a word of the command line can be no file name and no text."""
  # File names cannot hold a null character, and results cannot hold text that is not
  # UTF-8.
  encodable = word.isascii() or word == word.encode(errors="replace").decode()
  if "\0" in word or not encodable:
    raise Mistake(f"argument {word!r} holds a null character or is no UTF-8: rename it")


def flag_of(word: str) -> str:
  """Return the flag of `--flag` or `--flag=value`, as its help writes it."""
  return word.split("=", 1)[0].replace("_", "-")


def group_by_flag(argv: Sequence[str]) -> list[str]:
  """Return `argv` with each flag once, followed by all of its values."""
  groups: dict[str, list[str]] = {"": []}
  current = groups[""]
  for word in argv:
    if word.startswith("--"):
      flag = flag_of(word)
      current = groups.setdefault(flag, [flag])
      current += word.split("=", 1)[1:]
    else:
      current.append(word)
  return [word for group in groups.values() for word in group]


def _parse(target, argv, words):
  """Parse with tyro, whose box around an error becomes one line."""
  printed = io.StringIO()
  # tyro draws boxes as wide as the terminal; a mistake is one line here, so only help
  # may be wrapped.
  columns = os.environ.get("COLUMNS")
  if "-h" not in argv and "--help" not in argv:
    os.environ["COLUMNS"] = "2000"
  try:
    with contextlib.redirect_stderr(printed):
      return tyro.cli(
        target, args=argv, config=(tyro.conf.FlagCreatePairsOff,), **words
      )
  except SystemExit as end:
    if not end.code:
      raise
    error = end.__context__
    while error:
      # Raised by options; tyro would draw a box around it.
      if isinstance(error, Mistake):
        raise error from None
      error = error.__context__
  finally:
    os.environ.pop("COLUMNS", None)
    if columns is not None:
      os.environ["COLUMNS"] = columns
  raise Mistake(one_line_of_box(printed.getvalue()))


def one_line_of_box(box: str) -> str:
  """Return what tyro draws a box around in one line."""
  # tyro has several wordings for a text that is not a number.
  flag = re.search(r"Error parsing (--[\w-]+):", box)
  value = re.search(r"(?:base 10: |to float: |arguments: \[|from \[)('[^\]\n]*')", box)
  if flag and value:
    kind = "number" if "to float" in box else "whole number"
    return f"{flag[1]} is {value[1]}: give a {kind}"

  without_sides = re.sub("[│╭╮╰╯]", " ", box).lstrip(" ─")
  # What stands before the first line is the box's title.
  _, *parts = re.split("[─-]{4,}", without_sides)
  sentences = [" ".join(part.split()) for part in parts]
  return "; ".join(sentence for sentence in sentences if sentence)


def write_completion(shell: str = "", file: str = "", *others: str) -> None:
  """Write a script with which a shell completes commands and flags."""
  one_of("shell", shell, SHELLS)
  if not file or others:
    raise Mistake(f"{COMPLETION} {shell}: give one file, e.g. completions.{shell}")
  path = Path(file)
  check_output_file(path, COMPLETION)
  with contextlib.suppress(SystemExit):
    subcommand_cli_from_dict(
      COMMANDS,
      prog="vmapseeds",
      args=[COMPLETION, shell, file],
      config=(tyro.conf.FlagCreatePairsOff,),
    )
  # The script prints a completion a line, and would take a second line of help for one.
  text = path.read_text("utf-8")
  spec = re.compile(r"^COMPLETION_SPEC = .*$", re.MULTILINE)
  path.write_text(spec.sub(lambda line: line[0].replace(r"\n", " "), text), "utf-8")


class Terminated(KeyboardInterrupt):
  """SIGTERM, which ends a program as Ctrl-C does."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
  """Raise Terminated at SIGTERM. Send it, or a Ctrl-C, again where Python ignores the
  exception, as it does in callbacks of the garbage collector.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  numbers: dict[type[BaseException], int] = {
    Terminated: signal.SIGTERM,
    KeyboardInterrupt: signal.SIGINT,
  }
  hook = sys.unraisablehook

  def terminate(*_):
    raise Terminated

  def send_again(ignored: "sys.UnraisableHookArgs") -> None:
    number = numbers.get(ignored.exc_type)
    if number is not None:
      threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    else:
      hook(ignored)

  before = signal.signal(signal.SIGTERM, terminate)
  sys.unraisablehook = send_again
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    sys.unraisablehook = hook


@contextlib.contextmanager
def mistakes(*, hides_accelerators: bool = True) -> Iterator[None]:
  """Print a user's mistake as one line on stderr, which names flags, and exit with status
  2. Other expected ends print no traceback.

  Args:
    hides_accelerators: see `hide_absent_accelerators`.
  """
  if hides_accelerators:
    hide_absent_accelerators()
  try:
    try:
      with naming_flags(), printing_notes():
        yield
    finally:
      # Here, so that errors of the disk are caught below; help ends with an exit.
      sys.stdout.flush()
  except BrokenPipeError:
    # `vmapseeds recipes | head -1`: Python would complain of the pipe at its end.
    discard_output()
    sys.exit(141)
  except OSError as error:
    if error.errno != errno.ENOSPC:
      raise
    # Of what is printed, too, which Python would try to write again at its end.
    discard_output()
    with contextlib.suppress(OSError):
      print_note("error: no space is left on the disk for what is written or printed")
    sys.exit(1)
  except (Mistake, Failure) as error:
    print_note(f"error: {one_line(error)}")
    sys.exit(2 if isinstance(error, Mistake) else 1)
  except KeyboardInterrupt as interrupt:
    outcome = "what was written stays; run the same command again to resume"
    if str(interrupt):
      outcome = str(interrupt)
    # Statuses of shells: 128 and the number of the signal.
    if isinstance(interrupt, Terminated):
      print_note(f"terminated: {outcome}")
      sys.exit(143)
    print_note(f"interrupted: {outcome}")
    sys.exit(130)


def discard_output() -> None:
  """Let what is still to be printed go nowhere."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> None:
  """Run the program `vmapseeds`."""
  for stream in (sys.stdout, sys.stderr):
    print_what_can_be_encoded(stream)
  with interruptible(), mistakes():
    argv = sys.argv[1:] if argv is None else list(argv)
    # `package.module:name` may be in this folder, as with `python -m`.
    folder = os.getcwd()
    if folder not in sys.path:
      sys.path.insert(0, folder)
    if argv == ["--version"]:
      return print(f"vmapseeds {vmapseeds.__version__}")
    if argv[:1] == [COMPLETION]:
      return write_completion(*argv[1:])
    if argv[:1] in (["-h"], ["--help"]):
      description = (
        f"{vmapseeds.__doc__} --version says which this is; {COMPLETION} SHELL FILE "
        f"writes completions for {', '.join(SHELLS)}."
      )
      return subcommand_cli_from_dict(
        COMMANDS, prog="vmapseeds", description=description, args=argv[:1]
      )
    name = argv[0] if argv else ""
    one_of("command", name, COMMANDS)
    if name in READING:
      use_cpu_alone()
    parse(deferred(COMMANDS[name]), argv[1:], prog=f"vmapseeds {name}")()


def run() -> None:
  """Run `main` as a process of its own, which leaves at once if not all is well.

  After a signal Python would wait for the step that runs, maybe for ever, or free the
  client while a thread of XLA's compiles for it, which crashes.
  """
  try:
    main()
  except SystemExit as end:
    if isinstance(end.code, int) and end.code:
      os._exit(end.code)
    raise


if __name__ == "__main__":
  main()
