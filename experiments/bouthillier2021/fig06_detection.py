"""Bouthillier et al. 2021, figure 6 and section 4: how often three ways to find the
better of two recipes are right.

The paper calls A better if a run of A outperforms one of B often enough: it compares
P(A > B) with 1/2 and γ. Comparing a difference of single runs, or of averages, with a
threshold misses more. Measures that share hyperparameters or seeds are less sure to find
the better one. B has half of A's learning rate.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments import frame
from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import compared_task as compared_task
from experiments.bouthillier2021.fig05_standard_errors import STYLES
from experiments.bouthillier2021.paper import GAMMA, PAIRS
from experiments.estimates import Estimate, format_interval, student_estimate
from experiments.frame import Row, Trained, format_percent, rows_of
from experiments.measures.criteria import (
  AverageComparison,
  average_comparison,
  decide,
  power_for_probability_of_outperforming,
)
from experiments.measures.detection import (
  DetectionRates,
  OperatingCharacteristics,
  detection_rates,
  operating_characteristics,
)
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 6: A beside B, and how often each way to compare finds the better one"
PANELS = 2
SHOWN = ("all", "init")  # biased estimators
GRID = np.round(np.linspace(0.4, 0.99, 60), 2)  # true P(A > B)
HALF = np.flatnonzero(GRID == 0.5)[0]
AT_GAMMA = np.flatnonzero(GRID == GAMMA)[0]
CRITERIA = {
  "single_point": "one run each",
  "average": f"averages of {PAIRS}",
  "outperforming": f"P(A > B) of {PAIRS}",
}


class Comparison(NamedTuple):
  """What pairs of runs of A and B say, and figure 6's detection rates for runs that
  vary as these do.
  """

  task: str
  runs: int  # pairs
  examples: int
  decision: str
  probability: float
  interval: tuple[float, float]
  power: float  # of the decision, at P(A > B) = γ
  sd: tuple[float, float]  # of A and of B
  sd_se: tuple[float, float]
  variance_ratio: tuple[float, float, float]  # and the ends of its interval
  correlation: float  # of the runs of a pair
  difference: tuple[float, float, float]  # of the means, likewise
  average: AverageComparison
  rho: dict[str, float]  # 0 for the ideal estimator; as found here of the biased ones
  rates: dict[str, DetectionRates]  # simulated, over GRID
  exact: dict[str, OperatingCharacteristics]
  differences: Float[np.ndarray, " runs"]


def compute(trained: Trained) -> Comparison:
  task = compared_task(trained.scale)
  return compare_paired(
    task, *measures.paired_accuracies(trained), rho_of(trained), jax.random.key(0)
  )


def rho_of(trained: Trained) -> dict[str, float]:
  """Return the correlation of measures of the compared task's biased estimators."""
  _, biased = measures.by_estimator(trained, compared_task(trained.scale))
  return {varied: measures.biased(biased[varied]).simulated for varied in SHOWN}


def compare_paired(
  task: str,
  a: Float[np.ndarray, " runs"],
  b: Float[np.ndarray, " runs"],
  examples: int,
  biased: dict[str, float],
  key: jax.Array,
) -> Comparison:
  """The comparison of paired accuracies, and the detection rates at the correlations
  `biased`.
  """
  decision = decide(a, b, gamma=GAMMA)
  ratio = stats.variance_ratio(a, b)
  difference = stats.mean_difference(a, b)
  sd = tuple(x.std(ddof=1) for x in (a, b))
  rho = {"ideal": 0.0, **biased}
  keys = dict(zip(rho, jax.random.split(key, len(rho)), strict=True))
  return Comparison(
    task=task,
    runs=len(a),
    examples=examples,
    decision=decision.decision,
    probability=decision.probability,
    interval=(decision.low, decision.high),
    power=power_for_probability_of_outperforming(len(a), GAMMA, GAMMA),
    sd=sd,
    sd_se=(sd_se(a), sd_se(b)),
    variance_ratio=(ratio.value, *ratio.interval),
    correlation=np.corrcoef(a, b)[0, 1] if all(sd) else math.nan,
    difference=(difference.value, *difference.interval),
    average=average_comparison(a, b, threshold=paper.THRESHOLD),
    rho=rho,
    rates={
      name: detection_rates(GRID, r, PAIRS, GAMMA, key=keys[name])
      for name, r in rho.items()
    },
    exact={
      name: operating_characteristics(GRID, r, PAIRS, GAMMA) for name, r in rho.items()
    },
    differences=a - b,
  )


def oracle(
  probability: Float[np.ndarray, " points"],
  pairs: int,
  alpha: float = 0.05,
) -> Float[np.ndarray, " points"]:
  """Return how often a one-sided z-test finds A better, which knows the variance of
  independent runs: the most powerful one for normal runs.
  """
  d = math.sqrt(2) * scipy.stats.norm.ppf(probability)
  return scipy.stats.norm.cdf(d * math.sqrt(pairs / 2) - scipy.stats.norm.isf(alpha))


def sd_se(accuracies: Float[np.ndarray, " runs"]) -> float:
  """Standard error of the standard deviation over runs, by the jackknife of the
  variance.
  """
  runs = len(accuracies)
  sd = accuracies.std(ddof=1)
  if not sd:
    return math.nan
  without_each = np.array(
    [np.delete(accuracies, run).var(ddof=1) for run in range(runs)]
  )
  return math.sqrt((runs - 1) * without_each.var()) / (2 * sd)


