"""What a recipe is made of: registered names, import strings
`"package.module:attribute"`, or objects themselves.

A folder stores an object's name and a digest of its source, so that another process can
import it and notice an edit. An object that cannot be imported by name (a lambda, one
made in a function, one in `__main__`) can train and resume only in its own program.
"""

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vmapseeds.mistakes import Mistake, one_line


class Named(NamedTuple):
  """An object as a folder describes it."""

  name: str  # package.module:attribute
  source: str  # digest


@functools.cache
def is_import(text: str) -> bool:
  """Return whether a text is an import string; `cifar10:3.0.2` is not."""
  return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text) is not None


def is_name(value) -> bool:
  """Return whether a recipe's field is a registered name, or a text of registered names
  (as in `augment`).
  """
  return isinstance(value, str) and not is_import(value)


def module_exists(text: str) -> bool:
  """Return whether a text is an import string of a package that exists: names of data
  sets may have the same form.
  """
  return (
    is_import(text)
    and importlib.util.find_spec(text.partition(".")[0].partition(":")[0]) is not None
  )


def imported(text: str):
  """Import the object that an import string names.

  Raises:
    Mistake: it cannot be imported.
  """
  module, _, attribute = text.partition(":")
  try:
    return functools.reduce(
      getattr, attribute.split("."), importlib.import_module(module)
    )
  except Mistake:
    raise
  except Exception as error:  # whatever the user's module does
    raise Mistake(
      f"{text!r} cannot be imported ({describe_exception(error)}): give package.module:attribute"
    ) from error


@contextlib.contextmanager
def before_training(name: str) -> Iterator[None]:
  """Turn whatever a user's functions raise while they are traced into a `Mistake`."""
  try:
    yield
  except Mistake:
    raise
  except Exception as error:
    raise Mistake(
      f"{name} fails before it trains ({describe_exception(error)}): mend that"
    ) from error


def describe_exception(error: Exception) -> str:
  """Return an error of the user's code as one line: the error, and the last line of that
  code in its traceback.
  """
  ours = Path(__file__).parents[1]
  python = sysconfig.get_paths()
  others = (str(ours), python["stdlib"], python["purelib"], python["platlib"], "<")
  frames = [
    f
    for f in traceback.extract_tb(error.__traceback__)
    if not f.filename.startswith(others)
  ]
  place = (
    f", {os.path.basename(frames[-1].filename)} line {frames[-1].lineno}"
    if frames
    else ""
  )
  return f"{type(error).__name__}: {one_line(error)[:300]}{place}"


def resolve_object(what: str, value):
  """Return the object that a recipe's field stands for if it is not a registered name:
  the imported one, or the value itself.

  Raises:
    Mistake: it cannot be imported, or its source has changed.
  """
  if isinstance(value, Named):
    ours = value.name.startswith("__main__:") and hasattr(
      sys.modules["__main__"], value.name.partition(":")[2]
    )
    if not (ours or is_importable(value.name)):
      raise Mistake(
        f"the {what} {value.name} cannot be imported by name: resume from the program "
        "that created it"
      )
    found = imported(value.name)
    if (now := to_spec(found)["source"]) != value.source:
      raise Mistake(
        f"the {what} {value.name} has changed: its source is {now}, it was {value.source}; undo the change"
      )
    return found
  return imported(value) if isinstance(value, str) else value


def to_spec(value):
  """Return a field's value for JSON: plain values unchanged, objects and import strings
  as `object` and `source`.
  """
  if isinstance(value, Named):
    return {"object": value.name, "source": value.source}
  if isinstance(value, str) and module_exists(value):
    return {"object": value, "source": _digest(imported(value))}
  if hasattr(value, "described"):
    return value.described()
  if callable(value) or is_pair(value):
    return {"object": name_of(value), "source": _digest(value)}
  return value


def fields_of(recipe) -> dict[str, Any]:
  """Return the fields of a recipe or a task in JSON.

  Raises:
    Mistake: the text is not a JSON object.
  """
  try:
    fields = json.loads(recipe)
  except (TypeError, ValueError, RecursionError):
    fields = None
  if not isinstance(fields, dict):
    raise Mistake(
      f"the recipe is {recipe!r:.100}: give a JSON object, as Recipe.to_json writes it"
    )
  return fields


def is_pair(value) -> bool:
  """Return whether a value is a pair of functions `init, apply`."""
  return isinstance(value, tuple) and len(value) == 2 and all(map(callable, value))


def name_of(value) -> str:
  """Return the name of a function or a class. For an instance return its class's name
  and (), for a name the name itself.
  """
  if isinstance(value, str | Named):
    return value if isinstance(value, str) else value.name
  if is_pair(value):
    return f"({', '.join(map(name_of, value))})"
  if _is_of_an_instance(value):
    return f"{name_of(type(value.__self__))}().{value.__name__}"
  if hasattr(value, "__qualname__"):
    return f"{value.__module__}:{value.__qualname__}"
  return f"{type(value).__module__}:{type(value).__qualname__}()"


def is_importable(name: str) -> bool:
  """Return whether another process can import an object of this name."""
  return not name.startswith("__main__:") and not {*name} & {*"<("}


def is_importable_again(value) -> bool:
  """Return whether `value` can be imported again from the name stored in a results
  folder.
  """
  if isinstance(value, Named) or callable(value) or is_pair(value):
    return is_importable(name_of(value))
  return not hasattr(value, "described")


def _digest(value):
  # A place in memory differs between processes.
  text = re.sub(" at 0x[0-9A-Fa-f]+", "", _source(value))
  return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def _is_of_an_instance(value):
  """Return whether a value is a method bound to an instance. One bound to a class can be
  imported by name.
  """
  return inspect.ismethod(value) and not isinstance(value.__self__, type)


def _source(value):
  """Return an object's source as text, with its arguments, attributes or closure
  values.
  """
  if isinstance(value, functools.partial):
    named = value.keywords
    return " ".join(map(_source, (value.func, *value.args, *named, *named.values())))
  if _is_of_an_instance(value):
    return f"{_source(value.__func__)} {_attributes(value.__self__)}"
  if not callable(value):
    return _text(value)
  code = value if hasattr(value, "__qualname__") else type(value)
  try:
    text = inspect.getsource(code)
  except (OSError, TypeError):  # typed at a prompt
    text = code.__qualname__
    if hasattr(code, "__code__"):
      text = repr((code.__code__.co_code, code.__code__.co_consts))
  made = "" if code is value else _attributes(value)
  cells = [cell.cell_contents for cell in getattr(code, "__closure__", None) or ()]
  return f"{text} {made} {_text(cells)}"


def _attributes(value):
  """Return what an instance was made with, as text."""
  plain = type(value).__repr__ is object.__repr__
  return _text(value.__getstate__()) if plain else repr(value)


def _text(value):
  """Return a text that is complete: with digests instead of arrays, and names instead of
  functions.
  """
  import jax  # the names of recipes need none

  from vmapseeds.data.dataset import fingerprint

  def shown(leaf):
    if hasattr(leaf, "tobytes"):
      return leaf.dtype, leaf.shape, fingerprint(leaf)
    return name_of(leaf) if hasattr(leaf, "__qualname__") else leaf

  leaves, structure = jax.tree.flatten(value)
  return f"{structure} {[*map(shown, leaves)]}"
