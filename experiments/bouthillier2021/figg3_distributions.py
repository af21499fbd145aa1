"""Bouthillier et al. 2021, figure G.3: accuracies over runs are close to normal, unless the test set is small."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments import frame
from experiments.bouthillier2021 import measures, paper
from experiments.frame import Row, Trained
from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.reports.summary import show

TITLE = "Figure G.3: the distribution of accuracies, everything varying"
PANELS = 2
MISSING = "the distributions of each source alone"


class Normality(NamedTuple):
  """Of the accuracies of A or of B."""

  examples: int
  p_value: float  # of Shapiro and Wilk
  accuracies: Float[np.ndarray, " runs"]


def compute(trained: Trained) -> dict[str, Normality]:
  *both, examples = measures.pairs(trained)
  return {name: Normality(examples, float(stats.normality(x).p_value), x) for name, x in zip("AB", both, strict=True)}


def rows(numbers: Mapping[str, Normality]) -> list[Row]:
  return [
    Row.of(f"p of normality, {name}", paper.NORMAL, show(n.p_value, None, "p"), len(n.accuracies), n.p_value >= 0.05,
           "" if n.p_value >= 0.05 else f"{len(set(n.accuracies))} values of {n.examples} examples, "
           f"skewness {skewness(n.accuracies):.2f}")
    for name, n in numbers.items()
  ]  # fmt: skip


def skewness(x: Float[np.ndarray, " runs"]) -> float:
  return float((((x - x.mean()) / x.std()) ** 3).mean()) if x.std() else 0.0


def plot(numbers: Mapping[str, Normality], axes: np.ndarray) -> None:
  for ax, (name, n) in zip(axes, numbers.items(), strict=True):
    plots.accuracy_histogram(n.accuracies, ax, examples=n.examples)
    ax.set_title(name)
    frame.legend_above(ax)


if __name__ == "__main__":
  frame.main(__file__)
