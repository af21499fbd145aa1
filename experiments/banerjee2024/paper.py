"""The printed values.

Churn is printed in examples. Here it is divided by 8,018, as the printed accuracies are
fractions of that number; the text says 8,000.
"""

from typing import NamedTuple

TESTED = 8_018


class Varied(NamedTuple):
  """Mean and standard deviation over ensembles."""

  mean: float
  sd: float


class Ensembles(NamedTuple):
  """A line of table 1."""

  small: float  # share with α̂ ≤ 0.05
  accuracy: Varied
  churn: Varied
  ece: Varied


class Source(NamedTuple):
  """A line of tables 2 and 3. Ranges are from least to largest; the second of two is
  where α̂ is small.
  """

  accuracy: Varied
  accuracies: tuple[float, float]
  accuracies_small: tuple[float, float]
  of_ensemble: float
  churn: tuple[float, float]  # of pairs
  churn_small: tuple[float, float]  # S_all's lies partly outside its full range


def _line(small: float, accuracy: tuple, churn: tuple, ece: tuple) -> Ensembles:
  return Ensembles(
    small, Varied(*accuracy), Varied(*(x / TESTED for x in churn)), Varied(*ece)
  )


ENSEMBLES = {  # by number of members
  3: _line(0.7720, (0.9185, 0.0025), (190.79, 33.90), (0.0226, 0.0048)),
  5: _line(0.8920, (0.9203, 0.0018), (145.70, 28.61), (0.0200, 0.0037)),
  10: _line(0.9680, (0.9211, 0.0014), (103.57, 22.50), (0.0185, 0.0023)),
  20: _line(0.9940, (0.9217, 0.0011), (76.97, 17.23), (0.0175, 0.0016)),
  30: _line(1.0, (0.9221, 0.0010), (62.84, 12.45), (0.0171, 0.0014)),
  70: _line(1.0, (0.9222, 0.0008), (43.45, 9.64), (0.0168, 0.0012)),
  100: _line(1.0, (0.9223, 0.0008), (38.59, 9.08), (0.0169, 0.0012)),
  150: _line(1.0, (0.9223, 0.0007), (32.75, 7.42), (0.0169, 0.0011)),
  200: _line(1.0, (0.9224, 0.0007), (29.3, 6.91), (0.0169, 0.0011)),
}


def _source(
  accuracy: tuple,
  accuracies: tuple,
  small: tuple,
  of_ensemble: float,
  churn: tuple,
  churn_small: tuple,
):
  fractions = (tuple(x / TESTED for x in ends) for ends in (churn, churn_small))
  return Source(Varied(*accuracy), accuracies, small, of_ensemble, *fractions)


SOURCES = {
  "S_init": _source(
    (0.91101, 0.00302),
    (0.90422, 0.91781),
    (0.90422, 0.91781),
    0.91731,
    (270, 481),
    (270, 481),
  ),
  "S_batch": _source(
    (0.90819, 0.00554),
    (0.87852, 0.91843),
    (0.90409, 0.91843),
    0.91731,
    (218, 1174),
    (283, 467),
  ),
  "S_all": _source(
    (0.90810, 0.00560),
    (0.88513, 0.91769),
    (0.90409, 0.91769),
    0.92361,
    (327, 1184),
    (283, 462),
  ),
}
