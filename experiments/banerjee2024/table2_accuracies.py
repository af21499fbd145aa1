"""Banerjee 2024, table 2 and figure 7: runs whose α̂ is small are not among the least
accurate.

The converse does not hold: runs with a good accuracy may have a large α̂. The order of
the batches matters more for accuracy than initialisation does.
"""

from collections.abc import Mapping

import numpy as np

from experiments import frame
from experiments.banerjee2024 import candidates, paper
from experiments.banerjee2024.candidates import Source
from experiments.frame import Row, Trained, between, of_runs, percent
from vmapseeds import stats

TITLE = "Table 2, figure 7: accuracies by what varies, and where α̂ is small"
PANELS = 3


def compute(trained: Trained) -> dict[str, Source]:
  return candidates.sources(trained)


def rows(numbers: Mapping[str, Source]) -> list[Row]:
  init, batch = (numbers[name].accuracy for name in ("S_init", "S_batch"))
  spread_more = frame.above(batch.sd - init.sd, np.hypot(batch.sd_se, init.sd_se))
  table = []
  for name, n in numbers.items():
    printed, wrong = paper.SOURCES[name], 1 - n.accuracy.accuracies
    out = candidates.excluded(wrong, n.small)
    (tau, tau_se) = candidates.tau(n.order, wrong)
    share = n.small.mean()
    judged = name != "S_init"  # for S_init the paper has small α̂ at all accuracies
    why = (
      "the order spreads accuracies less than initialisation does"
      if spread_more is False
      else ""
    )
    table += of_runs(
      n.runs,
      (
        f"{name}: mean accuracy",
        (printed.accuracy.mean, "table 2"),
        percent(n.accuracy.mean, n.accuracy.mean_se),
      ),
      (
        f"{name}: sd of accuracy",
        (printed.accuracy.sd, "table 2"),
        percent(n.accuracy.sd, n.accuracy.sd_se),
        *(spread_more, why) * (name == "S_batch"),
      ),
      (
        f"{name}: accuracies",
        (candidates.span(printed.accuracies), "table 2"),
        candidates.span(n.accuracy.accuracies),
      ),
      (
        f"{name}: accuracies where α̂ is small",
        (candidates.span(printed.accuracies_small), "table 2"),
        candidates.of_small(n.accuracy.accuracies[n.small], out),
        *candidates.leaves_out(out) * judged,
      ),
      (
        f"{name}: accuracy of the ensemble",
        (printed.of_ensemble, "table 2"),
        percent(n.ensemble_accuracy),
      ),
      (
        f"{name}: α̂ ≤ {candidates.SMALL}",
        None,
        between(share, *stats.proportion_interval(share, n.runs), 100, " %"),
      ),
      (
        f"{name}: replicates that accepted no level",
        None,
        f"{n.failed.sum()}, of {(n.failed > 0).sum()} runs",
      ),
      (
        f"{name}: τ of α̂ with the error",
        ("figure only", "figure 7"),
        frame.number(tau, tau_se),
        frame.above(tau, tau_se) if judged else None,
      ),
    )
  return table


def plot(numbers: Mapping[str, Source], axes: np.ndarray) -> None:
  for ax, (name, n) in zip(axes, numbers.items(), strict=True):
    candidates.scatter(
      ax, {name: n}, lambda s: s.accuracy.accuracies, "test accuracy (%)"
    )
    ax.set_title(name)
