"""What a campaign keeps in its results folder, and whether a folder belongs to the
campaign that is to resume there.

The root group holds arrays of runs: `seed_<source>`, swept hyperparameters by their
names, `poke_step`, `label_map`, `subset`, `diverged`. Each test set is a group with
`predictions(run, example)`, `accuracy(run)`, `labels(example)` and, on request,
`logits(run, example, class)`. The group `variables` is there on request, with one array
per leaf (`vmapseeds.results.networks`). The description has the recipe as JSON, the
names of the test sets and what the results
depend on: device kind, lane width, lowering, precision (what `auto` resolved to), data,
mean and standard deviation of the inputs.

Imported runs (`vmapseeds.results.imports`) have no seeds, and none diverged. Their
`device_kind` is "imported"; `lane_width`, `lowering`, `precision` and `data_digest` are
None. Their `recipe` is not the JSON of a `Recipe`. It has `name`, `dataset` (None),
`test_sets` and `imported`: file, shape and dtype of each imported array.
"""

import os
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from jaxtyping import Integer

from vmapseeds.mistakes import Mistake
from vmapseeds.store.folders import check_writable, create_folder, occupied
from vmapseeds.store.layout import array, read_verified_metadata, require_metadata
from vmapseeds.store.results import Results
from vmapseeds.training.objects import fields_of
from vmapseeds.training.runs import Runs
from vmapseeds.training.supervised import VARIABLES
from vmapseeds.training.task import Task

IMPORTED = "imported"  # the device kind of runs from elsewhere
MIXED = (
  "mixed"  # a condition that differs between runs; the records have it for each block
)
DIMENSIONS = {
  "label_map": ("run", "original_class"),
  "subset": ("run", "train_example"),
}
# Results are equal bit for bit only if these are equal too, besides the task.
CONDITIONS = (
  "device_kind",
  "lane_width",
  "lowering",
  "precision",
  "data_digest",
  "mean",
  "std",
)


