"""Blocks of runs: who trains which of them, and what was written.

A block is one chunk of runs of a results folder, rows k·chunk to (k+1)·chunk. In the folder `blocks` lie

- `<k>.<n>.claim`: a process trains the block. Made only if there is none of that name; `n` counts takeovers, so that of
  all who see the same stale claim one alone makes the next. A claim is stale when its process is gone, where that can
  be seen, or when it was not renewed for `LEASE` seconds.
- `<k>.json`: the block's record, a list of writes: which rows, digests of their values in every array, and what they
  were trained with. It is written after the rows' values and before the rows are marked done.
- `folder.json`: a copy of the folder's `zarr.json`, from which it can be restored.

Training is deterministic, so a block that two processes train, because a lease ran out, holds the same bytes twice.
"""

import contextlib
import hashlib
import json
import os
import re
import socket
import stat
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from upath import UPath

from vmapseeds.errors import Failure
from vmapseeds.stores import is_remote, place, reached, write

FOLDER = "blocks"
CLAIM = r"(\w{1,20})\.(\d{1,20})\.claim"
LEASE = 600.0  # seconds
MOST_BYTES = 2**26  # of a file of text
UNFINISHED = 10.0  # seconds after which a claim that cannot be read is not still being written

# Files.


def names(folder: Path | UPath, prefix: str = "") -> set[str]:
  """The files below a folder, by their paths in it; none where there is no such folder.

  Args:
    folder: a local one or one behind a URL.
    prefix: where the folder is behind a URL, those alone that begin so are asked for.
  """
  if is_remote(folder):
    with reached(folder), contextlib.suppress(FileNotFoundError):
      found = folder.fs.find(folder.path, **({"prefix": prefix} if prefix else {}))
      start = folder.path.rstrip("/") + "/"
      return {f.removeprefix(start) for f in found if f.startswith(start) and not f.endswith("/")}
    return set()
  return {Path(at, f).relative_to(folder).as_posix() for at, _, files in os.walk(folder) for f in files}


def read(path: Path | UPath) -> bytes | None:
  """A file's bytes, None where there is no such file. `ValueError` where it is no file or has too many bytes."""
  try:
    if is_remote(path):
      with reached(path):
        return path.fs.cat_file(path.path)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
      raise ValueError(f"no file, or larger than {MOST_BYTES >> 20} MiB")
    return path.read_bytes()
  except (FileNotFoundError, NotADirectoryError):
    return None


def parse(text: bytes | None) -> Any:
  """The JSON value that a file's bytes are. `ValueError` where they are none."""
  try:
    return json.loads(text or b"")
  except RecursionError:
    raise ValueError("nested too deeply") from None


def read_all(folder: Path | UPath, files: list[str]) -> dict[str, bytes | None]:
  """The bytes of several files, None where one is not there or cannot be read; a store is asked for all at once."""
  if not is_remote(folder):
    found = {}
    for file in files:
      with contextlib.suppress(OSError, ValueError):
        found[file] = read(folder / file)
    return {file: found.get(file) for file in files}
  paths = {file: (folder / file).path for file in files}
  with reached(folder):
    found = folder.fs.cat(list(paths.values()), on_error="return")
    for value in found.values():
      if isinstance(value, Exception) and not isinstance(value, FileNotFoundError):
        raise value
  return {file: None if isinstance(found[p], Exception) else found[p] for file, p in paths.items()}


def exists(path: Path | UPath) -> bool:
  """Whether there is such a file."""
  if is_remote(path):
    with reached(path):
      return path.fs.exists(path.path)
  return path.exists()


def create(path: Path | UPath, text: str) -> bool:
  """Writes a new file; False where there is one of that name."""
  if is_remote(path):
    try:
      with reached(path):
        path.fs.pipe_file(path.path, text.encode(), mode="create")
    except FileExistsError:
      # Ours, where a request was sent twice because its answer was lost.
      return read(path) == text.encode()
    return True
  try:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
  except FileExistsError:
    return False
  try:
    os.write(descriptor, text.encode())
  finally:
    os.close(descriptor)
  return True


