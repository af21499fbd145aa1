"""Choose how a campaign's lanes are run: measure executions and take the fastest."""

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import jax

import vmapseeds
from vmapseeds import lanes
from vmapseeds.convolutions import CONVOLUTIONS, multiplications
from vmapseeds.errors import (
  Failure,
  UserError,
  console_of_stderr,
  one_line,
  option,
  say,
)
from vmapseeds.jaxprs import Program, equations, inner_programs, open_program
from vmapseeds.lanes import Execution, choice, memory
from vmapseeds.lanes.memory import MemoryFit
from vmapseeds.training.runs import MAX_RUNS, Run, Runs
from vmapseeds.training.task import Task, lanes_of, speed_key, trial_of

# A measurement is the median of REPETITIONS trainings, or of those that begin within
# SECONDS.
REPETITIONS = 5
SECONDS = 2.0
REFUSAL_LENGTH = 200  # of what a library says of a candidate that does not run here
# A step of all lanes with this many floating-point operations fills any accelerator.
# More lanes would only take memory.
FILLING = 1e12
# On a CPU: of how many bytes an operation on all lanes of a step is made, from which it
# takes longer than its start. Beyond, arrays only leave the caches.
WIDE = 40_000
MOST_WIDE = 256  # lanes
MOST_WIDE_BYTES = 2**26  # of an array of all lanes
T = TypeVar("T")


class Speed(NamedTuple):
  """Seconds per model-step, all devices together, and seconds of compilation (few if
  the program was cached).
  """

  seconds: float
  compile_seconds: float
  memory_bytes: float | None = None  # on each device


def measure_speed(task: Task, execution: Execution) -> Speed | None:
  """Time the task's trial. Return None if it does not fit in the devices' memory."""
  devices = lanes.devices()
  trial = trial_of(task)
  lanes_in_flight = execution.width * len(devices)
  runs = lanes_of(trial, Runs.independent(lanes_in_flight))
  rounds = min(1, trial.rounds)

  def one_run(data, run):
    state = trial.advance(data, run, trial.start(data, run), 0, rounds)
    return trial.finish(data, run, state)

  seconds = list[float]()
  try:
    begun = time.perf_counter()
    step, needed = lanes.compile_step_to_measure(
      one_run, trial.data, runs, devices=devices, lowering=execution.lowering
    )
    compile_seconds = time.perf_counter() - begun
    if needed > memory.free_memory(devices[0]):
      return None
    while len(seconds) < REPETITIONS and sum(seconds) < SECONDS:
      begun = time.perf_counter()
      step()
      seconds.append(time.perf_counter() - begun)
  except jax.errors.JaxRuntimeError as error:
    if memory.is_out_of_memory(error):
      return None
    raise
  # A task without rounds or steps is evaluated only.
  model_steps = max(1, rounds * trial.steps) * lanes_in_flight
  return Speed(statistics.median(seconds) / model_steps, compile_seconds, needed)


def try_execution(
  execution: Execution,
  function: Callable[[Execution], T],
  refused: dict[Execution, jax.errors.JaxRuntimeError],
) -> T | None:
  """Return `function(execution)`, which compiles or runs it.

  Return None, put the error into `refused` and say so on stderr if XLA or a library of
  the device refuses it: cuDNN, for one, does not support every convolution. Errors of
  Python, such as a task's own, are raised, also those of functions that a program calls
  back.
  """
  try:
    return function(execution)
  except jax.errors.JaxRuntimeError as error:
    if "Traceback (most recent call last)" in str(error):
      raise
    refused[execution] = error
    say(f"{execution} does not run here: {one_line(error)[:REFUSAL_LENGTH]}")
    return None


def make_refused_error(
  task: Task, refused: Mapping[Execution, jax.errors.JaxRuntimeError]
) -> Failure:
  """Return the error of a task of which every candidate was refused."""
  *_, last = refused
  error = refused[last]
  failure = Failure(
    f"{task.name} does not run on {lanes.devices()[0].device_kind} in any of the "
    f"{len(refused)} lowerings and lane widths that were tried: give another "
    f"{option('lowering')} or {option('lane_width')}; {last}: {one_line(error)[:REFUSAL_LENGTH]}"
  )
  failure.__cause__ = error
  return failure


def cache_key(task: Task) -> dict[str, object]:
  """Return the cache key of a timing. A stored timing is reused only if every entry
  matches.
  """
  devices = lanes.devices()
  return {
    "device_kind": devices[0].device_kind,
    "devices": len(devices),
    "jax": jax.__version__,
    "vmapseeds": vmapseeds.__version__,
    **speed_key(task),
  }


