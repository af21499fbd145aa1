"""Simulated campaigns of each claim, for `experiments.calibration`.

An example goes wrong with its own rate; a run has more or less of all errors. The ratio
of the variance between runs to that of independent errors says how much.
"""

import functools
import math

import numpy as np
from jaxtyping import Bool, Float

from experiments import claims, frame
from experiments.calibration import Draw, Simulated
from experiments.claims import Estimate
from experiments.jordan2024 import (
  fig05_distribution_variance,
  fig06_binary_tasks,
  fig11_poking,
  fig14_dependent_pairs,
  paper,
  share,
  theorem1_test_sets,
  theorem3_calibration,
)
from experiments.measures import calibration_variance
from vmapseeds import stats

LONG = {"mean": 0.0558, "spread": 0.021}  # of the paper's 64 epochs: 10⁴ · 0.145 %²
SHORT = {"mean": 0.13, "spread": 0.048}  # of its 4 epochs: 10⁴ · 0.22 %²
RUNS, EXAMPLES = 64, 10_000


@functools.cache
def rates_of(
  mean: float, spread: float, examples: int
) -> Float[np.ndarray, " examples"]:
  """Return error rates of a Beta law, which has mean ε (1 - ε) equal to `spread`. All
  campaigns have the same test set.
  """
  concentration = spread / (mean * (1 - mean) - spread)
  shape = mean * concentration, (1 - mean) * concentration
  return np.random.default_rng(1).beta(*shape, examples)


def runs_of(
  rng: np.random.Generator,
  ratio: float,
  mean: float,
  spread: float,
  runs: int = RUNS,
  examples: int = EXAMPLES,
) -> Bool[np.ndarray, "runs examples"]:
  """Return errors. `ratio` is the variance of a run's error over that of independent
  errors.
  """
  rates = rates_of(mean, spread, examples)
  moved = math.sqrt((ratio - 1) * spread / examples) * rng.standard_normal((runs, 1))
  rates = (rates + moved * rates * (1 - rates) / spread).astype(np.float32)
  return rng.random((runs, examples), np.float32) < rates


Errors = Bool[np.ndarray, "runs examples"]


def sd(errors: Errors) -> Estimate:
  ends = stats.variance_over_runs(stats.error_rates(errors)).interval
  variances = (stats.test_set_variance(errors), *ends)
  return Estimate(*(math.sqrt(x) for x in variances), "log")


def halves(errors: Errors) -> Estimate:
  r = stats.split_correlation(errors)
  return Estimate(float(r), *map(float, r.interval), "atanh")


def over_independent(errors: Errors) -> Estimate:
  expected = float(stats.independent_errors_variance(errors))
  return Estimate(*(x**2 / expected for x in sd(errors)[:3]), "log")


def inverse(of: Estimate, factor: float = 1.0) -> Estimate:
  return Estimate(factor / of.value, factor / of.high, factor / of.low, "log")


def vanishes(errors: Errors) -> Estimate:
  observed = stats.test_set_variance(errors).value
  excess = stats.distribution_variance(errors)
  of = fig05_distribution_variance
  rest = 1 - 1 / errors.shape[1]
  interval = of.ratio_interval(observed, excess.value, excess.interval, rest)
  value = of.ratio(observed, excess.value)
  return Estimate(value if math.isfinite(value) else math.nan, *interval, "log")


def falls(rng: np.random.Generator, runs: int = 4000) -> Estimate:
  of = []
  for ratio, law in ((6.5, SHORT), (1.05, LONG)):
    errors = runs_of(rng, ratio, **law, runs=runs).astype(np.int32)
    tallies = stats.tally(errors, np.zeros(EXAMPLES, np.int32), 2)
    of.append(share.share(0, tallies))
  return share.factor(*of)


def over_binomial(errors: Errors) -> Estimate:
  binomial = float(stats.binomial_variance(errors.mean(), errors.shape[1]))
  return inverse(Estimate(*(x**2 for x in sd(errors)[:3])), binomial)


def excess(errors: Errors) -> Estimate:
  independent = float(stats.independent_errors_variance(errors))
  return Estimate(*(x**2 - independent for x in sd(errors)[:3]))


def one(statistic, ratio: float, of: dict[str, float], **sizes: int) -> Draw:
  """Return draws of a statistic of one campaign."""
  return lambda rng: statistic(runs_of(rng, ratio, **of, **sizes))


def narrows(rng: np.random.Generator, long: float, of: dict[str, float]) -> Estimate:
  return claims.over(sd(runs_of(rng, long, **of)), sd(runs_of(rng, 6.5, **SHORT)))


def pair(rng: np.random.Generator, apart: float) -> Estimate:
  a, b = 0.362, 0.607
  both = a * b + apart
  cells = rng.multinomial(RUNS, (both, a - both, b - both, 1 - a - b + both)) / RUNS
  first, second = cells[0] + cells[1], cells[0] + cells[2]
  se = math.sqrt(first * (1 - first) * second * (1 - second) / RUNS)
  return claims.estimated(cells[0] - first * second, se)


