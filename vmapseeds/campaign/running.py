"""Train a campaign block by block, so that it can stop, resume, and be shared by several
processes.
"""

import atexit
import collections
import dataclasses
import functools
import math
import random
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from vmapseeds import lanes
from vmapseeds.campaign import planning, reducing
from vmapseeds.campaign.execution import (
  choose_execution,
  compare_precisions,
  known_speed,
)
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import GroupedRuns, Plan
from vmapseeds.campaign.progress import Progress
from vmapseeds.campaign.provenance import (
  compile_seconds,
  machine_conditions,
  package_versions,
)
from vmapseeds.errors import Failure, UserError, hide_own_frames, say, whole_number
from vmapseeds.lanes import onednn
from vmapseeds.lanes.memory import is_out_of_memory
from vmapseeds.machine import commit, free_host_memory
from vmapseeds.results import description
from vmapseeds.results.description import MIXED, check_folder, combinations
from vmapseeds.results.formatting import count_of, run_count, show
from vmapseeds.results.opening import open_results
from vmapseeds.store import checkpoints
from vmapseeds.store.claims import LEASE, Claims
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import FolderExists, check_writable, removed_if_unused
from vmapseeds.store.layout import (
  Description,
  bytes_of,
  read_metadata,
  read_verified_metadata,
)
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training import outputs
from vmapseeds.training.names import DIVERGED
from vmapseeds.training.recipe_or_task import resolve_task
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs, as_runs
from vmapseeds.training.task import (
  STAGES,
  Task,
  Traced,
  as_stored,
  describe_task,
  lanes_of,
  shown_output,
)

SEED_BATCH = 256
LONG = 60.0  # seconds of a block that is saved in training by default
FEW_STEPS = 8  # of lanes in a block
POLL = 0.5  # seconds between two looks at what other processes have done, at least
MOST_POLL = 10.0  # the most, of a process that waits for others
MOST_NAMED = 8  # blocks of a process, in a line that says what it trains

# Of a block's runs: outputs, what their record says, and counts over them.
TrainedBlock = tuple[dict[str, np.ndarray], Description, dict[str, np.ndarray]]


class Campaign(NamedTuple):
  """A campaign whose folder is open."""

  plan: Plan
  results: Results
  execution: lanes.Execution


