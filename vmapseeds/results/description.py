"""What a campaign keeps in its results folder, and whether a folder belongs to the
campaign that is to resume there.

The root group holds arrays of runs: `seed_<source>` for each source of randomness, a
column for each value that the task declares, `poke_step`, `label_map`, `subset`,
`diverged`. A column of names has the UTF-8 bytes of each, `(run, letter)`, with zeros
after them. Each test set is a group with `predictions(run, example)`, `accuracy(run)`,
`labels(example)` and, on request, `logits(run, example, class)`. The group `variables`
is there on request, with one array per leaf (`vmapseeds.results.networks`). What an
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

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Int, Integer, Shaped

from vmapseeds.data.dataset import count_seen
from vmapseeds.mistakes import Mistake, door
from vmapseeds.store.files import Folder, names, place, read, write
from vmapseeds.store.folders import check_writable, create_folder, occupied
from vmapseeds.store.layout import (
  Description,
  array,
  read_verified_metadata,
  require_metadata,
)
from vmapseeds.store.results import Results
from vmapseeds.training.identity import are_same, describe_change
from vmapseeds.training.names import FOLD_GROUPS, HELD_OUT, TWINS, seed_column
from vmapseeds.training.objects import fields_of
from vmapseeds.training.outputs import Output, sibling
from vmapseeds.training.runs import Runs, holds_texts

IMPORTED = "imported"  # the device kind of runs from elsewhere
# A condition that differs between runs; the records have it for each block.
MIXED = "mixed"
# An attribute of folders: programs differ where versions do.
UPGRADED = "upgraded"
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
  "xla_flags",
  "lane_width",
  "lowering",
)
# What is told of the inputs; part of the identity too.
TOLD = ("precision", "mean", "std")
SOURCE = "source"  # the folder with the texts of the user's modules
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
  source_texts: Mapping[str, str]  # of the user's modules, by their names


def check_folder(path: Folder) -> Description:
  """Return the description of the results folder of a training, empty for an empty
  folder, or one that can be made.

  Raises:
    Mistake: `path` is none of these.
  """
  check_writable(path)
  root = read_verified_metadata(path)
  if root is None and occupied(path):
    root = read_verified_metadata(path)  # another process may have made it meanwhile
    if root is None:
      raise Mistake(
        f"{path} holds something else than results: give a new or empty folder"
      )
  if root and root["device_kind"] == IMPORTED:
    raise Mistake(
      f"{path} holds imported runs, which cannot be extended: give a new or empty "
      "folder"
    )
  return root or {}


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
  allow_upgrade: bool = False,
) -> Results:
  """Open the campaign's folder: make it if there is none, extend it if it has fewer
  runs.

  Args:
    path: the folder.
    contents: what it is to hold.
    block_runs: how many runs make a block of a new folder.
    depends: the identity, what is `TOLD`, `CONDITIONS`, and the versions of packages.
    force_mixed: whether to resume if the programs differ. The description says so then.
    allow_upgrade: whether to resume if they differ and versions alone can be why.

  Raises:
    Mistake: the folder holds something else, cannot be written, or belongs to another
      task or other runs. Nothing is changed then.
    FolderExists: another process has made the folder meanwhile.
  """
  description = contents.description | dict(depends)
  if root := read_verified_metadata(path):
    results = Results(path, root)
    mixed = check_same(results, contents, description, force_mixed, allow_upgrade)
    columns = contents.columns
    results.extend(len(next(iter(columns.values()))), columns)
    settle(results, description, mixed)
    return results

  axes = {name: tuple(axes) for name, (axes, _) in contents.constants.items()}
  texts = {n: ("run", "letter") for n, c in contents.columns.items() if holds_texts(c)}
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
    dimensions=DIMENSIONS | axes | texts,
    attributes={
      **{name: seeds.get(name, {"role": "column"}) for name in contents.columns},
      **contents.labels,
    },
  ) as results:
    write_source_texts(results.path, contents.source_texts)
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


@door
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
  name = f"{HELD_OUT}/labels"
  labels = np.asarray(results.arrays[name]) if name in results.arrays else None
  examples = finished.training_examples(sampling[2] if sampling else 0, labels)
  if examples is None:
    raise Mistake(
      f"the runs of {path} were trained on all examples: train some with --subset or "
      "--bootstrap"
    )
  return examples


def count_seen_examples(results: xr.Dataset) -> float:
  """Return how many test examples are among those that a run was trained on, on average
  over these runs; 0 where that is not known or chance.
  """
  if TWINS not in results.variables or not results.sizes["run"]:
    return 0.0
  trained = None
  if results.attrs.get("sampling"):
    kind, size, available = results.attrs["sampling"]
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
  columns = [
    np.unique(column, return_inverse=True)[1]
    for name, column in sorted(runs.values.items())
    if column.ndim == 1 and name != "start"
  ]
  if not columns:
    return np.zeros(len(runs), int), 1
  rows = np.stack(columns, axis=1)
  _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
  order = np.argsort(np.argsort(first))
  return order[place.ravel()], len(first)


def check_same(
  results: Results,
  contents: Contents,
  given: Description,
  force_mixed: bool,
  allow_upgrade: bool,
) -> str:
  """Check that a folder has this task, these runs and the `given` description.

  Returns:
    `MIXED` or `UPGRADED` if the programs differ, which only `force_mixed` allows, or
      `allow_upgrade` where versions alone can be why; empty if they do not.

  Raises:
    Mistake: something differs; it names the first difference.
  """
  other = f"{results.path} belongs to another campaign"
  columns = contents.columns
  check_kept(results, contents)
  given = given | {"columns": list(columns)}
  texts = contents.source_texts
  mixed = check_alike(
    results, given, force_mixed, other, source_texts=texts, allow_upgrade=allow_upgrade
  )
  constants = {name: values for name, (_, values) in contents.constants.items()}
  results.restore(columns | constants)
  shared = min(len(next(iter(columns.values()))), len(results))
  for name, column in results.table().items():
    if column.shape[1:] != columns[name].shape[1:] or not np.array_equal(
      column[:shared], columns[name][:shared]
    ):
      said = (
        differing_fields(results.root, given) or f"runs differ from these in {name}"
      )
      raise Mistake(f"{other}: its {said}; {USE}")
  check_arrays(results, contents)
  return mixed


def check_alike(
  results: Results,
  given: Description,
  force_mixed: bool,
  other: str,
  use: str = USE,
  source_texts: Mapping[str, str] | None = None,
  allow_upgrade: bool = False,
) -> str:
  """Do what `check_same` does, from the descriptions alone. A mistake begins with
  `other` and ends with `use`.
  """
  stored = results.root
  theirs, mine = (
    ", ".join((*root["columns"], f"sampling {root['sampling']}"))
    for root in (stored, given)
  )
  if theirs != mine:
    raise Mistake(f"{other}: its runs have {theirs}, these {mine}; {use}")
  theirs, mine = (root["identity"] for root in (stored, given))
  if are_same(theirs, mine):
    return ""
  may_be_mixed = theirs["data"] == mine["data"]
  may_be_mixed &= theirs["networks"] == mine["networks"]
  upgraded = may_be_mixed and describe_upgrade(results, given, source_texts)
  if upgraded and allow_upgrade:
    return UPGRADED
  if force_mixed and may_be_mixed:
    return MIXED
  if upgraded:
    raise Mistake(
      f"{results.path} was trained with {upgraded}, or --allow-upgrade to train on: runs "
      "of both may then differ by more than rounding, and reports say which are which"
    )
  said = describe_difference(results, given, source_texts)
  raise Mistake(f"{other}: its {said}; {use}{', or --force-mixed' * may_be_mixed}")


def describe_difference(
  results: Results, given: Description, source_texts: Mapping[str, str] | None = None
) -> str:
  """Return how a folder's identity differs from that of a description: by the fields of
  the recipe, the data, the source texts, or what else there is to say.
  """
  stored = results.root
  theirs, mine = (root["identity"] for root in (stored, given))
  if said := differing_fields(stored, given):
    return said
  for part in ("data", "networks"):
    if theirs[part] != mine[part]:
      return f"{part} digest is {theirs[part]!r}, not {mine[part]!r}"
  parts = ", ".join(part for part in mine if theirs.get(part) != mine[part])
  if changed := describe_change(read_source_texts(results.path), source_texts or {}):
    return f"program was another ({parts}); changed since in {changed}"
  versions = (root["versions"] for root in (stored, given))
  moved = differing_versions(*versions)
  kept = bool(read_source_texts(results.path) or source_texts)
  same = "the source text is the same" if kept else "no source text is at hand"
  seen = f"versions differ: {moved}" if moved else same
  return (
    f"program was another ({parts}), and {seen}: look at what it reads besides, such as "
    "flags of JAX, files or the environment"
  )


def describe_upgrade(
  results: Results, given: Description, source_texts: Mapping[str, str] | None
) -> str:
  """Return what was trained with which versions, and how to restore these, if versions of
  packages alone can be why two programs differ; empty if not.
  """
  stored = results.root
  theirs, mine = (root["identity"] for root in (stored, given))
  same = all(theirs[name] == mine[name] for name in ("law", "rounds", "version"))
  changed = describe_change(read_source_texts(results.path), source_texts or {})
  if not same or changed or differing_fields(stored, given):
    return ""
  before, now = {}, {}
  for name in stored["versions"].keys() & given["versions"].keys() - {"python"}:
    kept = stored.get("kinds", {}).get(name, [stored["versions"][name]])[0]
    number, _, settings = kept.partition(" with ")
    new_number, _, new_settings = given["versions"][name].partition(" with ")
    if settings != new_settings:  # JAX's settings can be why, too
      return ""
    if number != new_number:
      before[name], now[name] = number, new_number
  if not before:
    return ""

  def shown(of: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {of[name]}" for name in sorted(of))

  restored = " ".join(f"{name}=={before[name]}" for name in sorted(before))
  return (
    f"{shown(before)}, and with {shown(now)} its program is another: "
    f"`pip install {restored}` restores them"
  )


def differing_versions(theirs: Mapping[str, str], mine: Mapping[str, str]) -> str:
  """Return which packages have other versions, as `name: theirs, mine`."""
  return "; ".join(
    f"{name}: {theirs[name]}, {mine[name]}"
    for name in theirs.keys() & mine.keys() - {"python"}
    if theirs[name] != mine[name]
  )


def read_source_texts(path: Folder) -> dict[str, str]:
  """Return the source texts of the user's modules that a folder keeps, by module name."""
  folder = place(path) / SOURCE
  return {
    name.removesuffix(".py"): (read(folder / name) or b"").decode(errors="replace")
    for name in names(folder)
  }


