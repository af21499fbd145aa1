"""Half an hour of measurements on a borrowed accelerator. Needs no Zarr or
tensorflow-datasets; the race needs PyTorch.

    python -m experiments.benchmarks.on_device --data cifar10.npz --out results/on_device
    python -m experiments.benchmarks.on_device --write experiments/benchmarks/RESULTS.md     (tables of --out, anywhere)

    estimates  the compiler's estimate of each lowering and width of three recipes
    beside the measured time: the factor
               between them calibrates the estimates
    training   ResNet-9 on CIFAR-10, 4 and 16 epochs × 100 runs: accuracy and standard deviations beside the paper's
    study      airbench94 on CIFAR-10, four lengths at two widths, and the predictions of all runs: copied to
    docs/gallery/airbench_quarter, they are what `python -m experiments.jordan2024.real airbench_quarter` draws from
    race       training steps: ours, plain jax.vmap, PyTorch one at a time (channels_last, compiled), torch.func.vmap
    tallies    joint errors of all pairs of 10,000 examples, counted on the device
    repeats    the same runs in two processes: equal bit for bit, and what deterministic operations cost on a GPU

Each item of a part is written as soon as it is done and is not run again, so the
command can be stopped anywhere. Lanes are driven directly, without results folders. The
data are an .npz with x_train, y_train, x_test, y_test.
"""

import argparse
import datetime
import hashlib
import importlib.metadata
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from platform import python_version
from typing import Any

import jax
import numpy as np

import vmapseeds as vs
from experiments.airbench import airbench94_cifar10
from experiments.benchmarks.contenders import (
  WORKLOADS,
  Way,
  Workload,
  elsewhere,
  our_way,
  placed,
  plain_jax,
  plain_torch,
  race,
  significant,
)
from experiments.benchmarks.estimates import estimate_candidates, make_estimator
from vmapseeds import lanes, stats
from vmapseeds.campaign import execution as executions
from vmapseeds.campaign.provenance import commit
from vmapseeds.lanes import Execution, choice, spreading
from vmapseeds.training import loop
from vmapseeds.training.supervised import abstract_task, make_task
from vmapseeds.training.task import Task, lanes_of, trial_of

RECIPES = ("digits_cnn", "cnn_cifar10_binary", "resnet9_cifar10")
# By epochs, standard deviations on the test set and of the distribution.
# jordan2024_iclr, figure 1 and section 3.3.
PAPER = {4: (0.0056, 0.0052), 16: (0.0019, None)}
COUNTS = ("errors", "pairs")
WIDTHS = {"airbench_quarter": 0.25, "airbench_half": 0.5, "airbench_full": 1.0}
LENGTHS = [
  f"{name}-{e}" for name in ("airbench_quarter", "airbench_half") for e in (0, 2, 5, 10)
]
BEGIN, END = "<!-- on_device -->", "<!-- /on_device -->"


def estimates(flags: argparse.Namespace, name: str) -> list[dict]:
  """Estimated and measured time for every candidate of a recipe."""
  device, rows = lanes.start_jax()[0], []
  task = abstract_task(vs.recipe(name, **flags.set))
  estimator = make_estimator(task, lanes_of(task, vs.Runs.independent(1)))
  found = estimate_candidates(candidates(flags, task), estimator)
  for execution, estimate in found.items():
    speed = executions.measure(task, execution) if estimate.fits else None
    rows.append(
      {
        "recipe": name,
        "lowering": execution.lowering,
        "width": execution.width,
        "memory_bytes": estimate.memory_bytes,
        "estimate_us": estimate.seconds and 1e6 * estimate.seconds,
        "measured_us": speed and 1e6 * speed.seconds,
      }
    )
    print(f"{device.device_kind}: {rows[-1]}", file=sys.stderr, flush=True)
  return rows


def candidates(flags: argparse.Namespace, task: Task) -> list[Execution]:
  """The lowerings and widths that a campaign would choose from."""
  platform = lanes.start_jax()[0].platform
  run = lanes_of(task, vs.Runs.independent(1))
  return choice.candidates(
    platform, most=min(flags.most, executions.filling_width(task, run, platform))
  )


def training(flags: argparse.Namespace, epochs: int) -> list[dict]:
  """Trains runs of ResNet-9 on CIFAR-10 in lanes, from initialisation to predictions."""
  recipe = vs.recipe("resnet9_cifar10", **flags.set, epochs=epochs)
  return [trained(flags, recipe)[0]]


