"""The results of a campaign, written block by block and opened as xarray; `layout` has
the format.
"""

import base64
import math
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
  Place,
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


def _encode(values):
  """Return values as text, as records hold them."""
  return base64.b64encode(values.tobytes()).decode()


class _SmallValues:
  """The values that stand in records, by array name, with the rows of Zarr's arrays.
  They are read block by block, as they are asked for.

  Args:
    arrays: Zarr's arrays of these values.
    blocks: how many blocks the folder has.
  """

  def __init__(self, arrays: Mapping[str, zarr.Array], blocks: int):
    self.known = np.zeros(blocks, bool)  # of which blocks the values are here
    self.arrays = {
      name: np.full(array.shape, array.fill_value, array.dtype)
      for name, array in arrays.items()
    }


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
    self._small_values = _SmallValues({}, 0)
    if root is None:
      root = layout.require_metadata(self.path)
    self._open(root)

  def _open(self, root):
    """Take over a description, whether it is new or another process has changed it."""
    self.root = root
    self.blocks = layout.blocks_of(root)
    self.block_runs = root["block_runs"]
    self.columns = root["columns"]
    self.gathered = root.get("gathered", 0)
    # In arrays of runs, run i has the row `self.rows[i]`.
    self.rows = layout.zarr_rows(self.blocks, self.block_runs)
    first = {name: layout.first_dimension(e) for name, e in root["arrays"].items()}
    of_runs = [name for name in first if first[name] == "run"]
    self.outputs = [name for name in of_runs if name not in self.columns]
    self.counts = [name for name in first if first[name] == "block"]
    self.examples = [name for name in first if first[name] not in layout.OF_RUNS]
    self.small = layout.small_arrays(root)
    written = self.outputs + self.counts
    self.large = [name for name in written if name not in self.small]
    self.arrays = _open_arrays(self.path, root)
    # Blocks never change, so values that were read stay valid unless there are more
    # blocks now, for which the arrays are too short.
    if len(self._small_values.known) < len(self.blocks):
      small = {name: self.arrays[name] for name in self.small}
      self._small_values = _SmallValues(small, len(self.blocks))

  def __len__(self) -> int:
    return len(self.rows)

  @property
  def description(self) -> layout.Description:
    """What the maker of the folder keeps in its description."""
    return {name: value for name, value in self.root.items() if name not in layout.OWN}

  # Reading.

  def read(
    self,
    name: str,
    runs: int | Int[np.ndarray, " runs"],
  ) -> Shaped[np.ndarray, "..."]:
    """Return an array's values of finished runs, or of one."""
    rows = self.rows[runs]
    with layout.readable(self.path):
      if name not in self.small:
        return self.arrays[name].oindex[rows]
      blocks = np.unique(rows // self.block_runs)
      return self.small_values(blocks)[name][rows]

  def small_values(
    self, blocks: Sequence[int] | Int[np.ndarray, " blocks"]
  ) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return the values that stand in records, in arrays as Zarr's: at least those of
    these finished blocks.
    """
    wanted = np.asarray(blocks, int)
    known = self._small_values.known
    gathered = wanted[wanted < self.gathered]
    if not known[gathered].all():
      self._read_gathered()
    # What is not gathered yet costs a request for each record.
    unknown = wanted[~known[wanted]]
    for block, record in self.records(unknown.tolist()):
      if record:
        self._keep(block, self.values_of(block, record))
    return self._small_values.arrays

  def _read_gathered(self):
    """Read the gathered values of all blocks: a few requests, as many as for one."""
    for name, values in self._small_values.arrays.items():
      stop = self._first_row(name, self.gathered)
      values[:stop] = self.arrays[name][:stop]
    self._small_values.known[: self.gathered] = True

  def values_of(
    self,
    block: int,
    record: layout.Description,
  ) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return the small values of a block, by name, as its record has them.

    Raises:
      Damage: it has others than the folder's.
    """
    values = {}
    for name in self.small:
      array = self.arrays[name]
      shape = array.shape[1:]
      if name in self.outputs:
        shape = (len(self.blocks[block]), *shape)
      try:
        data = base64.b64decode(record["values"][name], validate=True)
        values[name] = np.frombuffer(data, array.dtype).reshape(shape)
      except (LookupError, TypeError, ValueError) as error:
        fault = f"{BLOCKS}/{block}.json has no values of {name} ({error!s:.80})"
        raise layout.Damage(self.path, fault) from None
    return values

  def _keep(self, block, values):
    """Keep a block's small values where they need not be read again."""
    for name, block_values in values.items():
      self._small_values.arrays[name][self._rows_of(name, block)] = block_values
    self._small_values.known[block] = True

  def _first_row(self, name, block):
    """Return the row of Zarr's array at which a block begins."""
    return block if name in self.counts else block * self.block_runs

  def _rows_of(self, name, block):
    """Return the rows of Zarr's array that have a block's values: of counts, one."""
    first = self._first_row(name, block)
    if name in self.counts:
      return first
    return slice(first, first + len(self.blocks[block]))

  def table(self) -> dict[str, Shaped[np.ndarray, "runs ..."]]:
    """Return the runs table: columns by their names."""
    with layout.readable(self.path):
      return {name: self.arrays[name][:][self.rows] for name in self.columns}

  def block_of(self, run: int) -> int:
    """Return the block that a run is in."""
    return int(self.rows[run]) // self.block_runs

  def finished_blocks(self) -> set[int]:
    """Return the blocks that have a record now."""
    files = names(self.path / BLOCKS)
    return {block for block in range(len(self.blocks)) if f"{block}.json" in files}

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
    finished = np.zeros(len(self.blocks), bool)
    finished[list(self.finished_blocks())] = True
    return finished[self.rows // self.block_runs]

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
      record = None
      try:
        # The file is read here, not when `texts` is made.
        with reached(self.path / file, reading=True):
          text = next(texts)
        if text is not None:
          record = layout.parse_record(text, block, len(self.blocks[block]))
      except (ValueError, LookupError, TypeError, IsADirectoryError) as error:
        raise layout.Damage(
          self.path, f"{file} cannot be read ({short_message(error)})"
        ) from error
      yield block, record

  # Checking.

  def faults(self, block: int, record: layout.Description) -> dict[str, str]:
    """Return path -> fault of each object of a block that is not as recorded."""
    self._keep(block, self.values_of(block, record))
    rows = {name: self._rows_of(name, block) for name in self.large}
    faults = self._faults(rows, record["digests"])
    return {
      layout.object_path(self.root, name, block): fault
      for name, fault in faults.items()
    }

  def gathered_faults(self) -> dict[str, str]:
    """Return name -> fault of each gathered array that is damaged, or has other values
    than the records that `faults` was asked about.
    """
    blocks = np.flatnonzero(self._small_values.known[: self.gathered])
    rows_of_runs = self.rows[np.isin(self.rows // self.block_runs, blocks)]
    rows = {}
    digests = {}
    for name in self.small:
      rows[name] = rows_of_runs if name in self.outputs else blocks
      recorded = self._small_values.arrays[name][rows[name]]
      digests[name] = layout.digest(recorded)
    return self._faults(rows, digests)

  def plan_faults(self) -> dict[str, str]:
    """Return name -> fault of each column and array of examples that is lost or has
    other values than were written.
    """
    rows = dict.fromkeys(self.columns, self.rows) | dict.fromkeys(self.examples, ...)
    return self._faults(rows, self.root["digests"])

  def _faults(self, rows, digests):
    """Return what is wrong with some rows of arrays, where they have not these
    digests.
    """
    faults = {}
    for name, rows_of_array in rows.items():
      try:
        values = self.arrays[name].oindex[rows_of_array]
        if layout.digest(values) != digests.get(name):
          faults[name] = OTHERS
      except layout.Damage:
        faults[name] = "is missing"
      except Failure:
        raise  # the store cannot be reached, so nothing is known of the values
      except Exception as error:  # codecs raise many kinds
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

    values = {}
    for name in self.outputs + self.counts:
      source = outputs if name in outputs else counts or {}
      values[name] = np.asarray(source[name], self.arrays[name].dtype)
    small = {name: values[name] for name in self.small}

    # The record makes the block's runs done, so it comes after all of their values.
    for name in self.large:
      self._write(name, values[name], block)
    own = {
      "block": block,
      "runs": len(self.blocks[block]),
      "digests": {name: layout.digest(array) for name, array in values.items()},
      "values": {name: _encode(array) for name, array in small.items()},
    }
    # A record that is passed on from another block has that block's entries.
    layout.write_record(self.path, {**(record or {}), **own})
    self._keep(block, small)
    return True

  def _write(self, name, values, block):
    """Write a block's values, a whole object."""
    array = self.arrays[name]
    if name in self.counts:
      array[block] = values
    else:
      # Zarr reads an object before it writes a part of it, so a short block is filled up.
      first = self._first_row(name, block)
      stop = min(first + self.block_runs, array.shape[0])
      missing = (stop - first - len(values), *array.shape[1:])
      padding = np.full(missing, array.fill_value, array.dtype)
      array[first:stop] = np.concatenate([values, padding])
    flush(self.path / layout.object_path(self.root, name, block))

  def knows_all(self) -> bool:
    """Return whether there are small values, and those of all blocks are known."""
    return bool(self.small) and bool(self._small_values.known.all())

  def gather(self) -> None:
    """Write the values that stand in records into arrays, which a few requests read, if
    all blocks are finished and no other process writes the description.
    """

    def gather_if_finished(root):
      # Between the first look and the claim, another process may have gathered them, or
      # extended the folder.
      self._open(root)
      blocks = len(self.blocks)
      if self.gathered == blocks or len(self.finished_blocks()) < blocks:
        return root
      return self.write_gathered()

    if self.small and self.gathered < len(self.blocks):
      self.revise(gather_if_finished, wait=False)

  def write_gathered(self) -> layout.Description:
    """Write the small values of all blocks, which are finished, into arrays. Return the
    description that says so.
    """
    blocks = len(self.blocks)
    self.write_plan(self.small_values(range(blocks)), self.gathered)
    return {**self.root, "gathered": blocks}

  def forget(self, blocks: Sequence[int]) -> None:
    """Take the gathered values of some blocks, and of all after them, as not gathered."""
    first = min(blocks)

    def cut_short(root):
      return {**root, "gathered": min(first, root.get("gathered", 0))}

    self.revise(cut_short)
    self._small_values.known[first:] = False

  def write_plan(self, values: Mapping[str, np.ndarray], first: int = 0) -> None:
    """Write arrays that have no object for each block, one object at a time: columns
    and small values from block `first` on, and arrays of examples.

    Zarr writes several at once, and continues with the others when one fails.
    """
    for name, rows in values.items():
      array = self.arrays[name]
      if name in self.columns:
        # A short block leaves rows without a run.
        whole = np.full(array.shape, array.fill_value, array.dtype)
        whole[self.rows] = rows
      else:
        whole = rows
      size = array.chunks[0]
      # The chunk in which block `first` begins is written whole, with its old rows.
      first_chunk = self._first_row(name, first) // size
      for chunk in range(first_chunk, math.ceil(array.shape[0] / size)):
        chunk_rows = slice(chunk * size, (chunk + 1) * size)
        array[chunk_rows] = whole[chunk_rows]
        flush(self.path / layout.object_path(self.root, name, chunk))

  def extend(self, runs: int, columns: dict[str, np.ndarray]) -> None:
    """Make room for `runs` runs. `columns` is the table of all of them. The description
    changes last.
    """

    def lengthen(root):
      # Another process may have extended the folder before this one had the claim.
      if root["extents"][-1] >= runs:
        return root
      longer = layout.longer(root, runs, columns)
      Results(self.path, longer).write_plan(columns, len(layout.blocks_of(root)))
      return longer

    if len(self) < runs:
      self.revise(lengthen)

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
      # Another process may have added runs since this one read the description.
      stored = layout.read_metadata(self.path)
      if {**stored, "digest": ""} != {**self.root, "digest": ""}:
        self._open(layout.require_metadata(self.path))

      columns = make_columns(self.table())
      root = layout.longer(self.root, len(self) + runs, columns)
      grown = Results(self.path, root)
      first = len(self.blocks)
      try:
        for block, (outputs, record) in enumerate(blocks, first):
          # A process that ended before it changed the description may have left one.
          remove(self.path / BLOCKS / f"{block}.json")
          grown.write_block(block, outputs, record)
        grown.write_plan(columns, first)
      except BaseException:
        for block in range(first, len(grown.blocks)):
          grown._remove_block(block)
        raise

      if not claims.holds("folder"):
        raise Failure(
          f"{self.path}: another process took over while this one slept; add again"
        )
      replace(self.path / layout.ROOT, layout.zarr_json(root))
      self._open(root)
      # Of the blocks just written, the values need not be read again.
      self._small_values = grown._small_values

  def objects(self, block: int) -> list[str]:
    """Return the paths of a block's objects."""
    return [layout.object_path(self.root, name, block) for name in self.large]

  def _remove_block(self, block):
    """Remove what was written of a block: first its record, without which the rest does
    not count.
    """
    for file in (f"{BLOCKS}/{block}.json", *self.objects(block)):
      remove(self.path / file)

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
      # Read under the claim: what this process read before may be out of date.
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
      if name in self.columns:
        # The campaign may have more runs than the folder, before it extends that.
        values = values[: len(self)]
      if layout.digest(values) == self.root["digests"][name]:
        self.write_plan({name: values})


def _open_arrays(path: Place, root: layout.Description) -> dict[str, zarr.Array]:
  """Return Zarr's arrays of a folder with this description."""
  # Zarr does not write chunks of fill values by default, and here an absent chunk counts
  # as lost.
  with zarr.config.set({"array.write_empty_chunks": True}):
    store = layout.open_store(path, root)
    group = zarr.open_group(store, mode="r+", zarr_format=3)
    return {name: group[name] for name in root["arrays"]}


def of_blocks(results: Results, blocks: Sequence[int], group: str | None) -> xr.Dataset:
  """Return the runs of finished blocks, and their counts: the arrays of the root and of
  a group, read when they are used.
  """
  root = results.root
  groups: list[str | None] = [None]
  if group is not None:
    groups.append(group)
  with layout.readable(results.path):
    store = layout.open_store(results.path, root)
    datasets = [
      xr.open_zarr(store, group=each, zarr_format=3, decode_cf=False) for each in groups
    ]
    merged = xr.merge(
      datasets, combine_attrs="override", join="exact", compat="no_conflicts"
    )
    # Variables in the order of the description: Zarr lists them in any order.
    ordered = dict.fromkeys(name.rpartition("/")[2] for name in root["arrays"])
    merged = merged[[name for name in ordered if name in merged]]

    # Until they are gathered, small values are in the records alone.
    recorded = {}
    if any(block >= results.gathered for block in blocks):
      recorded = results.small_values(blocks)
    for name, values in recorded.items():
      parent, _, short = name.rpartition("/")
      if (parent or None) in groups:
        merged[short] = merged[short].copy(data=values)

    runs = np.array([run for block in blocks for run in results.blocks[block]], int)
    rows = {"run": results.rows[runs], "block": list(blocks)}
    merged = merged.isel(
      {dim: rows[dim] for dim in layout.OF_RUNS if dim in merged.dims}
    )
    return merged.drop_attrs(deep=False).assign_attrs(results.description)
