"""How the cost of a campaign grows with the number of its blocks.

    python -m experiments.reliability.growth                            (10 minutes on two CPU cores)

A task that costs next to nothing is trained in blocks of a few runs, so that what is
measured is what a block costs beside its training: seconds of each command, in a process
of its own, without imports. The last row has the exponents of a power law through the
smallest and the largest number.
"""

import dataclasses
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import arg

import vmapseeds as vs
from vmapseeds import cli
from vmapseeds.mistakes import at_least

EXAMPLES, CLASSES = 100, 10
LABELS = np.arange(EXAMPLES) % CLASSES
COMMANDS = ("train", "open", "report", "verify", "resume", "extend", "merge")


@dataclasses.dataclass(frozen=True)
class Flags:
  blocks: Annotated[tuple[int, ...], arg(metavar="N")] = (300, 1000, 3000)
  """numbers of blocks"""

  block_runs: Annotated[int, arg(metavar="N")] = 4
  """runs of a block"""


def start(data, run):
  return jax.random.uniform(run.key("init"), (EXAMPLES,))


def advance(data, run, state, first, last):
  return state


def finish(data, run, state):
  wrong = (state < 0.1).astype(jnp.int32)
  predictions = ((data["labels"] + wrong) % CLASSES).astype(jnp.int8)
  return {"test/predictions": predictions}


guesses = vs.Task(
  name="guesses",
  start=start,
  advance=advance,
  finish=finish,
  data={"labels": LABELS},
  rounds=1,
  sources=("init",),
  outputs={
    "test/predictions": vs.Output(
      ("example",), role="class", labels=LABELS, num_classes=CLASSES
    )
  },
)


def command(name: str, folder: Path, runs: int, block_runs: int) -> None:
  """Run one command on the folder."""
  out = folder / "r"
  how = dict(seed_batch=block_runs, lane_width=1, lowering="sequential", progress=False)
  if name in ("train", "resume", "extend"):
    more = runs + block_runs * (name == "extend")
    vs.train(guesses, vs.Runs.independent(more), out, **how)
  elif name == "open":
    vs.open_results(out).accuracy.values.mean()
  elif name == "report":
    vs.tally(out)
    vs.open_results(out).accuracy.load()
  elif name == "verify":
    assert not vs.verify(out).problems
  elif name == "merge":
    vs.merge([out], folder / "merged", progress=False)


def measure(name: str, folder: Path, runs: int, block_runs: int) -> tuple[float, float]:
  """Return seconds and MB of peak memory of a command, in a process of its own, after
  imports.
  """
  code = (
    "import time, resource, jax, pathlib; jax.devices()\n"
    "from experiments.reliability import growth as g\n"
    "import vmapseeds.campaign.loop, vmapseeds.results.merging\n"
    "began = time.perf_counter()\n"
    f"g.command({name!r}, pathlib.Path({str(folder)!r}), {runs}, {block_runs})\n"
    "print(time.perf_counter() - began,"
    " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
  )
  said = subprocess.run(
    [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
  ).stdout
  seconds, memory = map(float, said.split()[-2:])
  return seconds, memory


def exponent(first: tuple[float, float], last: tuple[float, float]) -> float:
  """Return the exponent of the power law through two points (blocks, seconds).

  >>> exponent((10, 3), (1000, 300))
  1.0
  """
  return math.log(last[1] / first[1]) / math.log(last[0] / first[0])


def main(argv: list[str] | None = None) -> None:
  """Print the table."""
  with cli.mistakes():
    flags = cli.parse(Flags, argv, prog="python -m experiments.reliability.growth")
    for count in (*flags.blocks, flags.block_runs):
      at_least("a number of blocks or runs", count, 1)
  table: dict[int, dict[str, tuple[float, float]]] = {}
  print("| blocks | " + " | ".join(COMMANDS) + " | MB at most |")
  print("|---" * (len(COMMANDS) + 2) + "|")
  for blocks in flags.blocks:
    with tempfile.TemporaryDirectory() as folder:
      of = (Path(folder), blocks * flags.block_runs, flags.block_runs)
      table[blocks] = {name: measure(name, *of) for name in COMMANDS}
    seconds = " | ".join(f"{table[blocks][name][0]:.2f}" for name in COMMANDS)
    memory = max(megabytes for _, megabytes in table[blocks].values())
    print(f"| {blocks:,} | {seconds} | {memory:.0f} |", flush=True)
  if len(flags.blocks) > 1:
    ends = min(flags.blocks), max(flags.blocks)
    exponents = (
      exponent(*((blocks, table[blocks][name][0]) for blocks in ends))
      for name in COMMANDS
    )
    print("| exponent | " + " | ".join(f"{e:.2f}" for e in exponents) + " | |")


if __name__ == "__main__":
  main()
