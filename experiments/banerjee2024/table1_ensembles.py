"""Banerjee 2024, table 1 and figures 4 and 6: how large an ensemble must be to need
little trimming.

Ensembles are drawn from the candidates of S_all, without replacement. In the paper, all
ensembles of 100 members are within the threshold of the untrimmed test, and all
ensembles of 30 have α̂ ≤ 0.05.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
import scipy.special
from jaxtyping import Float, Int

from experiments import measures
from experiments.banerjee2024 import candidates, paper
from experiments.banerjee2024.paper import CLAIMS, Varied
from experiments.claims import Estimate, estimated, positive
from experiments.frame import Row, Trained, of_runs, percent, row
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Table 1, figures 4 and 6: ensembles, and how much of them has to be trimmed"
PANELS = 4
MISSING = (
  "figure 5, the same ensembles in three dimensions: its axes are the last three panels"
)
DRAWN = 500  # ensembles of each size
METRICS = {"accuracy": "accuracy", "churn": "churn with that of all", "ece": "ECE"}


class Ensembles(NamedTuple):
  """Ensembles of one size, drawn without replacement from the candidates."""

  runs: int  # candidates drawn from
  members: int
  small: float  # share with a small α̂
  within: float  # share within δ_a of the reference, untrimmed
  accuracy: Varied
  churn: Varied  # with the ensemble of all candidates
  ece: Varied
  # 10 bins from 1/2 to 1; `ece` has 10 from 0 to 1, of which two classes use 5
  ece_fine: Varied
  overconfidence: Varied  # mean confidence less accuracy


def compute(trained: Trained) -> dict[int, Ensembles]:
  reference, runs, labels = candidates.halves(trained, "S_all")
  return {
    members: of_size(reference, runs, labels, members)
    for members in paper.ENSEMBLES
    if members < len(runs)
  }


def of_size(
  reference: Float[np.ndarray, "models examples"],
  runs: Float[np.ndarray, "runs examples"],
  labels: Int[np.ndarray, " examples"],
  members: int,
) -> Ensembles:
  """The statistics of ensembles of that many members."""
  rng = np.random.default_rng(members)
  drawn = np.stack([rng.permutation(len(runs))[:members] for _ in range(DRAWN)])
  gaps = measures.ensemble_gaps(runs, drawn)
  level = measures.trimming_level(
    reference, gaps, key=jax.random.key(0), replicates=candidates.REPLICATES
  ).level
  predictions = measures.gap_labels(gaps)
  together = measures.gap_labels(measures.ensemble_gaps(runs))
  within = stats.ks_distance(reference, gaps) <= stats.ks_threshold(len(labels))
  accuracy = (predictions == labels).mean(1)
  metrics = (
    accuracy,
    (predictions != together).mean(1),
    *(measures.gap_ece(gaps, labels, lowest=lowest) for lowest in (0.0, 0.5)),
    scipy.special.expit(abs(gaps)).mean(1) - accuracy,
  )
  of_each = (Varied(x.mean(), x.std(ddof=1)) for x in metrics)
  return Ensembles(
    len(runs), members, (level <= candidates.SMALL).mean(), within.mean(), *of_each
  )


def rows(numbers: Mapping[int, Ensembles]) -> list[Row]:
  runs = f"{next(iter(numbers.values())).runs}, {DRAWN} draws"
  table = [
    each
    for size, n in numbers.items()
    for each in of_runs(
      runs,
      (
        f"{size} members: within δ_a untrimmed",
        CLAIMS["within"] if size == 100 else ("figure only", "figure 4"),
        share(n.within),
      ),
      (
        f"{size} members: α̂ ≤ {candidates.SMALL}",
        CLAIMS["small"] if size == 30 else (paper.ENSEMBLES[size].small, "table 1"),
        share(n.small),
      ),
      *(
        (
          f"{size} members: {said}",
          (varied(getattr(paper.ENSEMBLES[size], of)), "table 1"),
          varied(getattr(n, of), DRAWN),
        )
        for of, said in METRICS.items()
      ),
      (f"{size} members: ECE, bins from 1/2", None, varied(n.ece_fine, DRAWN)),
    )
  ]
  few, many = (numbers[size] for size in (min(numbers), max(numbers)))
  for of, said in METRICS.items():
    ratio = getattr(many, of).sd / getattr(few, of).sd
    # For normal values, each sd has relative error 1/√(2 (n - 1)).
    se = ratio * math.sqrt(2 / (2 * (DRAWN - 1)))
    table.append(
      row(
        f"sd of {said}, {many.members} over {few.members} members",
        CLAIMS[f"sd of {of}"],
        positive(ratio, se),
        runs,
      )
    )
  se = math.hypot(few.ece.sd, many.ece.sd) / math.sqrt(DRAWN)
  falls = estimated(many.ece.mean - few.ece.mean, se, unit="%")
  quantity = f"ECE of {many.members} members less that of {few.members}"
  return [*table, row(quantity, CLAIMS["ECE"], falls, runs)]


def share(fraction: float) -> Estimate:
  low, high = stats.proportion_interval(fraction, DRAWN)
  return Estimate(fraction, float(low), float(high), unit="%")


def varied(x: Varied, drawn: int | None = None) -> str:
  """Mean and standard deviation in words; given how many were drawn, with their
  standard errors.
  """
  of_mean, of_sd = (
    (x.sd / math.sqrt(n) for n in (drawn, 2 * (drawn - 1))) if drawn else (None, None)
  )
  return f"{percent(x.mean, of_mean)}, sd {percent(x.sd, of_sd)}"


def plot(numbers: Mapping[int, Ensembles], axes: np.ndarray) -> None:
  """By size: the shares that need little or no trimming, ours and the paper's, and each
  metric's mean ± one sd.
  """
  sizes, places = list(numbers), np.arange(len(numbers))
  first, *others = axes
  first.plot(
    places,
    [100 * n.small for n in numbers.values()],
    "o-",
    color=plots.BLUE,
    label="α̂ ≤ 0.05",
  )
  first.plot(
    places,
    [100 * n.within for n in numbers.values()],
    "o-",
    color=plots.ORANGE,
    label="untrimmed within δ_a",
  )
  first.plot(
    places,
    [100 * paper.ENSEMBLES[size].small for size in sizes],
    "D",
    color=plots.BLUE,
    markerfacecolor="white",
    label="α̂ ≤ 0.05, the paper's",
  )
  first.set(ylabel="ensembles (%)", ylim=(-4, 104))
  first.legend(loc="lower right")
  for ax, (of, said) in zip(others, METRICS.items(), strict=True):
    mean, sd = 100 * np.array([getattr(n, of) for n in numbers.values()]).T
    ax.errorbar(places, mean, sd, fmt="o", color=plots.BLUE, capsize=3)
    ax.set_ylabel(f"{said} (%), ± 1 sd")
  for ax in axes:
    ax.set_xticks(places, sizes)
    ax.set_xlabel("members of an ensemble")
    ax.grid(True)
