"""Change the description of a results folder: extend it, add finished runs, restore its
plan. One process at a time does so, under the folder's claim.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from vmapseeds.errors import Failure
from vmapseeds.store import layout
from vmapseeds.store.claims import BLOCKS, Claims
from vmapseeds.store.files import remove, replace
from vmapseeds.store.large_arrays import zarr_json
from vmapseeds.store.results import Results, write_plan

Table = dict[str, Shaped[np.ndarray, "runs ..."]]


def change_description(
  results: Results, change: Callable[[layout.Description], layout.Description]
) -> None:
  """Change the description of a folder that other processes may change, too."""
  with Claims(results.path) as claims:
    claims.wait_for("folder")
    # Read under the claim: what this process read before may be out of date.
    root = layout.require_metadata(results.path)
    changed = change(root)
    if changed != root:
      replace(results.path / layout.ROOT, zarr_json(changed))
    results.reopen(changed)


def extend(results: Results, runs: int, columns: Mapping[str, np.ndarray]) -> None:
  """Make room for `runs` runs. `columns` is the table of all of them. The description
  changes last.
  """

  def lengthen(root):
    # Another process may have extended the folder before this one had the claim.
    if root["extents"][-1] >= runs:
      return root
    longer = layout.with_more_runs(root, runs, columns)
    examples = results.read_plan(results.examples)
    write_plan(results.path, longer, {**columns, **examples})
    return longer

  if len(results) < runs:
    change_description(results, lengthen)


def append(
  results: Results,
  runs: int,
  make_columns: Callable[[Table], dict[str, Shaped[np.ndarray, "..."]]],
  blocks: Iterable[tuple[Mapping[str, np.ndarray], Mapping[str, Any]]],
) -> None:
  """Add finished runs in blocks of their own, one process at a time. The description
  changes last: until then the folder is as it was, whatever happens.

  Args:
    results: the folder.
    runs: how many.
    make_columns: from the runs table to that of all runs; it may refuse the new ones.
    blocks: outputs and record of each block. All blocks are full, except the last.
  """
  with Claims(results.path) as claims:
    claims.wait_for("folder")
    # Another process may have added runs since this one read the description.
    stored = layout.read_metadata(results.path)
    if {**stored, "digest": ""} != {**results.root, "digest": ""}:
      results.reopen(layout.require_metadata(results.path))

    plan = results.read_plan([*results.columns, *results.examples])
    examples = {name: plan.pop(name) for name in results.examples}
    columns = make_columns(plan)
    root = layout.with_more_runs(results.root, len(results) + runs, columns)
    grown = Results(results.path, root)
    first = len(results.blocks)
    try:
      for block, (outputs, record) in enumerate(blocks, first):
        # A process that ended before it changed the description may have left one.
        remove(results.path / BLOCKS / f"{block}.json")
        grown.write_block(block, outputs, record)
      grown.flush_records()
      is_held = claims.holds("folder")
      if is_held:
        write_plan(results.path, root, {**columns, **examples})
    except BaseException:
      for block in range(first, len(grown.blocks)):
        grown.remove_block(block)
      raise

    if not is_held:
      raise Failure(
        f"{results.path}: another process took over while this one slept; add again"
      )
    replace(results.path / layout.ROOT, zarr_json(root))
    results.reopen(root)


def restore(results: Results, values: Mapping[str, np.ndarray]) -> None:
  """Write a lost or damaged plan again, if the columns and arrays of examples that are
  given, or are there, have the digests of the description.
  """
  faults = results.plan_faults()
  if not faults:
    return
  plan = {}
  for name in (*results.columns, *results.examples):
    if faults.keys() & {name, layout.PLAN}:
      array = values[name].astype(results.root["arrays"][name]["dtype"])
      if name in results.columns:
        # The campaign may have more runs than the folder, before it extends that.
        array = array[: len(results)]
      if layout.digest(array) != results.root["digests"][name]:
        return
      plan[name] = array
    else:
      plan |= results.read_plan([name])
  write_plan(results.path, results.root, plan)
