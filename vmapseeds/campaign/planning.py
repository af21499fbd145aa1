"""Plan a campaign before its folder is opened: resolve names to objects, load the data,
trace the functions. Each step returns a value that the next one takes.
"""

import dataclasses
import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from vmapseeds import convolutions, lanes
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.provenance import machine_conditions, package_versions
from vmapseeds.errors import UserError, hide_own_frames, option, say
from vmapseeds.lanes.memory import free_memory
from vmapseeds.results.description import (
  KEPT,
  MIXED,
  Contents,
  combinations,
  count_entries,
  output_entries,
)
from vmapseeds.results.kept_networks import StoredNetworks
from vmapseeds.store.files import Folder
from vmapseeds.store.layout import Description
from vmapseeds.training import outputs
from vmapseeds.training.identity import Identity, identify
from vmapseeds.training.outputs import Keep, Output
from vmapseeds.training.recipe_or_task import (
  all_sources,
  data_name,
  file_of_data,
  from_description,
  load_data,
  own_values,
  resolve_task,
  start_folder,
  with_dataset,
  with_precision,
)
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run, Runs, format_value
from vmapseeds.training.task import (
  Task,
  Traced,
  bind_runs,
  check_rounds,
  check_varying,
  describe_task,
  program_columns,
  rows_by_program,
  trace,
  trace_programs,
  variant_of,
  with_internal,
)


class ProgramGroup(NamedTuple):
  """Runs that share a program."""

  rows: Int[np.ndarray, " rows"]  # of a table
  traced: Traced


class GroupedRuns(NamedTuple):
  """A table, and which of its runs share a program."""

  runs: Runs
  groups: Sequence[ProgramGroup]


@dataclasses.dataclass(frozen=True, eq=False)
class CheckedTask:
  """A task and the runs to train, traced and checked. How its lanes are run is open."""

  task: Task
  runs: Runs  # bound to the task
  # By the values that choose them
  programs: Mapping[tuple[float | str, ...], Traced]
  options: Options
  identity: Identity
  stored: Mapping[str, Output]  # what the folder has of each run
  tallied: Mapping[str, Output]  # the classes that can be counted on the devices

  @property
  def traced(self) -> Traced:
    """The task, traced for the first run."""
    return next(iter(self.programs.values()))

  def grouped(self, runs: Runs) -> GroupedRuns:
    """Return runs by the programs that they share. They may be others than the plan's:
    a block is trained whole.
    """
    groups = []
    for values, rows in rows_by_program(self.task, runs).items():
      traced = self.programs.get(values)
      if traced is None:
        first_run = runs[rows[:1]]
        traced = trace(variant_of(self.task, first_run), first_run)
      groups.append(ProgramGroup(rows, traced))
    return GroupedRuns(runs, groups)

  def traced_for(self, runs: Runs) -> Traced:
    """Return the task, traced for runs that share a program."""
    (group,) = self.grouped(runs).groups
    return group.traced

  def model_steps(self, runs: Runs) -> int:
    """Return how many training steps these runs take together."""
    steps = 0
    for rows, traced in self.grouped(runs).groups:
      steps += len(rows) * traced.task.rounds * traced.task.steps
    return steps

  def planned(self, execution: lanes.Execution, block_runs: int) -> "Plan":
    """Return the finished plan."""
    return Plan(**vars(self), execution=execution, block_runs=block_runs)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan(CheckedTask):
  """All that a campaign's folder is made of, and its blocks are trained by."""

  execution: lanes.Execution
  block_runs: int  # of the folder: how many runs make a block

  @functools.cached_property
  def contents(self) -> Contents:
    """What the folder holds."""
    return contents_of(self)

  @functools.cached_property
  def provenance(self) -> Description:
    """Everything that results depend on, as the folder, its records and checkpoints have
    it.
    """
    # A task of one's own has none of these, but all folders have the same fields.
    unknown = dict.fromkeys(("precision", "networks_digest", "mean", "std"))
    return {
      **unknown,
      **self.task.internal.conditions,
      "recipe": describe_task(self.task),
      "identity": self.identity,
      "data_digest": self.identity["data"],
      **machine_conditions(),
      "onednn": calls_onednn(self),
      "lane_width": self.execution.width,
      "lowering": self.execution.lowering,
      "versions": package_versions(),
    }


