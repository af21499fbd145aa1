"""The page of Bouthillier 2021: sources of variance, and decisions."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.bouthillier2021 import fig01, fig06, figc1, tasks
from experiments.bouthillier2021.tasks import GAMMA
from experiments.estimates import format_interval
from experiments.measures.estimators import estimator_se
from experiments.pages import Colors, Page, Picture, Records
from experiments.scripts import write_numbers

FOLDER = "bouthillier2021"
NAMES = ("fig01", "fig01_peptides", "fig02", "fig05", "fig06", "figc1")
SOURCES, PEPTIDES, BINOMIAL, ESTIMATORS, DETECTION, SIZES = (
  f"{FOLDER}/{name}" for name in NAMES
)
LABELS = {
  "augment": "data augmentation",
  "order": "data order",
  "init": "weights init",
  "dropout": "dropout",
  "random": "random search",
  "noisy_grid": "noisy grid search",
  "tpe": "Bayesian optimisation",
  "everything": "all but the search",
  "all, and the search": "all, and the search",
}
TASKS = {
  "breast_cancer": "breast cancer",
  "digits": "digits",
  "mnist": "MNIST",
  "cifar10": "CIFAR-10",
}


def draw_sources(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw variances by source, over those where the data vary."""
  (ax,) = axes
  of_tasks = records[PEPTIDES]["relative"] | records[SOURCES]["relative"]
  names = list(LABELS)
  for i, ((task, relative), color) in enumerate(
    zip(of_tasks.items(), colors.each(), strict=False)
  ):
    label = TASKS.get(task, task)
    shown = {name: x for name, x in relative.items() if name in LABELS}
    places = [names.index(name) + 0.14 * (i - 2) for name in shown]
    value, low, high = np.array(list(shown.values())).T
    bars = np.abs([low - value, high - value])
    marker = "D" if label == "peptides" else "o"
    ax.errorbar(
      value,
      places,
      xerr=bars,
      fmt=marker,
      color=color,
      markersize=4,
      label=label,
    )
  ax.axvline(1, color=colors.ink, linewidth=0.8)
  ax.axvline(0.5, color=colors.quiet, linewidth=0.8, linestyle="--")
  ax.set_yticks(range(len(names)), LABELS.values())
  ax.invert_yaxis()
  ax.set(xscale="log", xlabel="variance over that where the data vary")
  ax.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
  ax.minorticks_off()
  ax.grid(True, axis="x")
  ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def draw_binomial(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the sd where the data vary against a binomial's, both logarithmic."""
  (ax,) = axes
  points = records[BINOMIAL]["points"]
  ends = np.array([0.1, 5])
  ax.plot(ends, ends, color=colors.quiet, linestyle="--", linewidth=1)
  ax.annotate("equal", (0.14, 0.115), color=colors.quiet)
  for (task, n), color in zip(points.items(), colors.each()[1:], strict=False):
    value, low, high = 100 * np.array(n["observed"])
    ax.errorbar(
      100 * n["binomial"],
      value,
      [[value - low], [high - value]],
      fmt="o",
      color=color,
      capsize=3,
      label=f"{TASKS[task]}: n′ = {n['examples']:,}",
    )
  ticks = [0.2, 0.5, 1, 2, 4]
  ax.set(
    xscale="log",
    yscale="log",
    xlim=ends,
    ylim=ends,
    xlabel="sd of a binomial (%)",
    ylabel="sd of accuracy (%)",
  )
  ax.set_xticks(ticks, map(str, ticks))
  ax.set_yticks(ticks, map(str, ticks))
  ax.minorticks_off()
  ax.grid(True)
  ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def detection(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how often each criterion says that A is better."""
  (ax,) = axes
  n = records[DETECTION]
  independent, after_search = n["curves"].values()
  ax.axvspan(0.5, GAMMA, color=colors.quiet, alpha=0.15, linewidth=0)
  ax.plot(n["true"], n["oracle"], color=colors.ink, linewidth=1, label="best possible")
  for name, color in zip(
    independent, (colors.green, colors.orange, colors.purple), strict=True
  ):
    ax.plot(n["true"], independent[name], color=color, label=name)
    if name != "one run each":  # which has nothing to share
      ax.plot(n["true"], after_search[name], "--", color=color)
  ax.plot([], [], "--", color=colors.ink, label="after one search")
  ax.set(xlabel="true P(A > B); grey: from 1/2 to γ", ylabel="rate of “A is better”")
  ax.set(xlim=(0.4, 0.99), ylim=(-0.02, 1.02))
  ax.grid(True)
  ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def sizes(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how many runs a decision takes."""
  (ax,) = axes
  n = records[SIZES]
  needed = np.array(n["needed"], float)
  ax.plot(n["gamma"], n["noether"], color=colors.orange, label="the paper's formula")
  ax.plot(n["gamma"], needed, "o-", color=colors.blue, label="pairs, exact")
  ax.plot(
    GAMMA,
    figc1.PAPER[GAMMA],
    "D",
    color=colors.orange,
    label="the paper's choice: 29",
    markersize=7,
  )
  ax.set(xlabel="P(A > B) to be found", ylabel="runs of each", yscale="log")
  ax.set_yticks([10, 30, 100, 300, 700], ["10", "30", "100", "300", "700"])
  ax.minorticks_off()
  ax.grid(True)
  ax.legend()


def estimators(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the standard error of the mean of k measures."""
  (ax,) = axes
  n = records[ESTIMATORS]["tasks"]["breast_cancer"]
  k = np.unique(np.geomspace(1, 100, 40).astype(int))
  ideal = 100 * estimator_se(k, n["variance"])
  ax.plot(k, ideal, color=colors.blue, label="a new search for each")
  labels = {"init": "initialisation", "data": "data", "all": "all but the search"}
  for (varied, label), color in zip(
    labels.items(),
    (colors.purple, colors.orange, colors.green),
    strict=True,
  ):
    b = n["biased"][varied]
    rho = b["correlation"][0]
    line = estimator_se(k, b["variance"], np.clip(rho, 0, 0.99))
    ax.plot(k, 100 * line, color=color)
    sd_of_means = np.array(b["sd_of_means"])
    some = k[k <= len(sd_of_means)]
    ax.plot(
      some,
      100 * sd_of_means[some - 1],
      ".",
      color=color,
      markersize=4,
      label=f"{label} varied: ρ = {rho:.2f}",
    )
  ax.set(
    xscale="log",
    xlabel="measures k",
    ylabel="sd of their mean (%)",
    ylim=(0, None),
  )
  ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
  ax.grid(True)
  ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def values_of_tasks(records: Records) -> dict[str, Any]:
  """Return what the text says beside rows of records."""
  of_tasks = records[ESTIMATORS]["tasks"]
  correlations = of_tasks["digits"]["biased"]["all"]["correlation"][:3]

  def rho(varied: str) -> str:
    found = {task: of["biased"][varied]["correlation"] for task, of in of_tasks.items()}
    return "; ".join(f"{TASKS[t]} {format_interval(*x[:3])}" for t, x in found.items())

  def rate(kind: str, criterion: str) -> str:
    value = records.row(DETECTION, f"{kind}, {criterion}, ρ = 0")["value"]
    return f"{value:.1f} %" if value < 99.95 else "100 %"

  def pairs(quantity: str) -> float:
    return records.row(SIZES, f"{quantity}, γ = {GAMMA:g}")["value"]

  return {
    "peptide": PEPTIDES,
    "sources": SOURCES,
    "rho": rho,
    "rate": rate,
    "criteria": fig06.PAPER,
    "pairs": pairs,
    "chosen": figc1.PAPER[GAMMA],
    "rho_digits": correlations,
    "wrongly": [100 * false_positives(rho) for rho in correlations],
  }


def false_positives(rho: float) -> float:
  """Return how often P(A > B) finds A better where it is not, of correlated measures."""
  (rate,) = fig06.rates(np.array([0.5]), rho)["P(A > B) of 50"]
  return float(rate)


PAGE = Page(
  folder="bouthillier2021",
  title="Bouthillier 2021: when is one recipe better than another?",
  appendix=(PEPTIDES, SOURCES, BINOMIAL, ESTIMATORS, DETECTION, SIZES),
  pictures={
    "sources": Picture(
      draw_sources,
      "Figure 1: variance where one source varies, or several. Dashed: half. Bars: 95 %.",
      height=3.6,
    ),
    "binomial": Picture(
      draw_binomial,
      "Figure 2: where only the data vary, beside a binomial of the test examples. Bars: "
      "95 %.",
    ),
    "estimators": Picture(
      estimators,
      "Figure 5, on breast cancer. Below the first, measures share one search. Dots: measured "
      "over 20 repetitions, so that each is known to a sixth of itself; lines: equation 7.",
    ),
    "detection": Picture(
      detection,
      "Figure 6: exact rates for 50 pairs of normal measures, beside a test that knows their "
      "variance. Dashed: after one search, with the correlation of 0.16 found on digits.",
    ),
    "sizes": Picture(
      sizes,
      "Figure C.1: runs for a power of 95 %. The formula is for groups, not pairs. Pairs were "
      "counted up to 400, which is too few below 0.6.",
    ),
  },
  values=values_of_tasks,
)


def recompute(out: Path) -> None:
  """Make the records anew that need no training: of kept runs, and exact ones. Those of
  figures 1, 2 and 5 are as the scripts wrote them: their runs are not kept.
  """
  kept = tasks.kept_sources(out / FOLDER, tasks.TASKS["peptides"])
  peptides = fig01.measure({"peptides": {"sources": kept}})
  of_digits = Records(out)[ESTIMATORS]["tasks"]["digits"]["biased"]
  rho = of_digits["all"]["correlation"][0]
  write_numbers(out / f"{PEPTIDES}.json", peptides)
  write_numbers(out / f"{DETECTION}.json", fig06.measure([0.0, rho]))
  write_numbers(out / f"{SIZES}.json", figc1.measure())
