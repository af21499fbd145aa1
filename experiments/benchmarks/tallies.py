"""Counting runs on the device before anything is fetched, against fetching their
predictions and counting those.

    python -m experiments.benchmarks.tallies                                                (1 minute on two CPU cores)
    python -m experiments.benchmarks.tallies --runs 60000 --step 512 --rounds 1 --pairs      (2 minutes)
    python -m experiments.benchmarks.tallies --campaign --runs 512                           (2 minutes)
    python -m experiments.benchmarks.tallies --report --runs 60000 --rounds 1                (10 minutes)

fetched    each step's predictions come to the host, and `stats.tally_blocks` counts all of them
on device  each step's predictions are added where they lie (`stats.tallies.update`),
and the counts alone are fetched

Both begin with predictions on the devices, an equal share on each, and end with a
finished `Tallies`. Their counts must be equal. Predictions are made before the clock
starts, for a few steps; later steps repeat them.

With --campaign, digits_cnn is trained without tallies, with them, and with tallies but
without predictions; outputs and counts are what is fetched. With --report, reports of a
folder of random predictions are made with and without reading the predictions; all
objects that are read count as fetched.
"""

import dataclasses
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
from jaxtyping import Int
from rich.console import Console
from tyro.conf import arg

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Table
from vmapseeds import lanes
from vmapseeds.cli import mistakes
from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.reports import results_page
from vmapseeds.results.description import counts_of
from vmapseeds.stats import Tallies, tallies, tally_blocks
from vmapseeds.store.folders import create_folder
from vmapseeds.store.layout import array
from vmapseeds.store.results import Results

MADE = 8  # steps with predictions of their own; later steps repeat these


@dataclasses.dataclass(frozen=True)
class Flags(common.Flags):
  runs: Annotated[int, arg(metavar="R")] = 256
  """runs in all"""

  step: Annotated[int, arg(metavar="R")] = 64
  """runs that finish together, a multiple of the number of devices"""

  examples: Annotated[int, arg(metavar="N")] = 10_000
  """test examples"""

  classes: Annotated[int, arg(metavar="K")] = 10
  """classes"""

  pairs: bool = False
  """count joint errors of all pairs of examples as well"""

  campaign: bool = False
  """campaigns of digits_cnn instead"""

  report: bool = False
  """reports of a folder instead"""