def calls_onednn(plan: Plan) -> bool:
  """Return whether lanes convolve or multiply by oneDNN: see `convolutions.onednn`."""
  if lanes.devices()[0].platform != "cpu":
    return False
  return any(
    convolutions.calls_onednn(traced.equations) for traced in plan.programs.values()
  )


def with_traced_functions(checked: CheckedTask) -> Task:
  """Return a checked task with the functions that its runs will call: on a CPU the traced
  programs, which take a fraction of the time to be traced again.
  """
  task = checked.task
  # Where runs vary fields of the recipe, the traced programs are of other tasks.
  if task.internal.fields:
    return task
  start, advance, finish = checked.traced.functions
  # No import string leads to a traced program, so the task keeps its description.
  named = with_internal(task, spec=describe_task(task))
  return dataclasses.replace(named, start=start, advance=advance, finish=finish)


@hide_own_frames
def single_run(task: Recipe | Task | str, seed: int = 0, **values: float) -> Run:
  """Return one run as the functions of a task get it, with its keys and values: to hold
  a lane of a campaign against a program that trains it alone.

  >>> run = single_run("digits_cnn", 7, lr=0.1)
  >>> float(run["lr"]), run.key("init").dtype
  (0.10000000149011612, key<fry>)

  Args:
    task: a recipe or a task, the name of a recipe, or an import string.
    seed: of every source of randomness, as run `seed` of `Runs.independent` has it.
    **values: instead of the task's own.

  Raises:
    UserError: the seed is not one, or the task has no such value.
  """
  task = resolve_task(task)
  # A table of one run, filled up as that of a campaign is.
  table = Runs.independent(1, start=seed)
  if values:
    columns: dict[str, Any] = dict(values)
    table = Runs.sweep(seeds=table, **columns)
  own = own_values(task)
  run = table.filled(all_sources(task), own).lanes(own, {})
  return jax.tree.map(lambda column: column[0], run)


def load_task(task: Recipe | Task, runs: Runs, options: Options) -> tuple[Task, Runs]:
  """Return the task with its data loaded, and the runs bound to it.

  Raises:
    UserError: recipe, runs and data do not fit together.
  """
  device = lanes.start_jax()[0]
  keep = Keep(options.predictions == "all", options.logits, options.keep_params)
  base = None  # stored networks that the runs begin with
  networks = start_folder(task)
  if networks:
    base = StoredNetworks(networks)
  task, runs = load_data(
    task, runs, keep, memory=free_memory(device), base=base, says=options.progress
  )
  return task, bind_runs(task, runs)


def reload_task(
  out: Folder,
  root: Description,
  spec: str,
  runs: Runs,
  options: Options,
  dataset: Folder | None = None,
) -> CheckedTask:
  """Load and check the task of a folder's campaign.

  Args:
    out: the folder.
    root: its description, or what one of its records has in place of that.
    spec: what the task was made from, as the folder or one of its records has it.
    runs: the runs to train.
    options: what is kept of each run.
    dataset: where the data are, if they have moved.

  Raises:
    UserError: the task is not found, has changed, or its data have.
  """
  source = from_description(spec, root.get("origin", ""), out)
  source = with_recorded_precision(source, root)
  if dataset is not None:
    source = with_dataset(source, dataset)
  file = file_of_data(source)
  if file is not None and not os.path.exists(file):
    raise UserError(
      f"no such file {file!r}, the data of {out}: say where they are with "
      f"{option('dataset', 'PATH')}"
    )
  task, runs = load_task(source, runs, options)
  # The folder has only the path of the networks that its runs begin with.
  if task.internal.conditions.get("networks_digest") != root.get("networks_digest"):
    folder = json.loads(describe_task(task))["start_from"]
    raise UserError(
      f"the networks of {folder} are not those that {out} began with: put those back"
    )
  checked = check_task(task, runs, options)
  if checked.identity["data"] != root["data_digest"]:
    raise UserError(
      f"the data {data_name(source)} are not those of {out}: say where those are "
      f"with {option('dataset', 'PATH')}"
    )
  return checked


def with_recorded_precision(task: Recipe | Task, root: Description) -> Recipe | Task:
  """Return a recipe with what its precision `auto` resolved to where its folder was
  made: other devices may mean another one.
  """
  recorded = root.get("precision")
  # A folder whose records have several precisions says nothing.
  if recorded in (None, MIXED):
    return task
  return with_precision(task, recorded)


