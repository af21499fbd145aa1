"""The candidates of a source of randomness beside their reference: α̂, and other
measures of how good a run is.

α̂ is the least fraction of the test examples that must be left out so that the
distribution of a candidate's logit gaps is near the reference's. The reference has the
gaps of all runs of the other half. Runs that diverged, or that have learnt nothing, are
neither: the paper reports none.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
import xarray as xr
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes

from experiments import measures
from experiments.banerjee2024.campaigns import SCALES, VARIED
from experiments.estimates import Estimate, upper_quantile
from experiments.frame import Spread, Trained, spread_of
from vmapseeds import stats
from vmapseeds.reports import plots

COLORS = dict(zip(VARIED, plots.PALETTE, strict=False))
SMALL = 0.05  # an α̂ up to this counts as small
MOST = 1 - 1e-9  # a correlation whose atanh is finite
REPLICATES = 100  # of the bootstrap: the paper does not give its number
NONE = np.empty(0)


class Source(NamedTuple):
  """The candidates, by run: α̂ and the other measures."""

  runs: int  # candidates
  reference_runs: int
  examples: int
  level: Float[np.ndarray, " runs"]  # α̂, NaN where some replicate accepted no level
  failed: Int[np.ndarray, " runs"]  # how many replicates accepted no level
  small: Bool[np.ndarray, " runs"]  # whether α̂ is small
  distance: Float[np.ndarray, " runs"]  # L∞, untrimmed
  accuracy: Spread
  churn: Float[np.ndarray, " runs"]  # with the ensemble of all candidates
  mean_churn: Float[np.ndarray, " runs"]  # with the other candidates
  pairs: Int[np.ndarray, " pairs"]  # examples they disagree on, by `of_pairs`
  # 10 bins from 0 to 1; two classes have confidences in 5 of them
  ece: Float[np.ndarray, " runs"]
  ensemble_accuracy: float
  diverged: int = 0  # runs of both halves, which are left out
  at_chance: Float[np.ndarray, " left"] = NONE  # accuracies of candidates left out

  @property
  def order(self) -> Float[np.ndarray, " runs"]:
    """α̂ for ranking. Runs without one rank above all others, the higher the more
    replicates accepted no level.
    """
    return np.where(np.isnan(self.level), 1 + self.failed, self.level)


class SplitRuns(NamedTuple):
  """Places of runs: the first half of those that did not diverge is the reference, the
  other has the candidates.
  """

  reference: Int[np.ndarray, " models"]
  candidates: Int[np.ndarray, " runs"]
  at_chance: Int[np.ndarray, " left"]  # of the second half, otherwise left out


def halves_of_source(results: xr.Dataset) -> SplitRuns:
  """The halves of a source's runs. A run is at chance if the 95 % interval of its accuracy
  reaches down to one half.
  """
  kept = np.flatnonzero(~results.diverged.values)
  is_right = results.predictions.values[kept] == results.labels.values
  examples = results.sizes["example"]
  accuracy = stats.proportion_over_examples(is_right.mean(1), examples)
  # The paper's task has two classes.
  has_learnt = accuracy.low > 0.5
  half = len(kept) // 2
  first = kept[:half]
  second = kept[half:]
  return SplitRuns(
    reference=first[has_learnt[:half]],
    candidates=second[has_learnt[half:]],
    at_chance=second[~has_learnt[half:]],
  )


def gaps_of(
  results: xr.Dataset,
) -> tuple[
  Float[np.ndarray, "models examples"],
  Float[np.ndarray, "runs examples"],
  Int[np.ndarray, " examples"],
]:
  """Logit gaps of the reference and of the candidates; labels."""
  half = halves_of_source(results)
  logits = results.logits.values
  reference = measures.logit_gap(logits[half.reference])
  runs = measures.logit_gap(logits[half.candidates])
  return reference, runs, results.labels.values


def candidates_by_source(
  trained: Trained,
  names: Iterable[str] = VARIED,
) -> dict[str, Source]:
  """The sources by name, with as many runs of S_all as of the others."""
  half = SCALES[trained.scale].runs // 2
  by_name = {}
  for name in names:
    results = trained(name)
    reference, runs, labels = gaps_of(results)
    lost = results.isel(run=halves_of_source(results).at_chance)
    is_right = (lost.predictions == lost.labels).values
    source = measure_source(reference[:half], runs[:half], labels)
    by_name[name] = source._replace(
      diverged=int(results.diverged.sum()),
      at_chance=is_right.mean(1),
    )
  return by_name


def measure_source(
  reference: Float[np.ndarray, "models examples"],
  candidates: Float[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
) -> Source:
  """The statistics of candidates, from logit gaps."""
  predictions = measures.gap_labels(candidates)
  together = measures.gap_labels(measures.ensemble_gaps(candidates))
  trimmed = trimming_levels(reference, candidates)
  churn = stats.disagreement_matrix(predictions)
  # Equation 9's ensemble averages the logits of all candidates.
  of_ensemble = np.broadcast_to(together, predictions.shape)
  differing_examples = upper_triangle(churn) * len(labels)
  return Source(
    runs=len(candidates),
    reference_runs=len(reference),
    examples=len(labels),
    level=trimmed.level,
    failed=trimmed.failed,
    small=trimmed.level <= SMALL,
    distance=measures.ks_distance(reference, candidates),
    accuracy=spread_of(predictions != labels),
    churn=stats.churn(predictions, of_ensemble),
    # A run's churn with itself is 0.
    mean_churn=churn.sum(1) / (len(candidates) - 1),
    pairs=np.rint(differing_examples).astype(int),
    ece=measures.gap_ece(candidates, labels),
    ensemble_accuracy=(together == labels).mean(),
  )


def trimming_levels(
  reference: Float[np.ndarray, "models examples"],
  candidates: Float[np.ndarray, "runs examples"],
) -> measures.TrimmingLevel:
  """α̂ of each candidate."""
  key = jax.random.key(0)
  return measures.trimming_level(reference, candidates, key=key, replicates=REPLICATES)


def upper_triangle(
  matrix: Float[np.ndarray, "runs runs"],
) -> Float[np.ndarray, " pairs"]:
  """What is above the diagonal, row by row."""
  return matrix[np.triu_indices(len(matrix), 1)]


class Excluded(NamedTuple):
  """How many runs are worse than every run with a small α̂."""

  runs: int
  p_value: float  # of at least as many, if α̂ had nothing to do with how bad a run is


def excluded(
  worse: Float[np.ndarray, " runs"],
  small: Bool[np.ndarray, " runs"],
) -> Excluded:
  """`worse` is larger for worse runs. The p-value is exact: runs with a small α̂ are a
  random draw from all runs.
  """
  runs = len(worse)
  if small.any():
    worst_of_small = worse[small].max()
    runs = int((worse > worst_of_small).sum())
  # None of the runs with a small α̂ is among so many of the worst.
  p_value = scipy.stats.hypergeom.pmf(0, len(worse), runs, small.sum())
  return Excluded(runs, p_value)


def tau(
  order: Float[np.ndarray, " runs"],
  worse: Float[np.ndarray, " runs"],
) -> tuple[float, float]:
  """Kendall's τ and its standard error by the jackknife over runs."""
  runs = len(order)
  without_one = []
  for i in range(runs):
    tau_of_others = measures.kendall_tau(np.delete(order, i), np.delete(worse, i))
    without_one.append(tau_of_others)
  se = math.sqrt((runs - 1) * np.var(without_one))
  return measures.kendall_tau(order, worse), se


