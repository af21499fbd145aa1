"""The page of Bouthillier 2021: sources of variance, and decisions."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import pages
from experiments.bouthillier2021 import paper
from experiments.bouthillier2021.fig01_sources import NAMES
from experiments.bouthillier2021.fig06_detection import CRITERIA, GRID, oracle
from experiments.measures.estimators import estimator_se
from experiments.pages import Colors, Line, Page, Picture, Records

PEPTIDES = "bouthillier2021/fig01p_peptides"
# The paper's own task joins the page once three of its sources are trained.
WITH_PEPTIDES = (pages.GALLERY / f"{PEPTIDES}.json").exists()
PEPTIDE_RUNS = 600
TASKS = {
  "breast_cancer": "breast cancer",
  "digits": "digits",
  "mnist": "MNIST",
  "cifar10": "CIFAR-10",
}


def draw_sources(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw variances by source, over those where the data vary."""
  (ax,) = axes
  numbers = records.numbers("bouthillier2021/fig01_sources")
  of_tasks = {label: numbers[task].of for task, label in TASKS.items()}
  if WITH_PEPTIDES:
    of_tasks = {"peptides": records.numbers(PEPTIDES).of, **of_tasks}
  names = [name for name in NAMES if name != "data"]
  for i, ((label, variances), color) in enumerate(
    zip(of_tasks.items(), colors.each(), strict=False)
  ):
    places = [
      names.index(name) + 0.14 * (i - 2) for name in variances if name != "data"
    ]
    relative = np.array([n.relative for name, n in variances.items() if name != "data"])
    value, low, high = relative.T
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
  ax.set_yticks(range(len(names)), [NAMES[name] for name in names])
  ax.invert_yaxis()
  ax.set(xscale="log", xlabel="variance over that where the data vary")
  ax.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
  ax.minorticks_off()
  ax.grid(True, axis="x")
  ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def draw_binomial(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw the sd where the data vary against a binomial's, both logarithmic."""
  (ax,) = axes
  numbers = records.numbers("bouthillier2021/fig02_binomial")
  ends = np.array([0.1, 5])
  ax.plot(ends, ends, color=colors.quiet, linestyle="--", linewidth=1)
  ax.annotate("equal", (0.14, 0.115), color=colors.quiet)
  for (task, n), color in zip(numbers.items(), colors.each()[1:], strict=False):
    value, low, high = 100 * np.array(n.observed)
    ax.errorbar(
      100 * n.binomial,
      value,
      [[value - low], [high - value]],
      fmt="o",
      color=color,
      capsize=3,
      label=f"{TASKS[task]}: n′ = {n.examples:,}",
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
  n = records.numbers("bouthillier2021/fig06_detection")
  ax.axvspan(0.5, paper.GAMMA, color=colors.quiet, alpha=0.15, linewidth=0)
  ax.plot(
    GRID,
    oracle(GRID, paper.PAIRS),
    color=colors.ink,
    linewidth=1,
    label="oracle",
  )
  for (name, label), color in zip(
    CRITERIA.items(),
    (colors.green, colors.orange, colors.purple),
    strict=True,
  ):
    ax.plot(GRID, getattr(n.exact["ideal"], name), color=color, label=label)
    if name != "single_point":
      ax.plot(GRID, getattr(n.exact["all"], name), "--", color=color)
  ax.plot([], [], "--", color=colors.ink, label="after one search")
  ax.set(xlabel="true P(A > B); grey: from 1/2 to γ", ylabel="rate of “A is better”")
  ax.set(xlim=(0.4, 0.99), ylim=(-0.02, 1.02))
  ax.grid(True)
  ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def sizes(records: Records, axes: np.ndarray, colors: Colors) -> None:
  """Draw how many runs a decision takes."""
  (ax,) = axes
  n = records.numbers("bouthillier2021/figc1_sample_size")
  ax.plot(n.gamma, n.noether, color=colors.orange, label="the paper's formula")
  ax.plot(n.gamma, n.needed, "o-", color=colors.blue, label="pairs, exact")
  ax.plot(
    paper.GAMMA,
    29,
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
  n = records.numbers("bouthillier2021/fig05_standard_errors")["breast_cancer"]
  k = np.unique(np.geomspace(1, 100, 40).astype(int))
  ideal = 100 * estimator_se(k, n.variance)
  ax.plot(k, ideal, color=colors.blue, label="a search for each")
  labels = {"init": "initialisation", "data": "data", "all": "all but the search"}
  for (varied, label), color in zip(
    labels.items(),
    (colors.purple, colors.orange, colors.green),
    strict=True,
  ):
    b = n.biased[varied]
    ax.plot(k, 100 * estimator_se(k, b.variance, b.simulated), color=color)
    some = k[k <= b.measures]
    ax.plot(
      some,
      100 * b.sd_of_means[some - 1],
      ".",
      color=color,
      markersize=4,
      label=f"{label}: ρ = {b.correlation:.2f}",
    )
  ax.set(
    xscale="log",
    xlabel="measures k",
    ylabel="sd of their mean (%)",
    ylim=(0, None),
  )
  ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
  ax.grid(True)
  ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), title="one search, vary")


RATES = "bouthillier2021/fig06_detection"
PEPTIDE_LINES = (
  Line(
    "Data order makes as much variance as initialisation",
    "order over init",
    PEPTIDES,
    "variance of order over that of init",
  ),
)
LINES = (
  *(PEPTIDE_LINES if WITH_PEPTIDES else ()),
  Line(
    "Single runs call A better too often",
    "positives single_point",
    RATES,
    "false positives at P = 0.5, one run each",
  ),
  Line(
    "Single runs miss most A that are better",
    "negatives single_point",
    RATES,
    "false negatives at P = 0.75, one run each",
  ),
  Line(
    "Averages of 50 hardly ever call A better falsely",
    "positives average",
    RATES,
    "false positives at P = 0.5, averages of 50",
  ),
  Line(
    "Averages of 50 miss more than single runs (difference)",
    "negatives average",
    RATES,
    "false negatives of averages of 50 less",
  ),
  Line(
    "P(A > B) of 50 keeps its level",
    "positives outperforming",
    RATES,
    "false positives at P = 0.5, P(A > B) of 50",
  ),
  Line(
    "P(A > B) of 50 misses less than averages (difference)",
    "negatives outperforming",
    RATES,
    "false negatives of P(A > B) of 50 less",
  ),
  Line(
    "29 pairs find P(A > B) = 0.75 in 95 %",
    "power",
    "bouthillier2021/figc1_sample_size",
    "power of 29 pairs",
  ),
  Line(
    "P(A > B) after one search keeps its level",
    "positives outperforming",
    RATES,
    "false positives at P = 0.5, P(A > B) of 50, FixHOptEst(k, all)",
    "task: ρ is that of digits",
  ),
  Line(
    "P(A > B) after one search misses 30 %",
    "outperforming after one search",
    RATES,
    "false negatives at P = 0.75, P(A > B) of 50, FixHOptEst(k, all)",
    "task: ρ is that of digits",
  ),
  Line(
    "Measures that vary initialisation alone are worth two",
    "worth init",
    "bouthillier2021/fig05_standard_errors",
    "breast_cancer: ρ of FixHOptEst(k, init)",
    "task: 569 tumours",
  ),
)


def values_of_tasks(records: Records) -> dict[str, Any]:
  return {"peptides": records.numbers(PEPTIDES) if WITH_PEPTIDES else None}


PAGE = Page(
  folder="bouthillier2021",
  paper="bouthillier2021",
  title="Bouthillier 2021: when is one recipe better than another?",
  appendix=(
    *((PEPTIDES,) if WITH_PEPTIDES else ()),
    *(
      f"bouthillier2021/{name}"
      for name in (
        "fig01_sources",
        "fig02_binomial",
        "fig05_standard_errors",
        "fig06_detection",
        "figc1_sample_size",
        "figf2_searches",
        "figg3_distributions",
        "figh5_mse",
        "figi6_robustness",
      )
    ),
  ),
  lines=LINES,
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
      "Figure 5, on breast cancer. Dots: measured over 20 repetitions; lines: equation 7.",
    ),
    "detection": Picture(
      detection,
      "Figure 6: exact rates for 50 pairs. Dashed: measures after one search, with the "
      "correlation found on digits.",
    ),
    "sizes": Picture(
      sizes,
      "Figure C.1: runs for a power of 95 %. The formula is for groups, not pairs.",
    ),
  },
  values=values_of_tasks,
)


def recompute(out: Path) -> None:
  """Make the records anew that need no training: of kept runs, and exact ones."""
  names = ["figc1_sample_size"]
  stored = (out / "bouthillier2021").glob("bouthillier2021-laptop-mhc_sources-*.npz")
  if sum(len(np.load(path)["diverged"]) for path in stored) >= PEPTIDE_RUNS:
    names.append("fig01p_peptides")
  pages.recompute_records(out, "bouthillier2021", "bouthillier2021", names)
