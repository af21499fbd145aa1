"""Measures, or estimates for a target, how fast each lowering and lane width trains a
recipe; chooses for campaigns.
"""

import functools
import importlib.metadata
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from rich import box
from rich.console import Console
from rich.table import Column, Table

from vmapseeds import lanes, models
from vmapseeds.lanes import Choice, Estimate, choice
from vmapseeds.mistakes import Mistake, at_least, one_of
from vmapseeds.training.inputs import DeviceExamples, batch_like
from vmapseeds.training.networks import check_size, network
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import MAX_RUNS, Run, Runs
from vmapseeds.training.supervised import abstract_task, check_runs
from vmapseeds.training.task import Task, bind, lanes_of, speed_key, trial_of

# A measurement is the median of REPETITIONS trainings, or of those that begin within
# SECONDS.
REPETITIONS = 5
SECONDS = 2.0
# How many of the best estimates are timed.
MEASURED = 3
# A step of all lanes with this many floating-point operations fills any accelerator.
# More lanes would only take memory.
FILLING = 1e12


class Speed(NamedTuple):
  """Seconds per model-step, all devices together, and seconds of compilation (few if
  the program was cached).
  """

  seconds: float
  compile_seconds: float
  memory_bytes: float | None = None  # on each device
  processor_seconds: float | None = (
    None  # CPU time per model-step, of all threads together
  )


def stages(
  start: Any, advance: Any, finish: Any, rounds: int, how: Choice
) -> lanes.Stages:
  """The three functions of a task as `lanes.Stages`, with the lowering of `how`."""
  start, advance, finish = (
    lanes.lowering(how.lowering)(part) for part in (start, advance, finish)
  )
  return lanes.Stages(start, advance, finish, rounds)


def measure(task: Task, how: Choice) -> Speed | None:
  """Times the task's trial; None where it does not fit in the devices' memory."""
  devices, trial = lanes.devices(), trial_of(task)
  runs = lanes_of(trial, bind(trial, Runs.independent(how.width * len(devices))))
  rounds = min(1, trial.rounds)

  # Each call defines a new function, because JAX does not trace the same function again
  # under another lowering.
  def one_run(data, run):
    return trial.finish(
      data, run, trial.advance(data, run, trial.start(data, run), 0, rounds)
    )

  try:
    begun = time.perf_counter()
    step, needed = lanes.compiled(
      lanes.lowering(how.lowering)(one_run), trial.data, runs, devices=devices
    )
    compile_seconds = time.perf_counter() - begun
    if needed > choice.free_memory(devices[0]):
      return None
    taken, processor = list[float](), list[float]()
    while len(taken) < REPETITIONS and sum(taken) < SECONDS:
      begun = time.perf_counter(), time.process_time()
      step()
      taken.append(time.perf_counter() - begun[0])
      processor.append(time.process_time() - begun[1])
  except jax.errors.JaxRuntimeError as error:
    if choice.is_out_of_memory(error):
      return None
    raise
  model_steps = max(1, rounds * trial.steps) * how.width * len(devices)
  a_step, a_processor_step = (
    statistics.median(times) / model_steps for times in (taken, processor)
  )
  return Speed(a_step, compile_seconds, needed, a_processor_step)


def _conditions(task: Task) -> dict[str, object]:
  """The conditions of a measurement: where any of them differs, it does not count."""
  devices = lanes.devices()
  return {
    "device_kind": devices[0].device_kind,
    "devices": len(devices),
    "jax": jax.__version__,
    "vmapseeds": importlib.metadata.version("vmapseeds"),
    **speed_key(task),
  }


def asking(
  task: Task, run: Run, *, target: str | None = None
) -> Callable[[Choice], Estimate]:
  """Makes a function that asks the compiler how much memory a choice needs, and how
  long a model-step takes.

  Args:
    task: what is trained; its data may be arrays or their shapes.
    run: a runs table of any length; only the shapes of its rows matter.
    target: one of `lanes.TARGETS`; None for the devices that are here.
  """
  devices = [] if target else lanes.devices()

  @functools.cache
  def ask(how: Choice) -> Estimate:
    count = how.width * max(1, len(devices))
    runs = jax.tree.map(
      lambda a: jax.ShapeDtypeStruct((count, *a.shape[1:]), a.dtype), run
    )
    parts = stages(task.start, task.advance, task.finish, task.rounds, how)
    said = lanes.estimate(parts, task.data, runs, target=target, devices=devices)
    if said.seconds is None:
      return said
    of_round = ("seconds", "traffic_bytes", "launches")
    return said._replace(
      **{part: getattr(said, part) / task.steps for part in of_round}
    )

  return ask


