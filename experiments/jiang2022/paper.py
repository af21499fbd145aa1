"""The printed values, with their places."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.frame import Printed

# Section 3, of scatter plots: where the ratio of error to disagreement mostly lies; and where errors are high.
RATIO = dict.fromkeys(("AllDiff", "DiffData"), (0.9, 1.0)) | dict.fromkeys(
  ("DiffInit", "DiffOrder", "SameData"), (1.0, 1.3)
)
RATIO_HIGH = dict.fromkeys(("AllDiff", "DiffData"), (0.9, 1.1)) | dict.fromkeys(("DiffInit", "DiffOrder"), (0.7, 1.3))
CORRELATED = 0.85  # what R² and τ generally exceed
# Tables 4 and 5: without augmentation, with it, and of both together.
TABLES = {"r_squared": "table 4", "kendall_tau": "table 5"}
CORRELATIONS = {
  "r_squared": {
    "AllDiff": (0.888, 0.984, 0.986),
    "DiffData": (0.977, 0.963, 0.998),
    "DiffInit": (0.923, 0.881, 0.983),
    "DiffOrder": (0.728, 0.737, 0.941),
  },
  "kendall_tau": {
    "AllDiff": (0.752, 0.829, 0.899),
    "DiffData": (0.891, 0.891, 0.948),
    "DiffInit": (0.771, 0.650, 0.858),
    "DiffOrder": (0.582, 0.626, 0.807),
  },
}
DEVIATION = {1: Printed("0.112", "appendix D.9"), 4: Printed("0.034", "appendix D.9")}  # of equation 63, by pairs


class Ensemble(NamedTuple):
  """A row of table 1 or 3: of 100 ResNet-18, each trained on 10,000 examples until it makes no training error."""

  error: tuple[float, float]  # mean and standard deviation over runs
  disagreement: tuple[float, float]  # mean and standard deviation over pairs
  gap: float
  cace: Mapping[int, float]  # by number of runs
  ece: float


ENSEMBLES = {
  "table 1": {  # CIFAR-10
    "AllDiff": Ensemble((0.336, 0.015), (0.348, 0.015), 0.012, {2: 0.4244, 5: 0.2064, 100: 0.0437}, 0.0197),
    "DiffData": Ensemble((0.341, 0.020), (0.354, 0.020), 0.013, {2: 0.4411, 5: 0.2242, 100: 0.0491}, 0.0267),
    "DiffInit": Ensemble((0.337, 0.017), (0.307, 0.022), 0.030, {2: 0.4495, 5: 0.2776, 100: 0.0979}, 0.0360),
    "DiffOrder": Ensemble((0.335, 0.017), (0.302, 0.020), 0.033, {2: 0.4594, 5: 0.2782, 100: 0.1014}, 0.0410),
  },
  "table 3": {  # CIFAR-100; the gap of DiffData is not that of its error and disagreement, 0.0156
    "AllDiff": Ensemble((0.679, 0.0098), (0.6947, 0.0076), 0.0157, {100: 0.1300}, 0.0469),
    "DiffData": Ensemble((0.682, 0.0110), (0.6976, 0.0074), 0.0150, {100: 0.1354}, 0.0503),
    "DiffInit": Ensemble((0.681, 0.0100), (0.5945, 0.0127), 0.0865, {100: 0.3816}, 0.1400),
    "DiffOrder": Ensemble((0.679, 0.0097), (0.5880, 0.0103), 0.0910, {100: 0.3926}, 0.1449),
  },
}
