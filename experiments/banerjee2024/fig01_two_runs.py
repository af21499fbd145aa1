"""Banerjee 2024, figures 1 and 2, which are drawings there, from trained networks: two
runs of the same accuracy with different logit gaps, and how much of a run must be trimmed
the farther it is from the reference.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from experiments import measures
from experiments.banerjee2024 import candidates
from experiments.banerjee2024.candidates import Source
from experiments.frame import Row, Trained, format_percent, rows_of
from vmapseeds.reports import plots

TITLE = "Figures 1 and 2, of trained networks: two runs, and distances and trimming"
PANELS = 2
SHOWN = 1500  # test examples


class TwoRuns(NamedTuple):
  source: Source
  pair: Int[np.ndarray, " 2"]  # candidates
  gaps: Float[np.ndarray, "2 examples"]  # of some test examples
  labels: Int[np.ndarray, " examples"]


def compute(trained: Trained) -> TwoRuns:
  _, runs, labels = candidates.gaps_of(trained("S_all"))
  source = candidates.candidates_by_source(trained, ["S_all"])["S_all"]
  pair = alike(source)
  return TwoRuns(source, pair, runs[pair, :SHOWN].round(3), labels[:SHOWN])


def alike(n: Source) -> Int[np.ndarray, " 2"]:
  """The two candidates that disagree most, of the closer half of neighbours by accuracy."""
  order = np.argsort(n.accuracy.accuracies, kind="stable")
  # `pairs` has what is above the diagonal.
  above = np.zeros((n.runs, n.runs), int)
  above[np.triu_indices(n.runs, 1)] = n.pairs
  disagreements = above + above.T
  of_neighbours = disagreements[order[:-1], order[1:]]
  steps = np.diff(n.accuracy.accuracies[order])
  is_close = steps <= np.median(steps)
  first = np.argmax(np.where(is_close, of_neighbours, -1))
  return order[first : first + 2]


def rows(numbers: TwoRuns) -> list[Row]:
  n = numbers.source
  a, b = numbers.pair
  accuracy_a = format_percent(n.accuracy.accuracies[a])
  accuracy_b = format_percent(n.accuracy.accuracies[b])
  # Gaps of different signs are different predictions.
  is_opposite = np.prod(np.sign(numbers.gaps), axis=0) < 0
  is_within = n.distance <= measures.ks_threshold(n.examples)
  known = ~np.isnan(n.level)
  rank = candidates.rank_correlation(n.distance[known], n.level[known])
  return rows_of(
    n.runs,
    (
      "accuracy of the two runs",
      ("equal", "figure 1"),
      f"{accuracy_a} and {accuracy_b}",
    ),
    (
      "test examples they disagree on",
      None,
      format_percent(is_opposite.mean()),
    ),
    ("their α̂", None, f"{n.level[a]:.3f} and {n.level[b]:.3f}"),
    ("candidates within δ_a untrimmed", None, format_percent(is_within.mean())),
    ("ρ of the untrimmed distance with α̂", None, rank.estimate()),
  )


def plot(numbers: TwoRuns, axes: np.ndarray) -> None:
  n = numbers.source
  two, trimming = axes
  for label, color in enumerate((plots.BLUE, plots.VERMILION)):
    of_class = numbers.labels == label
    two.scatter(*numbers.gaps[:, of_class], s=7, color=color, alpha=0.5, linewidths=0)
    two.plot([], [], "o", color=color, markersize=4, label=f"class {label}")
  for line in (two.axhline, two.axvline):
    line(0, color=plots.INK, linewidth=0.8)
  two.set(xlabel="logit gap of a run", ylabel="logit gap of a run as accurate")
  two.legend()
  candidates.scatter(
    trimming,
    {"S_all": n},
    lambda s: s.distance,
    "untrimmed distance (%)",
  )
  threshold = 100 * measures.ks_threshold(n.examples)
  trimming.axvline(threshold, color=plots.INK, linewidth=0.9, label="δ_a")
  trimming.legend()
