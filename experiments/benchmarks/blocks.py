"""What a block of runs costs beside its training: seconds and files of new blocks in a
new folder and in one of many blocks.

    python -m experiments.benchmarks.blocks

The training is as good as none, so what is measured is the claim, the look at what is
done, the writing and the record.
"""

import dataclasses
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated
from unittest import mock

import jax
import jax.numpy as jnp
from rich.table import Table
from tyro.conf import arg

import vmapseeds as vs
from experiments.benchmarks.common import Count, check_counts
from experiments.frame import show
from vmapseeds.cli import mistakes, parse
from vmapseeds.mistakes import at_least

SOURCES = ("init", "order", "augment", "dropout", "noise")
OPTIONS = dict(seed_batch=1, lane_width=1, lowering="sequential", progress=False)


@dataclasses.dataclass(frozen=True)
class Flags:
  """How many blocks there are before, and how many are added."""

  before: Annotated[tuple[int, ...], arg(metavar="N")] = (1, 3000)
  """blocks of one run that a folder has already"""

  new: Count = 100
  """blocks that are timed"""


def finish(data, run, state):
  """Returns as many arrays as a classifier's campaign keeps."""
  drawn = sum(jax.random.normal(run.key(source)) for source in SOURCES)
  return {"answers": jnp.full(797, drawn), "a": drawn, "b": drawn, "c": drawn}


TASK = vs.Task(
  name="nothing",
  start=lambda data, run: jnp.zeros(()),
  advance=lambda data, run, state, first, last: state,
  finish=finish,
  rounds=1,
  sources=SOURCES,
)


def main(argv: list[str] | None = None) -> None:
  """Prints a table."""
  table = Table("blocks before", "seconds of new blocks", "ms a block", "files a block")
  with mistakes():
    flags = parse(Flags, argv, prog="python -m experiments.benchmarks.blocks")
    check_counts(flags)
    for count in flags.before:
      at_least("--before", count, 1)
    for before in flags.before:
      with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "r")
        with mock.patch.object(os, "fsync"):  # the folder is only needed to be there
          vs.train(TASK, before, out, **OPTIONS)
        files, began = _files(out), time.perf_counter()
        vs.train(TASK, before + flags.new, out, **OPTIONS)
        seconds = time.perf_counter() - began
        table.add_row(
          str(before),
          f"{seconds:.2f}",
          f"{1e3 * seconds / flags.new:.1f}",
          f"{(_files(out) - files) / flags.new:.1f}",
        )
  show(table)


def _files(folder: Path) -> int:
  return sum(len(files) for _, _, files in os.walk(folder))


if __name__ == "__main__":
  main()
