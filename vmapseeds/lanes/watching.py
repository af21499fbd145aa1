"""The last resort against steps that never end: `Watch`."""

import collections
import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from vmapseeds.mistakes import Failure, say

POLL = 5.0  # seconds between two looks
# A step in which nothing runs for so many seconds is given up.
PATIENCE = 300.0
# Waiting threads wake up now and then: a progress bar's, for one. So nothing runs where
# threads do in fewer looks than this, and take less of a processor.
RUNNING, BUSY = 0.1, 0.05
# A step is reported that takes so many times what any before took, and so many seconds.
TIMES, LEAST = 20, 180.0
TASKS = Path("/proc/self/task")  # the threads of this process, on Linux


class Watch:
  """A context in which to wait for a step, and a thread that looks at it until `close`.

  Where threads of this process compute, on CPUs, a step in which none runs waits for
  itself: the wait ends with a `Failure`, or, where JAX cannot be interrupted, the
  process with the same line. A thread that waits for a processor runs, so
  that no step is given up because the machine is busy.
  """

  def __init__(self, platform: str) -> None:
    self._computes_here = platform == "cpu" and TASKS.exists()
    self._in_main_thread = threading.current_thread() is threading.main_thread()
    self._since: float | None = None
    # Of the waits but the first, which only starts a step
    self._longest: float | None = None
    self._failure = ""
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
    looks = collections.deque[tuple[bool, float]](maxlen=round(PATIENCE / POLL) + 1)
    watched, reported = None, False
    while not self._closed.wait(POLL):
      since = self._since
      if since is None or since != watched:
        looks.clear()
        watched, reported = since, False
        continue
      # Without what looking at many threads takes
      looks.append((_others_run(), time.process_time() - time.thread_time()))
      if self._computes_here and _nothing_runs(looks):
        return self._give_up()
      taken = time.monotonic() - since
      if self._longest and taken > max(LEAST, TIMES * self._longest) and not reported:
        reported = True
        say(
          f"a step has taken {taken / 60:.1f} min, and none before it more than "
          f"{self._longest:.3g} s: the machine is busy, or it never ends; after Ctrl-C "
          "the same command resumes"
        )
    return None

  def _give_up(self) -> None:
    self._failure = (
      f"a step stands still: nothing has run in this process for {PATIENCE / 60:.1f} "
      "min; what was written stays: run the same command again to resume, with "
      "--lane-width 1 if it happens again, and please report it"
    )
    numbers = [
      s for s in (signal.SIGINT, signal.SIGTERM) if callable(signal.getsignal(s))
    ]
    if numbers and self._in_main_thread:
      signal.pthread_kill(threading.main_thread().ident or 0, numbers[0])
    if not self._closed.wait(POLL):  # no signal reaches it where it waits
      say(f"error: {self._failure}")
      os._exit(1)


def _nothing_runs(looks) -> bool:
  """Return whether almost no thread ran in the last looks, `PATIENCE` seconds."""
  if len(looks) < looks.maxlen:
    return False
  times_running = sum(running for running, _ in looks)
  seconds = looks[-1][1] - looks[0][1]
  return times_running <= RUNNING * len(looks) and seconds <= BUSY * PATIENCE


def _others_run() -> bool:
  """Return whether a thread of this process but this one runs, or could if it had a
  processor or its page.
  """
  states = []
  with contextlib.suppress(OSError):
    for task in TASKS.iterdir():
      if task.name != str(threading.get_native_id()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
          states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
  return bool({"R", "D"} & {*states})
