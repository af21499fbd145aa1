"""Jiang 2022, figure 7: ensembles trained on 2,000 examples of CIFAR-10 are nearly
calibrated too.
"""

from experiments import frame
from experiments.frame import Row, Trained
from experiments.jiang2022 import fig06_calibration as fig06
from experiments.jiang2022 import groups
from experiments.jiang2022.fig06_calibration import Curve, plot  # noqa: F401

TITLE = "Figure 7: class-aggregated calibration of ensembles trained on few examples"
PANELS = fig06.PANELS


def compute(trained: Trained) -> dict[str, Curve]:
  return {
    name: fig06.calibration(group)
    for name, group in groups.read(trained, "few").items()
  }


def rows(numbers: dict[str, Curve]) -> list[Row]:
  return fig06.rows(numbers, 7)


if __name__ == "__main__":
  frame.main(__file__)
