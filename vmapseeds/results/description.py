"""What a recipe's campaign keeps in a results folder, and whether a folder is of the campaign that is to go on.

The root group holds what is per run: `seed_<source>`, swept hyperparameters by their names, `poke_step`, `label_map`,
`subset`, `diverged`. Each test set is a group with `predictions(run, example)`, `accuracy(run)`, `labels(example)` and,
on request, `logits(run, example, class)`. The group `variables` is there on request, with an array a leaf
(`vmapseeds.results.networks`). The description has the recipe as JSON, the names of the test sets and what the results
depend on: device kind, lane width, lowering, precision (what `auto` came to), data, the mean and deviation of its pixels.

Runs that were imported (`vmapseeds.results.imports`) have no seed and none diverged; `device_kind` is "imported",
`lane_width`, `lowering`, `precision` and `data_digest` are None, and `recipe` is the JSON not of a `Recipe` but of
`name`, `dataset` (None), `test_sets` and `imported`: file, shape and dtype of each array that came.
"""

import contextlib
import os
from typing import Any

import jax
import numpy as np

from vmapseeds.data import Dataset
from vmapseeds.mistakes import Mistake
from vmapseeds.training.evaluation import Evaluation
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs
from vmapseeds.store.folders import check_writable, made, occupied
from vmapseeds.store.layout import array, checked, ours
from vmapseeds.store.results import Results

IMPORTED = "imported"  # the device kind of runs from elsewhere
MIXED = "mixed"  # a condition that is not the same for all runs: records have those of each
VARIABLES = "variables"
DIMENSIONS = {"label_map": ("run", "original_class"), "subset": ("run", "train_example")}


