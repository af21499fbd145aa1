"""Banerjee 2024, figures 9 to 11: α̂ beside accuracy, churn and calibration, one of
which alone does not tell it.

Runs with a small α̂ are good by all three. Some runs that are good by one have a large
α̂, as they are worse by another. So at equal accuracy α̂ has to tell runs with little
churn and good calibration from the others: this is their partial correlation.
"""

from collections.abc import Callable, Mapping

import numpy as np

from experiments import frame
from experiments.banerjee2024 import candidates, paper
from experiments.banerjee2024.candidates import Source
from experiments.claims import estimated
from experiments.frame import Row, Trained, row

TITLE = "Figures 9 to 11: α̂ beside accuracy, churn and calibration"
PANELS = 5
LISTED = len(paper.TABLE11)
METRICS = {
  "accuracy": ("test accuracy (%)", lambda s: s.accuracy.accuracies, -1),
  "churn": ("churn with the ensemble (%)", lambda s: s.churn, 1),
  "ECE": ("expected calibration error (%)", lambda s: s.ece, 1),
}


def compute(trained: Trained) -> dict[str, Source]:
  return candidates.sources(trained)


def rows(numbers: Mapping[str, Source]) -> list[Row]:
  table = []
  for name, n in numbers.items():
    for metric, (_, of, worse) in METRICS.items():
      tau, se = candidates.tau(n.order, worse * of(n))
      table.append(
        row(
          f"{name}: τ of α̂ with {metric}",
          paper.CLAIMS["tau"] if name == "S_all" else None,
          frame.number(worse * tau, se),
          n.runs,
          estimated(tau, se),
        )
      )
  for metric, of in {
    "churn": lambda s: s.churn,
    "mean churn": lambda s: s.mean_churn,
    "ECE": lambda s: s.ece,
  }.items():
    table += at_equal_accuracy(numbers, metric, of)
  listed = zip(paper.TABLE11, candidates.like(numbers["S_all"], LISTED), strict=False)
  for i, (printed, ours) in enumerate(listed, 1):
    stated = candidates.in_words(*printed), "figure 11"
    table.append(row(f"S_all: no. {i} by accuracy", stated, ours, 1))
  return table


def at_equal_accuracy(
  numbers: Mapping[str, Source], metric: str, of: Callable[[Source], np.ndarray]
) -> list[Row]:
  """The correlation of α̂ with a metric given accuracy, of each source and of all, and
  what accuracy alone tells of the metric.
  """
  of_source = {
    name: (
      candidates.partial(n.order, of(n), n.accuracy.accuracies),
      candidates.rank_correlation(n.accuracy.accuracies, of(n)),
    )
    for name, n in numbers.items()
  }
  of_all = (candidates.together(each) for each in zip(*of_source.values(), strict=True))
  runs = {name: n.runs for name, n in numbers.items()}
  return [
    row(f"{name}: {said}", claim, each.estimate(), count)
    for name, pair, count in (
      *((name, pair, runs[name]) for name, pair in of_source.items()),
      ("all", tuple(of_all), sum(runs.values())),
    )
    for said, claim, each in zip(
      (f"ρ of α̂ with {metric}, given accuracy", f"ρ of accuracy with {metric}"),
      (paper.CLAIMS["partial"] if name == "all" else None, None),
      pair,
      strict=True,
    )
  ]


def plot(numbers: Mapping[str, Source], axes: np.ndarray) -> None:
  """Figure 9 for all sources; figure 10 for S_all, two metrics at a time."""
  for ax, (label, of, _) in zip(axes[:3], METRICS.values(), strict=True):
    candidates.scatter(ax, numbers, of, label)
  axes[1].legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
  candidates.beside(numbers["S_all"], axes[3:])
