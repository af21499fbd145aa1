"""Simulated campaigns of each claim, for `experiments.calibration`.

Runs vote by a law of each example, a Dirichlet one; labels are drawn from the same law,
so that votes are calibrated, or from that of a class next to it.
"""

import functools
import math

import numpy as np
from jaxtyping import Float, Int

from experiments import claims, measures
from experiments.calibration import Draw, Simulated
from experiments.claims import Estimate
from experiments.jiang2022 import (
  fig05_shift,
  fig06_calibration,
  fig09_shift_calibration,
  fig11_errors,
  fig14_classes,
  fig15_pairs,
  scatter,
  table1_ensembles,
  theorem4_calibration,
  theoremB1_variance,
)
from experiments.jiang2022.groups import Group
from experiments.jiang2022.scatter import Points
from experiments.jiang2022.shift import Transfer
from vmapseeds import stats

RUNS, EXAMPLES, CLASSES = 48, 1000, 10


@functools.cache
def votes_law(examples: int = EXAMPLES) -> Float[np.ndarray, "classes examples"]:
  """Each example's probabilities of the classes: of all campaigns."""
  return np.random.default_rng(1).dirichlet(np.full(CLASSES, 0.15), examples).T


def classes_of(
  rng: np.random.Generator, law: np.ndarray, runs: int
) -> Int[np.ndarray, "runs examples"]:
  """Draw a class for each example and run."""
  u = rng.random((runs, law.shape[1]), np.float32)
  return sum((u > below).astype(np.int8) for below in law.cumsum(0)[:-1])


