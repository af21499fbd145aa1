"""The devices that programs are compiled for: those that are here, or one that is not."""

import contextlib
import contextvars
import os
from collections.abc import Iterator
from typing import NamedTuple

import jax
from jax.experimental import topologies

from vmapseeds.mistakes import Mistake, one_of

PLATFORMS = ("cpu", "gpu", "tpu")
_platform = contextvars.ContextVar[str | None]("platform", default=None)


def platform() -> str:
  """The platform that programs are traced for now, one of `PLATFORMS`."""
  return _platform.get() or jax.default_backend()


@contextlib.contextmanager
def compiling_for(name: str) -> Iterator[None]:
  """Programs traced in this context are made for the platform `name`, whether such a
  device is here or not.
  """
  one_of("platform", name, PLATFORMS)
  token = _platform.set(name)
  try:
    yield
  finally:
    _platform.reset(token)


class Target(NamedTuple):
  """A device that programs are compiled for, as its maker describes it."""

  platform: str
  kinds: tuple[str, ...]  # its `device_kind` contains one of these
  topology: str
  clock: float  # cycles a second
  flops: float  # bfloat16 floating-point operations a second
  bandwidth: float  # bytes a second to and from the main memory
  # Bytes that a program can have: what the compiler allows, or what JAX allocates
  memory: float
  launch: float = (
    0.0  # seconds of a kernel that does nothing, if the compiler does not count them
  )


TARGETS = {
  "v5e": Target(
    "tpu", ("TPU v5 lite", "TPU v5e"), "v5e:1x1", 1.5e9, 197e12, 819e9, 15.75 * 2**30
  ),
  "v6e": Target(
    "tpu", ("TPU v6 lite", "TPU v6e"), "v6e:1x1", 1.75e9, 918e12, 1640e9, 31.25 * 2**30
  ),
  # One of a chip's two cores.
  "v4": Target("tpu", ("TPU v4",), "v4:1x1x1", 1.05e9, 137.5e12, 614e9, 15.25 * 2**30),
  "v3": Target("tpu", ("TPU v3",), "v3:1x1", 0.94e9, 61.5e12, 450e9, 15.48 * 2**30),
  "v2": Target("tpu", ("TPU v2",), "v2:1x1", 0.7e9, 22.5e12, 350e9, 7.48 * 2**30),
  # JAX allocates three quarters of the 80 GB. The two microseconds of a launch are
  # assumed, not measured.
  "h100": Target(
    "gpu", ("H100",), "1x1x1", 1.98e9, 989e12, 3352e9, 0.75 * 84929347584, 2e-6
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
  """A device of the target `name` to compile for, which nothing can run on.

  Raises:
    Mistake: there is no such target, or its compiler is not installed.
  """
  one_of("target", name, TARGETS)
  target = TARGETS[name]
  try:
    if target.platform == "gpu":
      options = dict(target_config=_H100, topology=target.topology)
      return topologies.get_topology_desc(name, "cuda", **options).devices[0]
    # The compiler shall not ask the machine which chip it has, and several processes
    # may compile at once.
    for variable, value in (
      ("TPU_SKIP_MDS_QUERY", "1"),
      ("TPU_ACCELERATOR_TYPE", "v5litepod-1"),
      ("TPU_WORKER_HOSTNAMES", "localhost"),
      ("TPU_STDERR_LOG_LEVEL", "3"),
      ("ALLOW_MULTIPLE_LIBTPU_LOAD", "1"),
    ):
      os.environ.setdefault(variable, value)
    return topologies.get_topology_desc(
      target.topology, "tpu", chips_per_host_bounds=(1, 1, 1)
    ).devices[0]
  except (
    RuntimeError,
    KeyError,
    ValueError,
    AssertionError,
    NotImplementedError,
  ) as error:
    said = " ".join(str(error).split())[:120]
    newer = " 'jax>=0.10'" * (target.platform == "gpu")
    do = f"pip install 'vmapseeds[aot]'{newer}, and start with JAX_PLATFORMS=cpu"
    raise Mistake(
      f"target {name}: its compiler did not start ({said}): {do}"
    ) from error


def target_of(device_kind: str) -> Target | None:
  """The target for a kind of device; None if `TARGETS` does not have it."""
  return next(
    (t for t in TARGETS.values() if any(kind in device_kind for kind in t.kinds)), None
  )
