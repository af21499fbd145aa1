"""Bouthillier et al. 2021, figure 5: measures that have something in common are worth
few independent ones.

In the paper, measures share their hyperparameters. Here they share the seeds of all
that a repetition does not vary.
"""

import math
from typing import NamedTuple

import numpy as np

from experiments import claims, frame
from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.measures import HELD, Biased
from experiments.frame import Row, Trained, of_runs, row
from experiments.measures.estimators import estimator_se
from vmapseeds.reports import plots

TITLE = "Figure 5: standard error of the mean of k measures"
MISSING = "FixHOptEst(k, All), which holds the hyperparameters: nothing is searched here, so it is the ideal estimator"
STYLES = {"data": ("--", plots.ORANGE), "init": (":", plots.PURPLE)}


class Estimators(NamedTuple):
  """Estimators by what varies within a repetition, beside the ideal one."""

  runs: int
  variance: float  # of one run where everything varies
  biased: dict[str, Biased]


def compute(trained: Trained) -> Estimators:
  a, _, _ = measures.pairs(trained)
  biased = {
    varied: measures.biased(measures.repetitions(trained, varied)) for varied in HELD
  }
  return Estimators(len(a), a.var(ddof=1), biased)


def rows(n: Estimators) -> list[Row]:
  table = []
  for varied, b in n.biased.items():
    worth = f"{b.worth:.3g}" if math.isfinite(b.worth) else "—"
    table += of_runs(
      b.of,
      (
        f"ρ, fixing {HELD[varied]}",
        paper.CLAIMS[f"worth {varied}"],
        b.estimate,
      ),
      (f"independent measures it is worth, fixing {HELD[varied]}", None, worth),
    )
  init, data = (n.biased[varied].estimate for varied in ("init", "data"))
  claim, of = paper.CLAIMS["bias"], n.biased["init"].of
  return [*table, row(claim.statistic, claim, claims.less(init, data), of)]


def plot(n: Estimators, axes: np.ndarray) -> None:
  """Lines are by equation 7, points are measured over repetitions."""
  (ax,) = axes
  k = np.arange(1, 1 + max(b.measures for b in n.biased.values()))
  ax.plot(
    k, 100 * estimator_se(k, n.variance), color=plots.INK, label="everything varies"
  )
  for varied, b in n.biased.items():
    style, color = STYLES[varied]
    ax.plot(
      k,
      100 * estimator_se(k, n.variance, b.simulated),
      style,
      color=color,
      label=f"{varied} varies: ρ = {b.correlation:z.2f}",
    )
    ax.plot(k[: b.measures], 100 * b.sd_of_means, ".", color=color, markersize=5)
  ax.set(
    xlabel="measures k", ylabel="sd of their mean (percentage points)", ylim=(0, None)
  )
  ax.xaxis.get_major_locator().set_params(integer=True)
  ax.grid(True)
  frame.legend_above(ax)
