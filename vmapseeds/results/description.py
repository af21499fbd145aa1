"""What a campaign keeps in its results folder, and whether a folder belongs to the
campaign that is to resume there.

The root group holds arrays of runs: `seed_<source>` for each source of randomness, a
column for each value that the task declares, `poke_step`, `label_map`, `subset`,
`diverged`. Each test set is a group with `predictions(run, example)`, `accuracy(run)`,
`labels(example)` and, on request, `logits(run, example, class)`. The group `variables`
is there on request, with one array per leaf (`vmapseeds.results.networks`). What an
array means stands in its attributes: `role` and what belongs to it (`vs.Output`). The
description has the recipe as JSON, the names of the test sets and what results depend
on: device kind, lane width, lowering, precision (what `auto` resolved to), data, mean
and standard deviation of the inputs.

Imported runs (`vmapseeds.results.imports`) have no seeds, and none diverged. Their
`device_kind` is "imported"; `lane_width`, `lowering`, `precision` and `data_digest` are
None. Their `recipe` is not the JSON of a `Recipe`. It has `name`, `dataset` (None),
`test_sets` and `imported`: file, shape and dtype of each imported array.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Integer, Shaped

from vmapseeds.mistakes import Mistake
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import check_writable, create_folder, occupied
from vmapseeds.store.layout import (
  Description,
  array,
  read_verified_metadata,
  require_metadata,
)
from vmapseeds.store.results import Results
from vmapseeds.training.names import seed_column
from vmapseeds.training.objects import fields_of
from vmapseeds.training.outputs import Output, sibling
from vmapseeds.training.runs import Runs

IMPORTED = "imported"  # the device kind of runs from elsewhere
# A condition that differs between runs; the records have it for each block.
MIXED = "mixed"
# The axes of columns with more than one number a run.
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
  "networks_digest",
  "mean",
  "std",
)
# Other data, or other networks to start from, are never mixed.
NEVER_MIXED = ("data_digest", "networks_digest")
KEPT = {
  "predictions": "predictions",
  "logits": "logits",
  "keep_params": "trained parameters",
}
USE = "give another --out, or what it was started with"


class Contents(NamedTuple):
  """What the folder of a campaign holds."""

  description: Description  # of the campaign, ready for JSON
  columns: dict[str, Shaped[np.ndarray, "runs ..."]]  # the runs table
  constants: Mapping[str, tuple[Sequence[str], np.ndarray]]  # with their axes
  labels: dict[str, Description]  # what those of the constants mean that are labels
  outputs: dict[str, Description]  # entries of the arrays of runs
  counts: dict[str, Description]  # entries of the arrays of blocks


def check_folder(path: Folder) -> None:
  """Raise `Mistake` unless `path` is the results folder of a training, an empty folder,
  or can be made.
  """
  check_writable(path)
  root = read_verified_metadata(path)
  # Another process may have made it meanwhile.
  root = root or (occupied(path) and read_verified_metadata(path)) or None
  if root is None and occupied(path):
    raise Mistake(
      f"{path} holds something else than results: give a new or empty folder"
    )
  if root and root["device_kind"] == IMPORTED:
    raise Mistake(
      f"{path} holds imported runs, which cannot be extended: give a new or empty "
      "folder"
    )


def output_entries(
  stored: Mapping[str, Output], shapes: Mapping[str, Any]
) -> dict[str, Description]:
  """Return a description's entries for the arrays of what is stored of each run."""
  return {
    name: array(
      shapes[name].dtype, ("run", *output.dims), shapes[name].shape, **output.attributes
    )
    for name, output in stored.items()
  }


def count_entries(
  name: str, examples: int, classes: int, combinations: int, runs: int, pairs: bool
) -> dict[str, Description]:
  """Return a description's entries for the counts of the class output `name` over a
  block of up to `runs` runs, one set for each combination of swept values.
  """
  dtype = np.min_scalar_type(runs)
  axes = ("block", "combination")
  more = {
    "votes": {"example": examples, "class": classes},
    "counted": {},
    "joint_errors": {"example": examples, "other_example": examples} if pairs else None,
  }
  return {
    sibling(name, count): array(dtype, (*axes, *of), (combinations, *of.values()))
    for count, of in more.items()
    if of is not None
  }


