"""How many runs a question takes, from the runs of a pilot."""

import contextlib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from scipy.special import ndtri

from vmapseeds import stats
from vmapseeds.errors import (
  UserError,
  check_number,
  hide_own_frames,
  hide_own_frames_of_methods,
)
from vmapseeds.reports import pages
from vmapseeds.reports.documents import Document, Section, Table
from vmapseeds.reports.findings import (
  FindingsOfMany,
  check_above_0,
  command_to_repeat,
)
from vmapseeds.reports.groups import Where
from vmapseeds.reports.sides import (
  Side,
  averaged_over,
  match,
  read_side,
  tasks_of,
)
from vmapseeds.reports.sources import Source, how_read, read_source, report_folder
from vmapseeds.reports.verdict import POWER, amount, round_difference, sd_of
from vmapseeds.results.formatting import Quantity, run_count, show
from vmapseeds.results.measured_runs import PRECISION, MeasuredRuns, measure_runs
from vmapseeds.results.measurements import measure_sd_of_values
from vmapseeds.results.score_tables import ScoreColumns
from vmapseeds.results.units import describe_units, plural
from vmapseeds.stats.designs import difference_of_pairs
from vmapseeds.stats.sample_sizes import runs_needed
from vmapseeds.store.files import Folder
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data

LEAST_PILOT = 3  # runs; with fewer there is no interval
UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))
CAPTION = """Intervals: 95 %, from what these runs know of the standard deviation. Power \
and intervals of means are those of normal runs."""
Pairs = tuple[stats.Design, stats.Design]  # of runs with the same seeds
Sds = tuple[float, Any]  # a standard deviation, and the ends of its interval


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


@hide_own_frames_of_methods
class SampleSizes(FindingsOfMany[RunsNeeded]):
  """How many runs each question takes: what `vs.sample_size` returns.

  It is the sequence of the questions, each a `RunsNeeded`: `question`, `runs`, `low`, `high`,
  `unit`. `tables["runs"]` has a row for each, with its time in `seconds`. `print`, `save`
  and a notebook show it.
  """


@hide_own_frames
@moves_data
def sample_size(
  a: Source,
  b: Source | None = None,
  *,
  detect: float | None = None,
  power: float = POWER,
  where: Where = None,
  against: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
  output: str | None = None,
  **columns: Unpack[ScoreColumns],
) -> SampleSizes:
  """Return how many runs it takes for a mean, a difference and a variance, from a pilot
  of some runs: 10 to 30 are enough for the first two. Nothing is printed or written.

  ::

    vs.sample_size("results/pilot", detect=0.5).print()

  Args:
    a: results folder of the pilot; or a table of scores, a row for each run: a frame of
      pandas or polars, or a file. Of several models name one in `where`.
    b: results folder or table of a second pilot, whose runs have the same seeds: it says how
      alike runs of the same seed are, and so how many pairs a difference takes.
    detect: x in the unit that is printed, percentage points of accuracy: the mean is
      wanted to ± x, and a true difference of x between two recipes is to be shown. By
      default about half of a run's standard deviation.
    power: how often such a difference is to be shown.
    where: column -> value or values. Takes only the runs of A that have them.
    against: likewise for B.
    test_set: which test set.
    epoch: after which epoch, for runs trained with `evaluate_every`; None for the end.
    output: which output of role class, loss or score; by default the first of A.
    **columns: what the columns of a table are: see `ScoreColumns`.

  Returns:
    a `SampleSizes`: `tables` and `notes`; `print` and `save` it. It is also the sequence
    of a `RunsNeeded` for each question: `question`, `runs`, `low`, `high`, `unit`.

  Raises:
    UserError: a folder has fewer than three finished runs that differ, x is not above 0,
      the power is not between 0 and 1, or as `compare` for the other arguments.
  """
  # All that can be said without reading results comes first.
  power = _check_power(power)
  detect = check_above_0("detect", detect)
  needed = tuple({**(where or {}), **(against or {})})
  a = read_source(a, None, None, needed, columns)
  if b is not None:
    b = read_source(b, None, None, needed, columns)
  side = read_side(a, where, "where", test_set, epoch, output)
  # Joint errors grow with the square of the examples, and no sample size asks for them.
  runs = measure_runs(side.opened, side.output, pairs=False)
  # Without a spread between runs every question would take one run.
  if not is_pilot(runs):
    those = "that did not diverge"
    if runs.undefined:
      those = f"of which {runs.output} is defined"
    raise UserError(
      f"{a} has {run_count(runs.runs)} {those}: a plan needs at least "
      f"{LEAST_PILOT} that differ, and better 10 to 30"
    )
  pairs = None
  correlation = ""
  notes = [side.undefined]
  if b is not None or against:
    other = read_side(
      a if b is None else b, against, "against", test_set, epoch, side.output
    )
    notes.append(other.undefined and f"{other.name}: {other.undefined}")
    pairs = _pairs_of_runs(side, other)
    correlation = _describe_correlation(side, other, pairs)

  # The user gives it as it is printed, such as in percentage points.
  wanted = detect and detect / runs.of.scale
  questions = count_runs_needed(runs, wanted, power, pairs)
  assert runs.design is not None
  difference = wanted or default_difference(runs)
  told = _would_have_told(runs.design, pairs, difference, runs.of)
  needs = frame_of(questions, seconds_of_a_run(a))
  folder = report_folder(a)
  if folder is not None:
    folder = pages.nested_folder(folder, *pages.subfolders_of(side.results, test_set))
  folders = [a] if b is None else [a, b]
  return SampleSizes(
    questions,
    plan_document(side, runs, needs, (correlation, told), notes),
    {"runs": needs},
    folder,
    command_to_repeat(
      "sample-size",
      folders,
      where=where,
      against=against,
      test_set=test_set,
      epoch=epoch,
      detect=detect,
      power=None if power == POWER else power,
      output=output,
    ),
  )


