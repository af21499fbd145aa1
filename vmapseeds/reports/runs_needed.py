"""How many runs a question takes, from the runs of a pilot."""

import contextlib
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.reports.documents import Table
from vmapseeds.reports.verdict import POWER, amount, round_difference
from vmapseeds.results.measured_runs import PRECISION, MeasuredRuns
from vmapseeds.results.measurements import measure_sd_of_values
from vmapseeds.results.units import plural
from vmapseeds.stats.designs import difference_of_pairs
from vmapseeds.stats.sample_sizes import runs_needed
from vmapseeds.store.files import Folder
from vmapseeds.store.results import Results

LEAST_PILOT = 3  # runs; with fewer there is no interval
UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
CAPTION = """Intervals: 95 %, from what these runs know of the standard deviation. Power \
and intervals of means are those of normal runs."""


class RunsNeeded(NamedTuple):
  """How many runs a question takes.

  Attributes:
    question: what is asked.
    runs: how many runs, or runs of each, or pairs; infinite or NaN where no number can
      be named.
    low, high: the ends of its 95 % interval; NaN where they are not known.
    unit: "runs", "runs of each" or "pairs"; of seeds, where runs share these, "seeds" and
      "seeds of each".
    runs_of_unit: how many runs are trained for each.
  """

  question: str
  runs: float
  low: float
  high: float
  unit: str = "runs"
  runs_of_unit: float = 1.0

  def seconds(self, of_a_run: float | None) -> float | None:
    """Return how long all of them take, from the seconds of a run."""
    if of_a_run is None:
      return None
    seconds = self.runs * self.runs_of_unit * of_a_run
    # Pairs, and runs of each, are of two recipes.
    if self.unit == "pairs" or self.unit.endswith(" of each"):
      seconds *= 2
    return seconds


def is_pilot(runs: MeasuredRuns) -> bool:
  """Return whether the runs say how many more a question takes."""
  if runs.design is None:
    return False
  values = runs.design.values
  return values.size >= LEAST_PILOT and np.ptp(values) > 0


def unit_of(design: stats.Design) -> str:
  """Return what is counted: "run", or such as "seed" where runs share seeds."""
  # Of crossed runs the plan is of runs in which all sources vary.
  if design.independent_runs or design.crossed:
    return "run"
  return design.drawn[0]


def default_difference(runs: MeasuredRuns) -> float:
  """Return about half of the standard deviation of a unit."""
  assert runs.design is not None
  sd, _ = _sds(runs.design, runs.largest)
  # One digit: the pilot knows its standard deviation no better.
  return round_difference(sd / 2, runs.of)


def count_runs_needed(
  runs: MeasuredRuns,
  wanted: float | None = None,
  power: float = POWER,
  pairs: tuple[stats.Design, stats.Design] | None = None,
) -> list[RunsNeeded]:
  """Return how many runs each question takes, for a difference that is wanted.

  Args:
    runs: a pilot.
    wanted: in the unit of the values; by default about half of a standard deviation.
    power: how often the difference is shown.
    pairs: of runs with the same seeds, of the pilot and of another.
  """
  design = runs.design
  assert design is not None  # as `is_pilot` says
  sd, ends = _sds(design, runs.largest)
  units = plural(unit_of(design))
  overlap = design.test_to_train
  size = 1.0 if design.crossed else design.scores / design.values.size
  x = wanted or default_difference(runs)
  difference = amount(x, runs.of)
  often = f"shown in {100 * power:.3g} % of cases"
  questions = [
    RunsNeeded(
      f"the mean to ± {difference}",
      *_three(stats.runs_for_mean, sd, ends, x, overlap),
      units,
      size,
    ),
    RunsNeeded(
      f"a difference of {difference} to another recipe, {often}",
      *_three(
        functools.partial(stats.runs_for_difference, test_to_train=overlap),
        *_sds_of_either(design, pairs, runs.largest),
        x,
        False,
        power,
      ),
      f"{units} of each",
      size,
    ),
  ]
  if pairs:
    # Seeds that runs share cancel in their differences.
    of_pairs = _sds(difference_of_pairs(*pairs), np.inf)
    questions.append(
      RunsNeeded(
        f"the same, paired by seeds, {often}",
        *_three(
          functools.partial(stats.runs_for_difference, test_to_train=overlap),
          *of_pairs,
          x,
          True,
          power,
        ),
        "pairs",
        size,
      )
    )
  # Examples that runs were trained on say nothing of the variance on new ones, and runs
  # that share seeds nothing of how well it is known.
  if not runs.seen and runs.share_nothing:
    questions.append(_for_variance(runs))
  return questions


def power_of_pilot(
  design: stats.Design,
  pairs: tuple[stats.Design, stats.Design] | None,
  difference: float,
) -> dict[str, float]:
  """Return how often as many units as there are would show a difference: of runs of each,
  and of pairs where there are any.
  """
  if design.crossed:
    return {}
  sd, _ = _sds_of_either(design, pairs, np.inf)
  overlap = design.test_to_train
  count = design.values.size
  found = {
    f"{count} {plural(unit_of(design))} of each": float(
      stats.power_for_difference(count, sd, difference, False, test_to_train=overlap)
    )
  }
  if pairs:
    of_pairs, _ = _sds(difference_of_pairs(*pairs), np.inf)
    count = pairs[0].values.size
    found[f"{count} pairs"] = float(
      stats.power_for_difference(count, of_pairs, difference, test_to_train=overlap)
    )
  return found


