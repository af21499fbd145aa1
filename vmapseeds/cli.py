"""The command line: `vmapseeds demo`, `train`, `work`, `verify` and the others that
`vmapseeds --help` lists.
"""

import contextlib
import errno
import inspect
import os
import re
import shlex
import shutil
import signal
import sys
import textwrap
import threading
import typing
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import vmapseeds
from vmapseeds import command_flags, removed
from vmapseeds.campaign.options import Options, WorkOptions
from vmapseeds.errors import (
  Failure,
  UserError,
  check_at_least,
  check_one_of,
  naming_flags,
  one_line,
  option,
  print_note,
  printing_notes,
  say,
  warn,
)
from vmapseeds.machine import (
  hide_absent_accelerators,
  print_what_can_be_encoded,
  use_cpu_alone,
)
from vmapseeds.parsing import (
  Parser,
  files_of,
  parse_column_values,
  parse_overrides,
  unique_pairs,
)
from vmapseeds.training.recipes import RECIPES, from_text, plugins

if typing.TYPE_CHECKING:
  from vmapseeds.campaign.until import Until

# Those that shtab knows and that are tried.
SHELLS = ("bash", "zsh", "fish")
IMAGES = ("png", "pdf")  # formats of figures beside SVG


def demo_command(flags: Namespace) -> None:
  """Train digits_cnn for 1 and for 16 epochs and report both: half a minute to a minute
  on two idle CPU cores.
  """
  from vmapseeds.store.files import as_folder
  from vmapseeds.store.folders import check_writable

  seeds = vmapseeds.Runs.independent(flags.runs)
  check_writable(flags.out)
  folders = []
  for epochs, duration in ((1, "1 epoch"), (16, "16 epochs")):
    folders.append(str(as_folder(flags.out) / f"{epochs}_epochs"))
    say(f"digits_cnn, {duration}, {flags.runs} runs")
    vmapseeds.train(vmapseeds.recipe("digits_cnn", epochs=epochs), seeds, folders[-1])
  report = vmapseeds.report(folders)
  report.save(as_folder(flags.out) / "report")
  report.print()


def train_command(flags: Namespace) -> None:
  """Train runs of a recipe or a task, or resume an earlier call."""
  from vmapseeds.training.recipe_or_task import resolve_task

  until = parse_until(flags)
  task = resolve_task(flags.recipe).replace(**parse_overrides(flags.set))
  most_runs = flags.runs
  if until is not None:
    least = check_at_least("runs", flags.runs, 1)
    most_runs = check_at_least("most runs", flags.most_runs, least)
  runs = runs_table(task, most_runs, flags)
  if flags.dry_run:
    return print_estimate(task, runs, flags)

  return conclude(train_runs(task, runs, until, flags), flags.out)


def parse_until(flags: Namespace) -> "Until | None":
  """Return the rule of `--until`, None without it.

  Raises:
    UserError: it is no such rule, or the runs are not independent.
  """
  if flags.until is None:
    return None
  from vmapseeds.campaign.until import Until

  until = Until.parse(flags.until)
  for flag in ("sweep", "repeat", "k_fold"):
    if getattr(flags, flag):
      raise UserError(
        f"--until with {option(flag)}: a statistic is of independent runs of the same "
        "values, give one of them"
      )
  return until


def print_estimate(task, runs, flags: Namespace) -> None:
  """Print what a training would take, and that runs which are there tell how many a
  question takes.
  """
  with nothing_written():
    options = campaign_options(flags)
    estimate = str(vmapseeds.estimate(task, runs, flags.out, **vars(options)))
    if flags.until is not None:
      estimate = f"at most {estimate}"
    print(estimate)
  print_sample_size_hint(flags.out)


def train_runs(task, runs, until: "Until | None", flags: Namespace):
  """Return the results of a training, by the workers and with the options of the flags."""
  from vmapseeds.campaign.executors import open_executor

  options = vars(campaign_options(flags))
  with open_executor(flags.workers, flags.ray, flags.dask) as executor:
    if until is None:
      return vmapseeds.train(task, runs, flags.out, executor=executor, **options)
    from vmapseeds.campaign.until import train_until

    return train_until(
      task, runs, flags.out, until, first=flags.runs, executor=executor, **options
    )