def choose(
  task: Task,
  *,
  model_steps: int,
  most: int,
  lowering: str | None = None,
  width: int | None = None,
  ask: Callable[[Choice], Estimate] | None = None,
  platform: str | None = None,
  shown: bool = True,
) -> Choice:
  """Chooses the lowering and the lane width to train with: the fastest of those
  measured, earlier or now.

  It measures only as long as that pays. If the compiler is asked first, what does not
  fit in memory is left out, and the best estimates are measured.

  Args:
    task: what is to be trained.
    model_steps: training steps of the campaign, over all its runs.
    most: the largest lane width that the campaign has runs for.
    lowering: if given, only the width is chosen.
    width: if given, only the lowering is chosen.
    ask: gives the compiler's estimate of a choice, see `asking`; None not to ask.
    platform: the platform of the devices; None for those that are here.
    shown: whether to say on stderr what was chosen.
  """
  platform = platform or lanes.devices()[0].platform
  fills = width or filling(task, platform)
  most = width or min(most, fills)
  wanted = choice.candidates(
    platform, lowering=lowering, width=width, most=most, filling=fills
  )
  conditions = _conditions(task)
  known = {
    how: seconds
    for how, seconds in choice.read_timings(conditions).items()
    if lowering in (None, how.lowering)
    and width in (None, how.width)
    and how.width <= most
  }
  with Console(stderr=True, quiet=not shown).status(
    "measuring lowerings and lane widths"
  ) as status:

    def seconds(how: Choice) -> float | None:
      status.update(f"measuring {how.lowering}, lane width {how.width}")
      speed = measure(task, how)
      return speed and speed.seconds

    why = f"the default for {platform}"
    if ask:

      def estimated(how: Choice) -> Estimate:
        status.update(f"compiling {how.lowering}, lane width {how.width}")
        return ask(how)

      # The fastest of the earlier timings is asked about too: it needs no measurement,
      # but it has to fit.
      fastest = sorted(
        (how for how in known if known[how]), key=lambda how: known[how] or 0.0
      )[:1]
      said = lanes.asked(
        [*fastest, *wanted], estimated, model_steps, narrow=width is None
      )
      if not (fits := lanes.ranked(said)):
        raise Mistake(_too_large(task, lowering, width, said.values()))
      wanted, known = (
        fits[:MEASURED],
        {how: taken for how, taken in known.items() if how in fits},
      )
      why = (
        f"the best estimate of {len(fits)} that fit in memory"
        if len(fits) > 1
        else "it fits in memory"
      )
    timings = choice.time_candidates(wanted, known, seconds, model_steps)
  if timings != known:
    choice.write_timings(conditions, timings)
  chosen = choice.best(wanted, timings)
  if shown:
    tried = sum(t is not None for t in timings.values())
    why = f"the fastest of {tried} measured" if tried > 1 else why
    print(
      f"lanes: {chosen.lowering}, width {chosen.width} ({why}; --lowering, --lane-width override)",
      file=sys.stderr,
    )
  return chosen


def _too_large(
  task: Task, lowering: str | None, width: int | None, said: Iterable[Estimate]
) -> str:
  least = min(said, key=lambda e: e.memory_bytes or math.inf)
  needs = (
    f"needs {_size(least.memory_bytes or math.nan)} of {_size(least.available_bytes)}"
  )
  asked = " ".join(
    f"--{name} {given}"
    for name, given in (("lowering", lowering), ("lane-width", width))
    if given
  )
  return f"{task.name} {asked} {needs} of memory: give a smaller {'lane width, ' * bool(width)}batch_size or width"


