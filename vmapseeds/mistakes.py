"""Errors for users: one line that says what was given, what is allowed and what to do."""

import difflib
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

MAX_NAME_LENGTH = (
  60  # of a name: file systems allow 255 bytes, and a letter may take four
)
MAX_LINE_LENGTH = 2000  # letters of a line


class Mistake(ValueError):
  """A mistake of the user's, said in one line. The command line prints it and exits
  with status 2.
  """

  def __init__(self, said: object = ""):
    super().__init__(one_line(said))


class UnknownField(Mistake, TypeError):
  """A name that no field, source or flag has."""


class Failure(RuntimeError):
  """The machine could not do what was asked, though the request is valid: one line,
  exit status 1.
  """


def one_of(
  what: str, given: object, allowed: Iterable[str], error: type[Mistake] = Mistake
) -> None:
  """Raise `error` unless `given` is among `allowed`, naming the nearest allowed value."""
  allowed = list(allowed)
  if given in allowed:
    return
  near = difflib.get_close_matches(str(given), allowed, n=1)
  hint = f"; did you mean {near[0]!r}?" if near else ""
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