def execution_options(flags: Namespace) -> WorkOptions:
  """Return the options of `work`."""
  return WorkOptions(
    seed_batch=flags.seed_batch,
    checkpoint_every=flags.checkpoint_every,
    force_mixed=flags.force_mixed,
    allow_upgrade=flags.allow_upgrade,
    progress=not flags.quiet,
  )


def campaign_options(flags: Namespace) -> Options:
  """Return the options of `train`."""
  return Options(
    **vars(execution_options(flags)),
    lane_width=flags.lane_width,
    lowering=flags.lowering,
    tallies=flags.tallies,
    pairs=flags.pairs,
    predictions=flags.predictions,
    logits=flags.logits,
    keep_params=flags.keep_params,
  )


def print_sample_size_hint(out: str) -> None:
  """Say that the runs of a folder, if it has some, tell how many a question takes."""
  with contextlib.suppress(UserError):
    runs = vmapseeds.open_results(out).sizes["run"]
    if runs > 2:
      command = f"vmapseeds sample-size {shlex.quote(out)}"
      print(f"{runs} runs are there: {command} says how many a question takes")


def runs_table(task, runs: int, flags: Namespace):
  """Return the runs table that the flags of `train` ask for."""
  table = seeds_of(runs, flags)
  swept = unique_pairs(flags.sweep, "--sweep", "NAME=X,Y", "lr=0.01,0.05")
  if swept:
    table = sweep_values(task, table, swept)
  return choose_examples(table, flags)


def seeds_of(runs: int, flags: Namespace):
  """Return the runs table of `--first-seed`, `--vary` and `--repeat`."""
  repeats = unique_pairs(flags.repeat, "--repeat", "SOURCE=N", "order=5")
  if repeats and not flags.vary:
    raise UserError(
      "--repeat without --vary: say which source varies, e.g. --vary init"
    )
  if not flags.vary:
    return vmapseeds.Runs.independent(runs, start=flags.first_seed)
  times = {source: from_text(source, text) for source, text in repeats.items()}
  return vmapseeds.Runs.vary(flags.vary, runs, start=flags.first_seed, repeat=times)


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


def choose_examples(table, flags: Namespace):
  """Return the runs table with the training examples of `--subset`, `--bootstrap` or
  `--k-fold`.
  """
  ways = ("subset", "bootstrap", "k_fold")
  given = [option(way) for way in ways if getattr(flags, way) is not None]
  if len(given) > 1:
    raise UserError(f"{given[0]} with {given[1]}: give one of them")
  if flags.stratified and flags.k_fold is None:
    raise UserError("--stratified without --k-fold: it says how folds are made")
  if flags.groups is not None and flags.k_fold is None:
    raise UserError("--groups without --k-fold: it says how folds are made")

  if flags.subset is not None:
    return table.subset(flags.subset)
  if flags.bootstrap is not None:
    if len(flags.bootstrap) > 1:
      numbers = " ".join(map(str, flags.bootstrap))
      raise UserError(f"--bootstrap {numbers}: give at most one number")
    return table.bootstrap(*flags.bootstrap)
  if flags.k_fold is not None:
    return divide_into_folds(table, flags.k_fold, flags.stratified, flags.groups)
  return table


def divide_into_folds(
  table_of_runs, k_fold: Sequence[int], stratified: bool, groups_file: str | None
):
  """Return the runs table of `--k-fold K [REPEATS]`."""
  if not 1 <= len(k_fold) <= 2:
    numbers = " ".join(str(number) for number in k_fold)
    raise UserError(f"--k-fold {numbers}: write K or K REPEATS, e.g. --k-fold 5")
  repeats = k_fold[1] if len(k_fold) == 2 else 1
  groups = None
  if groups_file is not None:
    from vmapseeds.results.given import read_names

    groups = read_names("groups", groups_file)
  return table_of_runs.k_fold(
    k_fold[0], stratified=stratified, repeats=repeats, groups=groups
  )


