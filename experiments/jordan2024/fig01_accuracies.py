"""Jordan 2024, figure 1: more training narrows the distribution of accuracy over runs,
then no more.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments import estimates, frame
from experiments.estimates import Estimate
from experiments.frame import Row, Spread, Trained, format_percent, row
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import DURATIONS, by_duration
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 1: accuracy distributions at four training durations"
PANELS = 4


class Accuracy(NamedTuple):
  """The accuracies after some epochs, and the 95 % interval of their standard
  deviation.
  """

  epochs: int
  spread: Spread
  interval: tuple[float, float]

  @property
  def runs(self) -> int:
    return self.spread.runs

  @property
  def sd_estimate(self) -> Estimate:
    low, high = self.interval
    return Estimate(self.spread.sd, low, high)


def compute(trained: Trained) -> dict[str, Accuracy]:
  return {
    d: accuracies_of_duration(trained.epochs(d), trained.tallies(d)) for d in DURATIONS
  }


def accuracies_of_duration(epochs: int, tallies: stats.Tallies) -> Accuracy:
  spread = frame.spread_of(tallies)
  # The interval of a standard deviation is that of the variance, by its roots.
  low, high = stats.variance_over_runs(spread.accuracies).interval
  return Accuracy(epochs, spread, (math.sqrt(low), math.sqrt(high)))


def rows(numbers: Mapping[str, Accuracy]) -> list[Row]:
  short = numbers["short"].sd_estimate
  long = numbers["long"].sd_estimate
  claim = paper.STATED["narrows"]
  return [
    *by_duration(
      numbers,
      (
        "mean accuracy",
        paper.MEAN,
        lambda n: format_percent(n.spread.mean, n.spread.mean_se),
      ),
      (
        "sd of accuracy",
        paper.SD,
        lambda n: format_percent(n.spread.sd, n.spread.sd_se),
      ),
      (
        "best minus worst run",
        paper.RANGE,
        lambda n: format_percent(np.ptp(n.spread.accuracies)),
      ),
    ),
    row(claim.statistic, claim, estimates.ratio_of(long, short), numbers["long"].runs),
  ]


def plot(numbers: Mapping[str, Accuracy], axes: np.ndarray) -> None:
  for ax, n in zip(axes, numbers.values(), strict=True):
    plots.accuracy_histogram(n.spread.accuracies, ax, examples=n.spread.examples)
    ax.set_title(frame.format_duration(n.epochs))
    frame.legend_above(ax)
