"""Bouthillier et al. 2021, figure 2: a test set of n' examples explains most of what
other data change.

If each answer went wrong with the same probability τ, independently of the others, the
accuracy's variance would be τ (1 - τ)/n'.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.measures import Ratio
from experiments.claims import Estimate, between
from experiments.frame import Row, Trained, of_runs, percent
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 2: the sd where the data vary beside that of a binomial"
MISSING = "the sizes of other test sets: the paper has three tasks, here is one"


class Binomial(NamedTuple):
  """The standard deviation where the data alone vary; intervals of 95 %, over
  repetitions.
  """

  examples: int  # n'
  error: float  # τ
  binomial: float  # sd
  observed: Ratio  # sd
  runs: str


def compute(trained: Trained) -> Binomial:
  return binomial(
    measures.repetitions(trained, "data"), measures.tested(trained, "A_data").examples
  )


def binomial(
  accuracies: Float[np.ndarray, "repetitions measures"], examples: int
) -> Binomial:
  error, within = (1 - accuracies.mean()), accuracies.var(axis=1, ddof=1)
  variance = np.array([within.mean(), *stats.mean_interval(within)])
  observed = Ratio(*np.sqrt(np.maximum(variance, 0)))
  runs = " × ".join(map(str, accuracies.shape))
  return Binomial(
    examples, error, np.sqrt(error * (1 - error) / examples), observed, runs
  )


def rows(n: Binomial) -> list[Row]:
  ratio = Estimate(*(x / n.binomial for x in n.observed), "log")
  return of_runs(
    n.runs,
    ("mean error", None, percent(n.error)),
    (f"sd of a binomial of {n.examples} examples", None, percent(n.binomial)),
    ("sd, data (bootstrap) alone", None, between(*n.observed, 100, " %")),
    ("... over that of a binomial", paper.CLAIMS["binomial"], ratio),
  )


def plot(n: Binomial, axes: np.ndarray) -> None:
  (ax,) = axes
  sizes = np.geomspace(n.examples / 10, n.examples * 10, 100)
  label = f"binomial, error {percent(n.error)}"
  ax.semilogx(
    sizes,
    100 * n.binomial * np.sqrt(n.examples / sizes),
    ":",
    color=plots.INK,
    label=label,
  )
  value, low, high = (100 * x for x in n.observed)
  reach = [[value - low], [high - value]]
  ax.errorbar(
    n.examples,
    value,
    reach,
    fmt="x",
    color=plots.BLUE,
    capsize=3,
    label="where the data vary",
  )
  ax.set(
    xlabel="test examples n'",
    ylabel="sd of accuracy (percentage points)",
    ylim=(0, None),
  )
  ax.grid(True)
  ax.legend()
