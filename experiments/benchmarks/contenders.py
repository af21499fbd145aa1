"""Ways to train a recipe, each in processes of its own that train when told to.

A process keeps its threads, its XLA devices and its memory to itself, and waits while
another is timed: so contenders can be timed in turn, round after round, under the same
conditions.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax
import numpy as np

import vmapseeds as vs
from experiments.banerjee2024.network import CNN_CIFAR10_BINARY
from vmapseeds import lanes
from vmapseeds.campaign.execution import product_flops
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.loop import train
from vmapseeds.training.recipe_data import random_examples
from vmapseeds.training.recipe_runs import recipe_lanes
from vmapseeds.training.recipe_setup import RecipeSetup
from vmapseeds.training.supervised import make_task
from vmapseeds.training.task import lanes_of

SLOW = (
  5.0  # a contender this many times slower than its fastest rival so far is timed once
)
LIMIT = 300.0  # seconds for a contender's first epoch, and for a timing
PATIENCE = 10.0  # seconds for a process to end
LEAST_SECONDS = 1.0  # shortest timing; short epochs are repeated until it is reached
Advance = Callable[[], None]


def significant(value: float) -> str:
  """Format a number with three significant digits, without an exponent; a dash for NaN."""
  if not math.isfinite(value):
    return "—"
  places = 0
  if value:
    places = max(0, 2 - math.floor(math.log10(abs(value))))
  return f"{value:,.{places}f}"


@dataclasses.dataclass(frozen=True)
class Workload:
  """A recipe on random images of its data set's shape, and how much of it is timed."""

  recipe: vs.Recipe
  shape: tuple[int, ...]
  classes: int
  lanes: int  # networks that ours trains in one call on a CPU
  stacked: (
    int  # networks under a plain vmap on a CPU; fewer if they would fill the memory
  )
  steps: int  # in an epoch
  epochs: int  # in one call of ours, which starts at initialisation

  @property
  def like(self) -> DeviceExamples:
    """Shapes and dtypes of its examples, without the data."""
    inputs = jax.ShapeDtypeStruct((1, *self.shape), np.uint8)
    targets = jax.ShapeDtypeStruct((1,), np.int32)
    moment = jax.ShapeDtypeStruct(self.shape[-1:], np.float32)
    return DeviceExamples(inputs, targets, moment, moment, self.classes)

  def examples(self) -> DeviceExamples:
    return random_examples(self.like, self.steps * self.recipe.batch_size)


WORKLOADS = {
  "digits": Workload(
    vs.recipe("digits_cnn", batch_size=64),
    (8, 8, 1),
    10,
    lanes=64,
    stacked=64,
    steps=15,
    epochs=16,
  ),
  "binary": Workload(
    CNN_CIFAR10_BINARY,
    (32, 32, 3),
    2,
    lanes=16,
    stacked=16,
    steps=20,
    epochs=4,
  ),
  "resnet_quarter": Workload(
    vs.recipe("resnet9_cifar10", width=0.25, batch_size=100),
    (32, 32, 3),
    10,
    lanes=4,
    stacked=4,
    steps=5,
    epochs=2,
  ),
  "resnet": Workload(
    vs.recipe("resnet9_cifar10"),
    (32, 32, 3),
    10,
    lanes=2,
    stacked=2,
    steps=2,
    epochs=1,
  ),
}


def workload_on(name: str, platform: str, steps: int | None = None) -> Workload:
  """The workload in this platform's precision: float32 on a CPU, bfloat16 elsewhere."""
  workload = WORKLOADS[name]
  recipe = workload.recipe.replace(
    precision="float32" if platform == "cpu" else "bfloat16"
  )
  return dataclasses.replace(workload, recipe=recipe, steps=steps or workload.steps)


def flops(workload: Workload) -> int:
  """Floating-point operations of a training step of one network, see `product_flops`."""
  setup = RecipeSetup.on_sets(workload.recipe, (workload.examples(), {}))
  task = make_task(setup)
  return round(product_flops(task, lanes_of(task, vs.Runs.independent(1))))


# Ways to train.


@dataclasses.dataclass(frozen=True)
class Way:
  """One way to train: `kind` of competitor, `label` in tables, and what `start` needs
  to know.
  """

  kind: str
  label: str
  # Called in the way's process; an advance is some epochs
  start: Callable[["Way", Workload, DeviceExamples], Advance]
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  lanes: int = 1  # networks a process advances together
  processes: int = 1
  devices: int = 1  # XLA devices of a process
  epochs: int = 1  # in an advance
  pinned: bool = False  # each process is tied to one core
  precision: str = ""  # other than the workload's


