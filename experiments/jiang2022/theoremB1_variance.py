"""Jiang 2022, corollary B.1.1: the variance of disagreement over pairs is bounded by
that of the error over runs.

    Var(Dis(h, h')) <= 2κ² Var(err) + 4κ² ETE² - EDR²,    κ = max Dis(h, h') / (err(h) + err(h'))

Under GDE, where ETE = EDR, this is the paper's bound. κ is 1 if some two runs never err
on the same example, and 1/2 if each pair disagrees as often as its runs err.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from experiments import measures
from experiments.estimates import positive_estimate, student_estimate
from experiments.frame import Row, Trained, rows_of
from experiments.jiang2022 import groups, paper
from experiments.jiang2022.groups import Group
from vmapseeds import stats

TITLE = "Corollary B.1.1: the variance of disagreement, and its bound"


class Variances(NamedTuple):
  runs: int
  disagreement_sd: float  # over pairs
  error_sd: float  # over runs
  kappa: float
  bound_sd: float
  ratio_se: (
    float  # of the sd of disagreement over that of errors, by the jackknife over runs
  )


def compute(trained: Trained) -> dict[str, Variances]:
  return {
    name: variances_of_group(group)
    for name, group in groups.read_groups(trained, "cifar10").items()
  }


def variances_of_group(group: Group) -> Variances:
  variance = measures.disagreement_variance(*group)
  matrix = stats.disagreement_matrix(group.predictions)
  errors = stats.error_rates(group.predictions != group.labels)
  every = np.arange(len(errors))
  left_out = np.array([sd_ratio(matrix, errors, np.delete(every, i)) for i in every])
  se = np.sqrt((len(every) - 1) * left_out.var())
  return Variances(
    len(every),
    np.sqrt(variance.variance),
    errors.std(ddof=1),
    variance.kappa,
    np.sqrt(variance.bound),
    se,
  )


def sd_ratio(matrix: np.ndarray, errors: np.ndarray, runs: np.ndarray) -> float:
  """The sd of disagreement over pairs of some runs, over the sd of their errors."""
  of_pairs = matrix[np.ix_(runs, runs)][np.triu_indices(len(runs), 1)]
  sd = errors[runs].std(ddof=1)
  return of_pairs.std() / sd if sd else math.nan


def rows(numbers: Mapping[str, Variances]) -> list[Row]:
  lines = []
  for group, n in numbers.items():
    sd = n.disagreement_sd
    of_errors = n.error_sd
    bound_ratio = n.bound_sd / sd if sd else math.inf
    ratio = sd / of_errors if of_errors else math.nan
    lines += rows_of(
      n.runs,
      (
        f"sd of disagreement, and its bound, {group}",
        paper.STATED["corollary"],
        f"{100 * sd:.3g} % ≤ {100 * n.bound_sd:.3g} %",
        student_estimate(bound_ratio, 0),
      ),
      (f"κ, {group}", ("between 1/2 and 1", "appendix B.2"), f"{n.kappa:.3f}"),
      (
        f"sd of disagreement over sd of error, {group}",
        paper.STATED["variances"],
        positive_estimate(ratio, n.ratio_se),
      ),
    )
  return lines


def plot(numbers: Mapping[str, Variances], axes: np.ndarray) -> None:
  (ax,) = axes
  labels = {
    "error_sd": "test error, over runs",
    "disagreement_sd": "disagreement, over pairs",
    "bound_sd": "bound",
  }
  groups.plot_fields(numbers, ax, labels, "os_", 100, markersize=8)
  ax.set_yscale("log")
  ax.set_ylabel("standard deviation (%)")
  ax.margins(y=0.3)
  ax.legend()
