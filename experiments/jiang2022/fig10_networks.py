"""Jiang 2022, figure 10: test error against disagreement of fully connected networks on
MNIST and a CNN on CIFAR-10.

Trained on all of MNIST, fully connected networks deviate from the line error =
disagreement; on 2,000 examples they come back to it. Depth and width vary too.
"""

from collections.abc import Mapping

import numpy as np

from experiments import estimates
from experiments.frame import Row, Trained, row
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.campaigns import GROUPS
from experiments.jiang2022.scatter import Found
from vmapseeds.reports import plots

TITLE = "Figure 10: test error against disagreement of other networks"
PANELS = 3
MISSING = (
  "the sizes, at laptop: 10,000 examples of MNIST in place of all and 1,000 in place of 2,000, and a narrow Network in "
  "Network on 500 of CIFAR-10, which still makes training errors when it stops after 45 epochs"
)
NETWORKS = {
  "mlp": "fully connected, many of MNIST",
  "mlp_few": "fully connected, few of MNIST",
  "nin": "Network in Network",
}


def compute(trained: Trained) -> dict[str, dict[str, Found]]:
  return {network: scatter.compute(trained, network) for network in NETWORKS}


def rows(numbers: Mapping[str, Mapping[str, Found]]) -> list[Row]:
  lines = []
  for network, name in NETWORKS.items():
    for group, (points, n) in numbers[network].items():
      claim = paper.STATED["does not deviate"]
      estimate = n.ratio.estimate
      if network == "mlp":
        _, few = numbers["mlp_few"][group]
        claim = paper.STATED["deviates"]
        estimate = estimates.difference_of(
          n.deviation.estimate,
          few.deviation.estimate,
        )
      lines.append(
        row(
          f"error over disagreement, {name}, {group}",
          claim,
          f"{n.ratio}, deviation {n.deviation}",
          f"{points.known()} pairs",
          estimate,
        )
      )
  return lines


def plot(numbers: Mapping[str, Mapping[str, Found]], axes: np.ndarray) -> None:
  for ax, (network, name) in zip(axes, NETWORKS.items(), strict=True):
    for group, color in zip(GROUPS, plots.PALETTE, strict=False):
      error, disagreement, _ = numbers[network][group].points
      ax.plot(
        100 * disagreement.ravel(),
        100 * error.ravel(),
        "o",
        color=color,
        markersize=4,
        alpha=0.7,
        markeredgewidth=0,
        label=group,
      )
    scatter.finish_scatter(ax)
    ax.set_title(name, fontsize="medium")
