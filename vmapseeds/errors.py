"""What a user's mistake becomes: one line that says what was given, what is allowed and what to do."""

import difflib
from collections.abc import Iterable


class Mistake(ValueError):
  """A mistake of the user's. The command line prints it as one line and exits with status 2."""


class UnknownField(Mistake, TypeError):
  """A name that no field, source or flag has."""


class Failure(RuntimeError):
  """What the machine could not do, though nothing is wrong with what was asked: one line, exit status 1."""


def one_of(what: str, given: object, allowed: Iterable[str], error: type[Mistake] = Mistake) -> None:
  """Raises `error` unless `given` is among `allowed`, naming the nearest allowed value."""
  allowed = list(allowed)
  if given in allowed:
    return
  near = difflib.get_close_matches(str(given), allowed, n=1)
  hint = f"; did you mean {near[0]!r}?" if near else ""
  raise error(f"unknown {what} {given!r}: choose one of {', '.join(allowed)}{hint}")


def at_least(what: str, given: object, least: int) -> int:
  """`given` as an int, or a `Mistake` when it is no whole number of at least `least`."""
  if isinstance(given, bool) or not hasattr(given, "__index__") or given.__index__() < least:
    raise Mistake(f"{what} is {given!r}: give a whole number of at least {least}")
  return given.__index__()
