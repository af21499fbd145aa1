"""Finds recipes and tasks by name or by a folder's description, and loads their data."""

import dataclasses
import json
import os
from typing import Any

from vmapseeds import lanes
from vmapseeds.lanes.memory import free_memory
from vmapseeds.mistakes import Mistake
from vmapseeds.results import description
from vmapseeds.results.networks import StoredNetworks
from vmapseeds.training import objects
from vmapseeds.training.recipes import RECIPES, Recipe, plugins
from vmapseeds.training.recipes import recipe as named
from vmapseeds.training.runs import Runs
from vmapseeds.training.supervised import Supervised, supervised
from vmapseeds.training.task import Task


def found(task: Recipe | Task | str) -> Recipe | Task:
  """The recipe or the task that is given: the object itself, a recipe's name, or an
  import string.
  """
  if isinstance(task, str) and task not in RECIPES:
    text = plugins().get(task, task)
    if objects.is_import(text) and isinstance(made := objects.imported(text), Task):
      return dataclasses.replace(made, origin=text)
  return task if isinstance(task, Task) else named(task)


def prepared(
  task: Recipe | Task,
  runs: Runs,
  *,
  logits: bool = False,
  keep_params: bool = False,
  predictions: str = "all",
) -> Task:
  """The task with its data loaded. Raises `Mistake` if recipe, runs and data do not fit
  together.
  """
  device, stored = lanes.start_jax()[0], predictions == "all"
  if isinstance(task, Recipe):
    base = StoredNetworks(task.start_from) if task.start_from else None
    return supervised(
      task,
      runs,
      logits=logits,
      keep_params=keep_params,
      predictions=stored,
      memory=free_memory(device),
      base=base,
    )
  if logits or keep_params or not stored:
    raise Mistake(
      f"{task.name} is a task, whose finish says what is kept: leave logits, keep_params, predictions out"
    )
  return task


def prepared_again(
  out: str | os.PathLike,
  root: dict[str, Any],
  recipe: str,
  runs: Runs,
  dataset: str | os.PathLike | None,
  *,
  precision: str | None = None,
  **kept: Any,
) -> Task:
  """The task of a folder's campaign, its data read from `dataset` if given. Raises
  `Mistake` if the data differ.
  """
  asked = from_description(recipe, root.get("origin", ""), out)
  if isinstance(asked, Recipe):
    changed = {"precision": precision, "dataset": dataset}
    asked = asked.replace(
      **{field: value for field, value in changed.items() if value is not None}
    )
    if str(asked.dataset).endswith(".npz") and not os.path.exists(asked.dataset):
      raise Mistake(
        f"no such file {asked.dataset!r}, the data of {out}: say where they are with --dataset PATH"
      )
  task = prepared(asked, runs, **kept)
  if task.data_digest != root["data_digest"]:
    theirs, ours = (
      digest.partition(" from ") for digest in (root["data_digest"], task.data_digest)
    )
    if isinstance(task, Supervised) and task.base and theirs[0] == ours[0]:
      raise Mistake(
        f"the networks of {task.base.path} are not those that {out} began with: put those back"
      )
    name = task.data_name if isinstance(task, Supervised) else task.name
    raise Mistake(
      f"the data {name} are not those of {out}: say where those are with --dataset PATH"
    )
  return task


def from_description(
  text: str, origin: str, out: str | os.PathLike = ""
) -> Recipe | Task:
  """The recipe or the task that a folder describes. Raises `Mistake` if its import
  string finds none or another one.

  Args:
    text: the description that `Task.described` returned.
    origin: the import string that it was found by, if any.
    out: the folder, for error messages.
  """
  first = objects.imported(origin) if origin else None
  if "start" not in json.loads(text):
    recipe = Recipe.from_json(text)
    return dataclasses.replace(
      recipe.found_in(first) if isinstance(first, Recipe) else recipe, origin=origin
    )
  if not isinstance(first, Task):
    said = f"{out} is of a task that no name leads to: only the program that began it goes on"
    raise Mistake(f"{said}, or start it as `vmapseeds train package.module:task`")
  values = {
    name: value
    for name, value in json.loads(text)["values"].items()
    if name in first.values
  }
  task = dataclasses.replace(first.replace(**values), origin=origin)
  if difference := description.differences(
    {"recipe": text}, {"recipe": task.described()}
  ):
    raise Mistake(f"{out}: {origin} has changed in {difference}: undo the change")
  return task


def lying_elsewhere(task: Task, root: dict[str, Any]) -> Task:
  """The task with the folder's paths to the data and stored networks, which have the
  same contents.
  """
  if not isinstance(task, Supervised):
    return task
  theirs = json.loads(root["recipe"])
  places = {
    field: theirs[field]
    for field in ("dataset", "start_from")
    if isinstance(theirs.get(field), str)
  }
  return dataclasses.replace(task, recipe=task.recipe.replace(**places))
