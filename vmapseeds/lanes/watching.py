"""The last resort against steps that never end: `Watch`."""

import collections
import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from vmapseeds.errors import Failure, option, say

POLL = 5.0  # seconds between two looks
# A step in which nothing runs for so many seconds is given up.
PATIENCE = 300.0
# Waiting threads wake up now and then: a progress bar's, for one. So nothing runs where
# threads do in fewer looks than this, and want less of a processor.
RUNNING, BUSY = 0.1, 0.05
# So many looks in a row must find nothing running after an interrupt that ended no step.
LAST_LOOKS = 3
# A step is reported that takes so many times what any before took, and so many seconds.
TIMES, LEAST = 20, 180.0
TASKS = Path("/proc/self/task")  # the threads of this process, on Linux


class Watch:
  """A context in which to wait for a step, and a thread that looks at it until `close`.

  Where threads of this process compute, on CPUs, a step in which none runs waits for
  itself: the wait ends with a `Failure`, or, where JAX cannot be interrupted, the
  process with the same line. A thread that waits for a processor runs, and looks are
  counted, not seconds, so that no step is given up because the machine is busy, or
  because the process or the machine was stopped for a while.
  """

  def __init__(self, platform: str) -> None:
    self._computes_here = platform == "cpu" and TASKS.exists()
    self._in_main_thread = threading.current_thread() is threading.main_thread()
    self._since: float | None = None
    # Of the waits but the first, which only starts a step
    self._longest: float | None = None
    self._failure = ""
    # Made here, as a thread does not know whether the user has written a command.
    self._one_lane = option("lane_width", 1)
    self._closed = threading.Event()
    threading.Thread(target=self._look, daemon=True).start()

  def close(self) -> None:
    self._closed.set()

  def __enter__(self) -> None:
    self._since = time.monotonic()

  def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
    if self._since is not None:
      waited = time.monotonic() - self._since
      self._longest = 0.0 if self._longest is None else max(self._longest, waited)
    self._since = None
    if self._failure and kind and issubclass(kind, KeyboardInterrupt):
      raise Failure(self._failure) from None

  def _look(self) -> None:
    looks = collections.deque[tuple[bool, float]](maxlen=round(PATIENCE / POLL))
    others = _OtherThreads()
    watched, reported = None, False
    while not self._closed.wait(POLL):
      since = self._since
      if since is None or since != watched:
        looks.clear()
        others.look()  # from now on
        watched, reported = since, False
        continue
      looks.append(others.look())
      if self._computes_here and _nothing_runs(looks):
        return self._give_up(others)
      taken = time.monotonic() - since
      if self._longest and taken > max(LEAST, TIMES * self._longest) and not reported:
        reported = True
        say(
          f"a step has taken {taken / 60:.1f} min, and none before it more than "
          f"{self._longest:.3g} s: the machine is busy, or it never ends; after Ctrl-C "
          "the same command resumes"
        )
    return None

  def _give_up(self, others: "_OtherThreads") -> None:
    self._failure = (
      f"a step stands still: nothing has run in this process for {PATIENCE / 60:.1f} "
      "min; what was written stays: rerun the same command to resume, with "
      f"{self._one_lane} if it happens again, and please report it"
    )
    numbers = [
      s for s in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(s))
    ]
    if numbers and self._in_main_thread:
      signal.pthread_kill(threading.main_thread().ident or 0, numbers[0])
    # The main thread may need a while to end the step, where others have the processor.
    quiet_looks = 0
    while quiet_looks < LAST_LOOKS:
      if self._closed.wait(POLL):
        return
      running, seconds = others.look()
      idle = not running and seconds <= BUSY * POLL
      quiet_looks = quiet_looks + 1 if idle else 0
    say(f"error: {self._failure}")  # no signal reaches it where it waits
    os._exit(1)


def _nothing_runs(looks) -> bool:
  """Return whether almost no thread ran in the last looks, `PATIENCE` seconds."""
  if len(looks) < looks.maxlen:
    return False
  times_running = sum(running for running, _ in looks)
  seconds = sum(seconds for _, seconds in looks)
  return times_running <= RUNNING * len(looks) and seconds <= BUSY * PATIENCE


class _OtherThreads:
  """The threads of this process but the one that looks at them."""

  def __init__(self) -> None:
    self._wanted: dict[str, float] = {}
    self.look()

  def look(self) -> tuple[bool, float]:
    """Return whether one of them runs, or could if it had a processor or its page; and
    for how many seconds they ran, or waited for a processor, since the last look.
    """
    states, wanted = set(), {}
    with contextlib.suppress(OSError):
      for task in TASKS.iterdir():
        if task.name != str(threading.get_native_id()):
          with contextlib.suppress(OSError):  # it has ended meanwhile
            states.add((task / "stat").read_text().rpartition(")")[2].split()[0])
            wanted[task.name] = _wanted_seconds(task)
    before, self._wanted = self._wanted, wanted
    seconds = sum(
      max(0.0, seconds - before.get(name, 0.0)) for name, seconds in wanted.items()
    )
    return bool({"R", "D"} & states), seconds


def _wanted_seconds(task: Path) -> float:
  """Return for how long a thread has run, and has waited for a processor. A kernel
  without statistics of its scheduler tells only the first.
  """
  try:
    ran, waited, _ = (task / "schedstat").read_text().split()
  except (OSError, ValueError):
    ticks = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
  return (int(ran) + int(waited)) / 1e9
