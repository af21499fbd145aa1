"""How fast this machine trains a recipe, for each lowering of the convolution and each lane width."""

import statistics
import time
from collections.abc import Sequence

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from vmapseeds import lanes
from vmapseeds.data import load
from vmapseeds.errors import at_least
from vmapseeds.recipe import Recipe
from vmapseeds.runs import Runs
from vmapseeds.train import DeviceExamples, train

REPETITIONS = 5
STEPS = 10


def bench(recipe: Recipe, widths: Sequence[int], console: Console | None = None) -> list[dict]:
  """Times training steps on random images of the recipe's shape, and prints a table.

  Returns a dict for each lowering and width: `lowering`, `width`, `model_steps_per_second` (the median of
  repetitions, all devices together) and `compile_seconds`.
  """
  for width in widths:
    at_least("lane width", width, 1)
  devices = lanes.devices()
  recipe = recipe.replace(epochs=1)
  data = _random_examples(recipe)
  rows = []
  for lowering in lanes.LOWERINGS:
    for width in widths:
      # A function of its own for each, because what is traced once is not traced again under another lowering.
      step = lanes.spread(lambda data, run: train(recipe, data, run, 10).diverged, width=width, devices=devices)
      runs = Runs.independent(width * len(devices)).lanes(recipe, len(data.labels))
      with lanes.lowering(lowering):
        first = _seconds(step, data, runs)
        seconds = statistics.median(_seconds(step, data, runs) for _ in range(REPETITIONS))
      rows.append({
        "lowering": lowering,
        "width": width,
        "model_steps_per_second": STEPS * width * len(devices) / seconds,
        "compile_seconds": first - seconds,
      })  # fmt: skip
  _print(rows, recipe, devices, console or Console())
  return rows


def _random_examples(recipe: Recipe) -> DeviceExamples:
  shape = load(recipe.dataset, test_sets=recipe.test_sets).train.images.shape[1:]
  rng = np.random.default_rng(0)
  n = STEPS * recipe.batch_size
  images = rng.integers(0, 256, (n, *shape), np.uint8)
  moments = np.full(shape[-1], 128, np.float32), np.full(shape[-1], 64, np.float32)
  return DeviceExamples(images, rng.integers(0, 10, n, np.int32), *moments)


def _seconds(step, data: DeviceExamples, runs) -> float:
  start = time.perf_counter()
  for _ in step(data, runs):
    pass
  return time.perf_counter() - start


def _print(rows: list[dict], recipe: Recipe, devices: list[jax.Device], console: Console) -> None:
  best = max(row["model_steps_per_second"] for row in rows)
  title = f"{recipe.name}, batch {recipe.batch_size}, {len(devices)} × {devices[0].device_kind}"
  table = Table("lowering", "lane width", "model-steps a second", "of the best", "compilation", title=title)
  for row in rows:
    speed = row["model_steps_per_second"]
    table.add_row(
      row["lowering"], str(row["width"]), f"{speed:,.0f}", f"{speed / best:.0%}", f"{row['compile_seconds']:.1f} s"
    )
  console.print(table)
