"""A campaign: recipe and runs in, results out; block by block, so that it can stop, go on and be shared."""

import functools
import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from vmapseeds import lanes, models
from vmapseeds.campaign import benchmark
from vmapseeds.campaign.progress import Progress
from vmapseeds.campaign.provenance import commit, compile_seconds, versions
from vmapseeds.data import Dataset, load
from vmapseeds.lanes.choice import free_memory, is_out_of_memory
from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Failure, Mistake, at_least, one_of, whole_number
from vmapseeds.results import description, networks
from vmapseeds.results.description import MIXED, check_folder
from vmapseeds.results.opening import open_results
from vmapseeds.store import checkpoints
from vmapseeds.store.claims import Claims
from vmapseeds.store.folders import removed_if_unused
from vmapseeds.store.layout import attributes, readable
from vmapseeds.store.results import Results
from vmapseeds.training import augment
from vmapseeds.training.evaluation import stages
from vmapseeds.training.loop import DeviceExamples, check_size, reads
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.recipes import recipe as named
from vmapseeds.training.runs import SOURCES, Run, Runs, as_runs

SEED_BATCH = 256
POLL = 0.5  # seconds between two looks at what other processes have done


def train(
  recipe: Recipe | str,
  runs: Runs | int = 256,
  out: str | os.PathLike | None = None,
  *,
  seed_batch: int | None = None,
  lane_width: int | None = None,
  lowering: str | None = None,
  logits: bool = False,
  keep_params: bool = False,
  checkpoint_every: int | None = None,
  force_mixed: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Trains and evaluates the runs that `out` does not hold yet, and returns what `open_results` does.

  Several processes may do so at once, on one machine or on several that share the folder: each trains blocks of runs
  that no other is training, and all return when every run is done.

  Args:
    recipe: what to train, or its name.
    runs: the runs table, or how many independent runs; more than last time extend the results.
    out: the results folder, made if absent. It must be given.
    seed_batch: how many runs are trained between two writes: an interruption loses at most these. Given none, 256 or
      what fits in the host's memory, in whole steps of all lanes. Results do not depend on it. That of a new folder is
      how many runs a block has.
    lane_width: how many lanes a device advances together, at most the seed batch. Given none, that of the folder,
      else chosen, see `benchmark.choose`. Results depend on it by rounding, so a folder keeps one. Where the
      devices' memory does not hold so many, and the folder has no finished runs, a narrower one is taken.
    lowering: how convolutions run their lanes, one of `lanes.LOWERINGS`; the same holds for it.
    logits: whether to keep logits beside predictions.
    keep_params: whether to keep the trained parameters and batch statistics of all runs, see `load_networks`.
    checkpoint_every: after so many epochs each, the runs of the seed batch are saved in the folder's `checkpoints`, so
      that an interruption loses at most these; removed when the runs are written. Given none, nothing is saved.
      Results do not depend on it.
    force_mixed: whether to go on with a folder whose recipe, package versions, device kind, lane width, lowering or
      precision are others. Its attributes then say so, and the records of its blocks what each run was trained with.
    progress: whether to say on stderr what was chosen and how far it is.

  Raises:
    Mistake: before any training, when something given does not fit; nothing is changed then. Or when the devices run
      out of memory and nothing can be halved.
    Failure: the disk is full, or cannot be written any more. What was written stays.
  """
  if out is None:
    raise Mistake("out is not given: say which folder shall hold the results, e.g. out='results/mine'")
  with removed_if_unused(out):
    begun = begin(
      recipe, runs, out, seed_batch=seed_batch, lane_width=lane_width, lowering=lowering, logits=logits,
      keep_params=keep_params, checkpoint_every=checkpoint_every, force_mixed=force_mixed, progress=progress,
    )  # fmt: skip
    train_blocks(*begun, wait=True, force_mixed=force_mixed, progress=progress)
  return open_results(out, begun.task.recipe.test_sets[0])


class Begun(NamedTuple):
  """A folder that is made and the task to be done in it."""

  results: Results
  task: "Task"
  runs: Runs
  how: lanes.Choice
  seed_batch: int
  checkpoint_every: int | None


def begin(
  recipe: Recipe | str, runs: Runs | int, out: str | os.PathLike, *, seed_batch: int | None = None,
  lane_width: int | None = None, lowering: str | None = None, logits: bool = False, keep_params: bool = False,
  checkpoint_every: int | None = None, force_mixed: bool = False, progress: bool = True,
) -> Begun:  # fmt: skip
  """What `train` does before it trains: checks everything and makes the folder, or extends it."""
  recipe, runs = named(recipe), as_runs(runs)
  if seed_batch is not None:
    at_least("seed batch", seed_batch, 1)
  if lane_width is not None and at_least("lane width", lane_width, 1) > (seed_batch or len(runs)):
    limit = f"seed batch {seed_batch}" if seed_batch else f"{len(runs)} runs"
    raise Mistake(f"lane width {lane_width} with {limit}: give at most as many")
  if lowering is not None:
    one_of("lowering", lowering, lanes.LOWERINGS)
  if checkpoint_every is not None:
    at_least("checkpoint_every", checkpoint_every, 1)
  for name, given in (("logits", logits), ("keep_params", keep_params), ("force_mixed", force_mixed)):
    if given not in (True, False):
      raise Mistake(f"{name} is {given!r:.100}: give True or False")
  check_folder(out)
  task = prepared(recipe, runs, logits, keep_params)
  task.check_varying(runs)
  while True:
    root = attributes(out) or {}
    if root.get("data_digest") == task.data_digest:  # the same data may lie elsewhere now
      recipe = recipe.replace(dataset=Recipe.from_json(root["recipe"]).dataset)
      task = task._replace(recipe=recipe)
    how = task.choose(runs, seed_batch, lowering, lane_width, root, progress)
    batch = seed_batch or task.fitting_seed_batch(how, checkpoint_every)
    try:
      with writing(out):
        results = description.open_or_create(
          out, recipe, runs, task.data,
          block_runs=batch,
          logits=logits,
          variables=task.kept_variables(),
          conditions=task.conditions(how),
          versions=versions(),
          force_mixed=force_mixed,
        )  # fmt: skip
    except FileExistsError:
      continue  # another process has made the folder since we looked: what it chose counts
    return Begun(results, task, runs, how, batch, checkpoint_every)


def work(
  out: str | os.PathLike,
  blocks: tuple[int | None, int | None] | None = None,
  *,
  dataset: str | os.PathLike | None = None,
  seed_batch: int | None = None,
  checkpoint_every: int | None = None,
  force_mixed: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Trains what is left of a results folder, or of some of its blocks, and returns what `open_results` does.

  All it needs is in the folder. It may be started many times, at once and on several machines: blocks that others are
  training are left to them.

  Args:
    out: a results folder that `train` made.
    blocks: (first, one past the last) of the blocks to train, either None for the end there is; None for all.
    dataset: where the data are, when they are no longer where they were; their digest must be the same.
    seed_batch, checkpoint_every, force_mixed, progress: as for `train`.

  Raises:
    Mistake: as `train`; or there are no such blocks.
  """
  ends = (None, None) if blocks is None else blocks
  if not isinstance(ends, tuple) or len(ends) != 2 or any(e is not None and whole_number(e) is None for e in ends):
    raise Mistake(f"blocks is {blocks!r:.100}: give (first, one past the last), e.g. (0, 10)")
  begun = resume(
    out, dataset=dataset, seed_batch=seed_batch, checkpoint_every=checkpoint_every, force_mixed=force_mixed,
    progress=progress,
  )  # fmt: skip
  count = -(-len(begun.runs) // begun.results.block_runs)
  first, last = ends
  first, last = first or 0, count if last is None else last
  if not 0 <= first < last <= count:
    raise Mistake(f"blocks {first}:{last} of a folder with {count}: give some from 0:{count}")
  held = train_blocks(*begun, range(first, last), wait=False, force_mixed=force_mixed, progress=progress)
  if held and progress:
    say = f"1 block is being trained by another process (block {held[0]})"
    if len(held) > 1:
      say = f"{len(held)} blocks are being trained by other processes (the first is block {held[0]})"
    print(say, file=sys.stderr)
  return open_results(out, begun.task.recipe.test_sets[0])


def resume(
  out: str | os.PathLike, *, dataset: str | os.PathLike | None = None, seed_batch: int | None = None,
  checkpoint_every: int | None = None, force_mixed: bool = False, progress: bool = True,
) -> Begun:  # fmt: skip
  """What `work` does before it trains: opens the folder and loads what its recipe needs."""
  if seed_batch is not None:
    at_least("seed batch", seed_batch, 1)
  if checkpoint_every is not None:
    at_least("checkpoint_every", checkpoint_every, 1)
  recipe, runs, results = description.campaign_of(out)
  check_folder(out)
  keep_params = bool(description.variables_of(results.root))
  task = prepared_again(out, recipe, runs, dataset, results.root, results.root["logits"], keep_params)
  how = task.choose(runs, seed_batch, None, None, results.root, progress)
  with writing(out):
    conditions = task.conditions(how)
    mixed = description.check_same(
      results, recipe, runs, task.logits, task.keep_params, conditions, versions(), force_mixed
    )
    description.check_task(results, task.data, task.num_classes, task.kept_variables())
    description.settle(results, conditions, versions(), mixed)
  batch = seed_batch or task.fitting_seed_batch(how, checkpoint_every)
  return Begun(results, task, runs, how, batch, checkpoint_every)


class Replay(NamedTuple):
  """A run that was trained again: in how many examples of each test set its predictions differ from those stored."""

  run: int
  examples: dict[str, int]
  differing: dict[str, int]

  @property
  def same(self) -> bool:
    """Whether all predictions agree."""
    return not any(self.differing.values())


def replay(out: str | os.PathLike, run: int, *, dataset: str | os.PathLike | None = None) -> Replay:
  """Trains one run of a results folder again, as it was trained, and compares the predictions. Nothing is written.

  Args:
    out: a results folder that `train` made.
    run: the run's row in the folder.
    dataset: where the data are, as for `work`.

  Raises:
    Mistake: there is no such run, it is not done, or its data are others now.
  """
  recipe, runs, results = description.campaign_of(out)
  if at_least("run", run, 0) >= len(runs):
    raise Mistake(f"run {run} of a folder with {len(runs)}: the last is {len(runs) - 1}")
  writes = results.record(run // results.block_runs)
  write = next((w for w in writes if run in range(*w["rows"])), None)
  if write is None:
    raise Mistake(f"run {run} of {out} is not done: `vmapseeds train` or `work` trains it")
  with readable(out):
    theirs = {name: results.array(f"{name}/predictions")[run] for name in results.root["test_sets"]}
  as_trained(write, recipe, len(runs), run)
  recipe = Recipe.from_json(write["recipe"])
  # What `auto` came to on the device of then is what counts.
  recipe = recipe.replace(precision=write.get("precision", recipe.precision))
  task = prepared_again(out, recipe, runs, dataset, results.root, logits=False, keep_params=False)
  description.check_task(results, task.data, task.num_classes)
  run_lanes = spread_run(recipe, task.num_classes, False, False, write["lowering"], write["lane_width"])
  ((_, (_, evaluations, _)),) = run_lanes(task.shared(), runs[slice(run, run + 1)].lanes(recipe, len(task.data.train)))
  differing = {name: int((evaluations[name].predictions[0] != theirs[name]).sum()) for name in theirs}
  return Replay(run, {name: len(row) for name, row in theirs.items()}, differing)


def as_trained(write: dict[str, Any], recipe: Recipe, runs: int, run: int) -> None:
  """`Mistake` where a record says of a run's training what is impossible."""
  lowering, width = write.get("lowering"), write.get("lane_width")
  if lowering not in lanes.LOWERINGS or type(width) is not int or not 1 <= width <= runs:
    raise Mistake(f"run {run} was trained with lowering {lowering!r:.100}, lane width {width!r:.100}: impossible")
  if not Recipe.from_json(write.get("recipe")).same_task(recipe):
    raise Mistake(f"run {run} was trained on another task than the folder's")


class Task(NamedTuple):
  """What is trained, and on what, without how."""

  recipe: Recipe
  data: Dataset
  examples: tuple[DeviceExamples, dict[str, DeviceExamples]]
  data_digest: str
  num_classes: int
  logits: bool
  keep_params: bool

  def check_varying(self, runs: Runs) -> None:
    """`Mistake` where a source was chosen to vary that no network depends on."""
    varying = runs.varying()
    if not varying:
      return
    run = jax.tree.map(lambda column: column[0], runs[:1].lanes(self.recipe, len(self.data.train)))

    def is_read(source: str) -> bool:
      # The data seed is not read itself: it draws the training examples, or numbers those that were given.
      drawn = ["subset"] if source == "data" and run.subset is not None else []
      return reads(self.recipe, self.examples[0], run, self.num_classes, [source, *drawn])

    unread = [source for source in varying if not is_read(source)]
    if unread:
      others = ", ".join(source for source in SOURCES if source not in unread and is_read(source))
      drawn = " (data only after Runs.subset or Runs.bootstrap)" * ("data" in unread)
      raise Mistake(f"{self.recipe.name} reads no seed of {', '.join(unread)}: vary some of {others}{drawn}")

  def choose(
    self, runs: Runs, seed_batch: int | None, lowering: str | None, lane_width: int | None, root: dict[str, Any],
    progress: bool,
  ) -> lanes.Choice:  # fmt: skip
    """Lowering and lane width: those given, else the folder's, else the fastest."""
    kept = {name: root.get(name) for name in ("lowering", "lane_width") if root.get(name) != MIXED}
    lowering, lane_width = lowering or kept.get("lowering"), lane_width or kept.get("lane_width")
    if lowering is None or lane_width is None:
      # A CPU's programs fit, and what it does not measure it need not compile.
      ask = None if lanes.devices()[0].platform == "cpu" else benchmark.asking(
        self.recipe, self.examples, self.num_classes, runs[slice(0, 1)].lanes(self.recipe, len(self.data.train)),
        logits=self.logits, keep_params=self.keep_params,
      )  # fmt: skip
      lowering, lane_width = benchmark.choose(
        self.recipe, benchmark.Shapes(self.data.train.images.shape[1:], self.num_classes),
        model_steps=len(runs) * self.recipe.epochs * (runs.num_train(len(self.data.train)) // self.recipe.batch_size),
        most=-(-min(len(runs), seed_batch or len(runs)) // len(lanes.devices())),
        lowering=lowering, width=lane_width, ask=ask, shown=progress,
      )  # fmt: skip
    return lanes.Choice(lowering, lane_width)

  def conditions(self, how: lanes.Choice) -> dict[str, Any]:
    """What bit-for-bit equal results need besides the recipe."""
    train = self.examples[0]
    return {
      "device_kind": lanes.devices()[0].device_kind, "lane_width": how.width, "lowering": how.lowering,
      "precision": models.resolved(self.recipe.precision), "data_digest": self.data_digest,
      "mean": train.mean.tolist(), "std": train.std.tolist(),
    }  # fmt: skip

  def provenance(self, how: lanes.Choice) -> dict[str, Any]:
    """All that results depend on, as records and checkpoints have it."""
    return {"recipe": self.recipe.to_json(), **self.conditions(how), "versions": versions()}

  def variables(self) -> Any:
    """What one run's parameters and batch statistics look like."""
    return networks.shapes(self.recipe, self.data.train.images.shape[1:], self.num_classes)

  def kept_variables(self) -> dict[str, jax.ShapeDtypeStruct]:
    """Those that results keep, by their names there."""
    return networks.named(self.variables()) if self.keep_params else {}

  def fitting_seed_batch(self, how: lanes.Choice, checkpoint_every: int | None) -> int:
    """See the function of that name."""
    # What is in training has the optimiser's state besides, at most twice as large.
    copies = self.keep_params + 3 * bool(checkpoint_every)
    step, more = how.width * len(lanes.devices()), copies * networks.size(self.variables())
    return fitting_seed_batch(self.data, self.num_classes * self.logits, step, more)

  def shared(self) -> Any:
    """The examples on every device. `Mistake` where they do not fit there."""
    try:
      return lanes.replicate(self.examples, lanes.devices())
    except jax.errors.JaxRuntimeError as error:
      if not is_out_of_memory(error):
        raise
      kind = lanes.devices()[0].device_kind
      raise Mistake(f"the examples of {self.data.name} do not fit in the memory of {kind}: give fewer") from None


def prepared(recipe: Recipe, runs: Runs, logits: bool, keep_params: bool) -> Task:
  """What is to be trained, its data loaded. `Mistake` where recipe, runs and data do not fit."""
  device = lanes.start_jax()[0]
  data = load(recipe.dataset, test_sets=recipe.test_sets, classes=recipe.classes)
  examples = on_device(recipe, data)
  runs.check(recipe, len(data.train), data.num_classes)
  check_size(recipe, data.train.images.shape[1:], runs.num_classes(data.num_classes), free_memory(device))
  return Task(recipe, data, examples, digest(data), runs.num_classes(data.num_classes), logits, keep_params)


def prepared_again(
  out: str | os.PathLike, recipe: Recipe, runs: Runs, dataset: str | os.PathLike | None, root: dict[str, Any],
  logits: bool, keep_params: bool,
) -> Task:  # fmt: skip
  """What a folder's campaign trains, its data read from `dataset` where given. `Mistake` where they are other data."""
  found = recipe if dataset is None else recipe.replace(dataset=os.fspath(dataset))
  if found.dataset.endswith(".npz") and not os.path.exists(found.dataset):
    raise Mistake(f"no such file {found.dataset!r}, the data of {out}: say where they are with --dataset PATH")
  task = prepared(found, runs, logits, keep_params)
  if task.data_digest != root["data_digest"]:
    raise Mistake(f"the data {found.dataset} are not those of {out}: say where those are with --dataset PATH")
  return task._replace(recipe=recipe)


def train_blocks(
  results: Results, task: Task, runs: Runs, how: lanes.Choice, seed_batch: int, checkpoint_every: int | None,
  blocks: range | None = None, *, wait: bool, force_mixed: bool, progress: bool,
) -> list[int]:  # fmt: skip
  """Trains the runs that are left in some blocks, as many at a time as the seed batch has, and writes them.

  Args:
    results: the campaign's folder.
    task: what is trained.
    runs: the campaign's runs.
    how: lowering and lane width.
    seed_batch: runs that are trained before they are written.
    checkpoint_every: epochs between two checkpoints; None for no checkpoints.
    blocks: which; None for those of `runs`.
    wait: whether to go on until the blocks that other processes train are done.
    force_mixed: whether another process may have settled on another lowering or lane width than `how`.
    progress: whether to show a progress line.

  Returns:
    The blocks that other processes are still training.
  """
  out, shared = results.path, task.shared()
  mine: list[int] = []
  pause = POLL
  done = results.done[: len(runs)]
  accuracy = accuracies(results, task.recipe, np.flatnonzero(done))

  def rows(block: int) -> slice:
    return slice(block * results.block_runs, min((block + 1) * results.block_runs, len(runs)))

  if blocks is None:
    blocks = range(-(-len(runs) // results.block_runs))
  ours = slice(rows(blocks.start).start, rows(blocks.stop - 1).stop)
  with writing(out), Claims(out) as claims, Progress(len(runs), int(done.sum()), accuracy, progress) as bar:
    while not done[ours].all():
      held = []
      for block in (b for b in blocks if b not in mine and not done[rows(b)].all()):
        if sum(int((~done[rows(b)]).sum()) for b in mine) >= seed_batch:
          break
        if not claims.take(block):
          held.append(block)
          continue
        mine.append(block)
        done[rows(block)] = results.begin(block)[: len(runs) - rows(block).start]
      mine = [b for b in mine if not done[rows(b)].all() or claims.release(b)]
      left = np.concatenate([np.flatnonzero(~done[rows(b)]) + rows(b).start for b in mine]) if mine else np.array([])
      if not len(left):
        if not held:
          continue
        if not wait:
          return held
        time.sleep(pause)
        looked = time.perf_counter()
        done = results.done[: len(runs)]
        # Records in a store take a while to read, and each is a request.
        pause = max(POLL, 10 * (time.perf_counter() - looked))
        bar.others(int(done.sum()))
        continue

      batch = left[:seed_batch]
      how = agreed(results, how, force_mixed, progress)
      table = runs[batch].lanes(task.recipe, len(task.data.train))
      keeper = checkpoint_every and checkpoints.Checkpoints(
        out, batch, table, checkpoint_every, fits=task.provenance(how),
        reached=functools.partial(bar.at_epoch, len(batch)),
      )  # fmt: skip
      try:
        outcome, provenance = trained(task, shared, table, how, keeper, bar)
      except jax.errors.JaxRuntimeError as error:
        width = narrower(how.width, error, results, lanes.devices()[0])
        how = lanes.Choice(how.lowering, width)
        results.revise(lambda root, width=width: {**root, "lane_width": width})
        continue
      # A process that slept for longer than the lease has lost its blocks, and others may be writing them.
      kept = np.isin(batch // results.block_runs, [b for b in mine if claims.holds(b)])
      if agreed(results, how, force_mixed, progress) != how or not kept.any():
        mine = [b for b in mine if claims.release(b)]
        continue
      with uninterrupted():
        batch, (diverged, evaluations, learned) = jax.tree.map(lambda a: a[kept], (batch, outcome))
        results.write(batch, description.outputs(diverged, evaluations, networks.named(learned)), provenance)
        done[batch] = True
        if keeper:
          keeper.remove()
      mine = [b for b in mine if claims.holds(b) or claims.release(b)]
  checkpoints.clear(results)
  return []


def trained(
  task: Task, shared: Any, table: Run, how: lanes.Choice, keeper: checkpoints.Checkpoints | None, bar: Progress
) -> tuple[Any, dict[str, Any]]:
  """What becomes of runs that are trained together, the first axis the run, and what their record says of it."""
  recipe = task.recipe
  run_lanes = spread_run(recipe, task.num_classes, task.logits, task.keep_params, how.lowering, how.width)
  finished: list[Any] = []
  begun, compiled = time.perf_counter(), compile_seconds()
  try:
    for _, out_lanes in run_lanes(shared, table, keeper):
      finished.append(out_lanes)
      diverged, evaluations, _ = out_lanes
      accuracies = evaluations[recipe.test_sets[0]].correct / len(task.data.tests[recipe.test_sets[0]])
      bar.trained_more(len(diverged), accuracies[~diverged])
  except jax.errors.JaxRuntimeError:
    bar.forget(sum(len(diverged) for diverged, *_ in finished))
    raise
  provenance = {
    **task.provenance(how), "platform": lanes.devices()[0].platform, "commit": commit(),
    "seconds": round(time.perf_counter() - begun, 3), "compile_seconds": round(compile_seconds() - compiled, 3),
    "when": datetime.now(UTC).isoformat(timespec="seconds"),
  }  # fmt: skip
  return jax.tree.map(lambda *parts: np.concatenate(parts), *finished), provenance


def accuracies(results: Results, recipe: Recipe, rows: Int[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
  """Those of runs that are done, NaN where a run diverged."""
  with readable(results.path):
    accuracy = results.array(f"{recipe.test_sets[0]}/accuracy").oindex[rows]
    return np.where(results.array("diverged").oindex[rows], np.nan, accuracy)


def agreed(results: Results, how: lanes.Choice, force_mixed: bool, progress: bool) -> lanes.Choice:
  """The folder's lane width and lowering, which another process may have changed while no run was done."""
  root = attributes(results.path) or {}
  theirs = lanes.Choice(*(root.get(name, MIXED) for name in ("lowering", "lane_width")))
  if force_mixed or MIXED in theirs or theirs == how:
    return how
  if progress:
    print(f"another process went on with {theirs.lowering}, width {theirs.width}; this one does too", file=sys.stderr)
  return theirs


@contextmanager
def uninterrupted() -> Iterator[None]:
  """Puts off Ctrl-C, and SIGTERM where something handles it, until what is begun is done."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  came = []
  handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
  handlers = {s: handler for s, handler in handlers.items() if callable(handler)}
  for s in handlers:
    signal.signal(s, lambda number, frame: came.append((number, frame)))
  try:
    yield
  finally:
    for s, handler in handlers.items():
      signal.signal(s, handler)
    if came:
      handlers[came[0][0]](*came[0])


@contextmanager
def writing(out: str | os.PathLike) -> Iterator[None]:
  """Makes of a disk that is full, or fails, one line."""
  try:
    yield
  except FileExistsError:
    raise
  except OSError as error:
    reason = error.strerror or str(error)
    raise Failure(f"{out} cannot be written ({reason}): make room, and the same command goes on from there") from error


@functools.lru_cache(maxsize=16)
def spread_run(recipe: Recipe, num_classes: int, logits: bool, keep_params: bool, lowering: str, lane_width: int):
  """Training and evaluation of one run, spread over lanes: compiled once a process, whatever the runs' values."""
  one_run = stages(recipe, num_classes, lowering, logits=logits, keep_params=keep_params)
  return lanes.spread_stages(one_run, width=lane_width, devices=lanes.devices())


def fitting_seed_batch(data: Dataset, logits: int, step: int, more: int) -> int:
  """How many runs' outputs fit comfortably in the host's memory: whole steps of `step` lanes, at most 256 but one step.

  Args:
    data: what the runs are evaluated on.
    logits: how many are kept of an example.
    step: lanes of one step, over all devices.
    more: bytes that are kept of a run besides.
  """
  examples = sum(len(e) for e in data.tests.values())
  # An eighth, because outputs exist a few times over while they are brought together and written.
  fitting = free_host_memory() / 8 // (examples * (2 + 4 * logits) + more)
  return int(max(1, min(SEED_BATCH, fitting) // step)) * step


def narrower(lane_width: int, error: Exception, results: Results, device: jax.Device) -> int:
  """A narrower lane width, when the error is that the devices ran out of memory. `Mistake` where that is no way out."""
  if not is_out_of_memory(error):
    raise error
  said = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")
  width = lanes.narrower(lane_width, *lanes.said(error))
  full = f"lane width {lane_width} does not fit in the memory of {device.device_kind} ({said[:120]})"
  if lane_width == 1:
    raise Mistake(f"{full}: give a smaller width or batch_size") from None
  if results.done.any():
    other = f"give another --out with --lane-width {width}"
    raise Mistake(f"{full}, and the finished runs of {results.path} keep it: free memory, or {other}") from None
  print(f"{full}: going on with {width}", file=sys.stderr)
  return width


def on_device(recipe: Recipe, data: Dataset) -> tuple[DeviceExamples, dict[str, DeviceExamples]]:
  """The training set and the test sets as lanes read them. `Mistake` where the recipe does not fit the images."""
  _, height, width, channels = data.train.images.shape
  augment.check_size(recipe.augment, height, width)
  models.check_size(recipe.model, height, width)
  moments = []
  for name, statistic in (("mean", np.mean), ("std", np.std)):
    given = getattr(recipe, name)
    if given is not None and len(given) != channels:
      raise Mistake(f"{name} of {len(given)} channels for {data.name} images of {channels}: give {channels} or none")
    value = statistic(data.train.images, axis=(0, 1, 2), dtype=np.float64) if given is None else given
    moments.append(np.asarray(value, np.float32))
  if not (moments[1] > 0).all():
    raise Mistake(f"a channel of {data.name} is constant: give std for each channel")

  def examples(e):
    return DeviceExamples(e.images, e.labels, *moments)

  return examples(data.train), {name: examples(e) for name, e in data.tests.items()}


def digest(data: Dataset) -> str:
  """A fingerprint of all examples: the same file name may hold other data when a campaign goes on."""
  fingerprint = hashlib.blake2b(digest_size=8)
  for examples in (data.train, *data.tests.values()):
    for array in (examples.images, examples.labels):
      fingerprint.update(np.ascontiguousarray(array))
  return fingerprint.hexdigest()
