"""A task: what a campaign trains, as data. Three pure functions of one lane, what their
runs differ in, and what their outputs mean. `supervised.load_recipe_task` makes one from a
recipe.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, PyTree, Shaped

from vmapseeds.data.dataset import fingerprint
from vmapseeds.errors import (
  UnknownField,
  UserError,
  check_at_least,
  check_fields,
  check_number,
  check_one_of,
  safe_name,
)
from vmapseeds.jaxprs import (
  Equation,
  check_divides_nothing,
  equations,
  evaluate_program,
  open_program,
)
from vmapseeds.target import compiling_for, platform
from vmapseeds.training import objects, outputs
from vmapseeds.training.names import DRAWN_BY_DATA, MADE_COLUMNS, seed_column
from vmapseeds.training.outputs import Constants, Output
from vmapseeds.training.runs import Run, Runs

# What JAX raises where Python code needs the number of a traced value.
READ_IN_PYTHON = (
  jax.errors.ConcretizationTypeError,
  jax.errors.TracerArrayConversionError,
)
STAGES = ("start", "advance", "finish")  # the functions of a task


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Internal:
  """What this package knows of a task beside what its author writes: `supervised` sets
  it of a recipe's, and planning of any.

  Attributes:
    fixed: which of the values its Python code reads, such as a schedule that branches
      on the learning rate. Each combination of them is a program of its own. They are
      found when the task is traced.
    fields: columns of the runs table that the functions do not read, as each combination
      of them is a task of its own, which `make_variant` makes.
    columns: which columns of `names.MADE_COLUMNS` it reads.
    derive: makes entries of `Run.values` (arrays with the run as first axis) of the runs
      table, on the host.
    origin: the import string that it came from.
    spec: JSON of what it was made from; of its functions if it is empty.
    conditions: what results depend on beside `spec`, by name, ready for JSON.
    speed_key: what its speed depends on; of `spec` and the shapes of `data` if None.
    make_trial: makes a shortened copy for timing a step; None for the task itself.
    make_variant: makes the task of runs with these values of `fields`.
  """

  fixed: Sequence[str] = ()
  fields: Sequence[str] = ()
  columns: Sequence[str] = ()
  derive: Callable[[Runs], Mapping[str, PyTree]] | None = None
  origin: str = ""
  spec: str = ""
  conditions: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  speed_key: Mapping[str, Any] | None = None
  make_trial: Callable[[], "Task"] | None = None
  make_variant: Callable[[Mapping[str, float | str]], "Task"] | None = None


@check_fields("task")
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Task:
  """What a campaign trains: anything that is a pure function of one lane.

  - `start(data, run) -> state`
  - `advance(data, run, state, first, last) -> state`: the rounds from `first`, counted
    from 0, to `last`, not included.
  - `finish(data, run, state) -> {name: array}`: what is stored of the run, in arrays
    (run, ...) of these names.

  `run.key("init")` is the key of a source of randomness and `run["lr"]` a value, both
  traced. `data` is a pytree of arrays that all runs share.

  Attributes:
    name: of the task.
    start, advance, finish: the functions.
    data: what all runs share.
    rounds: how many there are. Checkpoints are written between rounds.
    sources: names of the sources of randomness; each run has a seed for each.
    values: what a sweep may vary, and the value where none does.
    outputs: what the arrays of `finish` mean, by name, as `vs.Output`.
    dims: names of axes by array, for outputs that declare nothing else.
    constants: arrays that are stored once for all runs, by name, with their axes.
    steps: training steps in a round; speed is measured in steps.
    version: part of its identity. A task that calls Python (`jax.pure_callback`) needs
      one, and another after each change of what is called.
    internal: what this package sets. Leave it out.

  Raises:
    UserError: a field is not what it should be.
  """

  name: str
  start: Callable[[PyTree, Run], PyTree]
  advance: Callable[
    [PyTree, Run, PyTree, Int[Array, ""] | int, Int[Array, ""] | int], PyTree
  ]
  finish: Callable[[PyTree, Run, PyTree], Mapping[str, Array]]
  data: PyTree = ()
  rounds: int = 1
  sources: Sequence[str] = ("init", "order")
  values: Mapping[str, float] = dataclasses.field(default_factory=dict)
  outputs: Mapping[str, Output] = dataclasses.field(default_factory=dict)
  dims: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
  constants: Constants = dataclasses.field(default_factory=dict)
  steps: int = 1
  version: str = ""
  internal: Internal = Internal()  # frozen

  def __post_init__(self):
    mappings = {
      "values": "numbers by their names, such as {'lr': 0.1}",
      "dims": "names of axes by array",
      "outputs": "a vs.Output by array",
    }
    for field, what in mappings.items():
      value = getattr(self, field)
      if not isinstance(value, Mapping):
        raise UserError(f"{field} is {value!r:.100}: give {what}")
    for name, output in self.outputs.items():
      if not isinstance(output, Output):
        raise UserError(f"outputs has {output!r:.100} for {name!r}: give a vs.Output")
    twice = sorted(self.dims.keys() & self.outputs.keys())
    if twice:
      raise UserError(
        f"{twice[0]!r} is in dims and in outputs: give dims in its Output"
      )
    safe_name("task name", self.name)
    check_at_least("rounds", self.rounds, 0)
    for part in STAGES:
      function = getattr(self, part)
      if not callable(function):
        raise UserError(
          f"{part} is {function!r:.100}: give a pure function of one lane"
        )
    if isinstance(self.sources, str) or not isinstance(self.sources, Sequence):
      raise UserError(f"sources is {self.sources!r}: give a list of names")
    for name in (*self.sources, *self.values):
      safe_name("source or value", name)
    taken = set(MADE_COLUMNS).union(map(seed_column, self.sources))
    for name in (*self.sources, *self.values):
      if name in taken:
        raise UserError(
          f"source or value {name!r}: that name is already used in the results, rename "
          "it"
        )
    values = {name: check_number(name, value) for name, value in self.values.items()}
    object.__setattr__(self, "values", values)

  def replace(self, **values: float) -> "Task":
    """Return the task with other defaults for some of its values.

    Raises:
      UnknownField (a TypeError): it has no such value.
    """
    for name in values:
      check_one_of(f"value of task {self.name}", name, self.values, UnknownField)
    return dataclasses.replace(self, values={**self.values, **values})


def bind_runs(task: Task, runs: Runs) -> Runs:
  """Return the runs table with a seed for each of the task's sources and a column for
  each of its values.

  Raises:
    UserError: the table has columns that the task does not know.
  """
  for name in MADE_COLUMNS:
    if name in runs.values and name not in task.internal.columns:
      raise UserError(
        f"these runs have {name}, which task {task.name} does not know: leave it out"
      )
  if runs.sampling and "subset" not in task.internal.columns:
    raise UserError(
      f"these runs choose training examples, of which task {task.name} knows none: "
      "leave that out"
    )
  return runs.filled(
    task.sources, task.values, task.internal.columns, task.internal.fields
  )


def lanes_of(task: Task, runs: Runs) -> Run:
  """Return the table as lanes read it: a `Run` of arrays (runs, ...). It is bound to the
  task if it is not yet.
  """
  has_sources = runs.seeds.keys() == set(task.sources)
  has_values = task.values.keys() <= runs.values.keys()
  if not has_sources or not has_values:
    runs = bind_runs(task, runs)
  derived: Mapping[str, PyTree] = {}
  if task.internal.derive is not None:
    derived = task.internal.derive(runs)
  return runs.lanes(task.values, derived, task.internal.fixed, task.internal.fields)


def describe_task(task: Task) -> str:
  """Return all that defines the task but its data, as JSON."""
  if task.internal.spec:
    return task.internal.spec
  functions = {part: objects.to_spec(getattr(task, part)) for part in STAGES}
  return json.dumps({"name": task.name, **functions, "rounds": task.rounds})


def data_digest(task: Task) -> str:
  """Return a digest of the data, labels and masks: the same name may mean others later."""
  judged = {name: (output.labels, output.mask) for name, output in task.outputs.items()}
  return fingerprint((task.data, judged))


def speed_key(task: Task) -> Mapping[str, Any]:
  """Return what the task's speed depends on."""
  if task.internal.speed_key is not None:
    return task.internal.speed_key
  shapes = [
    (a.shape, str(a.dtype)) for a in map(np.asarray, jax.tree.leaves(task.data))
  ]
  return {"task": describe_task(task), "data": shapes}


