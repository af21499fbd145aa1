"""Reports of a campaign's results: numbers with their standard errors, figures,
self-contained pages.
"""

import dataclasses
import itertools
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import rich.table
import xarray as xr
from matplotlib.figure import Figure as MatplotlibFigure
from rich.console import Console
from rich.markup import escape
from upath import UPath

from vmapseeds import stats
from vmapseeds.mistakes import Mistake, door, one_of
from vmapseeds.reports import (
  groups,
  pages,
  planning,
  plots,
  search_section,
  sources,
  sweeps,
)
from vmapseeds.reports.example_cards import explorer_of, notable_cards
from vmapseeds.reports.groups import Where, format_values
from vmapseeds.reports.pages import Figure, Table, join_names, with_small
from vmapseeds.reports.pictures import Inputs, find_inputs
from vmapseeds.reports.summary import (
  BY_VERSIONS,
  headline,
  measure_outputs,
  summarize,
  summarize_output,
)
from vmapseeds.results.description import UPGRADED, runs_by_versions
from vmapseeds.results.formatting import (
  capitalized,
  run_count,
  scale_and_sign,
  show,
  show_interval,
)
from vmapseeds.results.opening import loaded, open_results, resolve_test_set
from vmapseeds.results.searches import best_runs
from vmapseeds.results.statistics import GROUPS, AllDiverged, MeasuredRuns, roles
from vmapseeds.store.files import Folder, is_remote, place
from vmapseeds.store.layout import readable
from vmapseeds.target import moves_data

MOST_READ = 2**28  # bytes of predictions that are read although tallies are stored
MOST_COLORED = len(plots.PALETTE)  # groups in one figure of curves
VECTORS = ("svg", "pdf")
MOST_PAIRED = 50  # runs whose pairs are drawn
Summary = dict[str, Any]  # what `summarize` or `summarize_output` returns
Figures = dict[str, Figure]
_PARTS = {"class": "errors", "loss": "losses"}
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


class Part(NamedTuple):
  """Runs that have a page of their own: all of a folder, or a group of its runs."""

  name: str
  out: Path | UPath
  measured: list[MeasuredRuns]  # without joint errors, which are many
  summary: Summary
  inputs: Inputs = Inputs()
  searches: Sequence[pages.Section] = ()  # what there is to say of searches


