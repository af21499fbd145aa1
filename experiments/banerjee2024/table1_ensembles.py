"""Banerjee 2024, table 1 and figures 4 to 6: how large an ensemble must be to need
little trimming.

Ensembles are drawn from the candidates of S_all, without replacement. In the paper, all
ensembles of 100 members are within the threshold of the untrimmed test, and all
ensembles of 30 have α̂ ≤ 0.05.
"""

import itertools
import math
from typing import NamedTuple

import matplotlib
import numpy as np
from jaxtyping import Float, Int

from experiments import measures
from experiments.banerjee2024 import candidates, paper
from experiments.banerjee2024.paper import STATED, Varied
from experiments.estimates import Estimate, positive_estimate, student_estimate
from experiments.frame import Row, Trained, format_percent, row, rows_of
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Table 1, figures 4 to 6: ensembles, and how much of them has to be trimmed"
PANELS = 5
DRAWN = 500  # ensembles of each size, or all if there are fewer
EXACT = 5000  # of calibration errors, all sets if there are at most so many
METRICS = {"accuracy": "accuracy", "churn": "churn with that of all", "ece": "ECE"}


class Ensembles(NamedTuple):
  """Ensembles of one size, drawn without replacement from the candidates."""

  runs: int  # candidates drawn from
  members: int
  level: Float[np.ndarray, " drawn"]  # α̂, NaN where some replicate accepted no level
  distance: Float[np.ndarray, " drawn"]  # L∞ from the reference, untrimmed
  threshold: float  # δ_a
  accuracy: Float[np.ndarray, " drawn"]
  churn: Float[np.ndarray, " drawn"]  # with the ensemble of all candidates
  ece: Float[np.ndarray, " drawn"]

  @property
  def small(self) -> float:
    """The share with a small α̂."""
    return (self.level <= candidates.SMALL).mean()

  @property
  def within(self) -> float:
    """The share within δ_a of the reference, untrimmed."""
    return (self.distance <= self.threshold).mean()

  def varied(self, metric: str) -> Varied:
    values = getattr(self, metric)
    return Varied(values.mean(), values.std(ddof=1))


class Distances(NamedTuple):
  """L∞ distances of distributions of logit gaps, untrimmed."""

  halves: float  # of the candidates' gaps from the reference's
  reference: float  # of the ensemble of all candidates from the reference
  own: float  # of the ensemble of all candidates from the candidates


class OverRuns(NamedTuple):
  """What ensembles of a size are on average over other candidates, with jackknife
  standard errors: ensembles of one pool share members, so that their spread says little.
  """

  small: float  # share with a small α̂
  small_se: float
  ece: float
  ece_se: float


class EnsembleSizes(NamedTuple):
  distances: Distances
  by_size: dict[int, Ensembles]
  over_runs: dict[int, OverRuns]
  ece_falls: tuple[float, float]  # from the fewest to the most members; its error


def compute(trained: Trained) -> EnsembleSizes:
  reference, runs, labels = candidates.gaps_of(trained("S_all"))
  sizes = [members for members in paper.ENSEMBLES if members < len(runs)]
  by_size = {
    members: draw_ensembles(reference, runs, labels, members) for members in sizes
  }
  over_runs = {}
  mean_ece = {}
  for members, n in by_size.items():
    drawn = member_sets(len(runs), members, DRAWN)
    small = left_out(n.level <= candidates.SMALL, drawn, len(runs))
    sets = member_sets(len(runs), members, EXACT)
    mean_ece[members] = left_out(ece_of_sets(runs, labels, sets), sets, len(runs))
    over_runs[members] = OverRuns(*jackknife(small), *jackknife(mean_ece[members]))
  falls = jackknife(mean_ece[max(sizes)] - mean_ece[min(sizes)])
  return EnsembleSizes(distances(reference, runs), by_size, over_runs, falls)


def member_sets(runs: int, members: int, most: int) -> Int[np.ndarray, "sets members"]:
  """Return every set of that many members if these are at most so many, else some drawn
  at random, the same each time.
  """
  if math.comb(runs, members) <= most:
    return np.array([*itertools.combinations(range(runs), members)])
  rng = np.random.default_rng(members)
  # Without replacement, as the text of section 2.1 says; some captions say with.
  return np.stack([rng.permutation(runs)[:members] for _ in range(DRAWN)])


