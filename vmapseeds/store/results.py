"""The results of a campaign, written block by block and opened as xarray; `layout` has
the format.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
import zarr
from jaxtyping import Bool, Int, Shaped

from vmapseeds.errors import Failure
from vmapseeds.store import layout
from vmapseeds.store.archives import WHOLE_FILE, ArrayForm, read_archive, write_archive
from vmapseeds.store.claims import BLOCKS
from vmapseeds.store.files import (
  Folder,
  Place,
  as_folder,
  flush,
  list_file_names,
  read,
  read_each,
  remove,
  short_message,
  wrap_io_errors,
)
from vmapseeds.store.large_arrays import (
  as_variables,
  object_path,
  open_arrays,
  zarr_rows,
)
from vmapseeds.store.small_values import (
  FEW_BLOCKS,
  GATHERED,
  SmallValues,
  encode_values,
  most_gathered,
)


class Results:
  """A results folder, open for reading and writing blocks.

  Args:
    path: where it is.
    root: its description, if the folder is being made. Otherwise the description is
      read.

  Raises:
    UserError: there is no such folder, or it is damaged.
  """

  def __init__(self, path: Folder, root: layout.Description | None = None):
    self.path = as_folder(path)
    if root is None:
      root = layout.require_metadata(self.path)
    self.reopen(root)

  def reopen(self, root: layout.Description) -> None:
    """Take over a description that has changed."""
    self.root = root
    self.blocks = layout.blocks_of(root)
    self.block_runs = root["block_runs"]
    # In large arrays, run i has the row `self.rows[i]`.
    self.rows = zarr_rows(self.blocks, self.block_runs)
    self.gathered = 0  # blocks whose small values are in one file, as seen last
    self._small_values = SmallValues(self.path, root)
    self._arrays: dict[str, zarr.Array] | None = None
    self._plan: dict[str, np.ndarray] = {}  # what was read of the plan

    self.columns = root["columns"]
    self.small = layout.small_arrays(root)
    self.large = layout.large_arrays(root)
    written = layout.written_arrays(root)
    first = {name: layout.first_dimension(e) for name, e in root["arrays"].items()}
    self.outputs = [name for name in written if first[name] == "run"]
    self.counts = [name for name in written if first[name] == "block"]
    self.examples = [name for name in first if first[name] not in layout.OF_RUNS]

  def __len__(self) -> int:
    return len(self.rows)

  @property
  def description(self) -> layout.Description:
    """What the maker of the folder keeps in its description."""
    return {name: value for name, value in self.root.items() if name not in layout.OWN}

  @property
  def arrays(self) -> dict[str, zarr.Array]:
    """The large arrays, by name."""
    # Zarr takes milliseconds for each array, and not everybody reads them.
    if self._arrays is None:
      with layout.wrap_zarr_errors(self.path):
        self._arrays = open_arrays(self.path, self.root)
    return self._arrays

  # What is done.

  def finished_blocks(self) -> set[int]:
    """Return the blocks that have a record now."""
    files = list_file_names(self.path / BLOCKS)
    self.gathered = most_gathered(files, len(self.blocks))
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

  def block_of(self, run: int) -> int:
    """Return the block that a run is in."""
    return int(self.rows[run]) // self.block_runs

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
        with wrap_io_errors(self.path / file, reading=True):
          text = next(texts)
        if text is not None:
          record = layout.parse_record(text, block, len(self.blocks[block]))
      except (ValueError, LookupError, TypeError, IsADirectoryError) as error:
        raise layout.Damage(
          self.path, f"{file} cannot be read ({short_message(error)})"
        ) from error
      yield block, record

  # Reading.

  def table(self) -> dict[str, Shaped[np.ndarray, "runs ..."]]:
    """Return the runs table: columns by their names."""
    return self.read_plan(self.columns)

  def read_plan(self, some: Collection[str]) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return some columns of the runs table and arrays of examples, by name.

    Raises:
      Damage: one of them cannot be read.
    """
    if not set(some) <= self._plan.keys():
      arrays, faults = self._read_plan(some)
      for name, fault in faults.items():
        lost = f"{name} in {layout.PLAN}" if name else layout.PLAN
        raise layout.Damage(self.path, f"{lost} {fault}")
      self._plan |= arrays
    return {name: self._plan[name] for name in some}

  def _read_plan(self, some):
    """Return what `read_archive` does of the plan."""
    forms = {}
    for name in some:
      entry = self.root["arrays"][name]
      shape = tuple(entry["shape"])
      if name in self.columns:
        shape = (len(self), *shape)
      forms[name] = ArrayForm(np.dtype(entry["dtype"]), shape)
    return read_archive(self.path / layout.PLAN, forms)

  def read(
    self,
    name: str,
    runs: int | Int[np.ndarray, " runs"],
  ) -> Shaped[np.ndarray, "..."]:
    """Return the values of a column, or of an output of finished runs."""
    if name in self.columns:
      return self.read_plan([name])[name][runs]
    rows = self.rows[runs]
    with layout.wrap_zarr_errors(self.path):
      if name in self.small:
        return self.small_values(np.unique(rows // self.block_runs))[name][runs]
      return self.arrays[name].oindex[rows]

  def small_values(
    self, blocks: Sequence[int] | Int[np.ndarray, " blocks"]
  ) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return the small values, by name, of all runs or blocks: at least those of these
    finished blocks are read.
    """
    wanted = np.asarray(blocks, int)
    known = self._small_values.known
    if not self.gathered and (~known[wanted]).sum() > FEW_BLOCKS:
      self.finished_blocks()
    if not known[wanted[wanted < self.gathered]].all():
      self._small_values.read_gathered(self.gathered)
    # What is not gathered costs a request for each record.
    unknown = wanted[~known[wanted]]
    for block, record in self.records(unknown.tolist()):
      if record:
        values = self._small_values.of_record(block, record)
        self._small_values.keep(block, values)
    return self._small_values.arrays

  # Checking.

  def faults(self, block: int, record: layout.Description) -> dict[str, str]:
    """Return path -> fault of each object of a block that is not as recorded."""
    small = self._small_values.of_record(block, record)
    self._small_values.keep(block, small)
    faults = {}
    for name in self.large:
      fault = self._fault(name, block, record["digests"].get(name))
      if fault:
        faults[object_path(self.root, name, block)] = fault
    return faults

  def _fault(self, name, block, digest):
    """Return what is wrong with a block's values of a large array, None if they have
    this digest.
    """
    try:
      values = self.arrays[name][self._rows_of(name, block)]
    except layout.Damage:
      return "is missing"
    except Failure:
      raise  # the store cannot be reached, so nothing is known of the values
    except Exception as error:  # codecs raise many kinds
      return f"cannot be read ({short_message(error)})"
    return None if layout.digest(values) == digest else layout.OTHERS

  def _rows_of(self, name, block):
    """Return the rows of a large array that have a block's values: of counts, one."""
    if name in self.counts:
      return block
    first = block * self.block_runs
    return slice(first, first + len(self.blocks[block]))

  def gathered_fault(self) -> str | None:
    """Return what is wrong with the file of small values, None if it has those of the
    records that `faults` was asked about.
    """
    return self._small_values.gathered_fault(self.gathered)

  def plan_faults(self) -> dict[str, str]:
    """Return name -> fault of each column and array of examples that is lost or has
    other values than were written; the name of the file if none can be read.
    """
    arrays, faults = self._read_plan([*self.columns, *self.examples])
    if WHOLE_FILE in faults:
      return {layout.PLAN: faults[WHOLE_FILE]}
    for name, values in arrays.items():
      if layout.digest(values) != self.root["digests"].get(name):
        faults[name] = layout.OTHERS
    # What is sound need not be read again.
    self._plan = {name: arrays[name] for name in arrays.keys() - faults.keys()}
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
    it has a record. A power failure may take the record, unless `flush_records` follows.

    Args:
      block: the block.
      outputs: array name -> values of its runs.
      record: what the record says of them besides digests; another block's will do.
      counts: array name -> counts over its runs.
    """
    if self.is_finished(block):
      return False
    if block < self.gathered:  # it was repaired, and its values may be others
      self.forget_gathered()

    values = {}
    for name in self.outputs + self.counts:
      source = outputs if name in outputs else counts or {}
      values[name] = np.asarray(source[name], self.root["arrays"][name]["dtype"])
    small = {name: values[name] for name in self.small}

    # The record makes the block's runs done, so it comes after all of their values.
    for name in self.large:
      self._write(name, values[name], block)
    own = {
      "block": block,
      "runs": len(self.blocks[block]),
      "digests": {name: layout.digest(array) for name, array in values.items()},
      "values": {name: encode_values(array) for name, array in small.items()},
    }
    # A record that is passed on from another block has that block's entries.
    layout.write_record(self.path, {**(record or {}), **own})
    self._small_values.keep(block, small)
    return True

  def flush_records(self) -> None:
    """Wait until the records that were written last even after a power failure. Without
    it, their runs may have to be trained again.
    """
    flush(self.path / BLOCKS)

  def _write(self, name, values, block):
    """Write a block's values, a whole object."""
    array = self.arrays[name]
    if name in self.counts:
      array[block] = values
    else:
      # Zarr reads an object before it writes a part of it, so a short block is filled up.
      first = block * self.block_runs
      stop = min(first + self.block_runs, array.shape[0])
      missing = (stop - first - len(values), *array.shape[1:])
      padding = np.full(missing, array.fill_value, array.dtype)
      array[first:stop] = np.concatenate([values, padding])
    flush(self.path / object_path(self.root, name, block))

  def gather(self) -> None:
    """Write the small values of all blocks into one file, which one request reads, if
    all blocks are finished.
    """
    blocks = len(self.blocks)
    if not self.small or self.gathered == blocks:
      return
    if len(self.finished_blocks()) < blocks or self.gathered == blocks:
      return
    self.small_values(range(blocks))
    self._small_values.write_gathered()
    # Files of fewer blocks have nothing that the new one lacks. Another process may have
    # written one of more.
    self.forget_gathered(below=blocks)
    self.gathered = blocks

  def forget_gathered(self, below: float = math.inf) -> None:
    """Remove the files of small values, or those of fewer blocks."""
    for name in list_file_names(self.path / BLOCKS):
      match = GATHERED.fullmatch(name)
      if match and int(match[1]) < below:
        remove(self.path / BLOCKS / name)
    self.gathered = 0

  def objects(self, block: int) -> list[str]:
    """Return the paths of a block's objects."""
    return [object_path(self.root, name, block) for name in self.large]

  def remove_block(self, block: int) -> None:
    """Remove what was written of a block: first its record, without which the rest does
    not count.
    """
    for file in (f"{BLOCKS}/{block}.json", *self.objects(block)):
      remove(self.path / file)


def write_plan(
  path: Place, root: layout.Description, values: Mapping[str, np.ndarray]
) -> None:
  """Write the runs table and the examples of a folder with this description.

  The name lasts once the description is written: it lies in the same folder.
  """
  plan = {}
  for name, array in values.items():
    plan[name] = np.asarray(array, root["arrays"][name]["dtype"])
  write_archive(path / layout.PLAN, plan, flush_file=True)


def variables_of_blocks(
  results: Results, blocks: Sequence[int], group: str | None
) -> xr.Dataset:
  """Return the runs of finished blocks, and their counts: the arrays of the root and of
  a group. Large ones are read when they are used.
  """
  runs = np.array([run for block in blocks for run in results.blocks[block]], int)
  places = {"run": runs, "block": np.asarray(blocks, int)}
  large_places = places | {"run": results.rows[runs]}
  groups = {"", group or ""}
  entries = results.root["arrays"]
  wanted = [name for name in entries if name.rpartition("/")[0] in groups]
  variables = {}
  held = results.read_plan([*results.columns, *results.examples])
  if set(wanted) & set(results.small):
    held |= results.small_values(blocks)
  large = {name: results.arrays[name] for name in wanted if name not in held}
  opened = as_variables(results.path, results.root, large)
  for name in wanted:
    short = name.rpartition("/")[2]
    if name in held:
      entry = entries[name]
      variable = xr.Variable(entry["dimensions"], held[name], entry["attributes"])
      variables[short] = _at(variable, places)
    else:
      variables[short] = _at(opened[name], large_places)
  return xr.Dataset(variables, attrs=results.description)


def _at(variable, places):
  """Return a variable's values of some runs or blocks; those of examples are copied."""
  chosen = {dim: rows for dim, rows in places.items() if dim in variable.dims}
  if chosen:
    return variable.isel(chosen)
  return variable.copy()  # the user may change it, and others share it
