"""Reports of a campaign's results: numbers with their standard errors, figures,
self-contained pages.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import jax
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure as MatplotlibFigure
from rich.console import Console
from upath import UPath

from vmapseeds import stats
from vmapseeds.errors import UserError, hide_own_frames, hide_own_frames_of_methods
from vmapseeds.reports import (
  crossed_sources,
  groups,
  pages,
  plots,
  rendering,
  runs_needed,
  sweeps,
)
from vmapseeds.reports.confusions import table_of_confusion
from vmapseeds.reports.documents import (
  Cell,
  Document,
  Figure,
  Section,
  Table,
  note_section,
)
from vmapseeds.reports.example_cards import explorer_of, notable_cards
from vmapseeds.reports.examples_table import table_of_rows
from vmapseeds.reports.findings import (
  FindingsOfMany,
  check_image,
  check_page_folder,
  command_to_repeat,
)
from vmapseeds.reports.groups import Where, format_values
from vmapseeds.reports.pages import join_names
from vmapseeds.reports.pictures import ExampleInputs, find_inputs
from vmapseeds.reports.sources import (
  MOST_READ,
  Source,
  open_source,
  read_source,
  report_folder,
)
from vmapseeds.reports.summaries import (
  format_setting,
  headline_statistics,
  measure_outputs,
  summarize,
)
from vmapseeds.results.by_example import mean_of_asked
from vmapseeds.results.description import parsed_attribute
from vmapseeds.results.formatting import (
  capitalized,
  run_count,
  scale_and_suffix,
  show,
  show_class,
  show_interval,
)
from vmapseeds.results.measured_runs import MeasuredRuns, NoRunLeft, roles
from vmapseeds.results.opening import load_into_memory, resolve_test_set
from vmapseeds.results.roles import REPORTED_ROLES
from vmapseeds.results.score_tables import ScoreColumns, ScoreTable
from vmapseeds.results.statistics import GROUPS, statistic_by_key
from vmapseeds.results.table_files import is_table
from vmapseeds.store.files import Folder, as_folder
from vmapseeds.target import moves_data

MOST_COLORED = len(plots.PALETTE)  # groups in one figure of curves
MOST_PAIRED = 50  # runs whose pairs are drawn
MOST_IN_WORDS = 4  # groups side by side that have a sentence each
Summary = dict[str, Any]  # what `summarize` or `summarize_output` returns
Figures = dict[str, Figure]
_DISTRIBUTION = """The normal curve has the runs' mean and standard deviation. The curve of \
independence is what would be seen if every example kept its mean and spread but differed \
between runs for itself: as far as the bars follow it, runs differ only by chance on this \
test set. The binomial curve takes all examples as equally hard."""
_FOOTER = """R is the number of runs, n of test examples. Standard errors and intervals are \
what other runs on the same test examples would give, with a * what the same runs on other \
examples would; the choice of the test examples comes on top of the first, and for variances cannot \
be seen from one test set. %² are squared percentage points."""
_STARS = """± and intervals: what other runs would give; *: these runs on other \
examples"""
# Of a frame of statistics, as they are called in the record of a statistic.
_COLUMNS = ("label", "value", "se", "low", "high", "unit", "over")
BARS = "A bar shows which classes the runs predict; blue is the label."
HEADINGS = (
  "statistic",
  "value ± std. error",
  "95 % interval",
  "what it says, and what it is",
)
_SIDE_BY_SIDE = """± standard error, and the 95 % interval underneath. Each name leads to \
the page with all statistics, and what they are. Intervals of an ensemble are what the same \
runs on other examples would give, all others what other runs on the same test examples \
would."""


# Label, value with standard error, 95 % interval, reading and definition.
StatisticRow = tuple[str, str, str, Cell]


class Part(NamedTuple):
  """Runs that have a page of their own: all of a folder, or a group of its runs."""

  name: str
  subfolder: str  # of its page, below that of the folder; empty of all runs
  measured: list[MeasuredRuns]  # without joint errors, which are many
  summary: Summary
  inputs: ExampleInputs = ExampleInputs()


@dataclasses.dataclass
class FolderReport:
  """What a folder has to report.

  Attributes:
    folder: the results folder.
    name: the shortest that tells it from the others; empty of a single folder.
    subfolders: of its pages, for a test set and an epoch.
    parts: its runs, or groups of them.
    lost: a sentence for each group that has no statistics, such as one whose runs all
      diverged.
  """

  folder: Any
  name: str
  subfolders: tuple[str, str]
  parts: list[Part]
  lost: list[str]

  @property
  def has_overview(self) -> bool:
    return len(self.parts) > 1 or bool(self.lost)

  @functools.cached_property
  def document(self) -> Document:
    """What its page says: that with its groups side by side, if it has several."""
    if self.has_overview:
      return overview(self.parts, self.lost)
    return document_of(self.parts[0])

  @property
  def brief(self) -> Document:
    """Return what a terminal shows, which needs no pictures of single examples."""
    if self.has_overview:
      return self.document
    return brief_of(self.parts[0])

  def save(
    self,
    out: Folder | None,
    write: Callable[..., Path | UPath],
    written: dict[str, Path | UPath],
  ) -> Path | UPath:
    """Write its pages into the results, or into `out`, add those of its parts to `written`,
    and return the one above them.
    """
    if out is not None:
      top = as_folder(out) / self.name
    else:
      top = check_page_folder(report_folder(self.folder))
    top = pages.nested_folder(top, *self.subfolders)
    documents: Iterator[Document] = iter([self.document])
    back = None
    if self.has_overview:
      # One after the other: the pages of many groups do not fit into memory together.
      documents = map(document_of, self.parts)
      back = top / "report.html"
    for part, document in zip(self.parts, documents, strict=True):
      place = pages.nested_folder(top, part.subfolder)
      table = statistics_frame([part.summary])
      written[part.name] = write(place, document, table=table, back=back)
    if not self.has_overview:
      return written[self.parts[0].name]
    table = statistics_frame([part.summary for part in self.parts])
    return write(top, self.document, table=table, pages=written)


