"""Train hundreds of small networks at once and read their variance off the runs ×
examples tensor.
"""

from typing import Any

import lazy_loader

from vmapseeds import forks as forks  # sees forks from now on
from vmapseeds.removed import NAMES

__version__ = "0.2.0"

# The names of `__init__.pyi`, imported on first use: JAX, SciPy and xarray take
# seconds, and a command that trains nothing needs none of them.
_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
  if name in NAMES:
    raise AttributeError(f"vmapseeds.{name} is gone: {NAMES[name]}")
  return _import_name(name)
