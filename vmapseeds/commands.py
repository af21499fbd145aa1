"""The commands of `vmapseeds`: their signatures are their flags, their docstrings the help.

Modules that take seconds to import are imported where a command needs them.
"""

import contextlib
import dataclasses
import re
import shlex
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import vmapseeds
from vmapseeds.campaign.options import Options, WorkOptions
from vmapseeds.errors import UserError, check_at_least, one_line, option, say, warn
from vmapseeds.flags import (
  files_of,
  metavar,
  parse_column_values,
  parse_overrides,
  program,
  section,
  unique_pairs,
)
from vmapseeds.machine import print_described
from vmapseeds.training.recipes import RECIPES, from_text, plugins

if typing.TYPE_CHECKING:
  from vmapseeds.campaign.until import Until

APP = program("vmapseeds")
command = APP.command

Folder = Annotated[str, metavar("DIR")]
FolderOrTable = Annotated[str, metavar("DIR|TABLE")]
Name = Annotated[str, metavar("NAME")]
Column = Annotated[str, metavar("COLUMN")]
Columns = Annotated[list[str] | None, metavar("COLUMN ...")]
Conditions = Annotated[list[str] | None, metavar("COLUMN=NUMBER ...")]
Files = Annotated[list[str] | None, metavar("[SET=]FILE ...")]
Number = Annotated[int, metavar("N")]
Difference = Annotated[float, metavar("X")]
NotAFlag = Annotated[bool, Parameter(parse=False)]


@command
def demo(*, out: Folder = "results/demo", runs: Number = 256) -> None:
  """Train digits_cnn for 1 and for 16 epochs and report both: half a minute to a minute
  on two idle CPU cores.

  Args:
    out: results folder; rerun with the same folder to resume
    runs: runs of each duration
  """
  from vmapseeds.store.files import as_folder
  from vmapseeds.store.folders import check_writable

  seeds = vmapseeds.Runs.independent(runs)
  check_writable(out)
  folders = []
  for epochs, duration in ((1, "1 epoch"), (16, "16 epochs")):
    folders.append(str(as_folder(out) / f"{epochs}_epochs"))
    say(f"digits_cnn, {duration}, {runs} runs")
    vmapseeds.train(vmapseeds.recipe("digits_cnn", epochs=epochs), seeds, folders[-1])
  report = vmapseeds.report(folders)
  report.save(as_folder(out) / "report")
  report.print()


@section("Runs and what varies")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeds:
  """Which runs are trained.

  Args:
    runs: number of runs in the results; with --sweep, of each combination
    until: train more than --runs, until half the width of a statistic's 95 % interval is
      at most X, e.g. 'distribution_variance rel 10%' or 'mean_accuracy abs 0.02%'
    most_runs: with --until, the most runs to train
    first_seed: seed of the first run; the others take the seeds after it. Folders of
      different seeds can be merged
    vary: sources of randomness that vary; the others stay fixed. A recipe has those of
      init order augment dropout data that it uses, a task those that it names (default:
      all vary)
    repeat: with --vary, train each of the --runs with each of N seeds of another source,
      e.g. --vary init --repeat order=5: the report says how much variance is due to each
    sweep: values to sweep, in every combination: numbers and names of fields of the
      recipe, of its values and model_args, e.g. lr=0.01,0.05 optimizer=sgd,adam
  """

  runs: Number = 256
  until: Annotated[str | None, metavar("'NAME rel X%'")] = None
  most_runs: Number = 100_000
  first_seed: Number = 0
  vary: Annotated[list[str] | None, metavar("SOURCE ...")] = None
  repeat: Annotated[list[str] | None, metavar("SOURCE=N ...")] = None
  sweep: Annotated[list[str] | None, metavar("NAME=X,Y ...")] = None

  def table(self, task, runs: int):
    """Return the runs table with `runs` runs of each combination."""
    table = self._seeds(runs)
    swept = unique_pairs(self.sweep or (), "--sweep", "NAME=X,Y", "lr=0.01,0.05")
    if swept:
      table = sweep_values(task, table, swept)
    return table

  def _seeds(self, runs: int):
    repeats = unique_pairs(self.repeat or (), "--repeat", "SOURCE=N", "order=5")
    if repeats and not self.vary:
      raise UserError(
        "--repeat without --vary: say which source varies, e.g. --vary init"
      )
    if not self.vary:
      return vmapseeds.Runs.independent(runs, start=self.first_seed)
    times = {source: from_text(source, text) for source, text in repeats.items()}
    return vmapseeds.Runs.vary(self.vary, runs, start=self.first_seed, repeat=times)


