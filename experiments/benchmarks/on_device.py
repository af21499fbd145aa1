"""Measure on a borrowed accelerator, in three calls of ten minutes at most.

    git describe --always --dirty --abbrev=40 > .commit       # where the source travels without .git
    python -m experiments.benchmarks.on_device --call 1       # then 2, then 3
    python -m experiments.benchmarks.on_device --write experiments/benchmarks/RESULTS.md    # anywhere

Call 1 counts tallies, and estimates, measures and races the small networks. Call 2
trains 100 runs of ResNet-9 for 4 epochs on the images of --data, trains runs again to
see whether they repeat, and estimates ResNet-9. Call 3 trains airbench94 at a quarter
of its width for four lengths. Without --call all parts run:

    tallies    joint errors of all pairs of 10,000 examples, counted on the device
    estimates  the compiler's estimate of each lowering and width that campaigns try,
               beside the measured time: the factor between them calibrates the estimates
    race       training steps: ours, plain jax.vmap, PyTorch one at a time (channels_last,
               compiled) and torch.func.vmap
    training   ResNet-9 on CIFAR-10: accuracy and standard deviations beside the paper's
    repeats    the same runs in two processes: equal bit for bit, and what deterministic
               operations cost on a GPU, of both lowerings that use cuDNN
    study      airbench94 on CIFAR-10, and the predictions of all runs: copied to
               docs/gallery/airbench_quarter, they are what
               `python -m experiments.jordan2024.real airbench_quarter` draws from

All results go into one archive, also those of an item that is not finished yet. So the
command can be stopped anywhere: called again with the same archive, it resumes. The
package need not be installed, and Zarr, cyclopts, tensorflow-datasets and universal-pathlib
are not used; the race needs PyTorch.
"""

import argparse
import datetime
import functools
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import vmapseeds as vs
from experiments.airbench import airbench94_cifar10
from experiments.benchmarks.abstract import abstract_task
from experiments.benchmarks.carried import (
  COMMIT_COMMAND,
  Archive,
  Item,
  commit_of_source,
  read_images,
)
from experiments.benchmarks.contenders import (
  WORKLOADS,
  Way,
  Workload,
  elsewhere,
  our_way,
  plain_jax,
  plain_torch,
  race,
  significant,
  workload_on,
)
from experiments.benchmarks.estimates import make_estimator
from vmapseeds import convolutions, lanes, stats
from vmapseeds.campaign import execution as executions
from vmapseeds.campaign import provenance
from vmapseeds.errors import UserError, one_line
from vmapseeds.lanes import Execution, choice, spreading
from vmapseeds.lanes.memory import MemoryFit
from vmapseeds.training import loop
from vmapseeds.training.recipes import from_text
from vmapseeds.training.supervised import load_recipe_task
from vmapseeds.training.task import Task, lanes_of, trial_of

# By epochs, standard deviations on the test set and of the distribution.
# jordan2024_iclr, figure 1 and section 3.3.
PAPER = {4: (0.0056, 0.0052), 16: (0.0019, None)}
COUNTS = ("errors", "pairs")
WIDTHS = {"airbench_quarter": 0.25, "airbench_half": 0.5, "airbench_full": 1.0}
QUARTER = [f"airbench_quarter-{epochs}" for epochs in (0, 2, 5, 10)]
LENGTHS = [*QUARTER, *(f"airbench_half-{epochs}" for epochs in (0, 2, 5, 10))]
BINARY = "experiments.banerjee2024.network:CNN_CIFAR10_BINARY"
# The recipe whose measurements say how a workload of the race is run
RECIPE_OF = {
  "digits": "digits_cnn",
  "binary": BINARY,
  "resnet_quarter": "resnet9_cifar10",
  "resnet": "resnet9_cifar10",
}
OPERATIONS = ("deterministic", "XLA's choice")
ERROR_LENGTH = 300  # of what a library says
BEGIN, END = "<!-- on_device -->", "<!-- /on_device -->"
# What a call runs unless other flags say otherwise. Nothing is chosen by measurement in
# the last two: compiling other forms of large networks takes minutes, and the estimates
# of ResNet-9 say at the end whether another form is faster.
CALLS: dict[int, dict[str, Any]] = {
  1: {
    "parts": ["tallies", "estimates", "race"],
    "recipes": ["digits_cnn", BINARY],
    "workloads": ["digits", "binary"],
  },
  2: {
    "parts": ["training", "repeats", "estimates"],
    "recipes": ["resnet9_cifar10"],
    "epochs": [4],
    "execution": ["sequential", "1"],
  },
  3: {"parts": ["study"], "lengths": QUARTER, "execution": ["sequential", "1"]},
}


