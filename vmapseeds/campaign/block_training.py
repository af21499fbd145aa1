"""Train the runs of one block on the devices, spread over lanes."""

import dataclasses
import functools
import math
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import jax
import numpy as np
from jaxtyping import Float, Int

from vmapseeds import lanes
from vmapseeds.campaign import reducing
from vmapseeds.campaign.planning import GroupedRuns, Plan
from vmapseeds.campaign.progress import Progress
from vmapseeds.campaign.provenance import compile_seconds
from vmapseeds.campaign.starting import Campaign
from vmapseeds.errors import UserError
from vmapseeds.lanes.memory import is_out_of_memory
from vmapseeds.machine import commit
from vmapseeds.results.description import combinations
from vmapseeds.store import checkpoints
from vmapseeds.store.layout import Description
from vmapseeds.store.results import Results
from vmapseeds.training import outputs
from vmapseeds.training.names import DIVERGED
from vmapseeds.training.task import (
  STAGES,
  Traced,
  as_stored,
  describe_task,
  lanes_of,
)

# Of a block's runs: outputs, what their record says, and counts over them.
TrainedBlock = tuple[dict[str, np.ndarray], Description, dict[str, np.ndarray]]


def put_data_on_devices(plan: Plan):
  """Return the task's data, and labels, on every device.

  Raises:
    UserError: they do not fit in memory.
  """
  labels = outputs.labels_of_outputs(plan.traced.outputs)
  try:
    return lanes.replicate((plan.task.data, labels), lanes.devices())
  except jax.errors.JaxRuntimeError as error:
    if not is_out_of_memory(error):
      raise
    kind = lanes.devices()[0].device_kind
    raise UserError(
      f"the data of {plan.task.name} do not fit in the memory of {kind}: give fewer"
    ) from None


def run_lanes(
  campaign: Campaign,
  shared,
  grouped: GroupedRuns,
  block_checkpoints: checkpoints.Checkpoints | None,
  bar: Progress,
) -> TrainedBlock:
  """Train the runs of a block together. Return their outputs, what their record says,
  and the counts over them.
  """
  plan = campaign.plan
  displayed = plan.traced.shown
  devices = lanes.devices()
  nothing = empty_counts(campaign)
  tallied = list(nothing)
  runs, groups = grouped
  combination, _ = combinations(runs)
  finished: list[dict[str, np.ndarray]] = []
  counts: dict[str, np.ndarray] = {}
  begun = time.perf_counter()
  compiled = compile_seconds()  # of this process so far
  for rows, traced in groups:
    table = lanes_of(traced.task, runs[rows])
    carry = nothing
    spread = spread_task(plan, traced, tallied)
    steps = spread(shared, table, block_checkpoints, carry, combination[rows])
    # The last carry is what all lanes have counted.
    for lanes_done, step_outputs, carry in steps:  # noqa: B007
      outputs.check_predictions(traced.task.name, plan.stored, step_outputs)
      finished.append(as_stored(plan.stored, step_outputs))
      values = values_for_progress(displayed, finished[-1])
      bar.trained_more(lanes_done.stop - lanes_done.start, values)
    if tallied:
      for name, added in reducing.counts_by_array(carry, devices).items():
        counts[name] = counts.get(name, 0) + added

  seconds = time.perf_counter() - begun
  if block_checkpoints:
    seconds += block_checkpoints.before
  record = {
    **plan.provenance,
    "platform": devices[0].platform,
    "commit": commit(),
    "seconds": round(seconds, 3),
    "compile_seconds": round(compile_seconds() - compiled, 3),
    "when": datetime.now(UTC).isoformat(timespec="seconds"),
  }
  return join_steps(finished, [rows for rows, _ in groups]), record, counts


