"""Jiang 2022, figure 13: runs that differ in initialisation and order, on one training
set (SameData).

Left, test error against disagreement over configurations; right, the calibration of an
ensemble.
"""

from typing import NamedTuple

import numpy as np

from experiments.frame import Row, Trained
from experiments.jiang2022 import fig06_calibration as fig06
from experiments.jiang2022 import groups, scatter
from experiments.jiang2022.fig06_calibration import Curve
from experiments.jiang2022.scatter import Found

TITLE = "Figure 13: initialisation and order vary together"
PANELS = 2


class SameData(NamedTuple):
  scatter: dict[str, Found]
  calibration: dict[str, Curve]


def compute(trained: Trained) -> SameData:
  curves = {
    name: fig06.calibration_of_group(group)
    for name, group in groups.read_groups(trained, "same_data").items()
  }
  return SameData(scatter.compute(trained, "cifar10", ["SameData"]), curves)


def rows(numbers: SameData) -> list[Row]:
  return scatter.rows(numbers.scatter) + fig06.rows(numbers.calibration)


def plot(numbers: SameData, axes: np.ndarray) -> None:
  scatter_ax, calibration_ax = axes
  scatter.plot(numbers.scatter, [scatter_ax])
  for name, n in numbers.calibration.items():
    fig06.draw_curve(calibration_ax, name, n)
  calibration_ax.legend()
