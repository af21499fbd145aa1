"""Trains a campaign's runs block by block, so that it can stop, go on, and be shared by
several processes.
"""

import dataclasses
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from vmapseeds import lanes
from vmapseeds.campaign.counting import Counting
from vmapseeds.campaign.execution import choose_execution, stages
from vmapseeds.campaign.options import Options, WorkOptions
from vmapseeds.campaign.preparing import (
  found,
  lying_elsewhere,
  prepared,
  prepared_again,
)
from vmapseeds.campaign.progress import Progress
from vmapseeds.campaign.provenance import commit, compile_seconds, versions
from vmapseeds.lanes.memory import is_out_of_memory
from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Failure, Mistake, whole_number
from vmapseeds.results import description
from vmapseeds.results.description import MIXED, check_folder
from vmapseeds.results.opening import open_results
from vmapseeds.store import checkpoints
from vmapseeds.store.claims import Claims
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import MadeMeanwhile, removed_if_unused
from vmapseeds.store.layout import attributes, readable
from vmapseeds.store.results import Results, stop_of
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run, Runs, as_runs
from vmapseeds.training.task import Task

SEED_BATCH = 256
POLL = 0.5  # seconds between two looks at what other processes have done


def train(
  task: Recipe | Task | str,
  runs: Runs | int = 256,
  out: str | os.PathLike | None = None,
  **options: Any,
) -> xr.Dataset:
  """Trains and evaluates the runs that `out` does not hold yet, and returns what
  `open_results` does.

  Several processes may do so at once, on one machine or on several that share the
  folder: each trains blocks of runs that no other is training, and all return when
  every run is done.

  Args:
    task: what to train: a recipe or a task, the name of a recipe, or an import string
      "package.module:attribute".
    runs: the runs table, or how many independent runs; a longer table than last time
      extends the results.
    out: the results folder, made if absent. It must be given.
    **options: the fields of `vs.Options`: `seed_batch`, `lane_width`, `lowering`,
      `tallies`, `pairs`, `predictions`, `logits`, `keep_params`, `checkpoint_every`,
      `force_mixed`, `progress`.

  Raises:
    Mistake: an argument does not fit; nothing has been trained or changed then. Or the
      devices run out of memory, and the lane width cannot be reduced.
    Failure: the disk is full, or cannot be written any more. What was written stays.
  """
  if out is None:
    raise Mistake(
      "out is not given: say which folder shall hold the results, e.g. out='results/mine'"
    )
  with removed_if_unused(out):
    begun = begin(task, runs, out, Options.of(**options))
    train_blocks(begun, wait=True)
  return opened(begun)


def opened(begun: "Begun") -> xr.Dataset:
  """The results of a campaign."""
  return open_results(begun.results.path, *begun.results.root["test_sets"][:1])


class Begun(NamedTuple):
  """A campaign that is ready to train."""

  results: Results
  task: Task
  runs: Runs
  how: lanes.Execution
  options: Options
  seed_batch: int  # from the options, else chosen


def begin(
  task: Recipe | Task | str, runs: Runs | int, out: str | os.PathLike, options: Options
) -> Begun:
  """What `train` does before it trains: checks everything and makes the folder, or
  extends it.
  """
  task, runs = found(task), as_runs(runs)
  most = options.seed_batch or len(runs)
  if options.lane_width is not None and options.lane_width > most:
    limit = f"seed batch {most}" if options.seed_batch else f"{most} runs"
    raise Mistake(f"lane width {options.lane_width} with {limit}: give at most as many")
  check_folder(out)
  kept = {
    name: getattr(options, name) for name in ("logits", "keep_params", "predictions")
  }
  task = prepared(task, runs, **kept)
  runs = task.bound(runs)
  tallied = task.tallied(runs) if options.tallies else {}
  if options.predictions == "none" and not tallied:
    raise Mistake(
      "predictions='none' keeps tallies alone: give tallies=True, and runs that differ in seeds alone"
    )
  task.outputs(runs)
  task.check_varying(runs)
  return entered(out, task, runs, options, tallied)


