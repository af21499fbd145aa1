"""The machine's free memory and accelerators, the commit of this source, and the cache
folder for the user's files that are not results.
"""

import codecs
import contextlib
import functools
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CONTROL_GROUPS = Path("/sys/fs/cgroup")
# What NVIDIA's driver (also in WSL and on Jetson) and a TPU's need
ACCELERATORS = ("nvidia*", "nvhost*", "dxg", "accel*", "vfio/[0-9]*")
DEVICES = Path("/dev")
# Of processors, as Linux names them
EXTENSIONS = ("fma", "avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")


def local_path(given: str | os.PathLike) -> Path:
  """Return an absolute path, `~` expanded."""
  return Path(os.path.expanduser(given)).absolute()


def free_host_memory() -> float:
  """Return the bytes of memory that this process can still get."""
  import psutil  # the command line's help needs none of it

  return min([float(psutil.virtual_memory().available), *left_to_groups()])


def left_to_groups() -> Iterator[float]:
  """Yield the bytes left to each control group of this process, a Slurm job's or a
  container's; cached files count as left.
  """
  for group, version in control_groups("memory"):
    limit_name, used_name = "max", "current"
    if version == 1:
      limit_name, used_name = "limit_in_bytes", "usage_in_bytes"
    # A group may be of another machine, and a limit may be "max".
    with contextlib.suppress(OSError, ValueError):
      limit = int((group / f"memory.{limit_name}").read_text())
      used = int((group / f"memory.{used_name}").read_text())
      statistics = (group / "memory.stat").read_text()
      cached = re.findall(r"inactive_file (\d+)", statistics)
      yield float(limit - used + max(map(int, cached), default=0))


def cores() -> int:
  """Return how many cores this process may use: those that it may run on, and no more
  than its control groups give it time of.
  """
  count = os.cpu_count() or 1
  if hasattr(os, "sched_getaffinity"):  # macOS has none
    count = len(os.sched_getaffinity(0))
  return max(1, min([count, *cores_of_groups()]))


def cores_of_groups() -> Iterator[int]:
  """Yield the time that each control group of this process has on the processors, in
  cores, rounded up: the limit that `docker run --cpus` sets.
  """
  for group, version in control_groups("cpu"):
    # A limit may be "max" or -1.
    with contextlib.suppress(OSError, ValueError):
      if version == 1:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
      else:
        quota, period = map(int, (group / "cpu.max").read_text().split())
      if quota > 0:
        yield math.ceil(quota / period)


def control_groups(controller: str) -> Iterator[tuple[Path, int]]:
  """Yield the folders of this process's control groups of a controller and of those above
  them, and which version of control groups they are.
  """
  lines = []
  with contextlib.suppress(OSError):
    lines = Path("/proc/self/cgroup").read_text().splitlines()
  for line in lines:
    _, kinds, path = line.split(":", 2)
    # Version 2 of control groups has no kinds.
    version = 1 if kinds else 2
    if version == 1 and controller not in kinds.split(","):
      continue
    own = CONTROL_GROUPS / kinds / path.lstrip("/")
    levels = len(Path(path).parts) - 1
    for group in (own, *own.parents[:levels]):
      yield group, version


@functools.cache
def instruction_set() -> str:
  """Return the architecture of this machine's processor, and those of its vector
  extensions that decide how sums are rounded.
  """
  with contextlib.suppress(OSError):
    text = Path("/proc/cpuinfo").read_text()
    # "flags" on x86, "Features" on ARM
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = line[1].split() if line else []
    extensions = [name for name in EXTENSIONS if name in flags]
    return " ".join([platform.machine(), *extensions])
  return platform.machine()


def cache_folder() -> Path:
  """Return `$XDG_CACHE_HOME/vmapseeds`, else `~/.cache/vmapseeds`."""
  return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vmapseeds"


# What is printed in place of letters that a terminal lacks.
PLAIN = {"±": "+-", "σ": "sd", "²": "^2", "×": "x", "√": "sqrt", "→": "->", "∞": "inf"}


