"""Record where runs come from: package versions, commit, seconds of compilation."""

import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import jax

PACKAGES = ("vmapseeds", "jax", "jaxlib", "flax", "optax", "numpy")
SETTINGS = {
  "jax_threefry_partitionable": True,
  "jax_default_matmul_precision": None,
}  # and their usual values


def versions() -> dict[str, str]:
  """Return the versions of Python and of the packages that results depend on. The `jax`
  entry also lists non-default JAX flags that change results.
  """
  changed = ["x64"] * (jax.dtypes.result_type(float) == "float64")
  changed += [
    f"{name}={value}"
    for name, usual in SETTINGS.items()
    if (value := getattr(jax.config, name)) != usual
  ]
  installed = _installed()
  return installed | {
    "jax": installed["jax"] + " with " * bool(changed) + ", ".join(changed)
  }


@functools.cache
def _installed():
  return {
    "python": platform.python_version(),
    **{p: importlib.metadata.version(p) for p in PACKAGES},
  }


@functools.cache
def commit() -> str | None:
  """Return the git commit of this source, with -dirty after it if files were changed, or
  None if it is not a checkout.
  """
  git = ["git", "-C", str(Path(__file__).parent)]
  try:
    # Fails if the package is installed inside a repository that does not track it.
    subprocess.run(
      [*git, "ls-files", "--error-unmatch", Path(__file__).name],
      capture_output=True,
      check=True,
    )
    told = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    return (
      subprocess.run(told, capture_output=True, check=True, text=True).stdout.strip()
      or None
    )
  except (OSError, subprocess.CalledProcessError):
    return None


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
