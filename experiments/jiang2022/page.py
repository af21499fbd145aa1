"""The page of Jiang 2022: the paper's fully connected networks, at its learning rate."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.jiang2022 import fig01, fig06, fig11
from experiments.jiang2022.fig01 import RATIO
from experiments.pages import Colors, Page, Picture, Records
from vmapseeds.store import files

SCATTER, ENSEMBLES, ERRORS = (
  f"jiang2022/{name}" for name in ("fig01", "fig06", "fig11")
)
GROUPS = tuple(fig01.PARTNERS)
MARKERS = dict(zip(GROUPS, "os^vD", strict=True))
RATES = fig01.KEPT["lr"]


def colors_of(colors: Colors) -> dict[str, str]:
  return dict(zip(GROUPS, colors.each(), strict=True))


def draw_rates(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the ratio of error to disagreement against the learning rate."""
  for ax, groups, (low, high) in zip(
    axes, (GROUPS[:2], GROUPS[2:]), ((0.9, 1), (1, 1.3)), strict=True
  ):
    ax.axhspan(low, high, color=colors.quiet, alpha=0.25, linewidth=0)
    ax.axhline(1, color=colors.ink, linestyle="--", linewidth=0.8)
    for i, group in enumerate(groups):
      quantities = [f"error ÷ disagreement at rate {rate:g}, {group}" for rate in RATES]
      rows = [records.row(SCATTER, quantity) for quantity in quantities]
      value, low, high = np.array([[r["value"], r["low"], r["high"]] for r in rows]).T
      places = np.array(RATES) * 1.05 ** (i - 1)
      ax.errorbar(
        places,
        value,
        [value - low, high - value],
        fmt=f"{MARKERS[group]}-",
        color=colors_of(colors)[group],
        markersize=4.5,
        label=group,
      )
    ax.set(xscale="log", yscale="log", xlabel="learning rate", ylim=(0.8, 8))
    ax.set_xticks(RATES, [f"{rate:g}" for rate in RATES])
    ax.set_yticks([0.9, 1, 1.3, 2, 3, 5], ["0.9", "1", "1.3", "2", "3", "5"])
    ax.minorticks_off()
    ax.legend(loc="upper right")
  axes[0].set_ylabel("error ÷ disagreement")


def draw_calibration(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how often a class is right by the share of the votes for it."""
  (ax,) = axes
  ax.plot([0, 100], [0, 100], color=colors.ink, linestyle="--", linewidth=0.8)
  for group, curve in records[ENSEMBLES]["curves"].items():
    confidence, accuracy, se, _ = 100 * np.array(curve)
    ax.errorbar(
      confidence,
      accuracy,
      2 * se,
      fmt=f"{MARKERS[group]}-",
      color=colors_of(colors)[group],
      markersize=4,
      label=group,
    )
  ax.set(xlabel="runs that vote for a class (%)", ylabel="how often it is right (%)")
  ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def draw_errors(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how many runs have an example wrong, beside Beta laws."""
  numbers = records[ERRORS]
  for ax, groups in zip(axes, (GROUPS[:2], GROUPS[2:4]), strict=True):
    for group in groups:
      counts = np.array(numbers["counts"][group])
      color = colors_of(colors)[group]
      ax.plot(counts, ".", color=color, markersize=4, label=group)
      ax.plot(counts.sum() * np.array(numbers["laws"][group]), color=color)
    ax.set(yscale="log", xlabel="of 100 runs, wrong in", ylim=(1, 1e4))
    ax.set_yticks([1, 10, 100, 1000, 10_000], ["1", "10", "100", "1,000", "10,000"])
    ax.minorticks_off()
    ax.legend()
  axes[0].set_ylabel("test examples")


def values_of_configurations(records: Records) -> dict[str, Any]:
  """Return what the configurations at the paper's rate show of each group."""
  points = records[SCATTER]
  at = np.array(points["settings"]["lr"]) == 0.1
  error = np.array(points["error"])
  members = error.shape[0] * (1 + len(GROUPS))
  inside = {}
  above = {}
  for group in GROUPS[:4]:
    ratios = (error / np.array(points["disagreement"][group]))[:, at]
    low, high = RATIO[group]
    inside[group] = f"{100 * np.mean((low <= ratios) & (ratios <= high)):.0f} %"
    # The ensembles' own error over disagreement, of 100 runs
    ensemble = records.row(ENSEMBLES, f"error ÷ disagreement, {group}")["value"]
    above[group] = f"{100 * np.mean(ratios > ensemble):.0f}"
  return {
    "runs": f"{members * at.size:,} runs in all",
    "errors": (100 * error[:, at].min(), 100 * error[:, at].max()),
    "scatter": SCATTER,
    "ensembles": ENSEMBLES,
    "beta": ERRORS,
    "groups": GROUPS[:4],
    "inside": inside,
    "above": above,
  }


PAGE = Page(
  folder="jiang2022",
  title="Jiang 2022: test error from disagreement",
  appendix=(SCATTER, ENSEMBLES, ERRORS),
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
  """Make the records of kept predictions anew."""
  flags = argparse.Namespace(kept=out / "jiang2022")
  predictions = {group: fig06.predictions_of(flags, group) for group in fig06.GROUPS}
  errors = {group: fig11.errors_of(flags, group) for group in fig11.GROUPS}
  for path, numbers in (
    (SCATTER, fig01.measure(*fig01.points_of(flags))),
    (ENSEMBLES, fig06.measure(predictions)),
    (ERRORS, fig11.measure(errors)),
  ):
    files.write(out / f"{path}.json", (json.dumps(numbers) + "\n").encode())
