"""Count runs inside the jitted evaluation, one set of counts for each combination of
swept values, so that predictions need not leave the devices.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Integer

from vmapseeds import lanes
from vmapseeds.stats.counting import (
  RunCounts,
  add_runs,
  joint_error_counts,
  no_runs,
)
from vmapseeds.training.names import DIVERGED
from vmapseeds.training.outputs import sibling


class BlockCounts(NamedTuple):
  """Counts over the runs of a block, of one class output on one device."""

  of_combinations: RunCounts  # with a first axis of combinations, without joint errors
  # For joint errors, which are counted when a block is done, else None: bool (runs,
  # examples), and int (runs,), the combination of each.
  errors: Any
  combination: Any
  runs: Any  # how many lanes were added, counted or not


def make_empty_counts(
  combinations: int,
  examples: int,
  classes: int,
  runs: int | None = None,
) -> BlockCounts:
  """Return counts over no runs; with `runs`, room for the errors of so many."""
  nothing = no_runs(examples, classes)
  of_combinations = jax.tree.map(lambda a: np.stack([a] * combinations), nothing)
  errors = combination = None
  if runs is not None:
    errors = np.zeros((runs, examples), bool)
    combination = np.full(runs, -1, np.int32)
  return BlockCounts(of_combinations, errors, combination, np.int32(0))


def add_step(
  counts: BlockCounts,
  predictions: Integer[Array, "lanes examples"],
  labels: Int[Array, " examples"],
  combination: Int[Array, " lanes"],
) -> BlockCounts:
  """Add the runs of a step. Those of combination -1 are not counted, nor are votes of
  -1.
  """
  of_combinations, errors, kept, runs = counts
  belongs = jnp.arange(len(of_combinations.runs))[:, None] == combination[None]
  wrong = predictions != labels.astype(predictions.dtype)[None]
  add = jax.vmap(add_runs, (0, None, None, 0))
  of_combinations = add(of_combinations, predictions, wrong, belongs)
  if errors is not None:
    start = (runs, np.int32(0))
    errors = jax.lax.dynamic_update_slice(errors, wrong, start)
    kept = jax.lax.dynamic_update_slice(kept, combination, start[:1])
  return BlockCounts(of_combinations, errors, kept, runs + len(predictions))


def name_counts(
  carry: dict[str, BlockCounts],
) -> dict[str, Int[Array, "combinations ..."]]:
  """Return the counts by the names of a folder's arrays."""
  arrays = {}
  for name, counts in carry.items():
    arrays[sibling(name, "votes")] = counts.of_combinations.votes
    arrays[sibling(name, "counted")] = counts.of_combinations.runs
    if counts.errors is not None:
      arrays[sibling(name, "joint_errors")] = joint_errors_of_block(counts)
  return arrays


def joint_errors_of_block(
  counts: BlockCounts,
) -> Int[Array, "combinations examples examples"]:
  """Return how many runs have both of two examples wrong."""

  def of_combination(number):
    belongs = counts.combination == number
    return joint_error_counts(counts.errors & belongs[:, None])

  # One combination after another: together they would take as many copies of the errors.
  combinations = jnp.arange(len(counts.of_combinations.runs))
  return jax.lax.map(of_combination, combinations)


Reduce = Callable[..., tuple[dict[str, BlockCounts], dict[str, Array]]]


def make_reduce(tallied: Collection[str], fetched: Collection[str]) -> Reduce:
  """Return the reduction of an evaluation, for `lanes.Stages`.

  Args:
    tallied: the class outputs that are counted.
    fetched: the outputs that are fetched.
  """

  def reduce(shared, carry, outputs, combination):
    _, labels = shared
    # Runs that diverged predict nothing: they belong to no combination.
    if DIVERGED in outputs:
      combination = jnp.where(outputs[DIVERGED], -1, combination)
    carry = {
      name: add_step(carry[name], outputs[name], labels[name], combination)
      for name in tallied
    }
    return carry, {name: outputs[name] for name in fetched}

  return reduce


def counts_by_array(
  carry: dict[str, BlockCounts], devices: Sequence[jax.Device]
) -> dict[str, Int[np.ndarray, "combinations ..."]]:
  """Return the counts of a block over all devices, by the names of the folder's
  arrays.
  """
  return lanes.sum_over_devices(name_counts, carry, devices)