@hide_own_frames_of_methods
class Report(FindingsOfMany[Summary]):
  """The statistics of results folders: what `vs.report` returns.

  A report is a sequence of what `summarize` returns for each group of runs of each
  folder, with its `folder` and `values`, column -> value.

  `table` has a row for each statistic. Its index has the folder, the values by which runs
  are grouped, the output and the statistic; its columns are `label`, `value`, `se`
  (standard error), `low` and `high` (95 % interval), `unit`, `over` (what the interval is
  about) and `runs`. Fractions are not in percent. For LaTeX, `escape=True` writes
  underscores and percent signs as LaTeX needs them; load its package `booktabs`, and
  `multirow` for the whole table.

  ::

    table = vs.report("results/a").table.xs("mean_accuracy", level="statistic")
    print(table[["value", "se"]].to_latex(escape=True, float_format="%.4f"))

  `figures` of several groups of runs are called after the group, such as
  "lr=0.02/accuracy_distribution", of several folders after the folder's name, and those
  with groups side by side have names of their own. `notes` are the warnings. `print`,
  `save` and a notebook show it.
  """

  def __init__(self, folders: Sequence[FolderReport], call: str):
    self._folders = list(folders)
    self._parts = [part for reported in folders for part in reported.parts]
    # Of each folder, once it was saved.
    self._pages: list[Path | UPath | None] = [None] * len(folders)
    lost = [sentence for reported in folders for sentence in reported.lost]
    if len(folders) > 1:
      document = overview(self._parts, lost)
    else:
      document = folders[0].document
    summaries = [part.summary for part in self._parts]
    tables = {"statistics": statistics_frame(summaries)}
    super().__init__(
      summaries, document, tables, report_folder(folders[0].folder), call
    )

  def draw(self, *, width: float = plots.WIDTH) -> dict[str, MatplotlibFigure]:
    if len(self._parts) == 1:
      return rendering.drawings_of(figures_of(self._parts[0]), width)
    figures = self.document.figures
    for part in self._parts:
      for name, figure in figures_of(part).items():
        figures[join_names(part.name, name, by="/")] = figure
    return rendering.drawings_of(figures, width)

  @moves_data
  def print(self, console: Console | None = None) -> None:
    """Print the statistics, the notes and, once they were saved, where the pages are: to
    the standard output, or to another console.
    """
    console = console or rendering.make_console()
    for reported, page in zip(self._folders, self._pages, strict=True):
      rendering.print_brief(reported.brief, console, page)
      # Pages of several folders follow one another.
      console.print()
    if len(self._folders) > 1:
      rendering.print_brief(self.document, console, self.page)

  @moves_data
  def save(self, out: Folder | None = None, *, image: str | None = None) -> Any:
    """Write `report.html`, `report.json`, `report.csv` and SVG figures of all runs and of
    each group, and return the path of the page with all of them.

    The page is in `report` in the results folder, or in `report/<test set>` if this is
    not the recipe's first test set. A chosen epoch adds a subfolder `epoch=8`, and a group
    of runs a subfolder `lr=0.02`. The page with groups side by side is in the folder above
    theirs. The page with several results folders side by side is in `report/side_by_side`
    of the first.

    Args:
      out: folder for the pages instead. With several results folders, each has a
        subfolder of its name in it.
      image: another format of the figures: "png" or "pdf".

    Raises:
      UserError: the folder cannot be written, or there is no such format.
    """
    image = check_image(image)
    origin = pages.describe_page_origin(self._call)
    write = functools.partial(pages.write_page, image=image, origin=origin)
    written: dict[str, Path | UPath] = {}
    self._pages = [folder.save(out, write, written) for folder in self._folders]
    self.page = self._pages[0]
    if len(self._folders) > 1:
      top = self._folder_of_page(out)
      if out is None:
        top = top / "side_by_side"
      self.page = write(top, self.document, table=self.table, pages=written)
    return self.page


