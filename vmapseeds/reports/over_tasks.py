"""Runs on several tasks: what is drawn anew of them, and what all tasks together say."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr

from vmapseeds import stats
from vmapseeds.errors import UserError
from vmapseeds.reports import plots
from vmapseeds.reports.documents import Figure, Section, Table
from vmapseeds.reports.sides import Side, averaged_over, tasks_of
from vmapseeds.reports.verdict import ALPHA, Comparison, as_performances
from vmapseeds.results.formatting import (
  Quantity,
  count_of,
  finite_or_none,
  show,
  show_interval,
)
from vmapseeds.results.measured_runs import is_higher_better
from vmapseeds.results.units import seed_columns
from vmapseeds.stats.aggregates import mean_of_middle_half
from vmapseeds.training.names import FOLD

TASK, UNIT, SCORE = "task", "unit", "score"  # columns of runs
REPLICATES = 2000  # of bootstraps
MOST_NAMED = 6  # tasks that are listed in a sentence
_WARNING = """Warning: such a test draws tasks anew and takes the mean score on each as it \
is. Whether two differ by it depends on which others are compared (Benavoli, Corani and \
Mangili 2016): for two, read their comparison."""


class OnTasks(NamedTuple):
  """Runs of several sides on the same tasks.

  Attributes:
    column: what tasks are called, such as "dataset".
    names: the tasks on which all sides have runs.
    drawn: a sentence: what is drawn anew.
    means: (sides, tasks) mean scores, a frame.
    errors: their standard errors over runs; NaN of one run.
    sds: of each side, the standard deviation of a run on its task; NaN if no task has two
      runs, empty if a unit is no run on one task.
    scores: (runs, tasks) of each side, of runs that are independent between tasks; empty
      if there are none.
    tasks: the task of each run of a side; empty if a unit is no run on one task.
    higher_is_better: whether higher scores are.
  """

  column: str
  names: list[str]
  drawn: str
  means: pd.DataFrame
  errors: pd.DataFrame
  sds: Mapping[str, float]
  scores: Mapping[str, np.ndarray]
  tasks: Mapping[str, np.ndarray]
  higher_is_better: bool

  @property
  def performances(self) -> np.ndarray:
    return as_performances(self.means.to_numpy(), self.higher_is_better)

  @property
  def table(self) -> pd.DataFrame:
    """Return a row for each task: "mean" and "se" of each side."""
    frame = pd.concat({"mean": self.means.T, "se": self.errors.T}, axis=1)
    return frame.rename_axis(self.column)


def with_units(sides: Mapping[str, Side]) -> tuple[dict[str, Side], OnTasks | None]:
  """Return sides whose runs are what is drawn anew, and their tasks; as they are, and None,
  if they have no tasks.

  That is runs of each task, whose mean over all runs is taken away; where seeds say that
  runs on several tasks are of one network, the mean of a seed over tasks; and where there
  is one run on each, tasks.

  Raises:
    UserError: no task has runs of all sides.
  """
  columns = {name: tasks_of(side.results) for name, side in sides.items()}
  column = next((found for found in columns.values() if found), None)
  if column is None:
    return dict(sides), None
  lacking = [name for name, found in columns.items() if found != column]
  if lacking:
    raise UserError(
      f"{', '.join(lacking)} has no several values of {column}: compare runs on the same "
      "tasks"
    )
  runs = {name: _runs_of(side, column, name) for name, side in sides.items()}
  names = sorted(set.intersection(*(set(frame[TASK]) for frame in runs.values())))
  if not names:
    raise UserError(f"no {column} has runs of all of {', '.join(sides)}")
  left_out = sorted({t for frame in runs.values() for t in frame[TASK]} - {*names})
  runs = {name: frame[frame[TASK].isin(names)] for name, frame in runs.items()}
  of_tasks = {name: frame.groupby(TASK)[SCORE] for name, frame in runs.items()}
  means = pd.DataFrame({name: groups.mean() for name, groups in of_tasks.items()}).T
  errors = pd.DataFrame({name: groups.sem() for name, groups in of_tasks.items()}).T

  scores: dict[str, np.ndarray] = {}
  tasks: dict[str, np.ndarray] = {}
  sds: dict[str, float] = {}
  if max(frame[TASK].value_counts().max() for frame in runs.values()) == 1:
    drawn = (
      f"Pairs are the {len(names)} values of {column}, with one score of each: sentences "
      f"are about other ones of the kind, not about other runs."
    )
    units = {name: _units(side, runs[name], column) for name, side in sides.items()}
  elif (p := _p_of_shared_seeds(runs)) <= ALPHA:
    drawn = (
      f"Runs of one seed rise and fall together over {column} (Friedman: p = "
      f"{show(p, None, 'p')}), as of one network that is tested on all: a run stands for "
      f"its mean over {len(names)} of them."
    )
    kept = {name: _on(side, column, names) for name, side in sides.items()}
    units = {
      name: averaged_over(of_side, sides[name].output, [column])
      for name, of_side in kept.items()
    }
  else:
    drawn = (
      f"Runs are drawn anew on each of {len(names)} values of {column}, and compared "
      f"within it: sentences are about other runs on these, not about other {column} "
      f"values. If one network was tested on all of them, average it over {column}."
    )
    # What tells tasks apart tells no two sides apart.
    ease = means.mean() - means.to_numpy().mean()
    units = {}
    for name, side in sides.items():
      frame = runs[name]
      level = frame.assign(score=frame[SCORE] - frame[TASK].map(ease))
      units[name] = _units(side, level, column)
      tasks[name] = frame[TASK].to_numpy()
      scores[name] = _table(frame, names)
      sds[name] = _sd_within(of_tasks[name])
    if min(map(len, scores.values())) < 2:
      scores = {}
  if left_out:
    drawn += f" Left out, since not all have runs there: {_listed(left_out)}."

  higher = is_higher_better(next(iter(sides.values())).info)
  changed = {}
  for name, side in sides.items():
    changed[name] = side._replace(
      results=units[name], opened=units[name], levels={column: names}
    )
  return changed, OnTasks(
    column, names, drawn, means, errors, sds, scores, tasks, higher
  )


def _listed(names: Sequence[str]) -> str:
  shown = list(names[:MOST_NAMED])
  if len(names) > MOST_NAMED:
    shown.append(f"{len(names) - MOST_NAMED} more")
  return ", ".join(shown)


def _runs_of(side: Side, column: str, name: str) -> pd.DataFrame:
  """Return the task, the unit and the score of each run that has one; of folds the mean."""
  seeds = seed_columns(side.results)
  seeds.pop(FOLD, None)
  frame = pd.DataFrame({TASK: side.results[column].values, SCORE: side.values, **seeds})
  frame = frame[np.isfinite(frame[SCORE])]
  if FOLD in side.results.coords:
    frame = frame.groupby([TASK, *seeds], as_index=False)[SCORE].mean()
  if seeds:
    labels = [" ".join(map(str, row)) for row in frame[list(seeds)].to_numpy().tolist()]
  else:
    # Runs without seeds have no partners, on the other side or on another task.
    labels = [f"{name} {row}" for row in range(len(frame))]
  return frame.assign(unit=labels)


def _sd_within(of_tasks: Any) -> float:
  """Return the standard deviation of a run on its task: the square root of the mean
  variance, by degrees of freedom. NaN if no task has two runs.
  """
  freedom = of_tasks.size() - 1
  squares = (of_tasks.var() * freedom).sum()  # of one run there is no variance
  return float(np.sqrt(squares / freedom.sum())) if freedom.sum() else np.nan


def _units(side: Side, frame: pd.DataFrame, column: str) -> xr.Dataset:
  """Return runs on tasks as runs, each with a seed of its own."""
  labels = frame[TASK].astype(str)
  if frame[TASK].duplicated().any():
    labels = labels + " " + frame[UNIT]
  attributes = side.results[side.output].attrs
  return xr.Dataset(
    {side.output: ("run", frame[SCORE].to_numpy(), attributes)},
    coords={
      "seed": ("run", labels.to_numpy().astype(str), {"role": "seed", "source": column})
    },
    attrs=side.results.attrs,
  )


def _on(side: Side, column: str, names: Sequence[str]) -> xr.Dataset:
  """Return a side's runs on these tasks, of folds the mean."""
  kept = np.isin(side.results[column].values, names)
  return side.results.isel(run=np.flatnonzero(kept))


