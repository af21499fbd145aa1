"""Merge results folders whose runs were trained separately into one folder."""

import functools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Int
from rich.console import Console
from rich.progress import track

from vmapseeds.mistakes import Mistake, door
from vmapseeds.results import description
from vmapseeds.results.description import IMPORTED
from vmapseeds.results.formatting import difference_of_labels
from vmapseeds.results.opening import open_results
from vmapseeds.store.folders import check_empty, create_folder
from vmapseeds.store.layout import Damage
from vmapseeds.store.results import Results


@door
def merge(
  folders: Sequence[str | os.PathLike],
  out: str | os.PathLike,
  *,
  force_mixed: bool = False,
  allow_upgrade: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Make one results folder of several whose runs were trained separately, and return
  what `open_results` does.

  The new folder has the runs of the first folder, then those of the second that the
  first lacks, and so on. Two runs are the same if their seeds and values are equal.
  Such a run is taken once, and is done if any folder has it done; imported runs without
  seeds are all different. Each block holds runs
  of one block of one folder, and keeps what its record says of how they were trained.
  Runs that no folder has done are left for `work`. Stored tallies are not kept:
  `vs.tally` counts the merged predictions.

  Args:
    folders: results folders that `train` made, of one recipe and with the same data; or
      folders of recorded or imported runs with the same labels and columns.
    out: the new results folder, absent or empty.
    force_mixed: whether to merge folders whose programs differ. The new folder's
      attributes then say so.
    allow_upgrade: whether to merge folders whose programs differ because versions of
      packages do.
    progress: whether to draw a progress bar on stderr.

  Raises:
    Mistake: a folder has no results, is damaged, or belongs to another campaign; or two
      folders hold the same run with different results. Nothing is left on disk then.
  """
  check_empty(out)
  if isinstance(folders, str) or not isinstance(folders, Sequence) or not folders:
    raise Mistake(
      "no results folders to merge: give a list of some that `vmapseeds train` made"
    )
  sources = [Results(folder) for folder in folders]
  first = sources[0]
  if first.root["kept"]["predictions"] == "none":
    raise Mistake(
      f"{first.path} keeps no predictions to merge: add what is counted, vs.tally(a) + vs.tally(b)"
    )
  about = first.description
  for source in sources[1:]:
    mixed = check_alike(source, first, force_mixed, allow_upgrade)
    about = description.join(about, source.root, mixed)
  for name, fault in first.plan_faults().items():
    raise Damage(first.path, f"{name} {fault}")

  tables = [source.table() for source in sources]
  if not any(
    a["attributes"].get("role") == "seed" for a in first.root["arrays"].values()
  ):
    starts = np.cumsum([0, *map(len, sources)])
    for table, start, source in zip(tables, starts, sources, strict=False):
      table[""] = start + np.arange(len(source))  # all runs are different
  rows, table = matched(tables)
  table.pop("", None)
  # Of each run: the first folder in which it is done, and its row there.
  origin = np.full((1 + max(of.max() for of in rows), 2), -1)
  for s in reversed(range(len(sources))):
    there = np.flatnonzero(sources[s].done)
    origin[rows[s][there]] = np.stack([np.full(len(there), s), there], axis=1)
  blocks = [(s, sources[s].block_of(row) if s >= 0 else -1) for s, row in origin]
  cuts = [k for k in range(1, len(blocks)) if blocks[k] != blocks[k - 1]]
  arrays = first.root["arrays"]
  with create_folder(
    out,
    about,
    extents=[*cuts, len(origin)],
    block_runs=max(source.block_runs for source in sources),
    columns=table,
    examples={name: first.arrays[name][...] for name in first.examples},
    dimensions={name: tuple(array["dimensions"]) for name, array in arrays.items()},
    outputs={name: arrays[name] for name in first.outputs},
    attributes={
      name: arrays[name]["attributes"] for name in (*first.columns, *first.examples)
    },
  ) as merged:
    texts = description.read_source_texts(first.path)
    description.write_source_texts(merged.path, texts)
    steps = [
      functools.partial(check_block, sources, s, block, rows[s], origin)
      for s, source in enumerate(sources)
      for block in sorted(source.finished_blocks())
    ]
    steps += [
      functools.partial(copy_block, sources, origin, merged, block)
      for block, runs in enumerate(merged.blocks)
      if origin[runs.start, 0] >= 0
    ]
    for step in track(
      steps, "merging", console=Console(stderr=True), disable=not progress
    ):
      step()
  return open_results(out, *about["test_sets"][:1])


def check_alike(
  source: Results, first: Results, force_mixed: bool, allow_upgrade: bool
) -> str:
  """Return how the programs of a folder and of the first differ, as
  `description.check_same` does.

  Raises:
    Mistake: they cannot be merged.
  """
  other, use = (
    f"{source.path} belongs to another campaign than {first.path}",
    "leave one of them out",
  )
  mine, theirs = source.root, first.root
  if (mine["device_kind"] == IMPORTED) != (theirs["device_kind"] == IMPORTED):
    raise Mistake(f"{other}: one has runs trained here, one imported runs; {use}")
  recipe = theirs["recipe"]
  # The same data may have been at another path.
  if mine["data_digest"] == theirs["data_digest"]:
    recipe = with_dataset(recipe, json.loads(mine["recipe"]).get("dataset"))
  given = {**theirs, "recipe": recipe}
  if mine.get("search"):
    raise Mistake(
      f"{source.path} holds searches, which are numbered within their folder: extend one "
      "with --searches, or compare the folders"
    )
  # What is kept of each run is in the programs too.
  if mine["kept"] != theirs["kept"]:
    check_outputs(source, first, other, use)
  texts = description.read_source_texts(first.path)
  mixed = description.check_alike(
    source, given, force_mixed, other, use, texts, allow_upgrade
  )
  for name in source.examples:
    if mine["digests"][name] != theirs["digests"].get(name):
      said = ""
      if name in first.examples and mine["arrays"][name]["attributes"].get("of"):
        labels = (of.arrays[name][...] for of in (source, first))
        said = f", {difference_of_labels(*labels)}"
      raise Mistake(f"{other}: its {name} are others{said}; {use}")
  if mine["num_classes"] != theirs["num_classes"]:
    classes = f"{mine['num_classes']} classes, not {theirs['num_classes']}"
    raise Mistake(f"{other}: it has {classes}; {use}")
  check_outputs(source, first, other, use)
  return mixed


def check_outputs(source: Results, first: Results, other: str, use: str) -> None:
  """Raise `Mistake` unless two folders have the same arrays of runs."""
  mine, theirs = source.root, first.root
  for name in dict.fromkeys((*source.outputs, *first.outputs)):
    if mine["arrays"].get(name) != theirs["arrays"].get(name):
      abouts = (root["arrays"].get(name) for root in (mine, theirs))
      here, there = (
        f"{about['dtype']} {about['shape']}" if about else "not kept"
        for about in abouts
      )
      raise Mistake(f"{other}: {name} is {here} here, {there} there; {use}")


def with_dataset(recipe: str, dataset: Any) -> str:
  """Return the JSON of a recipe, with another `dataset` if it has one."""
  fields = json.loads(recipe)
  return json.dumps({**fields, "dataset": dataset} if "dataset" in fields else fields)


def matched(
  tables: Sequence[Mapping[str, np.ndarray]],
) -> tuple[list[Int[np.ndarray, " runs"]], dict[str, np.ndarray]]:
  """Return, for each table, the rows that its runs have in the merged table; and the
  merged table.

  Equal rows of one table are different runs: the n-th of them is the same run as the
  n-th in another table.
  """
  numbers: dict[tuple[bytes, int], int] = {}
  rows = []
  for table in tables:
    size = len(next(iter(table.values())))
    columns = (
      np.ascontiguousarray(column).reshape(size, -1) for column in table.values()
    )
    seen: Counter[bytes] = Counter()
    rows.append(np.empty(size, int))
    for i, row in enumerate(
      np.concatenate([column.view(np.uint8) for column in columns], axis=1)
    ):
      text = row.tobytes()
      rows[-1][i] = numbers.setdefault((text, seen[text]), len(numbers))
      seen[text] += 1
  _, first = np.unique(np.concatenate(rows), return_index=True)
  return rows, {n: np.concatenate([of[n] for of in tables])[first] for n in tables[0]}


def check_block(
  sources: Sequence[Results],
  s: int,
  block: int,
  rows: Int[np.ndarray, " runs"],
  origin: Int[np.ndarray, "merged two"],
) -> None:
  """Check that a block is sound, and that no other folder has one of its runs with
  different results.

  Args:
    sources: the folders.
    s: index of the folder that has the block.
    block: number of the block.
    rows: the rows that the folder's runs have in the merged table.
    origin: the folder and the row that each run of the merged table is taken from.

  Raises:
    Damage: the block is not as its record says.
    Mistake: a run's results differ.
  """
  source = sources[s]
  for object, fault in source.faults(block, source.record(block) or {}).items():
    raise Damage(source.path, f"{object} {fault}")
  mine = np.array(source.blocks[block])
  taken = origin[rows[mine]]
  for other in {*taken[:, 0].tolist()} - {s}:
    again, there = mine[taken[:, 0] == other], taken[taken[:, 0] == other, 1]
    for name in source.outputs:
      pairs = zip(
        source.read(name, again), sources[other].read(name, there), strict=True
      )
      for run, (one, two) in zip(again, pairs, strict=True):
        if one.tobytes() != two.tobytes():
          raise Mistake(
            f"run {run} of {source.path} differs in {name} from a run of an earlier folder with the same seeds and "
            "values: leave one of the folders out, and `vmapseeds replay` says which run is right"
          )


def copy_block(
  sources: Sequence[Results],
  origin: Int[np.ndarray, "merged two"],
  merged: Results,
  block: int,
) -> None:
  """Write a block of the merged folder, with what the first record says of its runs.

  Args:
    sources: the folders.
    origin: the folder and the row that each run of the merged folder is taken from.
    merged: the merged folder.
    block: number of the block.
  """
  s, rows = origin[merged.blocks[block].start, 0], origin[merged.blocks[block], 1]
  record = sources[s].record(sources[s].block_of(rows[0])) or {}
  dataset = json.loads(merged.root["recipe"]).get("dataset")
  if "recipe" in record:
    record["recipe"] = with_dataset(record["recipe"], dataset)
  outputs = {name: sources[s].read(name, rows) for name in merged.outputs}
  merged.write_block(block, outputs, record)
