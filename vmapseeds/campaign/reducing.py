"""Count runs inside the jitted evaluation: votes and errors, one set for each
combination of swept values, so that predictions need not leave the devices.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Integer

from vmapseeds import lanes
from vmapseeds.stats.device_counts import joint_error_counts
from vmapseeds.training.names import DIVERGED
from vmapseeds.training.outputs import sibling


class BlockCounts(NamedTuple):
  """Counts over the runs of a block, of one class output on one device."""

  votes: Any  # int (combinations, examples, classes)
  counted: Any  # int (combinations,): how many runs were counted
  # For joint errors, else None: bool (runs, examples), and int (runs,), the combination
  # of each.
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
  votes = (combinations, examples, classes)
  counted = (combinations,)
  errors = combination = None
  if runs is not None:
    errors = np.zeros((runs, examples), bool)
    combination = np.full(runs, -1, np.int32)
  return BlockCounts(
    np.zeros(votes, np.int32),
    np.zeros(counted, np.int32),
    errors,
    combination,
    np.int32(0),
  )


def add_step(
  counts: BlockCounts,
  predictions: Integer[Array, "lanes examples"],
  labels: Int[Array, " examples"],
  combination: Int[Array, " lanes"],
) -> BlockCounts:
  """Add the runs of a step. Those of combination -1 are not counted, nor are votes of
  -1.
  """
  combinations, _, classes = counts.votes.shape
  belongs = combination[:, None] == jnp.arange(combinations)[None]
  votes = predictions[..., None] == jnp.arange(classes)[None, None]
  # Products of whole numbers below 2²⁴ are exact in float32.
  added = jnp.einsum(
    "lc,lek->cek", belongs.astype(jnp.float32), votes.astype(jnp.float32)
  )
  errors = counts.errors
  kept = counts.combination
  if errors is not None:
    wrong = predictions != labels.astype(predictions.dtype)
    start = (counts.runs, np.int32(0))
    errors = jax.lax.dynamic_update_slice(errors, wrong, start)
    kept = jax.lax.dynamic_update_slice(kept, combination, start[:1])
  return BlockCounts(
    counts.votes + added.astype(jnp.int32),
    counts.counted + belongs.sum(0, dtype=np.int32),
    errors,
    kept,
    counts.runs + len(predictions),
  )


def name_counts(counts: BlockCounts) -> dict[str, Int[Array, "combinations ..."]]:
  """Return the counts by the names of a folder's arrays."""
  arrays = {"votes": counts.votes, "counted": counts.counted}
  if counts.errors is not None:

    def joint_errors(is_counted):
      return joint_error_counts(counts.errors & is_counted[:, None])

    # One combination after another: together they would take as many copies of the errors.
    number = jnp.arange(len(counts.votes))[:, None]
    runs_of_each = counts.combination[None, :] == number
    arrays["joint_errors"] = jax.lax.map(joint_errors, runs_of_each)
  return arrays


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
  counts_by_output = lanes.sum_over_devices(name_all_counts, carry, devices)
  arrays = {}
  for name, counts in counts_by_output.items():
    for array, values in counts.items():
      arrays[sibling(name, array)] = values
  return arrays


def name_all_counts(carry):
  """Return `name_counts` of each class output's counts."""
  return {name: name_counts(counts) for name, counts in carry.items()}
