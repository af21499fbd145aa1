"""How many times as fast the bootstraps of `vmapseeds.stats` are as the plain NumPy
loops that one would write.

    python -m experiments.benchmarks.bootstraps

Each loop draws a resample, gathers it and applies whole-array NumPy to it. Ours is
timed after a first call that compiles. The loop is timed over a few resamples, and its
time is scaled to all of them. Medians of rounds are shown.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from tyro.conf import arg

from experiments.benchmarks.common import check_sizes
from vmapseeds import stats
from vmapseeds.cli import mistakes, parse

CLASSES, BINS = 10, 10


@dataclasses.dataclass(frozen=True)
class Flags:
  """Sizes of what is resampled."""

  runs: Annotated[int, arg(metavar="R")] = 1000
  """runs"""

  examples: Annotated[int, arg(metavar="n")] = 10_000
  """test examples"""

  replicates: Annotated[int, arg(metavar="B")] = 1000
  """resamples"""

  looped: Annotated[int, arg(metavar="N")] = 5
  """resamples that a loop is timed over"""

  rounds: Annotated[int, arg(metavar="N")] = 3
  """rounds; the median is shown"""


def some_votes(runs: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
  """Predictions and labels: most examples right in nearly all runs, wrong ones nearly
  always as the same class.
  """
  rng = np.random.default_rng(0)
  labels = rng.integers(0, CLASSES, examples)
  rates = rng.beta(0.12, 1.6, examples)
  wrong = rng.random((runs, examples), np.float32) < rates
  confused = (labels + rng.integers(1, CLASSES, examples)) % CLASSES
  return np.where(wrong, confused, labels).astype(np.int8), labels.astype(np.int8)


def of_resample(predictions: np.ndarray, labels: np.ndarray) -> tuple:
  """The statistics of `stats.bootstrap` in plain NumPy."""
  runs, n = predictions.shape
  errors = predictions != labels
  rates, wrong = errors.mean(1), errors.mean(0)
  votes = (predictions[:, :, None] == np.arange(CLASSES)).sum(0)
  top = votes.argmax(1)
  variance, independent = (
    rates.var(ddof=1),
    (wrong * (1 - wrong)).sum() / n**2 * runs / (runs - 1),
  )
  disagreement = 1 - (votes * (votes - 1)).sum() / (n * runs * (runs - 1))
  hits = labels[:, None] == np.arange(CLASSES)
  return (
    rates.mean(),
    variance,
    independent,
    n / (n - 1) * (variance - independent),
    disagreement,
    abs(rates.mean() - disagreement),
    (top == labels).mean(),
    calibration_error(votes, hits, runs) / n,
    calibration_error(votes.max(1), top == labels, runs) / n,
    np.corrcoef(errors[:, ::2].mean(1), errors[:, 1::2].mean(1))[0, 1],
  )


def calibration_error(votes: np.ndarray, hits: np.ndarray, runs: int) -> float:
  bin_of = np.minimum(BINS * votes // runs, BINS - 1)
  return abs(
    np.bincount(bin_of.ravel(), (hits - votes / runs).ravel(), minlength=BINS)
  ).sum()


def top_gain(errors: np.ndarray) -> float:
  even, odd = errors[:, ::2].mean(1), errors[:, 1::2].mean(1)
  top = max(1, len(errors) // 4)
  return (
    sum(
      there.mean() - there[np.argsort(here)[:top]].mean()
      for here, there in ((even, odd), (odd, even))
    )
    / 2
  )


def curve(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """The accuracy acc(B_i) of each bin, over all pairs of an example and a class."""
  votes = (predictions[:, :, None] == np.arange(CLASSES)).sum(0)
  bin_of = np.minimum(BINS * votes // len(predictions), BINS - 1).ravel()
  hits = (labels[:, None] == np.arange(CLASSES)).ravel()
  return np.bincount(bin_of, hits, minlength=BINS) / np.maximum(
    np.bincount(bin_of, minlength=BINS), 1
  )


def contenders(
  flags: Flags,
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
  """By name, two functions: ours, which computes all resamples, and the body of a plain
  loop, which computes one.
  """
  predictions, labels = some_votes(flags.runs, flags.examples)
  errors = predictions != labels
  a, b = 1 - errors[: flags.runs // 2].mean(1), 1 - errors[flags.runs // 2 :].mean(1)
  key, rng = jax.random.key(0), np.random.default_rng(1)

  def some(size):
    return rng.integers(0, size, size)

  def ours(over):
    return lambda: stats.bootstrap(
      predictions, labels, CLASSES, over, key=key, replicates=flags.replicates
    )

  def of_runs():
    return of_resample(predictions[some(flags.runs)], labels)

  def of_examples():
    drawn = some(flags.examples)
    return of_resample(predictions[:, drawn], labels[drawn])

  def of_both():
    drawn = some(flags.examples)
    return of_resample(predictions[some(flags.runs)][:, drawn], labels[drawn])

  def of_curve():
    drawn = some(flags.examples)
    return curve(predictions[:, drawn], labels[drawn])

  def of_unpaired():
    x, y = a[some(len(a))], b[some(len(b))]
    return (x[:, None] > y).mean() + 0.5 * (x[:, None] == y).mean()

  return {
    "bootstrap, over runs": (ours("runs"), of_runs),
    "bootstrap, over examples": (ours("examples"), of_examples),
    "bootstrap, over both": (ours("both"), of_both),
    "top_fraction_gain_bootstrap": (
      lambda: stats.top_fraction_gain_bootstrap(
        errors, key=key, replicates=flags.replicates
      ),
      lambda: top_gain(errors[some(flags.runs)]),
    ),
    "calibration_band": (
      lambda: stats.calibration_band(
        predictions, labels, CLASSES, key=key, replicates=flags.replicates
      ),
      of_curve,
    ),
    "decide, unpaired": (
      lambda: stats.decide(a, b, paired=False, key=key, replicates=flags.replicates),
      of_unpaired,
    ),
  }


def seconds(call: Callable[[], object], times: int = 1) -> float:
  start = time.perf_counter()
  for _ in range(times):
    call()
  return (time.perf_counter() - start) / times


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    flags = parse(Flags, argv)
    check_sizes(flags, "runs", "examples", least=2)
    check_sizes(flags, "replicates", "looped", "rounds")
    title = f"{flags.replicates} resamples of {flags.runs} runs on {flags.examples} examples of {CLASSES} classes, seconds"
    table = Table(
      "bootstrap",
      "ours",
      "plain loop",
      "times as fast",
      title=title,
      title_justify="left",
    )
    for name, (ours, loop) in contenders(flags).items():
      ours()
      rounds = [
        (seconds(ours), seconds(loop, flags.looped) * flags.replicates)
        for _ in range(flags.rounds)
      ]
      mine, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
      ratios = sorted(b / a for a, b in rounds)
      spread = f"{statistics.median(ratios):.0f} ({ratios[0]:.0f} to {ratios[-1]:.0f})"
      table.add_row(name, f"{mine:.2f}", f"{theirs:.1f}", spread)
    Console().print(table)


if __name__ == "__main__":
  main()
