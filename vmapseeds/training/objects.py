"""What a recipe is made of: registered names, import strings
`"package.module:attribute"`, or objects themselves.

A folder stores an object's name, so that another process can import it. An object that
cannot be imported by name (a lambda, one made in a function, one in `__main__`) can
train and resume only in its own program. Whether it still does the same is for
`training.identity` to say.
"""

import contextlib
import functools
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

import vmapseeds
from vmapseeds.errors import UserError, one_line


class ImportedByName(NamedTuple):
  """An object as a folder describes it."""

  name: str  # package.module:attribute


@functools.cache
def is_import(text: str) -> bool:
  """Return whether a text is an import string; `cifar10:3.0.2` is not."""
  return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text) is not None


def is_name(value) -> bool:
  """Return whether a recipe's field is a registered name, or a text of registered names
  (as in `augment`).
  """
  return isinstance(value, str) and not is_import(value)


def is_object(value) -> bool:
  """Return whether a recipe's field is an object, or the import string of one."""
  named = isinstance(value, str) and module_exists(value)
  return named or isinstance(value, ImportedByName) or callable(value) or is_pair(value)


def module_exists(text: str) -> bool:
  """Return whether a text is an import string of a package that exists: names of data
  sets may have the same form.
  """
  if not is_import(text):
    return False
  module, _, _ = text.partition(":")
  package, _, _ = module.partition(".")
  return importlib.util.find_spec(package) is not None


def check_no_module(name: object) -> None:
  """Raise `UserError` if a name is that of a module, or of its file: it says which recipes
  and tasks are in there.
  """
  if not isinstance(name, str):
    return
  module = name.removesuffix(".py").replace("/", ".")
  if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module):
    return
  try:
    if importlib.util.find_spec(module) is None:
      return
    values = vars(importlib.import_module(module))
  except Exception:  # whatever the user's module does
    return
  # By the names of their classes, because this module comes before theirs.
  texts = [
    f"{module}:{attribute}"
    for attribute, value in values.items()
    if type(value).__name__ in ("Recipe", "Task")
  ]
  choice = " or ".join(texts) or f"such as {module}:mine"
  raise UserError(f"{name} is a module: give a recipe or task of it, {choice}")


def import_object(text: str):
  """Import the object that an import string names.

  Raises:
    UserError: it cannot be imported.
  """
  module, _, attribute = text.partition(":")
  try:
    return functools.reduce(
      getattr, attribute.split("."), importlib.import_module(module)
    )
  except UserError:
    raise
  except Exception as error:  # whatever the user's module does
    if is_ours(error):
      raise
    raise mistake_in_code(
      f"{text!r} cannot be imported ({describe_exception(error)}): give package.module:attribute"
    ) from error


def needs_numbers(error: Exception) -> bool:
  """Return whether JAX raised this where a traced array is to be a number, an array of
  NumPy or a condition.
  """
  import jax  # names of recipes need none of it

  kinds = (
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
  )
  return isinstance(error, kinds)


@contextlib.contextmanager
def before_training(
  name: str, otherwise: str = "", *, traced: bool = True
) -> Iterator[None]:
  """Turn whatever a user's functions raise while they are traced into a `UserError`. What
  this package raises itself goes through, with a note.

  Args:
    name: of the function.
    otherwise: what else helps one that needs numbers.
    traced: whether JAX traces it, or it gets numbers.
  """
  try:
    yield
  except UserError:
    raise
  except Exception as error:
    if is_ours(error):
      raise
    if needs_numbers(error):
      raise mistake_in_code(
        f"{name} needs the numbers of an array that JAX only traces"
        f"{_place_of(error)}: compute with jax.numpy, not with NumPy, scikit-learn or "
        f"Python's if, float and range{otherwise}"
      ) from error
    while_traced = " while being traced" if traced else ""
    raise mistake_in_code(
      f"{name} raised an error{while_traced} ({describe_exception(error)})"
    ) from error


def calling(what: str, value) -> contextlib.AbstractContextManager[None]:
  """Return the context in which a recipe's field is called, if it is an object of the
  user's: what that raises becomes a `UserError`, as in `before_training`.
  """
  if not is_object(value):
    return contextlib.nullcontext()
  return before_training(f"{what} {name_of(value)}")


# Networks fail on inputs that do not fit them, the built-in ones too.
PACKAGE = Path(__file__).parents[1]
NETWORKS = PACKAGE / "models"
# Their frames tell nothing: everybody calls them.
COMMON = ("jax", "jaxlib", "numpy", "jaxtyping", "beartype", "contextlib")


