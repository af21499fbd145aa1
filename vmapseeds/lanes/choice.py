"""Which lowering and lane width: the candidates, what was measured of them on this machine, the memory there is."""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax

from vmapseeds.machine import cache_folder, free_host_memory


class Choice(NamedTuple):
  """How lanes run."""

  lowering: str
  width: int

  def __str__(self) -> str:
    return f"{self.lowering} {self.width}"


# Seconds a model-step; None: does not fit in memory.
Timings = dict[Choice, float | None]

# The most promising first: it is what campaigns get that are too short to measure. On a CPU a lane's arrays fill the
# cache, elsewhere many small networks are needed to fill the device, or one large one. XLA makes one convolution of a
# TPU's groups, and many small ones of a GPU's.
CANDIDATES = {
  "cpu": (("sequential", 1), ("im2col", 1), ("sequential", 2), ("sequential", 4)),
  "tpu": (("grouped", 64), ("sequential", 1), ("sequential", 64), ("im2col", 64), ("grouped", 8), ("grouped", 256)),
  "gpu": (("im2col", 64), ("grouped", 64), ("im2col", 256), ("im2col", 16), ("sequential", 16), ("sequential", 1)),
}

FEW_MODEL_STEPS = 20_000  # a campaign of fewer is over before anything is measured
SHORT_CAMPAIGN = 60.0  # seconds with the first candidate, below which no other is tried
BUDGET = 20.0  # seconds of measuring beyond the first candidate,
SHARE = 0.01  # or this share of the campaign, where that is more


def candidates(
  platform: str, *, lowering: str | None = None, width: int | None = None, most: int | None = None
) -> list[Choice]:
  """What is worth trying on a platform, the most promising first.

  Args:
    platform: `cpu`, `gpu`, `tpu`.
    lowering: given, only this one, with the platform's widths.
    width: given, only this one, with the platform's lowerings.
    most: the widest that there are lanes for; wider candidates are cut to it.
  """
  pairs = CANDIDATES[platform]
  if lowering or width:
    lowerings, widths = zip(*pairs, strict=True)
    pairs = [(one, w) for w in ([width] if width else widths) for one in ([lowering] if lowering else lowerings)]
  return list(dict.fromkeys(Choice(one, min(w, most or w)) for one, w in pairs))


def time_candidates(
  wanted: Sequence[Choice], known: Mapping[Choice, float | None], measure: Callable[[Choice], float | None],
  model_steps: int,
) -> Timings:  # fmt: skip
  """What is known of the wanted candidates after as much measuring as a campaign is worth.

  Args:
    wanted: the most promising first.
    known: what was measured before, and is not measured again.
    measure: seconds a model-step, None where it does not fit in memory.
    model_steps: how many the campaign has, over all its runs.
  """
  timings = dict(known)
  if model_steps < FEW_MODEL_STEPS:
    return timings
  begun = time.monotonic()
  if wanted[0] not in timings:
    timings[wanted[0]] = measure(wanted[0])
  expected = (timings[wanted[0]] or 0) * model_steps
  if timings[wanted[0]] and expected < SHORT_CAMPAIGN:
    return timings
  # What is begun cannot be stopped: as slow as the first, the last one to begin ends a budget after the first.
  latest = begun + max(BUDGET, SHARE * expected)
  for candidate in wanted[1:]:
    if candidate not in timings and time.monotonic() <= latest:
      timings[candidate] = measure(candidate)
  return timings


def best(wanted: Sequence[Choice], timings: Mapping[Choice, float | None]) -> Choice:
  """The fastest of what was measured; the first candidate as long as nothing is known of it."""
  measured = {c: seconds for c, seconds in timings.items() if seconds is not None}
  if wanted[0] not in timings:
    return wanted[0]
  if measured:
    return min(measured, key=measured.__getitem__)
  return next((c for c in wanted if c not in timings), min(wanted, key=lambda c: c.width))


# What was measured stays in the user's cache folder.


def timings_file() -> Path:
  """Where timings are kept, by the conditions they hold under."""
  return cache_folder() / "timings.json"


def read_timings(conditions: Mapping[str, object]) -> Timings:
  """What was measured under equal conditions; nothing where there is no such file or it cannot be understood."""
  try:
    pairs = ((*name.split(), seconds) for name, seconds in _read()[_key(conditions)].items())
    return {Choice(one, int(width)): seconds and float(seconds) for one, width, seconds in pairs}
  except (KeyError, ValueError, TypeError, AttributeError):
    return {}


def write_timings(conditions: Mapping[str, object], timings: Mapping[Choice, float | None]) -> None:
  """Adds timings to what is kept; a file that cannot be written is no reason to stop."""
  path = timings_file()
  entry = {str(c): t for c, t in (read_timings(conditions) | dict(timings)).items()}
  draft = path.with_name(f"{path.name}.{os.getpid()}")
  with contextlib.suppress(OSError):
    path.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(json.dumps(_read() | {_key(conditions): entry}, indent=1) + "\n")
    draft.replace(path)


def _read() -> dict:
  try:
    kept = json.loads(timings_file().read_text())
  except (OSError, ValueError):
    return {}
  return kept if isinstance(kept, dict) else {}


def _key(conditions: Mapping[str, object]) -> str:
  return json.dumps(conditions, sort_keys=True)


# Memory.


def free_memory(device: jax.Device) -> float:
  """Bytes that a device can still give; a CPU's devices share the host's."""
  stats = device.memory_stats()
  if stats and "bytes_limit" in stats:
    return float(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
  return free_host_memory() / len(jax.local_devices()) if device.platform == "cpu" else math.inf


def is_out_of_memory(error: Exception) -> bool:
  """Whether XLA ran out of memory."""
  return "RESOURCE_EXHAUSTED" in str(error)
