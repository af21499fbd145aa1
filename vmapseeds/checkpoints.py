"""What runs in training have learned, saved between epochs, so that long trainings go on in the middle.

In a results folder, beside its arrays, `checkpoints/<first row>-<last row>/<epochs>` holds the states of the runs of a
seed batch after so many epochs, written by orbax: there whole or not at all. With them lie the rows, what the states
depend on and a digest. A checkpoint that differs in any of these is not used.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jaxtyping import Int, PyTree

from vmapseeds.runs import Run

FOLDER = "checkpoints"


class Checkpoints:
  """The checkpoints of runs that are trained together: a `lanes.Keeper`.

  Args:
    path: the results folder.
    rows: which runs.
    table: these runs, as lanes take them.
    every: epochs between two savings.
    fits: what the states depend on besides: recipe, conditions, versions.
  """

  def __init__(
    self, path: str | os.PathLike, rows: Int[np.ndarray, " rows"], table: Run, every: int, *, fits: dict[str, Any]
  ):
    self.rows, self.every = rows.tolist(), every
    self.place = Path(path).absolute() / FOLDER / f"{rows[0]}-{rows[-1]}"
    key = {"rows": self.rows, "runs": _digest(jax.tree.leaves(table)), **fits}
    self._key = json.loads(json.dumps(key))  # as it is read back

  def load(self, like: PyTree[jax.ShapeDtypeStruct]) -> tuple[int, PyTree[np.ndarray]] | None:
    """The runs' newest checkpoint. What is there of them and does not fit is removed."""
    found = None
    for other in sorted(_subfolders(self.place.parent, r"\d+-\d+")):
      # Newest first: when the last saving was interrupted, that before it is still there.
      saved = sorted(_subfolders(other, r"\d+"), key=lambda folder: -int(folder.name))
      abouts = [_about(folder) for folder in saved]
      if other == self.place:
        for folder, about in zip(saved, abouts, strict=True):
          found = found or self._read(folder, about, like)
      # Nobody else trains our runs, so a checkpoint of some of them, and others, is of no use to anyone.
      elif any(about and set(self.rows) & set(about["rows"]) for about in abouts):
        _ignored(saved[0], f"it is of other runs than {self._span()} together")
        _remove(other)
    if not found:
      _remove(self.place)
    return found

  def save(self, rounds: int, state: PyTree[np.ndarray]) -> None:
    """Saves the runs' states after so many epochs, in place of the checkpoint before."""
    leaves = jax.tree.leaves(state)
    about = {**self._key, "epochs": rounds, "digest": _digest(leaves)}
    items = {name: ocp.args.StandardSave({"values": leaf}) for name, leaf in _numbered(leaves).items()}
    items["about"] = ocp.args.JsonSave(about)
    try:
      self.place.mkdir(parents=True, exist_ok=True)
      with _checkpointer() as checkpointer:
        checkpointer.save(self.place / str(rounds), args=ocp.args.Composite(**items), force=True)
    except Exception as error:  # of the file system, in whatever form orbax hands it on
      # The training loses nothing by it; when the disk is still full at the end, the results will say so.
      said = " ".join(str(error).split())[:120] or type(error).__name__
      print(f"no checkpoint of {self._span()} after epoch {rounds}: {said}", file=sys.stderr)
      return
    for folder in self.place.iterdir():
      if folder.name != str(rounds):
        _remove(folder)

  def remove(self) -> None:
    """Removes the checkpoints of these runs: their results are written."""
    _remove(self.place)
    with contextlib.suppress(OSError):
      self.place.parent.rmdir()

  def _span(self) -> str:
    return f"runs {self.rows[0]} to {self.rows[-1]}"

  def _read(
    self, folder: Path, about: dict[str, Any] | None, like: PyTree[jax.ShapeDtypeStruct]
  ) -> tuple[int, PyTree[np.ndarray]] | None:
    """A checkpoint's epochs and states; None, said in a line, where it does not fit."""
    if about is None:
      return _ignored(folder, "it cannot be read")
    for name, value in self._key.items():
      if about.get(name) != value:
        return _ignored(folder, f"it is of other {name.replace('_', ' ')}")
    leaves, structure = jax.tree.flatten(like)
    empty = _numbered([{"values": np.empty(leaf.shape, leaf.dtype)} for leaf in leaves])
    items = {name: ocp.args.StandardRestore(leaf) for name, leaf in empty.items()}
    try:
      with _checkpointer() as checkpointer:
        restored = checkpointer.restore(folder, args=ocp.args.Composite(**items))
    except Exception:  # a torn file ends in errors of many kinds
      return _ignored(folder, "it cannot be read")
    states = [restored[name]["values"] for name in empty]
    if about.get("digest") != _digest(states) or about.get("epochs") != int(folder.name):
      return _ignored(folder, "it is not as it was written")
    return about["epochs"], jax.tree.unflatten(structure, states)


def clear(results: Any) -> None:
  """Removes all checkpoints of a results folder in which every run is done."""
  folder = Path(results.path) / FOLDER
  if folder.is_dir() and results.done.all():
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


def _numbered(leaves: list[Any]) -> dict[str, Any]:
  """Leaves by numbers: names that any state has.

  Each is an item of its own: orbax reads items in turn, the leaves of one at once, and when one of several reads fails
  the others go on in an event loop that is closed.
  """
  return {f"leaf_{i}": leaf for i, leaf in enumerate(leaves)}


def _digest(leaves: list[np.ndarray]) -> str:
  fingerprint = hashlib.blake2b(digest_size=16)
  for leaf in leaves:
    fingerprint.update(f"{leaf.dtype}{leaf.shape}".encode())
    fingerprint.update(np.ascontiguousarray(leaf))
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
