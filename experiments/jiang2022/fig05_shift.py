"""Jiang 2022, figure 5: under some shifts of the distribution, not all, disagreement
still is about the test error.

Each point is a pair of runs that are trained on one domain and tested on the same or
another: x is how often they differ, y is the error of the first.
"""

import numpy as np

from experiments import frame
from experiments.frame import Row
from experiments.jiang2022 import shift
from experiments.jiang2022.shift import MISSING, Transfers, compute  # noqa: F401

TITLE = "Figure 5: test error against disagreement under a shift of the distribution"
PANELS = 4
WITHIN = ("within 19 % of the error", "table 2")
ACROSS = ("less than the error", "table 2")


def rows(numbers: Transfers) -> list[Row]:
  """For networks that are not pretrained, table 2 has disagreement within 19 % of the
  error on the domain trained on, and below the error on other domains, in all 12 rows.
  """
  made = []
  for source, target, n in shift.each(numbers):
    error, disagreement = n.error.mean(), n.disagreement.mean()
    apart, se = paired(n)
    holds = (
      abs(apart) - 2 * se < 0.19 * error if source == target else apart - 2 * se > 0
    )
    ours = f"error {frame.percent(error)}, disagreement {frame.percent(disagreement)}, apart {frame.percent(apart, se)}"
    if not holds and abs(apart) < 2 * se:
      holds = None
    why = {False: "they disagree too often", None: f"{len(n.error)} pairs cannot tell"}
    printed = WITHIN if source == target else ACROSS
    made.append(
      Row(
        f"disagreement, {source} to {target}",
        printed,
        ours,
        f"{len(n.error)} pairs",
        holds,
        why,
      )
    )
  return made


def paired(n: shift.Transfer) -> tuple[float, float]:
  """The mean over pairs of error less disagreement, and its standard error."""
  apart = n.error - n.disagreement
  return apart.mean(), (apart.std(ddof=1) / np.sqrt(len(apart)))


def plot(numbers: Transfers, axes: np.ndarray) -> None:
  shift.plot(numbers, axes, lambda n: (100 * n.disagreement, 100 * n.error))
  for ax in axes:
    shift.diagonal(ax, "error = disagreement")
    ax.set_xlabel("disagreement (%)")
    ax.set_ylabel("test error (%)")
  axes[0].legend()
