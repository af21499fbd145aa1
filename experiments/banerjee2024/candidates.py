"""The candidates of a source of randomness beside their reference: α̂, and other
measures of how good a run is.

α̂ is the least fraction of the test examples that must be left out so that the
distribution of a candidate's logit gaps is near the reference's. The reference has the
gaps of all runs of the other half.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes

from experiments import measures
from experiments.banerjee2024.campaigns import SCALES
from experiments.claims import Estimate
from experiments.frame import Spread, Trained, spread
from vmapseeds import stats
from vmapseeds.reports import plots

COLORS = dict(zip(("S_init", "S_batch", "S_all"), plots.PALETTE, strict=False))
SMALL = 0.05  # an α̂ up to this counts as small
REPLICATES = 100  # of the bootstrap: the paper does not give its number


class Source(NamedTuple):
  """The candidates, by run: α̂ and the other measures."""

  runs: int  # candidates
  reference_runs: int
  examples: int
  level: Float[np.ndarray, " runs"]  # α̂, NaN where some replicate accepted no level
  failed: Int[np.ndarray, " runs"]  # how many replicates accepted no level
  small: Bool[np.ndarray, " runs"]  # whether α̂ is small
  accuracy: Spread
  churn: Float[np.ndarray, " runs"]  # with the ensemble of all candidates
  mean_churn: Float[np.ndarray, " runs"]  # with the other candidates
  pairs: Int[
    np.ndarray, "2 counts"
  ]  # by number of examples they disagree on: all, and those with two small α̂
  ece: Float[
    np.ndarray, " runs"
  ]  # 10 bins from 0 to 1; two classes have confidences in 5 of them
  ece_fine: Float[np.ndarray, " runs"]  # 10 bins from 1/2 to 1
  ensemble_accuracy: float

  @property
  def order(self) -> Float[np.ndarray, " runs"]:
    """α̂ for ranking. Runs without one rank above all others, the higher the more
    replicates accepted no level.
    """
    return np.where(np.isnan(self.level), 1 + self.failed, self.level)


def halves(trained: Trained, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Logit gaps of the reference and of the candidates, (runs, examples) each, without
  runs that diverged; labels.
  """
  results = trained(name)
  gaps = stats.logit_gap(results.logits.values[~results.diverged.values])
  return *np.split(gaps, [len(gaps) // 2]), results.labels.values


def sources(trained: Trained) -> dict[str, Source]:
  """All three sources, with as many runs of S_all as of the others."""
  half = SCALES[trained.scale].runs // 2
  by_name = {name: halves(trained, name) for name in COLORS}
  return {
    name: of_source(reference[:half], runs[:half], labels)
    for name, (reference, runs, labels) in by_name.items()
  }


def of_source(
  reference: Float[np.ndarray, "models examples"],
  candidates: Float[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
) -> Source:
  """The statistics of candidates, from logit gaps."""
  predictions = measures.gap_labels(candidates)
  together = measures.gap_labels(measures.ensemble_gaps(candidates))
  trimmed = measures.trimming_level(
    reference, candidates, key=jax.random.key(0), replicates=REPLICATES
  )
  small, (i, j) = trimmed.level <= SMALL, np.triu_indices(len(candidates), 1)
  churn = stats.disagreement_matrix(predictions)
  apart = np.rint(churn[i, j] * len(labels)).astype(int)
  return Source(
    *candidates.shape[:1],
    len(reference),
    len(labels),
    trimmed.level,
    trimmed.failed,
    small,
    accuracy=spread(predictions != labels),
    churn=stats.churn(predictions, np.broadcast_to(together, predictions.shape)),
    mean_churn=churn.sum(1) / (len(candidates) - 1),
    pairs=np.stack(
      [
        np.bincount(apart, weights).astype(int)
        for weights in (None, small[i] & small[j])
      ]
    ),
    ece=measures.gap_ece(candidates, labels),
    ece_fine=measures.gap_ece(candidates, labels, lowest=0.5),
    ensemble_accuracy=(together == labels).mean(),
  )


class Excluded(NamedTuple):
  """How many runs are worse than every run with a small α̂."""

  runs: int
  p_value: float  # of at least as many, if α̂ had nothing to do with how bad a run is


def excluded(
  worse: Float[np.ndarray, " runs"], small: Bool[np.ndarray, " runs"]
) -> Excluded:
  """`worse` is larger for worse runs. The p-value is exact: runs with a small α̂ are a
  random draw from all runs.
  """
  runs = int((worse > worse[small].max()).sum()) if small.any() else len(worse)
  return Excluded(runs, scipy.stats.hypergeom.pmf(0, len(worse), runs, small.sum()))


def leaves_out(out: Excluded) -> Estimate:
  """How many runs are worse than all with a small α̂, with the exact test's p-value."""
  return Estimate(out.runs, 0, math.inf, p_value=out.p_value)


def tau(
  order: Float[np.ndarray, " runs"], worse: Float[np.ndarray, " runs"]
) -> tuple[float, float]:
  """Kendall's τ and its standard error by the jackknife over runs."""
  without_each = [
    measures.kendall_tau(np.delete(order, i), np.delete(worse, i))
    for i in range(len(order))
  ]
  return measures.kendall_tau(order, worse), math.sqrt(
    (len(order) - 1) * np.var(without_each)
  )


def span(values: Float[np.ndarray, " n"]) -> str:
  """Least and largest of some fractions, as per cent."""
  return (
    f"{100 * min(values):.2f} to {100 * max(values):.2f} %" if len(values) else "none"
  )


def scatter(
  ax: Axes, shown: Mapping[str, Source], of: Callable[[Source], np.ndarray], label: str
) -> None:
  """α̂ of each candidate against a fraction; crosses are candidates without α̂."""
  for name, source in shown.items():
    x, known, color = 100 * of(source), ~np.isnan(source.level), COLORS[name]
    ax.scatter(
      x[known],
      source.level[known],
      s=14,
      color=color,
      alpha=0.6,
      linewidths=0,
      label=name,
    )
    ax.scatter(
      x[~known], np.ones((~known).sum()), s=14, color=color, marker="x", linewidths=0.8
    )
  ax.axhline(SMALL, color=plots.INK, linewidth=0.9, linestyle=":", label=f"α̂ = {SMALL}")
  ax.set(xlabel=label, ylabel="trimming level α̂ (×: none)", ylim=(-0.04, 1.04))
  ax.grid(True)
