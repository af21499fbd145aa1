"""Jiang 2022, figure 2: on SVHN, the disagreement of two runs is nearly the test error
of one.

Each point is a pair of runs of one configuration of hyperparameters: x is how often the
two differ on the test set, y is the error of the first. A group is named after what its
pairs differ in.
"""

import functools

from experiments.jiang2022 import scatter
from experiments.jiang2022.scatter import plot  # noqa: F401

TITLE = "Figure 2: test error against disagreement, the paper's on SVHN"
PANELS = 4
MISSING = "SVHN is trained on at the scales gpu and paper; at laptop 500 examples of MNIST stand for it, at smoke digits"


compute = functools.partial(scatter.compute, data="svhn")
rows = scatter.rows