def execution_candidates(flags: argparse.Namespace, task: Task) -> list[Execution]:
  """Return the executions that a campaign of at least `--most` runs tries."""
  platform = lanes.start_jax()[0].platform
  fills = executions.filling_width(
    task,
    lanes_of(task, vs.Runs.independent(1)),
    platform,
  )
  return choice.candidates(platform, most=min(flags.most, fills), filling=fills)


def with_fields(flags: argparse.Namespace, name: str) -> vs.Recipe:
  """Return a recipe by its name, with the fields of `--set`."""
  return vs.recipe(name, **dict(flags.set))


def compare_estimates(flags: argparse.Namespace, name: str, item: Item) -> None:
  """Estimate and measure every candidate of a recipe, and narrower ones in place of
  those that do not fit in memory.
  """
  task = abstract_task(with_fields(flags, name))
  estimator = make_estimator(task, lanes_of(task, vs.Runs.independent(1)))
  rows = {Execution(row["lowering"], row["width"]): row for row in item.rows}

  def compared(execution: Execution) -> dict:
    refused = dict[Execution, jax.errors.JaxRuntimeError]()
    estimate = executions.try_execution(execution, estimator, refused)
    speed = None
    if estimate and estimate.fits:
      measure = functools.partial(executions.measure_speed, task)
      speed = executions.try_execution(execution, measure, refused)
    error = refused.get(execution)
    return {
      "recipe": name,
      "lowering": execution.lowering,
      "width": execution.width,
      "fits": bool(estimate and estimate.fits),
      "memory_bytes": estimate and estimate.memory_bytes,
      "available_bytes": estimate and estimate.available_bytes,
      "estimate_us": estimate and estimate.seconds and 1e6 * estimate.seconds,
      "measured_us": speed and 1e6 * speed.seconds,
      "error": error and one_line(error)[:ERROR_LENGTH],
    }

  def fit(execution: Execution) -> MemoryFit | None:
    if execution not in rows:
      rows[execution] = compared(execution)
      item.add(rows[execution])
      print(f"{item.where['device']}: {rows[execution]}", file=sys.stderr, flush=True)
    row = rows[execution]
    if row["error"]:
      return None
    return MemoryFit(row["fits"], row["memory_bytes"], row["available_bytes"])

  for _ in choice.fitting_candidates(execution_candidates(flags, task), fit):
    pass  # `fit` measures, too


def train_resnets(flags: argparse.Namespace, epochs: int, item: Item) -> None:
  """Train runs of ResNet-9, from initialisation to predictions."""
  recipe = with_fields(flags, "resnet9_cifar10").replace(epochs=epochs)
  row, _, _ = train_runs(flags, recipe, item)
  item.finish(row)


