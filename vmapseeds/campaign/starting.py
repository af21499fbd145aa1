"""Start a campaign: plan it, choose how its lanes are run, and create or open its folder."""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from vmapseeds import convolutions, lanes
from vmapseeds.campaign import planning
from vmapseeds.campaign.execution import choose_execution
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import Plan
from vmapseeds.campaign.provenance import machine_conditions, package_versions
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
from vmapseeds.training.task import Task, describe_task, lanes_of

SEED_BATCH = 256


class Campaign(NamedTuple):
  """A campaign whose folder is open."""

  plan: Plan
  results: Results
  execution: lanes.Execution


def plan_campaign(
  task: Recipe | Task | str,
  runs: Runs | int,
  out: Folder | None,
  options: Options,
) -> Plan:
  """Do what `train` does before it opens the folder: load the data, and check that all
  fits together.
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
  return planning.make_plan(task, runs, options)


def open_campaign(
  task: Recipe | Task | str,
  runs: Runs | int,
  out: Folder,
  options: Options,
) -> Campaign:
  """Do what `train` does before it trains: check everything, and create the folder or
  extend it.
  """
  return open_planned_campaign(out, plan_campaign(task, runs, out, options))


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
  plan = planning.reload_plan(out, root, root["recipe"], runs, options, dataset)
  return open_planned_campaign(out, plan)


def open_planned_campaign(out: Folder, plan: Plan) -> Campaign:
  """Create the campaign's folder, or extend an existing one.

  Raises:
    UserError: the folder has another task or other runs.
  """
  options = plan.options
  while True:
    plan, execution, seed_batch = plan_execution(plan, out)
    try:
      with wrap_disk_errors(out):
        results = description.open_or_create(
          out,
          planning.contents_of(plan, seed_batch),
          block_runs=seed_batch,
          depends=describe_provenance(plan, execution),
          force_mixed=options.force_mixed,
        )
    except FolderExists:
      continue  # the other process's choices count
    if options.progress:
      say_folder_differences(out, results, options)
    return Campaign(plan, results, execution)


def with_whole_blocks(campaign: Campaign) -> Campaign:
  """Return the campaign with all runs of its folder: a block is trained whole, of which
  the plan may have the first runs only.
  """
  plan, results, _ = campaign
  if len(plan.runs) >= len(results):
    return campaign
  runs, _ = description.campaign_of(results.path)
  return campaign._replace(plan=plan._replace(runs=runs))


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


def plan_execution(plan: Plan, out: Folder | None) -> tuple[Plan, lanes.Execution, int]:
  """Return the plan with what an existing folder has recorded, how its lanes will be run,
  and the seed batch of a new folder.
  """
  options = plan.options
  state_bytes = 0
  if options.checkpoint_every not in (None, "never"):
    checkpoints.check_usable()
    state_bytes = plan.traced.bytes_of_a_state
  root = {}
  if out is not None:
    root = read_metadata(out)
  plan = planning.with_recorded_paths(plan, root)
  if out is not None and options.force_mixed and root:
    recorded, _ = description.campaign_of(out)
    plan = planning.with_recorded_values(plan, recorded)
  execution = resolve_execution(plan, root)
  fitting = fitting_seed_batch(plan, execution, state_bytes)
  return plan, execution, options.seed_batch or fitting


def resolve_execution(plan: Plan, root: Description) -> lanes.Execution:
  """Return the lowering and lane width: those given, else the folder's, else the
  fastest.
  """
  task = plan.task
  runs = plan.runs
  options = plan.options
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
    planning.with_traced_functions(plan),
    lanes_of(task, runs[:1]),
    model_steps=plan.model_steps(runs),
    most=math.ceil(in_flight / len(devices)),
    lowering=lowering,
    width=lane_width,
    progress=options.progress,
  )


def fitting_seed_batch(plan: Plan, execution: lanes.Execution, a_state: int) -> int:
  """Return how many runs' outputs, and states of so many bytes, fit easily in the host's
  memory: whole steps of all lanes, at most 256 runs or one step.
  """
  step = execution.width * len(lanes.devices())
  run_bytes = plan.traced.bytes_of_a_run + a_state
  # An eighth, because there are a few copies of the outputs while they are joined and
  # written.
  fitting = free_host_memory() / 8 // max(1, run_bytes)
  steps = int(min(SEED_BATCH, fitting) // step)
  return max(1, steps) * step


def describe_provenance(plan: Plan, execution: lanes.Execution) -> dict[str, Any]:
  """Return everything that results depend on, as stored in the folder, its records and
  checkpoints.
  """
  # A task of one's own has none of these, but all folders have the same fields.
  unknown = dict.fromkeys(("precision", "networks_digest", "mean", "std"))
  return {
    **unknown,
    **plan.task.internal.conditions,
    "recipe": describe_task(plan.task),
    "identity": plan.identity,
    "data_digest": plan.identity["data"],
    **machine_conditions(),
    "onednn": calls_onednn(plan),
    "lane_width": execution.width,
    "lowering": execution.lowering,
    "versions": package_versions(),
  }


def calls_onednn(plan: Plan) -> bool:
  """Return whether lanes convolve or multiply by oneDNN: see `convolutions.onednn`."""
  if lanes.devices()[0].platform != "cpu":
    return False
  return any(
    convolutions.calls_onednn(traced.equations) for traced in plan.programs.values()
  )


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