@door
@moves_data
def report(
  folders: Folder | Sequence[Folder],
  *,
  by: Sequence[str] | None = None,
  where: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
  images: Any = None,
  out: Folder | None = None,
  console: Console | None = None,
  format: str = "text",
  open_page: bool = False,
) -> list[Summary]:
  """Print the statistics of results folders and write `report.html`, `report.json` and
  PNG figures, with a section for each output of role class, loss or score.

  Of searches the runs are the best of each, and more sections say how they were found.

  Runs of different swept values are never pooled unless `by` asks for it: each
  combination of values has its own row in a table, and its own page. The page is in
  `report` in the results folder, or in `report/<test set>` if this is not the recipe's
  first test set. A chosen epoch adds a subfolder `epoch=8`, and a group of runs a
  subfolder `lr=0.02`. The page with groups side by side is in the folder above theirs.
  The page with several results folders side by side is in `report/side_by_side` of the
  first.

  Args:
    folders: results folders, or one.
    by: columns of the runs table that group the runs, such as "lr" or "seed_init". None
      means all swept columns. Runs are pooled over swept columns that are not named,
      and the page says so.
    where: column -> value or values. Takes only the runs that have them.
    test_set: which test set.
    epoch: after which epoch, for runs trained with `evaluate_every`; None for the end.
    images: the inputs of the test examples, to be shown: an array, a `.npy` file, an
      `.npz` file with `x_<test set>` or one array, or a data set as recipes name it.
      They may be pictures, rows of numbers or texts. None means the recipe's data set,
      if it is on the disk.
    out: folder for the pages instead. With several results folders, each has a
      subfolder of its name in it.
    console: where to print.
    format: of what is printed: "text", or "md" for tables in Markdown; or "svg" or "pdf":
      text, and figures in that format, too, beside the PNG files.
    open_page: whether to show the last page in a browser.

  Returns:
    what `summarize` returns for each group of each folder, with its `folder` and
    `values`, column -> value.

  Raises:
    Mistake: a folder holds no results, no output with such a role or no finished run,
      has no such test set, columns or values, or a page cannot be written. Nothing is
      written then, unless writing itself fails.
  """
  one_of("format", format, ("text", "md", *VECTORS))
  vector = format if format in VECTORS else ""
  console = console or pages.terminal()
  if isinstance(folders, Folder) or not np.iterable(folders):
    folders = [folders]
  if not (folders := list(folders)):
    raise Mistake(
      "no results folder given: give one or more that `vmapseeds train` or `import` made"
    )
  names = _names(folders) if len(folders) > 1 else [""]
  reported = []
  for folder, name in zip(folders, names, strict=True):
    results = _open(folder, test_set, epoch, by, where)
    above = place(folder) / "report" if out is None else place(out) / name
    opened = resolve_test_set(results.attrs.get("test_sets"), test_set)
    above = pages.of_test_set(above, results, opened)
    try:
      inputs = find_inputs(images, results, opened)
      grouped = groups.group_runs(results, by, where)
      parts, lost = _parts(grouped, name, above, str(folder), opened, inputs)
      if "search" in results.attrs:
        shown, record = search_section.sections(open_results(folder))
        parts = [
          part._replace(searches=shown, summary=part.summary | {"search": record})
          for part in parts
        ]
      reported.append((parts, lost))
    except Mistake as mistake:
      raise Mistake(f"{folder}: {mistake}") from None
  for parts, lost in reported:
    for part in parts:
      page = pages.write_page(
        part.out, "report", part.summary, vector=vector, **page_of(part)
      )
    if len(parts) > 1 or lost:
      page = _side_by_side(parts, lost, parts[0].out.parent, console, format)
    else:
      for section in sections(part.summary):
        if format == "md":
          _print_markdown(markdown_of(part.summary, section), console)
        else:
          console.print(terminal_table(part.summary, section))
        for table in _table_of_sources(section):
          _print_table(table, console, format)
      for said in parts[0].searches[:1]:
        lines = (said.lead, *said.sentences)
        console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)
        _print_table(said.tables[0], console, format)
      _print_notes(_notes([part]), page, console, format)
  parts = [part for parts, _ in reported for part in parts]
  if len(folders) > 1:
    top = place(folders[0]) / "report" / "side_by_side" if out is None else place(out)
    lost = [note for _, lost in reported for note in lost]
    page = _side_by_side(parts, lost, top, console, format)
  if open_page:
    webbrowser.open(str(page) if is_remote(page) else page.absolute().as_uri())
  return [part.summary for part in parts]


@door
def summary_table(
  folders: Folder | Sequence[Folder],
  *,
  by: Sequence[str] | None = None,
  where: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
) -> pd.DataFrame:
  """Return the statistics of `report` as a frame of pandas, a row for each.

  The index has the folder, the values by which runs are grouped, the output and the
  statistic; the columns are `label`, `value`, `se` (standard error), `low` and `high`
  (95 % interval), `unit`, `over` (what the interval is about) and `runs`. Fractions are
  not in percent.

  ::

    table = vs.summary_table("results/a").xs("mean_accuracy", level="statistic")
    print(table[["value", "se"]].to_latex(float_format="%.4f"))

  Args:
    folders: results folders, or one.
    by: as in `report`.
    where: as in `report`.
    test_set: which test set.
    epoch: after which epoch; None for the end.

  Raises:
    Mistake: as `report`.
  """
  rows = []
  columns = dict.fromkeys(["folder"])
  for folder in [folders] if isinstance(folders, Folder) else folders:
    results = _open(folder, test_set, epoch, by, where)
    for values, of in groups.group_runs(results, by, where):
      columns |= dict.fromkeys(values)
      for section in sections(summarize(of, test_set=test_set)):
        about = {"folder": str(folder), **values, "output": section["output"]}
        for name, s in section["statistics"].items():
          told = {
            c: s[c] for c in ("label", "value", "se", "low", "high", "unit", "over")
          }
          rows.append({**about, "statistic": name, **told, "runs": section["runs"]})
  return pd.DataFrame(rows).set_index([*columns, "output", "statistic"])


