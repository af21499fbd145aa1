"""A campaign: recipe and runs in, results out; seed batch by seed batch, so that it can stop and go on."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import xarray as xr
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from vmapseeds import augment, bench, checkpoints, lanes, models, variables
from vmapseeds.data import Dataset, load
from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.evaluate import evaluate
from vmapseeds.lanes.choice import free_host_memory, is_out_of_memory
from vmapseeds.recipe import Recipe
from vmapseeds.results import Results, attributes, check_folder, open_results
from vmapseeds.runs import Run, Runs
from vmapseeds.train import DeviceExamples, advance, finish, start

SEED_BATCH = 256
PACKAGES = ("vmapseeds", "jax", "jaxlib", "flax", "optax", "numpy")


def train(
  recipe: Recipe,
  runs: Runs,
  out: str | os.PathLike,
  *,
  seed_batch: int | None = None,
  lane_width: int | None = None,
  lowering: str | None = None,
  logits: bool = False,
  checkpoint_every: int | None = None,
  keep_params: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Trains and evaluates the runs that `out` does not hold yet, and returns what `open_results` does.

  Args:
    recipe: what to train.
    runs: the runs table; a longer one than last time extends the results.
    out: the results folder, made if absent.
    seed_batch: how many runs are trained between two writes: an interruption loses at most these. Given none, 256 or
      what fits in the host's memory, in whole steps of all lanes. Results do not depend on it.
    lane_width: how many lanes a device advances together, at most the seed batch. Given none, that of the folder,
      else chosen, see `bench.choose`. Results depend on it by rounding, so a folder keeps one. When the devices' memory
      does not hold so many, and the folder has no finished runs, it is halved until it does.
    lowering: how convolutions run their lanes, one of `lanes.LOWERINGS`; the same holds for it.
    logits: whether to keep logits beside predictions.
    checkpoint_every: after so many epochs each, the runs of the seed batch are saved in the folder's `checkpoints`, so
      that an interruption loses at most these; removed when the runs are written. Given none, nothing is saved.
      Results do not depend on it.
    keep_params: whether to keep the trained parameters and batch statistics of all runs, see `load_params`.
    progress: whether to say on stderr what was chosen, and to draw a progress bar there.

  Raises:
    Mistake: before any training, when something given does not fit; nothing is changed then. Or when the devices run
      out of memory and nothing can be halved.
  """
  if seed_batch is not None:
    at_least("seed batch", seed_batch, 1)
  if lane_width is not None and at_least("lane width", lane_width, 1) > (seed_batch or len(runs)):
    limit = f"seed batch {seed_batch}" if seed_batch else f"{len(runs)} runs"
    raise Mistake(f"lane width {lane_width} with {limit}: give at most as many")
  if lowering is not None:
    one_of("lowering", lowering, lanes.LOWERINGS)
  if checkpoint_every is not None:
    at_least("checkpoint_every", checkpoint_every, 1)
  check_folder(out)
  devices = lanes.devices()
  data = load(recipe.dataset, test_sets=recipe.test_sets, classes=recipe.classes)
  examples = on_device(recipe, data)
  runs.check(len(data.train), data.num_classes, recipe.batch_size)
  num_classes = runs.num_classes(data.num_classes)

  stored = attributes(out) or {}
  lowering, lane_width = lowering or stored.get("lowering"), lane_width or stored.get("lane_width")
  if lowering is None or lane_width is None:
    lowering, lane_width = bench.choose(
      recipe, bench.Shapes(data.train.images.shape[1:], num_classes),
      model_steps=len(runs) * recipe.epochs * (runs.num_train(len(data.train)) // recipe.batch_size),
      most=-(-min(len(runs), seed_batch or len(runs)) // len(devices)),
      lowering=lowering, width=lane_width, shown=progress,
    )  # fmt: skip
  shapes = variables.shapes(recipe, data.train.images.shape[1:], num_classes)
  seed_batch = seed_batch or fitting_seed_batch(
    data,
    num_classes if logits else 0,
    lane_width * len(devices),
    (keep_params + 3 * bool(checkpoint_every)) * variables.num_bytes(shapes),
  )
  conditions = {
    "device_kind": devices[0].device_kind, "lane_width": lane_width, "lowering": lowering,
    "precision": models.resolved(recipe.precision), "data_digest": digest(data),
  }  # fmt: skip
  versions = {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in PACKAGES}}
  results = Results.open_or_create(
    out,
    recipe,
    runs,
    data,
    chunk=seed_batch,
    logits=logits,
    params=shapes if keep_params else None,
    conditions=conditions,
    versions=versions,
  )

  shared = lanes.replicate(examples, devices)
  done = results.done[: len(runs)]
  with progress_bar(len(runs), done.sum(), progress) as advance_to:
    while not done.all():
      rows = np.flatnonzero(~done)[:seed_batch]
      run_lanes = spread_run(recipe, num_classes, logits, lowering, lane_width, keep_params)
      table = runs[rows].lanes(recipe, len(data.train))
      keeper = checkpoint_every and checkpoints.Checkpoints(
        results.path, rows, table, checkpoint_every,
        fits={"recipe": recipe.to_json(), **conditions, "lane_width": lane_width, "versions": versions},
      )  # fmt: skip
      finished = []
      try:
        for which, out_lanes in run_lanes(shared, table, keeper):
          finished.append(out_lanes)
          advance_to(done.sum() + which.stop)
      except jax.errors.JaxRuntimeError as error:
        lane_width = narrower(lane_width, error, results, devices[0])
        results.set_conditions(lane_width=lane_width)
        continue
      results.write(rows, *jax.tree.map(lambda *parts: np.concatenate(parts), *finished))
      done[rows] = True
      if keeper:
        keeper.remove()
  checkpoints.clear(results)
  return open_results(out, recipe.test_sets[0])


@functools.lru_cache(maxsize=16)
def spread_run(recipe: Recipe, num_classes: int, logits: bool, lowering: str, lane_width: int, keep_params: bool):
  """Training and evaluation of one run, spread over lanes: compiled once a process, whatever the runs' values."""

  def begin(shared, run: Run):
    with lanes.lowering(lowering):
      return start(recipe, shared[0], run, num_classes)

  def some_epochs(shared, run: Run, state, first, last):
    with lanes.lowering(lowering):
      return advance(recipe, shared[0], run, num_classes, state, first, last)

  def outcome(shared, run: Run, state):
    trained = finish(state)
    with lanes.lowering(lowering):
      evaluations = {n: evaluate(recipe, s, run, trained, num_classes) for n, s in shared[1].items()}
    if not logits:
      evaluations = {n: e._replace(logits=None) for n, e in evaluations.items()}
    return trained.diverged, evaluations, trained.variables if keep_params else None

  stages = lanes.Stages(begin, some_epochs, outcome, recipe.epochs)
  return lanes.spread_stages(stages, width=lane_width, devices=lanes.devices())


def fitting_seed_batch(data: Dataset, logits: int, step: int, more: int = 0) -> int:
  """How many runs' outputs fit comfortably in the host's memory: whole steps of `step` lanes, at most 256 but one step.

  Args:
    logits: how many are kept of an example.
    more: bytes that are kept of a run besides; what is in training is at most three times its variables.
  """
  examples = sum(len(e) for e in data.tests.values())
  # An eighth, because outputs exist a few times over while they are brought together and written.
  fitting = free_host_memory() / 8 // (examples * (2 + 4 * logits) + more)
  return int(max(1, min(SEED_BATCH, fitting) // step)) * step


def narrower(lane_width: int, error: Exception, results: Results, device: jax.Device) -> int:
  """Half the lane width, when the error is that the devices ran out of memory. `Mistake` where that is no way out."""
  if not is_out_of_memory(error):
    raise error
  said = str(error).splitlines()[0].removeprefix("RESOURCE_EXHAUSTED: ")
  full = f"lane width {lane_width} does not fit in the memory of {device.device_kind} ({said[:120]})"
  if lane_width == 1:
    raise Mistake(f"{full}: give a smaller width or batch_size") from None
  if results.done.any():
    other = f"give another --out with --lane-width {lane_width // 2}"
    raise Mistake(f"{full}, and the finished runs of {results.path} keep it: free memory, or {other}") from None
  print(f"{full}: going on with {lane_width // 2}", file=sys.stderr)
  return lane_width // 2


def on_device(recipe: Recipe, data: Dataset) -> tuple[DeviceExamples, dict[str, DeviceExamples]]:
  """The training set and the test sets as lanes read them. `Mistake` where the recipe does not fit the images."""
  _, height, width, channels = data.train.images.shape
  augment.check_size(recipe.augment, height, width)
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


class _RunsPerSecond(ProgressColumn):
  def render(self, task) -> Text:
    trained = task.completed - task.fields["before"]
    # The bar's own speed leaves compilation out; all in one step there is no other than the whole time.
    speed = task.finished_speed or task.speed or (trained and task.elapsed and trained / task.elapsed)
    waiting = "" if task.finished else "compiling"
    return Text(f"{speed:.3g} runs/s" if speed else waiting, style="progress.data.speed")


@contextmanager
def progress_bar(total: int, done: int, shown: bool) -> Iterator[Any]:
  """A bar with runs done, runs a second and time left on stderr; yields the function that takes it to so many."""
  count = (MofNCompleteColumn(), TextColumn("runs"), _RunsPerSecond(), TimeRemainingColumn())
  with Progress(TextColumn("training"), BarColumn(), *count, console=Console(stderr=True), disable=not shown) as bar:
    task = bar.add_task("training", total=total, completed=done, before=done)
    yield lambda runs: bar.update(task, completed=runs)
