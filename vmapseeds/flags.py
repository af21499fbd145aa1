"""Flags made from signatures and docstrings, for the package and for `experiments`:
cyclopts reads the words of the command line, and its errors become one line.
"""

import difflib
import os
import sys
import typing
from collections.abc import Sequence
from typing import Annotated, Any

import cyclopts
from cyclopts import App, Group, Parameter, Token

from vmapseeds import removed
from vmapseeds.errors import UserError
from vmapseeds.training.recipes import from_text


def program(name: str) -> App:
  """Return a program without commands, whose flags are made as all of ours are."""
  return App(
    name=name,
    help_format="markdown",
    help_flags=("--help", "-h"),
    version_flags=(),
    default_parameter=Parameter(
      converter=convert_words,
      consume_multiple=True,
      negative_bool=(),
      negative_iterable=(),
      show_default=shown_default,
    ),
  )


def shown_default(value: Any) -> str | None:
  """Return what the help says is taken without a flag; None to say nothing."""
  if value is None or value is False or value == ():
    return None
  if isinstance(value, tuple):
    return " ".join(map(str, value))
  return str(value)


def metavar(name: str, default: str | None = None) -> Parameter:
  """Return how the help shows a flag: a name for its value, and what is taken without it,
  where that is not the default itself.
  """
  if default is None:
    return Parameter(metavar=name)
  return Parameter(metavar=name, show_default=default)


# A switch that is on unless it is written with `no-`.
Negatable = Annotated[bool, Parameter(negative_bool="no-")]


def section(title: str) -> Parameter:
  """Return a decorator of a dataclass whose fields are flags, a section of the help."""
  return Parameter(name="*", group=Group.create_ordered(title))


def call(app: App, words: Sequence[str]) -> Any:
  """Call the function of a program, or of one of its commands, that words name.

  Raises:
    UserError: the words do not fit its flags.
  """
  for word in words:
    check_text(word)
  try:
    function, bound, _ = app.parse_args(
      list(words), exit_on_error=False, print_error=False
    )
  except cyclopts.CycloptsError as error:
    raise UserError(say_mistake(error, app)) from None
  return function(*bound.args, **bound.kwargs)


def parse_flags(
  target: type,
  argv: Sequence[str] | None = None,
  *,
  prog: str,
  description: str | None = None,
) -> Any:
  """Return the flags, fields of a dataclass, that words give; without words, those that
  the process was called with.

  Raises:
    UserError: the words do not fit.
  """
  app = program(prog)
  app.help = ""
  app.group_commands = Group("Commands", show=False)
  app.help_prologue = description
  app.default(target)
  if argv is None:
    argv = sys.argv[1:]
  flags = call(app, argv)
  if flags is None:
    # The help was printed.
    sys.exit()
  return flags


def check_text(word: str) -> None:
  """Raise `UserError` if a word of the command line can be no file name and no text."""
  # File names cannot hold a null character, and results cannot hold text that is not
  # UTF-8.
  encodable = word.isascii() or word == word.encode(errors="replace").decode()
  if "\0" in word or not encodable:
    raise UserError(
      f"argument {word!r} holds a null character or is no UTF-8: rename it"
    )


def convert_words(kind: Any, words: Sequence[Token]) -> Any:
  """Return the value of a flag. cyclopts would round 1.5 to a whole number."""
  kinds = kinds_of(kind)
  for word in words:
    if int in kinds and float not in kinds and "." in word.value:
      raise cyclopts.CoercionError(token=word, target_type=kind)
  return cyclopts.convert(kind, words)


def kinds_of(hint: Any) -> set[Any]:
  """Return the types, and the values of `Literal`, that an annotation allows."""
  inner = typing.get_args(hint)
  if not inner:
    return {hint}
  if typing.get_origin(hint) is Annotated:
    inner = inner[:1]
  return set().union(*map(kinds_of, inner))


# What is allowed, in words, of each type.
WORDS = {int: "a whole number", float: "a number", bool: "true or false"}


