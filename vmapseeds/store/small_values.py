"""The values of runs that are too small for objects of their own, such as accuracies:
they stand in the records of their blocks, and in one file for all blocks together.
"""

import base64
import re
from collections.abc import Collection, Mapping

import numpy as np
from jaxtyping import Shaped

from vmapseeds.store.archives import WHOLE_FILE, ArrayForm, read_archive, write_archive
from vmapseeds.store.claims import BLOCKS
from vmapseeds.store.files import Place
from vmapseeds.store.layout import (
  FILL,
  OTHERS,
  Damage,
  Description,
  blocks_of,
  digest,
  first_dimension,
  small_arrays,
)

# So many records are read in the time of one, with requests side by side: for fewer,
# nobody looks whether there is a file of all.
FEW_BLOCKS = 16
GATHERED = re.compile(r"values_(\d{1,9})\.npz")


def gathered_file(blocks: int) -> str:
  """Return the file with the small values of the first blocks, in a results folder."""
  return f"{BLOCKS}/values_{blocks}.npz"


def most_gathered(files: Collection[str], most: int) -> int:
  """Return of how many blocks the values are in one file, of the files in the folder of
  blocks; 0 without any, and at most `most`.
  """
  counts = []
  for name in files:
    match = GATHERED.fullmatch(name)
    if match:
      counts.append(int(match[1]))
  return max((count for count in counts if count <= most), default=0)


def encode_values(values: np.ndarray) -> str:
  """Return values as text, as records hold them."""
  return base64.b64encode(values.tobytes()).decode()


class SmallValues:
  """The small values of a folder's runs, in their order, and of its blocks. Those of a
  block are read when they are asked for.

  Args:
    path: the results folder.
    root: its description.
  """

  def __init__(self, path: Place, root: Description):
    self.path = path
    self.blocks = blocks_of(root)
    self.entries = {name: root["arrays"][name] for name in small_arrays(root)}
    self.known = np.zeros(len(self.blocks), bool)  # of which blocks the values are here
    self.arrays = {}
    for name, form in self._forms(len(self.blocks)).items():
      self.arrays[name] = np.full(form.shape, FILL[form.dtype.kind], form.dtype)

  def _forms(self, blocks):
    """Return the forms of the arrays of the first blocks."""
    lengths = {"run": self.blocks[blocks - 1].stop, "block": blocks}
    forms = {}
    for name, entry in self.entries.items():
      length = lengths[first_dimension(entry)]
      forms[name] = ArrayForm(np.dtype(entry["dtype"]), (length, *entry["shape"]))
    return forms

  def keep(self, block: int, values: Mapping[str, np.ndarray]) -> None:
    """Keep a block's values where they need not be read again."""
    for name, array in self.arrays.items():
      array[self._rows_of(name, block)] = values[name]
    self.known[block] = True

  def _rows_of(self, name, block):
    """Return where an array has a block's values: of counts, in one row."""
    if first_dimension(self.entries[name]) == "block":
      return block
    runs = self.blocks[block]
    return slice(runs.start, runs.stop)

  def of_record(
    self, block: int, record: Description
  ) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return the values of a block, by name, as its record has them.

    Raises:
      Damage: it has others than the folder's.
    """
    values = {}
    for name, array in self.arrays.items():
      shape = array[self._rows_of(name, block)].shape
      try:
        data = base64.b64decode(record["values"][name], validate=True)
        values[name] = np.frombuffer(data, array.dtype).reshape(shape)
      except (LookupError, TypeError, ValueError) as error:
        fault = f"{BLOCKS}/{block}.json has no values of {name} ({error!s:.80})"
        raise Damage(self.path, fault) from None
    return values

  def read_gathered(self, blocks: int) -> None:
    """Read the values of the first blocks from their file, with one request. A file that
    cannot be read is as none: the records are what counts.
    """
    arrays, faults = read_archive(
      self.path / gathered_file(blocks), self._forms(blocks)
    )
    if faults:
      return
    for name, values in arrays.items():
      self.arrays[name][: len(values)] = values
    self.known[:blocks] = True

  def write_gathered(self) -> None:
    """Write the values of all blocks, which are known, into one file."""
    # Not flushed: it is ignored where a power failure has damaged it.
    file = self.path / gathered_file(len(self.blocks))
    write_archive(file, self.arrays, flush_file=False)

  def gathered_fault(self, blocks: int) -> str | None:
    """Return what is wrong with the file of the first blocks, None if it has the values
    that are known from records.
    """
    forms = self._forms(blocks)
    arrays, faults = read_archive(self.path / gathered_file(blocks), forms)
    if faults:
      return faults.get(WHOLE_FILE, OTHERS)
    for block in np.flatnonzero(self.known[:blocks]).tolist():
      for name, values in arrays.items():
        rows = self._rows_of(name, block)
        if digest(values[rows]) != digest(self.arrays[name][rows]):
          return OTHERS
    return None