def sweep_values(task, seeds, swept: Mapping[str, str]):
  """Return the runs table of `--sweep`, each combination with all seeds."""
  from vmapseeds.training.recipe_or_task import check_swept

  # Before the texts are read as numbers, so that an unknown name is named first.
  check_swept(task, swept)

  columns: Any = {}
  for name, text in swept.items():
    columns[name] = [value_to_sweep(name, value) for value in text.split(",")]
  return vmapseeds.Runs.sweep(seeds=seeds, **columns)


def value_to_sweep(name: str, text: str):
  """Return the value of a field or of an argument of the model in `--sweep`."""
  if text.lower() in ("none", "null"):
    return None
  return from_text(name, text)


@section("Training examples of each run")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingExamples:
  """Which examples each run is trained on: all, unless one of these is given.

  Args:
    subset: train each run on N of the training examples, drawn by its data seed
    bootstrap: train each run on N examples, drawn with replacement by its data seed;
      without N, as many as there are
    k_fold: K or K REPEATS: train each run once for each of K folds of all examples,
      training and test: on the others, and test it on those of its own; REPEATS times,
      divided anew
    stratified: with --k-fold, give each fold its share of each class
    groups: with --k-fold, keep the examples of a group, such as a patient, in one fold:
      the group of each example, training then test, one a line, or .npy, .npz or
      .parquet; with --stratified as scikit-learn's StratifiedGroupKFold
  """

  subset: Number | None = None
  bootstrap: Annotated[list[int] | None, metavar("[N]")] = None
  k_fold: Annotated[list[int] | None, metavar("K [REPEATS]")] = None
  stratified: bool = False
  groups: Annotated[str | None, metavar("FILE")] = None

  def choose(self, table):
    """Return a runs table whose runs have these training examples."""
    ways = ("subset", "bootstrap", "k_fold")
    given = [option(way) for way in ways if getattr(self, way) is not None]
    if len(given) > 1:
      raise UserError(f"{given[0]} with {given[1]}: give one of them")
    if self.stratified and self.k_fold is None:
      raise UserError("--stratified without --k-fold: it says how folds are made")
    if self.groups is not None and self.k_fold is None:
      raise UserError("--groups without --k-fold: it says how folds are made")

    if self.subset is not None:
      return table.subset(self.subset)
    if self.bootstrap is not None:
      if len(self.bootstrap) > 1:
        numbers = " ".join(map(str, self.bootstrap))
        raise UserError(f"--bootstrap {numbers}: give at most one number")
      return table.bootstrap(*self.bootstrap)
    if self.k_fold is not None:
      return self._folds(table, self.k_fold)
    return table

  def _folds(self, table, k_fold: list[int]):
    if not 1 <= len(k_fold) <= 2:
      numbers = " ".join(str(number) for number in k_fold)
      raise UserError(f"--k-fold {numbers}: write K or K REPEATS, e.g. --k-fold 5")
    repeats = k_fold[1] if len(k_fold) == 2 else 1
    groups = None
    if self.groups is not None:
      from vmapseeds.results.given import read_names

      groups = read_names("groups", self.groups)
    return table.k_fold(
      k_fold[0], stratified=self.stratified, repeats=repeats, groups=groups
    )


