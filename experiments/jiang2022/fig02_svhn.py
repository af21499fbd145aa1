"""Jiang 2022, figure 2: on SVHN, the disagreement of two runs is nearly the test error of one.

A point is a configuration of hyperparameters and a pair of runs of it: x how often the two differ on the test set, y
the error of the first. What the two differ in is their group.
"""

from collections.abc import Mapping

from experiments import frame
from experiments.frame import Row, Trained
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.scatter import Found, plot  # noqa: F401

TITLE = "Figure 2: test error against disagreement on SVHN"
PANELS = 4
MISSING = (
  "SVHN is trained on at the scales gpu and paper; at laptop 500 examples of MNIST stand for it, at smoke digits"
)


def compute(trained: Trained) -> dict[str, Found]:
  return scatter.compute(trained, "svhn")


def rows(numbers: Mapping[str, Found]) -> list[Row]:
  return scatter.rows(numbers, paper.RATIO)


if __name__ == "__main__":
  frame.main(__file__)