@door
def report_figures(
  folder: Folder,
  *,
  by: Sequence[str] | None = None,
  where: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
) -> dict[str, MatplotlibFigure]:
  """Return the figures of `report` as objects of Matplotlib, to change them and to save
  them in any format. Nothing is printed or written.

  ::

    figures = vs.report_figures("results/a")
    figures["accuracy_distribution"].axes[0].set_title("")
    figures["accuracy_distribution"].savefig("accuracies.pdf")

  Args:
    folder: a results folder.
    by: as in `report`.
    where: as in `report`.
    test_set: which test set.
    epoch: after which epoch; None for the end.

  Returns:
    name -> figure. Names are those of the files that `report` writes: of several groups of
      runs after the group's, such as "lr=0.02/accuracy_distribution". Groups of which all
      runs diverged have none.

  Raises:
    Mistake: as `report`.
  """
  results = _open(folder, test_set, epoch, by, where)
  drawings = {}
  for values, of_group in groups.group_runs(results, by, where):
    try:
      measured = measure_outputs(of_group)
    except AllDiverged:
      continue
    for runs in measured:
      output = runs.output if len(measured) > 1 else ""
      for key, figure in figures(runs, summarize_output(runs)).items():
        drawing, axes = plots.figure(height=figure.height)
        figure.draw(axes)
        name = join_names(output, key, by=".")
        drawings[join_names(format_values(values), name, by="/")] = drawing
  return drawings


def sections(summary: Summary) -> list[Summary]:
  """Return what `summarize_output` returned for each output."""
  return [summary, *summary["further"]]


def _names(folders: Sequence[Folder]) -> list[str]:
  """Return the shortest path endings that tell the folders apart."""
  parts = [pages.path_parts(folder) for folder in folders]
  ends = (
    ["/".join(p[-n:]).strip("/") for p in parts]
    for n in range(1, max(map(len, parts)) + 1)
  )
  return next(names for names in ends if len(set(names)) == len(set(parts)))


def _parts(
  grouped: Sequence[groups.Group],
  name: str,
  above: Path | UPath,
  folder: str,
  test_set: str,
  inputs: Inputs,
) -> tuple[list[Part], list[str]]:
  """Return the groups of a folder, and a sentence for each whose runs all diverged."""
  parts, lost = [], []
  for values, of in grouped:
    named = format_values(values)
    try:
      measured = measure_outputs(of)
    except AllDiverged as mistake:
      all_lost, runs = mistake, run_count(of.sizes["run"])
      lost.append(f"{join_names(name, named)}: all {runs} diverged.")
      continue
    summary = summarize(of, test_set=test_set, measured=measured)
    summary = {"folder": folder, "values": values, **summary}
    for i, runs_of in enumerate(measured):
      if runs_of.tallies:
        tallies = dataclasses.replace(runs_of.tallies, joint_errors=None)
        measured[i] = dataclasses.replace(runs_of, tallies=tallies, paired=None)
    named_part = join_names(name, _group_name(summary))
    out = pages.below(above, named)
    parts.append(Part(named_part, out, measured, summary, inputs))
  if not parts:
    raise all_lost
  return parts, lost


def _group_name(summary: Summary) -> str:
  values = format_values(summary.get("values"))
  return join_names(values, *(f"{name} pooled" for name in summary["pooled"]))


