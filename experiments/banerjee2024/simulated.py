"""Simulated campaigns of each claim, for `experiments.calibration`."""

import math

import numpy as np

from experiments import claims
from experiments.banerjee2024 import candidates, fig03_epochs, table1_ensembles
from experiments.calibration import Simulated
from experiments.claims import Estimate
from vmapseeds import stats

RUNS, SMALL = 15, 4  # candidates, and how many of them have a small α̂
SD = 0.004  # between runs, of differences in accuracy and calibration


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
  found = stats.variance_ratio(a, b, paired=False)
  return Estimate(found.value, *found.interval, "log")


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


def partial(rng: np.random.Generator, correlation: float) -> Estimate:
  """α̂ and churn both follow accuracy; at equal accuracy they are correlated so."""
  each = []
  for _ in range(3):
    accuracy = rng.normal(size=RUNS)
    churn, level = (x - accuracy for x in levels(rng, correlation))
    each.append(candidates.partial(level, churn, accuracy))
  return candidates.together(each).estimate()


def paired(rng: np.random.Generator, mean: float) -> Estimate:
  return fig03_epochs.paired(rng.normal(mean, SD, RUNS))


def unpaired(rng: np.random.Generator, mean: float) -> Estimate:
  late, early = rng.normal(size=(2, RUNS // 2))
  return fig03_epochs.unpaired(mean + SD * late, SD * early)


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
    lambda rng: draw(rng, law), said, lambda rng: draw(rng, null), said_null
  )


SHUFFLED = "α̂ shuffled over runs"
RANKED = f"{RUNS} runs, correlation 0.5"
SIMULATED = {
  "small": both(share, 1.0, 0.99, "500 draws, all", "99 %, the edge of the margin"),
  "within": both(share, 1.0, 0.99, "500 draws, all", "99 %, the edge of the margin"),
  "ECE": both(ece, 0.0057, 0.0, "500 draws, as printed", "one mean"),
  "order": both(order, 3.4, 1.0, f"{RUNS} runs, ratio 3.4", "runs relabelled: one law"),
  "accuracies": both(worst, 0.5, 0.0, RANKED, SHUFFLED),
  "churns": both(worst, 0.5, 0.0, RANKED, SHUFFLED),
  "tau": both(tau, 0.5, 0.0, RANKED, SHUFFLED),
  "partial": both(
    partial,
    0.5,
    0.0,
    f"3 sources, {RANKED}",
    "α̂ and churn independent at equal accuracy",
  ),
  "plateau": both(paired, 0.0, 0.003, f"{RUNS} runs, sd 0.4 %", "0.3 %, the margin"),
  "overconfident": both(unpaired, 0.01, 0.0, f"{RUNS} runs, 1 %, sd 0.4 %", "no rise"),
  "departs": both(unpaired, 0.013, 0.0, f"{RUNS} runs, 1.3 %, sd 0.4 %", "no rise"),
  "calibrated": both(paired, -0.01, 0.0, f"{RUNS} runs, -1 %, sd 0.4 %", "the same"),
  "uncertain": both(paired, -0.005, 0.0, f"{RUNS} runs, -0.5 %, sd 0.4 %", "as many"),
  "extreme": both(paired, -0.01, 0.0, f"{RUNS} runs, -1 %, sd 0.4 %", "as many"),
  "transfer": both(order, 0.1, 1.0, f"{RUNS} runs, ratio 0.1", "one law"),
  "sd of accuracy": Simulated(
    averaged, "means of independent values", averaged, "the same: it is always true"
  ),
}
