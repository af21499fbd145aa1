"""Tallies to which runs are added on the devices that hold the runs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Bool, Int, Integer

from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.stats._arrays import Array, Given
from vmapseeds.stats.device_counts import (
  add_joint_errors,
  count_half_errors,
  count_votes,
  in_one_type,
  mirror,
  no_joint_errors,
)
from vmapseeds.stats.reading import read_classes

_RUNS = 4096


class DeviceTallies(NamedTuple):
  """Tallies to which runs are added on the devices that hold the runs. The first axis
  of each array is devices.

  `zeros` makes them, `update` adds runs, and `fetch` makes a `Tallies` of them. Until
  then devices exchange nothing. Joint errors are counted many runs at a time, from
  `recent`.
  """

  labels: Int[jax.Array, "devices examples"]
  votes: Int[jax.Array, "devices examples classes"]
  half_errors: Int[
    jax.Array, "devices capacity 2"
  ]  # each run's errors on even and on odd examples; -1 if left out
  runs: Int[jax.Array, " devices"]  # how many places of half_errors are taken
  joint_errors: (
    Int[jax.Array, "devices padded padded"] | None
  )  # on and above the diagonal
  recent: (
    Bool[jax.Array, "devices places examples"] | None
  )  # errors not yet in joint_errors; 0 in places not taken
  waiting: Int[jax.Array, " devices"]  # how many places of recent are taken


def zeros(
  labels: Given["examples"],
  num_classes: int,
  *,
  capacity: int,
  pairs: bool = False,
  devices: Sequence[jax.Device] | None = None,
) -> DeviceTallies:
  """Tallies of no runs, to be updated on devices.

  Args:
    labels: (examples,), class indices.
    num_classes: how many classes there are.
    capacity: how many runs each device may be given; takes 8 bytes a run.
    pairs: as in `tally`; takes 4 bytes a pair of examples on each device, and up to
      4,096 bytes an example.
    devices: all local devices by default.

  Raises:
    Mistake: labels not 0 to num_classes - 1, or a number out of range.
  """
  num_classes, capacity = (
    at_least("num_classes", num_classes, 1),
    at_least("capacity", capacity, 0),
  )
  labels = np.asarray(read_classes("labels", labels, "examples", num_classes), np.int32)
  mesh = Mesh(np.array(jax.local_devices() if devices is None else devices), ("lanes",))
  padded = len(jax.eval_shape(lambda: no_joint_errors(len(labels))))
  each = NamedSharding(mesh, PartitionSpec("lanes"))

  def nothing(*shape: int, dtype: type = jnp.int32) -> jax.Array:
    return jnp.zeros((mesh.size, *shape), dtype, device=each)

  return DeviceTallies(
    labels=jax.device_put(np.broadcast_to(labels, (mesh.size, len(labels))), each),
    votes=nothing(len(labels), num_classes),
    half_errors=nothing(capacity, 2),
    runs=nothing(),
    joint_errors=nothing(padded, padded) if pairs else None,
    recent=nothing(min(capacity, _RUNS), len(labels), dtype=bool) if pairs else None,
    waiting=nothing(),
  )


def update(
  tallies: DeviceTallies,
  predictions: Integer[np.ndarray | jax.Array, "runs examples"],
  counted: Bool[Array, "runs"] | None = None,
) -> DeviceTallies:
  """Adds runs on their devices, in place: nothing is fetched, and the buffers of the
  given tallies are donated.

  Args:
    tallies: from `zeros` or `update`.
    predictions: (runs, examples), class indices, an equal share of the runs on each
      device, of at most 4,096 each. They are not checked: a number that is no class is
      an error and no vote.
    counted: (runs,), which of the runs to count, by default all: leave out those that
      diverged or pad a last step.

  Raises:
    Mistake: another number of examples, runs that devices cannot share equally, more
      runs at once than a device's capacity, or more than 4,096 on a device.
  """
  each = tallies.votes.sharding
  devices, examples = tallies.labels.shape
  share, left = divmod(len(predictions), devices)
  if left or predictions.shape[1:] != (examples,):
    wanted = f"(runs, {examples}), as many runs on each of {devices} devices"
    raise Mistake(f"predictions has shape {predictions.shape}: give {wanted}")
  _check_places(tallies, share)
  if share > _RUNS:
    raise Mistake(f"{share} runs at once on a device: give at most {_RUNS}")
  return _on_each(_add, each)(tallies, *jax.device_put((predictions, counted), each))


def fetch(tallies: DeviceTallies) -> Any:
  """What all devices have counted together, in NumPy.

  Args:
    tallies: from `zeros` or `update`; they must not be used again.

  Raises:
    Mistake: a device was given more runs than its capacity.
  """
  return _fetched(tallies, [_half_errors_of(tallies)])


def _half_errors_of(tallies: DeviceTallies) -> Int[np.ndarray, "2 runs"]:
  """The numbers of errors on both halves of the counted runs that `half_errors` holds
  now.
  """
  runs = np.asarray(tallies.runs)
  _check_places(tallies, runs.max())
  found = [
    places[:n] for places, n in zip(np.asarray(tallies.half_errors), runs, strict=True)
  ]
  found = np.concatenate(found)
  return found[found[:, 0] >= 0].T.astype(np.int64)


def _check_places(tallies: DeviceTallies, runs: int) -> None:
  if runs > (capacity := tallies.half_errors.shape[1]):
    raise Mistake(
      f"tallies of {runs} runs on a device: make them with a capacity of as many, not {capacity}"
    )


def _fetched(tallies: DeviceTallies, half_errors: list[Int[np.ndarray, "2 _"]]) -> Any:
  from vmapseeds.stats.tallies import Tallies

  labels, joint = np.asarray(tallies.labels)[0], None
  half_errors = np.concatenate([np.zeros((2, 0), np.int64), *half_errors], axis=1)
  if tallies.joint_errors is not None:
    finish = _on_each(_finished, tallies.votes.sharding)
    joint = _of_all(finish(tallies.joint_errors, tallies.recent))[
      : len(labels), : len(labels)
    ]
  return Tallies.from_counts(labels, _of_all(tallies.votes), half_errors, joint)


def _of_all(counts: Int[jax.Array, "devices ..."]) -> Int[np.ndarray, "..."]:
  return np.asarray(counts if len(counts) == 1 else counts.sum(0, keepdims=True))[0]


@functools.cache
def _on_each(function: Callable, sharding: Any) -> Callable:
  """`function` on each device separately; its first argument is donated to the result."""
  mesh, each = sharding.mesh, sharding.spec
  platform = mesh.devices.flat[0].platform

  def alone(first, *others):
    out = function(jax.tree.map(lambda x: x[0], first), *others, platform)
    return jax.tree.map(lambda x: x[None], out)

  return jax.jit(
    jax.shard_map(alone, mesh=mesh, in_specs=each, out_specs=each, check_vma=False),
    donate_argnums=0,
  )


def _add(
  tallies: DeviceTallies,
  predictions: jax.Array,
  counted: jax.Array | None,
  platform: str,
) -> DeviceTallies:
  """`update` on one device; the arrays are without the axis of devices."""
  num_classes, joint = tallies.votes.shape[1], tallies.joint_errors
  predictions = in_one_type(predictions, num_classes)
  if counted is not None:
    predictions = jnp.where(counted[:, None], predictions, -1)
  # Each is a pass of its own: fused into the counting, they would make it several times
  # slower.
  predictions = lax.optimization_barrier(predictions)
  wrong = lax.optimization_barrier(
    predictions != tallies.labels.astype(predictions.dtype)[None]
  )
  places = count_half_errors(wrong)
  if counted is not None:
    places, wrong = jnp.where(counted[:, None], places, -1), counted[:, None] & wrong
  recent, waiting = tallies.recent, tallies.waiting
  if joint is not None and recent is not None:
    full = waiting + len(wrong) > len(recent)
    # A loop of at most one iteration updates the counts in place; `lax.cond` might copy
    # them.
    joint, recent = lax.fori_loop(
      0,
      full.astype(jnp.int32),
      lambda _, x: (add_joint_errors(*x), jnp.zeros_like(x[1])),
      (joint, recent),
    )
    waiting = jnp.where(full, 0, waiting)
    recent = lax.dynamic_update_slice_in_dim(recent, wrong, waiting, 0)
    waiting += len(wrong)
  return DeviceTallies(
    labels=tallies.labels,
    votes=tallies.votes + count_votes(predictions, num_classes),
    half_errors=lax.dynamic_update_slice_in_dim(
      tallies.half_errors, places, tallies.runs, 0
    ),
    runs=tallies.runs + len(predictions),
    joint_errors=joint,
    recent=recent,
    waiting=waiting,
  )


def _finished(joint: jax.Array, recent: jax.Array, platform: str) -> jax.Array:
  """The joint counts of all runs, also those of `recent`, on both sides of the
  diagonal.
  """
  return mirror(add_joint_errors(joint, recent[0]))
