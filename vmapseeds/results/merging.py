"""Merges results folders whose runs were trained separately into one folder."""

import functools
import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Int
from rich.console import Console
from rich.progress import track

from vmapseeds.mistakes import Mistake
from vmapseeds.results import description
from vmapseeds.results.description import CONDITIONS, MIXED
from vmapseeds.results.opening import open_results
from vmapseeds.store.folders import check_empty, made
from vmapseeds.store.layout import Damage, object_path
from vmapseeds.store.results import Results, stop_of
from vmapseeds.training.runs import Runs


def merge(
  folders: Sequence[str | os.PathLike],
  out: str | os.PathLike,
  *,
  force_mixed: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Makes one results folder of several whose runs were trained separately, and returns
  what `open_results` does.

  The new folder has the runs of the first folder, then those of the second that the
  first lacks, and so on. Two runs are the same if their seeds and values are equal.
  Such a run is taken once, and is done if any folder has it done. What the records say
  of how each run was trained is kept. Runs that no folder has done are left for `work`;
  they come last in each block. Stored tallies are not kept: `vs.tally` counts the
  merged predictions.

  Args:
    folders: results folders that `train` made, of one recipe and with the same data.
      Their blocks may differ in size; the new folder has blocks as large as the first
      one's.
    out: the new results folder, absent or empty.
    force_mixed: whether to merge folders whose recipe, package versions, device kind,
      lane width, lowering or precision differ. The new folder's attributes then say so.
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
  tables, sources = zip(*map(description.campaign_of, folders), strict=True)
  first = sources[0]
  if description.kept_of(first.root)["predictions"] == "none":
    raise Mistake(
      f"{first.path} keeps no predictions to merge: add what is counted, vs.tally(a) + vs.tally(b)"
    )
  mixed = {*first.root.get("mixed", [])}.union(
    *(check_alike(s, first, force_mixed) for s in sources[1:])
  )
  about = {**first.description, **{name: MIXED for name in mixed if name in CONDITIONS}}
  if mixed:
    about["mixed"] = sorted(mixed)
  examples = {}
  for name in first.examples:
    examples[name], fault = first.values(name)
    if fault:
      raise Damage(first.path, f"{object_path(first.root, name, 0)} {fault}")

  rows, table = matched(tables)
  done = [source.done for source in sources]
  origin = np.full(
    (len(table), 2), -1
  )  # of each run: the first folder in which it is done, and its row there
  for s in reversed(range(len(sources))):
    origin[rows[s][done[s]]] = np.stack(
      [np.full(done[s].sum(), s), np.flatnonzero(done[s])], axis=1
    )
  places = np.arange(len(table))
  order = np.lexsort((places, origin[:, 0] < 0, places // first.block_runs))
  arrays = first.root["arrays"]
  with made(
    out,
    about,
    runs=len(table),
    block_runs=first.block_runs,
    columns=table[order].columns(),
    examples=examples,
    dimensions={name: tuple(array["dimensions"]) for name, array in arrays.items()},
    outputs={name: arrays[name] for name in first.outputs},
  ) as merged:
    steps = [
      functools.partial(check_block, sources, s, block, rows[s], origin)
      for s, source in enumerate(sources)
      for block in range(-(-len(source) // source.block_runs))
    ]
    for block in range(-(-len(table) // first.block_runs)):
      steps.append(functools.partial(copy_block, sources, origin[order], merged, block))
    for step in track(
      steps, "merging", console=Console(stderr=True), disable=not progress
    ):
      step()
  return open_results(out, *about["test_sets"][:1])


def check_alike(source: Results, first: Results, force_mixed: bool) -> set[str]:
  """What differs between a folder and the first. `Mistake` if they cannot be merged."""
  other, use = (
    f"{source.path} belongs to another campaign than {first.path}",
    "leave one of them out",
  )
  mine, theirs = source.root, first.root
  given = theirs
  if (
    mine["data_digest"] == theirs["data_digest"]
  ):  # the same data may have been at another path
    given = {
      **theirs,
      "recipe": with_dataset(
        theirs["recipe"], json.loads(mine["recipe"]).get("dataset")
      ),
    }
  mixed = description.check_alike(source, given, force_mixed, other, use)
  for name in ("num_classes", "digests"):
    if mine[name] != theirs[name]:
      raise Mistake(
        f"{other}: its {name} are {mine[name]!s:.100}, not {theirs[name]!s:.100}; {use}"
      )
  for name in dict.fromkeys((*source.outputs, *first.outputs)):
    if mine["arrays"].get(name) != theirs["arrays"].get(name):
      was, due = (
        arrays.get(name, "not kept") for arrays in (mine["arrays"], theirs["arrays"])
      )
      raise Mistake(f"{other}: its {name} is {was!s:.100}, not {due!s:.100}; {use}")
  return {*mixed, *mine.get("mixed", [])}


def with_dataset(recipe: str, dataset: Any) -> str:
  """The JSON of a recipe, with another `dataset` if it has one."""
  fields = json.loads(recipe)
  return json.dumps({**fields, "dataset": dataset} if "dataset" in fields else fields)


def matched(tables: Sequence[Runs]) -> tuple[list[Int[np.ndarray, " runs"]], Runs]:
  """For each table, the rows that its runs have in the merged table; and the merged
  table.

  Equal rows of one table are different runs: the n-th of them is the same run as the
  n-th in another table.
  """
  numbers: dict[tuple[bytes, int], int] = {}
  rows = []
  for table in tables:
    columns = (
      np.ascontiguousarray(column).reshape(len(table), -1)
      for column in table.columns().values()
    )
    seen: Counter[bytes] = Counter()
    rows.append(np.empty(len(table), int))
    for i, row in enumerate(
      np.concatenate([column.view(np.uint8) for column in columns], axis=1)
    ):
      text = row.tobytes()
      rows[-1][i] = numbers.setdefault((text, seen[text]), len(numbers))
      seen[text] += 1
  _, first = np.unique(np.concatenate(rows), return_index=True)
  return rows, Runs.concat(tables)[first]


def check_block(
  sources: Sequence[Results],
  s: int,
  block: int,
  rows: Int[np.ndarray, " runs"],
  origin: Int[np.ndarray, "merged two"],
) -> None:
  """`Mistake` if a block is damaged, or holds a run that another folder has with
  different results.

  Args:
    sources: the folders.
    s: index of the folder that has the block.
    block: number of the block.
    rows: the rows that the folder's runs have in the merged table.
    origin: the folder and the row that each run of the merged table is taken from.
  """
  source = sources[s]
  writes = source.record(block)
  for object, fault in source.faults(block, writes).items():
    raise Damage(source.path, f"{object} {fault}")
  mine = np.arange(source.rows(block).start, stop_of(writes))
  for other in np.unique(origin[rows[mine], 0]):
    again = mine[origin[rows[mine], 0] == other] if other != s else []
    for name in source.outputs if len(again) else ():
      there = sources[other].array(name).oindex[origin[rows[again], 1]]
      for run, one, two in zip(
        again, source.array(name).oindex[again], there, strict=True
      ):
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
  """Writes a block of the merged folder, and copies what the folders' records say of
  its runs.

  Args:
    sources: the folders.
    origin: the folder and the row that each run of the merged folder is taken from, -1
      where it is done nowhere.
    merged: the merged folder.
    block: number of the block.
  """
  dataset = json.loads(merged.root["recipe"]).get("dataset")
  rows = np.asarray(merged.rows(block))
  rows = rows[origin[rows, 0] >= 0]
  while len(rows):
    s, row = origin[rows[0]]
    writes = sources[s].record(row // sources[s].block_runs)
    write = next(w for w in writes if row in range(*w["rows"]))
    together = (
      (origin[rows, 0] == s)
      & (origin[rows, 1] >= row)
      & (origin[rows, 1] < write["rows"][1])
    )
    count = len(rows) if together.all() else int(together.argmin())
    here, rows = rows[:count], rows[count:]
    known = {name: write[name] for name in write.keys() - {"rows", "digests"}}
    known["recipe"] = with_dataset(write["recipe"], dataset)
    merged.write(
      here,
      {name: sources[s].array(name).oindex[origin[here, 1]] for name in merged.outputs},
      known,
    )
