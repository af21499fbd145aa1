"""Simulated campaigns of each claim that a page judges, for `experiments.calibration`."""

import math

import numpy as np

from experiments import claims
from experiments.banerjee2024 import fig03_epochs, table1_ensembles
from experiments.calibration import Simulated
from experiments.claims import Estimate

RUNS = 15  # candidates
SD = 0.004  # between runs, of differences in accuracy and calibration


def ece(rng: np.random.Generator, falls: float) -> Estimate:
  drawn = table1_ensembles.DRAWN
  few = rng.normal(0.0226, 0.0048, drawn)
  many = rng.normal(0.0226, 0.0011, drawn) - falls
  se = math.hypot(few.std(ddof=1), many.std(ddof=1)) / math.sqrt(drawn)
  return claims.student_estimate(many.mean() - few.mean(), se)


def paired(rng: np.random.Generator, mean: float) -> Estimate:
  return fig03_epochs.paired_estimate(rng.normal(mean, SD, RUNS))


def unpaired(rng: np.random.Generator, mean: float) -> Estimate:
  late, early = rng.normal(size=(2, RUNS // 2))
  return fig03_epochs.unpaired_estimate(mean + SD * late, SD * early)


def simulate_direction(
  draw,
  law: float,
  null: float,
  law_text: str,
  null_text: str,
) -> Simulated:
  """Return the campaigns of a draw with one argument."""
  return Simulated(
    lambda rng: draw(rng, law),
    law_text,
    lambda rng: draw(rng, null),
    null_text,
  )


SIMULATED = {
  "ECE": simulate_direction(ece, 0.0057, 0.0, "500 draws, as printed", "one mean"),
  "overconfident": simulate_direction(
    unpaired,
    0.01,
    0.0,
    f"{RUNS} runs, 1 %, sd 0.4 %",
    "no rise",
  ),
  "departs": simulate_direction(
    unpaired,
    0.013,
    0.0,
    f"{RUNS} runs, 1.3 %, sd 0.4 %",
    "no rise",
  ),
  "calibrated": simulate_direction(
    paired,
    -0.01,
    0.0,
    f"{RUNS} runs, -1 %, sd 0.4 %",
    "the same",
  ),
  "uncertain": simulate_direction(
    paired,
    -0.005,
    0.0,
    f"{RUNS} runs, -0.5 %, sd 0.4 %",
    "as many",
  ),
  "extreme": simulate_direction(
    paired,
    -0.01,
    0.0,
    f"{RUNS} runs, -1 %, sd 0.4 %",
    "as many",
  ),
}
