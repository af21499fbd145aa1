"""Bouthillier et al. 2021, figure G.3: accuracies are close to normal, by source,
unless the test set is small.

Where one source varies, each repetition is tested alone and Fisher's method combines
the p-values. Accuracies on n' examples lie 1/n' apart, which the test takes as not
normal. So they are tested once more, each moved within its step.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

from experiments import frame
from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import EVERYTHING, SOURCES, tasks
from experiments.bouthillier2021.fig01_sources import NAMES
from experiments.estimates import Estimate, student_estimate
from experiments.frame import Row, Trained, row
from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.results.formatting import show

TITLE = "Figure G.3: the distribution of accuracies by source"
PANELS = 6


class Normality(NamedTuple):
  """Tests of the accuracies of A where one source varies, or everything."""

  p_value: float  # of the Shapiro-Wilk test
  p_within_steps: float  # of accuracies spread evenly over steps of 1/n'
  # From the mean of their repetition
  deviations: Float[np.ndarray, "repetitions measures"]


def compute(trained: Trained) -> dict[str, dict[str, Normality]]:
  by_task = {}
  for task in tasks(trained.scale):
    groups = measures.accuracies_by_source(trained, task)
    groups[EVERYTHING] = groups[EVERYTHING].reshape(1, -1)
    examples = measures.test_examples(trained, task)
    by_task[task] = {name: normality(x, examples) for name, x in groups.items()}
  return by_task


def normality(
  accuracies: Float[np.ndarray, "repetitions measures"],
  examples: int,
) -> Normality:
  rng = np.random.default_rng(0)
  within_steps = rng.uniform(-0.5, 0.5, accuracies.shape) / examples
  deviations = accuracies - accuracies.mean(axis=1, keepdims=True)
  return Normality(
    p_value(accuracies),
    p_value(accuracies + within_steps),
    deviations,
  )


def p_value(accuracies: Float[np.ndarray, "repetitions measures"]) -> float:
  each = np.array([stats.normality(x).p_value for x in accuracies])
  # A repetition whose measures are all the same has none.
  known = each[~np.isnan(each)]
  if not len(known):
    return np.nan
  return scipy.stats.combine_pvalues(known).pvalue


def rows(numbers: Mapping[str, Mapping[str, Normality]]) -> list[Row]:
  table = []
  for task, by_source in numbers.items():
    for name, n in by_source.items():
      sizes = [str(size) for size in n.deviations.shape if size > 1]
      runs = " × ".join(sizes)
      estimate = skewness_estimate(n.deviations.ravel())
      p = show(n.p_value, None, "p")
      p_within_steps = show(n.p_within_steps, None, "p")
      ours = (
        f"{estimate}; Shapiro-Wilk p {p}, "
        f"{p_within_steps} within the steps of the test set"
      )
      quantity = f"{task}: skewness, {NAMES[name]}"
      table.append(row(quantity, paper.STATED["normal"], ours, runs, estimate))
  return table


def skewness_estimate(x: Float[np.ndarray, " n"]) -> Estimate:
  """The skewness of some values, with its error by the jackknife."""
  without_one = []
  for i in range(len(x)):
    others = np.delete(x, i)
    without_one.append(scipy.stats.skew(others))
  se = np.sqrt((len(x) - 1) * np.var(without_one))
  skewness = scipy.stats.skew(x)
  return student_estimate(float(skewness), float(se))


def plot(numbers: Mapping[str, Mapping[str, Normality]], axes: np.ndarray) -> None:
  """Accuracies in standard deviations of the source, beside the normal density."""
  grid = np.linspace(-4, 4, 200)
  bins = np.linspace(-4, 4, 25)
  colors = (plots.ORANGE, plots.BLUE, plots.GREEN, plots.PURPLE, plots.VERMILION)
  for ax, name in zip(axes, (*SOURCES, EVERYTHING), strict=True):
    for (task, by_source), color in zip(numbers.items(), colors, strict=False):
      if name not in by_source:
        continue
      n = by_source[name]
      variance = n.deviations.var(axis=1, ddof=1).mean()
      sd = np.sqrt(variance) or 1.0
      ax.hist(
        n.deviations.ravel() / sd,
        bins,
        density=True,
        histtype="step",
        color=color,
        label=f"{task}, p {show(n.p_value, None, 'p')}",
      )
    density = scipy.stats.norm.pdf(grid)
    ax.plot(grid, density, color=plots.INK, linewidth=1)
    ax.set(title=NAMES[name], ylabel="density", xlabel="accuracy less its mean (sd)")
    ax.set_ylim(top=1.2 * ax.get_ylim()[1])  # for the legend's third and fourth line
    frame.legend_above(ax)
