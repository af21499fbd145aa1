"""Bouthillier et al. 2021, figure C.1: how many runs it takes to find P(A > B) = γ with
a power of 95 %.

The paper's sample size is for a Mann-Whitney test of two groups that are no pairs. Its
decision is on pairs, which takes more runs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments.bouthillier2021 import paper
from experiments.bouthillier2021.paper import GAMMA
from experiments.estimates import student_estimate
from experiments.frame import Row, Trained, rows_of
from experiments.measures.criteria import (
  power_for_probability_of_outperforming,
  runs_for_probability_of_outperforming,
)
from vmapseeds.reports import plots

TITLE = "Figure C.1: how many runs find that A is better"
GRID = np.round(np.arange(0.55, 0.96, 0.05), 2)  # γ
MOST = 400  # the largest number of pairs whose power is computed


class Sizes(NamedTuple):
  """By γ of GRID; powers are exact."""

  gamma: Float[np.ndarray, " gammas"]
  noether: Int[np.ndarray, " gammas"]  # runs of each of A and B, not in pairs
  sign: Int[np.ndarray, " gammas"]  # pairs, by the normal approximation
  # Pairs from which on the decision has a power of 95 %; NaN if more than MOST
  needed: Float[np.ndarray, " gammas"]
  power: Float[np.ndarray, " gammas"]  # of the decision on as many pairs as `noether`


def compute(trained: Trained) -> Sizes:
  pairs = np.arange(1, MOST + 1)
  noether = runs_for_probability_of_outperforming(GRID, paired=False)
  sign = runs_for_probability_of_outperforming(GRID)
  power_of = power_for_probability_of_outperforming
  too_few = np.array(
    [pairs[power_of(pairs, gamma, gamma) < 0.95][-1] for gamma in GRID]
  )
  power = np.array(
    [power_of(n, gamma, gamma) for n, gamma in zip(noether, GRID, strict=True)]
  )
  return Sizes(
    GRID,
    noether,
    sign,
    np.where(too_few < MOST, too_few + 1.0, np.nan),
    power,
  )


def rows(n: Sizes) -> list[Row]:
  place = np.flatnonzero(n.gamma == GAMMA)[0]
  power = n.power[place]
  needed = n.needed[place]
  cells: list[tuple] = []
  for gamma, printed in paper.SAMPLE_SIZES.items():
    for size in n.noether[n.gamma == gamma]:
      claim = paper.STATED["size"]._replace(printed=printed)
      # "More than 700" leaves the rest open.
      least = 701 if gamma < GAMMA else 29
      beyond = student_estimate(float(size - least), 0)
      cells.append((f"runs of each of A and B, γ = {gamma}", claim, str(size), beyond))
  cells.append(
    (
      f"power of {n.noether[place]} pairs, γ = {GAMMA}",
      paper.STATED["power"],
      f"{power:.3f}; 95 % take {needed:.0f} pairs",
      student_estimate(power, 0, unit="%"),
    )
  )
  return rows_of("exact", *cells)


def plot(n: Sizes, axes: np.ndarray) -> None:
  (ax,) = axes
  ax.semilogy(
    n.gamma,
    n.noether,
    color=plots.ORANGE,
    label="the paper's: two groups, no pairs",
  )
  ax.semilogy(n.gamma, n.sign, "--", color=plots.BLUE, label="pairs, approximately")
  ax.semilogy(n.gamma, n.needed, ".", color=plots.BLUE, label="pairs, exactly")
  ax.plot(
    GAMMA,
    29,
    "D",
    color=plots.ORANGE,
    markerfacecolor="white",
    label="the paper's choice, 29",
  )
  ax.set(xlabel="P(A > B) to be found", ylabel="runs of each of A and B")
  ax.grid(True)
  ax.legend()
