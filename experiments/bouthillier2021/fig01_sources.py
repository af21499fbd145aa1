"""Bouthillier et al. 2021, figure 1: how much of the variance of accuracy each source of randomness makes.

What the paper varies is drawn anew within a repetition, all else once a repetition; the training set is a bootstrap.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments import frame
from experiments.bouthillier2021 import measures, paper
from experiments.frame import Row, Trained, number, percent
from vmapseeds.reports import plots

TITLE = "Figure 1: variance by source, relative to that of the training set"
MISSING = "the order, augmentation and dropout alone, and hyperparameter optimisation"


class Variance(NamedTuple):
  """Of accuracies, and relative to that where the training set alone varies, with its standard error."""

  variance: float
  freedom: int  # degrees
  relative: float
  relative_se: float  # taking accuracies as normal
  runs: str


def compute(trained: Trained) -> dict[str, Variance]:
  a, _, _ = measures.pairs(trained)
  of = {name: measures.biased(measures.repetitions(trained, name)) for name in measures.HELD}
  within = {name: (b.variance, b.repetitions * (b.measures - 1), b.of) for name, b in of.items()}
  return relative({**within, "everything": (float(a.var(ddof=1)), len(a) - 1, str(len(a)))})


def relative(variances: Mapping[str, tuple[float, int, str]]) -> dict[str, Variance]:
  """Each variance beside that of `data`, which are independent of each other."""
  of_data, freedom_of_data, _ = variances["data"]
  numbers = {}
  for name, (variance, freedom, runs) in variances.items():
    ratio = variance / of_data if of_data else math.nan
    se = 0.0 if name == "data" else ratio * math.sqrt(2 / freedom + 2 / freedom_of_data)
    numbers[name] = Variance(variance, freedom, ratio, se, runs)
  return numbers


def rows(numbers: Mapping[str, Variance]) -> list[Row]:
  init = numbers["init"]
  holds = frame.above(0.5 - init.relative, init.relative_se)
  why = "the test set is one for all runs here; the paper draws one with each training set" if holds is False else ""
  return [
    *(
      Row.of(f"sd where {name} varies", None, percent(math.sqrt(n.variance), math.sqrt(n.variance / (2 * n.freedom))),
             n.runs)
      for name, n in numbers.items()
    ),
    Row.of("variance of init over that of data", paper.INIT_OVER_DATA, number(init.relative, init.relative_se),
           init.runs, holds, why),
  ]  # fmt: skip


def plot(numbers: Mapping[str, Variance], axes: np.ndarray) -> None:
  (ax,) = axes
  value, se = np.array([(n.relative, n.relative_se) for n in numbers.values()]).T
  ax.barh(list(numbers), value, xerr=se, color=plots.SKY, ecolor=plots.INK, capsize=3)
  ax.axvline(0.5, color=plots.INK, linewidth=0.9, linestyle=":", label="the paper: init mostly below")
  ax.set(xlabel="variance over that where data varies", xlim=(0, None))
  ax.legend(loc="lower right", bbox_to_anchor=(1, 1))


if __name__ == "__main__":
  frame.main(__file__)