def study(flags: argparse.Namespace, length: str, item: Item) -> None:
  """Train runs of airbench94 at some width and length, and keep their predictions as
  `experiments.jordan2024.real` does, which draws its figures from them.
  """
  name, epochs = length.split("-")
  recipe = airbench94_cifar10.replace(width=WIDTHS[name], **dict(flags.set))
  row, kept, labels = train_runs(flags, recipe.replace(epochs=int(epochs)), item)
  record = {
    "recipe": {"name": recipe.name, "width": recipe.width, "epochs": int(epochs)},
    "runs": flags.runs,
    "diverged": flags.runs - len(kept),
    "identity": "on_device",
    "commits": [flags.commit],
    "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    "seconds": row["seconds"],
    "device_kind": device_kind(),
    "versions": provenance.package_versions(),
  }
  item.archive.write_arrays(
    f"{name}/predictions-{epochs}-0.npz",
    predictions=kept.T.astype(np.int8),
    labels=labels.astype(np.int8),
    record=np.array(json.dumps(record)),
  )
  item.finish({"recipe": name, **row})


def train_runs(
  flags: argparse.Namespace,
  recipe: vs.Recipe,
  item: Item,
) -> tuple[dict, np.ndarray, np.ndarray]:
  """Train runs of a recipe on `--data`. What they predict is kept after each step of
  lanes, and only runs that it lacks are trained.

  Returns:
    A table's row, the predictions of runs that did not diverge, and the labels.
  """
  data = read_images(flags.data)
  table = vs.Runs.independent(flags.runs)
  task = load_recipe_task(recipe.replace(dataset=data), table)
  devices = lanes.start_jax()
  runs = lanes_of(task, table)
  unfinished = unfinished_of(item)
  # Another recipe or file begins anew.
  trained_as = json.dumps({"recipe": repr(recipe), "data": flags.data.name})
  kept = item.archive.read_arrays(unfinished)
  if kept and str(kept["trained_as"]) != trained_as:
    kept = {}
  if kept:
    execution = Execution(str(kept["lowering"]), int(kept["width"]))
  else:
    execution = choose_execution(flags, task, runs)
  spread = lanes.spread_stages(
    executions.stages_of(task, execution),
    width=execution.width,
    devices=devices,
  )
  diverged = kept.get("diverged", np.zeros(0, bool))
  labels = data.tests["test"].targets
  predictions = kept.get("predictions", np.zeros((0, len(labels)), np.int8))
  earlier = float(kept.get("seconds", 0.0))
  runs_left = jax.tree.map(lambda a: np.asarray(a)[len(diverged) :], runs)
  began = time.perf_counter()
  seconds = earlier
  if len(diverged) < flags.runs:
    for _, out, _ in spread(lanes.replicate(task.data, devices), runs_left):
      diverged = np.concatenate([diverged, out["diverged"]])
      predictions = np.concatenate(
        [predictions, out["test/predictions"].astype(np.int8)]
      )
      seconds = earlier + time.perf_counter() - began
      item.archive.write_arrays(
        unfinished,
        trained_as=trained_as,
        lowering=execution.lowering,
        width=execution.width,
        seconds=seconds,
        diverged=diverged,
        predictions=predictions,
      )
  predictions = predictions[: flags.runs][~diverged[: flags.runs]]
  wrong = predictions != labels
  row = {
    "epochs": recipe.epochs,
    "runs": len(wrong),
    "lowering": execution.lowering,
    "width": execution.width,
    "seconds": seconds,
    "accuracy": 1 - wrong.mean(),
    "test_set_sd": float(np.sqrt(stats.test_set_variance(wrong))),
    "distribution_sd": float(
      np.sqrt(max(0.0, float(stats.distribution_variance(wrong))))
    ),
    "data": flags.data.name,
  }
  return row, predictions, labels


def unfinished_of(item: Item) -> str:
  """Return the archive's name of what an item has predicted so far."""
  return f"{item.name}.part.npz"


def choose_execution(flags: argparse.Namespace, task: Task, runs: Any) -> Execution:
  """Return the execution of `--execution`, else the one that a campaign of these runs
  would choose.
  """
  if flags.execution:
    return Execution(*flags.execution)
  steps = flags.runs * max(1, task.rounds) * task.steps
  return executions.choose_execution(
    task,
    runs,
    model_steps=steps,
    most=min(flags.most, flags.runs),
  )


