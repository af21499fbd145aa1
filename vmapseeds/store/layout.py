"""The format of a results folder: a Zarr v3 group with one metadata file, `zarr.json`,
that describes all of it.

The attributes in this file are the description: `runs`, the number of runs;
`block_runs`, how many of them make a block; `arrays`, the dtype, dimensions and shape
of each array by its path (`predictions` in the group `test` is `test/predictions`);
`columns`, the arrays that form the runs table; `digests` of the arrays of examples; and
whatever else the maker of the folder wants to keep. Arrays of runs have the first
dimension `run`, arrays of writes `write`; their shapes leave it out. A signature shows
damage. Beside the attributes is Zarr's consolidated metadata of all groups and arrays,
for those who open the folder with xarray or Zarr. It is derived from the description
and not read here. A folder is extended by replacing this file, with an atomic rename.

Arrays of runs are cut into blocks of runs. Each block is one object, which ends in a
CRC-32C. `blocks/<k>.json` is the record of block k, written after its objects. It lists
the writes to the block. Each has the rows [first, one past the last] that it added, a
digest of their values in every array, and what the writer says of where they come from.
The writes follow each other from the block's first row. Their rows are done, no others
are, and done rows never change. A block may not be full, because a seed batch was
smaller or the folder had no more runs. A further write then replaces its objects, with
the same rows in front, and after them the record.

Counts over runs are in arrays of writes. Each write has an object of its own, at the
index of its first row, written before the record. So no stored count is ever changed.
What is missing counts as 0, so the sum over the first axis is the count over all runs.

A folder may also hold claims, `blocks/<k>.claim`, checkpoints in the folder
`checkpoints` and a report in `report`.

Folders may come from other machines, so they are not trusted. Arrays hold numbers, so
nothing is unpickled. Only the description is read from the metadata, so a folder does
not choose how its arrays are encoded. Links lead out of the folder, so they are
refused. Arrays are compared with free memory before they are read. Signatures,
checksums and digests show all other damage.
"""

import contextlib
import functools
import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from upath import UPath
from zarr.abc.store import Store
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore

from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Failure, Mistake
from vmapseeds.store.claims import BLOCKS
from vmapseeds.store.files import (
  Folder,
  exists,
  is_remote,
  parse,
  place,
  reached,
  read,
  reading,
  replace,
  said,
  strays,
)

FORMAT = "vmapseeds results 2"
ROOT = "zarr.json"
OF_RUNS = ("run", "write")  # first dimensions, both as long as there are runs
OWN = (
  "format",
  "runs",
  "block_runs",
  "arrays",
  "columns",
  "digests",
  "digest",
)  # attributes that are set here
FILL = {
  "b": False,
  "i": -1,
  "u": 0,
  "f": np.nan,
}  # dtype kind -> what a missing value reads as
VERIFY = "`vmapseeds verify {}` says what, and --repair helps"
BACK = "put that file back as it was"
NOT_OURS = "is no results folder: give one that `vmapseeds train` or `import` made"


class Damage(Mistake):
  """A results folder cannot be trusted. Says what is wrong with it and what to do."""

  def __init__(self, path: Folder, fault: str, remedy: str = VERIFY):
    super().__init__(f"{path} is damaged: {fault}; {remedy.format(path)}")
    self.path, self.fault, self.remedy = path, fault, remedy

  def __reduce__(self):  # otherwise it would not come back from another process
    return Damage, (self.path, self.fault, self.remedy)


def array(
  dtype: Any, dimensions: Sequence[str], shape: Sequence[int], **attributes: Any
) -> dict[str, Any]:
  """The entry of an array in a description. `shape` leaves out the first axis if that
  is one of `OF_RUNS`.
  """
  return {
    "dtype": np.dtype(dtype).name,
    "dimensions": list(dimensions),
    "shape": list(shape),
    "attributes": attributes,
  }


def zarr_json(root: dict[str, Any]) -> str:
  """The text of `zarr.json` for a folder with this description."""
  return _zarr_json(json.dumps(root))


@functools.lru_cache(
  maxsize=32
)  # a folder is opened many times, and Zarr takes milliseconds for each array
def _zarr_json(text: str) -> str:
  root = json.loads(text)
  store = MemoryStore()
  group = zarr.create_group(store, attributes=signed({"format": FORMAT, **root}))
  for name, about in root["arrays"].items():
    dtype, runs = np.dtype(about["dtype"]), [root["runs"]]
    of = {"run": (runs, [root["block_runs"]]), "write": (runs, [1])}
    lengths = of.get((*about["dimensions"], "")[0], ([], []))
    # Floats are not compressed: all but the first bits of a network's values are noise.
    packed = (
      [Crc32cCodec()] if dtype.kind == "f" else [ZstdCodec(level=0), Crc32cCodec()]
    )
    shape, chunks = (tuple(first + about["shape"]) for first in lengths)
    group.create_array(
      name,
      shape=shape,
      chunks=chunks,
      dtype=dtype,
      compressors=packed,
      fill_value=FILL[dtype.kind],
      attributes=about["attributes"],
      dimension_names=about["dimensions"],
    )
  with warnings.catch_warnings():
    warnings.simplefilter(
      "ignore"
    )  # Zarr warns that its specification lacks consolidated metadata
    zarr.consolidate_metadata(store)
  return store._store_dict[ROOT].to_bytes().decode()


def attributes(path: Folder) -> dict[str, Any] | None:
  """The description of a results folder, None where there is no such folder. Its
  content is not checked.
  """
  with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
    found = parse(read(place(path) / ROOT))["attributes"]
    return found if found["format"] == FORMAT else None
  return None


