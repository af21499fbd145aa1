"""Spreads a function of one lane over lanes, a fixed number at a time, on all devices."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from vmapseeds.lanes.choice import cache_folder

Shared = TypeVar("Shared")
Lane = TypeVar("Lane")
Out = TypeVar("Out")


def devices() -> list[jax.Device]:
  """All local devices, after what must be set before JAX starts, unless the user has set it.

  On a CPU, one XLA device a core. Compiled programs are kept in the user's cache folder, so that a resumed campaign
  does not compile again; `JAX_COMPILATION_CACHE_DIR` or `JAX_ENABLE_COMPILATION_CACHE=false` say otherwise.
  """
  if jax.config.jax_compilation_cache_dir is None:
    jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
  told = "JAX_NUM_CPU_DEVICES" in os.environ or "xla_force_host" in os.environ.get("XLA_FLAGS", "")
  if not told and jax.config.jax_num_cpu_devices == -1:
    # Once JAX has started, its devices are what they are.
    with contextlib.suppress(RuntimeError):
      jax.config.update("jax_num_cpu_devices", _cores())
  return jax.local_devices()


def _cores() -> int:
  """The cores this process may use; macOS has no affinity to ask."""
  return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _mesh(devices: Sequence[jax.Device]) -> Mesh:
  return Mesh(np.array(devices), ("lanes",), axis_types=(AxisType.Auto,))


def replicate(shared: Shared, devices: Sequence[jax.Device]) -> Shared:
  """`shared` on every device, to be put there once and given to `spread` functions many times."""
  return jax.device_put(shared, NamedSharding(_mesh(devices), P()))


def _step(function: Callable[[Shared, Lane], Out], mesh: Mesh) -> jax.stages.Wrapped:
  """`function` over as many lanes as it is given, an equal share on each device."""

  def share(shared, lanes):
    return jax.vmap(function, in_axes=(None, 0))(shared, lanes)

  specs = dict(in_specs=(P(), P("lanes")), out_specs=P("lanes"))
  return jax.jit(jax.shard_map(share, mesh=mesh, check_vma=False, **specs))


def compiled(
  function: Callable[[Shared, Lane], Out], shared: Shared, lanes: Lane, *, devices: Sequence[jax.Device]
) -> tuple[Callable[[], None], int]:
  """One step of `spread` compiled, to be measured.

  Returns:
    A function that runs the step with these arguments and waits for it, and the bytes it needs on each device.
  """
  mesh = _mesh(devices)
  args = replicate(shared, devices), jax.device_put(lanes, NamedSharding(mesh, P("lanes")))
  step = _step(function, mesh).lower(*args).compile()
  memory = step.memory_analysis()
  parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
  return lambda: jax.block_until_ready(step(*args)), sum(getattr(memory, part, 0) for part in parts)


def spread(
  function: Callable[[Shared, Lane], Out], *, width: int, devices: Sequence[jax.Device] | None = None
) -> Callable[[Shared, Lane], Iterator[tuple[slice, Out]]]:
  """`function(shared, lane)` over a leading lane axis, `width` lanes a device at a time.

  Every step has the same shape: the last lanes are padded with copies of the last one, and the copies dropped. So one
  compilation serves any number of lanes, and a lane's result depends on that lane and `width` alone.

  Returns:
    `spread_function(shared, lanes)`: yields (which lanes, their outputs as NumPy arrays with a leading lane axis) step
    by step. A step is started before the one before it is yielded, so that devices do not wait for whoever reads.
  """
  devices = jax.local_devices() if devices is None else devices
  mesh = _mesh(devices)
  step_size = width * len(devices)
  step = _step(function, mesh)

  def spread_function(shared, lanes: PyTree):
    shared = replicate(shared, devices)  # copies nothing that is there already
    count = len(jax.tree.leaves(lanes)[0])
    started = None
    for start in range(0, count, step_size):
      rows = np.minimum(np.arange(start, start + step_size), count - 1)
      lane_step = jax.tree.map(lambda a: np.asarray(a)[rows], lanes)
      out = step(shared, jax.device_put(lane_step, NamedSharding(mesh, P("lanes"))))
      if started:
        yield fetched(*started)
      started = slice(start, min(start + step_size, count)), out
    if started:
      yield fetched(*started)

  def fetched(rows: slice, out):
    return rows, jax.tree.map(lambda a: np.asarray(a)[: rows.stop - rows.start], out)

  return spread_function