def start_ours(way: Way, workload: Workload, data: DeviceExamples) -> Advance:
  """`vmapseeds.training.loop.train` spread over lanes: every advance is a whole
  training of `way.epochs` epochs.
  """
  devices = lanes.start_jax()[: way.devices]
  recipe = workload.recipe.replace(epochs=way.epochs)

  def one_run(data, run):
    return train(recipe, data, run).diverged

  spread = lanes.spread(
    one_run,
    width=way.options["width"],
    lowering=way.options["lowering"],
    devices=devices,
  )
  data = lanes.replicate(data, devices)
  runs = recipe_lanes(recipe, vs.Runs.independent(way.lanes), len(data))

  def advance() -> None:
    list(spread(data, runs))

  return advance


def plain_jax(way: Way, workload: Workload, data: DeviceExamples) -> Advance:
  from experiments.benchmarks.plain_jax import Trainer

  return Trainer(workload.recipe, data, lanes=way.lanes, **way.options)


def plain_torch(way: Way, workload: Workload, data: DeviceExamples) -> Advance:
  from experiments.benchmarks.plain_torch import trainer

  return trainer(workload.recipe, data, lanes=way.lanes, **way.options)


def our_way(
  workload: Workload,
  *,
  lanes: int,
  width: int,
  lowering: str,
  devices: int,
  **options: Any,
) -> Way:
  label = f"{lowering}, width {width}, {lanes} lanes"
  chosen = {"width": width, "lowering": lowering}
  return Way(
    "ours",
    label,
    start_ours,
    chosen,
    lanes=lanes,
    devices=devices,
    epochs=workload.epochs,
    **options,
  )


# The processes of the ways.


def end_with_parent() -> None:
  """Let this process end as soon as its parent has ended, however that came about: a
  child that outlives a killed parent keeps a GPU's memory.
  """
  parent = multiprocessing.parent_process()
  if parent is None:
    return

  def wait():
    parent.join()
    os._exit(1)

  threading.Thread(target=wait, daemon=True).start()


