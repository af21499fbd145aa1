"""Reports of a campaign's results: numbers with their standard errors, figures,
self-contained pages.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from upath import UPath

from vmapseeds import stats
from vmapseeds.mistakes import Mistake
from vmapseeds.reports import groups, pages, plots
from vmapseeds.reports.groups import Where, format_values
from vmapseeds.reports.pages import Figure, join_names
from vmapseeds.reports.summary import headline, measure_outputs, summarize
from vmapseeds.results.formatting import (
  capitalized,
  run_count,
  scale_and_sign,
  show,
  show_interval,
)
from vmapseeds.results.opening import loaded, open_results, resolve_test_set
from vmapseeds.results.statistics import (
  GROUPS,
  MeasuredRuns,
  roles,
  values_of_runs,
)
from vmapseeds.store.files import Folder, place
from vmapseeds.store.layout import readable

MOST_READ = 2**28  # bytes of predictions that are read although tallies are stored
MOST_PAIRED = 50  # runs whose pairs are drawn
Section = dict[str, Any]  # what `summarize` or `summarize_output` returns
Figures = dict[str, Figure]
_PARTS = {"class": "errors", "loss": "losses"}


class Part(NamedTuple):
  """Runs that have a page of their own: all of a folder, or a group of its runs."""

  name: str
  out: Path | UPath
  measured: list[MeasuredRuns]  # without joint errors, which are many
  summary: Section


def report(
  folders: Folder | Sequence[Folder],
  *,
  by: Sequence[str] | None = None,
  where: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
  out: Folder | None = None,
  console: Console | None = None,
) -> list[Section]:
  """Print the statistics of results folders and write `report.html`, `report.json` and
  PNG figures, with a section for each output of role class, loss or score.

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
    out: folder for the pages instead. With several results folders, each has a
      subfolder of its name in it.
    console: where to print.

  Returns:
    what `summarize` returns for each group of each folder, with its `folder` and
    `values`, column -> value.

  Raises:
    Mistake: a folder holds no results, no output with such a role or no finished run,
      has no such test set, columns or values, or a page cannot be written. Nothing is
      written then, unless writing itself fails.
  """
  console = console or Console()
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
    reported.append(_parts(results, folder, name, above, by, where, opened))
  for parts, lost in reported:
    for part in parts:
      page = _write(part)
    if len(parts) > 1 or lost:
      _side_by_side(parts, lost, parts[0].out.parent, console)
    else:
      for section in sections(part.summary):
        console.print(terminal_table(part.summary, section))
      _print_notes(_notes([part]), page, console)
  parts = [part for parts, _ in reported for part in parts]
  if len(folders) > 1:
    top = place(folders[0]) / "report" / "side_by_side" if out is None else place(out)
    _side_by_side(parts, [note for _, lost in reported for note in lost], top, console)
  return [part.summary for part in parts]


def sections(summary: Section) -> list[Section]:
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
  results: xr.Dataset,
  folder: Folder,
  name: str,
  above: Path | UPath,
  by: Sequence[str] | None,
  where: Where,
  test_set: str,
) -> tuple[list[Part], list[str]]:
  """Return the groups of a folder, and a sentence for each whose runs all diverged."""
  try:
    found = groups.group_runs(results, by, where)
    lost = [
      any(not np.isfinite(values_of_runs(of, name)).any() for name in roles(of))
      for _, of in found
    ]
    parts = []
    for group, diverged in zip(found, lost, strict=True):
      if diverged and not all(lost):
        continue  # if all runs of all groups diverged, measuring the first says so
      measured = measure_outputs(group.results)
      summary = summarize(group.results, test_set=test_set, measured=measured)
      summary = {"folder": str(folder), "values": group.values, **summary}
      for i, runs in enumerate(measured):
        if runs.tallies:
          tallies = dataclasses.replace(runs.tallies, joint_errors=None)
          measured[i] = dataclasses.replace(runs, tallies=tallies)
      out = pages.below(
        pages.of_test_set(above, results, test_set), format_values(group.values)
      )
      parts.append(Part(join_names(name, _group_name(summary)), out, measured, summary))
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None
  return parts, [
    f"{join_names(name, format_values(values))}: all {run_count(of.sizes['run'])} diverged."
    for (values, of), diverged in zip(found, lost, strict=True)
    if diverged
  ]


def _group_name(summary: Section) -> str:
  values = format_values(summary.get("values"))
  return join_names(values, *(f"{name} pooled" for name in summary["pooled"]))


def _notes(parts: Sequence[Part]) -> list[str]:
  """Return the warnings of all parts and outputs, each once, saying of which they are if
  not of all.
  """
  said: dict[str, list[str]] = {}
  several = len({s["output"] for part in parts for s in sections(part.summary)}) > 1
  of = [
    (join_names(part.name, several * section["output"], by=": "), section["warnings"])
    for part in parts
    for section in sections(part.summary)
  ]
  for name, warnings in of:
    for warning in warnings:
      said.setdefault(warning, []).append(name)
  shared = [warning for warning, names in said.items() if len(names) == len(of)]
  return shared + [
    f"{'; '.join(names)}: {warning}"
    for warning, names in said.items()
    if len(names) < len(of)
  ]


def _print_notes(notes: Iterable[str], page: Path | UPath, console: Console) -> None:
  for note in notes:
    console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
  console.print(f"{page}\n", highlight=False, markup=False, soft_wrap=True)


def _title(summary: Section) -> str:
  epochs, epoch = summary["settings"].get("epochs"), summary["epoch"]
  duration = "" if epochs is None else f"{epochs} epoch{'s' * (epochs != 1)}"
  if epoch is not None:
    duration = f"epoch {epoch} of {epochs}"
  return join_names(summary["recipe"], duration, _group_name(summary))


def terminal_table(summary: Section, section: Section) -> Table:
  """Return the statistics of one output in their groups, each with its standard error
  and 95 % interval.
  """
  about = section["output"]
  if section["role"] == "class":
    about = f"{section['examples']} examples of {summary['test_set']}"
  table = Table(
    "statistic",
    title=escape(f"{_title(summary)}: {run_count(section['runs'])}, {about}"),
    title_justify="left",
    caption="± and intervals: what other runs would give; *: these runs on other examples",
    caption_justify="left",
  )
  for heading in ("value ± std. error", "95 % interval"):
    table.add_column(heading, justify="right", no_wrap=True)
  group = None
  for s in section["statistics"].values():
    if s["group"] != group:
      group = s["group"]
      table.add_section()
      table.add_row(f"[bold]{GROUPS[group]}")
    ends = show_interval(s["low"], s["high"], s["unit"])
    ends = ends.removesuffix(" %").removesuffix(" %²")
    mark = "* " * (s["over"] == "examples")
    table.add_row(s["label"], show(s["value"], s["se"], s["unit"]), mark + ends)
  return table


def figures(runs: MeasuredRuns, section: Section) -> Figures:
  """Return the figures of one output, by name. A single run has none."""
  if runs.runs < 2:
    return {}
  numbers, n = section["statistics"], runs.examples
  first = headline(section)
  text = {heading: show(s["value"], None, s["unit"]) for heading, s in first.items()}
  parts = _PARTS.get(runs.role)
  caption = (
    f"The {runs.runs} runs have a standard deviation of {text['sd']}; the dotted line is "
    "normal with this one."
  )
  sds: dict[str, Any] = {}
  if "sd if indep." in first:
    sds["independent_sd"] = first["sd if indep."]["value"]
    caption += f""" The solid line is what would be seen if every example kept its mean \
