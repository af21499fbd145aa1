"""What a campaign's results say: numbers with their standard errors, figures, one self-contained page."""

import base64
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import xarray as xr
from jaxtyping import Bool, Integer
from matplotlib.axes import Axes
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from vmapseeds import plots, stats
from vmapseeds import results as results_on_disk
from vmapseeds.errors import Mistake
from vmapseeds.results import open_results
from vmapseeds.runs import HYPERPARAMETERS

FEW_RUNS = 30
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
UNDEFINED = "Not defined here: it needs at least two runs that differ, and two test examples."
Statistic = dict[str, Any]


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
    page = _write(results, summary, Path(summary["folder"]))
    console.print(terminal_table(summary))
    for warning in summary["warnings"]:
      console.print(f"[yellow]note:[/] {warning}", highlight=False)
    console.print(f"{page}\n", highlight=False, markup=False, soft_wrap=True)
  if len(summaries) > 1:
    console.print(comparison_table(summaries))
  return summaries


def summarize(results: xr.Dataset, *, test_set: str = "test") -> dict[str, Any]:
  """All numbers of one campaign on one test set, ready for JSON.

  Runs that diverged are counted and kept out of everything else. What is not defined (one run, a negative
  variance under a root) is None, never NaN.

  Args:
    results: what `open_results` gives.
    test_set: its name, for the record.

  Returns:
    `recipe`, `settings`, `test_set`, `device_kind`, `lane_width`, `lowering`, `versions`; `varied`, the
    sources of randomness whose seeds differ between runs; `runs`, `diverged`, `examples`, `classes`;
    `summary`, a few sentences; `warnings`, a sentence each; and `statistics`: name -> `label`, `value`, `se`
    (standard error over runs, or None), `unit` (fraction; variance: squared fraction; correlation),
    `definition` and `reading`.

  Raises:
    Mistake: no run is finished, or all diverged.
  """
  finished, diverged = results.sizes["run"], int(results.diverged.sum())
  if not finished:
    raise Mistake("no run is finished: start `vmapseeds train` again with the same --out, and it goes on")
  if finished == diverged:
    raise Mistake(f"all {finished} finished runs diverged: train with a lower lr")
  kept = results.isel(run=np.flatnonzero(~results.diverged.values))
  errors, num_classes = results_on_disk.errors(results), int(results.attrs["num_classes"])
  numbers = error_statistics(errors, num_classes)
  labels = _common_labels(kept)
  if labels is not None:
    numbers |= prediction_statistics(kept.predictions.values, labels, num_classes)
  settings = json.loads(results.attrs["recipe"])
  return {
    "recipe": settings["name"],
    "settings": settings,
    "test_set": test_set,
    **{name: results.attrs[name] for name in ("device_kind", "lane_width", "lowering", "versions")},
    "varied": _varied(kept),
    "runs": len(errors),
    "diverged": diverged,
    "examples": errors.shape[1],
    "classes": num_classes,
    "summary": _in_short(numbers, len(errors)),
    "warnings": _warnings(kept, diverged, numbers, mixed_labels=labels is None),
    "statistics": numbers,
  }


# The statistics: one call of `_statistic` each, so that number, definition and meaning stand together.


