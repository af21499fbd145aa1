"""Jiang 2022, table 4: R² of test error and disagreement on CIFAR-10, with and without
augmentation.

R² is high over both together, because their errors are far apart, and lower within one
of them.
"""

from typing import NamedTuple

import numpy as np

from experiments import frame
from experiments.frame import Row, Trained, row
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.scatter import Agreement, Points
from vmapseeds.reports import plots

TITLE = "Table 4: R² of test error and disagreement"
SETS = dict(zip(paper.SETS, (False, True, None), strict=True))


class GroupAgreement(NamedTuple):
  """The points of figure 1, and the agreement of each of `SETS`, by group."""

  points: dict[str, Points]
  found: dict[str, dict[str, Agreement]]


def compute(trained: Trained) -> GroupAgreement:
  points = scatter.read_points(trained, "cifar10")
  agreements: dict[str, dict[str, Agreement]] = {}
  for group, group_points in points.items():
    agreements[group] = {}
    for name, which in SETS.items():
      agreements[group][name] = scatter.agreement(group_points.only(which))
  return GroupAgreement(points, agreements)


def rows(numbers: GroupAgreement, name: str = "r_squared") -> list[Row]:
  lines = []
  for group, by_set in numbers.found.items():
    for which, augmented in SETS.items():
      points = numbers.points[group].only(augmented)
      estimate = getattr(by_set[which], name).estimate
      lines.append(
        row(
          f"{scatter.SYMBOLS[name]} {which}, {group}",
          paper.STATED[f"{name} {group} {which}"],
          estimate,
          f"{points.known()} pairs",
        )
      )
  return lines


def plot(numbers: GroupAgreement, axes: np.ndarray, name: str = "r_squared") -> None:
  """Our values with intervals; dashes are the paper's."""
  (ax,) = axes
  x = np.arange(len(numbers.found))
  printed = np.array([paper.CORRELATIONS[name][group] for group in numbers.found])
  for i, (which, color) in enumerate(zip(SETS, plots.PALETTE, strict=False)):
    places = x + 0.25 * (i - 1)
    value, low, high = np.array(
      [getattr(by_set[which], name) for by_set in numbers.found.values()]
    ).T
    bars = np.maximum(0, [value - low, high - value])
    ax.errorbar(
      places,
      value,
      bars,
      fmt="o",
      color=color,
      capsize=3,
      markersize=5,
      label=which,
    )
    ax.plot(
      places,
      printed[:, i],
      "_",
      color=plots.INK,
      markersize=14,
      markeredgewidth=2,
    )
  ax.plot(
    [],
    [],
    "_",
    color=plots.INK,
    markersize=14,
    markeredgewidth=2,
    label="the paper's",
  )
  ax.set_xticks(x, list(numbers.found))
  ax.set_ylabel(f"{scatter.SYMBOLS[name]} of test error and disagreement")
  frame.legend_above(ax)
