"""Jordan 2024, figure 13 [14]: the binomial approximation overestimates the variance of
test-set accuracy.

It treats all examples as equally hard. Where runs hardly differ on the distribution,
independent errors with each example's own error rate give a better estimate.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments import frame
from experiments.estimates import Estimate
from experiments.frame import Row, Spread, Trained, row
from experiments.jordan2024 import paper
from experiments.jordan2024.fig03_independent_errors import draw_histograms, simulated
from vmapseeds import stats

TITLE = "Figure 13 [14]: the binomial approximation overestimates variance"


class BinomialFit(NamedTuple):
  """Observed accuracies, and as many simulated ones. Ratios are of predicted variances
  over the observed one.
  """

  epochs: int
  observed: Spread
  over_observed: dict[str, float]
  # 95 % over runs, the prediction taken as known
  intervals: dict[str, tuple[float, float]]
  simulated: dict[str, Float[np.ndarray, " runs"]]  # accuracies


def compute(trained: Trained) -> BinomialFit:
  return compare_with_binomial(trained.epochs("long"), trained.tallies("long"))


def compare_with_binomial(epochs: int, tallies: stats.Tallies) -> BinomialFit:
  observed = frame.spread_of(tallies)
  n = tallies.examples
  predicted = {
    "binomial": stats.binomial_variance(1 - observed.mean, n),
    "independent": tallies.independent_errors_variance().value,
  }
  low, high = stats.variance_over_runs(observed.accuracies).interval
  over_observed = {}
  intervals = {}
  for name, variance in predicted.items():
    over_observed[name] = safe_ratio(variance, observed.sd**2)
    # The larger the observed variance, the smaller the ratio.
    intervals[name] = (safe_ratio(variance, high), safe_ratio(variance, low))
  rng = np.random.default_rng(0)
  drawn = rng.binomial(n, observed.mean, tallies.runs) / n
  samples = {"binomial": drawn, "independent": simulated(tallies)}
  return BinomialFit(epochs, observed, over_observed, intervals, samples)


def safe_ratio(a: float, b: float) -> float:
  """a/b; NaN where that is not defined, as it is if all runs have the same accuracy."""
  return a / b if b else math.nan


def rows(numbers: BinomialFit) -> list[Row]:
  lines = []
  for name in ("binomial", "independent"):
    low, high = numbers.intervals[name]
    ratio = Estimate(numbers.over_observed[name], low, high)
    quantity = f"variance, {name} over observed"
    lines.append(row(quantity, paper.STATED[name], ratio, numbers.observed.runs))
  return lines


def plot(numbers: BinomialFit, axes: np.ndarray) -> None:
  n = numbers
  sd = {name: n.observed.sd * math.sqrt(x) for name, x in n.over_observed.items()}
  groups = {
    "observed": (n.observed.accuracies, n.observed.sd),
    "independent errors": (n.simulated["independent"], sd["independent"]),
    "binomial": (n.simulated["binomial"], sd["binomial"]),
  }
  draw_histograms(groups, axes[0], n.observed.examples)
  axes[0].set_title(
    f"{frame.format_duration(numbers.epochs)}, {numbers.observed.runs:,} runs"
  )