def group(
  rng: np.random.Generator, runs: int = RUNS, moved: float = 0.0, effect: float = 0.0
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
  labels = classes_of(rng, law, 1)[0]
  random = rng.integers(0, CLASSES, EXAMPLES)
  labels = np.where(rng.random(EXAMPLES) < moved, random, labels)
  predictions = classes_of(rng, law, runs)
  if effect:
    share = abs(effect * rng.standard_normal((runs, 1)))
    anew = rng.integers(0, CLASSES, predictions.shape)
    predictions = np.where(rng.random(predictions.shape) < share, anew, predictions)
  return Group(predictions, labels, CLASSES)


def points(
  rng: np.random.Generator,
  r: float = 0.99,
  ratio: float = 1.0,
  configurations: int = 16,
  pairs: int = 1,
) -> Points:
  """Error and disagreement of configurations, normal with correlation r; pairs share
  what their configuration has.
  """
  between, noise = (
    rng.normal(size=size) for size in ((configurations, 1), (2, configurations, pairs))
  )
  of_noise = math.sqrt(1 / r - 1)
  error, disagreement = (0.3 + 0.03 * (between + of_noise * z) for z in noise)
  return Points(ratio * error, disagreement, np.zeros(configurations, bool))


def of_scatter(
  rng: np.random.Generator, which: str, scale: str, **of: float
) -> Estimate:
  """One number of `scatter.agreement`, with its bootstrap over configurations."""

  def statistic(error: np.ndarray, disagreement: np.ndarray) -> float:
    y, x = error.ravel(), disagreement.ravel()
    if which == "ratio":
      return y.sum() / x.sum()
    if which == "deviation":
      return measures.relative_deviation(y, x).mean()
    return getattr(measures, which)(y, x)

  p = points(rng, **of)
  found = scatter.over_configurations(statistic, p.error, p.disagreement)
  return found.on(scale, len(p.error))


def deviates(rng: np.random.Generator, of_many: float) -> Estimate:
  of = ({"ratio": of_many, "configurations": 4}, {"ratio": 1.05, "configurations": 8})
  return claims.less(*(of_scatter(rng, "deviation", "", **each) for each in of))


def transferred(rng: np.random.Generator, own: bool, ratio: float) -> Estimate:
  """The estimate of figure 5 from five pairs."""
  errors = rng.normal(0.1, 0.01, 10)
  disagreement = errors[0::2] * ratio + rng.normal(0, 0.005, 5)
  unknown = (math.nan,) * 5
  of = Transfer(10, errors, disagreement, *unknown)
  numbers = {"a": {"a" if own else "b": of}}
  return fig05_shift.rows(numbers)[0].estimate


def calibrated(rng: np.random.Generator) -> Estimate:
  n = fig06_calibration.calibration(group(rng, moved=0.1))
  return fig06_calibration.rows({"AllDiff": n})[0].estimate


def gap_and_cace(rng: np.random.Generator) -> Estimate:
  gap, noise = rng.normal(size=(2, 16))
  cace = math.sqrt(0.66) * gap + math.sqrt(0.34) * noise
  return Estimate(*fig09_shift_calibration.correlated(cace, gap), "atanh")


def below_cace(rng: np.random.Generator) -> Estimate:
  g = group(rng, runs=10, moved=0.3)
  return claims.estimated(float(stats.cace(*g) - stats.gde_gap(*g)), 0)


def beta(rng: np.random.Generator) -> Estimate:
  rates = rng.beta(0.4, 0.9, EXAMPLES)
  counts = np.bincount(rng.binomial(RUNS, rates), minlength=RUNS + 1)
  _, distance = fig11_errors.beta(counts)
  again = rng.multinomial(EXAMPLES, counts / EXAMPLES, 50)
  se = np.std([fig11_errors.beta(c)[1] for c in again], ddof=1)
  return claims.estimated(distance, se)


def some_examples(rng: np.random.Generator) -> Estimate:
  n = fig11_errors.error_rates(group(rng))
  return Estimate(*n.more)


def confidences(rng: np.random.Generator, last: float) -> Estimate:
  """Shares of an example's ten pairs in the middle and the last fifth."""
  middle, above = (rng.binomial(10, p, 10_000) / 10 for p in (0.03, last))
  ses = (x.std(ddof=1) / 100 for x in (middle, above))
  return claims.estimated(above.mean() - middle.mean(), sum(ses))


def classes(rng: np.random.Generator, apart: bool) -> Estimate:
  """One calibrated law; or runs that vote for class 0 where the label is class 1 half of
  the time.
  """
  g = group(rng)
  if apart:
    wrong = (g.labels == 0) & (rng.random(EXAMPLES) < 0.5)
    g = g._replace(labels=np.where(wrong, 1, g.labels))
  rows = fig14_classes.rows({"": fig14_classes.classes(g, "")})
  return rows[-1].estimate


def means_of_pairs(rng: np.random.Generator) -> Estimate:
  p = points(rng, r=0.9, configurations=8, pairs=4)
  of = scatter.over_configurations(fig15_pairs.share_left, p.error, p.disagreement)
  return of.on("log", len(p.error))


def few_runs(rng: np.random.Generator, moved: float) -> Estimate:
  """The excess of table 1, of 24 ensembles of two runs."""
  predictions, labels, _ = group(rng, moved=moved)
  law = stats.finite_ensemble_calibration(
    stats.vote_fractions(predictions, CLASSES),
    2,
    key=table1_ensembles.jax.random.key(0),
    replicates=table1_ensembles.SIMULATIONS,
  )
  caces = [stats.cace(predictions[i::24], labels, CLASSES) for i in range(24)]
  se = math.hypot(np.std(caces, ddof=1) / math.sqrt(24), law.cace_sd)
  return claims.estimated(float(np.mean(caces) - law.cace), float(se))


def of_groups(rng: np.random.Generator) -> Estimate:
  """Values of four groups, those of one training set 2.5 times as large."""
  means = {"AllDiff": 0.04, "DiffData": 0.04, "DiffInit": 0.1, "DiffOrder": 0.1}
  found = {name: (rng.normal(mean, 0.003), 0.003) for name, mean in means.items()}
  return table1_ensembles.same_data_over_different(found)


def further(rng: np.random.Generator, by: float) -> Estimate:
  other, own = rng.normal(by, 0.007), rng.normal(0, 0.002)
  return claims.less(claims.estimated(other, 0.007), claims.estimated(own, 0.002))


def theorem(rng: np.random.Generator, row: int) -> Estimate:
  n = theorem4_calibration.bounds(group(rng, moved=0.2), draws=20)
  rows = theorem4_calibration.rows({"AllDiff": n})
  return rows[row].estimate


def corollary(rng: np.random.Generator, row: int) -> Estimate:
  n = theoremB1_variance.variances(group(rng, effect=0.05))
  return theoremB1_variance.rows({"AllDiff": n})[row].estimate


def of_ratio(ratio: float) -> Simulated:
  draw = functools.partial(of_scatter, which="ratio", scale="log", ratio=ratio)
  return Simulated(draw, f"16 configurations, ratio {ratio}")


def printed(name: str) -> Simulated:
  r, scale = math.sqrt(0.923) if name == "r_squared" else 0.97, "atanh"
  draw = functools.partial(of_scatter, which=name, scale=scale, r=r, pairs=2)
  return Simulated(draw, "16 configurations of 2 pairs, as printed")


def exceeds(name: str, r: float, null: float) -> Simulated:
  def draw(r: float) -> Draw:
    return functools.partial(of_scatter, which=name, scale="atanh", r=r)

  return Simulated(draw(r), f"16 configurations, r = {r}", draw(null), "0.85")


SAME = "the same: it is always true"
# Where τ of a normal law is 0.85, and R².
AT_TAU, AT_R_SQUARED = math.sin(0.85 * math.pi / 2), math.sqrt(0.85)
SIMULATED = {
  "ratio DiffInit": of_ratio(1.15),
  "high ratio DiffInit": of_ratio(1.0),
  "r_squared": exceeds("r_squared", 0.99, AT_R_SQUARED),
  "kendall_tau": exceeds("kendall_tau", 0.995, AT_TAU),
  "r_squared DiffInit without augmentation": printed("r_squared"),
  "kendall_tau DiffInit without augmentation": printed("kendall_tau"),
  "own domain": Simulated(
    functools.partial(transferred, own=True, ratio=1.0), "5 pairs, as often"
  ),
  "other domain": Simulated(
    functools.partial(transferred, own=False, ratio=0.6),
    "5 pairs, 0.6 times as often",
    functools.partial(transferred, own=False, ratio=1.0),
    "as often",
  ),
  "calibrated": Simulated(
    calibrated, "48 runs, 1,000 examples, a tenth of labels random"
  ),
  "gap below CACE": Simulated(below_cace, "10 runs, 1,000 examples", below_cace, SAME),
  "gap and CACE": Simulated(gap_and_cace, "16 transfers, R² 0.66"),
  "deviates": Simulated(
    functools.partial(deviates, of_many=1.2),
    "4 and 8 configurations, 20 %",
    functools.partial(deviates, of_many=1.05),
    "both 5 %",
  ),
  "does not deviate": of_ratio(1.05),
  "beta": Simulated(beta, "48 runs, 1,000 examples, a Beta law"),
  "some examples": Simulated(some_examples, "48 runs, calibrated", some_examples, SAME),
  "few confidences": Simulated(
    functools.partial(confidences, last=0.05),
    "10,000 examples, 5 and 3 %",
    functools.partial(confidences, last=0.03),
    "both 3 %",
  ),
  "classes": Simulated(
    functools.partial(classes, apart=True),
    "48 runs, 1,000 examples, one class off",
    functools.partial(classes, apart=False),
    "calibrated in each class",
  ),
  "pairs": Simulated(means_of_pairs, "8 configurations, independent pairs: 0.5"),
  "few runs": Simulated(
    functools.partial(few_runs, moved=0.2),
    "48 runs, 1,000 examples, a fifth of labels random",
    functools.partial(few_runs, moved=0.0),
    "calibrated",
  ),
  "CACE of the same data": Simulated(of_groups, "2.5 with the gallery's errors"),
  "gap of the same data": Simulated(of_groups, "2.5 with the gallery's errors"),
  "shift": Simulated(
    functools.partial(further, by=0.14),
    "14 % with the gallery's errors",
    functools.partial(further, by=0.0),
    "as large",
  ),
  "gap if calibrated": Simulated(
    functools.partial(theorem, row=0),
    "48 runs",
    functools.partial(theorem, row=0),
    SAME,
  ),
  "theorem 4.2": Simulated(
    functools.partial(theorem, row=1),
    "48 runs",
    functools.partial(theorem, row=1),
    SAME,
  ),
  "corollary": Simulated(
    functools.partial(corollary, row=0),
    "48 runs",
    functools.partial(corollary, row=0),
    SAME,
  ),
  "variances": Simulated(
    functools.partial(corollary, row=2), "48 runs, sd 5 % of votes"
  ),
}
