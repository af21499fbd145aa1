"""Start a campaign: plan it, choose how its lanes are run, and create or open its folder."""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from vmapseeds import lanes
from vmapseeds.campaign import planning
from vmapseeds.campaign.execution import choose_execution
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import CheckedTask, Plan
from vmapseeds.errors import Failure, UserError, say
from vmapseeds.machine import free_host_memory
from vmapseeds.results import description
from vmapseeds.results.description import MIXED, check_folder
from vmapseeds.results.formatting import count_of
from vmapseeds.store import checkpoints
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import FolderExists, check_writable
from vmapseeds.store.layout import Description, read_metadata
from vmapseeds.store.results import Results
from vmapseeds.training.recipe_or_task import resolve_task
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs, as_runs
from vmapseeds.training.task import Task, lanes_of

SEED_BATCH = 256


class Campaign(NamedTuple):
  """A campaign whose folder is open."""

  plan: Plan
  results: Results

  def with_execution(self, execution: lanes.Execution) -> "Campaign":
    """Return the campaign with its lanes run in another way."""
    return self._replace(plan=dataclasses.replace(self.plan, execution=execution))


def check_campaign(
  task: Recipe | Task | str,
  runs: Runs | int,
  out: Folder | None,
  options: Options,
) -> CheckedTask:
  """Do what `train` does before it plans: load the data, and check that all fits
  together.
  """
  task = resolve_task(task)
  runs = as_runs(runs)
  most = options.seed_batch or len(runs)
  if options.lane_width is not None and options.lane_width > most:
    limit = f"seed batch {most}" if options.seed_batch else f"{most} runs"
    raise UserError(
      f"lane width {options.lane_width} with {limit}: give at most as many"
    )
  if out is not None:
    # Before the data are loaded, which may take long.
    root = check_folder(out)
    task = planning.with_recorded_precision(task, root)
  task, runs = planning.load_task(task, runs, options)
  return planning.check_task(task, runs, options)


def open_campaign(
  task: Recipe | Task | str,
  runs: Runs | int,
  out: Folder,
  options: Options,
) -> Campaign:
  """Do what `train` does before it trains: check everything, and create the folder or
  extend it.
  """
  return open_checked_campaign(out, check_campaign(task, runs, out, options))


def resume_campaign(
  out: Folder, options: Options, *, dataset: Folder | None = None
) -> Campaign:
  """Do what `work` does before it trains: open the folder and load what its task
  needs.
  """
  runs, results = description.campaign_of(out)
  check_writable(out)  # before the data are loaded, which may take long
  root = results.root
  # What is kept of a run is the folder's choice: all of its runs have the same arrays.
  options = dataclasses.replace(options, **root["kept"])
  checked = planning.reload_task(out, root, root["recipe"], runs, options, dataset)
  return open_checked_campaign(out, checked)


def open_checked_campaign(out: Folder, checked: CheckedTask) -> Campaign:
  """Plan the campaign, and create its folder or extend an existing one.

  Raises:
    UserError: the folder has another task or other runs.
  """
  options = checked.options
  while True:
    plan = make_plan(checked, out)
    try:
      with wrap_disk_errors(out):
        results = description.open_or_create(
          out,
          plan.contents,
          block_runs=plan.block_runs,
          depends=plan.provenance,
          force_mixed=options.force_mixed,
        )
    except FolderExists:
      continue  # the other process's choices count
    if options.progress:
      say_folder_differences(out, results, options)
    return Campaign(plan, results)


def with_whole_blocks(campaign: Campaign) -> Campaign:
  """Return the campaign with all runs of its folder: a block is trained whole, of which
  the plan may have the first runs only.
  """
  plan, results = campaign
  if len(plan.runs) >= len(results):
    return campaign
  runs, _ = description.campaign_of(results.path)
  return campaign._replace(plan=dataclasses.replace(plan, runs=runs))


