"""The printed values.

Churn is printed in examples. Here it is divided by 8,018, as the printed accuracies are
fractions of that number; the text says 8,000.
"""

from collections.abc import Sequence
from typing import NamedTuple

from experiments.estimates import Stated

TESTED = 8_018


class Varied(NamedTuple):
  """Mean and standard deviation over ensembles."""

  mean: float
  sd: float


class PrintedEnsembles(NamedTuple):
  """A line of table 1."""

  small: float  # share with α̂ ≤ 0.05
  accuracy: Varied
  churn: Varied
  ece: Varied


class PrintedSource(NamedTuple):
  """A line of tables 2 and 3. Ranges are from least to largest; the second of two is
  where α̂ is small.
  """

  accuracy: Varied
  accuracies: tuple[float, float]
  accuracies_small: tuple[float, float]
  of_ensemble: float
  churn: tuple[float, float]  # of pairs
  churn_small: tuple[float, float]  # S_all's lies partly outside its full range


# Members, share with α̂ ≤ 0.05, then mean and sd of accuracy, churn in examples, ECE.
_TABLE1 = """
3    0.7720  0.9185  0.0025  190.79  33.90  0.0226  0.0048
5    0.8920  0.9203  0.0018  145.70  28.61  0.0200  0.0037
10   0.9680  0.9211  0.0014  103.57  22.50  0.0185  0.0023
20   0.9940  0.9217  0.0011   76.97  17.23  0.0175  0.0016
30   1.0     0.9221  0.0010   62.84  12.45  0.0171  0.0014
70   1.0     0.9222  0.0008   43.45   9.64  0.0168  0.0012
100  1.0     0.9223  0.0008   38.59   9.08  0.0169  0.0012
150  1.0     0.9223  0.0007   32.75   7.42  0.0169  0.0011
200  1.0     0.9224  0.0007   29.3    6.91  0.0169  0.0011
"""
# Mean and sd of accuracy; least and largest accuracy, of all and where α̂ is small;
# accuracy of the ensemble; least and largest churn in examples, likewise.
_TABLES2_3 = """
S_init   0.91101 0.00302  0.90422 0.91781  0.90422 0.91781  0.91731  270  481  270 481
S_batch  0.90819 0.00554  0.87852 0.91843  0.90409 0.91843  0.91731  218 1174  283 467
S_all    0.90810 0.00560  0.88513 0.91769  0.90409 0.91769  0.92361  327 1184  283 462
"""

# Accuracy, ECE, churn with the ensemble and mean churn in examples, α̂ of networks alike
# in accuracy: nine of S_all, and five last layers of a pretrained transformer.
_TABLE11 = """
0.91519 0.021 280 458.61 0.005
0.91769 0.023 318 476.95 0.021
0.91569 0.026 376 513.83 0.134
0.91556 0.029 307 476.35 0.027
0.91382 0.030 371 482.45 0.024
0.91581 0.026 265 459.37 0.005
0.91157 0.030 309 475.91 0.016
0.91108 0.028 297 472.15 0.002
0.91182 0.038 425 552    0.201
"""
_TABLE14 = """
0.9930 0.002 30 48.33 0.026
0.9925 0.003 28 49.44 0.118
0.9920 0.001 24 45.88 0.007
0.9920 0.002 26 44.82 0.004
0.9920 0.001 34 47.97 0.069
"""


def _alike(table: str) -> list[tuple[float, ...]]:
  """Lines of table 11 or 14 as fractions, the most accurate first."""
  lines = (tuple(map(float, line.split())) for line in table.strip().splitlines())
  return sorted(
    (
      (a, ece, churn / TESTED, mean / TESTED, level)
      for a, ece, churn, mean, level in lines
    ),
    reverse=True,
  )


def _rows(table: str) -> dict[str, list[float]]:
  lines = (line.split() for line in table.strip().splitlines())
  return {name: [*map(float, numbers)] for name, *numbers in lines}


def _pairs(numbers: Sequence[float]) -> list[tuple[float, float]]:
  return list(zip(numbers[::2], numbers[1::2], strict=True))


def _ensembles(small: float, *metrics: float) -> PrintedEnsembles:
  accuracy, churn, ece = _pairs(metrics)
  fractions = [x / TESTED for x in churn]
  return PrintedEnsembles(small, Varied(*accuracy), Varied(*fractions), Varied(*ece))


ENSEMBLES = {
  int(members): _ensembles(*numbers) for members, numbers in _rows(_TABLE1).items()
}
SOURCES = {
  name: PrintedSource(
    Varied(*numbers[:2]),
    *_pairs(numbers[2:6]),
    numbers[6],
    *_pairs([x / TESTED for x in numbers[7:]]),
  )
  for name, numbers in _rows(_TABLES2_3).items()
}
TABLE11, TABLE14 = map(_alike, (_TABLE11, _TABLE14))
FEWEST = min(ENSEMBLES)
MOST = max(ENSEMBLES)
STATED = {
  "small": Stated(
    "share of ensembles of 30 with a small α̂", ("100 %", "table 1, section 5.1.2")
  ),
  "within": Stated("share of ensembles of 100 within δ_a", ("100 %", "section 5.1.1")),
  "order": Stated(
    "variance of accuracy with another order over that with another initialisation",
    ("3.4", "table 2: sd 0.554 over 0.302 %"),
  ),
  "accuracies": Stated(
    "runs less accurate than all with a small α̂", ("some", "table 2")
  ),
  "churns": Stated(
    "runs with a larger mean churn than all with a small α̂",
    ("some", "table 3: of pairs"),
  ),
  "partial": Stated(
    "rank correlation of α̂ with another metric at equal accuracy",
    ("above 0", "section 5.2.3, figure 11"),
  ),
  "plateau": Stated(
    "accuracy at the end less that after three fifths of the epochs",
    ("0: it stops increasing", "figure 3, right"),
  ),
  "overconfident": Stated(
    "ECE of the more accurate half at the end less that after a fifth of the epochs",
    ("+1 %", "figure 16: .01 to .02, then .02 to .03"),
  ),
  "departs": Stated(
    "churn of the more accurate half with the ensemble at the end less that after a fifth",
    ("+1.3 %", "figure 16: 180 to 250, then 250 to 400"),
  ),
  "calibrated": Stated(
    "ECE of the ensemble at the end less that of its members", ("below 0", "figure 16")
  ),
  "uncertain": Stated(
    "share of small logit gaps of the ensemble less its members'",
    ("fewer", "figure 3, left"),
  ),
  "extreme": Stated(
    "share of large logit gaps of the ensemble less its members'",
    ("fewer", "figure 3, left"),
  ),
  "transfer": Stated(
    "variance of accuracy of last layers over that of whole networks",
    ("less", "section 5.3"),
  ),
  "tau": Stated("τ of α̂ with how bad a run is", ("above 0", "figures 7 and 9")),
}
STATED |= {
  f"sd of {metric}": Stated(
    "sd over ensembles of the largest size over that of the smallest",
    (f"{ratio:.2f} of {MOST} over {FEWEST}", "table 1"),
  )
  for metric in ("accuracy", "churn", "ece")
  for ratio in [
    getattr(ENSEMBLES[MOST], metric).sd / getattr(ENSEMBLES[FEWEST], metric).sd
  ]
}