def _notes(parts: Sequence[Part]) -> list[str]:
  """Return the warnings of all parts and outputs, each once, saying of which they are if
  not of all.
  """
  said: dict[str, list[str]] = {}
  several = len({s["output"] for part in parts for s in sections(part.summary)}) > 1
  of = [(part, section) for part in parts for section in sections(part.summary)]
  for part, section in of:
    name = join_names(part.name, several * section["output"], by=": ")
    for warning in section["warnings"]:
      said.setdefault(warning, []).append(name)
  return [
    warning if len(names) == len(of) else f"{'; '.join(names)}: {warning}"
    for warning, names in said.items()
  ]


def _print_markdown(text: str, console: Console) -> None:
  console.print(text, markup=False, highlight=False, soft_wrap=True)


def _print_table(table: Table, console: Console, format: str) -> None:
  if format == "md":
    _print_markdown(pages.markdown(table), console)
  else:
    console.print(table.for_terminal())


def _print_notes(
  notes: Iterable[str], page: Path | UPath, console: Console, format: str
) -> None:
  if format == "md":
    return _print_markdown("".join(f"- {note}\n" for note in notes), console)
  for note in notes:
    console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
  console.print(f"{page}\n", highlight=False, markup=False, soft_wrap=True)


def _title(summary: Summary) -> str:
  epochs, epoch = summary["settings"].get("epochs"), summary["epoch"]
  if isinstance(epochs, float):  # of a column
    epochs = f"{epochs:g}"
  duration = "" if epochs is None else f"{epochs} epoch{'s' * (str(epochs) != '1')}"
  if epoch is not None:
    duration = f"epoch {epoch} of {epochs}"
  return join_names(summary["recipe"], duration, _group_name(summary))


def _about(summary: Summary, section: Summary) -> str:
  """Return how many runs and examples an output has."""
  examples = f"{section['examples']} examples"
  if section["role"] == "class":
    examples += f" of {summary['test_set']}"
  return f"{run_count(section['runs'])}, {examples if section['examples'] else section['output']}"


def _statistics(section: Summary) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
  """Yield the heading of each group of statistics, and its rows: label, value with
  standard error, 95 % interval, reading and definition.
  """
  statistics = section["statistics"].values()
  for group, members in itertools.groupby(statistics, key=lambda s: s["group"]):
    yield (
      GROUPS[group],
      [
        (
          s["label"],
          show(s["value"], s["se"], s["unit"]),
          "* " * (s["over"] == "examples")
          + show_interval(s["low"], s["high"], s["unit"]),
          with_small(s["reading"], s["definition"]),
        )
        for s in members
      ],
    )


def terminal_table(summary: Summary, section: Summary) -> rich.table.Table:
  """Return the statistics of one output in their groups, each with its standard error
  and 95 % interval.
  """
  title = f"{_title(summary)}: {_about(summary, section)}"
  table = Table(title, HEADINGS[:3], []).for_terminal()
  table.caption, table.caption_justify = _STARS, "left"
  for group, rows in _statistics(section):
    table.add_section()
    table.add_row(f"[bold]{group}")
    for row in rows:
      table.add_row(*row[:3])
  return table


def markdown_of(summary: Summary, section: Summary) -> str:
  """Return the same as tables in Markdown."""
  title = f"{_title(summary)}: {_about(summary, section)}"
  tables = (
    pages.markdown(Table(group, HEADINGS[:3], [row[:3] for row in rows]))
    for group, rows in _statistics(section)
  )
  return "\n".join([f"## {title}\n", *tables, _STARS.replace("*", r"\*"), ""])


# The page of one part.