def contenders(workload: Workload, platform: str, execution: Execution) -> list[Way]:
  """Return ours in an execution, and the others in the forms that are known to be
  fast.
  """
  many = workload.stacked if platform == "cpu" else 64
  ours = our_way(
    workload,
    lanes=max(workload.lanes, execution.width),
    width=execution.width,
    lowering=execution.lowering,
    devices=1,
  )
  stacked = f"{many} lanes"
  forms: list[tuple[bool, str | None]] = [(False, None), (True, None)]
  if platform != "cpu":
    forms.append((True, "reduce-overhead"))
  alone = []
  for last, mode in forms:
    label = "one at a time"
    if last:
      label += ", channels_last"
    if mode:
      label += f", compiled ({mode})"
    options = {"channels_last": last, "mode": mode, "threads": 1}
    alone.append(Way("PyTorch", label, plain_torch, options))
  return [
    ours,
    Way("jax.vmap", stacked, plain_jax, {"scan": True}, lanes=many),
    *alone,
    Way(
      "PyTorch",
      f"torch.func.vmap, {stacked}",
      plain_torch,
      {"threads": 1},
      lanes=many,
    ),
  ]


def fastest_way(flags: argparse.Namespace, name: str) -> tuple[str, Execution]:
  """Return the platform, and how a workload is run: as `--execution` says, else as the
  estimates of its recipe were fastest when measured, else the fastest now.
  """
  platform = lanes.start_jax()[0].platform
  if flags.execution:
    return platform, Execution(*flags.execution)
  measured = Archive(flags.out).read_json(f"estimates-{RECIPE_OF[name]}.json")
  speeds = {
    Execution(row["lowering"], row["width"]): row["measured_us"]
    for row in measured.get("rows", [])
    if row["measured_us"] and row["device"] == device_kind()
  }
  if not speeds:
    task = abstract_task(workload_on(name, platform, flags.steps).recipe)
    measure = functools.partial(executions.measure_speed, task)
    for execution in execution_candidates(flags, task):
      speed = executions.try_execution(execution, measure, {})
      if speed:
        speeds[execution] = speed.seconds
  if not speeds:
    raise UserError(f"no lowering and lane width of {name} runs on this device")
  return platform, min(speeds, key=speeds.__getitem__)


def run_race(flags: argparse.Namespace, name: str, item: Item) -> None:
  """Time each contender, one after the other."""
  platform, execution = elsewhere(fastest_way, flags, name)
  workload = workload_on(name, platform, flags.steps)
  known = {(row["kind"], row["label"]) for row in item.rows}
  for way in contenders(workload, platform, execution):
    if (way.kind, way.label) not in known:
      (contender,) = race(
        [way],
        workload,
        flags.rounds,
        together=False,
        limit=flags.patience,
      )
      item.add({"workload": name, **contender.numbers()})


def tallies(flags: argparse.Namespace, pairs: str, item: Item) -> None:
  """Time the second of two tallies of random predictions."""
  rng = np.random.default_rng(0)
  predictions = jax.device_put(
    rng.integers(0, 10, (flags.runs, flags.examples), np.int8), lanes.start_jax()[0]
  )
  labels = rng.integers(0, 10, flags.examples)
  for _ in range(2):
    began = time.perf_counter()
    stats.tally(predictions, labels, 10, pairs=pairs == "pairs")
    seconds = time.perf_counter() - began
  item.finish(
    {
      "runs": flags.runs,
      "examples": flags.examples,
      "of": pairs,
      "seconds": seconds,
    }
  )