def entered(
  out: str | os.PathLike,
  task: Task,
  runs: Runs,
  options: Options,
  tallied: Mapping[str, np.ndarray] | None = None,
) -> Begun:
  """Makes the campaign's folder, or checks that it has this task and these runs, and
  extends it.

  `tallied` has, for a new folder, the labels of the test sets that are tallied.
  """
  a_state = bytes_of_a_state(task, runs) if options.checkpoint_every else 0
  while True:
    root = attributes(out) or {}
    if root.get("data_digest") == task.data_digest:
      task = lying_elsewhere(task, root)
    how = chosen(task, runs, options, root)
    seed_batch = options.seed_batch or fitting_seed_batch(task, runs, how, a_state)
    try:
      with writing(out):
        results = description.open_or_create(
          out,
          task,
          runs,
          block_runs=seed_batch,
          depends=provenance(task, how),
          force_mixed=options.force_mixed,
          tallied=tallied,
          pairs=options.pairs,
        )
    except MadeMeanwhile:
      continue  # the other process's choices count
    return Begun(results, task, runs, how, options, seed_batch)


def chosen(
  task: Task, runs: Runs, options: Options, root: dict[str, Any]
) -> lanes.Execution:
  """Lowering and lane width: those given, else the folder's, else the fastest."""
  kept = {
    name: root.get(name)
    for name in ("lowering", "lane_width")
    if root.get(name) != MIXED
  }
  lowering, lane_width = (
    options.lowering or kept.get("lowering"),
    options.lane_width or kept.get("lane_width"),
  )
  if lowering is None or lane_width is None:
    most = -(-min(len(runs), options.seed_batch or len(runs)) // len(lanes.devices()))
    return choose_execution(
      task,
      task.lanes(runs[slice(0, 1)]),
      model_steps=len(runs) * task.rounds * task.steps,
      most=most,
      lowering=lowering,
      width=lane_width,
      shown=options.progress,
    )
  return lanes.Execution(lowering, lane_width)


def provenance(task: Task, how: lanes.Execution) -> dict[str, Any]:
  """All that results depend on, as the folder, its records and checkpoints store it."""
  return {
    "recipe": task.described(),
    "device_kind": lanes.devices()[0].device_kind,
    "lane_width": how.width,
    "lowering": how.lowering,
    **task.conditions(),
    "versions": versions(),
  }


def work(
  out: str | os.PathLike,
  blocks: tuple[int | None, int | None] | None = None,
  *,
  dataset: str | os.PathLike | None = None,
  **options: Any,
) -> xr.Dataset:
  """Trains what is left of a results folder, or of some of its blocks, and returns what
  `open_results` does.

  All it needs is in the folder. It may be started many times, at once and on several
  machines. It leaves blocks that other processes are training to them.

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
  begun = resume(out, Options(**vars(WorkOptions.of(**options))), dataset=dataset)
  count = -(-len(begun.runs) // begun.results.block_runs)
  first, last = ends
  first, last = first or 0, count if last is None else last
  if not 0 <= first < last <= count:
    raise Mistake(
      f"blocks {first}:{last} of a folder with {count}: give some from 0:{count}"
    )
  held = train_blocks(begun, range(first, last), wait=False)
  if held and begun.options.progress:
    count = f"{len(held)} block{'s' * (len(held) > 1)}"
    print(
      f"{count} left to other processes, which train them; the first is block {held[0]}",
      file=sys.stderr,
    )
  return opened(begun)


def resume(
  out: str | os.PathLike, options: Options, *, dataset: str | os.PathLike | None = None
) -> Begun:
  """What `work` does before it trains: opens the folder and loads what its task needs."""
  runs, results = description.campaign_of(out)
  check_folder(out)
  kept = description.kept_of(results.root)
  task = prepared_again(
    out, results.root, results.root["recipe"], runs, dataset, **kept
  )
  return entered(out, task, runs, dataclasses.replace(options, **kept))


def train_blocks(begun: Begun, blocks: range | None = None, *, wait: bool) -> list[int]:
  """Trains the runs that are left in some blocks, a seed batch at a time, and writes
  them.

  Args:
    begun: the campaign.
    blocks: which blocks; None for all that its runs are in.
    wait: whether to go on until the blocks that other processes train are done.

  Returns:
    The blocks that other processes are still training.
  """
  results, task, runs, how, options, seed_batch = begun
  out, shared = results.path, on_devices(task)
  done = results.done[: len(runs)]
  accuracy = shown_of(results, task.shown, np.flatnonzero(done))

  def rows(block: int) -> range:
    return range(len(runs))[
      block * results.block_runs : (block + 1) * results.block_runs
    ]

  if blocks is None:
    blocks = range(-(-len(runs) // results.block_runs))
  ours, pause = slice(rows(blocks.start).start, rows(blocks.stop - 1).stop), POLL
  with (
    writing(out),
    Progress(len(runs), int(done.sum()), accuracy, options.progress) as bar,
  ):
    while not done[ours].all():
      with Claims(out) as claims:
        held, left = list[int](), list[int]()
        for block in (b for b in blocks if not done[rows(b)].all()):
          if len(left) >= seed_batch:
            break
          if claims.take(block):
            left += rows(block)[
              max(0, stop_of(results.record(block)) - rows(block).start) :
            ]
          else:
            held.append(block)
        bar.waits(not left)
        if left:
          how = train_batch(
            begun._replace(how=how), shared, np.array(left[:seed_batch]), claims, bar
          )
      if held and not left:
        if not wait:
          return held
        time.sleep(pause)
      looked = time.perf_counter()
      done = results.done[: len(runs)]
      bar.done = int(done.sum())
      # Reading the records takes a while in an object store, where each is a request.
      pause = max(POLL, 10 * (time.perf_counter() - looked))
  checkpoints.clear(results)
  return []


def train_batch(
  begun: Begun,
  shared: Any,
  batch: Int[np.ndarray, " rows"],
  claims: Claims,
  bar: Progress,
) -> lanes.Execution:
  """Trains some runs together and writes those whose blocks are still ours. Returns the
  choice to go on with.
  """
  results, task, runs, how, options, _ = begun
  how, table = agreed(results, how, options), task.lanes(runs[batch])
  keeper = None
  if options.checkpoint_every:
    reached, fits = functools.partial(bar.at_epoch, len(batch)), provenance(task, how)
    keeper = checkpoints.Checkpoints(
      results.path, batch, table, options.checkpoint_every, fits=fits, reached=reached
    )
  try:
    outputs, told, counts = trained(
      results, task, shared, batch, table, how, keeper, bar
    )
  except jax.errors.JaxRuntimeError as error:
    width = narrower(how.width, error, results, options)
    results.revise(lambda root: {**root, "lane_width": width})
    return lanes.Execution(how.lowering, width)
  # A process that slept for longer than the lease has lost its blocks, and others may
  # be writing them.
  owned = batch // results.block_runs
  kept = np.isin(owned, [block for block in np.unique(owned) if claims.holds(block)])
  if agreed(results, how, options) == how and kept.any():
    with uninterrupted():
      batch, outputs = jax.tree.map(lambda a: a[kept], (batch, outputs))
      results.write(batch, outputs, told, counts)
      if keeper:
        keeper.remove()
  return how


def trained(
  results: Results,
  task: Task,
  shared: Any,
  batch: Int[np.ndarray, " rows"],
  table: Run,
  how: lanes.Execution,
  keeper: checkpoints.Checkpoints | None,
  bar: Progress,
) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[int, dict[str, np.ndarray]]]:
  """Trains some runs together. Returns their outputs, what their record says, and the
  tallies of each block.
  """
  counting = Counting(results, task, batch, how.width)
  finished: list[dict[str, np.ndarray]] = []
  begun, compiled = time.perf_counter(), compile_seconds()
  for _, outputs in spread_task(task, how)(shared, table, keeper, counting.add):
    finished.append(task.stored(outputs))
    runs = len(next(iter(outputs.values())))
    bar.trained_more(
      runs, finite(finished[-1].get(task.shown), finished[-1].get("diverged"))
    )
  told = {
    **provenance(task, how),
    "platform": lanes.devices()[0].platform,
    "commit": commit(),
    "seconds": round(time.perf_counter() - begun, 3),
    "compile_seconds": round(compile_seconds() - compiled, 3),
    "when": datetime.now(UTC).isoformat(timespec="seconds"),
  }
  outputs = {
    name: np.concatenate([outputs[name] for outputs in finished])
    for name in finished[0]
  }
  return outputs, told, counting.found()


def finite(
  shown: np.ndarray | None, diverged: np.ndarray | None
) -> Float[np.ndarray, " rows"]:
  """The values that the progress line shows, without those of runs that diverged."""
  if shown is None:
    return np.array([])
  return shown if diverged is None else shown[~diverged]


def shown_of(
  results: Results, shown: str, rows: Int[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
  """The values of finished runs that the progress line shows, read from the folder."""
  names = [name for name in (shown, "diverged") if name in results.outputs]
  with readable(results.path):
    read = {name: results.array(name).oindex[rows] for name in names}
  return finite(read.get(shown), read.get("diverged"))


def on_devices(task: Task) -> Any:
  """The task's data on every device. Raises `Mistake` if they do not fit in memory."""
  try:
    return lanes.replicate(task.data, lanes.devices())
  except jax.errors.JaxRuntimeError as error:
    if not is_out_of_memory(error):
      raise
    kind = lanes.devices()[0].device_kind
    raise Mistake(
      f"the data of {task.name} do not fit in the memory of {kind}: give fewer"
    ) from None


def agreed(results: Results, how: lanes.Execution, options: Options) -> lanes.Execution:
  """The lowering and lane width to use: the folder's, which another process may have
  changed while no run was done.
  """
  root = attributes(results.path) or {}
  theirs = lanes.Execution(
    *(root.get(name, MIXED) for name in ("lowering", "lane_width"))
  )
  if options.force_mixed or MIXED in theirs or theirs == how:
    return how
  if options.progress:
    print(
      f"another process went on with {theirs.lowering}, width {theirs.width}; this one does too",
      file=sys.stderr,
    )
  return theirs


@contextmanager
def uninterrupted() -> Iterator[None]:
  """Delays Ctrl-C, and SIGTERM if something handles it, until the context is left."""
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
  """Turns the error of a full or failing disk into a `Failure` of one line."""
  try:
    yield
  except OSError as error:
    reason = error.strerror or str(error)
    raise Failure(
      f"{out} cannot be written ({reason}): make room, and the same command goes on from there"
    ) from error


def spread_task(task: Task, how: lanes.Execution) -> Any:
  """The task, spread over lanes. A process compiles it only once, whatever the values
  of the runs.
  """
  return spread_run(task.start, task.advance, task.finish, task.rounds, how)


@functools.lru_cache(maxsize=16)
def spread_run(
  start: Any, advance: Any, finish: Any, rounds: int, how: lanes.Execution
) -> Any:
  """The three functions of a task, spread over lanes."""
  parts = stages(start, advance, finish, rounds, how)
  return lanes.spread_stages(parts, width=how.width, devices=lanes.devices())


def bytes_of_a_state(task: Task, runs: Runs) -> int:
  """How many bytes the state of one run takes. `Mistake` where checkpoints cannot keep
  it.
  """
  state = jax.eval_shape(
    task.start, task.data, jax.tree.map(lambda a: a[0], task.lanes(runs[:1]))
  )
  if any(
    jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    for leaf in jax.tree.leaves(state)
  ):
    raise Mistake(
      f"the state of {task.name} has keys, which checkpoints cannot keep: keep jax.random.key_data of them"
    )
  return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def fitting_seed_batch(
  task: Task, runs: Runs, how: lanes.Execution, a_state: int
) -> int:
  """How many runs' outputs, and states of so many bytes, fit easily in the host's
  memory: whole steps of all lanes, at most 256 runs or one step.
  """
  step = how.width * len(lanes.devices())
  a_run = task.bytes_of_a_run(runs) + a_state
  # An eighth, because there are a few copies of the outputs while they are joined and
  # written.
  fitting = free_host_memory() / 8 // max(1, a_run)
  return int(max(1, min(SEED_BATCH, fitting) // step)) * step


def narrower(
  lane_width: int, error: Exception, results: Results, options: Options
) -> int:
  """A narrower lane width after the devices ran out of memory. Raises `Mistake` if the
  width cannot be changed.
  """
  if not is_out_of_memory(error):
    raise error
  said = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")
  width = lanes.narrower_width(lane_width, *lanes.parse_oom_message(error))
  full = f"lane width {lane_width} does not fit in the memory of {lanes.devices()[0].device_kind} ({said[:120]})"
  if lane_width == 1:
    raise Mistake(f"{full}: give a smaller width or batch_size") from None
  if results.done.any():
    other = f"give another --out with --lane-width {width}"
    raise Mistake(
      f"{full}, and the finished runs of {results.path} keep it: free memory, or {other}"
    ) from None
  if options.progress:
    print(f"{full}: going on with {width}", file=sys.stderr)
  return width
