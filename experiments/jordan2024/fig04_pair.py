"""Jordan 2024, figure 4: two test examples on which runs err independently.

The two examples are those whose shares of right runs are nearest to the paper's 36.2
and 60.7 %; whether they depend on each other plays no part in the choice. Beside them
stand the p-values of all pairs of examples that 30 to 70 % of the runs get right. Under
independence these are uniform.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from experiments import estimates, frame
from experiments.frame import Row, Trained, format_percent, rows_of
from experiments.jordan2024 import paper
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 4: a pair of examples with independent errors"
PANELS = 3
MIDDLE = (0.3, 0.7)
EDGES = np.linspace(0, 1, 21)  # of the histogram of p-values


class Pair(NamedTuple):
  """Two examples, the shares of runs that have them right, and how far these are from
  independent.
  """

  runs: int
  examples: tuple[int, int]
  right: tuple[float, float]
  both: float
  p_value: float  # of the χ² test of the 2 × 2 table, one degree of freedom
  images: np.ndarray
  # Of examples in `MIDDLE`, counted by p-value in the bins of `EDGES`
  pairs: Int[np.ndarray, "20"]


def compute(trained: Trained) -> Pair:
  return pair(trained.tallies("long", pairs=True), trained.images("long"))


def with_images(numbers: Pair, trained: Trained) -> Pair:
  return numbers._replace(images=trained.images("long")[list(numbers.examples)])


def pair(tallies: stats.Tallies, images: np.ndarray) -> Pair:
  rates = 1 - tallies.example_error_rates()
  (of_first, _), (of_second, _) = paper.RIGHT
  first = int(abs(rates - of_first).argmin())
  away = abs(rates - of_second)
  away[first] = math.inf
  second = int(away.argmin())
  examples = (first, second)
  (chosen,) = p_values(tallies, np.array(examples))
  low, high = MIDDLE
  middle = np.flatnonzero((rates >= low) & (rates <= high))
  right = (rates[first], rates[second])
  # Runs that are wrong on either count once: both wrong are counted twice before.
  both_wrong = tallies.joint_errors[examples] / tallies.runs
  both = 1 - (2 - sum(right)) + both_wrong
  pairs, _ = np.histogram(p_values(tallies, middle), EDGES)
  return Pair(
    tallies.runs,
    examples,
    right,
    both,
    chosen,
    images[list(examples)],
    pairs,
  )


def p_values(
  tallies: stats.Tallies,
  examples: np.ndarray,
) -> Float[np.ndarray, " pairs"]:
  """The χ² test of independence for each pair of some examples; 1 if an example is
  right in all runs or in none.
  """
  runs = tallies.runs
  wrong = tallies.wrong[examples].astype(float)
  i, j = np.triu_indices(len(examples), 1)
  joint = tallies.joint_errors[examples[i], examples[j]]
  # Pearson's χ² of a table of two by two, from its counts.
  covariance = runs * joint - wrong[i] * wrong[j]
  spread = wrong[i] * (runs - wrong[i]) * wrong[j] * (runs - wrong[j])
  varies = spread > 0
  chi_squared = runs * covariance**2 / np.where(varies, spread, 1)
  return scipy.stats.chi2.sf(np.where(varies, chi_squared, 0), df=1)


def rows(numbers: Pair) -> list[Row]:
  n = numbers
  first, second = n.right
  claim = paper.STATED["pair"]
  product = first * second
  # Of independent errors, which the paper's pair has.
  apart_se = math.sqrt(math.prod(p * (1 - p) for p in n.right) / n.runs)
  apart = estimates.student_estimate(n.both - product, apart_se, unit="%")
  pairs = n.pairs.sum()
  dependent_share = n.pairs[0] / pairs if pairs else math.nan
  printed_first, printed_second = paper.RIGHT
  both = f"{share_of_runs(n.both, n.runs)}, the product is {format_percent(product)}"
  return rows_of(
    n.runs,
    (
      "runs that have the first example right",
      printed_first,
      share_of_runs(first, n.runs),
    ),
    (
      "runs that have the second example right",
      printed_second,
      share_of_runs(second, n.runs),
    ),
    ("runs that have both right", paper.BOTH_RIGHT, both),
    ("p-value of the χ² test", ("0.16", "from figure 4's counts"), f"{n.p_value:.2g}"),
    (claim.statistic, claim, apart),
    (
      "pairs of examples 30 to 70 % right with p < 0.05; 5 % by chance",
      None,
      f"{format_percent(dependent_share)} of {pairs:,}",
    ),
  )


def share_of_runs(p: float, runs: int) -> str:
  """A share with its binomial standard error."""
  return format_percent(p, math.sqrt(p * (1 - p) / runs))


def plot(numbers: Pair, axes: np.ndarray) -> None:
  *images, right = axes
  for ax, example, image, rate in zip(
    images,
    numbers.examples,
    numbers.images,
    numbers.right,
    strict=True,
  ):
    frame.show_image(image, ax)
    ax.set_title(f"test example {example}: {100 * rate:.1f} % right")
  pairs = numbers.pairs.sum()
  density = numbers.pairs * len(numbers.pairs) / max(1, pairs)
  right.bar(
    EDGES[:-1],
    density,
    EDGES[1],
    align="edge",
    facecolor=(plots.BLUE, 0.55),
    edgecolor="white",
  )
  right.axhline(1, color=plots.VERMILION, linestyle="--", label="independent errors")
  right.set(
    xlabel="p-value of the χ² test",
    ylabel="density",
    title=f"{pairs:,} pairs 30–70 % right",
  )
  right.legend()