@section("Who trains")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
  """Who trains the runs: this process, unless one of these is given.

  Args:
    workers: train in N processes of this machine, which share its cores
    ray: train on the Ray cluster at HOST:PORT; local starts one here
    dask: train on the workers of Dask's scheduler at HOST:PORT
  """

  workers: Number | None = None
  ray: Annotated[str | None, metavar("ADDRESS")] = None
  dask: Annotated[str | None, metavar("ADDRESS")] = None


@section("How runs are trained")
@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkFlags(WorkOptions):
  """The options of `vs.work`; --quiet is said of each command."""

  progress: NotAFlag = True


@section("How runs are trained, and what is kept of them")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainFlags(Options):
  """The options of `vs.train`; --quiet is said of each command."""

  progress: NotAFlag = True
  tallies: NotAFlag = True


def options_of(flags: WorkOptions, *, quiet: bool) -> dict[str, Any]:
  """Return the options that flags give, by name."""
  return vars(flags) | {"progress": not quiet}


@command
def train(
  recipe: Annotated[str, metavar("RECIPE")],
  /,
  *,
  out: Folder,
  set: Annotated[list[str] | None, metavar("FIELD=VALUE ...")] = None,
  dry_run: bool = False,
  quiet: bool = False,
  seeds: Seeds = Seeds(),
  examples: TrainingExamples = TrainingExamples(),
  workers: Workers = Workers(),
  flags: TrainFlags = TrainFlags(),
) -> None:
  """Train runs of a recipe or a task, or resume an earlier call.

  Args:
    recipe: a name that `vmapseeds recipes` lists, or package.module:name, where the
      module may be in this folder
    out: results folder; with more runs than it holds, it is extended
    set: fields of the recipe to change, or values of the recipe or the task, e.g.
      epochs=4 lr=0.25 dataset=cifar10
    dry_run: check everything and say what the runs will take, but train and write
      nothing
    quiet: print neither progress nor what was chosen
    seeds: see `Seeds`
    examples: see `TrainingExamples`
    workers: see `Workers`
    flags: see `TrainFlags`
  """
  from vmapseeds.training.recipe_or_task import resolve_task

  until = parse_until(seeds, examples)
  task = resolve_task(recipe).replace(**parse_overrides(set or ()))
  most = seeds.runs
  if until is not None:
    least = check_at_least("runs", seeds.runs, 1)
    most = check_at_least("most runs", seeds.most_runs, least)
  runs = examples.choose(seeds.table(task, most))
  options = options_of(flags, quiet=quiet)
  if dry_run:
    return print_estimate(task, runs, out, options, at_most=until is not None)

  return conclude(train_runs(task, runs, out, until, seeds.runs, workers, options), out)


def parse_until(seeds: Seeds, examples: TrainingExamples) -> "Until | None":
  """Return the rule of `--until`, None without it.

  Raises:
    UserError: it is no such rule, or the runs are not independent.
  """
  if seeds.until is None:
    return None
  from vmapseeds.campaign.until import Until

  until = Until.parse(seeds.until)
  given = {"sweep": seeds.sweep, "repeat": seeds.repeat, "k_fold": examples.k_fold}
  for flag, values in given.items():
    if values:
      raise UserError(
        f"--until with {option(flag)}: a statistic is of independent runs of the same "
        "values, give one of them"
      )
  return until


def print_estimate(
  task, runs, out: str, options: Mapping[str, Any], *, at_most: bool
) -> None:
  """Print what a training would take, and that runs which are there tell how many a
  question takes.
  """
  with nothing_written():
    estimate = str(vmapseeds.estimate(task, runs, out, **options))
    if at_most:
      estimate = f"at most {estimate}"
    print(estimate)
  print_sample_size_hint(out)


def print_sample_size_hint(out: str) -> None:
  """Say that the runs of a folder, if it has some, tell how many a question takes."""
  with contextlib.suppress(UserError):
    runs = vmapseeds.open_results(out).sizes["run"]
    if runs > 2:
      advised = f"vmapseeds sample-size {shlex.quote(out)}"
      print(f"{runs} runs are there: {advised} says how many a question takes")