def ece_of_sets(
  runs: Float[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
  sets: Int[np.ndarray, "sets members"],
) -> Float[np.ndarray, " sets"]:
  """Return the calibration error of each ensemble."""
  gaps = (measures.ensemble_gaps(runs, some) for some in np.array_split(sets, 20))
  return np.concatenate([measures.gap_ece(some, labels) for some in gaps])


def left_out(
  values: np.ndarray,
  sets: Int[np.ndarray, "sets members"],
  runs: int,
) -> Float[np.ndarray, " pools"]:
  """Return the mean over all sets, then over those without each run."""
  without = [values[~(sets == run).any(1)].mean() for run in range(runs)]
  return np.array([values.mean(), *without])


def jackknife(means: Float[np.ndarray, " pools"]) -> tuple[float, float]:
  """Return what `left_out` gives of all runs, and its standard error over runs."""
  whole, *without = means
  count = len(without)
  spread = np.sum((without - np.mean(without)) ** 2)
  return float(whole), math.sqrt((count - 1) / count * spread)


def distances(
  reference: Float[np.ndarray, "models examples"],
  runs: Float[np.ndarray, "runs examples"],
) -> Distances:
  """How far the halves, and the ensemble of all candidates, are from one another."""
  together = measures.ensemble_gaps(runs)[None]
  pooled = runs.reshape(1, -1)

  def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(measures.ks_distance(a, b)[0])

  return Distances(
    halves=distance(reference, pooled),
    reference=distance(reference, together),
    own=distance(runs, together),
  )


def draw_ensembles(
  reference: Float[np.ndarray, "models examples"],
  runs: Float[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
  members: int,
) -> Ensembles:
  """The statistics of ensembles of that many members."""
  drawn = member_sets(len(runs), members, DRAWN)
  gaps = measures.ensemble_gaps(runs, drawn)
  level = candidates.trimming_levels(reference, gaps).level
  predictions = measures.gap_labels(gaps)
  together = measures.gap_labels(measures.ensemble_gaps(runs))
  accuracy = (predictions == labels).mean(1)
  churn = (predictions != together).mean(1)
  # Six digits make shorter records.
  return Ensembles(
    len(runs),
    members,
    level.round(6),
    measures.ks_distance(reference, gaps).round(6),
    float(measures.ks_threshold(len(labels))),
    accuracy.round(6),
    churn.round(6),
    measures.gap_ece(gaps, labels).round(6),
  )


def rows(numbers: EnsembleSizes) -> list[Row]:
  apart = numbers.distances
  by_size = numbers.by_size
  first = next(iter(by_size.values()))
  runs = f"{first.runs}, {DRAWN} draws"
  table = rows_of(
    first.runs,
    ("distance within which a test accepts, δ_a", None, f"{first.threshold:.3f}"),
    ("distance of the candidates from the reference", None, f"{apart.halves:.3f}"),
    (
      "distance of their ensemble from the reference; from them",
      None,
      f"{apart.reference:.3f}; {apart.own:.3f}",
    ),
  )
  for size, n in by_size.items():
    printed = paper.ENSEMBLES[size]
    # Claims are judged at the sizes that the paper's text names.
    within = STATED["within"] if size == 100 else ("figure only", "figure 4")
    small = STATED["small"] if size == 30 else (printed.small, "table 1")
    table += rows_of(
      runs,
      (f"{size} members: within δ_a untrimmed", within, share_text(n.within)),
      (f"{size} members: α̂ ≤ {candidates.SMALL}", small, share_text(n.small)),
    )
    for metric, label in METRICS.items():
      stated = varied(getattr(printed, metric)), "table 1"
      ours = varied(n.varied(metric), DRAWN)
      table.append(row(f"{size} members: {label}", stated, ours, runs))
  few = by_size[min(by_size)]
  many = by_size[max(by_size)]
  for metric, label in METRICS.items():
    ratio = many.varied(metric).sd / few.varied(metric).sd
    # For normal values, each sd has relative error 1/√(2 (n - 1)).
    se = ratio * math.sqrt(2 / (2 * (DRAWN - 1)))
    table.append(
      row(
        f"sd of {label}, {many.members} over {few.members} members",
        STATED[f"sd of {metric}"],
        positive_estimate(ratio, se),
        runs,
      )
    )
  for members, n in numbers.over_runs.items():
    printed = paper.ENSEMBLES[members]
    for name, value, se, stated in (
      (f"α̂ ≤ {candidates.SMALL}", n.small, n.small_se, printed.small),
      ("ECE", n.ece, n.ece_se, printed.ece.mean),
    ):
      ours = student_estimate(value, se, first.runs - 1, unit="%")
      ours = ours._replace(low=max(0.0, ours.low))  # a share, or a size
      quantity = f"{members} members, over other runs: {name}"
      table.append(row(quantity, (stated, "table 1"), ours, first.runs))
  value, se = numbers.ece_falls
  falls = student_estimate(value, se, first.runs - 1, unit="%")
  quantity = f"ECE of {many.members} members less that of {few.members}"
  of_paper = [
    paper.ENSEMBLES[members].ece.mean for members in (many.members, few.members)
  ]
  return [
    *table,
    row(quantity, (of_paper[0] - of_paper[1], "table 1"), falls, first.runs),
  ]


def share_text(fraction: float) -> Estimate:
  low, high = stats.proportion_over_examples(fraction, DRAWN).interval
  return Estimate(fraction, float(low), float(high), unit="%")


def varied(x: Varied, drawn: int | None = None) -> str:
  """Mean and standard deviation in words; given how many were drawn, with their
  standard errors.
  """
  if drawn is None:
    return f"{format_percent(x.mean)}, sd {format_percent(x.sd)}"
  of_mean = x.sd / math.sqrt(drawn)
  # Of normal values.
  of_sd = x.sd / math.sqrt(2 * (drawn - 1))
  return f"{format_percent(x.mean, of_mean)}, sd {format_percent(x.sd, of_sd)}"


def plot(numbers: EnsembleSizes, axes: np.ndarray) -> None:
  """The shares that need little or no trimming, ours and the paper's; then every drawn
  ensemble: figures 4 and 6, and 5, two metrics at a time.
  """
  numbers = numbers.by_size
  shares, distance, level, churn, ece = axes
  sizes = list(numbers)
  places = np.arange(len(numbers))
  for fractions, label, style in (
    ([n.small for n in numbers.values()], "α̂ ≤ 0.05", "o-"),
    ([n.within for n in numbers.values()], "untrimmed within δ_a", "s-"),
    ([paper.ENSEMBLES[size].small for size in sizes], "α̂ ≤ 0.05, the paper's", "D"),
  ):
    shares.plot(
      places,
      100 * np.array(fractions),
      style,
      markerfacecolor="white",
      label=label,
    )
  shares.set_xticks(places, sizes)
  shares.set(xlabel="members", ylabel="ensembles (%)", ylim=(-4, 104))
  shares.legend()
  colors = matplotlib.colormaps["viridis_r"](np.linspace(0.05, 0.95, len(numbers)))
  for (size, n), color in zip(numbers.items(), colors, strict=True):
    style = {"s": 7, "color": color, "alpha": 0.6, "linewidths": 0, "label": size}
    accuracy = 100 * n.accuracy
    distance.scatter(accuracy, n.distance, **style)
    level.scatter(accuracy, n.level, **style)
    churn.scatter(accuracy, 100 * n.churn, **style)
    ece.scatter(accuracy, 100 * n.ece, **style)
  threshold = next(iter(numbers.values())).threshold
  for ax, label, line in (
    (distance, "L∞ distance from the reference", threshold),
    (level, "trimming level α̂", candidates.SMALL),
    (churn, "churn with that of all (%)", None),
    (ece, "ECE (%)", None),
  ):
    if line:
      ax.axhline(line, color=plots.INK, linewidth=0.9, linestyle=":")
    ax.set(xlabel="accuracy (%)", ylabel=label)
    ax.grid(True)
  distance.legend(title="members", markerscale=2)