def bench(
  recipe: Recipe,
  widths: Sequence[int] = (),
  lowerings: Sequence[str] = (),
  *,
  target: str | None = None,
) -> list[dict]:
  """Says how fast lanes train a recipe for each lowering and lane width. Prints a
  table; keeps timings for campaigns.

  On the devices that are here, training steps on random images are timed. For a target,
  which need not be here, and before timing on an accelerator, the compiler gives an
  estimate.

  Args:
    recipe: the recipe to train.
    widths: lane widths; if empty, those that campaigns try.
    lowerings: lowerings; if empty, all of them, or for a target those that campaigns
      try.
    target: one of `lanes.TARGETS`; None for the devices that are here.

  Returns:
    A dict for each lowering and width, with None for what is not known. `lowering`,
    `width`; `fits`, `memory_bytes` on each device; `estimate_us`, `traffic_us`,
    `roofline_us`: the time of a model-step by the compiler's estimate, and the times
    that its bytes and the network's products take at the device's peak; `launches`:
    operations in a step of all lanes; `model_steps_per_second` (the median of
    repetitions, all devices together), `compile_seconds`; `chosen`: whether campaigns
    take it, or for a target, whether its estimate is the best.

  Raises:
    Mistake: there is no such target, or its compiler is not installed.
  """
  for width in widths:
    if at_least("lane width", width, 1) > MAX_RUNS:
      raise Mistake(f"lane width is {width}: give at most {MAX_RUNS}")
  for lowering in lowerings:
    one_of("lowering", lowering, lanes.LOWERINGS)
  if target:
    lanes.absent(target)
    known, devices = lanes.TARGETS[target], []
    platform, kind = known.platform, target
  else:
    devices = lanes.start_jax()
    known, platform, kind = (
      lanes.target_of(devices[0].device_kind),
      devices[0].platform,
      devices[0].device_kind,
    )
  task = abstract_task(recipe)
  runs = bind(task, Runs.independent(1))
  check_runs(recipe, runs, len(task.data[0]), task.data[0].num_classes)
  check_size(
    recipe, task.data[0], math.inf
  )  # no limit here: what does not fit in memory is a row of the table
  wanted = tried = choice.candidates(platform, filling=filling(task, platform))
  if lowerings or widths or not target:
    pairs = itertools.product(
      lowerings or lanes.LOWERINGS, widths or sorted({how.width for how in tried})
    )
    wanted = [Choice(*pair) for pair in pairs]
  said = {}
  if platform != "cpu":
    ask = asking(task, lanes_of(task, runs), target=target)
    said = lanes.asked(wanted, ask, math.inf, narrow=not widths)
    wanted = list(said)
  if target:
    speeds, chosen = {}, next(iter(lanes.ranked(said)), None)
  else:
    speeds = {
      how: measure(task, how) for how in wanted if how not in said or said[how].fits
    }
    conditions = _conditions(task)
    choice.write_timings(
      conditions, {how: (s := speeds.get(how)) and s.seconds for how in wanted}
    )
    chosen = choice.best(tried, choice.read_timings(conditions))
  roofline = (
    1e6 * product_flops(recipe, task.data[0]) / known.flops if known else math.nan
  )
  rows = []
  for how in wanted:
    speed, e = speeds.get(how), said.get(how)
    made = e if target else speed
    rows.append(
      {
        "lowering": how.lowering,
        "width": how.width,
        "fits": e.fits if target and e else speed is not None,
        "memory_bytes": e.memory_bytes if e else speed and speed.memory_bytes,
        "estimate_us": e and e.seconds and 1e6 * e.seconds,
        "traffic_us": e
        and e.traffic_bytes
        and known
        and 1e6 * e.traffic_bytes / known.bandwidth,
        "roofline_us": roofline if known else None,
        "launches": e and e.launches,
        "model_steps_per_second": speed and 1 / speed.seconds,
        "compile_seconds": made and made.compile_seconds,
        "chosen": how == chosen,
      }
    )
  with lanes.compiling_for(platform):
    precision = models.resolved(recipe.precision)
  title = f"{recipe.name}, batch {recipe.batch_size}, {precision}, {f'{len(devices)} × ' * bool(devices)}{kind}"
  best = (
    f"{chosen.lowering}, lane width {chosen.width}" if chosen else "nothing that fits"
  )
  caption = f"campaigns take {best}: kept in {choice.timings_file()}"
  if target:
    said_of = "a model-step by the compiler's estimate, its bytes at the device's roof; products"
    best = f"the best estimate: {best}; a campaign would time the best {MEASURED}"
    caption = f"{said_of}: {significant(roofline)} µs\n{best}"
  Console().print(_table(rows, title, caption))
  return rows