def work_command(flags: Namespace) -> None:
  """Train the runs that are left in a folder that `train` began. Several machines may
  do so at once.
  """
  ends = re.fullmatch(r"(\d{0,9}):(\d{0,9})", flags.blocks)
  if not ends:
    raise UserError(f"--blocks {flags.blocks!r}: write A:B, A: or :B, e.g. 0:10")
  first = int(ends[1]) if ends[1] else None
  stop = int(ends[2]) if ends[2] else None

  options = vars(execution_options(flags))
  results = vmapseeds.work(
    flags.folder, (first, stop), dataset=flags.dataset, **options
  )
  conclude(results, flags.folder)


def verify_command(flags: Namespace) -> None:
  """Validate a results folder: print what is lost, damaged or foreign. Exit status 1 if
  anything is.
  """
  verdict = vmapseeds.verify(flags.folder, repair=flags.repair)
  for repaired in verdict.repairs:
    print(f"repaired: {one_line(repaired)}")
  for note in verdict.notes:
    print(f"note: {one_line(note)}")
  for problem in verdict.problems:
    print(f"problem: {one_line(problem)}")
  if verdict.problems:
    sys.exit(1)
  print(f"sound: {verdict.done} of {verdict.runs} runs are done in {flags.folder}")


def replay_command(flags: Namespace) -> None:
  """Train one run again and say whether its predictions agree bit for bit. Exit status
  1 if they do not.
  """
  from vmapseeds.store.layout import require_metadata

  again = vmapseeds.replay(flags.folder, flags.run, dataset=flags.dataset)
  test_sets = require_metadata(flags.folder)["test_sets"]
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


def merge_command(flags: Namespace) -> None:
  """Merge results folders whose runs were trained separately. The runs keep the order
  of the folders.
  """
  with nothing_written():
    results = vmapseeds.merge(
      flags.folders,
      flags.out,
      force_mixed=flags.force_mixed,
      allow_upgrade=flags.allow_upgrade,
      progress=not flags.quiet,
    )
  conclude(results, flags.out)


def import_command(flags: Namespace) -> None:
  """Import runs trained elsewhere into a results folder, for report and compare. Runs
  that it has from earlier imports stay.

  Files are .npy, .npz, .csv, .tsv, .txt or .parquet. Of several test sets, each is given as
  SET=FILE, e.g. --labels test=y.npy shift=y_shift.npy

  A table of scores, a row for each run, is given as it is: vmapseeds import scores.csv
  --by model --score accuracy --out DIR
  """
  first_line_is_names = None
  if flags.header is not None:
    check_one_of("--header", flags.header, ("yes", "no"))
    first_line_is_names = flags.header == "yes"
  if flags.scores is not None:
    for name in ("predictions", "logits", "labels", "values"):
      if getattr(flags, name):
        raise UserError(f"{flags.scores} with {option(name)}: give one of them")
    with nothing_written():
      table = vmapseeds.import_runs(
        flags.out,
        scores=flags.scores,
        by=flags.by or None,
        name=flags.name,
        progress=not flags.quiet,
        **table_columns(flags),
      )
    runs = table.sizes["run"]
    folder = shlex.quote(flags.out)
    return print(f"{runs} runs in {flags.out}; next: vmapseeds report {folder}")
  with nothing_written():
    results = vmapseeds.import_runs(
      flags.out,
      predictions=files_of(flags.predictions, "--predictions"),
      logits=files_of(flags.logits, "--logits"),
      labels=files_of(flags.labels, "--labels"),
      values=flags.values,
      num_classes=flags.classes,
      class_names=flags.class_names or None,
      example_ids=files_of(flags.example_ids, "--example-ids"),
      keep_logits=flags.keep_logits,
      name=flags.name,
      header=first_line_is_names,
      progress=not flags.quiet,
    )
  runs = results.sizes["run"]
  examples = results.sizes["example"]
  print(
    f"{runs} runs on {examples} examples of {results.attrs['num_classes']} classes in "
    f"{flags.out}, mean accuracy {results.accuracy.values.mean():.2%}; next: vmapseeds report "
    f"{shlex.quote(flags.out)}"
  )


