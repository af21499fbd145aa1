"""What a results folder must be like before anything in it is used: folders come from anywhere.

All that is guarded against is here. Arrays hold numbers, so nothing is unpickled. The folder does not choose how they
are encoded, so it cannot choose a codec to run: of its metadata the description alone is read, see `layout`. Names and
files stay inside the folder: links are refused. Sizes are bounded before memory is taken for them. Whatever else is
wrong with a folder is damage, which signatures, checksums and digests show.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from upath import UPath

from vmapseeds.machine import free_host_memory
from vmapseeds.mistakes import Mistake
from vmapseeds.store.files import is_remote

TYPES = (
  "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
RESERVED = ("blocks", "checkpoints", "report", "zarr.json")
MOST_RUNS = 10**7
MOST_BLOCKS = 10**6
MOST_LETTERS = 200  # of a name
MOST = 2**40  # of a dimension


def check(root: dict[str, Any]) -> None:
  """`Mistake` unless a description is of arrays within these bounds. See `layout` for what it holds."""
  arrays, runs, block = root["arrays"], root["runs"], root["block_runs"]
  if not (_count(runs, MOST_RUNS) and _count(block, MOST_RUNS) and runs <= MOST_BLOCKS * block):
    raise Mistake(f"has {runs!r:.50} runs in blocks of {block!r:.50}: too many, or no number")
  sizes: dict[str, int] = {}
  memory = free_host_memory()
  for name, array in arrays.items():
    parts = name.split("/")
    group = parts[:-1]
    inside = {"/".join(parts[:i]) for i in range(1, len(parts))}
    if not all(map(_name, parts)) or len(parts) > 2 or parts[0] in RESERVED or inside & {*arrays}:
      raise Mistake(f"has an array {name!r:.100}, which cannot be the name of one")
    if array["dtype"] not in TYPES:
      raise Mistake(f"has {name} of {array['dtype']!r:.50}: no numbers")
    shape, dimensions = array["shape"], array["dimensions"]
    of_runs = dimensions[:1] in (["run"], ["write"])
    if not isinstance(shape, list) or not isinstance(dimensions, list) or not all(map(_name, dimensions)) \
      or not all(_count(n, MOST) for n in shape) or len({*dimensions}) < len(dimensions) \
      or len(shape) + of_runs != len(dimensions):  # fmt: skip
      raise Mistake(f"has {name} of {shape!r:.100} in {dimensions!r:.100}: no shape")
    if not of_runs and not isinstance(root["digests"][name], str):
      raise Mistake(f"has no digest of {name}")
    if math.prod(shape) * np.dtype(array["dtype"]).itemsize * (block if dimensions[:1] == ["run"] else 1) > memory:
      raise Mistake(f"has {name} of {shape} in blocks of {block} runs: larger than free memory")
    for dimension, n in zip(dimensions[of_runs:], shape, strict=True):
      if sizes.setdefault("/".join([*group, dimension]), n) != n:
        raise Mistake(f"has {name} with {n} of {dimension}, and another array with other many")
  columns = [arrays[name] for name in root["columns"]]
  if any(column["dimensions"][:1] != ["run"] for column in columns):
    raise Mistake("has a column that is not of runs")
  if runs * sum(math.prod(c["shape"]) * np.dtype(c["dtype"]).itemsize for c in columns) > memory:
    raise Mistake("has a runs table that is larger than free memory")


def _name(value: Any) -> bool:
  return (
    isinstance(value, str) and 0 < len(value) <= MOST_LETTERS and value.isprintable() and not value.startswith(".")
    and not {*value} & {*"/\\"}
  )  # fmt: skip


def _count(value: Any, most: int) -> bool:
  return type(value) is int and 1 <= value <= most


def strays(folder: Path | UPath) -> Iterator[str]:
  """What is neither file nor folder in a results folder, at any depth: links lead elsewhere, pipes wait for ever."""
  folders = [] if is_remote(folder) else [""]  # a store has objects alone
  while folders:
    inside = folders.pop()
    try:
      with os.scandir(str(folder / inside)) as entries:
        for entry in entries:
          name = f"{inside}{entry.name}"
          if entry.is_dir(follow_symlinks=False):
            folders.append(f"{name}/")
          elif not entry.is_file(follow_symlinks=False):
            yield f"{name} is {'a link' if entry.is_symlink() else 'a pipe or a device'}"
          elif name == "blocks":
            yield f"{name} is a file"
    except FileNotFoundError:
      pass  # another process has removed it
    except OSError as error:
      yield f"{inside or folder} cannot be read ({error.strerror})"