def train_runs(
  task,
  runs,
  out: str,
  until: "Until | None",
  first: int,
  workers: Workers,
  options: Mapping[str, Any],
):
  """Return the results of a training, with `--until` from `first` runs on."""
  from vmapseeds.campaign.executors import open_executor

  with open_executor(workers.workers, workers.ray, workers.dask) as executor:
    if until is None:
      return vmapseeds.train(task, runs, out, executor=executor, **options)
    from vmapseeds.campaign.until import train_until

    return train_until(
      task, runs, out, until, first=first, executor=executor, **options
    )


Moved = Annotated[str | None, metavar("PATH")]


@command
def work(
  folder: Folder,
  /,
  *,
  blocks: Annotated[str, metavar("A:B")] = ":",
  dataset: Moved = None,
  quiet: bool = False,
  flags: WorkFlags = WorkFlags(),
) -> None:
  """Train the runs that are left in a folder that `train` began. Several machines may
  do so at once.

  Args:
    folder: results folder
    blocks: which blocks: from A up to but not including B; : for all
    dataset: where the data are now, if they were moved; they must be the same
    quiet: no progress
    flags: see `WorkFlags`
  """
  ends = re.fullmatch(r"(\d{0,9}):(\d{0,9})", blocks)
  if not ends:
    raise UserError(f"--blocks {blocks!r}: write A:B, A: or :B, e.g. 0:10")
  first = int(ends[1]) if ends[1] else None
  stop = int(ends[2]) if ends[2] else None

  options = options_of(flags, quiet=quiet)
  results = vmapseeds.work(folder, (first, stop), dataset=dataset, **options)
  conclude(results, folder)


@command
def verify(folder: Folder, /, *, repair: bool = False) -> None:
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


@command
def replay(folder: Folder, /, *, run: Number, dataset: Moved = None) -> None:
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


@command
def merge(
  *folders: Folder,
  out: Folder,
  force_mixed: bool = False,
  quiet: bool = False,
) -> None:
  """Merge results folders whose runs were trained separately. The runs keep the order
  of the folders.

  Args:
    folders: results folders of one recipe (one or more)
    out: folder for all the runs, new or empty; a run that several folders hold is taken
      once
    force_mixed: merge even where recipe, versions, device kind, lane width, lowering or
      precision differ
    quiet: no progress bar
  """
  with nothing_written():
    results = vmapseeds.merge(
      list(folders),
      out,
      force_mixed=force_mixed,
      progress=not quiet,
    )
  conclude(results, out)


@section("Which runs, and on what they are tested")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Selected:
  """Which results are read.

  Args:
    where: take only the runs with these values, e.g. lr=0.02,0.05 momentum=0.9; of
      several folders, only those of the first, A (default: all runs)
    test_set: which test set
    epoch: the results after this epoch, for runs trained with evaluate_every (default:
      the end of the training)
  """

  where: Conditions = None
  test_set: Name = "test"
  epoch: Number | None = None

  def options(self) -> dict[str, Any]:
    """Return what was given, as `report` takes it."""
    return {
      "where": parse_column_values(self.where or (), "--where"),
      "test_set": self.test_set,
      "epoch": self.epoch,
    }


@section("Which runs, and on what they are tested")
@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectedOfTwo(Selected):
  """Which results are compared.

  Args:
    against: take only the runs of the others, by default of the same folder, with these
      values (default: all runs of the others)
    output: the output of role class, loss or score (default: the first of the first
      folder)
  """

  against: Conditions = None
  output: Name | None = None

  def options(self) -> dict[str, Any]:
    """Return what was given, as `compare` takes it."""
    return super().options() | {
      "against": parse_column_values(self.against or (), "--against"),
      "output": self.output,
    }


