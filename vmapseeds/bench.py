"""How fast this machine trains a recipe, for each lowering of the convolution and each lane width; which it takes."""

import importlib.metadata
import itertools
import math
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from vmapseeds import lanes, models
from vmapseeds.data import load
from vmapseeds.errors import Mistake, at_least, one_of
from vmapseeds.lanes import Choice, choice
from vmapseeds.recipe import Recipe
from vmapseeds.runs import MOST_RUNS, Runs
from vmapseeds.train import DeviceExamples, train

# A measurement is the median of so many trainings, or of as many as begin in so many seconds.
REPETITIONS = 5
SECONDS = 2.0
# A training has so many steps, for what is done once not to count, or fewer (at least two) of so many pixels in all.
STEPS = 100
PIXELS = 2**21


class Shapes(NamedTuple):
  """What of the data the speed depends on."""

  image: tuple[int, ...]  # height, width, channels
  num_classes: int


class Speed(NamedTuple):
  """Seconds a model-step, all devices together, and seconds of compilation (few where it was kept from before)."""

  seconds: float
  compile_seconds: float


def measure(recipe: Recipe, shapes: Shapes, how: Choice) -> Speed | None:
  """Times training steps on random images; None where they do not fit in the devices' memory."""
  devices = lanes.devices()
  recipe = recipe.replace(epochs=1)
  steps = min(STEPS, max(2, PIXELS // (recipe.batch_size * math.prod(shapes.image))))
  data = random_examples(shapes, steps * recipe.batch_size)
  runs = Runs.independent(how.width * len(devices)).lanes(recipe, len(data.labels))

  # Not defined once for all, because what is traced once is not traced again under another lowering.
  def one_run(data, run):
    with lanes.lowering(how.lowering):
      return train(recipe, data, run, shapes.num_classes).diverged

  try:
    begun = time.perf_counter()
    step, needed = lanes.compiled(one_run, data, runs, devices=devices)
    compile_seconds = time.perf_counter() - begun
    if needed > choice.free_memory(devices[0]):
      return None
    taken = []
    while len(taken) < REPETITIONS and sum(taken) < SECONDS:
      begun = time.perf_counter()
      step()
      taken.append(time.perf_counter() - begun)
  except jax.errors.JaxRuntimeError as error:
    if choice.is_out_of_memory(error):
      return None
    raise
  return Speed(statistics.median(taken) / (steps * how.width * len(devices)), compile_seconds)


def random_examples(shapes: Shapes, n: int) -> DeviceExamples:
  """`n` random images, to be timed on."""
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (n, *shapes.image), np.uint8)
  moments = (np.full(shapes.image[-1], value, np.float32) for value in (128, 64))
  return DeviceExamples(images, rng.integers(0, shapes.num_classes, n, np.int32), *moments)


def _conditions(recipe: Recipe, shapes: Shapes) -> dict[str, object]:
  """What a measurement holds for."""
  devices = lanes.devices()
  fields = ("model", "width", "batch_size", "optimizer", "augment")
  return {
    "device_kind": devices[0].device_kind,
    "devices": len(devices),
    "jax": jax.__version__,
    "vmapseeds": importlib.metadata.version("vmapseeds"),
    **{field: getattr(recipe, field) for field in fields},
    "precision": models.resolved(recipe.precision),
    **shapes._asdict(),
  }


def choose(
  recipe: Recipe, shapes: Shapes, *, model_steps: int, most: int, lowering: str | None = None, width: int | None = None,
  shown: bool = True,
) -> Choice:  # fmt: skip
  """The lowering and the lane width to train with: the fastest of what was or now is measured, as far as it pays.

  Args:
    recipe: what is to be trained.
    shapes: those of its data.
    model_steps: training steps of the campaign, over all its runs.
    most: the widest lanes that it has runs for.
    lowering: given, only the width is chosen.
    width: given, only the lowering is chosen.
    shown: whether to say on stderr what was chosen.
  """
  platform = lanes.devices()[0].platform
  most = width or most
  wanted = choice.candidates(platform, lowering=lowering, width=width, most=most)
  conditions = _conditions(recipe, shapes)
  known = {
    how: seconds
    for how, seconds in choice.read_timings(conditions).items()
    if lowering in (None, how.lowering) and width in (None, how.width) and how.width <= most
  }
  with Console(stderr=True, quiet=not shown).status("measuring lowerings and lane widths") as status:

    def seconds(how: Choice) -> float | None:
      status.update(f"measuring {how.lowering}, lane width {how.width}")
      speed = measure(recipe, shapes, how)
      return speed and speed.seconds

    timings = choice.time_candidates(wanted, known, seconds, model_steps)
  if timings != known:
    choice.write_timings(conditions, timings)
  chosen = choice.best(wanted, timings)
  if shown:
    tried = sum(t is not None for t in timings.values())
    why = f"the fastest of {tried} measured" if tried > 1 else f"the default for {platform}"
    print(f"lanes: {chosen.lowering}, width {chosen.width} ({why}; --lowering, --lane-width override)", file=sys.stderr)
  return chosen


def bench(
  recipe: Recipe, widths: Sequence[int] = (), lowerings: Sequence[str] = (), console: Console | None = None
) -> list[dict]:
  """Times training steps on random images of the recipe's shape, prints a table, and keeps it for campaigns.

  Args:
    recipe: whose training step to time.
    widths: lane widths; those that campaigns try, if none.
    lowerings: all, if none.
    console: where the table is printed; standard output if None.

  Returns:
    A dict for each lowering and width: `lowering`, `width`, `model_steps_per_second` (the median of repetitions, all
    devices together; None where it does not fit in memory), `compile_seconds` and whether it is `chosen` by campaigns.
  """
  for width in widths:
    if at_least("lane width", width, 1) > MOST_RUNS:
      raise Mistake(f"lane width is {width}: give at most {MOST_RUNS}")
  for lowering in lowerings:
    one_of("lowering", lowering, lanes.LOWERINGS)
  devices = lanes.devices()
  shapes = shapes_of(recipe)
  models.check_size(recipe.model, *shapes.image[:2])
  tried = choice.candidates(devices[0].platform)
  pairs = itertools.product(lowerings or lanes.LOWERINGS, widths or sorted({how.width for how in tried}))
  speeds = {Choice(*pair): measure(recipe, shapes, Choice(*pair)) for pair in pairs}
  conditions = _conditions(recipe, shapes)
  choice.write_timings(conditions, {how: speed and speed.seconds for how, speed in speeds.items()})
  chosen = choice.best(tried, choice.read_timings(conditions))
  rows = [
    {
      "lowering": how.lowering,
      "width": how.width,
      "model_steps_per_second": speed and 1 / speed.seconds,
      "compile_seconds": speed and speed.compile_seconds,
      "chosen": how == chosen,
    }
    for how, speed in speeds.items()
  ]
  _print(rows, recipe, chosen, devices, console or Console())
  return rows


def shapes_of(recipe: Recipe) -> Shapes:
  """The shapes of the recipe's data. `Mistake` where there is no such data."""
  data = load(recipe.dataset, test_sets=recipe.test_sets, classes=recipe.classes)
  return Shapes(data.train.images.shape[1:], data.num_classes)


def _print(rows: list[dict], recipe: Recipe, chosen: Choice, devices: list[jax.Device], console: Console) -> None:
  best = max((row["model_steps_per_second"] or 0 for row in rows), default=0)
  precision = models.resolved(recipe.precision)
  title = f"{recipe.name}, batch {recipe.batch_size}, {precision}, {len(devices)} × {devices[0].device_kind}"
  kept = f"campaigns take {chosen.lowering}, lane width {chosen.width}: kept in {choice.timings_file()}"
  head = ("lowering", "lane width", "model-steps a second", "of the best", "compilation")
  table = Table(*head, title=title, caption=kept)
  for row in rows:
    speed, name = row["model_steps_per_second"], row["lowering"] + " ←" * row["chosen"]
    if speed is None:
      table.add_row(name, str(row["width"]), "does not fit", "", "")
    else:
      table.add_row(name, str(row["width"]), f"{speed:,.0f}", f"{speed / best:.0%}", f"{row['compile_seconds']:.1f} s")
  console.print(table)
