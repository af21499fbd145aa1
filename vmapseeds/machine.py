"""The machine's free memory, and the cache folder for the user's files that are not
results.
"""

import contextlib
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")


def free_host_memory() -> float:
  """Bytes of memory that this process can still get; infinite where the system does not
  say.
  """
  with contextlib.suppress(OSError):
    if found := re.search(
      r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text()
    ):
      return min([1024.0 * int(found[1]), *left_to_groups()])
  # Without Linux's estimate, assume that half of all memory is free.
  with contextlib.suppress(AttributeError, ValueError, OSError):
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
  return math.inf


def left_to_groups() -> Iterator[float]:
  """Bytes left to the control groups of this process, a Slurm job's or a container's;
  cached files count as left.
  """
  with contextlib.suppress(OSError):
    for line in Path("/proc/self/cgroup").read_text().splitlines():
      _, kind, path = line.split(":", 2)
      if kind in ("", "memory"):  # versions 2 and 1
        limit, used = (
          ("limit_in_bytes", "usage_in_bytes") if kind else ("max", "current")
        )
        own = CONTROL_GROUPS / kind / path.lstrip("/")
        for group in (own, *own.parents[: len(Path(path).parts) - 1]):
          with contextlib.suppress(
            OSError, ValueError
          ):  # a group of another machine; "max"
            most, taken = (
              int((group / f"memory.{name}").read_text()) for name in (limit, used)
            )
            cached = re.findall(
              r"inactive_file (\d+)", (group / "memory.stat").read_text()
            )
            yield float(most - taken + max(map(int, cached), default=0))


def cache_folder() -> Path:
  """`$XDG_CACHE_HOME/vmapseeds`, else `~/.cache/vmapseeds`."""
  return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vmapseeds"
