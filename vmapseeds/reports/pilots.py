"""Plan a study from the runs of a pilot."""

import numpy as np
from rich.console import Console

from vmapseeds import stats
from vmapseeds.mistakes import Mistake, door, number
from vmapseeds.reports.comparison_page import matched_rows, read_side
from vmapseeds.reports.groups import Where
from vmapseeds.reports.pages import terminal
from vmapseeds.reports.planning import (
  LEAST_PILOT,
  Need,
  is_pilot,
  needs,
  seconds_of_a_run,
  table_of,
)
from vmapseeds.reports.verdict import POWER, sd_of
from vmapseeds.results.formatting import run_count
from vmapseeds.results.statistics import measure_runs
from vmapseeds.store.files import Folder
from vmapseeds.target import moves_data


@door
@moves_data
def plan(
  a: Folder,
  b: Folder | None = None,
  *,
  detect: float | None = None,
  power: float = POWER,
  where: Where = None,
  against: Where = None,
  test_set: str = "test",
  epoch: int | None = None,
  output: str | None = None,
  console: Console | None = None,
) -> list[Need]:
  """Print and return how many runs it takes for a mean, a difference and a variance, from
  a pilot of some runs: 10 to 30 are enough for the first two.

  Args:
    a: results folder of the pilot.
    b: results folder of a second pilot, whose runs have the same seeds: it says how
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
    console: where to print.

  Raises:
    Mistake: a folder has fewer than three finished runs that differ, x is not above 0,
      the power is not between 0 and 1, or as `compare` for the other arguments.
  """
  power = number("power", power)
  if not 0 < power < 1:
    raise Mistake(f"power is {power}: give a number above 0 and below 1, e.g. 0.8")
  if detect is not None:
    detect = number("detect", detect)
    if not 0 < detect < np.inf:
      raise Mistake(f"detect is {detect}: give a number above 0, in the unit printed")
  side = read_side(a, where, "where", test_set, epoch, output)
  runs = measure_runs(side.opened, side.output, pairs=False)
  if not is_pilot(runs):
    raise Mistake(
      f"{a} has {run_count(runs.runs)} that did not diverge: a plan needs at least "
      f"{LEAST_PILOT} that differ, and better 10 to 30"
    )
  pairs = None
  if b is not None or against:
    other = read_side(b or a, against, "against", test_set, epoch, side.output)
    rows, matching = matched_rows(side, other, None)
    if not matching:
      raise Mistake(
        f"{side.name} and {other.name} have too few seeds in common: give runs of the "
        "same seeds"
      )
    pairs = side.values[rows[0]], other.values[rows[1]]
  wanted = None if detect is None else detect / runs.of.scale
  questions = needs(runs, wanted, power, pairs)
  sd = sd_of(runs.values, runs.of)
  text = f"{run_count(runs.runs)}: the standard deviation of a run is {sd}."
  if pairs:
    low, high = stats.correlation_over_runs(*pairs).interval
    if np.isnan(low):
      raise Mistake(
        f"{side.name} and {other.name} have {len(pairs[0])} pairs of runs: a correlation "
        "needs at least 4 that differ, and better 10 to 30"
      )
    r = np.corrcoef(*pairs)[0, 1]
    text += f" Runs of the same seeds have a correlation of {r:.2f} ({low:.2f} to {high:.2f})."
  else:
    text += """ Paired by seeds, a difference takes fewer runs if their correlation is \
above 0: a second folder with the same seeds measures it."""
  console = console or terminal()
  console.print(text, highlight=False, soft_wrap=True, markup=False)
  console.print(table_of(questions, seconds_of_a_run(a)).for_terminal())
  return questions
