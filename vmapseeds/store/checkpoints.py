"""What runs in training have learned, saved between epochs, so that long trainings go on in the middle.

In a results folder, beside its arrays, `checkpoints/<first row>-<last row>/<epochs>` holds the states of the runs of a
seed batch after so many epochs, written by orbax: there whole or not at all. With them lie the rows, what the states
depend on and a digest. A checkpoint that differs in any of these is not used.

In a results folder behind a URL a checkpoint is one object, `<epochs>.zip`, because an object is put whole or not at
all; orbax writes and reads it in a folder of temporary files.
"""

import contextlib
import hashlib
import json
import math
import re
import shutil
import sys
import tempfile
import weakref
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jaxtyping import Int, PyTree, Shaped, UInt8

from vmapseeds.store.files import Folder, is_remote, names, place, reached, said
from vmapseeds.store.files import remove as remove_file

FOLDER = "checkpoints"
ARCHIVE = r"(\d+)-(\d+)/\d+\.zip"


class Checkpoints:
  """The checkpoints of runs that are trained together: a `lanes.Keeper`.

  Args:
    path: the results folder.
    rows: which runs.
    table: these runs, as lanes take them.
    every: epochs between two savings.
    fits: what the states depend on besides: recipe, conditions, versions.
    reached: is told after how many epochs the runs are, and whether that is where they go on.
  """

  def __init__(
    self, path: Folder, rows: Int[np.ndarray, " rows"], table: PyTree[Shaped[np.ndarray, "rows ..."]],
    every: int, *, fits: dict[str, Any], reached: Callable[[int, bool], None] = lambda epochs, resumed: None,
  ):  # fmt: skip
    self.rows, self.every, self._reached = rows.tolist(), every, reached
    here = place(path)
    self._store, self._stored = here / FOLDER if is_remote(here) else None, set[str]()
    if is_remote(here):
      here = Path(tempfile.mkdtemp(prefix="vmapseeds-"))
      weakref.finalize(self, _remove, here)
    self.place = here.absolute() / FOLDER / f"{rows[0]}-{rows[-1]}"
    key = {"rows": self.rows, "runs": _digest(jax.tree.leaves(table)), **fits}
    self._key = json.loads(json.dumps(key))  # as it is read back

  def load(self, like: PyTree[jax.ShapeDtypeStruct]) -> tuple[int, PyTree[np.ndarray]] | None:
    """The runs' newest checkpoint. One of these runs that does not fit is removed."""
    self._fetch()
    found = None
    for other in sorted(_subfolders(self.place.parent, r"\d+-\d+")):
      # Newest first: when the last saving was interrupted, that before it is still there.
      saved = sorted(_subfolders(other, r"\d+"), key=lambda folder: -int(folder.name))
      abouts = [_about(folder) for folder in saved]
      if other == self.place:
        for folder, about in zip(saved, abouts, strict=True):
          found = found or self._read(folder, about, like)
      # Nobody else trains our runs, so nobody can use a checkpoint of some of them with others.
      elif any(about and set(self.rows) & set(about["rows"]) for about in abouts):
        _ignored(saved[0], f"it is of other runs than {self._span()} together")
        _remove(other)
    if found:
      self._reached(found[0], True)
    else:
      _remove(self.place)
    self._send()
    return found

  def save(self, rounds: int, state: PyTree[np.ndarray]) -> None:
    """Saves the runs' states after so many epochs, in place of the checkpoint before."""
    self._reached(rounds, False)
    leaves = jax.tree.leaves(state)
    about = {**self._key, "epochs": rounds, "digest": _digest(leaves)}
    items = {"states": ocp.args.StandardSave({"bytes": _packed(leaves)}), "about": ocp.args.JsonSave(about)}
    try:
      self.place.mkdir(parents=True, exist_ok=True)
      with _checkpointer() as checkpointer:
        checkpointer.save(self.place / str(rounds), args=ocp.args.Composite(**items), force=True)
      for folder in self.place.iterdir():
        if folder.name != str(rounds):
          _remove(folder)
      self._send()
    except Exception as error:  # of the file system, in whatever form orbax hands it on
      # The training loses nothing by it; when the disk is still full at the end, the results will say so.
      print(f"no checkpoint of {self._span()} after epoch {rounds}: {said(error)}", file=sys.stderr)

  def remove(self) -> None:
    """Removes the checkpoints of these runs: their results are written."""
    _remove(self.place)
    with contextlib.suppress(OSError):
      self.place.parent.rmdir()
    self._send()

  def _fetch(self) -> None:
    """Gets from a store the checkpoints of rows between our first and last."""
    if not self._store:
      return
    for name in names(self._store):
      if (found := re.fullmatch(ARCHIVE, name)) and int(found[1]) <= self.rows[-1] and int(found[2]) >= self.rows[0]:
        self._stored.add(name)
        archive, folder = self.place.parent / "archive", self.place.parent / name.removesuffix(".zip")
        folder.mkdir(parents=True, exist_ok=True)
        with reached(self._store), contextlib.suppress(FileNotFoundError, zipfile.BadZipFile):
          self._store.fs.get_file((self._store / name).path, str(archive))
          with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)

  def _send(self) -> None:
    """Puts what is new here into the store, then removes there what was removed here."""
    if not self._store:
      return
    spans = _subfolders(self.place.parent, r"\d+-\d+")
    here = {f"{span.name}/{folder.name}.zip" for span in spans for folder in _subfolders(span, r"\d+")}
    for name in here - self._stored:
      archive, folder = self.place.parent / "archive", self.place.parent / name.removesuffix(".zip")
      with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(names(folder)):
          opened.write(folder / file, file)
      with reached(self._store):
        self._store.fs.put_file(str(archive), (self._store / name).path)
    for name in self._stored - here:
      remove_file(self._store / name)
    self._stored = here

  def _span(self) -> str:
    return f"runs {self.rows[0]} to {self.rows[-1]}"

  def _read(
    self, folder: Path, about: dict[str, Any] | None, like: PyTree[jax.ShapeDtypeStruct]
  ) -> tuple[int, PyTree[np.ndarray]] | None:
    """A checkpoint's epochs and states; None, said in a line, where it does not fit."""
    if about is None:
      _ignored(folder, "it cannot be read")
      return None
    for name, value in self._key.items():
      if about.get(name) != value:
        return _ignored(folder, f"it is of other {name.replace('_', ' ')}")
    leaves, structure = jax.tree.flatten(like)
    # Of no memory until orbax fills them.
    empty = {"bytes": np.empty((len(self.rows), sum(map(_size, leaves))), np.uint8)}
    try:
      with _checkpointer() as checkpointer:
        restored = checkpointer.restore(folder, args=ocp.args.Composite(states=ocp.args.StandardRestore(empty)))
    except Exception:  # a torn file ends in errors of many kinds
      return _ignored(folder, "it cannot be read")
    states = _unpacked(restored.states["bytes"], leaves)
    if about.get("digest") != _digest(states) or about.get("epochs") != int(folder.name):
      return _ignored(folder, "it is not as it was written")
    return about["epochs"], jax.tree.unflatten(structure, states)


