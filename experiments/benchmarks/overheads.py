"""How much of a campaign is not training: input pipeline, evaluation, writing,
statistics. The bar: 10 % together.

    python -m experiments.benchmarks.overheads                                             (8 minutes on two CPU cores)

    training     the same training on one frozen batch: no permutation, gather, augmentation or normalisation
    input        what permuting, gathering, augmenting and normalising add to that
    evaluation   what evaluating every trained network on every test example adds
    writing      writing predictions and accuracies into the results folder
    statistics   all numbers of the report, as `vmapseeds report` computes them
    start        the rest, once a campaign: reading data, making the folder; compilation is shown apart

The programs are timed in turn, round after round. Parts are differences of medians. So
is what a campaign takes longer if it keeps the parameters, or saves checkpoints.
"""

import dataclasses
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Count, Table
from experiments.benchmarks.contenders import significant
from experiments.frame import format_duration
from vmapseeds import lanes
from vmapseeds.campaign import block_loop, block_training, starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import check_task, load_task
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import check_at_least
from vmapseeds.flags import parse_overrides
from vmapseeds.reports.summaries import summarize
from vmapseeds.store.results import Results
from vmapseeds.training.inputs import normalize, steps_per_epoch, targets_of
from vmapseeds.training.loop import Batch, make_train_step
from vmapseeds.training.task import Task, lanes_of

BAR = 0.10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(common.RecipeFlags):
  runs: Count = 256
  """runs of the campaign"""

  seed_batch: Count = 256
  """runs a block"""

  checkpoint_every: Count = 8
  """epochs between two checkpoints"""

  rounds: Count = 3
  """timings of each program, taken in turn; the median is shown"""


def frozen(recipe: vs.Recipe, task: Task) -> Task:
  """Return a recipe's task with one batch for all steps of a run, and another batch for
  each run.
  """

  def advance(sets, run, state, first, last):
    data = sets[0]
    places = (run.seeds["init"] + jnp.arange(recipe.batch_size)) % len(data)
    inputs = normalize(data.inputs[places], data.mean, data.std)
    batch = inputs, targets_of(data, run)[places], places
    train_step = make_train_step(recipe, data, run, state)

    def step(number, state):
      # The barrier ties the batch to the step. Otherwise XLA would move work on the
      # batch alone out of the loop.
      return train_step(state, Batch(*jax.lax.optimization_barrier((*batch, number))))

    steps = steps_per_epoch(recipe, data, run)
    return jax.lax.fori_loop(first * steps, last * steps, step, state)

  return dataclasses.replace(task, advance=advance)


def unevaluated(task: Task) -> Task:
  """Return a task without evaluation: it ends with training."""
  return dataclasses.replace(
    task,
    finish=lambda sets, run, state: {"diverged": state.nonfinite_steps > 0},
    outputs={},
    constants={},
  )


class TimedResults(Results):
  """Results that add up the seconds that `write_block` takes."""

  seconds = 0.0

  def write_block(self, *args):
    began = time.perf_counter()
    super().write_block(*args)
    self.seconds += time.perf_counter() - began


