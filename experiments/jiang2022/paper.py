"""The printed values, with their places."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.estimates import Stated

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
# Eq. 63, by number of pairs
DEVIATION = {1: ("0.112", "appendix D.9"), 4: ("0.034", "appendix D.9")}


class PrintedEnsemble(NamedTuple):
  """A row of table 1 or 3: of 100 ResNet-18, each trained on 10,000 examples until it
  makes no training error.
  """

  error: tuple[float, float]  # mean and standard deviation over runs
  disagreement: tuple[float, float]  # mean and standard deviation over pairs
  gap: float
  cace: Mapping[int, float]  # by number of runs
  ece: float


def _ensembles(sizes: tuple[int, ...], table: str) -> dict[str, PrintedEnsemble]:
  """Read a table, a line for each group: error, its sd, disagreement, its sd, gap, CACE
  of ensembles of some sizes, and ECE.
  """
  by_group = {}
  for line in table.strip().splitlines():
    group, *numbers = line.split()
    error, error_sd, disagreement, disagreement_sd, gap, *cace, ece = map(
      float, numbers
    )
    spreads = (error, error_sd), (disagreement, disagreement_sd)
    by_group[group] = PrintedEnsemble(
      *spreads, gap, dict(zip(sizes, cace, strict=True)), ece
    )
  return by_group


_CIFAR10 = """
AllDiff    0.336  0.015  0.348  0.015  0.012  0.4244  0.2064  0.0437  0.0197
DiffData   0.341  0.02   0.354  0.02   0.013  0.4411  0.2242  0.0491  0.0267
DiffInit   0.337  0.017  0.307  0.022  0.03   0.4495  0.2776  0.0979  0.036
DiffOrder  0.335  0.017  0.302  0.02   0.033  0.4594  0.2782  0.1014  0.041
"""
# The gap of DiffData is not that of its error and disagreement, 0.0156.
_CIFAR100 = """
AllDiff    0.679  0.0098  0.6947  0.0076  0.0157  0.13    0.0469
DiffData   0.682  0.011   0.6976  0.0074  0.015   0.1354  0.0503
DiffInit   0.681  0.01    0.5945  0.0127  0.0865  0.3816  0.14
DiffOrder  0.679  0.0097  0.588   0.0103  0.091   0.3926  0.1449
"""
ENSEMBLES = {
  "table 1": _ensembles((2, 5, 100), _CIFAR10),
  "table 3": _ensembles((100,), _CIFAR100),
}


SYMBOLS = {"r_squared": "R²", "kendall_tau": "Kendall's τ"}
SETS = ("without augmentation", "with augmentation", "both")  # of `CORRELATIONS`
BANDS = {"": RATIO | RATIO_SAME_DATA, "high ": RATIO_HIGH}
PLACES = dict.fromkeys(RATIO, "section 3") | {
  "SameData": "appendix D.6, as DiffData and DiffInit"
}
STATED = {
  f"{high}ratio {group}": Stated(
    "error over disagreement" + ", high errors" * bool(high),
    (f"{low:g} to {most:g}", PLACES[group]),
  )
  for high, bands in BANDS.items()
  for group, (low, most) in bands.items()
}
STATED |= {
  f"ratio {group}": Stated(
    "error over disagreement", (f"{low:g} to {most:g}", PLACES[group])
  )
  for group, (low, most) in RATIO.items()
}
# Fully connected networks on 2,000 examples "recover" what section 3 says of others:
# runs on the same data disagree slightly too seldom, on other data slightly too often.
STATED |= {
  f"connected {group}": Stated(
    "error over disagreement of fully connected networks",
    (f"{low:g} to {most:g}", "appendix D.3, by section 3's lines"),
  )
  for group, (low, most) in (RATIO | {"SameData": (1.0, 1.3)}).items()
}
STATED |= {
  name: Stated(
    f"{symbol} of error and disagreement",
    ("generally above 0.85; DiffOrder's τ 0.807 in table 5", "section 3"),
  )
  for name, symbol in SYMBOLS.items()
}
STATED |= {
  f"{name} {group} {augmentation}": Stated(
    f"{SYMBOLS[name]} of {TABLES[name]}", (f"{value:.3f}", TABLES[name])
  )
  for name, by_group in CORRELATIONS.items()
  for group, values in by_group.items()
  for augmentation, value in zip(SETS, values, strict=True)
}
STATED |= {
  "own domain": Stated(
    "disagreement over error on the domain trained on",
    ("within 19 % of the error", "table 2, not pretrained"),
  ),
  "other domain": Stated(
    "error less disagreement on another domain", ("above 0", "table 2, not pretrained")
  ),
  "calibrated": Stated(
    "distance of a calibration curve from y = x, within the width of a bin",
    ("close to y = x", "section 5"),
  ),
  "gap below CACE": Stated(
    "CACE of 10 bins less the gap of distinct runs",
    ("gap below CACE", "appendix D.1, table 2"),
  ),
  "gap and CACE": Stated(
    "R² of gap and CACE over transfers",
    ("0.66: of 16 printed rows, columns put right", "appendix D.1, table 2"),
  ),
  "deviates": Stated(
    "deviation of fully connected networks on many examples, less that on few",
    ("deviates from y = x", "appendix D.3"),
  ),
  "does not deviate": Stated(
    "error over disagreement of other networks", ("near y = x", "appendix D.3")
  ),
  "beta": Stated(
    "distance of error counts from a Beta distribution", ("fit well", "appendix D.4")
  ),
  "some examples": Stated(
    "examples neither easy nor guessed, or of another disagreement than error",
    ("a significant fraction", "section 4, appendix D.4"),
  ),
  "few confidences": Stated(
    "pairs with a confidence above 0.8, less those from 0.4 to 0.6",
    ("fewest in the middle", "appendices C.2.1 and D.5"),
  ),
  "classes": Stated(
    "mean squared distance of single classes from all together, less noise",
    ("a lot more variance", "appendix D.7"),
  ),
  "pairs": Stated(
    "mean deviation of the mean of 4 pairs over that of 1",
    ("0.30", "appendix D.9: 0.034 over 0.112"),
  ),
  "few runs": Stated(
    "CACE of few runs less that of a calibrated law",
    ("poorly calibrated", "section 5, table 1"),
  ),
  "CACE of the same data": Stated(
    "CACE of DiffInit and DiffOrder over that of AllDiff and DiffData",
    ("2 to 3", "section 5"),
  ),
  "gap of the same data": Stated(
    "gap of DiffInit and DiffOrder over that of AllDiff and DiffData",
    ("2.5: it parallels CACE", "section 5, table 1"),
  ),
  "gap if calibrated": Stated(
    "gap with labels drawn from the votes", ("0", "theorems 4.1 and B.1")
  ),
  "theorem 4.2": Stated(
    "CACE at exact levels less the gap, with pairs of a run with itself",
    ("gap at most CACE", "theorem 4.2"),
  ),
  "corollary": Stated(
    "the bound of the sd of disagreement over it",
    ("at most the bound", "corollary B.1.1"),
  ),
  "variances": Stated(
    "sd of disagreement over sd of error", ("about 1", "appendix B.2, table 1")
  ),
}