def replace(path: Path | UPath, text: str) -> None:
  """Writes a file that is there whole or not at all, also after the machine lost its power."""
  if is_remote(path):
    return write(path, text.encode())
  draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
  try:
    draft.write_text(text)
    flush(draft)
    draft.replace(path)
  except BaseException:
    draft.unlink(missing_ok=True)
    raise
  flush(path.parent)


def flush(path: Path | UPath) -> None:
  """Waits until a file, or the names in a folder, are on the disk; what a store has said to have, it has."""
  if is_remote(path):
    return
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def remove(path: Path | UPath) -> None:
  """Removes a file, if there is one."""
  if is_remote(path):
    with reached(path), contextlib.suppress(FileNotFoundError):
      path.fs.rm_file(path.path)
    return
  path.unlink(missing_ok=True)


def renew(path: Path | UPath, text: str) -> None:
  """Makes a file of this text young again, if it is still there."""
  if is_remote(path):
    if read(path) == text.encode():
      replace(path, text)
  elif path.exists():
    os.utime(path)


def age(path: Path | UPath) -> float:
  """Seconds since a file was written or renewed; infinite where there is none."""
  try:
    if is_remote(path):
      with reached(path):
        return time.time() - path.fs.modified(path.path).timestamp()
    return time.time() - path.stat().st_mtime
  except FileNotFoundError:
    return np.inf


# Claims.


class Claims:
  """The blocks of a results folder that this process holds; leaving the context gives all of them back."""

  def __init__(self, path: str | os.PathLike):
    self.folder = place(path) / FOLDER
    self._held: dict[str, tuple[Path | UPath, str]] = {}
    self._renewing = threading.Lock()  # a claim that is renewed while it is given back would stay
    self._ended = threading.Event()

  def __enter__(self) -> "Claims":
    if not is_remote(self.folder):
      self.folder.mkdir(exist_ok=True)
    threading.Thread(target=self._renew, daemon=True).start()
    return self

  def __exit__(self, *_) -> None:
    self._ended.set()
    for block in list(self._held):
      self.release(block)

  def take(self, block: int | str) -> bool:
    """Claims a block; False where another process holds it."""
    block = str(block)
    earlier = _claims(self.folder, block)
    if not all(stale(claim) for claim in earlier.values()):
      return False
    number = max(earlier, default=-1) + 1
    path = self.folder / f"{block}.{number}.claim"
    text = json.dumps({**_process(), "when": time.time(), "token": uuid.uuid4().hex})
    if not create(path, text):
      return False
    self._held[block] = path, text
    # One who looked before us may have made a claim of another number since: who sees the other's goes.
    rest = [claim for claim in _claims(self.folder, block).values() if claim != path]
    if not all(stale(claim) for claim in rest):
      self.release(block)
      return False
    for claim in rest:
      remove(claim)
    return True

  def holds(self, block: int | str) -> bool:
    """Whether a block is still ours: another process takes it over when this one slept for longer than the lease."""
    path, text = self._held[str(block)]
    return read(path) == text.encode()

  def release(self, block: int | str) -> None:
    """Gives a block back."""
    with self._renewing:
      held = str(block) in self._held and self.holds(block)
      path, _ = self._held.pop(str(block), (None, None))
      if held:
        remove(path)

  def _renew(self) -> None:
    while not self._ended.wait(LEASE / 10):
      for block in list(self._held):
        with self._renewing, contextlib.suppress(Failure):
          if block in self._held:
            renew(*self._held[block])


def claimed(path: str | os.PathLike) -> dict[str, bool]:
  """The blocks of a results folder that have a claim: whether one of them is alive."""
  folder = place(path) / FOLDER
  found: dict[str, bool] = {}
  for name in names(folder):
    if match := re.fullmatch(CLAIM, name):
      found[match[1]] = found.get(match[1], False) or not stale(folder / name)
  return found


