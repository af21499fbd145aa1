"""Scores of several tasks taken together, as in rliable (Agarwal 2021)."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import Array, Given, safe_divide
from vmapseeds.stats.comparison import outperforming_share
from vmapseeds.stats.reading import read_key, read_reals
from vmapseeds.stats.resampling import Bootstrap, from_replicates

AXES = "runs tasks"


def interquartile_mean(scores: Given["runs tasks"]) -> Float[Array, ""]:
  """Return the mean of the middle half of all scores, of all runs and tasks together.

  Args:
    scores: (runs, tasks), normalised so that tasks can be compared.

  Returns:
    0-d; NaN without scores.

  Source: Agarwal 2021, section 4.3; as rliable's `aggregate_iqm`.

  >>> print(interquartile_mean([[0, 1], [2, 3], [4, 50]]))
  2.5
  """
  return mean_of_middle_half(read_reals("scores", scores, AXES).ravel())


def mean_of_middle_half(scores: Float[Array, "scores ..."]) -> Float[Array, "..."]:
  """Return the mean over the first axis of the middle half of the scores along it."""
  ordered = np.sort(scores, axis=0)
  cut = len(ordered) // 4
  middle = ordered[cut : len(ordered) - cut]
  return safe_divide(middle.sum(0), len(middle))


def probability_of_improvement(
  a: Given["runs tasks"],
  b: Given["runs tasks"],
) -> Float[Array, ""]:
  """Return the probability that a run of A has a higher score than one of B on a task
  drawn at random: the mean over tasks of `probability_of_outperforming`, unpaired.

  Args:
    a: (runs, tasks) scores of A, higher is better.
    b: (runs, tasks) scores of B on the same tasks; the numbers of runs may differ.

  Returns:
    0-d, from 0 to 1; NaN without runs or tasks.

  Source: Agarwal 2021, section 4.3; as rliable's `probability_of_improvement`.

  >>> print(probability_of_improvement([[1, 1], [2, 5]], [[0, 3], [2, 4]]))
  0.5625
  """
  a, b = _of_same_tasks(a, b)
  by_task = []
  for scores_a, scores_b in zip(a.T, b.T, strict=True):
    by_task.append(outperforming_share(scores_a, scores_b, paired=False))
  return safe_divide(sum(by_task), len(by_task))


def performance_profile(
  scores: Given["runs tasks"],
  thresholds: Given["thresholds"],
) -> Float[Array, "thresholds"]:
  """Return the fraction of all scores, of all runs and tasks, above each threshold.

  Args:
    scores: (runs, tasks), normalised so that tasks can be compared.
    thresholds: (thresholds,).

  Returns:
    (thresholds,), from 0 to 1; NaN without scores.

  Source: Agarwal 2021, section 4.2; as rliable's `create_performance_profile`.

  >>> performance_profile([[0, 1], [2, 3]], [0.5, 2])
  array([0.75, 0.25])
  """
  scores = read_reals("scores", scores, AXES)
  thresholds = read_reals("thresholds", thresholds, "thresholds")
  ordered = np.sort(scores, axis=None)
  # Scores that are equal to a threshold are not above it.
  not_above = np.searchsorted(ordered, thresholds, side="right")
  return safe_divide(len(ordered) - not_above, len(ordered))


def stratified_bootstrap(
  statistic: Callable[..., Any],
  *scores: Given["runs tasks"],
  key: jax.Array,
  level: float = 0.95,
  replicates: int = 2000,
) -> Bootstrap:
  """Return the standard error and interval of a statistic of scores: on each task, runs
  are drawn anew on their own.

  It answers what other runs on the same tasks would give.

  Args:
    statistic: takes as many arrays (runs, tasks) as are given.
    scores: (runs, tasks) scores of an algorithm, or of several.
    key: a JAX random key.
    level: the coverage of the interval, between 0 and 1.
    replicates: how many resamples.

  Returns:
    `se`, `low` and `high`, each of the shape that the statistic has.

  Source: Agarwal 2021, section 4.1; as rliable's `get_interval_estimates`.

  >>> found = stratified_bootstrap(
  ...   interquartile_mean, np.arange(40.0).reshape(20, 2), key=jax.random.key(0)
  ... )
  >>> print(13 < found.low < 19.5 < found.high < 26)
  True
  """
  arrays = [read_reals("scores", x, AXES) for x in scores]
  seed = np.asarray(jax.random.key_data(read_key(key))).tolist()
  rng = np.random.default_rng(seed)
  values = []
  for _ in range(check_at_least("replicates", replicates, 1)):
    resampled = []
    for x in arrays:
      # Each task draws runs of its own, so that its share of the scores stays.
      runs = rng.integers(0, max(1, len(x)), x.shape)
      resampled.append(x[runs, np.arange(x.shape[1])])
    values.append(statistic(*resampled))
  return from_replicates(values, level=level)


def _of_same_tasks(a: object, b: object) -> tuple[np.ndarray, np.ndarray]:
  a = read_reals("a", a, AXES)
  b = read_reals("b", b, AXES)
  if a.shape[1] != b.shape[1]:
    raise UserError(
      f"a has shape {a.shape} and b {b.shape}: give scores of the same tasks, axis 1"
    )
  return a, b
