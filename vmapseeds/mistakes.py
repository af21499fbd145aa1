"""Errors for users: one line that says what was given, what is allowed and what to do."""

import contextlib
import difflib
import functools
import inspect
import operator
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

MAX_NAME_LENGTH = (
  60  # of a name: file systems allow 255 bytes, and a letter may take four
)
MAX_LINE_LENGTH = 2000  # letters of a line


class Mistake(ValueError):
  """A mistake of the user's, said in one line. The command line prints it and exits
  with status 2.

  Attributes:
    shows_cause: whether its cause was raised in the user's code, where the traceback
      tells more than the line.
  """

  shows_cause = False

  def __init__(self, said: object = ""):
    line = one_line(said)
    super().__init__(line if _flags else in_python(line))


class UnknownField(Mistake, TypeError):
  """A name that no field, source or flag has."""


class Failure(RuntimeError):
  """The machine could not do what was asked, though the request is valid: one line,
  exit status 1.
  """

  shows_cause = False


# Whether the command line runs: its messages name flags, those of Python arguments.
_flags = False
# Flags that are arguments in Python: those that take no value, and others.
SWITCHES = ("force-mixed", "allow-upgrade", "keep-params", "logits", "pairs")
VALUES = (
  *(
    "out",
    "lane-width",
    "lowering",
    "seed-batch",
    "checkpoint-every",
    "dataset",
    "set",
  ),
  *("where", "against", "images", "searches", "repeats", "predictions"),
)
METHODS = ("subset", "bootstrap")  # of `Runs`
FLAG = re.compile(
  r"(?<![\w-])--([a-z][a-z-]*[a-z])(?: (\w+)=(\S+)| (\d[\w.]*)| ([A-Z]+\b))?"
)


@contextlib.contextmanager
def naming_flags() -> Iterator[None]:
  """Let messages name the flags of the command line, instead of arguments in Python."""
  global _flags
  before, _flags = _flags, True
  try:
    yield
  finally:
    _flags = before


def in_python(line: str) -> str:
  """Return a message with arguments in place of flags. Commands, in backticks, stay.

  >>> in_python("give another --out, or --force-mixed; or `vmapseeds verify --repair`")
  'give another out=, or force_mixed=True; or `vmapseeds verify --repair`'
  >>> in_python("give --lane-width 1, or choose, such as --where lr=0.02")
  "give lane_width=1, or choose, such as where={'lr': 0.02}"
  """

  def argument(flag: re.Match) -> str:
    name, column, value, number, metavar = flag.groups()
    parameter = name.replace("-", "_")
    if name in METHODS:
      return f"Runs.{parameter}"
    if name not in SWITCHES + VALUES:
      return flag[0]
    if name in SWITCHES:
      return f"{parameter}=True{flag[0].removeprefix('--' + name)}"
    if column and name == "set":
      return f"{column}={value}"
    if column:
      return f"{parameter}={{{column!r}: {value}}}"
    return f"{parameter}={number or metavar or ''}"

  parts = line.split("`")
  return "`".join(
    part if k % 2 else FLAG.sub(argument, part) for k, part in enumerate(parts)
  )


Parameters = typing.ParamSpec("Parameters")
Result = typing.TypeVar("Result")
TRACEBACK = "VMAPSEEDS_TRACEBACK"  # an environment variable: set, all frames are shown


