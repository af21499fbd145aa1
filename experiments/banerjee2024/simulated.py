"""Simulated campaigns of each claim, for `experiments.calibration`."""

import functools
import math

import numpy as np

from experiments import claims
from experiments.banerjee2024 import candidates, table1_ensembles
from experiments.calibration import Simulated
from experiments.claims import Estimate
from vmapseeds import stats

RUNS, SMALL = 100, 40  # candidates, and how many of them have a small α̂


def share(rng: np.random.Generator, of: float) -> Estimate:
  drawn = table1_ensembles.DRAWN
  return table1_ensembles.share(rng.binomial(drawn, of) / drawn)


def ece(rng: np.random.Generator, falls: float) -> Estimate:
  drawn = table1_ensembles.DRAWN
  few, many = (
    rng.normal(0.0226, 0.0048, drawn),
    rng.normal(0.0226, 0.0011, drawn) - falls,
  )
  se = math.hypot(few.std(ddof=1), many.std(ddof=1)) / math.sqrt(drawn)
  return claims.estimated(many.mean() - few.mean(), se)


def order(rng: np.random.Generator, ratio: float) -> Estimate:
  a, b = math.sqrt(ratio) * rng.normal(size=RUNS), rng.normal(size=RUNS)
  return Estimate(*stats.variance_ratio(a, b, paired=False), "log")


def levels(
  rng: np.random.Generator, correlation: float
) -> tuple[np.ndarray, np.ndarray]:
  """How bad each run is, and its α̂ up to a monotone transformation."""
  worse, level = rng.normal(size=(2, RUNS))
  return worse, correlation * worse + math.sqrt(1 - correlation**2) * level


def worst(rng: np.random.Generator, correlation: float) -> Estimate:
  worse, level = levels(rng, correlation)
  return candidates.leaves_out(
    candidates.excluded(worse, np.argsort(np.argsort(level)) < SMALL)
  )


def tau(rng: np.random.Generator, correlation: float) -> Estimate:
  return claims.estimated(*candidates.tau(*levels(rng, correlation)))


def averaged(rng: np.random.Generator) -> Estimate:
  """The sd over ensembles of 70 of 100 values over that of ensembles of 3."""
  values = rng.normal(size=RUNS)
  few, many = (
    np.std([rng.permutation(values)[:size].mean() for _ in range(100)], ddof=1)
    for size in (3, 70)
  )
  return claims.positive(many / few, many / few * math.sqrt(1 / 99))


def both(draw, law: float, null: float, said: str, said_null: str) -> Simulated:
  """Return the campaigns of a draw with one argument."""
  return Simulated(
    functools.partial(draw, **{ARGUMENT[draw]: law}),
    said,
    functools.partial(draw, **{ARGUMENT[draw]: null}),
    said_null,
  )


ARGUMENT = {
  share: "of",
  ece: "falls",
  order: "ratio",
  worst: "correlation",
  tau: "correlation",
}
SHUFFLED = "α̂ shuffled over runs"
RANKED = "100 runs, correlation 0.5"
SIMULATED = {
  "small": both(share, 1.0, 0.99, "500 draws, all", "99 %, the edge of the margin"),
  "within": both(share, 1.0, 0.99, "500 draws, all", "99 %, the edge of the margin"),
  "ECE": both(ece, 0.0057, 0.0, "500 draws, as printed", "one mean"),
  "order": both(order, 3.4, 1.0, "100 runs, ratio 3.4", "runs relabelled: one law"),
  "accuracies": both(worst, 0.5, 0.0, RANKED, SHUFFLED),
  "churns": both(worst, 0.5, 0.0, RANKED, SHUFFLED),
  "tau": both(tau, 0.5, 0.0, RANKED, SHUFFLED),
  "sd of accuracy": Simulated(
    averaged, "means of independent values", averaged, "the same: it is always true"
  ),
}