def page_of(part: Part) -> dict[str, Any]:
  """Return what the page of a part shows: see `pages.html`."""
  summary = part.summary
  several = len(summary["further"]) > 0
  shown: list[pages.Section] = []
  folder = summary.get("folder")
  seconds = planning.seconds_of_a_run(folder) if folder else None
  outputs = itertools.zip_longest(sections(summary), part.measured)
  shown += part.searches
  for section, runs in outputs:
    name = several * section["output"]
    figures_of = figures(runs, section) if runs else {}
    named = {join_names(name, key, by="."): f for key, f in figures_of.items()}
    of_sources = _table_of_sources(section)
    tables = [_headline_table(section), *of_sources]
    shown += [
      pages.Section(name, section["summary"], tables=tables),
      pages.Section(join_names(name, "Figures", by=": "), figures=named),
      pages.Section(join_names(name, "Statistics", by=": "), tables=_tables(section)),
    ]
    if runs and (cards := notable_cards(runs, section, part.inputs)):
      shown.append(
        pages.Section(
          join_names(name, "Examples", by=": "),
          lead=BARS * (runs.role == "class"),
          sentences=[part.inputs.why] * bool(part.inputs.why),
          cards=cards,
          explorer=explorer_of(runs, part.inputs),
        )
      )
    if runs and planning.is_pilot(runs):
      needed = planning.table_of(planning.needs(runs), seconds)
      shown.append(
        pages.Section(join_names(name, "How many runs?", by=": "), tables=[needed])
      )
  shown.insert(not several, pages.notes(_notes([part._replace(name="")])))
  about = {
    **summary["settings"],
    "runs": summary["runs"],
    "diverged": summary["diverged"],
    "classes": summary["classes"],
    "sources that vary": summary["varied"],
    "inputs normalised by the moments of": summary["normalized_by"],
    "device": summary["device_kind"],
    "lane width": summary["lane_width"],
    "lowering": summary["lowering"],
    **summary["versions"],
  }
  rows = [(name, _setting(value)) for name, value in about.items()]
  shown.append(pages.Section("Settings", tables=[Table("", (), rows)]))
  under = _about(summary, summary)
  return {
    "sections": shown,
    "title": _title(summary),
    "under": under,
    "footer": _FOOTER,
  }


def _setting(value: Any) -> str:
  if isinstance(value, Mapping):
    value = format_values(value)
  elif isinstance(value, list):
    value = ", ".join(map(str, value))
  return "–" if value in (None, "") else str(value)


def _cell(s: Summary) -> str:
  interval = show_interval(s["low"], s["high"], s["unit"])
  return with_small(show(s["value"], s["se"], s["unit"]), interval)


def _headline_table(section: Summary) -> Table:
  first = headline(section).values()
  return Table("", [s["label"] for s in first], [[_cell(s) for s in first]])


def _table_of_sources(section: Summary) -> list[Table]:
  unit = headline(section)["mean"]["unit"]
  found = section.get("sources")
  return [sources.table_of_sources(found, unit)] if found else []


def _tables(section: Summary) -> list[Table]:
  tables = [Table(group, HEADINGS, rows) for group, rows in _statistics(section)]
  if pairs := section.get("pairs"):
    headings = ("examples", "right, each", "together", "if independent", "difference")
    tables.append(
      Table(
        "The pairs of test examples farthest from independence",
        headings,
        [
          (
            f"{p['i']}, {p['j']}",
            f"{show(p['right_i'], None, 'fraction')}, {show(p['right_j'], None, 'fraction')}",
            show(p["joint"], None, "fraction"),
            show(p["product"], None, "fraction"),
            show(p["joint"] - p["product"], p["se"], "fraction"),
          )
          for p in pairs
        ],
      )
    )
  return tables