def _check_power(power: float) -> float:
  power = check_number("power", power)
  if not 0 < power < 1:
    raise UserError(f"power is {power}: give a number above 0 and below 1, e.g. 0.8")
  return power


def _pairs_of_runs(side: Side, other: Side) -> Pairs:
  side, other = _means_over_tasks(side), _means_over_tasks(other)
  _, pairs, matching = match(side, other, None)
  # All against all says nothing of how alike runs of one seed are.
  if not matching:
    raise UserError(
      f"{side.name} and {other.name} have too few seeds in common: give runs of the "
      "same seeds"
    )
  return pairs


def _means_over_tasks(side: Side) -> Side:
  """Return a side whose runs are the means of seeds over tasks, if it has several."""
  task = tasks_of(side.results)
  if task is None:
    return side
  return side._replace(results=averaged_over(side.results, side.output, [task]))


def _describe_correlation(side: Side, other: Side, pairs: Pairs) -> str:
  values = [design.values.ravel() for design in pairs]
  low, high = stats.correlation_over_runs(*values).interval
  # Of three pairs Fisher's z has no standard error.
  if np.isnan(low):
    raise UserError(
      f"{side.name} and {other.name} have {values[0].size} pairs of runs: a correlation "
      "needs at least 4 that differ, and better 10 to 30"
    )
  r = np.corrcoef(values)[0, 1]
  known = ""
  # Units that share seeds or examples tell it without an interval.
  if pairs[0].exchangeable:
    known = f" ({low:.2f} to {high:.2f})"
  return f"Runs of the same seeds have a correlation of {r:.2f}{known}."


def _would_have_told(
  design: stats.Design, pairs: Pairs | None, difference: float, of: Quantity
) -> str:
  """Return how often as many units as there are would show a difference: of runs of each,
  and of pairs where there are any.
  """
  if design.crossed:
    return ""
  power_of = functools.partial(
    stats.power_for_difference,
    difference=difference,
    test_to_train=design.test_to_train,
  )
  count = design.values.size
  sd, _ = _sds_of_either(design, pairs, np.inf)
  shares = {
    f"{count} {plural(unit_of(design))} of each": power_of(count, sd, paired=False)
  }
  if pairs:
    count = pairs[0].values.size
    sd, _ = _sds(difference_of_pairs(*pairs), np.inf)
    shares[f"{count} pairs"] = power_of(count, sd)
  parts = [f"with {what} in {100 * share:.0f} %" for what, share in shares.items()]
  return (
    f"A true difference of {amount(difference, of)} would be shown {' and '.join(parts)} of "
    "cases."
  )