def check_folder(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is the results folder of a training, an empty folder, or
  can be made.
  """
  check_writable(path)
  root = read_verified_metadata(path)
  if (
    root is None and occupied(path) and not (root := read_verified_metadata(path))
  ):  # another process may have made it meanwhile
    raise Mistake(
      f"{path} holds something else than results: give a new or empty folder"
    )
  if root and root["device_kind"] == IMPORTED:
    raise Mistake(
      f"{path} holds imported runs, which cannot be extended: give a new or empty folder"
    )


def open_or_create(
  path: str | os.PathLike,
  task: Task,
  runs: Runs,
  *,
  block_runs: int,
  depends: dict[str, Any],
  force_mixed: bool = False,
  tallied: Mapping[str, np.ndarray] | None = None,
  pairs: bool = False,
) -> Results:
  """Opens the campaign's folder. Makes it if there is none, extends it if it has fewer
  runs.

  Args:
    path: the folder.
    task: what its runs train.
    runs: all runs that it is to have.
    block_runs: how many runs make a block of a new folder.
    depends: what bit-for-bit equal results need besides the task: `CONDITIONS`, and the
      versions of packages.
    force_mixed: whether to go on if recipe, conditions or versions differ. The
      description then names those that do.
    tallied: for a new folder, the labels of the test sets that have tallies.
    pairs: whether the tallies have joint error counts.

  Raises:
    Mistake: the folder holds something else, cannot be written, or belongs to another
      task, other runs or other conditions. Nothing is changed then.
    FolderExists: another process has made the folder meanwhile.
  """
  description = {**task.description(runs), "origin": task.origin, **depends}
  if root := read_verified_metadata(path):
    results = Results(path, root)
    mixed = check_same(results, task, runs, description, force_mixed)
    results.extend(len(runs), runs.columns())
    settle(results, description, mixed)
    return results

  axes = {name: task.dimensions(name, a.shape) for name, a in task.examples.items()}
  outputs = {
    **outputs_of(task, runs),
    **counts_of(tallied or {}, description["num_classes"], block_runs, pairs),
  }
  with create_folder(
    path,
    description,
    extents=[len(runs)],
    block_runs=block_runs,
    columns=runs.columns(),
    examples=task.examples,
    outputs=outputs,
    dimensions={**DIMENSIONS, **axes},
  ) as results:
    return results


def outputs_of(task: Task, runs: Runs) -> dict[str, dict[str, Any]]:
  """A description's entries for the arrays of what is stored of each run."""
  return {
    name: array(leaf.dtype, ("run", *task.dimensions(name, leaf.shape)), leaf.shape)
    for name, leaf in task.outputs(runs).items()
  }


def counts_of(
  tallied: Mapping[str, np.ndarray], num_classes: int, block_runs: int, pairs: bool
) -> dict[str, Any]:
  """A description's entries for counts over the runs of each block, which are at most
  `block_runs`.
  """
  found, dtype = {}, np.min_scalar_type(block_runs)
  for name, labels in tallied.items():
    found[f"{name}/votes"] = array(
      dtype, ("block", "example", "class"), (len(labels), num_classes)
    )
    if pairs:
      axes = ("block", "example", "other_example")
      found[f"{name}/joint_errors"] = array(dtype, axes, (len(labels), len(labels)))
  return found


def kept_of(root: dict[str, Any]) -> dict[str, Any]:
  """The options that say what a folder keeps of each run."""
  sets = root["test_sets"]
  logits, predictions = (
    any(f"{name}/{of}" in root["arrays"] for name in sets)
    for of in ("logits", "predictions")
  )
  kept = "all" if predictions or not sets else "none"
  return {
    "logits": logits,
    "keep_params": bool(variables_of(root)),
    "predictions": kept,
  }


def variables_of(root: dict[str, Any]) -> dict[str, list[int]]:
  """name -> shape of one run's variables, empty if they are not kept."""
  names = (name for name in root["arrays"] if name.startswith(f"{VARIABLES}/"))
  return {
    name.removeprefix(f"{VARIABLES}/"): root["arrays"][name]["shape"] for name in names
  }


def campaign_of(path: str | os.PathLike) -> tuple[Runs, Results]:
  """The runs table and the results of a campaign. `Mistake` if the folder holds none,
  or imported runs.
  """
  root = require_metadata(path)
  if root["device_kind"] == IMPORTED:
    raise Mistake(
      f"{path} holds imported runs, whose training is not known: give a folder that `vmapseeds train` made"
    )
  results = Results(path, root)
  return Runs.from_columns(results.table(), root["sampling"]), results


def training_examples(path: str | os.PathLike) -> Integer[np.ndarray, "runs examples"]:
  """Which training examples each finished run of a campaign saw: their indices in the
  training set.

  The runs are those of `open_results`, in the same order. An example that a bootstrap
  sample has twice is there twice.

  Raises:
    Mistake: `path` is no campaign's results folder, or its runs were trained on all
      examples.
  """
  runs, results = campaign_of(path)
  sampling = results.root["sampling"]
  examples = runs[np.flatnonzero(results.done)].training_examples(
    sampling[2] if sampling else 0
  )
  if examples is None:
    raise Mistake(
      f"the runs of {path} were trained on all examples: train some with --subset or --bootstrap"
    )
  return examples


def check_same(
  results: Results, task: Task, runs: Runs, given: dict[str, Any], force_mixed: bool
) -> list[str]:
  """`Mistake`, naming the first difference, unless the folder has this task, these runs
  and the `given` description.

  Returns:
    What differs, which only `force_mixed` allows: `recipe` and, if runs are done, names
    of conditions and `versions`.
  """
  other, use = (
    f"{results.path} belongs to another campaign",
    "give another --out, or what it was started with",
  )
  columns = runs.columns()
  mixed = check_alike(
    results, {**given, "columns": list(columns)}, force_mixed, other, use
  )
  results.restore({**columns, **task.examples})
  shared = min(len(runs), len(results))
  for name, column in results.table().items():
    if column.shape[1:] != columns[name].shape[1:] or not np.array_equal(
      column[:shared], columns[name][:shared]
    ):
      raise Mistake(f"{other}: its runs differ from these in {name}; {use}")
  check_arrays(results, task, runs)
  return mixed


def check_alike(
  results: Results, given: dict[str, Any], force_mixed: bool, other: str, use: str
) -> list[str]:
  """What `check_same` returns, from the descriptions alone. A mistake begins with
  `other` and ends with `use`.
  """
  stored, mixed = results.root, []
  force, begun = f"{use}, or --force-mixed", results.done.any()
  if difference := differences(stored, given):
    theirs, mine = (fields_of(root["recipe"]) for root in (stored, given))
    same_data = all(
      theirs.get(name) == mine.get(name) for name in ("dataset", "test_sets", "classes")
    )
    same_task = "dataset" in theirs and same_data
    if not (force_mixed and same_task):
      raise Mistake(
        f"{other}: its recipe and this one differ in {difference}; {force if same_task else use}"
      )
    mixed.append("recipe")
  packages = given["versions"].keys() & stored["versions"].keys() - {"python"}
  compared = [
    (name.replace("_", " "), name, stored[name], given[name]) for name in CONDITIONS
  ]
  compared += [
    (f"version of {p}", "versions", stored["versions"][p], given["versions"][p])
    for p in packages
  ]
  for what, name, theirs, mine in compared:
    if theirs != mine and begun:
      if not force_mixed or name == "data_digest":
        raise Mistake(
          f"{other}: its {what} is {theirs!r}, not {mine!r}; {use if name == 'data_digest' else force}"
        )
      mixed.append(name)
  theirs, mine = (
    ", ".join((*root["columns"], f"sampling {root['sampling']}"))
    for root in (stored, given)
  )
  if theirs != mine:
    raise Mistake(f"{other}: its runs have {theirs}, these {mine}; {use}")
  return sorted(set(mixed))


def differences(stored: dict[str, Any], given: dict[str, Any]) -> str:
  """How the recipes of two descriptions differ, as `field: theirs, mine`; empty if they
  are equal.
  """
  theirs, mine = (fields_of(root["recipe"]) for root in (stored, given))
  for recipe, root in ((theirs, given), (mine, given)):
    # `auto` is compared as the precision that it resolved to, which is one of the
    # conditions.
    if recipe.get("precision") == "auto" and root.get("precision", MIXED) != MIXED:
      recipe["precision"] = root["precision"]
  names = dict.fromkeys((*theirs, *mine))
  pairs = ((name, theirs.get(name), mine.get(name)) for name in names)
  return "; ".join(f"{name}: {told(a)}, {told(b)}" for name, a, b in pairs if a != b)


def told(value: Any) -> str:
  """A field of a described recipe, as a message shows it."""
  if isinstance(value, dict) and {*value} == {"object", "source"}:
    return f"{value['object']} (source {value['source']})"
  return repr(tuple(value) if isinstance(value, list) else value)


def check_arrays(
  results: Results, task: Task, runs: Runs, some: Container[str] | None = None
) -> None:
  """`Mistake` unless the folder has the arrays that the task gives. Of outputs, only
  `some` are compared if given.
  """
  other, use = (
    f"{results.path} belongs to another campaign",
    "give another --out, or what it was started with",
  )
  arrays = results.root["arrays"]
  stored = (*results.outputs, *results.examples)
  held: dict[str, Any] = {
    name: (arrays[name]["dtype"], arrays[name]["shape"]) for name in stored
  }
  given: dict[str, Any] = {**task.outputs(runs), **task.examples}
  due: dict[str, Any] = {name: (str(a.dtype), [*a.shape]) for name, a in given.items()}
  for what, sign in (
    ("trained parameters", f"{VARIABLES}/"),
    ("predictions", "/predictions"),
    ("logits", "/logits"),
  ):
    theirs, mine = (any(sign in name for name in names) for names in (held, due))
    if theirs != mine and some is None:
      raise Mistake(f"{other}: {what} are {'not ' if mine else ''}kept there; {use}")
  held["num_classes"], due["num_classes"] = (
    results.root["num_classes"],
    task.description(runs)["num_classes"],
  )
  for name in dict.fromkeys((*held, *due)):
    if held.get(name) != due.get(name) and (
      some is None or name in some or name not in results.outputs
    ):
      has = f"{results.path} has {name} {held.get(name)}, the task {due.get(name)}"
      raise Mistake(f"{has}: give what it was begun with")


def settle(results: Results, given: dict[str, Any], mixed: list[str]) -> None:
  """Updates the description: conditions and versions as `given` if no run is done, and
  those in `mixed` as `MIXED`.
  """

  def settled(root: dict[str, Any]) -> dict[str, Any]:
    new = (
      {}
      if results.done.any()
      else {name: given[name] for name in (*CONDITIONS, "versions")}
    )
    new |= {name: MIXED for name in mixed if name not in ("recipe", "versions")}
    if mixed:
      new["mixed"] = sorted({*root.get("mixed", []), *mixed})
    return {**root, **new}

  if settled(results.root) != results.root:
    results.revise(settled)
