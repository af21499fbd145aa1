"""Estimates of lanes by compilers, for devices that are here or not."""

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
from jax.experimental import topologies
from jax.experimental.compilation_cache import compilation_cache

from experiments.benchmarks.hlo import Chip, Program
from vmapseeds import lanes
from vmapseeds.campaign.execution import stages_of
from vmapseeds.errors import UserError, check_one_of
from vmapseeds.lanes import Execution, choice, memory
from vmapseeds.lanes.spreading import Stages
from vmapseeds.training.runs import Run
from vmapseeds.training.task import Task


class Target(NamedTuple):
  """A device that programs are compiled for, as its maker describes it."""

  platform: str
  kinds: tuple[str, ...]  # its `device_kind` contains one of these
  topology: str
  chip: Chip
  # Bytes that a program can have: what the compiler allows, or what JAX allocates
  memory: float


TARGETS = {
  "v5e": Target(
    "tpu",
    ("TPU v5 lite", "TPU v5e"),
    "v5e:1x1",
    Chip(1.5e9, 197e12, 819e9),
    15.75 * 2**30,
  ),
  "v6e": Target(
    "tpu",
    ("TPU v6 lite", "TPU v6e"),
    "v6e:1x1",
    Chip(1.75e9, 918e12, 1640e9),
    31.25 * 2**30,
  ),
  # One of a chip's two cores.
  "v4": Target(
    "tpu",
    ("TPU v4",),
    "v4:1x1x1",
    Chip(1.05e9, 137.5e12, 614e9),
    15.25 * 2**30,
  ),
  "v3": Target(
    "tpu",
    ("TPU v3",),
    "v3:1x1",
    Chip(0.94e9, 61.5e12, 450e9),
    15.48 * 2**30,
  ),
  "v2": Target("tpu", ("TPU v2",), "v2:1x1", Chip(0.7e9, 22.5e12, 350e9), 7.48 * 2**30),
  # JAX allocates three quarters of the 80 GB. The two microseconds of a launch are
  # assumed, not measured.
  "h100": Target(
    "gpu",
    ("H100",),
    "1x1x1",
    Chip(1.98e9, 989e12, 3352e9, launch=2e-6),
    0.75 * 84929347584,
  ),
}
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
runtime_version { major: 12 minor: 8 patch: 0 } platform_name: "CUDA" dnn_version_info { major: 9 minor: 7 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def absent(name: str) -> jax.Device:
  """Return a device of the target `name` to compile for, which nothing can run on.

  Raises:
    UserError: there is no such target, or its compiler is not installed.
  """
  check_one_of("target", name, TARGETS)
  target = TARGETS[name]
  try:
    if target.platform == "gpu":
      options = dict(target_config=_H100, topology=target.topology)
      return topologies.get_topology_desc(name, "cuda", **options).devices[0]
    # So that the compiler does not ask the machine which chip it has, and several
    # processes may compile at once.
    for variable, value in (
      ("TPU_SKIP_MDS_QUERY", "1"),
      ("TPU_ACCELERATOR_TYPE", "v5litepod-1"),
      ("TPU_WORKER_HOSTNAMES", "localhost"),
      ("TPU_STDERR_LOG_LEVEL", "3"),
      ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ):
      os.environ.setdefault(variable, value)
    return topologies.get_topology_desc(
      target.topology,
      "tpu",
      chips_per_host_bounds=(1, 1, 1),
    ).devices[0]
  except (
    RuntimeError,
    KeyError,
    ValueError,
    AssertionError,
    NotImplementedError,
  ) as error:
    message = " ".join(str(error).split())[:120]
    packages = "'vmapseeds[aot]'"
    if target.platform == "gpu":
      packages += " 'jax>=0.10'"
    do = f"pip install {packages}, and start with JAX_PLATFORMS=cpu"
    raise UserError(
      f"target {name}: its compiler did not start ({message}): {do}"
    ) from error


def target_of(device_kind: str) -> Target | None:
  """Return the target for a kind of device; None if `TARGETS` does not have it."""
  for target in TARGETS.values():
    if any(kind in device_kind for kind in target.kinds):
      return target
  return None


class StepEstimate(NamedTuple):
  """What a compiler says of lanes that advance together. None: it says nothing, or the
  program does not fit.
  """

  fits: bool
  memory_bytes: float | None  # see `memory.MemoryFit`
  available_bytes: float
  seconds: float | None = None  # estimated, for a step of one lane
  # To and from the device's main memory, for a step of one lane
  traffic_bytes: float | None = None
  launches: float | None = None  # operations in a step of all lanes
  compile_seconds: float = 0.0


def estimate(
  stages: Stages,
  shared: Any,
  lanes: Any,
  *,
  steps: int = 1,
  target: str | None = None,
  devices: Sequence[jax.Device] = (),
) -> StepEstimate:
  """Compile lanes for a device, and read the memory and time they need off the program.

  Args:
    stages, shared, lanes: see `memory.compile_stages`.
    steps: how many steps a round has.
    target: a name in `TARGETS`, to compile for without the device.
    devices: the local devices to compile for, if there is no target.
  """
  if target:
    devices = [absent(target)]
    known = TARGETS.get(target)
  else:
    known = target_of(devices[0].device_kind)
  if target and known:
    available = known.memory
  else:
    available = memory.free_memory(devices[0])
  begun = time.perf_counter()
  with _uncached() if target else nullcontext():
    fit, program = memory.compile_stages(stages, shared, lanes, devices, available)
  taken = time.perf_counter() - begun
  if program is None or known is None:
    return StepEstimate(*fit, compile_seconds=taken)
  rounds = max(1, stages.length)
  cost = Program(program.as_text(), known.chip, rounds).total()
  cost = cost.times(1 / (rounds * steps))
  here = len(jax.tree.leaves(lanes)[0]) // len(devices)
  return StepEstimate(
    *fit, cost.seconds / here, cost.traffic / here, cost.launches, taken
  )


@contextmanager
def _uncached() -> Iterator[None]:
  """Keep programs out of JAX's cache: those for an absent device could not be read from
  it.
  """
  before = jax.config.values["jax_enable_compilation_cache"]
  jax.config.update("jax_enable_compilation_cache", False)
  compilation_cache.reset_cache()  # the cache remembers whether it is enabled
  try:
    yield
  finally:
    jax.config.update("jax_enable_compilation_cache", before)
    compilation_cache.reset_cache()


def make_estimator(
  task: Task,
  run: Run,
  target: str | None = None,
) -> Callable[[Execution], StepEstimate]:
  """Make a function that estimates an execution of a task.

  Args:
    task: what is trained; its data may be arrays or their shapes.
    run: a runs table of any length; only the shapes of its rows matter.
    target: one of `TARGETS`; None for the devices that are here.
  """
  devices = [] if target else lanes.devices()

  @functools.cache
  def estimated(execution: Execution) -> StepEstimate:
    parts = stages_of(task, execution)
    table = lanes.shapes_of_lanes(run, execution.width * max(1, len(devices)))
    return estimate(
      parts,
      task.data,
      table,
      steps=task.steps,
      target=target,
      devices=devices,
    )

  return estimated


def estimate_candidates(
  wanted: Sequence[Execution],
  estimator: Callable[[Execution], StepEstimate],
  *,
  narrow: bool = True,
) -> dict[Execution, StepEstimate]:
  """Estimate the candidates, and narrower ones in place of those that do not fit."""
  estimates = dict[Execution, StepEstimate]()

  def fit(execution: Execution) -> memory.MemoryFit:
    estimates[execution] = estimator(execution)
    return memory.MemoryFit(*estimates[execution][:3])

  list(choice.fitting_candidates(wanted, fit, narrow=narrow))
  return estimates


def fastest_estimate(estimates: Mapping[Execution, StepEstimate]) -> Execution | None:
  """Return the execution with the best estimate; None if nothing fits."""
  fitting = [execution for execution in estimates if estimates[execution].fits]
  return min(
    fitting,
    key=lambda execution: estimates[execution].seconds or math.inf,
    default=None,
  )
