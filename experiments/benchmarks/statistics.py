"""Counting over runs: the tallies of `vmapseeds.stats` beside the bare matrix product
and what NumPy offers.

    python -m experiments.benchmarks.statistics                                        (2 minutes on two CPU cores)
    python -m experiments.benchmarks.statistics --runs 60000 --repetitions 1 --ways counts tally product

counts    tally_blocks: class counts and error counts, and from them disagreement, calibration and variances
tally     tally_blocks with pairs=True: the joint error counts of all pairs of examples as well, from the same pass
product   the bare float32 product of that shape, (examples × runs) · (runs × examples), by jax.numpy
numpy     the same product by NumPy
square    errors.T @ errors in float32 by NumPy, which sees that both factors are one array and does half of the work
cov       np.cov(errors, rowvar=False)

Ways are timed in turn, in this order, and medians shown. Predictions are made, and
those of `product` and `numpy` turned into float32 matrices, before the clock starts.
All joint counts are compared.
"""

import dataclasses
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Int
from rich.table import Table

from experiments.benchmarks.common import check_sizes
from experiments.frame import show
from vmapseeds import lanes
from vmapseeds.campaign.options import hint
from vmapseeds.cli import mistakes, parse
from vmapseeds.mistakes import one_of
from vmapseeds.stats import tally_blocks

CLASSES = 10


class Way(NamedTuple):
  """A way to count. `prepare`, untimed, makes its input from both arrays; `count` gives
  joint counts or None.
  """

  prepare: Callable
  count: Callable


def _blocks(predictions, labels, runs):
  return (
    predictions[start : start + runs] for start in range(0, len(predictions), runs)
  ), labels


def _tally(blocks, labels, pairs):
  tallies = tally_blocks(blocks, labels, CLASSES, pairs=pairs)
  for statistic in (
    "expected_disagreement",
    "gde_gap",
    "cace",
    "ece",
    "distribution_variance",
    "split_correlation",
  ):
    getattr(tallies, statistic)()
  return tallies.joint_errors


def _errors(predictions, labels):
  return (predictions != labels,)


def _factors(predictions, labels):
  errors = (predictions != labels).astype(np.float32)
  return errors, errors.copy()


@jax.jit
def _product(a, b):
  return jnp.matmul(a.T, b, precision="highest")


def _square(errors):
  errors = errors.astype(np.float32)
  return errors.T @ errors


def ways(block: int) -> dict[str, Way]:
  """The ways by name, in ascending order of the memory they take."""

  def blocks(predictions, labels):
    return _blocks(predictions, labels, block)

  def on_device(predictions, labels):
    return tuple(map(jnp.asarray, _factors(predictions, labels)))

  return {
    "counts": Way(blocks, lambda blocks, labels: _tally(blocks, labels, pairs=False)),
    "tally": Way(blocks, lambda blocks, labels: _tally(blocks, labels, pairs=True)),
    "product": Way(on_device, lambda a, b: _product(a, b).block_until_ready()),
    "numpy": Way(_factors, lambda a, b: a.T @ b),
    "square": Way(_errors, _square),
    "cov": Way(_errors, lambda errors: np.cov(errors, rowvar=False)),
  }


@dataclasses.dataclass(frozen=True)
class Flags:
  """How long the statistics of many runs take to count."""

  examples: Annotated[int, tyro.conf.arg(metavar="N")] = 10_000
  """test examples"""

  runs: Annotated[int, tyro.conf.arg(metavar="R")] = 4096
  """runs"""

  block: Annotated[int, tyro.conf.arg(metavar="R")] = 2000
  """runs a block of predictions"""

  repetitions: Annotated[int, tyro.conf.arg(metavar="K")] = 5
  """timings of each way, of which the median is shown"""

  ways: Annotated[tuple[str, ...], hint("WAY", "all")] = tuple(ways(1))
  """which ways"""