def figures(runs: MeasuredRuns, section: Summary) -> Figures:
  """Return the figures of one output, by name. A single run has none."""
  if runs.runs < 2:
    return {}
  numbers, of_class = section["statistics"], runs.role == "class"
  first, parts = headline(section), _PARTS.get(runs.role)
  curves = {
    f"{parts} independent": first.get("sd if indep."),
    "binomial": numbers.get("binomial_sd"),
    "normal": first["sd"],
  }
  sds = {name: s["value"] for name, s in curves.items() if s}
  found = {
    f"{'accuracy' if of_class else runs.role}_distribution": Figure(
      f"{capitalized(runs.of.name)} over runs",
      _DISTRIBUTION
      if parts
      else "The curve has the runs' mean and standard deviation.",
      lambda ax: plots.accuracy_histogram(
        runs.values,
        ax,
        examples=runs.examples,
        sds=sds,
        of=runs.of,
      ),
    )
  }
  if curves_of := learning_curves(runs):
    epochs, values = curves_of
    found["learning_curve"] = Figure(
      f"{capitalized(runs.of.name)} after each epoch",
      """Mean over the runs with its 95 % interval, and the middle 95 % of the runs.""",
      lambda ax: plots.learning_curves({"": values}, epochs, ax, of=runs.of),
    )
  if runs.role == "loss":
    found["losses"] = Figure(
      "How large the loss of each example is",
      """Mean over the runs. The examples at the far right are the hardest; the page lists \
them below. The count is on a logarithmic axis.""",
      lambda ax: plots.loss_histogram(
        runs.losses.mean(0, dtype=np.float64), ax, unit=runs.of.unit
      ),
    )
  if of_class:
    found["error_rates"] = Figure(
      "How often each example is wrong",
      """Examples at the far left are right in nearly every run, those at the far right \
wrong in nearly every run. Runs differ on the ones between, and these make up the \
independent-errors prediction. The count is on a logarithmic axis.""",
      lambda ax: plots.error_rate_histogram(runs.tallies.example_error_rates(), ax),
    )
  if parts and runs.examples > 1:
    even, odd = runs.means_of_halves
    found["split"] = Figure(
      "One half of the test examples against the other",
      f"""Each point is a run, or several, by its colour. If some runs were better than \
others, those good on the even examples would be good on the odd ones. \
{numbers["split_correlation"]["reading"]}""",
      lambda ax: plots.split_scatter(
        even, odd, ax, correlation=numbers["split_correlation"]["value"], of=runs.of
      ),
    )
  if "cace" in numbers:
    curve = runs.tallies.calibration_curve()
    band = runs.tallies.calibration_band(key=jax.random.key(0))
    found["calibration"] = Figure(
      "Calibration of the votes",
      f"""Each point is a tenth of the range of vote fractions, over all examples and \
classes: how often the class was right, with 95 % of the bootstrap over examples. \
{numbers["cace"]["reading"]}""",
      lambda ax: plots.calibration_plot(
        curve.confidence, curve.accuracy, ax, low=band.low, high=band.high
      ),
    )
  if "gde_gap" in numbers and runs.predictions is not None:
    shown = runs.predictions[:MOST_PAIRED]
    error = (shown != runs.tallies.labels).mean(1)
    first_run, second_run = np.triu_indices(len(shown), 1)
    found["disagreement"] = Figure(
      "Disagreement against error",
      f"""Each point is a pair of the first {run_count(len(shown))}: how often they \
disagree against how often they are wrong, on average of the two. Where the votes are \
calibrated the points lie around the line. {numbers["gde_gap"]["reading"]}""",
      lambda ax: plots.disagreement_against_error(
        (error[first_run] + error[second_run]) / 2,
        stats.disagreement_matrix(shown)[first_run, second_run],
        ax,
      ),
    )
  if "gap_accepted" in numbers:
    found["logit_gaps"] = Figure(
      "Distribution functions of the logit gaps",
      f"""Each thin line is a run's eCDF of m(x) on the test examples, the thick one that \
of all runs together, and the band its ± δ_a. {numbers["gap_accepted"]["reading"]}""",
      lambda ax: plots.ecdf_band(
        runs.gaps, ax, threshold=float(stats.ks_threshold(runs.examples))
      ),
    )
  return found


def learning_curves(runs: MeasuredRuns) -> tuple[np.ndarray, np.ndarray] | None:
  """Return the epochs after which runs were evaluated, and an output's number of each run
  then, (runs, epochs); None if it was not kept.
  """
  of = "accuracy" if runs.role == "class" else runs.output
  for x in runs.kept.variables.values():
    told = x.attrs.get("series"), x.attrs.get("of"), x.dims
    if told == ("epoch", of, ("run", "epoch")) and x.sizes["epoch"] > 1:
      return runs.kept.epoch.values, x.values
  return None


