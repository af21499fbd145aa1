"""What runs in training have learned, saved between epochs, so that long trainings go on in the middle.

In a results folder, beside its arrays, the file `checkpoints/<first row>-<last row>/<epochs>` holds the states of the
runs of a seed batch after so many epochs: a line of JSON, and then the bytes of the states' arrays. It is put there
whole or not at all. The line has the rows, what the states depend on and a digest of the bytes. A checkpoint that
differs in any of these is not used.
"""

import contextlib
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PyTree, Shaped
from upath import UPath

from vmapseeds.store.files import Folder, is_remote, names, parse, place, read, remove, replace, said
from vmapseeds.store.layout import digest

FOLDER = "checkpoints"


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
    every: int, *, fits: dict[str, Any], reached: Callable[[int, bool], None],
  ):  # fmt: skip
    self.rows, self.every, self._reached = rows.tolist(), every, reached
    self.place = place(path) / FOLDER / f"{rows[0]}-{rows[-1]}"
    runs = [(str(a.dtype), a.shape, digest(a)) for a in jax.tree.leaves(table)]
    self._key = json.loads(json.dumps({"rows": self.rows, "runs": runs, **fits}))  # as it is read back

  def load(self, like: PyTree[jax.ShapeDtypeStruct]) -> tuple[int, PyTree[np.ndarray]] | None:
    """The runs' newest checkpoint. One of these runs that does not fit is removed."""
    found = None
    # Newest first: when the last saving was interrupted, that before it is still there.
    for epochs, first, last in sorted(_saved(self.place.parent), reverse=True):
      file = self.place.parent / f"{first}-{last}" / str(epochs)
      if file.parent == self.place:
        found = found or self._read(file, like)
      elif first > self.rows[-1] or last < self.rows[0]:
        continue
      # Nobody else trains our runs, so nobody can use a checkpoint of some of them with others.
      elif (stored := _opened(file)) and set(self.rows) & set(stored[0]["rows"]):
        _ignored(file, f"it is of other runs than {self._span()} together")
        _remove(file.parent)
    if found:
      self._reached(found[0], True)
    else:
      self.remove()
    return found

  def save(self, rounds: int, state: PyTree[np.ndarray]) -> None:
    """Saves the runs' states after so many epochs, in place of the checkpoint before."""
    self._reached(rounds, False)
    arrays = [np.ascontiguousarray(leaf).reshape(-1).view(np.uint8) for leaf in jax.tree.leaves(state)]
    about = json.dumps({**self._key, "epochs": rounds, "digest": digest(*arrays)}).encode()
    try:
      replace(self.place / str(rounds), b"".join([about, b"\n", *(array.data for array in arrays)]))
      _remove(self.place, but=str(rounds))
    except Exception as error:  # of the file system or of a store, in whatever form
      # The training loses nothing by it; when the disk is still full at the end, the results will say so.
      print(f"no checkpoint of {self._span()} after epoch {rounds}: {said(error)}", file=sys.stderr)

  def remove(self) -> None:
    """Removes the checkpoints of these runs: their results are written."""
    _remove(self.place)

  def _span(self) -> str:
    return f"runs {self.rows[0]} to {self.rows[-1]}"

  def _read(self, file: Path | UPath, like: PyTree[jax.ShapeDtypeStruct]) -> tuple[int, PyTree[np.ndarray]] | None:
    """A checkpoint's epochs and states; None, said in a line, where it does not fit."""
    if (stored := _opened(file)) is None:
      return _ignored(file, "it cannot be read")
    about, states = stored
    for name, value in self._key.items():
      if about.get(name) != value:
        return _ignored(file, f"it is of other {name.replace('_', ' ')}")
    if about.get("digest") != digest(states) or about.get("epochs") != int(file.name):
      return _ignored(file, "it is not as it was written")
    leaves, structure = jax.tree.flatten(like)
    stops = np.cumsum([math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves])
    parts = np.split(states, stops[:-1])
    arrays = [part.copy().view(leaf.dtype).reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return about["epochs"], jax.tree.unflatten(structure, arrays)


def clear(results: Any) -> None:
  """Removes all checkpoints of a results folder in which every run is done."""
  folder = results.path / FOLDER
  if (spans := {f"{first}-{last}" for _, first, last in _saved(folder)}) and results.done.all():
    for span in spans:
      _remove(folder / span)


def _saved(folder: Path | UPath) -> list[tuple[int, int, int]]:
  """The epochs, first and last row of the checkpoints in a folder, as their names say them."""
  found = (re.fullmatch(r"(\d+)-(\d+)/(\d+)", name) for name in names(folder))
  return [(int(match[3]), int(match[1]), int(match[2])) for match in found if match]


def _opened(file: Path | UPath) -> tuple[dict[str, Any], np.ndarray] | None:
  """What a checkpoint says it is of, and its states' bytes; None where it cannot be read."""
  with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
    content = read(file, math.inf) or b""
    about = parse(content[: content.index(b"\n")])
    set(about["rows"])  # it must be something that has rows
    return about, np.frombuffer(content, np.uint8, offset=content.index(b"\n") + 1)
  return None


def _remove(folder: Path | UPath, but: str = "") -> None:
  """Removes the files of a folder, but one, and the folders that are then empty."""
  for name in names(folder) - {but}:
    remove(folder / name)
  if not is_remote(folder):
    with contextlib.suppress(OSError):
      folder.rmdir()
      folder.parent.rmdir()


def _ignored(file: Path | UPath, why: str) -> None:
  print(f"the checkpoint {file.parent.name}/{file.name} is ignored: {why}", file=sys.stderr)
