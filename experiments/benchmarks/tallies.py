"""Counting runs on the device before anything is fetched, beside fetching their predictions and counting those.

    python -m experiments.benchmarks.tallies                                                (1 minute on two CPU cores)
    python -m experiments.benchmarks.tallies --runs 60000 --step 512 --rounds 1 --pairs      (2 minutes)

fetched    each step's predictions come to the host, and `stats.tally_blocks` counts all of them
on device  each step's predictions are added where they lie (`stats.tallies.update`), and the counts alone are fetched

Both begin with predictions on the devices, an equal share on each, and end with a finished `Tallies`; both must count
the same. Predictions are made before the clock starts, and a few steps' serve for all.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import jax
import numpy as np
from jaxtyping import Int
from tyro.conf import arg

from experiments.benchmarks import common
from experiments.benchmarks.common import Table
from vmapseeds import lanes
from vmapseeds.cli import mistakes
from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.stats import Tallies, tallies, tally_blocks

MADE = 8  # steps of different predictions


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


def steps_of(flags: Flags, devices: Sequence[jax.Device]) -> tuple[list[jax.Array], Int[np.ndarray, " examples"]]:
  """What the steps predict, on the devices, and the labels: a tenth of the predictions wrong."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, flags.classes, flags.examples, np.int8)
  lies = tallies.zeros(labels, flags.classes, capacity=0, devices=devices).votes.sharding
  made = []
  for _ in range(min(MADE, -(-flags.runs // flags.step))):
    wrong = rng.random((flags.step, flags.examples), np.float32) < 0.1
    made.append(np.where(wrong, rng.integers(0, flags.classes, wrong.shape, np.int8), labels[None]))
  steps = [jax.device_put(predictions, lies) for predictions in made]
  return [steps[i % len(steps)] for i in range(flags.runs // flags.step)], labels


def ways(flags: Flags, devices: Sequence[jax.Device]) -> dict[str, Callable[..., tuple[Tallies, int]]]:
  """By name, from steps and labels to tallies and the bytes that were fetched."""

  def fetched(steps, labels):
    # As copies: on a CPU what is fetched may be a view.
    blocks = (np.array(predictions) for predictions in steps)
    found = tally_blocks(blocks, labels, flags.classes, pairs=flags.pairs)
    return found, sum(predictions.nbytes for predictions in steps)

  def on_device(steps, labels):
    capacity = len(steps) * flags.step // len(devices)
    held = tallies.zeros(labels, flags.classes, capacity=capacity, pairs=flags.pairs, devices=devices)
    for predictions in steps:
      held = tallies.update(held, predictions)
    joint = 4 * flags.examples**2 if flags.pairs else 0
    fetched = held.half_errors.nbytes + held.runs.nbytes + held.votes.nbytes // len(devices) + joint
    return tallies.fetch(held), fetched

  return {"fetched": fetched, "on device": on_device}


def measure(flags: Flags) -> list[dict]:
  """A dict a way: `way`, `first_seconds`, `seconds` (of each round), `bytes_fetched`."""
  devices = lanes.devices()
  if flags.step % len(devices) or flags.runs % flags.step:
    raise Mistake(f"--step is {flags.step}: give a multiple of the {len(devices)} devices that --runs is a multiple of")
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


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "tallies", argv)
  for name in ("runs", "step", "examples", "classes"):
    at_least(f"--{name}", getattr(flags, name), 1)
  where, rows = common.machine(), measure(flags)
  shown = [
    (
      row["way"], f"{statistics.median(row['seconds']):.3f}",
      f"{min(row['seconds']):.3f} – {max(row['seconds']):.3f}", f"{row['first_seconds']:.2f}",
      f"{row['bytes_fetched'] / 1e6:,.2f}",
    )
    for row in rows
  ]  # fmt: skip
  title = f"{flags.runs:,} runs × {flags.examples:,} examples × {flags.classes} classes, {flags.step} at a time"
  table = Table(title + ", all pairs" * flags.pairs, ("way", "s", "least – most", "first call, s", "MB fetched"), shown)
  common.show(table)
  common.write(flags, command, where, [table], rows)


if __name__ == "__main__":
  with mistakes():
    main()
