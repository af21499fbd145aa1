"""Accuracies of runs, in pairs of A and B or in repetitions of A, and what repetitions that share seeds are worth."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.bouthillier2021.campaigns import SCALES
from experiments.frame import Trained
from vmapseeds import stats

HELD = {"init": "all but initialisation", "data": "all but the training set"}  # within a repetition


def pairs(trained: Trained) -> tuple[Float[np.ndarray, " runs"], Float[np.ndarray, " runs"], int]:
  """Accuracies of A and of B, of pairs that diverged in neither, and how many test examples they are of."""
  a, b = (trained(name) for name in ("A", "B"))
  kept = ~(a.diverged.values | b.diverged.values)
  return a.accuracy.values[kept], b.accuracy.values[kept], a.sizes["example"]


def repetitions(trained: Trained, varied: str) -> Float[np.ndarray, "repetitions measures"]:
  """Accuracies of A where `varied` alone varies within a repetition, of those in which none diverged."""
  results, number = trained(f"A_{varied}"), SCALES[trained.scale].repetitions
  accuracies, diverged = (x.values.reshape(-1, number).T for x in (results.accuracy, results.diverged))
  return accuracies[~diverged.any(axis=1)]


class Biased(NamedTuple):
  """Repetitions of k measures of A in which one source varies and all others are drawn once a repetition."""

  repetitions: int
  measures: int
  correlation: float
  correlation_se: float  # jackknife over repetitions
  worth: float  # independent measures that endlessly many of these are worth, 1/ρ; infinite where ρ is not above 0
  variance: float  # of one measure within its repetition
  sd_of_means: Float[np.ndarray, " k"]  # over repetitions, of the first 1 to k measures

  @property
  def of(self) -> str:
    return f"{self.repetitions} × {self.measures}"

  @property
  def simulated(self) -> float:
    """ρ as a simulation can have it."""
    return float(np.clip(self.correlation, 0, 0.99))


def biased(accuracies: Float[np.ndarray, "repetitions k"]) -> Biased:
  """The correlation within repetitions, and what it costs."""
  repetitions, measures = accuracies.shape
  rho = float(stats.average_correlation(accuracies))
  left_out = [stats.average_correlation(np.delete(accuracies, r, axis=0)) for r in range(repetitions)]
  se = math.sqrt((repetitions - 1) * np.var(left_out))
  worth = float(stats.equivalent_ideal_size(np.inf, rho)) if rho > 0 else math.inf
  means = np.cumsum(accuracies, axis=1) / np.arange(1, measures + 1)
  within = float(accuracies.var(axis=1, ddof=1).mean())
  return Biased(repetitions, measures, rho, se, worth, within, means.std(axis=0, ddof=1))
