"""Simulated campaigns of each claim that a page judges, for `experiments.calibration`.
What is exact, as rates of decisions are, is not drawn.
"""

import numpy as np

from experiments.bouthillier2021 import measures
from experiments.calibration import Simulated
from experiments.claims import Estimate

REPETITIONS, MEASURES = 20, 10


def equal_variances(rng: np.random.Generator) -> Estimate:
  """The ratio of the variances where one source varies, and where another does."""
  order, init = rng.normal(size=(2, REPETITIONS, MEASURES))
  return Estimate(*measures.variance_ratio_within(order, init), "log")


SIMULATED = {
  "order over init": Simulated(
    equal_variances, f"{REPETITIONS} × {MEASURES} runs, ratio 1"
  ),
}
