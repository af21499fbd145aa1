"""The choice of lowering and lane width: the candidates, those that fit in memory, and
their timings on this machine.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vmapseeds.lanes.memory import MemoryFit, narrower_width
from vmapseeds.machine import cache_folder


class Execution(NamedTuple):
  """How lanes are run: the lowering of their convolutions, and how many a device
  advances together.
  """

  lowering: str
  width: int

  def __str__(self) -> str:
    return f"{self.lowering} {self.width}"


# Seconds per model-step (a training step of one network). None: does not fit in memory.
Timings = dict[Execution, float | None]

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
# Seconds: if the first candidate that runs takes less for the campaign, no other is
# tried.
SHORT_CAMPAIGN = 60.0
BUDGET = 20.0  # seconds of measuring after the first candidate was measured,
SHARE = 0.01  # or this share of the campaign's seconds, if that is more


def candidates(
  platform: str,
  *,
  lowering: str | None = None,
  width: int | None = None,
  most: int | None = None,
  filling: int | None = None,
  wide: int = 1,
) -> list[Execution]:
  """Return the executions worth trying on a platform, the most promising first.

  Args:
    platform: `cpu`, `gpu`, `tpu`.
    lowering: if given, the only one, with the platform's widths.
    width: if given, the only one, with the platform's lowerings.
    most: the largest width; wider candidates are cut to it.
    filling: the width that fills the device. Wider candidates are cut to it, and come
      last: of networks that large, one at a time is often the fastest.
    wide: the width from which small lanes keep a CPU busy; it comes first, then a quarter
      of it.
  """
  pairs = CANDIDATES[platform]
  if wide > 1:
    pairs = (("sequential", wide), ("sequential", max(1, wide // 4)), *pairs)
  if lowering or width:
    lowerings, widths = zip(*pairs, strict=True)
    pairs = [
      (one, w)
      for w in ([width] if width else widths)
      for one in ([lowering] if lowering else lowerings)
    ]
  pairs = sorted(pairs, key=lambda pair: pair[1] > (filling or pair[1]))
  return list(
    dict.fromkeys(Execution(one, min(w, most or w, filling or w)) for one, w in pairs)
  )


def fitting_candidates(
  wanted: Iterable[Execution],
  fit: Callable[[Execution], MemoryFit | None],
  *,
  narrow: bool = True,
) -> Iterator[Execution]:
  """Yield the candidates that fit in memory, each once.

  After a candidate that does not fit, a narrower one that should fit is tried. Each is
  compiled only when it is asked for.

  Args:
    wanted: the most promising first.
    fit: says whether a candidate fits; None if it does not run here at any width.
    narrow: whether narrower widths may be tried.
  """
  asked = set[Execution]()
  for execution in wanted:
    while execution not in asked:
      asked.add(execution)
      found = fit(execution)
      if found is None:
        break
      if found.fits:
        yield execution
      elif narrow and execution.width > 1:
        width = narrower_width(
          execution.width, found.memory_bytes, found.available_bytes
        )
        execution = Execution(execution.lowering, width)


def time_candidates(
  wanted: Iterable[Execution],
  known: Mapping[Execution, float | None],
  measure: Callable[[Execution], float | None],
  model_steps: float | int,
) -> tuple[list[Execution], Timings]:
  """Measure as many of the wanted candidates as the campaign is worth.

  Args:
    wanted: the most promising first.
    known: earlier timings; these candidates are not measured again.
    measure: times a candidate, in seconds per model-step; None if it does not fit in
      memory or does not run here. Then the next is tried, whatever the budget.
    model_steps: how many model-steps the campaign has, over all its runs.

  Returns:
    The candidates that were considered, and the known and the new timings.
  """
  timings = dict(known)
  considered = list[Execution]()
  begun = time.monotonic()
  latest = None  # known when a candidate was measured
  for candidate in wanted:
    considered.append(candidate)
    if model_steps < FEW_MODEL_STEPS:
      break
    if candidate not in timings:
      timings[candidate] = measure(candidate)
    seconds = timings[candidate]
    if latest is None and seconds is not None:
      expected = seconds * model_steps
      if expected < SHORT_CAMPAIGN:
        break
      # A measurement cannot be stopped. If the last one is as slow as the first, it
      # ends a budget after the first.
      latest = begun + max(BUDGET, SHARE * expected)
    if latest is not None and time.monotonic() > latest:
      break
  return considered, timings


def best(
  wanted: Sequence[Execution], timings: Mapping[Execution, float | None]
) -> Execution:
  """Return the first candidate if it has no timing, else the fastest that was measured.

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
  """Return the path of the timings file; its keys are cache keys of measurements."""
  return cache_folder() / "timings.json"


def read_timings(conditions: Mapping[str, object]) -> Timings:
  """Return the timings stored under this cache key; empty if the file is missing or
  malformed.
  """
  try:
    pairs = (
      (*name.split(), seconds) for name, seconds in _read()[_key(conditions)].items()
    )
    return {
      Execution(one, int(width)): seconds and float(seconds)
      for one, width, seconds in pairs
    }
  except (KeyError, ValueError, TypeError, AttributeError):
    return {}


def write_timings(
  conditions: Mapping[str, object], timings: Mapping[Execution, float | None]
) -> None:
  """Add timings to the file. Do nothing if it cannot be written."""
  path = timings_file()
  entry = {str(c): t for c, t in (read_timings(conditions) | dict(timings)).items()}
  draft = path.with_name(f"{path.name}.{os.getpid()}")
  with contextlib.suppress(OSError):
    path.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(json.dumps(_read() | {_key(conditions): entry}, indent=1) + "\n")
    draft.replace(path)


def _read():
  try:
    kept = json.loads(timings_file().read_text())
  except (OSError, ValueError):
    return {}
  return kept if isinstance(kept, dict) else {}


def _key(conditions):
  return json.dumps(conditions, sort_keys=True)
