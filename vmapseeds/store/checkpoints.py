"""Checkpoints: training states of runs, saved between epochs, so that an interrupted
training resumes from the last.

The file `checkpoints/<first row>-<last row>/<epochs>` in a results folder holds the
states of the runs of a seed batch
after that many epochs: a line of JSON, then the bytes of the states' arrays. It is
written whole or not at all. The line has the rows, what the states depend on and a
digest of the bytes. A checkpoint that differs in any of these is not used.
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

from vmapseeds.store.files import (
  Folder,
  is_remote,
  names,
  parse,
  place,
  read,
  remove,
  replace,
  said,
)
from vmapseeds.store.layout import digest

FOLDER = "checkpoints"


class Checkpoints:
  """The checkpoints of runs that are trained together: a `lanes.Keeper`.

  Args:
    path: the results folder.
    rows: the runs' rows in the folder.
    table: these rows of the runs table, as lanes take them.
    every: epochs between two checkpoints.
    fits: what else the states depend on: recipe, conditions, versions.
    reached: called with the number of epochs that the runs have done, and whether they
      resume from there.
  """

  def __init__(
    self,
    path: Folder,
    rows: Int[np.ndarray, " rows"],
    table: PyTree[Shaped[np.ndarray, "rows ..."]],
    every: int,
    *,
    fits: dict[str, Any],
    reached: Callable[[int, bool], None],
  ):
    self.rows, self.every, self._reached = rows.tolist(), every, reached
    self.place = place(path) / FOLDER / f"{rows[0]}-{rows[-1]}"
    runs = [(str(a.dtype), a.shape, digest(a)) for a in jax.tree.leaves(table)]
    self._key = json.loads(
      json.dumps({"rows": self.rows, "runs": runs, **fits})
    )  # as JSON reads it back

  def load(
    self, like: PyTree[jax.ShapeDtypeStruct]
  ) -> tuple[int, PyTree[np.ndarray]] | None:
    """Epochs and states of the newest checkpoint that fits these runs, or None. Those
    that do not fit are removed.
    """
    found = None
    # Newest first: if the last save was interrupted, the checkpoint before it is still
    # there.
    for epochs, first, last in sorted(_saved(self.place.parent), reverse=True):
      file = self.place.parent / f"{first}-{last}" / str(epochs)
      if file.parent == self.place:
        found = found or self._read(file, like)
      elif first > self.rows[-1] or last < self.rows[0]:
        continue
      # Only this process trains these runs, so nobody can use a checkpoint that groups
      # some of them with others.
      elif (stored := _opened(file)) and set(self.rows) & set(stored[0]["rows"]):
        _ignored(file, f"it is of other runs than {self._span()} together")
        _remove(file.parent)
    if found:
      self._reached(found[0], True)
    else:
      self.remove()
    return found

  def save(self, rounds: int, state: PyTree[np.ndarray]) -> None:
    """Saves the runs' states after `rounds` epochs and removes the previous checkpoint."""
    self._reached(rounds, False)
    arrays = [
      np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
      for leaf in jax.tree.leaves(state)
    ]
    about = json.dumps(
      {**self._key, "epochs": rounds, "digest": digest(*arrays)}
    ).encode()
    try:
      replace(
        self.place / str(rounds),
        b"".join([about, b"\n", *(array.data for array in arrays)]),
      )
      _remove(self.place, but=str(rounds))
    except Exception as error:  # file systems and stores raise many kinds
      # Training can go on without a checkpoint. If the disk is still full at the end,
      # writing the results fails.
      print(
        f"no checkpoint of {self._span()} after epoch {rounds}: {said(error)}",
        file=sys.stderr,
      )

  def remove(self) -> None:
    """Removes the checkpoints of these runs: their results are written."""
    _remove(self.place)

  def _span(self) -> str:
    return f"runs {self.rows[0]} to {self.rows[-1]}"

  def _read(
    self, file: Path | UPath, like: PyTree[jax.ShapeDtypeStruct]
  ) -> tuple[int, PyTree[np.ndarray]] | None:
    """A checkpoint's epochs and states. If it does not fit, says why on stderr and
    returns None.
    """
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
    arrays = [
      part.copy().view(leaf.dtype).reshape(leaf.shape)
      for part, leaf in zip(parts, leaves, strict=True)
    ]
    return about["epochs"], jax.tree.unflatten(structure, arrays)


def clear(results: Any) -> None:
  """Removes all checkpoints of a results folder in which every run is done."""
  folder = results.path / FOLDER
  if (
    spans := {f"{first}-{last}" for _, first, last in _saved(folder)}
  ) and results.done.all():
    for span in spans:
      _remove(folder / span)


def _saved(folder: Path | UPath) -> list[tuple[int, int, int]]:
  """(epochs, first row, last row) of each checkpoint in a folder, from the file names."""
  found = (re.fullmatch(r"(\d+)-(\d+)/(\d+)", name) for name in names(folder))
  return [(int(match[3]), int(match[1]), int(match[2])) for match in found if match]


def _opened(file: Path | UPath) -> tuple[dict[str, Any], np.ndarray] | None:
  """A checkpoint's JSON line and the bytes of its states; None if it cannot be read."""
  with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
    content = read(file, math.inf) or b""
    about = parse(content[: content.index(b"\n")])
    set(about["rows"])  # raises unless it has rows
    return about, np.frombuffer(content, np.uint8, offset=content.index(b"\n") + 1)
  return None


def _remove(folder: Path | UPath, but: str = "") -> None:
  """Removes the files of a folder except `but`, then the folder and its parent if they
  are empty.
  """
  for name in names(folder) - {but}:
    remove(folder / name)
  if not is_remote(folder):
    with contextlib.suppress(OSError):
      folder.rmdir()
      folder.parent.rmdir()


def _ignored(file: Path | UPath, why: str) -> None:
  print(
    f"the checkpoint {file.parent.name}/{file.name} is ignored: {why}", file=sys.stderr
  )