def measure_rounds(
  recipe: vs.Recipe,
  flags: Flags,
  folder: Path,
) -> dict[str, list[float]]:
  """Seconds of each round: `frozen`, `trained`, `evaluated` (with training),
  `campaign`, the same with `parameters` and with `checkpoints`, `writing`,
  `statistics`; and `first`, the seconds of the first campaign, which also chooses how
  lanes run and compiles.
  """
  table = vs.Runs.independent(flags.runs)
  began = time.perf_counter()
  opened = vs.train(recipe, table, folder / "first")
  first = time.perf_counter() - began
  how = lanes.Execution(opened.attrs["lowering"], opened.attrs["lane_width"])
  options = Options(
    seed_batch=flags.seed_batch,
    lane_width=how.width,
    lowering=how.lowering,
    progress=False,
  )
  task, table = load_task(recipe, table, options)
  tasks = {
    "frozen": unevaluated(frozen(recipe, task)),
    "trained": unevaluated(task),
    "evaluated": task,
  }
  plans = {
    name: check_task(part, table, options).planned(how, flags.seed_batch)
    for name, part in tasks.items()
  }
  shared = block_training.put_data_on_devices(plans["evaluated"])
  rows = lanes_of(task, table)
  parts = {
    name: block_training.spread_task(plan, plan.traced_for(plan.runs))
    for name, plan in plans.items()
  }
  numbers = itertools.count()
  writing = []

  def campaign(**chosen):
    out = folder / str(next(numbers))
    begun = starting.open_campaign(
      recipe,
      table,
      out,
      dataclasses.replace(options, **chosen),
    )
    results = TimedResults(out)
    block_loop.train_blocks(begun._replace(results=results), wait=True)
    return results.seconds

  def statistics_of_campaign():
    test_set = recipe.test_sets[0]
    summarize(vs.open_results(folder / "0", test_set), test_set=test_set)

  ways = {}
  for name, part in parts.items():
    ways[name] = lambda part=part: list(part(shared, rows))
  ways["campaign"] = lambda: writing.append(campaign())
  # Of the first of these campaigns.
  ways["statistics"] = statistics_of_campaign
  ways["parameters"] = lambda: campaign(keep_params=True)
  ways["checkpoints"] = lambda: campaign(checkpoint_every=flags.checkpoint_every)
  timed = common.in_turn(
    {n: lambda way=way: way for n, way in ways.items()}, flags.rounds
  )
  seconds = {}
  for name, timings in timed.items():
    seconds[name] = [wall for wall, _ in timings]
  return seconds | {"writing": writing[1:], "first": [first]}


def seconds_by_part(seconds: dict[str, list[float]]) -> dict[str, float]:
  """Seconds of each part. Together they are a campaign and its statistics."""
  median = {name: statistics.median(values) for name, values in seconds.items()}
  return {
    "training": median["frozen"],
    "input": median["trained"] - median["frozen"],
    "evaluation": median["evaluated"] - median["trained"],
    "writing": median["writing"],
    "statistics": median["statistics"],
    "start": median["campaign"] - median["evaluated"] - median["writing"],
  }


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "overheads", argv)
  recipe = vs.recipe(flags.recipe, **parse_overrides(flags.set))
  check_at_least("--runs", flags.runs, 2)
  where = common.elsewhere(common.machine)
  with tempfile.TemporaryDirectory() as folder:
    seconds = measure_rounds(recipe, flags, Path(folder))
  parts = seconds_by_part(seconds)
  total = sum(parts.values())
  steady = sum(parts.values()) - parts["start"]
  rows = []
  for name, s in parts.items():
    # The start is paid once, whatever the number of runs.
    of_steady = "—"
    if name != "start":
      of_steady = f"{s / steady:.1%}"
    rows.append((name, f"{significant(s)} s", of_steady, f"{s / total:.1%}"))
  share = 1 - parts["training"] / steady
  median = {name: statistics.median(each) for name, each in seconds.items()}
  slower = median["first"] - median["campaign"]
  kept = median["parameters"] - median["campaign"]
  saved = median["checkpoints"] - median["campaign"]
  notes = [
    f"Input, evaluation, writing and statistics together: {share:.1%} of the time after the start; bar: {BAR:.0%}.",
    f"The first campaign took {slower:.1f} s longer: choosing how lanes run, unless known, and compilation.",
    f"With parameters kept: {kept:.2f} s longer; with checkpoints every {format_duration(flags.checkpoint_every)}: {saved:.2f} s.",
  ]
  head = ("part", "time", "share after the start", "share of all")
  title = f"{recipe.name}: {flags.runs} runs of {format_duration(recipe.epochs)}, medians of {flags.rounds} rounds"
  table = Table(title, head, rows, notes)
  common.write_results(
    flags,
    command,
    where,
    [table],
    {"seconds": seconds, "parts": parts, "share": share},
  )


if __name__ == "__main__":
  with one_line_errors():
    main()
