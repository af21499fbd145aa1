"""What a campaign keeps in its results folder, and whether a folder belongs to the
campaign that is to resume there.

The runs table has `seed_<source>` for each source of randomness, a column for each value
that the task declares, `label_map`, `subset`. A column of names has the UTF-8 bytes of
each, `(run, letter)`, with zeros after them. `diverged` is an output. Each
test set is a group with `predictions(run, example)`, `accuracy(run)`,
`labels(example)` and, on request, `logits(run, example, class)`. The group `variables`
is there on request, with one array per leaf (`vmapseeds.results.kept_networks`). What an
array means stands in its attributes: `role` and what belongs to it (`vs.Output`). The
description has the recipe as JSON, the names of the test sets and what results depend
on: device kind, lane width, lowering, precision (what `auto` resolved to), data, mean
and standard deviation of the inputs.

Recorded and imported runs (`vmapseeds.results.recording`) have the seeds and values that
were given, and none diverged. Their `device_kind` is "imported"; `lane_width`,
`lowering`, `precision` and `data_digest` are None. Their `recipe` is not the JSON of a
`Recipe`. It has `name`, `dataset` (None), `test_sets` and `imported`: file, shape and
dtype of each imported array.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int, Integer, Shaped

from vmapseeds.data.dataset import count_seen
from vmapseeds.errors import UserError, hide_own_frames, option, wording
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import check_writable, create_folder, is_occupied
from vmapseeds.store.growing import change_description, extend, restore
from vmapseeds.store.layout import (
  Description,
  array_entry,
  read_verified_metadata,
  require_metadata,
)
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training.identity import are_same
from vmapseeds.training.names import FOLD_GROUPS, HELD_OUT, TWINS, seed_column
from vmapseeds.training.objects import fields_of
from vmapseeds.training.outputs import Output, sibling
from vmapseeds.training.runs import Runs, holds_texts

IMPORTED = "imported"  # the device kind of runs from elsewhere
# A condition that differs between runs; the records have it for each block.
MIXED = "mixed"
# The axes of columns with more than one number a run.
DIMENSIONS = {
  "label_map": ("run", "original_class"),
  "subset": ("run", "train_example"),
  FOLD_GROUPS: ("run", "pool_example"),
}
# What changes the last bits of a run at most, besides the versions of packages. It may
# differ within a folder: each block's record has its own.
CONDITIONS = (
  "device_kind",
  "processor",
  "threads",
  "onednn",
  "xla_flags",
  "lane_width",
  "lowering",
)
# What is told of the inputs; part of the identity too.
INPUT_FIELDS = ("precision", "mean", "std")
KEPT = {
  "predictions": "predictions",
  "logits": "logits",
  "keep_params": "trained parameters",
}


def remedy_of_other_campaign() -> str:
  """Return what to do about a folder of another campaign."""
  return f"give another {option('out')}, or what it was started with"


class Contents(NamedTuple):
  """What the folder of a campaign holds."""

  description: Description  # of the campaign, ready for JSON
  columns: dict[str, Shaped[np.ndarray, "runs ..."]]  # the runs table
  constants: Mapping[str, tuple[Sequence[str], np.ndarray]]  # with their axes
  labels: dict[str, Description]  # what those of the constants mean that are labels
  outputs: dict[str, Description]  # entries of the arrays of runs
  counts: dict[str, Description]  # entries of the arrays of blocks


def check_folder(path: Folder) -> Description:
  """Return the description of the results folder of a training, empty for an empty
  folder, or one that can be made.

  Raises:
    UserError: `path` is none of these.
  """
  check_writable(path)
  root = read_verified_metadata(path)
  if root is None and is_occupied(path):
    # Another process may have made it between the two looks.
    root = read_verified_metadata(path)
    if root is None:
      raise UserError(
        f"{path} holds something else than results: give a new or empty folder"
      )
  if root and root["device_kind"] == IMPORTED:
    raise UserError(
      f"{path} holds imported runs, which cannot be extended: give a new or empty "
      "folder"
    )
  return root or {}


def output_entries(
  stored: Mapping[str, Output], shapes: Mapping[str, Any]
) -> dict[str, Description]:
  """Return a description's entries for the arrays of what is stored of each run."""
  entries = {}
  for name, output in stored.items():
    of_run = shapes[name]
    entries[name] = array_entry(
      of_run.dtype, ("run", *output.dims), of_run.shape, **output.attributes
    )
  return entries