def study(flags: argparse.Namespace, length: str) -> list[dict]:
  """Trains runs of airbench94 at some width and length, and keeps their predictions as
  `experiments.jordan2024.real` does, which draws its figures from them.
  """
  name, epochs = length.split("-")
  recipe = airbench94_cifar10.replace(width=WIDTHS[name], epochs=int(epochs))
  row, kept, labels = trained(flags, recipe.replace(**flags.set))
  record = {
    "recipe": {"name": recipe.name, "width": recipe.width, "epochs": recipe.epochs},
    "runs": flags.runs,
    "diverged": flags.runs - len(kept),
    "identity": "on_device",
    "commits": [commit() or "unknown"],
    "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    "seconds": row["seconds"],
    "device_kind": device_kind(),
    "versions": {
      "python": python_version(),
      **{p: importlib.metadata.version(p) for p in ("jax", "jaxlib", "flax", "optax")},
    },
  }
  folder = flags.out / name
  folder.mkdir(parents=True, exist_ok=True)
  np.savez_compressed(
    folder / f"predictions-{epochs}-0.npz",
    predictions=kept.T.astype(np.int8),
    labels=labels.astype(np.int8),
    record=np.array(json.dumps(record)),
  )
  return [{"recipe": name, **row}]


def trained(
  flags: argparse.Namespace, recipe: vs.Recipe
) -> tuple[dict, np.ndarray, np.ndarray]:
  """Trains runs of a recipe on `--data`: a table's row, the predictions of runs that did
  not diverge, and the labels.
  """
  if flags.data is None:
    raise FileNotFoundError("no --data cifar10.npz was given")
  with np.load(flags.data) as file:
    data = vs.Dataset(
      **{name: (file[f"x_{name}"], file[f"y_{name}"]) for name in ("train", "test")}
    )
  table = vs.Runs.independent(flags.runs)
  task, devices = make_task(recipe.replace(dataset=data), table), lanes.start_jax()
  runs = lanes_of(task, table)
  how = executions.choose_execution(task, runs, model_steps=10**9, most=flags.most)
  parts = executions.stages_of(task, how)
  spread = lanes.spread_stages(parts, width=how.width, devices=devices)
  began = time.perf_counter()
  parts = [out for _, out, _ in spread(lanes.replicate(task.data, devices), runs)]
  seconds = time.perf_counter() - began
  diverged, predictions = (
    np.concatenate([part[name] for part in parts])
    for name in ("diverged", "test/predictions")
  )
  kept, labels = predictions[~diverged], data.tests["test"].targets
  wrong = kept != labels
  row = {
    "epochs": recipe.epochs,
    "runs": len(wrong),
    "lowering": how.lowering,
    "width": how.width,
    "seconds": seconds,
    "accuracy": 1 - wrong.mean(),
    "test_set_sd": float(np.sqrt(stats.test_set_variance(wrong))),
    "distribution_sd": float(
      np.sqrt(max(0.0, float(stats.distribution_variance(wrong))))
    ),
    "data": flags.data.name,
  }
  return row, kept, labels


def contenders(workload: Workload, platform: str, how: Execution) -> list[Way]:
  """Ours in the lowering and width of `how`, and the others in the forms that are known
  to be fast.
  """
  many = workload.stacked if platform == "cpu" else 64
  ours = our_way(
    workload,
    lanes=max(workload.lanes, how.width),
    width=how.width,
    lowering=how.lowering,
    devices=1,
  )
  found = [
    ours,
    Way("jax.vmap", f"{many} lanes", plain_jax, {"scan": True}, lanes=many),
  ]
  modes = (None,) if platform == "cpu" else (None, "default", "reduce-overhead")
  for last, mode in itertools.product((False, True), modes):
    label = (
      f"one at a time{', channels_last' * last}{f', compiled ({mode})' if mode else ''}"
    )
    found.append(
      Way(
        "PyTorch",
        label,
        plain_torch,
        {"channels_last": last, "mode": mode, "threads": 1},
      )
    )
  return [
    *found,
    Way(
      "PyTorch",
      f"torch.func.vmap, {many} lanes",
      plain_torch,
      {"threads": 1},
      lanes=many,
    ),
  ]


def fastest(flags: argparse.Namespace, name: str) -> tuple[str, Execution]:
  """The platform, and our fastest lowering and width for a workload."""
  platform = lanes.start_jax()[0].platform
  workload = placed(name, platform, flags.steps)
  speeds = {}
  for how in candidates(flags, task := abstract_task(workload.recipe)):
    if speed := executions.measure(task, how):
      speeds[how] = speed.seconds
  return platform, min(speeds, key=speeds.get)


def run_race(flags: argparse.Namespace, name: str) -> list[dict]:
  """Model-steps a second of each contender."""
  platform, how = elsewhere(fastest, flags, name)
  workload = placed(name, platform, flags.steps)
  found = race(
    contenders(workload, platform, how), workload, flags.rounds, together=False
  )
  return [{"workload": name, **contender.numbers()} for contender in found]


