"""Trains more runs until the interval of a statistic is narrow enough."""

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool

from vmapseeds import stats
from vmapseeds.campaign import loop
from vmapseeds.data import Dataset
from vmapseeds.mistakes import Mistake, one_of
from vmapseeds.results.opening import errors
from vmapseeds.stats.intervals import Interval, nonnegative_interval, sd_interval
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs
from vmapseeds.training.task import Task

Wrong = Bool[np.ndarray, "runs examples"]
Estimate = tuple[Any, Interval]  # a value and its 95 % interval


def _root(variance: Any, ends: Interval) -> Estimate:
  return (math.sqrt(variance) if variance >= 0 else math.nan), sd_interval(ends)


def _mean_accuracy(wrong: Wrong) -> Estimate:
  accuracy = 1 - stats.error_rates(wrong)
  return accuracy.mean(), stats.mean_interval(accuracy)


def _nonnegative(statistic: str, *of_runs: Any) -> Estimate:
  """The estimate of a nonnegative statistic. Its standard error is the function of the
  same name with `_se`.
  """
  value, se = (
    getattr(stats, name)(*of_runs) for name in (statistic, f"{statistic}_se")
  )
  return value, nonnegative_interval(value, se, len(of_runs[0]))


def _top_quarter_gain(wrong: Wrong) -> Estimate:
  resampled = stats.top_fraction_gain_bootstrap(wrong, key=jax.random.key(0))
  return stats.top_fraction_gain(wrong).mean, Interval(resampled.low, resampled.high)


# Statistics whose interval is over runs, so that more runs narrow it.
OF_ERRORS: dict[str, Callable[[Wrong], Estimate]] = {
  "mean_accuracy": _mean_accuracy,
  "sd_accuracy": lambda w: _root(
    stats.test_set_variance(w), stats.variance_interval(stats.error_rates(w))
  ),
  "independent_errors_sd": lambda w: _root(
    *_nonnegative("independent_errors_variance", w)
  ),
  "distribution_variance": lambda w: (
    stats.distribution_variance(w),
    stats.distribution_variance_interval(w),
  ),
  "distribution_sd": lambda w: _root(
    stats.distribution_variance(w), stats.distribution_variance_interval(w)
  ),
  "split_correlation": lambda w: (
    stats.split_correlation(w),
    stats.split_correlation_interval(w),
  ),
  "top_quarter_gain": _top_quarter_gain,
}
OF_PREDICTIONS: dict[str, Callable[[np.ndarray, np.ndarray, int], Estimate]] = {
  "expected_disagreement": lambda predictions, _, classes: _nonnegative(
    "expected_disagreement", predictions, classes
  ),
  "gde_gap": lambda *given: _nonnegative("gde_gap", *given),
}
# The most that a stage multiplies the runs by: a first estimate from few runs may be
# far off
GROWTH = 4


@dataclasses.dataclass(frozen=True)
class Until:
  """How narrow a statistic's 95 % interval shall be: half its width at most `reach`,
  times the value if `relative`.

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
    """Reads "STATISTIC rel X%" or "STATISTIC abs X"; % divides by 100. Raises `Mistake`
    for anything else.
    """
    found = re.fullmatch(r"(\w+) +(rel|abs) +([0-9.eE+-]+) *(%?)", text.strip())
    if not found:
      example = "'distribution_variance rel 10%'"
      raise Mistake(
        f"--until {text!r}: write STATISTIC rel X% or STATISTIC abs X, such as {example}"
      )
    name, kind, number, percent = found.groups()
    one_of("statistic", name, [*OF_ERRORS, *OF_PREDICTIONS])
    try:
      reach = float(number) / (100 if percent else 1)
    except ValueError:
      reach = math.nan
    if not 0 < reach < math.inf:
      raise Mistake(f"--until {text!r}: {number!r} is no number above 0")
    return cls(name, kind == "rel", reach)

  def reached(self, value: Any, interval: Interval) -> float:
    """Half the interval's width as a multiple of the half width wanted: 1 is narrow
    enough. Infinite if undefined.
    """
    wanted = self.reach * (abs(value) if self.relative else 1)
    reached = float(interval.high - interval.low) / 2 / wanted if wanted else math.inf
    return reached if math.isfinite(reached) else math.inf


def estimate(results: xr.Dataset, statistic: str) -> Estimate:
  """A statistic of the runs that did not diverge, and its 95 % interval over runs; NaN
  if they are undefined.

  Raises:
    Mistake: all runs diverged, or the statistic needs predictions and the runs' labels
      differ.
  """
  wrong = errors(results)
  if not len(wrong):
    raise Mistake(
      f"all {results.sizes['run']} finished runs diverged: train with a lower lr"
    )
  if len(wrong) < 2 or wrong.shape[1] < 2:
    return math.nan, Interval(*np.full(2, np.nan))
  if statistic in OF_ERRORS:
    return OF_ERRORS[statistic](wrong)
  if "run" in results.labels.dims:
    raise Mistake(
      f"--until {statistic}: these runs have labels of their own; choose one of {', '.join(OF_ERRORS)}"
    )
  predictions = results.predictions.values[~results.diverged.values]
  return OF_PREDICTIONS[statistic](
    predictions, results.labels.values, int(results.attrs["num_classes"])
  )


def train(
  recipe: Recipe | Task,
  runs: Runs,
  out: str | os.PathLike,
  until: Until,
  *,
  first: int,
  progress: bool = True,
  trains: Callable[..., xr.Dataset] = loop.train,
  **how,
) -> xr.Dataset:
  """Trains as many of the runs with `vs.train` as it takes to make a statistic's
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
    until: the statistic, and how narrow its interval shall be.
    first: how many runs to begin with.
    progress: whether to say on stderr how far it is.
    trains: the function that trains, called like `vs.train`.
    how: further options of `vs.train`.

  Raises:
    Mistake: as `vs.train`.
  """
  dataset = getattr(recipe, "dataset", None)
  if isinstance(recipe, Task) or (
    isinstance(dataset, Dataset) and dataset.num_classes is None
  ):
    raise Mistake(
      f"--until with {recipe.name}, which has no classes that are right or wrong: say how many --runs"
    )
  if how.get("predictions") == "none":
    raise Mistake(
      f"--until {until.statistic} looks at predictions: leave --predictions none out"
    )
  count = min(first, len(runs))
  while True:
    results = trains(recipe, runs[slice(count)], out, progress=progress, **how)
    value, interval = estimate(results.isel(run=slice(count)), until.statistic)
    reached = until.reached(value, interval)
    if progress:
      known = f"{value:.4g}, 95 % interval {interval.low:.4g} to {interval.high:.4g}"
      print(
        f"{count} runs: {until.statistic} {known}, {reached:.2f} of the width wanted",
        file=sys.stderr,
      )
    if reached <= 1 or count >= len(runs):
      return results
    needed = math.ceil(count * min(GROWTH, 1.05 * reached**2))
    count = min(len(runs), max(needed, count + 1))
