"""The format of a results folder: immutable blocks of runs, and one file, `zarr.json`,
that describes the folder.

The attributes of `zarr.json` are the description:

- `block_runs`, the largest number of runs of a block, and `extents`, the number of runs
  at creation and after each extension. Each extent begins a new block: with 256 and
  [100, 300] the blocks are runs 0 to 99 and 100 to 299 (`blocks_of`).
- `arrays`: dtype, dimensions and shape of each array by its path. Arrays of runs have
  the first dimension `run`, arrays of counts over the runs of a block `block`; their
  shapes leave it out.
- `columns`, the names of the arrays that form the runs table; the other arrays of runs
  are outputs. `digests` of the columns and of arrays without runs (examples).
- whatever the maker of the folder adds. `digest` is a checksum of all of these.

`plan.npz` has the runs table and the examples: the campaign's plan, known before any run
is done. An extension writes it again, with the same rows in front, then replaces
`zarr.json`.

Outputs and counts are large or small. Large ones are Zarr arrays (`large_arrays`), whose
consolidated metadata stands beside the attributes. Chunk k is block k, in an object of
its own that ends in a CRC-32C. So run i lies at row `block * block_runs + offset`
(`zarr_rows`). Rows that a short block does not have are missing: `xarray.open_zarr` shows
them, and runs that are not done, as -1 or NaN.

Small ones, of at most `SMALL_BYTES` a run, such as accuracies, are no objects of a block:
each would cost a request. They stand in the record (`values`, base64). When all n blocks
are done, `blocks/values_<n>.npz` gets their values together, which one request reads.
The records stay what counts: `verify` compares that file with them, and whoever writes
one of these blocks again removes it first.

`blocks/<k>.json` is the record of block k. It is written last, by an atomic rename, and
it alone makes the runs of its block done. It has the number of runs, digests of their
outputs and counts, and what the writer says of where they come from. Nothing that is
recorded is ever written again. Two processes that train one block write the same bytes.

A folder may also hold claims, `blocks/<k>.claim`, checkpoints in the folder
`checkpoints`, a report in `report` and, in `measured`, metrics that were measured after
the training.

Input from strangers: arrays hold numbers, so nothing is unpickled. Only the description
is read from the metadata, so a folder does not choose how its arrays are encoded. Links
lead out of the folder, so they are refused. Sizes are compared with free memory before
anything is allocated. Checksums and digests show all other damage.
"""

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vmapseeds.errors import Failure, UserError
from vmapseeds.machine import free_host_memory
from vmapseeds.store.claims import BLOCKS
from vmapseeds.store.files import (
  Folder,
  Place,
  as_folder,
  exists,
  is_remote,
  parse_json,
  read,
  replace,
  short_message,
)

Description = dict[str, Any]  # a JSON object: of a folder, an array or a block
FORMAT = "vmapseeds results 5"
ROOT = "zarr.json"
PLAN = "plan.npz"
OF_RUNS = ("run", "block")  # first dimensions that an entry's shape leaves out
# Attributes that are set here, not by the maker of the folder
OWN = (
  "format",
  "extents",
  "block_runs",
  "arrays",
  "columns",
  "digests",
  "digest",
)
# Dtype kind -> what a missing value reads as
FILL = {"b": False, "i": -1, "u": 0, "f": np.nan}
SMALL_BYTES = 64  # of a run's values, or of counts over a block, that a record holds
RUN_BYTES = 100  # what this package needs beside a run's columns
OTHERS = "holds other values than were written"
VERIFY = "`vmapseeds verify {}` says what, and --repair helps"
BACK = "restore zarr.json from a backup"
OURS = "a results folder created by `vmapseeds train` or `vmapseeds import`"


class Damage(UserError):
  """A results folder cannot be trusted. Says what is wrong with it and what to do."""

  def __init__(self, path: Folder, fault: str, remedy: str = VERIFY):
    super().__init__(f"{path} is damaged: {fault}; {remedy.format(path)}")
    self.path, self.fault, self.remedy = path, fault, remedy

  def __reduce__(self):  # otherwise it would not come back from another process
    return Damage, (self.path, self.fault, self.remedy)


