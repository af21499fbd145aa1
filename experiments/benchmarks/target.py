"""How fast an accelerator that is not here would train, by its compiler's estimates.

    python -m experiments.benchmarks.target digits_cnn v5e                           (minutes; pip install 'vmapseeds[aot]')

The lanes are compiled for the target, and nothing runs. On a TPU an operation takes as
long as the compiler estimates. An operation that it does not estimate (gathers, sorts,
custom calls), and every operation on a GPU, takes twice what its bytes or its products
take at the device's peak.
"""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import jax

from experiments.benchmarks.abstract import abstract_task
from experiments.benchmarks.bench import (
  COLUMNS,
  Columns,
  check_output_file,
  check_wanted,
  print_table,
)
from experiments.benchmarks.contenders import significant
from experiments.benchmarks.estimates import (
  TARGETS,
  absent,
  estimate_candidates,
  fastest_estimate,
  make_estimator,
)
from vmapseeds import convolutions, lanes
from vmapseeds.campaign.execution import filling_width, product_flops
from vmapseeds.cli import one_line_errors
from vmapseeds.flags import metavar, parse_flags, parse_overrides
from vmapseeds.lanes import Execution, choice
from vmapseeds.machine import hide_absent_accelerators
from vmapseeds.training.recipe_or_task import resolve_task
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run, Runs
from vmapseeds.training.task import Task, lanes_of


def task_of(what: Recipe | Task) -> tuple[Task, Run]:
  """Return a task with the shapes of its data, and a runs table of one row."""
  task = abstract_task(what) if isinstance(what, Recipe) else what
  return task, lanes_of(task, Runs.independent(1))


TARGET_COLUMNS: Columns = (
  COLUMNS[0],
  ("estimate µs", "estimate_us", significant),
  ("traffic µs", "traffic_us", significant),
  ("launches", "launches", lambda n: f"{n:,.0f}"),
  COLUMNS[-1],
)


def print_estimates(
  what: Recipe | Task,
  target: str,
  widths: Sequence[int] = (),
  lowerings: Sequence[str] = (),
) -> list[dict]:
  """Print what the compiler estimates for each lowering and lane width.

  Returns:
    A dict for each, with None for what is not known: `lowering`, `width`, `fits`,
    `memory_bytes`; `estimate_us`, `traffic_us`, `roofline_us`: the time of a model-step
    by the compiler's estimate, and the times that its bytes and the task's products
    take at the device's peak; `launches`: operations in a step of all lanes;
    `compile_seconds`; `chosen`: whether its estimate is the best.

  Raises:
    UserError: there is no such target, or its compiler is not installed.
  """
  check_wanted(widths, lowerings)
  absent(target)
  known = TARGETS[target]
  with lanes.compiling_for(known.platform):  # where `auto` may be another precision
    task, run = task_of(what)
  wanted = choice.candidates(
    known.platform, filling=filling_width(task, run, known.platform)
  )
  if lowerings or widths:
    tried_widths = sorted({execution.width for execution in wanted})
    combinations = itertools.product(
      lowerings or convolutions.LOWERINGS,
      widths or tried_widths,
    )
    wanted = [Execution(lowering, width) for lowering, width in combinations]
  by_execution = estimate_candidates(
    wanted,
    make_estimator(task, run, target),
    narrow=not widths,
  )
  chosen = fastest_estimate(by_execution)
  roofline = 1e6 * product_flops(task, run) / known.chip.flops
  rows = []
  for execution, estimate in by_execution.items():
    estimate_us = None
    if estimate.seconds is not None:
      estimate_us = 1e6 * estimate.seconds
    traffic_us = None
    if estimate.traffic_bytes is not None:
      traffic_us = 1e6 * estimate.traffic_bytes / known.chip.bandwidth
    rows.append(
      {
        "lowering": execution.lowering,
        "width": execution.width,
        "fits": estimate.fits,
        "memory_bytes": estimate.memory_bytes,
        "estimate_us": estimate_us,
        "traffic_us": traffic_us,
        "roofline_us": roofline,
        "launches": estimate.launches,
        "compile_seconds": estimate.compile_seconds,
        "chosen": execution == chosen,
      }
    )
  best = "nothing that fits"
  if chosen:
    best = f"{chosen.lowering}, lane width {chosen.width}"
  print_table(
    rows,
    TARGET_COLUMNS,
    f"{what.name} on {target}",
    "a model-step by the compiler's estimate, its bytes at the device's roof; products: "
    f"{significant(roofline)} µs\nthe best estimate: {best}",
  )
  return rows


@dataclasses.dataclass(frozen=True)
class Flags:
  recipe: Annotated[str, metavar("RECIPE")]
  """a name that `vmapseeds recipes` lists, or package.module:name of a recipe or a task"""

  target: Annotated[Literal[*TARGETS], metavar("TARGET")]
  """device to compile for: v5e, v6e, v4, v3, v2 or h100"""

  _: dataclasses.KW_ONLY

  lowerings: Annotated[
    tuple[str, ...], metavar("NAME", "those that campaigns try")
  ] = ()
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
    prog="python -m experiments.benchmarks.target",
    description=__doc__,
  )
  check_output_file(flags.json)
  if flags.target != "h100":
    hide_absent_accelerators()
  # Nothing runs, so the devices of this machine need not start.
  jax.config.update("jax_platforms", "cpu")
  what = resolve_task(flags.recipe).replace(**parse_overrides(flags.set))
  rows = print_estimates(what, flags.target, flags.widths, flags.lowerings)
  if flags.json is not None:
    record = {"recipe": what.name, "target": flags.target, "candidates": rows}
    flags.json.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
  # It may compile for a GPU that is not here.
  with one_line_errors(hides_accelerators=False):
    main()
