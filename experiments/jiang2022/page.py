"""The page of Jiang 2022: the paper's fully connected networks, at its learning rate."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import pages
from experiments.jiang2022 import fig11_errors, paper
from experiments.jiang2022.campaigns import SCALES
from experiments.pages import Colors, Line, Page, Picture, Records

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
  (ax,) = axes
  numbers = records.numbers(RATES)
  ax.axhspan(0.9, 1.3, color=colors.quiet, alpha=0.2, linewidth=0)
  ax.axhline(1, color=colors.ink, linestyle="--", linewidth=0.8)
  for i, (group, color) in enumerate(colors_of(colors).items()):
    ratios = np.array([groups[group].agreement.ratio for groups in numbers.values()])
    places = np.array([float(rate) for rate in numbers]) * 1.05 ** (i - 2)
    value, low, high = ratios.T
    bars = [value - low, high - value]
    ax.errorbar(
      places,
      value,
      bars,
      fmt=f"{MARKERS[group]}-",
      color=color,
      markersize=4.5,
      label=group,
    )
  ticks = [float(rate) for rate in numbers]
  ax.set(xscale="log", yscale="log", xlabel="learning rate")
  ax.set(ylabel="error ÷ disagreement")
  ax.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
  ax.set_yticks([0.9, 1, 1.3, 2, 3, 5], ["0.9", "1", "1.3", "2", "3", "5"])
  ax.minorticks_off()
  ax.legend(loc="upper right")


def settings(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the ratio at the paper's rate by depth and by batch size."""
  numbers = records.numbers(RATES)["0.1"]
  plot = SCALES["laptop"].scatters["mlp_rates"]
  of_rate = np.isclose(plot.learning_rates(), 0.1)
  swept = plot.runs().values
  for ax, (name, label) in zip(
    axes,
    {"depth": "hidden layers", "batch_size": "batch size"}.items(),
    strict=True,
  ):
    values = swept[name][: len(of_rate)][of_rate]
    ticks = np.unique(values)
    ax.axhspan(0.9, 1.3, color=colors.quiet, alpha=0.2, linewidth=0)
    ax.axhline(1, color=colors.ink, linestyle="--", linewidth=0.8)
    for group, color in colors_of(colors).items():
      points = numbers[group].points
      ratios = [
        points.error[values == x].sum() / points.disagreement[values == x].sum()
        for x in ticks
      ]
      ax.plot(ticks, ratios, f"{MARKERS[group]}-", color=color, ms=4.5, label=group)
    ax.set(xlabel=label, ylim=(0.8, 2.2))
    ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
  axes[0].set_ylabel("error ÷ disagreement")
  axes[0].legend()


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


