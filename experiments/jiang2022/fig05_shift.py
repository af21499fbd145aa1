"""Jiang 2022, figure 5: under some shifts of the distribution, not all, disagreement
still is about the test error.

Each point is a pair of runs that are trained on one domain and tested on the same or
another: x is how often they differ, y is the error of the first.
"""

import numpy as np

from experiments import claims, frame
from experiments.frame import Row, row
from experiments.jiang2022 import paper, shift
from experiments.jiang2022.shift import MISSING, Transfers, compute  # noqa: F401

TITLE = "Figure 5: test error against disagreement under a shift of the distribution"
PANELS = 4


def rows(numbers: Transfers) -> list[Row]:
  made = []
  for source, target, n in shift.each(numbers):
    own, (apart, se) = source == target, paired(n)
    error, disagreement = n.error.mean(), n.disagreement.mean()
    ratio, freedom = disagreement / error, len(n.error) - 1
    of_ratio = (n.disagreement - ratio * n.error).std(ddof=1) / np.sqrt(len(n.error))
    estimate = (
      claims.positive(ratio, of_ratio / error, freedom)
      if own
      else claims.estimated(apart, se, freedom, "%")
    )
    made.append(
      row(
        f"{'disagreement over error' if own else 'error less disagreement'}, {source} to {target}",
        paper.CLAIMS["own domain" if own else "other domain"],
        f"{estimate}: error {frame.percent(error)}, disagreement {frame.percent(disagreement)}",
        f"{len(n.error)} pairs",
        estimate,
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