def count_entries(
  name: str, examples: int, classes: int, combinations: int, runs: int, pairs: bool
) -> dict[str, Description]:
  """Return a description's entries for the counts of the class output `name` over a
  block of up to `runs` runs, one set for each combination of swept values.
  """
  # No count exceeds the runs of a block.
  dtype = np.min_scalar_type(runs)
  axes_of_counts = {
    "votes": {"example": examples, "class": classes},
    "counted": {},
  }
  if pairs:
    axes_of_counts["joint_errors"] = {"example": examples, "other_example": examples}
  entries = {}
  for count, sizes in axes_of_counts.items():
    dimensions = ("block", "combination", *sizes)
    shape = (combinations, *sizes.values())
    entries[sibling(name, count)] = array_entry(dtype, dimensions, shape)
  return entries


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
    depends: the identity, what is `INPUT_FIELDS`, `CONDITIONS`, and the versions of packages.
    force_mixed: whether to resume if the programs differ. The description says so then.

  Raises:
    UserError: the folder holds something else, cannot be written, or belongs to another
      task or other runs. Nothing is changed then.
    FolderExists: another process has made the folder meanwhile.
  """
  description = contents.description | dict(depends)
  root = read_verified_metadata(path)
  if not root:
    return _create(path, contents, description, block_runs)
  results = Results(path, root)
  mixed = check_same_campaign(results, contents, description, force_mixed)
  extend(results, _count_runs(contents.columns), contents.columns)
  settle_conditions(results, description, mixed)
  return results


def _create(
  path: Folder, contents: Contents, description: Description, block_runs: int
) -> Results:
  """Make a new folder of contents."""
  axes = {name: tuple(axes) for name, (axes, _) in contents.constants.items()}
  seeds = {
    seed_column(source): {"role": "seed", "source": source}
    for source in description["sources"]
  }
  roles = {name: seeds.get(name, {"role": "column"}) for name in contents.columns}
  with create_folder(
    path,
    description,
    extents=[_count_runs(contents.columns)],
    block_runs=block_runs,
    columns=contents.columns,
    examples={name: values for name, (_, values) in contents.constants.items()},
    outputs=contents.outputs | contents.counts,
    dimensions=DIMENSIONS | axes | axes_of_texts(contents.columns),
    attributes=roles | contents.labels,
  ) as results:
    return results


def axes_of_texts(columns: Mapping[str, np.ndarray]) -> dict[str, tuple[str, ...]]:
  """Return the axes of the columns of a runs table that have texts."""
  return {
    name: ("run", "letter") for name, column in columns.items() if holds_texts(column)
  }


def _count_runs(columns: Mapping[str, Shaped[np.ndarray, "runs ..."]]) -> int:
  """Return how many rows a runs table has."""
  any_column = next(iter(columns.values()))
  return len(any_column)


def stored_variable_shapes(root: Description) -> dict[str, list[int]]:
  """Return the shapes of one run's variables by their paths, empty if they are not kept."""
  return {
    name.partition("/")[2]: entry["shape"]
    for name, entry in root["arrays"].items()
    if entry["attributes"].get("role") == "variable"
  }


def campaign_of(path: Folder) -> tuple[Runs, Results]:
  """Return the runs table and the results of a campaign.

  Raises:
    UserError: the folder holds none, or imported runs.
  """
  root = require_metadata(path)
  if root["device_kind"] == IMPORTED:
    raise UserError(
      f"{path} holds imported runs, whose training is not known: give a folder that "
      "`vmapseeds train` made"
    )
  results = Results(path, root)
  runs = Runs.from_columns(results.table(), root["sources"], root["sampling"])
  return runs, results