def with_recorded_paths(checked: CheckedTask, root: Description) -> CheckedTask:
  """Return a checked task with the paths to data and networks that the folder has
  recorded, if their contents are the same.
  """
  task = checked.task
  mine = json.loads(describe_task(task))
  theirs = json.loads(root.get("recipe", "{}"))
  if "dataset" not in mine:  # a task, whose data have no path
    return checked
  digests = {"data_digest": checked.identity["data"], **task.internal.conditions}
  for field, digest in (("dataset", "data_digest"), ("start_from", "networks_digest")):
    are_paths = isinstance(theirs.get(field), str) and isinstance(mine.get(field), str)
    if are_paths and root.get(digest) == digests[digest]:
      mine[field] = theirs[field]
  spec = json.dumps(mine)
  if spec == describe_task(task):
    return checked
  return dataclasses.replace(checked, task=with_internal(task, spec=spec))


def with_recorded_values(checked: CheckedTask, recorded: Runs) -> CheckedTask:
  """Return a checked task with the values of the runs that a folder has already, where
  another recipe adds more to them.
  """
  runs = checked.runs
  # The table may be shorter than the folder, or extend it.
  shared = min(len(recorded), len(runs))
  values = dict(runs.values)
  for name in checked.task.values.keys() & recorded.values.keys():
    kept, added = recorded.values[name][:shared], values[name][shared:]
    values[name] = np.concatenate([kept, added])
  return dataclasses.replace(checked, runs=dataclasses.replace(runs, values=values))


def check_task(task: Task, runs: Runs, options: Options) -> CheckedTask:
  """Trace a task for the runs bound to it, and check that all fits together.

  Raises:
    UserError: it does not.
  """
  # Traced once: all that follows reads these programs.
  task, programs = trace_programs(task, runs)
  traced = next(iter(programs.values()))
  check_varying(traced, runs)
  check_rounds(traced)
  check_programs_store_alike(task, programs)
  if len(programs) > 1:
    check_several_programs(task, len(programs), options)
  tallied = traced.classes
  if "label_map" in runs.values:
    # Runs have labels of their own, so their classes cannot be added up.
    tallied = {}
  # Without predictions, all statistics come from counts.
  if options.predictions == "none" and not (tallied and options.tallies):
    raise UserError(
      "predictions='none' keeps tallies alone: give tallies=True, and classes without "
      "label maps"
    )
  stored = {
    name: output
    for name, output in traced.stored.items()
    if options.predictions == "all" or not outputs.ROLES[output.role].is_counted
  }
  identity = identify_programs(task, runs, programs)
  return CheckedTask(task, runs, programs, options, identity, stored, tallied)


def check_several_programs(task: Task, count: int, options: Options) -> None:
  """Say how many programs are compiled.

  Raises:
    UserError: their runs cannot be saved in training.
  """
  names = program_columns(task)
  each = "is compiled once a value" if len(names) == 1 else "are compiled together"
  line = f"{' and '.join(names)} {each}: {count} compilations"
  if options.checkpoint_every not in (None, "never"):
    raise UserError(
      f"{line}, and blocks of several programs cannot be saved in training: leave "
      "checkpoint_every out"
    )
  if options.progress:
    say(line)


def name_program(task: Task, values: tuple[float | str, ...]) -> str:
  """Return the values that choose a program as a text."""
  pairs = zip(program_columns(task), values, strict=True)
  return ", ".join(f"{name}={format_value(value)}" for name, value in pairs)


def identify_programs(
  task: Task,
  runs: Runs,
  programs: Mapping[tuple[float | str, ...], Traced],
) -> Identity:
  """Return a task's identity: that of its program with its own values, whatever those of
  the runs, and the programs for each of the values that choose one.

  Raises:
    UserError: several of these make the same program.
  """
  if not program_columns(task):
    (traced,) = programs.values()
    return identify(traced)
  # With the task's own values, so that what a sweep goes over changes no identity.
  one_run = runs[:1]
  own_values = {name: np.full(1, value) for name, value in task.values.items()}
  with_own_values = dataclasses.replace(one_run, values=one_run.values | own_values)
  named = {name_program(task, values): traced for values, traced in programs.items()}
  identity = identify(trace(task, with_own_values), named)
  if task.internal.fields:
    check_distinct(identity["fixed"])
  return identity


