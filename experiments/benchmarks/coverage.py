"""How often the 95 % intervals of `vmapseeds.stats` hold the truth, in campaigns whose
truth is known.

    python -m experiments.benchmarks.coverage
    python -m experiments.benchmarks.coverage --campaigns 500 --runs 30 100 --laws normal skewed

Run h gets example i wrong with probability p_i + s u_h, where u_h has mean 0 and
variance 1. So example i has the error rate p_i, and the errors of examples i and j have
the covariance s² over runs, which is the distribution-wise variance. u_h is normal with
a large s ("normal") or a small s ("weak"), absent, or exponential ("skewed"): a few
runs are far worse than most. Real campaigns are drawn with replacement from runs of one
epoch of `digits_cnn`, which are trained once, before. Every campaign draws its own
runs. This module computes the numbers in docs/statistics/coverage.csv.

Cost: 70 s on two CPU cores to train 4,096 runs, then 4 minutes on one core.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Bool
from rich.console import Console
from rich.progress import track

import vmapseeds as vs
from experiments.benchmarks.common import Count, Table, check_counts, markdown
from experiments.measures import decide
from vmapseeds import stats
from vmapseeds.cli import one_line_errors
from vmapseeds.errors import UserError, check_at_least
from vmapseeds.flags import metavar, parse_flags

EXAMPLES = 400
GAIN = "top_fraction_gain_bootstrap"
BOOTSTRAPPED = 4  # one campaign in this many is bootstrapped: a bootstrap takes long
Errors = Bool[np.ndarray, "runs examples"]


class Law(NamedTuple):
  """The law of u_h, the factor s (`sd`), and the ends between which the p_i are evenly
  spaced.
  """

  factor: Callable[[np.random.Generator, int], np.ndarray]
  sd: float
  low: float = 0.15
  high: float = 0.55


LAWS = {
  "normal": Law(lambda rng, runs: rng.standard_normal(runs), 0.03),
  "weak": Law(lambda rng, runs: rng.standard_normal(runs), 0.008),
  "absent": Law(lambda rng, runs: np.zeros(runs), 0.0),
  "skewed": Law(lambda rng, runs: rng.standard_exponential(runs) - 1, 0.05, 0.05, 0.25),
}
REAL = "real"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags:
  """How many campaigns, of what, and where the real runs lie."""

  campaigns: Count = 2000
  """campaigns of each law and number of runs"""

  runs: Annotated[tuple[int, ...], metavar("R")] = (10, 30, 100, 256)
  """runs of a campaign"""

  laws: Annotated[tuple[Literal[*LAWS, REAL], ...], metavar("LAW")] = (*LAWS, REAL)
  """laws of the run factor: normal, weak, absent, skewed, real"""

  population: Count = 4096
  """real runs, from which campaigns are drawn"""

  out: Annotated[Path, metavar("DIR")] = Path("results/benchmarks/coverage")
  """results folder of the real runs"""


def simulated_campaigns(
  law: str,
  runs: int,
  rng: np.random.Generator,
) -> tuple[dict[str, float], Iterator[Errors]]:
  """The true values under a law, and an endless iterator of campaigns."""
  factor, sd, low, high = LAWS[law]
  p = np.linspace(low, high, EXAMPLES)[rng.permutation(EXAMPLES)]
  independent = p * (1 - p)

  def variance(examples: slice) -> float:
    n = len(p[examples])
    return independent[examples].sum() / n**2 + sd**2 * (1 - 1 / n)

  def campaigns():
    while True:
      uniform = rng.random((runs, EXAMPLES), np.float32)
      # A run is better or worse on all examples alike.
      of_run = sd * factor(rng, runs)[:, None]
      yield uniform < p + of_run

  whole = variance(slice(None))
  even = variance(slice(0, None, 2))
  odd = variance(slice(1, None, 2))
  return truths(p, whole, even, odd, sd**2), campaigns()


def resampled_campaigns(
  errors: Errors,
  runs: int,
  rng: np.random.Generator,
) -> tuple[dict[str, float], Iterator[Errors]]:
  """The true values of a population of runs, and an endless iterator of campaigns drawn
  from it with replacement.
  """

  def campaigns():
    while True:
      yield errors[rng.integers(len(errors), size=runs)]

  rates = errors.mean(1)
  even = errors[:, 0::2].mean(1)
  odd = errors[:, 1::2].mean(1)
  # With ddof = 0: the population is all there is.
  covariance = np.cov(even, odd, ddof=0)[0, 1]
  truth = truths(errors.mean(0), rates.var(), even.var(), odd.var(), covariance)
  # Here the truth is equation 3 on these examples, not the covariance of the two
  # halves.
  n = errors.shape[1]
  independent = truth["expected_disagreement"] / 2
  truth["distribution_variance"] = (n * rates.var() - independent) / (n - 1)
  return truth, campaigns()


def truths(
  p: np.ndarray,
  variance: float,
  even: float,
  odd: float,
  covariance: float,
) -> dict[str, float]:
  """The true value for each interval, by name. `p` are the examples' error rates;
  `variance`, `even` and `odd` are the variances of a run's error rate on all, even and
  odd examples; `covariance` is that of the last two rates.
  """
  n = len(p)
  return {
    "mean_over_runs": p.mean(),
    "variance_over_runs": variance,
    "... were runs normal: chi-square": variance,
    "distribution_variance": covariance,
    "noise_share": min(1, (p * (1 - p)).sum() / n**2 / variance),
    "split_correlation": covariance / np.sqrt(even * odd),
    "variance_ratio, paired": even / odd,
    "variance_ratio, unpaired": 1.0,
    "expected_disagreement": 2 * (p * (1 - p)).mean(),
    "binomial variance": p.mean() * (1 - p.mean()) / n,
    "decide, P(A > B)": 0.5,
    "proportion_over_examples": p.mean(),
  }


def intervals_of_campaign(errors: Errors, other: Errors) -> dict[str, Sequence[float]]:
  """The 95 % intervals of a campaign, by the names that `truths` uses; `other` is
  another campaign of the same law.
  """
  runs, n = errors.shape
  rates = stats.error_rates(errors)
  even = stats.error_rates(errors[:, 0::2])
  odd = stats.error_rates(errors[:, 1::2])
  t = scipy.stats.t.ppf(0.975, runs - 1)

  def student(value, se):
    return value - t * se, value + t * se

  mean = rates.mean()
  se = rates.std(ddof=1) / runs**0.5
  squares = rates.var(ddof=1) * (runs - 1)
  # By the delta method: the slope of p (1 - p) / n is (1 - 2p) / n.
  binomial_se = abs(1 - 2 * mean) / n * se
  other_rates = stats.error_rates(other)
  unpaired = stats.variance_ratio(rates, other_rates, paired=False)
  predictions = errors.astype(np.int8)
  return {
    "mean_over_runs": stats.mean_over_runs(rates).interval,
    "variance_over_runs": stats.variance_over_runs(rates).interval,
    "... were runs normal: chi-square": squares / _chi_square(runs - 1),
    "distribution_variance": stats.distribution_variance(errors).interval,
    "noise_share": stats.noise_share(errors).interval,
    "split_correlation": stats.split_correlation(errors).interval,
    "variance_ratio, paired": stats.variance_ratio(even, odd).interval,
    "variance_ratio, unpaired": unpaired.interval,
    "expected_disagreement": stats.expected_disagreement(predictions, 2).interval,
    "binomial variance": student(mean * (1 - mean) / n, binomial_se),
    "decide, P(A > B)": decide(1 - rates, 1 - other_rates)[1:3],
  }


@functools.cache
def _chi_square(freedom: int) -> np.ndarray:
  return scipy.stats.chi2.ppf([0.975, 0.025], freedom)


def coverage_by_interval(
  truth: dict[str, float],
  campaigns: Iterator[Errors],
  number: int,
  rng: np.random.Generator,
) -> dict[str, float]:
  """The fraction of `number` campaigns in which each interval holds the truth, by the
  statistic's name.
  """
  held = dict.fromkeys(truth, 0)
  for _ in range(number):
    errors = next(campaigns)
    examples = errors.shape[1]
    rate = rng.binomial(examples, truth["mean_over_runs"]) / examples
    intervals = dict(intervals_of_campaign(errors, next(campaigns)))
    of_one_network = stats.proportion_over_examples(rate, examples)
    intervals["proportion_over_examples"] = of_one_network.interval
    for name, (low, high) in intervals.items():
      held[name] += low <= truth[name] <= high
  shares = {name: count / number for name, count in held.items()}
  shares[GAIN] = gain_coverage(campaigns, number, rng)
  return shares


def gain_coverage(
  campaigns: Iterator[Errors],
  number: int,
  rng: np.random.Generator,
) -> float:
  """The coverage for the top quarter's gain. Its mean over `number` campaigns is taken
  as the truth.
  """
  gains = []
  for _ in range(number):
    gains.append(stats.top_fraction_gain(next(campaigns)).mean)
  truth = np.mean(gains)

  key = jax.random.key(int(rng.integers(2**31)))
  held = []
  for own_key in jax.random.split(key, max(1, number // BOOTSTRAPPED)):
    gain = stats.top_fraction_gain_bootstrap(
      next(campaigns),
      key=own_key,
      replicates=500,
    )
    held.append(gain.low <= truth <= gain.high)
  return float(np.mean(held))


def main(argv: Sequence[str] | None = None) -> None:
  with one_line_errors():
    flags = parse_flags(Flags, argv, prog="python -m experiments.benchmarks.coverage")
    if not (flags.laws and flags.runs):
      raise UserError("--laws or --runs without a value: give some")
    check_counts(flags)
    check_at_least("--population", flags.population, 2)
    for runs in flags.runs:
      check_at_least("runs", runs, 4)
    rng = np.random.default_rng(0)
    real = None
    if REAL in flags.laws:
      recipe = vs.recipe("digits_cnn", epochs=1)
      real = vs.error_matrix(
        vs.train(recipe, vs.Runs.independent(flags.population), flags.out)
      )
    cells = list(itertools.product(flags.laws, flags.runs))
    shares = {}
    for law, runs in track(cells, "simulating", console=Console(stderr=True)):
      if law == REAL:
        truth, campaigns = resampled_campaigns(real, runs, rng)
      else:
        truth, campaigns = simulated_campaigns(law, runs, rng)
      shares[law, runs] = coverage_by_interval(truth, campaigns, flags.campaigns, rng)
  names = ", ".join(map(str, flags.runs))
  title = f"Per cent of {flags.campaigns} campaigns of {names} runs"
  rows = []
  for name in shares[cells[0]]:
    row = [name]
    for law in flags.laws:
      per_cent = [f"{100 * shares[law, runs][name]:.0f}" for runs in flags.runs]
      row.append(" ".join(per_cent))
    rows.append(row)
  print(markdown(Table(title, ("95 % interval", *flags.laws), rows)))


if __name__ == "__main__":
  main()
