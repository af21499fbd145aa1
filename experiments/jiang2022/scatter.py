"""Scatter plots of test error against disagreement over configurations of
hyperparameters.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes

from experiments import estimates, measures
from experiments.estimates import format_interval
from experiments.frame import Row, Trained, row
from experiments.jiang2022 import paper
from experiments.jiang2022.campaigns import GROUPS, PARTNERS, SCALES
from vmapseeds import stats
from vmapseeds.reports import plots

RESAMPLES = 300


class Points(NamedTuple):
  """For each configuration and pair of runs: the first run's test error, and how often
  the second differs from it.

  NaN where one of the two diverged.
  """

  error: Float[np.ndarray, "configurations pairs"]
  disagreement: Float[np.ndarray, "configurations pairs"]
  augmented: Bool[np.ndarray, " configurations"]

  def only(self, augmented: bool | None) -> "Points":
    """The configurations with augmentation, those without, or all."""
    if augmented is None:
      return self
    kept = self.augmented == augmented
    return Points(self.error[kept], self.disagreement[kept], self.augmented[kept])

  def known(self) -> int:
    """How many pairs have both runs."""
    return (~np.isnan(self.error)).sum()


class BootstrapEstimate(NamedTuple):
  """A number, with its interval of 95 % by the bootstrap over configurations."""

  value: float
  low: float
  high: float

  @property
  def estimate(self) -> estimates.Estimate:
    return estimates.Estimate(*self)

  def __str__(self) -> str:
    return format_interval(*self)


class Agreement(NamedTuple):
  """How well disagreement tells the error; a point is a pair of runs."""

  ratio: BootstrapEstimate  # mean error over mean disagreement
  r_squared: BootstrapEstimate
  kendall_tau: BootstrapEstimate
  deviation: BootstrapEstimate  # mean of equation 63


class Found(NamedTuple):
  """What a scatter plot shows of a group."""

  points: Points
  agreement: Agreement


def compute(
  trained: Trained,
  data: str,
  groups: Iterable[str] = GROUPS,
) -> dict[str, Found]:
  """What the scatter plot that stands for the paper's `data` shows of some groups."""
  return {
    group: Found(points, agreement(points))
    for group, points in read_points(trained, data, groups).items()
  }


def read_points(
  trained: Trained,
  data: str,
  groups: Iterable[str] = GROUPS,
) -> dict[str, Points]:
  """The points of some groups in that scatter plot."""
  plot = SCALES[trained.scale].scatters[data]
  by_group: dict[str, list[Points]] = {group: [] for group in groups}
  for name, recipe in plot.recipes().items():
    results = trained(name)
    of_groups = points_of_stars(
      results.predictions.values,
      results.diverged.values,
      results.labels.values,
      plot.pairs,
    )
    for group, points in by_group.items():
      error, disagreement = of_groups[group]
      configurations = error.shape[1]
      augmented = np.full(configurations, bool(recipe.augment))
      points.append(Points(error.T, disagreement.T, augmented))
  return {
    group: Points(*map(np.concatenate, zip(*points, strict=True)))
    for group, points in by_group.items()
  }


def points_of_stars(
  predictions: Int[np.ndarray, "runs examples"],
  diverged: Bool[np.ndarray, " runs"],
  labels: Int[np.ndarray, " examples"],
  pairs: int,
) -> dict[
  str,
  tuple[
    Float[np.ndarray, "pairs configurations"], Float[np.ndarray, "pairs configurations"]
  ],
]:
  """Error of the first run and disagreement with its partner, by group. Runs are in the
  order of `Scatter.runs`.
  """
  by_star = predictions.reshape(pairs, 1 + len(PARTNERS), -1, len(labels))
  lost = diverged.reshape(by_star.shape[:-1])
  by_group = {}
  for i, group in enumerate(PARTNERS, 1):
    gone = lost[:, 0] | lost[:, i]
    error = (by_star[:, 0] != labels).mean(-1)
    disagreement = (by_star[:, 0] != by_star[:, i]).mean(-1)
    by_group[group] = (
      np.where(gone, np.nan, error),
      np.where(gone, np.nan, disagreement),
    )
  return by_group