def write_source_texts(path: Folder, texts: Mapping[str, str]) -> None:
  """Write source texts into a folder, a file for each module."""
  for name, text in texts.items():
    write(place(path) / SOURCE / f"{name}.py", text.encode())


def differing_fields(stored: Description, given: Description) -> str:
  """Return how the recipes of two descriptions differ, as a message says it; empty if
  they are equal.

  `auto` is compared as the precision that it resolved to.
  """
  theirs, mine = (fields_of(root["recipe"]) for root in (stored, given))
  for recipe, root in ((theirs, stored), (mine, given)):
    if recipe.get("precision") == "auto":
      recipe["precision"] = root.get("precision")
  names = dict.fromkeys((*theirs, *mine))
  pairs = ((name, theirs.get(name), mine.get(name)) for name in names)
  fields = "; ".join(
    f"{name}: {format_field(a)}, {format_field(b)}" for name, a, b in pairs if a != b
  )
  return fields and f"recipe and this one differ in {fields}"


def format_field(value) -> str:
  """Return a field of a described recipe as a message shows it."""
  if isinstance(value, dict) and [*value] == ["object"]:
    return value["object"]
  return repr(tuple(value) if isinstance(value, list) else value)


def check_kept(results: Results, contents: Contents) -> None:
  """Raise `Mistake` unless the folder keeps of each run what is asked for."""
  for option, what in KEPT.items():
    theirs, mine = (
      kept["kept"][option] for kept in (results.root, contents.description)
    )
    if theirs != mine:
      raise Mistake(
        f"{results.path} belongs to another campaign: {what} are "
        f"{'not ' * (mine not in (False, 'none'))}kept there; {USE}"
      )