@hide_own_frames
@moves_data
def report(
  *folders: Source | Sequence[Source],
  by: Sequence[str] | None = None,
  where: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
  images: Any = None,
  **columns: Unpack[ScoreColumns],
) -> Report:
  """Return the statistics of results folders or tables of scores, with a section for each
  output of role class, loss or score. Nothing is printed or written.

  ::

    report = vs.report("results/a")
    report.print()
    report.save()  # results/a/report/report.html
    report.tables["statistics"]
    vs.report("scores.csv", by="model", score="accuracy").print()


  Runs of different swept values are never pooled unless `by` asks for it: each
  combination of values has its own row in a table, and its own page.

  Args:
    *folders: results folders, or a list of them; or tables of scores, a row for each run:
      frames of pandas or polars, or files (`.csv`, `.parquet`, `.xlsx`, `.json`, ...).
    by: columns of the runs table that group the runs, such as "lr" or "seed_init". None
      means all swept columns. Runs are pooled over swept columns that are not named,
      and the page says so.
    where: column -> value or values. Takes only the runs that have them.
    test_set: which test set.
    epoch: after which epoch, for runs trained with `evaluate_every`; None for the end.
    images: the inputs of the test examples, to be shown: an array, which may be mapped
      from a file, or a data set as recipes name it.
      They may be pictures, rows of numbers or texts. None means the recipe's data set,
      if it is on the disk.
    **columns: what the columns of a table are: see `ScoreColumns`.

  Returns:
    a `Report`: `tables`, `figures` and `notes`; `print` and `save` it. It is also the
    sequence of what `summarize` returns for each group of each folder, with its `folder`
    and `values`, column -> value.

  Raises:
    UserError: a folder holds no results, no output with such a role or no finished run, or
      has no such test set, columns or values.
  """
  sources = [
    read_source(folder, by, where, columns=columns)
    for folder in _list_of_folders(folders)
  ]
  names = pages.short_names(sources) if len(sources) > 1 else [""]
  reported = []
  for folder, name in zip(sources, names, strict=True):
    reported.append(_read(folder, name, by, where, test_set, epoch, images))
  call = command_to_repeat(
    "report", sources, by=by, where=where, test_set=test_set, epoch=epoch
  )
  return Report(reported, call)


def _read(
  folder: Any,
  name: str,
  by: Sequence[str] | None,
  where: Where,
  test_set: str,
  epoch: int | None,
  images: Any,
) -> FolderReport:
  results = _open(folder, test_set, epoch, by, where)
  resolved = resolve_test_set(parsed_attribute(results, "test_sets"), test_set)
  try:
    inputs = find_inputs(images, results, resolved)
    # All columns of a table that are kept tell runs apart, and rows were chosen.
    if isinstance(folder, ScoreTable):
      by = where = None
    grouped = groups.group_runs(results, by, where)
    parts, lost = _parts(grouped, name, str(folder), resolved, inputs)
  except UserError as mistake:
    raise UserError(f"{folder}: {mistake}") from None
  subfolders = pages.subfolders_of(results, resolved)
  # Its page may be saved when the working directory is another.
  source = folder if isinstance(folder, ScoreTable) else as_folder(folder)
  return FolderReport(source, name, subfolders, parts, lost)


def _list_of_folders(given: tuple[Any, ...]) -> list[Any]:
  folders = []
  for one_or_more in given:
    is_one = isinstance(one_or_more, Folder) or is_table(one_or_more)
    # What is no folder is said where it is opened.
    if is_one or not np.iterable(one_or_more):
      folders.append(one_or_more)
    else:
      folders.extend(one_or_more)
  if not folders:
    raise UserError(
      "no results folder given: name one or more created by `vmapseeds train` or `vmapseeds import`"
    )
  return folders


def statistics_frame(summaries: Sequence[Summary]) -> pd.DataFrame:
  """Return the statistics of groups of runs as a frame, a row for each."""
  rows = []
  columns = dict.fromkeys(["folder"])
  for summary in summaries:
    values = summary["values"]
    columns |= dict.fromkeys(values)
    for section in summaries_of_outputs(summary):
      group = {"folder": summary["folder"], **values, "output": section["output"]}
      for name, statistic in section["statistics"].items():
        cells = {column: statistic[column] for column in _COLUMNS}
        rows.append({**group, "statistic": name, **cells, "runs": section["runs"]})
  return pd.DataFrame(rows).set_index([*columns, "output", "statistic"])


def figures_of(part: Part) -> Figures:
  """Return the figures of all outputs of a group of runs by name."""
  named: Figures = {}
  sections = summaries_of_outputs(part.summary)
  for runs, section in zip(part.measured, sections, strict=True):
    named |= figures_of_output(runs, section, _name_in(part, section))
  return named


def _name_in(part: Part, section: Summary) -> str:
  """Return what stands before headings and figures of an output: a single one needs no
  name.
  """
  return section["output"] if part.summary["further"] else ""


def summaries_of_outputs(summary: Summary) -> list[Summary]:
  """Return what `summarize_output` returned for each output."""
  return [summary, *summary["further"]]


def _parts(
  grouped: Sequence[groups.Group],
  name: str,
  folder: str,
  test_set: str,
  inputs: ExampleInputs,
) -> tuple[list[Part], list[str]]:
  """Return the groups of a folder, and a sentence for each without statistics."""
  parts, lost = [], []
  for values, of_group in grouped:
    group_name = format_values(values)
    try:
      measured = measure_outputs(of_group)
    # One group that learns nothing does not hide the others.
    except NoRunLeft as mistake:
      all_lost = mistake
      lost.append(f"{join_names(name, group_name)}: {mistake.why}.")
      continue

    summary = summarize(of_group, test_set=test_set, measured=measured)
    summary = {"folder": folder, "values": values, **summary}
    measured = [_without_joint_errors(runs) for runs in measured]
    part_name = join_names(name, _group_name(summary))
    parts.append(Part(part_name, group_name, measured, summary, inputs))
  if not parts:
    raise all_lost
  return parts, lost


