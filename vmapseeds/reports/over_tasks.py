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
from vmapseeds.results.table_files import listed
from vmapseeds.results.units import seed_columns
from vmapseeds.stats.aggregates import mean_of_middle_half
from vmapseeds.training.names import FOLD

TASK, UNIT, SCORE = "task", "unit", "score"  # columns of runs
REPLICATES = 2000  # of bootstraps
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
    higher_is_better: whether higher scores are.
    tasks: the task of each run of a side; empty if a unit is no run on one task, as are the
      next two.
    sds: of each side, the standard deviation of a run on its task; NaN if no task has two
      runs.
    scores: (runs, tasks) of each side, of runs that are independent between tasks; also
      empty if there is one run on each.
  """

  column: str
  names: list[str]
  drawn: str
  means: pd.DataFrame
  errors: pd.DataFrame
  higher_is_better: bool
  tasks: Mapping[str, np.ndarray] = {}
  sds: Mapping[str, float] = {}
  scores: Mapping[str, np.ndarray] = {}

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
  first = next(iter(sides.values()))
  columns = {name: tasks_of(side.results) for name, side in sides.items()}
  column = next(filter(None, columns.values()), None)
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

  p = None
  if max(groups.size().max() for groups in of_tasks.values()) > 1:
    p = _p_of_shared_seeds(runs)
  drawn = _say_what_is_drawn(column, len(names), p)
  if left_out:
    drawn += f" Left out, since not all have runs there: {listed(left_out)}."
  on = OnTasks(column, names, drawn, means, errors, is_higher_better(first.info))
  if p is not None and p > ALPHA:
    scores = {name: _table(frame, names) for name, frame in runs.items()}
    on = on._replace(
      tasks={name: frame[TASK].to_numpy() for name, frame in runs.items()},
      sds={name: _sd_within(groups) for name, groups in of_tasks.items()},
    )
    if min(map(len, scores.values())) > 1:
      on = on._replace(scores=scores)
    # What tells tasks apart tells no two sides apart.
    ease = means.mean() - means.to_numpy().mean()
    for name, frame in runs.items():
      runs[name] = frame.assign(score=frame[SCORE] - frame[TASK].map(ease))

  changed = {}
  for name, side in sides.items():
    if p is None or on.tasks:
      units = _units(side, runs[name], column)
    else:
      kept = np.isin(side.results[column].values, names)
      of_side = side.results.isel(run=np.flatnonzero(kept))
      units = averaged_over(of_side, side.output, [column])
    changed[name] = side._replace(results=units, opened=units, levels={column: names})
  return changed, on


def _say_what_is_drawn(column: str, tasks: int, p: float | None) -> str:
  """Return a sentence; `p` is that of no seed being better on all tasks, None of one run
  on each.
  """
  if p is None:
    return (
      f"Pairs are the {tasks} values of {column}, with one score of each: sentences are "
      "about other ones of the kind, not about other runs."
    )
  if p <= ALPHA:
    return (
      f"Runs of one seed rise and fall together over {column} (Friedman: p = "
      f"{show(p, None, 'p')}), as of one network that is tested on all: a run stands for "
      f"its mean over {tasks} of them."
    )
  return (
    f"Runs are drawn anew on each of {tasks} values of {column}, and compared within it: "
    f"sentences are about other runs on these, not about other {column} values. If one "
    f"network was tested on all of them, average it over {column}."
  )


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
  tables = [
    frame.pivot(index=UNIT, columns=TASK, values=SCORE) for frame in runs.values()
  ]
  differences = [a - b for a, b in itertools.combinations(tables, 2)]
  for some in (differences, tables):
    p_values = np.array([friedman(table.dropna().to_numpy()) for table in some])
    known = p_values[np.isfinite(p_values)]
    if len(known):
      return min(1.0, len(known) * known.min())
  return 1.0


def friedman(scores: np.ndarray) -> float:
  """Return Friedman's p-value of rows that are alike, in blocks that are columns; NaN if
  all are equal, or too few.
  """
  rows, blocks = scores.shape
  # SciPy divides by what ties leave.
  if rows < 3 or blocks < 2 or (scores == scores[:1]).all():
    return np.nan
  return float(scipy.stats.friedmanchisquare(*scores).pvalue)


def within_tasks(
  comparison: Comparison, rows: Sequence[np.ndarray], on: OnTasks
) -> Comparison:
  """Return a comparison of runs with its difference within tasks."""
  first, second = comparison.names
  of_a, of_b = on.tasks[first][rows[0]], on.tasks[second][rows[1]]
  a, b = (as_performances(x, on.higher_is_better) for x in (comparison.a, comparison.b))
  if comparison.paired:
    found = stats.compare_within_tasks(a, b, of_a)
    outperforming = comparison.outperforming
  else:
    found = stats.compare_within_tasks(a, b, of_a, of_b)
    shares = [
      stats.probability_of_outperforming(a[of_a == task], b[of_b == task], paired=False)
      for task in on.names
    ]
    outperforming = (float(np.mean([float(share) for share in shares])), np.nan, np.nan)
  return comparison._replace(
    found=found, p_value=float(found.p_value), outperforming=outperforming
  )


# What all tasks say.


class Together(NamedTuple):
  """What all tasks together say.

  Attributes:
    on: the runs, and their tasks.
    sides: a row for each side: mean rank and interquartile mean, with their intervals.
    wins: (sides, sides), on which share of tasks the row is better.
    improvements: a row for each first and second of `improvements_of`.
    p_value: of no difference on tasks of the kind: Friedman's, of two sides Wilcoxon's.
    distance: by how much mean ranks differ by Nemenyi's test; None of two sides.
  """

  on: OnTasks
  sides: pd.DataFrame
  wins: pd.DataFrame
  improvements: pd.DataFrame
  p_value: float
  distance: float | None


def all_together(on: OnTasks, pairs: Sequence[tuple[str, str]]) -> Together:
  """Return what all tasks say of sides, and of the pairs that are compared."""
  names = list(on.means.index)
  performances = on.performances
  low, high = _ends_of_ranks(on)
  ranks = {
    "mean_rank": stats.mean_ranks(performances),
    "mean_rank_low": low,
    "mean_rank_high": high,
  }
  sides = pd.DataFrame(ranks, names)
  improvements = pd.DataFrame()
  if on.scores:
    sides = sides.join(interquartile_means_of(on.scores))
    improvements = improvements_of(on.scores, pairs, on.higher_is_better)
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
  return Together(on, sides, wins, improvements, p_value, distance)


def interquartile_means_of(scores: Mapping[str, np.ndarray]) -> pd.DataFrame:
  """Return a row for each side: its interquartile mean of (runs, tasks), and the ends of
  its interval by the bootstrap of runs, on each task for itself.
  """

  # Read once: `interquartile_mean` would check each of the resamples.
  def statistic(drawn: np.ndarray) -> np.ndarray:
    return mean_of_middle_half(drawn.ravel())

  rows = {}
  for name, of_side in scores.items():
    # A fixed key, so that a page that is written again has the same numbers.
    found = stats.stratified_bootstrap(
      statistic, of_side, key=jax.random.key(0), replicates=REPLICATES
    )
    rows[name] = map(float, (statistic(of_side), found.low, found.high))
  return pd.DataFrame.from_dict(rows, "index", columns=["iqm", "iqm_low", "iqm_high"])


def improvements_of(
  scores: Mapping[str, np.ndarray],
  pairs: Sequence[tuple[str, str]],
  higher_is_better: bool = True,
) -> pd.DataFrame:
  """Return a row for each two sides: the probability that a run of the first is better
  than one of the second on a task drawn at random, and the ends of its interval by the
  bootstrap of runs, on each task for itself.
  """
  rows = []
  for first, second in pairs:
    a = as_performances(scores[first], higher_is_better)
    b = as_performances(scores[second], higher_is_better)
    rng = _generator()
    shares = np.zeros(REPLICATES)
    # Many resamples at once, from who wins of each two runs.
    for of_a, of_b in zip(a.T, b.T, strict=True):
      wins = (of_a[:, None] > of_b) + (of_a[:, None] == of_b) / 2
      drawn_a = _times_drawn(rng, len(of_a))
      drawn_b = _times_drawn(rng, len(of_b))
      shares += np.sum(drawn_a @ wins * drawn_b, axis=1) / wins.size / a.shape[1]
    found = stats.from_replicates(shares)
    point = float(stats.probability_of_improvement(a, b))
    rows.append((first, second, point, float(found.low), float(found.high)))
  columns = ["first", "second", "probability", "low", "high"]
  return pd.DataFrame(rows, columns=columns)


def _generator() -> np.random.Generator:
  # A fixed seed, so that a page that is written again has the same numbers. JAX would
  # compile a program for each number of runs.
  return np.random.default_rng(0)


def _times_drawn(rng: np.random.Generator, runs: int) -> np.ndarray:
  """Return (replicates, runs): how often each run is drawn in as many draws."""
  return rng.multinomial(runs, np.full(runs, 1 / runs), REPLICATES)


def _ends_of_ranks(on: OnTasks) -> tuple[np.ndarray, np.ndarray]:
  """Return the ends of the sides' mean ranks: of other runs or, with one run on each, of
  other tasks. NaN where runs are not independent between tasks.
  """
  rng = _generator()
  if on.scores:
    means = np.zeros((len(on.scores), REPLICATES, len(on.names)))
    for side, scores in enumerate(on.scores.values()):
      for task, of_task in enumerate(scores.T):
        means[side, :, task] = _times_drawn(rng, len(scores)) @ of_task / len(scores)
    performances = as_performances(means, on.higher_is_better)
    ranks = scipy.stats.rankdata(-performances, axis=0).mean(axis=2)
  elif on.tasks or len(on.names) < 2:
    ranks = np.full((len(on.means), 2), np.nan)
  else:
    of_tasks = scipy.stats.rankdata(-on.performances, axis=0)
    ranks = of_tasks @ _times_drawn(rng, len(on.names)).T / len(on.names)
  found = stats.from_replicates(ranks.T)
  return found.low, found.high


# Sentences, tables, a figure.


def sentences(together: Together) -> list[str]:
  """Return what is known of other tasks."""
  on, distance = together.on, together.distance
  known = (
    f"For other {on.column} values of the kind, by the means on these {len(on.names)}: "
    f"p = {show(together.p_value, None, 'p')}"
  )
  if distance is None:
    return [f"{known} (Wilcoxon's signed ranks)."]
  ranks = together.sides["mean_rank"].sort_values()
  told = [
    f"{better} from {worse}"
    for better, worse in itertools.combinations(ranks.index, 2)
    if ranks[worse] - ranks[better] > distance
  ]
  return [
    f"{known} (Friedman) that all are alike; two differ by Nemenyi's test if their mean "
    f"ranks do by {distance:.2f}, which tells {listed(told) or 'none apart'}.",
    _WARNING,
  ]


def tables(together: Together, quantity: Quantity) -> list[Table]:
  """Return the tables of sides, of means, of wins and of improvements."""
  on, names = together.on, list(together.wins)
  found = [_table_of_sides(together, quantity)]
  means = []
  for task in on.names:
    cells = [str(task)]
    for mean, se in zip(on.means[task], on.errors[task], strict=True):
      cells.append(show(mean, se, quantity.unit))
    means.append(cells)
  caption = f"Mean {quantity.name} on each {on.column}, ± standard error over runs."
  found.append(Table(caption, ["", *names], means))
  if len(names) > 2:
    wins = together.wins.map(lambda share: show(share, None, "fraction"))
    wins = wins.mask(np.eye(len(names), dtype=bool), "–")
    rows = [[name, *cells] for name, cells in wins.T.items()]
    caption = f"On which share of {on.column} the row has the better mean."
    found.append(Table(caption, ["", *names], rows))
  if on.scores:
    caption = (
      "How often a run of the first is better than one of the second, on a "
      f"{on.column} drawn at random (Agarwal 2021)."
    )
    rows = rows_of_improvements(together.improvements)
    found.append(Table(caption, ("", "value", "95 % interval"), rows))
  return found


def _table_of_sides(together: Together, quantity: Quantity) -> Table:
  on = together.on
  kinds = {"mean_rank": "number"}
  headings = ["", "mean rank", "95 % interval"]
  caption = (
    f"All {len(on.names)} values of {on.column} together; intervals: bootstrap, "
  )
  if on.scores:
    kinds["iqm"] = quantity.unit
    headings += [f"interquartile mean of {quantity.name}", "95 % interval"]
    caption += (
      "other runs on these. The interquartile mean (Agarwal 2021) takes scores as they "
      "are: they must be comparable."
    )
  else:
    caption += "other values of the kind."
  rows = []
  for name, row in together.sides.iterrows():
    cells = [str(name)]
    for key, unit in kinds.items():
      cells.append(show(row[key], None, unit))
      cells.append(show_interval(row[f"{key}_low"], row[f"{key}_high"], unit))
    rows.append(cells)
  return Table(caption, headings, rows)


def rows_of_improvements(improvements: pd.DataFrame, end: str = "") -> list[list[str]]:
  """Return the cells of a table: name, value and interval."""
  rows = []
  for first, second, p, low, high in improvements.to_numpy().tolist():
    cells = show(p, None, "fraction"), show_interval(low, high, "fraction")
    rows.append([f"P({first} > {second}){end}", *cells])
  return rows


def section(together: Together, quantity: Quantity) -> Section:
  """Return the part of a page on all tasks together."""
  on, distance = together.on, together.distance
  told = sentences(together)
  figures = {}
  if distance is not None:
    ranks = together.sides["mean_rank"].to_dict()
    figures["ranks"] = Figure(
      "Mean ranks and the critical difference",
      f"Over {count_of(len(on.names), 'value')} of {on.column}; 1 is the best. Bars join "
      "those that Nemenyi's test does not tell apart (Demšar 2006).",
      functools.partial(plots.critical_difference, ranks, distance),
      1.6 + 0.35 * len(ranks),
      told[0],
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
    sentences=told,
    figures=figures,
    tables=tables(together, quantity),
  )


def record(together: Together) -> dict[str, Any]:
  """Return the numbers, ready for JSON, which has no NaN."""
  return {
    "column": together.on.column,
    "values": together.on.names,
    "sides": _without_nan(together.sides).to_dict("index"),
    "wins": together.wins.to_dict("index"),
    "probability_of_improvement": [
      {"names": [row.pop("first"), row.pop("second")], **row}
      for row in _without_nan(together.improvements).to_dict("records")
    ],
    "p_value": finite_or_none(together.p_value),
    "critical_difference": together.distance,
  }


def _without_nan(frame: pd.DataFrame) -> pd.DataFrame:
  return frame.astype(object).where(frame.notna(), None)
