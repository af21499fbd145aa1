"""Jordan 2024, figure 5 and section 3.3: how much runs differ on the distribution that
the test set was drawn from.

Equation 3 subtracts from the variance on the test set what a finite test set adds to
it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from experiments.estimates import Estimate, format_interval
from experiments.frame import Row, Trained, format_percent, sqrt_with_se
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import DURATIONS, by_duration
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 5: variance on the test set beside that on the distribution"
PANELS = 2


class Variance(NamedTuple):
  """Standard deviations on test set and distribution; intervals of 95 % are over runs,
  for this one test set.
  """

  epochs: int
  runs: int
  test_set: float
  test_set_se: float
  independent: float  # what independent errors would give
  distribution: float  # root of equation 3; NaN where that is not positive
  distribution_se: float
  interval: tuple[float, float]
  ratio: float  # of the variances; infinite where equation 3 is not positive
  # The prediction of independent errors taken as known
  ratio_interval: tuple[float, float]


def compute(trained: Trained) -> dict[str, Variance]:
  return {
    d: variance_of_duration(trained.epochs(d), trained.tallies(d)) for d in DURATIONS
  }


def variance_of_duration(epochs: int, tallies: stats.Tallies) -> Variance:
  observed = tallies.test_set_variance().value
  independent = tallies.independent_errors_variance()
  distribution = tallies.distribution_variance()
  estimate = distribution.value
  se = distribution.se
  low, high = distribution.interval
  rest = 1 - 1 / tallies.examples
  return Variance(
    epochs,
    tallies.runs,
    math.sqrt(observed),
    sqrt_with_se(observed, rest * se)[1],
    math.sqrt(independent),
    *sqrt_with_se(estimate, se),
    interval=(math.sqrt(max(0.0, low)), math.sqrt(max(0.0, high))),
    ratio=variance_ratio(observed, estimate),
    ratio_interval=ratio_interval(observed, estimate, (low, high), rest),
  )


def variance_ratio(test_set: float, distribution: float) -> float:
  return test_set / distribution if distribution > 0 else math.inf


def ratio_interval(
  test_set: float,
  distribution: float,
  ends: tuple[float, float],
  rest: float,
) -> tuple[float, float]:
  """The interval of `variance_ratio` from that of the variance on the distribution. Both
  variances have the same error, up to the factor `rest`.
  """
  above = (rest * (end - distribution) + test_set for end in reversed(ends))
  return tuple(
    variance_ratio(a, end) for a, end in zip(above, reversed(ends), strict=True)
  )


def rows(numbers: Mapping[str, Variance]) -> list[Row]:
  return by_duration(
    numbers,
    (
      "sd on the test set",
      paper.SD,
      lambda n: format_percent(n.test_set, n.test_set_se),
    ),
    (
      "sd on the distribution",
      paper.DISTRIBUTION_SD,
      lambda n: format_interval(n.distribution, *n.interval, 100, " %"),
    ),
    (
      "variance, test set over distribution",
      {"long": paper.STATED["vanishes"]},
      lambda n: Estimate(n.ratio, *n.ratio_interval),
    ),
  )


def plot(numbers: Mapping[str, Variance], axes: np.ndarray) -> None:
  """Both standard deviations by duration, with bars of one standard error; the right
  panel has the longer half only.
  """
  every = list(numbers.values())
  for ax, variances in zip(axes, (every, every[len(every) // 2 :]), strict=True):
    against_duration(variances, ax)


def against_duration(numbers: Sequence[Variance], ax: Axes) -> None:
  """Spaces durations evenly, so that 0 epochs fits beside powers of 2. Open markers are
  negative variance estimates.
  """
  columns = [
    (n.test_set, n.test_set_se, n.distribution, n.distribution_se, n.independent)
    for n in numbers
  ]
  test_set, test_set_se, distribution, se, independent = 100 * np.array(columns).T
  x = np.arange(len(numbers))
  below = np.isnan(distribution)
  ax.plot(
    x,
    independent,
    color=plots.VERMILION,
    linestyle="--",
    marker=".",
    label="errors independent",
  )
  ax.errorbar(
    x,
    test_set,
    test_set_se,
    color=plots.BLUE,
    marker="o",
    capsize=3,
    label="test set",
  )
  # The line breaks at a NaN. Points at 0 are drawn without a line, so that nobody reads
  # a slope into them.
  bars = np.stack([np.minimum(se, distribution), se])
  ax.errorbar(
    x,
    distribution,
    bars,
    color=plots.GREEN,
    marker="s",
    capsize=3,
    label="distribution",
  )
  if below.any():
    zeros = np.zeros(below.sum())
    ax.errorbar(
      x[below],
      zeros,
      np.stack([zeros, se[below]]),
      color=plots.GREEN,
      marker="s",
      markerfacecolor="white",
      linestyle="none",
      capsize=3,
      clip_on=False,
      zorder=3,
      label="distribution: variance estimate below 0",
    )
  ax.set_xticks(x, [str(n.epochs) for n in numbers])
  ax.set_ylim(bottom=0)
  plots.finish_axes(
    ax,
    "training duration (epochs)",
    "standard deviation of accuracy (%)",
  )