def _without_joint_errors(runs: MeasuredRuns) -> MeasuredRuns:
  # They grow with the square of the examples, and parts of all folders are kept at once.
  if not runs.tallies:
    return runs
  tallies = dataclasses.replace(runs.tallies, joint_errors=None)
  return dataclasses.replace(runs, tallies=tallies, paired=None)


def _group_name(summary: Summary) -> str:
  values = format_values(summary.get("values"))
  return join_names(values, *(f"{name} pooled" for name in summary["pooled"]))


def _notes(parts: Sequence[Part]) -> list[str]:
  """Return the warnings of all parts and outputs, each once, saying of which they are if
  not of all.
  """
  sections = [
    (part.name, section)
    for part in parts
    for section in summaries_of_outputs(part.summary)
  ]
  several = len({section["output"] for _, section in sections}) > 1
  names_of: dict[str, list[str]] = {}  # warning -> where it applies
  for name, section in sections:
    if several:
      name = join_names(name, section["output"], by=": ")
    for warning in section["warnings"]:
      names_of.setdefault(warning, []).append(name)
  lines = []
  for warning, names in names_of.items():
    # What holds of all needs no names.
    if len(names) < len(sections):
      warning = f"{'; '.join(names)}: {warning}"
    lines.append(warning)
  return lines


def _title(summary: Summary) -> str:
  epochs = summary["settings"].get("epochs")
  # Columns of the runs table are floats.
  if isinstance(epochs, float):
    epochs = f"{epochs:g}"
  duration = ""
  if summary["epoch"] is not None:
    duration = f"epoch {summary['epoch']} of {epochs}"
  elif str(epochs) == "1":
    duration = "1 epoch"
  elif epochs is not None:
    duration = f"{epochs} epochs"
  return join_names(summary["recipe"], duration, _group_name(summary))


def _describe_size(summary: Summary, section: Summary) -> str:
  """Return how many runs and examples an output has."""
  runs = run_count(section["runs"])
  # A score is of a run, not of examples.
  if not section["examples"]:
    return f"{runs}, {section['output']}"
  examples = f"{section['examples']} examples"
  if section["classes"]:
    examples += f" of {summary['test_set']}"
  return f"{runs}, {examples}"


def _statistics(section: Summary) -> Iterator[tuple[str, list[StatisticRow]]]:
  """Yield the heading of each group of statistics, and its rows: label, value with
  standard error, 95 % interval, reading and definition.
  """
  statistics = section["statistics"].values()
  # They stand in the order of their groups already.
  for group, members in itertools.groupby(statistics, key=lambda s: s["group"]):
    yield GROUPS[group], [_row_of_statistic(statistic) for statistic in members]


def _row_of_statistic(statistic: Summary) -> StatisticRow:
  unit = statistic["unit"]
  interval = show_interval(statistic["low"], statistic["high"], unit)
  # Two kinds of uncertainty must not be mistaken for each other.
  if statistic["over"] == "examples":
    interval = f"* {interval}"
  return (
    statistic["label"],
    show(statistic["value"], statistic["se"], unit),
    interval,
    Cell(statistic["reading"], small=statistic["definition"]),
  )


def _brief_table(summary: Summary, section: Summary) -> Table:
  """Return the statistics of one output in their groups, each with its standard error
  and 95 % interval.
  """
  rows: list[Sequence[str | Cell]] = []
  for group, of_group in _statistics(section):
    rows.append([group])
    rows += [row[:3] for row in of_group]
  title = f"{_title(summary)}: {_describe_size(summary, section)}"
  return Table(title, HEADINGS[:3], rows, _STARS)


# One part.


def brief_of(part: Part) -> Document:
  """Return what a terminal shows of a part."""
  summary = part.summary
  brief = []
  for section in summaries_of_outputs(summary):
    tables = [_brief_table(summary, section), *_table_of_sources(section)]
    brief.append(Section(lead=section["summary"], tables=tables))
  return Document(
    name="report",
    title=_title(summary),
    under=_describe_size(summary, summary),
    brief=brief,
    notes=_notes([part._replace(name="")]),
    sections=(),
    record=summary,
    footer=_FOOTER,
  )


def document_of(part: Part) -> Document:
  """Return what there is to say of a part, with its page."""
  document = brief_of(part)
  summary = part.summary
  folder = summary.get("folder")
  seconds = None
  if folder:
    seconds = runs_needed.seconds_of_a_run(folder)

  page_sections: list[Section] = []
  # Without runs, from numbers alone, a page has no figures.
  for section, runs in itertools.zip_longest(
    summaries_of_outputs(summary), part.measured
  ):
    page_sections += _sections_of_output(part, section, runs, seconds)
  # Notes stand under the headline of a single output, or above all of several.
  place_of_notes = 0 if summary["further"] else 1
  page_sections.insert(place_of_notes, note_section(document.notes))
  page_sections.append(_settings(summary, folder))
  return document._replace(sections=page_sections)