def check_distinct(digests: Mapping[str, str]) -> None:
  """Raise `UserError` if two of the programs, given by name, are the same."""
  names: dict[str, str] = {}
  for name, digest in digests.items():
    if digest in names:
      raise UserError(
        f"{names[digest]} and {name} train the same runs: leave one of them out"
      )
    names[digest] = name


def check_programs_store_alike(
  task: Task, programs: Mapping[tuple[float | str, ...], Traced]
) -> None:
  """Raise `UserError` unless the runs of all programs store the same arrays."""
  (first_values, first), *others = programs.items()
  for values, traced in others:
    both = f"{name_program(task, first_values)} and {name_program(task, values)}"
    for name in dict.fromkeys((*first.stored, *traced.stored)):
      check_programs_store_array_alike(both, name, first, traced)
    for name, (_, constant) in first.constants.items():
      if not np.array_equal(constant, traced.constants[name][1]):
        raise UserError(f"{both} differ in {name}: train a folder for each")


def check_programs_store_array_alike(
  both: str, name: str, first: Traced, second: Traced
) -> None:
  """Raise `UserError` unless two programs, described by `both`, store an array alike."""
  forms = [_stored_form(first, name), _stored_form(second, name)]
  if forms[0] == forms[1]:
    return
  output = second.stored.get(name) or first.stored[name]
  remedy = "train a folder for each"
  if output.role == "variable":
    remedy = f"leave keep_params out, or {remedy}"
  shapes = ", ".join(form[0] for form in forms)
  raise UserError(
    f"{both} store different arrays of a run, such as {name} ({shapes}): {remedy}"
  )


def _stored_form(traced, name):
  """Return the dtype and shape of an array of runs as a text, and all else that a folder
  says of it.
  """
  if name not in traced.stored:
    return ("none",)
  shape = traced.shapes[name]
  output = traced.stored[name]
  return f"{shape.dtype} {list(shape.shape)}", output.dims, output.attributes


def contents_of(plan: Plan) -> Contents:
  """Return what the campaign's folder holds.

  Votes are counted unless they take more numbers than predictions, as in a search with
  other values for each run.
  """
  task, runs, traced, options = plan.task, plan.runs, plan.traced, plan.options
  labels = {}
  # Classes that are counted have labels even where they are not stored.
  for name, output in {**traced.stored, **traced.classes}.items():
    if output.labels is None or output.series:
      continue
    of_predictions = {"of": name.rpartition("/")[2]}
    labels[outputs.sibling(name, "labels")] = output.of_labels | of_predictions
  sampling = None
  if runs.sampling:
    # How examples are drawn depends on how many there are.
    sampling = [*runs.sampling, len(task.data[0])]
  about_task: Description = {
    "recipe": describe_task(task),
    "origin": task.internal.origin,
    "test_sets": traced.groups,
    "num_classes": traced.num_classes,
    "sampling": sampling,
    "sources": list(task.sources),
    "shown": traced.shown,
    "kept": {option: getattr(options, option) for option in KEPT},
  }
  return Contents(
    description=about_task,
    columns=runs.columns(),
    constants=traced.constants,
    labels=labels,
    outputs=output_entries(plan.stored, traced.shapes),
    counts=entries_of_counts(plan),
  )


def entries_of_counts(plan: Plan) -> dict[str, Description]:
  """Return the entries, in a folder's description, of what is counted of each block."""
  options = plan.options
  if not options.tallies:
    return {}
  block_runs = plan.block_runs
  starts = range(0, len(plan.runs), block_runs)
  blocks = [plan.runs[slice(start, start + block_runs)] for start in starts]
  # The arrays of all blocks have the same shape, that of the block with most.
  most = max(combinations(block)[1] for block in blocks)
  entries: dict[str, Description] = {}
  for name, output in plan.tallied.items():
    classes = output.num_classes or 1
    is_small = most == 1 or most * classes <= block_runs
    if is_small or options.predictions == "none":
      _, labels = plan.traced.constants[outputs.sibling(name, "labels")]
      entries |= count_entries(
        name, len(labels), classes, most, block_runs, options.pairs
      )
  return entries