def open_or_create(
  path: Folder,
  contents: Contents,
  *,
  block_runs: int,
  depends: Mapping[str, Any],
  force_mixed: bool = False,
) -> Results:
  """Open the campaign's folder: make it if there is none, extend it if it has fewer
  runs.

  Args:
    path: the folder.
    contents: what it is to hold.
    block_runs: how many runs make a block of a new folder.
    depends: what bit-for-bit equal results need besides the task: `CONDITIONS`, and the
      versions of packages.
    force_mixed: whether to resume if recipe, conditions or versions differ. The
      description then names those that do.

  Raises:
    Mistake: the folder holds something else, cannot be written, or belongs to another
      task, other runs or other conditions. Nothing is changed then.
    FolderExists: another process has made the folder meanwhile.
  """
  description = contents.description | dict(depends)
  if root := read_verified_metadata(path):
    results = Results(path, root)
    mixed = check_same(results, contents, description, force_mixed)
    columns = contents.columns
    results.extend(len(next(iter(columns.values()))), columns)
    settle(results, description, mixed)
    return results

  axes = {name: tuple(axes) for name, (axes, _) in contents.constants.items()}
  seeds = {
    seed_column(source): {"role": "seed", "source": source}
    for source in description["sources"]
  }
  with create_folder(
    path,
    description,
    extents=[len(next(iter(contents.columns.values())))],
    block_runs=block_runs,
    columns=contents.columns,
    examples={name: values for name, (_, values) in contents.constants.items()},
    outputs=contents.outputs | contents.counts,
    dimensions=DIMENSIONS | axes,
    attributes={
      **{name: seeds.get(name, {"role": "column"}) for name in contents.columns},
      **contents.labels,
    },
  ) as results:
    return results


def variables_of(root: Description) -> dict[str, list[int]]:
  """Return the shapes of one run's variables by their paths, empty if they are not kept."""
  return {
    name.partition("/")[2]: about["shape"]
    for name, about in root["arrays"].items()
    if about["attributes"].get("role") == "variable"
  }


def campaign_of(path: Folder) -> tuple[Runs, Results]:
  """Return the runs table and the results of a campaign.

  Raises:
    Mistake: the folder holds none, or imported runs.
  """
  root = require_metadata(path)
  if root["device_kind"] == IMPORTED:
    raise Mistake(
      f"{path} holds imported runs, whose training is not known: give a folder that "
      "`vmapseeds train` made"
    )
  results = Results(path, root)
  return Runs.from_columns(results.table(), root["sources"], root["sampling"]), results


def training_examples(path: Folder) -> Integer[np.ndarray, "runs examples"]:
  """Return which training examples each finished run of a campaign saw: their indices
  in the training set.

  The runs are those of `open_results`, in the same order. An example that a bootstrap
  sample has twice is there twice.

  Raises:
    Mistake: `path` is no campaign's results folder, or its runs were trained on all
      examples.
  """
  runs, results = campaign_of(path)
  sampling = results.root["sampling"]
  finished = runs[np.flatnonzero(results.done)]
  examples = finished.training_examples(sampling[2] if sampling else 0)
  if examples is None:
    raise Mistake(
      f"the runs of {path} were trained on all examples: train some with --subset or "
      "--bootstrap"
    )
  return examples


def combinations(runs: Runs) -> tuple[Int[np.ndarray, " runs"], int]:
  """Return which combination of values each run of a block has, numbered from 0 in the
  order of their first runs, and how many there are.

  Votes are counted for each of them. Seeds, and which network a run starts from, do not
  count.
  """
  columns = [
    column
    for name, column in sorted(runs.values.items())
    if column.ndim == 1 and name != "start"
  ]
  if not columns:
    return np.zeros(len(runs), int), 1
  rows = np.stack([np.asarray(column, np.float64) for column in columns], axis=1)
  _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
  order = np.argsort(np.argsort(first))
  return order[place.ravel()], len(first)


def check_same(
  results: Results, contents: Contents, given: Description, force_mixed: bool
) -> list[str]:
  """Check that a folder has this task, these runs and the `given` description.

  Returns:
    What differs, which only `force_mixed` allows: `recipe` and, if runs are done, names
      of conditions and `versions`.

  Raises:
    Mistake: they differ; it names the first difference.
  """
  other = f"{results.path} belongs to another campaign"
  columns = contents.columns
  mixed = check_alike(results, given | {"columns": list(columns)}, force_mixed, other)
  constants = {name: values for name, (_, values) in contents.constants.items()}
  results.restore(columns | constants)
  shared = min(len(next(iter(columns.values()))), len(results))
  for name, column in results.table().items():
    if column.shape[1:] != columns[name].shape[1:] or not np.array_equal(
      column[:shared], columns[name][:shared]
    ):
      raise Mistake(f"{other}: its runs differ from these in {name}; {USE}")
  check_arrays(results, contents)
  return mixed


