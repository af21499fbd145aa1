"""Accuracies of runs and of searches, in repetitions or in pairs of A and B, and what
repetitions that share seeds are worth.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

from experiments.bouthillier2021.campaigns import (
  EVERYTHING,
  FIXED,
  compared_task,
  score,
  tasks,
)
from experiments.estimates import Estimate
from experiments.frame import Trained
from experiments.measures.estimators import average_correlation, equivalent_ideal_size
from vmapseeds.training.recipe_data import dataset_of


def performances(trained: Trained, name: str) -> Float[np.ndarray, " measures"]:
  """Return what each run of a campaign is measured by, or the best trial of each search:
  test accuracy, or the metric of its recipe; NaN where it diverged.
  """
  campaign = trained.campaigns[name]
  if campaign.search:
    trials = trained.trials(name)
    return trials.of_best(trials.measured)
  results = trained(name)
  measured = results[score(campaign.recipe)].values.astype(float)
  return np.where(results.diverged, np.nan, measured)


def repetitions(
  accuracies: Float[np.ndarray, " measures"],
  number: int,
) -> Float[np.ndarray, "repetitions measures"]:
  """Return measures by their repetitions, without repetitions of which one is NaN."""
  # Runs go through the repetitions in turn; a last round may not be whole.
  whole_rounds = len(accuracies) // number
  by_round = accuracies[: whole_rounds * number].reshape(-1, number)
  by_repetition = by_round.T
  is_whole = ~np.isnan(by_repetition).any(axis=1)
  return by_repetition[is_whole]


def accuracies_by_source(
  trained: Trained,
  name: str,
) -> dict[str, Float[np.ndarray, "repetitions measures"]]:
  """Return a task's accuracies where one source varies within a repetition, or all."""
  task = tasks(trained.scale)[name]
  parts = (*task.sources, EVERYTHING)
  every = performances(trained, f"{name}_sources").reshape(len(parts), -1)
  by_source = {}
  for part, accuracies in zip(parts, every, strict=True):
    by_source[part] = repetitions(accuracies, task.repetitions)
  return by_source


def by_estimator(
  trained: Trained,
  name: str,
) -> tuple[
  Float[np.ndarray, " k"], dict[str, Float[np.ndarray, "repetitions measures"]]
]:
  """Return a task's measures by the ideal estimator, and those by the biased ones, by
  what they randomise.
  """
  ideal = performances(trained, f"{name}_ideal")
  fixed = performances(trained, f"{name}_fixed").reshape(len(FIXED), -1)
  number = tasks(trained.scale)[name].repetitions
  biased = {}
  for randomised, accuracies in zip(FIXED, fixed, strict=True):
    biased[randomised] = repetitions(accuracies, number)
  return ideal[~np.isnan(ideal)], biased


def test_examples(trained: Trained, name: str) -> int:
  """Return on how many examples a run of a task is tested."""
  recipe = tasks(trained.scale)[name].recipe
  data = dataset_of(recipe)
  every = len(data.train) + sum(len(test) for test in data.tests.values())
  # Two thirds are drawn for training; half of the others are for validation.
  held_out = every - 2 * every // 3
  return held_out // 2


def paired_accuracies(
  trained: Trained,
) -> tuple[Float[np.ndarray, " runs"], Float[np.ndarray, " runs"], int]:
  """Return the accuracies of A and of B in pairs of which no run diverged, and on how
  many test examples they are.
  """
  task = compared_task(trained.scale)
  b = performances(trained, f"{task}_B")
  a = performances(trained, f"{task}_sources")[-len(b) :]
  kept = ~np.isnan(a + b)
  return a[kept], b[kept], test_examples(trained, task)


def jackknife(
  statistic: Callable[..., float], *of: Float[np.ndarray, "repetitions _"]
) -> float:
  """Standard error of a statistic of some arrays, by the jackknife: one repetition at a
  time is left out of all.
  """
  repetitions = min(map(len, of))
  without_each = []
  for repetition in range(repetitions):
    others = [np.delete(x, repetition, axis=0) for x in of]
    without_each.append(statistic(*others))
  return math.sqrt((repetitions - 1) * np.var(without_each))


class Biased(NamedTuple):
  """Repetitions of k measures that have their hyperparameters in common, and the seeds
  of all that they do not randomise.
  """

  repetitions: int
  measures: int
  correlation: float
  correlation_se: float  # jackknife over repetitions
  # Independent measures that infinitely many of these are worth, 1/ρ; infinite where ρ
  # is not above 0
  worth: float
  variance: float  # of one measure, over repetitions and measures alike
  sd_of_means: Float[np.ndarray, " k"]  # over repetitions, of the first 1 to k measures

  @property
  def estimate(self) -> Estimate:
    """ρ with its interval: that of F, the ratio of the mean squares between and within
    repetitions, by χ² with as many degrees of freedom as give F's standard error.
    """
    k = self.measures
    rho = self.correlation
    f = (1 + (k - 1) * rho) / (1 - rho)
    if not (f > 0 and 0 < self.correlation_se < math.inf):
      return Estimate(math.nan, -1, 1)
    # By the delta method: the slope of F at ρ is k / (1 - ρ)².
    se_of_f = k * self.correlation_se / (1 - rho) ** 2
    se_of_log = se_of_f / f
    # The logarithm of χ² with n degrees of freedom has a variance of about 2/n.
    freedom = max(1.0, 2 / se_of_log**2)
    f_ends = f * freedom / scipy.stats.chi2.ppf([0.975, 0.025], freedom)
    low, high = (f_ends - 1) / (f_ends + k - 1)
    return Estimate(float(rho), low, high)

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
  worth = math.inf
  if rho > 0:
    worth = equivalent_ideal_size(np.inf, rho)
  # Of the first 1, 2, ..., k measures of each repetition.
  means = np.cumsum(accuracies, axis=1) / np.arange(1, measures + 1)
  se = jackknife(average_correlation, accuracies)
  sd_of_means = means.std(axis=0, ddof=1)
  return Biased(repetitions, measures, rho, se, worth, accuracies.var(), sd_of_means)


class Ratio(NamedTuple):
  """The ratio of two variances within repetitions, with its interval of 95 %."""

  value: float
  low: float
  high: float


def variance_ratio_within(
  a: Float[np.ndarray, "repetitions _"],
  b: Float[np.ndarray, "repetitions _"],
) -> Ratio:
  """Return the variance within repetitions of `a` over that of `b`, as
  `mean_variance_ratio`.
  """
  return mean_variance_ratio(a.var(axis=1, ddof=1), b.var(axis=1, ddof=1))


def mean_variance_ratio(
  a: Float[np.ndarray, " repetitions"],
  b: Float[np.ndarray, " repetitions"],
) -> Ratio:
  """Return the ratio of two mean variances. Interval: its logarithm ± t SE, jackknife
  over repetitions.

  The interval covers other seeds that repetitions may hold, on the same data. The
  jackknife leaves repetition r out of `a` and `b` together. NaN if fewer than two
  repetitions of either vary.
  """
  if min(np.count_nonzero(a), np.count_nonzero(b)) < 2:
    return Ratio(math.nan, math.nan, math.nan)
  ratio = a.mean() / b.mean()
  se_of_log = jackknife(lambda u, v: math.log(u.mean() / v.mean()), a, b)
  freedom = min(len(a), len(b)) - 1
  factor = math.exp(scipy.stats.t.ppf(0.975, freedom) * se_of_log)
  return Ratio(ratio, ratio / factor, ratio * factor)
