"""Reports of a campaign's results: numbers with their standard errors, figures,
self-contained pages.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Integer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from upath import UPath

from vmapseeds import stats
from vmapseeds.mistakes import Mistake
from vmapseeds.reports import groups, pages, plots
from vmapseeds.reports.groups import Where, run_count
from vmapseeds.reports.pages import Figure
from vmapseeds.reports.summary import (
  GROUPS,
  Counts,
  counted,
  gaps,
  show,
  show_interval,
  summarize,
)
from vmapseeds.results.opening import loaded, open_results
from vmapseeds.store.files import Folder, place
from vmapseeds.store.layout import readable

# Column headings, short enough for a terminal of 80 columns.
COMPARED = {
  "mean_accuracy": "mean",
  "sd_accuracy": "sd",
  "independent_errors_sd": "sd if\nindep.",
  "distribution_sd": "distr.\nsd",
  "ensemble_accuracy": "ensemble",
  "expected_disagreement": "disagr.",
}
MOST_READ = 2**28  # bytes of predictions that are read although tallies are stored
MOST_PAIRED = 50  # runs whose pairs are drawn


class Part(NamedTuple):
  """Runs that have a page of their own: all of a folder, or a group of its runs."""

  name: str
  out: Path | UPath
  counts: Counts  # without joint errors, which are many
  summary: dict[str, Any]


def report(
  folders: Folder | Sequence[Folder],
  *,
  by: Sequence[str] | None = None,
  where: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
  out: Folder | None = None,
  console: Console | None = None,
) -> list[dict[str, Any]]:
  """Prints the statistics of results folders and writes `report.html`, `report.json`
  and PNG figures.

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
    Mistake: a folder holds no results or no finished run, has no such test set, columns
      or values, or a page cannot be written. Nothing is written then, unless writing
      itself fails.
  """
  console = console or Console()
  folders = (
    [folders]
    if isinstance(folders, Folder) or not np.iterable(folders)
    else list(folders)
  )
  if not folders:
    raise Mistake(
      "no results folder given: give one or more that `vmapseeds train` or `import` made"
    )
  names = _names(folders) if len(folders) > 1 else [""]
  reported = []
  for folder, name in zip(folders, names, strict=True):
    results = _open(folder, test_set, epoch, by, where)
    above = place(folder) / "report" if out is None else place(out) / name
    reported.append(_parts(results, folder, name, above, by, where, test_set))
  for parts, lost in reported:
    for _, out_of, counts, summary in parts:
      page = pages.write_page(
        out_of,
        "report",
        "report",
        figures(counts, summary),
        summary,
        **context(summary),
      )
    if len(parts) > 1 or lost:
      _side_by_side(parts, lost, parts[0].out.parent, console)
    else:
      console.print(terminal_table(summary))
      _print_notes(summary["warnings"], page, console)
  parts = [part for parts, _ in reported for part in parts]
  if len(folders) > 1:
    top = place(folders[0]) / "report" / "side_by_side" if out is None else place(out)
    _side_by_side(parts, [note for _, lost in reported for note in lost], top, console)
  return [part.summary for part in parts]


def _names(folders: Sequence[Folder]) -> list[str]:
  """The shortest path endings that tell the folders apart."""
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
  """The groups of a folder, and a sentence for each group whose runs all diverged."""
  try:
    found = groups.grouped(results, by, where)
    # If all runs of all groups diverged, `counted` raises a mistake for the first
    # group.
    alive = [g for g in found if not g.results.diverged.all()] or found[:1]
    parts = []
    for values, of in alive:
      counts = counted(of)
      summary = {
        "folder": str(folder),
        "values": values,
        **summarize(of, test_set=test_set, counts=counts),
      }
      other_set = "" if test_set == summary["settings"]["test_sets"][0] else test_set
      epoch = "" if summary["epoch"] is None else f"epoch={summary['epoch']}"
      said = ", ".join(filter(None, [name, _group_name(summary)]))
      counts = counts._replace(
        tallies=dataclasses.replace(counts.tallies, joint_errors=None)
      )
      parts.append(
        Part(
          said,
          pages.below(above, other_set, epoch, groups.named(values)),
          counts,
          summary,
        )
      )
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None
  lost = [
    f"{', '.join(filter(None, [name, groups.named(values)]))}: all {run_count(of.sizes['run'])} diverged."
    for values, of in found
    if of.diverged.all()
  ]
  return parts, lost


def _group_name(summary: dict[str, Any]) -> str:
  named = groups.named(summary.get("values", {}))
  return ", ".join(
    [*filter(None, [named]), *(f"{name} pooled" for name in summary["pooled"])]
  )


def _print_notes(notes: Sequence[str], page: Path | UPath, console: Console) -> None:
  for note in notes:
    console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
  console.print(f"{page}\n", highlight=False, markup=False, soft_wrap=True)


def _title(summary: dict[str, Any]) -> str:
  epochs = summary["settings"].get("epochs")
  duration = "" if epochs is None else f"{epochs} epoch{'s' * (epochs != 1)}"
  duration = (
    duration if summary["epoch"] is None else f"epoch {summary['epoch']} of {epochs}"
  )
  return ", ".join(filter(None, [summary["recipe"], duration, _group_name(summary)]))


def terminal_table(summary: dict[str, Any]) -> Table:
  """The statistics of one campaign in their groups, each with its standard error and 95
  % interval.
  """
  title = f"{_title(summary)}: {run_count(summary['runs'])}, {summary['examples']} examples of {summary['test_set']}"
  caption = (
    "± and intervals: what other runs would give; *: these runs on other examples"
  )
  table = Table(
    "statistic",
    title=escape(title),
    title_justify="left",
    caption=caption,
    caption_justify="left",
  )
  table.add_column("value ± std. error", justify="right", no_wrap=True)
  table.add_column("95 % interval", justify="right", no_wrap=True)
  group = None
  for s in summary["statistics"].values():
    if s["group"] != group:
      group = s["group"]
      table.add_section()
      table.add_row(f"[bold]{GROUPS[group]}")
    interval = (
      show_interval(s["low"], s["high"], s["unit"])
      .removesuffix(" %")
      .removesuffix(" %²")
    )
    mark = "* " * (s["over"] == "examples")
    table.add_row(s["label"], show(s["value"], s["se"], s["unit"]), mark + interval)
  return table


def side_by_side_table(parts: Sequence[Part]) -> Table:
  """Campaigns or groups of runs side by side, a row each."""
  heading = "group" if any(part.summary["values"] for part in parts) else "folder"
  table = Table(title="test accuracy side by side, in %", title_justify="left")
  table.add_column(heading, overflow="fold")
  for heading in ("runs", *COMPARED.values()):
    table.add_column(heading, justify="right", no_wrap=True)
  for name, part in zip(_in_lines(parts), parts, strict=True):
    found = map(part.summary["statistics"].get, COMPARED)
    cells = (
      "–" if s is None else show(s["value"], None, s["unit"]).removesuffix(" %")
      for s in found
    )
    table.add_row(escape(name), str(part.summary["runs"]), *cells)
  return table


def figures(counts: Counts, summary: dict[str, Any]) -> dict[str, Figure]:
  """The figures of a report, by name. A single run has none."""
  kept, tallies, predictions, pooled = counts
  if tallies.runs < 2:
    return {}
  n = tallies.examples
  numbers = summary["statistics"]
  text = {name: show(s["value"], None, s["unit"]) for name, s in numbers.items()}
  found = {
    "accuracy_distribution": Figure(
      "Test accuracy over runs",
      f"Accuracies have a standard deviation of {text['sd_accuracy']} over the {tallies.runs} runs. The solid line is "
      "what would be seen if every example kept its error rate but were right or wrong independently of the others "
      f"({text['independent_errors_sd']}): as far as the bars follow it, runs differ only by chance on this test set. "
      f"The dashed line takes all examples as equally hard ({text['binomial_sd']}); the dotted one is normal with the "
      "standard deviation seen.",
      lambda ax: plots.accuracy_histogram(
        1 - tallies.error_rates(),
        ax,
        examples=n,
        normal=True,
        independent_sd=numbers["independent_errors_sd"]["value"],
        binomial_sd=numbers["binomial_sd"]["value"],
      ),
    ),
    "error_rates": Figure(
      "How often each example is wrong",
      "Examples at the far left are right in nearly every run, those at the far right wrong in nearly every run. Runs "
      "differ on the ones between, and these make up the independent-errors prediction. The count is on a logarithmic "
      "axis.",
      lambda ax: plots.error_rate_histogram(tallies.example_error_rates(), ax),
    ),
  }
  if n > 1:
    even, odd = (
      1 - wrong / len(range(start, n, 2)) for start, wrong in enumerate(tallies.halves)
    )
    found["split"] = Figure(
      "One half of the test examples against the other",
      f"Each point is a run, or several, by its colour. If some runs were better than others, those good on the even "
      f"examples would be good on the odd ones. {numbers['split_correlation']['reading']} "
      f"{numbers['top_quarter_gain']['reading']}",
      lambda ax: plots.split_scatter(
        even, odd, ax, correlation=numbers["split_correlation"]["value"]
      ),
    )
  if pooled:
    found |= _vote_figures(tallies, predictions, numbers)
  if "gap_distance" in numbers:
    found["logit_gaps"] = Figure(
      "Distribution functions of the logit gaps",
      f"Each thin line is a run's eCDF of m(x) on the test examples, the thick one that of all runs together, and the "
      f"band its ± δ_a. {numbers['gap_accepted']['reading']}",
      lambda ax: plots.ecdf_band(
        gaps(kept), ax, threshold=float(stats.ks_threshold(n))
      ),
    )
  return found


def _vote_figures(
  tallies: stats.Tallies,
  predictions: Integer[np.ndarray, "runs examples"] | None,
  numbers: dict[str, Any],
) -> dict[str, Figure]:
  curve, band = (
    tallies.calibration_curve(),
    tallies.calibration_band(key=jax.random.key(0)),
  )
  found = {
    "calibration": Figure(
      "Calibration of the votes",
      "Each point is a tenth of the range of vote fractions, over all examples and classes: how often the class was "
      f"right, with 95 % of the bootstrap over examples. {numbers['cace']['reading']}",
      lambda ax: plots.calibration_curve(
        curve.confidence, curve.accuracy, ax, low=band.low, high=band.high
      ),
    )
  }
  if predictions is None:
    return found
  shown = predictions[:MOST_PAIRED]
  error = (shown != tallies.labels).mean(1)
  first, second = np.triu_indices(len(shown), 1)
  disagreement = stats.disagreement_matrix(shown)[first, second]
  return found | {
    "disagreement": Figure(
      "Disagreement against error",
      f"Each point is a pair of {'the first ' * (len(predictions) > len(shown))}{run_count(len(shown))}: how "
      "often they disagree against how often they are wrong, on average of the two. Where the votes are calibrated the "
      f"points lie around the line. {numbers['gde_gap']['reading']}",
      lambda ax: plots.disagreement_against_error(
        (error[first] + error[second]) / 2, disagreement, ax
      ),
    )
  }


def side_by_side_figures(parts: Sequence[Part]) -> dict[str, Figure]:
  """The figures of groups of runs side by side, by name."""
  names = _in_lines(parts)
  lines = 1 + max(name.count("\n") + 1 for name in names)
  height = min(30.0, 1.6 + len(parts) * max(0.45, 0.1 + 0.16 * lines))
  accuracies = {
    name: part.counts.kept.accuracy.values
    for name, part in zip(names, parts, strict=True)
  }
  found = {
    "accuracies": Figure(
      "Test accuracy of the runs",
      "The box is the middle half of the runs, the line in it their median, the diamond their mean; the whiskers reach "
      "to the lowest and the highest.",
      lambda ax: plots.accuracies_side_by_side(accuracies, ax),
      height,
    )
  }
  numbers = [part.summary["statistics"] for part in parts]
  drawn = {
    "sd_accuracy": "test set",
    "independent_errors_sd": "errors independent",
    "distribution_sd": "distribution",
  }
  series = {
    label: [tuple(s[name][k] for k in ("value", "low", "high")) for s in numbers]
    for name, label in drawn.items()
  }
  below = [(s["distribution_variance"]["value"] or 0) < 0 for s in numbers]
  if any(s["sd_accuracy"]["value"] is not None for s in numbers):
    found["standard_deviations"] = Figure(
      "Standard deviations of accuracy between runs",
      "What is seen on this test set; what it would be if every example kept its error rate but were right or wrong "
      "independently of the others; and what would remain on an endless test set. Bars are 95 % intervals, of what "
      "other runs would give.",
      lambda ax: plots.sds_side_by_side(names, series, ax, below=below),
      height,
    )
  return found


def _in_lines(parts: Sequence[Part]) -> list[str]:
  """The names of parts, with a new line after each comma."""
  return [part.name.replace(", ", "\n") for part in parts]


# Files.


def _open(
  folder: Folder,
  test_set: str,
  epoch: int | None,
  by: Sequence[str] | None,
  where: Where,
) -> xr.Dataset:
  """Reads a folder, but not its predictions if they are many and stored tallies are of
  exactly these runs.
  """
  results = open_results(folder, test_set, epoch).drop_dims("epoch", errors="ignore")
  with readable(folder):
    together = (
      "votes" in results and not where and len(groups.grouped(results, by)) == 1
    )
    if together and "predictions" in results and results.predictions.nbytes > MOST_READ:
      results = results.drop_vars("predictions")
  return loaded(results, folder)


def _side_by_side(
  parts: Sequence[Part], lost: Sequence[str], out: Path | UPath, console: Console
) -> None:
  """Prints the table of groups side by side and writes their page."""
  said: dict[str, list[str]] = {}
  for part in parts:
    for warning in part.summary["warnings"]:
      said.setdefault(warning, []).append(part.name)
  shared = [warning for warning, names in said.items() if len(names) == len(parts)]
  of_some = [
    f"{'; '.join(names)}: {warning}"
    for warning, names in said.items()
    if len(names) < len(parts)
  ]
  notes = [*lost, *shared, *of_some]
  page = pages.write_page(
    out,
    "report",
    "side_by_side",
    side_by_side_figures(parts),
    {"warnings": notes, "reports": [part.summary for part in parts]},
    title=f"{', '.join(dict.fromkeys(_title(part.summary | {'values': {}}) for part in parts))}: side by side",
    compared=COMPARED,
    warnings=notes,
    test_set=parts[0].summary["test_set"],
    rows=[
      (part.name, part.summary, pages.link(part.out / "report.html", out))
      for part in parts
    ],
  )
  console.print(side_by_side_table(parts))
  _print_notes(notes, page, console)


def context(summary: dict[str, Any]) -> dict[str, Any]:
  """The values that the page of one summary shows."""
  return {**summary, "title": _title(summary), "runs": run_count(summary["runs"])}