def error_statistics(errors: Bool[np.ndarray, "runs examples"], num_classes: int) -> dict[str, Statistic]:
  """The statistics of Jordan 2023 that need only which run has which example wrong, by name."""
  runs, n = errors.shape
  accuracy = 1 - stats.error_rates(errors)
  error = 1 - accuracy.mean()
  sd = float(np.sqrt(stats.test_set_variance(errors)))
  independent_sd = np.sqrt(stats.independent_errors_variance(errors))
  variance, variance_se = stats.distribution_variance(errors), stats.distribution_variance_se(errors)
  distribution_sd = np.sqrt(variance) if variance >= 0 else math.nan
  # A root's error by linearisation, which means little where the variance may as well be 0.
  distribution_se = variance_se / (2 * distribution_sd) if variance > 2 * variance_se else math.nan
  binomial_sd = np.sqrt(stats.binomial_variance(error, n))
  correlation = stats.split_correlation(errors)
  p_value = stats.correlation_p_value(correlation, runs)
  gain = stats.top_fraction_gain(errors).mean if runs > 1 else math.nan
  return {
    "mean_accuracy": _statistic(
      "mean accuracy", accuracy.mean(), sd / math.sqrt(runs), "fraction",
      "Mean over runs of the fraction of test examples that are right; error: sd/√R.",
      "A run has {} of the test examples right on average.",
    ),
    "sd_accuracy": _statistic(
      "standard deviation of accuracy", sd, _ratio(sd, math.sqrt(2 * (runs - 1))), "fraction",
      "Standard deviation over runs of test accuracy, ddof = 1 (Jordan 2023, section 3.1); error: "
      "sd/√(2(R - 1)).",
      "On this test set accuracy scatters about its mean by {} from run to run.",
    ),
    "min_accuracy": _statistic(
      "lowest accuracy", accuracy.min(), None, "fraction",
      "The least accurate run; it falls as more runs are drawn.", "The worst run has {} right.",
    ),
    "max_accuracy": _statistic(
      "highest accuracy", accuracy.max(), None, "fraction",
      "The most accurate run; it rises as more runs are drawn.",
      "The best run has {} right, which says little about how it would do on other examples.",
    ),
    "independent_errors_sd": _statistic(
      "sd if errors were independent", independent_sd, None, "fraction",
      "√((1/n²) Σ ε_i (1 - ε_i)) with ε_i the error rate of example i, unbiased in the number of runs "
      "(Jordan 2023, section 3.3).",
      "Were each example right or wrong by its own coin, runs would differ by a standard deviation of {}.",
    ),
    "distribution_variance": _statistic(
      "distribution-wise variance", variance, variance_se, "variance",
      "n/(n - 1) [variance over runs - independent-errors variance], signed and unbiased (Jordan 2023, "
      "equation 3); error: n/(n - 1) S² √(2/(R - 1)).",
      "This variance, {}, would remain on an endless test set; noise can make the estimate negative.",
    ),
    "distribution_sd": _statistic(
      "distribution-wise sd", distribution_sd, distribution_se, "fraction",
      "Square root of the distribution-wise variance where that is not negative (Jordan 2023, equation 3).",
      "On an endless test set runs would differ by a standard deviation of {}.",
      "The variance estimate is negative: no difference between runs is seen beyond this test set."
      if variance < 0 else UNDEFINED,
    ),
    "binomial_sd": _statistic(
      "binomial sd", binomial_sd, None, "fraction",
      "√(err (1 - err)/n): all examples equally hard and errors independent (Jordan 2023, figure 14).",
      "With all examples equally hard, chance alone would give {}.",
    ),
    "calibration_sd": _calibration(error, n, num_classes),
    "split_correlation": _statistic(
      "correlation between halves", correlation, None, "correlation",
      "Pearson correlation over runs of the accuracies on even and odd test examples (Jordan 2023, section "
      "3.2); two-sided p from the t test with R - 2 degrees of freedom.",
      f"Accuracy on one half explains {show(_plain(correlation**2), None, 'fraction')} of the variance of "
      f"that on the other (p {_p(p_value)}).",
    ) | {"p_value": _plain(p_value)},
    "top_quarter_gain": _statistic(
      "gain of the top quarter", gain, None, "fraction",
      "Mean accuracy on one half of the quarter of runs best on the other half, minus that of all runs; mean "
      "of both directions (Jordan 2023, section 3.2).",
      "Picking the best quarter of runs on half of the examples gains {} on the other half.",
    ),
  }  # fmt: skip


