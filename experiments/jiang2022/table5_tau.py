"""Jiang 2022, table 5: Kendall's τ of test error and disagreement on CIFAR-10, with and
without augmentation.
"""

import functools

from experiments.jiang2022 import table4_r_squared as table4
from experiments.jiang2022.table4_r_squared import compute  # noqa: F401

TITLE = "Table 5: Kendall's τ of test error and disagreement"

rows = functools.partial(table4.rows, name="kendall_tau")
plot = functools.partial(table4.plot, name="kendall_tau")
