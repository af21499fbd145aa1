"""Jiang 2022, figure 9: under a shift of the distribution, the gap of error and
disagreement goes with CACE.
"""

from typing import NamedTuple

import jax
import numpy as np

from experiments import measures
from experiments.frame import Row, Trained, between, number
from experiments.jiang2022 import shift
from experiments.jiang2022.shift import MISSING, Transfers  # noqa: F401
from vmapseeds import stats

TITLE = (
  "Figure 9: the gap against the calibration error under a shift of the distribution"
)
PANELS = 4
PLACE = "appendix D.1, table 2"
R_SQUARED = 0.66


class Numbers(NamedTuple):
  transfers: Transfers
  r_squared: tuple[
    float, float, float
  ]  # of gap and CACE over all transfers, with its interval


def compute(trained: Trained) -> Numbers:
  transfers = shift.compute(trained)
  return Numbers(
    transfers,
    correlated(*np.array([(n.cace, n.gap) for _, _, n in shift.each(transfers)]).T),
  )


def correlated(cace: np.ndarray, gap: np.ndarray) -> tuple[float, float, float]:
  """R² and its interval by the bootstrap over transfers."""
  times = stats.resamples(len(cace), key=jax.random.key(0), replicates=400)
  rows = (np.repeat(np.arange(len(cace)), counts) for counts in times)
  _, low, high = stats.from_replicates(
    [measures.r_squared(cace[some], gap[some]) for some in rows]
  )
  return measures.r_squared(cace, gap), low, high


def rows(numbers: Numbers) -> list[Row]:
  """Table 2 has no R². `R_SQUARED` is from its 16 rows of networks not pretrained, with
  swapped columns put right.
  """
  value, low, high = numbers.r_squared
  runs = max(n.runs for _, _, n in shift.each(numbers.transfers))
  made = [
    Row(
      "R² of gap and CACE",
      (f"{R_SQUARED} (of 16 rows)", PLACE),
      between(value, low, high),
      runs,
      high >= R_SQUARED,
    )
  ]
  for source, target, n in shift.each(numbers.transfers):
    ours = f"gap {number(n.gap, n.gap_se)}, CACE {number(n.cace, n.cace_se)}"
    bounded = n.gap - 2 * n.gap_se <= n.cace
    made.append(
      Row(
        f"gap and CACE, {source} to {target}",
        ("gap below CACE", PLACE),
        ours,
        n.runs,
        bounded,
      )
    )
  return made


def plot(numbers: Numbers, axes: np.ndarray) -> None:
  shift.plot(numbers.transfers, axes, lambda n: (n.cace, n.gap))
  for ax in axes:
    shift.diagonal(ax, "gap = CACE")
    ax.set_xlabel("CACE of all runs")
    ax.set_ylabel("|error − disagreement|")
  axes[0].legend()
