"""What campaigns cost: device-hours of each recipe here, on accelerators, and in the
papers. Writes docs/cost.md.

    JAX_PLATFORMS=cpu python -m experiments.benchmarks.cost                         (an hour or two on two CPU cores)

On this machine training steps are timed. For accelerators they are only compiled (`pip
install 'vmapseeds[aot]'`), and the compilers' numbers are estimates. What is in the
folder already is neither timed nor compiled again.
"""

import dataclasses
import datetime
import json
import os
from pathlib import Path
from typing import Annotated, Literal

import jax

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.abstract import abstract_task
from experiments.benchmarks.common import Table
from experiments.benchmarks.contenders import significant
from experiments.benchmarks.estimates import TARGETS
from experiments.benchmarks.target import print_estimates, task_of
from vmapseeds.campaign.execution import measure_speed, product_flops
from vmapseeds.cli import one_line_errors
from vmapseeds.flags import metavar
from vmapseeds.lanes import choice, start_jax
from vmapseeds.training.recipes import RECIPES

RUNS = 1_000
AIRBENCH, MUON = "airbench94_cifar10", "airbench94_muon_cifar10"
# Those of the package, and what stands for each elsewhere.
NAMES = {name: name for name in RECIPES} | {
  AIRBENCH: f"experiments.airbench:{AIRBENCH}",
  MUON: f"experiments.airbench:{MUON}",
  "cnn_cifar10_binary": "experiments.banerjee2024.network:CNN_CIFAR10_BINARY",
}
# A100-seconds a run. That of resnet9 is quoted second-hand: neither version of jordan2024
# that was read prints it. That of airbench94 is from arXiv 2404.00498, section 1, that of
# its form with Muon from github.com/KellerJordan/cifar10-airbench.
PAPERS = {
  "resnet9_cifar10": 58.5,
  "resnet9_cifar10_published": 58.5,
  AIRBENCH: 3.29,
  MUON: 2.59,
}
H200 = 0.989  # PFLOP/s in bfloat16 without sparsity, by NVIDIA's data sheet
HERE = "here"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(common.Flags):
  recipes: Annotated[tuple[Literal[*NAMES], ...], metavar("RECIPE", "all")] = tuple(
    NAMES
  )
  """recipes, as `vmapseeds recipes` lists them, or airbench94_cifar10, airbench94_muon_cifar10,
  cnn_cifar10_binary"""

  targets: Annotated[tuple[Literal[*TARGETS], ...], metavar("NAME")] = (
    "v5e",
    "v6e",
    "h100",
  )
  """accelerators that `experiments.benchmarks.target` knows"""

  doc: Annotated[Path, metavar("FILE")] = Path("docs/cost.md")
  """the document to write"""


def seconds_here(recipe: vs.Recipe) -> dict:
  """Seconds of a model-step on all cores, in the lowering and width of a campaign that
  is too short to measure them.

  Processor time, so that other programs on the machine do not count.
  """
  start_jax()
  execution = choice.candidates("cpu")[0]
  speed = measure_speed(abstract_task(recipe), execution)
  seconds = speed.processor_seconds / common.cores()
  return {
    "seconds": seconds,
    "lowering": execution.lowering,
    "width": execution.width,
    "load": os.getloadavg()[0],
  }


def seconds_on(recipe: vs.Recipe, target: str) -> dict:
  """The best estimate of a model-step on a target."""
  best = next(row for row in print_estimates(recipe, target) if row["chosen"])
  return {
    "seconds": best["estimate_us"] / 1e6,
    "lowering": best["lowering"],
    "width": best["width"],
  }


def model_steps(recipe: vs.Recipe) -> int:
  """Training steps of a run."""
  task = abstract_task(recipe)
  return task.rounds * task.steps


def petaflop(recipe: vs.Recipe) -> float:
  """The products and convolutions of a run's training, in 10¹⁵ operations."""
  task, run = task_of(recipe)
  return product_flops(task, run) * task.rounds * task.steps / 1e15


def hours(seconds: float, runs: int) -> str:
  """Device-hours of `runs` runs of `seconds` each."""
  return significant(seconds * runs / 3600)


