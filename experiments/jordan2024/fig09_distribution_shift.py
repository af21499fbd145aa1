"""Jordan 2024, figure 9, section 4.4 and appendix C: variance between runs on shifted
test sets.

On the test set, runs vary about as much as with independent errors; on shifted test
sets, much more. The paper has ImageNet and its shifted versions. Here CIFAR-10 and
MNIST are blurred, noisy, of less contrast, translated, inverted.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments import estimates, frame
from experiments.estimates import Estimate, format_interval
from experiments.frame import Row, Spread, Trained, format_percent, rows_of, spread_of
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import data_of, shifted
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 9: distribution shift makes runs differ"


class Variance(NamedTuple):
  """Standard deviations on test set and distribution; intervals of 95 % are over runs,
  for this one test set.
  """

  runs: int
  test_set: float
  test_set_se: float
  independent: float  # what independent errors would give
  distribution: float  # root of equation 3; NaN where that is not positive
  interval: tuple[float, float]


class ShiftedSpread(NamedTuple):
  """The runs of a campaign on one test set."""

  accuracy: Spread
  variance: Variance


def panels(numbers: Mapping[str, Mapping[str, ShiftedSpread]]) -> int:
  return 2 + len(numbers)


def compute(trained: Trained) -> dict[str, dict[str, ShiftedSpread]]:
  """The numbers by data set and test set; the first test set is not shifted."""
  by_data = {}
  for name in shifted(trained.campaigns):
    campaign = trained.campaigns[name]
    of_set = {
      test_set: trained.tallies(name, test_set)
      for test_set in campaign.recipe.test_sets
    }
    by_data[data_of(campaign)] = {
      s: ShiftedSpread(spread_of(t), variance_of(t)) for s, t in of_set.items()
    }
  return by_data


def variance_of(tallies: stats.Tallies) -> Variance:
  found = tallies.distribution_variance()
  low, high = found.interval
  spread = spread_of(tallies)
  return Variance(
    tallies.runs,
    spread.sd,
    spread.sd_se,
    math.sqrt(tallies.independent_errors_variance()),
    math.sqrt(found) if found.value > 0 else math.nan,
    (math.sqrt(max(0.0, low)), math.sqrt(max(0.0, high))),
  )


def rows(numbers: Mapping[str, Mapping[str, ShiftedSpread]]) -> list[Row]:
  lines = []
  for data, shifts in numbers.items():
    unshifted = next(iter(shifts))
    for name, s in shifts.items():
      v = s.variance
      if name == unshifted:
        kind = "test"
        what = f"{data}, test set"
        stated = paper.SHIFT_DISTRIBUTION_SD["test"]
        estimate = None
      else:
        kind = "shifted"
        what = f"{data}, {name}"
        stated = paper.STATED["shift"]
        estimate = estimates.difference_of(excess(s), excess(shifts[unshifted]))
      lines += rows_of(
        v.runs,
        (
          f"mean accuracy, {what}",
          paper.SHIFT_MEAN.get(kind),
          format_percent(*s.accuracy[2:4]),
        ),
        (
          f"sd of accuracy, {what}",
          paper.SHIFT_SD.get(kind),
          format_percent(v.test_set, v.test_set_se),
        ),
        (
          f"sd on the distribution, {what}",
          stated,
          format_interval(v.distribution, *v.interval, 100, " %"),
          estimate,
        ),
      )
  return lines


def excess(shift: ShiftedSpread) -> Estimate:
  """Equation 3, signed; what independent errors give is taken as known."""
  ends = stats.variance_over_runs(shift.accuracy.accuracies).interval
  observed = shift.accuracy.sd**2, *ends
  return Estimate(*(x - shift.variance.independent**2 for x in observed))


def plot(numbers: Mapping[str, Mapping[str, ShiftedSpread]], axes: np.ndarray) -> None:
  """Accuracies on the first data set's test set and on the one with most variance;
  standard deviations on all sets.
  """
  first = next(iter(numbers.values()))
  worst = max(first, key=lambda name: first[name].variance.test_set)
  for ax, name in zip(axes[:2], (next(iter(first)), worst), strict=True):
    s = first[name]
    plots.accuracy_histogram(
      s.accuracy.accuracies,
      ax,
      examples=s.accuracy.examples,
      sds={"errors independent": s.variance.independent},
    )
    ax.set_title(f"{next(iter(numbers))}: {name}")
    frame.legend_above(ax)
  for ax, (data, shifts) in zip(axes[2:], numbers.items(), strict=True):
    series: dict[str, list[tuple]] = {
      "test set": [],
      "errors independent": [],
      "distribution": [],
    }
    for s in shifts.values():
      variance = stats.variance_over_runs(s.accuracy.accuracies)
      series["test set"].append((s.accuracy.sd, *np.sqrt(variance.interval)))
      series["errors independent"].append((s.variance.independent, None, None))
      # Equation 3 may be negative: then there is no root to draw.
      on_distribution = s.variance.distribution
      if np.isnan(on_distribution):
        on_distribution = None
      series["distribution"].append((on_distribution, *s.variance.interval))
    plots.sds_side_by_side(list(shifts), series, ax)
    ax.set_title(data)
    ax.set_ylim(top=-2.8)  # room for the legend
    ax.legend(loc="upper left")
