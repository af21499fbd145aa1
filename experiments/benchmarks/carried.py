"""What travels to a borrowed machine and back: images, the commit, and one archive of
results.
"""

import io
import json
import os
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import vmapseeds as vs
from vmapseeds import machine
from vmapseeds.errors import UserError

ROOT = Path(__file__).parents[2]
# Beside the packages, for a copy of the source without its `.git`
COMMIT_FILE = ".commit"
COMMIT_COMMAND = f"git describe --always --dirty --abbrev=40 > {COMMIT_FILE}"
DECODED = ("x_train", "y_train", "x_test", "y_test")
ENCODED = tuple(
  f"{split}_{part}"
  for split in ("train", "test")
  for part in ("bytes", "offsets", "labels")
)


def commit_of_source(root: Path = ROOT) -> str:
  """Return the commit of this source: git's answer, else the text of the file `.commit`,
  else `unknown`.
  """
  file = root / COMMIT_FILE
  commit = machine.commit()
  if not commit and file.exists():
    commit = file.read_text("utf-8").strip()
  return commit or "unknown"


# Images.


def read_images(path: Path) -> vs.Dataset:
  """Return the images and labels of an .npz, decoded if need be.

  Args:
    path: an .npz with `x_train`, `y_train`, `x_test` and `y_test`, or one whose images
      are JPEG files, which takes a tenth of the bytes: `train_bytes` (uint8), one file
      after another; `train_offsets` (images + 1,), where each begins and the last ends;
      `train_labels`; and the same of `test`.

  Raises:
    UserError: the file is absent, or has other arrays.
  """
  if not path.is_file():
    raise UserError(f"--data {path} is not there: give an .npz of images and labels")
  with np.load(path) as file:
    names = set(file.files)
    if names.issuperset(DECODED):
      pairs = {s: (file[f"x_{s}"], file[f"y_{s}"]) for s in ("train", "test")}
    elif names.issuperset(ENCODED):
      pairs = {
        s: (
          decode(file[f"{s}_bytes"], file[f"{s}_offsets"]),
          file[f"{s}_labels"].astype(np.int64),
        )
        for s in ("train", "test")
      }
    else:
      raise UserError(
        f"--data {path} has {', '.join(sorted(names))}: give {', '.join(DECODED)}, or "
        f"{', '.join(ENCODED)}"
      )
  return vs.Dataset(train=pairs["train"], test=pairs["test"])


def decode(files: np.ndarray, offsets: np.ndarray) -> np.ndarray:
  """Return the images uint8 (n, height, width, 3) of JPEG files that lie one after
  another.

  Args:
    files: the bytes of all files, uint8.
    offsets: (n + 1,), where each file begins and the last ends.
  """
  from PIL import Image

  def image(span):
    first, last = span
    with Image.open(io.BytesIO(files[first:last].tobytes())) as opened:
      return np.asarray(opened.convert("RGB"))

  # Pillow decodes without Python's lock.
  with ThreadPoolExecutor() as threads:
    spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return np.stack([*threads.map(image, spans)])


# Results.


class Archive:
  """Results in one zip file, which is replaced as a whole at each change. So whatever
  stops the program leaves a file that can be read. One process at a time may write.
  """

  def __init__(self, path: Path):
    self.path = path
    self.members = self._stored()

  def _stored(self) -> dict[str, bytes]:
    if not self.path.exists():
      return {}
    with zipfile.ZipFile(self.path) as file:
      return {name: file.read(name) for name in file.namelist()}

  def write(self, name: str, content: bytes | None) -> None:
    """Add a member, or replace it; None removes it."""
    self.members = self._stored()  # another process may have written meanwhile
    self.members.pop(name, None)
    if content is not None:
      self.members[name] = content
    draft = self.path.with_name(f"{self.path.name}.part")
    with zipfile.ZipFile(draft, "w") as file:
      for member, kept in sorted(self.members.items()):
        kind = zipfile.ZIP_DEFLATED
        if member.endswith(".npz"):  # NumPy has compressed it
          kind = zipfile.ZIP_STORED
        file.writestr(member, kept, compress_type=kind)
    os.replace(draft, self.path)

  def read_json(self, name: str) -> dict[str, Any]:
    """Return a member's object; empty if there is no such member."""
    return json.loads(self.members.get(name, b"{}"))

  def write_json(self, name: str, record: Mapping[str, Any]) -> None:
    self.write(name, (json.dumps(record, default=float) + "\n").encode())

  def read_arrays(self, name: str) -> dict[str, np.ndarray]:
    """Return a member's arrays; empty if there is no such member."""
    if name not in self.members:
      return {}
    with np.load(io.BytesIO(self.members[name])) as file:
      return {array: file[array] for array in file.files}

  def write_arrays(self, name: str, **arrays: Any) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    self.write(name, buffer.getvalue())


class Item:
  """The rows of one item of a part, kept in the archive as they come.

  Args:
    archive: the results.
    name: such as `training-4`.
    where: device, versions, date and commit, for each row.
  """

  def __init__(self, archive: Archive, name: str, where: Mapping[str, Any]):
    self.archive, self.name, self.where = archive, name, dict(where)
    record = archive.read_json(f"{name}.json")
    self.rows: list[dict] = record.get("rows", [])
    self.done: bool = record.get("done", False)

  def add(self, row: dict[str, Any]) -> None:
    self.rows.append(row | self.where)
    self._write()

  def finish(self, row: dict[str, Any] | None = None) -> None:
    """Note that nothing is left to do, after adding the last row if there is one."""
    if row is not None:
      self.rows.append(row | self.where)
    self.done = True
    self._write()

  def _write(self):
    record = {"rows": self.rows, "done": self.done}
    self.archive.write_json(f"{self.name}.json", record)