def plain_letters(error: UnicodeError) -> tuple[str, int]:
  """Replace what an encoding lacks: a handler of `codecs.register_error`."""
  if not isinstance(error, UnicodeEncodeError):
    raise error
  lacking = error.object[error.start : error.end]
  return "".join(PLAIN.get(letter, "?") for letter in lacking), error.end


codecs.register_error("vmapseeds_plain", plain_letters)


def print_described(descriptions: Mapping[str, str]) -> None:
  """Print names and what they are, in two columns; for a file or another program, each in
  one line.
  """
  width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
  column = max(len(name) for name in descriptions) + 2
  for name, description in descriptions.items():
    wrapped = textwrap.fill(
      f"{name:<{column}}{description}",
      width,
      subsequent_indent=" " * column,
      break_long_words=False,
      break_on_hyphens=False,
    )
    print(wrapped)


def print_what_can_be_encoded(stream: Any) -> None:
  """Let a text stream replace letters that its encoding lacks, instead of failing."""
  encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
  if not encoding.startswith("utf") and hasattr(stream, "reconfigure"):
    stream.reconfigure(errors="vmapseeds_plain")


def ask_for_all_cores() -> bool:
  """Let JAX have one CPU device per core once it starts, unless the user has set a number.
  Return whether that is still possible.
  """
  import jax

  # -1 where neither JAX_NUM_CPU_DEVICES nor an earlier call has set it.
  if jax.config.values["jax_num_cpu_devices"] != -1:
    return True
  if "xla_force_host" in os.environ.get("XLA_FLAGS", ""):
    return True
  try:
    jax.config.update("jax_num_cpu_devices", cores())
  except RuntimeError:  # it has started
    return len(jax.local_devices()) >= cores() or jax.default_backend() != "cpu"
  return True


def hide_absent_accelerators() -> None:
  """Keep JAX from starting its compilers for NVIDIA GPUs and TPUs where they are
  installed (`vmapseeds[aot]`) and no such device is here: it would complain at length.
  JAX may be imported, but not started.
  """
  here = any(any(DEVICES.glob(name)) for name in ACCELERATORS)
  if here or sys.platform != "linux":
    return
  from importlib.metadata import entry_points  # takes half of `import vmapseeds`

  plugins = {plugin.name: plugin.value for plugin in entry_points(group="jax_plugins")}
  for name, module in plugins.items():
    if name.startswith("xla_cuda"):
      sys.modules[module] = SimpleNamespace(initialize=lambda: None)  # type: ignore[assignment]
      sys.modules[f"jax_{name[4:]}_plugin"] = None  # type: ignore[assignment]
  if all(name.startswith("xla_cuda") for name in plugins):
    use_cpu_alone(unless_set=True)


def use_cpu_alone(*, unless_set: bool = False) -> None:
  """Let JAX, which has not started, start no device but the CPU, here and in processes
  that this one starts.

  Args:
    unless_set: leave it as it is where the user has named platforms.
  """
  if unless_set and os.environ.get("JAX_PLATFORMS"):
    return
  os.environ["JAX_PLATFORMS"] = "cpu"
  # JAX reads the variable when it is imported.
  if "jax" in sys.modules:
    sys.modules["jax"].config.update("jax_platforms", "cpu")


@functools.cache
def commit() -> str | None:
  """Return the git commit of this source, with -dirty after it if files were changed, or
  None if it is not a checkout.
  """
  git = ["git", "-C", str(Path(__file__).parent)]
  is_tracked = [*git, "ls-files", "--error-unmatch", Path(__file__).name]
  describe = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
  try:
    # Fails if the package is installed inside a repository that does not track it.
    subprocess.run(is_tracked, capture_output=True, check=True)
    described = subprocess.run(describe, capture_output=True, check=True, text=True)
  except (OSError, subprocess.CalledProcessError):
    return None
  return described.stdout.strip() or None
