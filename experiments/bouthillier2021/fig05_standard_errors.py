"""Bouthillier et al. 2021, figures 5 and H.4: measures that share hyperparameters are
worth few independent ones, and those that share seeds are worth fewer.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from experiments import estimates, frame
from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import searched_tasks
from experiments.bouthillier2021.measures import Biased
from experiments.frame import Row, Trained, row
from experiments.measures.estimators import estimator_se
from vmapseeds.reports import plots

TITLE = "Figures 5 and H.4: standard error of the mean of k measures"


STYLES = {
  "init": (":", plots.PURPLE),
  "data": ("--", plots.ORANGE),
  "all": ("-.", plots.GREEN),
}


class Estimators(NamedTuple):
  """A task's ideal estimator, and the biased ones by what they randomise."""

  searches: int
  variance: float  # of one measure of the ideal estimator
  biased: dict[str, Biased]


def panels(numbers: Mapping[str, Estimators]) -> int:
  return len(numbers)


def compute(trained: Trained) -> dict[str, Estimators]:
  by_task = {}
  for name in searched_tasks(trained.scale):
    ideal, fixed = measures.by_estimator(trained, name)
    biased = {what: measures.biased(x) for what, x in fixed.items()}
    by_task[name] = Estimators(len(ideal), ideal.var(ddof=1), biased)
  return by_task


def rows(numbers: Mapping[str, Estimators]) -> list[Row]:
  table = []
  for task, n in numbers.items():
    for varied, b in n.biased.items():
      worth = "—"
      if math.isfinite(b.worth):
        worth = f"{b.worth:.3g}"
      quantity = f"{task}: ρ of FixHOptEst(k, {varied})"
      claim = paper.STATED[f"worth {varied}"]
      ours = f"{b.estimate}; worth at most {worth} independent measures"
      table.append(row(quantity, claim, ours, b.of, b.estimate))
    claim = paper.STATED["bias"]
    init = n.biased["init"]
    less = estimates.difference_of(init.estimate, n.biased["data"].estimate)
    table.append(row(f"{task}: {claim.statistic}", claim, less, init.of))
  return table


def plot(numbers: Mapping[str, Estimators], axes: np.ndarray) -> None:
  """Lines are by equation 7, points are measured over repetitions; bands are one
  standard deviation of them.
  """
  for ax, (task, n) in zip(axes, numbers.items(), strict=True):
    k = np.arange(1, 1 + max(b.measures for b in n.biased.values()))
    ideal = 100 * estimator_se(k, n.variance)
    draw_normal_band(ax, k, ideal, n.searches, plots.BLUE)
    ax.plot(k, ideal, color=plots.BLUE, label=f"IdealEst, {n.searches} searches")
    for varied, b in n.biased.items():
      style, color = STYLES[varied]
      line = 100 * estimator_se(k, b.variance, b.simulated)
      ax.plot(k, line, style, color=color, label=f"{varied}: ρ = {b.correlation:z.2f}")
      # Points that are evenly apart on the logarithmic axis.
      some = np.unique(np.geomspace(1, b.measures, 12).astype(int)) - 1
      ax.plot(k[some], 100 * b.sd_of_means[some], ".", color=color, markersize=5)
      draw_normal_band(ax, k[: b.measures], 100 * b.sd_of_means, b.repetitions, color)
    ax.set(
      title=task,
      xlabel="measures k",
      ylabel="sd of their mean (percentage points)",
      ylim=(0, None),
      xscale="log",
    )
    ax.grid(True)
    frame.legend_above(ax)


def draw_normal_band(
  ax: Axes,
  k: np.ndarray,
  sd: np.ndarray,
  count: int,
  color: str,
) -> None:
  """Draw ± one standard deviation of a standard deviation of normal values."""
  reach = sd / math.sqrt(2 * (count - 1))
  ax.fill_between(k, sd - reach, sd + reach, color=color, alpha=0.15, linewidth=0)
