"""Jordan 2024, figure 1: more training narrows the distribution of accuracy over runs, then no more."""

from collections.abc import Mapping

import numpy as np

from experiments import frame
from experiments.frame import Row, Spread, Trained, percent, spread
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import DURATIONS
from vmapseeds.reports import plots

TITLE = "Figure 1: accuracy distributions at four training durations"
PANELS = 4


def compute(trained: Trained) -> dict[str, Spread]:
  return {name: spread(trained.errors(name)) for name in DURATIONS}


def rows(numbers: Mapping[str, Spread]) -> list[Row]:
  narrower = numbers["long"].sd < numbers["short"].sd
  return [
    *(Row.of(f"mean accuracy, {d}", paper.MEAN.get(d), percent(n.mean, n.mean_se), n.runs) for d, n in numbers.items()),
    *(
      Row.of(f"sd of accuracy, {d}", paper.SD[d], percent(n.sd, n.sd_se), n.runs, narrower if d == "long" else None)
      for d, n in numbers.items()
    ),
    *(
      Row.of(f"best minus worst run, {d}", paper.RANGE[d], percent(np.ptp(n.accuracies)), n.runs)
      for d, n in numbers.items()
    ),
  ]


def plot(numbers: Mapping[str, Spread], axes: np.ndarray) -> None:
  for ax, (name, n) in zip(axes, numbers.items(), strict=True):
    plots.accuracy_histogram(n.accuracies, ax, examples=n.examples)
    ax.set_title(name)
    frame.legend_above(ax)


if __name__ == "__main__":
  frame.main(__file__)
