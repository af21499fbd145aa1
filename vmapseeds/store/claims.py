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

from vmapseeds.errors import Failure, say
from vmapseeds.store.files import (
  Folder,
  as_folder,
  change_mark,
  create,
  is_remote,
  list_files,
  parse_json,
  read,
  remove,
  replace,
)

BLOCKS = "blocks"
LEASE = 300.0  # seconds; a claim is renewed ten times in them
UNFINISHED = 10.0  # seconds; an unreadable claim may still be being written for as long
PATIENCE = 5.0  # seconds of waiting before it is said
CLAIM = r"(\w{1,20})\.claim"


class ObservedClaim(NamedTuple):
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
    self.folder = as_folder(path) / BLOCKS
    # When processes that are gone began the blocks that this one took over.
    self.abandoned: dict[str, float] = {}
    self._mine: dict[str, dict[str, Any]] = {}
    self._renewed: dict[str, float] = {}
    self._seen: dict[str, ObservedClaim] = {}
    self._ended = threading.Event()
    self._lock = threading.Lock()  # a renewal must not write a claim that was removed
    self._renewer = threading.Thread(target=self._renew, daemon=True)

  def __enter__(self) -> "Claims":
    self._renewer.start()
    return self

  def __exit__(self, *_) -> None:
    self._ended.set()
    self._renewer.join()
    for block in list(self._mine):
      self.give_back(block)

  def take(self, block: int | str) -> bool:
    """Claim a block. Return False where another process holds it."""
    name = str(block)
    path = self._file(name)
    mine = _process(os.getpid())
    # The token tells this claim from others of the same process.
    mine |= {"token": uuid.uuid4().hex, "begun": time.time()}
    is_new = create(path, json.dumps(mine))
    if not is_new:
      if self._is_alive(name, change_mark(path)) is not False:
        return False
      with contextlib.suppress(LookupError, TypeError, ValueError):
        owner = self._seen[name].owner or {}
        self.abandoned[name] = float(owner["begun"])
      replace(path, json.dumps(mine))
    self._mine[name] = mine
    self._renewed[name] = time.monotonic()
    if is_new or self.holds(name):
      return True
    del self._mine[name]  # several overwrote the claim, and the last of them has it
    return False

  def wait_for(self, name: str) -> None:
    """Claim what no process holds for long, such as the folder's description."""
    begun = time.monotonic()
    silent = True
    while not self.take(name):
      if silent and time.monotonic() - begun > PATIENCE:
        silent = False
        say(
          f"waiting for another process, which writes the {name} {self.folder.parent}; if "
          f"it is gone, its claim is taken over after {LEASE:.0f} s"
        )
      time.sleep(0.1)

  def holds(self, block: int | str) -> bool:
    """Return whether this process still has a block. Another may take it over if this one
    sleeps for longer than the lease.
    """
    mine = self._mine.get(str(block), {})
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
      del self._mine[name]

  def look(self) -> tuple[set[int], dict[str, bool | None]]:
    """Return which blocks have a record now; and block -> whether the process that holds
    it is alive, of the blocks that other processes have claimed. None means that it is
    not known yet.
    """
    finished = set()
    alive = {}
    # One listing for both: it takes long where there are many records.
    for file, mark_now in list_files(self.folder).items():
      if re.fullmatch(r"\d+\.json", file):
        finished.add(int(file.removesuffix(".json")))
      claim = re.fullmatch(CLAIM, file)
      if claim and claim[1] not in self._mine:
        alive[claim[1]] = self._is_alive(claim[1], mark_now)
    return finished, alive

  def owner(self, block: int | str) -> str:
    """Return which process was seen to hold a block, in words."""
    observed = self._seen.get(str(block))
    if observed is None or observed.owner is None or "pid" not in observed.owner:
      return "another process"
    host = str(observed.owner.get("host", "")).partition(" ")[0]
    return f"process {observed.owner['pid']} on {host}"

  def _is_alive(self, name, mark):
    """Return whether the process that holds a claim is alive, None if it is not known."""
    now = time.monotonic()
    observed = self._seen.get(name)
    if observed is None or observed.mark != mark:
      observed = self._seen[name] = self._observe(name, mark, now, observed)
    owner = observed.owner
    patience = UNFINISHED if owner is None else LEASE
    if now - observed.since >= patience:
      return False
    if owner is not None and owner.get("host") == _host():
      # The system reuses process numbers, but not with the same start time.
      started = _process(owner.get("pid"))["started"]
      return started == owner.get("started")
    return observed.renewed or None

  def _observe(self, name, mark, now, before):
    """Return what is known of a claim that has another mark than `before`."""
    owner = before.owner if before else None
    # Reading a claim costs a request. For processes of other machines only the lease
    # counts, whoever they are, so their claim is read once.
    if owner is None or owner.get("host") == _host():
      owner = _owner(self._file(name))
    return ObservedClaim(mark, now, before is not None, owner)

  def _file(self, block):
    return self.folder / f"{block}.claim"

  def _renew(self):
    """Renew all claims, ten times in a lease, until the context is left."""
    count = 0
    while not self._ended.wait(LEASE / 10):
      count += 1
      for block in list(self._mine):
        # A shared disk that answers late must not end all renewals.
        with contextlib.suppress(Failure, OSError), self._lock:
          self._renew_one(block, count)

  def _renew_one(self, block, count):
    """Renew a claim, if it is still this process's."""
    if block not in self._mine:  # given back while this thread waited for the lock
      return
    if not self.holds(block):
      self._renewed[block] = -math.inf  # another may have it
      return
    if is_remote(self.folder):
      # Objects cannot be touched, and the same bytes might get the same mark.
      text = json.dumps(self._mine[block] | {"renewals": count})
      replace(self._file(block), text)
    else:
      os.utime(str(self._file(block)))
    self._renewed[block] = time.monotonic()


def claimed(path: Folder) -> dict[str, bool]:
  """Return block -> whether its claim may be alive, for the blocks of a results folder
  that have a claim.
  """
  _, alive = Claims(path).look()
  # What is not known yet may be alive.
  return {block: state is not False for block, state in alive.items()}


def _owner(claim):
  """Return the process that made a claim, None if it cannot be read."""
  with contextlib.suppress(ArithmeticError, TypeError, ValueError):
    owner = parse_json(read(claim))
    if isinstance(owner, dict) and "host" in owner:
      return owner
  return None


def _process(pid):
  """Return a process of this machine: host, number and start time, which is None if it is gone
  or the system does not say.
  """
  started = None
  with contextlib.suppress(ArithmeticError, OSError, TypeError, ValueError):
    # The second field, the program's name in brackets, may have spaces and brackets.
    fields = Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()
    is_dead = fields[0] in "ZX"  # a zombie keeps its number until its parent looks
    if not is_dead:
      started = fields[19]
  return {"host": _host(), "pid": pid, "started": started}


def _host():
  """Name the scope in which process numbers are unique: machine, boot and, in
  containers, namespace.
  """
  parts = [socket.gethostname()]
  with contextlib.suppress(OSError):
    # Process numbers begin anew with each boot, and in each container.
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    namespace = os.readlink("/proc/self/ns/pid")
    parts += [boot, namespace]
  return " ".join(parts)
