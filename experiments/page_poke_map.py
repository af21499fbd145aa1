"""The page on pokes: where one weight's change begins to matter."""

from typing import Any

import numpy as np

from experiments.estimates import format_interval
from experiments.pages import Colors, Page, Picture, Records
from experiments.poke_map import CENTRE, FOLDER, recompute

__all__ = ["PAGE", "recompute"]
# The axes of the picture, and where the centre lies on them.
DRAWN = {
  "epochs": ("epochs", CENTRE.epochs),
  "lr": ("learning rate", CENTRE.lr),
  "poked after": ("share of steps before", 0),
}
MOST_ERROR = 0.5  # of a setting that is drawn: others fail to train


def settings_of(records: Records, norm: bool) -> dict[tuple[str, Any], dict[str, Any]]:
  """Return the numbers of each setting, with batch norm or without."""
  return {
    (each["setting"], each["value"]): each
    for each in records[f"{FOLDER}/numbers"]["settings"]
    if each["norm"] == norm
  }


def draw_ratios(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the ratio against what is changed."""
  for ax, (setting, (label, centre)) in zip(axes, DRAWN.items(), strict=True):
    for norm, color, name in (
      (True, colors.blue, "batch norm"),
      (False, colors.orange, "none"),
    ):
      found = settings_of(records, norm)
      points = {
        value: n
        for (changed, value), n in found.items()
        if changed == setting and n["error"] < MOST_ERROR
      }
      points[centre] = found["centre", None]
      places = sorted(points)
      ratio, low, high = np.array([points[place]["ratio"] for place in places]).T
      bars = [ratio - low, high - ratio]
      style = {"fmt": "o-", "color": color, "capsize": 2, "markersize": 4}
      ax.errorbar(places, ratio, bars, label=name, **style)
    ax.set(xlabel=label, ylim=(0, 0.6))
    ax.grid(True)
  for ax, ticks in ((axes[0], (1, 4, 16)), (axes[1], (0.01, 0.05, 0.2))):
    ax.set(xscale="log")
    ax.set_xticks(ticks, map(str, ticks))
    ax.minorticks_off()
  axes[0].set(ylabel="poked twin ÷ other seeds")
  axes[2].legend(loc="upper right")


def values_of_map(records: Records) -> dict[str, Any]:
  """Return the rows of the table, and how numbers are said."""
  with_norm, without = (settings_of(records, norm) for norm in (True, False))
  return {
    "rows": [
      (*place, n, without[place])
      for place, n in with_norm.items()
      if place[0] not in DRAWN
    ],
    "with_norm": with_norm,
    "without": without,
    "runs": max(n["runs"] for n in with_norm.values()),
    "ratio": lambda n: format_interval(*n["ratio"]),
    "share": lambda n: format_interval(*n["unchanged"], 100, " %"),
    "percent": lambda x: f"{100 * x:.1f}",
  }


PAGE = Page(
  folder=FOLDER,
  title="Where one weight's change begins to matter",
  appendix=(),
  pictures={
    "ratio": Picture(
      draw_ratios,
      "Test predictions that one weight's change of a thousandth turns, over those in "
      "which two runs of other seeds differ. Bars: 95 %, over runs. "
      "Without batch norm the rate of 0.2 fails to train and is left out.",
      panels=3,
      height=2.7,
    ),
  },
  values=values_of_map,
)