def runs_in_whole_blocks(results: Results, asked: int, *, says: bool) -> int:
  """Return how many runs the blocks have that hold the first `asked` runs, and say if they
  are more.
  """
  ends = (rows.stop for rows in results.blocks if rows.stop >= asked)
  # A folder that is to be extended has fewer.
  total = next(ends, asked)
  if says and total > asked and not results.done[:total].all():
    say(f"a folder's blocks are trained whole: {count_of(total, 'run')}, not {asked:,}")
  return total


def say_folder_differences(out: Folder, results: Results, options: Options) -> None:
  """Say on stderr where an existing folder differs from what was asked for."""
  if options.seed_batch not in (None, results.block_runs):
    say(
      f"the seed batch is {results.block_runs}, as in {out}, not "
      f"{options.seed_batch}: a folder keeps its own"
    )
  kinds = results.root.get("kinds")
  if kinds:
    described = "; ".join(
      f"{name.replace('_', ' ')} {', '.join(map(str, values))}"
      for name, values in kinds.items()
    )
    say(
      f"{out} has runs of several kinds ({described}), between which the last bits may "
      "differ: the record of each block has its own"
    )


def make_plan(checked: CheckedTask, out: Folder | None) -> Plan:
  """Return the plan of a checked task, with what an existing folder has recorded."""
  options = checked.options
  state_bytes = 0
  if options.checkpoint_every not in (None, "never"):
    checkpoints.check_usable()
    state_bytes = checked.traced.bytes_of_a_state
  root = {}
  if out is not None:
    root = read_metadata(out)
  checked = planning.with_recorded_paths(checked, root)
  if out is not None and options.force_mixed and root:
    recorded, _ = description.campaign_of(out)
    checked = planning.with_recorded_values(checked, recorded)
  execution = resolve_execution(checked, root)
  # A folder keeps its own.
  block_runs = root.get("block_runs") or options.seed_batch
  if block_runs is None:
    block_runs = fitting_seed_batch(checked, execution, state_bytes)
  return checked.planned(execution, block_runs)


def resolve_execution(checked: CheckedTask, root: Description) -> lanes.Execution:
  """Return the lowering and lane width: those given, else the folder's, else the
  fastest.
  """
  runs = checked.runs
  options = checked.options
  devices = lanes.devices()
  lowering = options.lowering
  lane_width = options.lane_width
  # Those of another kind of device may be slow here.
  if root.get("device_kind") == devices[0].device_kind:
    if lowering is None and root.get("lowering") != MIXED:
      lowering = root.get("lowering")
    if lane_width is None and root.get("lane_width") != MIXED:
      lane_width = root.get("lane_width")
  if lowering is not None and lane_width is not None:
    return lanes.Execution(lowering, lane_width)
  in_flight = min(len(runs), options.seed_batch or len(runs))
  return choose_execution(
    planning.with_traced_functions(checked),
    lanes_of(checked.task, runs[:1]),
    model_steps=checked.model_steps(runs),
    most=math.ceil(in_flight / len(devices)),
    lowering=lowering,
    width=lane_width,
    progress=options.progress,
  )


def fitting_seed_batch(
  checked: CheckedTask, execution: lanes.Execution, a_state: int
) -> int:
  """Return how many runs' outputs, and states of so many bytes, fit easily in the host's
  memory: whole steps of all lanes, at most 256 runs or one step.
  """
  step = execution.width * len(lanes.devices())
  run_bytes = checked.traced.bytes_of_a_run + a_state
  # An eighth, because there are a few copies of the outputs while they are joined and
  # written.
  fitting = free_host_memory() / 8 // max(1, run_bytes)
  steps = int(min(SEED_BATCH, fitting) // step)
  return max(1, steps) * step


@contextmanager
def wrap_disk_errors(out: Folder) -> Iterator[None]:
  """Turn the error of a full or failing disk into a `Failure` of one line."""
  try:
    yield
  except OSError as error:
    reason = error.strerror or str(error)
    raise Failure(
      f"{out} cannot be written ({reason}): free disk space and rerun the same command to resume"
    ) from error
