"""Runs a second of a campaign with all that makes it safe, against a bare loop that
writes nothing. The bar: 97 %.

    python -m experiments.benchmarks.throughput                                            (12 minutes on two CPU cores)

    bare         training and evaluation of all runs in one program, lanes step by step; nothing is written
    campaign     the same runs by `vs.train` into a folder: blocks, claims, checksums, records, syncing, progress
    parameters   with --keep-params
    checkpoints  with --checkpoint-every

Programs are compiled and data loaded before the clock starts. Ways are timed in turn,
round after round, each time into a new folder. If other programs run on the machine,
processor time says more than time.
"""

import dataclasses
import functools
import itertools
import statistics
import tempfile
from pathlib import Path

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Count, Table
from experiments.benchmarks.contenders import significant
from experiments.frame import duration
from vmapseeds import lanes
from vmapseeds.campaign import loop
from vmapseeds.cli import mistakes, overrides
from vmapseeds.training.task import lanes_of


@dataclasses.dataclass(frozen=True)
class Flags(common.RecipeFlags):
  runs: Count = 256
  """runs of the campaign"""

  seed_batch: Count = 64
  """runs a block"""

  checkpoint_every: Count = 8
  """epochs between two checkpoints"""


def measure(
  recipe: vs.Recipe, flags: Flags, folder: Path
) -> dict[str, list[tuple[float, float]]]:
  """For each way, (seconds, processor seconds) of each round."""
  table = vs.Runs.independent(flags.runs)
  ways = {
    "campaign": {},
    "parameters": {"keep_params": True},
    "checkpoints": {"checkpoint_every": flags.checkpoint_every},
  }
  first = loop.open_campaign(
    recipe, table, folder / "first", vs.Options(seed_batch=flags.seed_batch)
  )
  task, how = first.plan.task, first.execution
  shared, rows = loop.on_devices(first.plan), lanes_of(task, table)

  def bare(shared, run):
    data, _ = shared
    return task.finish(
      data, run, task.advance(data, run, task.start(data, run), 0, task.rounds)
    )

  bare_loop = lanes.spread(
    bare, width=how.width, devices=lanes.devices(), lowering=how.lowering
  )
  numbers = itertools.count()

  def campaign(chosen):
    options = vs.Options(
      seed_batch=flags.seed_batch, lane_width=how.width, lowering=how.lowering, **chosen
    )
    out = folder / str(next(numbers))
    begun = loop.open_campaign(recipe, table, out, options)
    return lambda: loop.train_blocks(begun, wait=False)

  prepared = {
    name: functools.partial(campaign, chosen) for name, chosen in ways.items()
  }
  bare_way = {"bare": lambda: lambda: list(bare_loop(shared, rows))}
  return common.in_turn(bare_way | prepared, flags.rounds)


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "throughput", argv)
  recipe = vs.recipe(flags.recipe, **overrides(flags.set))
  where = common.elsewhere(common.machine)
  with tempfile.TemporaryDirectory() as folder:
    seconds = measure(recipe, flags, Path(folder))
  medians = {
    name: [statistics.median(column) for column in zip(*of, strict=True)]
    for name, of in seconds.items()
  }
  rows = [
    (
      name,
      *(f"{significant(s)} s" for s in of),
      *(f"{b / s:.1%}" for b, s in zip(medians["bare"], of, strict=True)),
    )
    for name, of in medians.items()
  ]
  head = (
    "",
    "time",
    "processor time",
    "speed, of the bare loop's",
    "in processor time",
  )
  title = (
    f"{recipe.name}: {flags.runs} runs of {duration(recipe.epochs)} in blocks of {flags.seed_batch}, checkpoints every "
    f"{duration(flags.checkpoint_every)}, medians of {flags.rounds} rounds"
  )
  table = Table(title, head, rows)
  common.write(flags, command, where, [table], {"seconds": seconds})


if __name__ == "__main__":
  with mistakes():
    main()