def known_speed(
  task: Task,
  execution: Execution,
  *,
  measured: bool = False,
) -> float | None:
  """Return the seconds per model-step that were measured earlier, or with `measured` are
  now. None if there is no timing, or if the task does not fit in memory.
  """
  key = cache_key(task)
  timings = choice.read_timings(key)
  if measured and execution not in timings:
    speed = measure_speed(task, execution)
    timings[execution] = seconds_of(speed)
    choice.write_timings(key, timings)
  return timings.get(execution)


def seconds_of(speed: Speed | None) -> float | None:
  """Return the seconds per model-step, None if the task does not fit in memory."""
  return None if speed is None else speed.seconds


def stages_of(task: Task, execution: Execution) -> lanes.Stages:
  """Return a task's three functions, as lanes run them."""
  return lanes.Stages(
    task.start,
    task.advance,
    task.finish,
    task.rounds,
    lowering=execution.lowering,
  )


def make_memory_check(task: Task, run: Run):
  """Make a function that compiles the task and says whether an execution fits in
  memory.

  Args:
    task: what is trained; its data may be arrays or their shapes.
    run: a runs table of any length; only the shapes of its rows matter.
  """
  devices = lanes.devices()

  @functools.cache
  def check(execution):
    return memory.compile_stages(
      stages_of(task, execution),
      task.data,
      lanes.shapes_of_lanes(run, execution.width * len(devices)),
      devices,
      memory.free_memory(devices[0]),
    )[0]

  return check


def choose_execution(
  task: Task,
  run: Run,
  *,
  model_steps: int,
  most: int,
  lowering: str | None = None,
  width: int | None = None,
  check: Callable[[Execution], MemoryFit] | None = None,
  platform: str | None = None,
  progress: bool = True,
) -> Execution:
  """Choose the lowering and the lane width to train with: the fastest of those
  measured, now or earlier.

  Measure only as long as that pays. On an accelerator, first leave out what does not fit
  in memory. A candidate that XLA or a library of the device refuses is left out, too,
  and said on stderr.

  Args:
    task: what is to be trained.
    run: a runs table of any length; only the shapes of its rows matter.
    model_steps: training steps of the campaign, over all its runs.
    most: the largest lane width that the campaign has runs for.
    lowering: if given, only the width is chosen.
    width: if given, only the lowering is chosen.
    check: says whether an execution fits in memory; None: as the compiler says, but not
      on a CPU, where programs fit, so that only those measured need be compiled.
    platform: the platform of the devices; None for those that are here.
    progress: whether to say on stderr what was chosen.

  Raises:
    UserError: no candidate fits in memory.
    Failure: none runs here.
  """
  platform = platform or lanes.devices()[0].platform
  check = check or make_memory_check(task, run)
  filling = width or filling_width(task, run, platform)
  most = width or min(most, filling)
  key = cache_key(task)
  known = {}
  for execution, seconds in choice.read_timings(key).items():
    is_allowed = lowering in (None, execution.lowering)
    if is_allowed and width in (None, execution.width) and execution.width <= most:
      known[execution] = seconds
  propose = functools.partial(
    choice.candidates,
    platform,
    lowering=lowering,
    width=width,
    most=most,
    filling=filling,
  )
  wanted = narrow = propose()
  if platform == "cpu" and not width:
    wanted = propose(wide=wide_width(task, run))
  is_short = model_steps < choice.FEW_MODEL_STEPS
  if is_short and wanted[0] not in known and narrow[0] in known:
    # A campaign that measures nothing takes what `experiments.benchmarks.bench` has measured.
    wanted = narrow
  # Programs fit on a CPU, so that only those measured need be compiled.
  checks_memory = platform != "cpu"
  trials = try_candidates(
    task,
    wanted,
    known,
    model_steps,
    check if checks_memory else None,
    narrow=width is None,
    progress=progress,
  )
  if trials.timings != known:
    choice.write_timings(key, trials.timings)
  if trials.refused and not trials.considered:
    raise make_refused_error(task, trials.refused)
  if trials.fits and not trials.considered:
    raise make_memory_error(task, trials.fits.values(), lowering, width)
  timings = trials.timings
  possible = [execution for execution in wanted if execution not in trials.refused]
  if trials.fits:
    # Only these are known to fit.
    possible = trials.considered
    timings = {e: timings[e] for e in possible if e in timings}
  return choice.best(possible, timings)


