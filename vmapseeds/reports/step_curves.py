"""Learning curves of a table of scores with a column of steps: the interquartile mean of
the runs of each side at each step, with its interval (Agarwal 2021, sample efficiency).
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

from vmapseeds import stats
from vmapseeds.reports import plots
from vmapseeds.reports.documents import Figure
from vmapseeds.reports.sides import Side
from vmapseeds.results.formatting import Quantity, count_of
from vmapseeds.results.score_tables import ScoreTable
from vmapseeds.results.table_files import listed
from vmapseeds.stats.aggregates import mean_of_middle_half

MOST_STEPS = 100  # that are drawn


class StepCurves(NamedTuple):
  """The curves of several sides.

  Attributes:
    table: a row for each side and step: `iqm`, `low` and `high` (95 % interval over other
      runs), and `runs`.
    step: what the column of steps is called.
    left_out: a sentence for each side whose runs reach different steps.
  """

  table: pd.DataFrame
  step: str
  left_out: list[str]


def curves_of(sides: Mapping[str, Side]) -> StepCurves | None:
  """Return the curves of sides that are rows of tables with several steps of each run;
  None of others.

  A step is in a side's curve if all of its runs have it: a mean over fewer and fewer runs
  would change with who is left.
  """
  rows, left_out = [], []
  step = ""
  for name, side in sides.items():
    table = side.folder
    if not isinstance(table, ScoreTable) or table.curves is None:
      return None
    step, task = table.curves.step, table.curves.task
    scores = _scores_of(table, side)
    is_whole = scores.notna().all()
    if not is_whole.all():
      left_out.append(_say_left_out(name, scores, step))
    scores = scores.loc[:, is_whole]
    if scores.shape[1] < 2:
      continue
    drawn = np.unique(
      np.linspace(0, scores.shape[1] - 1, MOST_STEPS).round().astype(int)
    )
    scores = scores.iloc[:, drawn]
    groups = scores.groupby(level=task) if task else [("", scores)]
    of_tasks = [frame.to_numpy() for _, frame in groups]
    # Each task draws runs of its own, and each step is asked for itself.
    found = stats.stratified_bootstrap(_iqm_of_steps, *of_tasks, key=jax.random.key(0))
    of_side = pd.DataFrame(
      {"iqm": _iqm_of_steps(*of_tasks), "low": found.low, "high": found.high}
    )
    rows.append(of_side.assign(name=name, step=scores.columns, runs=len(scores)))
  if not rows:
    return None
  frame = pd.concat(rows).set_index(["name", "step"])
  return StepCurves(frame, step, left_out)


def _scores_of(table: ScoreTable, side: Side) -> pd.DataFrame:
  """Return a side's score of each run, a row, at each step, a column; of folds the mean."""
  assert table.curves is not None
  frame = table.curves.frame.dropna(subset=side.output)
  for column, values in (side.where or {}).items():
    frame = frame[frame[column].isin(np.atleast_1d(values))]
  runs = table.curves.runs or ["table"]
  frame = frame.assign(table=table.name)
  means = frame.groupby([*runs, table.curves.step])[side.output].mean()
  return means.unstack().sort_index(axis=1)


def _iqm_of_steps(*of_tasks: np.ndarray) -> np.ndarray:
  """Return the interquartile mean at each step of (runs, steps) of each task."""
  return mean_of_middle_half(np.concatenate(of_tasks))


def _say_left_out(name: str, scores: pd.DataFrame, step: str) -> str:
  missing = scores.columns[scores.isna().any()]
  lacking = scores[scores.isna().any(axis=1)]
  runs = []
  for run in lacking.index.to_frame().to_dict("records"):
    runs.append(" ".join(f"{column}={value}" for column, value in run.items()))
  return (
    f"The curve of {name} is without {count_of(len(missing), 'step')}, from {step} "
    f"{missing[0]} on, which {len(lacking)} of {count_of(len(scores), 'run')} have not: "
    f"{listed(runs, 3)}."
  )


def figure_of_curves(curves: StepCurves, quantity: Quantity) -> Figure:
  """Return the picture of the curves."""
  last = curves.table.groupby(level="name", sort=False).tail(1)
  findings = [
    f"{row['name']} has {quantity.scale * row['iqm']:.3g} at {curves.step} {row['step']}"
    for row in last.reset_index().to_dict("records")
  ]
  return Figure(
    f"Interquartile mean of {quantity.name} at each {curves.step}",
    "Of all runs, on all tasks together (Agarwal 2021); bands: 95 % interval, bootstrap of "
    f"the runs, on each task for itself. {' '.join(curves.left_out)}".strip(),
    functools.partial(plots.step_curves, curves.table, curves.step, of=quantity),
    finding=f"{', '.join(findings)}.",
  )
