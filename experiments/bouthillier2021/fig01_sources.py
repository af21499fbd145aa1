"""Bouthillier et al. 2021, figure 1: how much of the variance of accuracy each source
of randomness makes.

Within a repetition, one source is drawn anew for each run or search; all others are
drawn once. To draw the data is to draw training, validation and test examples.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments import frame
from experiments.bouthillier2021 import measures, paper
from experiments.bouthillier2021.campaigns import (
  EVERYTHING,
  NOISE,
  SAMPLERS,
  tasks,
)
from experiments.bouthillier2021.measures import Ratio
from experiments.estimates import Estimate
from experiments.frame import Row, Trained, format_percent, row
from vmapseeds.reports import plots

TITLE = "Figure 1: variance by source, relative to that of the data"
NAMES = {
  "data": "data (bootstrap)",
  "augment": "data augmentation",
  "order": "data order",
  "init": "weights init",
  "dropout": "dropout",
  "random": "random search",
  "noisy_grid": "noisy grid search",
  "tpe": "Bayesian optimisation",
  EVERYTHING: "all but the search",
  "ideal": "all, and the search",
}


class SourceVariance(NamedTuple):
  """The variance within repetitions in which one source varies, or several."""

  variance: float
  sd_se: float  # of its root, over repetitions
  relative: Ratio  # to the variance where the data vary
  runs: str


class Sources(NamedTuple):
  """Variances of a task by what varies, and ratios of some to that of initialisation."""

  of: dict[str, SourceVariance]
  order_over_init: Ratio
  search_over_init: Ratio  # the mean of the three samplers; NaN without searches
  noise: float  # variance
  changed: int  # runs of which numerical noise changed the accuracy
  noise_runs: int
  lanes: str  # of the runs that noise changed, instead of which others


def panels(numbers: Mapping[str, Sources]) -> int:
  return len(numbers)


def compute(trained: Trained) -> dict[str, Sources]:
  by_task = {}
  for name, task in tasks(trained.scale).items():
    accuracies = measures.accuracies_by_source(trained, name)
    searches = (*SAMPLERS, "ideal") if task.searched else ()
    for what in searches:
      accuracies[what] = measures.repetitions(
        measures.performances(trained, f"{name}_{what}"), task.repetitions
      )
    again = measures.performances(trained, f"{name}_{NOISE}")
    every = measures.performances(trained, f"{name}_sources")
    first = every[-task.repetitions * task.measures :][: len(again)]
    used = (trained.used[f"{name}_{what}"] for what in (NOISE, "sources"))
    lanes = " instead of ".join(
      "{lowering}, width {lane_width}".format(**record) for record in used
    )
    by_task[name] = compare_sources(accuracies, again - first, lanes)
  return by_task


def compare_sources(
  accuracies: Mapping[str, Float[np.ndarray, "repetitions _"]],
  noise: Float[np.ndarray, " runs"],
  lanes: str,
) -> Sources:
  """Return each variance, and its ratio to that of `data`; `noise` has differences of
  accuracies of the same runs.
  """
  search_over_init = Ratio(*(math.nan,) * 3)
  if SAMPLERS[0] in accuracies:
    searched = np.mean([accuracies[s].var(axis=1, ddof=1) for s in SAMPLERS], axis=0)
    init = accuracies["init"].var(axis=1, ddof=1)
    search_over_init = measures.mean_variance_ratio(searched, init)
  return Sources(
    variances_by_source(accuracies),
    measures.variance_ratio_within(accuracies["order"], accuracies["init"]),
    search_over_init,
    np.nanmean(noise**2) / 2,
    int(np.count_nonzero(noise)),
    len(noise),
    lanes,
  )


def variances_by_source(
  accuracies: Mapping[str, Float[np.ndarray, "repetitions _"]],
) -> dict[str, SourceVariance]:
  """Return the variance within repetitions by what varies, and its ratio to that of
  `data`.
  """
  by_source = {}
  for name in NAMES:
    if name not in accuracies:
      continue
    x = accuracies[name]
    within = x.var(axis=1, ddof=1)
    variance = within.mean()
    se = within.std(ddof=1) / math.sqrt(len(x))
    by_source[name] = SourceVariance(
      variance,
      frame.sqrt_with_se(variance, se)[1],
      measures.variance_ratio_within(x, accuracies["data"]),
      f"{len(x)} × {x.shape[1]}",
    )
  return by_source


def rows(numbers: Mapping[str, Sources]) -> list[Row]:
  return [each for name, n in numbers.items() for each in task_rows(name, n)]


def task_rows(task: str, numbers: Sources) -> list[Row]:
  """Return the rows of one task."""
  table = [source_row(task, name, numbers) for name in numbers.of]
  order = Estimate(*numbers.order_over_init)
  table.append(
    row(
      f"{task}: variance of data order over that of weights init",
      paper.STATED["order over init"],
      order,
      numbers.of["order"].runs,
    )
  )
  if SAMPLERS[0] in numbers.of:
    search = Estimate(*numbers.search_over_init)
    table.append(
      row(
        f"{task}: mean variance of the three searches over that of weights init",
        paper.STATED["search over init"],
        search,
        numbers.of["random"].runs,
      )
    )
  return [*table, *noise_rows(task, numbers)]


def source_row(task: str, name: str, numbers: Sources) -> Row:
  """Return the variance of a source over that of the data; of the data, its sd."""
  n = numbers.of[name]
  sd = f"sd {format_percent(math.sqrt(n.variance), n.sd_se)}"
  if name == "data":
    return row(f"{task}: {NAMES[name]}", None, sd, n.runs)
  names = {"init": "init over data", EVERYTHING: "together", "ideal": "together"}
  stated = paper.STATED[names.get(name, "over data")]
  if name in SAMPLERS:
    stated = paper.SEARCHES
  estimate = Estimate(*n.relative)
  ours = f"{estimate}; {sd}"
  if name == EVERYTHING:
    # Were they independent and additive, they would add to what all make together.
    alone = 0.0
    for source in NAMES:
      is_single = source not in (*SAMPLERS, "ideal", EVERYTHING)
      if source in numbers.of and is_single:
        alone += numbers.of[source].relative.value
    ours += f"; alone they add to {alone:.2f}"
  quantity = f"{task}: variance of {NAMES[name]} over that of data"
  return row(quantity, stated, ours, n.runs, estimate)


def noise_rows(task: str, numbers: Sources) -> list[Row]:
  """Return what other numerics change."""
  noise = f"{numbers.noise / numbers.of['data'].variance:.3g}"
  changed = f"accuracy changed in {numbers.changed} of {numbers.noise_runs} runs"
  return [
    row(
      f"{task}: variance of numerical noise over that of data; lanes {numbers.lanes}",
      paper.NOISE,
      f"{noise}; {changed}",
      f"2 × {numbers.noise_runs}",
    ),
    row(
      f"{task}: ... one device instead of two",
      paper.NOISE,
      "0: at the same lane width every bit is the same, by design and by a test",
      "exact",
    ),
  ]


def plot(numbers: Mapping[str, Sources], axes: np.ndarray) -> None:
  for ax, (task, n) in zip(axes, numbers.items(), strict=True):
    names = [*n.of][::-1]
    relative = np.array([n.of[name].relative for name in names])
    relative = np.vstack([[n.noise / n.of["data"].variance, np.nan, np.nan], relative])
    value, low, high = relative.T
    ax.barh(
      ["numerical noise", *(NAMES[name] for name in names)],
      value,
      xerr=np.nan_to_num(np.abs([low - value, high - value])),
      color=plots.SKY,
      ecolor=plots.INK,
      capsize=3,
    )
    ax.axvline(0.5, color=plots.INK, linewidth=0.9, linestyle=":")
    ax.set(
      title=task,
      xlabel="variance over that of the data\n(dotted: the paper, init mostly below)",
      xlim=(0, 1.1 * np.nanmax(relative[:, [0, 2]])),
    )
