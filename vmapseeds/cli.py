"""The program `vmapseeds`: which command is called, and how it ends. `commands` has the
commands.
"""

import ast
import contextlib
import errno
import inspect
import os
import signal
import sys
import threading
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import vmapseeds
from vmapseeds import removed
from vmapseeds.errors import (
  Failure,
  UserError,
  check_one_of,
  naming_flags,
  one_line,
  print_note,
  printing_notes,
)
from vmapseeds.machine import (
  hide_absent_accelerators,
  print_described,
  print_what_can_be_encoded,
  use_cpu_alone,
)

# Those whose completions are tried.
SHELLS = ("bash", "zsh", "fish")
# The other commands use the CPU alone: a training may have the accelerator, or there may
# be none.
TRAINING = frozenset(("demo", "train", "work", "replay"))


def summaries() -> dict[str, str]:
  """Return command -> what it does, in a sentence.

  The docstrings are read without importing the commands, because cyclopts, which makes
  flags of them, takes longer than all else here.
  """
  source = Path(__file__).with_name("commands.py").read_text("utf-8")
  found = {}
  for node in ast.parse(source).body:
    if not isinstance(node, ast.FunctionDef):
      continue
    if any(ast.unparse(decorator) == "command" for decorator in node.decorator_list):
      name = node.name.strip("_").replace("_", "-")
      words = " ".join((ast.get_docstring(node) or "").split())
      found[name] = words.split(". ")[0].rstrip(".")
  return found


def print_help() -> None:
  """Print the commands, and what else there is."""
  print("usage: vmapseeds COMMAND [flags]\n")
  print(f"{inspect.cleandoc(vmapseeds.__doc__ or '')}\n")
  print_described(summaries())
  print(
    "\nvmapseeds COMMAND --help says what a command takes, --version which this is."
  )
  print(f"--print-completion SHELL prints completions for {', '.join(SHELLS)}.")


def print_completion(shell: str = "", *others: str) -> None:
  """Print a script with which a shell completes commands and flags."""
  check_one_of("shell", shell, SHELLS)
  if others:
    raise UserError(f"--print-completion {shell} {' '.join(others)}: give one shell")
  from vmapseeds.commands import APP

  print(APP.generate_completion(prog_name="vmapseeds", shell=typing.cast(Any, shell)))


def call_command(words: Sequence[str]) -> None:
  """Call the command that words of the command line name."""
  name = words[0] if words else ""
  if name in removed.COMMANDS:
    raise UserError(f"vmapseeds {name} is gone: {removed.COMMANDS[name]}")
  check_one_of("command", name, summaries())
  if name not in TRAINING:
    use_cpu_alone()
  from vmapseeds import commands, flags

  flags.call(commands.APP, words)


class Terminated(KeyboardInterrupt):
  """SIGTERM, which ends a program as Ctrl-C does."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
  """Raise Terminated at SIGTERM. Send it, or a Ctrl-C, again where Python ignores the
  exception, as it does in callbacks of the garbage collector.
  """
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  numbers: dict[type[BaseException], int] = {
    Terminated: signal.SIGTERM,
    KeyboardInterrupt: signal.SIGINT,
  }
  hook = sys.unraisablehook

  def terminate(*_):
    raise Terminated

  def send_again(ignored: "sys.UnraisableHookArgs") -> None:
    number = numbers.get(ignored.exc_type)
    if number is not None:
      threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    else:
      hook(ignored)

  before = signal.signal(signal.SIGTERM, terminate)
  sys.unraisablehook = send_again
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    sys.unraisablehook = hook


@contextlib.contextmanager
def one_line_errors(*, hides_accelerators: bool = True) -> Iterator[None]:
  """Print a user's mistake as one line on stderr, which names flags, and exit with status
  2. Other expected ends print no traceback.

  Args:
    hides_accelerators: see `hide_absent_accelerators`.
  """
  if hides_accelerators:
    hide_absent_accelerators()
  try:
    try:
      with naming_flags(), printing_notes():
        yield
    finally:
      # Here, so that errors of the disk are caught below; help ends with an exit.
      sys.stdout.flush()
  except BrokenPipeError:
    # `vmapseeds recipes | head -1`: Python would complain of the pipe at its end.
    discard_output()
    sys.exit(141)
  except OSError as error:
    if error.errno != errno.ENOSPC:
      raise
    # Of what is printed, too, which Python would try to write again at its end.
    discard_output()
    with contextlib.suppress(OSError):
      print_note("error: no space is left on the disk for what is written or printed")
    sys.exit(1)
  except (UserError, Failure) as error:
    print_note(f"error: {one_line(error)}")
    sys.exit(2 if isinstance(error, UserError) else 1)
  except KeyboardInterrupt as interrupt:
    outcome = "what was written stays; rerun the same command to resume"
    if str(interrupt):
      outcome = str(interrupt)
    # Statuses of shells: 128 and the number of the signal.
    if isinstance(interrupt, Terminated):
      print_note(f"terminated: {outcome}")
      sys.exit(143)
    print_note(f"interrupted: {outcome}")
    sys.exit(130)


def discard_output() -> None:
  """Let what is still to be printed go nowhere."""
  os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(argv: Sequence[str] | None = None) -> None:
  """Run the program `vmapseeds`."""
  for stream in (sys.stdout, sys.stderr):
    print_what_can_be_encoded(stream)
  with interruptible(), one_line_errors():
    argv = sys.argv[1:] if argv is None else list(argv)
    # `package.module:name` may be in this folder, as with `python -m`.
    folder = os.getcwd()
    if folder not in sys.path:
      sys.path.insert(0, folder)
    if argv == ["--version"]:
      return print(f"vmapseeds {vmapseeds.__version__}")
    if argv[:1] == ["--print-completion"]:
      return print_completion(*argv[1:])
    if argv[:1] in (["-h"], ["--help"]):
      return print_help()
    return call_command(argv)


def run() -> None:
  """Run `main` as a process of its own, which leaves at once if not all is well.

  After a signal Python would wait for the step that runs, maybe for ever, or free the
  client while a thread of XLA's compiles for it, which crashes.
  """
  try:
    main()
  except SystemExit as end:
    if isinstance(end.code, int) and end.code:
      os._exit(end.code)
    raise


if __name__ == "__main__":
  main()
