"""Which blocks of a campaign are left, and which of them other processes train."""

import collections
import math
import random
import time
from collections.abc import Collection, Sequence

from vmapseeds.store.claims import Claims
from vmapseeds.store.results import Results

POLL = 0.5  # seconds between two looks at what other processes have done, at least
MOST_NAMED = 8  # blocks of a process, in a line that says what it trains


class BlockSchedule:
  """Which blocks are left to train, and which of them no other process trains.

  Args:
    blocks: those that are wanted.
    claims: what this process has claimed; other processes see it.
  """

  def __init__(self, blocks: Sequence[int], claims: Claims):
    self.claims = claims
    self.remaining = list(blocks)  # not finished at the last look
    self.finished: set[int] = set()  # of all blocks of the folder
    self.others: set[int] = set()  # those that other processes may be training
    self.looked = -math.inf  # when the folder was looked at, by this process's clock
    self._alive: dict[str, bool | None] = {}
    self._free = collections.deque[int]()
    self._pause = 0.0

  def is_due(self) -> bool:
    """Return whether it is time to look at the folder."""
    # Listing the records takes long where there are many, and most often it is enough
    # to know of one's own.
    return not self._free or time.monotonic() - self.looked > self._pause

  def look(self) -> None:
    """Find out what other processes have done, and what they train."""
    begun = time.monotonic()
    self.finished, self._alive = self.claims.look()
    self.remaining = [block for block in self.remaining if block not in self.finished]
    self.others = {
      block for block in self.remaining if self._is_alive(block) is not False
    }
    free = [block for block in self.remaining if block not in self.others]
    if self.others:  # which would take the same blocks in the same order
      random.shuffle(free)
    self._free = collections.deque(free)
    self.looked = time.monotonic()
    # A look takes at most a tenth of the time.
    self._pause = max(POLL, 10 * (self.looked - begun))

  def next_block(self) -> int | None:
    """Claim a block and return it, None if other processes have all that are left."""
    while self._free:
      block = self._free.popleft()
      if self.claims.take(block):
        return block
    return None

  def is_certain(self) -> bool:
    """Return whether the processes that hold what is left are known to be alive."""
    return all(self._is_alive(block) is not None for block in self.remaining)

  def _is_alive(self, block):
    """Return whether the process that holds a block is alive: False without one, None if
    it is not known yet.
    """
    return self._alive.get(str(block), False)


def count_runs(results: Results, blocks: Collection[int], total: int) -> int:
  """Return how many runs finished blocks have, of those that begin before run `total`."""
  runs = 0
  for block in blocks:
    # Another process may have added blocks that this one does not know.
    if block < len(results.blocks) and results.blocks[block].start < total:
      runs += len(results.blocks[block])
  return runs


def describe_others(claims: Claims, blocks: Collection[int]) -> str:
  """Return which processes train which blocks."""
  blocks_by_owner: dict[str, list[int]] = {}
  for block in sorted(blocks):
    blocks_by_owner.setdefault(claims.owner(block), []).append(block)
  parts = []
  for owner, owned in blocks_by_owner.items():
    noun = "block"
    if len(owned) > 1:
      noun = "blocks"
    numbers = ", ".join(map(str, owned[:MOST_NAMED]))
    if len(owned) > MOST_NAMED:
      numbers += " and more"
    parts.append(f"{owner} trains {noun} {numbers}")
  return "; ".join(parts)
