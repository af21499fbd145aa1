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
from experiments.estimates import student_estimate
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
  return candidates.candidates_by_source(trained)


def rows(numbers: Mapping[str, Source]) -> list[Row]:
  table = []
  for name, n in numbers.items():
    claim = paper.STATED["tau"] if name == "S_all" else None
    for metric, (_, value_of, worse) in METRICS.items():
      tau, se = candidates.tau(n.order, worse * value_of(n))
      table.append(
        row(
          f"{name}: τ of α̂ with {metric}",
          claim,
          frame.format_number(worse * tau, se),
          n.runs,
          student_estimate(tau, se),
        )
      )
  table += at_equal_accuracy(numbers, "churn", lambda s: s.churn)
  table += at_equal_accuracy(numbers, "mean churn", lambda s: s.mean_churn)
  table += at_equal_accuracy(numbers, "ECE", lambda s: s.ece)
  most_accurate = candidates.like(numbers["S_all"], LISTED)
  # There may be fewer candidates than the paper lists.
  listed = zip(paper.TABLE11, most_accurate, strict=False)
  for i, (printed, ours) in enumerate(listed, 1):
    stated = candidates.in_words(*printed), "figure 11"
    table.append(row(f"S_all: no. {i} by accuracy", stated, ours, 1))
  return table


def at_equal_accuracy(
  numbers: Mapping[str, Source],
  metric: str,
  value_of: Callable[[Source], np.ndarray],
) -> list[Row]:
  """The correlation of α̂ with a metric given accuracy, of each source and of all, and
  what accuracy alone tells of the metric.
  """
  of_source = {}
  for name, n in numbers.items():
    values = value_of(n)
    accuracies = n.accuracy.accuracies
    partial = candidates.partial(n.order, values, accuracies)
    plain = candidates.rank_correlation(accuracies, values)
    of_source[name] = (partial, plain)
  given_accuracy = f"ρ of α̂ with {metric}, given accuracy"
  with_accuracy = f"ρ of accuracy with {metric}"
  table = []
  for name, (partial, plain) in of_source.items():
    runs = numbers[name].runs
    table.append(row(f"{name}: {given_accuracy}", None, partial.estimate(), runs))
    table.append(row(f"{name}: {with_accuracy}", None, plain.estimate(), runs))
  partials, plains = zip(*of_source.values(), strict=True)
  runs = sum(n.runs for n in numbers.values())
  partial = candidates.mean_rank(partials).estimate()
  plain = candidates.mean_rank(plains).estimate()
  table.append(row(f"all: {given_accuracy}", paper.STATED["partial"], partial, runs))
  table.append(row(f"all: {with_accuracy}", None, plain, runs))
  return table


def plot(numbers: Mapping[str, Source], axes: np.ndarray) -> None:
  """Figure 9 for all sources; figure 10 for S_all, two metrics at a time."""
  for ax, (label, value_of, _) in zip(axes[:3], METRICS.values(), strict=True):
    candidates.scatter(ax, numbers, value_of, label)
  axes[1].legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4)
  candidates.beside(numbers["S_all"], axes[3:])