def say_mistake(error: cyclopts.CycloptsError, app: App) -> str:
  """Return one line about words that do not fit: what was given, and what is allowed."""
  command = " ".join([*app.name, *(error.command_chain or ())])
  hint = f"`{command} --help` says what there is"
  match error:
    case cyclopts.UnknownOptionError():
      given = (error.token.keyword or error.token.value).partition("=")[0]
      known = [
        name for argument in error.argument_collection for name in argument.names
      ]
      return say_unknown(given, known, hint)
    case cyclopts.UnusedCliTokensError():
      [first, *_] = error.unused_tokens or [""]
      return say_unknown(first, [], hint)
    case cyclopts.RepeatArgumentError():
      return f"{error.token.keyword} is given several times: give it once"
    case cyclopts.MissingArgumentError() if error.argument and error.keyword:
      return f"{error.keyword} has no value: give {spell(error.argument)}"
    case cyclopts.MissingArgumentError() if error.argument:
      return f"{spell(error.argument)} is required: give it; {hint}"
    case cyclopts.CoercionError() if error.token and error.argument:
      given = (
        f"{error.token.keyword or error.argument.name} is {error.token.value!r:.200}"
      )
      return f"{given}: give {say_allowed(error.argument.hint)}"
  error.verbose = False
  return f"{error}; {hint}"


def say_unknown(given: str, known: Sequence[str], hint: str) -> str:
  """Return a line about a flag, or another word, that a command does not have."""
  if given in removed.FLAGS:
    return f"{given} is gone: {removed.FLAGS[given]}"
  for name in difflib.get_close_matches(given, known, n=1):
    hint = f"did you mean {name}? {hint}"
  return f"unknown flag or word {given!r:.200}: {hint}"


def say_allowed(hint: Any) -> str:
  """Return what the annotation of a flag allows, in words."""
  kinds = kinds_of(hint)
  words = [WORDS[kind] for kind in WORDS if kind in kinds]
  words += sorted(kind for kind in kinds if isinstance(kind, str))
  return " or ".join(words) or "another text"


def spell(argument: cyclopts.Argument) -> str:
  """Return an argument or a flag as the user writes it."""
  value = argument.parameter.metavar or argument.name.strip("-").upper()
  if argument.index is not None:
    return value
  if argument.hint is bool:
    return argument.name
  return f"{argument.name} {value}"


# What words such as `NAME=VALUE` mean.


def split_pairs(
  words: Sequence[str], flag: str, form: str, example: str
) -> list[tuple[str, str]]:
  """Return the names and texts of `NAME=TEXT ...`."""
  pairs = []
  for word in words:
    name, equals, text = word.partition("=")
    if not equals:
      raise UserError(f"{flag} {name}: write {form}, e.g. {flag} {example}")
    pairs.append((name, text))
  return pairs


def unique_pairs(
  words: Sequence[str], flag: str, form: str, example: str
) -> dict[str, str]:
  """Return name -> text of `NAME=TEXT ...`.

  Raises:
    UserError: a name has two texts.
  """
  texts: dict[str, str] = {}
  for name, text in split_pairs(words, flag, form, example):
    if texts.setdefault(name, text) != text:
      raise UserError(
        f"{flag} gives {name} twice, {texts[name]} and {text}: give it once"
      )
  return texts


def files_of(words: Sequence[str], flag: str) -> str | dict[str, str] | None:
  """Return the file of `FILE`, or test set -> file of `SET=FILE ...`."""
  # A file's own name may have an equals sign.
  if len(words) == 1 and ("=" not in words[0] or os.path.exists(words[0])):
    return words[0]
  return unique_pairs(words, flag, "SET=FILE", "test=y.npy shift=y_shift.npy") or None


def parse_overrides(settings: Sequence[str]) -> dict[str, Any]:
  """Return the recipe fields of `--set field=value ...`."""
  texts = unique_pairs(settings, "--set", "FIELD=VALUE", "epochs=4")
  return {field: from_text(field, text) for field, text in texts.items()}


def parse_column_values(conditions: Sequence[str], flag: str) -> dict[str, list[Any]]:
  """Return the values of each column in `--where lr=0.02,0.05 ...`."""
  selected: dict[str, list[Any]] = {}
  example = "lr=0.02; folders come first"
  for column, text in split_pairs(conditions, flag, "COLUMN=NUMBER", example):
    of_column = selected.setdefault(column, [])
    of_column.extend(from_text(column, value) for value in text.split(","))
  return selected
