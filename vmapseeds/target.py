"""The platform that programs are traced for: that of the devices here, or another."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

from vmapseeds.mistakes import one_of

PLATFORMS = ("cpu", "gpu", "tpu")
_platform = contextvars.ContextVar[str | None]("platform", default=None)


def platform() -> str:
  """Return the platform that programs are traced for now, one of `PLATFORMS`."""
  return _platform.get() or jax.default_backend()


@contextlib.contextmanager
def compiling_for(name: str) -> Iterator[None]:
  """Trace the programs in this context for the platform `name`, whether such a device
  is here or not.
  """
  one_of("platform", name, PLATFORMS)
  token = _platform.set(name)
  try:
    yield
  finally:
    _platform.reset(token)
