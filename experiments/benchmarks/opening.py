"""How long it takes to open results of very many runs, and how many bytes a slice of
them reads.

    python -m experiments.benchmarks.opening [--keep DIR]

The store is synthetic: written as a campaign writes it, block by block with checksums
and records, but with random predictions, most of them right. Bytes read are those that
the process asked the system for (Linux).
"""

import dataclasses
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
from rich.progress import track
from rich.table import Table
from tyro.conf import arg

import vmapseeds as vs
from experiments.benchmarks.common import check_sizes
from experiments.frame import show
from vmapseeds.campaign import loop
from vmapseeds.cli import mistakes, parse

CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Flags:
  """The size of the store, and its place."""

  runs: Annotated[int, arg(metavar="R")] = 1_000_000
  """runs"""

  examples: Annotated[int, arg(metavar="n")] = 10_000
  """test examples"""

  seed_batch: Annotated[int, arg(metavar="N")] = 256
  """runs a block"""

  keep: Annotated[
    Path | None, arg(metavar="DIR", help_behavior_hint="(default: a temporary folder)")
  ] = None
  """where the store is made and kept; a store that is already there is measured as it is"""


def make(path: Path, runs: int, examples: int, block: int) -> None:
  """Writes the synthetic store."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, CLASSES, examples)
  blank = np.zeros((examples, 8, 8, 1), np.uint8)
  data = vs.Dataset(train=(blank, labels), test=(blank, labels), num_classes=CLASSES)
  recipe = vs.recipe("digits_cnn", dataset=data, batch_size=1, normalize=False)
  options = vs.Options(
    seed_batch=block, lane_width=1, lowering="im2col", tallies=False, progress=False
  )
  results = loop.open_campaign(recipe, runs, path, options).results
  for number, rows in enumerate(track(results.blocks, "writing")):
    predictions = np.broadcast_to(labels, (len(rows), examples)).astype(np.int8)
    wrong = rng.integers(0, predictions.size, predictions.size // 15)
    predictions.flat[wrong] = rng.integers(0, CLASSES, len(wrong))
    errors = predictions != labels
    results.write_block(
      number,
      {
        "diverged": np.zeros(len(rows), bool),
        "test/predictions": predictions,
        "test/accuracy": 1 - errors.mean(1),
        "test/half_errors": np.stack(
          [errors[:, half::2].sum(1) for half in (0, 1)], axis=1
        ),
      },
    )


def bytes_read() -> int:
  """Bytes that this process has read so far, also from files that the system holds in
  memory.
  """
  return int(Path("/proc/self/io").read_text().split()[1])


def main(argv: list[str] | None = None) -> None:
  """Prints a table."""
  with mistakes():
    flags = parse(Flags, argv, prog="python -m experiments.benchmarks.opening")
    check_sizes(flags, "runs", "examples", "seed_batch")
    with tempfile.TemporaryDirectory() as folder:
      path = flags.keep or Path(folder, "results")
      if not path.exists():
        make(path, flags.runs, flags.examples, flags.seed_batch)
      measure(path)


def measure(path: Path) -> None:
  """Opens the store, reads parts of it, and prints seconds and bytes of each step."""
  table = Table("", "seconds", "MB read")

  @contextmanager
  def row(name: str) -> Iterator[None]:
    before, begun = bytes_read(), time.perf_counter()
    yield
    seconds, read = time.perf_counter() - begun, bytes_read() - before
    table.add_row(name, f"{seconds:.2f}", f"{read / 1e6:.1f}")

  size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
  with row("open_results"):
    results = vs.open_results(path)
  with row("accuracy of all runs"):
    results.accuracy.values.mean()
  with row("predictions of one run"):
    results.predictions[results.sizes["run"] // 2].values.sum()
  with row("predictions of 100 runs apart from each other"):
    results.predictions[:: max(1, results.sizes["run"] // 100)].values.sum()
  print(
    f"{results.sizes['run']} runs × {results.sizes['example']} examples, {size / 1e9:.3g} GB on disk"
  )
  show(table)
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
  print(f"peak memory of the process: {peak:.0f} MiB")


if __name__ == "__main__":
  main()