def plan_document(
  side: Side,
  runs: MeasuredRuns,
  needs: pd.DataFrame,
  said: tuple[str, str],
  notes: Sequence[str],
) -> Document:
  """Return how many runs each question takes, of `frame_of`. `said` are a sentence on the
  correlation of pairs and one on what the pilot would have shown. Empty notes are left out.
  """
  design = runs.design
  assert design is not None
  correlation, told = said
  if not correlation:
    correlation = """Paired by seeds, a difference takes fewer runs if their correlation \
is above 0: a second folder with the same seeds measures it."""
  count = run_count(runs.runs)
  sd = sd_of(design.values.ravel(), runs.of)
  if design.crossed:
    sd = show(design.sd_of_run(), None, runs.of.unit)
  sentences = [
    f"{count}: the standard deviation of a {unit_of(design)} is {sd}.",
    describe_units(design),
    correlation,
    told,
  ]
  lead = " ".join(sentence for sentence in sentences if sentence)
  section = Section(lead=lead, tables=[table_of_needs(needs)])
  return Document(
    name="sample_size",
    title=f"How many runs? {side.name}",
    under=f"{runs.of.name} of {count}",
    brief=[section],
    notes=[*how_read([side.opened]), *filter(None, notes)],
    sections=[section],
    record=_records(needs),
  )


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
  """Return the rows of a frame of questions, ready for JSON, which has no infinite numbers."""
  numbers = frame[["runs", "low", "high", "seconds"]].astype(float)
  finite = numbers.astype(object).where(np.isfinite(numbers), None)
  return finite.assign(unit=frame.unit).reset_index().to_dict("records")


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
  pairs: Pairs | None = None,
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
  units = plural(unit_of(design))
  size = 1.0 if design.crossed else design.scores / design.values.size
  x = wanted or default_difference(runs)
  difference = amount(x, runs.of)
  often = f"shown in {100 * power:.3g} % of cases"

  def ask(
    question: str, unit: str, sds: Sds, function: Callable[..., Any], **asked: Any
  ) -> RunsNeeded:
    # Of the standard deviation, and of the ends of its interval.
    sd, ends = sds
    known = function(np.r_[sd, ends], test_to_train=design.test_to_train, **asked)
    point, low, high = map(float, known)
    return RunsNeeded(question, point, low, high, unit, size)

  questions = [
    ask(
      f"the mean to ± {difference}",
      units,
      _sds(design, runs.largest),
      stats.runs_for_mean,
      reach=x,
    ),
    ask(
      f"a difference of {difference} to another recipe, {often}",
      f"{units} of each",
      _sds_of_either(design, pairs, runs.largest),
      stats.runs_for_difference,
      difference=x,
      paired=False,
      power=power,
    ),
  ]
  if pairs:
    question = ask(
      f"the same, paired by seeds, {often}",
      "pairs",
      # Seeds that runs share cancel in their differences.
      _sds(difference_of_pairs(*pairs), np.inf),
      stats.runs_for_difference,
      difference=x,
      power=power,
    )
    questions.append(question)
  # Examples that runs were trained on say nothing of the variance on new ones, and runs
  # that share seeds nothing of how well it is known.
  if not runs.seen and runs.share_nothing:
    questions.append(_for_variance(runs))
  return questions


def _sds(design: stats.Design, largest: float) -> Sds:
  """Return the standard deviation of a unit, or of a run of which all crossed sources are
  drawn anew, and the ends of its interval where that is known.
  """
  if not design.exchangeable:
    return design.sd_of_run(), np.full(2, np.nan)
  sd, _, ends, *_ = measure_sd_of_values(design.values, largest)
  return float(sd), np.asarray(ends, float)


def _sds_of_either(
  design: stats.Design,
  pairs: Pairs | None,
  largest: float,
) -> Sds:
  """Return the standard deviation of a unit of either recipe: of two that are known the
  root of their mean variance, which is what both add to a difference.
  """
  sd, ends = _sds(design, largest)
  if not pairs:
    return sd, ends
  other_sd, other_ends = _sds(pairs[1], largest)
  mean_ends = np.sqrt((ends**2 + other_ends**2) / 2)
  return math.sqrt((sd**2 + other_sd**2) / 2), mean_ends


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


def table_of_needs(needs: pd.DataFrame) -> Table:
  """Return what each question takes, and for how long it trains where the pilot did."""
  rows = []
  for question, need in needs.to_dict("index").items():
    count = _count(need["runs"])
    # The column is about runs already.
    if need["unit"] != "runs":
      count += f" {need['unit'].removeprefix('runs ')}"
    ends = f"{_count(need['low'])} to {_count(need['high'])}"
    if np.isnan(need["low"]) and np.isnan(need["high"]):
      ends = "n/a"
    rows.append((question, count, ends, show_time(need["seconds"])))
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
