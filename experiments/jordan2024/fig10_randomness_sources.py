"""Jordan 2024, figure 10 [11] and appendix D.1: what initialisation, order or
augmentation gives when it varies alone.

After a short training, one source alone gives less variance than all together; after a
long one, as much. Fixed sources have seed 0; another seed may give another variance.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from experiments import frame
from experiments.estimates import Estimate
from experiments.frame import (
  Row,
  Spread,
  Trained,
  format_duration,
  format_percent,
  row,
  spread_of,
)
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import STUDIES, sources_of
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 10 [11]: what each source of randomness gives alone"
PANELS = 3


class SourceSpread(NamedTuple):
  """The accuracies when one source varies, and the ratio of their variance to that with
  all sources.
  """

  runs: int
  accuracy: Spread
  ratio: float
  interval: tuple[float, float]


def compute(trained: Trained) -> dict[int, dict[str, SourceSpread]]:
  """The numbers by duration and by source; "all" is one of the sources."""
  studies = STUDIES[trained.scale]
  names = ("all", *sources_of(studies.recipe))
  numbers = {}
  for epochs in studies.source_epochs:
    errors = {name: trained.errors(f"{name}_{epochs}epochs") for name in names}
    numbers[epochs] = variance_by_source(errors)
  return numbers


def variance_by_source(
  errors: Mapping[str, Bool[np.ndarray, "runs examples"]],
) -> dict[str, SourceSpread]:
  spreads = {source: spread_of(of_source) for source, of_source in errors.items()}
  everything = spreads["all"].accuracies
  by_name = {}
  for source, spread in spreads.items():
    # Runs that vary one source are no pairs with those that vary all.
    ratio = stats.variance_ratio(spread.accuracies, everything, paired=False)
    by_name[source] = SourceSpread(spread.runs, spread, ratio.value, ratio.interval)
  return by_name


def rows(numbers: Mapping[int, Mapping[str, SourceSpread]]) -> list[Row]:
  sources = list(next(iter(numbers.values())))
  lengths = {min(numbers): "short", max(numbers): "long"}
  lines = []
  for source in sources:
    for epochs, n in numbers.items():
      sd = format_percent(n[source].accuracy.sd, n[source].accuracy.sd_se)
      printed = paper.SD_SOURCES.get((source, epochs))
      ours = f"{format_duration(epochs)}: {sd}"
      quantity = f"sd of accuracy, varying {source}"
      lines.append(row(quantity, printed, ours, n[source].runs))
  for source in sources:
    if source == "all":
      continue
    for epochs, n in numbers.items():
      low, high = n[source].interval
      ratio = Estimate(n[source].ratio, low, high)
      claim = paper.STATED.get(f"one source {lengths.get(epochs)}")
      quantity = f"variance, {source} alone over all, {format_duration(epochs)}"
      lines.append(row(quantity, claim, ratio, n[source].runs))
  return lines


def plot(numbers: Mapping[int, Mapping[str, SourceSpread]], axes: np.ndarray) -> None:
  """Left: the distributions of accuracy after the shortest and the longest training.
  Right: the ratios of variances.
  """
  durations = list(numbers)
  for ax, epochs in zip(axes, (durations[0], durations[-1]), strict=False):
    groups = {source: n.accuracy.accuracies for source, n in numbers[epochs].items()}
    examples = numbers[epochs]["all"].accuracy.examples
    edges = 100 * plots.bin_edges(list(groups.values()), examples)
    for color, (source, values) in zip(plots.PALETTE, groups.items(), strict=False):
      label = f"{source}: sd {format_percent(numbers[epochs][source].accuracy.sd)}"
      ax.hist(
        100 * values,
        bins=edges,
        density=True,
        histtype="step",
        color=color,
        linewidth=1.5,
        label=label,
      )
    ax.set(
      title=format_duration(epochs),
      xlabel="test accuracy (%)",
      ylabel="density (per percentage point)",
    )
    frame.legend_above(ax)
  right = axes[-1]
  alone = [source for source in groups if source != "all"]
  for i, (color, source) in enumerate(zip(plots.PALETTE[1:], alone, strict=False)):
    ratio = np.array([n[source].ratio for n in numbers.values()])
    low, high = np.array([n[source].interval for n in numbers.values()]).T
    x = np.arange(len(numbers)) + (i - 1) * 0.1
    right.errorbar(
      x,
      ratio,
      [ratio - low, high - ratio],
      color=color,
      marker="o",
      capsize=3,
      label=f"{source} alone",
    )
  right.axhline(1, color=plots.INK, linestyle="--", linewidth=1)
  right.set_xticks(range(len(numbers)), durations)
  right.set(
    xlabel="training duration (epochs)",
    ylabel="variance over that of all sources",
    yscale="log",
  )
  frame.legend_above(right)