class Trials(NamedTuple):
  """What trying candidates has shown."""

  # Those that ran, or would have next
  considered: list[Execution]
  # Seconds per model-step, also of earlier trials; None: does not fit in memory
  timings: dict[Execution, float | None]
  # Of those whose memory was asked for
  fits: dict[Execution, MemoryFit]
  # Those that XLA or a library of the device refuses
  refused: dict[Execution, jax.errors.JaxRuntimeError]


def try_candidates(
  task: Task,
  wanted: list[Execution],
  known: Mapping[Execution, float | None],
  model_steps: int,
  check: Callable[[Execution], MemoryFit] | None,
  *,
  narrow: bool,
  progress: bool,
) -> Trials:
  """Time candidates as long as that pays.

  Args:
    task: what is to be trained.
    wanted: the candidates, the most promising first.
    known: earlier timings.
    model_steps: training steps of the campaign, over all its runs.
    check: says whether an execution fits in memory; None if that need not be asked.
    narrow: whether narrower ones may take the place of those that do not fit.
    progress: whether to say on stderr what is measured.
  """
  fits = dict[Execution, MemoryFit]()
  refused = dict[Execution, jax.errors.JaxRuntimeError]()
  console = console_of_stderr(quiet=not progress)
  with console.status("measuring lowerings and lane widths") as status:

    def time_step(execution):
      status.update(f"measuring {execution.lowering}, lane width {execution.width}")
      speed = try_execution(execution, functools.partial(measure_speed, task), refused)
      return seconds_of(speed)

    tried: Iterable[Execution] = wanted
    if check is not None:

      def check_memory(execution):
        status.update(f"compiling {execution.lowering}, lane width {execution.width}")
        fit = try_execution(execution, check, refused)
        if fit:
          fits[execution] = fit
        return fit

      # The fastest of the cached timings comes first: it needs no measurement, but it
      # has to fit.
      promising = [*fastest_of(known), *wanted]
      tried = choice.fitting_candidates(promising, check_memory, narrow=narrow)
    considered, timings = choice.time_candidates(tried, known, time_step, model_steps)
  # What was refused is not stored: another driver or library may run it.
  considered = [e for e in considered if e not in refused]
  timings = {e: seconds for e, seconds in timings.items() if e not in refused}
  return Trials(considered, timings, fits, refused)


def fastest_of(timings: Mapping[Execution, float | None]) -> list[Execution]:
  """Return the execution with the shortest time, in a list; none without a timing."""
  timed = {e: seconds for e, seconds in timings.items() if seconds}
  if not timed:
    return []
  return [min(timed, key=lambda execution: timed[execution])]


def make_memory_error(
  task: Task,
  fits: Iterable[MemoryFit],
  lowering: str | None,
  width: int | None,
) -> UserError:
  """Return the error of a task of which no candidate fits in memory."""
  least = min(fits, key=lambda fit: fit.memory_bytes or math.inf)
  options = ""
  if lowering:
    options += f" {option('lowering', lowering)}"
  if width:
    options += f" {option('lane_width', width)}"
  smaller = "batch_size, eval_batch_size or width"
  if width:
    smaller = f"lane width, {smaller}"
  return UserError(
    f"{task.name}{options} needs {megabytes(least.memory_bytes or math.nan)} of "
    f"{megabytes(least.available_bytes)} of memory: give a smaller {smaller}"
  )


def one_row(run: Run) -> Run:
  """Return the shapes of one row of a runs table."""

  def without_runs(column):
    # Tables are NumPy's, whose columns may have 64 bits.
    dtype = jax.dtypes.canonicalize_dtype(column.dtype)
    return jax.ShapeDtypeStruct(column.shape[1:], dtype)

  return jax.tree.map(without_runs, run)


def trace_round(task: Task, row: Run) -> Program:
  """Trace one round of training of one lane."""

  def advance(data, run, state):
    return task.advance(data, run, state, 0, 1)

  state = jax.eval_shape(task.start, task.data, row)
  return jax.make_jaxpr(advance)(task.data, row, state)


def megabytes(size: float) -> str:
  return f"{size / 1e6:,.0f} MB"


