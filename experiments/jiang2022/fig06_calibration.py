"""Jiang 2022, figure 6: ensembles of runs are nearly calibrated, whatever varies
between the runs.

Take all pairs of a test example and a class that a fraction q of the runs votes for. In
about a fraction q of these pairs the class is right.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from experiments.estimates import Estimate
from experiments.frame import Row, row
from experiments.jiang2022 import groups, paper
from experiments.jiang2022.groups import Group
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 6: class-aggregated calibration of ensembles"
PANELS = 2
PANEL = {"AllDiff": 0, "DiffData": 0, "DiffInit": 1, "DiffOrder": 1}


class Curve(NamedTuple):
  """A calibration curve. Standard errors are over test examples."""

  runs: int
  curve: stats.CalibrationCurve
  # Of the accuracies, one bootstrap standard deviation: the paper's error bar
  se: Float[np.ndarray, " bins"]
  # Root mean square of accuracy less confidence, over pairs with a confidence from 0.1
  # to 0.9
  distance: float
  low: float  # its interval of two standard errors
  high: float


def calibration_of_group(group: Group) -> Curve:
  curve = stats.calibration_curve(*group)
  se = stats.calibration_band(*group, key=jax.random.key(0)).se
  apart = curve.accuracy - curve.confidence
  square, square_se = mean_square(apart, noise(curve, se), curve.items)
  distance, low, high = roots(square, square_se)
  return Curve(len(group.predictions), curve, se, distance, low, high)


compute = groups.computed("cifar10", calibration_of_group)


def noise(
  curve: stats.CalibrationCurve,
  se: Float[np.ndarray, "..."],
) -> Float[np.ndarray, "..."]:
  """Standard errors of accuracies, at least those of a calibrated bin: `se` is 0 where
  all of few items are right.
  """
  # If the bin were calibrated, its accuracy would be binomial.
  variance = curve.confidence * (1 - curve.confidence)
  binomial_se = np.sqrt(variance / np.maximum(curve.items, 1))
  return np.fmax(se, binomial_se)


def mean_square(
  distance: Float[np.ndarray, "..."],
  noise: Float[np.ndarray, "..."],
  items: Int[np.ndarray, "..."],
) -> tuple[float, float]:
  """Mean squared distance of the items in all but the first and last bin, less noise;
  and its standard error.
  """
  inner = (..., slice(1, -1))  # the first and the last bin are left out
  known = items[inner] > 0
  d = distance[inner][known]
  s = noise[inner][known]
  count = items[inner][known]
  weight = count / count.sum()
  # The square of a noisy distance is too large by the noise's variance.
  mean = (weight * (d**2 - s**2)).sum()
  # Of squares of normal deviates with mean d and standard deviation s.
  variance = (weight**2 * (4 * d**2 * s**2 + 2 * s**4)).sum()
  return mean, math.sqrt(variance)


def roots(square: float, se: float) -> tuple[float, float, float]:
  """The roots of an estimate and of the ends of its interval of two standard errors; 0
  where they are negative.
  """

  def root(x: float) -> float:
    return math.sqrt(max(0.0, x))

  return root(square), root(square - 2 * se), root(square + 2 * se)


def rows(numbers: Mapping[str, Curve]) -> list[Row]:
  lines = []
  for name, n in numbers.items():
    distance = Estimate(n.distance, n.low, n.high)
    quantity = f"distance from y = x, {name}"
    lines.append(row(quantity, paper.STATED["calibrated"], distance, n.runs))
  return lines


def plot(numbers: Mapping[str, Curve], axes: np.ndarray) -> None:
  """Left: groups with different training sets. Right: groups with one. Bands are one
  standard error.
  """
  for name, n in numbers.items():
    draw_curve(axes[PANEL[name]], name, n)
  for ax, title in zip(
    axes,
    ("different training sets", "one training set"),
    strict=True,
  ):
    ax.set_title(title)
    ax.legend(loc="upper left")


def draw_curve(ax: Axes, name: str, n: Curve) -> None:
  x = n.curve.confidence
  y = n.curve.accuracy
  label = f"{name}, {n.runs} runs"
  plots.calibration_plot(x, y, ax, low=y - n.se, high=y + n.se, label=label)