def trial_of(task: Task) -> Task:
  """Return a shortened copy of this task for timing one step."""
  trial = task
  if task.internal.make_trial is not None:
    trial = task.internal.make_trial()
  return with_fixed(trial, task.internal.fixed)


def with_fixed(task: Task, names: Iterable[str]) -> Task:
  """Return the task, whose Python code reads these of its values."""
  fixed = tuple(sorted(names))
  if fixed == tuple(task.internal.fixed):
    return task
  return with_internal(task, fixed=fixed)


def with_internal(task: Task, **changes: Any) -> Task:
  """Return the task with some of its internal fields changed."""
  internal = dataclasses.replace(task.internal, **changes)
  return dataclasses.replace(task, internal=internal)


class Traced(NamedTuple):
  """A task's three functions, traced once for one lane, and what that shows."""

  task: Task
  lane: Run  # the first row of the runs table
  stages: tuple[Any, Any, Any]  # start, advance and finish, as `jax.stages.Traced`
  equations: Sequence[Equation]  # of all three, and of the programs within
  state: PyTree[jax.ShapeDtypeStruct]
  outputs: Mapping[str, Output]  # of what `finish` returns
  classes: Mapping[str, Output]  # those that are classes at the end of training
  stored: Mapping[str, Output]  # of what results hold of a run
  shapes: Mapping[str, jax.ShapeDtypeStruct]  # of what results hold of a run
  constants: Constants  # what results hold once for all runs

  @property
  def functions(self) -> tuple[Callable, Callable, Callable]:
    """The three functions to run. On a CPU they are the traced programs, so that what
    runs is what was traced, whatever happens to the user's code meanwhile.
    """
    task = self.task
    if platform() == "cpu":
      return tuple(map(_as_function, self.stages))  # type: ignore[return-value]
    return task.start, task.advance, task.finish

  @property
  def bytes_of_a_run(self) -> int:
    """How many bytes of host memory the outputs of a run, and what is derived for it,
    take.
    """
    size = sum(a.size * np.dtype(a.dtype).itemsize for a in self.shapes.values())
    return size + sum(a.nbytes for a in jax.tree.leaves(self.lane) if np.ndim(a))

  @property
  def bytes_of_a_state(self) -> int:
    """How many bytes the state of a run takes."""
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(self.state))

  @property
  def shown(self) -> tuple[str, str, str] | None:
    """What the progress line shows of a run: the array, what it is called, and its unit,
    "%" for accuracies; None if there is neither a class nor a score.
    """
    for name in self.classes:
      return outputs.sibling(name, "accuracy"), "accuracy", "%"
    for name, output in self.stored.items():
      if outputs.ROLES[output.role].is_number:
        return name, name.rpartition("/")[2], output.unit
    return None

  @property
  def groups(self) -> list[str]:
    """The groups of a run's arrays, such as test sets, in their order."""
    groups = []
    for name, output in self.stored.items():
      group = name.rpartition("/")[0]
      if output.role != "variable" and group and group not in groups:
        groups.append(group)
    return groups

  @property
  def num_classes(self) -> int | None:
    """How many classes the first output that is a class tells apart."""
    for output in self.classes.values():
      return output.num_classes
    return None