class Rank(NamedTuple):
  """A rank correlation, with the standard error of its atanh (Fieller et al. 1957)."""

  rho: float
  se: float

  def estimate(self) -> Estimate:
    z = np.arctanh(self.rho)
    reach = upper_quantile(0.025, math.inf) * self.se
    low = float(np.tanh(z - reach))
    high = float(np.tanh(z + reach))
    return Estimate(self.rho, low, high)


def rank_correlation(
  x: Float[np.ndarray, " runs"],
  y: Float[np.ndarray, " runs"],
  covariates: int = 0,
) -> Rank:
  """Spearman's ρ at equal values of so many covariates; NaN for too few runs, or if a
  series is constant.
  """
  freedom = len(x) - 3 - covariates
  is_constant = np.ptp(x) == 0 or np.ptp(y) == 0
  if freedom < 1 or is_constant:
    return Rank(math.nan, math.nan)
  rho, _ = scipy.stats.spearmanr(x, y)
  # Fieller, Hartley and Pearson's 1.06.
  return Rank(float(np.clip(rho, -MOST, MOST)), math.sqrt(1.06 / freedom))


def partial(
  x: Float[np.ndarray, " runs"],
  y: Float[np.ndarray, " runs"],
  covariate: Float[np.ndarray, " runs"],
) -> Rank:
  """Spearman's ρ of x and y at equal values of a covariate."""
  xy, se = rank_correlation(x, y, 1)
  xz = rank_correlation(x, covariate).rho
  yz = rank_correlation(y, covariate).rho
  rho = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
  return Rank(float(np.clip(rho, -MOST, MOST)), se)