def repeats(flags: argparse.Namespace, name: str, item: Item) -> None:
  """Train the same runs in two processes, in each lowering of `--forms`, with
  deterministic operations and with those that XLA would choose.
  """
  unfinished = [f"{item.name}.process-{number}.part.json" for number in (1, 2)]
  processes = [elsewhere(train_again, flags, name, member) for member in unfinished]
  for form, first in processes[0].items():
    again = processes[1][form]
    row = {"recipe": name, **first, "error": first["error"] or again["error"]}
    digests = row.pop("digests")
    others = again["digests"]
    if not row["error"]:
      row["runs"] = len(digests)
      row["equal"] = sum(a == b for a, b in zip(digests, others, strict=True))
    item.add(row)
  item.finish()
  for member in unfinished:
    item.archive.write(member, None)


def train_again(
  flags: argparse.Namespace,
  name: str,
  unfinished: str,
) -> dict[str, dict[str, Any]]:
  """Train a step of lanes twice, in each form.

  Args:
    flags: the command's.
    name: of the recipe.
    unfinished: the archive's name of what is known already, to which each form is
      added.

  Returns:
    By form: how it is run, digests of the networks, the seconds of the second time, and
    the error if there was one.
  """
  # Compiled anew in each process: from a cache both would get one program.
  jax.config.update("jax_enable_compilation_cache", False)
  archive = Archive(flags.out)
  forms = archive.read_json(unfinished)
  for lowering, operations in itertools.product(flags.forms, OPERATIONS):
    form = f"{lowering}, {operations}"
    if form not in forms:
      forms[form] = {"lowering": lowering, "operations": operations}
      forms[form] |= trained_twice(flags, name, lowering, operations)
      archive.write_json(unfinished, forms)
  return forms


def trained_twice(
  flags: argparse.Namespace,
  name: str,
  lowering: str,
  operations: str,
) -> dict[str, Any]:
  """Train a step of lanes twice.

  Returns:
    `width`, `digests` of the networks, `seconds` of the second time, `error`.
  """
  recipe = with_fields(flags, name)
  task = trial_of(abstract_task(recipe))
  tried = execution_candidates(flags, task)
  width = next((e.width for e in tried if e.lowering == lowering), tried[0].width)

  def one_run(data, run):
    state = task.advance(data, run, task.start(data, run), 0, task.rounds)
    return loop.finish(recipe, state).variables

  options = spreading.OPTIONS["gpu"]
  if operations != "deterministic":
    spreading.OPTIONS["gpu"] = {}
  devices = lanes.start_jax()[:1]
  runs = lanes_of(task, vs.Runs.independent(width))
  row: dict[str, Any] = {"width": width, "digests": [], "seconds": None, "error": None}
  try:
    step = lanes.spread(one_run, width=width, lowering=lowering, devices=devices)
    for _ in range(2):
      began = time.perf_counter()
      ((_, networks),) = step(task.data, runs)
      row["seconds"] = time.perf_counter() - began
  except jax.errors.JaxRuntimeError as error:
    return row | {"error": one_line(error)[:ERROR_LENGTH]}
  finally:
    spreading.OPTIONS["gpu"] = options
  row["digests"] = []
  for network in zip(*jax.tree.leaves(networks), strict=True):
    digest = hashlib.sha256()
    for leaf in network:
      digest.update(leaf.tobytes())
    row["digests"].append(digest.hexdigest())
  return row


def device_kind() -> str:
  return lanes.start_jax()[0].device_kind


# The function of each part, and the flag that lists the part's items.
PARTS: dict[str, tuple[Callable, str]] = {
  "tallies": (tallies, "counts"),
  "estimates": (compare_estimates, "recipes"),
  "race": (run_race, "workloads"),
  "training": (train_resnets, "epochs"),
  "repeats": (repeats, "repeated"),
  "study": (study, "lengths"),
}
# Parts that do not start JAX themselves, so that other processes have the device.
STARTS_OTHERS = ("race", "repeats")


def items_of(flags: argparse.Namespace, part: str) -> list:
  """Return the items of a part; `--set epochs=N` replaces the numbers of epochs."""
  items = getattr(flags, PARTS[part][1])
  fixed = dict(flags.set).get("epochs")
  if fixed is None:
    return items
  if part == "training":
    return [fixed]
  if part == "study":
    return list(dict.fromkeys(f"{item.split('-')[0]}-{fixed}" for item in items))
  return items