def rows(n: Comparison) -> list[Row]:
  threshold = (f"better from {paper.THRESHOLD}", "section 4.2")
  better = "" if n.average.better else "not "
  relative = [x / n.average.threshold * paper.THRESHOLD for x in n.difference]
  table = rows_of(
    n.runs,
    ("P(A > B)", None, format_interval(n.probability, *n.interval)),
    ("decision", (f"γ = {GAMMA}", "appendix C.6"), n.decision),
    ("power of the decision at P(A > B) = γ", None, f"{n.power:.3f}"),
    ("mean A less mean B", None, format_interval(*n.difference, 100, " %")),
    (
      "... in standard deviations of a run",
      threshold,
      f"{format_interval(*relative)}: {better}better",
    ),
    *(
      (f"sd of {name}", None, format_percent(n.sd[i], n.sd_se[i]))
      for i, name in enumerate("AB")
    ),
    ("variance of A over that of B", None, format_interval(*n.variance_ratio)),
  )
  for estimator, exact in n.exact.items():
    table += rate_rows(estimator, exact)
  return table


def rate_rows(estimator: str, exact: OperatingCharacteristics) -> list[Row]:
  """Return the rates of an estimator, which are exact for normal measures."""
  ideal = estimator == "ideal"
  suffix = "" if ideal else f", FixHOptEst(k, {estimator})"
  positives = {name: getattr(exact, name)[HALF] for name in CRITERIA}
  negatives = {name: 1 - getattr(exact, name)[AT_GAMMA] for name in CRITERIA}
  lines = []
  for name, criterion in CRITERIA.items():
    if name == "single_point" and not ideal:  # one run has nothing to share
      continue
    printed = paper.DETECTION[name]
    lines += [
      (
        f"false positives at P = 0.5, {criterion}{suffix}",
        printed.positives,
        certain(positives[name]),
      ),
      (
        f"false negatives at P = {GAMMA}, {criterion}{suffix}",
        printed.negatives,
        certain(negatives[name]),
      ),
    ]
  if ideal:
    average = negatives["average"]
    for name, difference in (
      ("negatives average", average - negatives["single_point"]),
      ("negatives outperforming", negatives["outperforming"] - average),
    ):
      claim = paper.STATED[name]
      lines.append((claim.statistic, claim, certain(difference)))
  return rows_of("exact", *lines)


def certain(rate: float) -> Estimate:
  """Return a rate that is known without error."""
  return student_estimate(float(rate), 0.0, unit="%")


def plot(n: Comparison, axes: np.ndarray) -> None:
  """Left: rates by the true P(A > B), exact as lines and simulated as points. Right:
  the differences of the pairs.
  """
  _plot_rates(n, axes[0])
  axes[0].set_title(f"{PAIRS} pairs, ρ as found on {n.task}", fontsize="medium")
  _plot_differences(n, axes[1])
  axes[1].set_title(f"A minus B, P(A > B) = {n.probability:.3f}", fontsize="medium")


def _plot_rates(n: Comparison, ax: Axes) -> None:
  ax.axvspan(0.5, GAMMA, color="0.93", zorder=0)
  every = slice(None, None, 5)
  # Without a correlation, an estimator's curves are those of the ideal one.
  shared = ["ideal", *(varied for varied in SHOWN if n.rho[varied] > 0)]
  ax.plot(GRID, oracle(GRID, PAIRS), color=plots.BLUE, linewidth=1.3, label="oracle")
  for (criterion, name), color in zip(
    CRITERIA.items(),
    (plots.GREEN, plots.ORANGE, plots.PURPLE),
    strict=True,
  ):
    # One run has nothing to share.
    estimators = ["ideal"] if criterion == "single_point" else shared
    for estimator in estimators:
      label = name
      style = "-"
      if estimator != "ideal":
        label = None
        style = STYLES[estimator][0]
      ax.plot(
        GRID,
        getattr(n.exact[estimator], criterion),
        style,
        color=color,
        linewidth=1.3,
        label=label,
      )
      ax.plot(
        GRID[every],
        getattr(n.rates[estimator], criterion)[every],
        ".",
        color=color,
        markersize=4,
      )
    (positives, _), (negatives, _) = paper.DETECTION[criterion]
    places = [(GAMMA, 1 - negatives)]
    if not isinstance(positives, str):
      places.append((0.5, positives))
    ax.plot(
      *zip(*places, strict=True),
      "D",
      color=color,
      markerfacecolor="white",
      markersize=6,
      zorder=3,
    )
  ax.plot([], [], "D", color=plots.INK, markerfacecolor="white", label="the paper's")
  for varied in SHOWN:
    style = STYLES[varied][0] if varied in shared else "-"
    label = f"FixHOptEst({varied}), ρ = {n.rho[varied]:.2f}"
    ax.plot([], [], style, color=plots.INK, label=label)
  ax.set(
    xlabel="true P(A > B); grey: from 1/2 to γ",
    ylabel="rate of “A is better”",
    xlim=(0.4, 1),
    ylim=(-0.02, 1.4),
  )
  ax.set_yticks(np.linspace(0, 1, 6))
  ax.legend(loc="upper left", ncols=2)


def _plot_differences(n: Comparison, ax: Axes) -> None:
  ax.hist(
    100 * n.differences,
    bins=100 * plots.bin_edges([n.differences], n.examples),
    color=plots.SKY,
    alpha=0.6,
  )
  clear = 1 / 1.35  # lines end below the legend
  ax.axvline(0, ymax=clear, color=plots.INK, linewidth=0.8)
  low = 100 * n.difference[1]
  high = 100 * n.difference[2]
  ax.axvspan(
    low,
    high,
    ymax=clear,
    color=plots.BLUE,
    alpha=0.4,
    label="mean, 95 % interval",
  )
  ax.axvline(
    100 * n.average.threshold,
    ymax=clear,
    color=plots.ORANGE,
    linestyle="--",
    label=f"{paper.THRESHOLD} σ",
  )
  ax.set(xlabel="difference of accuracies (percentage points)", ylabel="pairs")
  frame.legend_above(ax)
