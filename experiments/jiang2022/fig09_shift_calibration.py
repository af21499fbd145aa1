"""Jiang 2022, figure 9: under a shift of the distribution, the gap of error and
disagreement goes with CACE.
"""

import math
from typing import NamedTuple

import jax
import numpy as np

from experiments import measures
from experiments.estimates import Estimate, student_estimate
from experiments.frame import Row, Trained, format_number, row
from experiments.jiang2022 import paper, shift
from experiments.jiang2022.shift import MISSING, Transfers  # noqa: F401
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = (
  "Figure 9: the gap against the calibration error under a shift of the distribution"
)
PANELS = 4
DASHED = {"color": plots.INK, "linestyle": "--", "linewidth": 1, "zorder": 0}


class ShiftCalibration(NamedTuple):
  transfers: Transfers
  # Of gap and CACE over all transfers, with its interval
  r_squared: tuple[float, float, float]


def compute(trained: Trained) -> ShiftCalibration:
  transfers = shift.compute(trained)
  cace = np.array([n.cace for _, _, n in shift.each(transfers)])
  gap = np.array([n.gap for _, _, n in shift.each(transfers)])
  return ShiftCalibration(transfers, correlated(cace, gap))


def correlated(cace: np.ndarray, gap: np.ndarray) -> tuple[float, float, float]:
  """R² and its interval by the bootstrap over transfers."""
  times = stats.resamples(len(cace), key=jax.random.key(0), replicates=400)
  replicates = []
  for counts in times:
    drawn = np.repeat(np.arange(len(cace)), counts)
    replicates.append(measures.r_squared(cace[drawn], gap[drawn]))
  _, low, high = stats.from_replicates(replicates)
  return measures.r_squared(cace, gap), low, high


def rows(numbers: ShiftCalibration) -> list[Row]:
  runs = max(n.runs for _, _, n in shift.each(numbers.transfers))
  claim = paper.STATED["gap and CACE"]
  bounded = paper.STATED["gap below CACE"]
  lines = [row(claim.statistic, claim, Estimate(*numbers.r_squared), runs)]
  for source, target, n in shift.each(numbers.transfers):
    gap = format_number(n.gap, n.gap_se)
    cace = format_number(n.cace, n.cace_se)
    # The bound says that the gap is no larger than CACE.
    excess = student_estimate(n.cace - n.gap, math.hypot(n.cace_se, n.gap_se))
    quantity = f"gap and CACE, {source} to {target}"
    lines.append(row(quantity, bounded, f"gap {gap}, CACE {cace}", n.runs, excess))
  return lines


def plot(numbers: ShiftCalibration, axes: np.ndarray) -> None:
  shift.plot(numbers.transfers, axes, lambda n: (n.cace, n.gap))
  for ax in axes:
    ax.set(xscale="log", yscale="log")
    ax.axline((0.1, 0.1), (1, 1), **DASHED, label="gap = CACE")
    ax.set(xlim=(0.02, 2), ylim=(0.001, 0.5))
    ax.set_xlabel("CACE of all runs")
    ax.set_ylabel("|error − disagreement|")
  axes[0].legend(loc="lower right")
