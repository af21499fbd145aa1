"""Algorithms on several tasks: a test within tasks, ranks, and who beats whom on how many.

Scores are higher where better.
"""

import math

import jax
import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide
from vmapseeds.stats.comparison import read_performances
from vmapseeds.stats.differences import (
  DRAWN,
  Difference,
  compare_means,
  seed_of,
  typical_interval,
)
from vmapseeds.stats.reading import read_level, read_reals, refuse_traced

AXES = "algorithms tasks"


def compare_within_tasks(
  a: Given["runs"],
  b: Given["runs"],
  tasks: Given["runs"],
  tasks_of_b: Given["runs"] | None = None,
  *,
  key: jax.Array | None = None,
  level: float = 0.95,
) -> Difference:
  """Return the mean over tasks of mean A - mean B, with an interval and a p-value for
  other runs on these tasks.

  Runs are rearranged within their task alone, as in `compare_means`: so a few runs on each
  of several tasks may tell together what those of one task cannot. Runs on two tasks must
  be independent: not of one network that was tested on both.

  The interval is for a difference that all tasks share; where tasks differ in it, it is
  wider than needed. Of unpaired runs it also holds Welch's interval, with variances of
  each task.

  Args:
    a: (runs,) scores of A.
    b: (runs,) scores of B; run i is paired with a's, on the same task, unless `tasks_of_b`
      is given.
    tasks: (runs,) the task of each run of A: numbers or names.
    tasks_of_b: (runs of B,) likewise of B, if runs are not paired. At least two runs of
      either on each task.
    key: a JAX random key for the rearrangements; by default a fixed one.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `difference`, `low`, `high`, `p_value`, 0-d. With runs that are too few the ends are
    infinite.

  Raises:
    UserError: the shapes differ, or A and B were run on different tasks.

  Source: ours; Fisher 1935; Hartigan 1969; Welch 1947.

  >>> a, b = [5, 6, 7, 50, 52, 55], [4, 4, 6, 48, 51, 51]
  >>> found = compare_within_tasks(a, b, [0, 0, 0, 1, 1, 1])
  >>> print(found.difference.round(3), found.p_value)
  1.833 0.03125
  """
  paired = tasks_of_b is None
  a, b = read_performances(a, b, paired)
  groups_a = _groups("tasks", tasks, len(a))
  groups_b = groups_a
  if not paired:
    groups_b = _groups("tasks_of_b", tasks_of_b, len(b))
  if groups_a.keys() != groups_b.keys():
    alone = sorted(map(str, groups_a.keys() ^ groups_b.keys()))
    raise UserError(
      f"one of A and B alone has runs on {', '.join(alone)}: give runs on the same tasks"
    )
  sizes = {len(rows) for rows in groups_a.values()}
  if paired and len(sizes) <= 1:
    # All pairs count the same.
    return compare_means(a, b, key=key, level=level)

  outside, upper = read_level(level)
  rng = np.random.default_rng(seed_of(key))
  weights_a = _weights(groups_a, len(a))
  weights_b = _weights(groups_b, len(b))
  difference = weights_a @ a - weights_b @ b
  if paired:
    # A pair that is exchanged takes its part of the difference to the other side.
    exchanged = rng.integers(0, 2, (DRAWN, len(a)))
    values = safe_divide(exchanged @ (weights_a * (a - b)), exchanged @ weights_a)
  else:
    if min(len(rows) for rows in (*groups_a.values(), *groups_b.values())) < 2:
      ends = as_float64(-np.inf), as_float64(np.inf)
      return Difference(as_float64(difference), *ends, as_float64(1.0))
    values = _differences_of_rearranged(a, b, groups_a, groups_b, rng)
  # Sums that are 0 but for rounding are ties.
  values[np.abs(values) < 1e-12 * np.abs(np.r_[a, b]).max()] = 0
  low, high, p = typical_interval(values, outside)
  if not paired:
    normal = _welch(a, b, groups_a, groups_b, upper)
    low, high, p = min(low, normal[0]), max(high, normal[1]), max(p, normal[2])
  return Difference(*map(as_float64, (difference, low, high, p)))


def _groups(what: str, tasks: object, runs: int) -> dict[object, np.ndarray]:
  """Return task -> the places of its runs."""
  refuse_traced(what, tasks)
  labels = np.asarray(tasks)
  if labels.shape != (runs,):
    raise UserError(
      f"{what} has shape {labels.shape} beside {runs} runs: give the task of each run"
    )
  return {
    label: np.flatnonzero(labels == label) for label in np.unique(labels).tolist()
  }


def _weights(groups: dict[object, np.ndarray], runs: int) -> np.ndarray:
  """Return with which weight each run enters the mean over tasks of means over runs."""
  weights = np.zeros(runs)
  for rows in groups.values():
    weights[rows] = 1 / (len(groups) * len(rows))
  return weights


