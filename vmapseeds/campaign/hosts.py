"""Several hosts under one coordinator (`jax.distributed`): each trains blocks of the same folder on its own devices.

No training step communicates; processes share the folder alone, and each takes blocks that no other has. A process that
dies leaves its block to the others. Without the coordinator JAX ends every process, from within and not politely: so
the training is a child of this process, which says what happened and how to go on.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax
from jax._src import distributed  # nothing public waits at a barrier without devices

from vmapseeds.mistakes import Failure, Mistake, at_least
from vmapseeds.store.files import said

GRACE = 1.0  # seconds in which the other processes disconnect
CHILD = "VMAPSEEDS_PROCESS"  # set where this process is the one that trains


class Host(NamedTuple):
  """Who coordinates, how many processes there are, and which of them this is."""

  coordinator: str
  processes: int
  process: int


def checked(coordinator: str | None, processes: int | None, process: int | None) -> Host | None:
  """These as a `Host`, None where none is given. `Mistake` where they make no host."""
  if coordinator is None or processes is None or process is None:
    if coordinator is processes is process is None:
      return None
    three = "--coordinator HOST:PORT, --processes N and --process I, the number of this one from 0"
    raise Mistake(f"{three}: give all of them, or none")
  if not re.fullmatch(r"[^\s:/]+:\d{1,5}", coordinator):
    raise Mistake(f"--coordinator {coordinator!r}: give HOST:PORT, the same to every process, e.g. 10.0.0.1:1234")
  if not 0 <= process < at_least("processes", processes, 1):
    raise Mistake(f"--process {process} of {processes}: give 0 to {processes - 1}")
  return Host(coordinator, processes, process)


def train_as_child(argv: Sequence[str], coordinator: str) -> None:
  """Runs the same command in a process of its own and exits as it does, or with 1 when JAX ended it.

  Raises:
    Failure: JAX, or somebody, ended it.
  """
  command = [sys.executable, "-m", "vmapseeds.cli", *argv]
  try:
    status = subprocess.run(command, env={**os.environ, CHILD: "1"}).returncode
  except KeyboardInterrupt:
    sys.exit(130)
  if status < 0:
    ended = f"this process ended with signal {-status}: the coordinator {coordinator} is gone, or it was killed"
    raise Failure(f"{ended}; what was written stays, and the same commands on all hosts go on")
  sys.exit(status)


def is_child() -> bool:
  """Whether this process trains, rather than waits for the one that does."""
  return CHILD in os.environ


def join(host: Host) -> None:
  """Connects to the coordinator, which process 0 is, and waits for all processes.

  Raises:
    Failure: they do not come together.
  """
  # Processes go on when another one dies: its blocks are theirs then.
  jax.config.update("jax_enable_recoverability", True)
  try:
    jax.distributed.initialize(*host, heartbeat_timeout_seconds=30)
  except (RuntimeError, ValueError) as error:
    who = f"process {host.process} cannot join {host.processes} processes at {host.coordinator}"
    raise Failure(f"{who} ({said(error)})") from None


def leave(host: Host) -> None:
  """Waits until every living process is done and disconnects, the coordinator last.

  Processes that may die are not waited for by JAX, and it ends those that disconnect when the coordinator is gone.
  """
  with contextlib.suppress(jax.errors.JaxRuntimeError):  # one that has died does not come
    client = distributed.global_state.client
    client and client.wait_at_barrier("all runs are done", 30_000)
  if host.process == 0:
    time.sleep(GRACE)
  jax.distributed.shutdown()
