"""What counting in the jitted evaluation costs, and what it saves to fetch: a seed
batch is evaluated with and without counts, and with and without stored predictions.

    python -m experiments.benchmarks.tallies                       (2 minutes on two CPU cores)
    python -m experiments.benchmarks.tallies --pairs --rounds 3    (joint errors of examples too)

The networks are not trained. All have the same weights, made before the clock starts:
so what is timed is the evaluation, its counts, and fetching both. Shares are of
processor time, as other programs may run beside it. Dispatches are calls of compiled
programs, among them two of each step that copy the weights and train for 0 epochs.
"""

import dataclasses
import itertools
import tempfile
from pathlib import Path
from unittest import mock

import jax
import numpy as np

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Count, Table
from vmapseeds import lanes
from vmapseeds.campaign import block_training, planning, starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.progress import Progress
from vmapseeds.cli import one_line_errors
from vmapseeds.lanes import spreading
from vmapseeds.training.task import lanes_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(common.Flags):
  runs: Count = 64
  """runs of the seed batch"""

  examples: Count = 10_000
  """test examples of the second evaluation"""

  lane_width: Count = 1
  """lanes that a device evaluates together"""

  pairs: bool = False
  """count joint errors of all pairs of examples as well"""


def recipes(examples: int) -> dict[str, vs.Recipe]:
  """Return what is evaluated: `digits_cnn` on its test set, and on random images."""
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (examples, 8, 8, 1), np.uint8)
  test = images, rng.integers(0, 10, examples)
  data = vs.Dataset(train=test, test=test, num_classes=10)
  digits = vs.recipe("digits_cnn", epochs=0)
  return {"digits": digits, "random images": digits.replace(dataset=data)}


class Evaluation:
  """A seed batch that is evaluated by a campaign's own code, written nowhere."""

  def __init__(self, recipe: vs.Recipe, flags: Flags, folder: Path, **options):
    how = dict(lane_width=flags.lane_width, lowering="sequential", progress=False)
    opened = starting.open_campaign(
      recipe,
      flags.runs,
      folder,
      Options(seed_batch=flags.runs, **how, **options),
    )
    task = opened.plan.task
    self.runs = opened.plan.runs
    self.shared = block_training.put_data_on_devices(opened.plan)
    first_run = jax.tree.map(lambda a: a[0], lanes_of(task, self.runs))
    state = jax.jit(task.start)(self.shared[0], first_run)
    # All runs have one network, so that nothing but evaluation takes time.
    same = dataclasses.replace(task, start=lambda data, run: state)
    checked = planning.check_task(same, self.runs, opened.plan.options)
    plan = checked.planned(opened.plan.execution, opened.plan.block_runs)
    self.campaign = opened._replace(plan=plan)

  def __call__(self) -> int:
    """Return how many bytes were fetched."""
    bar = Progress(len(self.runs), 0, np.array([]), None, False)
    runs = self.campaign.plan.grouped(self.runs)
    outputs, _, counts = block_training.run_lanes(
      self.campaign, self.shared, runs, None, bar
    )
    fetched = sum(array.nbytes for array in outputs.values())
    of_a_device = sum(array.nbytes for array in counts.values())
    return fetched + of_a_device * len(lanes.devices())


class Counted:
  """Compiles programs as `lanes` does, and counts their calls."""

  calls = 0

  def __init__(self):
    self.compile = spreading._compile_sharded

  def __call__(self, *args, **options):
    program = self.compile(*args, **options)

    def call(*args):
      self.calls += 1
      return program(*args)

    return call


def measure_ways(recipe: vs.Recipe, flags: Flags, folder: Path) -> list[dict]:
  """Return a row for each way, the first without counts."""
  ways = {"all, not counted": {"tallies": False}}
  for predictions, pairs in itertools.product(("all", "none"), {False, flags.pairs}):
    counted = "pairs counted too" if pairs else "counted"
    name = f"{predictions}, {counted}"
    ways[name] = {"predictions": predictions, "pairs": pairs}
  evaluations = {}
  for name, options in ways.items():
    evaluations[name] = Evaluation(recipe, flags, folder / name, **options)
  rows = []
  # Programs that are compiled already would not be counted.
  block_training.spread_program.cache_clear()
  spreading._each_device.cache_clear()
  with mock.patch.object(spreading, "_compile_sharded", Counted()) as counted:
    for name, evaluate in evaluations.items():
      before = counted.calls
      fetched = evaluate()
      dispatches = counted.calls - before
      rows.append({"way": name, "dispatches": dispatches, "fetched": fetched})
  timed = common.in_turn(
    {n: lambda e=e: e for n, e in evaluations.items()}, flags.rounds
  )
  for row in rows:
    row["seconds"], row["processor_seconds"] = zip(*timed[row["way"]], strict=True)
  return rows


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "tallies", argv)
  where = common.machine()
  tables = []
  numbers = {}
  for name, recipe in recipes(flags.examples).items():
    with tempfile.TemporaryDirectory() as folder:
      rows = numbers[name] = measure_ways(recipe, flags, Path(folder))
    alone = rows[0]["processor_seconds"]
    cells = []
    for row in rows:
      relative = np.divide(row["processor_seconds"], alone)
      cells.append(
        (
          row["way"],
          *common.spread(row["seconds"], "{:.3f}"),
          *common.spread(relative, "{:.3f}"),
          str(row["dispatches"]),
          f"{row['fetched'] / 1e6:,.3f}",
        )
      )
    head = (
      "predictions",
      "s",
      "least – most",
      "÷ not counted",
      "of a round",
      "dispatches",
      "MB fetched",
    )
    tables.append(Table(f"{name}: {flags.runs} runs", head, cells))
  common.write_results(flags, command, where, tables, numbers)


if __name__ == "__main__":
  with one_line_errors():
    main()
