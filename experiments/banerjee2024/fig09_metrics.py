"""Banerjee 2024, figures 9 to 11: α̂ beside accuracy, churn and calibration, one of
which alone does not tell it.

Runs with a small α̂ are good by all three. Some runs that are good by one have a large
α̂, as they are worse by another.
"""

from collections.abc import Mapping

import numpy as np

from experiments import frame
from experiments.banerjee2024 import candidates
from experiments.banerjee2024.candidates import Source
from experiments.frame import Row, Trained

TITLE = "Figures 9 to 11: α̂ beside accuracy, churn and calibration"
PANELS = 3
METRICS = {
  "accuracy": ("test accuracy (%)", lambda s: s.accuracy.accuracies, -1),
  "churn": ("churn with the ensemble (%)", lambda s: s.churn, 1),
  "ECE": ("expected calibration error (%)", lambda s: s.ece, 1),
}


def compute(trained: Trained) -> dict[str, Source]:
  return candidates.sources(trained)


def rows(numbers: Mapping[str, Source]) -> list[Row]:
  table = []
  for name, n in numbers.items():
    for metric, (_, of, worse) in METRICS.items():
      tau, se = candidates.tau(n.order, worse * of(n))
      printed = ("figure only", "figure 9") if name == "S_all" else None
      table.append(
        Row(
          f"{name}: τ of α̂ with {metric}",
          printed,
          frame.number(worse * tau, se),
          n.runs,
          frame.above(tau, se) if printed else None,
        )
      )
  return table


def plot(numbers: Mapping[str, Source], axes: np.ndarray) -> None:
  for ax, (label, of, _) in zip(axes, METRICS.values(), strict=True):
    candidates.scatter(ax, numbers, of, label)
  axes[1].legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