def tallies(flags: argparse.Namespace, pairs: str) -> list[dict]:
  """Times the second of two tallies of random predictions."""
  rng = np.random.default_rng(0)
  predictions = jax.device_put(
    rng.integers(0, 10, (flags.runs, flags.examples), np.int8), lanes.start_jax()[0]
  )
  labels = rng.integers(0, 10, flags.examples)
  for _ in range(2):
    began = time.perf_counter()
    stats.tally(predictions, labels, 10, pairs=pairs == "pairs")
  return [
    {
      "runs": flags.runs,
      "examples": flags.examples,
      "of": pairs,
      "seconds": time.perf_counter() - began,
    }
  ]


def repeats(flags: argparse.Namespace, name: str) -> list[dict]:
  """Trains the same runs in two processes, with deterministic operations and with those
  that XLA would choose.
  """
  rows = []
  for operations in ("deterministic", "XLA's choice"):
    (how, first, _), (_, again, seconds) = (
      elsewhere(repeated, flags, name, operations) for _ in range(2)
    )
    equal = sum(a == b for a, b in zip(first, again, strict=True))
    rows.append(
      {
        "recipe": name,
        "operations": operations,
        "lowering": how.lowering,
        "width": how.width,
        "runs": len(first),
        "equal": equal,
        "seconds": seconds,
      }
    )
  return rows


def repeated(
  flags: argparse.Namespace, name: str, operations: str
) -> tuple[Execution, list[str], float]:
  """Trains a step of lanes twice: a digest of each network, and the seconds of the
  second time.
  """
  if operations != "deterministic":
    spreading.OPTIONS.pop("gpu", None)
  task = trial_of(abstract_task(vs.recipe(name, **flags.set)))
  how = candidates(flags, task)[0]

  def one_run(data, run):
    return loop.finish(
      vs.recipe(name, **flags.set),
      task.advance(data, run, task.start(data, run), 0, task.rounds),
    ).variables

  step = lanes.spread(
    one_run,
    width=how.width,
    lowering=how.lowering,
    devices=lanes.start_jax()[:1],
  )
  for _ in range(2):
    began = time.perf_counter()
    ((_, networks),) = step(task.data, lanes_of(task, vs.Runs.independent(how.width)))
  seconds = time.perf_counter() - began
  each = zip(*jax.tree.leaves(networks), strict=True)
  return (
    how,
    [
      hashlib.sha256(b"".join(leaf.tobytes() for leaf in network)).hexdigest()
      for network in each
    ],
    seconds,
  )


def device_kind() -> str:
  return lanes.start_jax()[0].device_kind


# The function of each part, and the flag that lists the part's items.
PARTS: dict[str, tuple[Callable, str]] = {
  "estimates": (estimates, "recipes"),
  "training": (training, "epochs"),
  "study": (study, "lengths"),
  "race": (run_race, "workloads"),
  "tallies": (tallies, "counts"),
  "repeats": (repeats, "recipes"),
}
STARTS_OTHERS = ("race", "repeats")  # parts that do not start JAX themselves


# Tables.


def percent(value: float | None) -> str:
  return "—" if value is None else f"{100 * value:.2f} %"


def cells(part: str, row: dict, rows: list[dict]) -> dict[str, str]:
  """The cells that a table shows for one row, by column."""
  if part == "estimates":
    said, measured = row["estimate_us"], row["measured_us"]
    return {
      "recipe": row["recipe"],
      "lowering, width": f"{row['lowering']} {row['width']}",
      "memory, MB": f"{(row['memory_bytes'] or 0) / 1e6:,.0f}",
      "estimate, µs": significant(said) if said else "—",
      "measured, µs": significant(measured) if measured else "does not fit",
      "measured ÷ estimate": f"{measured / said:.2f}" if said and measured else "—",
    }
  if part in ("training", "study"):
    of_paper = PAPER if part == "training" else {}
    test_set, distribution = of_paper.get(row["epochs"], (None, None))
    return {
      "recipe": row.get("recipe", "resnet9_cifar10"),
      "data": row["data"],
      "epochs": str(row["epochs"]),
      "runs": str(row["runs"]),
      "lowering, width": f"{row['lowering']} {row['width']}",
      "minutes": f"{row['seconds'] / 60:.1f}",
      "accuracy": percent(row["accuracy"]),
      "sd on the test set": percent(row["test_set_sd"]),
      "the paper's": percent(test_set),
      "sd of the distribution": percent(row["distribution_sd"]),
      "the paper's ": percent(distribution),
    }
  if part == "race":
    ours = next(
      (
        r["speed"]
        for r in rows
        if r["workload"] == row["workload"] and r["kind"] == "ours"
      ),
      None,
    )
    shown = row["speed"] if row["speeds"] else None
    return {
      "workload": row["workload"],
      "contender": f"{row['kind']}: {row['label']}",
      "model-steps/s": significant(shown) if shown else row["error"],
      "ours ÷ it": f"{ours / shown:.2f}" if shown and ours else "—",
      "memory, MB": f"{row['device_bytes'] / 1e6:,.0f}" if row["device_bytes"] else "—",
    }
  if part == "repeats":
    return {
      "recipe": row["recipe"],
      "operations": row["operations"],
      "lowering, width": f"{row['lowering']} {row['width']}",
      "equal networks": f"{row['equal']} of {row['runs']}",
      "seconds": significant(row["seconds"]),
    }
  return {
    "runs": f"{row['runs']:,}",
    "examples": f"{row['examples']:,}",
    "of": row["of"],
    "seconds": significant(row["seconds"]),
  }


