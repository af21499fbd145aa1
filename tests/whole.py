"""Whole programs, run at toy sizes: in the tests' process, or as
`python tests/whole.py PROGRAM ARGUMENT ...` in one of their own.

`VMAPSEEDS_RUNS` says how many runs of each combination of swept values the programs of
docs/programs train, and how many the notebooks: few in the tests, by default, but as
many as a comparison takes. With 0 the programs train what they say.
"""

import os
import runpy
import sys

import numpy as np
import pytest

import vmapseeds as vs

RUNS = int(os.environ.get("VMAPSEEDS_RUNS", "6"))


def trained(runs: int, few: int = RUNS) -> int:
  """Return how many of a program's `runs` of each combination are trained."""
  return min(runs, few) if RUNS else runs


def toy_table(table: vs.Runs | int, runs: int = RUNS) -> vs.Runs:
  """Return the first runs of each combination of swept values; all of them for 0."""
  if isinstance(table, int):
    table = vs.Runs.independent(table)
  swept = [table.values[name] for name in table.swept()]
  combinations = list(zip(*swept, strict=True)) if swept else [()] * len(table)
  rows, counts = [], {}
  for row, combination in enumerate(combinations):
    counts[combination] = counts.get(combination, 0) + 1
    if runs == 0 or counts[combination] <= runs:
      rows.append(row)
  return table[np.array(rows)]


def train_with_few_runs(runs: int = RUNS):
  """Return `vs.train` with few runs, of which no widths are measured."""
  train = vs.train

  def train_few(recipe, table, *args, **options):
    if RUNS:
      options = {"lane_width": 2, "lowering": "sequential"} | options
    return train(recipe, toy_table(table, runs), *args, **options)

  return train_few


def run_program(path: str, *argv: str, runs: int = RUNS) -> None:
  """Run a program as Python runs a file that it is given, with few runs, of which no
  widths are measured.
  """
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(vs, "train", train_with_few_runs(runs))
    patch.setattr(sys, "argv", [path, *argv])
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
  run_program(*sys.argv[1:])
