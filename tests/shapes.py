"""What checks annotated array shapes while the tests run: see conftest.py."""

import beartype


def checked(function):
  """Checks the annotated arrays of a function, and no other types: these are for the package to refuse in one line."""
  function.__annotations__ = {name: a for name, a in function.__annotations__.items() if "jaxtyping" in repr(a)}
  return beartype.beartype(function)
