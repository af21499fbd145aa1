"""Jiang 2022, table 5: Kendall's τ of test error and disagreement on CIFAR-10, with and
without augmentation.
"""

import numpy as np

from experiments import frame
from experiments.frame import Row
from experiments.jiang2022 import table4_r_squared as table4
from experiments.jiang2022.table4_r_squared import Numbers, compute  # noqa: F401

TITLE = "Table 5: Kendall's τ of test error and disagreement"


def rows(numbers: Numbers) -> list[Row]:
  return table4.rows(numbers, "kendall_tau")


def plot(numbers: Numbers, axes: np.ndarray) -> None:
  table4.plot(numbers, axes, "kendall_tau")


if __name__ == "__main__":
  frame.main(__file__)
