"""Create results folders. A folder is complete as soon as its `zarr.json` is there."""

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from vmapseeds.errors import Failure, UserError
from vmapseeds.store.claims import BLOCKS, Claims, claimed
from vmapseeds.store.files import (
  Folder,
  Place,
  as_folder,
  create,
  exists,
  is_remote,
  list_file_names,
  remove,
  replace,
  write,
)
from vmapseeds.store.large_arrays import zarr_json
from vmapseeds.store.layout import (
  ROOT,
  Description,
  array_entry,
  digest,
  read_metadata,
)
from vmapseeds.store.results import Results, write_plan

MAKING = f"{BLOCKS}/folder.claim"


class FolderExists(UserError):
  """Another process has made the results folder."""


def check_empty(path: Folder) -> None:
  """Check that `path` is an empty folder, or can be made.

  Raises:
    UserError: it is not, and cannot.
  """
  check_writable(path)
  if is_occupied(path):
    raise UserError(f"{path} is not empty: give a new or empty folder")


def is_occupied(path: Folder) -> bool:
  """Return whether `path` holds anything but the claims and drafts of processes that
  make a results folder there.
  """
  path = as_folder(path)
  there = list_file_names(path)
  if not is_remote(path) and path.is_dir():
    # `list_file_names` has files only: a folder with empty folders or links is occupied, too.
    there |= {entry.name for entry in path.iterdir() if entry.name != BLOCKS}
  # Another process may be at work here, or have died at it.
  passing = re.compile(rf"{BLOCKS}/[\w.]+\.(claim|partial)")
  lasting = [name for name in there if not passing.fullmatch(name)]
  if ROOT in there:
    return True
  # Who makes a folder clears it first, and after its death the next one does.
  return bool(lasting) and MAKING not in there


def check_writable(path: Folder) -> None:
  """Check that `path` is a writable folder or can be made.

  Raises:
    UserError: it is not, and cannot.
  """
  path = as_folder(path)
  if is_remote(path):
    _try_store_behind_url(path)
    return
  try:
    if path.exists() and not path.is_dir():
      raise UserError(f"{path} is a file: give a folder for the results")
    for parent in (path, *path.absolute().parents):
      if parent.exists():
        break
      if parent.is_symlink():
        raise UserError(
          f"{parent} is a link to {os.readlink(parent)}, which does not exist: make that "
          "folder, or give another"
        )
  except OSError as error:
    raise UserError(
      f"{path} cannot be a folder ({error.strerror}): give another"
    ) from None
  if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
    return
  remedy = "give another folder"
  if exists(path / ROOT):
    remedy = (
      "get the right to write there, or train its runs in a copy, and `vmapseeds merge` "
      "the two"
    )
  raise UserError(f"{path} cannot be written ({parent} is not writable): {remedy}")


def _try_store_behind_url(path):
  """Raise `UserError` unless a folder behind a URL can be written as claims need it: the
  second of two creations must fail, or two processes would hold one block.
  """
  probe = path / BLOCKS / f"{uuid.uuid4().hex}.partial"
  try:
    is_created = create(probe, "1")
    if not is_created or create(probe, "2"):
      raise UserError(
        f"{path} is in a store without conditional writes, which claims need: give another folder"
      )
    remove(probe)
  except FileNotFoundError:
    raise UserError(
      f"{path} cannot be written (there is no such bucket): make it, or give another folder"
    ) from None
  except Failure as failure:
    raise UserError(str(failure).partition(";")[0]) from failure.__cause__


@contextlib.contextmanager
def create_folder(
  path: Folder,
  description: Description,
  *,
  extents: list[int],
  block_runs: int,
  columns: dict[str, np.ndarray],
  dimensions: dict[str, tuple[str, ...]],
  examples: dict[str, np.ndarray],
  outputs: dict[str, Description],
  attributes: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Results]:
  """Make a results folder in which no run is done. It counts as a results folder once
  the context is left.

  Args:
    path: the folder, absent or empty.
    description: what else the folder keeps, as JSON.
    extents: the number of runs it has; before it may stand smaller ones, after each of
      which a new block begins.
    block_runs: how many runs make a block, at most.
    columns: the columns of the runs table.
    dimensions: names of the axes of examples, and of columns with more than one number
      per run.
    examples: arrays without an axis of runs.
    outputs: descriptions of the arrays that are written as runs finish, from
      `layout.array_entry`.
    attributes: what columns and examples mean, by name; see `layout.array_entry`.

  Raises:
    FolderExists: another process has made the folder meanwhile.
    UserError: it cannot be written. After this and any other exception the folder is
      removed again.
  """
  path = as_folder(path)
  plan = columns | examples
  root = {
    "extents": extents,
    "block_runs": block_runs,
    "columns": list(columns),
    "arrays": _plan_entries(columns, examples, dimensions, attributes or {}) | outputs,
    "digests": {name: digest(values) for name, values in plan.items()},
    **description,
  }
  if is_occupied(path) and not exists(path / ROOT):
    raise UserError(
      f"{path} holds something else than results: give a new or empty folder"
    )
  absent = _absent(path)
  try:
    with Claims(path) as claims:
      claims.wait_for("folder")
      # Looked at under the claim: the process that held it may have made the folder.
      if exists(path / ROOT):
        raise _made_meanwhile(path)
      with _cleared_on_failure(path, claims):
        _clear(path)
        write_plan(path, root, plan)
        results = Results(path, root)
        yield results
        _publish(results, root, claims)
  except BaseException as error:
    _remove_empty(path, absent)
    if isinstance(error, OSError):
      raise UserError(
        f"{path} cannot be written ({error.strerror or error}): give another folder"
      ) from None
    raise


