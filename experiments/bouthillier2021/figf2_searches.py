"""Bouthillier et al. 2021, figure F.2: the best objective so far over the trials of
searches in which only what the sampler draws varies.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import searched_tasks
from experiments.bouthillier2021.fig01_sources import NAMES
from experiments.estimates import Estimate
from experiments.frame import Row, Trained, format_percent, rows_of
from experiments.searches import SAMPLERS, Trials
from vmapseeds.reports import plots

TITLE = "Figure F.2: searches of hyperparameters, best so far over trials"
COLORS = dict(zip(SAMPLERS, (plots.BLUE, plots.ORANGE, plots.GREEN), strict=True))
SETS = ("validation", "test")


class Curves(NamedTuple):
  """Errors of the best trial so far, by its validation examples; mean and standard
  deviation over searches of the same seeds.
  """

  searches: str  # repetitions × searches
  mean: dict[str, Float[np.ndarray, " trials"]]  # by set
  sd: dict[str, Float[np.ndarray, " trials"]]
  quarter: measures.Ratio  # test variance after a quarter of the trials over the last


def panels(numbers: Mapping[str, dict[str, Curves]]) -> int:
  return len(SETS) * len(numbers)


def compute(trained: Trained) -> dict[str, dict[str, Curves]]:
  numbers: dict[str, dict[str, Curves]] = {}
  for name, task in searched_tasks(trained.scale).items():
    numbers[name] = {}
    for sampler in SAMPLERS:
      trials = trained.trials(f"{name}_{sampler}")
      numbers[name][sampler] = curves(trials, task.repetitions)
  return numbers


def curves(trials: Trials, repetitions: int) -> Curves:
  best = trials.incumbents()
  known = (best >= 0).all(axis=0)  # a first trial may diverge
  mean = {}
  sd = {}
  within = {}
  for name, values in zip(SETS, (trials.objective, trials.measured), strict=True):
    error = 1 - np.where(known, np.take_along_axis(values, best, axis=1), np.nan)
    groups = error.reshape(-1, repetitions, error.shape[1])
    # Over the searches of a repetition, which share what the sampler does not draw.
    within[name] = groups.var(axis=0, ddof=1)
    mean[name] = error.mean(axis=0)
    sd[name] = np.sqrt(within[name].mean(axis=0))
  quarter = within["test"][:, best.shape[1] // 4 - 1]
  last = within["test"][:, -1]
  size = f"{repetitions} × {len(best) // repetitions}"
  return Curves(size, mean, sd, measures.mean_variance_ratio(quarter, last))


def rows(numbers: Mapping[str, Mapping[str, Curves]]) -> list[Row]:
  table = []
  for task, by_sampler in numbers.items():
    for sampler, n in by_sampler.items():
      validation = format_percent(n.mean["validation"][-1])
      test = format_percent(n.mean["test"][-1])
      sd = format_percent(n.sd["test"][-1])
      trials = len(n.mean["test"])
      quantity = f"{task}: error after {trials} trials, {NAMES[sampler]}"
      ours = f"validation {validation}, test {test}, sd {sd}"
      # Of standard deviations, where `quarter` is of variances.
      ratio = Estimate(*np.sqrt(n.quarter))
      early = "... sd after a quarter of them over that at the end"
      table += rows_of(
        n.searches,
        (quantity, None, ours),
        (early, paper.STATED["early"], ratio),
      )
  return table


def plot(numbers: Mapping[str, Mapping[str, Curves]], axes: np.ndarray) -> None:
  """A row of panels for each task; validation left, test right."""
  for row, (task, by_sampler) in zip(axes.reshape(-1, 2), numbers.items(), strict=True):
    # From below the last trial to above the first eighth: earlier ones are far off.
    ends = []
    for n in by_sampler.values():
      for name in SETS:
        eighth = len(n.mean[name]) // 8
        ends.append(100 * (n.mean[name][eighth] + n.sd[name][eighth]))
        ends.append(100 * (n.mean[name][-1] - n.sd[name][-1]))
    for ax, name in zip(row, SETS, strict=True):
      for sampler, n in by_sampler.items():
        mean = 100 * n.mean[name]
        sd = 100 * n.sd[name]
        count = 1 + np.arange(len(mean))
        ax.plot(count, mean, color=COLORS[sampler], label=NAMES[sampler])
        ax.fill_between(
          count,
          mean - sd,
          mean + sd,
          color=COLORS[sampler],
          alpha=0.15,
          linewidth=0,
        )
      ax.set(
        title=f"{task}, {name} examples",
        xlabel="trials",
        ylabel="error of the best so far (%)",
        ylim=(max(0, min(ends) - 0.5), max(ends) + 0.5),
      )
  axes[0].legend()
