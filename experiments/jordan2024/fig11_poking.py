"""Jordan 2024, figure 11 [12] and appendix D.2: how far apart training ends when one
weight is changed by a thousandth.

Two runs have the same seeds; in one of them a random weight is multiplied by 1.001
before some step. Two other changes
stand beside it: the first gradient in half precision, and the first batch left out.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from experiments import estimates, frame
from experiments.estimates import positive_estimate, student_estimate
from experiments.frame import Row, Trained, format_duration, format_percent, row
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import STUDIES
from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.results.formatting import Quantity

TITLE = "Figure 11 [12]: training is sensitive to a single weight, the more so the longer it lasts"
PANELS = 3
MISSING = (
  "The paper computes the whole first step in half precision and draws another first batch; here its gradient is "
  "rounded to half precision, and the first batch is left out."
)
FIRST_STEPS = ("first gradient in half precision", "first batch left out")


class Poked(NamedTuple):
  """Test-set disagreement of matched pairs (a run and the same run changed), and of
  runs with distinct seeds.
  """

  runs: int  # matched pairs, neither of which diverged
  examples: int
  matched: float
  matched_se: float
  distinct: float  # all pairs of distinct unpoked runs
  # Of a mean over pairs: 2/√R times the sd over runs of a run's disagreement with all
  # others
  distinct_se: float
  ratio: float  # matched over distinct
  ratio_se: float
  matched_pairs: Float[np.ndarray, " runs"]
  distinct_pairs: Float[np.ndarray, " runs"]  # each unpoked run and the next


class Pokes(NamedTuple):
  """Pokes before the first step, by duration; pokes of the longest training, by eighth;
  other first steps, by name.
  """

  epochs: dict[int, Poked]
  eighths: dict[int, Poked]
  first_steps: dict[str, Poked]


def compute(trained: Trained) -> Pokes:
  studies = STUDIES[trained.scale]
  longest = studies.poke_epochs[-1]
  ours = slice(studies.pairs)

  def poked(epochs: int, eighths: int) -> Poked:
    unchanged = trained(f"all_{epochs}epochs").isel(run=ours)
    changed = trained(f"poked_{epochs}epochs_{eighths}of8")
    kept = ~(unchanged.diverged.values | changed.diverged.values)
    return compare_changed(
      unchanged.predictions.values[kept], changed.predictions.values[kept]
    )

  results = trained("first_step")
  groups = [results.isel(run=results.first_step.values == which) for which in range(3)]
  kept = ~np.any([group.diverged.values for group in groups], axis=0)
  unchanged, *others = [group.predictions.values[kept] for group in groups]
  return Pokes(
    {epochs: poked(epochs, 0) for epochs in studies.poke_epochs},
    {eighths: poked(longest, eighths) for eighths in studies.poke_eighths},
    {
      name: compare_changed(unchanged, other)
      for name, other in zip(FIRST_STEPS, others, strict=True)
    },
  )


def compare_changed(
  unchanged: Int[np.ndarray, "runs examples"],
  changed: Int[np.ndarray, "runs examples"],
) -> Poked:
  """The disagreement of one change: row i of both arrays has the same seeds."""
  runs, examples = unchanged.shape
  pairs = stats.churn(unchanged, changed)
  with_others = mean_disagreement(unchanged)
  matched = pairs.mean()
  matched_se = pairs.std(ddof=1) / math.sqrt(runs)
  distinct = with_others.mean()
  distinct_se = 2 * with_others.std(ddof=1) / math.sqrt(runs)
  ratio = math.nan
  ratio_se = math.nan
  if distinct:
    ratio = matched / distinct
    # By the delta method, as if both means were independent.
    ratio_se = math.hypot(matched_se, ratio * distinct_se) / distinct
  following = stats.churn(unchanged, np.roll(unchanged, -1, axis=0))
  return Poked(
    runs,
    examples,
    matched,
    matched_se,
    distinct,
    distinct_se,
    ratio,
    ratio_se,
    pairs,
    following,
  )


def mean_disagreement(
  predictions: Int[np.ndarray, "runs examples"],
) -> Float[np.ndarray, " runs"]:
  """Each run's mean disagreement with the others, computed from how many runs predict
  each class of each example.
  """
  runs, examples = predictions.shape
  agree = np.zeros(runs)
  for label in np.unique(predictions):
    same = predictions == label
    agree += same @ (same.sum(0) - 1.0)
  return 1 - agree / (examples * (runs - 1))


def rows(numbers: Pokes) -> list[Row]:
  by_epochs = numbers.epochs
  lengths = {min(by_epochs): "short", max(by_epochs): "long"}
  lines = []
  for epochs, n in by_epochs.items():
    printed = paper.POKED.get(lengths.get(epochs))
    ours = f"{format_duration(epochs)}: {format_percent(n.matched, n.matched_se)}"
    lines.append(row("predictions that differ: one poked", printed, ours, n.runs))
  for epochs, n in by_epochs.items():
    printed = paper.DISTINCT.get(lengths.get(epochs))
    ours = f"{format_duration(epochs)}: {format_percent(n.distinct, n.distinct_se)}"
    lines.append(row("predictions that differ: distinct seeds", printed, ours, n.runs))
  for epochs, n in by_epochs.items():
    claim = paper.STATED.get(f"poked {lengths.get(epochs)}")
    quantity = f"one poked over distinct seeds, {format_duration(epochs)}"
    ratio = positive_estimate(n.ratio, n.ratio_se)
    lines.append(row(quantity, claim, ratio, n.runs))
  return [*lines, *later_rows(numbers), *first_step_rows(numbers)]


def later_rows(numbers: Pokes) -> list[Row]:
  """Pokes later in the longest training."""
  duration = format_duration(max(numbers.epochs))
  lines = []
  for eighths, n in numbers.eighths.items():
    matched = format_percent(n.matched, n.matched_se)
    ours = f"{eighths}/8 of {duration}: {matched}"
    lines.append(row("predictions that differ: poked later", None, ours, n.runs))
  first = numbers.eighths[min(numbers.eighths)]
  last = numbers.eighths[max(numbers.eighths)]
  change = estimates.difference_of(
    student_estimate(first.matched, first.matched_se, unit="%"),
    student_estimate(last.matched, last.matched_se, unit="%"),
  )
  later = paper.STATED["poked later"]
  lines.append(row(later.statistic, later, change, last.runs))
  return lines


def first_step_rows(numbers: Pokes) -> list[Row]:
  """Other first steps of the longest training, over its poke."""
  longest = numbers.epochs[max(numbers.epochs)]
  of_poke = positive_estimate(longest.matched, longest.matched_se)
  lines = []
  for name, n in numbers.first_steps.items():
    of_other = positive_estimate(n.matched, n.matched_se)
    quantity = f"predictions that differ: {name}, over one poked"
    ratio = estimates.ratio_of(of_other, of_poke)
    lines.append(row(quantity, paper.STATED["first step"], ratio, n.runs))
  return lines


def plot(numbers: Pokes, axes: np.ndarray) -> None:
  """Left: pokes before the first step of the shortest and longest training. Right:
  later pokes, other first steps.
  """
  shortest_axes, longest_axes, right = axes
  draw_pairs(numbers, min(numbers.epochs), shortest_axes)
  draw_pairs(numbers, max(numbers.epochs), longest_axes)
  draw_later(numbers, right)


def draw_pairs(numbers: Pokes, epochs: int, ax: Axes) -> None:
  """Draws the disagreement of poked pairs and of runs with distinct seeds."""
  n = numbers.epochs[epochs]
  groups = {"one poked": n.matched_pairs, "each run and the next": n.distinct_pairs}
  edges = plots.bin_edges([*groups.values()], n.examples)
  quantity = Quantity("test predictions that differ between two runs")
  for name, values in groups.items():
    label = f"{name}: mean {format_percent(values.mean())}"
    plots.accuracy_histogram(values, ax, edges=edges, label=label, of=quantity)
  ax.set_title(f"poked before the first step of {format_duration(epochs)}")
  frame.legend_above(ax)


def draw_later(numbers: Pokes, right: Axes) -> None:
  """Draws later pokes by the share of training before them, and other first steps."""
  share = [eighths / 8 for eighths in numbers.eighths]
  mean, se = (
    100 * np.array([(n.matched, n.matched_se) for n in numbers.eighths.values()]).T
  )
  right.errorbar(
    share,
    mean,
    2 * se,
    color=plots.BLUE,
    marker="o",
    capsize=3,
    label="one poked",
  )
  for i, (name, n) in enumerate(numbers.first_steps.items(), 1):
    right.errorbar(
      -0.06 * i,  # beside the poke before the first step
      100 * n.matched,
      200 * n.matched_se,
      color=plots.PALETTE[i + 1],
      marker="s",
      capsize=3,
      linestyle="none",
      label=name,
    )
  distinct = next(iter(numbers.eighths.values())).distinct
  right.axhline(
    100 * distinct,
    color=plots.ORANGE,
    linestyle="--",
    label="distinct seeds, all pairs",
  )
  right.set(
    title=f"poked later in {format_duration(max(numbers.epochs))}",
    xlabel="share of training before the poke (squares: before it begins)",
    ylabel="mean disagreement (%)",
    ylim=(0, None),
  )
  right.set_xticks(np.linspace(0, 1, 5))
  right.grid(True)
  frame.legend_above(right)