@hide_own_frames
@moves_data
def training_examples(path: Folder) -> Integer[np.ndarray, "runs examples"]:
  """Return which training examples each finished run of a campaign saw: their indices
  in the training set.

  The runs are those of `open_results`, in the same order. An example that a bootstrap
  sample has twice is there twice.

  Raises:
    UserError: `path` is no campaign's results folder, or its runs were trained on all
      examples.
  """
  runs, results = campaign_of(path)
  finished = runs[np.flatnonzero(results.done)]
  sampling = results.root["sampling"]
  available = sampling[2] if sampling else 0
  # Stratified folds are drawn anew from the labels of the pool.
  labels = None
  pool_labels = f"{HELD_OUT}/labels"
  if pool_labels in results.examples:
    labels = results.read_plan([pool_labels])[pool_labels]
  examples = finished.training_examples(available, labels)
  if examples is None:
    remedy = wording(
      command="--subset or --bootstrap", function="Runs.subset or Runs.bootstrap"
    )
    raise UserError(
      f"the runs of {path} were trained on all examples: train some with {remedy}"
    )
  return examples


def count_seen_examples(results: xr.Dataset) -> float:
  """Return how many test examples are among those that a run was trained on, on average
  over these runs; 0 where that is not known or chance.
  """
  if TWINS not in results.variables or not results.sizes["run"]:
    return 0.0
  # None: without a subset, runs were trained on all examples.
  trained = None
  sampling = parsed_attribute(results, "sampling")
  if sampling:
    kind, size, available = sampling
    seeds = {"data": results[seed_column("data")].values}
    trained = Runs(seeds, sampling=(kind, size)).training_examples(available)
  elif "subset" in results.variables:
    trained = results["subset"].values
  return count_seen(results[TWINS].values, trained)


def combinations(runs: Runs) -> tuple[Int[np.ndarray, " runs"], int]:
  """Return which combination of values each run of a block has, numbered from 0 in the
  order of their first runs, and how many there are.

  Votes are counted for each of them. Seeds, and which network a run starts from, do not
  count.
  """
  columns = {
    name: column
    for name, column in runs.values.items()
    if column.ndim == 1 and name != "start"
  }
  if not columns:
    return np.zeros(len(runs), int), 1
  groups = pd.DataFrame(columns).groupby([*columns], sort=False, dropna=False)
  return groups.ngroup().to_numpy(), groups.ngroups


def check_same_campaign(
  results: Results,
  contents: Contents,
  expected: Description,
  force_mixed: bool,
) -> bool:
  """Check that a folder has this task, these runs and the `expected` description.

  Returns:
    Whether the programs differ, which only `force_mixed` allows.

  Raises:
    UserError: something differs; it names the first difference.
  """
  other = f"{results.path} belongs to another campaign"
  columns = contents.columns
  check_what_is_kept(results, contents)
  expected = expected | {"columns": list(columns)}
  mixed = check_same_description(results, expected, force_mixed, other)
  # The task makes these arrays anew, so that damaged ones of the folder can be mended.
  constants = {name: values for name, (_, values) in contents.constants.items()}
  restore(results, columns | constants)

  shared = min(_count_runs(columns), len(results))
  for name, stored in results.table().items():
    column = columns[name]
    if stored.shape[1:] == column.shape[1:] and np.array_equal(
      stored[:shared], column[:shared]
    ):
      continue
    # A field of the recipe says more than the column that follows from it.
    difference = differing_fields(results.root, expected)
    if not difference:
      difference = f"runs differ from these in {name}"
    raise UserError(f"{other}: its {difference}; {remedy_of_other_campaign()}")
  check_arrays(results, contents)
  return mixed


def check_same_description(
  results: Results,
  expected: Description,
  force_mixed: bool,
  other: str,
  use: str | None = None,
) -> bool:
  """Do what `check_same_campaign` does, from the descriptions alone. A mistake begins with
  `other` and ends with `use`.
  """
  if use is None:
    use = remedy_of_other_campaign()
  stored = results.root
  stored_columns, expected_columns = _name_columns(stored), _name_columns(expected)
  if stored_columns != expected_columns:
    raise UserError(
      f"{other}: its runs have {stored_columns}, these {expected_columns}; {use}"
    )

  theirs, mine = stored["identity"], expected["identity"]
  if are_same(theirs, mine):
    return False
  # Other data or networks are other runs, whatever the programs.
  may_be_mixed = (
    theirs["data"] == mine["data"] and theirs["networks"] == mine["networks"]
  )
  if force_mixed and may_be_mixed:
    return True
  if may_be_mixed:
    use = f"{use}, or {option('force_mixed', True)}"
  difference = describe_difference(stored, expected)
  raise UserError(f"{other}: its {difference}; {use}")


