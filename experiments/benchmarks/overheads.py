"""How much of a campaign is no training: input pipeline, evaluation, writing, statistics. The bar: 10 % together.

    python -m experiments.benchmarks.overheads                                             (8 minutes on two CPU cores)

    training     the same training on one frozen batch: no permutation, gather, augmentation or normalisation
    input        what permuting, gathering, augmenting and normalising add to that
    evaluation   what evaluating every trained network on every test example adds
    writing      writing predictions and accuracies into the results folder
    statistics   all numbers of the report, as `vmapseeds report` computes them
    start        the rest, once a campaign: reading data, making the folder; compilation is shown apart

Each is timed in turn, round after round; parts are differences of medians.
"""

import dataclasses
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from unittest import mock

import jax
import jax.numpy as jnp
from tyro.conf import arg

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Table, significant
from experiments.common import duration
from vmapseeds import lanes
from vmapseeds.campaign import loop
from vmapseeds.cli import mistakes, overrides
from vmapseeds.data import load
from vmapseeds.mistakes import at_least
from vmapseeds.reports.summary import summarize
from vmapseeds.store.results import Results
from vmapseeds.training.evaluation import evaluate
from vmapseeds.training.loop import normalize, train

BAR = 0.10


@dataclasses.dataclass(frozen=True)
class Flags(common.RecipeFlags):
  runs: Annotated[int, arg(metavar="N")] = 256
  """runs of the campaign"""

  rounds: Annotated[int, arg(metavar="K")] = 3
  """timings of each, in turn, of which the median is shown"""


def train_frozen(recipe, data, run, num_classes):
  """`vmapseeds.training.loop.train` that sees the same images at every step, others in each run."""
  places = (run.init + jnp.arange(recipe.batch_size)) % len(data.labels)
  batch = normalize(data.images[places], data.mean, data.std)

  def images(recipe, data, examples, drawn):
    # Tied to the step, or XLA would take what depends on the batch alone out of the loop.
    return jax.lax.optimization_barrier((batch, examples))[0]

  pipeline = {
    "training_images": images,
    "draw_augmentation": lambda *given: (),
    "epoch_order": lambda run, epoch, size: jnp.arange(size),
  }
  # Not by its dotted name: `vmapseeds.training.loop` is the function of a campaign.
  with mock.patch.multiple(sys.modules[train.__module__], **pipeline):
    return train(recipe, data, run, num_classes)


def measure(recipe: vs.Recipe, runs: int, rounds: int, folder: Path) -> dict[str, list[float]]:
  """Seconds of each round: `frozen`, `trained`, `evaluated` (with training), `campaign`, `writing`, `statistics`; and
  `first`: of the first campaign, that chooses how lanes run and compiles."""
  table, began = vs.Runs.independent(runs), time.perf_counter()
  opened = vs.train(recipe, table, folder / "first")
  first = time.perf_counter() - began
  width, lowering = opened.attrs["lane_width"], opened.attrs["lowering"]
  devices = lanes.devices()
  data = load(recipe.dataset, test_sets=recipe.test_sets, classes=recipe.classes)
  shared = lanes.replicate(loop.on_device(recipe, data), devices)
  rows = table.lanes(recipe, len(data.train))
  classes = data.num_classes

  def evaluated(shared, run):
    trained = train(recipe, shared[0], run, classes)
    found = {name: evaluate(recipe, test, run, trained, classes) for name, test in shared[1].items()}
    return trained.diverged, {name: e._replace(logits=None) for name, e in found.items()}

  parts = {
    "frozen": lambda shared, run: train_frozen(recipe, shared[0], run, classes).diverged,
    "trained": lambda shared, run: train(recipe, shared[0], run, classes).diverged,
    "evaluated": evaluated,
  }
  parts = {name: lanes.spread(part, width=width, devices=devices) for name, part in parts.items()}
  seconds = {name: [] for name in (*parts, "campaign", "writing", "statistics")}

  @contextmanager
  def timed(name):
    began = time.perf_counter()
    yield
    seconds[name].append(time.perf_counter() - began)

  write = Results.write

  def timed_write(*args):
    began = time.perf_counter()
    write(*args)
    seconds["writing"][-1] += time.perf_counter() - began

  with lanes.lowering(lowering):
    for part in parts.values():
      list(part(shared, jax.tree.map(lambda a: a[: width * len(devices)], rows)))
  for i in range(rounds):
    print(f"round {i + 1} of {rounds}", file=sys.stderr)
    with lanes.lowering(lowering):
      for name, part in parts.items():
        with timed(name):
          list(part(shared, rows))
    seconds["writing"].append(0.0)
    with timed("campaign"), mock.patch.object(Results, "write", timed_write):
      vs.train(recipe, table, folder / str(i), lane_width=width, lowering=lowering, progress=False)
    with timed("statistics"):
      summarize(vs.open_results(folder / str(i), recipe.test_sets[0]), test_set=recipe.test_sets[0])
  return seconds | {"first": [first]}


def shares(seconds: dict[str, list[float]]) -> dict[str, float]:
  """Seconds of each part of a campaign with its statistics; they add up to both."""
  median = {name: statistics.median(values) for name, values in seconds.items()}
  return {
    "training": median["frozen"],
    "input": median["trained"] - median["frozen"],
    "evaluation": median["evaluated"] - median["trained"],
    "writing": median["writing"],
    "statistics": median["statistics"],
    "start": median["campaign"] - median["evaluated"] - median["writing"],
  }


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "overheads", argv)
  recipe = vs.recipe(flags.recipe, **overrides(flags.set))
  at_least("--runs", flags.runs, 2)
  where = common.elsewhere(common.machine)
  with tempfile.TemporaryDirectory() as folder:
    seconds = measure(recipe, flags.runs, flags.rounds, Path(folder))
  parts = shares(seconds)
  total, steady = sum(parts.values()), sum(parts.values()) - parts["start"]
  rows = [
    (name, f"{significant(s)} s", f"{s / steady:.1%}" if name != "start" else "—", f"{s / total:.1%}")
    for name, s in parts.items()
  ]
  share = 1 - parts["training"] / steady
  slower = seconds["first"][0] - statistics.median(seconds["campaign"])
  notes = [
    f"Input, evaluation, writing and statistics together: {share:.1%} of the time after the start; bar: {BAR:.0%}.",
    f"The first campaign took {slower:.1f} s longer: choosing how lanes run, unless known, and compilation.",
  ]
  head = ("part", "time", "share after the start", "share of all")
  title = f"{recipe.name}: {flags.runs} runs of {duration(recipe.epochs)}, medians of {flags.rounds} rounds"
  table = Table(title, head, rows, notes)
  common.show(table)
  common.write(flags, command, where, [table], {"seconds": seconds, "parts": parts, "share": share})


if __name__ == "__main__":
  with mistakes():
    main()
