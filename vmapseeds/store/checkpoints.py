"""Checkpoints: training states of a block's runs, saved by orbax between epochs, so that
an interrupted training resumes from the last.

`checkpoints/<block>/<epochs>` in a results folder is an orbax checkpoint of the states'
arrays. `checkpoints/<block>/<epochs>.json` beside it is written last. It has what the
states depend on and a digest of its files. A checkpoint that differs in any of these is not
used.
"""

import contextlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree, Shaped

from vmapseeds.errors import UserError, say
from vmapseeds.store.files import (
  Folder,
  Place,
  as_folder,
  is_remote,
  list_file_names,
  parse_json,
  read,
  remove,
  replace,
  short_message,
)
from vmapseeds.store.layout import digest

FOLDER = "checkpoints"
AUTO = "auto"
SHARE = 0.02  # of the time that saving takes at most, with "auto"
FIRST_COST = 0.5  # seconds that a save is taken to need before one was measured


class Checkpoints:
  """The checkpoints of a block's runs: a `lanes.Keeper`.

  Args:
    path: the results folder.
    block: the block.
    table: its runs' rows of the runs table, as lanes take them.
    interval: epochs between two checkpoints; "auto" for as few as keep the time for
      saving below 2 %.
    fits: what else the states depend on: recipe, conditions, versions.
    reached: called with the number of epochs that the runs have done, and whether they
      resume from there.

  Raises:
    UserError: this process is one of several under `jax.distributed`.
  """

  def __init__(
    self,
    path: Folder,
    block: int,
    table: PyTree[Shaped[np.ndarray, "rows ..."]],
    interval: int | str,
    *,
    fits: dict[str, Any],
    reached: Callable[[int, bool], None],
  ):
    self.block, self._interval, self._reached = block, interval, reached
    self.place = as_folder(path) / FOLDER / str(block)
    columns = jax.tree.leaves(table)
    runs = [(str(column.dtype), column.shape, digest(column)) for column in columns]
    self._fits = json.loads(json.dumps({"runs": runs, **fits}))  # as JSON reads it back
    self.before = 0.0  # seconds that earlier processes trained what is resumed
    self._began = time.perf_counter()
    self._looked = self._began  # when epochs ended last
    self._spent = 0.0  # seconds that all saves took
    self._cost = FIRST_COST  # seconds that the last save took
    self._round = 0.0  # seconds that an epoch takes, 0 if not known yet
    self._rounds = 0  # epochs that are done

  @property
  def every(self) -> int:
    """Epochs to the next call of `save`."""
    if self._interval != AUTO:
      return int(self._interval)
    if not self._round:  # not known how long an epoch takes
      return 1
    return max(1, math.ceil(self._wait() / self._round))

  @property
  def saved(self) -> int:
    """The epochs after which these runs were saved last; 0 if they were not."""
    return max(self._all_saved(), default=0)

  def _all_saved(self):
    # The file beside a checkpoint is written last, so only its name counts.
    saved = [name.removesuffix(".json") for name in list_file_names(self.place)]
    return [int(name) for name in saved if name.isdecimal()]

  def _wait(self):
    """Return the seconds until one more save brings the time for saving to `SHARE`."""
    return (self._spent + self._cost) / SHARE - (time.perf_counter() - self._began)

  def load(
    self, like: PyTree[jax.ShapeDtypeStruct]
  ) -> tuple[int, PyTree[np.ndarray]] | None:
    """Return epochs and states of the newest checkpoint that fits these runs, or None.
    Remove the checkpoints if none fits, and say why on stderr.
    """
    # Newest first: if the last save was interrupted, the one before it is still there.
    for rounds in sorted(self._all_saved(), reverse=True):
      try:
        state = self._read(rounds, like)
      except Exception as error:  # orbax and file systems raise many kinds
        why = str(error) if isinstance(error, _Misfit) else "it cannot be read"
        say(f"the checkpoint {self.block}/{rounds} is ignored: {why}")
        continue
      self._rounds = rounds
      self._reached(rounds, True)
      return rounds, state
    self.remove()
    return None

  def save(self, rounds: int, state: PyTree[np.ndarray]) -> None:
    """Save the runs' states after `rounds` epochs and remove the previous checkpoint.

    With "auto", only if that keeps the time for saving below `SHARE`.
    """
    self._reached(rounds, False)
    began = time.perf_counter()
    self._round = (began - self._looked) / (rounds - self._rounds)
    if self._interval != AUTO or self._wait() <= 0:
      self._write(rounds, state)
      self._cost = time.perf_counter() - began
      self._spent += self._cost
    self._rounds = rounds
    self._looked = time.perf_counter()

  def _write(self, rounds, state):
    import orbax.checkpoint as ocp  # takes a while, and not all trainings need it

    target = self.place / str(rounds)
    description = self.place / f"{rounds}.json"
    seconds = self.before + time.perf_counter() - self._began
    about_states = self._fits | {"epochs": rounds, "seconds": round(seconds, 3)}
    try:
      _remove(target)
      with tempfile.TemporaryDirectory() as scratch, ocp.PyTreeCheckpointer() as orbax:
        # Orbax writes into folders of a disk only.
        folder = _on_disk(target, scratch)
        orbax.save(folder, _named(jax.tree.leaves(state)))
        about_states["digest"] = _digest(folder)
        if is_remote(target):
          target.fs.put(str(folder), target.path, recursive=True)
      # Last: it makes the checkpoint count, and the one before it superfluous.
      replace(description, json.dumps(about_states))
      for name in {name.split("/")[0] for name in list_file_names(self.place)}:
        if name not in (target.name, description.name):
          _remove(self.place / name)
    except Exception as error:
      # Training continues without a checkpoint. If the disk is still full at the end,
      # writing the results fails.
      say(
        f"no checkpoint of block {self.block} after epoch {rounds}: {short_message(error)}"
      )

  def remove(self) -> None:
    """Remove the checkpoints of these runs: their results are written."""
    _remove(self.place)

  def _read(self, rounds, like):
    """Return a checkpoint's states. Raise `_Misfit`, or whatever is raised, if it does
    not fit.
    """
    import orbax.checkpoint as ocp

    written = parse_json(read(self.place / f"{rounds}.json"))
    for name, value in (self._fits | {"epochs": rounds}).items():
      if written.get(name) != value:
        raise _Misfit(f"it is of other {name.replace('_', ' ')}")
    leaves, structure = jax.tree.flatten(like)
    # As NumPy arrays: lanes are put onto the devices by whoever trains them.
    as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
    restore_args = jax.tree.map(lambda _: as_numpy, _named(leaves))
    with tempfile.TemporaryDirectory() as scratch, ocp.PyTreeCheckpointer() as orbax:
      source = self.place / str(rounds)
      folder = _on_disk(source, scratch)
      if is_remote(source):
        source.fs.get(source.path, str(folder), recursive=True)
      # Orbax leaves reads behind, which complain later, when it meets a torn file.
      if written["digest"] != _digest(folder):
        raise _Misfit("it is not as it was written")
      restored = orbax.restore(folder, restore_args=restore_args)
    self.before = written.get("seconds", 0.0)
    arrays = []
    for number, leaf in enumerate(leaves):
      empty = np.zeros(leaf.shape, leaf.dtype)  # orbax has saved none of these
      arrays.append(restored.get(_name(number), empty))
    return jax.tree.unflatten(structure, arrays)


