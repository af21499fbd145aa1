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

REPETITIONS, MEASURES, SEARCHES = 20, 10, 2
K = 20  # of a biased estimator
POOL, TESTED, ERROR = 1797, 299, 0.05
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


def normal(
  rng: np.random.Generator, sd: float = 1.0, rho: float = 0.0, measures: int = MEASURES
) -> Accuracies:
  """Normal accuracies with variance sd², of which a share ρ is the repetitions'."""
  shared = math.sqrt(rho) * rng.normal(size=(REPETITIONS, 1))
  own = math.sqrt(1 - rho) * rng.normal(size=(REPETITIONS, measures))
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
  found = fig02_binomial.binomial(1 - wrong / TESTED, TESTED)
  return fig02_binomial.rows({"task": found})[-1].estimate


def searched(rng: np.random.Generator, of: float) -> Estimate:
  """Three kinds of search, and runs that differ in initialisation."""
  sd = math.sqrt(of)
  samplers = [normal(rng, sd, measures=SEARCHES).var(axis=1, ddof=1) for _ in range(3)]
  init = normal(rng).var(axis=1, ddof=1)
  return Estimate(*measures.ratio_of_variances(np.mean(samplers, axis=0), init), "log")


def early(rng: np.random.Generator) -> Estimate:
  """Searches that a quarter of the trials and all of them leave at values that differ."""
  last = normal(rng, measures=SEARCHES)
  quarter = math.sqrt(0.5) * (last + normal(rng, measures=SEARCHES))
  return Estimate(*np.sqrt(measures.ratio(quarter, last)), "log")


def squares(rng: np.random.Generator, rho: float) -> Estimate:
  """Mean squared errors of biased estimators whose measures correlate by ρ, and by 0.1."""
  of = (normal(rng, rho=r, measures=K).mean(axis=1) ** 2 for r in (rho, 0.1))
  return Estimate(*measures.ratio_of_variances(*of), "log", REPETITIONS - 1)


def worth(rng: np.random.Generator, rho: float) -> Estimate:
  return measures.biased(normal(rng, rho=rho, measures=K)).estimate


def bias(rng: np.random.Generator, data: float) -> Estimate:
  of = (measures.biased(normal(rng, rho=rho, measures=K)) for rho in (0.7, data))
  return claims.less(*(b.estimate for b in of))


def skewness(rng: np.random.Generator) -> Estimate:
  return figg3_distributions.skewness(rng.normal(size=REPETITIONS * MEASURES))


def detection(rng: np.random.Generator, rate: float) -> Estimate:
  found, draws = rng.binomial(10_000, rate) / 10_000, 10_000
  return fig06_detection.simulated(found, math.sqrt(found * (1 - found) / draws))


RUNS = f"{REPETITIONS} × {MEASURES} runs"
SAME = "the same: it is always true"
SIMULATED = {
  "init over data": Simulated(
    functools.partial(ratio, of=0.35),
    f"{RUNS}, ratio 0.35",
    functools.partial(ratio, of=0.5),
    "ratio 0.5",
  ),
  "over data": Simulated(over_data, f"{RUNS}, independent errors", over_data, SAME),
  "together": Simulated(together, f"{RUNS}, independent errors", together, SAME),
  "order over init": Simulated(functools.partial(ratio, of=1), f"{RUNS}, ratio 1"),
  "binomial": Simulated(binomial, f"{RUNS}, binomial"),
  "worth init": Simulated(
    functools.partial(worth, rho=0.7),
    f"{REPETITIONS} × {K} runs, ρ = 0.7",
    functools.partial(worth, rho=0.5),
    "ρ = 0.5",
  ),
  "worth data": Simulated(
    functools.partial(worth, rho=0.25), f"{REPETITIONS} × {K} runs, ρ = 0.25"
  ),
  "worth all": Simulated(
    functools.partial(worth, rho=0.1), f"{REPETITIONS} × {K} runs, ρ = 0.1"
  ),
  "search over init": Simulated(
    functools.partial(searched, of=1),
    f"3 × {REPETITIONS} × {SEARCHES} searches, ratio 1",
  ),
  "early": Simulated(
    early, f"{REPETITIONS} × {SEARCHES} searches, of equal sd, that correlate by 0.7"
  ),
  "mse": Simulated(
    functools.partial(squares, rho=0.7),
    f"{REPETITIONS} × {K} runs, ρ = 0.7 and 0.1",
    functools.partial(squares, rho=0.1),
    "ρ = 0.1 of both",
  ),
  "bias": Simulated(
    functools.partial(bias, data=0.25),
    f"{REPETITIONS} × {K} runs, ρ = 0.7 and 0.25",
    functools.partial(bias, data=0.7),
    "ρ = 0.7 of both",
  ),
  "normal": Simulated(skewness, f"{REPETITIONS * MEASURES} runs, normal"),
} | {
  f"{kind} {name}": Simulated(
    functools.partial(detection, rate=rate), f"10,000 comparisons, {rate:.0%}"
  )
  for name, kind, rate in (
    ("single_point", "positives", paper.DETECTION["single_point"].positives[0]),
  )
}
