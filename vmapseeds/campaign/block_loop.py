"""Train a campaign block by block: claim a block, train it, write it."""

import contextlib
import enum
import functools
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import jax
import numpy as np

from vmapseeds import lanes
from vmapseeds.campaign import block_training
from vmapseeds.campaign.block_schedule import (
  POLL,
  BlockSchedule,
  count_runs,
  describe_others,
)
from vmapseeds.campaign.block_training import TrainedBlock
from vmapseeds.campaign.execution import known_speed
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import GroupedRuns, Plan
from vmapseeds.campaign.progress import Progress
from vmapseeds.campaign.provenance import compile_seconds
from vmapseeds.campaign.starting import Campaign, with_whole_blocks, wrap_disk_errors
from vmapseeds.errors import UserError, say
from vmapseeds.lanes.memory import is_out_of_memory
from vmapseeds.machine import free_host_memory
from vmapseeds.results import description
from vmapseeds.results.description import MIXED
from vmapseeds.results.formatting import count_of, run_count
from vmapseeds.store import checkpoints
from vmapseeds.store.claims import LEASE, Claims
from vmapseeds.store.layout import read_metadata
from vmapseeds.training.runs import Runs
from vmapseeds.training.task import lanes_of

LONG = 60.0  # seconds of a block that is saved in training by default
FEW_STEPS = 8  # of lanes in a block
MOST_POLL = 10.0  # the most, of a process that waits for others


class BlockOutcome(enum.Enum):
  """What became of an attempt to train a block."""

  STORED = "another attempt is not needed"
  OUT_OF_MEMORY = "its lanes did not fit in memory, and are narrower now"
  LANES_CHANGED = (
    "another process has changed the folder's lanes, and these are taken now"
  )


class BlockTrainer:
  """Trains blocks and writes them, with the lanes that the folder has.

  Args:
    campaign: the campaign. Its lanes change when the devices run out of memory, or when
      another process has changed the folder's.
    shared: the data on the devices.
    claims: what this process has claimed.
    bar: shows the progress.
  """

  def __init__(self, campaign: Campaign, shared, claims: Claims, bar: Progress):
    self.campaign = campaign
    self.shared = shared
    self.claims = claims
    self.bar = bar

  def train_and_store(self, block: int, *, settled: bool) -> None:
    """Train a block's runs together and write them, unless another process has done so.

    Args:
      block: the block, which this process has claimed.
      settled: whether runs are done, so that no process changes the lane width any more.
    """
    results = self.campaign.results
    runs = self.campaign.plan.runs[np.array(results.blocks[block])]
    grouped = self.campaign.plan.grouped(runs)
    # Another process may have finished it before it was claimed here.
    while not results.is_finished(block):
      outcome = self._attempt(block, grouped, settled)
      if outcome is BlockOutcome.STORED:
        return
      # All runs are trained again: a folder's runs have the same lanes.

  def _attempt(self, block: int, grouped: GroupedRuns, settled: bool) -> BlockOutcome:
    """Train a block's runs once, and write them if that was with the folder's lanes."""
    progress = self.campaign.plan.options.progress
    block_checkpoints = make_block_checkpoints(self.campaign, block, grouped, self.bar)
    if progress:
      say_abandoned(self.claims, block, grouped.runs, block_checkpoints)
    try:
      trained = block_training.run_lanes(
        self.campaign, self.shared, grouped, block_checkpoints, self.bar
      )
    except KeyboardInterrupt:
      if progress:
        say_interrupted(grouped.runs, block_checkpoints)
      raise
    except jax.errors.JaxRuntimeError as error:
      if not is_out_of_memory(error):
        raise
      # Here, because an error that is kept holds arrays on the devices.
      self._narrow_lanes(error)
      return BlockOutcome.OUT_OF_MEMORY

    # Most often nobody has changed the lanes, so the folder is asked once, at the end.
    if not settled and self._take_lanes_of_folder():
      return BlockOutcome.LANES_CHANGED
    # Nothing is written before all of the block's runs are trained.
    store_block(self.campaign, block, trained, self.claims, block_checkpoints)
    return BlockOutcome.STORED

  def _narrow_lanes(self, error: jax.errors.JaxRuntimeError) -> None:
    """Take narrower lanes from now on, and let all processes take them."""
    lowering, width = self.campaign.plan.execution
    width = narrow_lane_width(width, error, self.campaign.plan.options)
    self.campaign = self.campaign.with_execution(lanes.Execution(lowering, width))
    plan, results = self.campaign
    # All processes take the same width as long as no run is done.
    description.settle_conditions(results, plan.provenance)

  def _take_lanes_of_folder(self) -> bool:
    """Take the folder's lanes from now on. Return whether they have changed."""
    execution = read_folder_execution(self.campaign)
    has_changed = execution != self.campaign.plan.execution
    if has_changed:
      self.campaign = self.campaign.with_execution(execution)
    return has_changed


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
  plan, results = campaign
  options = plan.options
  if blocks is None:
    count = len(plan.runs)
    blocks = [block for block, rows in enumerate(results.blocks) if rows.start < count]
  campaign = with_whole_blocks(campaign)
  total = max(len(plan.runs), results.blocks[blocks[-1]].stop)
  plan = campaign.plan

  done = np.flatnonzero(results.done[:total])
  displayed = plan.traced.shown
  # Values of many runs take long to read, and only the progress line needs them.
  rows = done if options.progress else done[:0]
  values = block_training.read_values_for_progress(results, displayed, rows)
  shared = block_training.put_data_on_devices(plan)
  bar = Progress(total, len(done), values, displayed, options.progress, compile_seconds)
  with wrap_disk_errors(results.path), bar, Claims(results.path) as claims:
    schedule = BlockSchedule(blocks, claims)
    trainer = BlockTrainer(campaign, shared, claims, bar)
    blocks_of_others = train_free_blocks(trainer, schedule, wait=wait)
    if blocks_of_others:
      return blocks_of_others

  checkpoints.clear(results)
  if len(schedule.finished) >= len(results.blocks):
    with wrap_disk_errors(results.path):
      results.gather()
  elsewhere = bar.done - len(done) - bar.trained
  if elsewhere and options.progress:
    say(f"{run_count(bar.trained)} trained here, {elsewhere} by other processes")
  return []


