"""Jiang 2022, figure 1: on CIFAR-10, the disagreement of two runs is nearly the test
error of one.

Each point is a pair of runs of one configuration of hyperparameters: x is how often the
two differ on the test set, y is the error of the first. A group is named after what its
pairs differ in.
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
