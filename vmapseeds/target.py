"""The platform that programs are traced for: that of the devices here, or another."""

import contextlib
import contextvars
from collections.abc import Iterator

import jax

from vmapseeds.mistakes import Mistake, one_line, one_of

PLATFORMS = ("cpu", "gpu", "tpu")
_platform = contextvars.ContextVar[str | None]("platform", default=None)


def platform() -> str:
  """Return the platform that programs are traced for now, one of `PLATFORMS`."""
  return _platform.get() or start_devices()


def start_devices() -> str:
  """Let JAX start the devices that it may use, and return their platform.

  Raises:
    Mistake: there is none.
  """
  try:
    return jax.default_backend()
  except (RuntimeError, AssertionError) as error:
    wanted = jax.config.jax_platforms
    if not wanted:
      raise
    reason = f" ({one_line(error)[:200]})" if str(error) else ""
    raise Mistake(
      f"JAX_PLATFORMS is {wanted}: no such device can be used here{reason}, unset it or "
      "give cpu"
    ) from error


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
