"""The results of a campaign, written block by block and opened as xarray; `layout` has
the format.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
import zarr
from jaxtyping import Bool, Int, Shaped

from vmapseeds.mistakes import Failure
from vmapseeds.store import layout
from vmapseeds.store.claims import BLOCKS, Claims
from vmapseeds.store.files import (
  Folder,
  flush,
  names,
  place,
  reached,
  read,
  remove,
  replace,
  short_message,
)

OTHERS = "holds other values than were written"


class Results:
  """A results folder, open for reading and writing.

  Args:
    path: where it is.
    root: its description, if the folder is being made. Otherwise the description is
      read.

  Raises:
    Mistake: there is no such folder, or it is damaged.
  """

  def __init__(self, path: Folder, root: layout.Description | None = None):
    self.path = place(path)
    self._open(layout.require_metadata(self.path) if root is None else root)

  def _open(self, root):
    self.root = root
    self.blocks = layout.blocks_of(root)
    self.block_runs = root["block_runs"]
    self.columns = root["columns"]
    self.rows = layout.zarr_rows(self.blocks, self.block_runs)
    arrays = root["arrays"]
    kinds = {name: (*a["dimensions"], "")[0] for name, a in arrays.items()}
    self.outputs = [n for n, k in kinds.items() if k == "run" and n not in self.columns]
    self.counts = [n for n, k in kinds.items() if k == "block"]
    self.examples = [n for n, k in kinds.items() if k not in layout.OF_RUNS]
    with zarr.config.set(
      {"array.write_empty_chunks": True}
    ):  # an absent chunk counts as lost
      group = zarr.open_group(
        layout.open_store(self.path, root), mode="r+", zarr_format=3
      )
      # In arrays of runs, run i has the row `self.rows[i]`.
      self.arrays: dict[str, zarr.Array] = {name: group[name] for name in arrays}

  def __len__(self) -> int:
    return len(self.rows)

  @property
  def description(self) -> layout.Description:
    """What the maker of the folder keeps in its description."""
    return {name: value for name, value in self.root.items() if name not in layout.OWN}

  # Reading.

  def read(
    self, name: str, runs: int | Int[np.ndarray, " runs"]
  ) -> Shaped[np.ndarray, "..."]:
    """Return an array's values of finished runs, or of one."""
    with layout.readable(self.path):
      return self.arrays[name].oindex[self.rows[runs]]

  def table(self) -> dict[str, Shaped[np.ndarray, "runs ..."]]:
    """Return the runs table: columns by their names."""
    with layout.readable(self.path):
      return {name: self.arrays[name][:][self.rows] for name in self.columns}

  def block_of(self, run: int) -> int:
    """Return the block that a run is in."""
    return int(self.rows[run]) // self.block_runs

  def finished_blocks(self) -> set[int]:
    """Return the blocks that have a record now."""
    there = names(self.path / BLOCKS)
    return {k for k in range(len(self.blocks)) if f"{k}.json" in there}

  def is_finished(self, block: int) -> bool:
    """Return whether a block has a record now."""
    # On S3, whether it exists would take two requests.
    try:
      return read(self.path / BLOCKS / f"{block}.json") is not None
    except (ValueError, IsADirectoryError):
      return True  # it is damaged

  @property
  def done(self) -> Bool[np.ndarray, " runs"]:
    """Which runs are trained, evaluated and written."""
    marks = np.zeros(len(self.blocks), bool)
    marks[[*self.finished_blocks()]] = True
    return marks[self.rows // self.block_runs]

  def record(self, block: int) -> layout.Description | None:
    """Return a block's record, None without one.

    Raises:
      Damage: the record cannot be understood.
    """
    file = f"{BLOCKS}/{block}.json"
    try:
      with reached(self.path / file, reading=True):
        text = read(self.path / file)
      if text is None:
        return None
      return layout.parse_record(text, block, len(self.blocks[block]))
    except (ValueError, LookupError, TypeError, IsADirectoryError) as error:
      raise layout.Damage(
        self.path, f"{file} cannot be read ({short_message(error)})"
      ) from error

  # Checking.

  def faults(self, block: int, record: layout.Description) -> dict[str, str]:
    """Return path -> fault of each object of a block that is not as recorded."""
    first = block * self.block_runs
    here = dict.fromkeys(self.outputs, slice(first, first + len(self.blocks[block])))
    faults = self._faults(here | dict.fromkeys(self.counts, block), record["digests"])
    return {layout.object_path(self.root, n, block): said for n, said in faults.items()}

  def plan_faults(self) -> dict[str, str]:
    """Return name -> fault of each column and array of examples that is lost or has
    other values than were written.
    """
    here = dict.fromkeys(self.columns, self.rows) | dict.fromkeys(self.examples, ...)
    return self._faults(here, self.root["digests"])

  def _faults(self, rows, due):
    """Return what is wrong with some rows of arrays, where they have not the digests
    that are `due`.
    """
    faults = {}
    for name, here in rows.items():
      try:
        if layout.digest(self.arrays[name].oindex[here]) != due.get(name):
          faults[name] = OTHERS
      except layout.Damage:
        faults[name] = "is missing"
      except Failure:
        raise  # the store cannot be reached, so nothing is known of the values
      except Exception as error:
        faults[name] = f"cannot be read ({short_message(error)})"
    return faults

  # Writing.

  def write_block(
    self,
    block: int,
    outputs: Mapping[str, Shaped[np.ndarray, "runs ..."]],
    record: Mapping[str, Any] | None = None,
    counts: Mapping[str, np.ndarray] | None = None,
  ) -> bool:
    """Write a block: the values, and last its record. Return False, and do nothing, if
    it has a record.

    Args:
      block: the block.
      outputs: array name -> values of its runs.
      record: what the record says of them besides digests; another block's will do.
      counts: array name -> counts over its runs.
    """
    if self.is_finished(block):
      return False
    given = {**outputs, **(counts or {})}
    digests = {
      name: self._write(name, given[name], block) for name in self.outputs + self.counts
    }
    own = {"block": block, "runs": len(self.blocks[block]), "digests": digests}
    layout.write_record(self.path, {**(record or {}), **own})
    return True

  def _write(self, name, values, block):
    """Write a block's values, a whole object. Return their digest."""
    array = self.arrays[name]
    values = whole = np.asarray(values).astype(array.dtype)
    if name in self.outputs:
      first = block * self.block_runs
      here = slice(first, min(first + self.block_runs, array.shape[0]))
      more = here.stop - first - len(values), *array.shape[1:]
      whole = np.concatenate([values, np.full(more, array.fill_value, array.dtype)])
    array[here if name in self.outputs else block] = whole
    flush(self.path / layout.object_path(self.root, name, block))
    return layout.digest(values)

  def write_plan(self, values: Mapping[str, np.ndarray], first: int = 0) -> None:
    """Write columns, from row `first` of Zarr's arrays on, and arrays of examples, one
    object at a time.

    Zarr writes several at once, and continues with the others when one fails.
    """
    for name, given in values.items():
      array = self.arrays[name]
      whole = given
      if name in self.columns:
        whole = np.full(array.shape, array.fill_value, array.dtype)
        whole[self.rows] = given
      size = array.chunks[0]
      for chunk in range(first // size, -(-array.shape[0] // size)):
        here = slice(chunk * size, (chunk + 1) * size)
        array[here] = whole[here]
        flush(self.path / layout.object_path(self.root, name, chunk))

  def extend(self, runs: int, columns: dict[str, np.ndarray]) -> None:
    """Make room for `runs` runs. `columns` is the table of all of them. The description
    changes last.
    """

    def longer(root):
      if root["extents"][-1] >= runs:
        return root
      changed = layout.longer(root, runs, columns)
      first = len(layout.blocks_of(root)) * self.block_runs
      Results(self.path, changed).write_plan(columns, first)
      return changed

    if len(self) < runs:
      self.revise(longer)

  def append(
    self,
    runs: int,
    make_columns: Callable[
      [dict[str, Shaped[np.ndarray, "runs ..."]]], dict[str, Shaped[np.ndarray, "..."]]
    ],
    blocks: Iterable[tuple[Mapping[str, np.ndarray], Mapping[str, Any]]],
  ) -> None:
    """Add finished runs in blocks of their own, one process at a time. The description
    changes last: until then the folder is as it was, whatever happens.

    Args:
      runs: how many.
      make_columns: from the runs table to that of all runs; it may refuse the new ones.
      blocks: outputs and record of each block. All blocks are full, except the last.
    """
    with Claims(self.path) as claims:
      claims.wait_for("folder")
      found = layout.read_metadata(self.path) or {}
      if {**found, "digest": ""} != {**self.root, "digest": ""}:
        self._open(layout.require_metadata(self.path))
      columns = make_columns(self.table())
      root = layout.longer(self.root, len(self) + runs, columns)
      grown, first = Results(self.path, root), len(self.blocks)
      try:
        for block, (outputs, record) in enumerate(blocks, first):
          # A process that ended before it changed the description may have left one.
          remove(self.path / BLOCKS / f"{block}.json")
          grown.write_block(block, outputs, record)
        grown.write_plan(columns, first * self.block_runs)
      except BaseException:
        for block in range(first, len(grown.blocks)):
          for file in (f"{BLOCKS}/{block}.json", *grown.objects(block)):
            remove(self.path / file)
        raise
      if not claims.holds("folder"):
        raise Failure(
          f"{self.path}: another process took over while this one slept; add again"
        )
      replace(self.path / layout.ROOT, layout.zarr_json(root))
      self.__dict__.update(vars(grown))

  def objects(self, block: int) -> list[str]:
    """Return the paths of a block's objects."""
    return [
      layout.object_path(self.root, name, block) for name in self.outputs + self.counts
    ]

  def revise(self, change: Callable[[layout.Description], layout.Description]) -> None:
    """Change the description, one process at a time."""
    with Claims(self.path) as claims:
      claims.wait_for("folder")
      root = layout.require_metadata(self.path)
      changed = change(root)
      if changed != root:
        replace(self.path / layout.ROOT, layout.zarr_json(changed))
      self._open(changed)

  def restore(self, given: Mapping[str, np.ndarray]) -> None:
    """Write lost or damaged columns and arrays of examples again, if the values given
    have the digests of the description.
    """
    for name in self.plan_faults():
      values = given[name].astype(self.arrays[name].dtype)
      values = values[: len(self)] if name in self.columns else values
      if layout.digest(values) == self.root["digests"][name]:
        self.write_plan({name: values})


def of_blocks(results: Results, blocks: Sequence[int], group: str | None) -> xr.Dataset:
  """Return the runs of finished blocks, and their counts: the arrays of the root and of
  a group, read when they are used.
  """
  with layout.readable(results.path):
    store = layout.open_store(results.path, results.root)
    found = [
      xr.open_zarr(store, group=g, zarr_format=3, decode_cf=False)
      for g in dict.fromkeys((None, group))
    ]
    merged = xr.merge(
      found, combine_attrs="override", join="exact", compat="no_conflicts"
    )
    names = dict.fromkeys(name.rpartition("/")[2] for name in results.root["arrays"])
    merged = merged[[name for name in names if name in merged]]
    runs = np.array([run for block in blocks for run in results.blocks[block]], int)
    rows = {"run": results.rows[runs], "block": list(blocks)}
    merged = merged.isel(
      {first: rows[first] for first in layout.OF_RUNS if first in merged.dims}
    )
    return merged.drop_attrs(deep=False).assign_attrs(results.description)