# Several parts side by side.


class Row(NamedTuple):
  """One output of a part."""

  part: Part
  runs: MeasuredRuns
  section: Summary

  @property
  def name(self) -> str:
    return self.part.name.replace(", ", "\n")


def _by_output(parts: Sequence[Part]) -> dict[str, list[Row]]:
  found: dict[str, list[Row]] = {}
  for part in parts:
    for runs, section in zip(part.measured, sections(part.summary), strict=True):
      found.setdefault(runs.of.name, []).append(Row(part, runs, section))
  return found


def side_by_side_table(
  title: str,
  rows: Sequence[Row],
  name: Callable[[Row], str],
  cell: Callable[[Summary], str],
) -> Table:
  """Return the headline numbers of one output of campaigns or groups, a row for each."""
  first = headline(rows[0].section)
  headings = ("runs of", "runs", *("\n".join(h.rsplit(" ", 1)) for h in first))
  cells = []
  for row in rows:
    of = headline(row.section)
    shown = (cell(of[heading]) if heading in of else "–" for heading in first)
    cells.append((name(row), str(row.section["runs"]), *shown))
  return Table(title, headings, cells)


def short_side_by_side(noun: str, rows: Sequence[Row]) -> Table:
  """Return the table of one output without errors, its unit in the title."""
  sign = scale_and_sign(headline(rows[0].section)["mean"]["unit"])[1]
  return side_by_side_table(
    f"{noun} side by side{f', in{sign}' * bool(sign)}",
    rows,
    lambda row: row.name,
    lambda s: show(s["value"], None, s["unit"]).removesuffix(sign),
  )


def side_by_side_figures(noun: str, rows: Sequence[Row]) -> Figures:
  """Return the figures of one output of groups of runs side by side, by name."""
  names, runs = [row.name for row in rows], rows[0].runs
  lines = 2 + max(name.count("\n") for name in names)
  height = min(30.0, 1.6 + len(rows) * max(0.45, 0.1 + 0.16 * lines))
  values = {row.name: row.runs.values for row in rows}
  found = {
    "accuracies": Figure(
      f"{capitalized(noun)} of the runs",
      """The box is the middle half of the runs, the line in it their median, the diamond \
their mean; the whiskers reach to the lowest and the highest.""",
      lambda ax: plots.accuracies_side_by_side(values, ax, of=runs.of),
      height,
    )
  }
  first = [headline(row.section) for row in rows]
  measured = {row.name.replace("\n", ", "): learning_curves(row.runs) for row in rows}
  known = {name: of for name, of in measured.items() if of is not None}
  if len(known) == len(rows) <= MOST_COLORED:
    epochs = next(iter(known.values()))[0]
    found["learning_curves"] = Figure(
      f"{capitalized(noun)} after each epoch",
      "Mean over the runs, with its 95 % interval.",
      lambda ax: plots.learning_curves(
        {name: of for name, (_, of) in known.items()}, epochs, ax, of=runs.of
      ),
    )
  if runs.role == "score" or all(of["sd"]["value"] is None for of in first):
    return found
  parts = _PARTS[runs.role]
  series = {
    label: [tuple(of[heading][end] for end in ("value", "low", "high")) for of in first]
    for label, heading in (
      ("test set", "sd"),
      (f"{parts} independent", "sd if indep."),
      ("distribution", "distr. sd"),
    )
  }
  found["standard_deviations"] = Figure(
    f"Standard deviations of {noun} between runs",
    f"""What is seen on this test set; what it would be if {parts} were independent \
between examples; and what would remain on an endless test set, at 0 where the estimate of \
its variance is below 0. Bars are 95 % intervals, of what other runs would give.""",
    lambda ax: plots.sds_side_by_side(names, series, ax, of=runs.of),
    height,
  )
  return found


# Files.