and spread but {parts} were independent between examples ({text["sd if indep."]}): as \
far as the bars follow it, runs differ only by chance on this test set."""
  if runs.role == "class":
    binomial = numbers["binomial_sd"]
    sds |= {"binomial_sd": binomial["value"], "examples": n}
    equally = show(binomial["value"], None, binomial["unit"])
    caption += f" The dashed line takes all examples as equally hard ({equally})."
  found = {
    f"{'accuracy' if runs.role == 'class' else runs.role}_distribution": Figure(
      f"{capitalized(runs.of.name)} over runs",
      caption,
      lambda ax: plots.accuracy_histogram(
        runs.values, ax, normal=True, of=runs.of, **sds
      ),
    )
  }
  if runs.role == "loss":
    found["losses"] = Figure(
      "How large the loss of each example is",
      """Mean over the runs. The examples at the far right are the hardest; the page lists \
them below. The count is on a logarithmic axis.""",
      lambda ax: plots.loss_histogram(runs.losses.mean(0), ax, unit=runs.of.unit),
    )
  if runs.role == "class":
    found["error_rates"] = Figure(
      "How often each example is wrong",
      """Examples at the far left are right in nearly every run, those at the far right \
wrong in nearly every run. Runs differ on the ones between, and these make up the \
independent-errors prediction. The count is on a logarithmic axis.""",
      lambda ax: plots.error_rate_histogram(runs.tallies.example_error_rates(), ax),
    )
  if "split_correlation" in numbers and n > 1:
    even, odd = (
      half / len(range(i, n, 2)) for i, half in enumerate(runs.spread.halves)
    )
    if runs.role == "class":
      even, odd = 1 - even, 1 - odd
    readings = (numbers.get(s) for s in ("split_correlation", "top_quarter_gain"))
    found["split"] = Figure(
      "One half of the test examples against the other",
      f"""Each point is a run, or several, by its colour. If some runs were better than \
