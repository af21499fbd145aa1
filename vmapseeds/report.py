"""What a campaign's results say: numbers with their standard errors, figures, one self-contained page."""

import base64
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jinja2
import numpy as np
import xarray as xr
from jaxtyping import Integer
from matplotlib.axes import Axes
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from upath import UPath

from vmapseeds import plots, stats
from vmapseeds.checks import check_memory, check_values
from vmapseeds.errors import Mistake
from vmapseeds.results import open_results, readable
from vmapseeds.stores import is_remote, place, write
from vmapseeds.summary import GROUPS, gaps, run_count, show, show_error, show_interval, summarize, votes

TEMPLATE = Path(__file__).with_name("report.html.j2")
# Short enough for a terminal of 80 columns.
COMPARED = {
  "mean_accuracy": "mean",
  "sd_accuracy": "sd",
  "independent_errors_sd": "sd if indep.",
  "distribution_sd": "distr. sd",
  "ensemble_accuracy": "ensemble",
  "expected_disagreement": "disagr.",
}
MOST_PAIRED = 50  # runs whose pairs are drawn


def report(
  folders: Sequence[str | os.PathLike], *, test_set: str = "test", console: Console | None = None
) -> list[dict[str, Any]]:
  """Prints the statistics of results folders and writes `report.html`, `report.json` and PNG figures.

  They go into the folder `report` of each results folder, or `report/<test set>` for another than the
  recipe's first test set. Several folders are compared in one more table on the terminal.

  Returns:
    what `summarize` says of each folder, with its `folder`.

  Raises:
    Mistake: a folder holds no results or no finished run, has no such test set, or cannot be written. No
      folder is written to then, unless writing itself fails.
  """
  console = console or Console()
  opened = [_open(folder, test_set) for folder in folders]
  summaries = [summary for _, summary in opened]
  for results, summary in opened:
    page = _write(results, summary, place(summary["folder"]))
    console.print(terminal_table(summary))
    for warning in summary["warnings"]:
      console.print(f"[yellow]note:[/] {warning}", highlight=False)
    console.print(f"{page}\n", highlight=False, markup=False, soft_wrap=True)
  if len(summaries) > 1:
    console.print(comparison_table(summaries))
  return summaries


def _title(summary: dict[str, Any]) -> str:
  epochs = summary["settings"].get("epochs")
  return summary["recipe"] if epochs is None else f"{summary['recipe']}, {epochs} epoch{'s' * (epochs != 1)}"


def terminal_table(summary: dict[str, Any]) -> Table:
  """The statistics of one campaign in their groups, each with its standard error and 95 % interval."""
  title = f"{_title(summary)}: {run_count(summary['runs'])}, {summary['examples']} examples of {summary['test_set']}"
  table = Table("statistic", title=escape(title), title_justify="left")
  table.add_column("value ± std. error", justify="right", no_wrap=True)
  table.add_column("95 % interval", justify="right", no_wrap=True)
  group = None
  for s in summary["statistics"].values():
    if s["group"] != group:
      group = s["group"]
      table.add_section()
      table.add_row(f"[bold]{GROUPS[group]}")
    interval = show_interval(s["low"], s["high"], s["unit"]).removesuffix(" %").removesuffix(" %²")
    table.add_row(s["label"], show(s["value"], s["se"], s["unit"]), interval)
  return table


def comparison_table(summaries: Sequence[dict[str, Any]]) -> Table:
  """Campaigns side by side, a row each."""
  table = Table("folder", title="test accuracy side by side, in %", title_justify="left")
  for heading in ("runs", *COMPARED.values()):
    table.add_column(heading, justify="right")
  for summary in summaries:
    found = (summary["statistics"].get(name) for name in COMPARED)
    cells = ("–" if s is None else show(s["value"], None, s["unit"]).removesuffix(" %") for s in found)
    table.add_row(escape(Path(summary["folder"]).name), str(summary["runs"]), *cells)
  return table


def figures(results: xr.Dataset, summary: dict[str, Any]) -> dict[str, tuple[str, str, Callable[[Axes], Axes]]]:
  """The figures of a report: name -> title, caption and what draws it on axes. None for a single run."""
  kept = results.isel(run=np.flatnonzero(~results.diverged.values))
  predictions, labels, pooled = votes(kept)
  if len(predictions) < 2:
    return {}
  errors, n, classes = predictions != labels, len(labels), summary["classes"]
  numbers = summary["statistics"]
  text = {name: show(s["value"], None, s["unit"]) for name, s in numbers.items()}
  rates = stats.example_error_rates(errors)
  found = {
    "accuracy_distribution": (
      "Test accuracy over runs",
      f"Accuracies have a standard deviation of {text['sd_accuracy']} over the {len(errors)} runs. The solid line is "
      "what would be seen if every example kept its error rate but were right or wrong independently of the others "
      f"({text['independent_errors_sd']}): as far as the bars follow it, runs differ only by chance on this test set. "
      f"The dashed line takes all examples as equally hard ({text['binomial_sd']}); the dotted one is normal with the "
      "standard deviation seen.",
      lambda ax: plots.accuracy_histogram(
        1 - stats.error_rates(errors), ax, examples=n, normal=True,
        independent_sd=numbers["independent_errors_sd"]["value"], binomial_sd=numbers["binomial_sd"]["value"],
      ),
    ),
    "error_rates": (
      "How often each example is wrong",
      "Examples at the far left are right in nearly every run, those at the far right wrong in nearly every run. Runs "
      "differ on the ones between, and these make up the independent-errors prediction. The count is on a logarithmic "
      "axis.",
      lambda ax: plots.error_rate_histogram(rates, ax),
    ),
  }  # fmt: skip
  if n > 1:
    even, odd = (1 - errors[:, start::2].mean(1) for start in (0, 1))
    found["split"] = (
      "One half of the test examples against the other",
      f"Each point is a run, or several, by its colour. If some runs were better than others, those good on the even "
      f"examples would be good on the odd ones. {numbers['split_correlation']['reading']} "
      f"{numbers['top_quarter_gain']['reading']}",
      lambda ax: plots.split_scatter(even, odd, ax, correlation=numbers["split_correlation"]["value"]),
    )
  if pooled:
    found |= _vote_figures(predictions, labels, classes, numbers)
  if "gap_distance" in numbers:
    found["logit_gaps"] = (
      "Distribution functions of the logit gaps",
      f"Each thin line is a run's eCDF of m(x) on the test examples, the thick one that of all runs together, and the "
      f"band its ± δ_a. {numbers['gap_accepted']['reading']}",
      lambda ax: plots.ecdf_band(gaps(kept), ax, threshold=float(stats.ks_threshold(n))),
    )
  return found


