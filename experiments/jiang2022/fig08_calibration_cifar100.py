"""Jiang 2022, figure 8: ensembles on CIFAR-100 are nearly calibrated too."""

from experiments import frame
from experiments.frame import Row, Trained
from experiments.jiang2022 import fig06_calibration as fig06
from experiments.jiang2022 import groups
from experiments.jiang2022.fig06_calibration import Curve, plot  # noqa: F401

TITLE = "Figure 8: class-aggregated calibration of ensembles, the paper's on CIFAR-100"
PANELS = fig06.PANELS


def compute(trained: Trained) -> dict[str, Curve]:
  return {
    name: fig06.calibration(group)
    for name, group in groups.read(trained, "cifar100").items()
  }


def rows(numbers: dict[str, Curve]) -> list[Row]:
  return fig06.rows(numbers, 8)


if __name__ == "__main__":
  frame.main(__file__)