def _calibration(error: float, n: int, num_classes: int) -> Statistic:
  if num_classes == 2:
    return _statistic(
      "sd predicted by calibration", np.sqrt(stats.calibration_variance(error, n)), None, "fraction",
      "√(err/(2n)), for two classes and a class-wise calibrated ensemble (Jordan 2023, equation 6).",
      "If the runs' votes are calibrated, runs must differ by a standard deviation of about {} on such test "
      "sets.",
    )  # fmt: skip
  return _statistic(
    "least sd by calibration", np.sqrt(stats.calibration_variance_bound(error, n, num_classes)), None,
    "fraction",
    "√(err/(nk)) for k classes and a class-wise calibrated ensemble, a lower bound on average over test sets "
    "(Jordan 2023, theorem 4).",
    "If the runs' votes are calibrated, runs must differ by a standard deviation of at least {} on such test "
    "sets.",
  )  # fmt: skip


def prediction_statistics(
  predictions: Integer[np.ndarray, "runs examples"],
  labels: Integer[np.ndarray, " examples"],
  num_classes: int,
) -> dict[str, Statistic]:
  """The statistics that need which class each run predicts, by name; all runs have the same labels."""
  return {
    "ensemble_accuracy": _statistic(
      "ensemble accuracy", stats.ensemble_accuracy(predictions, labels, num_classes), None, "fraction",
      "Accuracy of the plurality vote of all runs, ties to the lowest class (Jordan 2023, section 4.2).",
      "All runs voting together have {} right.",
    ),
    "expected_disagreement": _statistic(
      "expected disagreement", stats.expected_disagreement(predictions, num_classes), None, "fraction",
      "Mean over pairs of distinct runs of the fraction of test examples they predict differently (Jiang "
      "2022, section 2).",
      "Two runs predict different classes on {} of the test examples.",
    ),
    "gde_gap": _statistic(
      "disagreement against error", stats.gde_gap(predictions, labels, num_classes), None, "fraction",
      "|mean test error - expected disagreement|, the gap of the generalization-disagreement equality (Jiang "
      "2022, section 3).",
      "Disagreement, which needs no labels, misses the test error by {}.",
    ),
  }  # fmt: skip


def _statistic(
  label: str, value: Any, se: Any, unit: str, definition: str, reading: str,
  undefined: str = UNDEFINED,
) -> Statistic:  # fmt: skip
  value, se = _plain(value), _plain(se)
  reading = undefined if value is None else reading.format(show(value, None, unit))
  return {
    "label": label, "value": value, "se": se, "unit": unit, "definition": definition, "reading": reading,
  }  # fmt: skip


def _plain(value: Any) -> float | None:
  """A number as JSON has it: NaN, infinities and None are None."""
  return None if value is None or not math.isfinite(value) else float(value)


def _ratio(a: float, b: float) -> float:
  return a / b if b else math.nan


def _p(value: Any) -> str:
  return f"= {float(value):.2g}" if value >= 1e-4 else "< 0.0001"


# What the results are of.


def _common_labels(kept: xr.Dataset) -> Integer[np.ndarray, " examples"] | None:
  """The labels that all runs are tested on, None where the runs' label maps differ."""
  if "label_map" not in kept:
    return kept.labels.values
  maps = kept.label_map.values
  return maps[0][kept.labels.values] if (maps == maps[0]).all() else None


def _varied(kept: xr.Dataset) -> list[str]:
  seeds = {name.removeprefix("seed_"): kept[name].values for name in kept if name.startswith("seed_")}
  return [source for source, column in seeds.items() if (column != column[0]).any()]


