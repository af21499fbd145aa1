"""The printed values, with their places."""

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