def hours_of_runs(
  name: str,
  by_place: dict[str, dict],
  places: list[str],
  runs: int,
) -> list[str]:
  """What a run of a recipe is, and the device-hours that some runs take on each device,
  and in the papers.
  """
  recipe = vs.recipe(NAMES[name])
  steps = model_steps(recipe)
  cells = [f"{steps:,} steps, {significant(petaflop(recipe))} PFLOP"]
  for place in places:
    cell = "—"
    if place in by_place:
      cell = hours(by_place[place]["seconds"] * steps, runs)
    cells.append(cell)
  cells.append(hours(PAPERS[name], runs) if name in PAPERS else "—")
  return cells


def document(by_recipe: dict[str, dict[str, dict]], where: dict, command: str) -> str:
  """The document, given the seconds of a model-step of each recipe on each device."""
  places: list[str] = []
  for by_place in by_recipe.values():
    places += [place for place in by_place if place not in places]
  columns = []
  for place in places:
    if place == HERE:
      columns.append(f"{where['cores']} CPU cores")
    else:
      columns.append(f"{place}, estimated")
  head = ("recipe", "a run", *columns, "papers, A100")
  rows = [
    (name, *hours_of_runs(name, by_place, places, RUNS))
    for name, by_place in by_recipe.items()
  ]
  table = common.markdown(Table(f"Device-hours of {RUNS:,} runs", head, rows))
  measured = [by_place[HERE] for by_place in by_recipe.values() if HERE in by_place]
  load = max((way["load"] for way in measured), default=0)
  loaded = ""
  if load > where["cores"]:
    loaded = f" Other programs ran\nbeside it (load average up to {load:.1f}): an idle machine is faster."
  absent = [name for name in NAMES if name not in by_recipe]
  dates = " and ".join(sorted({way["date"] for way in measured}))
  return "\n".join(
    (
      "# What campaigns cost\n",
      "Training alone, without evaluation, compilation and writing.",
      f"The CPU's column is measured processor time, on {dates}.{loaded}",
      "An accelerator's column is its compiler's estimate for a program that never ran there, right within a factor of",
      "3 or so: the best of the compiled forms. The H100's compiler estimates nothing. Its column is twice the time that",
      "the bytes and products take at the hardware's peak rates, plus 2 µs a launch. The papers' column is 58.5",
      "A100-seconds a run of resnet9, as quoted, 3.29 of airbench94, and 2.59 of its form with Muon. PFLOP counts",
      "products and convolutions: at the peak of an H200 in bfloat16, 989 TFLOP/s, 60,000 runs of airbench94",
      f"take {hours(petaflop(vs.recipe(NAMES[AIRBENCH])) / H200, 60_000)} hours. A dash means not measured, or not compiled yet.",
      *(
        f"Left out, as their programs were not compiled: {', '.join(absent)}."
        for _ in absent[:1]
      ),
      "",
      table,
      f"{common.conditions(where, command)}\n",
    )
  )


def kept_costs(kept: Path, name: str, place: str) -> dict:
  """Return what a model-step of a recipe costs here or on a target, from a folder that
  keeps it; it is measured, or estimated, if it is not there.
  """
  file = kept / f"{name}-{place}.json"
  if not file.exists():
    recipe = vs.recipe(NAMES[name])
    if place == HERE:
      costs = seconds_here(recipe)
    else:
      costs = seconds_on(recipe, place)
    costs["date"] = datetime.date.today().isoformat()
    file.write_text(json.dumps(costs) + "\n", "utf-8")
  return json.loads(file.read_text("utf-8"))


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "cost", argv)
  # Accelerators' programs are only compiled: nothing runs on one.
  jax.config.update("jax_platforms", "cpu")
  where = common.machine()
  kept = flags.out / "cost"
  kept.mkdir(parents=True, exist_ok=True)
  by_recipe: dict[str, dict[str, dict]] = {name: {} for name in flags.recipes}
  for place in (HERE, *flags.targets):
    for name in flags.recipes:
      by_recipe[name][place] = kept_costs(kept, name, place)
      # The document is whole after each part, so that the command can be stopped at any
      # time.
      flags.doc.write_text(document(by_recipe, where, command), "utf-8")


if __name__ == "__main__":
  # It may compile for a GPU that is not here.
  with one_line_errors(hides_accelerators=False):
    main()
