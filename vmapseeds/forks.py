"""Whether this process is a child that lacks the threads of JAX. It is imported with the
package, before there can be such a child, and imports no JAX.
"""

import os
import sys

from vmapseeds.errors import UserError

_lacking = False


def check_threads() -> None:
  """Raise `UserError` if this process was forked from one in which JAX had started its
  devices: programs would wait for the parent's threads for ever.
  """
  if _lacking:
    raise UserError(
      "this process was forked from one in which JAX had run, and would wait for ever: "
      "start it with multiprocessing.get_context('spawn')"
    )


def _note_fork() -> None:
  global _lacking
  bridge = sys.modules.get("jax._src.xla_bridge")
  if bridge is not None and bridge.backends_are_initialized():
    _lacking = True


# Windows has no fork.
if hasattr(os, "register_at_fork"):
  os.register_at_fork(after_in_child=_note_fork)