def _name_columns(root: Description) -> str:
  """Return the columns of a runs table, and how examples are sampled, for a message."""
  return ", ".join([*root["columns"], f"sampling {root['sampling']}"])


def describe_difference(stored: Description, expected: Description) -> str:
  """Return how the identities of two descriptions differ: by the fields of the recipe,
  the data, the versions of packages, or what else there is to say.
  """
  theirs, mine = stored["identity"], expected["identity"]
  fields = differing_fields(stored, expected)
  if fields:
    return fields
  for part in ("data", "networks"):
    if theirs[part] != mine[part]:
      return f"{part} digest is {theirs[part]!r}, not {mine[part]!r}"

  parts = ", ".join(part for part in mine if theirs.get(part) != mine[part])
  difference = f"program was another ({parts})"
  versions = differing_versions(stored, expected)
  if versions:
    return f"{difference}, and versions differ: {versions}"
  return (
    f"{difference}: look at what changed in your modules, or in what they read, such as "
    "flags of JAX, files or the environment, or at another commit of vmapseeds"
  )


def differing_versions(stored: Description, expected: Description) -> str:
  """Return which packages have other versions, as `name: theirs, mine`."""
  differing = []
  for name in sorted(stored["versions"].keys() & expected["versions"].keys()):
    theirs = _values_of_condition(stored, name)
    mine = _values_of_condition(expected, name)
    if name != "python" and theirs != mine:
      differing.append(f"{name}: {' and '.join(theirs)}, {' and '.join(mine)}")
  return "; ".join(differing)


def differing_fields(stored: Description, expected: Description) -> str:
  """Return how the recipes of two descriptions differ, as a message says it; empty if
  they are equal.

  `auto` is compared as the precision that it resolved to.
  """
  theirs, mine = _resolved_fields(stored), _resolved_fields(expected)
  differing = []
  for name in dict.fromkeys((*theirs, *mine)):
    here, there = theirs.get(name), mine.get(name)
    if here != there:
      differing.append(f"{name}: {format_field(here)}, {format_field(there)}")
  if not differing:
    return ""
  return f"recipe and this one differ in {'; '.join(differing)}"


def _resolved_fields(root: Description) -> dict[str, Any]:
  """Return the fields of a described recipe, with the precision that was trained in."""
  fields = fields_of(root["recipe"])
  if fields.get("precision") == "auto":
    fields["precision"] = root.get("precision")
  return fields


def format_field(value) -> str:
  """Return a field of a described recipe as a message shows it."""
  if isinstance(value, dict) and [*value] == ["object"]:
    return value["object"]
  # JSON has lists where the recipe has tuples.
  if isinstance(value, list):
    value = tuple(value)
  return repr(value)


def check_what_is_kept(results: Results, contents: Contents) -> None:
  """Raise `UserError` unless the folder keeps of each run what is asked for."""
  for field, what in KEPT.items():
    theirs = results.root["kept"][field]
    mine = contents.description["kept"][field]
    if theirs == mine:
      continue
    state = "kept there" if mine in (False, "none") else "not kept there"
    raise UserError(
      f"{results.path} belongs to another campaign: {what} are {state}; {remedy_of_other_campaign()}"
    )


