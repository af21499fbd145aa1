"""Bouthillier et al. 2021, figure I.6: how often each way to compare finds the better
recipe, by the number of pairs and by γ.

Thresholds of differences follow from γ: δ = √2 Φ⁻¹(γ) σ. All rates are exact.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments.bouthillier2021 import fig06_detection
from experiments.bouthillier2021.fig05_standard_errors import STYLES
from experiments.bouthillier2021.paper import GAMMA, PAIRS
from experiments.frame import Row, Trained, rows_of
from experiments.measures.detection import (
  equivalent_threshold,
  operating_characteristics,
)
from vmapseeds.reports import plots

TITLE = "Figure I.6: detection rates by sample size and γ"
PANELS = 4
SIZES = np.arange(5, 101)
GAMMAS = np.round(np.arange(0.55, 0.96, 0.01), 2)
TRUE = (0.5, 0.75)  # P(A > B)
CRITERIA = {
  "single_point": ("one run each", plots.GREEN),
  "average": ("averages", plots.ORANGE),
  "outperforming": ("P(A > B)", plots.PURPLE),
}
Rates = dict[str, dict[str, Float[np.ndarray, "true points"]]]


class Robustness(NamedTuple):
  """Rates by estimator and criterion: of `PAIRS` by γ, and at `GAMMA` by pairs."""

  rho: dict[str, float]
  by_size: Rates
  by_gamma: Rates


def compute(trained: Trained) -> Robustness:
  return robustness({"ideal": 0.0, "all": fig06_detection.rho_of(trained)["all"]})


def robustness(rho: Mapping[str, float]) -> Robustness:
  sizes = [(size, GAMMA) for size in SIZES]
  gammas = [(PAIRS, gamma) for gamma in GAMMAS]
  by_size = {}
  by_gamma = {}
  for name, correlation in rho.items():
    by_size[name] = rates_of_criteria(correlation, sizes)
    by_gamma[name] = rates_of_criteria(correlation, gammas)
  return Robustness(dict(rho), by_size, by_gamma)


def rates_of_criteria(
  rho: float,
  settings,
) -> dict[str, Float[np.ndarray, "true points"]]:
  """Return the rates of each criterion at each true P(A > B) and (pairs, γ)."""
  characteristics = [
    operating_characteristics(
      TRUE,
      rho,
      int(n),
      float(g),
      float(equivalent_threshold(g)),
    )
    for n, g in settings
  ]
  rates = {}
  for name in CRITERIA:
    by_setting = [getattr(each, name) for each in characteristics]
    rates[name] = np.array(by_setting).T
  return rates


def rows(n: Robustness) -> list[Row]:
  table = []
  for name in n.rho:
    which = "independent runs" if name == "ideal" else f"FixHOptEst({name})"
    by_size = n.by_size[name]["outperforming"][1]
    by_gamma = n.by_gamma[name]["outperforming"][1]
    sizes = ", ".join(f"{by_size[k == SIZES][0]:.2f}" for k in (10, 50, 100))
    gammas = ", ".join(f"{by_gamma[g == GAMMAS][0]:.2f}" for g in (0.6, 0.75, 0.9))
    table += rows_of(
      "exact",
      (f"P(A > B) found at 0.75 with 10, 50, 100 pairs, {which}", None, sizes),
      (f"... with γ = 0.6, 0.75, 0.9 and {PAIRS} pairs", None, gammas),
    )
  return table


def plot(n: Robustness, axes: np.ndarray) -> None:
  """Left: nothing to be found; right: A is better. Lines are of the ideal estimator,
  broken ones of the biased one.
  """
  grids = (
    (SIZES, n.by_size, f"pairs, γ = {GAMMA}"),
    (GAMMAS, n.by_gamma, f"γ, {PAIRS} pairs"),
  )
  rows_of_axes = axes.reshape(2, 2)
  for row, (grid, by_estimator, quantity) in zip(rows_of_axes, grids, strict=True):
    for i, ax in enumerate(row):
      draw_curves(by_estimator, i, grid, ax)
      ax.set(xlabel=quantity, ylabel="rate of “A is better”", ylim=(-0.02, 1.02))
      ax.set_title(f"true P(A > B) = {TRUE[i]}", fontsize="medium")
  biased = f"FixHOptEst(all), ρ = {n.rho['all']:.2f}"
  axes[0].plot([], [], STYLES["all"][0], color=plots.INK, label=biased)
  axes[0].legend()


def draw_curves(
  by_estimator: Mapping[str, Mapping[str, np.ndarray]],
  truth: int,
  grid: np.ndarray,
  ax: Axes,
) -> None:
  """Draws the rates of each estimator and criterion at one of the true P(A > B)."""
  for name, (criterion, color) in CRITERIA.items():
    for estimator, by_criterion in by_estimator.items():
      is_ideal = estimator == "ideal"
      if name == "single_point" and not is_ideal:
        continue  # one run has nothing to share
      style = "-" if is_ideal else STYLES[estimator][0]
      label = criterion if is_ideal else None
      ax.plot(grid, by_criterion[name][truth], style, color=color, label=label)