def some_predictions(
  runs: int, examples: int
) -> tuple[Int[np.ndarray, "runs examples"], Int[np.ndarray, "examples"]]:
  """Predictions of ten classes, and labels. About a tenth of the predictions are wrong;
  some examples are harder.
  """
  rng = np.random.default_rng(0)
  labels = rng.integers(0, CLASSES, examples, np.int8)
  rates = np.minimum(255, 512 * rng.beta(0.1, 1.9, examples)).astype(np.uint8)
  predictions = np.empty((runs, examples), np.int8)
  for start in range(0, runs, 1000):
    rows = predictions[start : start + 1000]
    wrong = rng.integers(0, 256, rows.shape, np.uint8) < rates
    rows[:] = (labels + wrong * rng.integers(1, CLASSES, rows.shape, np.int8)) % CLASSES
  return predictions, labels


def measure(flags: Flags) -> list[dict]:
  """Times the ways in turn. A dict for each: `way`, `first_seconds`, `seconds` (of each
  repetition), `peak_bytes`.

  `peak_bytes` is the most that the process has held by the end of the way's first call,
  beyond what it held before the
  first way: it is the way's own if no way before it took more.
  """
  lanes.start_jax()
  predictions, labels = some_predictions(flags.runs, flags.examples)
  jnp.zeros(1).block_until_ready()
  before = _peak()
  chosen = {name: way for name, way in ways(flags.block).items() if name in flags.ways}
  rows = {name: {"way": name, "seconds": []} for name in chosen}
  expected = None
  for repetition in range(flags.repetitions + 1):
    for name, way in chosen.items():
      given = way.prepare(predictions, labels)
      start = time.perf_counter()
      counts = way.count(*given)
      seconds = time.perf_counter() - start
      del given
      if repetition:
        rows[name]["seconds"].append(seconds)
        continue
      print(f"{name}: first call {seconds:.2f} s", file=sys.stderr)
      rows[name] |= {"first_seconds": seconds, "peak_bytes": _peak() - before}
      if name == "tally":
        expected = counts
      elif expected is not None and name != "cov":
        assert all(
          np.array_equal(a, b)
          for a, b in zip(expected, np.asarray(counts), strict=True)
        ), name
      elif expected is not None:
        wrong, runs = expected.diagonal().astype(np.int64), flags.runs
        for i in range(0, flags.examples, 100):
          exact = (runs * expected[i].astype(np.int64) - wrong[i] * wrong) / (
            runs * (runs - 1)
          )
          np.testing.assert_allclose(counts[i], exact, rtol=1e-6, atol=1e-9)
  return list(rows.values())


def _peak() -> int:
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak if sys.platform == "darwin" else 1024 * peak


def table(rows: list[dict], flags: Flags) -> Table:
  device = jax.devices()[0].device_kind
  shown = Table(
    title=f"{flags.examples:,} examples, {flags.runs:,} runs, {jax.device_count()} × {device}"
  )
  for head in (
    "way",
    "median, s",
    "least to most",
    "first call, s",
    "of product",
    "peak memory",
  ):
    shown.add_column(head, justify="left" if head == "way" else "right")
  medians = {row["way"]: statistics.median(row["seconds"]) for row in rows}
  bare = medians.get("product")
  for row in rows:
    median = medians[row["way"]]
    shown.add_row(
      row["way"],
      f"{median:.2f}",
      f"{min(row['seconds']):.2f} to {max(row['seconds']):.2f}",
      f"{row['first_seconds']:.2f}",
      f"{median / bare:.3f}" if bare else "—",
      f"{row['peak_bytes'] / 2**20:,.0f} MiB",
    )
  return shown


def main(argv: list[str] | None = None) -> None:
  flags = parse(
    Flags, argv, prog="python -m experiments.benchmarks.statistics", description=__doc__
  )
  check_sizes(flags, "runs", "examples", "block", "repetitions")
  for way in flags.ways:
    one_of("way", way, ways(1))
  show(table(measure(flags), flags))


if __name__ == "__main__":
  with mistakes():
    main()