def _as_function(stage):
  def computed(*args):
    # Rounds may be numbers of Python's, of which x64 would make other types than those
    # that were traced.
    leaves = [
      np.int32(leaf) if isinstance(leaf, int) else leaf
      for leaf in jax.tree.leaves(args)
    ]
    results = evaluate_program(stage.jaxpr, *leaves)
    return jax.tree.unflatten(jax.tree.structure(stage.out_info), results)

  return computed


def trace_with_fixed_values(task: Task, runs: Runs) -> Traced:
  """Trace a task as `trace` does, with the values `fixed` that its Python code reads: as
  few as it can be traced with.

  Raises:
    UserError: as `trace`.
  """

  def attempt(fixed):
    try:
      return trace(with_fixed(task, fixed), runs)
    except UserError as mistake:
      if not isinstance(mistake.__cause__, READ_IN_PYTHON):
        raise
      return None

  traced = attempt(task.internal.fixed)
  if traced is not None:
    return traced
  # Python reads some value: fix all of them, then leave out each that need not be.
  needed = frozenset(task.values)
  traced = attempt(needed)
  if traced is None:
    return trace(task, runs)  # which says what fails
  for name in sorted(task.values):
    with_fewer = attempt(needed - {name})
    if with_fewer is not None:
      needed = needed - {name}
      traced = with_fewer
  return traced