def _serve(connection, way: Way, workload: Workload, index: int) -> None:
  """Sends model-steps, seconds and memory: after the first advance, counted from the
  start, then at each request.
  """
  end_with_parent()
  began = time.perf_counter()
  # No caches of compiled programs, and on a GPU no memory taken in advance, because
  # contenders share it.
  os.environ |= {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
  }
  jax.config.update("jax_enable_compilation_cache", False)
  jax.config.update("jax_num_cpu_devices", way.devices)
  if way.pinned and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[index]})
  if way.precision:
    recipe = workload.recipe.replace(precision=way.precision)
    workload = dataclasses.replace(workload, recipe=recipe)
  try:
    advance = way.start(way, workload, workload.examples())
    times = 0
    while True:
      advance()
      times += 1
      seconds = time.perf_counter() - began
      if times > 1 and seconds < LEAST_SECONDS:
        continue
      steps = times * way.lanes * way.epochs * workload.steps
      connection.send({"model_steps": steps, "seconds": seconds, **_memory()})
      if not connection.recv():
        return
      times = 0
      began = time.perf_counter()
  except ModuleNotFoundError as error:
    message = f"{error.name} is not installed"
    if error.name == "torch":
      message += ": pip install -e '.[bench]'"
    connection.send(message)
  except Exception as error:
    connection.send(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _memory() -> dict[str, int | None]:
  """The most bytes held so far, by the process and on its first accelerator."""
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  if "torch" in sys.modules:
    cuda = sys.modules["torch"].cuda
    device = cuda.max_memory_allocated() if cuda.is_available() else None
  else:
    device = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
  return {
    "host_bytes": most if sys.platform == "darwin" else 1024 * most,
    "device_bytes": device,
  }


def elsewhere(function: Callable, *args: Any) -> Any:
  """`function(*args)` in a process of its own: this one never starts JAX, so that a
  GPU's memory stays free.
  """
  context = multiprocessing.get_context("spawn")
  with ProcessPoolExecutor(1, context, initializer=end_with_parent) as pool:
    return pool.submit(function, *args).result()


class Contender:
  """A way and its processes, started and ready; `measure` adds a speed in model-steps a
  second to `speeds`.
  """

  def __init__(self, way: Way, workload: Workload, limit: float = LIMIT):
    context = multiprocessing.get_context("spawn")
    self.way = way
    self.limit = limit
    self.speeds = []
    self.error = None
    self.skipped = False
    self.host_bytes = self.device_bytes = None
    self._links = []
    for index in range(way.processes):
      here, there = context.Pipe()
      process = context.Process(
        target=_serve,
        args=(there, way, workload, index),
        daemon=True,
      )
      process.start()
      there.close()
      self._links.append((here, process))
    self.ready_seconds = max((a["seconds"] for a in self._answers()), default=math.nan)

  def _answers(self) -> list[dict]:
    """One answer from each process. If a process failed, sets `error`, stops them all
    and returns no answer.
    """
    answers = []
    until = time.monotonic() + self.limit
    for link, _ in self._links:
      try:
        in_time = link.poll(max(0, until - time.monotonic()))
        answers.append(link.recv() if in_time else f"not done in {self.limit:g} s")
      except (EOFError, ConnectionError):
        answers.append("killed: out of memory?")
    self.error = next((a for a in answers if isinstance(a, str)), None)
    if self.error:
      self.stop(patience=0)
      return []
    self.host_bytes = sum(a["host_bytes"] for a in answers)
    self.device_bytes = sum(a["device_bytes"] or 0 for a in answers) or None
    return answers

  @property
  def running(self) -> bool:
    return bool(self._links)

  def measure(self) -> None:
    """Times all processes at once, for a second or for one advance, whichever is
    longer.
    """
    for link, _ in self._links:
      # A process that died is noticed when it does not answer.
      with contextlib.suppress(OSError):
        link.send(True)
    answers = self._answers()
    if answers:
      self.speeds.append(sum(a["model_steps"] / a["seconds"] for a in answers))

  @property
  def speed(self) -> float:
    if not self.speeds:
      return math.nan
    return statistics.median(self.speeds)

  def spread(self) -> str:
    """The slowest and the fastest timing."""
    return " – ".join(significant(s) for s in (min(self.speeds), max(self.speeds)))

  def stop(self, patience: float = PATIENCE) -> None:
    links, self._links = self._links, []
    for link, _ in links:
      with contextlib.suppress(OSError):
        link.send(False)
    for link, process in links:
      process.join(patience)
      process.kill()
      process.join()
      link.close()

  def numbers(self) -> dict[str, Any]:
    way = {
      k: getattr(self.way, k)
      for k in (
        "kind",
        "label",
        "lanes",
        "processes",
        "devices",
        "options",
        "precision",
      )
    }
    kept = (
      "speed",
      "speeds",
      "ready_seconds",
      "host_bytes",
      "device_bytes",
      "skipped",
      "error",
    )
    return way | {k: getattr(self, k) for k in kept}


def race(
  ways: Sequence[Way],
  workload: Workload,
  rounds: int,
  *,
  slow: float = SLOW,
  together: bool = True,
  limit: float = LIMIT,
) -> list[Contender]:
  """Starts and times each way once, then times the ways in turn until each has `rounds`
  timings.

  Args:
    ways: what to time.
    workload: the training steps that they take.
    rounds: timings of each.
    slow: a way this many times slower than the fastest so far on its side (ours, or the
      others) is timed only once.
    together: whether all processes live until the end. Otherwise each way gets all its
      timings and stops before the next starts. Accelerators need this, because a living
      process keeps its device memory.
    limit: seconds after which a contender that does not answer is given up.
  """
  contenders: list[Contender] = []
  try:
    for way in ways:
      contender = Contender(way, workload, limit)
      contenders.append(contender)
      _measure_beside(contender, contenders, 1 if together else rounds, slow)
      if not together:
        contender.stop()
      print(f"{way.kind}: {way.label}: {_describe(contender)}", file=sys.stderr)
    for _ in range(rounds - 1):
      for contender in contenders:
        if contender.running:
          contender.measure()
  finally:
    for contender in contenders:
      contender.stop()
  return contenders


def _measure_beside(
  contender: Contender,
  contenders: Sequence[Contender],
  rounds: int,
  slow: float,
) -> None:
  """Time a contender, until it is so many times slower than the fastest on its side."""
  is_ours = contender.way.kind == "ours"
  for _ in range(rounds):
    if not contender.running:
      return
    contender.measure()
    rivals = []
    for other in contenders:
      if other.speeds and (other.way.kind == "ours") == is_ours:
        rivals.append(other.speed)
    if contender.speeds and slow * contender.speed < max(rivals):
      contender.skipped = True
      contender.stop()


def _describe(contender: Contender) -> str:
  if contender.error:
    return contender.error
  ready = f"ready in {contender.ready_seconds:.0f} s"
  return f"{ready}, {contender.speed:,.1f} model-steps/s"