def draw_groups(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw error, disagreement and CACE of each group, the paper's and ours."""
  numbers = records.numbers("jiang2022/table1_ensembles_cifar10")
  printed = paper.ENSEMBLES["table 1"]
  names = [*numbers]
  places = np.arange(len(names))
  gaps = [100 * numbers[name].gap for name in names]
  caces = [100 * numbers[name].cace[numbers[name].runs].value for name in names]
  of_paper = (
    [100 * printed[name].gap for name in names],
    [100 * printed[name].cace[100] for name in names],
  )
  for ax, ours, theirs, title in zip(
    axes,
    (gaps, caces),
    of_paper,
    ("gap of the two (%)", "CACE (%)"),
    strict=True,
  ):
    ax.bar(places - 0.2, theirs, 0.38, color=colors.orange, label="the paper")
    ax.bar(places + 0.2, ours, 0.38, color=colors.blue, label="here")
    ax.set_xticks(places, [name.replace("Diff", "Diff\n") for name in names])
    ax.set(ylabel=title)
  axes[0].legend()


# What differs between the two runs of a pair.
DIFFERS = {
  "AllDiff": "all differs",
  "DiffData": "data differ",
  "DiffInit": "initialisation differs",
  "DiffOrder": "order differs",
  "SameData": "data shared",
}


def configurations_line(group: str) -> Line:
  statement = f"Error ÷ disagreement, configurations, {DIFFERS[group]}"
  quantity = f"error over disagreement at learning rate 0.1, {group}"
  return Line(statement, f"connected {group}", RATES, quantity)


def ensemble_line(group: str) -> Line:
  statement = f"Error ÷ disagreement, ensemble, {DIFFERS[group]}"
  quantity = f"error over disagreement, {group}"
  return Line(statement, f"ratio {group}", TABLE, quantity)


def calibration_line(group: str) -> Line:
  statement = f"Calibrated ensemble, {DIFFERS[group]} (distance)"
  record = "jiang2022/fig06_calibration"
  quantity = f"distance from y = x, {group}"
  return Line(statement, "calibrated", record, quantity)


LINES = (
  configurations_line("AllDiff"),
  configurations_line("DiffData"),
  configurations_line("DiffInit"),
  configurations_line("DiffOrder"),
  configurations_line("SameData"),
  ensemble_line("AllDiff"),
  ensemble_line("DiffData"),
  ensemble_line("DiffInit"),
  ensemble_line("DiffOrder"),
  calibration_line("AllDiff"),
  calibration_line("DiffData"),
  calibration_line("DiffInit"),
  calibration_line("DiffOrder"),
  Line(
    "CACE is larger where the data are shared (ratio)",
    "CACE of the same data",
    TABLE,
    "CACE of DiffInit and DiffOrder",
  ),
  Line(
    "The gap of error and disagreement, too (ratio)",
    "gap of the same data",
    TABLE,
    "gap of DiffInit and DiffOrder",
  ),
  Line(
    "Error counts follow a Beta law (distance)",
    "beta",
    "jiang2022/fig11_errors",
    "distance from the Beta fit, AllDiff",
  ),
  Line(
    "Few confidences are in the middle",
    "few confidences",
    "jiang2022/fig12_confidences",
    "those above 0.8 less those from 0.4 to 0.6, AllDiff",
  ),
  Line(
    "Error and disagreement of configurations correlate: R²",
    "r_squared",
    "jiang2022/fig01_cifar10",
    "R², AllDiff",
    "network: a small CNN; rate 0.02",
  ),
  Line(
    "Disagreement tells error of CNNs, data shared",
    "ratio DiffInit",
    "jiang2022/fig01_cifar10",
    "error over disagreement, DiffInit",
    "network: a small CNN; rate 0.02",
  ),
)


def values_of_settings(records: Records) -> dict[str, Any]:
  used = records[RATES]["campaigns"].values()
  return {"runs": f"{sum(campaign['runs'] for campaign in used):,}"}


PAGE = Page(
  folder="jiang2022",
  paper="jiang2022",
  title="Jiang 2022: test error from disagreement",
  appendix=tuple(
    f"jiang2022/{name}" for name in (*KEPT, "fig01_cifar10", "fig15_pairs")
  ),
  lines=LINES,
  pictures={
    "rates": Picture(
      draw_rates,
      "Figure 10: 96 configurations at each rate. Grey: where the paper's points lie, 0.9 "
      "to 1.3. Bars: 95 %, over configurations.",
      height=3.2,
    ),
    "settings": Picture(
      settings,
      "The same at the paper's rate of 0.1, by depth and by batch size.",
      panels=2,
    ),
    "calibration": Picture(
      draw_calibration,
      "Figure 6: 100 runs a group. Bars: two standard errors.",
    ),
    "ensembles": Picture(
      draw_groups,
      "Table 1: gap of error and disagreement, and calibration error of 100 runs. The "
      "paper's are ResNet-18 on 10,000 of CIFAR-10, which err four times as often.",
      panels=2,
    ),
    "errors": Picture(
      draw_errors,
      "Figure 11: dots are counts, lines Beta laws with their mean and variance.",
      panels=2,
    ),
  },
  values=values_of_settings,
)


def recompute(out: Path) -> None:
  """Make the records of kept runs anew."""
  pages.recompute_records(out, "jiang2022", "jiang2022", KEPT)
