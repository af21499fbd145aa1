"""The page of 60,000 runs of each of four lengths: what so many teach."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import frame
from experiments.jordan2024 import lessons, sixty_thousand
from experiments.pages import Colors, Page, Picture, Records

NUMBERS = "sixty_thousand/numbers"
SHOWN = {"digits-1": "1 epoch", "digits-4": "4 epochs", "digits-16": "16 epochs"}


def draw_accuracies(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how many runs have each accuracy, on one axis."""
  (ax,) = axes
  lengths = records[NUMBERS]["lengths"]
  for (name, label), color in zip(SHOWN.items(), colors.each(), strict=False):
    n = lengths[name]
    counts = np.array(n["errors"])
    accuracy = 100 * (1 - np.arange(len(counts)) / n["examples"])
    label = f"{label}: sd {100 * n['sd']:.2f} %"
    ax.fill_between(accuracy, counts, step="mid", color=color, alpha=0.5, label=label)
  ax.set(xlim=(65, 100), ylim=(0, None), xlabel="test accuracy (%)", ylabel="runs")
  ax.legend(loc="upper left")


def claims_seen(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the share of draws that show a claim against their number of runs."""
  (ax,) = axes
  by_claim = records[NUMBERS]["shares"]
  styles = ("-", "--", "-.")
  for i, (name, by_size) in enumerate(by_claim.items()):
    color = colors.each()[i % len(colors.each())]
    sizes = [int(size) for size in by_size]
    shares = [100 * share for share in by_size.values()]
    style = styles[i // len(colors.each())]
    ax.plot(sizes, shares, style, marker=".", color=color, label=name)
  ax.axhline(100 * lessons.LEVEL, color=colors.quiet, linewidth=0.8)
  ax.set(
    xscale="log",
    xlabel="runs of 4 and of 16 epochs",
    ylabel="draws that show it (%)",
  )
  ax.set_xticks([10, 100, 1000, 10_000], ["10", "100", "1,000", "10,000"])
  ax.grid(True)
  ax.legend(loc="upper left", bbox_to_anchor=(-0.1, -0.22), frameon=False)


def draw_coverage(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how many of the intervals from 500 runs hold."""
  (ax,) = axes
  by_duration = records[NUMBERS]["coverage"]
  names = [*by_duration["16"]]
  for i, (epochs, by_statistic) in enumerate(by_duration.items()):
    place = np.arange(len(names)) + 0.16 * (i - 1.5)
    values = 100 * np.array([by_statistic[name] for name in names])
    bars = np.abs(values[:, 1:] - values[:, :1]).T
    color = colors.each()[i]
    label = frame.format_duration(int(epochs))
    ax.errorbar(
      place,
      values[:, 0],
      bars,
      fmt="o",
      color=color,
      markersize=4,
      label=label,
    )
  ax.axhline(95, color=colors.quiet, linewidth=0.8)
  ax.set_xticks(
    range(len(names)),
    [name.replace(" of ", "\nof ").replace(" on ", "\non ") for name in names],
  )
  ax.set(ylabel="intervals that hold (%)", ylim=(80, 101))
  ax.legend(loc="lower left", ncols=4, columnspacing=1, handletextpad=0.2)


def values_of_campaigns(records: Records) -> dict[str, Any]:
  record = records[NUMBERS]
  least = {}
  for claim, by_size in record["shares"].items():
    # JSON has no keys but strings.
    shares = {int(size): share for size, share in by_size.items()}
    least[claim] = lessons.smallest(shares)
  hours = sum(n["seconds"] for n in record["lengths"].values()) / 3600
  return {"lengths": record["lengths"], "least": least, "hours": hours}


PAGE = Page(
  folder="sixty_thousand",
  title="60,000 runs: what so many teach",
  appendix=(NUMBERS,),
  pictures={
    "accuracies": Picture(
      draw_accuracies,
      "60,000 runs of each length on 8×8 digits, tested on 797. A few after 1 epoch are "
      "below 65 %.",
    ),
    "coverage": Picture(
      draw_coverage,
      "Of 120 groups of 500 runs, how many have an interval of 95 % that holds the value "
      "of all runs. Bars: Wilson's, 95 %.",
    ),
    "shown": Picture(
      claims_seen,
      "Drawing fewer runs from these: in how many draws do intervals of 95 % show each "
      "claim? Line: 95 %.",
      height=4.4,
    ),
  },
  values=values_of_campaigns,
)


def recompute(out: Path) -> None:
  """Make the numbers anew from the kept tallies."""
  sixty_thousand.main(["--no-train", "--out", str(out / "sixty_thousand")])
