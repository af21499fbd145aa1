"""Jiang 2022, figure 14: calibration curves of single classes are farther from y = x
than that of all together.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from experiments import gallery
from experiments.estimates import format_interval, student_estimate
from experiments.frame import Row, Trained, rows_of
from experiments.jiang2022 import groups, paper
from experiments.jiang2022.campaigns import ensemble_campaigns
from experiments.jiang2022.fig06_calibration import mean_square, noise, roots
from experiments.jiang2022.groups import Group
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 14: calibration of single classes and of all together"
PANELS = 2
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
GROUP = "AllDiff"  # the paper does not say which
SHOWN = 5


class Classes(NamedTuple):
  """Distances are root mean squares over all but the first and last bin, less noise,
  with their intervals.
  """

  data: str  # the paper's data set, and what stands in for it
  runs: int
  shown: Int[np.ndarray, " shown"]
  single: stats.CalibrationCurve  # one row per class
  together: stats.CalibrationCurve
  # Of `together`'s accuracies: bootstrap standard deviations over test examples
  se: Float[np.ndarray, " bins"]
  single_distance: tuple[float, float, float]  # from y = x
  together_distance: tuple[float, float, float]
  apart: tuple[float, float, float]  # of single classes from all together


def compute(trained: Trained) -> dict[str, Classes]:
  by_data = {}
  for printed_data, printed_name in DATA.items():
    campaign = ensemble_campaigns(trained.scale, printed_data)[GROUP]
    ours = gallery.short_name(trained.campaigns[campaign].recipe.dataset)
    data = printed_name
    if ours != printed_data:
      data = f"{ours} for {printed_name}"
    by_data[printed_data] = classes(groups.read_group(trained, campaign), data)
  return by_data


def classes(group: Group, data: str) -> Classes:
  sample = np.sort(np.random.default_rng(0).permutation(group.num_classes)[:SHOWN])
  single = stats.calibration_curve(*group, of="classes")
  together = stats.calibration_curve(*group, of="pairs")
  se = stats.calibration_band(*group, key=jax.random.key(0)).se
  # An example is at most once in a bin of one class, so the bin's accuracy is a plain
  # proportion.
  single_noise = noise(
    single,
    np.sqrt(single.accuracy * (1 - single.accuracy) / np.maximum(single.items, 1)),
  )
  of_single = single.accuracy - single.confidence
  of_together = together.accuracy - together.confidence
  # The curve of all classes contains each class, so the two share a part of their
  # noise.
  of_all = single.items / np.maximum(together.items, 1)
  squares = (
    mean_square(of_single, single_noise, single.items),
    mean_square(of_together, noise(together, se), together.items),
    mean_square(
      of_single - of_together,
      single_noise * np.sqrt(1 - of_all),
      single.items,
    ),
  )
  return Classes(
    data,
    len(group.predictions),
    sample,
    single,
    together,
    se,
    *(roots(*square) for square in squares),
  )


def rows(numbers: Mapping[str, Classes]) -> list[Row]:
  lines = []
  for n in numbers.values():
    value, _, high = np.square(n.apart)
    lines += rows_of(
      n.runs,
      (
        f"distance from y = x, single classes, {n.data}",
        None,
        format_interval(*n.single_distance),
      ),
      (
        f"distance from y = x, all together, {n.data}",
        None,
        format_interval(*n.together_distance),
      ),
      (
        f"single classes from all together, {n.data}",
        paper.STATED["classes"],
        format_interval(*n.apart),
        student_estimate(value, (high - value) / 2),
      ),
    )
  return lines


def plot(numbers: Mapping[str, Classes], axes: np.ndarray) -> None:
  """For each data set, some classes drawn at random, and all classes together with a
  band of one standard error.
  """
  for ax, n in zip(axes, numbers.values(), strict=True):
    for k in n.shown:
      plots.calibration_plot(
        n.single.confidence[k],
        n.single.accuracy[k],
        ax,
        label=f"class {k}",
      )
    for line in ax.lines[1:]:
      line.set(alpha=0.55, linewidth=1, markersize=3)
    x = n.together.confidence
    y = n.together.accuracy
    se = n.se
    plots.calibration_plot(
      x,
      y,
      ax,
      low=y - se,
      high=y + se,
      label=f"all {len(n.single.confidence)} classes",
    )
    ax.set_title(f"{n.data}, {GROUP}, {n.runs} runs")
    ax.legend(loc="upper left")