def _warnings(
  kept: xr.Dataset, diverged: int, numbers: dict[str, Statistic], *, mixed_labels: bool
) -> list[str]:
  """What a reader must know before believing the numbers, a sentence each."""
  runs = kept.sizes["run"]
  variance = numbers["distribution_variance"]
  swept = [name for name in HYPERPARAMETERS if name in kept and np.ptp(kept[name].values) > 0]
  seeds = np.stack([kept[name].values for name in kept if name.startswith("seed_")], axis=1)
  found = []
  if diverged:
    found.append(
      f"{_runs(diverged)} diverged and {'is' if diverged == 1 else 'are'} left out of every statistic."
    )
  if runs == 1:
    found.append("One run says nothing about variance between runs: train more with --runs.")
  elif runs < FEW_RUNS:
    relative = 1 / math.sqrt(2 * (runs - 1))
    found.append(f"With only {runs} runs a standard deviation is known to about ±{100 * relative:.0f} %.")
  if variance["value"] is not None and abs(variance["value"]) <= 2 * variance["se"]:
    found.append("The distribution-wise variance is not different from 0 within 2 standard errors.")
  if mixed_labels:
    found.append(
      "Label maps differ between runs, so votes cannot be pooled and the statistics over predictions are "
      "left out; the spread of accuracy includes differences between the tasks."
    )
  if swept:
    found.append(
      f"The spread between runs includes the effect of {' and '.join(swept)}, varied between them."
    )
  if len(np.unique(seeds, axis=0)) < runs:
    found.append(
      "Some runs share all their seeds: they are not independent, and standard errors are too small."
    )
  return found


def _in_short(numbers: dict[str, Statistic], runs: int) -> str:
  text = {name: show(s["value"], s["se"], s["unit"]) for name, s in numbers.items()}
  variance, se = numbers["distribution_variance"]["value"], numbers["distribution_variance"]["se"]
  if variance is None:
    return f"{_runs(runs)}: test accuracy is {text['mean_accuracy']}; its variance cannot be estimated."
  lead = (
    f"Test accuracy differs between runs by a standard deviation of {text['sd_accuracy']}; errors that are "
    f"independent between examples would give {text['independent_errors_sd']}."
  )
  if variance > 2 * se:
    return f"{lead} On an endless test set {text['distribution_sd']} would remain."
  if variance < -2 * se:
    return f"{lead} Errors spread less than independent ones, by more than chance explains."
  return f"{lead} No difference between runs beyond this test set can be seen."


# Showing them.


def show(value: float | None, se: float | None, unit: str) -> str:
  """A number with its standard error: fractions in percent, variances in squared percentage points (%²).

  The error has two significant digits and the value as many places; a value alone has three digits and, in
  percent, at least two places.

  >>> show(0.97531, 0.00041, "fraction"), show(-1.2e-6, 3.4e-6, "variance"), show(None, None, "fraction")
  ('97.531 ± 0.041 %', '-0.012 ± 0.034 %²', 'n/a')
  """
  if value is None:
    return "n/a"
  scale, sign = {"fraction": (100, " %"), "variance": (1e4, " %²"), "correlation": (1, "")}[unit]
  value, se = scale * value, scale * (se or 0)
  if se:
    places = _places(se, 2)
    return f"{value:.{places}f} ± {se:.{places}f}{sign}"
  return f"{value:.{max(_places(value, 3), 2 if unit == 'fraction' else 0)}f}{sign}"


def _places(value: float, digits: int) -> int:
  """Decimal places that show `value` with so many significant digits, at most 8."""
  return min(8, max(0, digits - 1 - math.floor(math.log10(abs(value))))) if value else digits - 1


def _runs(n: int) -> str:
  return f"{n} run{'s' * (n != 1)}"


def _title(summary: dict[str, Any]) -> str:
  epochs = summary["settings"]["epochs"]
  return f"{summary['recipe']}, {epochs} epoch{'s' * (epochs != 1)}"


def terminal_table(summary: dict[str, Any]) -> Table:
  """The statistics of one campaign, each with its standard error."""
  title = (
    f"{_title(summary)}: {_runs(summary['runs'])}, {summary['examples']} examples of {summary['test_set']}"
  )
  table = Table("statistic", title=escape(title), title_justify="left")
  table.add_column("value ± standard error", justify="right", no_wrap=True)
  for s in summary["statistics"].values():
    table.add_row(s["label"], show(s["value"], s["se"], s["unit"]))
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


