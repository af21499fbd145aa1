"""A campaign: recipe and runs in, results out; seed batch by seed batch, so that it can stop and go on."""

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import xarray as xr
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from vmapseeds import augment, lanes
from vmapseeds.data import Dataset, load
from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.evaluate import evaluate
from vmapseeds.recipe import Recipe
from vmapseeds.results import Results, attributes, check_folder, open_results
from vmapseeds.runs import Run, Runs
from vmapseeds.train import DeviceExamples
from vmapseeds.train import train as train_one

SEED_BATCH = 256
PACKAGES = ("vmapseeds", "jax", "jaxlib", "flax", "optax", "numpy")


def train(
  recipe: Recipe,
  runs: Runs,
  out: str | os.PathLike,
  *,
  seed_batch: int | None = None,
  lane_width: int | None = None,
  lowering: str = "im2col",
  logits: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Trains and evaluates the runs that `out` does not hold yet, and returns what `open_results` does.

  Args:
    recipe: what to train.
    runs: the runs table; a longer one than last time extends the results.
    out: the results folder, made if absent.
    seed_batch: how many runs are trained between two writes (256, or all if fewer): an interruption loses at most
      these. Results do not depend on it.
    lane_width: how many lanes a device advances together. Given none, that of the folder, else 1 on a CPU and 64
      elsewhere, at most the seed batch. Results depend on it by rounding, so a folder keeps one.
    lowering: how convolutions run their lanes, one of `lanes.LOWERINGS`. Results depend on it by rounding.
    logits: whether to keep logits beside predictions.
    progress: whether to draw a progress bar on stderr.

  Raises:
    Mistake: before any training, when something given does not fit; nothing is changed then.
  """
  seed_batch = min(SEED_BATCH, len(runs)) if seed_batch is None else at_least("seed batch", seed_batch, 1)
  if lane_width is not None and at_least("lane width", lane_width, 1) > seed_batch:
    raise Mistake(f"lane width {lane_width} with seed batch {seed_batch}: give at most the seed batch")
  one_of("lowering", lowering, lanes.LOWERINGS)
  check_folder(out)
  devices = lanes.devices()
  data = load(recipe.dataset, test_sets=recipe.test_sets, classes=recipe.classes)
  examples = on_device(recipe, data)
  runs.check(len(data.train), data.num_classes, recipe.batch_size)

  stored = attributes(out) or {}
  lane_width = lane_width or stored.get("lane_width") or min(lanes.default_width(devices[0].platform), seed_batch)
  results = Results.open_or_create(
    out, recipe, runs, data,
    chunk=seed_batch,
    logits=logits,
    conditions={
      "device_kind": devices[0].device_kind, "lane_width": lane_width, "lowering": lowering,
      "data_digest": digest(data),
    },
    versions={"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in PACKAGES}},
  )  # fmt: skip

  num_classes = runs.num_classes(data.num_classes)

  def one_run(shared, run: Run):
    train_set, test_sets = shared
    trained = train_one(recipe, train_set, run, num_classes)
    evaluations = {n: evaluate(recipe, s, run, trained, num_classes) for n, s in test_sets.items()}
    if not logits:
      evaluations = {n: e._replace(logits=None) for n, e in evaluations.items()}
    return trained.diverged, evaluations

  run_lanes = lanes.spread(one_run, width=lane_width, devices=devices)
  shared = lanes.replicate(examples, devices)
  pending = np.flatnonzero(~results.done[: len(runs)])
  bar = progress_bar(len(runs), len(runs) - len(pending), progress)
  with lanes.lowering(lowering), bar as advance, _out_of_memory(lane_width, devices[0]):
    for start in range(0, len(pending), seed_batch):
      rows = pending[start : start + seed_batch]
      finished = []
      for which, out_lanes in run_lanes(shared, runs[rows].lanes(recipe, len(data.train))):
        finished.append(out_lanes)
        advance(which.stop - which.start)
      results.write(rows, *jax.tree.map(lambda *parts: np.concatenate(parts), *finished))
  return open_results(out, recipe.test_sets[0])


@contextmanager
def _out_of_memory(lane_width: int, device: jax.Device) -> Iterator[None]:
  """Turns XLA's running out of memory into a `Mistake` that says what to do."""
  try:
    yield
  except jax.errors.JaxRuntimeError as error:
    if "RESOURCE_EXHAUSTED" not in str(error):
      raise
    advice = f"give --lane-width {lane_width // 2}" if lane_width > 1 else "give a smaller width or batch_size"
    raise Mistake(f"lane width {lane_width} does not fit in the memory of {device.device_kind}: {advice}") from None


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
  """A bar with runs done, runs a second and time left on stderr; yields the function that advances it."""
  count = (MofNCompleteColumn(), TextColumn("runs"), _RunsPerSecond(), TimeRemainingColumn())
  with Progress(TextColumn("training"), BarColumn(), *count, console=Console(stderr=True), disable=not shown) as bar:
    task = bar.add_task("training", total=total, completed=done, before=done)
    yield lambda runs: bar.advance(task, runs)
