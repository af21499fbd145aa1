"""Jiang 2022, theorems 4.1, B.1 and 4.2: a calibrated ensemble errs as often as its
runs disagree, others within CACE.

Theorem 4.2 is about a distribution of runs. Its finite form is exact for any R runs. It
takes all R² pairs, including those of a run with itself, and CACE with a bin for each
number of votes:

    |mean error - disagreement| <= Σ_v (1 - v/R) |Σ_{items with v votes} (hit - v/R)| / n <= CACE

Theorems 4.1 and B.1: with labels drawn from its own vote fractions, an ensemble is
  calibrated and has no gap.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments import frame, measures
from experiments.estimates import student_estimate
from experiments.frame import Row, Trained, row, rows_of
from experiments.jiang2022 import groups, paper
from experiments.jiang2022.groups import Group
from vmapseeds import stats

TITLE = "Theorems 4.1, B.1 and 4.2: the gap of error and disagreement, and the calibration error"


class Bounds(NamedTuple):
  """The quantities that theorem 4.2 orders. Pairs of a run with itself are included."""

  runs: int
  gap: float
  refined: float  # with the factor 1 - q, which the proof drops
  cace: float
  binned: float  # CACE of 10 bins, which bounds nothing
  # Error less disagreement with labels from the ensemble itself; mean over draws of
  # labels
  calibrated: float
  calibrated_se: float


def compute(trained: Trained) -> dict[str, Bounds]:
  return {
    name: bounds(group)
    for name, group in groups.read_groups(trained, "cifar10").items()
  }


def bounds(group: Group, draws: int = 50) -> Bounds:
  predictions, _, classes = group
  drawn = calibrated_gaps(predictions, classes, draws)
  return Bounds(
    len(predictions),
    stats.gde_gap(*group, self_pairs=True).value,
    *(measures.cace_exact_levels(*group, refined=refined) for refined in (True, False)),
    stats.cace(*group),
    drawn.mean(),
    (drawn.std(ddof=1) / np.sqrt(draws)),
  )


def calibrated_gaps(predictions: np.ndarray, classes: int, draws: int) -> np.ndarray:
  """Mean error less disagreement where each example's label is what a run drawn at
  random predicts.
  """
  rng = np.random.default_rng(0)
  disagreement = stats.expected_disagreement(predictions, classes, self_pairs=True)
  examples = np.arange(predictions.shape[1])
  labels = (
    predictions[rng.integers(0, len(predictions), len(examples)), examples]
    for _ in range(draws)
  )
  return np.array(
    [(predictions != of_draw).mean() - disagreement for of_draw in labels]
  )


def rows(numbers: Mapping[str, Bounds]) -> list[Row]:
  lines = []
  for group, n in numbers.items():
    lines += rows_of(
      n.runs,
      (
        f"gap if calibrated, {group}",
        paper.STATED["gap if calibrated"],
        student_estimate(n.calibrated, n.calibrated_se),
      ),
      (
        f"gap, and CACE at exact levels, {group}",
        paper.STATED["theorem 4.2"],
        f"{n.gap:.4f} ≤ {n.refined:.4f} ≤ {n.cace:.4f}",
        student_estimate(min(n.cace - n.refined, n.refined - n.gap), 0),
      ),
    )
  by_gap = sorted(numbers, key=lambda group: numbers[group].gap)
  least = by_gap[0]
  most = by_gap[-1]
  ours = f"{least} {numbers[least].cace:.3f}, {most} {numbers[most].cace:.3f}"
  printed = ("goes with the gap", "section 5, table 1")
  runs = numbers[least].runs
  return [*lines, row("CACE where the gap is least, and greatest", printed, ours, runs)]


def plot(numbers: Mapping[str, Bounds], axes: np.ndarray) -> None:
  (ax,) = axes
  labels = {
    "gap": "gap, with self-pairs",
    "refined": "bound with the factor 1 − q",
    "cace": "CACE, exact levels",
    "binned": "CACE, 10 bins: no bound",
  }
  groups.plot_fields(numbers, ax, labels, "os^x", markersize=7)
  ax.set_ylim(bottom=0)
  ax.set_ylabel("gap, calibration error")
  frame.legend_above(ax)
