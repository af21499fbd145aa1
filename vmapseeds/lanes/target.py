"""What is compiled for: the platform of the devices that are here, unless another is said."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

from vmapseeds.errors import one_of

PLATFORMS = ("cpu", "gpu", "tpu")
_platform = contextvars.ContextVar("platform", default=None)


def platform() -> str:
  """The platform that programs are traced for now, one of `PLATFORMS`."""
  return _platform.get() or jax.default_backend()


@contextlib.contextmanager
def compiling_for(name: str) -> Iterator[None]:
  """What is traced inside is made for the platform `name`, whether such a device is here or not."""
  one_of("platform", name, PLATFORMS)
  token = _platform.set(name)
  try:
    yield
  finally:
    _platform.reset(token)
