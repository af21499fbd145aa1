"""Errors for users: one line that says what was given, what is allowed and what to do."""

import contextlib
import contextvars
import difflib
import functools
import inspect
import logging
import operator
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from vmapseeds import removed

if TYPE_CHECKING:
  import numpy as np
  from rich.console import Console

# Letters of a name: file systems allow 255 bytes, and a letter may take four.
MAX_NAME_LENGTH = 60
# Letters of a line.
MAX_LINE_LENGTH = 2000


class UserError(ValueError):
  """A mistake of the user's, said in one line. The command line prints it and exits
  with status 2.

  Attributes:
    shows_cause: whether its cause was raised in the user's code, where the traceback
      tells more than the line.
  """

  shows_cause = False

  def __init__(self, message: object = ""):
    super().__init__(one_line(message))


class UnknownField(UserError, TypeError):
  """A name that no field, source or flag has."""


class Failure(RuntimeError):
  """The machine could not do what was asked, though the request is valid: one line,
  exit status 1.
  """

  shows_cause = False


# Whether the user has written a command, whose messages name flags, or a program, whose
# messages name arguments.
_is_command = contextvars.ContextVar("is_command", default=False)


@contextlib.contextmanager
def naming_flags() -> Iterator[None]:
  """Let messages name the flags of the command line, instead of arguments in Python."""
  token = _is_command.set(True)
  try:
    yield
  finally:
    _is_command.reset(token)


def wording(*, command: str, function: str) -> str:
  """Return the words for a user of the command line, or of functions in Python."""
  if _is_command.get():
    return command
  return function


def option(name: str, value: object = None) -> str:
  """Return an option as the user gives it: as a flag or as an argument.

  Args:
    name: of the argument.
    value: what to give; None for anything; True for a flag without a value; column ->
      value for `where` and `against`.

  >>> option("out"), option("lane_width", 1), option("where", {"lr": 0.02})
  ('out=', 'lane_width=1', "where={'lr': 0.02}")
  >>> with naming_flags():
  ...   option("out"), option("lane_width", 1), option("where", {"lr": 0.02})
  ('--out', '--lane-width 1', '--where lr=0.02')
  """
  flag = "--" + name.replace("_", "-")
  if value is None:
    return wording(command=flag, function=f"{name}=")
  argument = f"{name}={value}"
  if value is True:
    return wording(command=flag, function=argument)
  if isinstance(value, Mapping):
    value = " ".join(f"{column}={entry}" for column, entry in value.items())
  return wording(command=f"{flag} {value}", function=argument)


Parameters = typing.ParamSpec("Parameters")
Result = typing.TypeVar("Result")
# An environment variable: if it is set, all frames are shown.
TRACEBACK = "VMAPSEEDS_TRACEBACK"


