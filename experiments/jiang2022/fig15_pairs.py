"""Jiang 2022, appendix D.9 (a figure without a number) and equation 63: one pair of runs, and the mean of four.

Error and disagreement of configurations without augmentation, whose runs differ in their initialisation. More pairs
hardly change the correlation, and bring points nearer to the line error = disagreement.
"""

from typing import NamedTuple

import numpy as np

from experiments import frame
from experiments.frame import Printed, Row, Trained
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.scatter import Points
from vmapseeds import stats

TITLE = "Appendix D.9 and equation 63: one pair of runs, and the mean of several"
PANELS = 2


class Numbers(NamedTuple):
  """A point of `one` is a pair, one of `mean` a configuration: the mean of its pairs."""

  pairs: int  # of a configuration
  one: Points
  mean: Points


def compute(trained: Trained) -> Numbers:
  return averaged(scatter.compute(trained, "cifar10", ["DiffInit"])["DiffInit"].only(augmented=False))


def averaged(points: Points) -> Numbers:
  error, disagreement = (column.mean(1, keepdims=True) for column in points[:2])
  return Numbers(points.error.shape[1], points, Points(error, disagreement, points.augmented))


def rows(numbers: Numbers) -> list[Row]:
  one, mean = (scatter.agreement(points) for points in numbers[1:])
  several = f"mean of {numbers.pairs} pairs"
  runs = f"{numbers.one.known()} pairs"
  left = scatter.over_configurations(share_left, numbers.one.error, numbers.one.disagreement)
  holds = left.low <= PRINTED
  stays = f"error less disagreement of a configuration's pairs is {100 * bias(numbers.one):.2g} % on average"
  return [
    Row.of("deviation, 1 pair", paper.DEVIATION[1], str(one.deviation), runs),
    Row.of(f"deviation, {several}", paper.DEVIATION[4], str(mean.deviation), runs),
    Row.of(f"deviation, {several} over 1 pair", Printed(f"{PRINTED:.2f}", "appendix D.9"), str(left), runs, holds,
           "" if holds else f"what all pairs share stays: {stays}"),
    *(
      Row.of(f"{symbol}, {said}", None, str(getattr(n, name)), runs)
      for said, n in (("1 pair", one), (several, mean))
      for name, symbol in scatter.SYMBOLS.items()
    ),
  ]  # fmt: skip


PRINTED = 0.034 / 0.112


def share_left(error: np.ndarray, disagreement: np.ndarray) -> float:
  """How much of the mean deviation of single pairs the means of all pairs have."""
  of_means = stats.relative_deviation(error.mean(1), disagreement.mean(1))
  return float(np.nanmean(of_means) / np.nanmean(stats.relative_deviation(error, disagreement)))


def bias(points: Points) -> float:
  return float(np.nanmean(points.error - points.disagreement))


def plot(numbers: Numbers, axes: np.ndarray) -> None:
  for ax, points, said in zip(axes, numbers[1:], ("1 pair", f"mean of {numbers.pairs} pairs"), strict=True):
    scatter.draw(points, ax)
    deviation = scatter.agreement(points).deviation.value
    ax.set_title(f"DiffInit, {said}: deviation {deviation:.3f}", fontsize="medium")


if __name__ == "__main__":
  frame.main(__file__)