def clear(results: Any) -> None:
  """Removes all checkpoints of a results folder in which every run is done."""
  folder = results.path / FOLDER
  if is_remote(folder):
    saved = [name for name in names(folder) if re.fullmatch(ARCHIVE, name)]
    for name in saved if saved and results.done.all() else ():
      remove_file(folder / name)
  elif folder.is_dir() and results.done.all():
    for place in _subfolders(folder, r"\d+-\d+"):
      _remove(place)
    with contextlib.suppress(OSError):
      folder.rmdir()


def _checkpointer() -> ocp.Checkpointer:
  return ocp.Checkpointer(ocp.CompositeCheckpointHandler())


def _about(folder: Path) -> dict[str, Any] | None:
  """What a checkpoint says it is of, None where that cannot be read."""
  try:
    with _checkpointer() as checkpointer:
      about = checkpointer.restore(folder, args=ocp.args.Composite(about=ocp.args.JsonRestore())).about
    set(about["rows"])  # it must be something that has rows
    return about
  except Exception:  # a torn file ends in errors of many kinds
    return None


def _packed(leaves: list[np.ndarray]) -> UInt8[np.ndarray, "runs bytes"]:
  """The leaves, their first axis the run, side by side.

  They are one array because an orbax item costs milliseconds whatever its size, and because when one of several arrays
  of an item cannot be read, the others go on in an event loop that is closed.
  """
  return np.concatenate([np.ascontiguousarray(a).reshape(len(a), -1).view(np.uint8) for a in leaves], axis=1)


def _unpacked(packed: UInt8[np.ndarray, "runs bytes"], like: list[jax.ShapeDtypeStruct]) -> list[np.ndarray]:
  """The leaves that were packed."""
  parts = np.split(packed, np.cumsum([_size(leaf) for leaf in like])[:-1], axis=1)
  return [np.ascontiguousarray(p).view(leaf.dtype).reshape(leaf.shape) for p, leaf in zip(parts, like, strict=True)]


def _size(leaf: jax.ShapeDtypeStruct) -> int:
  """How many bytes a run has there."""
  return math.prod(leaf.shape[1:]) * leaf.dtype.itemsize


def _digest(leaves: list[np.ndarray]) -> str:
  fingerprint = hashlib.blake2b(digest_size=16)
  for leaf in leaves:
    fingerprint.update(f"{leaf.dtype}{leaf.shape}".encode())
    fingerprint.update(np.ascontiguousarray(leaf).data)
  return fingerprint.hexdigest()


def _subfolders(folder: Path, name: str) -> list[Path]:
  """The folders in another that are named so, links left out; none where there is no such folder."""
  if not folder.is_dir() or folder.is_symlink():
    return []
  return [f for f in folder.iterdir() if re.fullmatch(name, f.name) and f.is_dir() and not f.is_symlink()]


def _remove(folder: Path) -> None:
  shutil.rmtree(folder, ignore_errors=True)


def _ignored(folder: Path, why: str) -> None:
  print(f"the checkpoint {folder.parent.name}/{folder.name} is ignored: {why}", file=sys.stderr)
