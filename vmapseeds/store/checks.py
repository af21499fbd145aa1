"""What a results folder must be like before anything in it is used: folders come from other machines.

Arrays hold numbers, so nothing is unpickled. The folder does not choose how they are encoded: of its metadata the
description alone is read, see `layout`. Links are refused, which lead out of the folder. Memory is asked for before it
is taken. Whatever else is wrong with a folder is damage, which signatures, checksums and digests show.
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


def check_memory(root: dict[str, Any]) -> None:
  """`Mistake` where a described folder has a block, or a runs table, that is larger than the memory that is free."""
  arrays, memory = root["arrays"], free_host_memory()
  bytes_of = {name: math.prod(a["shape"]) * np.dtype(a["dtype"]).itemsize for name, a in arrays.items()}
  for name, array in arrays.items():
    if bytes_of[name] * (root["block_runs"] if array["dimensions"][:1] == ["run"] else 1) > memory:
      said = f"has {name} of {array['shape']} in blocks of {root['block_runs']} runs"
      raise Mistake(f"{said}: larger than free memory")
  if root["runs"] * sum(bytes_of[name] for name in root["columns"]) > memory:
    raise Mistake("has a runs table that is larger than free memory")


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
