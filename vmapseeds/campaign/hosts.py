"""Train on several hosts under one coordinator (`jax.distributed`): each host trains
blocks of the same folder on its own devices.

Training steps do not communicate. Processes share only the folder, and each claims
blocks that no other has. If a process dies, the others train its block. If the
coordinator dies, JAX aborts every process. So a child process does the training, and
its parent says what happened and how to resume.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

import jax

from vmapseeds.errors import Failure, UserError, check_at_least, say
from vmapseeds.store.files import short_message

SILENCE = 3.0  # seconds of waiting before it is said
# Seconds that a process waits for the others at the end. Tests wait less.
BARRIER = int(os.environ.get("VMAPSEEDS_BARRIER", "30"))
GRACE = 1.0  # seconds that the other processes have to disconnect
CHILD = "VMAPSEEDS_PROCESS"  # set in the child process, which trains


class Host(NamedTuple):
  """The coordinator's address, the number of processes, and the number of this one."""

  coordinator: str
  processes: int
  process: int


def parse_host(
  coordinator: str | None,
  processes: int | None,
  process: int | None,
) -> Host | None:
  """Return these options as a `Host`, None if none is given.

  Raises:
    UserError: some are missing or invalid.
  """
  if coordinator is None or processes is None or process is None:
    if coordinator is processes is process is None:
      return None
    three = "--coordinator HOST:PORT, --processes N and --process I, the number of this one from 0"
    raise UserError(f"{three}: give all of them, or none")
  if not re.fullmatch(r"[^\s:/]+:\d{1,5}", coordinator):
    raise UserError(
      f"--coordinator {coordinator!r}: give HOST:PORT, the same to every process, e.g. 10.0.0.1:1234"
    )
  if not 0 <= process < check_at_least("processes", processes, 1):
    raise UserError(f"--process {process} of {processes}: give 0 to {processes - 1}")
  return Host(coordinator, processes, process)


def train_as_child(argv: Sequence[str], coordinator: str) -> None:
  """Run the same command in a child process, and exit with its status.

  Raises:
    Failure: a signal ended the child, from JAX or from somebody else.
  """
  command = [sys.executable, "-m", "vmapseeds.cli", *argv]
  child = subprocess.Popen(command, env=os.environ | {CHILD: "1"})
  # The child ends in order: SIGTERM reaches only this process, Ctrl-C on a terminal
  # both.
  signal.signal(signal.SIGTERM, lambda *_: child.terminate())
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  status = child.wait()
  if status < 0:
    ended = f"this process ended with signal {-status}: the coordinator {coordinator} is gone, or it was killed"
    raise Failure(
      f"{ended}; what was written stays, and the same commands on all hosts resume"
    )
  sys.exit(status)


def is_child() -> bool:
  """Return whether this process is the child that trains, not the waiting parent."""
  return CHILD in os.environ


def connect_hosts(host: Host) -> None:
  """Connect to the coordinator, which is process 0, and wait for all processes.

  Raises:
    Failure: this process cannot join the others.
  """
  # A process must survive when another one dies, and train its blocks.
  jax.config.update("jax_enable_recoverability", True)
  try:
    jax.distributed.initialize(*host, heartbeat_timeout_seconds=30)
  except (RuntimeError, ValueError) as error:
    who = f"process {host.process} cannot join {host.processes} processes at {host.coordinator}"
    raise Failure(f"{who} ({short_message(error)})") from None
  # JAX catches SIGTERM, to notify programs that ask for it. Here it ends the process.
  signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


def disconnect_hosts(host: Host) -> None:
  """Wait until every living process is done and disconnect, the coordinator last.

  JAX does not wait for processes that are allowed to die, and it aborts those that
  disconnect after the coordinator.
  """
  # JAX has no public barrier without devices. Importing Orbax takes a second.
  from orbax.checkpoint import multihost

  waiting = threading.Timer(
    SILENCE,
    say,
    [
      f"all runs are done: waiting up to {BARRIER} s for the other processes under "
      f"{host.coordinator} to end"
    ],
  )
  waiting.daemon = True
  waiting.start()
  # A process that has died never reaches the barrier.
  with contextlib.suppress(jax.errors.JaxRuntimeError):
    multihost.sync_global_processes(
      "all runs are done", timeout=BARRIER, processes=set(range(host.processes))
    )
  waiting.cancel()
  if host.process == 0:
    time.sleep(GRACE)
  jax.distributed.shutdown()