def _sections_of_output(
  part: Part,
  section: Summary,
  runs: MeasuredRuns | None,
  seconds: float | None,
) -> Iterator[Section]:
  """Yield what the page shows of one output; `seconds` is how long a run took."""
  name = _name_in(part, section)

  def heading(text: str) -> str:
    return join_names(name, text, by=": ")

  tables = [_headline_table(section), *_table_of_sources(section)]
  yield Section(name, section["summary"], tables=tables)
  if not runs:
    yield Section(heading("Statistics"), tables=_tables(section))
    return
  figures = figures_of_output(runs, section, name)
  yield Section(heading("Figures"), figures=figures)
  yield Section(heading("Statistics"), tables=_tables(section))
  # Without common labels, the classes are right and wrong.
  if runs.tallies is not None and runs.pooled:
    classes = [show_class(k, runs.class_names) for k in range(runs.num_classes)]
    table = table_of_confusion(runs.tallies.confusion_matrix(), classes)
    if table.rows:
      yield Section(heading("Confusion"), tables=[table])
  if runs.role == "vote":
    rows = section.get("split_examples")
    if rows:
      table = table_of_rows(rows, "split", runs.class_names)
      yield Section(heading("Examples"), tables=[table])
    return
  cards = notable_cards(runs, section, part.inputs)
  if cards:
    # Losses have no votes, so their cards have no bars.
    lead = "" if runs.tallies is None else BARS
    missing = list(filter(None, [part.inputs.why]))
    explorer = explorer_of(runs, part.inputs)
    yield Section(heading("Examples"), lead, missing, cards=cards, explorer=explorer)
  # Fewer runs say nothing of how many more it takes.
  if runs_needed.is_pilot(runs):
    questions = runs_needed.count_runs_needed(runs)
    table = runs_needed.table_of_needs(runs_needed.frame_of(questions, seconds))
    yield Section(heading("How many runs?"), tables=[table])


def _settings(summary: Summary, folder: Folder | None) -> Section:
  record: Mapping[str, Any] = {}
  # Summaries of arrays in memory have no folder.
  if folder:
    record, _ = runs_needed.record_of_a_block(folder)
  settings = {
    **summary["settings"],
    "runs": summary["runs"],
    "diverged": summary["diverged"],
    "classes": summary["classes"],
    "sources that vary": summary["varied"],
    "inputs normalised by the moments of": summary["normalized_by"],
    "device": summary["device_kind"],
    "lane width": summary["lane_width"],
    "lowering": summary["lowering"],
    "trained": record.get("when"),
    "commit": record.get("commit"),
    **summary["versions"],
  }
  rows = []
  for name, value in settings.items():
    text = format_setting(value)
    # What a recipe leaves at nothing needs no row.
    if text:
      rows.append((name, text))
  return Section("Settings", tables=[Table("", (), rows)], kind="settings")


def _cell(statistic: Summary) -> Cell:
  unit = statistic["unit"]
  interval = show_interval(statistic["low"], statistic["high"], unit)
  return Cell(show(statistic["value"], statistic["se"], unit), small=interval)


def _headline_table(section: Summary) -> Table:
  statistics = headline_statistics(section).values()
  cells = [_cell(statistic) for statistic in statistics]
  return Table("", [statistic["label"] for statistic in statistics], [cells])


def _table_of_sources(section: Summary) -> list[Table]:
  decomposition = section.get("sources")
  if not decomposition:
    return []
  unit = statistic_by_key(section, "mean")["unit"]
  return [crossed_sources.table_of_sources(decomposition, unit)]


def _tables(section: Summary) -> list[Table]:
  tables = [Table(group, HEADINGS, rows) for group, rows in _statistics(section)]
  pairs = section.get("pairs")
  # There are none of losses, of one run, and of examples that are too many to pair.
  if pairs:
    tables.append(_table_of_pairs(pairs))
  return tables


def _table_of_pairs(pairs: Sequence[Mapping[str, Any]]) -> Table:
  rows = []
  for pair in pairs:
    right_i = show(pair["right_i"], None, "fraction")
    right_j = show(pair["right_j"], None, "fraction")
    rows.append(
      (
        f"{pair['i']}, {pair['j']}",
        f"{right_i}, {right_j}",
        show(pair["joint"], None, "fraction"),
        show(pair["product"], None, "fraction"),
        show(pair["joint"] - pair["product"], pair["se"], "fraction"),
      )
    )
  return Table(
    "The pairs of test examples farthest from independence",
    ("examples", "right, each", "together", "if independent", "difference"),
    rows,
  )