def run_item(
  flags: argparse.Namespace,
  part: str,
  name: str | int,
  device: str | None = None,
) -> None:
  """Run what an item of a part still lacks.

  Args:
    flags: the command's.
    part: the part that the item belongs to.
    name: of the item.
    device: the kind of device; None to ask JAX, which starts it.
  """
  where = {
    "device": device or device_kind(),
    "jax": jax.__version__,
    "date": datetime.date.today().isoformat(),
    "commit": flags.commit,
  }
  item = Item(Archive(flags.out), f"{part}-{name}", where)
  PARTS[part][0](flags, name, item)
  item.finish()
  item.archive.write(unfinished_of(item), None)


# Tables.


def format_deviation(value: float | None) -> str:
  if value is None:
    return "—"
  return f"{100 * value:.2f} %"


def cells(part: str, row: dict, rows: list[dict]) -> dict[str, str]:
  """The cells that a table shows for one row, by column."""
  if part == "estimates":
    return cells_of_estimate(row)
  if part in ("training", "study"):
    of_paper = PAPER if part == "training" else {}
    return cells_of_training(row, of_paper)
  if part == "race":
    return cells_of_contender(row, rows)
  if part == "repeats":
    return cells_of_repeat(row)
  return {
    "runs": f"{row['runs']:,}",
    "examples": f"{row['examples']:,}",
    "of": row["of"],
    "seconds": significant(row["seconds"]),
  }


def cells_of_estimate(row: dict) -> dict[str, str]:
  estimate = row["estimate_us"]
  measured = row["measured_us"]
  ratio = "—"
  if estimate and measured:
    ratio = f"{measured / estimate:.2f}"
  if measured:
    outcome = significant(measured)
  elif row["error"]:
    outcome = f"does not run: {row['error']}"
  else:
    outcome = "does not fit"
  return {
    "recipe": row["recipe"],
    "lowering, width": f"{row['lowering']} {row['width']}",
    "memory, MB": f"{(row['memory_bytes'] or 0) / 1e6:,.0f}",
    "estimate, µs": significant(estimate) if estimate else "—",
    "measured, µs": outcome,
    "measured ÷ estimate": ratio,
  }


def cells_of_training(row: dict, of_paper: dict) -> dict[str, str]:
  test_set, distribution = of_paper.get(row["epochs"], (None, None))
  return {
    "recipe": row.get("recipe", "resnet9_cifar10"),
    "data": row["data"],
    "epochs": str(row["epochs"]),
    "runs": str(row["runs"]),
    "lowering, width": f"{row['lowering']} {row['width']}",
    "minutes": f"{row['seconds'] / 60:.1f}",
    "accuracy": format_deviation(row["accuracy"]),
    "sd on the test set": format_deviation(row["test_set_sd"]),
    "the paper's": format_deviation(test_set),
    "sd of the distribution": format_deviation(row["distribution_sd"]),
    "the paper's ": format_deviation(distribution),  # a key of its own
  }


def cells_of_contender(row: dict, rows: list[dict]) -> dict[str, str]:
  ours = None
  for rival in rows:
    if rival["workload"] == row["workload"] and rival["kind"] == "ours":
      ours = rival["speed"]
      break
  speed = row["speed"] if row["speeds"] else None
  memory = "—"
  if row["device_bytes"]:
    memory = f"{row['device_bytes'] / 1e6:,.0f}"
  return {
    "workload": row["workload"],
    "contender": f"{row['kind']}: {row['label']}",
    "model-steps/s": significant(speed) if speed else row["error"],
    "ours ÷ it": f"{ours / speed:.2f}" if speed and ours else "—",
    "memory, MB": memory,
  }


