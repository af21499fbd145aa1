"""Making the folder of a campaign, on a disk or behind a URL: it is there whole or not at all."""

import contextlib
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import zarr
from upath import UPath
from zarr.codecs import Crc32cCodec, ZstdCodec

from vmapseeds import blocks
from vmapseeds.checks import IMPORTED
from vmapseeds.errors import Failure, Mistake
from vmapseeds.metadata import COPY, DIMENSIONS, FORMAT, VARIABLES, attributes, checked, consolidate
from vmapseeds.stores import is_remote, place, reached

BEGUN = f"{blocks.FOLDER}/folder.partial"  # there while a folder behind a URL is being made
FILL = {"predictions": -1, "accuracy": np.nan, "logits": np.nan, "done": False, "diverged": False}


def check_folder(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is the results folder of a training, an empty folder, or can be made."""
  check_writable(path)
  stored = checked(path)
  if stored is None and occupied(path):
    raise Mistake(f"{path} holds something else than results: give a new or empty folder")
  if stored and stored.get("device_kind") == IMPORTED:
    raise Mistake(f"{path} holds imported runs, which cannot be extended: give a new or empty folder")


def check_empty(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is an empty folder, or can be made."""
  check_writable(path)
  if occupied(path):
    raise Mistake(f"{path} is not empty: give a new or empty folder")


def occupied(path: str | os.PathLike) -> bool:
  """Whether something lies in `path`, besides what a process left that ended while it made a folder behind a URL."""
  path = place(path)
  if not is_remote(path):
    return path.is_dir() and any(path.iterdir())
  there = blocks.names(path)
  made = any(re.fullmatch(rf"zarr\.json|{blocks.FOLDER}/\d+\.json", name) for name in there)
  return made or (BEGUN not in there and not all(map(_passing, there)))


def check_writable(path: str | os.PathLike) -> None:
  """`Mistake` unless `path` is a writable folder or can be made."""
  path = place(path)
  if is_remote(path):
    probe = path / blocks.FOLDER / f"{uuid.uuid4().hex}.partial"
    try:
      if not blocks.create(probe, "1") or blocks.create(probe, "2"):
        raise Mistake(f"{path} is in a store without conditional writes, which claims need: give another folder")
      blocks.remove(probe)
    except FileNotFoundError:
      raise Mistake(f"{path} cannot be written (there is no such bucket): make it, or give another folder") from None
    except Failure as failure:
      raise Mistake(str(failure).partition(";")[0]) from failure.__cause__
    return
  try:
    if path.exists() and not path.is_dir():
      raise Mistake(f"{path} is a file: give a folder for the results")
    parent = next(p for p in (path, *path.absolute().parents) if p.exists())
  except OSError as error:
    raise Mistake(f"{path} cannot be a folder ({error.strerror}): give another") from None
  if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
    raise Mistake(f"{path} cannot be written ({parent} is not writable): give another folder")


@contextlib.contextmanager
def made_whole(path: Path | UPath) -> Iterator[Path]:
  """A place beside `path` to make a folder in, moved to `path` at the end: it is there whole or not at all.

  Where `path` is a URL the place is in the folder of temporary files.

  Raises:
    Mistake: it cannot be written. Then, and after any other exception, nothing is left of it on a disk.
  """
  if is_remote(path):
    with tempfile.TemporaryDirectory(prefix="vmapseeds-") as temporary:
      draft = Path(temporary, "results")
      yield draft
      _upload(draft, path)
    return
  final = path.resolve()
  draft = final.with_name(f".{final.name}.{os.getpid()}.new")
  new_parents = [parent for parent in final.parents if not parent.exists()]
  _remove(draft)
  try:
    yield draft
    if final.is_dir():
      final.rmdir()
    draft.rename(final)
  except BaseException as error:
    _remove(draft)
    with contextlib.suppress(OSError):
      for parent in new_parents:
        parent.rmdir()
    if isinstance(error, OSError):
      raise Mistake(f"{path} cannot be written ({error.strerror or error}): give another folder") from None
    raise


@contextlib.contextmanager
def removed_if_unused(path: str | os.PathLike) -> Iterator[None]:
  """Removes a results folder that was made inside, when what is inside fails before a block of runs is written.

  A `Failure` leaves it, because the same command shall go on, and so does an interruption. So is a folder behind a URL.
  """
  path = place(path)
  if is_remote(path) or attributes(path) is not None:
    yield
    return
  absent = [folder for folder in (path.absolute(), *path.absolute().parents) if not os.path.exists(folder)]
  try:
    yield
  except Failure:
    raise
  except Exception:
    written = any(re.fullmatch(r"\d+\.json", name) for name in blocks.names(path / blocks.FOLDER))
    if attributes(path) is not None and not written and not any(blocks.claimed(path).values()):
      _remove(path)
      for parent in absent[1:]:
        parent.rmdir()
      if not absent:
        path.mkdir()
    raise


def _upload(draft: Path, path: UPath) -> None:
  """Puts a folder into a store. The root's `zarr.json`, put after the rest and only if there is none, makes it exist.

  Who puts it has a claim, and `BEGUN` says that what lies there without a root is no one else's: when this fails or the
  process dies, the next one clears it away.
  """
  made = Mistake(f"{path} was made by another process meanwhile: give another folder")
  with blocks.Claims(path) as claims:
    while not claims.take("folder"):
      if attributes(path):
        raise made
      time.sleep(1)
    if occupied(path):
      raise made
    blocks.replace(path / BEGUN, "")
    for name in blocks.names(path):
      if not _passing(name):
        blocks.remove(path / name)
    files = sorted(blocks.names(draft) - {"zarr.json", COPY})
    with reached(path):
      path.fs.put([str(draft / file) for file in files], [(path / file).path for file in files])
    root = (draft / "zarr.json").read_text()
    if not claims.holds("folder") or not blocks.create(path / "zarr.json", root):
      raise made
    blocks.replace(path / COPY, root)  # before, `verify --repair` would take half a folder for one that lost its root
    blocks.remove(path / BEGUN)


def _passing(name: str) -> bool:
  """Whether a file in a results folder is there only while something is being done."""
  return name.startswith(f"{blocks.FOLDER}/") and name.endswith((".claim", ".partial"))


def _remove(folder: Path) -> None:
  """Removes a folder, if there is one. Tries again, because Zarr's threads may still write after an interruption."""
  for _ in range(20):
    if not folder.exists():
      return
    shutil.rmtree(folder, ignore_errors=True)
    time.sleep(0.1)


def create_folder(
  path: Path, attributes: dict[str, Any], *, runs: int, columns: dict[str, np.ndarray], labels: dict[str, np.ndarray],
  chunk: int, logits: np.dtype | None, variables: dict[str, jax.ShapeDtypeStruct] | None = None,
) -> None:  # fmt: skip
  """A results folder in which no run is done.

  Args:
    path: where.
    attributes: those of the root; `recipe`, `test_sets` and `num_classes` must be there. `block_runs` promises that
      all objects of a block are there when one of its runs is done.
    runs: how many.
    columns: what is known of each run.
    labels: those of each test set.
    chunk: runs a chunk of the arrays.
    logits: of which dtype they are kept, None where they are not.
    variables: those of one run, by their names, where they are kept.
  """
  num_classes = attributes["num_classes"]
  variables = variables or {}
  root = {
    "format": FORMAT, "logits": logits is not None, "columns": list(columns),
    "variables": {name: leaf.shape for name, leaf in variables.items()},
    "label_digests": {name: blocks.digest(of_examples) for name, of_examples in labels.items()}, **attributes,
  }  # fmt: skip
  group = zarr.create_group(path, attributes=root)
  (path / blocks.FOLDER).mkdir()
  for name, column in columns.items():
    _create(group, name, column, chunk)
  for name in ("diverged", "done"):
    _create(group, name, np.zeros(runs, bool), chunk)
  for name, of_examples in labels.items():
    test_set = group.create_group(name)
    _create(test_set, "labels", of_examples, len(of_examples))
    shape = (runs, len(of_examples))
    none = np.int8(-1) if num_classes <= 127 else np.int16(-1)
    _create(test_set, "predictions", np.broadcast_to(none, shape), chunk)
    _create(test_set, "accuracy", np.full(runs, np.nan), chunk)
    if logits is not None:
      empty = np.broadcast_to(logits.type(np.nan), (*shape, num_classes))
      _create(test_set, "logits", empty, chunk)
  if variables:
    of_runs = group.create_group(VARIABLES)
    for name, leaf in variables.items():
      axes = [f"{name}.{axis}" for axis in range(len(leaf.shape))]
      # Not compressed: trained numbers are noise in all but their first bits.
      of_runs.create_array(
        name, shape=(runs, *leaf.shape), dtype=leaf.dtype, chunks=(max(1, chunk), *leaf.shape),
        compressors=[Crc32cCodec()], dimension_names=("run", *axes), fill_value=np.nan,
      )  # fmt: skip
  consolidate(path)


def _create(group: zarr.Group, name: str, values: np.ndarray, chunk: int) -> None:
  with whole_chunks():
    array = group.create_array(
      name,
      shape=values.shape,
      dtype=values.dtype,
      chunks=(max(1, chunk), *values.shape[1:]),
      compressors=[ZstdCodec(level=0), Crc32cCodec()],
      dimension_names=DIMENSIONS.get(name, ("run",)),
      fill_value=FILL.get(name, 0),
    )
    if name not in FILL:
      fill(array, values)


def fill(array: zarr.Array, values: np.ndarray, start: int = 0) -> None:
  """Writes rows from `start` on, object by object: where one fails, Zarr would go on with others beside it."""
  size = array.chunks[0]
  for first in range(start // size * size, len(values), size):
    rows = slice(max(first, start), first + size)
    array[rows] = values[rows]


def whole_chunks() -> contextlib.AbstractContextManager:
  """Arrays opened within write every object, also where all values are the fill value: one that is absent is lost."""
  return zarr.config.set({"array.write_empty_chunks": True})
