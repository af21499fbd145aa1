"""Read the words of the command line: a parser whose errors are one line, and texts such
as `NAME=VALUE`.
"""

import argparse
import difflib
import os
from collections.abc import Sequence
from typing import Any

from vmapseeds import removed
from vmapseeds.errors import UserError
from vmapseeds.training.recipes import from_text


class Once(argparse.Action):
  """Stores a value, and refuses a flag that is given twice."""

  times = 0

  def __call__(self, parser, namespace, values, option_string=None):
    self.times += 1
    if option_string is not None and self.times > 1:
      raise UserError(f"{option_string} is given {self.times} times: give it once")
    setattr(namespace, self.dest, values)


class Switch(Once):
  """Stores `const` if its flag is given, which takes no value."""

  def __init__(self, option_strings, dest, const=True, default=False, help=None):
    super().__init__(
      option_strings, dest, nargs=0, const=const, default=default, help=help
    )

  def __call__(self, parser, namespace, values, option_string=None):
    super().__call__(parser, namespace, self.const, option_string)


class Help(argparse.HelpFormatter):
  """Help whose description keeps its paragraphs."""

  def _fill_text(self, text, width, indent):
    paragraphs = text.split("\n\n")
    return "\n\n".join(
      super(Help, self)._fill_text(paragraph, width, indent) for paragraph in paragraphs
    )


class Parser(argparse.ArgumentParser):
  """The parser of one command, whose errors are mistakes of the user's."""

  def __init__(self, **words: Any):
    super().__init__(**words, allow_abbrev=False, formatter_class=Help)
    self.known: list[argparse.Action] = []

  def add(self, name: str, **how: Any) -> None:
    """Add a flag or an argument that is given once."""
    how.setdefault("action", Once)
    self.known.append(self.add_argument(name, **how))

  def several(self, name: str, **how: Any) -> None:
    """Add a flag that takes any number of values, also if it is given several times."""
    self.add(name, **({"default": []} | how), nargs="*", action="extend")

  def switch(self, name: str, help: str) -> None:
    """Add a flag that takes no value."""
    self.add(name, action=Switch, help=help)

  def format_usage(self) -> str:
    return f"usage: {self._short_usage()}\n"

  def format_help(self) -> str:
    # argparse lists every flag twice, in the usage too.
    self.usage = self._short_usage().replace("%", "%%")
    return super().format_help()

  def _short_usage(self):
    words = [self.prog]
    for action in self.known:
      if action.required or not action.option_strings:
        words.append(spell_flag(action))
    return " ".join([*words, "[flags]"])

  def error(self, message: str) -> Any:
    # "argument --runs: is 'x': give a whole number"
    raise UserError(message.removeprefix("argument ").replace(": is ", " is ", 1))

  def parse(self, words: Sequence[str]) -> argparse.Namespace:
    """Return the flags that words of the command line give.

    Raises:
      UserError: they do not fit.
    """
    for word in words:
      check_text(word)
    flags, unknown = self.parse_known_intermixed_args([with_dashes(w) for w in words])
    if unknown:
      # Before its value, which is unknown too.
      named = [word for word in unknown if word.startswith("-")]
      self._refuse((named or unknown)[0])
    return flags

  def _refuse(self, word):
    flag = word.split("=")[0]
    if flag in removed.FLAGS:
      raise UserError(f"{flag} is gone: {removed.FLAGS[flag]}")
    hint = f"`{self.prog} --help` says what there is"
    flags = [flag for action in self.known for flag in action.option_strings]
    near = difflib.get_close_matches(flag, flags, n=1)
    if near:
      hint = f"did you mean {near[0]}? {hint}"
    raise UserError(f"unknown flag or word {word!r:.200}: {hint}")


def spell_flag(action: argparse.Action) -> str:
  """Return an argument or a flag as the user writes it."""
  value = str(action.metavar or action.dest.upper())
  if action.nargs == "?":
    value = f"[{value}]"
  elif action.nargs == "*":
    value = f"{value} ..."
  if not action.option_strings:
    return value
  flag = action.option_strings[0]
  if action.nargs == 0:
    return flag
  return f"{flag} {value}"


def with_dashes(word: str) -> str:
  """Return a word, whose flag may be written with underscores, as the help writes it."""
  if not word.startswith("--"):
    return word
  flag, equals, value = word.partition("=")
  return flag.replace("_", "-") + equals + value


def check_text(word: str) -> None:
  """Raise `UserError` if a word of the command line can be no file name and no text."""
  # File names cannot hold a null character, and results cannot hold text that is not
  # UTF-8.
  encodable = word.isascii() or word == word.encode(errors="replace").decode()
  if "\0" in word or not encodable:
    raise UserError(
      f"argument {word!r} holds a null character or is no UTF-8: rename it"
    )


def parse_whole_number(text: str) -> int:
  """Return the whole number of a word."""
  try:
    return int(text)
  except ValueError:
    raise argparse.ArgumentTypeError(f"is {text!r}: give a whole number") from None


def parse_number(text: str) -> float:
  """Return the number of a word."""
  try:
    return float(text)
  except ValueError:
    raise argparse.ArgumentTypeError(f"is {text!r}: give a number") from None


def parse_epochs(text: str) -> int | str:
  """Return what `--checkpoint-every` is given."""
  if text in ("auto", "never"):
    return text
  return parse_whole_number(text)


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
