"""The results of a campaign, written block by block and opened as xarray; `layout` has
the format.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
  read_each,
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
    # The small values, in arrays as Zarr's, and of which blocks they are known.
    self._values: dict[str, np.ndarray] = {}
    self._known = np.zeros(0, bool)
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
    self.small = layout.small_arrays(root)
    self.large = [n for n in self.outputs + self.counts if n not in self.small]
    self.gathered = root.get("gathered", 0)
    with zarr.config.set(
      {"array.write_empty_chunks": True}
    ):  # an absent chunk counts as lost
      group = zarr.open_group(
        layout.open_store(self.path, root), mode="r+", zarr_format=3
      )
      # In arrays of runs, run i has the row `self.rows[i]`.
      self.arrays: dict[str, zarr.Array] = {name: group[name] for name in arrays}
    if len(self._known) < len(self.blocks):
      self._known = np.zeros(len(self.blocks), bool)
      self._values = {
        name: np.full(array.shape, array.fill_value, array.dtype)
        for name, array in self.arrays.items()
        if name in self.small
      }

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
    rows = self.rows[runs]
    with layout.readable(self.path):
      if name in self.small:
        return self.small_values(np.unique(rows // self.block_runs))[name][rows]
      return self.arrays[name].oindex[rows]

  def small_values(
    self, blocks: Sequence[int] | Int[np.ndarray, " blocks"]
  ) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return the values that stand in records, in arrays as Zarr's: at least those of
    these finished blocks.
    """
    asked = np.asarray(blocks, int)
    if not self._known[asked[asked < self.gathered]].all():
      for name, values in self._values.items():
        stop = self.gathered * (self.block_runs if name in self.outputs else 1)
        values[:stop] = self.arrays[name][:stop]
      self._known[: self.gathered] = True
    left = asked[~self._known[asked]]
    for block, record in self.records(left.tolist()):
      if record:
        self._keep(block, self.values_of(block, record))
    return self._values

  def values_of(
    self, block: int, record: layout.Description
  ) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return the small values of a block, by name, as its record has them.

    Raises:
      Damage: it has others than the folder's.
    """
    found = {}
    for name in self.small:
      array = self.arrays[name]
      rows = (len(self.blocks[block]),) if name in self.outputs else ()
      try:
        data = base64.b64decode(record["values"][name], validate=True)
        values = np.frombuffer(data, array.dtype).reshape(*rows, *array.shape[1:])
      except (LookupError, TypeError, ValueError) as error:
        fault = f"{BLOCKS}/{block}.json has no values of {name} ({error!s:.80})"
        raise layout.Damage(self.path, fault) from None
      found[name] = values
    return found

  def _keep(self, block, values):
    """Keep a block's small values where they need not be read again."""
    for name, of in values.items():
      self._values[name][self._place(name, block)] = of
    self._known[block] = True

  def _place(self, name, block):
    """Return where a block's values are in Zarr's array."""
    first = block * self.block_runs
    of_runs = slice(first, first + len(self.blocks[block]))
    return of_runs if name in self.outputs else block

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
    ((_, record),) = self.records([block])
    return record

  def records(
    self, blocks: Sequence[int]
  ) -> Iterator[tuple[int, layout.Description | None]]:
    """Yield blocks, each with its record, as `record` returns it."""
    files = [f"{BLOCKS}/{block}.json" for block in blocks]
    texts = read_each([self.path / file for file in files])
    for block, file in zip(blocks, files, strict=True):
      try:
        with reached(self.path / file, reading=True):
          text = next(texts)
        runs = len(self.blocks[block])
        found = None if text is None else layout.parse_record(text, block, runs)
      except (ValueError, LookupError, TypeError, IsADirectoryError) as error:
        raise layout.Damage(
          self.path, f"{file} cannot be read ({short_message(error)})"
        ) from error
      yield block, found

  # Checking.

  def faults(self, block: int, record: layout.Description) -> dict[str, str]:
    """Return path -> fault of each object of a block that is not as recorded."""
    self._keep(block, self.values_of(block, record))
    here = {name: self._place(name, block) for name in self.large}
    faults = self._faults(here, record["digests"])
    return {layout.object_path(self.root, n, block): said for n, said in faults.items()}

  def gathered_faults(self) -> dict[str, str]:
    """Return name -> fault of each gathered array that is damaged, or has other values
    than the records that `faults` was asked about.
    """
    blocks = np.flatnonzero(self._known[: self.gathered])
    rows = self.rows[np.isin(self.rows // self.block_runs, blocks)]
    here = {name: rows if name in self.outputs else blocks for name in self.small}
    due = {name: layout.digest(self._values[name][of]) for name, of in here.items()}
    return self._faults(here, due)

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
    if block < self.gathered:  # it was repaired, and its values may be others
      self.forget([block])
    given = {**outputs, **(counts or {})}
    given = {
      name: np.asarray(given[name], self.arrays[name].dtype)
      for name in self.outputs + self.counts
    }
    for name in self.large:
      self._write(name, given[name], block)
    own = {
      "block": block,
      "runs": len(self.blocks[block]),
      "digests": {name: layout.digest(values) for name, values in given.items()},
      "values": {n: base64.b64encode(given[n].tobytes()).decode() for n in self.small},
    }
    layout.write_record(self.path, {**(record or {}), **own})
    self._keep(block, {name: given[name] for name in self.small})
    return True

  def _write(self, name, values, block):
    """Write a block's values, a whole object."""
    array, whole = self.arrays[name], values
    if name in self.outputs:
      first = block * self.block_runs
      here = slice(first, min(first + self.block_runs, array.shape[0]))
      more = here.stop - first - len(values), *array.shape[1:]
      whole = np.concatenate([values, np.full(more, array.fill_value, array.dtype)])
    array[here if name in self.outputs else block] = whole
    flush(self.path / layout.object_path(self.root, name, block))

  def knows_all(self) -> bool:
    """Return whether there are small values, and those of all blocks are known."""
    return bool(self.small) and bool(self._known.all())

  def gather(self) -> None:
    """Write the values that stand in records into arrays, which a few requests read, if
    all blocks are finished and no other process writes the description.
    """

    def gathered(root):
      self._open(root)
      count = len(self.blocks)
      if self.gathered == count or len(self.finished_blocks()) < count:
        return root
      return self.write_gathered()

    if self.small and self.gathered < len(self.blocks):
      self.revise(gathered, wait=False)

  def write_gathered(self) -> layout.Description:
    """Write the small values of all blocks, which are finished, into arrays. Return the
    description that says so.
    """
    count = len(self.blocks)
    self.write_plan(self.small_values(range(count)), self.gathered)
    return {**self.root, "gathered": count}

  def forget(self, blocks: Sequence[int]) -> None:
    """Take the gathered values of some blocks, and of all after them, as not gathered."""
    first = min(blocks)
    self.revise(lambda root: {**root, "gathered": min(first, root.get("gathered", 0))})
    self._known[first:] = False

  def write_plan(self, values: Mapping[str, np.ndarray], first: int = 0) -> None:
    """Write arrays that have no object for each block, one object at a time: columns
    and small values from block `first` on, and arrays of examples.

    Zarr writes several at once, and continues with the others when one fails.
    """
    for name, given in values.items():
      array = self.arrays[name]
      whole = given
      if name in self.columns:
        whole = np.full(array.shape, array.fill_value, array.dtype)
        whole[self.rows] = given
      size = array.chunks[0]
      row = first * (1 if name in self.counts else self.block_runs)
      for chunk in range(row // size, -(-array.shape[0] // size)):
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
      Results(self.path, changed).write_plan(columns, len(layout.blocks_of(root)))
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
      found = layout.read_metadata(self.path)
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
        grown.write_plan(columns, first)
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
    return [layout.object_path(self.root, name, block) for name in self.large]

  def revise(
    self,
    change: Callable[[layout.Description], layout.Description],
    *,
    wait: bool = True,
  ) -> None:
    """Change the description, one process at a time. Without `wait`, do nothing while
    another process does so.
    """
    with Claims(self.path) as claims:
      if wait:
        claims.wait_for("folder")
      elif not claims.take("folder"):
        return
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
    # Until they are gathered, small values are in the records alone.
    if any(block >= results.gathered for block in blocks):
      for name, values in results.small_values(blocks).items():
        parent, _, short = name.rpartition("/")
        if (parent or None) in (None, group):
          merged[short] = merged[short].copy(data=values)
    merged = merged.isel(
      {first: rows[first] for first in layout.OF_RUNS if first in merged.dims}
    )
    return merged.drop_attrs(deep=False).assign_attrs(results.description)