def check_arrays(
  results: Results, contents: Contents, some: Collection[str] | None = None
) -> None:
  """Raise `UserError` unless the folder has the arrays that the task gives. Of outputs,
  only `some` are compared if given.
  """
  arrays = results.root["arrays"]
  held: Description = {}
  for name in results.outputs + results.examples:
    held[name] = (arrays[name]["dtype"], arrays[name]["shape"])
  held["num_classes"] = results.root["num_classes"]

  due: Description = {}
  for name, entry in contents.outputs.items():
    due[name] = (entry["dtype"], entry["shape"])
  for name, (_, values) in contents.constants.items():
    due[name] = (str(values.dtype), list(values.shape))
  due["num_classes"] = contents.description["num_classes"]

  for name in dict.fromkeys((*held, *due)):
    compared = some is None or name in some or name not in results.outputs
    if compared and held.get(name) != due.get(name):
      raise UserError(
        f"{results.path} has {name} {held.get(name)}, the task {due.get(name)}: give "
        "what it was begun with"
      )
  for name, entry in contents.outputs.items():
    if name not in arrays:
      continue
    for part in ("dimensions", "attributes"):
      theirs, mine = arrays[name][part], entry[part]
      if theirs != mine:
        raise UserError(
          f"{results.path} has {name} with {part} {theirs}, the task {mine}: declare "
          "what it was begun with"
        )


def settle_conditions(
  results: Results, current: Description, mixed: bool = False
) -> None:
  """Update the description: what is `INPUT_FIELDS`, conditions and versions as in `current` if no
  run is done. Else those that differ are joined. `mixed` is what `check_same_campaign` returned.
  """
  names = (*CONDITIONS, *INPUT_FIELDS, "versions", "identity")
  replaced = {name: current.get(name) for name in names}

  def settled(root):
    if results.done.any():
      return join_conditions(root, current, mixed)
    return root | replaced

  # A revision waits for the folder's claim, and writes the description anew.
  if settled(results.root) != results.root:
    change_description(results, settled)


def join_conditions(
  root: Description, current: Description, mixed: bool
) -> Description:
  """Return a description with what another one says of how runs were trained. What
  differs becomes `MIXED`, and `kinds` has all its values.

  Args:
    root: the folder's description.
    current: the other one.
    mixed: whether their programs differ.
  """
  # What was fixed first stays: it is what the folder's runs were trained with.
  fixed = current["identity"]["fixed"] | root["identity"]["fixed"]
  joined = root | {
    "versions": dict(root["versions"]),
    "identity": root["identity"] | {"fixed": fixed},
  }
  if mixed or current.get("mixed"):
    joined["mixed"] = True

  kinds = dict(root.get("kinds", {}))
  for name in (*CONDITIONS, *INPUT_FIELDS, *root["versions"]):
    values = _values_of_condition(root, name)
    others = [
      value for value in _values_of_condition(current, name) if value not in values
    ]
    if others:
      _entries_with(joined, name)[name] = MIXED
      kinds[name] = [*values, *others]
  if kinds:
    joined["kinds"] = kinds
  return joined


def _entries_with(root: Description, name: str) -> Description:
  """Return where a description has a condition: packages have entries of their own, with
  the version of each.
  """
  if name in root["versions"]:
    return root["versions"]
  return root


def _values_of_condition(root: Description, name: str) -> list[Any]:
  """Return all values that the runs of a folder have of a condition."""
  only_value = _entries_with(root, name).get(name)
  return root.get("kinds", {}).get(name, [only_value])


def netcdf_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
  """Return attributes as all versions of netCDF take them: numbers, lists of numbers and
  texts. None is left out, a bool is 0 or 1, and what else has parts is JSON.
  """
  plain: dict[str, Any] = {}
  for name, value in attributes.items():
    if value is None:
      continue
    if isinstance(value, bool):
      plain[name] = int(value)
    elif isinstance(value, dict | list) and not _are_numbers(value):
      plain[name] = json.dumps(value)
    else:
      plain[name] = value
  return plain


def _are_numbers(parts: dict | list) -> bool:
  if not isinstance(parts, list) or not parts:
    return False
  return all(isinstance(part, int | float) for part in parts)


def parsed_attribute(results: xr.Dataset, name: str) -> Any:
  """Return an attribute that `open_results` has written as JSON; None if it is absent."""
  value = results.attrs.get(name)
  # Results that a user has put together may have it as it was.
  if isinstance(value, str):
    value = json.loads(value)
  return value


def shown_condition(root: Mapping[str, Any], name: str) -> Any:
  """Return a condition as pages and tables show it: all its values if they differ."""
  kinds = root.get("kinds", {}).get(name)
  if kinds:
    return ", ".join(map(str, kinds))
  return root.get(name)