def check_arrays(
  results: Results, contents: Contents, some: Collection[str] | None = None
) -> None:
  """Raise `Mistake` unless the folder has the arrays that the task gives. Of outputs,
  only `some` are compared if given.
  """
  root = results.root
  arrays = results.root["arrays"]
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
  for name, about in contents.outputs.items():
    for part in ("dimensions", "attributes") if name in arrays else ():
      theirs, mine = arrays[name][part], about[part]
      if theirs != mine:
        raise Mistake(
          f"{results.path} has {name} with {part} {theirs}, the task {mine}: declare "
          "what it was begun with"
        )


def settle(results: Results, given: Description, mixed: str = "") -> None:
  """Update the description: what is `TOLD`, conditions and versions as `given` if no run
  is done. Else those that differ are joined. `mixed` is what `check_same` returned.
  """
  names = (*CONDITIONS, *TOLD, "versions", "identity")
  told = {name: given.get(name) for name in names}

  def settled(root):
    return join(root, given, mixed) if results.done.any() else root | told

  if settled(results.root) != results.root:
    results.revise(settled)


def join(root: Description, given: Description, mixed: str) -> Description:
  """Return a description with what another one says of how runs were trained. What
  differs becomes `MIXED`, and `kinds` has all its values.
  """
  fixed = {**given["identity"]["fixed"], **root["identity"]["fixed"]}
  root = root | {
    "versions": {**root["versions"]},
    "identity": root["identity"] | {"fixed": fixed},
  }
  kinds = dict(root.get("kinds", {}))
  if mixed == MIXED or given.get("mixed"):
    root["mixed"] = True
  if mixed == UPGRADED or given.get(UPGRADED):
    root[UPGRADED] = True
  for name in (*CONDITIONS, *TOLD, *root["versions"]):
    held, new = (
      of["versions"] if name in of["versions"] else of for of in (root, given)
    )
    seen = kinds.get(name, [held.get(name)])
    more = given.get("kinds", {}).get(name, [new.get(name)])
    if more := [value for value in more if value not in seen]:
      held[name] = MIXED
      kinds[name] = [*seen, *more]
  return root | ({"kinds": kinds} if kinds else {})


def runs_by_versions(path: Folder) -> str:
  """Return which finished runs were trained with which versions, by the records of their
  blocks, such as "runs 0 to 7 with jax 0.10.2, runs 8 to 11 with jax 0.12.0".
  """
  results = Results(path)
  differing = sorted(
    results.root.get("kinds", {}).keys() & results.root["versions"].keys()
  )
  spans: list[tuple[str, int, int]] = []
  for block in sorted(results.finished_blocks()):
    record = results.record(block)
    versions = record["versions"] if record else {}
    named = ", ".join(f"{name} {versions.get(name)}" for name in differing)
    rows = results.blocks[block]
    if spans and spans[-1][0] == named and spans[-1][2] + 1 == rows[0]:
      spans[-1] = named, spans[-1][1], rows[-1]
    else:
      spans.append((named, rows[0], rows[-1]))
  return ", ".join(f"runs {first} to {last} with {name}" for name, first, last in spans)


def shown_condition(root: Mapping[str, Any], name: str) -> Any:
  """Return a condition as pages and tables show it: all its values if they differ."""
  kinds = root.get("kinds", {}).get(name)
  return ", ".join(map(str, kinds)) if kinds else root.get(name)
