"""Jiang 2022, figure 2: on SVHN, the disagreement of two runs is nearly the test error
of one.

Each point is a pair of runs of one configuration of hyperparameters: x is how often the
two differ on the test set, y is the error of the first. A group is named after what its
pairs differ in.
"""

from collections.abc import Mapping

from experiments import frame
from experiments.frame import Row, Trained
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.scatter import Found, plot  # noqa: F401

TITLE = "Figure 2: test error against disagreement on SVHN"
PANELS = 4
MISSING = "SVHN is trained on at the scales gpu and paper; at laptop 500 examples of MNIST stand for it, at smoke digits"


def compute(trained: Trained) -> dict[str, Found]:
  return scatter.compute(trained, "svhn")


def rows(numbers: Mapping[str, Found]) -> list[Row]:
  return scatter.rows(numbers, paper.RATIO)


if __name__ == "__main__":
  frame.main(__file__)