def _table(frame: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
  """Return the scores (runs, tasks) of the units that have all tasks or, where units are
  of one task each, of as many runs of each task as there are of all.
  """
  table = frame.pivot(index=UNIT, columns=TASK, values=SCORE)[list(names)]
  whole = table.dropna()
  if len(whole):
    return whole.to_numpy()
  columns = [table[name].dropna().to_numpy() for name in names]
  fewest = min(map(len, columns))
  return np.stack([values[:fewest] for values in columns], axis=1)


def _p_of_shared_seeds(runs: Mapping[str, pd.DataFrame]) -> float:
  """Return the p-value of no seed being better on all tasks: by Friedman's test of the
  differences of each two sides, or of each side's scores where they share no seeds.
  """
  tables = {
    name: frame.pivot(index=UNIT, columns=TASK, values=SCORE)
    for name, frame in runs.items()
  }
  differences = [a - b for a, b in itertools.combinations(tables.values(), 2)]
  p_values = [_friedman(table) for table in differences]
  if not np.isfinite(p_values).any():
    p_values = [_friedman(table) for table in tables.values()]
  known = [p for p in p_values if np.isfinite(p)]
  return min(1.0, len(known) * min(known)) if known else 1.0


def _friedman(table: pd.DataFrame) -> float:
  whole = table.dropna().to_numpy()
  if len(whole) < 3 or whole.shape[1] < 2:
    return np.nan
  return friedman(whole)


def friedman(scores: np.ndarray) -> float:
  """Return Friedman's p-value of rows that are alike, in blocks that are columns; NaN if
  all are equal.
  """
  # SciPy divides by what ties leave.
  if (scores == scores[:1]).all():
    return np.nan
  return float(scipy.stats.friedmanchisquare(*scores).pvalue)


def within_tasks(
  comparison: Comparison, rows: Sequence[np.ndarray], on: OnTasks
) -> Comparison:
  """Return a comparison of runs with its difference within tasks."""
  tasks = [
    on.tasks[name][kept] for name, kept in zip(comparison.names, rows, strict=True)
  ]
  a, b = (as_performances(x, on.higher_is_better) for x in (comparison.a, comparison.b))
  if comparison.paired:
    return comparison._replace(found=stats.compare_within_tasks(a, b, tasks[0]))
  found = stats.compare_within_tasks(a, b, tasks[0], tasks[1])
  shares = []
  for task in on.names:
    of_task = stats.probability_of_outperforming(
      a[tasks[0] == task], b[tasks[1] == task], paired=False
    )
    shares.append(float(of_task))
  p = float(np.mean(shares))
  return comparison._replace(found=found, outperforming=(p, np.nan, np.nan))


# What all tasks say.


class Together(NamedTuple):
  """What all tasks together say.

  Attributes:
    sides: a row for each side: mean rank and interquartile mean, with their intervals.
    wins: (sides, sides), on which share of tasks the row is better.
    improvements: names -> P(first > second) on a task drawn at random, and its interval.
    p_value: of no difference on tasks of the kind: Friedman's, of two sides Wilcoxon's.
    distance: by how much mean ranks differ by Nemenyi's test; None of two sides.
  """

  sides: pd.DataFrame
  wins: pd.DataFrame
  improvements: Mapping[tuple[str, str], tuple[float, float, float]]
  p_value: float
  distance: float | None


def all_together(on: OnTasks, pairs: Sequence[tuple[str, str]]) -> Together:
  """Return what all tasks say of sides, and of the pairs that are compared."""
  names = list(on.means.index)
  performances = on.performances
  ranks = stats.mean_ranks(performances)
  ends = _ends_of_ranks(on)
  frame = pd.DataFrame(
    {"mean_rank": ranks, "mean_rank_low": ends[0], "mean_rank_high": ends[1]}, names
  )
  if on.scores:
    iqm = []
    for name in names:
      scores = on.scores[name]
      iqm.append((float(stats.interquartile_mean(scores)), *_ends_of_iqm(scores)))
    columns = ["iqm", "iqm_low", "iqm_high"]
    frame[columns] = np.array(iqm)

  improvements = {}
  for pair in pairs:
    if not on.scores:
      break
    two = [as_performances(on.scores[name], on.higher_is_better) for name in pair]
    known = _ends_of_improvement(*two)
    improvements[pair] = (float(stats.probability_of_improvement(*two)), *known)

  distance = None
  if len(names) > 2:
    p_value = friedman(performances)
    distance = float(stats.critical_difference(len(names), len(on.names)))
  else:
    difference = performances[0] - performances[1]
    p_value = 1.0
    if difference.any():
      p_value = float(scipy.stats.wilcoxon(difference).pvalue)
  wins = pd.DataFrame(stats.win_matrix(performances), names, names)
  return Together(frame, wins, improvements, p_value, distance)


def _generator() -> np.random.Generator:
  # A fixed seed, so that a page that is written again has the same numbers. JAX would
  # compile a program for each number of runs.
  return np.random.default_rng(0)


def _times_drawn(rng: np.random.Generator, runs: int) -> np.ndarray:
  """Return (replicates, runs): how often each run is drawn in as many draws."""
  return rng.multinomial(runs, np.full(runs, 1 / runs), REPLICATES)


def _ends_of_iqm(scores: np.ndarray) -> tuple[float, float]:
  # Read once: `interquartile_mean` would check each of the resamples.
  def statistic(drawn: np.ndarray) -> np.ndarray:
    return mean_of_middle_half(drawn.ravel())

  found = stats.stratified_bootstrap(
    statistic, scores, key=jax.random.key(0), replicates=REPLICATES
  )
  return float(found.low), float(found.high)


def _ends_of_improvement(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
  """Return the ends of `probability_of_improvement` by the bootstrap of runs, on each task
  for itself: of many resamples at once, from who wins of each two runs.
  """
  rng = _generator()
  shares = np.zeros(REPLICATES)
  for task in range(a.shape[1]):
    of_a, of_b = a[:, task][:, None], b[:, task]
    wins = (of_a > of_b) + (of_a == of_b) / 2
    of_a, of_b = (_times_drawn(rng, runs) for runs in wins.shape)
    shares += np.sum(of_a @ wins * of_b, axis=1) / wins.size / a.shape[1]
  found = stats.from_replicates(shares)
  return float(found.low), float(found.high)


def _ends_of_ranks(on: OnTasks) -> np.ndarray:
  """Return the ends (2, sides) of mean ranks: of other runs or, with one run on each, of
  other tasks. NaN where runs are not independent between tasks.
  """
  if on.scores:
    means = np.zeros((len(on.scores), REPLICATES, len(on.names)))
    rng = _generator()
    for side, scores in enumerate(on.scores.values()):
      for task in range(len(on.names)):
        drawn = _times_drawn(rng, len(scores))
        means[side, :, task] = drawn @ scores[:, task] / len(scores)
    performances = as_performances(means, on.higher_is_better)
    ranks = scipy.stats.rankdata(-performances, axis=0).mean(axis=2)
    found = stats.from_replicates(ranks.T)
    return np.stack([found.low, found.high])
  if on.tasks or len(on.names) < 2:
    return np.full((2, len(on.means)), np.nan)
  of_tasks = scipy.stats.rankdata(-on.performances, axis=0)
  drawn = _times_drawn(_generator(), len(on.names))
  found = stats.from_replicates(drawn @ of_tasks.T / len(on.names))
  return np.stack([found.low, found.high])


# Sentences, tables, a figure.


def sentences(on: OnTasks, together: Together) -> list[str]:
  """Return what is known of other tasks."""
  count = len(on.names)
  p = show(together.p_value, None, "p")
  if together.distance is None:
    return [
      f"For other {on.column} values of the kind, by the means on these {count}: p = {p} "
      "(Wilcoxon's signed ranks)."
    ]
  told = []
  ranks = together.sides["mean_rank"].sort_values()
  for better, worse in itertools.combinations(ranks.index, 2):
    if ranks[worse] - ranks[better] > together.distance:
      told.append(f"{better} from {worse}")
  by_nemenyi = f"which tells {_listed(told)}" if told else "which tells none apart"
  return [
    f"For other {on.column} values of the kind, by the means on these {count}: p = {p} "
    f"(Friedman) that all are alike; two differ by Nemenyi's test if their mean ranks do "
    f"by {together.distance:.2f}, {by_nemenyi}.",
    _WARNING,
  ]


def tables(on: OnTasks, together: Together, quantity: Quantity) -> list[Table]:
  """Return the tables of sides, of means, of wins and of improvements."""
  with_means = "iqm" in together.sides
  rows = []
  for name, row in together.sides.iterrows():
    cells = [str(name), show(row.mean_rank, None, "number")]
    cells.append(show_interval(row.mean_rank_low, row.mean_rank_high, "number"))
    if with_means:
      cells.append(show(row.iqm, None, quantity.unit))
      cells.append(show_interval(row.iqm_low, row.iqm_high, quantity.unit))
    rows.append(cells)
  headings = ["", "mean rank", "95 % interval"]
  what = "other values of the kind"
  if with_means:
    headings += [f"interquartile mean of {quantity.name}", "95 % interval"]
    what = "other runs on these"
  caption = (
    f"All {len(on.names)} values of {on.column} together; intervals: bootstrap, {what}."
  )
  if with_means:
    caption += " The interquartile mean (Agarwal 2021) takes scores as they are: they must be comparable."
  found = [Table(caption, headings, rows)]
  names = list(together.wins)
  means = []
  for task in on.names:
    of_sides = [on.means.loc[names, task], on.errors.loc[names, task]]
    cells = [show(mean, se, quantity.unit) for mean, se in zip(*of_sides, strict=True)]
    means.append([str(task), *cells])
  caption = f"Mean {quantity.name} on each {on.column}, ± standard error over runs."
  found.append(Table(caption, ["", *names], means))
  if len(names) > 2:
    wins = []
    for name in names:
      cells = [
        show(together.wins.loc[name, other], None, "fraction") for other in names
      ]
      cells[names.index(name)] = "–"
      wins.append([name, *cells])
    caption = f"On which share of {on.column} the row has the better mean."
    found.append(Table(caption, ["", *names], wins))
  improvements = []
  for (a, b), (p, low, high) in together.improvements.items():
    ends = show_interval(low, high, "fraction")
    improvements.append((f"P({a} > {b})", show(p, None, "fraction"), ends))
  if improvements:
    caption = f"How often a run of the first is better than one of the second, on a {on.column} drawn at random (Agarwal 2021)."
    found.append(Table(caption, ("", "value", "95 % interval"), improvements))
  return found


def section(on: OnTasks, together: Together, quantity: Quantity) -> Section:
  """Return the part of a page on all tasks together."""
  figures = {}
  if together.distance is not None:
    ranks = together.sides["mean_rank"].to_dict()
    distance = together.distance
    figures["ranks"] = Figure(
      "Mean ranks and the critical difference",
      f"Over {count_of(len(on.names), 'value')} of {on.column}; 1 is the best. Bars join "
      f"those that Nemenyi's test does not tell apart (Demšar 2006). {_WARNING}",
      lambda ax: plots.critical_difference(ranks, distance, ax),
      1.6 + 0.35 * len(ranks),
      sentences(on, together)[0],
    )
  if on.scores:
    figures["profiles"] = Figure(
      "Performance profiles",
      "The fraction of runs, on all tasks together, above each value, as scores are: they "
      "must be comparable (Agarwal 2021).",
      functools.partial(plots.performance_profiles, on.scores),
    )
  return Section(
    "All tasks together",
    sentences=sentences(on, together),
    figures=figures,
    tables=tables(on, together, quantity),
  )


def record(on: OnTasks, together: Together) -> dict[str, Any]:
  """Return the numbers, ready for JSON."""
  of_sides = {}
  for name, row in together.sides.iterrows():
    of_sides[name] = {key: finite_or_none(value) for key, value in row.items()}
  improvements = []
  for pair, numbers in together.improvements.items():
    p, low, high = map(finite_or_none, numbers)
    improvements.append({"names": pair, "probability": p, "low": low, "high": high})
  return {
    "column": on.column,
    "values": on.names,
    "sides": of_sides,
    "wins": together.wins.to_dict("index"),
    "probability_of_improvement": improvements,
    "p_value": finite_or_none(together.p_value),
    "critical_difference": together.distance,
  }
