"""Simulated campaigns of each claim that a page judges, for `experiments.calibration`.

Runs vote by a law of each example, a Dirichlet one; labels are drawn from the same law,
so that votes are calibrated, or from that of a class next to it.
"""

import functools
import math

import jax
import numpy as np
from jaxtyping import Float, Int

from experiments import claims, measures
from experiments.calibration import Simulated
from experiments.claims import Estimate
from experiments.jiang2022 import (
  fig06_calibration,
  fig11_errors,
  scatter,
  table1_ensembles_cifar10,
)
from experiments.jiang2022.groups import Group
from experiments.jiang2022.scatter import Points
from vmapseeds import stats

RUNS, EXAMPLES, CLASSES = 100, 1000, 10


@functools.cache
def votes_law(examples: int = EXAMPLES) -> Float[np.ndarray, "classes examples"]:
  """Each example's probabilities of the classes: of all campaigns."""
  return np.random.default_rng(1).dirichlet(np.full(CLASSES, 0.15), examples).T


def classes_of(
  rng: np.random.Generator,
  law: np.ndarray,
  runs: int,
) -> Int[np.ndarray, "runs examples"]:
  """Draw a class for each example and run."""
  u = rng.random((runs, law.shape[1]), np.float32)
  # A class is the number of bounds below u; the last bound is 1.
  bounds = law.cumsum(0)[:-1]
  return sum((u > bound).astype(np.int8) for bound in bounds)


def group(
  rng: np.random.Generator,
  runs: int = RUNS,
  moved: float = 0.0,
  effect: float = 0.0,
) -> Group:
  """Runs of one test set, with labels drawn anew.

  Args:
    rng: of the draws.
    runs: how many.
    moved: the share of labels that are drawn at random, so that runs are too certain.
    effect: the sd over runs of the share of an example's votes that a run draws at
      random.
  """
  law = votes_law()
  calibrated = classes_of(rng, law, 1)[0]
  random = rng.integers(0, CLASSES, EXAMPLES)
  is_moved = rng.random(EXAMPLES) < moved
  labels = np.where(is_moved, random, calibrated)

  predictions = classes_of(rng, law, runs)
  if effect:
    share = abs(effect * rng.standard_normal((runs, 1)))
    anew = rng.integers(0, CLASSES, predictions.shape)
    is_anew = rng.random(predictions.shape) < share
    predictions = np.where(is_anew, anew, predictions)
  return Group(predictions, labels, CLASSES)


def points(
  rng: np.random.Generator,
  r: float = 0.99,
  ratio: float = 1.0,
  configurations: int = 96,
  pairs: int = 1,
) -> Points:
  """Error and disagreement of configurations, normal with correlation r; pairs share
  what their configuration has.
  """
  of_configuration = rng.normal(size=(configurations, 1))
  # What both share has variance 1, so that their correlation is r.
  own = math.sqrt(1 / r - 1) * rng.normal(size=(2, configurations, pairs))
  error, disagreement = 0.3 + 0.03 * (of_configuration + own)
  is_augmented = np.zeros(configurations, bool)
  return Points(ratio * error, disagreement, is_augmented)


def simulate_scatter(
  rng: np.random.Generator, which: str, scale: str, **settings: float
) -> Estimate:
  """One number of `scatter.agreement`, with its bootstrap over configurations."""

  def statistic(error: np.ndarray, disagreement: np.ndarray) -> float:
    y = error.ravel()
    x = disagreement.ravel()
    if which == "ratio":
      return y.sum() / x.sum()
    if which == "deviation":
      return measures.relative_deviation(y, x).mean()
    return getattr(measures, which)(y, x)

  p = points(rng, **settings)
  estimate = scatter.over_configurations(statistic, p.error, p.disagreement)
  return estimate.on(scale, len(p.error))


def simulate_gap(rng: np.random.Generator) -> Estimate:
  n = fig06_calibration.calibration_of_group(group(rng, moved=0.05))
  return fig06_calibration.rows({"AllDiff": n})[0].estimate


