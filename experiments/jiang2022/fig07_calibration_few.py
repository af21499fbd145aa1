"""Jiang 2022, figure 7: ensembles trained on 2,000 examples of CIFAR-10 are nearly
calibrated too.
"""

from experiments.jiang2022 import fig06_calibration as fig06
from experiments.jiang2022 import groups
from experiments.jiang2022.fig06_calibration import plot  # noqa: F401

TITLE = (
  "Figure 7: class-aggregated calibration of ensembles, the paper's on 2,000 examples"
)
PANELS = fig06.PANELS


compute = groups.computed("few", fig06.calibration_of_group)
rows = fig06.rows
