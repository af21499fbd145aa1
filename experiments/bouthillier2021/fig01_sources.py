"""Bouthillier et al. 2021, figure 1: how much of the variance of accuracy each source
of randomness makes.

Within a repetition, one source is drawn anew for each run; all others are drawn once.
To draw the data is to draw a bootstrap sample to train on, which leaves the other
examples to test on.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments import frame
from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import NOISE, SCALES, SOURCES
from experiments.bouthillier2021.measures import Ratio
from experiments.claims import Estimate
from experiments.frame import Row, Trained, percent, row
from vmapseeds.reports import plots

TITLE = "Figure 1: variance by source, relative to that of the data"
MISSING = "hyperparameter optimisation"
NAMES = {
  "data": "data (bootstrap)",
  "augment": "data augmentation",
  "order": "data order",
  "init": "weights init",
  "dropout": "dropout",
  "everything": "everything",
  NOISE: "numerical noise",
}


class Variance(NamedTuple):
  """The variance within repetitions in which one source varies, or everything."""

  variance: float
  sd_se: float  # of its root, over repetitions
  relative: Ratio  # to the variance where the data vary
  runs: str


class Sources(NamedTuple):
  """The variances by what varies, and that of the data order over that of
  initialisation.
  """

  of: dict[str, Variance]
  order_over_init: Ratio


def compute(trained: Trained) -> Sources:
  a, _, _ = measures.pairs(trained)
  groups = SCALES[trained.scale].repetitions
  together = {"everything": a[: len(a) // groups * groups].reshape(groups, -1)}
  return sources(
    {name: measures.repetitions(trained, name) for name in (*SOURCES, NOISE)} | together
  )


def sources(accuracies: Mapping[str, Float[np.ndarray, "repetitions _"]]) -> Sources:
  """Each variance, and its ratio to that of `data`."""
  of = {}
  for name in NAMES:
    x = accuracies[name]
    within = x.var(axis=1, ddof=1)
    variance, se = within.mean(), within.std(ddof=1) / math.sqrt(len(x))
    runs = f"{len(x)} × {x.shape[1]}"
    of[name] = Variance(
      variance, frame.root(variance, se)[1], measures.ratio(x, accuracies["data"]), runs
    )
  return Sources(of, measures.ratio(accuracies["order"], accuracies["init"]))


def rows(numbers: Sources) -> list[Row]:
  data, noise = (numbers.of[name] for name in ("data", NOISE))
  table = [
    row(
      f"sd, {NAMES[name]} alone" if name in SOURCES else f"sd, {NAMES[name]}",
      None,
      percent(math.sqrt(n.variance), n.sd_se),
      n.runs,
    )
    for name, n in numbers.of.items()
    if n is not noise
  ]
  for name in SOURCES[1:]:
    table.append(
      row(
        f"variance of {NAMES[name]} over that of data",
        paper.CLAIMS["init over data" if name == "init" else "over data"],
        Estimate(*numbers.of[name].relative, "log"),
        numbers.of[name].runs,
      )
    )
  together, ratio = numbers.of["everything"], numbers.order_over_init
  alone = sum(numbers.of[name].relative.value for name in SOURCES)
  total = Estimate(*together.relative, "log")
  return [
    *table,
    row(
      "variance of everything over that of data",
      paper.CLAIMS["together"],
      f"{total}; the {len(SOURCES)} alone add to {alone:.2f}",
      together.runs,
      total,
    ),
    row(
      "variance of data order over that of weights init",
      paper.CLAIMS["order over init"],
      Estimate(*ratio, "log"),
      data.runs,
    ),
    row(
      "variance of numerical noise over that of data",
      paper.NOISE,
      f"{noise.variance / data.variance:.3g}",
      noise.runs,
    ),
  ]


def plot(numbers: Sources, axes: np.ndarray) -> None:
  (ax,) = axes
  names = list(NAMES)[::-1]
  value, low, high = np.array([numbers.of[name].relative for name in names]).T
  value[0] = numbers.of[NOISE].variance / numbers.of["data"].variance
  reach = np.nan_to_num(np.abs([low - value, high - value]))
  ax.barh(
    [NAMES[name] for name in names],
    value,
    xerr=reach,
    color=plots.SKY,
    ecolor=plots.INK,
    capsize=3,
  )
  ax.axvline(
    0.5,
    color=plots.INK,
    linewidth=0.9,
    linestyle=":",
    label="the paper: init mostly below",
  )
  ax.set(xlabel="variance over that where the data vary", xlim=(0, None))
  ax.legend(loc="lower right", bbox_to_anchor=(1, 1))