def tasks(rng: np.random.Generator, runs: int = 100, count: int = 103) -> Estimate:
  error = rng.uniform(0.002, 0.06, count)
  variance = (
    calibration_variance(error, 797) * rng.chisquare(runs - 1, count) / (runs - 1)
  )
  return fig06_binary_tasks.over_equation_6(error, variance, 797)


def ratio_of_variances(rng: np.random.Generator, ratio: float, runs: int) -> Estimate:
  a, b = math.sqrt(ratio) * rng.normal(size=runs), rng.normal(size=runs)
  found = stats.variance_ratio(a, b, paired=False)
  return Estimate(found.value, *found.interval, "log")


def linear(rng: np.random.Generator, of: float) -> Estimate:
  values = of * rng.normal(size=8)
  ends = stats.variance_over_runs(values).interval
  return Estimate(values.std(ddof=1), *map(math.sqrt, ends), "log")


def gain(rng: np.random.Generator, mean: float) -> Estimate:
  gains = rng.normal(mean, 0.26, EXAMPLES)
  return claims.estimated(gains.mean(), gains.std(ddof=1) / math.sqrt(EXAMPLES))


def doubled(rng: np.random.Generator) -> Estimate:
  sizes = {"runs": 100, "examples": 797}
  spreads = (
    frame.spread(runs_of(rng, ratio, **LONG, **sizes))
    for ratio in (1.04 * 1.135**2, 1.04)
  )
  return claims.over(*(claims.positive(s.sd, s.sd_se) for s in spreads))


def shift(rng: np.random.Generator, shifted: float) -> Estimate:
  hard = {"mean": 0.3, "spread": 0.1}
  return claims.less(
    excess(runs_of(rng, shifted, **hard)), excess(runs_of(rng, 1.0, **LONG))
  )


def poked(rng: np.random.Generator, share: float, runs: int = 60) -> fig11_poking.Poked:
  """Runs of which a share of the predictions is drawn anew, of 797 in ten classes."""
  law = np.random.default_rng(1).beta(0.1, 0.9, 797)
  unchanged, again = (
    np.where(rng.random((runs, 797)) < law, rng.integers(1, 10, (runs, 797)), 0)
    for _ in range(2)
  )
  drawn = rng.random((runs, 797)) < share
  return fig11_poking.compare(unchanged, np.where(drawn, again, unchanged))


def over_distinct(rng: np.random.Generator, share: float) -> Estimate:
  n = poked(rng, share)
  return claims.positive(n.ratio, n.ratio_se)


def poked_later(rng: np.random.Generator, last: float) -> Estimate:
  of = (poked(rng, share) for share in (0.99, last))
  return claims.less(*(claims.estimated(n.matched, n.matched_se) for n in of))


def first_step(rng: np.random.Generator) -> Estimate:
  of = (poked(rng, 0.99) for _ in range(2))
  return claims.over(*(claims.positive(n.matched, n.matched_se) for n in of))


def correlated(rng: np.random.Generator, r: float, runs: int = 60) -> Estimate:
  x, y = rng.normal(size=(2, runs))
  y = r * x + math.sqrt(1 - r**2) * y
  ends = map(float, stats.correlation_over_runs(x, y).interval)
  return Estimate(float(np.corrcoef(x, y)[0, 1]), *ends, "atanh")


def dependent(rng: np.random.Generator) -> Estimate:
  errors = runs_of(rng, 1.06, **LONG, examples=60).astype(int)
  tallies = stats.tally(errors, np.zeros(60, int), 2, pairs=True)
  n = fig14_dependent_pairs.pairs(tallies, np.zeros((60, 1, 1, 1)))
  return fig14_dependent_pairs.rows(n)[0].estimate


def of_test_sets(rng: np.random.Generator, equation_3: bool) -> Estimate:
  errors = runs_of(rng, 1.5, **LONG, runs=30, examples=1000)
  sets = (errors[:, rng.integers(1000, size=300)] for _ in range(60))
  found = np.array([theorem1_test_sets.moments(of) for of in sets])[:, int(equation_3)]
  found = found / errors.mean(1).var()
  return claims.estimated(found.mean(), found.std(ddof=1) / math.sqrt(len(found)))


def theorem(rng: np.random.Generator, which: int, systematic: bool = False) -> Estimate:
  """The estimate of theorem 5 or 4 with calibrated votes, or with errors that are nearly
  the same in all runs: then Σ ε (1 - ε) is a tenth of the error.
  """
  runs, examples, fixed = 100, 2000, np.random.default_rng(1)
  law = fixed.beta(0.1, 0.9, examples)
  labels = np.where(fixed.random(examples) < law, fixed.integers(1, 10, examples), 0)
  if systematic:
    law = np.repeat([1.0, 0.5, 0.0], (200, 100, 1700))
    labels = np.zeros(examples, int)
  predictions = np.where(
    rng.random((runs, examples)) < law, rng.integers(1, 10, (runs, examples)), 0
  )
  of = theorem3_calibration
  numbers = {str(k): of.calibrated(predictions % k, labels % k, k) for k in (2, 10)}
  stated = paper.CLAIMS[f"theorem {which}"].statistic
  found = [
    r.estimate for r in of.rows(numbers) if r.claim and r.claim.statistic == stated
  ]
  return found[-1] if which == 5 else found[0]


