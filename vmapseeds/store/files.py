"""Files of results folders: on a disk, or behind a URL that fsspec knows, such as
`s3://bucket/folder`.

fsspec and the protocol's package find credentials and endpoints in the environment and
in their own files. A folder behind a URL has no folders in it, only objects, each
written whole. Listings are never cached.
"""

import contextlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
from typing_extensions import TypeIs
from upath import UPath

from vmapseeds.errors import Failure, UserError
from vmapseeds.machine import local_path

# Protocol -> extra of this package that installs what it needs
EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
# By default s3fs first asks for an object's size, then reads a large object in parts,
# which may mix two writes.
S3_OPTIONS = {"max_concurrency": 1}
MOST_BYTES = 2**26  # of a text file
AT_ONCE = 16  # requests
Folder = str | os.PathLike | UPath  # a path or a URL
Place = Path | UPath  # on a disk, or behind a URL


def as_folder(given: Folder) -> Place:
  """Return a folder given as a path or a URL: an absolute `Path` if it is on a disk, a
  `UPath` otherwise. What holds it may outlive the working directory.

  Raises:
    UserError: it is neither; the URL's protocol cannot be used or its package is not
      installed; or the URL went through `Path`, which turns two slashes into one.
  """
  if isinstance(given, UPath) and not isinstance(given, os.PathLike):
    _check_protocol(str(given), given.protocol)
    return UPath(given, **_options(given.protocol))
  if not isinstance(given, str | os.PathLike):
    raise UserError(f"{given!r:.100} is no folder: give its path or its URL")
  text = os.fspath(given)
  protocol, separator, rest = text.partition("://")
  if not separator:
    # What `Path` makes of a URL would become a folder of that name.
    swallowed = re.match(r"(\w\w+):/", text)
    if swallowed and swallowed[1] in fsspec.available_protocols():
      raise UserError(
        f"{text} is no URL, which has two slashes: give it as text, not as a Path"
      )
    return local_path(given)
  if protocol in ("file", "local"):
    return local_path(rest)
  _check_protocol(text, protocol)
  return UPath(text, **_options(protocol))


def _check_protocol(text, protocol):
  """Raise `UserError` if results cannot be behind URLs of this protocol, or its package is
  not installed.
  """
  try:
    if protocol.startswith("http"):  # HTTP cannot list files
      raise ValueError
    fsspec.get_filesystem_class(protocol)
  except ImportError as error:
    install = str(error)
    if protocol in EXTRAS:
      install = f"pip install 'vmapseeds[{EXTRAS[protocol]}]'"
    raise UserError(
      f"{text}: the package for {protocol}:// is not installed: {install}"
    ) from None
  except ValueError:
    allowed = "a local folder, s3://, gs:// or another store of fsspec"
    raise UserError(
      f"{text}: no results can be behind {protocol}://: give {allowed}"
    ) from None


def _options(protocol):
  """Return how fsspec is to open a file system."""
  # Other processes write into the folder, so a listing is out of date at once.
  options: dict[str, Any] = {"use_listings_cache": False}
  if protocol in ("s3", "s3a"):
    options |= S3_OPTIONS
  return options


def is_remote(path: Place) -> TypeIs[UPath]:
  """Return whether a folder is behind a URL."""
  return not isinstance(path, os.PathLike)


# They say what is there.
PLAIN = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


@contextlib.contextmanager
def wrap_io_errors(path: Place, *, reading: bool = False) -> Iterator[None]:
  """Turn errors of a store, or of the network to it, into a `Failure`; those of a disk
  only when reading: a file that may not be read is not damaged.
  """
  try:
    yield
  except (Failure, UserError, *PLAIN):
    raise
  except Exception as error:
    if is_remote(path):
      what = f"{path} cannot be reached ({short_message(error, 200)})"
      raise Failure(
        f"{what}; what was written stays, and running the same command again resumes"
      ) from error
    if reading and isinstance(error, OSError):
      raise Failure(f"{path} cannot be read ({error.strerror or error})") from error
    raise


def short_message(error: BaseException, most: int = 120) -> str:
  """Return the first `most` characters of an error's text, in one line."""
  return " ".join(str(error).split())[:most] or type(error).__name__


def list_file_names(folder: Place) -> set[str]:
  """Return the paths of all files below a folder, relative to it; none if there is no
  such folder.
  """
  if is_remote(folder):
    return _remote_names(folder)
  start = len(str(folder)) + 1  # a `Path` for each of many files would take long
  paths = set()
  for parent, _, files in os.walk(str(folder)):
    for file in files:
      paths.add(f"{parent}/{file}"[start:].replace(os.sep, "/"))
  return paths


def _remote_names(folder):
  """Return `list_file_names` of a folder behind a URL."""
  start = folder.path.rstrip("/") + "/"
  with wrap_io_errors(folder), contextlib.suppress(FileNotFoundError):
    paths = folder.fs.find(folder.path)
    # Some stores list objects that stand for folders, and the folder itself.
    files = [path for path in paths if not path.endswith("/")]
    return {path.removeprefix(start) for path in files if path.startswith(start)}
  return set()


def strays(folder: Place) -> Iterator[str]:
  """Yield what in a results folder, at any depth, is neither file nor folder: links lead
  elsewhere, pipes block.

  Raises:
    Failure: a folder in it cannot be read.
  """
  if is_remote(folder):  # a store has only objects
    return
  with wrap_io_errors(folder, reading=True):
    for name, entry in _walk(folder):
      fault = _fault_of(name, entry)
      if fault:
        yield f"{name} is {fault}"


