"""The checker of annotated array shapes while the tests run: see conftest.py."""

import beartype


def checked(function):
  """Checks only the annotated arrays of a function. The package itself refuses other
  wrong types, in one line.
  """
  function.__annotations__ = {
    name: a for name, a in function.__annotations__.items() if "jaxtyping" in repr(a)
  }
  return beartype.beartype(function)
