"""What a user trains is a recipe or a task. These functions treat both alike, so that
nothing above this package asks which of the two it has.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from vmapseeds.data import Dataset
from vmapseeds.errors import UserError, check_one_of
from vmapseeds.training import objects
from vmapseeds.training.names import SOURCES
from vmapseeds.training.outputs import Keep
from vmapseeds.training.recipe_runs import Base, assign_start_networks
from vmapseeds.training.recipes import RECIPES, Recipe, plugins, recipe
from vmapseeds.training.runs import POOLED, Runs
from vmapseeds.training.supervised import load_recipe_task
from vmapseeds.training.task import Task, describe_task, with_internal


def resolve_task(task: Recipe | Task | str) -> Recipe | Task:
  """Return the recipe or the task that is given: the object itself, a recipe's name, or
  an import string.
  """
  if isinstance(task, str) and task not in RECIPES:
    text = plugins().get(task, task)
    imported = None
    if objects.is_import(text):
      imported = objects.import_object(text)
    if isinstance(imported, Task):
      # Another process imports it by the same text.
      return with_internal(imported, origin=text)
  if isinstance(task, Task):
    return task
  return recipe(task)


def from_description(spec: str, origin: str, out: Any = "") -> Recipe | Task:
  """Return the recipe or the task that a folder describes.

  Args:
    spec: what `spec_of` returned.
    origin: the import string that it was found by, if any.
    out: the folder, for error messages.

  Raises:
    UserError: the import string finds none, or another one.
  """
  imported = None
  if origin:
    imported = objects.import_object(origin)
  is_task = "start" in json.loads(spec)
  if not is_task:
    # The folder's fields count: the recipe of that name may have changed since.
    described = Recipe.from_json(spec)
    if isinstance(imported, Recipe):
      described = described.found_in(imported)
    return dataclasses.replace(described, origin=origin)
  if not isinstance(imported, Task):
    raise UserError(
      f"{out} was created from a task that cannot be imported by name: resume it from "
      "the program that created it, or start it as `vmapseeds train package.module:task`"
    )
  return with_internal(imported, origin=origin)


def origin_of(task: Recipe | Task) -> str:
  """Return the import string that it came from, if any."""
  if isinstance(task, Recipe):
    return task.origin
  return task.internal.origin


def spec_of(task: Recipe | Task) -> str:
  """Return all that defines it but its data, as JSON."""
  if isinstance(task, Recipe):
    return task.to_json()
  return describe_task(task)


def check_importable(task: Recipe | Task, who: str) -> None:
  """Raise `UserError` if another process (`who`, in the message) cannot import it, or an
  object that it is made of.
  """
  if isinstance(task, Recipe):
    task.check_found(who)
  elif not task.internal.origin:
    raise UserError(
      f"task {task.name} is an object of this program: {who} needs it in a module, as "
      "package.module:name"
    )


def all_sources(task: Recipe | Task) -> tuple[str, ...]:
  """Return the names of its sources of randomness."""
  if isinstance(task, Recipe):
    return (*SOURCES, *task.sources)
  return tuple(task.sources)


def own_values(task: Recipe | Task) -> Mapping[str, float]:
  """Return the numbers that a sweep may vary, and their values where none does."""
  if isinstance(task, Recipe):
    return task.hyperparameters
  return task.values


def check_swept(task: Recipe | Task, names: Iterable[str]) -> None:
  """Raise `UserError` if a sweep cannot vary one of these."""
  if isinstance(task, Recipe):
    task.check_swept(names)
    return
  for name in names:
    check_one_of("value to sweep", name, task.values)


def data_name(task: Recipe | Task) -> str:
  """Return what its data are called: by the task if they have no name."""
  if isinstance(task, Recipe):
    return objects.name_of(task.dataset)
  return task.name


def with_dataset(task: Recipe | Task, path: Any) -> Recipe | Task:
  """Return a recipe with its data elsewhere. The data of a task have no path."""
  if isinstance(task, Recipe):
    return task.replace(dataset=path)
  return task


def file_of_data(task: Recipe | Task) -> str | None:
  """Return the path of the file that has a recipe's data, if one has."""
  if isinstance(task, Recipe) and str(task.dataset).endswith(".npz"):
    return task.dataset
  return None


def with_precision(task: Recipe | Task, precision: str) -> Recipe | Task:
  """Return a recipe with a precision in place of `auto`. A task says its own."""
  if isinstance(task, Recipe) and task.precision == "auto":
    return task.replace(precision=precision)
  return task


def start_folder(task: Recipe | Task) -> str | None:
  """Return the folder of the networks that runs of a recipe start from, if they do."""
  return task.start_from if isinstance(task, Recipe) else None


def load_data(
  task: Recipe | Task,
  runs: Runs,
  keep: Keep,
  *,
  memory: float,
  base: Base | None,
  says: bool,
) -> tuple[Task, Runs]:
  """Return the task with its data loaded, and the table, with networks to start from.

  Args:
    task: what is trained.
    runs: the table.
    keep: what is kept of each run.
    memory: bytes that a device has.
    base: the stored networks of `start_folder`.
    says: whether to say on stderr what is strange in the data and the model.

  Raises:
    UserError: recipe, runs and data do not fit together, or a task cannot keep that.
  """
  if isinstance(task, Recipe):
    if base is not None:
      runs = assign_start_networks(runs, base)
    return load_recipe_task(task, runs, keep, memory=memory, base=base, says=says), runs
  # `predictions` works for a task, too: its classes are known by their role.
  if keep != Keep(keep.predictions):
    raise UserError(
      f"{task.name} is a task, whose finish says what is kept: leave logits, "
      "keep_params out"
    )
  return task, runs


def declared_roles(task: Recipe | Task, runs: Runs) -> dict[str, str]:
  """Return the roles that outputs of runs may have, by their names in results."""
  if isinstance(task, Task):
    outputs = task.outputs.items()
    return {name.rpartition("/")[2]: output.role for name, output in outputs}
  dataset: Any = task.dataset
  # Names of data sets are taken as classifications before they are loaded.
  classes = not (isinstance(dataset, Dataset) and dataset.num_classes is None)
  if runs.sampling and runs.sampling[0] in POOLED:
    # Each run has examples of its own, so that there is one number of each.
    number = "accuracy" if classes else "loss"
    names = [number, *task.metrics]
    return {f"{part}_{name}": "score" for part in ("test", "valid") for name in names}
  metrics = dict.fromkeys(task.metrics, "score")
  if classes:
    return {"predictions": "class"} | metrics
  if objects.is_object(task.loss):  # one that depends on its batch is a score
    metrics["loss"] = "score"
  return {"losses": "loss"} | metrics
