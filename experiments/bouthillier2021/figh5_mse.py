"""Bouthillier et al. 2021, figure H.5: the mean squared error of the estimators, and
what it consists of.

Numbers are in units of the variance of one measure of the ideal estimator, whose mean
over all searches stands for the truth.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import searched_tasks
from experiments.bouthillier2021.measures import Ratio
from experiments.estimates import Estimate
from experiments.frame import Row, Trained, format_number, row
from experiments.measures.estimators import mse_decomposition
from vmapseeds.reports import plots

TITLE = (
  "Figure H.5: bias, variance, correlation and mean squared error of the estimators"
)
PANELS = 4
PARTS = {
  "bias": "bias",
  "variance": "variance",
  "correlation": "ρ",
  "mse": "mean squared error",
}


class Part(NamedTuple):
  """A number with its standard error, by the jackknife over repetitions."""

  value: float
  se: float


class Errors(NamedTuple):
  """The errors of a task's estimators, by their names."""

  k: int
  searches: int
  repetitions: int
  of: dict[str, dict[str, Part]]
  init_over_all: Ratio  # mean squared errors


def compute(trained: Trained) -> dict[str, Errors]:
  return {
    name: estimator_errors(*measures.by_estimator(trained, name))
    for name in searched_tasks(trained.scale)
  }


def estimator_errors(
  ideal: Float[np.ndarray, " searches"],
  biased: Mapping[str, Float[np.ndarray, "repetitions k"]],
) -> Errors:
  """Return the errors of the estimators: of one measure and of k by equation 6, else
  over repetitions.
  """
  truth = ideal.mean()
  scale = ideal.std(ddof=1)
  k = biased["all"].shape[1]
  parts = {"ideal, k = 1": ideal_parts(1), "ideal": ideal_parts(k)}
  squares = {}
  for randomised, accuracies in biased.items():
    # In standard deviations of one ideal measure, from the truth.
    x = (accuracies - truth) / scale
    squares[randomised] = x.mean(axis=1) ** 2
    decomposition = mse_decomposition(x, 0.0)
    parts[randomised] = {}
    for part in PARTS:
      value = float(getattr(decomposition, part))
      parts[randomised][part] = Part(value, jackknifed(x, part))
  ratio = measures.mean_variance_ratio(squares["init"], squares["all"])
  return Errors(k, len(ideal), len(biased["all"]), parts, ratio)


def ideal_parts(k: int) -> dict[str, Part]:
  """Return what equation 6 says of the ideal estimator."""
  # Independent measures have no bias, and no correlation.
  values = {"bias": 0.0, "variance": 1 / k, "correlation": 0.0, "mse": 1 / k}
  return {part: Part(value, 0.0) for part, value in values.items()}


def jackknifed(x: Float[np.ndarray, "repetitions k"], part: str) -> float:
  def part_of(others: np.ndarray) -> float:
    return float(getattr(mse_decomposition(others, 0.0), part))

  return measures.jackknife(part_of, x)


def rows(numbers: Mapping[str, Errors]) -> list[Row]:
  table = []
  for task, n in numbers.items():
    size = f"{n.repetitions} × {n.k}"
    for name, parts in n.of.items():
      if name.startswith("ideal"):
        continue
      texts = [f"{PARTS[part]} {format_number(*parts[part])}" for part in PARTS]
      quantity = f"{task}: FixHOptEst({name}), k = {n.k}"
      table.append(row(quantity, None, ", ".join(texts), size))
    ratio = Estimate(*n.init_over_all)
    quantity = f"{task}: mean squared error, init over all"
    table.append(row(quantity, paper.STATED["mse"], ratio, size))
  return table


def plot(numbers: Mapping[str, Errors], axes: np.ndarray) -> None:
  for ax, (part, label) in zip(axes, PARTS.items(), strict=True):
    height = 0.8 / len(numbers)
    for i, (task, n) in enumerate(numbers.items()):
      names = [*n.of][::-1]
      value, se = np.array([n.of[name][part] for name in names]).T
      ax.barh(
        np.arange(len(names)) + height * ((len(numbers) - 1) / 2 - i),
        value,
        0.9 * height,
        xerr=se,
        color=(plots.SKY, plots.ORANGE, plots.GREEN)[i],
        ecolor=plots.INK,
        label=task,
      )
      ax.set_yticks(range(len(names)), names)
    ax.axvline(0, color=plots.INK, linewidth=0.8)
    units = {"bias": "σ", "variance": "σ²", "mse": "σ²"}  # a correlation has none
    if part in units:
      label += f" ({units[part]} of one ideal measure)"
    ax.set(xlabel=label)
  axes[0].legend()
