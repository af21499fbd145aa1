"""The choice of lowering and lane width: the candidates, their timings on this machine,
and the free memory.
"""

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
  """A way to run lanes: the lowering of their convolutions, and how many a device
  advances together.
  """

  lowering: str
  width: int

  def __str__(self) -> str:
    return f"{self.lowering} {self.width}"


# Seconds per model-step (a training step of one network). None: does not fit in memory.
Timings = dict[Choice, float | None]

# The most promising first: campaigns that are too short to measure get it. On a CPU the
# arrays of one lane fill the cache. Other devices need many small networks, or one
# large one, to be busy. XLA runs a grouped convolution as one convolution on a TPU, and
# as many small ones on a GPU.
CANDIDATES = {
  "cpu": (("sequential", 1), ("im2col", 1), ("sequential", 2), ("sequential", 4)),
  "tpu": (
    ("grouped", 64),
    ("sequential", 1),
    ("sequential", 64),
    ("im2col", 64),
    ("grouped", 8),
    ("grouped", 256),
  ),
  "gpu": (
    ("im2col", 64),
    ("grouped", 64),
    ("im2col", 256),
    ("im2col", 16),
    ("sequential", 16),
    ("sequential", 1),
  ),
}

FEW_MODEL_STEPS = (
  20_000  # a campaign of fewer is over before anything could be measured
)
SHORT_CAMPAIGN = (
  60.0  # seconds; if the first candidate takes less for the campaign, no other is tried
)
BUDGET = 20.0  # seconds of measuring after the first candidate was measured,
SHARE = 0.01  # or this share of the campaign's seconds, if that is more


def candidates(
  platform: str,
  *,
  lowering: str | None = None,
  width: int | None = None,
  most: int | None = None,
  filling: int | None = None,
) -> list[Choice]:
  """The choices worth trying on a platform, the most promising first.

  Args:
    platform: `cpu`, `gpu`, `tpu`.
    lowering: if given, the only one, with the platform's widths.
    width: if given, the only one, with the platform's lowerings.
    most: the largest width; wider candidates are cut to it.
    filling: the width that fills the device. Wider candidates are cut to it, and come
      last: of networks that large, one at a time is often the fastest.
  """
  pairs = CANDIDATES[platform]
  if lowering or width:
    lowerings, widths = zip(*pairs, strict=True)
    pairs = [
      (one, w)
      for w in ([width] if width else widths)
      for one in ([lowering] if lowering else lowerings)
    ]
  pairs = sorted(pairs, key=lambda pair: pair[1] > (filling or pair[1]))
  return list(
    dict.fromkeys(Choice(one, min(w, most or w, filling or w)) for one, w in pairs)
  )


def time_candidates(
  wanted: Sequence[Choice],
  known: Mapping[Choice, float | None],
  measure: Callable[[Choice], float | None],
  model_steps: int,
) -> Timings:
  """Measures as many of the wanted candidates as the campaign is worth. Returns the
  known and the new timings.

  Args:
    wanted: the most promising first.
    known: earlier timings; these candidates are not measured again.
    measure: times a candidate, in seconds per model-step; None if it does not fit in
      memory.
    model_steps: how many model-steps the campaign has, over all its runs.
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
  # A measurement cannot be stopped. If the last one is as slow as the first, it ends a
  # budget after the first.
  latest = begun + max(BUDGET, SHARE * expected)
  for candidate in wanted[1:]:
    if candidate not in timings and time.monotonic() <= latest:
      timings[candidate] = measure(candidate)
  return timings


def best(wanted: Sequence[Choice], timings: Mapping[Choice, float | None]) -> Choice:
  """The first candidate if it has no timing, else the fastest that was measured.

  If all that were measured do not fit in memory: a candidate without a timing, else the
  narrowest.
  """
  measured = {c: seconds for c, seconds in timings.items() if seconds is not None}
  if wanted[0] not in timings:
    return wanted[0]
  if measured:
    return min(measured, key=measured.__getitem__)
  return next(
    (c for c in wanted if c not in timings), min(wanted, key=lambda c: c.width)
  )


# Timings are kept in the user's cache folder.


def timings_file() -> Path:
  """The file of timings; its keys are the conditions of the measurements."""
  return cache_folder() / "timings.json"


def read_timings(conditions: Mapping[str, object]) -> Timings:
  """The timings measured under equal conditions; empty if the file is missing or
  malformed.
  """
  try:
    pairs = (
      (*name.split(), seconds) for name, seconds in _read()[_key(conditions)].items()
    )
    return {
      Choice(one, int(width)): seconds and float(seconds)
      for one, width, seconds in pairs
    }
  except (KeyError, ValueError, TypeError, AttributeError):
    return {}


def write_timings(
  conditions: Mapping[str, object], timings: Mapping[Choice, float | None]
) -> None:
  """Adds timings to the file. If it cannot be written, nothing happens."""
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
  """Free bytes of a device, infinite if it does not say; CPU devices share the host's
  memory.
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
  """Whether XLA ran out of memory."""
  return "RESOURCE_EXHAUSTED" in str(error)