@section("Columns of a table of scores")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreTable:
  """What the columns of a table of scores are.

  Args:
    score: the columns with scores, of which the first is compared (default: the only one
      that can be)
    lower_is_better: lower scores are better; of several scores, of these
    higher_is_better: higher scores are better, though the name sounds otherwise
    seed: the columns that tell repeats apart, by which runs are paired (default: seed,
      seed_..., run, trial or alike)
    task: the column with tasks (default: task, dataset, env or alike)
    fold: the column with folds (default: fold or alike)
    step: the column with the steps of learning curves (default: step, epoch or alike)
    at: the step at which scores are taken: last, best or a number (default: last)
    wide: every column of numbers, or each of these, has the scores of one model
      (default: a row for each run)
  """

  score: Columns = None
  lower_is_better: Columns = None
  higher_is_better: bool = False
  seed: Columns = None
  task: Column | None = None
  fold: Column | None = None
  step: Column | None = None
  at: Annotated[str | None, metavar("STEP")] = None
  wide: Columns = None

  def columns(self) -> dict[str, Any]:
    """Return what was given, as `compare` takes it.

    Raises:
      UserError: two flags contradict each other.
    """
    given = dict(vars(self))
    # Such a flag alone is about every column of numbers, and about the only score.
    for flag in ("wide", "lower_is_better"):
      if given[flag] == []:
        given[flag] = True
    if given.pop("higher_is_better"):
      if given["lower_is_better"] is not None:
        raise UserError("--lower-is-better with --higher-is-better: give one of them")
      given["lower_is_better"] = False
    return {name: value for name, value in given.items() if value is not None}


@command
def import_(
  scores: Annotated[str | None, metavar("[TABLE]")] = None,
  /,
  *,
  out: Folder,
  predictions: Files = None,
  logits: Files = None,
  probabilities: Files = None,
  losses: Files = None,
  labels: Files = None,
  targets: Files = None,
  values: Annotated[Path | None, metavar("FILE")] = None,
  keep_logits: bool = False,
  classes: Number | None = None,
  class_names: Annotated[list[str] | None, metavar("NAME ...")] = None,
  example_ids: Files = None,
  name: Name | None = None,
  by: Columns = None,
  quiet: bool = False,
  table: ScoreTable = ScoreTable(),
) -> None:
  """Import runs trained elsewhere into a results folder, for report and compare. Runs
  that it has from earlier imports stay.

  Files are .npy, .npz, .csv, .tsv, .txt or .parquet. Of several test sets, each is given as
  SET=FILE, e.g. --labels test=y.npy shift=y_shift.npy

  A table of scores, a row for each run, is given as it is: vmapseeds import scores.csv
  --by model --score accuracy --out DIR

  Args:
    scores: a table of scores, a row for each run (or --predictions, --logits,
      --probabilities or --losses)
    out: folder for the results; new, empty, or with runs on the same examples
    predictions: predicted classes, numbers or names, (runs, examples), -1 for none, which
      is an error, -2 or nothing where a run was not asked; with --targets numbers
    logits: logits, (runs, examples, classes); .npy files may have any size, they are read
      a block of runs at a time
    probabilities: of the classes, (runs, examples, classes): logits are log p
    losses: numbers of which lower are better, (runs, examples)
    labels: the true classes, numbers or names, (examples,) (default: those of DIR)
    targets: the numbers to be predicted, (examples,), instead of --labels: the loss is the
      squared error
    values: table with a row for each run, or .npz, in columns: seed or seed_SOURCE, by
      which compare pairs runs, lr and others by any names
    keep_logits: keep logits beside predictions
    classes: number of classes (default: those of the logits, or up to the highest that
      occurs)
    class_names: what reports call the classes, the first class 0 (default: names in the
      files, sorted, or numbers)
    example_ids: the id of each example, one a line, or .npy, .npz or .parquet: what tables
      show, and by which compare matches the examples of two folders
    name: name of these runs in reports (default: the name of the file)
    by: of a table of scores, the columns with what varies (default: those of text)
    quiet: no progress bar, and no line on how a text file was read
    table: see `ScoreTable`
  """
  with nothing_written():
    results = vmapseeds.import_runs(
      out,
      scores=scores,
      predictions=files_of(predictions or (), "--predictions"),
      logits=files_of(logits or (), "--logits"),
      probabilities=files_of(probabilities or (), "--probabilities"),
      losses=files_of(losses or (), "--losses"),
      labels=files_of(labels or (), "--labels"),
      targets=files_of(targets or (), "--targets"),
      values=values,
      num_classes=classes,
      class_names=class_names or None,
      example_ids=files_of(example_ids or (), "--example-ids"),
      keep_logits=keep_logits,
      name=name,
      progress=not quiet,
      by=by or None,
      **table.columns(),
    )
  line = f"{results.sizes['run']} runs"
  if "example" in results.sizes:
    line += f" on {results.sizes['example']} examples"
  if "num_classes" in results.attrs:
    line += f" of {results.attrs['num_classes']} classes"
  line += f" in {out}"
  if scores is None and "accuracy" in results:
    line += f", mean accuracy {results.accuracy.values.mean():.2%}"
  print(f"{line}; next: vmapseeds report {shlex.quote(out)}")