@hide_own_frames
@moves_data
def train(
  task: Recipe | Task | str,
  runs: Runs | int = 256,
  out: Folder | None = None,
  *,
  seed_batch: int | None = None,
  lane_width: int | None = None,
  lowering: str | None = None,
  checkpoint_every: int | Literal["auto", "never"] | None = None,
  predictions: Literal["all", "none"] = "all",
  logits: bool = False,
  keep_params: bool = False,
  tallies: bool = True,
  pairs: bool = False,
  force_mixed: bool = False,
  allow_upgrade: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Train and evaluate the runs that `out` does not hold yet, and return its results, as
  `open_results` does. Call it again to resume.

  Several processes may do so at once, on one machine or on several that share the
  folder: each trains blocks of runs that no other is training, and all return when
  every run is done.

  Args:
    task: what to train: a recipe or a task, the name of a recipe, or an import string
      "package.module:attribute".
    runs: the runs table, or how many independent runs; a longer table than last time
      extends the results.
    out: the results folder, created if absent. None: the results are returned in memory,
      and their folder, which `results.encoding["source"]` names, is removed when Python
      ends.
    seed_batch: how many runs are trained and written together, and in a new folder form
      a block; an interruption loses at most these. None: 256, or what fits in memory.
    lane_width: lanes that a device advances together, at most the seed batch; results
      depend on it by rounding, so a folder keeps one; it is reduced if the devices'
      memory is too small. None: the folder's, else the fastest as measured.
    lowering: how convolutions run their lanes: "im2col", "grouped" or "sequential";
      results depend on it by rounding. None: the folder's, else the fastest as measured.
    checkpoint_every: save runs in training every so many epochs, or rounds of a task;
      "auto" chooses the interval so that saving takes at most 2 % of the time. None:
      "auto" where a seed batch trains for longer than a minute, else "never".
    predictions: "all", or "none" to keep only tallies, accuracies and numbers of errors:
      then no prediction leaves the devices, and a run takes a few bytes.
    logits: keep logits beside predictions.
    keep_params: keep the trained parameters and batch statistics of all runs, for
      `load_networks`.
    tallies: whether a new folder's votes and errors are counted on the devices, one set
      for each combination of swept values, so that `tally` and reports need not read
      predictions; only for classifiers without label maps.
    pairs: in a new folder, also count the joint errors of all pairs of n examples: n²
      numbers per seed batch and combination.
    force_mixed: resume even where recipe, package versions, device kind, lane width,
      lowering or precision differ from the folder's; the folder records that.
    allow_upgrade: resume where the programs of the same recipe differ because versions of
      packages do; reports say which runs were trained with which.
    progress: print on stderr what was chosen and how far the training is.

  Raises:
    UserError: an argument is not valid; then nothing has been trained or changed. Or the
      devices run out of memory, and the lane width cannot be reduced.
    Failure: the disk is full, or cannot be written any more. What was written stays.
  """
  options = Options(
    seed_batch=seed_batch,
    lane_width=lane_width,
    lowering=lowering,
    checkpoint_every=checkpoint_every,
    predictions=predictions,
    logits=logits,
    keep_params=keep_params,
    tallies=tallies,
    pairs=pairs,
    force_mixed=force_mixed,
    allow_upgrade=allow_upgrade,
    progress=progress,
  )
  folder = out
  if folder is None:
    folder = temporary_folder()
  # A mistake that only the training shows leaves no empty folder behind.
  with removed_if_unused(folder):
    campaign = open_campaign(task, runs, folder, options)
    if options.progress:
      say_estimate(campaign)
    train_blocks(campaign, wait=True)
  results = open_dataset(campaign)
  if out is None:
    results.load()
  return results


def temporary_folder() -> str:
  """Return a new folder for results that is removed when Python ends."""
  folder = tempfile.mkdtemp(prefix="vmapseeds-")
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  return folder


def say_estimate(campaign: Campaign) -> None:
  """Say on stderr what is left to train, and whether another precision is faster."""
  plan, results, execution = campaign
  done = int(results.done[: len(plan.runs)].sum())
  if done == len(plan.runs):
    return
  due = estimate_plan(plan, execution, results.block_runs, done)
  say(f"to train: {due}")
  if not done:  # afterwards, the folder has a precision
    advice = compare_precisions(plan.task, execution, due.seconds)
    if advice:
      say(advice)


class CostEstimate(NamedTuple):
  """What a campaign will take.

  Attributes:
    runs: how many are left to train.
    seconds: of their training on all devices of this process, without compilation and
      evaluation, as measured of the training step; None if it was not measured.
    disk_bytes: of what they store, before compression.
  """

  runs: int
  seconds: float | None
  disk_bytes: int

  def __str__(self) -> str:
    duration = "time not measured"
    if self.seconds is not None:
      total = timedelta(seconds=max(1, round(self.seconds)))
      each = show(self.seconds / max(1, self.runs), None, "count")
      duration = f"{each} s each, {total} in all"
    megabytes = self.disk_bytes / 1e6
    size = f"{megabytes:,.2f}" if megabytes < 10 else f"{megabytes:,.0f}"
    return f"{run_count(self.runs)}; {duration}; {size} MB on disk"


@hide_own_frames
@moves_data
def estimate(
  task: Recipe | Task | str,
  runs: Runs | int = 256,
  out: Folder | None = None,
  *,
  seed_batch: int | None = None,
  lane_width: int | None = None,
  lowering: str | None = None,
  checkpoint_every: int | Literal["auto", "never"] | None = None,
  predictions: Literal["all", "none"] = "all",
  logits: bool = False,
  keep_params: bool = False,
  tallies: bool = True,
  pairs: bool = False,
  force_mixed: bool = False,
  allow_upgrade: bool = False,
  progress: bool = True,
) -> CostEstimate:
  """Return what `train` would take with these arguments. It checks them as `train` does,
  times the training step for a few seconds, and trains and writes no runs.

  Args:
    task: as for `train`.
    runs: as for `train`.
    out: the results folder, whose finished runs are left out; None for a new one.
    seed_batch, lane_width, lowering, checkpoint_every: as for `train`.
    predictions, logits, keep_params, tallies, pairs: as for `train`.
    force_mixed, allow_upgrade, progress: as for `train`.

  Raises:
    UserError: as `train`.
  """
  options = Options(
    seed_batch=seed_batch,
    lane_width=lane_width,
    lowering=lowering,
    checkpoint_every=checkpoint_every,
    predictions=predictions,
    logits=logits,
    keep_params=keep_params,
    tallies=tallies,
    pairs=pairs,
    force_mixed=force_mixed,
    allow_upgrade=allow_upgrade,
    progress=progress,
  )
  plan = plan_campaign(task, runs, out, options)
  plan, execution, seed_batch = plan_execution(plan, out)
  done = 0
  root = None
  if out is not None:
    root = read_verified_metadata(out)
  if out is not None and root:
    results = Results(out, root)
    contents = planning.contents_of(plan, seed_batch)
    description.check_same_campaign(
      results,
      contents,
      contents.description | describe_provenance(plan, execution),
      plan.options.force_mixed,
      plan.options.allow_upgrade,
    )
    seed_batch = results.block_runs
    done = int(results.done[: len(plan.runs)].sum())
  # `estimate_plan` takes timings that are there.
  known_speed(plan.task, execution, measured=True)
  return estimate_plan(plan, execution, seed_batch, done)


def estimate_plan(
  plan: Plan,
  execution: lanes.Execution,
  block_runs: int,
  done: int,
) -> CostEstimate:
  """Return what the runs that are left will take, from timings made earlier."""
  remaining = len(plan.runs) - done
  blocks = math.ceil(remaining / block_runs)
  contents = planning.contents_of(plan, block_runs)
  size = sum(column.nbytes for column in contents.columns.values())
  size += remaining * sum(map(bytes_of, contents.outputs.values()))
  size += blocks * sum(map(bytes_of, contents.counts.values()))

  seconds = None
  seconds_a_step = known_speed(plan.task, execution)
  if seconds_a_step is not None:
    # Runs of several programs have different numbers of steps, and which are left is not
    # looked at.
    steps = plan.model_steps(plan.runs) * remaining / len(plan.runs)
    seconds = seconds_a_step * steps
  return CostEstimate(remaining, seconds, size)


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
          allow_upgrade=options.allow_upgrade,
        )
    except FolderExists:
      continue  # the other process's choices count
    if options.progress:
      say_folder_differences(out, results, options)
    return Campaign(plan, results, execution)


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


def open_dataset(campaign: Campaign) -> xr.Dataset:
  """Return the results of a campaign."""
  results = campaign.results
  # With several test sets, the first.
  return open_results(results.path, *results.root["test_sets"][:1])


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
  """Return whether lanes convolve or multiply by oneDNN: see `lanes.onednn`."""
  if lanes.devices()[0].platform != "cpu":
    return False
  stages = [stage for traced in plan.programs.values() for stage in traced.stages]
  may_call = any(onednn.may_call(stage.jaxpr) for stage in stages)
  return may_call and onednn.is_usable()


@hide_own_frames
@moves_data
def work(
  out: Folder,
  blocks: tuple[int | None, int | None] | None = None,
  *,
  dataset: Folder | None = None,
  seed_batch: int | None = None,
  checkpoint_every: int | Literal["auto", "never"] | None = None,
  force_mixed: bool = False,
  allow_upgrade: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Train the runs that are left in a results folder, or in some of its blocks, and
  return its results, as `open_results` does.

  All it needs is in the folder. It may be started many times, at once and on several
  machines. It skips blocks that other processes are training.

  Args:
    out: a results folder that `train` made.
    blocks: (first, one past the last) block to train, None in either place for the
      folder's own; None for all blocks.
    dataset: where the data are, if they have moved; their digest must be the same.
    seed_batch, checkpoint_every, force_mixed, allow_upgrade, progress: as for `train`.

  Raises:
    UserError: as `train`; or there are no such blocks.
  """
  first, last = check_block_range(blocks)
  options = Options(
    seed_batch=seed_batch,
    checkpoint_every=checkpoint_every,
    force_mixed=force_mixed,
    allow_upgrade=allow_upgrade,
    progress=progress,
  )
  campaign = resume_campaign(out, options, dataset=dataset)
  count = len(campaign.results.blocks)
  if first is None:
    first = 0
  if last is None:
    last = count
  if not 0 <= first < last <= count:
    raise UserError(
      f"blocks {first}:{last} of a folder with {count}: give some from 0:{count}"
    )
  held = train_blocks(campaign, range(first, last), wait=False)
  if held and campaign.plan.options.progress:
    say(
      f"{count_of(len(held), 'block')} left to other processes, which train them; the first "
      f"is block {held[0]}"
    )
  return open_dataset(campaign)


def check_block_range(
  blocks: tuple[int | None, int | None] | None,
) -> tuple[int | None, int | None]:
  """Return the first block and the one past the last; None for the folder's own.

  Raises:
    UserError: they are not two whole numbers or None.
  """
  if blocks is None:
    return None, None
  is_pair = isinstance(blocks, tuple) and len(blocks) == 2
  if is_pair and all(end is None or whole_number(end) is not None for end in blocks):
    return blocks
  raise UserError(
    f"blocks is {blocks!r:.100}: give (first, one past the last), e.g. (0, 10)"
  )


class BlockSchedule:
  """Which blocks are left to train, and which of them no other process trains.

  Args:
    blocks: those that are wanted.
    claims: what this process has claimed; other processes see it.
  """

  def __init__(self, blocks: Sequence[int], claims: Claims):
    self.claims = claims
    self.remaining = list(blocks)  # not finished at the last look
    self.finished: set[int] = set()  # of all blocks of the folder
    self.others: set[int] = set()  # those that other processes may be training
    self.looked = -math.inf  # when the folder was looked at, by this process's clock
    self._alive: dict[str, bool | None] = {}
    self._free = collections.deque[int]()
    self._pause = 0.0

  def is_due(self) -> bool:
    """Return whether it is time to look at the folder."""
    # Listing the records takes long where there are many, and most often it is enough
    # to know of one's own.
    return not self._free or time.monotonic() - self.looked > self._pause

  def look(self) -> None:
    """Find out what other processes have done, and what they train."""
    begun = time.monotonic()
    self.finished, self._alive = self.claims.look()
    self.remaining = [block for block in self.remaining if block not in self.finished]
    self.others = {
      block for block in self.remaining if self._is_alive(block) is not False
    }
    free = [block for block in self.remaining if block not in self.others]
    if self.others:  # which would take the same blocks in the same order
      random.shuffle(free)
    self._free = collections.deque(free)
    self.looked = time.monotonic()
    # A look takes at most a tenth of the time.
    self._pause = max(POLL, 10 * (self.looked - begun))

  def next_block(self) -> int | None:
    """Claim a block and return it, None if other processes have all that are left."""
    while self._free:
      block = self._free.popleft()
      if self.claims.take(block):
        return block
    return None

  def is_certain(self) -> bool:
    """Return whether the processes that hold what is left are known to be alive."""
    return all(self._is_alive(block) is not None for block in self.remaining)

  def _is_alive(self, block):
    """Return whether the process that holds a block is alive: False without one, None if
    it is not known yet.
    """
    return self._alive.get(str(block), False)


def train_blocks(
  campaign: Campaign,
  blocks: Sequence[int] | None = None,
  *,
  wait: bool,
) -> Sequence[int]:
  """Train and write the blocks that are left, one at a time.

  Args:
    campaign: the campaign.
    blocks: which blocks; None for all that its runs are in.
    wait: whether to wait for the blocks that other processes train.

  Returns:
    The blocks that other processes are still training.
  """
  plan, results, _ = campaign
  options = plan.options
  if blocks is None:
    count = len(plan.runs)
    blocks = [block for block, rows in enumerate(results.blocks) if rows.start < count]
  total = max(len(plan.runs), results.blocks[blocks[-1]].stop)
  if len(plan.runs) < len(results):  # a block is trained whole
    runs, _ = description.campaign_of(results.path)
    plan = plan._replace(runs=runs)
    campaign = campaign._replace(plan=plan)

  done = np.flatnonzero(results.done[:total])
  displayed = shown_output(plan.traced)
  # Values of many runs take long to read, and only the progress line needs them.
  rows = done if options.progress else done[:0]
  values = read_values_for_progress(results, displayed, rows)
  shared = put_data_on_devices(plan)
  bar = Progress(total, len(done), values, displayed, options.progress, compile_seconds)
  with wrap_disk_errors(results.path), bar, Claims(results.path) as claims:
    schedule = BlockSchedule(blocks, claims)
    held = train_free_blocks(campaign, shared, schedule, bar, wait=wait)
    if held:
      return held

  checkpoints.clear(results)
  if len(schedule.finished) >= len(results.blocks):
    with wrap_disk_errors(results.path):
      results.gather()
  elsewhere = bar.done - len(done) - bar.trained
  if elsewhere and options.progress:
    say(f"{run_count(bar.trained)} trained here, {elsewhere} by other processes")
  return []


def train_free_blocks(
  campaign: Campaign,
  shared,
  schedule: BlockSchedule,
  bar: Progress,
  *,
  wait: bool,
) -> Sequence[int]:
  """Train one block after another until none is left, or other processes train all that
  are left and there is no need to `wait` for them. Return these.
  """
  progress = campaign.plan.options.progress
  is_announced = False
  waited = 0.0
  while True:
    if schedule.is_due():
      schedule.look()
      bar.done = count_runs(campaign.results, schedule.finished, bar.total)
      if schedule.others and progress and not is_announced:
        is_announced = True
        others = describe_others(schedule.claims, schedule.others)
        say(f"{others}; this process takes others")
      if not schedule.remaining:
        return []

    block = schedule.next_block()
    bar.waits(block is None)
    if block is not None:
      # Once runs are done, their lane width is the folder's.
      settled = bool(schedule.finished)
      campaign = train_and_store_block(
        campaign, shared, block, schedule.claims, settled, bar
      )
      schedule.claims.give_back(block)
      continue

    if not wait and schedule.is_certain():
      return schedule.remaining
    if not wait and not waited and progress:
      say(
        f"{count_of(len(schedule.remaining), 'block')} left to other processes: looking for "
        f"up to {LEASE:.0f} s whether they are alive"
      )
    # Who has waited long can wait a little longer: each look costs requests.
    time.sleep(min(MOST_POLL, max(POLL, waited / 20)))
    waited += time.monotonic() - schedule.looked


def count_runs(results: Results, blocks: Collection[int], total: int) -> int:
  """Return how many runs finished blocks have, of those that begin before run `total`."""
  runs = 0
  for block in blocks:
    # Another process may have added blocks that this one does not know.
    if block < len(results.blocks) and results.blocks[block].start < total:
      runs += len(results.blocks[block])
  return runs


def describe_others(claims: Claims, blocks: Collection[int]) -> str:
  """Return which processes train which blocks."""
  blocks_by_owner: dict[str, list[int]] = {}
  for block in sorted(blocks):
    blocks_by_owner.setdefault(claims.owner(block), []).append(block)
  parts = []
  for owner, held in blocks_by_owner.items():
    noun = "block"
    if len(held) > 1:
      noun = "blocks"
    numbers = ", ".join(map(str, held[:MOST_NAMED]))
    if len(held) > MOST_NAMED:
      numbers += " and more"
    parts.append(f"{owner} trains {noun} {numbers}")
  return "; ".join(parts)


def train_and_store_block(
  campaign: Campaign,
  shared,
  block: int,
  claims: Claims,
  settled: bool,
  bar: Progress,
) -> Campaign:
  """Train a block's runs together and write them, unless another process has done so.
  Train them again with narrower lanes if the devices run out of memory, and with the
  folder's lanes if another process has changed those. Return the campaign with the
  execution that was taken.

  Args:
    campaign: the campaign.
    shared: the data on the devices.
    block: the block.
    claims: what this process has claimed, the block too.
    settled: whether runs are done, so that no process changes the lane width any more.
    bar: shows the progress.
  """
  plan, results, execution = campaign
  runs = plan.runs[np.array(results.blocks[block])]
  grouped = plan.grouped(runs)
  # Another process may have finished it before it was claimed here.
  while not results.is_finished(block):
    keeper = make_keeper(campaign, block, grouped, bar)
    if plan.options.progress:
      say_abandoned(claims, block, runs, keeper)
    # Nothing is written before all of the block's runs are trained.
    try:
      values, record, counts = run_lanes(campaign, shared, grouped, keeper, bar)
    except KeyboardInterrupt:
      if plan.options.progress:
        say_interrupted(runs, keeper)
      raise
    except jax.errors.JaxRuntimeError as error:
      width = narrow_lane_width(execution.width, error, plan.options)
      execution = lanes.Execution(execution.lowering, width)
      campaign = campaign._replace(execution=execution)
      # All processes take the same width as long as no run is done.
      description.settle_conditions(results, describe_provenance(plan, execution))
      continue
    # Most often nobody has changed the lanes, so the folder is asked once, at the end.
    due = execution if settled else read_folder_execution(campaign)
    if due == execution:
      store_block(campaign, block, (values, record, counts), claims, keeper)
      break
    execution = due
    campaign = campaign._replace(execution=execution)
  return campaign


def make_keeper(
  campaign: Campaign,
  block: int,
  grouped: GroupedRuns,
  bar: Progress,
) -> checkpoints.Checkpoints | None:
  """Return what saves a block's runs in training, None if they are not saved."""
  plan, results, execution = campaign
  runs, groups = grouped
  # Runs of several programs have no step at which all of their states could be saved.
  if len(groups) > 1:
    return None
  interval = checkpoint_interval(plan, execution, runs)
  if interval is None:
    return None
  # The recipe has paths to the data, which may be moved; the identity is compared.
  fits = describe_provenance(plan, execution)
  del fits["recipe"]
  return checkpoints.Checkpoints(
    results.path,
    block,
    lanes_of(plan.task, runs),
    interval,
    fits=fits,
    reached=functools.partial(bar.at_epoch, len(runs), plan.task.rounds),
  )


def say_abandoned(
  claims: Claims,
  block: int,
  runs: Runs,
  keeper: checkpoints.Checkpoints | None,
) -> None:
  """Say if a process that is gone has begun the block and saved nothing of it."""
  begun = claims.abandoned.get(str(block))
  if begun and not (keeper and keeper.saved):
    when = datetime.fromtimestamp(begun).isoformat(" ", "seconds")
    say(
      f"{run_count(len(runs))} begun at {when} by a process that has ended; starting them again"
    )


def say_interrupted(runs: Runs, keeper: checkpoints.Checkpoints | None) -> None:
  """Say what becomes of runs whose training is interrupted."""
  after = "start again"
  if keeper and keeper.saved:
    after = f"resume after epoch {keeper.saved}"
  say(f"{run_count(len(runs))} in training: they will {after}")


def store_block(
  campaign: Campaign,
  block: int,
  trained: TrainedBlock,
  claims: Claims,
  keeper: checkpoints.Checkpoints | None,
) -> None:
  """Write what was trained of a block, unless another process has written it."""
  plan, results, _ = campaign
  # The claim may be lost, if this process slept. That changes nothing: whoever trains the
  # block writes the same bytes, and the first record stays. Only another kind of machine
  # may write others.
  is_lost = not (claims.is_fresh(block) or claims.holds(block))
  if is_lost and read_metadata(results.path).get("kinds"):
    if plan.options.progress:
      say(f"block {block} was taken over by another process; discarding this duplicate")
    return
  values, record, counts = trained
  # An interruption in between would leave values without a record, and checkpoints of
  # runs that are done.
  with delay_interrupts():
    is_written = results.write_block(block, values, record, counts)
    if not is_written and plan.options.progress:
      say(f"block {block} was finished by another process; discarding this duplicate")
    if keeper:
      # A block that is not saved is short, so it is quickly trained again after a power
      # failure.
      results.flush_records()
      keeper.remove()


def checkpoint_interval(
  plan: Plan,
  execution: lanes.Execution,
  runs: Runs,
) -> int | str | None:
  """Return how often a block of these runs is saved in training, None for never.

  By default it is saved if it takes longer than `LONG`. Saving needs all lanes to wait
  for each other, which costs the more the more steps of lanes there are. So where the
  speed is not known, only blocks of few steps are saved.
  """
  every = plan.options.checkpoint_every
  if every == "never":
    return None
  if every is not None:
    return every
  states = len(runs) * plan.traced.bytes_of_a_state
  several_processes = jax.process_count() > 1
  # While they are saved, all states are in the host's memory, beside other arrays.
  if several_processes or plan.task.rounds < 2 or states > free_host_memory() / 8:
    return None
  seconds_a_step = known_speed(plan.task, execution)
  if seconds_a_step is None:
    in_flight = execution.width * len(lanes.devices())
    is_worth_it = len(runs) <= FEW_STEPS * in_flight
  else:
    is_worth_it = seconds_a_step * plan.model_steps(runs) > LONG
  return checkpoints.AUTO if is_worth_it else None


def run_lanes(
  campaign: Campaign,
  shared,
  grouped: GroupedRuns,
  keeper: checkpoints.Checkpoints | None,
  bar: Progress,
) -> TrainedBlock:
  """Train the runs of a block together. Return their outputs, what their record says,
  and the counts over them.
  """
  plan, _, execution = campaign
  displayed = shown_output(plan.traced)
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
    spread = spread_task(plan, execution, traced, tallied)
    steps = spread(shared, table, keeper, carry, combination[rows])
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
  if keeper:
    seconds += keeper.before
  record = {
    **describe_provenance(plan, execution),
    "platform": devices[0].platform,
    "commit": commit(),
    "seconds": round(seconds, 3),
    "compile_seconds": round(compile_seconds() - compiled, 3),
    "when": datetime.now(UTC).isoformat(timespec="seconds"),
  }
  return join_steps(finished, [rows for rows, _ in groups]), record, counts


def empty_counts(campaign: Campaign) -> dict[str, reducing.BlockCounts]:
  """Return counts over no runs of the classes that the folder counts, by output."""
  plan, results, execution = campaign
  shapes = {name: results.root["arrays"][name]["shape"] for name in results.counts}
  # A device has the errors of its share of a block, filled up to whole steps.
  step = execution.width * len(lanes.devices())
  runs_of_a_device = math.ceil(results.block_runs / step) * execution.width
  counts = {}
  for name in plan.tallied:
    votes = outputs.sibling(name, "votes")
    if votes not in shapes:
      continue
    has_pairs = outputs.sibling(name, "joint_errors") in shapes
    combos, examples, classes = shapes[votes]
    if has_pairs:
      # Pairs of examples are counted from the errors of all runs of the block.
      counts[name] = reducing.make_empty_counts(
        combos, examples, classes, runs_of_a_device
      )
    else:
      counts[name] = reducing.make_empty_counts(combos, examples, classes)
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


def read_folder_execution(campaign: Campaign) -> lanes.Execution:
  """Return the lowering and lane width to use: the folder's, which another process may
  have changed while no run was done.
  """
  execution = campaign.execution
  options = campaign.plan.options
  root = read_metadata(campaign.results.path)
  lowering = root.get("lowering", MIXED)
  width = root.get("lane_width", MIXED)
  if MIXED in (lowering, width):
    return execution
  theirs = lanes.Execution(lowering, width)
  if theirs != execution and options.progress:
    say(
      f"another process has changed to {theirs.lowering}, width {theirs.width}: using "
      "that too"
    )
  return theirs


@contextmanager
def delay_interrupts() -> Iterator[None]:
  """Delay Ctrl-C, and SIGTERM if something handles it, until the context is left."""
  # Python allows handlers in the main thread alone, and calls them there.
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  delayed: list[tuple[int, Any]] = []
  handlers = {}
  for number in (signal.SIGINT, signal.SIGTERM):
    handler = signal.getsignal(number)
    if callable(handler):
      handlers[number] = handler
  for number in handlers:
    signal.signal(number, lambda *arguments: delayed.append(arguments))
  try:
    yield
  finally:
    for number, handler in handlers.items():
      signal.signal(number, handler)
    if delayed:  # one is enough: it raises
      number, frame = delayed[0]
      handlers[signal.Signals(number)](number, frame)


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


def spread_task(
  plan: Plan,
  execution: lanes.Execution,
  traced: Traced,
  tallied: Collection[str] = (),
):
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
  return spread_program(program, execution)


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


def narrow_lane_width(lane_width: int, error: Exception, options: Options) -> int:
  """Return a narrower lane width after the devices ran out of memory.

  Raises:
    UserError: the width cannot be reduced.
  """
  if not is_out_of_memory(error):
    raise error
  kind = lanes.devices()[0].device_kind
  reason = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")[:120]
  full = f"lane width {lane_width} does not fit in the memory of {kind} ({reason})"
  if lane_width == 1:
    raise UserError(
      f"{full}: give a smaller width, batch_size or eval_batch_size"
    ) from None
  width = lanes.narrower_width(lane_width, *lanes.parse_oom_message(error))
  if options.progress:
    say(f"{full}: continuing with {width}")
  return width