def mean_rank(each: Sequence[Rank]) -> Rank:
  """The mean, on the scale of atanh, of independent groups of as many runs."""
  z = np.mean([np.arctanh(one.rho) for one in each])
  return Rank(float(np.tanh(z)), each[0].se / math.sqrt(len(each)))


def span(values: Float[np.ndarray, " n"]) -> str:
  """Least and largest of some fractions, as per cent."""
  if not len(values):
    return "none"
  return f"{100 * min(values):.2f} to {100 * max(values):.2f} %"


def scatter(
  ax: Axes,
  sources: Mapping[str, Source],
  value_of: Callable[[Source], np.ndarray],
  label: str,
) -> None:
  """α̂ of each candidate against a fraction; crosses are candidates without α̂."""
  for name, source in sources.items():
    x = 100 * value_of(source)
    known = ~np.isnan(source.level)
    color = COLORS[name]
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
      x[~known],
      np.ones((~known).sum()),
      s=14,
      color=color,
      marker="x",
      linewidths=0.8,
    )
  ax.axhline(SMALL, color=plots.INK, linewidth=0.9, linestyle=":", label=f"α̂ = {SMALL}")
  levels = np.concatenate([source.level for source in sources.values()])
  if np.isnan(levels).any():
    top = 1.0  # where the crosses are
    ax.set(xlabel=label, ylabel="trimming level α̂ (×: none)")
  else:
    top = max(2 * SMALL, levels.max())
    ax.set(xlabel=label, ylabel="trimming level α̂")
  ax.set_ylim(-0.04 * top, 1.04 * top)
  ax.grid(True)


def beside(n: Source, axes: Sequence[Axes]) -> None:
  """Churn and calibration of candidates against accuracy, their α̂ as colour."""
  accuracy = 100 * n.accuracy.accuracies
  known = ~np.isnan(n.level)
  top = max(2 * SMALL, np.nanmax(n.level, initial=0))
  others = {"churn with the ensemble (%)": 100 * n.churn, "ECE (%)": 100 * n.ece}
  for ax, (label, values) in zip(axes, others.items(), strict=True):
    drawn = ax.scatter(
      accuracy[known],
      values[known],
      c=n.level[known],
      vmin=0,
      vmax=top,
      cmap="viridis_r",
      s=22,
      edgecolors=plots.INK,
      linewidths=0.3,
    )
    ax.scatter(
      accuracy[~known],
      values[~known],
      s=22,
      color=plots.VERMILION,
      marker="x",
    )
    ax.set(xlabel="accuracy (%)", ylabel=label)
    ax.grid(True)
  missing = "" if known.all() else " (×: none)"
  axes[-1].get_figure().colorbar(drawn, ax=axes[-1], label=f"α̂{missing}")


def like(n: Source, count: int) -> list[str]:
  """The most accurate candidates, in the words of tables 11 and 14."""
  best = np.argsort(-n.accuracy.accuracies, kind="stable")[:count]
  columns = np.array([n.accuracy.accuracies, n.ece, n.churn, n.mean_churn, n.level])
  return [in_words(*columns[:, i].tolist()) for i in best]


def in_words(
  accuracy: float,
  ece: float,
  churn: float,
  mean_churn: float,
  level: float,
) -> str:
  """A line of tables 11 and 14, of fractions."""
  level = "none" if math.isnan(level) else f"{level:.3f}"
  return (
    f"accuracy {100 * accuracy:.2f} %, ECE {ece:.3f}, churn {100 * churn:.2f} %, "
    f"mean churn {100 * mean_churn:.2f} %, α̂ {level}"
  )