def _open(
  folder: Folder,
  test_set: str,
  epoch: int | None,
  by: Sequence[str] | None,
  where: Where,
) -> xr.Dataset:
  """Read a folder, but not its predictions if they are many and stored tallies are of
  exactly these runs.
  """
  results = open_results(folder, test_set, epoch)
  results = results.drop_vars(
    [n for n, x in results.variables.items() if "epoch" in x.dims and x.ndim > 2]
  )
  results = results.assign_attrs(roles=(outputs := roles(results)))
  if results.attrs.get(UPGRADED):
    results = results.assign_attrs({BY_VERSIONS: runs_by_versions(folder)})
  if "search" in results.attrs:
    results = best_runs(results)
  with readable(folder):
    if "votes" in results and not where and len(groups.group_runs(results, by)) == 1:
      large = [
        name
        for name, about in outputs.items()
        if about["role"] == "class"
        and name in results
        and results[name].nbytes > MOST_READ
      ]
      results = results.drop_vars(large)
  return loaded(results, folder)


def _is_one_sweep(parts: Sequence[Part]) -> bool:
  """Return whether parts are runs of one folder that differ in values, several of each,
  and were not chosen by a search.
  """
  folders = {part.summary["folder"] for part in parts}
  repeated = all(p.summary["runs"] > 1 and not p.searches for p in parts)
  swept = sweeps.is_sweep([p.summary["values"] for p in parts])
  return len(folders) == 1 and repeated and swept


def _outcome(row: Row) -> sweeps.Outcome:
  mean = headline(row.section)["mean"]
  return sweeps.Outcome(row.part.summary["values"], row.runs, mean)


def _side_by_side(
  parts: Sequence[Part],
  lost: Sequence[str],
  out: Path | UPath,
  console: Console,
  format: str,
) -> Path | UPath:
  """Print the tables of groups side by side, write their page and return its path."""
  notes, outputs = [*lost, *_notes(parts)], _by_output(parts)
  titles = (_title(part.summary | {"values": {}}) for part in parts)
  tables = [
    side_by_side_table(
      noun,
      rows,
      lambda row: pages.link(row.part.name, row.part.out / "report.html", out),
      _cell,
    )
    for noun, rows in outputs.items()
  ]
  found = {
    join_names(noun * (len(outputs) > 1), name, by="."): figure
    for noun, rows in outputs.items()
    for name, figure in side_by_side_figures(noun, rows).items()
  }
  swept = [*outputs.values()] if _is_one_sweep(parts) else []
  leads, probabilities = [], {}
  for rows in swept:
    outcomes = [_outcome(row) for row in rows]
    noun = rows[0].runs.of.name * (len(outputs) > 1)
    curves = sweeps.response_curves(outcomes).items()
    found |= {join_names(noun, name, by="."): figure for name, figure in curves}
    if best := sweeps.best_of(outcomes):
      leads.append(sweeps.describe_best(outcomes, best))
      tables.append(sweeps.table_of_best(outcomes, best))
      names = (format_values(outcome.values) for outcome in outcomes)
      of = rows[0].section["output"]
      probabilities[of] = dict(zip(names, best.probabilities, strict=True))
  page = pages.write_page(
    out,
    "report",
    {
      "warnings": notes,
      "probability_of_best": probabilities,
      "reports": [part.summary for part in parts],
    },
    [
      pages.Section(lead=" ".join(leads), tables=tables),
      pages.notes(notes),
      pages.Section("Figures", figures=found),
    ],
    vector=format if format in VECTORS else "",
    title=f"{', '.join(dict.fromkeys(titles))}: side by side",
    under=f"{len(parts)} groups of runs · test set: {parts[0].summary['test_set']}",
    footer=_SIDE_BY_SIDE,
  )
  for noun, rows in outputs.items():
    _print_table(short_side_by_side(noun, rows), console, format)
  for lead in leads:
    console.print(lead, soft_wrap=True, highlight=False, markup=False)
  _print_notes(notes, page, console, format)
  return page