def clear(path: str | os.PathLike, block: int | str) -> None:
  """Removes the stale claims of a block."""
  for claim in _claims(place(path) / FOLDER, str(block)).values():
    if stale(claim):
      remove(claim)


def abandon(path: str | os.PathLike, block: int | str) -> None:
  """Removes every claim of a block whose worker is known to be dead, wherever it was."""
  for claim in _claims(place(path) / FOLDER, str(block)).values():
    remove(claim)


def stale(claim: Path | UPath) -> bool:
  """Whether nobody trains a block any more, though it has this claim."""
  since = age(claim)
  if abs(since) > LEASE:  # one of the far future would never end
    return True
  try:
    owner = parse(read(claim))
    host, pid, started = owner["host"], int(owner["pid"]), owner["started"]
  except (ValueError, KeyError, TypeError, OverflowError):
    return since > UNFINISHED
  return host == _host() and not _alive(pid, started)


def _claims(folder: Path | UPath, block: str) -> dict[int, Path | UPath]:
  found = (re.fullmatch(CLAIM, name) for name in names(folder, f"{block}."))
  return {int(match[2]): folder / match[0] for match in found if match and match[1] == block}


def _process() -> dict[str, Any]:
  return {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid())}


def _host() -> str:
  """What tells where a process number means something: machine, boot and, in containers, namespace."""
  found = [socket.gethostname()]
  with contextlib.suppress(OSError):
    found += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
  return " ".join(found)


def _started(pid: int) -> str | None:
  """When a process started, as the system counts it; None where it does not say, "" for a process that has ended."""
  try:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
  except OSError:
    return None
  return "" if fields[0] in "ZX" else fields[19]


def _alive(pid: int, started: str | None) -> bool:
  try:
    os.kill(pid, 0)
  except ProcessLookupError:
    return False
  except (OSError, OverflowError):
    pass
  return started is None or _started(pid) == started


# Records.


def digest(values: np.ndarray) -> str:
  """A checksum of an array's values."""
  return hashlib.blake2b(np.ascontiguousarray(values).view(np.uint8).data, digest_size=16).hexdigest()


def record(path: str | os.PathLike, block: int) -> list[dict[str, Any]]:
  """The writes of a block, none where it has no record. `ValueError` where the record cannot be understood."""
  text = read(place(path) / FOLDER / f"{block}.json")
  if text is None:
    return []
  found = parse(text)
  if not isinstance(found, dict) or _signed(block, found.get("writes")) != found:
    raise ValueError("is not as it was written")
  writes = found["writes"]
  if not isinstance(writes, list) or not all(map(_is_write, writes)):
    raise ValueError("is no list of rows and digests")
  return writes


def _is_write(write: Any) -> bool:
  rows, digests = (write.get(key) if isinstance(write, dict) else None for key in ("rows", "digests"))
  return (
    isinstance(rows, list) and bool(rows) and all(type(row) is int and row >= 0 for row in rows)
    and len({*rows}) == len(rows) and isinstance(digests, dict)
  )  # fmt: skip


def write_record(path: str | os.PathLike, block: int, writes: list[dict[str, Any]]) -> None:
  """Writes a block's record, which is there whole or not at all."""
  replace(place(path) / FOLDER / f"{block}.json", json.dumps(_signed(block, writes)) + "\n")


def _signed(block: int, writes: Any) -> dict[str, Any]:
  text = json.dumps([block, writes], sort_keys=True).encode()
  return {"block": block, "writes": writes, "digest": hashlib.blake2b(text, digest_size=16).hexdigest()}


def recorded_rows(writes: list[dict[str, Any]]) -> list[int]:
  """The rows that some writes hold."""
  return sorted(row for write in writes for row in write["rows"])