def _differences_of_rearranged(
  a: np.ndarray,
  b: np.ndarray,
  groups_a: dict[object, np.ndarray],
  groups_b: dict[object, np.ndarray],
  rng: np.random.Generator,
) -> Float[np.ndarray, " rearrangements"]:
  """Return the differences at which each rearrangement within tasks would be as far out
  as the runs as they are; NaN for one that changes nothing.
  """
  moved = np.zeros(DRAWN)
  share = np.zeros(DRAWN)
  for task, rows in groups_a.items():
    runs = np.r_[a[rows], b[groups_b[task]]]
    n, others = len(rows), len(runs) - len(rows)
    is_a = np.tile(np.arange(len(runs)) < n, (DRAWN, 1))
    is_a = rng.permuted(is_a, axis=1)
    weights = np.where(is_a, 1 / n, -1 / others)
    as_they_are = np.where(np.arange(len(runs)) < n, 1 / n, -1 / others)
    moved += (as_they_are - weights) @ runs
    # How much of a difference that A's runs have leaves with them.
    share += 1 - weights[:, :n].sum(axis=1)
  changed = np.where(np.abs(share) < 1e-9, 0, share)
  return safe_divide(moved, changed)


def _welch(
  a: np.ndarray,
  b: np.ndarray,
  groups_a: dict[object, np.ndarray],
  groups_b: dict[object, np.ndarray],
  upper: float,
) -> tuple[float, float, float]:
  """Return the ends and the p-value by the variances of each task, Welch's."""
  variance = terms = difference = 0.0
  for task in groups_a:
    for sign, runs in ((1, a[groups_a[task]]), (-1, b[groups_b[task]])):
      part = runs.var(ddof=1) / len(runs) / len(groups_a) ** 2
      variance += part
      terms += part**2 / (len(runs) - 1)
      difference += sign * runs.mean() / len(groups_a)
  if not variance:
    return difference, difference, 0.0 if difference else 1.0
  se, freedom = math.sqrt(variance), variance**2 / terms
  reach = scipy.special.stdtrit(freedom, upper) * se
  p = 2 * scipy.stats.t.sf(abs(difference) / se, freedom)
  return difference - reach, difference + reach, p


def mean_ranks(scores: Given["algorithms tasks"]) -> Float[Array, " algorithms"]:
  """Return the mean rank of each algorithm over tasks: 1 is the best, ties share theirs.

  It needs no scores that are comparable between tasks; but a mean rank depends on the
  other algorithms.

  Args:
    scores: (algorithms, tasks), such as means over runs.

  Returns:
    (algorithms,), from 1 to how many algorithms there are; NaN without tasks.

  Source: Demšar 2006, section 3.2.2.

  >>> mean_ranks([[0.9, 0.8, 0.7], [0.8, 0.7, 0.9], [0.8, 0.6, 0.5]])
  array([1.33333333, 1.83333333, 2.83333333])
  """
  scores = read_reals("scores", scores, AXES)
  ranks = scipy.stats.rankdata(-scores, axis=0)
  return safe_divide(ranks.sum(axis=1), scores.shape[1])


def critical_difference(
  algorithms: int, tasks: int, *, level: float = 0.95
) -> Float[Array, ""]:
  """Return by how much the mean ranks of two of several algorithms must differ for them to
  differ by Nemenyi's test: q √(k (k + 1)/(6 N)), with q the quantile of the studentised
  range of k over √2.

  Tasks are what is drawn anew, and the spread of runs is not looked at. Whether two
  differ depends on which others are compared.

  Args:
    algorithms: k, at least 2.
    tasks: N, at least 1.
    level: one less the error rate of all comparisons together.

  Source: Demšar 2006, section 3.2.2; the warning: Benavoli, Corani and Mangili 2016.

  >>> print(critical_difference(4, 14).round(3))
  1.254
  """
  k = check_at_least("algorithms", algorithms, 2)
  n = check_at_least("tasks", tasks, 1)
  read_level(level)
  q = scipy.stats.studentized_range.ppf(level, k, np.inf) / math.sqrt(2)
  return as_float64(q * math.sqrt(k * (k + 1) / (6 * n)))


def win_matrix(
  scores: Given["algorithms tasks"],
) -> Float[Array, "algorithms algorithms"]:
  """Return on which share of the tasks each algorithm, a row, has a higher score than each
  other one, a column; a tie is half a win.

  Args:
    scores: (algorithms, tasks), such as means over runs.

  Returns:
    (algorithms, algorithms), from 0 to 1; ½ on the diagonal. NaN without tasks.

  Source: Demšar 2006, section 3.1.4, whose counts of wins these are, as shares.

  >>> win_matrix([[0.9, 0.8, 0.7], [0.8, 0.7, 0.9]])
  array([[0.5       , 0.66666667],
         [0.33333333, 0.5       ]])
  """
  scores = read_reals("scores", scores, AXES)
  higher = scores[:, None] > scores
  equal = scores[:, None] == scores
  return safe_divide((higher + equal / 2).sum(axis=2), scores.shape[1])