def check_folder(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is the results folder of a training, an empty folder, or can be made."""
  check_writable(path)
  root = checked(path)
  if root is None and occupied(path) and not (root := checked(path)):  # another process may have made it meanwhile
    raise Mistake(f"{path} holds something else than results: give a new or empty folder")
  if root and root["device_kind"] == IMPORTED:
    raise Mistake(f"{path} holds imported runs, which cannot be extended: give a new or empty folder")


def open_or_create(
  path: str | os.PathLike, recipe: Recipe, runs: Runs, data: Dataset, *, block_runs: int, logits: bool,
  variables: dict[str, jax.ShapeDtypeStruct], conditions: dict[str, Any], versions: dict[str, str],
  force_mixed: bool = False,
) -> Results:  # fmt: skip
  """The campaign's folder, made if there is none, extended if it has fewer runs.

  Args:
    path: the folder.
    recipe: what its runs train.
    runs: all that it is to have.
    data: whose labels it keeps.
    block_runs: of a new folder.
    logits: whether it keeps them.
    variables: those of one run, by their names; none where they are not kept.
    conditions: what bit-for-bit equal results need besides the recipe: device kind, lane width, lowering, precision,
      data.
    versions: of Python and of packages.
    force_mixed: goes on under another recipe, other conditions or versions, and notes in the description which.

  Raises:
    Mistake: the folder holds something else, cannot be written, or belongs to another recipe, other runs or other
      conditions. Nothing is changed then.
    FileExistsError: another process has made the folder meanwhile.
  """
  check_folder(path)
  num_classes = runs.num_classes(data.num_classes)
  labels = {f"{name}/labels": examples.labels for name, examples in data.tests.items()}
  if checked(path) is not None:
    results = Results(path)
    mixed = check_same(results, recipe, runs, logits, bool(variables), conditions, versions, force_mixed)
    check_task(results, data, num_classes, variables)
    results.restore({}, labels)
    results.extend(len(runs), runs.columns())
    settle(results, conditions, versions, mixed)
    return results

  description = {
    "recipe": recipe.to_json(), "test_sets": list(recipe.test_sets), "num_classes": num_classes,
    "sampling": _sampling(runs), "logits": logits, **conditions, "versions": versions,
  }  # fmt: skip
  with new_folder(
    path, description, runs=len(runs), block_runs=block_runs, columns=runs.columns(), labels=labels,
    logits=np.float32 if logits else None, variables=variables,
  ) as results:  # fmt: skip
    return results


def new_folder(
  path: str | os.PathLike, description: dict[str, Any], *, runs: int, block_runs: int, labels: dict[str, np.ndarray],
  columns: dict[str, np.ndarray], logits: Any = None, variables: dict[str, jax.ShapeDtypeStruct] | None = None,
) -> contextlib.AbstractContextManager[Results]:  # fmt: skip
  """`made`, with the arrays that runs of classifiers have.

  Args:
    path: the folder.
    description: with `num_classes`.
    runs: how many.
    block_runs: how many of them a block has.
    labels: by the paths of their arrays, `<test set>/labels`.
    columns: what is known of each run.
    logits: of which dtype they are kept, None where they are not.
    variables: those of one run, by their names, where they are kept.
  """
  num_classes = description["num_classes"]
  integers = np.int8 if num_classes <= 127 else np.int16
  outputs = {"diverged": of_runs(bool)}
  for name, of_examples in labels.items():
    test_set = name.partition("/")[0]
    outputs[f"{test_set}/predictions"] = of_runs(integers, example=len(of_examples))
    outputs[f"{test_set}/accuracy"] = of_runs(np.float64)
    if logits is not None:
      outputs[f"{test_set}/logits"] = of_runs(logits, **{"example": len(of_examples), "class": num_classes})
  for name, leaf in (variables or {}).items():
    axes = {f"{name}.{axis}": n for axis, n in enumerate(leaf.shape)}
    outputs[f"{VARIABLES}/{name}"] = of_runs(leaf.dtype, **axes)
  return made(
    path, description, runs=runs, block_runs=block_runs, columns=columns, examples=labels, outputs=outputs,
    dimensions={**DIMENSIONS, **dict.fromkeys(labels, ("example",))},
  )  # fmt: skip


def of_runs(dtype: Any, **axes: int) -> dict[str, Any]:
  """What a description says of an array with a first axis of runs and these others."""
  return array(jax.ShapeDtypeStruct((0, *axes.values()), dtype), "run", *axes)


def outputs(
  diverged: np.ndarray, evaluations: dict[str, Evaluation], variables: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """What became of some runs, by the names of the arrays that keep it."""
  found = {"diverged": diverged, **{f"{VARIABLES}/{name}": leaf for name, leaf in variables.items()}}
  for name, evaluation in evaluations.items():
    found[f"{name}/predictions"] = evaluation.predictions
    found[f"{name}/accuracy"] = evaluation.correct / evaluation.predictions.shape[1]
    if evaluation.logits is not None:
      found[f"{name}/logits"] = evaluation.logits
  return found


def variables_of(root: dict[str, Any]) -> dict[str, list[int]]:
  """The shapes of one run's variables by their names, none where they are not kept."""
  names = (name for name in root["arrays"] if name.startswith(f"{VARIABLES}/"))
  return {name.removeprefix(f"{VARIABLES}/"): root["arrays"][name]["shape"] for name in names}


def campaign_of(path: str | os.PathLike) -> tuple[Recipe, Runs, Results]:
  """Recipe, runs table and folder of a campaign. `Mistake` where it is none of ours."""
  root = ours(path)
  if root["device_kind"] == IMPORTED:
    raise Mistake(f"{path} holds imported runs, whose training is not known: give a folder that `vmapseeds train` made")
  results = Results(path, root)
  return Recipe.from_json(root["recipe"]), Runs.from_columns(results.table(), root["sampling"]), results


def check_same(
  results: Results, recipe: Recipe, runs: Runs, logits: bool, keep_params: bool, conditions: dict[str, Any],
  versions: dict[str, str], force_mixed: bool = False,
) -> list[str]:  # fmt: skip
  """`Mistake`, naming the first difference, unless the folder is of this recipe, these runs and these conditions.

  Returns:
    What differs though runs are done, which only `force_mixed` allows: names of conditions, `versions`, `recipe`.
  """
  other, use = f"{results.path} belongs to another campaign", "give another --out, or what it was started with"
  mixed = check_alike(results, recipe, runs, logits, keep_params, conditions, versions, force_mixed, other, use)
  columns = runs.columns()
  results.restore(columns, {})
  shared = min(len(runs), len(results))
  for name, column in results.table().items():
    if column.shape[1:] != columns[name].shape[1:] or not np.array_equal(column[:shared], columns[name][:shared]):
      raise Mistake(f"{other}: its runs differ from these in {name}; {use}")
  return mixed


def check_alike(
  results: Results, recipe: Recipe, runs: Runs, logits: bool, keep_params: bool, conditions: dict[str, Any],
  versions: dict[str, str], force_mixed: bool, other: str, use: str,
) -> list[str]:  # fmt: skip
  """The same, whatever the runs' seeds and values are. A mistake begins with `other` and ends with `use`."""
  stored = results.root
  force = f"{use}, or --force-mixed"
  begun, mixed = results.done.any(), []
  mine, theirs = recipe, Recipe.from_json(stored["recipe"])
  if conditions["precision"] != MIXED:
    mine = mine.replace(precision=conditions["precision"])
  # `auto` is no precision of its own: what it came to is a condition.
  if theirs.precision == "auto":
    theirs = theirs.replace(precision=mine.precision)
  if difference := theirs.differences(mine):
    same_task = theirs.same_task(mine)
    if not (force_mixed and same_task):
      raise Mistake(f"{other}: its recipe and this one differ in {difference}; {force if same_task else use}")
    mixed.append("recipe")
  for name, value in conditions.items():
    if stored[name] != value and begun:
      if not force_mixed or name == "data_digest":
        use_what = use if name == "data_digest" else force
        raise Mistake(f"{other}: its {name.replace('_', ' ')} is {stored[name]!r}, not {value!r}; {use_what}")
      mixed.append(name)
  for package in versions.keys() & stored["versions"].keys() - {"python"}:
    if stored["versions"][package] != versions[package] and begun:
      if not force_mixed:
        was, now = stored["versions"][package], versions[package]
        raise Mistake(f"{other}: its version of {package} is {was}, not {now}; {force}")
      mixed.append("versions")
  if stored["logits"] != logits:
    raise Mistake(f"{other}: logits are {'' if stored['logits'] else 'not '}kept there; {use}")
  if bool(variables_of(stored)) != keep_params:
    raise Mistake(f"{other}: trained parameters are {'not ' if keep_params else ''}kept there; {use}")
  columns = runs.columns()
  if stored["columns"] != list(columns) or stored["sampling"] != _sampling(runs):
    was, now = (", ".join(names) for names in (stored["columns"], columns))
    was, now = f"{was} and sampling {stored['sampling']}", f"{now} and {_sampling(runs)}"
    raise Mistake(f"{other}: its runs have {was}, these {now}; {use}")
  return sorted(set(mixed))


def check_task(
  results: Results, data: Dataset, num_classes: int, variables: dict[str, jax.ShapeDtypeStruct] | None = None
) -> None:
  """`Mistake` unless the folder has as many examples and classes as the task, and such variables where given."""
  arrays = results.root["arrays"]
  held = {f"{name}/labels": arrays[f"{name}/labels"]["shape"] for name in data.tests}
  given = {f"{name}/labels": [len(examples)] for name, examples in data.tests.items()}
  held["num_classes"], given["num_classes"] = results.root["num_classes"], num_classes
  if variables:
    held["variables"] = variables_of(results.root)
    given["variables"] = {name: list(leaf.shape) for name, leaf in variables.items()}
  for name, now in given.items():
    if held[name] != now:
      was = f"{held[name]!s:.100}"
      raise Mistake(f"{results.path} has {name} {was}, the task {now!s:.100}: give what it was begun with")


def settle(results: Results, conditions: dict[str, Any], versions: dict[str, str], mixed: list[str]) -> None:
  """Writes under what runs are trained, where it is not as it was and no run is done or `mixed` allows it."""

  def settled(root: dict[str, Any]) -> dict[str, Any]:
    new = {} if results.done.any() else {**conditions, "versions": versions}
    new |= {name: MIXED for name in mixed if name not in ("recipe", "versions")}
    if mixed:
      new["mixed"] = sorted({*root.get("mixed", []), *mixed})
    return {**root, **new}

  if settled(results.root) != results.root:
    results.revise(settled)


def _sampling(runs: Runs) -> list | None:
  return list(runs.sampling) if runs.sampling else None