def variant_of(task: Task, runs: Runs) -> Task:
  """Return the task of runs that share the values of its `fields`."""
  if task.internal.make_variant is None or not task.internal.fields:
    return task
  values = {name: runs.values[name][0].item() for name in task.internal.fields}
  variant = task.internal.make_variant(values)
  return with_internal(variant, fixed=task.internal.fixed, fields=task.internal.fields)


def program_columns(task: Task) -> list[str]:
  """Return the columns of the runs table that choose the program of a run."""
  return [*sorted(task.internal.fixed), *sorted(task.internal.fields)]


def rows_by_program(
  task: Task, runs: Runs
) -> dict[tuple[float | str, ...], Int[np.ndarray, " rows"]]:
  """Return the rows of the bound table that share a program, by the values that choose
  it.
  """
  columns = [runs.values[name].tolist() for name in program_columns(task)]
  if not columns:
    return {(): np.arange(len(runs))}
  programs: dict[tuple[float | str, ...], list[int]] = {}
  for row, values in enumerate(zip(*columns, strict=True)):
    programs.setdefault(values, []).append(row)
  return {values: np.array(rows) for values, rows in programs.items()}


def trace_programs(
  task: Task, runs: Runs
) -> tuple[Task, dict[tuple[float | str, ...], Traced]]:
  """Trace a task once for each of its programs, by the values that choose it. Return
  also the task with the values `fixed` that the Python code of any program reads.

  Raises:
    UserError: as `trace`.
  """
  task, traced_rows = _trace_each_program(task, runs)
  fixed = set(task.internal.fixed)
  programs = {}
  # Values that are fixed make more programs than were traced.
  for values, rows in rows_by_program(task, runs).items():
    traced = traced_rows.get(rows[0])
    # Another program may have turned out to need a value that this one has traced.
    if traced is None or set(traced.task.internal.fixed) != fixed:
      first_run = runs[rows[:1]]
      traced = trace(variant_of(task, first_run), first_run)
    programs[values] = traced
  return task, programs


def _trace_each_program(task: Task, runs: Runs) -> tuple[Task, dict[int, Traced]]:
  """Trace a run of each combination of `fields`. Return the task with the values `fixed`
  that any of these programs reads in Python, and what was traced, by row.
  """
  traced_rows: dict[int, Traced] = {}
  fixed = set(task.internal.fixed)
  for rows in rows_by_program(with_fixed(task, ()), runs).values():
    first_run = runs[rows[:1]]
    variant = variant_of(with_fixed(task, fixed), first_run)
    traced = trace_with_fixed_values(variant, first_run)
    traced_rows[rows[0]] = traced
    # The next ones begin with what was found, which is likely what they need.
    fixed = fixed.union(traced.task.internal.fixed)
  return with_fixed(task, fixed), traced_rows


def trace_stages(task: Task, lane: Run) -> tuple[Any, Any, Any]:
  """Trace a task's functions for one lane, as `jax.stages.Traced`."""
  round_ = jax.ShapeDtypeStruct((), np.int32)
  # As for a CPU, whatever devices there are: programs have other forms on others, and
  # compute the same.
  # What is not read is an argument too, or a program that reads another value instead
  # would have the same text.
  with objects.before_training(task.name), compiling_for("cpu", here=False):
    start = jax.jit(task.start, keep_unused=True).trace(task.data, lane)
    state = start.out_info
    advance = jax.jit(task.advance, keep_unused=True).trace(
      task.data, lane, state, round_, round_
    )
    finish = jax.jit(task.finish, keep_unused=True).trace(task.data, lane, state)
  return start, advance, finish


