"""Claims say which process trains which block of a results folder.

They only save work: two processes that train the same block write the same bytes. A
claim is a file, `blocks/<block>.claim`, made only if there is none. Its process renews
it while it lives. A claim that was not renewed for `LEASE` seconds, or whose process is
seen to be gone, is overwritten by any process that wants the block. On an object store
a renewal writes the file again: a claim that is taken away in that moment comes back.
"""

import contextlib
import json
import os
import re
import socket
import threading
import time
import uuid
from pathlib import Path

from vmapseeds.mistakes import Failure
from vmapseeds.store.files import (
  Folder,
  Place,
  age,
  create,
  is_remote,
  names,
  parse,
  place,
  read,
  remove,
  replace,
)

BLOCKS = "blocks"
LEASE = 600.0  # seconds
UNFINISHED = (
  10.0  # seconds; an unreadable claim that is younger may still be being written
)
CLAIM = r"(\w{1,20})\.claim"


class Claims:
  """The blocks of a results folder that this process holds; leaving the context gives
  all of them back.
  """

  def __init__(self, path: Folder):
    self.folder = place(path) / BLOCKS
    self._held: dict[str, bytes] = {}
    # When processes that are gone began the blocks that this one took over.
    self.abandoned: dict[str, float] = {}
    self._ended = threading.Event()
    self._renewer = threading.Thread(target=self._renew, daemon=True)

  def __enter__(self) -> "Claims":
    self._renewer.start()
    return self

  def __exit__(self, *_) -> None:
    self._ended.set()
    self._renewer.join()  # a renewal after the removal would write the claim again
    for block in self._held:
      if self.holds(block):
        remove(self._file(block))

  def take(self, block: int | str) -> bool:
    """Claim a block. Return False where another process holds it."""
    path = self._file(block)
    about = {"token": uuid.uuid4().hex, "begun": time.time()}
    text = json.dumps(_process(os.getpid()) | about)
    if not create(path, text):
      if not stale(path):
        return False
      with contextlib.suppress(LookupError, TypeError, ValueError):
        self.abandoned[str(block)] = float(parse(read(path))["begun"])
      replace(path, text)
    self._held[str(block)] = text.encode()
    return self.holds(
      block
    )  # if several processes overwrite a stale claim, the last one has it

  def holds(self, block: int | str) -> bool:
    """Return whether this process still has a block. Another may take it over if this one
    sleeps for longer than the lease.
    """
    return read(self._file(block)) == self._held.get(str(block), b"")

  def _file(self, block):
    return self.folder / f"{block}.claim"

  def _renew(self):
    while not self._ended.wait(LEASE / 10):
      for block in list(self._held):
        with contextlib.suppress(
          Failure, OSError
        ):  # a shared disk that answers late must not end all renewals
          if self.holds(block):
            if is_remote(self.folder):
              replace(self._file(block), self._held[block].decode())
            else:
              os.utime(str(self._file(block)))


def claimed(path: Folder) -> dict[str, bool]:
  """Return block -> whether its claim is alive, for the blocks of a results folder that
  have a claim.
  """
  folder = place(path) / BLOCKS
  found = (re.fullmatch(CLAIM, name) for name in names(folder))
  return {match[1]: not stale(folder / match[0]) for match in found if match}


def abandon(path: Folder, block: int | str) -> None:
  """Remove the claim of a block whose worker, on whatever machine, is known to be
  dead.
  """
  remove(place(path) / BLOCKS / f"{block}.claim")


def stale(claim: Place) -> bool:
  """Return whether the process that made this claim no longer trains the block."""
  if (
    abs(age(claim)) > LEASE
  ):  # `abs`, because a claim dated in the far future would never expire
    return True
  try:
    owner = parse(read(claim))
    return (
      owner["host"] == _host() and _process(owner["pid"])["started"] != owner["started"]
    )
  except (ArithmeticError, LookupError, TypeError, ValueError):
    return age(claim) > UNFINISHED


def _process(pid):
  """Return a process of this machine: host, number and start time, which is None if it is gone
  or the system does not say.
  """
  started = None
  with contextlib.suppress(OSError):
    fields = Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()
    started = None if fields[0] in "ZX" else fields[19]
  return {"host": _host(), "pid": pid, "started": started}


def _host():
  """Name the scope in which process numbers are unique: machine, boot and, in
  containers, namespace.
  """
  found = [socket.gethostname()]
  with contextlib.suppress(OSError):
    found += [
      Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
      os.readlink("/proc/self/ns/pid"),
    ]
  return " ".join(found)