def _sds(design: stats.Design, largest: float) -> tuple[float, Any]:
  """Return the standard deviation of a unit, or of a run of which all crossed sources are
  drawn anew, and the ends of its interval where that is known.
  """
  if not design.exchangeable:
    return design.sd_of_run(), np.full(2, np.nan)
  sd, _, ends, *_ = measure_sd_of_values(design.values, largest)
  return float(sd), np.asarray(ends, float)


def _sds_of_either(
  design: stats.Design,
  pairs: tuple[stats.Design, stats.Design] | None,
  largest: float,
) -> tuple[float, Any]:
  """Return the standard deviation of a unit of either recipe: of two that are known the
  root of their mean variance, which is what both add to a difference.
  """
  sd, ends = _sds(design, largest)
  if not pairs:
    return sd, ends
  other_sd, other_ends = _sds(pairs[1], largest)
  mean_ends = np.sqrt((ends**2 + other_ends**2) / 2)
  return math.sqrt((sd**2 + other_sd**2) / 2), mean_ends


def _three(function, sd, ends, *arguments) -> tuple[float, float, float]:
  """Return how many runs a standard deviation takes, and those of its interval's ends."""
  point, low, high = function(np.r_[sd, ends], *arguments)
  return float(point), float(low), float(high)


def _for_variance(runs: MeasuredRuns) -> RunsNeeded:
  """Return the runs for the variance between runs on the distribution, or of a score, to
  ± 10 %.
  """
  total = runs.values.var(ddof=1)
  if runs.variances is None:
    sd, sd_se, *_ = measure_sd_of_values(runs.values, runs.largest)
    point = float(runs_needed(total, 2 * sd * sd_se, runs.runs, PRECISION))
    # It follows from the kurtosis alone, of which few runs know no interval.
    return RunsNeeded("the variance between runs to ± 10 %", point, np.nan, np.nan)
  estimate = runs.variances.distribution
  variance, se, ends = estimate.value, estimate.se, estimate.interval
  question = "the variance on the distribution to ± 10 %"
  point = float(runs_needed(variance, se, runs.runs, PRECISION))
  # Of few runs the jackknife is uncertain, and normal runs are the least to expect.
  relative = max(2.0, (runs.runs - 1) * (se / total) ** 2)
  independent = max(0.0, total - variance)

  def runs_at(variance: float) -> float:
    # Also where the end is NaN.
    if not variance > 0:
      return np.inf
    shared = (variance + independent) / variance
    reach = ndtri(0.975) * shared / PRECISION
    return float(np.ceil(1 + relative * reach**2))

  # The smaller the variance, the more runs it takes to know it to 10 %.
  low = runs_at(float(ends[1]))
  high = runs_at(float(ends[0]))
  # The law of normal runs and the jackknife differ: the interval holds the point.
  return RunsNeeded(question, point, min(low, point), max(high, point))


def record_of_a_block(folder: Folder) -> tuple[Mapping[str, Any], int]:
  """Return the record of the first block that is finished, which says when and how it was
  trained, and its number of runs; nothing if it cannot be read.
  """
  # What is damaged is said by `verify`.
  with contextlib.suppress(UserError):
    results = Results(folder)
    block = min(results.finished_blocks(), default=0)
    return results.record(block) or {}, len(results.blocks[block])
  return {}, 0


def seconds_of_a_run(folder: Folder) -> float | None:
  """Return how long a run took in the first block that is finished, without compiling;
  None if that was not recorded, as of imported runs.
  """
  record, runs = record_of_a_block(folder)
  if "seconds" not in record or not runs:
    return None
  seconds = record["seconds"] - record.get("compile_seconds", 0)
  # The two were measured by different clocks.
  return max(0.0, seconds) / runs


def frame_of(questions: Sequence[RunsNeeded], seconds: float | None) -> pd.DataFrame:
  """Return a row for each question: runs, the ends of the interval, their unit, and how
  many seconds they take if a run takes `seconds`.
  """
  rows = [need._asdict() | {"seconds": need.seconds(seconds)} for need in questions]
  return pd.DataFrame(rows).set_index("question")


def table_of_needs(questions: Sequence[RunsNeeded], seconds: float | None) -> Table:
  """Return what each question takes, and for how long it trains where the pilot did."""
  rows = []
  for need in questions:
    count = _count(need.runs)
    # The column is about runs already.
    if need.unit != "runs":
      count += f" {need.unit.removeprefix('runs ')}"
    ends = f"{_count(need.low)} to {_count(need.high)}"
    if np.isnan(need.low) and np.isnan(need.high):
      ends = "n/a"
    time = show_time(need.seconds(seconds))
    rows.append((need.question, count, ends, time))
  return Table(CAPTION, ("for", "runs", "95 % interval", "time as here"), rows)


def _count(runs: float) -> str:
  if np.isnan(runs):
    return "n/a"
  if np.isinf(runs):
    return "∞"
  return f"{runs:,.0f}"


def show_time(seconds: float | None) -> str:
  """Return a duration.

  >>> show_time(12.3), show_time(5000), show_time(None)
  ('12 s', '1.4 h', 'n/a')
  """
  if seconds is None or not np.isfinite(seconds):
    return "n/a"
  units = [(size, unit) for size, unit in UNITS if seconds >= size]
  # What takes less than a second is in seconds, too.
  size, unit = units[0] if units else UNITS[-1]
  value = seconds / size
  digits = 1 if value < 10 else 0
  return f"{value:.{digits}f} {unit}"