def check_stages(
  task: Task, stages: tuple[Any, Any, Any], of_stages: Iterable[Equation]
) -> None:
  """Raise `UserError` unless a task's traced functions, and the equations of these, fit
  together.
  """
  start, advance, finish = stages
  check_divides_nothing(of_stages, f"task {task.name}")

  def as_texts(state):
    return jax.tree.map(lambda a: f"{a.dtype}{[*a.shape]}", state)

  before = as_texts(start.out_info)
  after = as_texts(advance.out_info)
  if before != after:
    raise UserError(
      f"advance of {task.name} makes of a state {before} {after}: give one of the same "
      "shapes and dtypes"
    )
  if task.rounds > 1 and not _reads_round(advance, -1):
    raise UserError(
      f"advance of {task.name} does not read its last argument: it is called for the "
      "rounds from first to last, a few at a time with checkpoints, so loop over them, "
      "as jax.lax.fori_loop(first, last, ...) does, or give rounds=1"
    )
  finished = finish.out_info
  has_names = isinstance(finished, Mapping) and bool(finished)
  if not has_names or not all(hasattr(leaf, "dtype") for leaf in finished.values()):
    raise UserError(
      f"finish of task {task.name} gives no arrays by name: give a dict such as "
      "{'loss': loss}"
    )


def trace(task: Task, runs: Runs) -> Traced:
  """Trace a task's functions for the bound table.

  Raises:
    UserError: they fail, do not fit together, or return what results cannot store.
  """
  lane = jax.tree.map(lambda column: column[0], lanes_of(task, runs[:1]))
  stages = trace_stages(task, lane)
  of_stages = [one for stage in stages for one in equations(stage.jaxpr)]
  check_stages(task, stages, of_stages)
  start, _, finish = stages
  finished = finish.out_info
  meanings = {name: Output(dims) for name, dims in task.dims.items()}
  meanings |= task.outputs
  declared = outputs.declare_outputs(task.name, meanings, finished, runs.columns())
  classes = outputs.tested_classes(declared)
  kept = outputs.stored_outputs(declared)
  labels = outputs.labels_of_outputs(declared)
  shapes = jax.eval_shape(
    lambda values, run: outputs.stored_outputs_and_counts(
      declared, labels, values, run
    ),
    finished,
    lane,
  )
  shapes = {name: shapes[name] for name in kept}
  for name, output in kept.items():
    if output.total:  # a count, of which the fraction is stored
      shapes[name] = jax.ShapeDtypeStruct(shapes[name].shape, np.float64)
  constants = outputs.constants(declared, finished) | dict(task.constants)
  outputs.check_together(task.name, kept, shapes, constants)
  check_names_are_free(runs, kept, constants)
  return Traced(
    task,
    lane,
    stages,
    of_stages,
    start.out_info,
    declared,
    classes,
    kept,
    shapes,
    constants,
  )


def _reads_round(advance, place: int) -> bool:
  """Return whether what a traced `advance` makes depends on its argument at a place, -2
  for the first round or -1 for the last. This computes nothing.
  """
  variables = open_program(advance.jaxpr).invars
  arguments = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in variables]
  arguments[place] = jax.ShapeDtypeStruct((1,), arguments[place].dtype)
  axes: list[int | None] = [None] * len(arguments)
  axes[place] = 0
  return _depends(
    functools.partial(evaluate_program, advance.jaxpr), tuple(axes), arguments
  )


def _depends(function, axes: tuple, arguments) -> bool:
  """Return whether a function's results depend on what has an axis 0. This computes
  nothing.
  """
  # With `out_axes=None`, vmap fails if a result has that axis.
  try:
    jax.eval_shape(jax.vmap(function, in_axes=axes, out_axes=None), *arguments)
  except (ValueError, NotImplementedError):
    return True  # or JAX cannot tell, of a call of Python
  return False


def check_rounds(traced: Traced) -> None:
  """Raise `UserError` if rounds that are called one by one give another state than rounds
  that are called together, as checkpoints decide. This computes six rounds of the first
  run, and only of an `advance` that does not read where it begins.
  """
  task = traced.task
  start, advance, _ = traced.stages
  if task.rounds < 2 or _reads_round(advance, -2):
    return
  shared = jax.tree.leaves((task.data, traced.lane))
  begin = jax.jit(functools.partial(evaluate_program, start.jaxpr))
  proceed = jax.jit(functools.partial(evaluate_program, advance.jaxpr))
  state = begin(*shared)

  def after(state, first, last):
    return proceed(*shared, *state, np.int32(first), np.int32(last))

  rounds = min(task.rounds, 3)
  together = after(state, 0, rounds)
  apart = state
  for first in range(rounds):
    apart = after(apart, first, first + 1)
  for one, other in zip(apart, together, strict=True):
    if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
      one, other = map(jax.random.key_data, (one, other))
    if np.asarray(one).tobytes() != np.asarray(other).tobytes():
      raise UserError(
        f"advance of {task.name} does not read its argument first, and {rounds} rounds "
        "called one by one give another state than called together: begin at first, as "
        "jax.lax.fori_loop(first, last, ...) does, or count rounds in the state"
      )


