"""The machine's free memory, and the cache folder for the user's files that are not results."""

import contextlib
import math
import os
import re
from pathlib import Path


def free_host_memory() -> float:
  """Bytes of memory that programs can still get; infinite where the system does not say."""
  with contextlib.suppress(OSError):
    if found := re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text()):
      return 1024.0 * int(found[1])
  # Without Linux's estimate, assume that half of all memory is free.
  with contextlib.suppress(AttributeError, ValueError, OSError):
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
  return math.inf


def cache_folder() -> Path:
  """`$XDG_CACHE_HOME/vmapseeds`, else `~/.cache/vmapseeds`."""
  return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vmapseeds"