def is_ours(error: Exception) -> bool:
  """Return whether this package raised what the caller of this function's caller caught,
  not what a user's object, or a library that this is made of, did. If so, the error gets
  a note that says so.

  This is told by the innermost frame that is either's, below the one that catches.
  """
  frames = traceback.extract_tb(error.__traceback__)
  while frames and frames[0].filename == __file__:
    frames = frames[1:]
  for frame in reversed(frames[1:]):
    path = Path(frame.filename)
    if PACKAGE in path.parents and NETWORKS not in path.parents:
      note = (
        f"raised in {path.name} line {frame.lineno} of vmapseeds "
        f"{vmapseeds.__version__}, not in your code: please report this traceback"
      )
      if note not in getattr(error, "__notes__", ()):
        error.add_note(note)
      return True
    if not _is_common(frame.filename):
      return False
  return False


def _is_common(filename):
  """Return whether a file is Python's, or of a library that this package calls itself."""
  if filename.startswith("<"):
    return True
  parts = Path(filename).parts
  for folder in ("site-packages", "dist-packages"):
    if folder in parts:
      return parts[parts.index(folder) + 1] in COMMON
  return filename.startswith(sysconfig.get_paths()["stdlib"])


def mistake_in_code(message: str) -> UserError:
  """Return a mistake whose cause was raised in the user's code, and is shown with it."""
  mistake = UserError(message)
  mistake.shows_cause = True
  return mistake


def describe_exception(error: Exception) -> str:
  """Return an error of the user's code as one line: the error, and the last line of that
  code in its traceback.
  """
  return f"{type(error).__name__}: {one_line(error)[:300]}{_place_of(error)}"


def _place_of(error: Exception) -> str:
  """Return the last line of the user's code in an error's traceback, after a comma."""
  place = ""
  for frame in traceback.extract_tb(error.__traceback__):
    if _is_users(frame.filename):
      place = f", {os.path.basename(frame.filename)} line {frame.lineno}"
  return place


def resolve_object(what: str, value):
  """Return the object that a recipe's field stands for if it is not a registered name:
  the imported one, or the value itself.

  Raises:
    UserError: it cannot be imported.
  """
  if isinstance(value, str):
    return import_object(value)
  if not isinstance(value, ImportedByName):
    return value
  module, _, attribute = value.name.partition(":")
  # The program that runs may be the one that created the folder.
  is_in_program = module == "__main__" and hasattr(sys.modules[module], attribute)
  if not is_in_program and not is_importable(value.name):
    raise UserError(
      f"the {what} {value.name} cannot be imported by name: resume from the program "
      "that created it"
    )
  return import_object(value.name)


def to_spec(value):
  """Return a field's value for JSON: plain values unchanged, objects and import strings
  as `{"object": name}`.
  """
  if is_object(value):
    return {"object": name_of(value)}
  if hasattr(value, "described"):  # data in memory
    return value.described()
  return value


def fields_of(recipe) -> dict[str, Any]:
  """Return the fields of a recipe or a task in JSON.

  Raises:
    UserError: the text is not a JSON object.
  """
  try:
    fields = json.loads(recipe)
  except (TypeError, ValueError, RecursionError):
    fields = None
  if not isinstance(fields, dict):
    raise UserError(
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
  if isinstance(value, str):
    return value
  if isinstance(value, ImportedByName):
    return value.name
  if is_pair(value):
    return f"({', '.join(map(name_of, value))})"
  if _is_of_an_instance(value):
    return f"{name_of(type(value.__self__))}().{value.__name__}"
  if hasattr(value, "__qualname__"):
    return f"{value.__module__}:{value.__qualname__}"
  return f"{type(value).__module__}:{type(value).__qualname__}()"


def is_importable(name: str) -> bool:
  """Return whether another process can import an object of this name."""
  # As in <locals>, <lambda> and pairs of functions.
  has_brackets = "<" in name or "(" in name
  return not name.startswith("__main__:") and not has_brackets


def is_importable_again(value) -> bool:
  """Return whether `value` can be imported again from the name stored in a results
  folder.
  """
  if isinstance(value, ImportedByName) or callable(value) or is_pair(value):
    return is_importable(name_of(value))
  return not hasattr(value, "described")


def _is_of_an_instance(value):
  """Return whether a value is a method bound to an instance. One bound to a class can be
  imported by name.
  """
  return inspect.ismethod(value) and not isinstance(value.__self__, type)


@functools.cache
def _is_users(path):
  """Return whether a file belongs neither to Python, nor to an installed package, nor to
  this one.
  """
  # Also of the environment that this one builds on, as `--system-site-packages` does.
  parts = Path(path).parts
  if "site-packages" in parts or "dist-packages" in parts:
    return False
  ours = str(Path(__file__).parents[1])
  python = sysconfig.get_paths()
  others = (ours, python["stdlib"], python["purelib"], python["platlib"], "<")
  return not path.startswith(others)
