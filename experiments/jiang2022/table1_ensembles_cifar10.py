"""Jiang 2022, table 1: error, disagreement, their gap and calibration errors of
ensembles on CIFAR-10.

CACE falls with the number of runs even if their distribution is perfectly calibrated.
So CACE stands beside what as many runs of a calibrated distribution would have, one
with the vote fractions of all runs here.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.axes import Axes

from experiments import estimates, measures
from experiments.frame import Row, format_number, format_percent, row
from experiments.jiang2022 import groups, paper
from experiments.jiang2022.groups import COLORS, Group
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Table 1: ensembles, the paper's on CIFAR-10"
PANELS = 2
SIZES = (2, 5)  # of ensembles, beside that of all runs
RESAMPLES = 200
SIMULATIONS = 30


class Cace(NamedTuple):
  """CACE of some runs, and of as many runs of a perfectly calibrated distribution with
  the same vote fractions.
  """

  value: float  # mean over disjoint ensembles
  # Over these ensembles; if there is only one, that of all runs by the bootstrap over
  # runs
  se: float
  ensembles: int
  calibrated: float
  calibrated_sd: float  # over ensembles and draws of labels


class MeanAndSd(NamedTuple):
  mean: float
  se: float
  sd: float


class EnsembleNumbers(NamedTuple):
  """What the runs of one group have in common. Standard errors are over runs, on the
  one test set.
  """

  runs: int
  error: MeanAndSd  # over runs
  disagreement: MeanAndSd  # over all pairs of distinct runs
  gap: float
  gap_se: float
  ratio: float  # error over disagreement
  ratio_se: float
  cace: dict[int, Cace]  # by number of runs; the last is all
  ece: float
  ece_se: float
  ece_calibrated: float


def measure_ensemble(group: Group) -> EnsembleNumbers:
  predictions, labels, classes = group
  runs = len(predictions)
  errors = stats.error_rates(predictions != labels)
  of_pairs = stats.disagreement_matrix(predictions)[np.triu_indices(runs, 1)]
  of_runs, of_law = jax.random.split(jax.random.key(0))
  over_runs = measures.bootstrap(*group, "runs", key=of_runs, replicates=RESAMPLES)
  fractions = stats.vote_fractions(predictions, classes)
  sizes = sorted({size for size in SIZES if size < runs} | {runs})
  laws = {}
  caces = {}
  for size in sizes:
    law = measures.finite_ensemble_calibration(
      fractions,
      size,
      key=of_law,
      replicates=SIMULATIONS,
    )
    laws[size] = law
    value, se, count = mean_cace(group, size)
    if count == 1:
      se = over_runs["cace"].se
    caces[size] = Cace(value, se, count, law.cace, law.cace_sd)

  error = errors.mean()
  disagreement = stats.expected_disagreement(predictions, classes)
  gap_se = stats.gde_gap(*group).se
  ratio = math.nan
  ratio_se = math.nan
  if disagreement:
    ratio = error / disagreement
    ratio_se = gap_se / disagreement
  return EnsembleNumbers(
    runs,
    MeanAndSd(error, errors.std(ddof=1) / math.sqrt(runs), errors.std(ddof=1)),
    MeanAndSd(disagreement.value, disagreement.se, of_pairs.std()),
    abs(error - disagreement),
    gap_se,
    ratio,
    ratio_se,
    caces,
    stats.ece(*group),
    over_runs["ece"].se,
    laws[runs].ece,
  )


def mean_cace(group: Group, size: int) -> tuple[float, float, int]:
  """Return the mean CACE of disjoint ensembles of so many runs, its standard error, NaN
  for one ensemble, and how many there are.
  """
  predictions, labels, classes = group
  count = len(predictions) // size
  caces = []
  for i in range(count):
    # An ensemble takes runs far apart in the table: neighbours 2i and 2i + 1 have
    # disjoint training sets.
    members = predictions[i : count * size : count]
    caces.append(stats.cace(members, labels, classes))
  se = math.nan
  if count > 1:
    se = np.std(caces, ddof=1) / math.sqrt(count)
  return np.mean(caces), se, count


compute = groups.computed("cifar10", measure_ensemble)


def rows(numbers: Mapping[str, EnsembleNumbers], where: str = "table 1") -> list[Row]:
  high = "" if where == "table 1" else "high "
  lines = []
  for group, n in numbers.items():
    printed = paper.ENSEMBLES[where][group]
    for quantity, (mean, sd), values in (
      ("test error", printed.error, n.error),
      ("disagreement", printed.disagreement, n.disagreement),
    ):
      theirs = f"{format_percent(mean)}, sd {format_percent(sd)}"
      ours = f"{format_percent(values.mean, values.se)}, sd {format_percent(values.sd)}"
      lines.append(row(f"{quantity}, {group}", (theirs, where), ours, n.runs))
    lines += [
      row(
        f"gap, {group}",
        (printed.gap, where),
        format_percent(n.gap, n.gap_se),
        n.runs,
      ),
      row(
        f"error over disagreement, {group}",
        paper.STATED[f"{high}ratio {group}"],
        estimates.positive_estimate(n.ratio, n.ratio_se),
        n.runs,
      ),
      *(cace_row(size, group, n, printed, where) for size in n.cace),
      row(
        f"ECE, {group}",
        (f"{printed.ece:.4f}", where),
        f"{format_number(n.ece, n.ece_se)}; if calibrated {n.ece_calibrated:.4f}",
        n.runs,
      ),
    ]
  return [*lines, *same_data_rows(numbers, where)]


def same_data_rows(numbers: Mapping[str, EnsembleNumbers], where: str) -> list[Row]:
  """The rows that compare runs with one training set and runs with different ones."""
  runs = sum(n.runs for n in numbers.values())
  caces = {}
  gaps = {}
  for name, n in numbers.items():
    of_all_runs = n.cace[n.runs]
    caces[name] = (of_all_runs.value, of_all_runs.se)
    gaps[name] = (n.gap, n.gap_se)
  claim = paper.STATED["CACE of the same data"]
  lines = [row(claim.statistic, claim, same_data_over_different(caces), runs)]
  if where == "table 1":
    claim = paper.STATED["gap of the same data"]
    lines.append(row(claim.statistic, claim, same_data_over_different(gaps), runs))
  return lines


def cace_row(
  size: int,
  group: str,
  n: EnsembleNumbers,
  stated_ensemble: paper.PrintedEnsemble,
  where: str,
) -> Row:
  """The row of CACE of `size` runs, beside that of a calibrated distribution's runs."""
  cace = n.cace[size]
  ours = f"{format_number(cace.value, cace.se)}; if calibrated {cace.calibrated:.4f}"
  if size not in SIZES or size == n.runs:
    of_all = stated_ensemble.cace[max(stated_ensemble.cace)]
    return row(f"CACE of all, {group}", (f"{of_all:.4f}", where), ours, n.runs)
  claim = paper.STATED["few runs"]
  if size in stated_ensemble.cace:
    value = stated_ensemble.cace[size]
    claim = claim._replace(printed=(f"{value:.4f}", where))
  # The error over runs, and the spread over labels.
  se = math.hypot(cace.se, cace.calibrated_sd)
  excess = estimates.student_estimate(cace.value - cace.calibrated, se)
  return row(f"CACE of {size}, {group}", claim, ours, n.runs, excess)


