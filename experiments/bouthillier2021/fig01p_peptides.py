"""Bouthillier et al. 2021, figures 1 and G.3 on the affinities of peptides: what each
source of randomness makes alone, of the paper's network, and whether it is normal.

Whole sources are enough: what a gallery keeps of the campaign is read as far as it goes.
"""

import math
from typing import NamedTuple

import numpy as np

from experiments import kept
from experiments.bouthillier2021 import (
  fig01_sources,
  figg3_distributions,
  measures,
  paper,
)
from experiments.bouthillier2021.campaigns import EVERYTHING, score, tasks
from experiments.bouthillier2021.fig01_sources import NAMES, SourceVariance
from experiments.bouthillier2021.figg3_distributions import Normality
from experiments.bouthillier2021.measures import Ratio
from experiments.estimates import Estimate, format_interval
from experiments.frame import Row, Trained, row
from vmapseeds.reports import plots

TITLE = "Figure 1, peptides: variance by source, relative to that of the data"
TASK = "mhc"


class Peptides(NamedTuple):
  """Variances by what varies, and whether the measures are normal."""

  mean: float  # of all measures
  of: dict[str, SourceVariance]
  order_over_init: Ratio
  normality: dict[str, Normality]


def compute(trained: Trained) -> Peptides:
  every_task = tasks(trained.scale)
  name = TASK if TASK in every_task else next(iter(every_task))
  task = every_task[name]
  parts = (*task.sources, EVERYTHING)
  runs_of_source = task.repetitions * task.measures
  scores = finished(trained, f"{name}_sources")
  by_source = {}
  normality = {}
  for i, part in enumerate(parts):
    of_source = scores[i * runs_of_source : (i + 1) * runs_of_source]
    if len(of_source) < runs_of_source:
      break
    by_source[part] = measures.repetitions(of_source, task.repetitions)
    # A correlation has no steps, as accuracies have.
    normality[part] = figg3_distributions.normality(by_source[part], math.inf)
  return Peptides(
    float(np.nanmean(scores)),
    fig01_sources.variances_by_source(by_source),
    measures.variance_ratio_within(by_source["order"], by_source["init"]),
    normality,
  )


def finished(trained: Trained, name: str) -> np.ndarray:
  """Return the measures of the runs of a campaign that are kept, or else of all."""
  parts = []
  if trained.kept:
    parts = kept.read_parts(trained.kept, trained.place(name).name)
  if not parts:
    return measures.performances(trained, name)
  for i, (_, record) in enumerate(parts, 1):
    trained.used[f"{name}, part {i}"] = record | {"trained_on": ""}
  metric = score(trained.campaigns[name].recipe)
  scores = []
  for arrays, _ in parts:
    scores.append(np.where(arrays["diverged"], np.nan, arrays[metric]))
  return np.concatenate(scores).astype(float)


def rows(n: Peptides) -> list[Row]:
  table = [row("mean of all measures", None, f"{n.mean:.4f}", sum_of(n))]
  for name, variance in n.of.items():
    if name == "data":
      continue
    claim = paper.STATED["init over data" if name == "init" else "over data"]
    quantity = f"variance of {NAMES[name]} over that of data"
    relative = Estimate(*variance.relative)
    table.append(row(quantity, claim, relative, variance.runs))
  order = Estimate(*n.order_over_init)
  claim = paper.STATED["order over init"]
  table.append(row(claim.statistic, claim, order, n.of["order"].runs))
  for name, normality in n.normality.items():
    skewness = figg3_distributions.skewness_estimate(normality.deviations.ravel())
    interval = format_interval(skewness.value, skewness.low, skewness.high)
    ours = f"{interval}; Shapiro-Wilk p {normality.p_value:.2g}"
    quantity = f"skewness, {NAMES[name]}"
    table.append(row(quantity, paper.STATED["normal"], ours, n.of[name].runs))
  return table


def sum_of(n: Peptides) -> int:
  return sum(normality.deviations.size for normality in n.normality.values())


def plot(n: Peptides, axes: np.ndarray) -> None:
  (ax,) = axes
  names = [*n.of][::-1]
  value, low, high = np.array([n.of[name].relative for name in names]).T
  bars = np.nan_to_num(np.abs([low - value, high - value]))
  ax.barh([NAMES[name] for name in names], value, xerr=bars, color=plots.SKY)
  ax.set(xlabel="variance over that of the data")