def checked(path: Folder) -> dict[str, Any] | None:
  """The description of a results folder, None where there is no such folder. `Damage`
  where it cannot be trusted.
  """
  path = place(path)
  root = attributes(path)
  if root is None:
    if exists(path / BLOCKS / "0.json"):
      raise Damage(path, f"{ROOT} cannot be read", BACK)
    return None
  for stray in strays(path):
    raise Damage(
      path,
      stray,
      "a results folder has files and folders alone: put them there, or move it elsewhere",
    )
  try:
    check_memory(path, unsigned(root))
  except Mistake:
    raise
  except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
    raise Damage(
      path,
      f"{ROOT} is not as it was written ({type(error).__name__}: {error!s:.80})",
      BACK,
    ) from None
  return root


def check_memory(path: Path | UPath, root: dict[str, Any]) -> None:
  """`Mistake` if a block or the runs table of a described folder is larger than free
  memory.
  """
  arrays, memory = root["arrays"], free_host_memory()
  bytes_of = {
    name: math.prod(a["shape"]) * np.dtype(a["dtype"]).itemsize
    for name, a in arrays.items()
  }
  for name, about in arrays.items():
    if (
      bytes_of[name] * (root["block_runs"] if about["dimensions"][:1] == ["run"] else 1)
      > memory
    ):
      given = (
        f"{path} has {name} of {about['shape']} in blocks of {root['block_runs']} runs"
      )
      raise Mistake(
        f"{given}, which free memory does not hold: free some, or open it on a larger machine"
      )
  if root["runs"] * sum(bytes_of[name] for name in root["columns"]) > memory:
    raise Mistake(
      f"{path} has a runs table that free memory does not hold: free some, or open it on a larger machine"
    )


def ours(path: Folder) -> dict[str, Any]:
  """The description of a results folder, checked. `Mistake` if there is no such folder,
  `Damage` as in `checked`.
  """
  root = checked(path)
  if root is None:
    raise Mistake(f"{path} {NOT_OURS}")
  return root


def object_path(root: dict[str, Any], name: str, number: int) -> str:
  """The path, in a results folder, of an array's object: of block `number`, or of the
  write whose first row it is.
  """
  return "/".join(
    (name, "c", str(number), *["0"] * (len(root["arrays"][name]["dimensions"]) - 1))
  )


class Described(WrapperStore):
  """The store of a results folder that Zarr and xarray open. Its metadata is derived
  from the description.

  Only recorded objects are read, so a missing object is damage. A store that cannot be
  reached is not damage.
  """

  def __init__(self, store: Store, path: Path | UPath, metadata: bytes):
    super().__init__(store)
    self.path, self._metadata = path, metadata

  def _with_store(self, store: Store) -> "Described":
    return Described(store, self.path, self._metadata)

  async def get(self, key, prototype, byte_range=None):
    if key == ROOT:
      return prototype.buffer.from_bytes(self._metadata)
    with reading(self.path / key):
      found = await super().get(key, prototype, byte_range)
    if found is None and "/c/" in key:
      raise Damage(self.path, f"{key} is missing")
    return found

  async def set(self, key, value):
    with reached(self.path / key):
      await super().set(key, value)

  def __str__(self) -> str:
    return str(self.path)


def described(path: Path | UPath, root: dict[str, Any]) -> Described:
  """The store of a results folder, for Zarr and xarray to open."""
  # Without the wrapper, Zarr would make a second, asynchronous file system, whose
  # connections nobody closes.
  if is_remote(path):
    store: Store = FsspecStore(
      AsyncFileSystemWrapper(path.fs, asynchronous=True), path=path.path
    )
  else:
    store = LocalStore(
      path.absolute()
    )  # still found where a program changes its working folder
  return Described(store, path, zarr_json(root).encode())


def digest(*arrays: np.ndarray) -> str:
  """A checksum of the values of arrays."""
  fingerprint = hashlib.blake2b(digest_size=16)
  for values in arrays:
    fingerprint.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
  return fingerprint.hexdigest()


def signed(value: Mapping[str, Any]) -> dict[str, Any]:
  """A JSON object with `digest`, a checksum of everything else in it."""
  plain = {name: of for name, of in value.items() if name != "digest"}
  text = json.dumps(plain, sort_keys=True).encode()
  return {**plain, "digest": hashlib.blake2b(text, digest_size=16).hexdigest()}


def unsigned(value: Any) -> dict[str, Any]:
  """Returns a signed JSON object. `ValueError` if it has changed since it was signed."""
  if isinstance(value, dict) and signed(value) == value:
    return value
  raise ValueError("its digest is another")


def record(text: bytes, block: int, rows: range) -> list[dict[str, Any]]:
  """The writes in a block's record. `rows` are those that the block can have.

  `ValueError`, `LookupError` or `TypeError` if the record is not one of this block.
  """
  found = unsigned(parse(text))
  edges = [
    rows.start,
    *(row for write in found["writes"] for row in write["rows"]),
    rows.stop,
  ]
  whole = (
    found["writes"] and edges[:-2:2] == edges[1:-1:2]
  )  # each write begins where the one before it ends
  if found["block"] != block or edges != sorted(edges) or not whole:
    raise ValueError(f"it is of block {found['block']} and rows {edges[1:-1]}")
  return found["writes"]


def write_record(
  path: Path | UPath, block: int, writes: Sequence[dict[str, Any]]
) -> None:
  """Writes a block's record atomically."""
  replace(
    path / BLOCKS / f"{block}.json",
    json.dumps(signed({"block": block, "writes": list(writes)})) + "\n",
  )


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
def readable(path: Folder) -> Iterator[None]:
  """Turns whatever Zarr or a codec raises for an object into a `Damage`."""
  try:
    yield
  except (Mistake, Failure, FileExistsError):
    raise
  except NOT_AS_WRITTEN as error:
    raise Damage(path, f"an object cannot be read ({said(error)})") from error
