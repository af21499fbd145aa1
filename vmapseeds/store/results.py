"""The results of a campaign, written block by block and opened as xarray; `layout` has the format."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
import zarr
from jaxtyping import Bool, Int, Shaped

from vmapseeds.mistakes import Failure
from vmapseeds.store.claims import BLOCKS, Claims
from vmapseeds.store.files import Folder, exists, flush, names, place, read, read_all, replace, said
from vmapseeds.store.layout import (
  OF_RUNS,
  OWN,
  ROOT,
  damaged,
  described,
  digest,
  object_path,
  ours,
  readable,
  record,
  write_record,
  zarr_json,
)

OTHERS = "holds other values than were written"


class Results:
  """A results folder, open for reading and writing.

  Args:
    path: where it is.
    root: its description, where the folder is being made; else it is read.

  Raises:
    Mistake: there is none, or it is damaged.
  """

  def __init__(self, path: Folder, root: dict[str, Any] | None = None):
    self.path = place(path)
    self._full: dict[int, list[tuple[int, int]]] = {}  # the writes of blocks to which none is added any more
    self._opened(ours(self.path) if root is None else root)

  def _opened(self, root: dict[str, Any]) -> None:
    self.root = root
    arrays = root["arrays"]
    self.block_runs, self.columns = root["block_runs"], root["columns"]
    of_runs, self.counts = ([n for n, a in arrays.items() if a["dimensions"][:1] == [first]] for first in OF_RUNS)
    self.outputs = [name for name in of_runs if name not in self.columns]
    self.examples = [name for name in arrays if name not in (*of_runs, *self.counts)]
    with zarr.config.set({"array.write_empty_chunks": True}):  # one that is absent is lost
      self._group = zarr.open_group(described(self.path, root), mode="r+", zarr_format=3)
      self._arrays = {name: self._group[name] for name in arrays}

  def __len__(self) -> int:
    return self.root["runs"]

  @property
  def description(self) -> dict[str, Any]:
    """What who made the folder keeps there."""
    return {name: value for name, value in self.root.items() if name not in OWN}

  def array(self, name: str) -> zarr.Array:
    """An array of the folder. Rows that are not done cannot be read."""
    return self._arrays[name]

  def table(self) -> dict[str, Shaped[np.ndarray, "runs ..."]]:
    """The runs table: columns by their names."""
    with readable(self.path):
      return {name: self.array(name)[:] for name in self.columns}

  def rows(self, block: int) -> range:
    """The rows of a block."""
    return range(block * self.block_runs, min((block + 1) * self.block_runs, len(self)))

  # What is done.

  @property
  def written(self) -> list[tuple[int, int]]:
    """The rows of each write, first and one past the last, as records have them now, ascending."""
    folder, others = self.path / BLOCKS, []
    files = {f"{block}.json": block for block in range(-(-len(self) // self.block_runs)) if block not in self._full}
    for file, text in (read_all(folder, sorted(names(folder) & {*files})) if files else {}).items():
      block = files[file]
      rows = [tuple(write["rows"]) for write in self._parsed(block, text or b"")]
      if rows[-1][1] == (block + 1) * self.block_runs:
        self._full[block] = rows
      else:
        others += rows
    return sorted([*others, *(rows for block in self._full.values() for rows in block)])

  @property
  def done(self) -> Bool[np.ndarray, " runs"]:
    """Which runs are trained, evaluated and written."""
    return done_of(self.written, len(self))

  def record(self, block: int) -> list[dict[str, Any]]:
    """What was written in a block. `Mistake` where its record cannot be understood."""
    try:
      text = read(self.path / BLOCKS / f"{block}.json")
    except (ValueError, IsADirectoryError):
      text = b""
    return [] if text is None else self._parsed(block, text)

  def _parsed(self, block: int, text: bytes) -> list[dict[str, Any]]:
    first = block * self.block_runs
    try:
      return record(text, block, range(first, first + self.block_runs))
    except (ValueError, LookupError, TypeError) as error:
      raise damaged(self.path, f"{BLOCKS}/{block}.json cannot be read ({said(error)})") from error

  def begin(self, block: int) -> Bool[np.ndarray, " rows"]:
    """Which runs of a block that this process has claimed are done."""
    rows = self.rows(block)
    return np.asarray(rows) < stop_of(self.record(block))

  def faults(self, block: int, writes: list[dict[str, Any]]) -> dict[str, str]:
    """What is wrong with the objects of a block, given what was written there, by their paths."""
    found = {}
    for name in (*self.columns, *(self.outputs if writes else ())):
      values, fault = self.values(name, block)
      for write in writes if fault is None else ():
        here = slice(*(row - block * self.block_runs for row in write["rows"]))
        if here.stop > len(values) or digest(values[here]) != write["digests"].get(name):
          fault = OTHERS
      if fault:
        found[object_path(self.root, name, block)] = fault
    for write, name in itertools.product(writes, self.counts):
      values, fault = self.values(name, write["rows"][0])
      if not fault and digest(values) != write["digests"].get(name):
        fault = OTHERS
      if fault:
        found[object_path(self.root, name, write["rows"][0])] = fault
    return found

  def values(self, name: str, number: int = 0) -> tuple[np.ndarray, str | None]:
    """An array's values in a block of this number, or in a write, and why they cannot be read: None where they can."""
    if not exists(self.path / object_path(self.root, name, number)):
      return np.empty(0), "is missing"
    rows = self.rows(number)
    here = number if name in self.counts else slice(None) if name in self.examples else slice(rows.start, rows.stop)
    try:
      return self.array(name)[here], None
    except Failure:
      raise  # of a store that cannot be reached nothing is known
    except Exception as error:
      return np.empty(0), f"cannot be read ({said(error)})"

  # Writing.

  def write(
    self, rows: Int[np.ndarray, " rows"], outputs: dict[str, Shaped[np.ndarray, "rows ..."]],
    provenance: dict[str, Any] | None = None, counts: Mapping[int, Mapping[str, np.ndarray]] | None = None,
  ) -> None:  # fmt: skip
    """Writes what became of some runs, block by block: the values, and then the block's record.

    Args:
      rows: ascending, in each block from the first that is not done.
      outputs: by the names of their arrays.
      provenance: what the record says of these runs besides digests of their values.
      counts: by block and by the names of their arrays, what was counted over these runs.
    """
    for block in np.unique(rows // self.block_runs).tolist():
      here = rows // self.block_runs == block
      values = {name: values[here] for name, values in outputs.items()}
      self._write(block, rows[here], values, provenance or {}, (counts or {}).get(block, {}))

  def _write(
    self, block: int, rows: Int[np.ndarray, " rows"], outputs: dict[str, np.ndarray], provenance: dict[str, Any],
    counts: Mapping[str, np.ndarray],
  ) -> None:  # fmt: skip
    span, writes = self.rows(block), self.record(block)
    first = stop_of(writes) if writes else span.start
    new = rows >= first  # another process may have been faster, with the same values
    # What was counted is of all the rows: with some of them gone, the others are trained again.
    if not new.any() or (self.counts and not new.all()):
      return
    last = int(rows[-1]) + 1
    with readable(self.path):
      digests = {name: digest(self.array(name)[first:last]) for name in self.columns}
      earlier = {name: self.array(name)[span.start : first] for name in self.outputs if writes}
    for name in self.outputs:
      array = self.array(name)
      values = np.asarray(outputs[name])[new].astype(array.dtype)
      digests[name] = digest(values)
      whole = np.full((len(span), *array.shape[1:]), array.fill_value, array.dtype)
      whole[: first - span.start] = earlier.get(name, array.fill_value)
      whole[first - span.start : last - span.start] = values
      array[span.start : span.stop] = whole
      flush(self.path / object_path(self.root, name, block))
    for name in self.counts:
      values = counts[name].astype(self.array(name).dtype)
      digests[name] = digest(values)
      self.array(name)[first] = values
      flush(self.path / object_path(self.root, name, first))
    write_record(self.path, block, [*writes, {"rows": [first, last], "digests": digests, **provenance}])

  def fill(self, name: str, values: np.ndarray, start: int = 0) -> None:
    """Writes an array of examples, or rows of a column from `start` on, object by object.

    Where one fails, Zarr would go on with others beside it.
    """
    array = self.array(name)
    size = array.chunks[0]
    for first in range(start // size * size, len(values), size):
      array[first : first + size] = values[first : first + size]

  def extend(self, runs: int, columns: dict[str, np.ndarray]) -> None:
    """Makes room for so many runs, of which the table is given from the first on. The description changes last."""

    def longer(root: dict[str, Any]) -> dict[str, Any]:
      if root["runs"] >= runs:
        return root
      results = Results(self.path, {**root, "runs": runs})
      for name, column in columns.items():
        results.fill(name, column, root["runs"])
      return results.root

    if len(self) < runs:
      self.revise(longer)

  def revise(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Changes the description, one process at a time."""
    with Claims(self.path) as claims:
      while not claims.take("folder"):
        time.sleep(0.1)
      root = ours(self.path)
      changed = change(root)
      if changed != root:
        replace(self.path / ROOT, zarr_json(changed))
      self._opened(changed)

  def restore(self, columns: dict[str, np.ndarray], examples: dict[str, np.ndarray]) -> None:
    """Writes objects of the runs table and of arrays of examples again that are lost or damaged.

    Only values are written whose digests are those that records and description have.
    """
    for name, values in examples.items():
      found, fault = self.values(name)
      kept = self.root["digests"][name]
      if (fault or digest(found) != kept) and digest(values.astype(self.array(name).dtype)) == kept:
        self.array(name)[:] = values
    for name, column in columns.items():
      try:
        shared = min(len(column), len(self))
        if np.array_equal(self.array(name)[:shared], column[:shared]):
          continue
      except Failure:
        raise
      except Exception:  # what is wrong with it is seen block by block
        pass
      for block in range(-(-len(self) // self.block_runs)):
        rows = self.rows(block)
        found, fault = self.values(name, block)
        if rows.stop > len(column) or (not fault and np.array_equal(found, column[rows.start : rows.stop])):
          continue
        writes = self.record(block)
        told = all(digest(column[slice(*write["rows"])]) == write["digests"].get(name) for write in writes)
        # Without a record, what can be read counts.
        if told and (fault or writes):
          self.array(name)[rows.start : rows.stop] = column[rows.start : rows.stop]


def stop_of(writes: list[dict[str, Any]]) -> int:
  """The row up to which a block is done, 0 without a record."""
  return writes[-1]["rows"][1] if writes else 0


def done_of(written: Sequence[tuple[int, int]], runs: int) -> Bool[np.ndarray, " runs"]:
  """Which of so many runs are done, given the rows of all writes."""
  done = np.zeros(runs, bool)
  for first, stop in written:
    done[first:stop] = True
  return done


def finished(results: Results, group: str | None) -> xr.Dataset:
  """The runs that are done: the root's arrays and those of a group, which are read when they are asked for.

  Arrays of writes have the writes of these runs.
  """
  with readable(results.path):
    store = described(results.path, results.root)
    found = [xr.open_zarr(store, group=g, zarr_format=3, decode_cf=False) for g in dict.fromkeys((None, group))]
    merged = xr.merge(found, combine_attrs="override", join="exact", compat="no_conflicts")
    names = dict.fromkeys(name.rpartition("/")[2] for name in results.root["arrays"])
    merged = merged[[name for name in names if name in merged]]
    written = results.written
    writes = [first for first, _ in written if first < len(results)]
    rows = {"run": np.flatnonzero(done_of(written, len(results))), "write": writes}
    merged = merged.isel({first: rows[first] for first in OF_RUNS if first in merged.dims})
    return merged.drop_attrs(deep=False).assign_attrs(results.description)
