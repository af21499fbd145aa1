"""Merge results folders whose runs were trained separately into one folder."""

import functools
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int
from rich.progress import track

from vmapseeds.errors import UserError, console_of_stderr, hide_own_frames
from vmapseeds.results import description
from vmapseeds.results.description import IMPORTED
from vmapseeds.results.formatting import difference_of_labels
from vmapseeds.results.opening import open_results
from vmapseeds.store.folders import check_empty, create_folder
from vmapseeds.store.layout import Damage
from vmapseeds.store.results import Results
from vmapseeds.training.runs import holds_texts


@hide_own_frames
def merge(
  folders: Sequence[str | os.PathLike],
  out: str | os.PathLike,
  *,
  force_mixed: bool = False,
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
    progress: whether to draw a progress bar on stderr.

  Raises:
    UserError: a folder has no results, is damaged, or belongs to another campaign; or two
      folders hold the same run with different results. Nothing is left on disk then.
  """
  check_empty(out)
  sources = _open_sources(folders)
  first = sources[0]
  joined = first.description
  for source in sources[1:]:
    mixed = check_same_programs(source, first, force_mixed)
    joined = description.join_conditions(joined, source.root, mixed)
  # The new folder takes its columns and arrays of examples from the first.
  for name, fault in first.plan_faults().items():
    raise Damage(first.path, f"{name} {fault}")
  rows, table = _merge_tables(sources)
  origin = find_origins(sources, rows)

  arrays = first.root["arrays"]
  planned = (*first.columns, *first.examples)
  with create_folder(
    out,
    joined,
    extents=[*_cuts(sources, origin), len(origin)],
    block_runs=max(source.block_runs for source in sources),
    columns=table,
    examples=first.read_plan(first.examples),
    dimensions={name: tuple(entry["dimensions"]) for name, entry in arrays.items()},
    outputs={name: arrays[name] for name in first.outputs},
    attributes={name: arrays[name]["attributes"] for name in planned},
  ) as merged:
    steps = _merge_steps(sources, rows, origin, merged)
    console = console_of_stderr()
    for step in track(steps, "merging", console=console, disable=not progress):
      step()
    merged.flush_records()
  return open_results(out, *joined["test_sets"][:1])


def _open_sources(folders: Sequence[str | os.PathLike]) -> list[Results]:
  """Open the folders to merge; raise `UserError` if there are none, or if they hold
  counts alone.
  """
  # A text is a sequence too, of letters.
  if isinstance(folders, str) or not isinstance(folders, Sequence) or not folders:
    raise UserError(
      "no results folders to merge: give a list of folders created by `vmapseeds train`"
    )
  sources = [Results(folder) for folder in folders]
  first = sources[0]
  # Counts of blocks would be of other blocks after a merge.
  if first.root["kept"]["predictions"] == "none":
    raise UserError(
      f"{first.path} keeps no predictions to merge: add what is counted, vs.tally(a) + vs.tally(b)"
    )
  return sources


def _merge_steps(
  sources: Sequence[Results],
  rows: Sequence[Int[np.ndarray, " runs"]],
  origin: Int[np.ndarray, "merged two"],
  merged: Results,
) -> list[Callable[[], None]]:
  """Return what is to do for each block. All are checked before the first is copied."""
  steps: list[Callable[[], None]] = []
  for s, source in enumerate(sources):
    for block in sorted(source.finished_blocks()):
      steps.append(functools.partial(check_block, sources, s, block, rows[s], origin))
  for block, runs in enumerate(merged.blocks):
    # Runs that no folder has done are left to train.
    if origin[runs.start, 0] >= 0:
      steps.append(functools.partial(copy_block, sources, origin, merged, block))
  return steps


def _merge_tables(
  sources: Sequence[Results],
) -> tuple[list[Int[np.ndarray, " runs"]], dict[str, np.ndarray]]:
  """Return what `match_runs` does of the folders' runs tables."""
  tables = [source.table() for source in sources]
  entries = sources[0].root["arrays"].values()
  if any(entry["attributes"].get("role") == "seed" for entry in entries):
    return match_runs(tables)
  # Without seeds, equal values do not make two runs the same.
  starts = np.cumsum([0, *map(len, sources)])
  rows = [np.arange(start, stop) for start, stop in itertools.pairwise(starts)]
  return rows, {name: _joined(tables, name) for name in tables[0]}


def find_origins(
  sources: Sequence[Results], rows: Sequence[Int[np.ndarray, " runs"]]
) -> Int[np.ndarray, "merged two"]:
  """Return, for each run of the merged table, the first folder in which it is done, and
  its row there; -1 where no folder has it done.

  Args:
    sources: the folders.
    rows: of each folder, the rows that its runs have in the merged table.
  """
  count = 1 + max(rows_of_folder.max() for rows_of_folder in rows)
  origin = np.full((count, 2), -1)
  # The first folder is written last, over what later ones have of the same runs.
  for s in reversed(range(len(sources))):
    done = np.flatnonzero(sources[s].done)
    merged_rows = rows[s][done]
    origin[merged_rows, 0] = s
    origin[merged_rows, 1] = done
  return origin


def _cuts(
  sources: Sequence[Results], origin: Int[np.ndarray, "merged two"]
) -> list[int]:
  """Return the rows where a block of the merged folder begins, but for the first: a
  block's runs are of one block of one folder, for it has one record.
  """
  block_of_run = []
  for s, row in origin:
    block = sources[s].block_of(row) if s >= 0 else -1
    block_of_run.append((s, block))
  cuts = []
  for run, (before, after) in enumerate(itertools.pairwise(block_of_run), start=1):
    if before != after:
      cuts.append(run)
  return cuts


def check_same_programs(source: Results, first: Results, force_mixed: bool) -> bool:
  """Return whether the programs of a folder and of the first differ.

  Raises:
    UserError: they cannot be merged.
  """
  other = f"{source.path} belongs to another campaign than {first.path}"
  use = "leave one of them out"
  mine, theirs = source.root, first.root
  if (mine["device_kind"] == IMPORTED) != (theirs["device_kind"] == IMPORTED):
    raise UserError(f"{other}: one has runs trained here, one imported runs; {use}")
  recipe = theirs["recipe"]
  # The same data may have been at another path.
  if mine["data_digest"] == theirs["data_digest"]:
    recipe = replace_dataset_in_json(recipe, json.loads(mine["recipe"]).get("dataset"))
  expected = theirs | {"recipe": recipe}
  # What is kept of each run is in the programs too.
  if mine["kept"] != theirs["kept"]:
    check_outputs(source, first, other, use)
  mixed = description.check_same_description(source, expected, force_mixed, other, use)
  for name in source.examples:
    if mine["digests"][name] == theirs["digests"].get(name):
      continue
    difference = ""
    # Labels are of an output, other arrays of examples are not.
    if name in first.examples and mine["arrays"][name]["attributes"].get("of"):
      labels = source.read_plan([name])[name]
      first_labels = first.read_plan([name])[name]
      difference = f", {difference_of_labels(labels, first_labels)}"
    raise UserError(f"{other}: its {name} are others{difference}; {use}")
  for name in source.examples:
    names, first_names = (
      root["arrays"][name]["attributes"].get("class_names") for root in (mine, theirs)
    )
    if names and first_names and names != first_names:
      raise UserError(
        f"{other}: its classes are {', '.join(names)}, there {', '.join(first_names)}; {use}"
      )
  if mine["num_classes"] != theirs["num_classes"]:
    classes = f"{mine['num_classes']} classes, not {theirs['num_classes']}"
    raise UserError(f"{other}: it has {classes}; {use}")
  check_outputs(source, first, other, use)
  return mixed


def check_outputs(source: Results, first: Results, other: str, use: str) -> None:
  """Raise `UserError` unless two folders have the same arrays of runs."""
  mine, theirs = source.root["arrays"], first.root["arrays"]
  for name in dict.fromkeys((*source.outputs, *first.outputs)):
    if mine.get(name) != theirs.get(name):
      here, there = _format_entry(mine.get(name)), _format_entry(theirs.get(name))
      raise UserError(f"{other}: {name} is {here} here, {there} there; {use}")


def _format_entry(entry: Mapping[str, Any] | None) -> str:
  """Return an array of a folder as messages show it."""
  if not entry:
    return "not kept"
  return f"{entry['dtype']} {entry['shape']}"


def replace_dataset_in_json(recipe: str, dataset: Any) -> str:
  """Return the JSON of a recipe, with another `dataset` if it has one."""
  fields = json.loads(recipe)
  if "dataset" in fields:
    fields["dataset"] = dataset
  return json.dumps(fields)


def match_runs(
  tables: Sequence[Mapping[str, np.ndarray]],
) -> tuple[list[Int[np.ndarray, " runs"]], dict[str, np.ndarray]]:
  """Return, for each table, the rows that its runs have in the merged table; and the
  merged table.

  Equal rows of one table are different runs: the n-th of them is the same run as the
  n-th in another table.
  """
  table = {name: _joined(tables, name) for name in tables[0]}
  sizes = [len(next(iter(columns.values()))) for columns in tables]
  # As bytes, rows are compared whatever the dtypes of their columns.
  columns = [
    np.ascontiguousarray(column).reshape(sum(sizes), -1).view(np.uint8)
    for column in table.values()
  ]
  runs = pd.DataFrame(
    {
      "table": np.repeat(np.arange(len(tables)), sizes),
      "values": [values.tobytes() for values in np.concatenate(columns, axis=1)],
    }
  )
  runs["repeat"] = runs.groupby(["table", "values"]).cumcount()
  # In the order in which they come: the first with each number makes the table.
  numbers = runs.groupby(["values", "repeat"], sort=False).ngroup().to_numpy()
  _, first = np.unique(numbers, return_index=True)
  rows = np.split(numbers, np.cumsum(sizes)[:-1])
  return rows, {name: column[first] for name, column in table.items()}


def _joined(tables: Sequence[Mapping[str, np.ndarray]], name: str) -> np.ndarray:
  """Return a column of all tables: texts of one may have more letters than of another."""
  columns = [table[name] for table in tables]
  if holds_texts(columns[0]):
    width = max(column.shape[1] for column in columns)
    columns = [np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in columns]
  return np.concatenate(columns)


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
    UserError: a run's results differ.
  """
  source = sources[s]
  record = source.record(block) or {}
  for name, fault in source.faults(block, record).items():
    raise Damage(source.path, f"{name} {fault}")
  mine = np.array(source.blocks[block])
  taken_from = origin[rows[mine]]
  for other in set(taken_from[:, 0].tolist()) - {s}:
    shared = taken_from[:, 0] == other
    check_equal(source, mine[shared], sources[other], taken_from[shared, 1])


def check_equal(
  source: Results,
  rows: Int[np.ndarray, " runs"],
  other: Results,
  other_rows: Int[np.ndarray, " runs"],
) -> None:
  """Raise `UserError` unless two folders have the same results of the same runs, which are
  in these rows.
  """
  for name in source.outputs:
    values, other_values = source.read(name, rows), other.read(name, other_rows)
    for run, one, two in zip(rows, values, other_values, strict=True):
      # Bytes, because NaN is not equal to itself.
      if one.tobytes() != two.tobytes():
        raise UserError(
          f"run {run} of {source.path} differs in {name} from a run of an earlier folder "
          "with the same seeds and values: leave one of the folders out, and `vmapseeds "
          "replay` says which run is right"
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
  runs = merged.blocks[block]
  source = sources[origin[runs.start, 0]]
  rows = origin[runs, 1]
  record = source.record(source.block_of(rows[0])) or {}
  # The same data may have been at another path.
  dataset = json.loads(merged.root["recipe"]).get("dataset")
  if "recipe" in record:
    record["recipe"] = replace_dataset_in_json(record["recipe"], dataset)
  outputs = {name: source.read(name, rows) for name in merged.outputs}
  merged.write_block(block, outputs, record)
