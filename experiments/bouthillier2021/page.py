"""The page of Bouthillier 2021: sources of variance, and decisions."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import pages
from experiments.bouthillier2021 import paper
from experiments.bouthillier2021.fig01_sources import NAMES
from experiments.bouthillier2021.fig06_detection import CRITERIA, GRID, oracle
from experiments.measures.detection import operating_characteristics
from experiments.measures.estimators import estimator_se
from experiments.pages import Colors, Page, Picture, Records

PEPTIDES = "bouthillier2021/fig01p_peptides"
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
    label="best possible",
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
  ax.plot(k, ideal, color=colors.blue, label="a new search for each")
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
      label=f"{label} varied: ρ = {b.correlation:.2f}",
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


SOURCES = "bouthillier2021/fig01_sources"
ESTIMATORS = "bouthillier2021/fig05_standard_errors"


def values_of_tasks(records: Records) -> dict[str, Any]:
  """Return what the text says beside rows of records."""
  digits = records.numbers(ESTIMATORS)["digits"].biased["all"].estimate
  correlations = digits.value, digits.low, digits.high

  def relative(task: str, source: str) -> str:
    row = records.ours(SOURCES, f"{task}: variance of {source} over that of data")
    return row.split(";")[0]

  def rho(varied: str) -> str:
    found = records.numbers(ESTIMATORS)
    return "; ".join(
      f"{TASKS[t]} {n.biased[varied].estimate}" for t, n in found.items()
    )

  return {
    "peptides": records.numbers(PEPTIDES),
    "peptide": PEPTIDES,
    "sources": SOURCES,
    "relative": relative,
    "rho": rho,
    "rho_digits": correlations,
    "wrongly": [100 * false_positives(rho) for rho in correlations],
  }


def false_positives(rho: float) -> float:
  """Return how often P(A > B) finds A better where it is not, of correlated measures."""
  return operating_characteristics([0.5], rho, paper.PAIRS, paper.GAMMA).outperforming[
    0
  ]


PAGE = Page(
  folder="bouthillier2021",
  title="Bouthillier 2021: when is one recipe better than another?",
  appendix=(
    PEPTIDES,
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
  """Make the records anew that need no training: of kept runs, and exact ones."""
  names = ["figc1_sample_size"]
  stored = (out / "bouthillier2021").glob("bouthillier2021-laptop-mhc_sources-*.npz")
  if sum(len(np.load(path)["diverged"]) for path in stored) >= PEPTIDE_RUNS:
    names.append("fig01p_peptides")
  pages.recompute_records(out, "bouthillier2021", "bouthillier2021", names)