def array_entry(
  dtype, dimensions: Sequence[str], shape: Sequence[int], **attributes
) -> Description:
  """Return the entry of an array in a description. `shape` leaves out the first axis if
  that is one of `OF_RUNS`.
  """
  return {
    "dtype": np.dtype(dtype).name,
    "dimensions": list(dimensions),
    "shape": list(shape),
    "attributes": attributes,
  }


def first_dimension(entry: Description) -> str:
  """Return the name of an array's first dimension, empty for a single number."""
  dimensions = entry["dimensions"]
  return dimensions[0] if dimensions else ""


def bytes_of(entry: Description) -> int:
  """Return the size of an array, or of a run's or a block's part of it."""
  return math.prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize


def written_arrays(root: Description) -> list[str]:
  """Return the outputs and counts, which are written block by block."""
  return [
    name
    for name, entry in root["arrays"].items()
    if first_dimension(entry) in OF_RUNS and name not in root["columns"]
  ]


def small_arrays(root: Description) -> list[str]:
  """Return the outputs and counts whose values stand in records."""
  arrays = root["arrays"]
  return [
    name for name in written_arrays(root) if bytes_of(arrays[name]) <= SMALL_BYTES
  ]


def large_arrays(root: Description) -> list[str]:
  """Return the outputs and counts that are Zarr's arrays."""
  small = small_arrays(root)
  return [name for name in written_arrays(root) if name not in small]


def blocks_of(root: Description) -> list[range]:
  """Return the runs of each block.

  Raises:
    ValueError: the description has no such blocks.
  """
  size = root["block_runs"]
  edges = [0, *root["extents"]]
  ascending = all(start < stop for start, stop in itertools.pairwise(edges))
  if size < 1 or len(edges) < 2 or not ascending:
    raise ValueError("its runs cannot be cut into blocks")
  blocks = []
  for start, stop in itertools.pairwise(edges):
    for first in range(start, stop, size):
      blocks.append(range(first, min(first + size, stop)))
  return blocks


def with_more_runs(
  root: Description,
  runs: int,
  columns: Mapping[str, np.ndarray],
) -> Description:
  """Return the description of a folder with `runs` runs, whose table is `columns`."""
  extents, size = root["extents"], root["block_runs"]
  start, stop = 0, extents[-1]
  if len(extents) > 1:
    start = extents[-2]
  # Where the last block is full, more of them belong to the same extent.
  kept = extents[:-1] if (stop - start) % size == 0 else extents
  digests = {}
  arrays = dict(root["arrays"])
  for name, values in columns.items():
    digests[name] = digest(values.astype(arrays[name]["dtype"]))
    # Texts of more letters than those of the first runs widen their column.
    arrays[name] = arrays[name] | {"shape": list(values.shape[1:])}
  return {
    **root,
    "extents": [*kept, runs],
    "arrays": arrays,
    "digests": root["digests"] | digests,
  }


def read_metadata(path: Folder) -> Description:
  """Return the description of a results folder, unchecked; empty without a folder."""
  attributes = _attributes(path)
  return attributes if attributes.get("format") == FORMAT else {}


def _attributes(path):
  """Return the attributes of a folder's group, empty if they cannot be read."""
  with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
    return dict(parse_json(read(as_folder(path) / ROOT))["attributes"])
  return {}


def _check_format(path, format_):
  """Raise `UserError` if a folder has another format of results."""
  is_ours = isinstance(format_, str) and re.fullmatch(
    r"vmapseeds results \d{1,9}", format_
  )
  if is_ours:
    raise UserError(
      f"{path} has the format {format_!r}, and this version of vmapseeds reads {FORMAT!r}: "
      "take the version that made it, or train its runs again in another folder"
    )


def read_verified_metadata(path: Folder) -> Description | None:
  """Return the description of a results folder, None where there is no such folder.

  Raises:
    Damage: it cannot be trusted.
  """
  path = as_folder(path)
  root = _attributes(path)
  if root.get("format") != FORMAT:
    _check_format(path, root.get("format"))
    if exists(path / BLOCKS / "0.json"):
      raise Damage(path, f"{ROOT} cannot be read", BACK)
    return None
  try:
    root = unsigned(root)
    root["digests"] = dict(root["digests"])
    check_memory(path, root)
  except UserError:
    raise
  except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
    raise Damage(
      path,
      f"{ROOT} is not as it was written ({type(error).__name__}: {error!s:.80})",
      BACK,
    ) from None
  return root


