"""Jiang 2022, table 3: error, disagreement, their gap and calibration errors of
ensembles on CIFAR-100.
"""

import functools

from experiments.jiang2022 import groups
from experiments.jiang2022 import table1_ensembles_cifar10 as table1

TITLE = "Table 3: ensembles, the paper's on CIFAR-100"
PANELS = table1.PANELS
compute = groups.computed("cifar100", table1.measure_ensemble)
rows = functools.partial(table1.rows, where="table 3")
plot = functools.partial(table1.plot, where="table 3")