def section(out: Path) -> str:
  """A Markdown section of the finished parts."""
  lines = [BEGIN]
  for part in PARTS:
    found = [
      json.loads(file.read_text("utf-8")) for file in sorted(out.glob(f"{part}-*.json"))
    ]
    if not found:
      continue
    where = dict.fromkeys(f"{f['device']}, JAX {f['jax']}, {f['date']}" for f in found)
    lines += [f"### On a device: {part}", "", "; ".join(where) + ".", ""]
    table = [cells(part, row, of["rows"]) for of in found for row in of["rows"]]
    texts = [
      list(table[0]),
      ["---"] * len(table[0]),
      *(list(row.values()) for row in table),
    ]
    lines += ["| " + " | ".join(row) + " |" for row in texts] + [""]
  return "\n".join((*lines, END)) + "\n"


def write(file: Path, text: str) -> None:
  """Puts the section into a Markdown file: in place of an older section, or at the end."""
  old = file.read_text("utf-8") if file.exists() else ""
  before, begun, rest = old.partition(BEGIN)
  _, _, after = rest.partition(END + "\n")
  file.write_text(
    f"{before}{text}{after}" if begun else f"{old.rstrip()}\n\n{text}".lstrip(), "utf-8"
  )


# argparse, because a borrowed machine may have no tyro.
FLAGS: dict[str, dict[str, Any]] = {
  "out": dict(
    type=Path, default="results/on_device", help="folder for the parts' numbers"
  ),
  "data": dict(type=Path, help="an .npz of CIFAR-10"),
  "parts": dict(
    nargs="+", choices=PARTS, default=list(PARTS), help="what to run, in this order"
  ),
  "write": dict(
    type=Path, metavar="FILE", help="run nothing; put the tables into a Markdown file"
  ),
  "recipes": dict(
    nargs="+", default=list(RECIPES), help="of the estimates and repeats"
  ),
  "workloads": dict(
    nargs="+", choices=WORKLOADS, default=["digits", "binary", "resnet"], help="races"
  ),
  "epochs": dict(nargs="+", type=int, default=[4, 16], help="of the training"),
  "lengths": dict(
    nargs="+", default=LENGTHS, metavar="NAME-EPOCHS", help="of the study"
  ),
  "counts": dict(nargs="+", choices=COUNTS, default=list(COUNTS), help="tallies"),
  "runs": dict(
    type=int, default=100, help="of the training, the study and the tallies"
  ),
  "examples": dict(type=int, default=10_000, help="of the tallies"),
  "most": dict(type=int, default=256, help="widest lanes"),
  "rounds": dict(type=int, default=3, help="timings of each contender"),
  "steps": dict(type=int, help="of an epoch of the race"),
  "set": dict(
    type=json.loads, default={}, metavar="JSON", help="recipe fields to change"
  ),
}


def parse(argv: list[str] | None) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog="python -m experiments.benchmarks.on_device",
    description=__doc__.partition("\n")[0],
  )
  for name, options in FLAGS.items():
    parser.add_argument(f"--{name}", **options)
  return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
  flags = parse(argv)
  if flags.write:
    return write(flags.write, section(flags.out))
  flags.out.mkdir(parents=True, exist_ok=True)
  for part in flags.parts:
    function, items = PARTS[part]
    for item in getattr(flags, items):
      file, began = flags.out / f"{part}-{item}.json", time.perf_counter()
      if file.exists():
        continue
      try:
        rows = (
          function(flags, item)
          if part in STARTS_OTHERS
          else elsewhere(function, flags, item)
        )
      except Exception as error:  # A failure must not cost the other items their run.
        print(
          f"{part} {item}: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
          flush=True,
        )
        continue
      where = {
        "device": elsewhere(device_kind),
        "jax": jax.__version__,
        "date": datetime.date.today().isoformat(),
      }
      file.write_text(
        json.dumps({"rows": rows, **where}, default=float) + "\n", "utf-8"
      )
      write(flags.out / "on_device.md", section(flags.out))
      print(f"{part} {item}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
  main()