def product_flops(task: Task, run: Run) -> float:
  """Return the floating-point operations of a training step of one lane: those of its
  convolutions and matrix products.

  They are counted in one round of the traced task. A loop's body counts once if its
  length is known only at run time. Products with padding count, too.
  """
  if not task.rounds:
    return 0.0
  # Traced for a GPU, because on other platforms some convolutions are replaced by other
  # operations.
  with lanes.compiling_for("gpu"):
    program = trace_round(task, one_row(run))
  return sum(yield_product_flops(program)) / task.steps


def yield_product_flops(program: Program) -> Iterator[float]:
  """Yield the floating-point operations of each convolution and matrix product in a
  program, the last first, without those that no result depends on.
  """
  program = open_program(program)
  # By identity, because literals among the variables cannot be hashed.
  needed = {id(variable) for variable in program.outvars}
  for equation in reversed(program.eqns):
    is_needed = any(id(variable) in needed for variable in equation.outvars)
    if not (equation.effects or is_needed):
      continue
    needed |= {id(variable) for variable in equation.invars}
    name = equation.primitive.name
    if name == "dot_general":
      yield matrix_flops(equation)
      continue
    if equation.primitive in CONVOLUTIONS:
      yield 2.0 * multiplications(equation)
      continue
    # How often other loops run is not known before they do.
    times = equation.params["length"] if name == "scan" else 1
    for inner in inner_programs(equation):
      yield from (times * flops for flops in yield_product_flops(inner))


def summed_length(equation) -> int:
  """Return how many products a matrix product adds up for each entry of its result."""
  (contracted, _), _ = equation.params["dimension_numbers"]
  shape = equation.invars[0].aval.shape
  return math.prod(shape[axis] for axis in contracted)


def matrix_flops(equation) -> float:
  """Return the floating-point operations of a matrix product."""
  shape = equation.outvars[0].aval.shape
  return 2.0 * math.prod(shape) * summed_length(equation)


def wide_width(task: Task, run: Run) -> int:
  """Return how many lanes a CPU is to advance together so that the operations of a round
  take longer than their start: 1 if one lane's do, if it convolves, or if JAX cannot
  batch the task.

  The size of operations is estimated from the traced task, without computing anything.
  """
  row = one_row(run)
  program = trace_round(task, row)
  names = {equation.primitive.name for equation in equations(program)}
  # A CPU convolves one lane at a time.
  if names & {"conv_general_dilated", "convolve"}:
    return 1
  sizes = list(operation_sizes(program))
  if not sizes:
    return 1
  operations = sum(times for times, _ in sizes)
  mean = sum(times * size for times, size in sizes) / operations

  def whole(data, run):
    state = task.start(data, run)
    return task.finish(data, run, task.advance(data, run, state, 0, 1))

  # In a whole run, the largest array may be one of the evaluation.
  two = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), row)
  try:
    whole_runs = jax.make_jaxpr(jax.vmap(whole, in_axes=(None, 0)))(task.data, two)
  except Exception:
    # One lane may still train, as with a `pure_callback` that takes one; what fails there
    # too is said where it is compiled.
    return 1
  outputs = [variable for one in equations(whole_runs) for variable in one.outvars]
  largest = max(map(bytes_of_variable, outputs)) / 2
  most = min(WIDE / max(1.0, mean), MOST_WIDE, MOST_WIDE_BYTES / max(1.0, largest))
  return 2 ** int(math.log2(max(1.0, most)))


def bytes_of_variable(variable) -> int:
  """Return the bytes of a variable of a program."""
  shape = getattr(variable.aval, "shape", ())
  itemsize = getattr(getattr(variable.aval, "dtype", None), "itemsize", 4)
  return math.prod(shape) * itemsize


def operation_sizes(program: Program, times: int = 1) -> Iterator[tuple[int, float]]:
  """Yield how often each operation of a program is computed, and its cost in bytes
  written. A product costs more, by what it adds up.
  """
  for equation in open_program(program).eqns:
    inner = inner_programs(equation)
    name = equation.primitive.name
    if inner:
      repeated = times
      if name == "scan":
        repeated = times * equation.params["length"]
      for one in inner:
        yield from operation_sizes(one, repeated)
      continue
    size = float(sum(map(bytes_of_variable, equation.outvars)))
    if name == "dot_general":
      size *= 1 + summed_length(equation) / 8
    yield times, size


def filling_width(task: Task, run: Run, platform: str) -> int:
  """Return the lane width that fills a device, at most `MAX_RUNS`. On a CPU there is
  no other limit.
  """
  if platform == "cpu":
    return MAX_RUNS
  return min(MAX_RUNS, math.ceil(FILLING / max(1.0, product_flops(task, run))))
