"""The memory and time of a step of lanes, as the device's compiler estimates them; the
device need not be here.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache
from jaxtyping import PyTree

from vmapseeds.lanes import choice
from vmapseeds.lanes.choice import Choice
from vmapseeds.lanes.hlo import Program
from vmapseeds.lanes.spreading import Stages, memory, programs, shapes
from vmapseeds.target import TARGETS, Target, absent, compiling_for, target_of

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Estimate(NamedTuple):
  """What a compiler says of lanes that advance together. None: it says nothing, or the
  program does not fit.
  """

  fits: bool
  memory_bytes: (
    float | None
  )  # of the larger of the programs that advance and finish, on each device
  available_bytes: float  # to a program, on each device
  seconds: float | None  # estimated, for a round of one lane
  traffic_bytes: (
    float | None
  )  # to and from the device's main memory, for a round of one lane
  launches: float | None  # operations in a round of all lanes
  compile_seconds: float


def estimate(
  stages: Stages,
  shared: PyTree,
  lanes: PyTree,
  *,
  target: str | None = None,
  devices: Sequence[jax.Device] = (),
) -> Estimate:
  """Compiles lanes for a device, and reads the memory and time they need off the
  program; nothing runs.

  On a TPU an operation takes as long as the compiler estimates. An operation that it
  does not estimate (gathers, sorts, custom calls), and every operation on a GPU, takes
  twice what its bytes or its products take at the device's peak.

  Args:
    stages: the function of one lane.
    shared: what all lanes read: arrays or `jax.ShapeDtypeStruct`s.
    lanes: each lane's own arrays, or their shapes, with a leading axis of the lanes
      that advance together.
    target: a name in `TARGETS`, to compile for without the device.
    devices: the local devices to compile for, if there is no target.

  Raises:
    Mistake: there is no such target, or its compiler is not installed.
  """
  known: Target | None
  if target:
    devices, known = [absent(target)], TARGETS[target]
    available = known.memory
  else:
    known, available = target_of(devices[0].device_kind), choice.free_memory(devices[0])
  shared, lanes = (
    shapes(shared, devices, of_lanes=False),
    shapes(lanes, devices, of_lanes=True),
  )
  begun = time.perf_counter()

  def failed(needed: float | None) -> Estimate:
    return Estimate(
      False, needed, available, None, None, None, time.perf_counter() - begun
    )

  with (
    compiling_for(known.platform if known else devices[0].platform),
    _uncached() if target else nullcontext(),
  ):
    start, advance, finish = programs(stages, devices)
    state = shapes(start.eval_shape(shared, lanes), devices, of_lanes=True)
    number = shapes(np.int32(0), devices, of_lanes=False)
    try:
      program = advance.lower((shared, number, number), lanes, state).compile()
      needed = max(
        memory(program), memory(finish.lower(shared, lanes, state).compile())
      )
    except jax.errors.JaxRuntimeError as error:
      if not choice.is_out_of_memory(error):
        raise
      return failed(said(error)[0])
  if needed > available:
    return failed(needed)
  taken = time.perf_counter() - begun
  if known is None:
    return Estimate(True, needed, available, None, None, None, taken)
  rounds = max(1, stages.length)
  cost = Program(program.as_text(), known, rounds).total().times(1 / rounds)
  here = len(jax.tree.leaves(lanes)[0]) // len(devices)
  return Estimate(
    True,
    needed,
    available,
    cost.seconds / here,
    cost.traffic / here,
    cost.launches,
    taken,
  )


@contextmanager
def _uncached() -> Iterator[None]:
  """Keeps programs out of JAX's cache: those for an absent device could not be read
  from it.
  """
  before = jax.config.values["jax_enable_compilation_cache"]
  jax.config.update("jax_enable_compilation_cache", False)
  compilation_cache.reset_cache()  # the cache remembers whether it is enabled
  try:
    yield
  finally:
    jax.config.update("jax_enable_compilation_cache", before)
    compilation_cache.reset_cache()


def said(error: Exception) -> tuple[float | None, float | None]:
  """The bytes needed and the bytes available, from a compiler's out-of-memory message;
  None if it has neither.
  """
  sizes = r"([\d.]+)([KMGT]?)"
  for message in (
    rf"Used {sizes} of {sizes} hbm",
    rf"temporaries \({sizes}\) exceeds available HBM \({sizes}\)",
  ):
    if found := re.search(message, str(error)):
      return float(found[1]) * UNITS[found[2]], float(found[3]) * UNITS[found[4]]
  return None, None


def narrower(width: int, needed: float | None, available: float | None) -> int:
  """The lane width to try after `width` needed too much: a power of two that should
  fit; half if bytes are unknown.
  """
  if not needed or not available:
    return width // 2
  return 2 ** math.floor(
    math.log2(max(1.0, min(width / 2, 0.95 * width * available / needed)))
  )


def asked(
  wanted: Sequence[Choice],
  ask: Callable[[Choice], Estimate],
  model_steps: float | int,
  *,
  narrow: bool = True,
) -> dict[Choice, Estimate]:
  """Asks the compiler about as many of the wanted candidates as the campaign is worth,
  each once.

  If a candidate does not fit in memory, a narrower one that should fit is asked about
  next. In a short campaign, the first candidate that fits is the last one asked about.

  Args:
    wanted: the most promising first.
    ask: gives the estimate of a choice, with seconds per model-step.
    model_steps: how many model-steps the campaign has, over all its runs; infinite to
      ask about all candidates.
    narrow: whether narrower widths may be tried.
  """
  begun, said = time.monotonic(), dict[Choice, Estimate]()
  for how in wanted:
    if first := next((e for e in said.values() if e.fits), None):
      # If the speed is unknown, assume a tiny one: no more than BUDGET is spent, unless
      # `model_steps` is infinite.
      expected = (first.seconds or 1e-12) * model_steps
      short = model_steps < choice.FEW_MODEL_STEPS or (
        first.seconds and expected < choice.SHORT_CAMPAIGN
      )
      if short or time.monotonic() > begun + max(
        choice.BUDGET, choice.SHARE * expected
      ):
        break
    while how not in said:
      said[how] = found = ask(how)
      if not found.fits and narrow and how.width > 1:
        how = Choice(
          how.lowering, narrower(how.width, found.memory_bytes, found.available_bytes)
        )
  return said


def ranked(said: Mapping[Choice, Estimate]) -> list[Choice]:
  """The choices that fit in memory, the fastest estimate first."""
  return sorted(
    (how for how, e in said.items() if e.fits),
    key=lambda how: said[how].seconds or math.inf,
  )
