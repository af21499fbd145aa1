"""Jiang 2022, appendix D.9 (a figure without a number) and equation 63: one pair of
runs, and the mean of four.

Error and disagreement of configurations without augmentation, whose runs differ in
their initialisation. More pairs hardly change the correlation, and bring points nearer
to the line error = disagreement.
"""

from typing import NamedTuple

import numpy as np

from experiments import measures
from experiments.frame import Row, Trained, rows_of
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.scatter import BootstrapEstimate, Found, Points

TITLE = "Appendix D.9 and equation 63: one pair of runs, and the mean of several"
PANELS = 2


class PairsAndMeans(NamedTuple):
  """A point of `one` is a pair of runs. A point of `mean` is a configuration, the mean
  of its pairs.
  """

  pairs: int  # of a configuration
  one: Found
  mean: Found
  left: BootstrapEstimate  # mean deviation of the means over that of single pairs


def compute(trained: Trained) -> PairsAndMeans:
  return averaged(
    scatter.read_points(trained, "cifar10", ["DiffInit"])["DiffInit"].only(
      augmented=False
    )
  )


def averaged(points: Points) -> PairsAndMeans:
  """Configurations with a run that diverged are left out."""
  kept = ~np.isnan(points.error).any(1)
  points = Points(*(column[kept] for column in points))
  mean = Points(
    points.error.mean(1, keepdims=True),
    points.disagreement.mean(1, keepdims=True),
    points.augmented,
  )
  return PairsAndMeans(
    points.error.shape[1],
    Found(points, scatter.agreement(points)),
    Found(mean, scatter.agreement(mean)),
    scatter.over_configurations(share_left, points.error, points.disagreement),
  )


def rows(numbers: PairsAndMeans) -> list[Row]:
  (points, one), (_, mean) = numbers.one, numbers.mean
  several = f"mean of {numbers.pairs} pairs"
  runs = f"{points.known()} pairs"
  stated = paper.STATED["pairs"]
  if numbers.pairs != 4:
    stated = ("0.30 with 4 pairs", stated.printed[1])
  return rows_of(
    runs,
    ("deviation, 1 pair", paper.DEVIATION[1], str(one.deviation)),
    (f"deviation, {several}", paper.DEVIATION[4], str(mean.deviation)),
    (
      f"deviation, {several} over 1 pair",
      stated,
      numbers.left.estimate,
    ),
    *(
      (f"{symbol}, {which}", None, str(getattr(n, name)))
      for which, n in (("1 pair", one), (several, mean))
      for name, symbol in scatter.SYMBOLS.items()
    ),
  )


def share_left(error: np.ndarray, disagreement: np.ndarray) -> float:
  """The mean deviation of the means over pairs, divided by the mean deviation of single
  pairs.
  """
  of_means = measures.relative_deviation(error.mean(1), disagreement.mean(1))
  return of_means.mean() / measures.relative_deviation(error, disagreement).mean()


def plot(numbers: PairsAndMeans, axes: np.ndarray) -> None:
  panels = {"1 pair": numbers.one, f"mean of {numbers.pairs} pairs": numbers.mean}
  for ax, (which, (points, n)) in zip(axes, panels.items(), strict=True):
    scatter.draw_points(points, ax)
    ax.set_title(
      f"DiffInit, {which}: deviation {n.deviation.value:.3f}", fontsize="medium"
    )
