"""Accuracies of runs, in pairs of A and B or in repetitions of A, and what repetitions
that share seeds are worth.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from experiments import claims
from experiments.bouthillier2021.campaigns import SCALES
from experiments.claims import Estimate
from experiments.frame import Trained
from experiments.measures.estimators import average_correlation, equivalent_ideal_size

HELD = {
  "init": "all but initialisation",
  "data": "all but the data",
}  # what one repetition holds fixed, by what varies


class Tested(NamedTuple):
  """Runs of a campaign, each on the examples of the pool that its bootstrap left out."""

  accuracies: Float[np.ndarray, " runs"]
  diverged: Bool[np.ndarray, " runs"]
  examples: int  # that a run is tested on: the mean over runs


def tested(trained: Trained, name: str) -> Tested:
  """The runs of a campaign, each tested on the examples that its training set lacks."""
  results, campaign = trained(name), trained.campaigns[name]
  right = results.predictions.values == results.labels.values
  left_out = np.ones(right.shape, bool)
  np.put_along_axis(
    left_out, campaign.runs.training_examples(right.shape[1]), False, axis=1
  )
  examples = left_out.sum(axis=1)
  return Tested(
    (right & left_out).sum(axis=1) / examples,
    results.diverged.values,
    round(examples.mean()),
  )


def pairs(
  trained: Trained,
) -> tuple[Float[np.ndarray, " runs"], Float[np.ndarray, " runs"], int]:
  """Accuracies of A and of B in pairs of which no run diverged, and on how many test
  examples they are.
  """
  a, b = (tested(trained, name) for name in "AB")
  kept = ~(a.diverged | b.diverged)
  return a.accuracies[kept], b.accuracies[kept], a.examples


def repetitions(
  trained: Trained, varied: str
) -> Float[np.ndarray, "repetitions measures"]:
  """Accuracies of A where only `varied` varies within a repetition. Repetitions with a
  diverged run are left out.
  """
  number, of = SCALES[trained.scale].repetitions, tested(trained, f"A_{varied}")
  accuracies, diverged = (x.reshape(-1, number).T for x in (of.accuracies, of.diverged))
  return accuracies[~diverged.any(axis=1)]


def jackknife(
  statistic: Callable[..., float], *of: Float[np.ndarray, "repetitions _"]
) -> float:
  """Standard error of a statistic of some arrays, by the jackknife: one repetition at a
  time is left out of all.
  """
  repetitions = min(map(len, of))
  without_each = [
    statistic(*(np.delete(x, r, axis=0) for x in of)) for r in range(repetitions)
  ]
  return math.sqrt((repetitions - 1) * np.var(without_each))


class Biased(NamedTuple):
  """Repetitions of k measures of A in which one source varies and all others are drawn
  once a repetition.
  """

  repetitions: int
  measures: int
  correlation: float
  correlation_se: float  # jackknife over repetitions
  # Independent measures that infinitely many of these are worth, 1/ρ; infinite where ρ
  # is not above 0
  worth: float
  sd_of_means: Float[np.ndarray, " k"]  # over repetitions, of the first 1 to k measures

  @property
  def estimate(self) -> Estimate:
    """ρ with its interval, on the scale of the logarithm of F, the ratio of the mean
    squares between and within repetitions.
    """
    k, rho, freedom = self.measures, self.correlation, self.repetitions - 1
    ratio = (1 + (k - 1) * rho) / (1 - rho)
    if not (ratio > 0 and math.isfinite(self.correlation_se)):
      return Estimate(math.nan, -1, 1)
    of_ratio = claims.positive(ratio, k * self.correlation_se / (1 - rho) ** 2, freedom)
    low, high = ((x - 1) / (x + k - 1) for x in of_ratio[1:3])
    return Estimate(float(rho), low, high, freedom=freedom)

  @property
  def of(self) -> str:
    return f"{self.repetitions} × {self.measures}"

  @property
  def simulated(self) -> float:
    """ρ, clipped to what a simulation can use."""
    return np.clip(self.correlation, 0, 0.99)


def biased(accuracies: Float[np.ndarray, "repetitions k"]) -> Biased:
  """The correlation within repetitions, and how few independent measures it leaves."""
  repetitions, measures = accuracies.shape
  rho = average_correlation(accuracies)
  worth = equivalent_ideal_size(np.inf, rho) if rho > 0 else math.inf
  means = np.cumsum(accuracies, axis=1) / np.arange(1, measures + 1)
  se = jackknife(average_correlation, accuracies)
  return Biased(repetitions, measures, rho, se, worth, means.std(axis=0, ddof=1))


class Ratio(NamedTuple):
  """The ratio of two variances within repetitions, with its interval of 95 %."""

  value: float
  low: float
  high: float


def ratio(
  a: Float[np.ndarray, "repetitions _"], b: Float[np.ndarray, "repetitions _"]
) -> Ratio:
  """Variance within repetitions of `a` over that of `b`. Interval: its logarithm ± t
  SE, jackknife over repetitions.

  The interval covers other seeds that repetitions may hold, on the same pool. The
  jackknife leaves repetition r out of `a` and `b` together. NaN if fewer than two
  repetitions of either vary.
  """
  variances = [x.var(axis=1, ddof=1) for x in (a, b)]
  if min(map(np.count_nonzero, variances)) < 2:
    return Ratio(*(math.nan,) * 3)
  of, to = (v.mean() for v in variances)
  se = jackknife(lambda u, v: math.log(u.mean() / v.mean()), *variances)
  reach = math.exp(scipy.stats.t.ppf(0.975, min(map(len, variances)) - 1) * se)
  return Ratio(of / to, of / to / reach, of / to * reach)