def figures_of_output(
  runs: MeasuredRuns, section: Summary, output: str = ""
) -> Figures:
  """Return the figures of one output, by name: after that of the `output`, if it is given.
  A single run has none.
  """
  if runs.runs < 2:
    return {}
  statistics = section["statistics"]
  # By name, in the order of the page.
  drawn: Figures = {}
  drawn[f"{runs.about.noun}_distribution"] = _distribution(runs, section)
  # Of runs that were evaluated at their end alone there is none.
  curves = read_learning_curves(runs)
  if curves is not None:
    drawn["learning_curve"] = _learning_curve(runs, *curves)
  if runs.losses is not None:
    drawn["losses"] = _losses(runs)
  if runs.tallies is not None:
    drawn["error_rates"] = _error_rates(runs)
  # A score, and a single example, have no halves.
  if "split_correlation" in statistics and runs.examples > 1:
    drawn["split"] = _split(runs, statistics["split_correlation"])
  if "cace" in statistics:
    drawn["calibration"] = _calibration(runs, statistics["cace"])
  # Votes alone do not say which pairs of runs disagree, and runs of different folds have no
  # examples in common.
  has_pairs = runs.predictions is not None and runs.asked is None
  if "gde_gap" in statistics and has_pairs:
    drawn["disagreement"] = _disagreement(runs, statistics["gde_gap"])
  return {join_names(output, key, by="."): figure for key, figure in drawn.items()}


def _distribution(runs: MeasuredRuns, section: Summary) -> Figure:
  parts = runs.about.parts
  curves = {
    f"{parts} independent": statistic_by_key(section, "independent_sd"),
    "binomial": statistic_by_key(section, "binomial_sd"),
    "normal": statistic_by_key(section, "sd"),
  }
  sds = {name: curve["value"] for name, curve in curves.items() if curve}
  caption = "The curve has the runs' mean and standard deviation."
  if parts:
    caption = _DISTRIBUTION
  return Figure(
    f"{capitalized(runs.of.name)} over runs",
    caption,
    lambda ax: plots.accuracy_histogram(
      runs.values, ax, examples=runs.examples, sds=sds, of=runs.of
    ),
    finding=f"Histogram of {run_count(runs.runs)}. {section['summary']}",
  )


def _learning_curve(
  runs: MeasuredRuns, epochs: np.ndarray, values: np.ndarray
) -> Figure:
  first = show(values[:, 0].mean(), None, runs.of.unit)
  last = show(values[:, -1].mean(), None, runs.of.unit)
  return Figure(
    f"{capitalized(runs.of.name)} after each epoch",
    """Mean over the runs with its 95 % interval, and the middle 95 % of the runs.""",
    lambda ax: plots.learning_curves({"": (epochs, values)}, ax, of=runs.of),
    finding=(
      f"Mean {runs.of.name} goes from {first} after epoch {epochs[0]} to {last} after "
      f"epoch {epochs[-1]}."
    ),
  )


def _losses(runs: MeasuredRuns) -> Figure:
  # Sums of many float32 losses would be rounded.
  losses = mean_of_asked(runs.losses)
  losses = losses[np.isfinite(losses)]
  unit = runs.of.unit
  median = show(np.median(losses), None, unit)
  largest = show(losses.max(), None, unit)
  return Figure(
    "How large the loss of each example is",
    """Mean over the runs. The examples at the far right are the hardest; the page lists \
them below. The count is on a logarithmic axis.""",
    lambda ax: plots.loss_histogram(losses, ax, unit=unit),
    finding=f"Half of the examples have a loss below {median}; the largest is {largest}.",
  )


def _error_rates(runs: MeasuredRuns) -> Figure:
  rates = runs.tallies.example_error_rates()
  # Examples that no run was asked for have none.
  rates = rates[np.isfinite(rates)]
  never = 100 * np.mean(rates == 0)
  always = 100 * np.mean(rates == 1)
  return Figure(
    "How often each example is wrong",
    """Examples at the far left are right in nearly every run, those at the far right \
wrong in nearly every run. Runs differ on the ones between, and these make up the \
independent-errors prediction. The count is on a logarithmic axis.""",
    lambda ax: plots.error_rate_histogram(rates, ax),
    finding=(
      f"{never:.1f} % of the examples are right in every run, {always:.1f} % wrong in "
      "every run."
    ),
  )


def _split(runs: MeasuredRuns, correlation: Summary) -> Figure:
  even, odd = runs.means_of_halves
  return Figure(
    "One half of the test examples against the other",
    f"""Each point is a run, or several, by its colour. If some runs were better than \
others, those good on the even examples would be good on the odd ones. \
{correlation["reading"]}""",
    lambda ax: plots.split_scatter(
      even, odd, ax, correlation=correlation["value"], of=runs.of
    ),
    finding=correlation["reading"],
  )


def _calibration(runs: MeasuredRuns, cace: Summary) -> Figure:
  curve = runs.tallies.calibration_curve()
  # A fixed key, so that a page that is written again has the same band.
  band = runs.tallies.calibration_band(key=jax.random.key(0))
  return Figure(
    "Calibration of the votes",
    f"""Each point is a tenth of the range of vote fractions, over all examples and \
classes: how often the class was right, with 95 % of the bootstrap over examples. \
{cace["reading"]}""",
    lambda ax: plots.calibration_plot(
      curve.confidence, curve.accuracy, ax, low=band.low, high=band.high
    ),
    finding=cace["reading"],
  )