def train_free_blocks(
  trainer: BlockTrainer, schedule: BlockSchedule, *, wait: bool
) -> Sequence[int]:
  """Train one block after another until none is left, or other processes train all that
  are left and there is no need to `wait` for them. Return these.
  """
  bar = trainer.bar
  results = trainer.campaign.results
  progress = trainer.campaign.plan.options.progress
  is_announced = False
  waited = 0.0
  while True:
    if schedule.is_due():
      schedule.look()
      bar.done = count_runs(results, schedule.finished, bar.total)
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
      trainer.train_and_store(block, settled=settled)
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


def read_folder_execution(campaign: Campaign) -> lanes.Execution:
  """Return the lowering and lane width to use: the folder's, which another process may
  have changed while no run was done.
  """
  execution = campaign.plan.execution
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


def narrow_lane_width(lane_width: int, error: Exception, options: Options) -> int:
  """Return a narrower lane width after the devices ran out of memory.

  Raises:
    UserError: the width cannot be reduced.
  """
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


def make_block_checkpoints(
  campaign: Campaign,
  block: int,
  grouped: GroupedRuns,
  bar: Progress,
) -> checkpoints.Checkpoints | None:
  """Return what saves a block's runs in training, None if they are not saved."""
  plan, results = campaign
  runs, groups = grouped
  # Runs of several programs have no step at which all of their states could be saved.
  if len(groups) > 1:
    return None
  interval = checkpoint_interval(plan, runs)
  # The recipe has paths to the data, which may be moved; the identity is compared.
  fits = dict(plan.provenance)
  del fits["recipe"]
  block_checkpoints = checkpoints.Checkpoints(
    results.path,
    block,
    lanes_of(plan.task, runs),
    interval or checkpoints.AUTO,
    fits=fits,
    reached=functools.partial(bar.at_epoch, len(runs), plan.task.rounds),
  )
  if interval is not None:
    return block_checkpoints
  # What an earlier process saved is resumed, though nothing would be saved by default.
  if plan.options.checkpoint_every is None and block_checkpoints.saved:
    return block_checkpoints
  return None


def checkpoint_interval(plan: Plan, runs: Runs) -> int | str | None:
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
  seconds_a_step = known_speed(plan.task, plan.execution)
  if seconds_a_step is None:
    in_flight = plan.execution.width * len(lanes.devices())
    is_worth_it = len(runs) <= FEW_STEPS * in_flight
  else:
    is_worth_it = seconds_a_step * plan.model_steps(runs) > LONG
  if is_worth_it:
    return checkpoints.AUTO
  return None


def say_abandoned(
  claims: Claims,
  block: int,
  runs: Runs,
  block_checkpoints: checkpoints.Checkpoints | None,
) -> None:
  """Say if a process that is gone has begun the block and saved nothing of it."""
  begun = claims.abandoned.get(str(block))
  if begun and not (block_checkpoints and block_checkpoints.saved):
    when = ""
    # Another program may have written the claim: its time may be none.
    with contextlib.suppress(ArithmeticError, OSError, ValueError):
      when = f" at {datetime.fromtimestamp(begun).isoformat(' ', 'seconds')}"
    say(
      f"{run_count(len(runs))} begun{when} by a process that has ended; starting them again"
    )


def say_interrupted(
  runs: Runs, block_checkpoints: checkpoints.Checkpoints | None
) -> None:
  """Say what becomes of runs whose training is interrupted."""
  after = "start again"
  if block_checkpoints and block_checkpoints.saved:
    after = f"resume after epoch {block_checkpoints.saved}"
  say(f"{run_count(len(runs))} in training: they will {after}")


def store_block(
  campaign: Campaign,
  block: int,
  trained: TrainedBlock,
  claims: Claims,
  block_checkpoints: checkpoints.Checkpoints | None,
) -> None:
  """Write what was trained of a block, unless another process has written it."""
  plan, results = campaign
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
    if block_checkpoints:
      # A block that is not saved is short, so it is quickly trained again after a power
      # failure.
      results.flush_records()
      block_checkpoints.remove()


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