@command
def list_(folder: Folder = "results", /) -> None:
  """List the results folders in a folder: recipe, values, runs, accuracy, when.

  Args:
    folder: folder with results folders, at any depth
  """
  from vmapseeds.reports import listing, rendering

  table = listing.list_results(folder)
  rendering.make_console().print(rendering.terminal_table(table))


@command
def report(
  *folders: FolderOrTable,
  by: Columns = None,
  out: Folder | None = None,
  selected: Selected = Selected(),
  table: ScoreTable = ScoreTable(),
) -> None:
  """Print the statistics of results and write pages with every number and figure.

  Each combination of swept values has its own row and page. Several folders are also
  set side by side. DIR may be a table of scores, a row for each run: vmapseeds report
  scores.csv --by model --score accuracy

  Args:
    folders: results folders, or tables of scores (one or more)
    by: columns of the runs table that group the runs, e.g. lr or seed_init; runs are
      pooled over all other columns (default: all that are swept)
    out: folder for the pages (default: report in each DIR; side by side:
      report/side_by_side in the first)
    selected: see `Selected`
    table: see `ScoreTable`
  """
  found = vmapseeds.report(
    list(folders), by=by or None, **selected.options(), **table.columns()
  )
  found.save(out)
  found.print()


@command
def compare(
  *folders: FolderOrTable,
  by: Columns = None,
  over: Columns = None,
  all_pairs: bool = False,
  margin: Difference | None = None,
  paired: bool = False,
  unpaired: bool = False,
  out: Folder | None = None,
  selected: SelectedOfTwo = SelectedOfTwo(),
  table: ScoreTable = ScoreTable(),
) -> None:
  """Say which of two or more recipes is better, by how much and how surely. Write a page
  about it.

  DIR may be a table of scores, a row for each run: vmapseeds compare scores.csv --by model
  --score rmse --lower-is-better

  If they are the same, one is called better in at most 5 % of cases. To compare runs of
  one folder: vmapseeds compare DIR --where lr=0.02 --against lr=0.05

  Args:
    folders: results of A, and of B, C and so on, each of which is compared with A (one or
      more)
    by: columns of a single DIR whose values are compared, every two, or each with the one
      that --against names (default: none; of a table, its columns of text)
    over: swept columns over whose values runs of the same seeds are averaged, e.g.
      optimizer
    all_pairs: compare every two folders
    margin: a difference that does not matter, in percentage points of accuracy, or in
      the unit of the loss or score; A and B may then be called equal
    paired: pair the runs row by row; without this flag, runs with the same seeds are
      paired if most runs have a partner, and if there are at least 6 pairs
    unpaired: compare all runs of one with all of the other
    out: folder for the page (default: `report/<test set, epoch, where>/against_<B>` in the
      first folder)
    selected: see `SelectedOfTwo`
    table: see `ScoreTable`
  """
  if not folders:
    raise UserError("no results folder given: name two or more to compare")
  if paired and unpaired:
    raise UserError("--paired and --unpaired: give one of the two")
  pairing = None
  if paired or unpaired:
    pairing = paired
  first, *others = folders
  comparisons = vmapseeds.compare(
    first,
    *others,
    by=by or None,
    over=over or [],
    all_pairs=all_pairs,
    margin=margin,
    paired=pairing,
    **selected.options(),
    **table.columns(),
  )
  comparisons.save(out)
  comparisons.print()


