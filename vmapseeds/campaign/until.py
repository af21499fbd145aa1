"""Train more runs until the interval of a statistic is narrow enough."""

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Mapping
from typing import Any

import xarray as xr

from vmapseeds.campaign import running
from vmapseeds.errors import UserError, check_one_of, say
from vmapseeds.results.formatting import show, show_interval
from vmapseeds.results.measured_runs import measure_runs, roles
from vmapseeds.results.statistics import (
  STATISTICS,
  describe_statistic,
  statistics_defined_for,
)
from vmapseeds.training.recipe_or_task import declared_roles
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs
from vmapseeds.training.task import Task

# Role -> names of the statistics whose interval is over runs, so that more runs narrow
# it.
NARROWED = {
  role: [row.name for row in rows if row.over == "runs"]
  for role, rows in STATISTICS.items()
}
NO_ROLE = "none is a class, loss or score"
# The most that a stage multiplies the runs by: a first estimate from few runs may be
# far off.
GROWTH = 4
MARGIN = 1.05  # runs beyond those that are needed by the estimate so far


@dataclasses.dataclass(frozen=True)
class Until:
  """How narrow a statistic's 95 % interval is to be: half its width at most `reach`,
  times the value if `relative`.

  >>> Until.parse("distribution_variance rel 10%")
  Until(statistic='distribution_variance', relative=True, reach=0.1, output=None)
  >>> Until.parse("mean_accuracy abs 0.02%").reach, Until.parse("returns:iqm abs 2").output
  (0.0002, 'returns')
  """

  statistic: str
  relative: bool
  reach: float
  output: str | None = None  # the first that has the statistic

  @classmethod
  def parse(cls, text: str) -> "Until":
    """Read "STATISTIC rel X%" or "OUTPUT:STATISTIC abs X"; % divides by 100.

    Raises:
      UserError: the text is anything else.
    """
    match = re.fullmatch(
      r"(?:([^\s:]+):)?(\w+) +(rel|abs) +([0-9.eE+-]+) *(%?)", text.strip()
    )
    if not match:
      raise UserError(
        f"--until {text!r}: write STATISTIC rel X% or STATISTIC abs X, such as "
        "'distribution_variance rel 10%'"
      )
    output, name, kind, number, percent = match.groups()
    check_one_of("statistic", name, dict.fromkeys(itertools.chain(*NARROWED.values())))
    try:
      reach = float(number)
    except ValueError:
      reach = math.nan
    if percent:
      reach /= 100
    if not 0 < reach < math.inf:
      raise UserError(f"--until {text!r}: {number!r} is no number above 0")
    return cls(name, kind == "rel", reach, output)

  def reached(self, statistic: Mapping[str, Any]) -> float:
    """Return half the width of a statistic's interval as a multiple of the half width
    wanted: 1 is narrow enough. Infinite if undefined.
    """
    if statistic["value"] is None or statistic["low"] is None:
      return math.inf
    wanted = self.reach
    if self.relative:
      wanted *= abs(statistic["value"])
    if not wanted:
      return math.inf
    width = statistic.get("width", statistic["high"] - statistic["low"])
    return width / 2 / wanted


def choose_output(until: Until, outputs: Mapping[str, str]) -> str:
  """Return the output that has the statistic, from the outputs' roles by their names.

  Raises:
    UserError: there is no such output, or none has such a statistic.
  """
  if until.output:
    check_one_of("output", until.output, outputs)
    outputs = {until.output: outputs[until.output]}
  statistics_by_output = {
    name: NARROWED.get(role, []) for name, role in outputs.items()
  }
  for name, statistics in statistics_by_output.items():
    if until.statistic in statistics:
      return name
  available = "; ".join(
    f"{name} has {', '.join(statistics) or 'none'}"
    for name, statistics in statistics_by_output.items()
  )
  raise UserError(
    f"--until {until.statistic}: no output has that; {available or NO_ROLE}"
  )


def measure_statistic(results: xr.Dataset, until: Until) -> dict[str, Any]:
  """Return the statistic of the runs that did not diverge, as `describe_statistic` does,
  and the `width` of its interval if that is shown cut off at what numbers can be.

  Raises:
    UserError: all runs diverged, or the results have no such output or statistic.
  """
  roles_by_output = {name: entry["role"] for name, entry in roles(results).items()}
  name = choose_output(until, roles_by_output)
  runs = measure_runs(results, name, pairs=False)
  row = next(row for row in STATISTICS[runs.role] if row.name == until.statistic)
  if row.needs and not row.needs.met(runs):
    others = [
      other.name for other in statistics_defined_for(runs) if other.over == "runs"
    ]
    raise UserError(
      f"--until {until.statistic}: {row.needs.otherwise}; choose one of {', '.join(others)}"
    )
  statistic = describe_statistic(row, runs)
  low, high = row.estimate(runs).interval
  # An interval that is cut off at 0 or 1 would look narrower than it is.
  is_described = statistic["low"] is not None
  if is_described and (low < statistic["low"] or high > statistic["high"]):
    statistic["width"] = float(high - low)
  return statistic


def train_until(
  recipe: Recipe | Task,
  runs: Runs,
  out: str | os.PathLike,
  until: Until,
  *,
  first: int,
  progress: bool = True,
  **how,
) -> xr.Dataset:
  """Train as many of the runs with `vs.train` as it takes to make a statistic's
  interval narrow enough.

  After each stage the number of runs needed is estimated anew: an interval narrows as
  1/√R. The next stage has at most four times as many runs. Stopping when an interval is
  narrow makes it too narrow. In simulations of "sd_accuracy rel 10%", the last 95 %
  interval held the true value in 94 % of cases for normal runs, and in 89 % for real
  runs with a long tail.

  Each stage looks only at the first runs of the folder, as many as it asked for. So
  processes that share the folder agree on when to stop, and the same call stops at the
  same number of runs again.

  Args:
    recipe: what to train.
    runs: the runs table; its length is the most that is trained.
    out: the results folder, made if absent.
    until: the statistic, and how narrow its interval is to be.
    first: how many runs to begin with.
    progress: whether to say on stderr how far it is.
    how: further options of `vs.train`.

  Raises:
    UserError: as `vs.train`.
  """
  choose_output(until, declared_roles(recipe, runs))
  if how.get("predictions") == "none":
    raise UserError(f"--until {until.statistic} looks at predictions: keep them")
  count = min(first, len(runs))
  while True:
    results = running.train(recipe, runs[slice(count)], out, progress=progress, **how)
    # The folder may have more runs by now, of another process.
    statistic = measure_statistic(results.isel(run=slice(count)), until)
    reached = until.reached(statistic)
    if progress:
      unit = statistic["unit"]
      value = show(statistic["value"], None, unit)
      ends = show_interval(statistic["low"], statistic["high"], unit) or "n/a"
      say(
        f"{count} runs: {until.statistic} {value}, 95 % interval {ends}, {reached:.2f} of "
        "the width wanted"
      )
    if reached <= 1 or count >= len(runs):
      return results
    # An interval narrows as 1/√R.
    needed = math.ceil(count * min(GROWTH, MARGIN * reached**2))
    count = min(len(runs), max(needed, count + 1))
