"""The page of Jiang 2022: the paper's fully connected networks, at its learning rate."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import pages
from experiments.jiang2022 import fig11_errors, paper
from experiments.pages import Colors, Page, Picture, Records

RATES = "jiang2022/fig10_rates"
TABLE = "jiang2022/table1_ensembles_cifar10"
KEPT = (
  "fig10_rates",
  "fig06_calibration",
  "table1_ensembles_cifar10",
  "fig11_errors",
  "fig12_confidences",
)
GROUPS = ("AllDiff", "DiffData", "DiffInit", "DiffOrder", "SameData")
MARKERS = dict(zip(GROUPS, "os^vD", strict=True))


def colors_of(colors: Colors) -> dict[str, str]:
  return dict(zip(GROUPS, colors.each(), strict=True))


def draw_rates(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the ratio of error to disagreement against the learning rate."""
  numbers = records.numbers(RATES)
  for ax, groups, (low, high) in zip(
    axes, (GROUPS[:2], GROUPS[2:]), ((0.9, 1), (1, 1.3)), strict=True
  ):
    ax.axhspan(low, high, color=colors.quiet, alpha=0.25, linewidth=0)
    ax.axhline(1, color=colors.ink, linestyle="--", linewidth=0.8)
    for i, group in enumerate(groups):
      ratios = np.array([of[group].agreement.ratio for of in numbers.values()])
      places = np.array([float(rate) for rate in numbers]) * 1.05 ** (i - 1)
      value, low, high = ratios.T
      ax.errorbar(
        places,
        value,
        [value - low, high - value],
        fmt=f"{MARKERS[group]}-",
        color=colors_of(colors)[group],
        markersize=4.5,
        label=group,
      )
    ticks = [float(rate) for rate in numbers]
    ax.set(xscale="log", yscale="log", xlabel="learning rate", ylim=(0.8, 8))
    ax.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
    ax.set_yticks([0.9, 1, 1.3, 2, 3, 5], ["0.9", "1", "1.3", "2", "3", "5"])
    ax.minorticks_off()
    ax.legend(loc="upper right")
  axes[0].set_ylabel("error ÷ disagreement")


def draw_calibration(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how often a class is right by the share of the votes for it."""
  (ax,) = axes
  numbers = records.numbers("jiang2022/fig06_calibration")
  ax.plot([0, 100], [0, 100], color=colors.ink, linestyle="--", linewidth=0.8)
  for group, n in numbers.items():
    x = 100 * n.curve.confidence
    y = 100 * n.curve.accuracy
    se = 200 * n.se
    ax.errorbar(
      x,
      y,
      se,
      fmt=f"{MARKERS[group]}-",
      color=colors_of(colors)[group],
      markersize=4,
      label=group,
    )
  ax.set(xlabel="runs that vote for a class (%)", ylabel="how often it is right (%)")
  ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def draw_errors(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how many runs have an example wrong, beside Beta laws."""
  numbers = records.numbers("jiang2022/fig11_errors")
  for ax, groups in zip(axes, (GROUPS[:2], GROUPS[2:4]), strict=True):
    for group in groups:
      n = numbers[group]
      color = colors_of(colors)[group]
      places = np.arange(n.runs + 1)
      ax.plot(places, n.counts, ".", color=color, markersize=4, label=group)
      ax.plot(places, n.counts.sum() * fig11_errors.law(n.fit, n.runs), color=color)
    ax.set(yscale="log", xlabel="of 100 runs, wrong in", ylim=(1, 1e4))
    ax.set_yticks([1, 10, 100, 1000, 10_000], ["1", "10", "100", "1,000", "10,000"])
    ax.minorticks_off()
    ax.legend()
  axes[0].set_ylabel("test examples")


def values_of_configurations(records: Records) -> dict[str, Any]:
  """Return what the configurations at the paper's rate show of each group."""
  used = records[RATES]["campaigns"].values()
  at_rate = {group: records.numbers(RATES)["0.1"][group] for group in GROUPS[:4]}
  found = {group: n.agreement for group, n in at_rate.items()}
  error = 100 * at_rate["AllDiff"].points.error
  inside = {}
  above = {}
  for group, n in at_rate.items():
    ratios = (n.points.error / n.points.disagreement).ravel()
    low, high = paper.RATIO[group]
    inside[group] = f"{100 * np.mean((low <= ratios) & (ratios <= high)):.0f} %"
    # The ensembles' own error over disagreement, of 100 runs
    ensemble = records.numbers(TABLE)[group].ratio
    above[group] = f"{100 * np.mean(ratios > ensemble):.0f}"
  return {
    "runs": f"{sum(campaign['runs'] for campaign in used):,} runs in all",
    "errors": (error.min(), error.max()),
    "table": TABLE,
    "groups": GROUPS[:4],
    "ratio": {group: str(n.ratio) for group, n in found.items()},
    "r_squared": {group: str(n.r_squared) for group, n in found.items()},
    "tau": {group: str(n.kendall_tau) for group, n in found.items()},
    "inside": inside,
    "above": above,
  }


PAGE = Page(
  folder="jiang2022",
  title="Jiang 2022: test error from disagreement",
  appendix=tuple(f"jiang2022/{name}" for name in (*KEPT, "fig15_pairs")),
  pictures={
    "rates": Picture(
      draw_rates,
      "Figure 10: 96 configurations at each rate. Grey: where the paper's points "
      "typically lie. SameData differs in initialisation and order. Bars: 95 %, over "
      "configurations.",
      panels=2,
      height=3.1,
    ),
    "calibration": Picture(
      draw_calibration,
      "Figure 6: ensembles of 100 runs. Bars: two standard errors.",
    ),
    "errors": Picture(
      draw_errors,
      "Figure 11: dots are counts of test examples, lines Beta laws fitted by likelihood.",
      panels=2,
    ),
  },
  values=values_of_configurations,
)


def recompute(out: Path) -> None:
  """Make the records of kept runs anew."""
  pages.recompute_records(out, "jiang2022", "jiang2022", KEPT)
