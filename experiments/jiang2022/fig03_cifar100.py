"""Jiang 2022, figure 3: on CIFAR-100, the disagreement of two runs is nearly the test
error of one.

Each point is a pair of runs of one configuration of hyperparameters: x is how often the
two differ on the test set, y is the error of the first. A group is named after what its
pairs differ in.
"""

import functools

from experiments.jiang2022 import scatter
from experiments.jiang2022.scatter import plot  # noqa: F401

TITLE = "Figure 3: test error against disagreement, the paper's on CIFAR-100"
PANELS = 4
MISSING = (
  "CIFAR-100 is trained on at the scales gpu and paper; at laptop a fully connected network on 1,000 examples of "
  "CIFAR-10, which errs about as often, stands for it, at smoke digits"
)


compute = functools.partial(scatter.compute, data="cifar100")
rows = functools.partial(scatter.rows, high="high ")
