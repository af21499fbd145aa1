"""Record where runs come from: package versions, commit, seconds of compilation."""

import contextlib
import functools
import importlib.metadata
import os
import platform
from typing import Any

import jax

import vmapseeds
from vmapseeds import lanes
from vmapseeds.machine import cores, instruction_set

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
# Libraries of accelerators, where there are any
LIBRARIES = (
  "libtpu",
  *(f"nvidia-{name}-cu{n}" for name in ("cublas", "cudnn") for n in (12, 13)),
  "nvidia-cublas",  # the name of CUDA 13's
)
DEVICE_COUNT = "xla_force_host_platform_device_count"
# Settings of JAX that change results, and their usual values
SETTINGS = {
  "jax_threefry_partitionable": True,
  "jax_default_matmul_precision": None,
}


def machine_conditions() -> dict[str, Any]:
  """Return what changes the last bits of runs on this machine: the kind of device and,
  of a CPU, its instruction set and how many cores this process may use; flags of XLA.
  """
  device = lanes.devices()[0]
  processor, threads = None, None
  if device.platform == "cpu":
    processor, threads = instruction_set(), cores()
  flags = os.environ.get("XLA_FLAGS", "").split()
  # How many devices a CPU is cut into changes no bits.
  changing = [flag for flag in sorted(flags) if DEVICE_COUNT not in flag]
  return {
    "device_kind": device.device_kind,
    "processor": processor,
    "threads": threads,
    "xla_flags": " ".join(changing),
  }


def package_versions() -> dict[str, str]:
  """Return the versions of Python and of the packages that results depend on. The `jax`
  entry also lists non-default JAX flags that change results.
  """
  changed = []
  if jax.dtypes.result_type(float) == "float64":
    changed.append("x64")
  for name, usual in SETTINGS.items():
    value = getattr(jax.config, name)
    if value != usual:
      changed.append(f"{name}={value}")
  installed = dict(_installed())
  if changed:
    installed["jax"] += f" with {', '.join(changed)}"
  return installed


@functools.cache
def _installed():
  packages = {package: importlib.metadata.version(package) for package in PACKAGES}
  return {
    "python": platform.python_version(),
    "vmapseeds": vmapseeds.__version__,  # known in a bare copy of the source, too
    **packages,
    **_libraries(),
  }


def _libraries():
  """Return the versions of the accelerator's libraries; none on a CPU."""
  if lanes.devices()[0].platform == "cpu":
    return {}
  installed = {}
  for library in LIBRARIES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      installed[library] = importlib.metadata.version(library)
  return installed


_seconds = 0.0


def _listen(event, duration_secs, **_):
  global _seconds
  if event.startswith("/jax/core/compile/"):
    _seconds += duration_secs


jax.monitoring.register_event_duration_secs_listener(_listen)


def compile_seconds() -> float:
  """Return the seconds that this process has spent so far on tracing, lowering and
  compiling, or on loading cached programs.
  """
  return _seconds
