"""How long a report takes, and how long α-trimming takes, the slowest statistic that is
not part of it.

    python -m experiments.benchmarks.reports
    python -m experiments.benchmarks.reports --sizes     # one size after another

Predictions are random; most examples are right in nearly all runs. Gaps are normal; the
candidates' are shifted a little. Everything runs in one process; times include
compilation. Peak memory is the most that the process held so far. With --sizes each report
has a process of its own, which writes the whole page; a table has its processor seconds
and peak memory, and how both grow: the exponent of the least-squares line through
logarithms.
"""

import dataclasses
import io
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from rich.console import Console
from rich.table import Table

import vmapseeds as vs
from experiments import measures
from experiments.benchmarks.common import Count, check_counts
from vmapseeds.cli import one_line_errors
from vmapseeds.flags import parse_flags
from vmapseeds.reports import plots, summaries
from vmapseeds.reports.results_page import figures_of_output
from vmapseeds.results.measured_runs import MeasuredRuns

CLASSES = 10
# Runs, examples and classes of the reports. Of each of the first three series one number
# grows; the last is large in all.
SERIES = {
  "examples": [(4, 10**3, 10), (4, 5000, 10), (4, 2 * 10**4, 10), (4, 5 * 10**4, 10)],
  "classes": [(10, 5000, 10), (10, 5000, 100), (10, 5000, 1000), (10, 5000, 22_000)],
  "runs": [(4, 1000, 10), (100, 1000, 10), (1000, 1000, 10), (10**4, 1000, 10)],
  "all": [(100, 5 * 10**4, 1000)],
}
AXES = {"runs": 0, "examples": 1, "classes": 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """Sizes of the report and of the trimming."""

  runs: Count = 10_000
  """runs of the report"""

  examples: Count = 10_000
  """test examples of the report"""

  candidates: Count = 100
  """candidates to trim, and models of the reference"""

  replicates: Count = 500
  """bootstrap draws of a trimming level"""

  gaps: Count = 8000
  """test examples of the gaps"""

  sizes: bool = False
  """whole reports of growing sizes instead"""


def some_votes(runs: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
  """Return predictions and labels: most examples right in nearly all runs, wrong ones
  nearly always as the same class.
  """
  rng = np.random.default_rng(0)
  labels = rng.integers(0, CLASSES, examples)
  rates = rng.beta(0.12, 1.6, examples)
  wrong = rng.random((runs, examples), np.float32) < rates
  confused = (labels + rng.integers(1, CLASSES, examples)) % CLASSES
  return np.where(wrong, confused, labels).astype(np.int8), labels.astype(np.int32)


def results(runs: int, examples: int) -> xr.Dataset:
  """Random results, in memory, as `vs.open_results` gives them."""
  predictions, labels = some_votes(runs, examples)
  return xr.Dataset(
    {
      "predictions": (("run", "example"), predictions),
      "labels": ("example", labels),
      "diverged": ("run", np.zeros(runs, bool)),
      "seed_init": ("run", np.arange(runs)),
    },
    attrs={
      "recipe": vs.recipe("digits_cnn").to_json(),
      "num_classes": CLASSES,
      "versions": {},
      "device_kind": None,
      "lane_width": None,
      "lowering": None,
    },
  )


def report_of(runs: int, examples: int, classes: int) -> tuple[float, float]:
  """Return processor seconds of a report of made-up runs, and the peak memory in MiB:
  nine tenths of the wrong predictions are among ten classes.
  """
  rng = np.random.default_rng(0)
  labels = rng.integers(0, classes, examples)
  rates = rng.beta(0.5, 1.5, examples)
  predictions = np.empty((runs, examples), np.int16)
  for run in range(runs):
    near = labels + rng.integers(1, 11, examples)
    anywhere = rng.integers(0, classes, examples)
    wrong = np.where(rng.random(examples) < 0.9, near % classes, anywhere)
    predictions[run] = np.where(rng.random(examples) < rates, wrong, labels)
  with tempfile.TemporaryDirectory() as folder:
    vs.import_runs(
      f"{folder}/r",
      predictions=predictions,
      labels=labels,
      num_classes=classes,
      progress=False,
    )
    del predictions
    start = time.process_time()
    report = vs.report(f"{folder}/r")
    report.save()
    report.print(Console(file=io.StringIO()))
    seconds = time.process_time() - start
  return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def growth(sizes: Sequence[float], values: Sequence[float]) -> float:
  """Return the exponent with which values grow."""
  return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def print_sizes() -> None:
  """Print processor seconds and memory of reports, and how they grow."""
  table = Table("runs", "examples", "classes", "CPU seconds", "peak memory, MiB")
  process = multiprocessing.get_context("spawn")
  for name, sizes in SERIES.items():
    measured = []
    for size in sizes:
      with process.Pool(1) as pool:
        measured.append(pool.apply(report_of, size))
      print(*size, *(f"{number:.1f}" for number in measured[-1]), flush=True)
      seconds, memory = measured[-1]
      table.add_row(*(f"{n:,}" for n in size), f"{seconds:.1f}", f"{memory:,.0f}")
    if name in AXES:
      grown = [size[AXES[name]] for size in sizes]
      exponents = (growth(grown, costs) for costs in zip(*measured, strict=True))
      table.add_row(f"exponent in {name}", "", "", *(f"{e:.2f}" for e in exponents))
    table.add_section()
  Console().print(table)


def draw_all(runs: MeasuredRuns, numbers: dict) -> None:
  for figure in figures_of_output(runs, numbers).values():
    figure.draw(plots.figure()[1])


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    flags = parse_flags(Flags, argv, prog="python -m experiments.benchmarks.reports")
    check_counts(flags, least=2)
    if flags.sizes:
      return print_sizes()
    table = Table("what", "seconds", "peak memory, MiB")

    def timed(what, call):
      start = time.perf_counter()
      result = call()
      seconds = time.perf_counter() - start
      peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
      table.add_row(what, f"{seconds:.1f}", f"{peak:,}")
      return result

    size = f"{flags.runs} runs x {flags.examples} examples"
    made_up = timed(
      f"predictions of {size} made up", lambda: results(flags.runs, flags.examples)
    )
    measured = timed(
      "tallies, pairs of examples too", lambda: summaries.measure_outputs(made_up)
    )
    numbers = timed(
      "every statistic of the report, bootstraps too",
      lambda: summaries.summarize(made_up, measured=measured),
    )
    timed("its figures", lambda: draw_all(measured[0], numbers))
    rng = np.random.default_rng(0)
    reference, candidates = rng.normal(size=(2, flags.candidates, flags.gaps))
    candidates += rng.normal(0, 0.1, (flags.candidates, 1))
    timed(
      f"trimming_level, {flags.candidates} candidates x {flags.replicates} draws x {flags.gaps} examples",
      lambda: measures.trimming_level(
        reference,
        candidates,
        key=jax.random.key(0),
        replicates=flags.replicates,
      ),
    )
    Console().print(table)


if __name__ == "__main__":
  main()
