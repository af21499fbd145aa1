"""Jiang 2022, figure 8: ensembles on CIFAR-100 are nearly calibrated too."""

from experiments.jiang2022 import fig06_calibration as fig06
from experiments.jiang2022 import groups
from experiments.jiang2022.fig06_calibration import plot  # noqa: F401

TITLE = "Figure 8: class-aggregated calibration of ensembles, the paper's on CIFAR-100"
PANELS = fig06.PANELS


compute = groups.computed("cifar100", fig06.calibration_of_group)
rows = fig06.rows
