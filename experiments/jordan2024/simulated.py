"""Simulated campaigns of each claim that a page judges, for `experiments.calibration`.

Runs vary as those on MNIST do. The ratio of the variance between runs to that of
independent errors says how much of it is on the distribution.
"""

import functools
import math

import numpy as np
from jaxtyping import Bool, Float

from experiments import claims, frame
from experiments.calibration import Simulated
from experiments.claims import Estimate
from experiments.jordan2024 import (
  fig08_learning_rate,
  fig11_poking,
  paper,
  theorem3_calibration,
)
from vmapseeds import stats

RUNS, EXAMPLES, ERROR = 4000, 10_000, 0.023
# 10⁴ times the variance that independent errors give: of 12 epochs, and of one
LONG, SHORT = 0.0097, 0.0124
Halves = Float[np.ndarray, "2 runs"]


def halves_of(rng: np.random.Generator, ratio: float, spread: float) -> Halves:
  """Return how often each run errs on two halves of the test set."""
  shared = math.sqrt((ratio - 1) * spread / EXAMPLES) * rng.normal(size=RUNS)
  own = math.sqrt(2 * spread / EXAMPLES) * rng.normal(size=(2, RUNS))
  return ERROR + shared + own


def variance_of_rates(halves: Halves) -> Estimate:
  rates = halves.mean(0)
  return Estimate(rates.var(ddof=1), *stats.variance_over_runs(rates).interval, "log")


def sd(halves: Halves) -> Estimate:
  value, low, high, *_ = variance_of_rates(halves)
  return Estimate(math.sqrt(value), math.sqrt(low), math.sqrt(high), "log")


def narrows(rng: np.random.Generator, ratio: float, spread: float) -> Estimate:
  long = halves_of(rng, ratio, spread)
  short = halves_of(rng, 6.5, SHORT)
  return claims.ratio_of(sd(long), sd(short))


def correlation(rng: np.random.Generator, ratio: float, spread: float) -> Estimate:
  even, odd = halves_of(rng, ratio, spread)
  low, high = stats.correlation_over_runs(even, odd).interval
  r = np.corrcoef(even, odd)[0, 1]
  return Estimate(float(r), float(low), float(high), "atanh")


def simulate_over_independent(
  rng: np.random.Generator,
  ratio: float,
  spread: float,
) -> Estimate:
  value, low, high, *_ = variance_of_rates(halves_of(rng, ratio, spread))
  # What independent errors give is taken as known.
  return Estimate(
    value * EXAMPLES / spread,
    low * EXAMPLES / spread,
    high * EXAMPLES / spread,
    "log",
  )


def over_binomial(rng: np.random.Generator, ratio: float) -> Estimate:
  value, low, high, *_ = variance_of_rates(halves_of(rng, ratio, LONG))
  binomial = ERROR * (1 - ERROR) / EXAMPLES
  return Estimate(binomial / value, binomial / high, binomial / low, "log")


def far(rng: np.random.Generator, ratio: float, runs: int = 40) -> Estimate:
  """Runs at one learning rate, whose errors are drawn one by one."""
  concentration = LONG / (ERROR * (1 - ERROR) - LONG)
  shape = ERROR * concentration, (1 - ERROR) * concentration
  rates = np.random.default_rng(1).beta(*shape, EXAMPLES)
  moved = math.sqrt((ratio - 1) * LONG / EXAMPLES) * rng.standard_normal((runs, 1))
  rates = rates + moved * rates * (1 - rates) / LONG
  errors: Bool[np.ndarray, "runs examples"] = rng.random((runs, EXAMPLES)) < rates
  independent = math.sqrt(stats.independent_errors_variance(errors))
  rate = fig08_learning_rate.Rate(
    0.2,
    runs,
    0,
    frame.spread_of(errors),
    independent,
    math.nan,
    math.nan,
  )
  return fig08_learning_rate.variance_over_independent(rate)


def simulate_poked(
  rng: np.random.Generator,
  share: float,
  runs: int = 50,
) -> fig11_poking.Poked:
  """Runs of ten classes that disagree on 2 % of some test examples, fewer than MNIST has,
  of which a share of the predictions is drawn anew.
  """
  size = (runs, 2000)
  law = np.random.default_rng(1).beta(0.02, 0.9, size[1])

  def predictions() -> np.ndarray:
    return np.where(rng.random(size) < law, rng.integers(1, 10, size), 0)

  unchanged = predictions()
  again = predictions()
  replaced = rng.random(size) < share
  return fig11_poking.compare_changed(unchanged, np.where(replaced, again, unchanged))


