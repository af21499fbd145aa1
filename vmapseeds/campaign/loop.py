"""Train a campaign block by block, so that it can stop, resume, and be shared by several
processes.
"""

import collections
import dataclasses
import functools
import math
import random
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

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
from vmapseeds.campaign.options import Options, WorkOptions
from vmapseeds.campaign.planning import Plan
from vmapseeds.campaign.progress import Progress
from vmapseeds.campaign.provenance import (
  commit,
  compile_seconds,
  machine_conditions,
  versions,
)
from vmapseeds.lanes.memory import is_out_of_memory
from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Failure, Mistake, door, say, whole_number
from vmapseeds.results import description
from vmapseeds.results.description import MIXED, check_folder, combinations
from vmapseeds.results.formatting import count_of, run_count, show
from vmapseeds.results.opening import open_results
from vmapseeds.store import checkpoints
from vmapseeds.store.claims import LEASE, Claims
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import FolderExists, check_writable, removed_if_unused
from vmapseeds.store.layout import Description, read_metadata, read_verified_metadata
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training import outputs
from vmapseeds.training.names import DIVERGED
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs, as_runs
from vmapseeds.training.task import (
  STAGES,
  Task,
  Traced,
  as_stored,
  describe,
  lanes_of,
  rows_by_program,
  shown_output,
)

SEED_BATCH = 256
LONG = 60.0  # seconds of a block that is saved in training by default
FEW_STEPS = 8  # of lanes in a block
POLL = 0.5  # seconds between two looks at what other processes have done, at least
MOST_POLL = 10.0  # the most, of a process that waits for others


class Campaign(NamedTuple):
  """A campaign whose folder is open."""

  plan: Plan
  results: Results
  execution: lanes.Execution


