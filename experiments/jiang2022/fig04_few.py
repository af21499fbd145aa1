"""Jiang 2022, figure 4: on 2,000 examples of CIFAR-10, the disagreement of two runs is
nearly the test error of one.

Each point is a pair of runs of one configuration of hyperparameters: x is how often the
two differ on the test set, y is the error of the first. A group is named after what its
pairs differ in.
"""

import functools

from experiments.jiang2022 import scatter
from experiments.jiang2022.scatter import plot  # noqa: F401

TITLE = "Figure 4: test error against disagreement, the paper's on 2,000 examples"
PANELS = 4


compute = functools.partial(scatter.compute, data="few")
rows = functools.partial(scatter.rows, high="high ")