def _disagreement(runs: MeasuredRuns, gap: Summary) -> Figure:
  # Pairs grow with the square of the runs.
  predictions = runs.predictions[:MOST_PAIRED]
  error = (predictions != runs.tallies.labels).mean(1)
  first_run, second_run = np.triu_indices(len(predictions), 1)
  return Figure(
    "Disagreement against error",
    f"""Each point is a pair of the first {run_count(len(predictions))}: how often they \
disagree against how often they are wrong, on average of the two. Where the votes are \
calibrated the points lie around the line. {gap["reading"]}""",
    lambda ax: plots.disagreement_against_error(
      (error[first_run] + error[second_run]) / 2,
      stats.disagreement_matrix(predictions)[first_run, second_run],
      ax,
    ),
    finding=gap["reading"],
  )


def read_learning_curves(runs: MeasuredRuns) -> tuple[np.ndarray, np.ndarray] | None:
  """Return the epochs after which runs were evaluated, and an output's number of each run
  then, (runs, epochs); None if it was not kept.
  """
  measure = runs.output if runs.tallies is None else runs.about.noun
  for variable in runs.kept.variables.values():
    is_series = variable.attrs.get("series") == "epoch"
    is_measure = variable.attrs.get("of") == measure
    if not (is_series and is_measure and variable.dims == ("run", "epoch")):
      continue
    # A single epoch is no curve.
    if variable.sizes["epoch"] > 1:
      return runs.kept.epoch.values, variable.values
  return None


# Several parts side by side.


class OutputRow(NamedTuple):
  """One output of a part."""

  part: Part
  runs: MeasuredRuns
  section: Summary

  @property
  def name(self) -> str:
    return self.part.name.replace(", ", "\n")

  @property
  def mean(self) -> Summary:
    return statistic_by_key(self.section, "mean")

  def interval_of(self, key: str) -> tuple[float | None, float | None, float | None]:
    """Return a statistic and the ends of its interval."""
    statistic = statistic_by_key(self.section, key)
    return statistic["value"], statistic["low"], statistic["high"]


def _by_output(parts: Sequence[Part]) -> dict[str, list[OutputRow]]:
  rows: dict[str, list[OutputRow]] = {}
  # By what they are called: folders may have different outputs.
  for part in parts:
    for runs, section in zip(
      part.measured, summaries_of_outputs(part.summary), strict=True
    ):
      rows.setdefault(runs.of.name, []).append(OutputRow(part, runs, section))
  return rows


def side_by_side_table(
  title: str,
  rows: Sequence[OutputRow],
  name: Callable[[OutputRow], str | Cell],
  cell: Callable[[Summary], str | Cell],
) -> Table:
  """Return the headline numbers of one output of campaigns or groups, a row for each."""
  # All rows have the headings of the first.
  first = headline_statistics(rows[0].section)
  table_rows = []
  for row in rows:
    statistics = headline_statistics(row.section)
    cells = [name(row), str(row.section["runs"])]
    for heading in first:
      # Groups need not have the same statistics: a single run has no variance.
      known = heading in statistics
      cells.append(cell(statistics[heading]) if known else "–")
    table_rows.append(cells)
  # Two lines each, because a terminal has no room for all of them in one.
  two_lines = ["\n".join(heading.rsplit(" ", 1)) for heading in first]
  return Table(title, ("runs of", "runs", *two_lines), table_rows)


def short_side_by_side(noun: str, rows: Sequence[OutputRow]) -> Table:
  """Return the table of one output without errors, its unit in the title."""
  _, suffix = scale_and_suffix(rows[0].mean["unit"])
  title = join_names(f"{noun} side by side", suffix and f"in{suffix}")

  def without_suffix(statistic: Summary) -> str:
    return show(statistic["value"], None, statistic["unit"]).removesuffix(suffix)

  return side_by_side_table(title, rows, lambda row: row.name, without_suffix)


def side_by_side_figures(noun: str, rows: Sequence[OutputRow]) -> Figures:
  """Return the figures of one output of groups of runs side by side, by name."""
  names = [row.name for row in rows]
  values = {row.name: row.runs.values for row in rows}
  of, height = rows[0].runs.of, _height_of_rows(names)
  # By name, in the order of the page.
  drawn = {
    "accuracies": Figure(
      f"{capitalized(noun)} of the runs",
      """The box is the middle half of the runs, the line in it their median, the diamond \
their mean; the whiskers reach to the lowest and the highest.""",
      lambda ax: plots.accuracies_side_by_side(values, ax, of=of),
      height,
    )
  }
  means = [row.interval_of("mean") for row in rows]
  # Of single runs there is no interval.
  if any(low is not None for _, low, _ in means):
    drawn["means"] = Figure(
      f"Mean {noun}",
      """Means over the runs with their 95 % intervals, of what other runs on the same \
test examples would give.""",
      lambda ax: plots.means_side_by_side(names, means, ax, of=of),
      height,
    )

  known = {row.part.name: read_learning_curves(row.runs) for row in rows}
  curves = {name: curve for name, curve in known.items() if curve is not None}
  # More lines than colours could not be told apart.
  if len(curves) == len(rows) <= MOST_COLORED:
    drawn["learning_curves"] = Figure(
      f"{capitalized(noun)} after each epoch",
      "Mean over the runs, with its 95 % interval.",
      lambda ax: plots.learning_curves(curves, ax, of=of),
    )

  # Of single runs there is nothing to draw.
  single = all(row.interval_of("sd")[0] is None for row in rows)
  if not single and all(row.runs.variances is not None for row in rows):
    drawn["standard_deviations"] = _standard_deviations(rows, noun, height)
  return drawn