def report_command(flags: Namespace) -> None:
  """Print the statistics of results and write pages with every number and figure.

  Each combination of swept values has its own row and page. Several folders are also
  set side by side. DIR may be a table of scores, a row for each run: vmapseeds report
  scores.csv --by model --score accuracy
  """
  check_one_of("format", flags.format, ("text", "md", *IMAGES))
  report = vmapseeds.report(
    flags.folders,
    by=flags.by or None,
    where=parse_column_values(flags.where, "--where"),
    test_set=flags.test_set,
    epoch=flags.epoch,
    images=flags.images,
    **table_columns(flags),
  )
  image = flags.format if flags.format in IMAGES else None
  page = report.save(flags.out, image=image)
  report.print(format="md" if flags.format == "md" else "text")
  if flags.open:
    from vmapseeds.reports.pages import open_in_browser

    open_in_browser(page)


def list_command(flags: Namespace) -> None:
  """List the results folders in a folder: recipe, values, runs, accuracy, when."""
  from vmapseeds.reports import listing, rendering

  table = listing.list_results(flags.folder)
  rendering.make_console().print(rendering.terminal_table(table))


def examples_command(flags: Namespace) -> None:
  """Print the test examples that are hardest, divide the runs most, or are likely
  mislabelled.
  """
  check_at_least("n", flags.n, 1)
  check_one_of("order", flags.most, ("split", "hard", "mislabelled"))
  table = vmapseeds.example_table(
    flags.folder,
    where=parse_column_values(flags.where, "--where"),
    output=flags.output,
    test_set=flags.test_set,
    epoch=flags.epoch,
  )
  table.print(most=flags.most, n=flags.n)


def confusion_command(flags: Namespace) -> None:
  """Print which classes the runs take for which, over all runs, and write a page with
  counts and rates.
  """
  found = vmapseeds.confusion(
    flags.folder,
    where=parse_column_values(flags.where, "--where"),
    test_set=flags.test_set,
    epoch=flags.epoch,
  )
  found.save(flags.out)
  found.print()


def compare_command(flags: Namespace) -> None:
  """Say which of two or more recipes is better, by how much and how surely. Write a page
  about it.

  DIR may be a table of scores, a row for each run: vmapseeds compare scores.csv --by model
  --score rmse --lower-is-better

  If they are the same, one is called better in at most 5 % of cases. To compare runs of
  one folder: vmapseeds compare DIR --where lr=0.02 --against lr=0.05
  """
  if not flags.folders:
    raise UserError("no results folder given: name two or more to compare")
  comparisons = vmapseeds.compare(
    *flags.folders,
    where=parse_column_values(flags.where, "--where"),
    against=parse_column_values(flags.against, "--against"),
    by=flags.by or None,
    over=flags.over,
    all_pairs=flags.all_pairs,
    margin=flags.margin,
    gamma=flags.gamma,
    test_set=flags.test_set,
    epoch=flags.epoch,
    paired=flags.paired or None,
    output=flags.output,
    **table_columns(flags),
  )
  comparisons.save(flags.out)
  comparisons.print()


def sample_size_command(flags: Namespace) -> None:
  """Say how many runs it takes to know a mean, to show a difference, and to know the
  variance, from a pilot of 10 to 30 runs.

  DIR may be a table of scores, a row for each run: vmapseeds sample-size scores.csv
  --score accuracy --where model=gat --against model=gcn
  """
  sizes = vmapseeds.sample_size(
    flags.a,
    flags.b,
    detect=flags.detect,
    power=flags.power,
    where=parse_column_values(flags.where, "--where"),
    against=parse_column_values(flags.against, "--against"),
    test_set=flags.test_set,
    epoch=flags.epoch,
    output=flags.output,
    **table_columns(flags),
  )
  sizes.print()


def table_columns(flags: Namespace) -> dict[str, Any]:
  """Return what the columns of a table of scores are, as `compare` takes it.

  Raises:
    UserError: two flags contradict each other.
  """
  lower = flags.lower_is_better
  if flags.higher_is_better:
    if lower is not None:
      raise UserError("--lower-is-better with --higher-is-better: give one of them")
    lower = False
  elif lower == []:
    # The flag alone is about the only score.
    lower = True
  wide = flags.wide
  if wide == []:
    wide = True
  columns = {
    "score": flags.score,
    "lower_is_better": lower,
    "seed": flags.seed,
    "task": flags.task,
    "fold": flags.fold,
    "step": flags.step,
    "at": flags.at,
    "wide": wide,
  }
  return {name: value for name, value in columns.items() if value is not None}


