"""Where runs come from: versions, commit, device, seconds of training and of compilation."""

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import jax

PACKAGES = ("vmapseeds", "jax", "jaxlib", "flax", "optax", "numpy")


def versions() -> dict[str, str]:
  """Versions of Python and of the packages that results depend on. JAX's says whether 64-bit types are on, which change
  random draws."""
  installed = _installed()
  has_64_bits = jax.dtypes.result_type(float) == "float64"
  return installed | {"jax": installed["jax"] + " with x64" * has_64_bits}


@functools.cache
def _installed() -> dict[str, str]:
  return {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in PACKAGES}}


@functools.cache
def commit() -> str | None:
  """The git commit of this source, with -dirty after it if files were changed; None if it is not a checkout."""
  git = ["git", "-C", str(Path(__file__).parent)]
  try:
    # Fails if the package is installed inside a repository that does not track it.
    subprocess.run([*git, "ls-files", "--error-unmatch", Path(__file__).name], capture_output=True, check=True)
    told = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return subprocess.run(told, capture_output=True, check=True, text=True).stdout.strip() or None
  except (OSError, subprocess.CalledProcessError):
    return None


_seconds = 0.0


def _listen(event: str, duration_secs: float, **_: str | int) -> None:
  global _seconds
  if event.startswith("/jax/core/compile/"):
    _seconds += duration_secs


jax.monitoring.register_event_duration_secs_listener(_listen)


def compile_seconds() -> float:
  """Seconds that this process has spent so far on tracing, lowering and compiling, or on reading compiled programs."""
  return _seconds
