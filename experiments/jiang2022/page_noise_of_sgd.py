"""The page on the noise of SGD: when disagreement tells error."""

from typing import Any

import numpy as np

from experiments import frame
from experiments.estimates import format_interval
from experiments.jiang2022 import noise_of_sgd
from experiments.jiang2022.noise_of_sgd import NUMBERS, Numbers, recompute
from experiments.pages import GALLERY, Colors, Page, Picture, Records

__all__ = ["PAGE", "recompute"]
MARKERS = "os^D"


def numbers_of(records: Records) -> Numbers:
  return frame.revive(records[NUMBERS], Numbers)


def draw_collapse(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the mean ratio against rate ÷ batch, by depth, beside the law."""
  n = numbers_of(records)
  law = n.law
  noise = n.points.rate / n.points.batch
  (ax,) = axes
  for depth, color, marker in zip(range(1, 5), colors.each(), MARKERS, strict=False):
    of_depth = n.points.depth == depth
    for rate in np.unique(n.points.rate):
      for batch in np.unique(n.points.batch):
        at = of_depth & (n.points.rate == rate) & (n.points.batch == batch)
        ratios = np.log(n.points.ratio["DiffOrder"][at])
        mean, reach = ratios.mean(), ratios.std(ddof=1)
        value = np.exp(mean)
        bars = [[value - np.exp(mean - reach)], [np.exp(mean + reach) - value]]
        place = rate / batch
        ax.errorbar(place, value, bars, fmt=marker, color=color, markersize=4)
    grid = np.geomspace(noise.min(), noise.max(), 60)
    ax.plot(grid, noise_of_sgd.predict(law, grid, 1, depth), color=color)
    label = "1 hidden layer" if depth == 1 else f"{depth} layers"
    ax.plot([], [], f"{marker}-", color=color, markersize=4, label=label)
  ax.axhline(1, color=colors.ink, linestyle="--", linewidth=0.8)
  ax.set(xscale="log", yscale="log", xlabel="learning rate ÷ batch size")
  ax.set(ylabel="error ÷ disagreement")
  ax.set_xticks([0.0001, 0.001], ["0.0001", "0.001"])
  ax.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
  ax.minorticks_off()
  ax.grid(True)
  ax.legend()


def draw_groups(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the ratio of each group against rate ÷ batch, over all depths."""
  n = numbers_of(records)
  noise = (n.points.rate / n.points.batch).round(9)
  (ax,) = axes
  places = np.unique(noise)
  for (group, ratio), color in zip(n.points.ratio.items(), colors.each(), strict=True):
    values = [np.exp(np.log(ratio[noise == x]).mean()) for x in places]
    ax.plot(places, values, "o-", color=color, markersize=4, label=group)
  ax.axhline(1, color=colors.ink, linestyle="--", linewidth=0.8)
  ax.set(xscale="log", yscale="log", xlabel="learning rate ÷ batch size")
  ax.set(ylabel="error ÷ disagreement")
  ax.set_xticks([0.0001, 0.001], ["0.0001", "0.001"])
  ax.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
  ax.minorticks_off()
  ax.grid(True)
  ax.legend(loc="upper right")


def draw_check(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the ratios of the check against what the law says."""
  n = numbers_of(records)
  (ax,) = axes
  for momentum, color, marker in ((0.0, colors.blue, "o"), (0.9, colors.orange, "s")):
    for each in n.checks:
      if each.momentum == momentum:
        predicted = [each.predicted] * len(each.ratios)
        ax.plot(predicted, each.ratios, marker, color=color, markersize=4)
    ax.plot([], [], marker, color=color, markersize=4, label=f"momentum {momentum:g}")
  ends = [0.8, 60]
  ax.plot(ends, ends, color=colors.ink, linestyle="--", linewidth=0.8)
  ax.set(xscale="log", yscale="log", xlabel="error ÷ disagreement by the law")
  ax.set(ylabel="in the check")
  for ticks in (ax.set_xticks, ax.set_yticks):
    ticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
  ax.minorticks_off()
  ax.grid(True)
  ax.legend()


def values_of_law(records: Records) -> dict[str, Any]:
  """Return the coefficients with their intervals, and how the check went."""
  n = numbers_of(records)
  law = n.law

  noise = n.points.rate / n.points.batch

  def mean_ratio(rate: float, batch: int) -> str:
    at = np.isclose(noise, rate / batch) & (n.points.batch == batch)
    return f"{np.exp(np.log(n.points.ratio['DiffOrder'][at]).mean()):.2f}"

  misses = {}
  for momentum in (0.0, 0.9):
    misses[momentum] = [
      np.log(ratio / each.predicted)
      for each in n.checks
      if each.momentum == momentum
      for ratio in each.ratios
    ]
  return {
    "law": law,
    "slopes": n.slopes,
    "text": lambda x: format_interval(*x),
    "positive": lambda x: format_interval(-x.value, -x.high, -x.low),
    "mean_ratio": mean_ratio,
    "misses": misses,
    "factor": lambda logs: f"{np.exp(np.mean(logs)):.2f}",
    "spread": np.std(misses[0.0] + misses[0.9]) if n.checks else None,
    "checked": sum(len(each.ratios) for each in n.checks),
    "failed": sum(each.failed for each in n.checks),
    "constant": np.exp(law.constant.value),
  }


# Runs that check the law join the page once they are trained.
CHECK = {
  "check": Picture(
    draw_check,
    "Each pair of the check beside the law. Dashed: equal.",
    height=3.2,
  )
}
PAGE = Page(
  folder="noise_of_sgd",
  title="The noise of SGD decides whether disagreement tells error",
  appendix=(),
  pictures={
    "collapse": Picture(
      draw_collapse,
      "Runs that differ in the order of the data alone. A dot is the mean of 8 "
      "configurations; its bar is their standard deviation. Lines: the law.",
      height=3.4,
    ),
    "groups": Picture(
      draw_groups,
      "The same by what differs between the two runs; means over 32 configurations or "
      "more.",
      height=3.2,
    ),
    **(CHECK if (GALLERY / "noise_of_sgd" / "check.json").exists() else {}),
  },
  values=values_of_law,
)
