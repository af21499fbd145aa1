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
from experiments.frame import Row, Trained
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
    x, normal = n.deviations.ravel(), n.p_value >= 0.05
    spread = f"{show(n.p_within_steps, None, 'p')} within the steps of the test set, skewness {scipy.stats.skew(x):.2f}"
    why = "" if normal else spread
    of = " × ".join(str(size) for size in n.deviations.shape if size > 1)
    table.append(
      Row(
        f"p of normality, {NAMES[name]}",
        paper.NORMAL,
        show(n.p_value, None, "p"),
        of,
        normal,
        why,
      )
    )
  return table


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