def figures(
  errors: Bool[np.ndarray, "runs examples"], summary: dict[str, Any]
) -> dict[str, tuple[str, str, Callable[[Axes], Axes]]]:
  """The figures of a report: name -> title, caption and what draws it on axes. None for a single run."""
  if len(errors) < 2:
    return {}
  n = errors.shape[1]
  numbers = summary["statistics"]
  text = {name: show(s["value"], None, s["unit"]) for name, s in numbers.items()}
  even, odd = (1 - errors[:, start::2].mean(1) for start in (0, 1)) if n > 1 else (None, None)
  found = {
    "accuracy_distribution": (
      "Test accuracy over runs",
      f"Accuracies have a standard deviation of {text['sd_accuracy']} over the {len(errors)} runs. The solid "
      "line is what would be seen if every example kept its error rate but were right or wrong independently "
      f"of the others ({text['independent_errors_sd']}): as far as the bars follow it, runs differ only by "
      f"chance on this test set. The dashed line takes all examples as equally hard ({text['binomial_sd']}).",
      lambda ax: plots.accuracy_histogram(
        1 - stats.error_rates(errors), ax, examples=n,
        independent_sd=numbers["independent_errors_sd"]["value"], binomial_sd=numbers["binomial_sd"]["value"],
      ),
    ),
    "split": (
      "One half of the test examples against the other",
      f"Each point is a run, or several, by its colour. If some runs were better than others, those "
      f"good on the even examples would be good on the odd ones. {numbers['split_correlation']['reading']} "
      f"{numbers['top_quarter_gain']['reading']}",
      lambda ax: plots.split_scatter(even, odd, ax, correlation=numbers["split_correlation"]["value"]),
    ),
    "error_rates": (
      "How often each example is wrong",
      "Examples at the far left are right in nearly every run, those at the far right wrong in nearly every "
      "run. Runs differ on the ones between, and these make up the independent-errors prediction. The count "
      "is on a logarithmic axis.",
      lambda ax: plots.error_rate_histogram(stats.example_error_rates(errors), ax),
    ),
  }  # fmt: skip
  return found if n > 1 else {name: f for name, f in found.items() if name != "split"}


# Files.


def _open(folder: str | os.PathLike, test_set: str) -> tuple[xr.Dataset, dict[str, Any]]:
  results = open_results(folder, test_set)
  # Read from disk once; logits, where kept, are not needed.
  results = results.assign(predictions=results.predictions.load())
  try:
    return results, {"folder": str(folder), **summarize(results, test_set=test_set)}
  except Mistake as mistake:
    raise Mistake(f"{folder}: {mistake}") from None


def _write(results: xr.Dataset, summary: dict[str, Any], folder: Path) -> Path:
  """Writes figures, report.json and report.html, and returns the path of the page."""
  out = folder / "report"
  if summary["test_set"] != summary["settings"]["test_sets"][0]:
    out /= summary["test_set"]
  try:
    out.mkdir(parents=True, exist_ok=True)
    drawn = [
      {"title": title, "caption": caption, "source": _save_figure(draw, out / f"{name}.png")}
      for name, (title, caption, draw) in figures(results_on_disk.errors(results), summary).items()
    ]
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    (out / "report.json").write_text(text + "\n", "utf-8")
    page = out / "report.html"
    page.write_text(html(summary, drawn), "utf-8")
  except OSError as error:
    raise Mistake(
      f"{out} cannot be written ({error.strerror}): make it writable, or copy the results"
    ) from error
  return page


def _save_figure(draw: Callable[[Axes], Axes], path: Path) -> str:
  """Saves a figure as PNG and returns it as a data URI."""
  figure, ax = plots.figure()
  draw(ax)
  figure.savefig(path, dpi=160)
  return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


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
    title=_title(summary), show=show, figures=drawn, **summary | {"runs": _runs(summary["runs"])}
  )
  # No line may break between a number and its unit.
  return page.replace(" %", "\N{NO-BREAK SPACE}%")