def empty_counts(campaign: Campaign) -> dict[str, reducing.BlockCounts]:
  """Return counts over no runs of the classes that the folder counts, by output."""
  plan, results = campaign
  shapes = {name: results.root["arrays"][name]["shape"] for name in results.counts}
  # A device has the errors of its share of a block, filled up to whole steps.
  width = plan.execution.width
  step = width * len(lanes.devices())
  runs_of_a_device = math.ceil(plan.block_runs / step) * width
  counts = {}
  for name in plan.tallied:
    votes = outputs.sibling(name, "votes")
    if votes not in shapes:
      continue
    # Pairs of examples are counted from the errors of all runs of the block.
    has_pairs = outputs.sibling(name, "joint_errors") in shapes
    runs = runs_of_a_device if has_pairs else None
    combos, examples, classes = shapes[votes]
    counts[name] = reducing.make_empty_counts(combos, examples, classes, runs)
  return counts


def join_steps(
  steps: Sequence[dict[str, np.ndarray]], groups: Sequence[Int[np.ndarray, " rows"]]
) -> dict[str, np.ndarray]:
  """Return the outputs of all steps in the order of runs, from those of one group of
  rows after another.
  """
  # Runs that share a program are trained together, in whatever rows they are.
  joined = {name: np.concatenate([step[name] for step in steps]) for name in steps[0]}
  if len(groups) == 1:
    return joined
  order = np.argsort(np.concatenate(groups))
  return {name: values[order] for name, values in joined.items()}


def values_for_progress(displayed, values):
  """Return the values that the progress line shows, without those of runs that
  diverged.
  """
  if displayed is None:
    return np.array([])
  name, _, _ = displayed
  if DIVERGED not in values:
    return values[name]
  return values[name][~values[DIVERGED]]


def read_values_for_progress(
  results: Results,
  displayed: tuple[str, str, str] | None,
  rows: Int[np.ndarray, " rows"],
) -> Float[np.ndarray, " rows"]:
  """Return the values of finished runs that the progress line shows, from the folder."""
  names = []
  if displayed is not None:
    names = [name for name in (displayed[0], DIVERGED) if name in results.outputs]
  values = {name: results.read(name, rows) for name in names}
  return values_for_progress(displayed, values)


def spread_task(plan: Plan, traced: Traced, tallied: Collection[str] = ()):
  """Return the task, traced for some runs, spread over lanes, with a reduction of the
  outputs `tallied`. A process compiles each program only once.
  """
  declared = traced.outputs
  identity = plan.identity
  programs = tuple((name, output.program) for name, output in declared.items())
  key = (
    *(identity[stage] for stage in STAGES),
    *programs,
    *identity["fixed"].items(),
    traced.lane.fixed,
    # Where runs vary fields of the recipe, its programs share an identity.
    describe_task(traced.task) if plan.task.internal.fields else "",
  )
  program = ProgramToSpread(
    key,
    traced.task.rounds,
    tuple(plan.stored),
    tuple(tallied),
    (*traced.functions, declared),
  )
  return spread_program(program, plan.execution)


@dataclasses.dataclass(frozen=True)
class ProgramToSpread:
  """What is compiled for a task, hashed by what it computes: functions that were edited
  and imported again compute something else.
  """

  key: tuple
  rounds: int
  stored: tuple[str, ...]
  tallied: tuple[str, ...]
  functions: tuple = dataclasses.field(compare=False)


# A block has runs of all programs of a sweep.
@functools.lru_cache(maxsize=64)
def spread_program(program: ProgramToSpread, execution: lanes.Execution):
  """Return a task's functions, spread over lanes."""
  start, advance, finish, declared = program.functions

  # Shared are the data and the labels. Tasks get the data alone.
  def begin(shared, run):
    data, _ = shared
    return start(data, run)

  def go_on(shared, run, state, first, last):
    data, _ = shared
    return advance(data, run, state, first, last)

  def measure(shared, run, state):
    data, labels = shared
    values = finish(data, run, state)
    return outputs.stored_outputs_and_counts(declared, labels, values, run)

  reduce = reducing.make_reduce(program.tallied, program.stored)
  return lanes.spread_stages(
    lanes.Stages(begin, go_on, measure, program.rounds, reduce, execution.lowering),
    width=execution.width,
    devices=lanes.devices(),
  )