def cells_of_repeat(row: dict) -> dict[str, str]:
  equal = row["error"]
  seconds = "—"
  if equal is None:
    equal = f"{row['equal']} of {row['runs']}"
    seconds = significant(row["seconds"])
  return {
    "recipe": row["recipe"],
    "operations": row["operations"],
    "lowering, width": f"{row['lowering']} {row['width']}",
    "equal networks": equal,
    "seconds": seconds,
  }


def section(archive: Archive) -> str:
  """Return a Markdown section of what was measured."""
  lines = [BEGIN]
  for part in PARTS:
    rows = [
      row
      for name in sorted(archive.members)
      if name.startswith(f"{part}-") and name.endswith(".json")
      for row in archive.read_json(name).get("rows", [])
    ]
    if not rows:
      continue
    where = dict.fromkeys(
      f"{r['device']}, JAX {r['jax']}, {r['date']}, commit {r['commit'][:12]}"
      for r in rows
    )
    lines += [f"### On a device: {part}", "", "; ".join(where) + ".", ""]
    table = [cells(part, row, rows) for row in rows]
    lines += table_lines([list(table[0]), ["---"] * len(table[0])])
    lines += [*table_lines(row.values() for row in table), ""]
  return "\n".join((*lines, END)) + "\n"


def table_lines(rows: Iterable[Iterable[str]]) -> list[str]:
  return ["| " + " | ".join(row) + " |" for row in rows]


def write_section(file: Path, text: str) -> None:
  """Puts the section into a Markdown file: in place of an older section, or at the end."""
  old = ""
  if file.exists():
    old = file.read_text("utf-8")
  before, begin, rest = old.partition(BEGIN)
  _, _, after = rest.partition(END + "\n")
  if begin:
    new = f"{before}{text}{after}"
  else:
    new = f"{old.rstrip()}\n\n{text}".lstrip()
  file.write_text(new, "utf-8")


# argparse, because a borrowed machine may have no cyclopts.


def field_of(text: str) -> tuple[str, Any]:
  """Return the recipe field and the value of `FIELD=VALUE`."""
  name, equals, value = text.partition("=")
  if not (name and equals):
    raise argparse.ArgumentTypeError(f"{text!r} is no FIELD=VALUE, such as epochs=4")
  return name, from_text(name, value)