def check_names_are_free(runs: Runs, kept, constants: Constants) -> None:
  """Raise `UserError` if a column of the table has the name of something else."""
  taken = {"run"}
  for name in (*kept, *constants):
    taken.add(name.rpartition("/")[2])
  for output in kept.values():
    taken.update(output.dims)
  for name in runs.values.keys() & taken:
    raise UserError(
      f"a value {name!r}: that name is already used in the results, rename the value"
    )


def check_varying(traced: Traced, runs: Runs) -> None:
  """Raise `UserError` if a source was chosen to vary, or a value is swept, that no run
  depends on, or if runs of a task differ in nothing.
  """
  task = traced.task
  names = (*task.sources, *task.values)
  is_recipe = bool(task.internal.spec)
  if (
    not is_recipe
    and len(runs) > 1
    and not any(depends_on_input(traced, n) for n in names)
  ):
    sources = list(task.sources) or ["init"]
    raise UserError(
      f"{task.name} reads no seed and no value: its {len(runs)} runs would be equal; "
      f"draw from run.key({sources[0]!r}) in start or advance, with "
      f"sources={sources}"
    )
  varying = runs.varying()
  unread = [s for s in varying if not depends_on_input(traced, s)]
  if unread:
    others = [
      s for s in task.sources if s not in unread and depends_on_input(traced, s)
    ]
    condition = ""
    if "data" in unread:
      condition = " (data only after Runs.subset or Runs.bootstrap)"
    raise UserError(
      f"{task.name} reads no seed of {', '.join(unread)}: vary some of "
      f"{', '.join(others)}{condition}"
    )
  # Programs for fixed values differ, whatever they read.
  swept = [n for n in runs.swept() if n in task.values and n not in task.internal.fixed]
  unread = [name for name in swept if not depends_on_input(traced, name)]
  if unread:
    raise UserError(
      f"{task.name} does not read {', '.join(unread)}: a sweep of it would train the "
      f"same run again; read run[{unread[0]!r}] in the optimizer or where it matters, or "
      "sweep what is read there, declared as values={'name': number}"
    )


def depends_on_input(traced: Traced, name: str) -> bool:
  """Return whether a run depends on a source or a value. This computes nothing."""
  stages = [functools.partial(evaluate_program, stage.jaxpr) for stage in traced.stages]
  start, advance, finish = stages

  def trained(data, run):
    shared = jax.tree.leaves((data, run))
    state = start(*shared)
    if traced.task.rounds:
      state = advance(*shared, *state, np.int32(0), np.int32(traced.task.rounds))
    return state, finish(*shared, *state)

  def marked(path, leaf):
    # Training does not read the data seed, only the subset that it drew or that was
    # given for it.
    keys = {getattr(key, "key", getattr(key, "name", None)) for key in path}
    return name in keys or (name == "data" and bool(keys & DRAWN_BY_DATA))

  run = traced.lane
  axes = jax.tree.map_with_path(lambda p, leaf: 0 if marked(p, leaf) else None, run)
  batched = jax.tree.map_with_path(
    lambda p, leaf: leaf[None] if marked(p, leaf) else leaf, run
  )
  return _depends(trained, (None, axes), (traced.task.data, batched))


def as_stored(
  kept: Mapping[str, Output], values: Mapping[str, Shaped[np.ndarray, "runs ..."]]
) -> dict[str, np.ndarray]:
  """Return what is stored of some runs' outputs, with fractions of counts as float64."""
  results = {}
  for name, output in kept.items():
    results[name] = values[name]
    if output.total:
      results[name] = values[name] / output.total
  return results
