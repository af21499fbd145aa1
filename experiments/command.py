"""The flags of the experiments' commands: dataclasses, which tyro reads."""

import collections
import sys
from collections.abc import Sequence
from typing import Any

import tyro
from tyro.conf import arg

from vmapseeds.errors import UserError


def hint(metavar: str, default: str) -> Any:
  """Return what the help of a flag shows: a name for its value, and the default."""
  return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


def parse_flags(
  target: type,
  argv: Sequence[str] | None = None,
  *,
  prog: str | None = None,
  description: str | None = None,
) -> Any:
  """Return the flags that words give, a dataclass; of the program's own without words.

  Raises:
    UserError: a flag is given twice, of which tyro would take the last.
  """
  if argv is None:
    argv = sys.argv[1:]
  words = list(argv)
  flags = [word.partition("=")[0] for word in words if word.startswith("--")]
  for flag, times in collections.Counter(flags).items():
    if times > 1:
      raise UserError(f"{flag} is given {times} times: give it once")
  config = (tyro.conf.FlagCreatePairsOff,)
  return tyro.cli(target, args=words, prog=prog, description=description, config=config)
