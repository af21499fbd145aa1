"""The memory of devices: what is free, what lanes need by JAX's memory analysis, and
the narrower lane width after running out.
"""

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from vmapseeds.lanes.spreading import (
  Stages,
  compile_programs,
  memory_of_program,
  shapes_on_devices,
)
from vmapseeds.machine import free_host_memory
from vmapseeds.target import compiling_for

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class MemoryFit(NamedTuple):
  """Whether lanes that advance together fit in memory."""

  fits: bool
  # Of the larger of the programs that advance and finish, on each device. None: unknown
  memory_bytes: float | None
  available_bytes: float  # to a program, on each device


def compile_stages(
  stages: Stages,
  shared: PyTree,
  lanes: PyTree,
  devices: Sequence[jax.Device],
  available: float,
) -> tuple[MemoryFit, Any]:
  """Compile lanes without running them.

  Args:
    stages: the function of one lane.
    shared: what all lanes read: arrays or `jax.ShapeDtypeStruct`s.
    lanes: each lane's own arrays, or their shapes, with a leading axis of the lanes
      that advance together.
    devices: the devices to compile for.
    available: bytes that a program can have on each of them.

  Returns:
    Whether they fit, and the compiled program that advances them, None if not.
  """
  shared = shapes_on_devices(shared, devices, of_lanes=False)
  lanes = shapes_on_devices(lanes, devices, of_lanes=True)
  count = jax.tree.leaves(lanes)[0].shape[0]
  with compiling_for(devices[0].platform):
    start, advance, finish = compile_programs(stages, devices)
    state = shapes_on_devices(start.eval_shape(shared, lanes), devices, of_lanes=True)
    number = shapes_on_devices(np.int32(0), devices, of_lanes=False)
    try:
      program = advance.lower((shared, number, number), lanes, state).compile()
      marks = jax.ShapeDtypeStruct((count,), np.int32)
      marks = shapes_on_devices(marks, devices, of_lanes=True)
      finished = finish.lower(shared, lanes, state, (), marks).compile()
    except jax.errors.JaxRuntimeError as error:
      if not is_out_of_memory(error):
        raise
      return MemoryFit(False, parse_oom_message(error)[0], available), None
  needed = max(memory_of_program(program), memory_of_program(finished))
  fits = needed <= available
  return MemoryFit(fits, needed, available), program if fits else None


def free_memory(device: jax.Device) -> float:
  """Return the free bytes of a device, infinite if it does not say; CPU devices share
  the host's memory.
  """
  stats = device.memory_stats()
  if stats and "bytes_limit" in stats:
    return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
  return (
    free_host_memory() / len(jax.local_devices())
    if device.platform == "cpu"
    else math.inf
  )


def is_out_of_memory(error: Exception) -> bool:
  """Return whether XLA ran out of memory."""
  return "RESOURCE_EXHAUSTED" in str(error)


def parse_oom_message(error: Exception) -> tuple[float | None, float | None]:
  """Return the bytes needed and the bytes available, from a compiler's out-of-memory
  message; None if it has neither.
  """
  sizes = r"([\d.]+)([KMGT]?)"
  for message in (
    rf"Used {sizes} of {sizes} hbm",
    rf"temporaries \({sizes}\) exceeds available HBM \({sizes}\)",
  ):
    if found := re.search(message, str(error)):
      return float(found[1]) * UNITS[found[2]], float(found[3]) * UNITS[found[4]]
  return None, None


def narrower_width(width: int, needed: float | None, available: float | None) -> int:
  """Return the lane width to try after `width` needed too much: a power of two that
  should fit; half if bytes are unknown.
  """
  if not needed or not available:
    return width // 2
  return 2 ** math.floor(
    math.log2(max(1.0, min(width / 2, 0.95 * width * available / needed)))
  )
