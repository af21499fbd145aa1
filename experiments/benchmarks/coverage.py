"""How often the 95 % intervals of `vmapseeds.stats` hold the truth, in simulated campaigns whose truth is known.

    python -m experiments.benchmarks.coverage
    python -m experiments.benchmarks.coverage --runs 10 --campaigns 2000

A run h has example i wrong with probability p_i + s u_h, u_h normal: errors of examples i and j have the covariance s²
over runs, which is the distribution-wise variance, and example i the error rate p_i. Every campaign draws its own runs;
intervals over examples draw their own examples, too. The table in docs/statistics.md is of this module.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import jax
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from tyro.conf import arg

from vmapseeds import stats
from vmapseeds.cli import mistakes, parse
from vmapseeds.errors import at_least

SD = 0.03  # s
# Where the mean of the p_i is taken for that of their law; they are uniform there.
LOW, HIGH = 0.15, 0.55


@dataclasses.dataclass(frozen=True)
class Flags:
  """How many campaigns are simulated, and how large they are."""

  campaigns: Annotated[int, arg(metavar="N")] = 10_000
  """simulated campaigns"""

  runs: Annotated[int, arg(metavar="R")] = 100
  """runs of each"""

  examples: Annotated[int, arg(metavar="n")] = 400
  """test examples of each"""


def simulate(key: jax.Array, campaigns: int, runs: int, examples: int, shown: bool = False) -> dict[str, float]:
  """The fraction of campaigns in which each interval holds the truth, by the statistic's name."""
  rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  p = rng.uniform(LOW, HIGH, examples)
  independent = p * (1 - p)
  even, odd = (independent[i::2].sum() / len(p[i::2]) ** 2 + SD**2 * (1 - 1 / len(p[i::2])) for i in (0, 1))
  truth = {
    "mean_interval": p.mean(),
    "variance_interval": independent.sum() / examples**2 + SD**2 * (1 - 1 / examples),
    "distribution_variance_interval": SD**2,
    "distribution_variance ± 1.96 distribution_variance_se": SD**2,
    "independent_errors_variance ± 1.96 independent_errors_variance_se": independent.sum() / examples**2,
    "correlation_interval": SD**2 / np.sqrt(even * odd),
    "expected_disagreement ± 1.96 expected_disagreement_se": 2 * independent.mean(),
    "proportion_interval, over examples": (LOW + HIGH) / 2,
    "bootstrap of mean_error, over runs": p.mean(),
    "bootstrap of expected_disagreement, over runs": 2 * independent.mean(),
    "bootstrap of mean_error, over examples": (LOW + HIGH) / 2,
    "decide, P(A > B) of pairs": 0.5,
  }
  covered = dict.fromkeys(truth, 0)
  bar = {"description": "simulating", "console": Console(stderr=True), "disable": not shown}
  for campaign_key in track(jax.random.split(key, campaigns), **bar):
    errors = draw(rng, p, runs)
    other = draw(rng, p, runs)
    anew = draw(rng, rng.uniform(LOW, HIGH, examples), runs, spread=0.0)
    for name, (low, high) in intervals(errors, other, anew, campaign_key).items():
      covered[name] += low <= truth[name] <= high
  return {name: count / campaigns for name, count in covered.items()}


def draw(rng: np.random.Generator, p: np.ndarray, runs: int, spread: float = SD) -> np.ndarray:
  return rng.random((runs, len(p)), np.float32) < p + spread * rng.standard_normal((runs, 1))


def intervals(errors: np.ndarray, other: np.ndarray, anew: np.ndarray, key: jax.Array) -> dict[str, tuple]:
  """The 95 % intervals of one campaign, by the names of their truths."""
  runs, zeros = len(errors), np.zeros(errors.shape[1], int)
  rates, predictions = stats.error_rates(errors), errors.astype(np.int8)

  def two_errors(value, se):
    return value - 1.959964 * se, value + 1.959964 * se

  def ends(found):
    return found.low, found.high

  of_runs = stats.bootstrap(predictions, zeros, 2, key, replicates=400)
  of_examples = stats.bootstrap(anew[:2].astype(np.int8), zeros, 2, key, over="examples", replicates=400)
  variance, disagreement = stats.distribution_variance(errors), stats.expected_disagreement(predictions, 2)
  return {
    "mean_interval": stats.mean_interval(rates),
    "variance_interval": stats.variance_interval(stats.test_set_variance(errors), runs),
    "distribution_variance_interval": stats.distribution_variance_interval(errors),
    "distribution_variance ± 1.96 distribution_variance_se": two_errors(
      variance, stats.distribution_variance_se(errors)
    ),
    "independent_errors_variance ± 1.96 independent_errors_variance_se": two_errors(
      stats.independent_errors_variance(errors), stats.independent_errors_variance_se(errors)
    ),
    "correlation_interval": stats.correlation_interval(stats.split_correlation(errors), runs),
    "expected_disagreement ± 1.96 expected_disagreement_se": two_errors(
      disagreement, stats.expected_disagreement_se(predictions, 2)
    ),
    "proportion_interval, over examples": stats.proportion_interval(anew[0].mean(), anew.shape[1]),
    "bootstrap of mean_error, over runs": ends(of_runs["mean_error"]),
    "bootstrap of expected_disagreement, over runs": ends(of_runs["expected_disagreement"]),
    "bootstrap of mean_error, over examples": ends(of_examples["mean_error"]),
    "decide, P(A > B) of pairs": stats.decide(1 - rates, 1 - stats.error_rates(other))[1:3],
  }


def main(argv: Sequence[str] | None = None) -> None:
  with mistakes():
    flags = parse(Flags, argv)
    for name in ("campaigns", "runs", "examples"):
      at_least(name, getattr(flags, name), 2)
    found = simulate(jax.random.key(0), flags.campaigns, flags.runs, flags.examples, shown=True)
    title = f"{flags.campaigns} campaigns of {flags.runs} runs on {flags.examples} examples"
    table = Table("95 % interval", "holds the truth in", title=title, title_justify="left")
    for name, covered in found.items():
      error = np.sqrt(covered * (1 - covered) / flags.campaigns)
      table.add_row(name, f"{100 * covered:.1f} ± {100 * error:.1f} %")
    Console().print(table)


if __name__ == "__main__":
  main()
