"""Jordan 2024, figure 5 and section 3.3: how much runs differ on the distribution that the test set was drawn from.

Equation 3 takes from the variance on the test set what a finite test set adds.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from experiments import frame
from experiments.frame import Row, Trained, between, percent, root
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import DURATIONS
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 5: variance on the test set beside that on the distribution"
PANELS = 2


class Variance(NamedTuple):
  """Standard deviations on test set and distribution; intervals of 95 % are over runs, for this one test set."""

  runs: int
  test_set: float
  test_set_se: float
  independent: float  # what independent errors would give
  distribution: float  # root of equation 3; NaN where that is not positive
  distribution_se: float
  interval: tuple[float, float]
  ratio: float  # of the variances; NaN likewise
  ratio_interval: tuple[float, float]  # the prediction of independent errors taken as known


def compute(trained: Trained) -> dict[str, Variance]:
  return {name: variance(trained.errors(name)) for name in DURATIONS}


def variance(errors: Bool[np.ndarray, "runs examples"]) -> Variance:
  observed, independent = float(stats.test_set_variance(errors)), float(stats.independent_errors_variance(errors))
  estimate, se = float(stats.distribution_variance(errors)), float(stats.distribution_variance_se(errors))
  low, high = (float(end) for end in stats.distribution_variance_interval(errors))
  rest = 1 - 1 / errors.shape[1]
  above = (rest * (end - estimate) + observed for end in (high, low))  # both are out by the same error
  return Variance(
    len(errors), math.sqrt(observed), root(observed, rest * se)[1], math.sqrt(independent), *root(estimate, se),
    interval=(math.sqrt(max(0.0, low)), math.sqrt(max(0.0, high))), ratio=ratio(observed, estimate),
    ratio_interval=tuple(ratio(a, end) for a, end in zip(above, (high, low), strict=True)),
  )  # fmt: skip


def ratio(test_set: float, distribution: float) -> float:
  return test_set / distribution if distribution > 0 else math.inf


def rows(numbers: Mapping[str, Variance]) -> list[Row]:
  short, long = numbers["short"], numbers["long"]
  falls = long.ratio_interval[0] > short.ratio_interval[1]
  return [
    *(
      Row.of(f"sd on the test set, {d}", paper.SD[d], percent(n.test_set, n.test_set_se), n.runs)
      for d, n in numbers.items()
    ),
    *(
      Row.of(f"sd on the distribution, {d}", paper.DISTRIBUTION_SD.get(d),
             between(n.distribution, *n.interval, 100, " %"), n.runs)
      for d, n in numbers.items()
    ),
    *(
      Row.of(f"variance, test set over distribution, {d}", paper.VARIANCE_RATIO.get(d),
             between(n.ratio, *n.ratio_interval), n.runs, falls if d == "long" else None,
             "" if falls or d != "long" else f"the intervals at {short.runs} runs overlap")
      for d, n in numbers.items()
    ),
  ]  # fmt: skip


def plot(numbers: Mapping[str, Variance], axes: np.ndarray) -> None:
  """Both deviations by duration, bars of one standard error; right, the two longest alone."""
  for ax, names in zip(axes, (DURATIONS, DURATIONS[2:]), strict=True):
    shown = [numbers[name] for name in names]
    columns = np.array([(n.test_set, n.distribution, n.independent, n.test_set_se, n.distribution_se) for n in shown])
    test_set, distribution, independent, test_set_se, distribution_se = columns.T
    plots.variance_against_duration(
      range(len(names)), test_set, distribution, ax, test_set_se=test_set_se, distribution_se=distribution_se,
      independent_sd=independent,
    )  # fmt: skip
    ax.set_xticks(range(len(names)), names)
    ax.set_xlabel("training")


if __name__ == "__main__":
  frame.main(__file__)
