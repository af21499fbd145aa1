"""The page of Banerjee 2024: 30 runs of each source after the paper's 50 epochs."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import pages
from experiments.banerjee2024 import candidates, paper
from experiments.pages import Colors, Page, Picture, Records

NAMES = (
  "fig01_two_runs",
  "fig03_epochs",
  "table1_ensembles",
  "table2_accuracies",
  "table3_churn",
  "fig09_metrics",
  "fig12_transfer",
)


GROUPS = ("first group", "second group")  # four classes of CIFAR-10 each


def two_runs(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the logit gaps of two runs that are as accurate as each other."""
  (ax,) = axes
  n = records.numbers("banerjee2024/fig01_two_runs")
  for label, color in enumerate((colors.blue, colors.vermilion)):
    of_class = n.labels == label
    ax.plot(
      *n.gaps[:, of_class], ".", color=color, markersize=2.5, alpha=0.6, rasterized=True
    )
    ax.plot([], [], "o", color=color, markersize=4, label=f"true: {GROUPS[label]}")
  for line in (ax.axhline, ax.axvline):
    line(0, color=colors.quiet, linewidth=0.8)
  ax.set(xlabel="logit gap of one run", ylabel="of the other")
  ax.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
  ends = 1.05 * np.array([n.gaps.min(), n.gaps.max()])
  ax.set(xlim=ends, ylim=ends)
  ax.set_aspect("equal")


def draw_epochs(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw accuracy and calibration error of runs and of their ensemble, by epoch."""
  n = records.numbers("banerjee2024/fig03_epochs").epochs
  for ax, values, together, label in (
    (axes[0], n.accuracy, n.ensemble_accuracy, "test accuracy (%)"),
    (axes[1], n.ece, n.ensemble_ece, "calibration error (%)"),
  ):
    low = 100 * values.min(1)
    high = 100 * values.max(1)
    ax.fill_between(n.epoch, low, high, color=colors.blue, alpha=0.2, linewidth=0)
    ax.plot(n.epoch, 100 * values.mean(1), ".-", color=colors.blue, label="runs")
    ax.plot(n.epoch, 100 * together, ".-", color=colors.orange, label="ensemble")
    ax.set(xlabel="epoch", ylabel=label)
    ax.grid(True)
  axes[0].legend(loc="lower right")


def draw_ensemble_sizes(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw calibration error and accuracy of ensembles by size, beside the paper's."""
  by_size = records.numbers("banerjee2024/table1_ensembles").by_size
  sizes = [size for size in paper.ENSEMBLES if size <= 30]
  for ax, metric, label in (
    (axes[0], "accuracy", "accuracy (%)"),
    (axes[1], "ece", "calibration error (%)"),
  ):
    printed = [getattr(paper.ENSEMBLES[size], metric) for size in sizes]
    ours = [by_size[size].varied(metric) for size in by_size]
    for places, values, color, name, shift in (
      (sizes, printed, colors.orange, "the paper", 1.03),
      ([*by_size], ours, colors.blue, "here", 0.97),
    ):
      mean, sd = 100 * np.array(values).T
      x = shift * np.array(places)
      ax.errorbar(x, mean, sd, fmt=".-", color=color, capsize=3, label=name)
    ax.set(xscale="log", xlabel="members", ylabel=label)
    ax.set_xticks(sizes, map(str, sizes))
    ax.minorticks_off()
    ax.grid(True)
  axes[1].legend()


def draw_levels(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw accuracy against α̂ of all candidates, on one pair of axes."""
  (ax,) = axes
  numbers = records.numbers("banerjee2024/table2_accuracies")
  names = {"S_init": "initialisation", "S_batch": "batch order", "S_all": "both"}
  for (name, label), color, marker in zip(
    names.items(),
    (colors.blue, colors.vermilion, colors.green),
    "os^",
    strict=True,
  ):
    n = numbers[name]
    ax.plot(
      100 * n.level,
      100 * n.accuracy.accuracies,
      marker,
      color=color,
      markersize=5,
      alpha=0.8,
      label=label,
    )
  ax.axvline(100 * candidates.SMALL, color=colors.quiet, linestyle="--", linewidth=1)
  ax.set(xlabel="α̂: test examples to leave out (%)", ylabel="test accuracy (%)")
  ax.grid(True)
  ax.legend(title="varied", loc="center left", bbox_to_anchor=(1.02, 0.5))


def values_of_sources(records: Records) -> dict[str, Any]:
  """Return what the text says beside rows of records, in per cent."""
  epochs = records.numbers("banerjee2024/fig03_epochs").epochs
  first, last = np.flatnonzero(np.isin(epochs.epoch, (10, 50)))
  of_source = records.numbers("banerjee2024/table2_accuracies").values()
  ten = records.numbers("banerjee2024/table1_ensembles").by_size[10]
  return {
    "churn": 100 * epochs.churn[[first, last]].mean(1),
    "sds": ", ".join(f"{100 * n.accuracy.sd:.2f}" for n in of_source),
    "accuracy_of_ten": 100 * ten.accuracy.mean(),
  }


PAGE = Page(
  folder="banerjee2024",
  title="Banerjee 2024: how far one network is from the others",
  appendix=tuple(f"banerjee2024/{name}" for name in NAMES),
  pictures={
    "two_runs": Picture(
      two_runs,
      "Figure 1, a drawing there: two trained runs of the same accuracy; a dot a test "
      "example, coloured by its true group. Upper left and lower right, they disagree.",
      height=2.8,
    ),
    "epochs": Picture(
      draw_epochs,
      "Figures 3 and 16: 15 runs, their mean and their whole range, and their ensemble.",
      panels=2,
    ),
    "ensembles": Picture(
      draw_ensemble_sizes,
      "Table 1: mean and standard deviation of ensembles: drawn from 15 runs here, so that "
      "those of 10 share members and differ less for it; from 800 there.",
      panels=2,
    ),
    "levels": Picture(
      draw_levels,
      "Table 2: candidates by what varies. Left of the dashed line, α̂ is small.",
    ),
  },
  values=values_of_sources,
)


def recompute(out: Path) -> None:
  """Make the records of kept runs anew."""
  pages.recompute_records(out, "banerjee2024", "banerjee2024", NAMES)
