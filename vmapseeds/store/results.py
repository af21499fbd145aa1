"""The results of a campaign, written block by block and opened as xarray; `layout` has
the format.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
  read,
  reading,
  replace,
  said,
)

OTHERS = "holds other values than were written"
READERS = 32  # records that are read at once; behind a URL each is a request


class Results:
  """A results folder, open for reading and writing.

  Args:
    path: where it is.
    root: its description, if the folder is being made. Otherwise the description is
      read.

  Raises:
    Mistake: there is no such folder, or it is damaged.
  """

  def __init__(self, path: Folder, root: dict[str, Any] | None = None):
    self.path = place(path)
    self._full: dict[
      int, list[tuple[int, int]]
    ] = {}  # the writes of full blocks, which stay as they are
    self._opened(layout.ours(self.path) if root is None else root)

  def _opened(self, root: dict[str, Any]) -> None:
    self.root = root
    arrays = root["arrays"]
    self.block_runs, self.columns = root["block_runs"], root["columns"]
    of_runs, self.counts = (
      [n for n, a in arrays.items() if a["dimensions"][:1] == [kind]]
      for kind in layout.OF_RUNS
    )
    self.outputs = [name for name in of_runs if name not in self.columns]
    self.examples = [name for name in arrays if name not in (*of_runs, *self.counts)]
    with zarr.config.set(
      {"array.write_empty_chunks": True}
    ):  # an absent chunk counts as lost
      self._group = zarr.open_group(
        layout.described(self.path, root), mode="r+", zarr_format=3
      )
      self._arrays = {name: self._group[name] for name in arrays}

  def __len__(self) -> int:
    return self.root["runs"]

  @property
  def description(self) -> dict[str, Any]:
    """What the maker of the folder keeps in its description."""
    return {name: value for name, value in self.root.items() if name not in layout.OWN}

  def array(self, name: str) -> zarr.Array:
    """An array of the folder. Rows that are not done cannot be read."""
    return self._arrays[name]

  def table(self) -> dict[str, Shaped[np.ndarray, "runs ..."]]:
    """The runs table: columns by their names."""
    with layout.readable(self.path):
      return {name: self.array(name)[:] for name in self.columns}

  def rows(self, block: int) -> range:
    """The rows of a block."""
    return range(block * self.block_runs, min((block + 1) * self.block_runs, len(self)))

  # What is done.

  @property
  def written(self) -> list[tuple[int, int]]:
    """(first row, one past the last) of each write, ascending, from the records as they
    are now.
    """
    others, left = (
      [],
      [
        block
        for block in range(-(-len(self) // self.block_runs))
        if block not in self._full
      ],
    )
    there = names(self.path / BLOCKS) if left else set()
    left = [block for block in left if f"{block}.json" in there]
    with ThreadPoolExecutor(READERS) as pool:
      for block, writes in zip(left, pool.map(self.record, left), strict=True):
        rows = [tuple(write["rows"]) for write in writes]
        if stop_of(writes) == (block + 1) * self.block_runs:
          self._full[block] = rows
        else:
          others += rows
    return sorted([*others, *(rows for block in self._full.values() for rows in block)])

  @property
  def done(self) -> Bool[np.ndarray, " runs"]:
    """Which runs are trained, evaluated and written."""
    return done_of(self.written, len(self))

  def record(self, block: int) -> list[dict[str, Any]]:
    """The writes in a block's record, empty without a record. `Damage` if the record
    cannot be understood.
    """
    first = block * self.block_runs
    try:
      with reading(file := self.path / BLOCKS / f"{block}.json"):
        text = read(file)
      return (
        []
        if text is None
        else layout.record(text, block, range(first, first + self.block_runs))
      )
    except (ValueError, LookupError, TypeError, IsADirectoryError) as error:
      raise layout.Damage(
        self.path, f"{BLOCKS}/{block}.json cannot be read ({said(error)})"
      ) from error

  def faults(self, block: int, writes: list[dict[str, Any]]) -> dict[str, str]:
    """path -> fault of each object of a block that is not as its record says. `writes`
    are those of the record.
    """
    found = {}
    for name in (*self.columns, *(self.outputs if writes else ())):
      due = self.due(name, block, writes)
      found[layout.object_path(self.root, name, block)] = self.values(name, block, due)[
        1
      ]
    for write, name in itertools.product(writes, self.counts):
      first, due = write["rows"][0], [(..., write["digests"].get(name))]
      found[layout.object_path(self.root, name, first)] = self.values(name, first, due)[
        1
      ]
    return {object: fault for object, fault in found.items() if fault}

  def due(
    self, name: str, block: int, writes: list[dict[str, Any]]
  ) -> list[tuple[Any, str | None]]:
    """For each write to a block: its rows, counted from the block's first, and the
    digest of their values.
    """
    start = block * self.block_runs
    return [
      (slice(*(row - start for row in w["rows"])), w["digests"].get(name))
      for w in writes
    ]

  def values(
    self, name: str, number: int = 0, due: Sequence[tuple[Any, str | None]] = ()
  ) -> tuple[np.ndarray, str | None]:
    """An array's values in block `number`, or in the write whose first row it is; and
    what is wrong with them, or None.

    `due` lists parts of the values and their digests. The digests of examples come from
    the description instead.
    """
    rows = self.rows(number)
    here: Any = number if name in self.counts else slice(rows.start, rows.stop)
    if name in self.examples:
      here, due = slice(None), [(..., self.root["digests"][name])]
    try:
      values = self.array(name)[here]
    except layout.Damage:
      return np.empty(0), "is missing"
    except Failure:
      raise  # the store cannot be reached, so nothing is known of the values
    except Exception as error:
      return np.empty(0), f"cannot be read ({said(error)})"
    return values, None if all(
      layout.digest(values[part]) == told for part, told in due
    ) else OTHERS

  # Writing.

  def write(
    self,
    rows: Int[np.ndarray, " rows"],
    outputs: dict[str, Shaped[np.ndarray, "rows ..."]],
    provenance: dict[str, Any] | None = None,
    counts: Mapping[int, Mapping[str, np.ndarray]] | None = None,
  ) -> None:
    """Writes the outputs of some runs, block by block: the values, and then the block's
    record.

    Args:
      rows: the runs, ascending; in each block they begin with the first that is not
        done.
      outputs: array name -> values of these runs.
      provenance: what the record says of these runs besides digests of their values.
      counts: block -> array name -> counts over these runs.
    """
    provenance, counts = provenance or {}, counts or {}
    for block in np.unique(rows // self.block_runs).tolist():
      span, writes = self.rows(block), self.record(block)
      first = max(stop_of(writes), span.start)
      here = rows // self.block_runs == block
      new = here & (
        rows >= first
      )  # another process may have been faster, with the same values
      # Counts are over all of these rows. If some are already done, the others are left
      # to be trained again.
      if not new.any() or (self.counts and (new != here).any()):
        continue
      last = int(rows[new][-1]) + 1
      with layout.readable(self.path):
        digests = {
          name: layout.digest(self.array(name)[first:last]) for name in self.columns
        }
        earlier = {name: self.array(name)[span.start : first] for name in self.outputs}
      for name in self.outputs:
        array = self.array(name)
        values = np.asarray(outputs[name])[new].astype(array.dtype)
        digests[name] = layout.digest(values)
        missing = np.full(
          (span.stop - last, *array.shape[1:]), array.fill_value, array.dtype
        )
        array[span.start : span.stop] = np.concatenate([earlier[name], values, missing])
        flush(self.path / layout.object_path(self.root, name, block))
      for name in self.counts:
        values = counts[block][name].astype(self.array(name).dtype)
        digests[name] = layout.digest(values)
        self.array(name)[first] = values
        flush(self.path / layout.object_path(self.root, name, first))
      layout.write_record(
        self.path,
        block,
        [*writes, {"rows": [first, last], "digests": digests, **provenance}],
      )

  def fill(self, name: str, values: np.ndarray, start: int = 0) -> None:
    """Writes an array of examples, or rows of a column from `start` on, one object at a
    time.

    Zarr writes several at once, and goes on with the others when one fails.
    """
    array = self.array(name)
    size = array.chunks[0]
    for first in range(start // size * size, len(values), size):
      array[first : first + size] = values[first : first + size]

  def extend(self, runs: int, columns: dict[str, np.ndarray]) -> None:
    """Makes room for `runs` runs. `columns` is the table of all of them. The
    description changes last.
    """

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
      root = layout.ours(self.path)
      changed = change(root)
      if changed != root:
        replace(self.path / layout.ROOT, layout.zarr_json(changed))
      self._opened(changed)

  def restore(
    self, columns: dict[str, np.ndarray], examples: dict[str, np.ndarray]
  ) -> None:
    """Writes lost or damaged objects of the runs table and of arrays of examples again.

    It writes only values whose digests agree with the records and the description.
    """
    for name, values in examples.items():
      if (
        self.values(name)[1]
        and layout.digest(values.astype(self.array(name).dtype))
        == self.root["digests"][name]
      ):
        self.array(name)[:] = values
    for name, column in columns.items():
      shared = min(len(column), len(self))
      with contextlib.suppress(layout.Damage), layout.readable(self.path):
        if np.array_equal(self.array(name)[:shared], column[:shared]):
          continue
      for block in range(-(-shared // self.block_runs)):
        rows = self.rows(block)
        whole, due = (
          column[rows.start : rows.stop],
          self.due(name, block, self.record(block)),
        )
        # Without a record there are no digests, so values that can be read count as
        # sound.
        told = len(whole) == len(rows) and all(
          layout.digest(whole[part]) == digest for part, digest in due
        )
        if told and self.values(name, block, due)[1]:
          self.array(name)[rows.start : rows.stop] = whole


def stop_of(writes: list[dict[str, Any]]) -> int:
  """One past the last done row of a block, 0 without a record."""
  return writes[-1]["rows"][1] if writes else 0


def done_of(written: Sequence[tuple[int, int]], runs: int) -> Bool[np.ndarray, " runs"]:
  """Which of `runs` runs are done, given the rows of all writes."""
  done = np.zeros(runs, bool)
  for first, stop in written:
    done[first:stop] = True
  return done


def finished(results: Results, group: str | None) -> xr.Dataset:
  """The finished runs: the arrays of the root and of a group, which are read when they
  are used.

  Arrays of writes are cut to the writes that these runs came in.
  """
  with layout.readable(results.path):
    store = layout.described(results.path, results.root)
    found = [
      xr.open_zarr(store, group=g, zarr_format=3, decode_cf=False)
      for g in dict.fromkeys((None, group))
    ]
    merged = xr.merge(
      found, combine_attrs="override", join="exact", compat="no_conflicts"
    )
    names = dict.fromkeys(name.rpartition("/")[2] for name in results.root["arrays"])
    merged = merged[[name for name in names if name in merged]]
    written = results.written
    writes = [first for first, _ in written if first < len(results)]
    rows = {"run": np.flatnonzero(done_of(written, len(results))), "write": writes}
    merged = merged.isel(
      {first: rows[first] for first in layout.OF_RUNS if first in merged.dims}
    )
    return merged.drop_attrs(deep=False).assign_attrs(results.description)
