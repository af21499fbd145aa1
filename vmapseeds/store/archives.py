"""Several arrays in one `.npz` file of a results folder, written at once."""

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from vmapseeds.machine import free_host_memory
from vmapseeds.store.files import Place, read, replace, short_message, wrap_io_errors
from vmapseeds.store.layout import NOT_AS_WRITTEN, OTHERS

# What NumPy and zipfile raise for bytes that they cannot read
UNREADABLE = (*NOT_AS_WRITTEN, EOFError, MemoryError, struct.error, zipfile.BadZipFile)
WHOLE_FILE = ""  # the name for a fault of a whole file


class ArrayForm(NamedTuple):
  """What an array of a file is like. In the file, axes may be longer: a process that was
  to add runs may have ended before it changed the description.
  """

  dtype: np.dtype
  shape: tuple[int, ...]


def write_archive(
  file: Place, arrays: Mapping[str, np.ndarray], *, flush_file: bool
) -> None:
  """Write arrays by their names, atomically. Equal arrays make equal bytes.

  Whoever relies on the file's name after a power failure flushes its folder.
  """
  buffer = io.BytesIO()
  with zipfile.ZipFile(buffer, "w") as archive:
    for name, values in arrays.items():
      # `numpy.savez` has arguments of its own, whose names no array could have.
      with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
        np.lib.format.write_array(stream, values, allow_pickle=False)
  replace(file, buffer.getvalue(), flush_file=flush_file, flush_folder=False)


def read_archive(
  file: Place, forms: Mapping[str, ArrayForm]
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
  """Return those arrays of a file that can be read, and what is wrong with the others.
  A fault of the whole file has the name `WHOLE`.
  """
  try:
    with wrap_io_errors(file, reading=True):
      data = read(file, most=free_host_memory())
    if data is None:
      return {}, {WHOLE_FILE: "is missing"}
    archive = zipfile.ZipFile(io.BytesIO(data))
    # Arrays are not compressed here, so none is larger than the file.
    if sum(member.file_size for member in archive.infolist()) > len(data):
      raise ValueError("it is compressed")
  except UNREADABLE as error:
    return {}, {WHOLE_FILE: f"cannot be read ({short_message(error)})"}

  arrays: dict[str, np.ndarray] = {}
  faults: dict[str, str] = {}
  for name, form in forms.items():
    try:
      with archive.open(f"{name}.npy") as stream:
        values = np.lib.format.read_array(stream, allow_pickle=False)
    except UNREADABLE as error:
      faults[name] = f"cannot be read ({short_message(error)})"
      continue
    if form.shape and values.ndim == len(form.shape):
      values = values[tuple(map(slice, form.shape))]
    if (values.dtype, values.shape) == form:
      values.flags.writeable = False  # many may share it
      arrays[name] = values
    else:
      faults[name] = OTHERS
  return arrays, faults
