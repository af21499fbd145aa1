"""The printed values, with their places."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.frame import Printed

# Section 3: the range in which the scatter plots' ratios of error to disagreement
# mostly lie; HIGH: for high errors.
RATIO = dict.fromkeys(("AllDiff", "DiffData"), (0.9, 1.0)) | dict.fromkeys(
  ("DiffInit", "DiffOrder"), (1.0, 1.3)
)
# Appendix D.6: much as pairs that differ in their data, and as pairs that differ in
# their initialisation.
RATIO_SAME_DATA = {"SameData": (0.9, 1.3)}
RATIO_HIGH = dict.fromkeys(("AllDiff", "DiffData"), (0.9, 1.1)) | dict.fromkeys(
  ("DiffInit", "DiffOrder"), (0.7, 1.3)
)
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
DEVIATION = {
  1: Printed("0.112", "appendix D.9"),
  4: Printed("0.034", "appendix D.9"),
}  # eq. 63, by number of pairs


class Ensemble(NamedTuple):
  """A row of table 1 or 3: of 100 ResNet-18, each trained on 10,000 examples until it
  makes no training error.
  """

  error: tuple[float, float]  # mean and standard deviation over runs
  disagreement: tuple[float, float]  # mean and standard deviation over pairs
  gap: float
  cace: Mapping[int, float]  # by number of runs
  ece: float


ENSEMBLES = {
  "table 1": {  # CIFAR-10
    "AllDiff": Ensemble(
      (0.336, 0.015), (0.348, 0.015), 0.012, {2: 0.4244, 5: 0.2064, 100: 0.0437}, 0.0197
    ),
    "DiffData": Ensemble(
      (0.341, 0.020), (0.354, 0.020), 0.013, {2: 0.4411, 5: 0.2242, 100: 0.0491}, 0.0267
    ),
    "DiffInit": Ensemble(
      (0.337, 0.017), (0.307, 0.022), 0.030, {2: 0.4495, 5: 0.2776, 100: 0.0979}, 0.0360
    ),
    "DiffOrder": Ensemble(
      (0.335, 0.017), (0.302, 0.020), 0.033, {2: 0.4594, 5: 0.2782, 100: 0.1014}, 0.0410
    ),
  },
  # CIFAR-100; the gap of DiffData is not that of its error and disagreement, 0.0156
  "table 3": {
    "AllDiff": Ensemble(
      (0.679, 0.0098), (0.6947, 0.0076), 0.0157, {100: 0.1300}, 0.0469
    ),
    "DiffData": Ensemble(
      (0.682, 0.0110), (0.6976, 0.0074), 0.0150, {100: 0.1354}, 0.0503
    ),
    "DiffInit": Ensemble(
      (0.681, 0.0100), (0.5945, 0.0127), 0.0865, {100: 0.3816}, 0.1400
    ),
    "DiffOrder": Ensemble(
      (0.679, 0.0097), (0.5880, 0.0103), 0.0910, {100: 0.3926}, 0.1449
    ),
  },
}


class Shifted(NamedTuple):
  """A row of table 2: 5 pairs of runs trained on one domain of PACS and tested on
  another.
  """

  error: float
  disagreement: float
  gap: float
  cace: float


# By the domain trained on, then the domain tested on, both in the order art, cartoon,
# photo, sketch. The table has gap and CACE exchanged where networks that are not
# pretrained were trained on photos; it prints 0.1282 as 0.12821.
TABLE2 = {
  "pretrained": (
    (
      (0.0518, 0.0685, 0.0166, 0.0505),
      (0.3229, 0.2524, 0.0705, 0.2577),
      (0.0509, 0.0592, 0.0082, 0.0335),
      (0.3871, 0.3639, 0.0231, 0.2374),
    ),
    (
      (0.2555, 0.2534, 0.0020, 0.1121),
      (0.0303, 0.0380, 0.0077, 0.0308),
      (0.1361, 0.1327, 0.0034, 0.0580),
      (0.2672, 0.2398, 0.0273, 0.1322),
    ),
    (
      (0.3315, 0.2649, 0.0666, 0.2943),
      (0.6721, 0.2100, 0.4621, 1.0725),
      (0.0245, 0.0322, 0.0076, 0.0460),
      (0.7180, 0.2497, 0.4683, 0.8507),
    ),
    (
      (0.5187, 0.4144, 0.1042, 0.4274),
      (0.3064, 0.2557, 0.0506, 0.2069),
      (0.5203, 0.2908, 0.2295, 0.5245),
      (0.0443, 0.0460, 0.0016, 0.0389),
    ),
  ),
  "not pretrained": (
    (
      (0.3821, 0.3545, 0.0276, 0.2021),
      (0.6337, 0.4764, 0.1573, 0.6267),
      (0.4443, 0.3161, 0.1282, 0.4778),
      (0.6517, 0.5513, 0.1004, 0.5169),
    ),
    (
      (0.6911, 0.4186, 0.2725, 0.8669),
      (0.1910, 0.1817, 0.0092, 0.0981),
      (0.6, 0.4070, 0.1929, 0.6207),
      (0.6084, 0.5072, 0.1012, 0.4767),
    ),
    (
      (0.6899, 0.4301, 0.2598, 0.8119),
      (0.7293, 0.4431, 0.2862, 0.8905),
      (0.2281, 0.1868, 0.0413, 0.1791),
      (0.7823, 0.2388, 0.5435, 0.7954),
    ),
    (
      (0.8110, 0.6042, 0.2068, 0.9540),
      (0.6215, 0.4882, 0.1332, 0.5785),
      (0.8204, 0.4868, 0.3335, 0.9615),
      (0.1066, 0.0989, 0.0076, 0.0601),
    ),
  ),
}


def table2(kind: str) -> list[list[Shifted]]:
  """The rows of "pretrained" or "not pretrained" networks, by the domains trained on
  and tested on.
  """
  return [[Shifted(*row) for row in rows] for rows in TABLE2[kind]]
