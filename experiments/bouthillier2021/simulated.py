"""Simulated campaigns of each claim, for `experiments.calibration`."""

import functools
import math

import numpy as np
from jaxtyping import Float

from experiments import claims
from experiments.bouthillier2021 import (
  fig02_binomial,
  fig06_detection,
  figg3_distributions,
  measures,
  paper,
)
from experiments.calibration import Simulated
from experiments.claims import Estimate

REPETITIONS, MEASURES = 20, 20
POOL, TESTED, ERROR = 1797, 922, 0.0184
Accuracies = Float[np.ndarray, "repetitions measures"]


def independent(rng: np.random.Generator, data: bool) -> Accuracies:
  """Accuracies of runs whose errors are independent, each example at its own rate: on a
  test set for each run if the data vary, else for each repetition.
  """
  rates = np.random.default_rng(1).beta(0.05, 0.05 * (1 / ERROR - 1), POOL)
  sets = REPETITIONS * (MEASURES if data else 1)
  tested = np.argpartition(rng.random((sets, POOL)), TESTED)[:, :TESTED]
  tested = tested.reshape(REPETITIONS, -1, TESTED)
  wrong = rng.random((REPETITIONS, MEASURES, TESTED)) < rates[tested]
  return 1 - wrong.mean(2)


def normal(rng: np.random.Generator, sd: float = 1.0, rho: float = 0.0) -> Accuracies:
  """Normal accuracies with variance sd², of which a share ρ is the repetitions'."""
  shared = math.sqrt(rho) * rng.normal(size=(REPETITIONS, 1))
  own = math.sqrt(1 - rho) * rng.normal(size=(REPETITIONS, MEASURES))
  return sd * (shared + own)


def over(a: Accuracies, b: Accuracies) -> Estimate:
  return Estimate(*measures.ratio(a, b), "log")


def ratio(rng: np.random.Generator, of: float) -> Estimate:
  return over(normal(rng, math.sqrt(of)), normal(rng))


def over_data(rng: np.random.Generator) -> Estimate:
  return over(independent(rng, data=False), independent(rng, data=True))


def together(rng: np.random.Generator) -> Estimate:
  return over(independent(rng, data=True), independent(rng, data=True))


def binomial(rng: np.random.Generator) -> Estimate:
  wrong = rng.binomial(TESTED, ERROR, (REPETITIONS, MEASURES))
  return fig02_binomial.rows(fig02_binomial.binomial(1 - wrong / TESTED, TESTED))[
    -1
  ].estimate


def worth(rng: np.random.Generator, rho: float) -> Estimate:
  return measures.biased(normal(rng, rho=rho)).estimate


def bias(rng: np.random.Generator) -> Estimate:
  of = (measures.biased(independent(rng, data)) for data in (False, True))
  return claims.less(*(b.estimate for b in of))


def skewness(rng: np.random.Generator) -> Estimate:
  return figg3_distributions.skewness(rng.normal(size=REPETITIONS * MEASURES))


def detection(rng: np.random.Generator, rate: float) -> Estimate:
  found, draws = rng.binomial(10_000, rate) / 10_000, 10_000
  return fig06_detection.simulated(found, math.sqrt(found * (1 - found) / draws))


SAME = "the same: it is always true"
SIMULATED = {
  "init over data": Simulated(
    functools.partial(ratio, of=0.35),
    "20 × 20 runs, ratio 0.35",
    functools.partial(ratio, of=0.5),
    "ratio 0.5",
  ),
  "over data": Simulated(
    over_data, "20 × 20 runs, independent errors", over_data, SAME
  ),
  "together": Simulated(together, "20 × 20 runs, independent errors", together, SAME),
  "order over init": Simulated(functools.partial(ratio, of=1), "20 × 20 runs, ratio 1"),
  "binomial": Simulated(binomial, "20 × 20 runs, binomial"),
  "worth init": Simulated(
    functools.partial(worth, rho=0.7),
    "20 × 20 runs, ρ = 0.7",
    functools.partial(worth, rho=0.5),
    "ρ = 0.5",
  ),
  "worth data": Simulated(functools.partial(worth, rho=0.25), "20 × 20 runs, ρ = 0.25"),
  "bias": Simulated(bias, "20 × 20 runs, independent errors", bias, SAME),
  "normal": Simulated(skewness, "400 runs, normal"),
} | {
  f"{kind} {name}": Simulated(
    functools.partial(detection, rate=rate), f"10,000 comparisons, {rate:.0%}"
  )
  for name, kind, rate in (
    ("single_point", "positives", paper.DETECTION["single_point"].positives[0]),
  )
}
