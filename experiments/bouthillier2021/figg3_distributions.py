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

from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import SOURCES
from experiments.bouthillier2021.fig01_sources import NAMES
from experiments.claims import Estimate, estimated
from experiments.frame import Row, Trained, of_runs
from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.results.formatting import show

TITLE = "Figure G.3: the distribution of accuracies by source"
PANELS = 6


class Normality(NamedTuple):
  """Tests of the accuracies of A where one source varies, or everything."""

  p_value: float  # of the Shapiro-Wilk test
  p_within_steps: float  # of accuracies spread evenly over steps of 1/n'
  deviations: Float[
    np.ndarray, "repetitions measures"
  ]  # from the mean of their repetition


def compute(trained: Trained) -> dict[str, Normality]:
  a, _, examples = measures.pairs(trained)
  groups = {name: measures.repetitions(trained, name) for name in SOURCES} | {
    "everything": a[None]
  }
  return {name: normality(accuracies, examples) for name, accuracies in groups.items()}


def normality(
  accuracies: Float[np.ndarray, "repetitions measures"], examples: int
) -> Normality:
  within = np.random.default_rng(0).uniform(-0.5, 0.5, accuracies.shape) / examples
  deviations = accuracies - accuracies.mean(axis=1, keepdims=True)
  return Normality(p_value(accuracies), p_value(accuracies + within), deviations)


def p_value(accuracies: Float[np.ndarray, "repetitions measures"]) -> float:
  each = np.array([stats.normality(x).p_value for x in accuracies])
  found = each[~np.isnan(each)]  # a repetition whose measures are all the same has none
  return scipy.stats.combine_pvalues(found).pvalue if len(found) else np.nan


def rows(numbers: Mapping[str, Normality]) -> list[Row]:
  table = []
  for name, n in numbers.items():
    x = n.deviations.ravel()
    of = " × ".join(str(size) for size in n.deviations.shape if size > 1)
    tests = f"p {show(n.p_value, None, 'p')}, {show(n.p_within_steps, None, 'p')} within the steps of the test set"
    table += of_runs(
      of,
      (f"Shapiro-Wilk test, {NAMES[name]}", None, tests),
      (f"skewness, {NAMES[name]}", paper.CLAIMS["normal"], skewness(x)),
    )
  return table


def skewness(x: Float[np.ndarray, " n"]) -> Estimate:
  """The skewness of some values, with its error by the jackknife."""
  without = [scipy.stats.skew(np.delete(x, i)) for i in range(len(x))]
  se = np.sqrt((len(x) - 1) * np.var(without))
  return estimated(float(scipy.stats.skew(x)), float(se))


def plot(numbers: Mapping[str, Normality], axes: np.ndarray) -> None:
  """Accuracies in standard deviations of the source, beside the normal density."""
  grid = np.linspace(-4, 4, 200)
  for ax, (name, n) in zip(axes, numbers.items(), strict=True):
    x = n.deviations.ravel()
    sd = np.sqrt(n.deviations.var(axis=1, ddof=1).mean())
    ax.hist(x / (sd or 1.0), np.linspace(-4, 4, 25), density=True, color=plots.SKY)
    ax.plot(grid, scipy.stats.norm.pdf(grid), color=plots.INK, linewidth=1)
    ax.set(
      title=f"{NAMES[name]}: sd {show(sd, None, 'fraction')}, p {show(n.p_value, None, 'p')}",
      ylabel="density",
      xlabel="accuracy less its mean (standard deviations)",
    )