def check_alike(
  results: Results, given: Description, force_mixed: bool, other: str, use: str = USE
) -> list[str]:
  """Return what `check_same` does, from the descriptions alone. A mistake begins with
  `other` and ends with `use`.
  """
  stored = results.root
  mixed = set()
  theirs, mine = (fields_of(root["recipe"]) for root in (stored, given))
  same_data = all(
    theirs.get(name) == mine.get(name) for name in ("dataset", "test_sets", "classes")
  )
  found = []  # of what differs: its name, what is said of it, whether it may be mixed
  if difference := differences(stored, given):
    said = f"recipe and this one differ in {difference}"
    found.append(("recipe", said, same_data and "dataset" in theirs))
  if results.done.any():
    of = {name: (name.replace("_", " "), name, stored, given) for name in CONDITIONS}
    versions = stored["versions"], given["versions"]
    for package in versions[1].keys() & versions[0].keys() - {"python"}:
      of[package] = f"version of {package}", "versions", *versions
    found += [
      (name, f"{what} is {a.get(key)!r}, not {b.get(key)!r}", name not in NEVER_MIXED)
      for key, (what, name, a, b) in of.items()
      if a.get(key) != b.get(key)
    ]
  theirs, mine = (
    ", ".join((*root["columns"], f"sampling {root['sampling']}"))
    for root in (stored, given)
  )
  if theirs != mine:
    found.append(("columns", f"runs have {theirs}, these {mine}", False))
  for name, said, may_be_mixed in found:
    if not (force_mixed and may_be_mixed):
      more = ", or --force-mixed" * may_be_mixed
      raise Mistake(f"{other}: its {said}; {use}{more}")
    mixed.add(name)
  return sorted(mixed)


def differences(stored: Description, given: Description) -> str:
  """Return how the recipes of two descriptions differ, as `field: theirs, mine`; empty
  if they are equal.

  `auto` is compared as the precision that it resolved to, which is one of the
  conditions.
  """
  theirs, mine = (fields_of(root["recipe"]) for root in (stored, given))
  precision = given.get("precision", MIXED)
  for recipe in (theirs, mine):
    if recipe.get("precision") == "auto" and precision != MIXED:
      recipe["precision"] = precision
  names = dict.fromkeys((*theirs, *mine))
  pairs = ((name, theirs.get(name), mine.get(name)) for name in names)
  return "; ".join(
    f"{name}: {format_field(a)}, {format_field(b)}" for name, a, b in pairs if a != b
  )


def format_field(value) -> str:
  """Return a field of a described recipe as a message shows it."""
  if isinstance(value, dict) and {*value} == {"object", "source"}:
    return f"{value['object']} (source {value['source']})"
  return repr(tuple(value) if isinstance(value, list) else value)


def check_arrays(
  results: Results, contents: Contents, some: Collection[str] | None = None
) -> None:
  """Raise `Mistake` unless the folder has the arrays that the task gives. Of outputs,
  only `some` are compared if given.
  """
  root = results.root
  arrays = results.root["arrays"]
  for option, what in KEPT.items():
    theirs, mine = (kept["kept"][option] for kept in (root, contents.description))
    if theirs != mine and some is None:
      raise Mistake(
        f"{results.path} belongs to another campaign: {what} are "
        f"{'not ' * (mine not in (False, 'none'))}kept there; {USE}"
      )
  stored = results.outputs + results.examples
  held: Description = {n: (arrays[n]["dtype"], arrays[n]["shape"]) for n in stored}
  due: Description = {
    name: (about["dtype"], about["shape"]) for name, about in contents.outputs.items()
  }
  due |= {n: (str(a.dtype), [*a.shape]) for n, (_, a) in contents.constants.items()}
  held["num_classes"] = root["num_classes"]
  due["num_classes"] = contents.description["num_classes"]
  for name in dict.fromkeys((*held, *due)):
    compared = some is None or name in some or name not in results.outputs
    if compared and held.get(name) != due.get(name):
      raise Mistake(
        f"{results.path} has {name} {held.get(name)}, the task {due.get(name)}: give "
        "what it was begun with"
      )


def settle(results: Results, given: Description, mixed: list[str]) -> None:
  """Update the description: conditions and versions as `given` if no run is done, and
  those in `mixed` as `MIXED`.
  """

  def settled(root):
    names = () if results.done.any() else (*CONDITIONS, "versions")
    new = {name: given[name] for name in names if name in given}
    new |= {name: MIXED for name in mixed if name not in ("recipe", "versions")}
    if mixed:
      new["mixed"] = sorted({*root.get("mixed", []), *mixed})
    return root | new

  if settled(results.root) != results.root:
    results.revise(settled)
