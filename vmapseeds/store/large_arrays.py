"""The large arrays of a results folder, as Zarr stores them: an object for each block.

What Zarr and xarray read, a group with consolidated metadata, is derived from the
folder's description. It is not read here, so a folder does not choose how its arrays are
encoded.
"""

import functools
import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
import zarr
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from jaxtyping import Int
from xarray.backends.zarr import ZarrArrayWrapper
from xarray.core.indexing import (
  CopyOnWriteArray,
  LazilyIndexedArray,
  MemoryCachedArray,
)
from zarr.abc.store import Store
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore

from vmapseeds.store.files import Place, is_remote, wrap_io_errors
from vmapseeds.store.layout import (
  FILL,
  FORMAT,
  ROOT,
  Damage,
  Description,
  blocks_of,
  first_dimension,
  large_arrays,
  signed,
  wrap_zarr_errors,
)


def zarr_rows(blocks: list[range], block_runs: int) -> Int[np.ndarray, " runs"]:
  """Return the row of each run in Zarr's arrays."""
  firsts = np.array([block.start for block in blocks])
  lengths = np.array([len(block) for block in blocks])
  shifts = np.arange(len(blocks)) * block_runs - firsts
  return np.arange(lengths.sum()) + np.repeat(shifts, lengths)


def zarr_json(root: Description) -> str:
  """Return the text of `zarr.json` for a folder with this description."""
  return _zarr_json(json.dumps(root))


# A folder is opened many times, and Zarr takes milliseconds for each array.
@functools.lru_cache(maxsize=32)
def _zarr_json(text):
  root = json.loads(text)
  blocks = blocks_of(root)
  block_runs = root["block_runs"]
  # All blocks but the last have the rows of a whole block, also those that are shorter.
  rows = (len(blocks) - 1) * block_runs + len(blocks[-1])
  lengths = {"run": rows, "block": len(blocks)}
  chunks = {"run": block_runs, "block": 1}

  store = MemoryStore()
  zarr.create_group(store, attributes=signed({"format": FORMAT, **root}))
  # Readers find a group also where all of its arrays are small.
  for group in sorted({name.rpartition("/")[0] for name in root["arrays"]} - {""}):
    zarr.create_group(store, path=group)
  for name in large_arrays(root):
    entry = root["arrays"][name]
    dtype = np.dtype(entry["dtype"])
    first = first_dimension(entry)
    zarr.create_array(
      store,
      name=name,
      shape=(lengths[first], *entry["shape"]),
      chunks=(chunks[first], *entry["shape"]),
      dtype=dtype,
      compressors=_codecs(dtype),
      fill_value=FILL[dtype.kind],
      attributes=entry["attributes"],
      dimension_names=entry["dimensions"],
      zarr_format=3,
    )
  with warnings.catch_warnings():
    # Zarr warns that its specification lacks consolidated metadata.
    warnings.simplefilter("ignore")
    zarr.consolidate_metadata(store)
  return store._store_dict[ROOT].to_bytes().decode()


def _codecs(dtype):
  """Return how Zarr compresses the bytes of a chunk."""
  # Floats are not compressed: all but the first bits of a network's values are noise.
  if dtype.kind == "f":
    return [Crc32cCodec()]
  return [ZstdCodec(level=0), Crc32cCodec()]


def object_path(root: Description, name: str, block: int) -> str:
  """Return the path, in a results folder, of a block's object of an array."""
  # Only the first axis is cut into chunks, so the index of the others is 0.
  zeros = ["0" for _ in root["arrays"][name]["dimensions"][1:]]
  return "/".join((name, "c", str(block), *zeros))


class MetadataStore(WrapperStore):
  """The store of a results folder that Zarr and xarray open. Its metadata is derived
  from the description.

  Only recorded objects are read, so a missing object is damage. A store that cannot be
  reached is not damage.
  """

  def __init__(self, store: Store, path: Place, metadata: bytes):
    super().__init__(store)
    self.path, self._metadata = path, metadata

  def _with_store(self, store):
    return MetadataStore(store, self.path, self._metadata)

  async def get(self, key, prototype, byte_range=None):
    # What is stored there may not be what the description says.
    if key == ROOT:
      return prototype.buffer.from_bytes(self._metadata)
    with wrap_io_errors(self.path / key, reading=True):
      data = await super().get(key, prototype, byte_range)
    # Zarr would take a chunk that is not there as one of fill values.
    if data is None and "/c/" in key:
      raise Damage(self.path, f"{key} is missing")
    return data

  async def set(self, key, value):
    with wrap_io_errors(self.path / key):
      await super().set(key, value)

  def __str__(self) -> str:
    return str(self.path)


def open_store(path: Place, root: Description) -> MetadataStore:
  """Open the store of a results folder, for Zarr and xarray."""
  if is_remote(path):
    # Without the wrapper, Zarr would make a second, asynchronous file system, whose
    # connections nobody closes.
    files = AsyncFileSystemWrapper(path.fs, asynchronous=True)
    store: Store = FsspecStore(files, path=path.path)
  else:
    # Absolute, so that it is found where a program changes its working folder.
    store = LocalStore(path.absolute())
  return MetadataStore(store, path, zarr_json(root).encode())


def open_arrays(path: Place, root: Description) -> dict[str, zarr.Array]:
  """Return Zarr's arrays of a folder with this description, by name."""
  # Zarr does not write chunks of fill values by default, and here an absent chunk counts
  # as lost.
  with zarr.config.set({"array.write_empty_chunks": True}):
    group = zarr.open_group(open_store(path, root), mode="r+", zarr_format=3)
    return {name: group[name] for name in large_arrays(root)}


class _Reader(ZarrArrayWrapper):
  """A large array as xarray reads it, at whatever time: what cannot be read is damage."""

  __slots__ = ("path",)

  def __init__(self, values: zarr.Array, path: Place):
    super().__init__(values)
    self.path = path

  def __getitem__(self, key):
    with wrap_zarr_errors(self.path):
      return super().__getitem__(key)

  async def async_getitem(self, key):
    with wrap_zarr_errors(self.path):
      return await super().async_getitem(key)


def as_variables(
  path: Place, root: Description, arrays: Mapping[str, zarr.Array]
) -> dict[str, xr.Variable]:
  """Return large arrays of a folder, by name, as variables that are read when they are
  used. Whoever reads values that cannot be read gets a `Damage`.
  """
  variables = {}
  for name, values in arrays.items():
    entry = root["arrays"][name]
    dimensions = entry["dimensions"]
    # A computation in parts, as of dask, reads each block once.
    encoding = {"preferred_chunks": dict(zip(dimensions, values.chunks, strict=True))}
    # As `xarray.open_dataset` does: read once, and a write changes what was read.
    # `Any`, because xarray's types do not let its own arrays be nested.
    lazy: Any = LazilyIndexedArray(_Reader(values, path))
    cached = MemoryCachedArray(CopyOnWriteArray(lazy))
    variables[name] = xr.Variable(dimensions, cached, entry["attributes"], encoding)
  return variables