@command
def sample_size(
  a: FolderOrTable,
  b: Annotated[str | None, metavar("[DIR_B]")] = None,
  /,
  *,
  detect: Difference | None = None,
  power: Annotated[float, metavar("P")] = 0.8,
  selected: SelectedOfTwo = SelectedOfTwo(),
  table: ScoreTable = ScoreTable(),
) -> None:
  """Say how many runs it takes to know a mean, to show a difference, and to know the
  variance, from a pilot of 10 to 30 runs.

  DIR may be a table of scores, a row for each run: vmapseeds sample-size scores.csv
  --score accuracy --where model=gat --against model=gcn

  Args:
    a: results of the pilot
    b: results of another recipe with the same seeds: they say what pairing by seeds
      saves
    detect: the mean is wanted to within X, and a difference of X between two recipes is
      to be shown: in percentage points of accuracy, or in the unit of the loss or score
      (default: about half a standard deviation)
    power: how often such a difference is to be shown
    selected: see `SelectedOfTwo`
    table: see `ScoreTable`
  """
  sizes = vmapseeds.sample_size(
    a, b, detect=detect, power=power, **selected.options(), **table.columns()
  )
  sizes.print()


@command
def examples(
  folder: Folder,
  /,
  *,
  most: Literal["split", "hard", "mislabelled"] = "split",
  n: Number = 20,
  output: Name | None = None,
  selected: Selected = Selected(),
) -> None:
  """Print the test examples that are hardest, divide the runs most, or are likely
  mislabelled.

  Args:
    folder: results folder
    most: which come first: split, where runs agree least; hard, where most are wrong;
      mislabelled, where most agree on another class than the label
    n: the most examples to print
    output: the output of role class or loss (default: the first)
    selected: see `Selected`
  """
  check_at_least("n", n, 1)
  table = vmapseeds.example_table(folder, output=output, **selected.options())
  table.print(most=most, n=n)


@command
def confusion(
  folder: Folder,
  /,
  *,
  out: Folder | None = None,
  selected: Selected = Selected(),
) -> None:
  """Print which classes the runs take for which, over all runs, and write a page with
  counts and rates.

  Args:
    folder: results folder
    out: folder for the page (default: DIR/report/confusion)
    selected: see `Selected`
  """
  found = vmapseeds.confusion(folder, **selected.options())
  found.save(out)
  found.print()


@command
def recipes() -> None:
  """List the recipes: those built in, and those that installed packages add."""
  descriptions = {
    name: f"{recipe.dataset}, {recipe.model}, {recipe.epochs} epochs: {purpose}"
    for name, (recipe, purpose) in RECIPES.items()
  }
  # Their names and texts are another package's: they may hold line ends.
  for name, text in plugins().items():
    descriptions[one_line(name)] = one_line(f"{text}, of an installed package")

  print_described(descriptions)


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
  from vmapseeds.results.doubts import find_doubts

  print(summary_line(results, folder))
  for doubt in find_doubts(results):
    warn(f"note: {doubt}")


def summary_line(results, folder: str) -> str:
  """Return one line about what a folder holds and what to do next."""
  from vmapseeds.results.opening import converged_runs
  from vmapseeds.store.results import Results

  runs = results.sizes["run"]
  line = f"{runs} runs in {folder}"
  following = f"next: vs.open_results({folder!r})"
  if "diverged" in results and results.diverged.any():
    line += f", {int(results.diverged.sum())} diverged"

  measured = [n for n in ("accuracy", "test_accuracy") if n in results.variables]
  if measured:
    accuracy = results[measured[0]].values[converged_runs(results)]
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