def steps_of(
  flags: Flags, devices: Sequence[jax.Device]
) -> tuple[list[jax.Array], Int[np.ndarray, " examples"]]:
  """Each step's predictions, on the devices, and the labels. A tenth of the predictions
  are random, the rest right.
  """
  rng = np.random.default_rng(0)
  labels = rng.integers(0, flags.classes, flags.examples, np.int8)
  lies = tallies.zeros(
    labels, flags.classes, capacity=0, devices=devices
  ).votes.sharding
  made = []
  for _ in range(min(MADE, -(-flags.runs // flags.step))):
    wrong = rng.random((flags.step, flags.examples), np.float32) < 0.1
    made.append(
      np.where(
        wrong, rng.integers(0, flags.classes, wrong.shape, np.int8), labels[None]
      )
    )
  steps = [jax.device_put(predictions, lies) for predictions in made]
  return [steps[i % len(steps)] for i in range(flags.runs // flags.step)], labels


def ways(
  flags: Flags, devices: Sequence[jax.Device]
) -> dict[str, Callable[..., tuple[Tallies, int]]]:
  """By name, functions of steps and labels that return tallies and how many bytes were
  fetched.
  """

  def fetched(steps, labels):
    # Copies, because on a CPU a fetched array may be a view.
    blocks = (np.array(predictions) for predictions in steps)
    found = tally_blocks(blocks, labels, flags.classes, pairs=flags.pairs)
    return found, sum(predictions.nbytes for predictions in steps)

  def on_device(steps, labels):
    capacity = len(steps) * flags.step // len(devices)
    held = tallies.zeros(
      labels, flags.classes, capacity=capacity, pairs=flags.pairs, devices=devices
    )
    for predictions in steps:
      held = tallies.update(held, predictions)
    joint = 4 * flags.examples**2 if flags.pairs else 0
    fetched = (
      held.half_errors.nbytes
      + held.runs.nbytes
      + held.votes.nbytes // len(devices)
      + joint
    )
    return tallies.fetch(held), fetched

  return {"fetched": fetched, "on device": on_device}


def measure(flags: Flags) -> list[dict]:
  """A dict for each way: `way`, `first_seconds`, `seconds` (of each round),
  `bytes_fetched`.
  """
  devices = lanes.devices()
  if flags.step % len(devices) or flags.runs % flags.step:
    raise Mistake(
      f"--step is {flags.step}: give a multiple of the {len(devices)} devices that --runs is a multiple of"
    )
  steps, labels = steps_of(flags, devices)
  rows = {name: {"way": name, "seconds": []} for name in ways(flags, devices)}
  expected = None
  for _ in range(flags.rounds + 1):
    for name, way in ways(flags, devices).items():
      began = time.perf_counter()
      found, fetched = way(steps, labels)
      seconds = time.perf_counter() - began
      if "first_seconds" in rows[name]:
        rows[name]["seconds"].append(seconds)
        continue
      rows[name] |= {"first_seconds": seconds, "bytes_fetched": fetched}
      expected = expected or found.to_arrays()
      for field, counts in found.to_arrays().items():
        np.testing.assert_array_equal(counts, expected[field], err_msg=field)
  return list(rows.values())


def campaigns(flags: Flags) -> list[dict]:
  """Times whole campaigns of digits_cnn into new folders. The first call of each way
  compiles.
  """
  rows = []
  for way, how in {
    "no tallies": {"tallies": False},
    "tallies": {},
    "tallies alone": {"predictions": "none"},
  }.items():
    seconds = []
    for _ in range(flags.rounds + 1):
      with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        vs.train("digits_cnn", flags.runs, folder, progress=False, **how)
        seconds.append(time.perf_counter() - began)
        results = Results(folder)
        read = [results.arrays[name].nbytes for name in results.outputs]
        # Devices send each count in four bytes; the folder stores it in fewer.
        counts = [
          4 * results.arrays[name].size // flags.runs * len(results.blocks)
          for name in results.counts
        ]
    rows.append(
      {
        "way": way,
        "first_seconds": seconds[0],
        "seconds": seconds[1:],
        "bytes_fetched": sum(read + counts),
      }
    )
  return rows


def reports(flags: Flags) -> list[dict]:
  """Times reports of a folder of random predictions, with and without reading the
  predictions.
  """
  size, about = 256, attributes_of_a_campaign()
  labels = np.random.default_rng(0).integers(0, flags.classes, flags.examples, np.int32)
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    outputs = {
      "diverged": array(bool, ["run"], []),
      "test/accuracy": array(float, ["run"], []),
      "test/predictions": array(np.int8, ["run", "example"], labels.shape),
      "test/half_errors": array(np.int32, ["run", "half"], [2]),
      **counts_of({"test": labels}, flags.classes, size, flags.pairs),
    }
    with create_folder(
      folder,
      {**about, "num_classes": flags.classes},
      extents=[flags.runs],
      block_runs=size,
      columns={},
      dimensions={"test/labels": ("example",)},
      examples={"test/labels": labels},
      outputs=outputs,
    ) as results:
      pass
    for block, here in enumerate(results.blocks):
      rng = np.random.default_rng(block)
      wrong = rng.random((len(here), flags.examples), np.float32) < rng.uniform(
        0.09, 0.11, (len(here), 1)
      )
      predictions = np.where(
        wrong,
        rng.integers(0, flags.classes, wrong.shape, np.int8),
        labels.astype(np.int8),
      )
      wrong = predictions != labels
      counted = tally_blocks(
        [predictions], labels, flags.classes, pairs=flags.pairs
      ).to_arrays()
      values = {
        "diverged": np.zeros(len(here), bool),
        "test/predictions": predictions,
        "test/accuracy": 1 - wrong.mean(1),
        "test/half_errors": np.stack(
          [wrong[:, half::2].sum(1) for half in (0, 1)], axis=1
        ),
      }
      counts = {name: counted[name.removeprefix("test/")] for name in results.counts}
      results.write_block(block, values, {}, counts)
    for way, most in {"predictions read": 2**60, "predictions left": 0}.items():
      seconds, results_page.MOST_READ = [], most
      for _ in range(flags.rounds + 1):
        began = time.perf_counter()
        vs.report(folder, console=Console(file=io.StringIO()))
        seconds.append(time.perf_counter() - began)
      objects = [f for f in Path(folder).rglob("*") if f.is_file() and "c" in f.parts]
      read = sum(
        f.stat().st_size for f in objects if most or "predictions" not in f.parts
      )
      rows.append(
        {
          "way": way,
          "first_seconds": seconds[0],
          "seconds": seconds[1:],
          "bytes_fetched": read,
        }
      )
  return rows


def attributes_of_a_campaign() -> dict:
  """The description that a folder of digits_cnn holds."""
  with tempfile.TemporaryDirectory() as folder:
    vs.train(vs.recipe("digits_cnn", epochs=0), 1, folder, progress=False)
    return Results(folder).description


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "tallies", argv)
  for name in ("runs", "step", "examples", "classes"):
    at_least(f"--{name}", getattr(flags, name), 1)
  where, rows = (
    common.machine(),
    (reports if flags.report else campaigns if flags.campaign else measure)(flags),
  )
  shown = [
    (
      row["way"],
      f"{statistics.median(row['seconds']):.3f}",
      f"{min(row['seconds']):.3f} – {max(row['seconds']):.3f}",
      f"{row['first_seconds']:.2f}",
      f"{row['bytes_fetched'] / 1e6:,.2f}",
    )
    for row in rows
  ]
  title = f"{flags.runs:,} runs × {flags.examples:,} examples × {flags.classes} classes, {flags.step} at a time"
  if flags.report or flags.campaign:
    what = (
      f"digits_cnn, {flags.runs:,} runs" if flags.campaign else title.rpartition(",")[0]
    )
    title = f"{'reports' if flags.report else 'campaigns'}: {what}"
  table = Table(
    title + ", all pairs" * flags.pairs,
    ("way", "s", "least – most", "first call, s", "MB fetched"),
    shown,
  )
  common.write(flags, command, where, [table], rows)


if __name__ == "__main__":
  with mistakes():
    main()
