"""Jiang 2022, table 3: error, disagreement, their gap and calibration errors of
ensembles on CIFAR-100.
"""

from collections.abc import Mapping

import numpy as np

from experiments import frame
from experiments.frame import Row, Trained
from experiments.jiang2022 import groups
from experiments.jiang2022 import table1_ensembles as table1
from experiments.jiang2022.table1_ensembles import Ensemble

TITLE = "Table 3: ensembles, the paper's on CIFAR-100"
PANELS = table1.PANELS


def compute(trained: Trained) -> dict[str, Ensemble]:
  return {
    name: table1.ensemble(group)
    for name, group in groups.read(trained, "cifar100").items()
  }


def rows(numbers: Mapping[str, Ensemble]) -> list[Row]:
  return table1.rows(numbers, "table 3")


def plot(numbers: Mapping[str, Ensemble], axes: np.ndarray) -> None:
  table1.plot(numbers, axes, "table 3")


if __name__ == "__main__":
  frame.main(__file__)
