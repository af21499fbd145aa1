"""Jiang 2022, figure 12: how many pairs of a test example and a class have each
confidence.

Most have a confidence near 0 or 1. Those in the middle are few, which is why the paper
aggregates over classes.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments import measures
from experiments.estimates import student_estimate
from experiments.frame import Row, format_percent, rows_of
from experiments.jiang2022 import groups, paper
from experiments.jiang2022.groups import COLORS, Group
from vmapseeds import stats

TITLE = "Figure 12: histogram of confidences"
FIFTHS = {"below 0.2": 0, "from 0.4 to 0.6": 2, "from 0.8": 4}


class Confidences(NamedTuple):
  runs: int
  counts: Int[np.ndarray, " bins"]  # pairs in each of ten bins
  shares: Float[np.ndarray, " fifths"]  # of the pairs, in each of FIFTHS
  shares_se: Float[np.ndarray, " fifths"]  # over test examples


def confidences_of_group(group: Group) -> Confidences:
  runs, examples = group.predictions.shape
  votes = np.rint(
    runs * stats.vote_fractions(group.predictions, group.num_classes)
  ).astype(int)
  fifth = np.minimum(5 * votes // runs, 4)
  by_example = np.stack([(fifth == i).mean(1) for i in FIFTHS.values()])
  counts = measures.confidence_histogram(group.predictions, group.num_classes)
  return Confidences(
    runs,
    counts,
    by_example.mean(1),
    by_example.std(1, ddof=1) / math.sqrt(examples),
  )


compute = groups.computed("cifar10", confidences_of_group)


def rows(numbers: Mapping[str, Confidences]) -> list[Row]:
  lines = []
  for name, n in numbers.items():
    _, middle, last = n.shares
    lines += rows_of(
      n.runs,
      *(
        (
          f"pairs with a confidence {fifth}, {name}",
          None,
          format_percent(n.shares[i], n.shares_se[i]),
        )
        for i, fifth in enumerate(FIFTHS)
      ),
      # Both are of the same examples: the error of the difference is at most the sum.
      (
        f"those above 0.8 less those from 0.4 to 0.6, {name}",
        paper.STATED["few confidences"],
        student_estimate(last - middle, n.shares_se[1:].sum(), unit="%"),
      ),
    )
  return lines


def plot(numbers: Mapping[str, Confidences], axes: np.ndarray) -> None:
  """Counts on a logarithmic axis."""
  (ax,) = axes
  for name, n in numbers.items():
    ax.stairs(
      n.counts,
      np.linspace(0, 100, len(n.counts) + 1),
      color=COLORS[name],
      label=f"{name}, {n.runs} runs",
    )
  ax.set(
    xlabel="confidence: runs that vote for the class (%)",
    ylabel="pairs of an example and a class",
    yscale="log",
  )
  ax.legend(loc="upper center")
