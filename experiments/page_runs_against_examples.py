"""The page on runs against examples: what a study should have more of."""

from typing import Any

import numpy as np
import scipy.stats

from experiments import frame
from experiments import runs_against_examples as crossed
from experiments.estimates import format_interval
from experiments.pages import Colors, Page, Picture, Records
from experiments.runs_against_examples import recompute

__all__ = ["PAGE", "recompute"]
NUMBERS = f"{crossed.FOLDER}/numbers"
TEST_SET = 10_000


def numbers_of(records: Records) -> dict[int, dict[str, crossed.Variances]]:
  return frame.revive(records[NUMBERS], dict[int, dict[str, crossed.Variances]])


def draw_sources(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the share of each source in the variance on endlessly many examples, and in
  that by example, of the longest training.
  """
  epochs, of_length = max(numbers_of(records).items())
  n = of_length["accuracy"]
  labels = [*crossed.SOURCES.values()]
  places = np.arange(len(labels))
  for ax, shares, title in zip(
    axes,
    (n.runs, n.both),
    ("variance between runs", "variance by example"),
    strict=True,
  ):
    whole = shares.whole.value / 100
    for estimates, color, label, shift in (
      (shares.total, colors.blue, "drawn anew alone", -0.13),
      (shares.first, colors.orange, "others averaged over", 0.13),
    ):
      value, low, high = np.array([*estimates.values()]).T / whole
      bars = [value - low, high - value]
      style = {"fmt": "o", "color": color, "capsize": 3, "markersize": 4.5}
      ax.errorbar(value, places + shift, xerr=bars, label=label, **style)
    ax.axvline(0, color=colors.quiet, linewidth=0.8)
    ax.set_yticks(places, labels if ax is axes[0] else [""] * len(labels))
    ax.invert_yaxis()
    ax.set(xlabel=f"{title} (%)")
    ax.grid(True, axis="x")
  axes[1].legend(loc="lower left", bbox_to_anchor=(0, 1))
  axes[0].set_title(f"{epochs} epochs", loc="left")


def draw_exchange(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how many runs of each recipe and test examples know a difference as well."""
  epochs, of_length = max(numbers_of(records).items())
  n = of_length["difference"]
  (ax,) = axes
  examples = np.geomspace(100, 100_000, 200)
  for points, color in zip((2, 1, 0.5, 0.3), colors.each(), strict=False):
    runs = runs_needed(n, points / 100, examples)
    ax.plot(examples, runs, color=color, label=f"{points:g} points")
  ax.axvline(TEST_SET, color=colors.quiet, linestyle="--", linewidth=0.8)
  ax.set(xscale="log", yscale="log", ylim=(1, 1000), xlim=(100, 100_000))
  ax.set(xlabel="test examples", ylabel="runs of each recipe")
  ax.set_xticks([100, 1000, 10_000, 100_000], ["100", "1,000", "10,000", "100,000"])
  ax.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
  ax.minorticks_off()
  ax.grid(True)
  ax.legend(title=f"difference, {epochs} epochs", loc="upper right")


def runs_needed(
  n: crossed.Variances,
  difference: float,
  examples: np.ndarray | float,
) -> np.ndarray:
  """Return how many pairs of runs show a difference in 80 % of studies, at 5 %; infinite
  where the examples alone are too few.
  """
  se = difference / (scipy.stats.norm.isf(0.025) + scipy.stats.norm.isf(0.2))
  left = se**2 - n.example.value / np.asarray(examples, float)
  per_run = n.runs.whole.value + n.both.whole.value / np.asarray(examples, float)
  with np.errstate(divide="ignore"):
    return np.where(left > 0, per_run / np.maximum(left, 0), np.inf)


def sd(x: crossed.Component) -> str:
  """Return the root of a variance in points, with its interval."""
  ends = 100 * np.sqrt(np.maximum(x, 0))
  return format_interval(*ends, 1, "")


def values_of_lengths(records: Records) -> dict[str, Any]:
  """Return the components by length, and numbers of runs and examples that do as much."""
  found = numbers_of(records)
  longest = found[max(found)]
  difference = longest["difference"]

  def runs(points: float, examples: int) -> str:
    needed = float(runs_needed(difference, points / 100, examples))
    return f"{np.ceil(needed):,.0f}" if np.isfinite(needed) else "none suffice"

  def share(x: crossed.Component, of: crossed.Component) -> str:
    return format_interval(*(100 * value / of.value for value in x), 1, " %")

  return {
    "lengths": found,
    "longest": longest,
    "epochs": max(found),
    "sd": sd,
    "names": crossed.SOURCES,
    "share": share,
    "runs": runs,
    "sum_of_totals": {
      epochs: 100
      * sum(x.value for x in of["accuracy"].runs.total.values())
      / of["accuracy"].runs.whole.value
      for epochs, of in found.items()
    },
  }


PAGE = Page(
  folder=crossed.FOLDER,
  title="More runs, or more test examples?",
  appendix=(),
  pictures={
    "sources": Picture(
      draw_sources,
      "Share of each source: where it alone is drawn anew, and where all others are "
      "averaged over. Left: of the variance on endlessly many examples. Right: of how "
      "examples react. Bars: 95 %, over groups.",
      panels=2,
      height=2.9,
    ),
    "exchange": Picture(
      draw_exchange,
      "Runs and examples that show a difference between two recipes in 80 % of studies, "
      "all drawn anew and paired. Dashed: MNIST's test set.",
      height=3.3,
    ),
  },
  values=values_of_lengths,
)