others, those good on the even examples would be good on the odd ones. \
{" ".join(s["reading"] for s in readings if s)}""",
      lambda ax: plots.split_scatter(
        even,
        odd,
        ax,
        correlation=numbers["split_correlation"]["value"],
        of=runs.of,
      ),
    )
  if "cace" in numbers:
    found |= _vote_figures(runs, numbers)
  if "gap_accepted" in numbers:
    found["logit_gaps"] = Figure(
      "Distribution functions of the logit gaps",
      f"""Each thin line is a run's eCDF of m(x) on the test examples, the thick one that \
of all runs together, and the band its ± δ_a. {numbers["gap_accepted"]["reading"]}""",
      lambda ax: plots.ecdf_band(runs.gaps, ax, threshold=float(stats.ks_threshold(n))),
    )
  return found


def _vote_figures(runs: MeasuredRuns, numbers: Section) -> Figures:
  curve = runs.tallies.calibration_curve()
  band = runs.tallies.calibration_band(key=jax.random.key(0))
  found = {
    "calibration": Figure(
      "Calibration of the votes",
      f"""Each point is a tenth of the range of vote fractions, over all examples and \
classes: how often the class was right, with 95 % of the bootstrap over examples. \
{numbers["cace"]["reading"]}""",
      lambda ax: plots.calibration_plot(
        curve.confidence, curve.accuracy, ax, low=band.low, high=band.high
      ),
    )
  }
  if runs.predictions is None:
    return found
  shown = runs.predictions[:MOST_PAIRED]
  error = (shown != runs.tallies.labels).mean(1)
  first, second = np.triu_indices(len(shown), 1)
  disagreement = stats.disagreement_matrix(shown)[first, second]
  some = "the first " * (runs.runs > len(shown))
  found["disagreement"] = Figure(
    "Disagreement against error",
    f"""Each point is a pair of {some}{run_count(len(shown))}: how often they disagree \
against how often they are wrong, on average of the two. Where the votes are calibrated the \
points lie around the line. {numbers["gde_gap"]["reading"]}""",
    lambda ax: plots.disagreement_against_error(
      (error[first] + error[second]) / 2, disagreement, ax
    ),
  )
  return found


# Several parts side by side.


class Row(NamedTuple):
  """One output of a part."""

  part: Part
  runs: MeasuredRuns
  section: Section

  @property
  def name(self) -> str:
    return self.part.name.replace(", ", "\n")


