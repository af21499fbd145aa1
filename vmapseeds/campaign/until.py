"""Going on until a statistic is known well enough: more runs, as many as its interval still needs."""

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable

import xarray as xr

from vmapseeds.campaign import loop
from vmapseeds.mistakes import Mistake, one_of
from vmapseeds.reports.summary import show, summarize
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs

# A statistic whose interval is over runs, so that more of them narrow it.
STATISTICS = (
  "mean_accuracy", "sd_accuracy", "independent_errors_sd", "distribution_variance", "distribution_sd",
  "split_correlation", "top_quarter_gain", "expected_disagreement", "gde_gap",
)  # fmt: skip
GROWTH = 4  # at most so many times the runs at once: a first estimate from few runs may be far off


@dataclasses.dataclass(frozen=True)
class Until:
  """How narrow the 95 % interval of a statistic shall be: half its width at most `reach`, or that part of the value.

  >>> Until.parse("distribution_variance rel 10%")
  Until(statistic='distribution_variance', relative=True, reach=0.1)
  >>> Until.parse("mean_accuracy abs 0.02%").reach
  0.0002
  """

  statistic: str
  relative: bool
  reach: float

  @classmethod
  def parse(cls, text: str) -> "Until":
    """From "STATISTIC rel X%" or "STATISTIC abs X"; % divides by 100. `Mistake` for anything else."""
    found = re.fullmatch(r"(\w+) +(rel|abs) +([0-9.eE+-]+) *(%?)", text.strip())
    if not found:
      example = "'distribution_variance rel 10%'"
      raise Mistake(f"--until {text!r}: write STATISTIC rel X% or STATISTIC abs X, such as {example}")
    name, kind, number, percent = found.groups()
    one_of("statistic", name, STATISTICS)
    try:
      reach = float(number) / (100 if percent else 1)
    except ValueError:
      reach = math.nan
    if not 0 < reach < math.inf:
      raise Mistake(f"--until {text!r}: {number!r} is no number above 0")
    return cls(name, kind == "rel", reach)

  def reached(self, statistic: dict) -> float:
    """Half the interval's width as a multiple of what is wanted: narrow enough at 1; infinite where not defined."""
    if statistic["value"] is None or statistic["low"] is None:
      return math.inf
    wanted = self.reach * (abs(statistic["value"]) if self.relative else 1)
    return (statistic["high"] - statistic["low"]) / 2 / wanted if wanted else math.inf


def train(
  recipe: Recipe, runs: Runs, out: str | os.PathLike, until: Until, *, first: int, progress: bool = True,
  trains: Callable[..., xr.Dataset] = loop.train, **how,
) -> xr.Dataset:  # fmt: skip
  """`vs.train`, of as many of the runs as it takes until a statistic's interval is narrow enough.

  After each stage the number of runs is estimated anew, from an interval that narrows as 1/√R, and trained, four times
  as many at most. Looking at an interval and going on until it is narrow makes it too narrow: where "sd_accuracy rel
  10%" ended in simulation, the 95 % interval held the truth in 94 % for normal runs and in 89 % for real ones with a
  long tail.

  Each stage looks at the first runs of the folder alone, as many as it wanted, so that processes which share the folder
  agree on when to end, and the same call gives the same number again.

  Args:
    recipe: what to train.
    runs: the runs table; its length is the most that is trained.
    out: the results folder, made if absent.
    until: what is wanted.
    first: how many runs to begin with.
    progress: whether to say on stderr how far it is.
    trains: what trains, called as `vs.train` is.
    how: as `vs.train` takes it.

  Raises:
    Mistake: as `vs.train`.
  """
  count = min(first, len(runs))
  while True:
    results = trains(recipe, runs[slice(count)], out, progress=progress, **how)
    statistic = summarize(results.isel(run=slice(count)))["statistics"][until.statistic]
    reached = until.reached(statistic)
    if progress:
      known = f"{show(statistic['value'], statistic['se'], statistic['unit'])}, {reached:.2f} of the width wanted"
      print(f"{count} runs: {statistic['label']} {known}", file=sys.stderr)
    if reached <= 1 or count >= len(runs):
      return results
    needed = math.ceil(count * min(GROWTH, 1.05 * reached**2))
    count = min(len(runs), max(needed, count + 1))