def same_data_over_different(
  by_group: Mapping[str, tuple[float, float]],
) -> estimates.Estimate:
  """The sum over groups that share a training set, over that of groups that do not; of
  values with their standard errors.
  """

  def total(*names: str) -> estimates.Estimate:
    values = [by_group[name][0] for name in names]
    ses = [by_group[name][1] for name in names]
    return estimates.positive_estimate(sum(values), math.hypot(*ses))

  same = total("DiffInit", "DiffOrder")
  different = total("AllDiff", "DiffData")
  return estimates.ratio_of(same, different)


def plot(
  numbers: Mapping[str, EnsembleNumbers],
  axes: np.ndarray,
  where: str = "table 1",
) -> None:
  """The gap against CACE, and CACE by the number of runs; the paper's values are open
  diamonds.
  """
  gap_ax, size_ax = axes
  for group, n in numbers.items():
    printed = paper.ENSEMBLES[where][group]
    draw_gap(n, printed, group, gap_ax)
    draw_sizes(n, printed, group, size_ax)
  gap_ax.set(
    xlabel="CACE of all runs",
    ylabel="|error − disagreement| (%)",
    ylim=(0, 1.2 * gap_ax.get_ylim()[1]),
    xlim=(0, None),
  )
  measured = {size for n in numbers.values() for size in n.cace}
  ticks = sorted(measured | set(SIZES) | {100})
  size_ax.plot(
    [],
    [],
    color=plots.INK,
    linestyle=":",
    marker=".",
    label="if calibrated",
  )
  size_ax.set(xlabel="runs in the ensemble", ylabel="CACE", xscale="log")
  size_ax.set_xticks(ticks, map(str, ticks))
  size_ax.minorticks_off()
  for ax in axes:
    ax.plot([], [], "D", color=plots.INK, markerfacecolor="white", label="the paper's")
  gap_ax.legend(loc="upper left")
  size_ax.set_ylim(top=1.5 * size_ax.get_ylim()[1])
  size_ax.legend(loc="upper right", ncols=2)


def draw_gap(
  n: EnsembleNumbers,
  printed: paper.PrintedEnsemble,
  group: str,
  ax: Axes,
) -> None:
  """The gap of a group against CACE of all its runs."""
  color = COLORS[group]
  all_runs = n.cace[n.runs]
  ax.errorbar(
    all_runs.value,
    100 * n.gap,
    100 * n.gap_se,
    all_runs.se,
    color=color,
    marker="o",
    markersize=6,
    capsize=2,
    linestyle="none",
    label=group,
  )
  ax.plot(
    printed.cace[100],
    100 * printed.gap,
    "D",
    color=color,
    markerfacecolor="white",
  )


def draw_sizes(
  n: EnsembleNumbers,
  printed: paper.PrintedEnsemble,
  group: str,
  ax: Axes,
) -> None:
  """CACE of a group by the number of runs, and that of a calibrated distribution."""
  color = COLORS[group]
  sizes = list(n.cace)
  caces = list(n.cace.values())
  ax.errorbar(
    sizes,
    [cace.value for cace in caces],
    [cace.se for cace in caces],
    color=color,
    marker="o",
    markersize=4,
    capsize=2,
    label=group,
  )
  ax.plot(
    sizes,
    [cace.calibrated for cace in caces],
    color=color,
    linestyle=":",
    marker=".",
  )
  ax.plot(
    list(printed.cace),
    list(printed.cace.values()),
    "D",
    color=color,
    markerfacecolor="white",
  )
