"""Jiang 2022, figure 1: on CIFAR-10, the disagreement of two runs is nearly the test error of one.

A point is a configuration of hyperparameters and a pair of runs of it: x how often the two differ on the test set, y
the error of the first. What the two differ in is their group.
"""

from collections.abc import Mapping

from experiments import frame
from experiments.frame import Row, Trained
from experiments.jiang2022 import paper, scatter
from experiments.jiang2022.scatter import Found, plot  # noqa: F401

TITLE = "Figure 1: test error against disagreement on CIFAR-10"
PANELS = 4


def compute(trained: Trained) -> dict[str, Found]:
  return scatter.compute(trained, "cifar10")


def rows(numbers: Mapping[str, Found]) -> list[Row]:
  return scatter.rows(numbers, paper.RATIO, tables=True)


if __name__ == "__main__":
  frame.main(__file__)