def _fault_of(name, entry):
  """Return what an entry is that a results folder must not have, None if it may."""
  if entry.is_symlink():
    return "a link"
  if entry.is_dir():
    return None
  if not entry.is_file():
    return "a pipe or a device"
  return "a file" if name == "blocks" else None


def _walk(folder):
  """Yield path and entry of all that lies in a folder, at any depth, without following
  links.
  """
  pending = [""]
  while pending:
    inside = pending.pop(0)
    for entry in _entries(f"{folder}/{inside}"):
      name = f"{inside}{entry.name}"
      if entry.is_dir(follow_symlinks=False):
        pending.append(f"{name}/")
      yield name, entry


def _entries(folder):
  """Return the entries of a folder, none if another process has removed it."""
  try:
    with os.scandir(folder) as entries:
      return list(entries)
  except FileNotFoundError:
    return []


def read(path: Place, most: float = MOST_BYTES) -> bytes | None:
  """Return a file's bytes, None if it is not there.

  Raises:
    ValueError: on a disk, it is no file or has over `most` bytes.
  """
  with contextlib.suppress(FileNotFoundError, NotADirectoryError), wrap_io_errors(path):
    if is_remote(path):
      return path.fs.cat_file(path.path)
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
      raise ValueError("no file, or too large")
    return path.read_bytes()
  return None


def read_each(paths: Sequence[Place]) -> Iterator[bytes | None]:
  """Yield what `read` returns for each file. Behind a URL, many are on their way at
  once.
  """
  if not any(map(is_remote, paths)):
    yield from map(read, paths)
    return
  with ThreadPoolExecutor(AT_ONCE) as pool:
    yield from pool.map(read, paths)


def parse_json(text: bytes | None):
  """Parse a file's bytes as JSON.

  Raises:
    ValueError: they are not JSON, or None.
  """
  try:
    return json.loads(text or b"")
  except RecursionError:
    raise ValueError("nested too deeply") from None


def exists(path: Place) -> bool:
  """Return whether there is such a file."""
  with wrap_io_errors(path):
    if is_remote(path):
      return path.fs.exists(path.path)
    return os.path.exists(path)


def create(path: Place, text: str) -> bool:
  """Write a new file. Return False where there is one of that name."""
  try:
    with wrap_io_errors(path):
      _create(path, text)
    return True
  except FileExistsError:
    # The file is ours if the request was sent twice because the first answer was lost.
    return is_remote(path) and read(path) == text.encode()


def _create(path, text):
  """Write a new file. Raise `FileExistsError` where there is one of that name."""
  if is_remote(path):
    path.fs.pipe_file(path.path, text.encode(), mode="create")
    return
  path.parent.mkdir(parents=True, exist_ok=True)
  with path.open("x") as file:
    file.write(text)


def write(path: Place, data: bytes) -> None:
  """Write a file, and make its folder."""
  with wrap_io_errors(path):
    if is_remote(path):
      path.fs.pipe_file(path.path, data)
    else:
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(data)


def replace(
  path: Place,
  data: str | bytes,
  *,
  flush_file: bool = True,
  flush_folder: bool = True,
) -> None:
  """Write a file atomically: it is there whole or not at all.

  After a power failure in the next seconds, what was there before may be there again
  unless its folder is flushed, and anything unless the file is.
  """
  if isinstance(data, str):
    data = data.encode()
  if is_remote(path):
    return write(path, data)  # an object is there whole or not at all
  draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
  try:
    write(draft, data)
    # Before it is renamed: otherwise the name may outlive a power failure, and the bytes
    # not.
    if flush_file:
      flush(draft)
    draft.replace(path)
  except BaseException:
    draft.unlink(missing_ok=True)
    raise
  if flush_folder:
    flush(path.parent)  # the new name is an entry of its folder


def flush(path: Place) -> None:
  """Wait until a file, or the entries of a folder, are on the disk. A store keeps what
  it has confirmed.
  """
  if not isinstance(path, os.PathLike):
    return
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def remove(path: Place) -> None:
  """Remove a file, if there is one."""
  with wrap_io_errors(path), contextlib.suppress(FileNotFoundError):
    if is_remote(path):
      path.fs.rm_file(path.path)
    else:
      path.unlink()


def change_mark(path: Place) -> object:
  """Return what changes when a file is written or touched; None without the file."""
  with contextlib.suppress(FileNotFoundError), wrap_io_errors(path):
    if is_remote(path):
      return str(path.fs.ls(path.path, detail=True)[0])  # as `list_files` has it
    return path.stat().st_mtime_ns
  return None


def list_files(folder: Place) -> dict[str, object]:
  """Return the files in a folder, but not those in folders below, and the `change_mark` of each
  claim among them: few files, while on a disk each mark takes a call.
  """
  marks: dict[str, object] = {}
  with (
    contextlib.suppress(FileNotFoundError, NotADirectoryError),
    wrap_io_errors(folder),
  ):
    if is_remote(folder):
      for entry in folder.fs.ls(folder.path, detail=True):
        name = entry["name"].rpartition("/")[2]
        # A listing has the time and the tag of each object already.
        marks[name] = str(entry) if name.endswith(".claim") else None
      return marks
    with os.scandir(folder) as entries:
      for entry in entries:
        is_claim = entry.name.endswith(".claim")
        marks[entry.name] = change_mark(folder / entry.name) if is_claim else None
  return marks