INDEPENDENT = "independent errors"
SIMULATED = {
  "narrows": Simulated(
    functools.partial(narrows, long=1.06, of=LONG),
    "64 runs, ratios 6.5 and 1.06",
    functools.partial(narrows, long=6.5, of=SHORT),
    "both as the short",
  ),
  "halves short": Simulated(
    one(halves, 6.5, SHORT), "64 runs, ratio 6.5", one(halves, 1, SHORT), INDEPENDENT
  ),
  "halves long": Simulated(one(halves, 1.06, LONG), "64 runs, ratio 1.06"),
  "independence short": Simulated(
    one(over_independent, 6.5, SHORT), "64 runs, ratio 6.5"
  ),
  "independence long": Simulated(
    one(over_independent, 1.06, LONG), "64 runs, ratio 1.06"
  ),
  "pair": Simulated(functools.partial(pair, apart=-0.0014), "64 runs, as printed"),
  "vanishes": Simulated(one(vanishes, 1.05, LONG), "64 runs, ratio 1.05"),
  "falls": Simulated(falls, "4,000 runs, ratios 6.5 and 1.05"),
  "equation 6": Simulated(tasks, "103 tasks of 100 runs, equation 6 exact"),
  "linear": Simulated(
    functools.partial(linear, of=0.5e-4),
    "8 runs, sd 0.005 %",
    functools.partial(linear, of=1e-4),
    "sd 0.01 %",
  ),
  "augmentation": Simulated(
    functools.partial(ratio_of_variances, ratio=3.5, runs=32),
    "32 runs of each, ratio 3.5",
    functools.partial(ratio_of_variances, ratio=1, runs=32),
    "runs relabelled: one law",
  ),
  "ensembles": Simulated(
    functools.partial(gain, mean=0.014),
    "10,000 examples, 1.4 %",
    functools.partial(gain, mean=0.0),
    "no gain",
  ),
  "finetuned small": Simulated(
    one(halves, 1.074, LONG, runs=120, examples=5000), "120 runs, ratio 1.07"
  ),
  "finetuned large": Simulated(
    one(halves, 7.3, SHORT, runs=120, examples=5000),
    "120 runs, ratio 7.3",
    one(halves, 1, SHORT, runs=120, examples=5000),
    INDEPENDENT,
  ),
  "rate doubled": Simulated(doubled, "100 runs of each, sd 1.135 times"),
  "rate best": Simulated(
    one(over_independent, 1.04, LONG, runs=100, examples=797), "100 runs, ratio 1.04"
  ),
  "shift": Simulated(
    functools.partial(shift, shifted=1.32),
    "64 runs, 0.18 % on the distribution",
    functools.partial(shift, shifted=1.0),
    INDEPENDENT,
  ),
  "one source short": Simulated(
    functools.partial(ratio_of_variances, ratio=0.67, runs=250), "250 runs, ratio 0.67"
  ),
  "one source long": Simulated(
    functools.partial(ratio_of_variances, ratio=1, runs=250), "250 runs, ratio 1"
  ),
  "poked short": Simulated(
    functools.partial(over_distinct, share=0.85), "60 pairs, ratio 0.85"
  ),
  "poked long": Simulated(
    functools.partial(over_distinct, share=0.99), "60 pairs, ratio 0.99"
  ),
  "poked later": Simulated(
    functools.partial(poked_later, last=0.9),
    "60 pairs, a tenth less",
    functools.partial(poked_later, last=0.99),
    "as much",
  ),
  "first step": Simulated(first_step, "60 pairs, as much"),
  "test and shifted": Simulated(
    functools.partial(correlated, r=0.05), "60 runs, R² 0.0025"
  ),
  "binomial": Simulated(one(over_binomial, 1.06, LONG), "64 runs, ratio 1.06"),
  "independent": Simulated(
    lambda rng: inverse(over_independent(runs_of(rng, 1.06, **LONG))),
    "64 runs, ratio 1.06",
  ),
  "dependent pairs": Simulated(dependent, "64 runs of 60 examples, nearly independent"),
  "theorem 1": Simulated(
    functools.partial(of_test_sets, equation_3=False),
    "60 test sets of 300 examples",
    functools.partial(of_test_sets, equation_3=False),
    "the same: it is always true",
  ),
  "theorem 2": Simulated(
    functools.partial(of_test_sets, equation_3=True),
    "60 test sets of 300 examples",
    functools.partial(of_test_sets, equation_3=True),
    "the same: it is always true",
  ),
  "theorem 4": Simulated(
    functools.partial(theorem, which=4),
    "100 runs, calibrated",
    functools.partial(theorem, which=4, systematic=True),
    "Σ ε (1 - ε) is err/k",
  ),
  "theorem 5": Simulated(functools.partial(theorem, which=5), "100 runs, calibrated"),
}
