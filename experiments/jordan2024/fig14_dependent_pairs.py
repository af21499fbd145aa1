"""Jordan 2024, figure 14 [13]: the pairs of test examples whose errors are farthest
from independent.

The paper counts pairs whose probability that both are right deviates from independence
by more than 2 %. With few runs, chance alone takes many independent pairs beyond that,
so the number expected by chance stands beside the number found.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.patches import Rectangle

from experiments import frame
from experiments.estimates import Estimate
from experiments.frame import Row, Trained, rows_of
from experiments.jordan2024 import paper
from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.stats import DependentPairs

TITLE = "Figure 14 [13]: pairs of examples with dependent errors"
PANELS = 6
SHOWN = 5
LEAST = 0.02


class Pairs(NamedTuple):
  """Pairs beyond the threshold, how many chance alone puts there, and those that
  deviate most.
  """

  runs: int
  pairs: int  # of examples
  thresholds: Float[np.ndarray, " levels"]  # of the deviation, the first is the paper's
  found: Int[np.ndarray, " levels"]
  by_chance: Float[np.ndarray, " levels"]
  most: DependentPairs
  right: Float[np.ndarray, "shown 2"]
  images: np.ndarray  # (shown, 2, height, width, channels)


def compute(trained: Trained) -> Pairs:
  return scan_tallies(trained.tallies("long", pairs=True), trained.images("long"))


def with_images(numbers: Pairs, trained: Trained) -> Pairs:
  both = np.stack([numbers.most.i, numbers.most.j], axis=1)
  return numbers._replace(images=trained.images("long")[both])


def scan_tallies(tallies: stats.Tallies, images: np.ndarray) -> Pairs:
  most = tallies.most_dependent_pairs(SHOWN)
  rates = tallies.example_error_rates()
  both = np.stack([most.i, most.j], axis=1)
  beyond = tallies.dependent_pairs(LEAST)
  deviations = np.sort(abs(beyond.joint - beyond.product))
  thresholds = np.linspace(LEAST, max(2 * LEAST, deviations.max(initial=0)), 31)
  beyond_threshold = len(deviations) - np.searchsorted(
    deviations,
    thresholds,
    side="right",
  )
  by_chance = np.array(
    [
      stats.expected_false_pairs(rates, tallies.runs, threshold)
      for threshold in thresholds
    ]
  )
  return Pairs(
    tallies.runs,
    tallies.examples * (tallies.examples - 1) // 2,
    thresholds,
    beyond_threshold,
    by_chance,
    most,
    1 - rates[both],
    images[both],
  )


def rows(numbers: Pairs) -> list[Row]:
  n = numbers
  dependent = n.found[0]
  by_chance = n.by_chance[0]
  # As long as chance alone puts one there, it may put all of them there.
  most = dependent / n.pairs
  share = most
  least = most
  if by_chance >= 1:
    share = math.nan
    least = 0.0
  return rows_of(
    n.runs,
    (
      "pairs that deviate by more than 2 %",
      paper.STATED["dependent pairs"],
      f"{dependent:,} of {n.pairs:,}; {by_chance:,.0f} by chance alone",
      Estimate(share, least, most),
    ),
    *(
      (
        f"pair {k}, independent → both right",
        printed,
        f"{100 * product:.2f} → {100 * joint:.2f} ± {100 * (joint * (1 - joint) / n.runs) ** 0.5:.2g} %",
      )
      for k, (printed, joint, product) in enumerate(
        zip(paper.MOST_DEPENDENT, n.most.joint, n.most.product, strict=False), 1
      )
    ),
  )


def plot(numbers: Pairs, axes: np.ndarray) -> None:
  """Both images of a pair side by side; the last panel counts the pairs beyond each
  deviation, found and by chance.
  """
  *axes, last = axes
  # As long as chance alone puts pairs there, those that are found may be chance.
  pictures = len(numbers.images)
  if numbers.by_chance[0] >= 1:
    pictures = 0
  for ax in axes[pictures:]:
    ax.set_axis_off()
  most = numbers.most
  for ax, images, i, j, joint, product in zip(
    axes[:pictures], numbers.images, *most, strict=False
  ):
    frame.show_image(np.concatenate(images, axis=1), ax)
    height, width = images.shape[1:3]
    ax.axvline(width - 0.5, color="white", linewidth=4)
    # A frame around each pair, and room beside it: two pairs are not taken for one.
    ax.add_patch(
      Rectangle((-0.5, -0.5), 2 * width, height, fill=False, color=plots.INK)
    )
    ax.set_xlim(-0.2 * width, 2.2 * width - 1)
    ax.set_title(
      f"examples {i} and {j}\nboth right {100 * joint:.1f} %, product {100 * product:.1f} %",
      fontsize=10,
    )
  curves = {
    "found": (numbers.found, plots.BLUE, "-"),
    "by chance alone": (numbers.by_chance, plots.VERMILION, "--"),
  }
  for label, (counts, color, style) in curves.items():
    last.plot(
      100 * numbers.thresholds,
      counts,
      color=color,
      linestyle=style,
      label=label,
    )
  last.set_yscale("symlog", linthresh=1)
  last.set(
    xlabel="deviation of P(both right), at least (%)",
    ylabel="pairs of examples",
    ylim=(0, None),
  )
  last.legend()
