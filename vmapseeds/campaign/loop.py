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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from vmapseeds import lanes
from vmapseeds.campaign import benchmark
from vmapseeds.campaign.counting import Counting
from vmapseeds.campaign.options import Options, WorkOptions
from vmapseeds.campaign.preparing import (
  found,
  lying_elsewhere,
  prepared,
  prepared_again,
)
from vmapseeds.campaign.progress import Progress
from vmapseeds.campaign.provenance import commit, compile_seconds, versions
from vmapseeds.lanes.choice import is_out_of_memory
from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Failure, Mistake, whole_number
from vmapseeds.results import description
from vmapseeds.results.description import MIXED, check_folder
from vmapseeds.results.opening import open_results
from vmapseeds.store import checkpoints
from vmapseeds.store.claims import Claims
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import FolderExists, removed_if_unused
from vmapseeds.store.layout import read_metadata
from vmapseeds.store.results import Results
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
  how: lanes.Choice
  options: Options


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
  a_state = 0
  if options.checkpoint_every:
    checkpoints.check_usable()
    a_state = bytes_of_a_state(task, runs)
  while True:
    root = read_metadata(out) or {}
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
    except FolderExists:
      continue  # the other process's choices count
    if options.seed_batch not in (None, results.block_runs) and options.progress:
      print(
        f"the seed batch is {results.block_runs}, as in {out}, not "
        f"{options.seed_batch}: a folder keeps its own",
        file=sys.stderr,
      )
    return Begun(results, task, runs, how, options)


def chosen(
  task: Task, runs: Runs, options: Options, root: dict[str, Any]
) -> lanes.Choice:
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
    # On a CPU programs fit in memory, so that only those that are measured need be
    # compiled.
    cpu = lanes.devices()[0].platform == "cpu"
    ask = None if cpu else benchmark.asking(task, task.lanes(runs[slice(0, 1)]))
    return benchmark.choose(
      task,
      model_steps=len(runs) * task.rounds * task.steps,
      most=most,
      lowering=lowering,
      width=lane_width,
      ask=ask,
      shown=options.progress,
    )
  return lanes.Choice(lowering, lane_width)


def provenance(task: Task, how: lanes.Choice) -> dict[str, Any]:
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
  count = len(begun.results.blocks)
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


def train_blocks(
  begun: Begun, blocks: Sequence[int] | None = None, *, wait: bool
) -> Sequence[int]:
  """Train and write the blocks that are left, one at a time.

  Args:
    begun: the campaign.
    blocks: which blocks; None for all that its runs are in.
    wait: whether to go on until the blocks that other processes train are done.

  Returns:
    The blocks that other processes are still training.
  """
  results, task, runs, how, options = begun
  out, shared = results.path, on_devices(task)
  if blocks is None:
    blocks = [k for k, rows in enumerate(results.blocks) if rows.start < len(runs)]
  if len(runs) < len(results):  # a block is trained whole
    begun = begun._replace(
      runs=Runs.from_columns(results.table(), results.root["sampling"])
    )
  total = max(len(runs), results.blocks[blocks[-1]].stop)
  finished, looked, pause = results.finished_blocks(), time.perf_counter(), POLL
  rows = np.flatnonzero(results.done[:total])
  accuracy = shown_of(results, task.shown, rows)
  with writing(out), Progress(total, len(rows), accuracy, options.progress) as bar:
    while left := [block for block in blocks if block not in finished]:
      with Claims(out) as claims:
        block = next((block for block in left if claims.take(block)), None)
        bar.waits(block is None)
        # Another process may have finished it before it was claimed here.
        if block is not None and not results.is_finished(block):
          how = train_batch(begun._replace(how=how), shared, block, claims, bar)
      if block is None:
        time.sleep(pause * wait)
      elif results.is_finished(block):
        finished.add(block)
      # Listing the records takes long where there are many. Most often it is enough to
      # know of one's own.
      if block is None or time.perf_counter() - looked > pause:
        looked = time.perf_counter()
        finished = results.finished_blocks()
        bar.done = sum(
          len(results.blocks[k]) for k in finished if results.blocks[k].start < total
        )
        pause = max(POLL, 10 * (time.perf_counter() - looked))
        if block is None and not wait:
          return [block for block in blocks if block not in finished]
  checkpoints.clear(results)
  return []


def train_batch(
  begun: Begun, shared: Any, block: int, claims: Claims, bar: Progress
) -> lanes.Choice:
  """Train a block's runs together and write them if the block is still ours. Return the
  choice to go on with.
  """
  results, task, runs, how, options = begun
  batch = np.array(results.blocks[block])
  how, table = agreed(results, how, options), task.lanes(runs[batch])
  keeper = None
  if options.checkpoint_every:
    keeper = checkpoints.Checkpoints(
      results.path,
      block,
      table,
      options.checkpoint_every,
      fits=provenance(task, how),
      reached=functools.partial(bar.at_epoch, len(batch)),
    )
  try:
    outputs, told, counts = trained(
      results, task, shared, batch, table, how, keeper, bar
    )
  except jax.errors.JaxRuntimeError as error:
    width = narrower(how.width, error, results, options)
    results.revise(lambda root: {**root, "lane_width": width})
    return lanes.Choice(how.lowering, width)
  # A process that slept for longer than the lease has lost its block, and another may
  # be writing it.
  if agreed(results, how, options) == how and claims.holds(block):
    with uninterrupted():
      results.write_block(block, outputs, told, counts)
      if keeper:
        keeper.remove()
  return how


def trained(
  results: Results,
  task: Task,
  shared: Any,
  batch: Int[np.ndarray, " rows"],
  table: Run,
  how: lanes.Choice,
  keeper: checkpoints.Checkpoints | None,
  bar: Progress,
) -> tuple[dict[str, np.ndarray], dict[str, Any], dict[str, np.ndarray]]:
  """Train a block's runs together. Return their outputs, what their record says, and
  their tallies.
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
  read = {name: results.read(name, rows) for name in names}
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


def agreed(results: Results, how: lanes.Choice, options: Options) -> lanes.Choice:
  """The lowering and lane width to use: the folder's, which another process may have
  changed while no run was done.
  """
  root = read_metadata(results.path) or {}
  theirs = lanes.Choice(*(root.get(name, MIXED) for name in ("lowering", "lane_width")))
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


def spread_task(task: Task, how: lanes.Choice) -> Any:
  """The task, spread over lanes. A process compiles it only once, whatever the values
  of the runs.
  """
  return spread_run(task.start, task.advance, task.finish, task.rounds, how)


@functools.lru_cache(maxsize=16)
def spread_run(
  start: Any, advance: Any, finish: Any, rounds: int, how: lanes.Choice
) -> Any:
  """The three functions of a task, spread over lanes."""
  stages = benchmark.stages(start, advance, finish, rounds, how)
  return lanes.spread_stages(stages, width=how.width, devices=lanes.devices())


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


def fitting_seed_batch(task: Task, runs: Runs, how: lanes.Choice, a_state: int) -> int:
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
  width = lanes.narrower(lane_width, *lanes.said(error))
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