@door
@moves_data
def train(
  task: Recipe | Task | str,
  runs: Runs | int = 256,
  out: Folder | None = None,
  **options: Any,
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
    out: the results folder, created if absent. It must be given.
    **options: the fields of `vs.Options`: `seed_batch`, `lane_width`, `lowering`,
      `tallies`, `pairs`, `predictions`, `logits`, `keep_params`, `checkpoint_every`,
      `force_mixed`, `progress`.

  Raises:
    Mistake: an argument is not valid; then nothing has been trained or changed. Or the
      devices run out of memory, and the lane width cannot be reduced.
    Failure: the disk is full, or cannot be written any more. What was written stays.
  """
  if out is None:
    raise Mistake(
      "out is not given: give the results folder, such as out='results/mine'"
    )
  with removed_if_unused(out):
    campaign = open_campaign(task, runs, out, Options.of(**options))
    plan, results, execution = campaign
    done = int(results.done[: len(plan.runs)].sum())
    if plan.options.progress and done < len(plan.runs):
      due = estimate_plan(plan, execution, results.block_runs, done)
      say(f"to train: {due}")
      if not done and (line := compare_precisions(plan.task, execution, due.seconds)):
        say(line)
    train_blocks(campaign, wait=True)
  return open_dataset(campaign)


class Estimate(NamedTuple):
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
    time = "time not measured"
    if self.seconds is not None:
      total = timedelta(seconds=max(1, round(self.seconds)))
      each = show(self.seconds / max(1, self.runs), None, "count")
      time = f"{each} s each, {total} in all"
    size = self.disk_bytes / 1e6
    return f"{run_count(self.runs)}; {time}; {size:,.{2 * (size < 10)}f} MB on disk"


@door
@moves_data
def estimate(
  task: Recipe | Task | str,
  runs: Runs | int = 256,
  out: Folder | None = None,
  **options: Any,
) -> Estimate:
  """Return what `train` would take with these arguments. It checks them as `train` does,
  times the training step for a few seconds, and trains and writes no runs.

  Args:
    task: as for `train`.
    runs: as for `train`.
    out: the results folder, whose finished runs are left out; None for a new one.
    **options: as for `train`.

  Raises:
    Mistake: as `train`.
  """
  plan = plan_campaign(task, runs, out, Options.of(**options))
  plan, execution, seed_batch = plan_execution(plan, out)
  done = 0
  if out is not None and (root := read_verified_metadata(out)):
    results = Results(out, root)
    contents = planning.contents_of(plan, seed_batch)
    given = contents.description | provenance(plan, execution)
    allowed = plan.options.force_mixed, plan.options.allow_upgrade
    description.check_same(results, contents, given, *allowed)
    seed_batch = results.block_runs
    done = int(results.done[: len(plan.runs)].sum())
  known_speed(plan.task, execution, measured=True)
  return estimate_plan(plan, execution, seed_batch, done)


def estimate_plan(
  plan: Plan, execution: lanes.Execution, block_runs: int, done: int
) -> Estimate:
  """Return what the runs that are left will take, from timings made earlier."""
  left = len(plan.runs) - done
  contents = planning.contents_of(plan, block_runs)
  size = sum(column.nbytes for column in contents.columns.values())
  for entries, times in (
    (contents.outputs, left),
    (contents.counts, -(-left // block_runs)),
  ):
    for about in entries.values():
      size += times * math.prod(about["shape"]) * np.dtype(about["dtype"]).itemsize
  a_step = known_speed(plan.task, execution)
  steps = plan.model_steps(plan.runs) * left / len(plan.runs)
  seconds = a_step and a_step * steps
  return Estimate(left, seconds, size)


def plan_campaign(
  task: Recipe | Task | str, runs: Runs | int, out: Folder | None, options: Options
) -> Plan:
  """Do what `train` does before it opens the folder: load the data, and check that all
  fits together.
  """
  task = planning.resolve_task(task)
  runs = as_runs(runs)
  most = options.seed_batch or len(runs)
  if options.lane_width is not None and options.lane_width > most:
    limit = f"seed batch {most}" if options.seed_batch else f"{most} runs"
    raise Mistake(f"lane width {options.lane_width} with {limit}: give at most as many")
  if out is not None:
    root = check_folder(out)
    if isinstance(task, Recipe):
      task = planning.with_recorded_precision(task, root)
  return planning.make_plan(*planning.load_task(task, runs, options), options)


def open_campaign(
  task: Recipe | Task | str, runs: Runs | int, out: Folder, options: Options
) -> Campaign:
  """Do what `train` does before it trains: check everything, and create the folder or
  extend it.
  """
  return attach_folder(out, plan_campaign(task, runs, out, options))


def resume(out: Folder, options: Options, *, dataset: Folder | None = None) -> Campaign:
  """Do what `work` does before it trains: open the folder and load what its task
  needs.
  """
  runs, results = description.campaign_of(out)
  check_writable(out)
  root = results.root
  options = dataclasses.replace(options, **root["kept"])
  plan = planning.reload_plan(out, root, root["recipe"], runs, options, dataset)
  return attach_folder(out, plan)


def attach_folder(out: Folder, plan: Plan) -> Campaign:
  """Create the campaign's folder, or extend an existing one.

  Raises:
    Mistake: the folder has another task or other runs.
  """
  options = plan.options
  while True:
    plan, execution, seed_batch = plan_execution(plan, out)
    try:
      with writing(out):
        results = description.open_or_create(
          out,
          planning.contents_of(plan, seed_batch),
          block_runs=seed_batch,
          depends=provenance(plan, execution),
          force_mixed=options.force_mixed,
          allow_upgrade=options.allow_upgrade,
        )
    except FolderExists:
      continue  # the other process's choices count
    if options.seed_batch not in (None, results.block_runs) and options.progress:
      say(
        f"the seed batch is {results.block_runs}, as in {out}, not "
        f"{options.seed_batch}: a folder keeps its own"
      )
    if options.progress and (kinds := results.root.get("kinds")):
      shown = "; ".join(
        f"{name.replace('_', ' ')} {', '.join(map(str, values))}"
        for name, values in kinds.items()
      )
      say(
        f"{out} has runs of several kinds ({shown}), between which the last bits may "
        "differ: the record of each block has its own"
      )
    return Campaign(plan, results, execution)


def plan_execution(plan: Plan, out: Folder | None) -> tuple[Plan, lanes.Execution, int]:
  """Return the plan with what an existing folder has recorded, how its lanes will be run,
  and the seed batch of a new folder.
  """
  options = plan.options
  a_state = 0
  if options.checkpoint_every not in (None, "never"):
    checkpoints.check_usable()
    a_state = plan.traced.bytes_of_a_state
  root = read_metadata(out) if out is not None else {}
  plan = planning.with_recorded_paths(plan, root)
  if out is not None and options.force_mixed and root:
    plan = planning.with_recorded_values(plan, description.campaign_of(out)[0])
  execution = planned_execution(plan, root)
  fitting = fitting_seed_batch(plan, execution, a_state)
  return plan, execution, options.seed_batch or fitting


def open_dataset(campaign: Campaign) -> xr.Dataset:
  """Return the results of a campaign."""
  results = campaign.results
  return open_results(results.path, *results.root["test_sets"][:1])


def planned_execution(plan: Plan, root: Description) -> lanes.Execution:
  """Return the lowering and lane width: those given, else the folder's, else the
  fastest.
  """
  task = plan.task
  runs = plan.runs
  options = plan.options
  # Those of another kind of device may be slow here.
  alike = root.get("device_kind") == lanes.devices()[0].device_kind
  kept = {
    name: root.get(name)
    for name in ("lowering", "lane_width")
    if alike and root.get(name) != MIXED
  }
  lowering = options.lowering or kept.get("lowering")
  lane_width = options.lane_width or kept.get("lane_width")
  if lowering is not None and lane_width is not None:
    return lanes.Execution(lowering, lane_width)
  most = -(-min(len(runs), options.seed_batch or len(runs)) // len(lanes.devices()))
  return choose_execution(
    task,
    lanes_of(task, runs[slice(0, 1)]),
    model_steps=plan.model_steps(runs),
    most=most,
    lowering=lowering,
    width=lane_width,
    shown=options.progress,
  )


def provenance(plan: Plan, execution: lanes.Execution) -> dict[str, Any]:
  """Return everything that results depend on, as stored in the folder, its records and
  checkpoints.
  """
  unknown = dict.fromkeys(("precision", "networks_digest", "mean", "std"))
  return {
    **unknown,
    **plan.task.conditions,
    "recipe": describe(plan.task),
    "identity": plan.identity,
    "data_digest": plan.identity["data"],
    **machine_conditions(),
    "lane_width": execution.width,
    "lowering": execution.lowering,
    "versions": versions(),
  }


@door
@moves_data
def work(
  out: Folder,
  blocks: tuple[int | None, int | None] | None = None,
  *,
  dataset: Folder | None = None,
  **options: Any,
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
    **options: these fields of `vs.Options`: `seed_batch`, `checkpoint_every`,
      `force_mixed`, `progress`.

  Raises:
    Mistake: as `train`; or there are no such blocks.
  """
  ends = (None, None) if blocks is None else blocks
  if (
    not isinstance(ends, tuple)
    or len(ends) != 2
    or any(e is not None and whole_number(e) is None for e in ends)
  ):
    raise Mistake(
      f"blocks is {blocks!r:.100}: give (first, one past the last), e.g. (0, 10)"
    )
  campaign = resume(out, Options(**vars(WorkOptions.of(**options))), dataset=dataset)
  count = len(campaign.results.blocks)
  first, last = ends
  first = first or 0
  last = count if last is None else last
  if not 0 <= first < last <= count:
    raise Mistake(
      f"blocks {first}:{last} of a folder with {count}: give some from 0:{count}"
    )
  held = train_blocks(campaign, range(first, last), wait=False)
  if held and campaign.plan.options.progress:
    say(
      f"{count_of(len(held), 'block')} left to other processes, which train them; the first "
      f"is block {held[0]}"
    )
  return open_dataset(campaign)


def train_blocks(
  campaign: Campaign, blocks: Sequence[int] | None = None, *, wait: bool
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
  if blocks is None:
    count = len(plan.runs)
    blocks = [k for k, rows in enumerate(results.blocks) if rows.start < count]
  total = max(len(plan.runs), results.blocks[blocks[-1]].stop)
  if len(plan.runs) < len(results):  # a block is trained whole
    runs, _ = description.campaign_of(results.path)
    plan = plan._replace(runs=runs)
    campaign = campaign._replace(plan=plan)
  rows = np.flatnonzero(results.done[:total])
  shown = shown_output(plan.traced)
  seen = rows if plan.options.progress else rows[:0]
  values = stored_values(results, shown, seen)
  shared = on_devices(plan)
  bar = Progress(
    total, len(rows), values, shown, plan.options.progress, compile_seconds
  )
  left, queue = list(blocks), collections.deque[int]()
  told = not plan.options.progress
  looked, pause, waited = -math.inf, 0.0, 0.0
  with writing(results.path), bar, Claims(results.path) as claims:
    while True:
      # Listing the records takes long where there are many, and most often it is enough
      # to know of one's own.
      if not queue or time.monotonic() - looked > pause:
        begun = time.monotonic()
        finished, alive = claims.look()
        left = [block for block in left if block not in finished]
        bar.done = sum(
          len(results.blocks[k])
          for k in finished
          if k < len(results.blocks) and results.blocks[k].start < total
        )
        others = {block for block in left if alive.get(str(block), False) is not False}
        queue = collections.deque(block for block in left if block not in others)
        if others:  # which would take the same blocks in the same order
          random.shuffle(queue)
        if others and not told:
          told = True
          say(f"{describe_others(claims, others)}; this process takes others")
        looked = time.monotonic()
        pause = max(POLL, 10 * (looked - begun))
        if not left:
          break
      block = None
      while queue and not claims.take(block := queue.popleft()):
        block = None
      bar.waits(block is None)
      if block is None:
        unknown = [block for block in left if alive.get(str(block), False) is None]
        if not wait and not unknown:
          return left
        if not (wait or waited) and plan.options.progress:
          say(
            f"{count_of(len(left), 'block')} left to other processes: looking for up to "
            f"{LEASE:.0f} s whether they are alive"
          )
        time.sleep(min(MOST_POLL, max(POLL, waited / 20)))
        waited += time.monotonic() - looked
        continue
      execution = train_and_store_block(
        campaign, shared, block, claims, bool(finished), bar
      )
      campaign = campaign._replace(execution=execution)
      claims.give_back(block)
  checkpoints.clear(results)
  if len(finished) >= len(results.blocks):
    with writing(results.path):
      results.gather()
  elsewhere = bar.done - len(rows) - bar.trained
  if elsewhere and plan.options.progress:
    say(f"{run_count(bar.trained)} trained here, {elsewhere} by other processes")
  return []


def describe_others(claims: Claims, blocks: Collection[int]) -> str:
  """Return which processes train which blocks."""
  of: dict[str, list[int]] = {}
  for block in sorted(blocks):
    of.setdefault(claims.owner(block), []).append(block)
  return "; ".join(
    f"{who} trains block{'s' * (len(held) > 1)} {', '.join(map(str, held[:8]))}"
    f"{' and more' * (len(held) > 8)}"
    for who, held in of.items()
  )


def train_and_store_block(
  campaign: Campaign, shared, block: int, claims: Claims, settled: bool, bar: Progress
) -> lanes.Execution:
  """Train a block's runs together and write them, unless another process has done so.
  Return the execution for the next block.

  Args:
    campaign: the campaign.
    shared: the data on the devices.
    block: the block.
    claims: what this process has claimed, the block too.
    settled: whether runs are done, so that no process changes the lane width any more.
    bar: shows the progress.
  """
  plan, results, _ = campaign
  options = plan.options
  # Another process may have finished it before it was claimed here.
  if results.is_finished(block):
    return campaign.execution
  runs = plan.runs[np.array(results.blocks[block])]
  execution = campaign.execution if settled else folder_execution(campaign)
  campaign = campaign._replace(execution=execution)
  keeper = interval = None
  # Runs of several programs have no step at which all of their states could be saved.
  if len(rows_by_program(plan.task, runs)) == 1:
    interval = checkpoint_interval(plan, execution, runs)
  if interval:
    keeper = checkpoints.Checkpoints(
      results.path,
      block,
      lanes_of(plan.task, runs),
      interval,
      fits={n: v for n, v in provenance(plan, execution).items() if n != "recipe"},
      reached=functools.partial(bar.at_epoch, len(runs), plan.task.rounds),
    )
  begun = claims.abandoned.get(str(block))
  if begun and options.progress and not (keeper and keeper.saved):
    when = datetime.fromtimestamp(begun).isoformat(" ", "seconds")
    say(
      f"{run_count(len(runs))} begun at {when} by a process that is gone: they start "
      "again"
    )
  try:
    found, record, counts = run_lanes(campaign, shared, runs, keeper, bar)
  except KeyboardInterrupt:
    if options.progress:
      saved = keeper.saved if keeper else 0
      after = f"resume after epoch {saved}" if saved else "start again"
      say(f"{run_count(len(runs))} in training: they will {after}")
    raise
  except jax.errors.JaxRuntimeError as error:
    execution = lanes.Execution(
      execution.lowering, narrower(execution.width, error, options)
    )
    description.settle(results, provenance(plan, execution))
    return execution
  if not settled and folder_execution(campaign) != execution:
    return execution
  # The claim may be lost, if this process slept. That changes nothing: whoever trains the
  # block writes the same bytes, and the first record stays. Only another kind of machine
  # may write others.
  lost = not (claims.is_fresh(block) or claims.holds(block))
  if lost and read_metadata(results.path).get("kinds"):
    if options.progress:
      say(
        f"block {block} is another process's by now: what was trained here is not used"
      )
    return execution
  with uninterrupted():
    written = results.write_block(block, found, record, counts)
    if written is False and options.progress:
      say(
        f"block {block} was finished by another process meanwhile: what was trained here "
        "is not used"
      )
    if keeper:
      keeper.remove()
  return execution


def checkpoint_interval(
  plan: Plan, execution: lanes.Execution, runs: Runs
) -> int | str | None:
  """Return how often a block of these runs is saved in training, None for never.

  By default it is saved if it takes longer than `LONG`. Saving needs all lanes to wait
  for each other, which costs the more the more steps of lanes there are. So where the
  speed is not known, only blocks of few steps are saved.
  """
  asked = plan.options.checkpoint_every
  if asked is not None:
    return None if asked == "never" else asked
  states = len(runs) * plan.traced.bytes_of_a_state
  several = jax.process_count() > 1
  if several or plan.task.rounds < 2 or states > free_host_memory() / 8:
    return None
  a_step = known_speed(plan.task, execution)
  if a_step is None:
    few = len(runs) <= FEW_STEPS * execution.width * len(lanes.devices())
    return checkpoints.AUTO if few else None
  seconds = a_step * plan.model_steps(runs)
  return checkpoints.AUTO if seconds > LONG else None


def run_lanes(
  campaign: Campaign,
  shared,
  runs: Runs,
  keeper: checkpoints.Checkpoints | None,
  bar: Progress,
) -> tuple[dict[str, np.ndarray], Description, dict[str, np.ndarray]]:
  """Train the runs of a block together. Return their outputs, what their record says,
  and the counts over them.
  """
  plan, results, execution = campaign
  shown = shown_output(plan.traced)
  devices = lanes.devices()
  arrays = {name: results.root["arrays"][name]["shape"] for name in results.counts}
  tallied = [n for n in plan.tallied if outputs.sibling(n, "votes") in arrays]
  step = execution.width * len(devices)
  room = -(-results.block_runs // step) * execution.width
  nothing: Any = {}
  for name in tallied:
    pairs = outputs.sibling(name, "joint_errors") in arrays
    combos, examples, classes = arrays[outputs.sibling(name, "votes")]
    runs_held = room if pairs else None
    nothing[name] = reducing.empty(combos, examples, classes, runs_held)
  combination, _ = combinations(runs)
  finished: list[dict[str, np.ndarray]] = []
  counts: dict[str, np.ndarray] = {}
  begun = time.perf_counter()
  compiled = compile_seconds()
  groups = [*rows_by_program(plan.task, runs).values()]
  for rows in groups:
    traced = plan.traced_for(runs[rows])
    table, carry = lanes_of(traced.task, runs[rows]), nothing
    spread = spread_task(plan, execution, traced, tallied)
    steps = spread(shared, table, keeper, carry, combination[rows])
    # The last carry is what all lanes have counted.
    for which, found, carry in steps:  # noqa: B007
      finished.append(as_stored(plan.stored, found))
      bar.trained_more(which.stop - which.start, shown_values(shown, finished[-1]))
    added = reducing.counts_by_array(carry, devices) if tallied else {}
    counts = {name: counts.get(name, 0) + of for name, of in added.items()}
  before = keeper.before if keeper else 0.0
  record = {
    **provenance(plan, execution),
    "platform": devices[0].platform,
    "commit": commit(),
    "seconds": round(before + time.perf_counter() - begun, 3),
    "compile_seconds": round(compile_seconds() - compiled, 3),
    "when": datetime.now(UTC).isoformat(timespec="seconds"),
  }
  joined = {name: np.concatenate([o[name] for o in finished]) for name in finished[0]}
  if len(groups) > 1:
    order = np.argsort(np.concatenate(groups))
    joined = {name: values[order] for name, values in joined.items()}
  return joined, record, counts


def shown_values(shown, found):
  """Return the values that the progress line shows, without those of runs that
  diverged.
  """
  if shown is None:
    return np.array([])
  values = found[shown[0]]
  return values[~found[DIVERGED]] if DIVERGED in found else values


def stored_values(
  results: Results, shown: tuple[str, str, str] | None, rows: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
  """Return the values of finished runs that the progress line shows, from the folder."""
  names = {*shown[:1], DIVERGED} & {*results.outputs} if shown else ()
  return shown_values(shown, {name: results.read(name, rows) for name in names})


def on_devices(plan: Plan):
  """Return the task's data, and labels, on every device.

  Raises:
    Mistake: they do not fit in memory.
  """
  labels = outputs.labels_of(plan.traced.outputs)
  try:
    return lanes.replicate((plan.task.data, labels), lanes.devices())
  except jax.errors.JaxRuntimeError as error:
    if not is_out_of_memory(error):
      raise
    kind = lanes.devices()[0].device_kind
    raise Mistake(
      f"the data of {plan.task.name} do not fit in the memory of {kind}: give fewer"
    ) from None


def folder_execution(campaign: Campaign) -> lanes.Execution:
  """Return the lowering and lane width to use: the folder's, which another process may
  have changed while no run was done.
  """
  execution = campaign.execution
  options = campaign.plan.options
  root = read_metadata(campaign.results.path)
  theirs = lanes.Execution(
    *(root.get(name, MIXED) for name in ("lowering", "lane_width"))
  )
  if MIXED in theirs or theirs == execution:
    return execution
  if options.progress:
    say(
      f"another process has changed to {theirs.lowering}, width {theirs.width}: using "
      "that too"
    )
  return theirs


@contextmanager
def uninterrupted() -> Iterator[None]:
  """Delay Ctrl-C, and SIGTERM if something handles it, until the context is left."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  came: list[tuple[int, Any]] = []
  handlers = {
    s: handler
    for s in (signal.SIGINT, signal.SIGTERM)
    if callable(handler := signal.getsignal(s))
  }
  for s in handlers:
    signal.signal(s, lambda number, frame: came.append((number, frame)))
  try:
    yield
  finally:
    for s, handler in handlers.items():
      signal.signal(s, handler)
    for number, frame in came[:1]:
      handlers[signal.Signals(number)](number, frame)


@contextmanager
def writing(out: Folder) -> Iterator[None]:
  """Turn the error of a full or failing disk into a `Failure` of one line."""
  try:
    yield
  except OSError as error:
    reason = error.strerror or str(error)
    raise Failure(
      f"{out} cannot be written ({reason}): make room, and run the same command again to "
      "resume"
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
  key = (
    *(plan.identity[stage] for stage in STAGES),
    *((name, output.program) for name, output in declared.items()),
    *plan.identity["fixed"].items(),
    traced.lane.fixed,
    describe(traced.task) if plan.task.fields else "",
  )
  functions = *traced.functions, declared
  rounds = traced.task.rounds
  program = Program(key, rounds, tuple(plan.stored), tuple(tallied), functions)
  return spread_program(program, execution)


@dataclasses.dataclass(frozen=True)
class Program:
  """What is compiled for a task, hashed by what it computes: functions that were edited
  and imported again compute something else.
  """

  key: tuple
  rounds: int
  stored: tuple[str, ...]
  tallied: tuple[str, ...]
  functions: tuple = dataclasses.field(compare=False)


@functools.lru_cache(maxsize=64)  # a block has runs of all programs of a sweep
def spread_program(program: Program, execution: lanes.Execution):
  """Return a task's functions, spread over lanes."""
  start, advance, finish, declared = program.functions

  def begin(shared, run):
    return start(shared[0], run)

  def go_on(shared, run, state, first, last):
    return advance(shared[0], run, state, first, last)

  def measure(shared, run, state):
    data, labels = shared
    found = finish(data, run, state)
    return outputs.measured(declared, labels, found, run)

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
  a_run = plan.traced.bytes_of_a_run + a_state
  # An eighth, because there are a few copies of the outputs while they are joined and
  # written.
  fitting = free_host_memory() / 8 // max(1, a_run)
  return int(max(1, min(SEED_BATCH, fitting) // step)) * step


def narrower(lane_width: int, error: Exception, options: Options) -> int:
  """Return a narrower lane width after the devices ran out of memory.

  Raises:
    Mistake: the width cannot be reduced.
  """
  if not is_out_of_memory(error):
    raise error
  said = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")
  width = lanes.narrower_width(lane_width, *lanes.parse_oom_message(error))
  full = f"lane width {lane_width} does not fit in the memory of {lanes.devices()[0].device_kind} ({said[:120]})"
  if lane_width == 1:
    raise Mistake(
      f"{full}: give a smaller width, batch_size or eval_batch_size"
    ) from None
  if options.progress:
    say(f"{full}: continuing with {width}")
  return width
