"""Jiang 2022, figure 10: the ratio of test error to disagreement against the learning
rate, of fully connected networks on 2,000 examples of MNIST.

The paper starts at a rate of 0.1 (appendix C.1: the schedule of ResNet-18, which also
has 0.05) and finds ratios from 0.9 to 1.3. A smaller rate, a larger batch or fewer layers
keep runs that share their data nearer to each other: they disagree less than one errs.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from experiments.frame import Row, Trained, row
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.campaigns import PARTNERS, SCALES
from experiments.jiang2022.scatter import BootstrapEstimate, Found, Points
from vmapseeds.reports import plots

TITLE = "Figure 10: error over disagreement against the learning rate"
PAPERS_RATE = 0.1
COLORS = dict(zip(PARTNERS, plots.PALETTE, strict=False))


def compute(trained: Trained) -> dict[str, dict[str, Found]]:
  """What each group shows at each learning rate, by the rate in words."""
  rates = SCALES[trained.scale].scatters["mlp_rates"].learning_rates()
  points = scatter.read_points(trained, "mlp_rates", PARTNERS)
  numbers = {}
  for rate in np.unique(rates)[::-1]:
    at_rate = {}
    for group, of_group in points.items():
      columns = [column[rates == rate] for column in of_group]
      at_rate[group] = Points(*columns)
    numbers[f"{rate:g}"] = {
      group: Found(of_group, scatter.agreement(of_group))
      for group, of_group in at_rate.items()
    }
  return numbers


def rows(numbers: Mapping[str, Mapping[str, Found]]) -> list[Row]:
  lines = []
  for rate, groups in numbers.items():
    for group, (points, n) in groups.items():
      claim = None
      if float(rate) == PAPERS_RATE:
        claim = paper.STATED[f"connected {group}"]
      lines.append(
        row(
          f"error over disagreement at learning rate {rate}, {group}",
          claim,
          n.ratio.estimate,
          f"{points.known()} pairs",
        )
      )
  return lines


def plot(numbers: Mapping[str, Mapping[str, Found]], axes: np.ndarray) -> None:
  (ax,) = axes
  for group, color in COLORS.items():
    ratios = {
      float(rate): groups[group].agreement.ratio for rate, groups in numbers.items()
    }
    draw_ratios(ax, group, color, ratios)
  ax.axhline(1, color=plots.INK, linestyle="--", linewidth=1, zorder=0)
  ax.axhspan(0.9, 1.3, color=plots.INK, alpha=0.08, linewidth=0, label="the paper")
  ax.set(
    xscale="log",
    yscale="log",
    xlabel="learning rate",
    ylabel="error over disagreement",
  )
  ax.legend()


def draw_ratios(
  ax: Axes,
  group: str,
  color: str,
  ratios: Mapping[float, BootstrapEstimate],
) -> None:
  """Draw a group's ratio at each rate with its interval."""
  value, low, high = np.array([*ratios.values()]).T
  ax.errorbar(
    [*ratios],
    value,
    yerr=np.abs([value - low, high - value]),
    color=color,
    marker="o",
    markersize=4,
    capsize=3,
    label=group,
  )
