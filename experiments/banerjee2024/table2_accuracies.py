"""Banerjee 2024, table 2 and figure 7: runs whose α̂ is small are not among the least
accurate.

The converse does not hold: runs with a good accuracy may have a large α̂. The order of
the batches matters more for accuracy than initialisation does.
"""

from collections.abc import Mapping

import numpy as np

from experiments.banerjee2024 import candidates, paper
from experiments.banerjee2024.candidates import Source
from experiments.estimates import Estimate, format_interval, student_estimate
from experiments.frame import Row, Trained, format_percent, row, rows_of
from vmapseeds import stats

TITLE = "Table 2, figure 7: accuracies by what varies, and where α̂ is small"
PANELS = 3


def compute(trained: Trained) -> dict[str, Source]:
  return candidates.candidates_by_source(trained)


def rows(numbers: Mapping[str, Source]) -> list[Row]:
  table = []
  for name, n in numbers.items():
    table += source_rows(name, n)
  return [*table, *order_over_init_rows(numbers)]


def source_rows(name: str, n: Source) -> list[Row]:
  """The rows of one source."""
  printed = paper.SOURCES[name]
  wrong = 1 - n.accuracy.accuracies
  out = candidates.excluded(wrong, n.small)
  tau, tau_se = candidates.tau(n.order, wrong)
  share = n.small.mean()
  # For S_init the paper has small α̂ at all accuracies.
  judged = {} if name == "S_init" else paper.STATED
  return rows_of(
    n.runs,
    (
      f"{name}: mean accuracy",
      (printed.accuracy.mean, "table 2"),
      format_percent(n.accuracy.mean, n.accuracy.mean_se),
    ),
    (
      f"{name}: sd of accuracy",
      (printed.accuracy.sd, "table 2"),
      format_percent(n.accuracy.sd, n.accuracy.sd_se),
    ),
    (
      f"{name}: accuracies",
      (candidates.span(printed.accuracies), "table 2"),
      candidates.span(n.accuracy.accuracies),
    ),
    (
      f"{name}: accuracies where α̂ is small",
      (candidates.span(printed.accuracies_small), "table 2"),
      candidates.span(n.accuracy.accuracies[n.small]),
    ),
    (
      f"{name}: runs less accurate than all with a small α̂",
      judged.get("accuracies"),
      f"{out.runs} (p = {out.p_value:.2g})",
    ),
    (
      f"{name}: accuracy of the ensemble",
      (printed.of_ensemble, "table 2"),
      format_percent(n.ensemble_accuracy),
    ),
    (
      f"{name}: α̂ ≤ {candidates.SMALL}",
      None,
      format_interval(
        share, *stats.proportion_over_examples(share, n.runs).interval, 100, " %"
      ),
    ),
    (
      f"{name}: runs that diverged; candidates at chance, which are left out",
      None,
      f"{n.diverged}; {len(n.at_chance)}",
    ),
    (
      f"{name}: replicates that accepted no level",
      None,
      f"{n.failed.sum()}, of {(n.failed > 0).sum()} runs",
    ),
    (
      f"{name}: τ of α̂ with the error",
      judged.get("tau"),
      student_estimate(tau, tau_se),
    ),
  )


def order_over_init_rows(numbers: Mapping[str, Source]) -> list[Row]:
  """The variance where the order varies over that where the initialisation does."""
  init = numbers["S_init"]
  batch = numbers["S_batch"]
  claim = paper.STATED["order"]
  learnt = accuracy_variance_ratio(batch.accuracy.accuracies, init.accuracy.accuracies)
  table = [row(claim.statistic, claim, learnt, batch.runs)]
  if len(init.at_chance) + len(batch.at_chance):
    # Not judged: one such run decides it, and equal laws would often seem to differ.
    every_batch = np.append(batch.accuracy.accuracies, batch.at_chance)
    every_init = np.append(init.accuracy.accuracies, init.at_chance)
    quantity = f"{claim.statistic}, with runs at chance"
    table.append(
      row(quantity, None, accuracy_variance_ratio(every_batch, every_init), batch.runs)
    )
  return table


def accuracy_variance_ratio(a: np.ndarray, b: np.ndarray) -> Estimate:
  """The ratio of the variances of some accuracies and others."""
  ratio = stats.variance_ratio(a, b, paired=False)
  return Estimate(ratio.value, *ratio.interval)


def plot(numbers: Mapping[str, Source], axes: np.ndarray) -> None:
  for ax, (name, n) in zip(axes, numbers.items(), strict=True):
    candidates.scatter(
      ax,
      {name: n},
      lambda s: s.accuracy.accuracies,
      "test accuracy (%)",
    )
    ax.set_title(name)