def _by_output(parts: Sequence[Part]) -> dict[str, list[Row]]:
  found: dict[str, list[Row]] = {}
  for part in parts:
    for runs, section in zip(part.measured, sections(part.summary), strict=True):
      found.setdefault(runs.of.name, []).append(Row(part, runs, section))
  return found


def side_by_side_table(noun: str, rows: Sequence[Row]) -> Table:
  """Return the headline numbers of one output of campaigns or groups, a row for each."""
  cells = [headline(row.section) for row in rows]
  sign = scale_and_sign(cells[0]["mean"]["unit"])[1]
  title = f"{noun} side by side{f', in{sign}' * bool(sign)}"
  table = Table(title=title, title_justify="left")
  table.add_column("runs of", overflow="fold")
  for heading in ("runs", *cells[0]):
    lines = "\n".join(heading.rsplit(" ", 1))
    table.add_column(lines, justify="right", no_wrap=True)
  for row, of in zip(rows, cells, strict=True):
    shown = (
      show(of[name]["value"], None, of[name]["unit"]).removesuffix(sign)
      if name in of
      else "–"
      for name in cells[0]
    )
    table.add_row(escape(row.name), str(row.section["runs"]), *shown)
  return table


def side_by_side_figures(noun: str, rows: Sequence[Row]) -> Figures:
  """Return the figures of one output of groups of runs side by side, by name."""
  names, runs = [row.name for row in rows], rows[0].runs
  lines = 1 + max(name.count("\n") + 1 for name in names)
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
  variances = (row.section["statistics"]["distribution_variance"] for row in rows)
  below = [(variance["value"] or 0) < 0 for variance in variances]
  found["standard_deviations"] = Figure(
    f"Standard deviations of {noun} between runs",
    f"""What is seen on this test set; what it would be if {parts} were independent \
between examples; and what would remain on an endless test set. Bars are 95 % intervals, of \
what other runs would give.""",
    lambda ax: plots.sds_side_by_side(names, series, ax, below=below, of=runs.of),
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
  results = open_results(folder, test_set, epoch).drop_dims("epoch", errors="ignore")
  results = results.assign_attrs(roles=(outputs := roles(results)))
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


def _write(part: Part) -> Path | UPath:
  """Write the page of a part and return its path."""
  found = {}
  for runs, section in zip(part.measured, sections(part.summary), strict=True):
    for name, figure in figures(runs, section).items():
      several = len(part.measured) > 1
      found[join_names(several * runs.output, name, by=".")] = figure._replace(
        of=runs.output
      )
  return pages.write_page(
    part.out, "report", "report", found, part.summary, **context(part.summary)
  )


def _side_by_side(
  parts: Sequence[Part], lost: Sequence[str], out: Path | UPath, console: Console
) -> None:
  """Print the tables of groups side by side and write their page."""
  notes, outputs = [*lost, *_notes(parts)], _by_output(parts)
  titles = (_title(part.summary | {"values": {}}) for part in parts)
  page = pages.write_page(
    out,
    "report",
    "side_by_side",
    {
      join_names(noun * (len(outputs) > 1), name, by="."): figure
      for noun, rows in outputs.items()
      for name, figure in side_by_side_figures(noun, rows).items()
    },
    {"warnings": notes, "reports": [part.summary for part in parts]},
    title=f"{', '.join(dict.fromkeys(titles))}: side by side",
    warnings=notes,
    test_set=parts[0].summary["test_set"],
    number=len(parts),
    outputs={
      noun: [
        (row.part.name, row.section, pages.link(row.part.out / "report.html", out))
        for row in rows
      ]
      for noun, rows in outputs.items()
    },
  )
  for noun, rows in outputs.items():
    console.print(side_by_side_table(noun, rows))
  _print_notes(notes, page, console)


def context(summary: Section) -> Section:
  """Return the values that the page of one summary shows."""
  part = Part("", Path(), [], summary)
  return {
    **summary,
    "title": _title(summary),
    "sections": sections(summary),
    "warnings": _notes([part]),
  }
