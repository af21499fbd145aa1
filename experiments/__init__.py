"""Experiments: one folder a paper, one module a figure or table, each runnable with
`python -m`.
"""

import sys

from vmapseeds.machine import hide_absent_accelerators

# A command, unless it compiles for a GPU that is not here.
if sys.argv[0] == "-m" and not (
  {"h100", "experiments.benchmarks.cost"} & {*sys.orig_argv}
):
  hide_absent_accelerators()
