"""How long a report takes, and how long α-trimming takes, the slowest statistic that is
not part of it.

    python -m experiments.benchmarks.reports

Predictions are random; most examples are right in nearly all runs. Gaps are normal; the
candidates' are shifted a little. Everything runs in one process; times include
compilation. Peak memory is the most that the process held so far.
"""

import dataclasses
import resource
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
from vmapseeds.cli import mistakes, parse
from vmapseeds.reports import plots, summary
from vmapseeds.reports.results_page import figures
from vmapseeds.results.statistics import MeasuredRuns

CLASSES = 10


@dataclasses.dataclass(frozen=True)
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


def draw_all(runs: MeasuredRuns, numbers: dict) -> None:
  for figure in figures(runs, numbers).values():
    figure.draw(plots.figure()[1])


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    flags = parse(Flags, argv)
    check_counts(flags, least=2)
    table = Table("what", "seconds", "peak memory, MiB")

    def timed(what, call):
      start = time.perf_counter()
      result = call()
      seconds = time.perf_counter() - start
      peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
      table.add_row(what, f"{seconds:.1f}", f"{peak:,}")
      return result

    size = f"{flags.runs} runs x {flags.examples} examples"
    of = timed(
      f"predictions of {size} made up", lambda: results(flags.runs, flags.examples)
    )
    measured = timed(
      "tallies, pairs of examples too", lambda: summary.measure_outputs(of)
    )
    numbers = timed(
      "every statistic of the report, bootstraps too",
      lambda: summary.summarize(of, measured=measured),
    )
    timed("its figures", lambda: draw_all(measured[0], numbers))
    rng = np.random.default_rng(0)
    reference, candidates = rng.normal(size=(2, flags.candidates, flags.gaps))
    candidates += rng.normal(0, 0.1, (flags.candidates, 1))
    timed(
      f"trimming_level, {flags.candidates} candidates x {flags.replicates} draws x {flags.gaps} examples",
      lambda: measures.trimming_level(
        reference, candidates, key=jax.random.key(0), replicates=flags.replicates
      ),
    )
    Console().print(table)


if __name__ == "__main__":
  main()
