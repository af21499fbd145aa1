"""Bouthillier et al. 2021, figure 4: the ideal estimator searches hyperparameters anew
for each measure, the biased ones once a repetition.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import searched_tasks
from experiments.frame import Row, Trained, percent, row
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 4: measures of the ideal and of the biased estimators, on breast cancer"
PANELS = 4
FEW = 20  # searches, as section 3.3 has
TASK = "breast_cancer"
STYLES = {
  "init": (":", plots.PURPLE),
  "data": ("--", plots.ORANGE),
  "all": ("-.", plots.GREEN),
}


class Measures(NamedTuple):
  """The measures of each estimator, a row a repetition; the ideal one has a single
  repetition.
  """

  trials: int  # of a search
  of: dict[str, Float[np.ndarray, "repetitions measures"]]


def compute(trained: Trained) -> Measures:
  ideal, biased = measures.by_estimator(trained, TASK)
  of = {"ideal": ideal[None], **biased}
  return Measures(searched_tasks(trained.scale)[TASK].searched.trials, of)


def rows(n: Measures) -> list[Row]:
  table = []
  for name, x in n.of.items():
    of = " × ".join(map(str, x.shape))
    if name == "ideal":
      mean = percent(x.mean(), x.std(ddof=1) / np.sqrt(x.size))
      table.append(row("mean, IdealEst", None, mean, of))
    else:
      mean = percent(x.mean(), x.mean(axis=1).std(ddof=1) / np.sqrt(len(x)))
      table.append(row(f"mean, FixHOptEst(k, {name})", None, mean, of))
  searched = n.of["ideal"][0]
  if len(searched) > 2 * FEW:
    ratios = beside_the_others(searched)
    within = sum(of.low <= 1 <= of.high for of in ratios)
    said = f"{', '.join(f'{of:.2f}' for of in ratios)}: 1 is in {within} of {len(ratios)} intervals"
    quantity = f"variance between {FEW} searches over that between the others"
    table.append(row(quantity, None, said, f"{FEW} and {len(searched) - FEW}"))
  k, trials = n.of["all"].shape[1], n.trials
  cost = f"{k * trials:,} and {k + trials}: {k * trials / (k + trials):.3g} times"
  return [*table, row(f"trainings of {k} measures", paper.COST, cost, "exact")]


def beside_the_others(
  searched: Float[np.ndarray, " searches"],
) -> list[stats.Estimate]:
  """Return the variance of each `FEW` searches over that of all others, with intervals of
  95 %.
  """
  return [
    stats.variance_ratio(
      searched[i : i + FEW],
      np.delete(searched, slice(i, i + FEW)),
      paired=False,
    )
    for i in range(0, len(searched) - FEW + 1, FEW)
  ]


def plot(n: Measures, axes: np.ndarray) -> None:
  """Points are measures, bars the means of repetitions; dotted, the ideal mean."""
  low = min(np.quantile(x, 0.005) for x in n.of.values())
  rng = np.random.default_rng(0)
  for ax, (name, x) in zip(axes, n.of.items(), strict=True):
    color = plots.BLUE if name == "ideal" else STYLES[name][1]
    place = np.arange(1, len(x) + 1)
    # Accuracies lie on steps of the test set.
    spread = place[:, None] + rng.uniform(-0.35, 0.35, x.shape)
    ax.plot(spread.ravel(), 100 * x.ravel(), ".", color=color, alpha=0.5, markersize=3)
    ax.hlines(100 * x.mean(axis=1), place - 0.45, place + 0.45, color=plots.INK)
    ax.axhline(
      100 * n.of["ideal"].mean(), color=plots.INK, linewidth=0.8, linestyle=":"
    )
    said = "IdealEst" if name == "ideal" else f"FixHOptEst(k, {name})"
    ax.set(
      title=f"{said}: {x.shape[1]} measures",
      xlabel="repetition",
      ylabel="accuracy (%)",
      ylim=(100 * low - 1, 100.5),
      xlim=(0, len(x) + 1),
      xticks=place if len(x) < 5 else range(0, len(x) + 1, 5),
    )
