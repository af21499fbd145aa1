"""Where results folders are: on a disk, or behind a URL that fsspec knows, such as `s3://bucket/folder`.

Credentials and endpoints are those that fsspec and the protocol's package find: in the environment and in their own
files. A folder behind a URL has no folders in it, only objects that are put whole; listings are never cached.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from upath import UPath
from zarr.storage import FsspecStore

from vmapseeds.errors import Failure, Mistake

EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}  # of this package, by protocol
# Else s3fs asks for the size of an object before it reads it, and reads a large one in parts, maybe of two writes.
WHOLE = {"max_concurrency": 1}


def place(given: str | os.PathLike | UPath) -> Path | UPath:
  """The folder that is meant: a `Path` where it is on a disk, else a `UPath`.

  Raises:
    Mistake: a URL of a protocol that is unknown or whose package is not installed; or one that went through `Path`,
      which makes one slash of two.
  """
  if isinstance(given, UPath) and not isinstance(given, os.PathLike):
    return UPath(given, **_options(given.protocol))
  if not isinstance(given, str) and not (isinstance(given, os.PathLike) and isinstance(os.fspath(given), str)):
    raise Mistake(f"{given!r:.100} is no folder: give its path or its URL")
  text = os.fspath(given)
  protocol, found, _ = text.partition("://")
  if not found:
    swallowed = re.match(r"(\w\w+):/", text)
    if swallowed and swallowed[1] in fsspec.available_protocols():
      raise Mistake(f"{text} is no URL, which has two slashes: give it as text, not as a Path")
    return Path(given)
  if protocol in ("file", "local"):
    return Path(text.partition("://")[2])
  try:
    if protocol.startswith("http"):  # of these files cannot be listed
      raise ValueError
    fsspec.get_filesystem_class(protocol)
  except ImportError as error:
    how = f"pip install 'vmapseeds[{EXTRAS[protocol]}]'" if protocol in EXTRAS else str(error)
    raise Mistake(f"{text}: the package for {protocol}:// is not installed: {how}") from None
  except ValueError:
    raise Mistake(
      f"{text}: no results can be behind {protocol}://: give a local folder, s3://, gs:// or another store of fsspec"
    ) from None
  return UPath(text, **_options(protocol))


def _options(protocol: str) -> dict[str, Any]:
  return {"use_listings_cache": False, **(WHOLE if protocol in ("s3", "s3a") else {})}


def is_remote(path: Path | UPath) -> bool:
  """Whether a folder is behind a URL."""
  return not isinstance(path, os.PathLike)


@contextlib.contextmanager
def reached(path: Any) -> Iterator[None]:
  """Makes a `Failure` of whatever a store or the network to it refuses. That an object is not there is no failure."""
  try:
    yield
  except (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, Failure):
    raise
  except Exception as error:
    said = " ".join(str(error).split())[:200] or type(error).__name__
    raise Failure(f"{path} cannot be reached ({said}); what was written stays, and the same command goes on") from error


def write(path: Path | UPath, data: bytes) -> None:
  """Writes a file."""
  if not is_remote(path):
    path.write_bytes(data)
    return
  with reached(path):
    path.fs.pipe_file(path.path, data)


def zarr_store(path: Path | UPath) -> "Path | _Store":
  """What Zarr and xarray open."""
  # A wrapper, because Zarr would make a second file system of an asynchronous one, with connections that nobody closes.
  return _Store(AsyncFileSystemWrapper(path.fs, asynchronous=True), path=path.path) if is_remote(path) else path


class _Store(FsspecStore):
  """A store whose failures are told apart from damage."""

  async def get(self, *args, **how):
    with reached(self):
      return await super().get(*args, **how)

  async def get_partial_values(self, *args, **how):
    with reached(self):
      return await super().get_partial_values(*args, **how)

  async def set(self, *args, **how):
    with reached(self):
      await super().set(*args, **how)

  async def delete(self, *args, **how):
    with reached(self):
      await super().delete(*args, **how)

  async def exists(self, *args, **how):
    with reached(self):
      return await super().exists(*args, **how)

  def __str__(self) -> str:
    return self.fs.unstrip_protocol(self.path)