FLAGS: dict[str, dict[str, Any]] = {
  "call": dict(
    type=int,
    choices=CALLS,
    help="Run this one of the three calls; other flags change what it runs.",
  ),
  "out": dict(
    type=Path,
    default=Path("results/on_device.zip"),
    metavar="FILE.zip",
    help="The archive of all results, to which an earlier call's may be copied.",
  ),
  "data": dict(
    type=Path,
    default=Path("cifar10_jpeg.npz"),
    metavar="FILE.npz",
    help="The images of CIFAR-10, as arrays or as JPEG files.",
  ),
  "commit": dict(
    metavar="HASH",
    help="The commit of this source. By default Git is asked, else the file .commit is "
    f"read, which `{COMMIT_COMMAND}` makes.",
  ),
  "execution": dict(
    nargs=2,
    metavar=("LOWERING", "WIDTH"),
    help="Train and race in this lowering and lane width, such as sequential 1, and "
    "measure no others for it.",
  ),
  "parts": dict(
    nargs="+",
    choices=PARTS,
    default=list(PARTS),
    help="What to run, in this order.",
  ),
  "write": dict(
    type=Path,
    metavar="FILE.md",
    help="Run nothing, and put the tables of the archive into a Markdown file.",
  ),
  "recipes": dict(
    nargs="+",
    default=["digits_cnn", BINARY, "resnet9_cifar10"],
    metavar="RECIPE",
    help="The recipes of the estimates.",
  ),
  "repeated": dict(
    nargs="+",
    default=[BINARY],
    metavar="RECIPE",
    help="The recipes of the repeats.",
  ),
  "forms": dict(
    nargs="+",
    choices=convolutions.LOWERINGS,
    default=["sequential", "grouped"],
    help="The lowerings of the repeats.",
  ),
  "workloads": dict(
    nargs="+",
    choices=WORKLOADS,
    default=["digits", "binary", "resnet"],
    help="The workloads of the race.",
  ),
  "epochs": dict(
    nargs="+",
    type=int,
    default=[4, 16],
    metavar="N",
    help="The lengths of the training of ResNet-9.",
  ),
  "lengths": dict(
    nargs="+",
    choices=[f"{name}-{epochs}" for name in WIDTHS for epochs in range(11)],
    default=LENGTHS,
    metavar="NAME-EPOCHS",
    help="The networks and lengths of the study, such as airbench_quarter-10.",
  ),
  "counts": dict(
    nargs="+",
    choices=COUNTS,
    default=list(COUNTS),
    help="What the tallies count.",
  ),
  "runs": dict(
    type=int,
    default=100,
    metavar="N",
    help="How many runs the training, the study and the tallies have.",
  ),
  "examples": dict(
    type=int,
    default=10_000,
    metavar="N",
    help="How many examples the tallies have.",
  ),
  "most": dict(
    type=int,
    default=256,
    metavar="N",
    help="The largest lane width to try.",
  ),
  "rounds": dict(
    type=int,
    default=3,
    metavar="N",
    help="How often the race times each contender.",
  ),
  "patience": dict(
    type=float,
    default=120.0,
    metavar="SECONDS",
    help="How long the race waits for a contender's first epoch and for each timing.",
  ),
  "steps": dict(
    type=int,
    metavar="N",
    help="How many steps an epoch of the race has.",
  ),
  "set": dict(
    nargs="+",
    type=field_of,
    default=[],
    metavar="FIELD=VALUE",
    help="Recipe fields to change in all parts but the race; epochs replaces the "
    "lengths of the training and the study.",
  ),
}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
  """Return the flags, with the defaults of the call, the commit and the execution in
  place.
  """
  parser = argparse.ArgumentParser(
    prog="python -m experiments.benchmarks.on_device",
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  for name, options in FLAGS.items():
    parser.add_argument(f"--{name}", **options)
  call = parser.parse_args(argv).call
  parser.set_defaults(**CALLS.get(call, {}))
  flags = parser.parse_args(argv)
  flags.commit = flags.commit or commit_of_source()
  if flags.write and not flags.out.exists():
    parser.error(f"--out {flags.out} is not there: give the archive of the results")
  reads = not flags.write and {"training", "study"} & set(flags.parts)
  if reads and not flags.data.is_file():
    parser.error(f"--data {flags.data} is not there: give the .npz of the images")
  if flags.execution:
    lowering, width = flags.execution
    if (
      lowering not in convolutions.LOWERINGS or not width.isdecimal() or not int(width)
    ):
      parser.error(
        f"--execution is {lowering} {width}: give one of {', '.join(convolutions.LOWERINGS)} and "
        "a lane width, such as sequential 1"
      )
    flags.execution = lowering, int(width)
  return flags


def main(argv: list[str] | None = None) -> None:
  flags = parse_arguments(argv)
  if flags.write:
    return write_section(flags.write, section(Archive(flags.out)))
  flags.out.parent.mkdir(parents=True, exist_ok=True)
  device = functools.cache(functools.partial(elsewhere, device_kind))
  for part in flags.parts:
    for name in items_of(flags, part):
      if Archive(flags.out).read_json(f"{part}-{name}.json").get("done"):
        continue
      began = time.perf_counter()
      try:
        if part in STARTS_OTHERS:
          run_item(flags, part, name, device())
        else:
          elsewhere(run_item, flags, part, name)
        outcome = f"{time.perf_counter() - began:.0f} s"
      except Exception as error:  # A failure must not cost the other items their run.
        outcome = f"{type(error).__name__}: {one_line(error)[:ERROR_LENGTH]}"
      print(f"{part} {name}: {outcome}", flush=True)


if __name__ == "__main__":
  main()