def check_memory(path: Place, root: Description) -> None:
  """Check that blocks and the runs table of a described folder fit in free memory.

  Raises:
    UserError: they do not.
  """
  arrays = root["arrays"]
  memory = free_host_memory()
  runs = root["extents"][-1]
  block_runs = root["block_runs"]
  for name, entry in arrays.items():
    times = block_runs if first_dimension(entry) == "run" else 1
    if bytes_of(entry) * times > memory:
      described = (
        f"{path} has {name} of {entry['shape']} in blocks of {block_runs} runs"
      )
      raise UserError(
        f"{described}, which free memory does not hold: free some, or open it on a larger machine"
      )
  # These are read whole when a folder is opened or reported.
  table = [*root["columns"], *small_arrays(root)]
  bytes_of_a_run = RUN_BYTES + sum(bytes_of(arrays[name]) for name in table)
  if runs * bytes_of_a_run > memory:
    raise UserError(
      f"{path} has a runs table that free memory does not hold: free some, or open it on a larger machine"
    )


def require_metadata(path: Folder) -> Description:
  """Return the checked description of a results folder.

  Raises:
    UserError: there is no such folder.
    Damage: it cannot be trusted.
  """
  root = read_verified_metadata(path)
  if root is None:
    place = as_folder(path)
    if not is_remote(place) and not os.path.lexists(place):
      raise UserError(f"{path} is not a results folder, it does not exist: give {OURS}")
    raise UserError(f"{path} is not {OURS}")
  return root


def digest(*arrays: np.ndarray) -> str:
  """Return a checksum of the values of arrays."""
  fingerprint = hashlib.blake2b(digest_size=16)
  for values in arrays:
    fingerprint.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
  return fingerprint.hexdigest()


def signed(value: Mapping[str, Any]) -> Description:
  """Return a JSON object with `digest`, a checksum of everything else in it."""
  plain = {name: content for name, content in value.items() if name != "digest"}
  # Sorted: JSON does not promise the order in which names are read back.
  text = json.dumps(plain, sort_keys=True).encode()
  return plain | {"digest": hashlib.blake2b(text, digest_size=16).hexdigest()}


def unsigned(value) -> Description:
  """Return a signed JSON object.

  Raises:
    ValueError: it has changed since it was signed.
  """
  if isinstance(value, dict) and signed(value) == value:
    return value
  raise ValueError("its digest is another")


def parse_record(text: bytes, block: int, runs: int) -> Description:
  """Return the record of a block with so many runs.

  Raises:
    ValueError, LookupError, TypeError: the text is no record of this block.
  """
  record = unsigned(parse_json(text))
  record["digests"] = dict(record["digests"])
  record["values"] = dict(record["values"])
  if record["block"] != block or record["runs"] != runs:
    raise ValueError(f"it is of block {record['block']} with {record['runs']} runs")
  return record


def write_record(path: Place, record: Mapping[str, Any]) -> None:
  """Write a block's record atomically. Its name lasts once the folder is flushed."""
  text = json.dumps(signed(record)) + "\n"
  replace(path / BLOCKS / f"{record['block']}.json", text, flush_folder=False)


# What Zarr and its codecs raise for bytes that they cannot read; it is not documented.
NOT_AS_WRITTEN = (
  ArithmeticError,
  LookupError,
  RuntimeError,
  TypeError,
  ValueError,
  IsADirectoryError,
  NotADirectoryError,
)


@contextlib.contextmanager
def wrap_zarr_errors(path: Folder) -> Iterator[None]:
  """Turn whatever Zarr or a codec raises for an object into a `Damage`."""
  try:
    yield
  except (UserError, Failure, FileExistsError):
    raise
  except NOT_AS_WRITTEN as error:
    raise Damage(path, f"an object cannot be read ({short_message(error)})") from error