def hide_own_frames(
  function: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
  """Leave the package's frames out of the traceback of a user's mistake, and of Ctrl-C,
  which is said in a line: of a public function.
  """

  @functools.wraps(function)
  def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    try:
      return function(*args, **kwargs)
    except (UserError, Failure) as error:
      # The command line prints the line alone.
      if _is_command.get() or TRACEBACK in os.environ:
        raise
      if not error.shows_cause:
        error.__cause__ = None
        error.__suppress_context__ = True
      raise error.with_traceback(None)  # noqa: B904
    except KeyboardInterrupt as interrupt:
      if _is_command.get():
        raise
      # A public function may have called another, which has said it.
      if getattr(interrupt, "was_said", False):
        raise interrupt.with_traceback(None)  # noqa: B904
      reason = str(interrupt)
      if not reason:
        reason = "what was written stays; rerun the same command to resume"
      reason = reason.replace("rerun the same command", "make the same call again")
      say(f"interrupted: {reason}")
      interrupt.args = ()
      interrupt.was_said = True  # type: ignore[attr-defined]
      raise interrupt.with_traceback(None)  # noqa: B904

  return call


Class = typing.TypeVar("Class", bound=type)


def hide_own_frames_of_methods(cls: Class) -> Class:
  """Apply `hide_own_frames` to the public methods of a class."""
  # A list, because setting an attribute changes what `vars` shows.
  for name, value in list(vars(cls).items()):
    if name.startswith("_"):
      continue
    if isinstance(value, classmethod):
      setattr(cls, name, classmethod(hide_own_frames(value.__func__)))
    elif inspect.isfunction(value):
      setattr(cls, name, hide_own_frames(value))
  return cls


def check_fields(what: str) -> Callable[[Class], Class]:
  """Return a decorator of a dataclass that says which fields there are, where one is
  given that it has not, or which are lacking.
  """

  def decorate(cls: Class) -> Class:
    generated = cls.__init__  # type: ignore[misc]
    _, *fields = inspect.signature(generated).parameters.values()
    names = [field.name for field in fields]
    # The package itself sets these.
    public = [name for name in names if name not in ("origin", "internal")]
    required = [field.name for field in fields if field.default is field.empty]

    @functools.wraps(generated)
    def init(self, *args, **kwargs):
      for name in kwargs:
        if name not in names:
          check_one_of(f"{what} field", name, public, UnknownField)
      lacking = [name for name in required[len(args) :] if name not in kwargs]
      if lacking:
        raise UnknownField(
          f"the {what} lacks {', '.join(lacking)}: give every field that has no default"
        )
      generated(self, *args, **kwargs)

    cls.__init__ = hide_own_frames(init)  # type: ignore[misc]
    return cls

  return decorate


def check_one_of(
  what: str,
  value: object,
  allowed: Iterable[str],
  error: type[UserError] = UserError,
) -> None:
  """Raise `error` unless `value` is among `allowed`, naming the nearest allowed value."""
  allowed = list(allowed)
  if value in allowed:
    return
  kind, _, _ = what.partition(" of ")  # "model of recipe 'mine':"
  gone = f"{kind} {value}"
  if gone in removed.CHOICES:
    raise error(f"{gone} is gone: {removed.CHOICES[gone]}")
  # Reversed, so that of names that differ in case alone the first is proposed.
  by_lower = {str(name).lower(): name for name in reversed(allowed)}
  given = str(value).lower()
  near = difflib.get_close_matches(given, by_lower, n=1)
  if not near:
    # "macro_f1" has a word of "f1", and few of its letters.
    words = _words(given)
    near = [name for name in by_lower if words & _words(name)]
  hint = ""
  if near:
    hint = f"; did you mean {by_lower[near[-1]]!r}?"
  raise error(
    f"unknown {what} {value!r:.200}: choose one of {', '.join(allowed)}{hint}"
  )


def _words(name: str) -> set[str]:
  return set(re.findall(r"[^\W_]+", name))


def safe_name(what: str, name: object) -> str:
  """Return `name`.

  Raises:
    UserError: it cannot be the name of a file or folder, or would garble a terminal.
  """
  if not isinstance(name, str):
    raise UserError(f"{what} is {name!r:.200}: give a text")
  has_length = 0 < len(name) <= MAX_NAME_LENGTH
  leaves_folder = name.startswith(".") or "/" in name or "\\" in name
  if not has_length or not name.isprintable() or leaves_folder:
    allowed = (
      f"1 to {MAX_NAME_LENGTH} printable characters without / or \\ and no . in front"
    )
    raise UserError(f"{what} {name!r} cannot be the name of a file: give {allowed}")
  return name


def check_class_names(value: Any, count: int | None = None) -> tuple[str, ...]:
  """Return names of classes, the first of class 0.

  Raises:
    UserError: they are not `count` different texts that can be shown.
  """
  names = ()
  # A text is its letters, too.
  if isinstance(value, Iterable) and not isinstance(value, str):
    names = tuple(value)
  if not names or not all(_can_be_shown(name) for name in names):
    raise UserError(
      f"class_names is {value!r:.200}: give a printable text for each class"
    )
  if len(set(names)) < len(names):
    raise UserError(f"class_names is {', '.join(names)}: give each class another name")
  if count not in (None, len(names)):
    raise UserError(f"{len(names)} class names for {count} classes: give one for each")
  return names


def _can_be_shown(name: object) -> bool:
  return isinstance(name, str) and bool(name.strip()) and name.isprintable()


def one_line(text: object) -> str:
  """Return `text` as one line that a terminal can show: control characters are escaped,
  and a long line loses its middle.
  """
  return shortened(printable(text), MAX_LINE_LENGTH)


def printable(text: object) -> str:
  """Return `text` as one line, in which control characters are escaped."""
  letters = list(" ".join(str(text).split()))
  for place, letter in enumerate(letters):
    if not letter.isprintable():
      # What `ascii` writes, without its quotation marks.
      letters[place] = ascii(letter)[1:-1]
  return "".join(letters)


def shortened(line: str, most: int) -> str:
  """Return a line without its middle if it has more letters than `most`."""
  if len(line) <= most:
    return line
  half = most // 2
  return f"{line[:half]} ... {line[-half:]}"


LOGGER = logging.getLogger("vmapseeds")


def say(note: str) -> None:
  """Log a note for the user, or print it on stderr where logging is not configured."""
  _log(logging.INFO, note)


def warn(note: str) -> None:
  """Log that results may not be what the user expects, or print it, as `say`."""
  _log(logging.WARNING, note)


def _log(level, note):
  # Python shows warnings alone by default. Who configures logging gives the root logger
  # or this one a level.
  if LOGGER.level == logging.NOTSET and not LOGGER.isEnabledFor(logging.INFO):
    print_note(note)
  else:
    LOGGER.log(level, "%s", note, stacklevel=3)


def print_note(note: str) -> None:
  """Print a line on stderr."""
  print(note, file=sys.stderr)


def console_of_stderr(*, quiet: bool = False) -> "Console":
  """Return rich's console on stderr, for bars. To it a notebook is no terminal either:
  rich's widgets would need ipywidgets, and it warns where there are none.
  """
  # The command line's help needs none of it.
  from rich.console import Console

  return Console(stderr=True, quiet=quiet, force_jupyter=False)


class PrintingHandler(logging.Handler):
  """Prints records as plain lines on what is stderr at the time. A full disk behind it
  raises, as with `print`.
  """

  def emit(self, record: logging.LogRecord) -> None:
    print_note(record.getMessage())


@contextlib.contextmanager
def printing_notes() -> Iterator[None]:
  """Print notes as plain lines in this context, however logging is configured."""
  before = LOGGER.level, LOGGER.propagate, LOGGER.handlers
  handler = PrintingHandler()
  LOGGER.setLevel(logging.INFO)
  LOGGER.propagate = False
  LOGGER.handlers = [handler]
  try:
    yield
  finally:
    LOGGER.setLevel(before[0])
    LOGGER.propagate = before[1]
    LOGGER.handlers = before[2]


class Rule(NamedTuple):
  """What a value must satisfy, and the words that say so in a message."""

  fits: Callable[[Any], bool]
  allowed: str

  def check(self, what: str, value: Any) -> None:
    """Raise `UserError` unless `value` fits."""
    if not self.fits(value):
      raise UserError(f"{what} is {value!r:.200}: give {self.allowed}")


def check_at_least(what: str, value: object, least: int) -> int:
  """Return `value` as an int.

  Raises:
    UserError: it is no whole number of at least `least`.
  """
  whole = whole_number(value)
  if whole is None or whole < least:
    raise UserError(
      f"{what} is {value!r:.200}: give a whole number of at least {least}"
    )
  return whole


def whole_number(value: Any) -> int | None:
  """Return `value`, a number of Python, NumPy or another array library, as an int; None
  if it is no whole number.
  """
  # To Python, True is 1.
  if is_bool(value):
    return None
  try:
    return operator.index(value)
  except TypeError:
    return None


def check_number(what: str, value: Any) -> float:
  """Return `value`, of Python, NumPy or another array library, as a float; one of
  float32 as the shortest decimal that means it, 0.1 of `np.float32(0.1)`.

  Raises:
    UserError: it is no real number.
  """
  try:
    # `float` would read a text, too.
    if hasattr(value, "__float__") and not is_bool(value):
      number = float(value.detach() if hasattr(value, "detach") else value)
      if str(getattr(value, "dtype", "")).endswith("float32"):
        # The command line's help imports this module and nothing large.
        import numpy as np

        number = float(str(np.float32(number)))
      return number
  # An array of several numbers, or an int beyond all floats.
  except (TypeError, ValueError, OverflowError):
    pass
  raise UserError(f"{what} is {value!r:.200}: give a number")


def as_numpy(x: Any) -> "np.ndarray":
  """Return `np.asarray(x)`, also of a tensor of PyTorch that has a gradient. bfloat16,
  which NumPy has not, becomes float32; long doubles, which neither JAX nor a results
  folder has, become float64.
  """
  import numpy as np

  if hasattr(x, "detach"):
    x = x.detach()
  if str(getattr(x, "dtype", "")).endswith("bfloat16"):
    # PyTorch's tensors have no `astype`.
    x = x.float() if hasattr(x, "float") else x.astype(np.float32)
  array = np.asarray(x)
  if array.dtype == np.longdouble:
    return array.astype(np.float64)
  return array


def is_bool(value: object) -> bool:
  """Return whether `value`, of Python, NumPy or another array library, is a bool."""
  if isinstance(value, bool):
    return True
  dtype = getattr(value, "dtype", None)
  return getattr(dtype, "kind", "") == "b"