def agreement(points: Points) -> Agreement:
  """The numbers of a scatter plot in which each pair is a point."""

  def numbers(error, disagreement) -> list[float]:
    known = ~np.isnan(error)
    y = error[known]
    x = disagreement[known]
    agreement = measures.scatter_agreement(y, x)
    ratio = y.sum() / x.sum() if x.any() else np.nan
    return [ratio, agreement.r_squared, agreement.kendall_tau, agreement.mean_deviation]

  return Agreement(*over_configurations(numbers, points.error, points.disagreement))


def over_configurations(
  statistic: Callable[..., Any],
  error: Float[np.ndarray, "configurations pairs"],
  disagreement: Float[np.ndarray, "configurations pairs"],
) -> Any:
  """The `Estimate` of a statistic, or of each number in its list. Resampling keeps a
  configuration's pairs together.
  """
  every = np.arange(len(error))
  drawn = stats.resamples(len(every), key=jax.random.key(0), replicates=RESAMPLES)
  rows = (np.repeat(every, times) for times in drawn)
  value = statistic(error, disagreement)
  _, low, high = stats.from_replicates(
    [statistic(error[some], disagreement[some]) for some in rows]
  )
  if np.ndim(value) == 0:
    return BootstrapEstimate(value, low, high)
  return [BootstrapEstimate(*of_one) for of_one in zip(value, low, high, strict=True)]


def rows(numbers: Mapping[str, Found], high: str = "") -> list[Row]:
  """Each group's ratio, R² and τ; "high " if the paper's errors are high."""
  lines = [
    row(
      f"error over disagreement, {group}",
      paper.STATED[f"{high}ratio {group}"],
      n.ratio.estimate,
      f"{points.known()} pairs",
    )
    for group, (points, n) in numbers.items()
  ]
  return lines + [
    row(
      f"{symbol}, {group}",
      paper.STATED[name],
      getattr(n, name).estimate,
      f"{points.known()} pairs",
    )
    for name, symbol in SYMBOLS.items()
    for group, (points, n) in numbers.items()
  ]


SYMBOLS = paper.SYMBOLS


def plot(numbers: Mapping[str, Found], axes: Iterable[Axes]) -> None:
  """One panel for each group."""
  for ax, (group, (points, n)) in zip(axes, numbers.items(), strict=True):
    draw_points(points, ax)
    ax.set_title(
      f"{group}: R² {n.r_squared.value:.2f}, τ {n.kendall_tau.value:.2f}",
      fontsize="medium",
    )


def draw_points(points: Points, ax: Axes) -> None:
  """Disagreement (x) and error (y) of each pair; with augmentation in another colour."""
  for augmented, color, marker in ((False, plots.BLUE, "o"), (True, plots.ORANGE, "s")):
    some = points.only(augmented)
    if some.error.size:
      ax.plot(
        100 * some.disagreement.ravel(),
        100 * some.error.ravel(),
        marker,
        color=color,
        markersize=4.5,
        alpha=0.7,
        markeredgewidth=0,
        label="augmented" if augmented else "not augmented",
      )
  finish_scatter(ax)


def finish_scatter(ax: Axes) -> None:
  """Adds the diagonal, labels and a legend."""
  low, high = zip(ax.get_xlim(), ax.get_ylim(), strict=True)
  beyond = (max(high) - min(low)) / 40  # keeps points off the frame
  ends = min(low) - beyond, max(high) + beyond
  ax.plot(
    ends,
    ends,
    color=plots.INK,
    linestyle="--",
    linewidth=1,
    zorder=0,
    label="error = disagreement",
  )
  ax.set_xlim(ends)
  ax.set_ylim(ends)
  ax.set_xlabel("disagreement (%)")
  ax.set_ylabel("test error (%)")
  ax.legend()
