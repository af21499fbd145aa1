"""How much of the variance of accuracy on the test set is on the distribution, from length
to length of training: the question behind sections 3.1 to 3.3.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments import estimates
from experiments.estimates import Estimate
from experiments.frame import Row, Trained, row
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import DURATIONS, by_duration
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Share of the variance on the test set that is on the distribution"
# From the printed deviations on the test set and on the distribution
PRINTED = {
  "short": (0.86, "from 0.56 and 0.52 %"),
  "long": (0.049, "from 0.149 and 0.033 %"),
}


class GenuineShare(NamedTuple):
  """The share with its 95 % interval over runs, what independent errors add taken as
  known.
  """

  epochs: int
  runs: int
  share: float
  interval: tuple[float, float]


def compute(trained: Trained) -> dict[str, GenuineShare]:
  return {
    d: share_of_duration(trained.epochs(d), trained.tallies(d)) for d in DURATIONS
  }


def share_of_duration(epochs: int, tallies: stats.Tallies) -> GenuineShare:
  total = tallies.test_set_variance().value
  distribution = tallies.distribution_variance()
  part = distribution.value
  # Equation 3: both have the same error, up to this factor.
  factor = 1 - 1 / tallies.examples

  def share_of_total(end: float) -> float:
    whole = factor * (end - part) + total
    return end / whole if whole > 0 else math.nan

  low, high = distribution.interval
  interval = (share_of_total(low), share_of_total(high))
  return GenuineShare(epochs, tallies.runs, share_of_total(part), interval)


def factor(short: GenuineShare, long: GenuineShare) -> Estimate:
  """Return how many times smaller the share is after the long training. It has no upper
  end where the share after the long training may be 0.
  """
  a = Estimate(short.share, *short.interval)
  b = Estimate(long.share, *long.interval)
  if min(a.low, b.low) > 0:
    return estimates.ratio_of(a, b)
  # The long training's share may be 0: then nothing bounds the ratio from above.
  value = a.value / b.value if b.value > 0 else math.inf
  low = a.low / b.high if b.high > 0 else math.nan
  return Estimate(value, low, math.inf)


def rows(numbers: Mapping[str, GenuineShare]) -> list[Row]:
  short = numbers["short"]
  long = numbers["long"]
  falls = factor(short, long)
  ours = str(falls)
  if math.isinf(falls.high):
    ours = f"more than {falls.low:.2g}"
  return [
    *by_duration(
      numbers,
      (
        "share of the variance",
        PRINTED,
        lambda n: str(Estimate(n.share, *n.interval, unit="%")),
      ),
    ),
    row(
      "share after the short over that after the long",
      paper.STATED["falls"],
      ours,
      long.runs,
      falls,
    ),
  ]


def plot(numbers: Mapping[str, GenuineShare], axes: np.ndarray) -> None:
  shares = list(numbers.values())
  ax = axes[0]
  values = 100 * np.array([(n.share, *n.interval) for n in shares])
  bars = np.abs(values[:, 1:] - values[:, :1]).T
  x = np.arange(len(shares))
  ax.errorbar(x, values[:, 0], bars, color=plots.GREEN, marker="s", capsize=3)
  ax.axhline(0, color=plots.INK, linewidth=0.8)
  ax.set_xticks(x, [str(n.epochs) for n in shares])
  plots.finish_axes(ax, "training duration (epochs)", "share of the variance (%)")