def simulate_beta(rng: np.random.Generator) -> Estimate:
  rates = rng.beta(0.4, 0.9, EXAMPLES)
  wrong_runs = rng.binomial(RUNS, rates)
  counts = np.bincount(wrong_runs, minlength=RUNS + 1)
  _, distance = fig11_errors.fit_beta(counts)
  # The bootstrap over examples, as in the figure.
  distances = []
  for resample in rng.multinomial(EXAMPLES, counts / EXAMPLES, 50):
    _, distance_again = fig11_errors.fit_beta(resample)
    distances.append(distance_again)
  se = np.std(distances, ddof=1)
  return claims.student_estimate(distance, se)


def simulate_confidences(rng: np.random.Generator, last: float) -> Estimate:
  """Shares of an example's ten pairs in the middle and the last fifth."""
  examples = 10_000
  middle = rng.binomial(10, 0.03, examples) / 10
  above = rng.binomial(10, last, examples) / 10
  # The sum of both errors allows for any correlation of the two shares.
  root = math.sqrt(examples)
  se = middle.std(ddof=1) / root + above.std(ddof=1) / root
  return claims.student_estimate(above.mean() - middle.mean(), se)


def few_runs(rng: np.random.Generator, moved: float) -> Estimate:
  """The excess of table 1, of 50 ensembles of two runs."""
  predictions, labels, _ = group(rng, moved=moved)
  law = stats.finite_ensemble_calibration(
    stats.vote_fractions(predictions, CLASSES),
    2,
    key=jax.random.key(0),
    replicates=table1_ensembles_cifar10.SIMULATIONS,
  )
  ensembles = RUNS // 2
  caces = []
  for i in range(ensembles):
    of_two = predictions[i::ensembles]
    caces.append(stats.cace(of_two, labels, CLASSES))
  se_of_mean = np.std(caces, ddof=1) / math.sqrt(ensembles)
  excess = np.mean(caces) - law.cace
  se = math.hypot(se_of_mean, law.cace_sd)
  return claims.student_estimate(float(excess), float(se))


def simulate_same_data(rng: np.random.Generator) -> Estimate:
  """Values of four groups, those of one training set 2.5 times as large."""
  means = {"AllDiff": 0.04, "DiffData": 0.04, "DiffInit": 0.1, "DiffOrder": 0.1}
  se = 0.003
  values = {name: (rng.normal(mean, se), se) for name, mean in means.items()}
  return table1_ensembles_cifar10.same_data_over_different(values)


def simulated_ratio(ratio: float) -> Simulated:
  draw = functools.partial(simulate_scatter, which="ratio", scale="log", ratio=ratio)
  return Simulated(draw, f"96 configurations, ratio {ratio}")


def simulated_ensemble(ratio: float) -> Simulated:
  """The ratio of 100 runs, with a standard error of 0.006."""
  se = 0.006

  def draw(rng: np.random.Generator) -> Estimate:
    return claims.positive_estimate(rng.normal(ratio, se), se)

  return Simulated(draw, f"100 runs, ratio {ratio} ± {se}")


SIMULATED = {
  "connected AllDiff": simulated_ratio(0.95),
  "connected DiffData": simulated_ratio(0.95),
  "connected DiffInit": simulated_ratio(1.15),
  "connected DiffOrder": simulated_ratio(1.15),
  "connected SameData": simulated_ratio(1.15),
  "ratio AllDiff": simulated_ensemble(0.95),
  "ratio DiffData": simulated_ensemble(0.95),
  "ratio DiffInit": simulated_ensemble(1.15),
  "ratio DiffOrder": simulated_ensemble(1.15),
  "calibrated": Simulated(
    simulate_gap, f"{RUNS} runs, 1,000 examples, a twentieth of labels random"
  ),
  "beta": Simulated(simulate_beta, f"{RUNS} runs, 1,000 examples, a Beta law"),
  "few confidences": Simulated(
    functools.partial(simulate_confidences, last=0.05),
    "10,000 examples, 5 and 3 %",
    functools.partial(simulate_confidences, last=0.03),
    "both 3 %",
  ),
  "few runs": Simulated(
    functools.partial(few_runs, moved=0.2),
    f"{RUNS} runs, 1,000 examples, a fifth of labels random",
    functools.partial(few_runs, moved=0.0),
    "calibrated",
  ),
  "CACE of the same data": Simulated(simulate_same_data, "2.5 with errors of 0.003"),
  "gap of the same data": Simulated(simulate_same_data, "2.5 with errors of 0.003"),
}