def door(
  function: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
  """Leave the package's frames out of the traceback of a user's mistake, and of Ctrl-C,
  which is said in a line: of a public function.
  """

  @functools.wraps(function)
  def call(*args: Parameters.args, **given: Parameters.kwargs) -> Result:
    try:
      return function(*args, **given)
    except (Mistake, Failure) as error:
      if _flags or TRACEBACK in os.environ:
        raise
      if not error.shows_cause:
        error.__cause__, error.__suppress_context__ = None, True
      raise error.with_traceback(None)  # noqa: B904
    except KeyboardInterrupt as interrupt:
      if _flags:
        raise
      if getattr(interrupt, "was_said", False):
        raise interrupt.with_traceback(None)  # noqa: B904
      reason = (
        str(interrupt) or "what was written stays; run the same command again to resume"
      )
      reason = reason.replace("run the same command", "make the same call")
      say(f"interrupted: {reason}")
      interrupt.args = ()
      interrupt.was_said = True  # type: ignore[attr-defined]
      raise interrupt.with_traceback(None)  # noqa: B904

  return call


Class = typing.TypeVar("Class", bound=type)


def doors(cls: Class) -> Class:
  """Make the public methods of a class doors."""
  for name, value in [*vars(cls).items()]:
    if name.startswith("_"):
      continue
    if isinstance(value, classmethod):
      setattr(cls, name, classmethod(door(value.__func__)))
    elif inspect.isfunction(value):
      setattr(cls, name, door(value))
  return cls


def check_fields(what: str) -> Callable[[Class], Class]:
  """Return a decorator of a dataclass that says which fields there are, where one is
  given that it has not, or which are lacking.
  """

  def decorate(cls: Class) -> Class:
    generated = cls.__init__  # type: ignore[misc]
    _, *fields = inspect.signature(generated).parameters.values()
    names = [field.name for field in fields]
    public = [name for name in names if name != "origin"]
    due = [field.name for field in fields if field.default is field.empty]

    @functools.wraps(generated)
    def init(self, *args, **given):
      for name in given:
        if name not in names:
          one_of(f"{what} field", name, public, UnknownField)
      lacking = [name for name in due[len(args) :] if name not in given]
      if lacking:
        raise UnknownField(
          f"the {what} lacks {', '.join(lacking)}: give every field that has no default"
        )
      generated(self, *args, **given)

    cls.__init__ = door(init)  # type: ignore[misc]
    return cls

  return decorate


def one_of(
  what: str, given: object, allowed: Iterable[str], error: type[Mistake] = Mistake
) -> None:
  """Raise `error` unless `given` is among `allowed`, naming the nearest allowed value."""
  allowed = list(allowed)
  if given in allowed:
    return
  lower = {str(name).lower(): name for name in reversed(allowed)}
  near = difflib.get_close_matches(str(given).lower(), lower, n=1)
  hint = f"; did you mean {lower[near[0]]!r}?" if near else ""
  raise error(
    f"unknown {what} {given!r:.200}: choose one of {', '.join(allowed)}{hint}"
  )


def safe_name(what: str, given: object) -> str:
  """Return `given`.

  Raises:
    Mistake: it cannot be the name of a file or folder, or would garble a terminal.
  """
  if not isinstance(given, str):
    raise Mistake(f"{what} is {given!r:.200}: give a text")
  if (
    not (0 < len(given) <= MAX_NAME_LENGTH and given.isprintable())
    or given.startswith(".")
    or set(given) & set("/\\")
  ):
    allowed = (
      f"1 to {MAX_NAME_LENGTH} printable characters without / or \\ and no . in front"
    )
    raise Mistake(f"{what} {given!r} cannot be the name of a file: give {allowed}")
  return given


def check_class_names(given: Any, count: int | None = None) -> tuple[str, ...]:
  """Return names of classes, the first of class 0.

  Raises:
    Mistake: they are not `count` different texts that can be shown.
  """
  listed = isinstance(given, Iterable) and not isinstance(given, str)
  names = tuple(given) if listed else ()
  if not names or any(
    not (isinstance(name, str) and name.strip() and name.isprintable())
    for name in names
  ):
    raise Mistake(
      f"class_names is {given!r:.200}: give a printable text for each class"
    )
  if len({*names}) < len(names):
    raise Mistake(f"class_names is {', '.join(names)}: give each class another name")
  if count not in (None, len(names)):
    raise Mistake(f"{len(names)} class names for {count} classes: give one for each")
  return names


def one_line(text: object) -> str:
  """Return `text` as one line that a terminal can show: control characters are escaped,
  and a long line loses its middle.
  """
  line = "".join(
    c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(str(text).split())
  )
  return (
    line
    if len(line) <= MAX_LINE_LENGTH
    else f"{line[: MAX_LINE_LENGTH // 2]} ... {line[-MAX_LINE_LENGTH // 2 :]}"
  )


def say(text: str) -> None:
  """Print a line on stderr."""
  print(text, file=sys.stderr)


class Rule(NamedTuple):
  """What a value must satisfy, and the words that say so in a message."""

  fits: Callable[[Any], bool]
  allowed: str

  def check(self, what: str, given: Any) -> None:
    """Raise `Mistake` unless `given` fits."""
    if not self.fits(given):
      raise Mistake(f"{what} is {given!r:.200}: give {self.allowed}")


def at_least(what: str, given: object, least: int) -> int:
  """Return `given` as an int.

  Raises:
    Mistake: it is no whole number of at least `least`.
  """
  whole = whole_number(given)
  if whole is None or whole < least:
    raise Mistake(f"{what} is {given!r:.200}: give a whole number of at least {least}")
  return whole


def whole_number(given: Any) -> int | None:
  """Return `given`, a number of Python, NumPy or another array library, as an int; None
  if it is no whole number.
  """
  try:
    return None if _is_bool(given) else operator.index(given)
  except TypeError:
    return None


def number(what: str, given: object) -> float:
  """Return `given`, of Python, NumPy or another array library, as a float.

  Raises:
    Mistake: it is no real number.
  """
  try:
    if hasattr(given, "__float__") and not _is_bool(given):
      return float(given)
  except (TypeError, ValueError, OverflowError):
    pass  # an array of several numbers, or an int beyond all floats
  raise Mistake(f"{what} is {given!r:.200}: give a number")


def _is_bool(given: object) -> bool:
  return (
    isinstance(given, bool) or getattr(getattr(given, "dtype", None), "kind", "") == "b"
  )
