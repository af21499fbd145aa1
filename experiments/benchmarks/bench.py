"""How fast each lowering and lane width trains a recipe on this machine.

    python -m experiments.benchmarks.bench digits_cnn                                (minutes)

Campaigns take the fastest of what is measured here: timings are kept.
"""

import dataclasses
import functools
import itertools
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from rich import box
from rich.console import Console
from rich.table import Column, Table

import vmapseeds as vs
from experiments.benchmarks.abstract import abstract_task
from vmapseeds import lanes, models
from vmapseeds.campaign.execution import (
  cache_key,
  filling_width,
  make_refused_error,
  measure_speed,
  megabytes,
  seconds_of,
  try_execution,
  wide_width,
)
from vmapseeds.campaign.progress import written_speed
from vmapseeds.cli import one_line_errors
from vmapseeds.convolutions import LOWERINGS, onednn
from vmapseeds.errors import UserError, check_at_least, check_one_of
from vmapseeds.flags import metavar, parse_flags, parse_overrides
from vmapseeds.lanes import Execution, choice
from vmapseeds.training.networks import check_network
from vmapseeds.training.recipe_runs import check_runs_fit_recipe
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import MAX_RUNS, Runs
from vmapseeds.training.task import lanes_of

Columns = Sequence[tuple[str, str, Callable[[float], str]]]


COLUMNS: Columns = (
  ("memory", "memory_bytes", megabytes),
  ("model steps/s", "model_steps_per_second", written_speed),
  ("compiled", "compile_seconds", lambda seconds: f"{seconds:.0f} s"),
)


def bench(
  recipe: Recipe,
  widths: Sequence[int] = (),
  lowerings: Sequence[str] = (),
) -> list[dict]:
  """Time training steps on random images for each lowering and lane width. Print a
  table, and cache the timings for campaigns.

  Args:
    recipe: the recipe to train.
    widths: lane widths; if empty, those that campaigns try.
    lowerings: lowerings; if empty, all of them.

  Returns:
    A dict for each lowering and width, with None for what is not known: `lowering`,
    `width`; `fits`: whether it fits in memory and runs here; `memory_bytes` on each device; `model_steps_per_second` (the median
    of repetitions, all devices together); `compile_seconds`; `chosen`: whether
    campaigns take it.

  Raises:
    UserError: a width or a lowering is not valid.
    Failure: XLA or a library of the device refuses all of them.
  """
  check_wanted(widths, lowerings)
  devices = lanes.start_jax()
  platform = devices[0].platform
  task = abstract_task(recipe)
  run = Runs.independent(1)
  check_runs_fit_recipe(recipe, run, len(task.data[0]), task.data[0].num_classes)
  # No limit here: what does not fit in memory is a row of the table.
  check_network(recipe, task.data[0], math.inf)
  lane = lanes_of(task, run)
  wide = 1
  if platform == "cpu" and not widths:
    wide = wide_width(task, lane)
  fills = filling_width(task, lane, platform)
  tried = choice.candidates(platform, filling=fills, wide=wide)
  # The order of the table: all widths of a lowering one after another.
  lowerings = lowerings or LOWERINGS
  widths = widths or sorted({execution.width for execution in tried})
  pairs = itertools.product(lowerings, widths)
  wanted = [Execution(lowering, width) for lowering, width in pairs]
  refused = dict[Execution, RuntimeError]()
  timed = functools.partial(measure_speed, task)
  # A row for each, whether it runs here or not.
  speeds = {execution: try_execution(execution, timed, refused) for execution in wanted}
  if len(refused) == len(wanted):
    raise make_refused_error(task, refused)
  key = cache_key(task)
  # What was refused is not stored: another driver or library may run it.
  timings = {e: seconds_of(speeds[e]) for e in wanted if e not in refused}
  choice.write_timings(key, timings)
  tried = [execution for execution in tried if execution not in refused]
  # If all that campaigns would try is refused, they take one of those measured here.
  chosen = choice.best(tried or [*timings], choice.read_timings(key))
  rows = [
    {
      **execution._asdict(),
      "fits": speed is not None,
      "memory_bytes": speed and speed.memory_bytes,
      "model_steps_per_second": speed and 1 / speed.seconds,
      "compile_seconds": speed and speed.compile_seconds,
      "chosen": execution == chosen,
    }
    for execution, speed in speeds.items()
  ]
  print_table(
    rows,
    COLUMNS,
    f"{recipe.name}, batch {recipe.batch_size}, "
    f"{describe_precision(recipe, platform)}, {len(devices)} × "
    f"{devices[0].device_kind}",
    f"campaigns take {chosen.lowering}, lane width {chosen.width}: kept in "
    f"{choice.timings_file()}",
  )
  return rows


