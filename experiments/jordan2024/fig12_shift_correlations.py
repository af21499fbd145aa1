"""Jordan 2024, figure 12 [10] and appendix C: is a run that is good on one test set
good on another?

Squared correlations over runs between the accuracies on a test set and its shifted
versions, all pairs. These have the same images, so a run that is lucky on one would be
lucky on the other. Therefore a pair compares the even examples of the first with the
odd examples of the second. p-values are two-sided, from Student's t, for each pair
alone.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments.estimates import Estimate
from experiments.frame import Row, Trained, row
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import data_of, shifted
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 12 [10]: correlations between the accuracies on shifted test sets"
LEVEL = 0.05


class PairOfSets(NamedTuple):
  """Two test sets: correlation over runs of the accuracies on them, with its interval."""

  first: str
  second: str
  r: float
  interval: tuple[float, float]
  p_value: float

  @property
  def estimate(self) -> Estimate:
    return Estimate(self.r, *self.interval)


class Correlations(NamedTuple):
  """One data set: `accuracies` by test set, on its even and odd examples. The first
  test set is not shifted.
  """

  runs: int
  accuracies: dict[str, Float[np.ndarray, "runs 2"]]
  pairs: list[PairOfSets]


def panels(numbers: Mapping[str, Correlations]) -> int:
  return 2 * len(numbers)


def compute(trained: Trained) -> dict[str, Correlations]:
  by_data = {}
  for name in shifted(trained.campaigns):
    campaign = trained.campaigns[name]
    accuracies = {
      test_set: accuracies_of_halves(trained(name, test_set))
      for test_set in campaign.recipe.test_sets
    }
    by_data[data_of(campaign)] = correlations(accuracies)
  return by_data


def accuracies_of_halves(results: xr.Dataset) -> Float[np.ndarray, "runs 2"]:
  """The accuracies on even and odd examples of the runs that did not diverge."""
  examples = results.sizes["example"]
  sizes = np.array([(examples + 1) // 2, examples // 2])
  kept = ~results.diverged.values
  return 1 - results.half_errors.values[kept] / sizes


def correlations(accuracies: dict[str, Float[np.ndarray, "runs 2"]]) -> Correlations:
  names = list(accuracies)
  runs = len(next(iter(accuracies.values())))
  pairs = []
  for i, second in enumerate(names):
    for first in names[:i]:
      # Even examples of one, odd ones of the other: no image is in both.
      x = accuracies[first][:, 0]
      y = accuracies[second][:, 1]
      r = np.nan
      if np.ptp(x) and np.ptp(y):
        r = np.corrcoef(x, y)[0, 1]
      p_value = stats.correlation_p_value(r, runs)
      interval = stats.correlation_over_runs(x, y).interval
      pairs.append(PairOfSets(first, second, r, interval, p_value))
  return Correlations(runs, accuracies, pairs)


def rows(numbers: Mapping[str, Correlations]) -> list[Row]:
  lines = []
  for data, n in numbers.items():
    unshifted = next(iter(n.accuracies))
    known = [pair for pair in n.pairs if np.isfinite(pair.r)]
    significant = [pair for pair in known if pair.p_value < LEVEL]
    by_chance = LEVEL * len(known)
    counts = f"{len(significant)} of {len(known)}; chance gives {by_chance:.2g}"
    lines.append(
      row(f"{data}: pairs with p < {LEVEL}", paper.SIGNIFICANT_PAIRS, counts, n.runs)
    )
    for pair in n.pairs:
      claim = None
      if pair.first == unshifted:
        claim = paper.STATED["test and shifted"]
      quantity = f"{data}: correlation on {pair.first} and {pair.second}"
      ours = f"{pair.estimate}, p = {pair.p_value:.2g}"
      lines.append(row(quantity, claim, ours, n.runs, pair.estimate))
  return lines


def plot(numbers: Mapping[str, Correlations], axes: np.ndarray) -> None:
  """For each data set: R² of all pairs, starred where p < 0.05, and the accuracies of
  the pair with the largest R².
  """
  for pair_of_axes, data in zip(axes.reshape(-1, 2), numbers, strict=True):
    matrix_ax, scatter_ax = pair_of_axes
    draw_matrix(numbers[data], data, matrix_ax)
    draw_best(numbers[data], data, scatter_ax)


def draw_matrix(n: Correlations, data: str, ax: Axes) -> None:
  """Draws R² of every two test sets."""
  names = list(n.accuracies)
  squares = np.full((len(names), len(names)), np.nan)
  for pair in n.pairs:
    row = names.index(pair.second)
    column = names.index(pair.first)
    r_squared = pair.r**2
    squares[row, column] = r_squared
    if not np.isfinite(r_squared):
      continue
    star = "*" if pair.p_value < LEVEL else ""
    # Legible on light and on dark cells.
    color = "white" if r_squared > 0.5 else plots.INK
    ax.text(
      column,
      row,
      f"{r_squared:.2f}{star}",
      ha="center",
      va="center",
      fontsize="small",
      color=color,
    )
  ax.imshow(squares[:, :-1], cmap="Blues", vmin=0, vmax=1, aspect="auto")
  ax.set_xticks(range(len(names) - 1), names[:-1], rotation=30, ha="right")
  ax.set_yticks(range(1, len(names)), names[1:])
  ax.set(title=f"{data}: R², * p < {LEVEL}", ylim=(len(names) - 0.5, 0.5))
  ax.spines[:].set_visible(False)


def draw_best(n: Correlations, data: str, ax: Axes) -> None:
  """Draws the accuracies on the two test sets that correlate most."""
  strengths = np.nan_to_num([abs(pair.r) for pair in n.pairs], nan=-1)
  best = n.pairs[int(np.argmax(strengths))]
  x = 100 * n.accuracies[best.first][:, 0]
  y = 100 * n.accuracies[best.second][:, 1]
  ax.scatter(x, y, s=16, color=plots.BLUE, alpha=0.6, linewidths=0)
  ax.set(
    xlabel=f"accuracy, {best.first}, even examples (%)",
    ylabel=f"accuracy, {best.second}, odd examples (%)",
  )
  ax.set_title(f"{data}: {n.runs} runs, R² = {best.r**2:.2f}")
  ax.grid(True)
