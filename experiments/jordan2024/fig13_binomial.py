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
from experiments.claims import Estimate
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
  drawn = np.random.default_rng(0).binomial(n, observed.mean, tallies.runs) / n
  return BinomialFit(
    epochs,
    observed,
    {k: safe_ratio(v, observed.sd**2) for k, v in predicted.items()},
    {k: (safe_ratio(v, high), safe_ratio(v, low)) for k, v in predicted.items()},
    {"binomial": drawn, "independent": simulated(tallies)},
  )


def safe_ratio(a: float, b: float) -> float:
  """a/b; NaN where that is not defined, as it is if all runs have the same accuracy."""
  return a / b if b else math.nan


def rows(numbers: BinomialFit) -> list[Row]:
  n = numbers
  return [
    row(
      f"variance, {name} over observed",
      paper.CLAIMS[name],
      Estimate(n.over_observed[name], *n.intervals[name], "log"),
      n.observed.runs,
    )
    for name in ("binomial", "independent")
  ]


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
