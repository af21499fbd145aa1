"""The platform that programs are traced for: that of the devices here, or another."""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax

from vmapseeds import forks
from vmapseeds.errors import UserError, check_one_of, one_line
from vmapseeds.machine import ask_for_all_cores

Function = TypeVar("Function", bound=Callable[..., Any])

PLATFORMS = ("cpu", "gpu", "tpu")
_platform = contextvars.ContextVar[str | None]("platform", default=None)
_here = contextvars.ContextVar[bool]("here", default=True)


def platform() -> str:
  """Return the platform that programs are traced for now, one of `PLATFORMS`."""
  name = _platform.get()
  if name is not None:
    return name
  return start_devices()


def start_devices() -> str:
  """Let JAX start the devices that it may use, and return their platform.

  Raises:
    UserError: there is none, or this process was forked from one in which JAX had started
      them.
  """
  forks.check_threads()
  try:
    return jax.default_backend()
  # JAX raises either where a platform that was asked for has no device.
  except (RuntimeError, AssertionError) as error:
    wanted = jax.config.jax_platforms
    # Nothing was asked for, so it is no mistake.
    if not wanted:
      raise
    reason = ""
    if str(error):
      reason = f" ({one_line(error)[:200]})"
    raise UserError(
      f"JAX_PLATFORMS is {wanted}: no such device can be used here{reason}, unset it or "
      "give cpu"
    ) from error


def is_for_this_machine() -> bool:
  """Return whether programs may be traced for this machine's own processor."""
  return _here.get()


@contextlib.contextmanager
def compiling_for(name: str, *, here: bool = True) -> Iterator[None]:
  """Trace the programs in this context for the platform `name`, whether such a device
  is here or not.

  Args:
    name: one of `PLATFORMS`.
    here: whether they are for this machine alone; if not, all machines trace the same.
  """
  check_one_of("platform", name, PLATFORMS)
  tokens = _platform.set(name), _here.set(here)
  try:
    yield
  finally:
    _platform.reset(tokens[0])
    _here.reset(tokens[1])


def moves_data(function: Function) -> Function:
  """Let a function of this package move data to and from devices, also where the user
  has JAX refuse that (`jax_transfer_guard`). If it starts JAX, then on all cores. In a child forked after JAX
  has run, it is refused.
  """

  @functools.wraps(function)
  def moving(*args, **kwargs):
    forks.check_threads()
    # A training may follow, and JAX starts once.
    ask_for_all_cores()
    with jax.transfer_guard("allow"):
      return function(*args, **kwargs)

  return moving  # type: ignore[return-value]