def _plan_entries(columns, examples, dimensions, attributes):
  """Return the entries, in a description, of columns and examples."""
  entries = {}
  for name, values in (columns | examples).items():
    # The entry of an array of runs leaves the number of runs out.
    shape = values.shape[1:] if name in columns else values.shape
    axes = dimensions.get(name, ("run",))
    entries[name] = array_entry(values.dtype, axes, shape, **attributes.get(name, {}))
  return entries


def _publish(results, root, claims):
  """Write the description, which alone makes the folder count."""
  # An import has written all blocks by now.
  results.gather()
  # The claim is lost if this process slept for longer than the lease.
  if not claims.holds("folder"):
    raise _made_meanwhile(results.path)
  replace(results.path / ROOT, zarr_json(root))


def _made_meanwhile(path):
  return FolderExists(
    f"{path} was made by another process meanwhile: give another folder"
  )


@contextlib.contextmanager
def _cleared_on_failure(path, claims):
  """Empty a folder that is half made if the context fails, unless another process is
  making it by now.
  """
  try:
    yield
  except BaseException:
    # A store that cannot be reached is why it failed, most likely.
    with contextlib.suppress(Failure):
      if claims.holds("folder"):
        _clear(path)
    raise


@contextlib.contextmanager
def removed_if_unused(path: Folder) -> Iterator[None]:
  """Remove a results folder that was made in this context, if the context fails before
  a block of runs is written.

  After a `Failure` or an interruption it stays, because the same command can resume. A
  folder behind a URL stays too. An interruption before there is a folder says so.
  """
  path = as_folder(path)
  made_here = not is_remote(path) and not read_metadata(path)
  absent = _absent(path)
  try:
    yield
  except Failure:
    raise
  except KeyboardInterrupt as interrupt:
    if not read_metadata(path):
      interrupt.args = ("nothing was written; run the same command again to begin",)
    raise
  except Exception:
    if made_here and read_metadata(path) and not _is_used(path):
      _clear(path)
      _remove_empty(path, absent)
    raise


def _is_used(path):
  """Return whether a folder has a finished block, or a process is training one."""
  files = list_file_names(path / BLOCKS)
  if any(re.fullmatch(r"\d+\.json", name) for name in files):
    return True
  return any(claimed(path).values())


@contextlib.contextmanager
def presence_file(path: Folder) -> Iterator[Place]:
  """Keep a file in what is or becomes a results folder while the context lasts: another
  machine that has the folder sees it.
  """
  path = as_folder(path)
  absent = _absent(path)
  file = path / BLOCKS / f"token_{uuid.uuid4().hex}.partial"
  write(file, b"")
  try:
    yield file
  finally:
    remove(file)
    _remove_empty(path, absent)


def _absent(path):
  """Return the folders, deepest first, that must be made before a file can be written
  into `path`; none behind a URL.
  """
  if is_remote(path):
    return []
  folders = (path, *path.absolute().parents)
  return [folder for folder in folders if not os.path.exists(folder)]


def _remove_empty(path, absent):
  """Remove those of the folders that were `absent`, and are empty now."""
  if not is_remote(path):
    with contextlib.suppress(OSError):
      (path / BLOCKS).rmdir()
      for folder in absent:
        folder.rmdir()


def _clear(path):
  """Remove everything in a results folder except the claim of the process that makes
  it.
  """
  for _ in range(20):
    files = list_file_names(path) - {MAKING}
    for name in files:
      remove(path / name)
    if is_remote(path):
      return
    for folder in path.iterdir():
      if folder.name != BLOCKS:
        shutil.rmtree(folder, ignore_errors=True)
    if not files:
      return
    # After an interruption, Zarr's threads still finish the writes that they began.
    time.sleep(0.1)