def _height_of_rows(names: Sequence[str]) -> float:
  """Return the inches of a figure with a row for each name."""
  # As many as the longest of the names has lines for, on every row.
  lines = 2 + max(name.count("\n") for name in names)
  inches_a_row = max(0.45, 0.1 + 0.16 * lines)
  # Matplotlib refuses images of more than 2¹⁶ pixels a side.
  return min(30.0, 1.6 + len(names) * inches_a_row)


def _standard_deviations(rows: Sequence[OutputRow], noun: str, height: float) -> Figure:
  parts, of = rows[0].runs.about.parts, rows[0].runs.of
  keys = {
    "test set": "sd",
    f"{parts} independent": "independent_sd",
    "distribution": "distribution_sd",
  }
  names = [row.name for row in rows]
  series = {}
  for label, key in keys.items():
    series[label] = [row.interval_of(key) for row in rows]
  return Figure(
    f"Standard deviations of {noun} between runs",
    f"""What is seen on this test set; what it would be if {parts} were independent \
between examples; and what would remain on an infinite test set, at 0 where the estimate of \
its variance is below 0. Bars are 95 % intervals, of what other runs would give.""",
    lambda ax: plots.sds_side_by_side(names, series, ax, of=of),
    height,
  )


# Files.


def _open(
  folder: Any,
  test_set: str,
  epoch: int | None,
  by: Sequence[str] | None,
  where: Where,
) -> xr.Dataset:
  """Read a folder, but not its predictions if they are many and stored tallies are of
  exactly these runs.
  """
  results = open_source(folder, test_set, epoch)
  # Of epochs only the numbers of runs are drawn, not predictions or logits.
  unread = [
    name
    for name, variable in results.variables.items()
    if "epoch" in variable.dims and variable.ndim > 2
  ]
  outputs = roles(results)
  results = results.drop_vars(unread).assign_attrs(roles=outputs)
  if isinstance(folder, ScoreTable):
    return results
  # Votes of a selection are not stored.
  if "votes" in results and not where and len(groups.group_runs(results, by)) == 1:
    large = [
      name
      for name, info in outputs.items()
      if REPORTED_ROLES[info["role"]].has_votes
      and name in results
      and results[name].nbytes > MOST_READ
    ]
    results = results.drop_vars(large)
  return load_into_memory(results, folder)


def _is_one_sweep(parts: Sequence[Part]) -> bool:
  """Return whether parts are runs of one folder that differ in values, several of each."""
  folders = {part.summary["folder"] for part in parts}
  repeated = all(p.summary["runs"] > 1 for p in parts)
  swept = sweeps.is_sweep([p.summary["values"] for p in parts])
  return len(folders) == 1 and repeated and swept


def overview(parts: Sequence[Part], lost: Sequence[str]) -> Document:
  """Return what there is to say of groups of runs side by side."""
  outputs = _by_output(parts)
  tables, brief_tables, leads = [], [], []
  sentences: list[str] = []
  drawn: Figures = {}
  probabilities = {}
  for noun, rows in outputs.items():
    if len(rows) <= MOST_IN_WORDS:
      sentences += [f"{row.part.name}: {row.section['summary']}" for row in rows]
    prefix = noun if len(outputs) > 1 else ""
    tables.append(side_by_side_table(noun, rows, _linked, _cell))
    brief_tables.append(short_side_by_side(noun, rows))
    named = side_by_side_figures(noun, rows)
    # Runs that disagree less are not better.
    if _is_one_sweep(parts) and rows[0].runs.role != "vote":
      outcomes = [
        sweeps.Outcome(row.part.summary["values"], row.runs, row.mean) for row in rows
      ]
      named |= sweeps.response_curves(outcomes)
      best = sweeps.best_of(outcomes)
      if best:
        leads.append(sweeps.describe_best(outcomes, best))
        tables.append(sweeps.table_of_best(outcomes, best))
        names = (format_values(outcome.values) for outcome in outcomes)
        by_name = dict(zip(names, best.probabilities, strict=True))
        probabilities[rows[0].section["output"]] = by_name
    for name, figure in named.items():
      drawn[join_names(prefix, name, by=".")] = figure

  notes = [*lost, *_notes(parts)]
  # Without their values, which tell groups of one recipe apart.
  titles = dict.fromkeys(_title(part.summary | {"values": {}}) for part in parts)
  return Document(
    name="report",
    title=f"{', '.join(titles)}: side by side",
    under=f"{len(parts)} groups of runs · test set: {parts[0].summary['test_set']}",
    brief=[Section(tables=brief_tables), Section(sentences=[*leads, *sentences])],
    notes=notes,
    sections=[
      Section(lead=" ".join(leads), sentences=sentences, tables=tables),
      note_section(notes),
      Section("Figures", figures=drawn),
    ],
    record={
      "warnings": notes,
      "probability_of_best": probabilities,
      "reports": [part.summary for part in parts],
    },
    footer=_SIDE_BY_SIDE,
  )


def _linked(row: OutputRow) -> Cell:
  return Cell(row.part.name, leads_to=row.part.name)
