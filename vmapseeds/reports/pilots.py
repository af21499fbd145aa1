"""Plan a study from the runs of a pilot."""

from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import numpy as np

from vmapseeds import stats
from vmapseeds.errors import (
  UserError,
  check_number,
  hide_own_frames,
  hide_own_frames_of_methods,
)
from vmapseeds.reports import pages, runs_needed
from vmapseeds.reports.documents import Document, Section
from vmapseeds.reports.findings import Findings, command_to_repeat
from vmapseeds.reports.groups import Where
from vmapseeds.reports.runs_needed import (
  LEAST_PILOT,
  RunsNeeded,
  count_runs_needed,
  default_difference,
  is_pilot,
  power_of_pilot,
  unit_of,
)
from vmapseeds.reports.sides import Side, designs_of_rows, matched_rows, read_side
from vmapseeds.reports.sources import Source, how_read, read_source, report_folder
from vmapseeds.reports.verdict import POWER, amount, sd_of
from vmapseeds.results.formatting import finite_or_none, run_count, show
from vmapseeds.results.measured_runs import MeasuredRuns, measure_runs
from vmapseeds.results.score_tables import ScoreColumns
from vmapseeds.results.units import describe_units
from vmapseeds.target import moves_data

Pairs = tuple[stats.Design, stats.Design]  # of runs with the same seeds


@hide_own_frames_of_methods
class SampleSizes(Findings):
  """How many runs each question takes: what `vs.sample_size` returns.

  It is the sequence of the questions, each a `RunsNeeded`: `question`, `runs`, `low`, `high`,
  `unit`. `tables["runs"]` has a row for each, with its time in `seconds`. `print`, `save`
  and a notebook show it.
  """

  def __init__(self, questions: Sequence[RunsNeeded], *args, **options):
    super().__init__(*args, **options)
    self._questions = list(questions)

  def __len__(self) -> int:
    return len(self._questions)

  def __iter__(self) -> Iterator[RunsNeeded]:
    return iter(self._questions)

  def __getitem__(self, index: int) -> RunsNeeded:
    return self._questions[index]


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
  if detect is not None:
    detect = _check_detect(detect)
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
  wanted = None
  if detect is not None:
    wanted = detect / runs.of.scale
  questions = count_runs_needed(runs, wanted, power, pairs)
  told = _would_have_told(runs, pairs, wanted)
  seconds = runs_needed.seconds_of_a_run(a)
  folder = report_folder(a)
  if folder is not None:
    folder = pages.nested_folder(folder, *pages.subfolders_of(side.results, test_set))
  folders = [a] if b is None else [a, b]
  return SampleSizes(
    questions,
    document=plan_document(side, runs, questions, (correlation, told), seconds, notes),
    tables={"runs": runs_needed.frame_of(questions, seconds)},
    folder=folder,
    call=command_to_repeat(
      "sample-size", folders, where=where, against=against, epoch=epoch
    ),
  )


def _check_power(power: float) -> float:
  power = check_number("power", power)
  if not 0 < power < 1:
    raise UserError(f"power is {power}: give a number above 0 and below 1, e.g. 0.8")
  return power


def _check_detect(detect: float) -> float:
  detect = check_number("detect", detect)
  if not 0 < detect < np.inf:
    raise UserError(f"detect is {detect}: give a number above 0, in the unit printed")
  return detect


def _pairs_of_runs(side: Side, other: Side) -> Pairs:
  rows, matching = matched_rows(side, other, None)
  # All against all says nothing of how alike runs of one seed are.
  if not matching:
    raise UserError(
      f"{side.name} and {other.name} have too few seeds in common: give runs of the "
      "same seeds"
    )
  a, b = designs_of_rows(side, other, rows, matching)
  return a, b


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
  runs: MeasuredRuns, pairs: Pairs | None, wanted: float | None
) -> str:
  """Return how often as many runs as there are would show the difference."""
  assert runs.design is not None
  x = wanted or default_difference(runs)
  shares = power_of_pilot(runs.design, pairs, x)
  parts = []
  for what, share in shares.items():
    parts.append(f"with {what} in {100 * share:.0f} %")
  if not parts:
    return ""
  return (
    f"A true difference of {amount(x, runs.of)} would be shown {' and '.join(parts)} of "
    "cases."
  )


def plan_document(
  side: Side,
  runs: MeasuredRuns,
  questions: Sequence[RunsNeeded],
  said: tuple[str, str],
  seconds: float | None,
  notes: Sequence[str] = (),
) -> Document:
  """Return how many runs each question takes. `said` are a sentence on the correlation of
  pairs and one on what the pilot would have shown; `seconds` is how long a run took.
  Empty notes are left out.
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
  section = Section(lead=lead, tables=[runs_needed.table_of_needs(questions, seconds)])
  return Document(
    name="sample_size",
    title=f"How many runs? {side.name}",
    under=f"{runs.of.name} of {count}",
    brief=[section],
    notes=[*how_read([side.opened]), *filter(None, notes)],
    sections=[section],
    record=[_record_of_need(need, seconds) for need in questions],
  )


def _record_of_need(need: RunsNeeded, seconds: float | None) -> dict[str, Any]:
  # Infinite numbers of runs are not in JSON.
  return {
    "question": need.question,
    "runs": finite_or_none(need.runs),
    "low": finite_or_none(need.low),
    "high": finite_or_none(need.high),
    "unit": need.unit,
    "seconds": finite_or_none(need.seconds(seconds)),
  }