def over_distinct(rng: np.random.Generator, share: float) -> Estimate:
  n = simulate_poked(rng, share)
  return claims.positive_estimate(n.ratio, n.ratio_se)


def poked_later(rng: np.random.Generator, last: float) -> Estimate:
  early = simulate_poked(rng, 0.99)
  late = simulate_poked(rng, last)
  return claims.difference_of(
    claims.student_estimate(early.matched, early.matched_se),
    claims.student_estimate(late.matched, late.matched_se),
  )


def theorem(rng: np.random.Generator, which: int, systematic: bool = False) -> Estimate:
  """The estimate of theorem 5 or 4 with calibrated votes, or with errors that are nearly
  the same in all runs: then Σ ε (1 - ε) is a tenth of the error.
  """
  runs = 100
  examples = 2000
  fixed = np.random.default_rng(1)
  law = fixed.beta(0.1, 0.9, examples)
  labels = np.where(fixed.random(examples) < law, fixed.integers(1, 10, examples), 0)
  if systematic:
    law = np.repeat([1.0, 0.5, 0.0], (200, 100, 1700))
    labels = np.zeros(examples, int)
  predictions = np.where(
    rng.random((runs, examples)) < law,
    rng.integers(1, 10, (runs, examples)),
    0,
  )
  numbers = {
    str(k): theorem3_calibration.measure_calibration(predictions % k, labels % k, k)
    for k in (2, 10)
  }
  stated = paper.CLAIMS[f"theorem {which}"].statistic
  estimates = [
    row.estimate
    for row in theorem3_calibration.rows(numbers)
    if row.claim and row.claim.statistic == stated
  ]
  # Theorem 5 is judged with ten classes, theorem 4 on the smallest test set.
  return estimates[-1] if which == 5 else estimates[0]


def simulate_claim(
  draw,
  law: float,
  null: float | None,
  law_text: str,
  null_text: str = "",
):
  """Return the campaigns of a draw with one argument; without a null, those of a value."""
  if null is None:
    return Simulated(lambda rng: draw(rng, law), law_text)
  return Simulated(
    lambda rng: draw(rng, law),
    law_text,
    lambda rng: draw(rng, null),
    null_text,
  )


def after(draw, spread: float):
  return functools.partial(draw, spread=spread)


SIMULATED = {
  "narrows": Simulated(
    functools.partial(narrows, ratio=1.06, spread=LONG),
    "4,000 runs, ratios 6.5 and 1.06",
    functools.partial(narrows, ratio=6.5, spread=SHORT),
    "both as the short",
  ),
  "halves short": simulate_claim(
    after(correlation, SHORT),
    6.5,
    1,
    "4,000 runs, ratio 6.5",
    "independent errors",
  ),
  "halves long": simulate_claim(
    after(correlation, LONG),
    1.06,
    None,
    "4,000 runs, ratio 1.06",
  ),
  "independence short": simulate_claim(
    after(simulate_over_independent, SHORT),
    6.5,
    None,
    "4,000 runs, ratio 6.5",
  ),
  "independence long": simulate_claim(
    after(simulate_over_independent, LONG),
    1.06,
    None,
    "4,000 runs, ratio 1.06",
  ),
  "binomial": simulate_claim(over_binomial, 1.06, None, "4,000 runs, ratio 1.06"),
  "rate far": simulate_claim(far, 2.0, 1.0, "40 runs, ratio 2", "independent errors"),
  "poked long": simulate_claim(over_distinct, 0.99, None, "50 pairs, ratio 0.99"),
  "poked later": simulate_claim(
    poked_later,
    0.9,
    0.99,
    "50 pairs, a tenth less",
    "as much",
  ),
  "theorem 4": Simulated(
    functools.partial(theorem, which=4),
    "100 runs, calibrated",
    functools.partial(theorem, which=4, systematic=True),
    "Σ ε (1 - ε) is err/k",
  ),
  "theorem 5": Simulated(functools.partial(theorem, which=5), "100 runs, calibrated"),
}
