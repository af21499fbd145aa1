"""Bouthillier et al. 2021, figure 2: a test set of n' examples explains most of what
other data change.

If each answer went wrong with the same probability τ, independently of the others, the
accuracy's variance would be τ (1 - τ)/n'.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import tasks
from experiments.bouthillier2021.measures import Ratio
from experiments.estimates import Estimate, format_interval
from experiments.frame import Row, Trained, format_percent, rows_of
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 2: the sd where the data vary beside that of a binomial"


class BinomialSpread(NamedTuple):
  """The standard deviation where the data alone vary; intervals of 95 %, over
  repetitions.
  """

  examples: int  # n'
  error: float  # τ
  binomial: float  # sd
  observed: Ratio  # sd
  runs: str


def compute(trained: Trained) -> dict[str, BinomialSpread]:
  return {
    name: spread_beside_binomial(
      measures.accuracies_by_source(trained, name)["data"],
      measures.test_examples(trained, name),
    )
    for name, task in tasks(trained.scale).items()
    if not task.recipe.metrics  # of which a mean of errors is no measure
  }


def spread_beside_binomial(
  accuracies: Float[np.ndarray, "repetitions measures"],
  examples: int,
) -> BinomialSpread:
  error = 1 - accuracies.mean()
  within = accuracies.var(axis=1, ddof=1)
  variance = np.array([within.mean(), *stats.mean_over_runs(within).interval])
  observed = Ratio(*np.sqrt(np.maximum(variance, 0)))
  runs = " × ".join(map(str, accuracies.shape))
  return BinomialSpread(
    examples,
    error,
    np.sqrt(error * (1 - error) / examples),
    observed,
    runs,
  )


def rows(numbers: Mapping[str, BinomialSpread]) -> list[Row]:
  table = []
  for task, n in numbers.items():
    ratio = Estimate(*(x / n.binomial for x in n.observed))
    ours = f"{format_percent(n.binomial)}, of {n.examples} examples, mean error {format_percent(n.error)}"
    table += rows_of(
      n.runs,
      (f"{task}: sd of a binomial", None, ours),
      (
        f"{task}: sd, data (bootstrap) alone",
        None,
        format_interval(*n.observed, 100, " %"),
      ),
      ("... over that of a binomial", paper.STATED["binomial"], ratio),
    )
  return table


def plot(numbers: Mapping[str, BinomialSpread], axes: np.ndarray) -> None:
  (ax,) = axes
  every = [n.examples for n in numbers.values()]
  sizes = np.geomspace(min(every) / 3, max(every) * 10, 100)
  colors = (plots.ORANGE, plots.BLUE, plots.GREEN, plots.PURPLE)
  for (task, n), color in zip(numbers.items(), colors, strict=False):
    ax.loglog(
      sizes,
      100 * n.binomial * np.sqrt(n.examples / sizes),
      ":",
      color=color,
      label=f"binomial, {task}: error {format_percent(n.error)}",
    )
    value, low, high = 100 * np.array(n.observed)
    reach = [[value - low], [high - value]]
    ax.errorbar(
      n.examples,
      value,
      reach,
      fmt="x",
      color=color,
      capsize=3,
      label=f"{task}, data drawn anew",
    )
  ax.set(
    xlabel="test examples n'",
    ylabel="sd of accuracy (percentage points)",
  )
  ax.grid(True)
  ax.legend(loc="upper left", bbox_to_anchor=(0, -0.18))