def _vote_figures(
  predictions: Integer[np.ndarray, "runs examples"], labels: Integer[np.ndarray, " examples"], classes: int,
  numbers: dict[str, Any],
) -> dict[str, tuple[str, str, Callable[[Axes], Axes]]]:  # fmt: skip
  tallies = stats.tally(predictions, labels, classes)
  curve, band = tallies.calibration_curve(), tallies.calibration_band(jax.random.key(0))
  shown = predictions[:MOST_PAIRED]
  error = (shown != labels).mean(1)
  first, second = np.triu_indices(len(shown), 1)
  disagreement = stats.disagreement_matrix(shown)[first, second]
  return {
    "calibration": (
      "Calibration of the votes",
      "Each point is a tenth of the range of vote fractions, over all examples and classes: how often the class was "
      f"right, with 95 % of the bootstrap over examples. {numbers['cace']['reading']}",
      lambda ax: plots.calibration_curve(curve.confidence, curve.accuracy, ax, low=band.low, high=band.high),
    ),
    "disagreement": (
      "Disagreement against error",
      f"Each point is a pair of {'the first ' * (len(predictions) > len(shown))}{run_count(len(shown))}: how "
      "often they disagree against how often they are wrong, on average of the two. Where the votes are calibrated the "
      f"points lie around the line. {numbers['gde_gap']['reading']}",
      lambda ax: plots.disagreement_against_error((error[first] + error[second]) / 2, disagreement, ax),
    ),
  }


# Files.


def _open(folder: str | os.PathLike, test_set: str) -> tuple[xr.Dataset, dict[str, Any]]:
  results = open_results(folder, test_set)
  with readable(folder):
    # Read from disk once; logits, where kept, are not needed.
    small = results.drop_vars("logits", errors="ignore")
    check_memory(small, folder)
    results = results.assign(small.load().data_vars)
    check_values(results, folder)
    try:
      return results, {"folder": str(folder), **summarize(results, test_set=test_set)}
    except Mistake as mistake:
      raise Mistake(f"{folder}: {mistake}") from None


def _write(results: xr.Dataset, summary: dict[str, Any], folder: Path | UPath) -> Path | UPath:
  """Writes figures, report.json and report.html, and returns the path of the page."""
  out = folder / "report"
  if summary["test_set"] != summary["settings"]["test_sets"][0]:
    out /= summary["test_set"]
  try:
    if not is_remote(out):
      out.mkdir(parents=True, exist_ok=True)
    drawn = [
      {"title": title, "caption": caption, "source": _save_figure(draw, out / f"{name}.png")}
      for name, (title, caption, draw) in figures(results, summary).items()
    ]
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    write(out / "report.json", f"{text}\n".encode())
    page = out / "report.html"
    write(page, html(summary, drawn).encode())
  except OSError as error:
    raise Mistake(f"{out} cannot be written ({error.strerror}): make it writable, or copy the results") from error
  return page


def _save_figure(draw: Callable[[Axes], Axes], path: Path | UPath) -> str:
  """Saves a figure as PNG and returns it as a data URI."""
  figure, ax = plots.figure()
  draw(ax)
  drawn = io.BytesIO()
  figure.savefig(drawn, dpi=160)
  write(path, drawn.getvalue())
  return f"data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}"


def html(summary: dict[str, Any], drawn: Sequence[dict[str, str]]) -> str:
  """The report as one page that loads nothing else.

  Args:
    summary: what `summarize` gives.
    drawn: figures, each with `title`, `caption` and `source`, a data URI.
  """
  environment = jinja2.Environment(
    autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
  )
  page = environment.from_string(TEMPLATE.read_text("utf-8")).render(
    title=_title(summary),
    show=show,
    show_error=show_error,
    show_interval=show_interval,
    groups=GROUPS,
    figures=drawn,
    **summary | {"runs": run_count(summary["runs"])},
  )
  # No line may break between a number and its unit.
  return page.replace(" %", "\N{NO-BREAK SPACE}%")
