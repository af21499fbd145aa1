"""Claims say which process trains which block of a results folder.

They only save work: two processes that train the same block write the same bytes. A
claim is a file, `blocks/<block>.claim`, made only if there is none. Its process renews
it while it lives. Clocks of machines are never compared: a process that wants the block
looks at the claim again and again, and overwrites it if nothing about it has changed
for `LEASE` seconds of its own clock, or if the claim's process is seen to be gone from
this machine. On an object store a renewal writes the file again: a claim that is taken
away in that moment comes back.
"""

import contextlib
import json
import math
import os
import re
import socket
import threading
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from vmapseeds.mistakes import Failure, say
from vmapseeds.store.files import (
  Folder,
  create,
  is_remote,
  listing,
  mark,
  parse,
  place,
  read,
  remove,
  replace,
)

BLOCKS = "blocks"
LEASE = 300.0  # seconds; a claim is renewed ten times in them
UNFINISHED = 10.0  # seconds; an unreadable claim may still be being written for as long
PATIENCE = 5.0  # seconds of waiting before it is said
CLAIM = r"(\w{1,20})\.claim"


class Sight(NamedTuple):
  """What is known of a claim that another process may hold."""

  mark: object  # changes when the claim is renewed
  since: float  # when this mark was first seen, by this process's clock
  renewed: bool  # whether another mark was seen before
  owner: dict[str, Any] | None  # None if it cannot be read


class Claims:
  """The blocks of a results folder that this process holds; leaving the context gives
  all of them back.
  """

  def __init__(self, path: Folder):
    self.folder = place(path) / BLOCKS
    # When processes that are gone began the blocks that this one took over.
    self.abandoned: dict[str, float] = {}
    self._held: dict[str, dict[str, Any]] = {}
    self._renewed: dict[str, float] = {}
    self._seen: dict[str, Sight] = {}
    self._ended = threading.Event()
    self._lock = threading.Lock()  # a renewal must not write a claim that was removed
    self._renewer = threading.Thread(target=self._renew, daemon=True)

  def __enter__(self) -> "Claims":
    self._renewer.start()
    return self

  def __exit__(self, *_) -> None:
    self._ended.set()
    self._renewer.join()
    for block in [*self._held]:
      self.give_back(block)

  def take(self, block: int | str) -> bool:
    """Claim a block. Return False where another process holds it."""
    name = str(block)
    path = self._file(name)
    about = {"token": uuid.uuid4().hex, "begun": time.time()}
    mine = _process(os.getpid()) | about
    made = create(path, json.dumps(mine))
    if not made:
      if self._is_alive(name, mark(path)) is not False:
        return False
      with contextlib.suppress(LookupError, TypeError, ValueError):
        self.abandoned[name] = float((self._seen[name].owner or {})["begun"])
      replace(path, json.dumps(mine))
    self._held[name], self._renewed[name] = mine, time.monotonic()
    if made or self.holds(name):
      return True
    del self._held[name]  # several overwrote the claim, and the last of them has it
    return False

  def wait_for(self, name: str) -> None:
    """Claim what no process holds for long, such as the folder's description."""
    begun, said = time.monotonic(), False
    while not self.take(name):
      if not said and time.monotonic() - begun > PATIENCE:
        said = True
        say(
          f"waiting for another process, which writes the {name} {self.folder.parent}; if "
          f"it is gone, its claim is taken over after {LEASE:.0f} s"
        )
      time.sleep(0.1)

  def holds(self, block: int | str) -> bool:
    """Return whether this process still has a block. Another may take it over if this one
    sleeps for longer than the lease.
    """
    mine = self._held.get(str(block), {})
    owner = _owner(self._file(block)) or {}
    return "token" in mine and mine["token"] == owner.get("token")

  def is_fresh(self, block: int | str) -> bool:
    """Return whether a block was claimed or renewed so lately that no other process can
    have taken it over.
    """
    renewed = self._renewed.get(str(block), -math.inf)
    return time.monotonic() - renewed < LEASE / 2

  def give_back(self, block: int | str) -> None:
    """Remove the claim of a block, if it is still this process's."""
    name = str(block)
    with self._lock:
      if (name.isdecimal() and self.is_fresh(name)) or self.holds(name):
        remove(self._file(name))
      del self._held[name]

  def look(self) -> tuple[set[int], dict[str, bool | None]]:
    """Return which blocks have a record now; and block -> whether the process that holds
    it is alive, of the blocks that other processes have claimed. None means that it is
    not known yet.
    """
    there = listing(self.folder)
    finished = {int(name[:-5]) for name in there if re.fullmatch(r"\d+\.json", name)}
    found = {match[1]: m for n, m in there.items() if (match := re.fullmatch(CLAIM, n))}
    others = {name: m for name, m in found.items() if name not in self._held}
    return finished, {name: self._is_alive(name, m) for name, m in others.items()}

  def owner(self, block: int | str) -> str:
    """Return which process was seen to hold a block, in words."""
    sight = self._seen.get(str(block))
    owner = (sight.owner if sight else None) or {}
    host = str(owner.get("host", "")).partition(" ")[0]
    return f"process {owner['pid']} on {host}" if "pid" in owner else "another process"

  def _is_alive(self, name, mark):
    """Return whether the process that holds a claim is alive, None if it is not known."""
    now = time.monotonic()
    sight = self._seen.get(name)
    if sight is None or sight.mark != mark:
      owner = sight.owner if sight else None
      if owner is None or owner.get("host") == _host():
        owner = _owner(self._file(name))
      sight = self._seen[name] = Sight(mark, now, sight is not None, owner)
    if now - sight.since >= (UNFINISHED if sight.owner is None else LEASE):
      return False
    if sight.owner is not None and sight.owner.get("host") == _host():
      started = _process(sight.owner.get("pid"))["started"]
      return started == sight.owner.get("started")
    return sight.renewed or None

  def _file(self, block):
    return self.folder / f"{block}.claim"

  def _renew(self):
    count = 0
    while not self._ended.wait(LEASE / 10):
      count += 1
      for block in [*self._held]:
        # A shared disk that answers late must not end all renewals.
        with contextlib.suppress(Failure, OSError), self._lock:
          if block not in self._held:
            continue
          if not self.holds(block):
            self._renewed[block] = -math.inf  # another may have it
          else:
            if is_remote(self.folder):
              text = json.dumps(self._held[block] | {"renewals": count})
              replace(self._file(block), text)
            else:
              os.utime(str(self._file(block)))
            self._renewed[block] = time.monotonic()


def claimed(path: Folder) -> dict[str, bool]:
  """Return block -> whether its claim may be alive, for the blocks of a results folder
  that have a claim.
  """
  return {block: alive is not False for block, alive in Claims(path).look()[1].items()}


def abandon(path: Folder, block: int | str) -> None:
  """Remove the claim of a block whose worker, on whatever machine, is known to be
  dead.
  """
  remove(place(path) / BLOCKS / f"{block}.claim")


def _owner(claim):
  """Return the process that made a claim, None if it cannot be read."""
  with contextlib.suppress(ArithmeticError, TypeError, ValueError):
    owner = parse(read(claim))
    return owner if isinstance(owner, dict) and "host" in owner else None
  return None


def _process(pid):
  """Return a process of this machine: host, number and start time, which is None if it is gone
  or the system does not say.
  """
  started = None
  with contextlib.suppress(ArithmeticError, OSError, TypeError, ValueError):
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