def _on_disk(place: Place, scratch: str) -> Path:
  """Return the folder of a disk that orbax reads or writes for a place: one in `scratch`
  if the place is behind a URL.
  """
  if is_remote(place):
    return Path(scratch, "states")
  return Path(place).absolute()


class _Misfit(Exception):
  """A checkpoint that must not be used, and why."""


def check_usable() -> None:
  """Check that this process can write checkpoints.

  Raises:
    UserError: it is one of several under `jax.distributed`, which orbax takes for writers
      of one checkpoint.
  """
  if jax.process_count() > 1:
    raise UserError(
      "checkpoint_every under jax.distributed: start `vmapseeds work` on each host "
      "instead, which needs no coordinator"
    )


def clear(results) -> None:
  """Remove the checkpoints of all blocks of a results folder that are finished."""
  folder = results.path / FOLDER
  saved = {name.split("/")[0] for name in list_file_names(folder)}
  if not saved:  # most often: the records need not be listed
    return
  finished = {str(block) for block in results.finished_blocks()}
  for block in saved & finished:
    _remove(folder / block)


def _name(number):
  """Return the name of a state's leaf in a checkpoint."""
  return f"{number:04}"


def _named(leaves):
  """Return arrays by their numbers, without empty ones, which orbax does not save."""
  return {_name(number): leaf for number, leaf in enumerate(leaves) if leaf.size}


def _digest(folder):
  """Return a checksum of the files of a checkpoint."""
  contents = []
  for name in sorted(list_file_names(folder)):
    content = name.encode() + (folder / name).read_bytes()
    contents.append(np.frombuffer(content, np.uint8))
  return digest(*contents)


def _remove(path):
  """Remove a file, or a folder and its parent if that is empty then."""
  if is_remote(path):
    for name in list_file_names(path) or [""]:
      remove(path / name)
  elif path.is_dir():
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
      path.parent.rmdir()
  else:
    remove(path)