def recipes_command(flags: Namespace) -> None:
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


class Command(NamedTuple):
  """A command: what it does, and its flags."""

  run: Callable[[Namespace], None]
  add_flags: Callable[[Parser], None] = lambda parser: None

  @property
  def description(self) -> str:
    return inspect.getdoc(self.run) or ""


COMMANDS = {
  "demo": Command(demo_command, command_flags.demo_flags),
  "train": Command(train_command, command_flags.train_flags),
  "work": Command(work_command, command_flags.work_flags),
  "verify": Command(verify_command, command_flags.verify_flags),
  "replay": Command(replay_command, command_flags.replay_flags),
  "merge": Command(merge_command, command_flags.merge_flags),
  "import": Command(import_command, command_flags.import_flags),
  "list": Command(list_command, command_flags.list_flags),
  "report": Command(report_command, command_flags.report_flags),
  "compare": Command(compare_command, command_flags.compare_flags),
  "sample-size": Command(sample_size_command, command_flags.sample_size_flags),
  "examples": Command(examples_command, command_flags.examples_flags),
  "confusion": Command(confusion_command, command_flags.confusion_flags),
  "recipes": Command(recipes_command),
}


def parser_of(name: str) -> Parser:
  """Return the parser of a command."""
  command = COMMANDS[name]
  parser = Parser(prog=f"vmapseeds {name}", description=command.description)
  command.add_flags(parser)
  return parser


def program_parser() -> Parser:
  """Return the parser of the whole program, for its help and for completions."""
  description = (
    f"{vmapseeds.__doc__}\n\n--version says which this is; --print-completion SHELL "
    f"prints completions for {', '.join(SHELLS)}."
  )
  parser = Parser(prog="vmapseeds", description=description)
  commands = parser.add_subparsers(metavar="COMMAND", parser_class=Parser)
  parser.known.append(commands)
  for name, command in COMMANDS.items():
    first_paragraph, *_ = command.description.split("\n\n")
    summary, *_ = " ".join(first_paragraph.split()).split(". ")
    command.add_flags(commands.add_parser(name, help=summary.rstrip(".")))
  return parser


def print_completion(shell: str = "", *others: str) -> None:
  """Print a script with which a shell completes commands and flags."""
  check_one_of("shell", shell, SHELLS)
  if others:
    raise UserError(f"--print-completion {shell} {' '.join(others)}: give one shell")
  try:
    import shtab
  except ImportError:
    raise UserError(
      "shtab, which writes completions, is not installed: pip install shtab"
    ) from None
  print(shtab.complete(program_parser(), shell))


# Commands that train nothing. They use the CPU alone: a training may have the
# accelerator, or there may be none.
READING = frozenset(
  (
    "verify",
    "merge",
    "import",
    "list",
    "report",
    "compare",
    "sample-size",
    "examples",
    "confusion",
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
def one_line_errors(*, hides_accelerators: bool = True) -> Iterator[None]:
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
  except (UserError, Failure) as error:
    print_note(f"error: {one_line(error)}")
    sys.exit(2 if isinstance(error, UserError) else 1)
  except KeyboardInterrupt as interrupt:
    outcome = "what was written stays; rerun the same command to resume"
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
  with interruptible(), one_line_errors():
    argv = sys.argv[1:] if argv is None else list(argv)
    # `package.module:name` may be in this folder, as with `python -m`.
    folder = os.getcwd()
    if folder not in sys.path:
      sys.path.insert(0, folder)
    if argv == ["--version"]:
      return print(f"vmapseeds {vmapseeds.__version__}")
    if argv[:1] == ["--print-completion"]:
      return print_completion(*argv[1:])
    if argv[:1] in (["-h"], ["--help"]):
      return program_parser().print_help()
    name = argv[0] if argv else ""
    if name in removed.COMMANDS:
      raise UserError(f"vmapseeds {name} is gone: {removed.COMMANDS[name]}")
    check_one_of("command", name, COMMANDS)
    if name in READING:
      use_cpu_alone()
    return COMMANDS[name].run(parser_of(name).parse(argv[1:]))


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
