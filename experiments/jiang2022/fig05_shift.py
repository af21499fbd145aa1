"""Jiang 2022, figure 5: under some shifts of the distribution, not all, disagreement
still is about the test error.

Each point is a pair of runs that are trained on one domain and tested on the same or
another: x is how often they differ, y is the error of the first.
"""

import numpy as np

from experiments import estimates, frame
from experiments.frame import Row, row
from experiments.jiang2022 import paper, shift
from experiments.jiang2022.shift import MISSING, Transfers, compute  # noqa: F401

TITLE = "Figure 5: test error against disagreement under a shift of the distribution"
PANELS = 4


def rows(numbers: Transfers) -> list[Row]:
  lines = []
  for source, target, n in shift.each(numbers):
    pairs = len(n.error)
    error = n.error.mean()
    disagreement = n.disagreement.mean()
    if source == target:
      quantity = "disagreement over error"
      claim = paper.STATED["own domain"]
      ratio = disagreement / error
      # By the delta method.
      residuals = n.disagreement - ratio * n.error
      se = residuals.std(ddof=1) / np.sqrt(pairs)
      estimate = estimates.positive_estimate(ratio, se / error, pairs - 1)
    else:
      quantity = "error less disagreement"
      claim = paper.STATED["other domain"]
      gap, se = paired_difference(n)
      estimate = estimates.student_estimate(gap, se, pairs - 1, "%")
    means = f"error {frame.format_percent(error)}, disagreement {frame.format_percent(disagreement)}"
    lines.append(
      row(
        f"{quantity}, {source} to {target}",
        claim,
        f"{estimate}: {means}",
        f"{pairs} pairs",
        estimate,
      )
    )
  return lines


def paired_difference(n: shift.DomainTransfer) -> tuple[float, float]:
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
