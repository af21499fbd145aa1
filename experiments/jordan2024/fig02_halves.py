"""Jordan 2024, figure 2 and section 3.1: is a run that is lucky on one half of the test
set lucky on the other?

After a short training it is; after a long one it hardly is. The halves are the examples
of even and of odd index, as in the paper. On CIFAR-10 they hold other examples:
tensorflow-datasets and the JPEG copy order the test set differently.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.colors import LogNorm

from experiments import frame
from experiments.estimates import Estimate, format_interval
from experiments.frame import Row, Trained, format_percent
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import DURATIONS, by_duration
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 2: accuracies on two halves of the test set"
PANELS = 4
MISSING = "the paper's own halves: tensorflow-datasets orders the test set otherwise; any two halves would do"
REPLICATES = 200


class Halves(NamedTuple):
  """Accuracies of the runs on both halves, and what one half tells of the other;
  intervals of 95 % over runs.
  """

  epochs: int
  runs: int
  correlation: float
  correlation_interval: tuple[float, float]
  # On one half, of the quarter of runs best on the other; mean of both directions
  quarter_gain: float
  quarter_gain_interval: tuple[float, float]
  # On the odd half, of the run best on the even half; and the reverse
  best_gain: tuple[float, float]
  sd: float  # of a run's accuracy on a half; the standard error of `best_gain`
  even: Float[np.ndarray, " runs"]
  odd: Float[np.ndarray, " runs"]


def compute(trained: Trained) -> dict[str, Halves]:
  return {
    d: halves_of_duration(trained.epochs(d), trained.tallies(d)) for d in DURATIONS
  }


def halves_of_duration(epochs: int, tallies: stats.Tallies) -> Halves:
  examples = np.array([[(tallies.examples + 1) // 2], [tallies.examples // 2]])
  even, odd = 1 - tallies.halves / examples
  best = tallies.top_fraction_gain(1 / tallies.runs)
  gain = tallies.top_fraction_gain_bootstrap(
    key=jax.random.key(0), replicates=REPLICATES
  )
  correlation = tallies.split_correlation()
  return Halves(
    epochs,
    tallies.runs,
    correlation.value,
    correlation.interval,
    tallies.top_fraction_gain().mean,
    (gain.low, gain.high),
    (best.even_to_odd, best.odd_to_even),
    np.sqrt((even.var(ddof=1) + odd.var(ddof=1)) / 2),
    even,
    odd,
  )


def rows(numbers: Mapping[str, Halves]) -> list[Row]:
  return by_duration(
    numbers,
    (
      "correlation of the halves",
      {name: paper.STATED[f"halves {name}"] for name in ("short", "long")},
      lambda n: Estimate(n.correlation, *n.correlation_interval),
    ),
    (
      "gain of the top quarter on the other half",
      paper.TOP_QUARTER_GAIN,
      lambda n: format_interval(n.quarter_gain, *n.quarter_gain_interval, 100, " %"),
    ),
    (
      "gain of the best run on the other half",
      paper.BEST_RUN_GAIN,
      lambda n: (
        f"{format_percent(n.best_gain[0], n.sd)} and {format_percent(n.best_gain[1], n.sd)}"
      ),
    ),
  )


def plot(numbers: Mapping[str, Halves], axes: np.ndarray) -> None:
  for ax, n in zip(axes, numbers.values(), strict=True):
    plots.split_scatter(n.even, n.odd, ax, correlation=n.correlation)
    ends = (
      min(ax.get_xlim()[0], ax.get_ylim()[0]),
      max(ax.get_xlim()[1], ax.get_ylim()[1]),
    )
    ax.set(xlim=ends, ylim=ends)
    for drawn in ax.collections:
      counts = drawn.get_array()
      if counts is not None and np.nanmax(counts) > 20:  # most lie in few cells
        drawn.set_norm(LogNorm(1, np.nanmax(counts)))
    ax.set_title(frame.format_duration(n.epochs), pad=22)