def product_flops(recipe: Recipe, data: DeviceExamples) -> int:
  """Floating-point operations of a training step of one network: those of its
  convolutions and matrix products.

  A layer's forward pass takes 2 · |output| · |kernel| / features. Its kernel gradient
  and its input gradient take as many each, except that the first layer needs no input
  gradient. Products with padding count, too.
  """
  model = network(recipe, data.num_classes)
  # Traced for a GPU, because on other platforms some convolutions are replaced by other
  # operations.
  with lanes.compiling_for("gpu"):
    variables = jax.eval_shape(model.init, jax.random.key(0), batch_like(data, 1))
    forward = jax.make_jaxpr(lambda *given: model.apply(*given))(
      variables, batch_like(data, recipe.batch_size)
    )
  layers = list(products(forward.jaxpr))
  return 3 * sum(layers) - sum(layers[:1])


def products(jaxpr: Any) -> Iterator[int]:
  """The floating-point operations of each convolution and matrix product in a program,
  in order.
  """
  for equation in jaxpr.eqns:
    shapes = [
      v.aval.shape
      for v in (*equation.invars, *equation.outvars)
      if hasattr(v.aval, "shape")
    ]
    if equation.primitive.name == "conv_general_dilated":
      numbers = equation.params["dimension_numbers"]
      yield (
        2
        * math.prod(shapes[-1])
        * math.prod(shapes[1])
        // shapes[1][numbers.rhs_spec[0]]
      )
    elif equation.primitive.name == "dot_general":
      contracted = equation.params["dimension_numbers"][0][0]
      yield (
        2 * math.prod(shapes[-1]) * math.prod(shapes[0][axis] for axis in contracted)
      )
    else:
      times = equation.params["length"] if equation.primitive.name == "scan" else 1
      for inner in jax.tree.leaves(equation.params):
        if hasattr(inner, "eqns"):
          yield from (times * operations for operations in products(inner))


def filling(task: Task, platform: str) -> int:
  """The lane width that fills a device. On a CPU there is no limit: `MAX_RUNS`."""
  if platform == "cpu":
    return MAX_RUNS
  return MAX_RUNS  # until the products of any task are counted


def significant(value: float, digits: int = 3) -> str:
  """A number with some significant digits, without an exponent; a dash for NaN."""
  if not math.isfinite(value):
    return "—"
  places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
  return f"{value:,.{places}f}"


def _size(bytes: float) -> str:
  return f"{bytes / 1e6:,.0f} MB"


def _table(rows: list[dict], title: str, caption: str) -> Table:
  """The rows as a table, without the columns that have no value in any row."""
  columns: list[tuple[str, str, Callable[[float], str]]] = [
    ("memory", "memory_bytes", _size),
    ("estimate µs", "estimate_us", significant),
    ("traffic µs", "traffic_us", significant),
    ("launches", "launches", lambda n: f"{n:,.0f}"),
    ("model steps/s", "model_steps_per_second", lambda speed: f"{speed:,.0f}"),
    ("compiled", "compile_seconds", lambda seconds: f"{seconds:.0f} s"),
  ]
  columns = [
    column for column in columns if any(row[column[1]] is not None for row in rows)
  ]
  first, others = Column("lowering", min_width=10), (head for head, *_ in columns)
  # No wider than 80 characters.
  table = Table(
    first,
    "width",
    "fits",
    *others,
    title=title,
    caption=caption,
    box=box.SIMPLE,
    padding=0,
  )
  for row in rows:
    cells = (
      "" if row[field] is None else text(row[field]) for _, field, text in columns
    )
    fits = "yes" if row["fits"] else "no"
    table.add_row(
      row["lowering"], f"{row['width']}{' ←' * row['chosen']}", fits, *cells
    )
  return table