def describe_precision(recipe: Recipe, platform: str) -> str:
  """Return the recipe's precision, and of bfloat16 on a CPU whether oneDNN convolves."""
  precision = models.resolve_precision(recipe.precision)
  if (precision, platform) != ("bfloat16", "cpu"):
    return precision
  if onednn.is_usable():
    return "bfloat16 by oneDNN"
  return "bfloat16 without oneDNN"


def check_wanted(widths: Sequence[int], lowerings: Sequence[str]) -> None:
  """Raise `UserError` unless these are lane widths and lowerings."""
  for width in widths:
    if check_at_least("lane width", width, 1) > MAX_RUNS:
      raise UserError(f"lane width is {width}: give at most {MAX_RUNS}")
  for lowering in lowerings:
    check_one_of("lowering", lowering, LOWERINGS)


def print_table(rows: list[dict], columns: Columns, title: str, caption: str) -> None:
  """Print rows as a table of 80 characters, without the columns that have no value in
  any row.
  """
  columns = [
    (head, field, format_value)
    for head, field, format_value in columns
    if any(row[field] is not None for row in rows)
  ]
  table = Table(
    Column("lowering", min_width=10),
    "width",
    "fits",
    *(head for head, *_ in columns),
    title=title,
    caption=caption,
    box=box.SIMPLE,
    padding=0,
  )
  for row in rows:
    width = str(row["width"])
    if row["chosen"]:
      width += " ←"
    cells = [
      "" if row[field] is None else format_value(row[field])
      for _, field, format_value in columns
    ]
    table.add_row(row["lowering"], width, "yes" if row["fits"] else "no", *cells)
  Console().print(table)


def check_output_file(path: Path | None) -> None:
  """Raise `UserError` if the file cannot be written."""
  if path is None:
    return
  folder = path.absolute().parent
  # A file that is there may be writable in a folder that is not.
  written = path if path.exists() else folder
  if path.is_dir() or not folder.is_dir() or not os.access(written, os.W_OK):
    raise UserError(f"--json {path} cannot be written: give another file")


@dataclasses.dataclass(frozen=True)
class Flags:
  recipe: Annotated[str, metavar("RECIPE")]
  """the recipe whose training step is timed, on random images"""

  _: dataclasses.KW_ONLY

  lowerings: Annotated[tuple[str, ...], metavar("NAME", "all")] = ()
  """how convolutions run their lanes: im2col, grouped, sequential"""

  widths: Annotated[tuple[int, ...], metavar("W", "those that campaigns try")] = ()
  """lane widths"""

  json: Annotated[Path | None, metavar("FILE", "none")] = None
  """also write the table to FILE, as the `candidates` of a JSON object"""

  set: Annotated[tuple[str, ...], metavar("FIELD=VALUE", "none")] = ()
  """recipe fields to change"""


def main(argv: Sequence[str] | None = None) -> None:
  flags = parse_flags(
    Flags,
    argv,
    prog="python -m experiments.benchmarks.bench",
    description=__doc__,
  )
  check_output_file(flags.json)
  recipe = vs.recipe(flags.recipe, **parse_overrides(flags.set))
  rows = bench(recipe, flags.widths, flags.lowerings)
  if flags.json is not None:
    record = {"recipe": recipe.name, "candidates": rows}
    flags.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
  with one_line_errors():
    main()
