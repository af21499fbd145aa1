"""The page of Banerjee 2024: 30 runs of each source after the paper's 50 epochs."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.banerjee2024 import fig03, fig12, runs, table1, table2
from experiments.pages import Colors, Page, Picture, Records
from experiments.scripts import write_numbers

FOLDER = "banerjee2024"
NAMES = ("table1", "table2", "fig03", "fig12")
TABLE1, TABLE2, FIG03, FIG12 = (f"{FOLDER}/{name}" for name in NAMES)


GROUPS = ("first group", "second group")  # four classes of CIFAR-10 each


def two_runs(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the logit gaps of two runs that are as accurate as each other."""
  (ax,) = axes
  shown = records[TABLE2]["two_runs"]
  gaps, labels = np.array(shown["gaps"]), np.array(shown["labels"])
  for label, color in enumerate((colors.blue, colors.vermilion)):
    of_class = gaps[:, labels == label]
    ax.plot(*of_class, ".", color=color, markersize=2.5, alpha=0.6, rasterized=True)
    ax.plot([], [], "o", color=color, markersize=4, label=f"true: {GROUPS[label]}")
  for line in (ax.axhline, ax.axvline):
    line(0, color=colors.quiet, linewidth=0.8)
  ax.set(xlabel="logit gap of one run", ylabel="of the other")
  ax.legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
  ends = 1.05 * np.array([gaps.min(), gaps.max()])
  ax.set(xlim=ends, ylim=ends)
  ax.set_aspect("equal")


def draw_epochs(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw accuracy and calibration error of runs and of their ensemble, by epoch."""
  of = {name: np.array(x) for name, x in records[FIG03]["by_epoch"].items()}
  epoch = of["epoch"]
  for ax, name, label in (
    (axes[0], "accuracy", "test accuracy (%)"),
    (axes[1], "ece", "calibration error (%)"),
  ):
    values, together = 100 * of[name], 100 * of[f"ensemble_{name}"]
    low, high = values.min(1), values.max(1)
    ax.fill_between(epoch, low, high, color=colors.blue, alpha=0.2, linewidth=0)
    ax.plot(epoch, values.mean(1), ".-", color=colors.blue, label="runs")
    ax.plot(epoch, together, ".-", color=colors.orange, label="ensemble")
    ax.set(xlabel="epoch", ylabel=label)
    ax.grid(True)
  axes[0].legend(loc="lower right")


def draw_ensemble_sizes(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw calibration error and accuracy of ensembles by size, beside the paper's."""
  drawn = records[TABLE1]["drawn"]
  sizes = [size for size in table1.PAPER if size <= 30]
  for ax, metric, column, label in (
    (axes[0], "accuracy", 1, "accuracy (%)"),
    (axes[1], "ece", 3, "calibration error (%)"),
  ):
    printed = [table1.PAPER[size][column] for size in sizes]
    values_of = [np.array(of[metric]) for of in drawn.values()]
    ours = [(x.mean(), x.std(ddof=1)) for x in values_of]
    for places, values, color, name, shift in (
      (sizes, printed, colors.orange, "the paper", 1.03),
      ([*map(int, drawn)], ours, colors.blue, "here", 0.97),
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
  of_sources = records[TABLE2]["candidates"]
  names = {"S_init": "initialisation", "S_batch": "batch order", "S_all": "both"}
  for (name, label), color, marker in zip(
    names.items(),
    (colors.blue, colors.vermilion, colors.green),
    "os^",
    strict=True,
  ):
    of = of_sources[name]
    ax.plot(
      100 * np.array(of["level"], float),
      100 * np.array(of["accuracy"]),
      marker,
      color=color,
      markersize=5,
      alpha=0.8,
      label=label,
    )
  ax.axvline(100 * runs.SMALL, color=colors.quiet, linestyle="--", linewidth=1)
  ax.set(xlabel="α̂: test examples to leave out (%)", ylabel="test accuracy (%)")
  ax.grid(True)
  ax.legend(title="varied", loc="center left", bbox_to_anchor=(1.02, 0.5))


def values_of_sources(records: Records) -> dict[str, Any]:
  """Return what the text says beside rows of records, in per cent."""
  of = records[FIG03]["by_epoch"]
  first, last = np.flatnonzero(np.isin(of["epoch"], (10, 50)))
  quantities = [f"{name}: sd of accuracy" for name in runs.VARIED]
  sds = [records.row(TABLE2, quantity)["value"] for quantity in quantities]
  of_ten = records.row(TABLE1, "10 members: mean accuracy of those drawn")
  pairs = records.row(TABLE2, "S_all: churn of pairs, least")
  return {
    "churn": 100 * np.array(of["churn"])[[first, last]].mean(1),
    "sds": ", ".join(f"{sd:.2f}" for sd in sds),
    "pairs": pairs,
    "accuracy_of_ten": of_ten["value"],
    "table1": TABLE1,
    "fig03": FIG03,
  }


PAGE = Page(
  folder="banerjee2024",
  title="Banerjee 2024: how far one network is from the others",
  appendix=(TABLE1, TABLE2, FIG03, FIG12),
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
  flags = runs.make_parser(None).parse_args(["--kept", str(out / FOLDER)])
  sources = {source: runs.read_gaps(flags, source) for source in runs.VARIED}
  for path, numbers in (
    (TABLE1, table1.measure(sources["S_all"])),
    (TABLE2, table2.measure(sources)),
    (FIG03, fig03.measure(runs.read_gaps(flags, "S_all", by_epoch=True))),
    (FIG12, fig12.measure(fig12.read_gaps(flags))),
  ):
    write_numbers(out / f"{path}.json", numbers)
