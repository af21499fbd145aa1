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
from experiments.frame import Row, Spread, Trained, between
from experiments.jordan2024 import paper
from experiments.jordan2024.fig03_independent_errors import histograms, simulated
from vmapseeds import stats

TITLE = "Figure 13 [14]: the binomial approximation overestimates variance"


class Binomial(NamedTuple):
  """Observed accuracies, and as many simulated ones. Ratios are of predicted variances
  over the observed one.
  """

  epochs: int
  observed: Spread
  over_observed: dict[str, float]
  intervals: dict[
    str, tuple[float, float]
  ]  # 95 % over runs, the prediction taken as known
  simulated: dict[str, Float[np.ndarray, " runs"]]  # accuracies


def compute(trained: Trained) -> Binomial:
  return binomial(trained.epochs("long"), trained.tallies("long"))


def binomial(epochs: int, tallies: stats.Tallies) -> Binomial:
  observed, n = frame.spread(tallies), tallies.examples
  predicted = {
    "binomial": stats.binomial_variance(1 - observed.mean, n),
    "independent": tallies.independent_errors_variance(),
  }
  low, high = stats.variance_interval(observed.accuracies)
  drawn = np.random.default_rng(0).binomial(n, observed.mean, tallies.runs) / n
  return Binomial(
    epochs,
    observed,
    {k: over(v, observed.sd**2) for k, v in predicted.items()},
    {k: (over(v, high), over(v, low)) for k, v in predicted.items()},
    {"binomial": drawn, "independent": simulated(tallies)},
  )


def over(a: float, b: float) -> float:
  """a/b; NaN where that is not defined, as it is if all runs have the same accuracy."""
  return a / b if b else math.nan


def rows(numbers: Binomial) -> list[Row]:
  n = numbers
  low, high = n.intervals["binomial"]
  over = True if low > 1 else False if high < 1 else None
  # Which prediction is nearer to the observed variance? Asked at both ends of its
  # interval.
  nearer = {
    abs(math.log(i)) < abs(math.log(b))
    for i, b in zip(n.intervals["independent"], (low, high), strict=True)
  }
  nearer = nearer.pop() if len(nearer) == 1 else None
  why = {None: f"{n.observed.runs} runs leave it open", True: ""}
  genuine = (
    "runs differ on the distribution itself, which this approximation leaves out"
  )
  return [
    Row(
      f"variance, {name} over observed",
      printed,
      between(n.over_observed[name], *n.intervals[name]),
      n.observed.runs,
      holds,
      why.get(holds, genuine),
    )
    for name, printed, holds in (
      ("binomial", paper.BINOMIAL_OVER_OBSERVED, over),
      ("independent", paper.INDEPENDENT_OVER_OBSERVED, nearer),
    )
  ]


def plot(numbers: Binomial, axes: np.ndarray) -> None:
  groups = {
    "observed": numbers.observed.accuracies,
    "independent errors": numbers.simulated["independent"],
  }
  histograms(
    groups | {"binomial": numbers.simulated["binomial"]},
    axes[0],
    numbers.observed.examples,
  )
  axes[0].set_title(f"{frame.duration(numbers.epochs)}, {numbers.observed.runs} runs")
