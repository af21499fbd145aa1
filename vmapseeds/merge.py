"""Results folders whose runs were trained apart, as one folder."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool, Int
from rich.console import Console
from rich.progress import track

from vmapseeds import blocks
from vmapseeds.campaign import campaign_of
from vmapseeds.checks import MIXED
from vmapseeds.errors import Mistake
from vmapseeds.folders import check_empty, create_folder, made_whole
from vmapseeds.metadata import VARIABLES, damaged, test_sets_of
from vmapseeds.recipe import Recipe
from vmapseeds.results import Results, open_results, readable
from vmapseeds.runs import Runs
from vmapseeds.stores import place

# What bit-for-bit equal results need besides the recipe.
CONDITIONS = ("device_kind", "lane_width", "lowering", "precision", "data_digest", "mean", "std")


def merge(
  folders: Sequence[str | os.PathLike], out: str | os.PathLike, *, force_mixed: bool = False, progress: bool = True
) -> xr.Dataset:
  """Makes one results folder of several whose runs were trained apart, and returns what `open_results` does.

  The new folder has the runs of the first folder, then those of the second that the first lacks, and so on. Runs are
  the same when their seeds and values are: then one is taken, and it is done when it is done anywhere. What the records
  say of how each run was trained is kept. Runs that are not done anywhere are left for `work`.

  Args:
    folders: results folders that `train` made, of one recipe and with the same data. Their blocks may differ in size;
      the new folder has blocks as large as the first one's.
    out: the new results folder, absent or empty.
    force_mixed: whether to merge folders whose recipe, package versions, device kind, lane width, lowering or precision
      differ. The new folder's attributes then say so.
    progress: whether to draw a progress bar on stderr.

  Raises:
    Mistake: a folder is none, is damaged, or belongs to another campaign; or two folders hold the same run with other
      outcomes. Nothing is left on disk then.
  """
  check_empty(out)
  if isinstance(folders, str | os.PathLike) or not len(folders):
    raise Mistake("no results folders to merge: give a list of some that `vmapseeds train` made")
  tables, stored = zip(*(campaign_of(folder)[1:] for folder in folders), strict=True)
  sources = []
  for folder in folders:
    with readable(folder):
      sources.append(Results(folder))
  mixed = sorted({*stored[0].get("mixed", [])}.union(
    *(check_alike(sources[i], stored[i], sources[0], stored[0], tables[0], force_mixed) for i in range(1, len(sources)))
  ))  # fmt: skip
  rows, table = matched(tables)
  attributes = {**stored[0], "block_runs": sources[0].block_runs}
  if mixed:
    attributes |= {"mixed": mixed, **{name: MIXED for name in mixed if name in CONDITIONS}}
  with made_whole(place(out)) as draft:
    merged = created(draft, sources[0], attributes, table)
    done = np.zeros(len(table), bool)
    parts = [(s, block) for s, source in enumerate(sources) for block in range(-(-len(source) // source.block_runs))]
    stderr = Console(stderr=True)
    for s, block in track(parts, "merging", console=stderr, disable=not progress):
      with readable(sources[s].path):
        copy(sources[s], block, merged, rows[s], done)
  return open_results(out, test_sets_of(attributes)[0])


def check_alike(
  source: Results, stored: dict[str, Any], first: Results, theirs: dict[str, Any], runs: Runs, force_mixed: bool
) -> set[str]:
  """What differs between a folder and the first, as attributes name it. `Mistake` where they cannot be merged.

  Args:
    source: the folder.
    stored: its attributes.
    first: the first folder.
    theirs: its attributes.
    runs: its runs.
    force_mixed: whether conditions may differ.
  """
  other, use = f"{source.path} belongs to another campaign than {first.path}", "leave one of them out"
  recipe = Recipe.from_json(theirs["recipe"])
  if stored["data_digest"] == theirs["data_digest"]:  # the same data may have lain elsewhere
    recipe = recipe.replace(dataset=Recipe.from_json(stored["recipe"]).dataset)
  mixed = source.check_alike(
    recipe, runs, theirs["logits"], bool(theirs.get("variables")), {name: theirs.get(name) for name in CONDITIONS},
    theirs["versions"], force_mixed, other, use,
  )  # fmt: skip
  for name in ("num_classes", "label_digests", "variables"):
    if stored.get(name) != theirs.get(name):
      raise Mistake(f"{other}: its {name} are {stored.get(name)!s:.100}, not {theirs.get(name)!s:.100}; {use}")
  return {*mixed, *stored.get("mixed", [])}


def matched(tables: Sequence[Runs]) -> tuple[list[Int[np.ndarray, " runs"]], Runs]:
  """For each table the rows that its runs have in the table of all, and that table.

  A row that a table has twice is two runs: the n-th of one table is the n-th of another.
  """
  numbers: dict[tuple[bytes, int], int] = {}
  rows = []
  for table in tables:
    columns = (np.ascontiguousarray(column).reshape(len(table), -1) for column in table.columns().values())
    seen: Counter[bytes] = Counter()
    rows.append(np.empty(len(table), int))
    for i, row in enumerate(np.concatenate([column.view(np.uint8) for column in columns], axis=1)):
      text = row.tobytes()
      rows[-1][i] = numbers.setdefault((text, seen[text]), len(numbers))
      seen[text] += 1
  _, first = np.unique(np.concatenate(rows), return_index=True)
  return rows, Runs.concat(tables)[first]


def created(draft: os.PathLike, source: Results, attributes: dict[str, Any], runs: Runs) -> Results:
  """A folder in which no run is done, of arrays like those of `source`."""
  sets = test_sets_of(attributes)
  with readable(source.path):
    for name in sets:
      if fault := source.faulty_labels(name):
        raise damaged(source.path, [f"{name}/labels {fault}"])
    labels = {name: source.array(f"{name}/labels")[:] for name in sets}
    names = [name for name in source.outcomes if name.startswith(f"{VARIABLES}/")]
    arrays = {name.removeprefix(f"{VARIABLES}/"): source.array(name) for name in names}
    logits = source.array(f"{sets[0]}/logits").dtype if attributes["logits"] else None
  create_folder(
    draft, attributes, runs=len(runs), columns=runs.columns(), labels=labels, chunk=source.block_runs, logits=logits,
    variables={name: jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for name, array in arrays.items()},
  )  # fmt: skip
  return Results(draft)


def copy(
  source: Results, block: int, merged: Results, rows: Int[np.ndarray, " runs"], done: Bool[np.ndarray, " merged"]
) -> None:
  """Writes the runs of a block that are done into the merged folder, with what its record says of them.

  Args:
    source: the folder that has the block.
    block: which.
    merged: the merged folder.
    rows: the rows there of the runs of `source`.
    done: which runs of the merged folder are done; those that are written are marked.
  """
  here = source.rows(block)
  writes = source.record(block)
  if lost := {*(np.flatnonzero(source.array("done")[here]) + here.start).tolist()} - {*blocks.recorded_rows(writes)}:
    raise damaged(source.path, [f"{blocks.FOLDER}/{block}.json has no word of run {min(lost)}, marked done"])
  values = {name: source.array(name)[here] for name in (*source.columns, *source.outcomes)} if writes else {}
  dataset = Recipe.from_json(merged.group.attrs["recipe"]).dataset
  for write in writes:
    theirs = np.asarray(write["rows"])
    for name, of_block in values.items():
      if blocks.digest(of_block[theirs - here.start]) != write["digests"].get(name):
        raise damaged(source.path, [f"{source.object(name, block)} holds other values than were written"])
    known = {name: write[name] for name in write.keys() - {"rows", "digests"}}
    known["recipe"] = Recipe.from_json(write["recipe"]).replace(dataset=dataset).to_json()
    for into in np.unique(rows[theirs] // merged.block_runs):
      of_block = theirs[rows[theirs] // merged.block_runs == into]
      again = of_block[done[rows[of_block]]]
      for name in source.outcomes if len(again) else ():
        there = merged.array(name).oindex[rows[again]]
        for run, one, other in zip(again, values[name][again - here.start], there, strict=True):
          if one.tobytes() != other.tobytes():
            raise Mistake(
              f"run {run} of {source.path} differs in {name} from a run of an earlier folder with the same seeds and "
              "values: leave one of the folders out, and `vmapseeds replay` says which run is right"
            )
      new = of_block[~done[rows[of_block]]]
      if len(new):
        outcomes = {name: values[name][new - here.start] for name in source.outcomes}
        merged.write_block(int(into), rows[new], outcomes, known)
        done[rows[new]] = True
