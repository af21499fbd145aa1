"""Train hundreds of small networks at once and read their variance off the runs × examples tensor."""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from vmapseeds import campaign, stats
  from vmapseeds.campaign import replay, train, work
  from vmapseeds.compare import compare
  from vmapseeds.errors import Failure, Mistake, UnknownField
  from vmapseeds.imports import import_runs
  from vmapseeds.lanes import conv_general_dilated, spread
  from vmapseeds.merge import merge
  from vmapseeds.recipe import Recipe, recipe
  from vmapseeds.report import report
  from vmapseeds.results import errors, open_results, prediction_blocks
  from vmapseeds.runs import Runs
  from vmapseeds.store.verify import verify
  from vmapseeds.variables import load_networks, load_params

__all__ = [
  "Failure",
  "Mistake",
  "Recipe",
  "Runs",
  "UnknownField",
  "campaign",
  "compare",
  "conv_general_dilated",
  "errors",
  "import_runs",
  "load_networks",
  "load_params",
  "merge",
  "open_results",
  "prediction_blocks",
  "recipe",
  "replay",
  "report",
  "spread",
  "stats",
  "train",
  "verify",
  "work",
]

# Imported on first use: JAX, SciPy and xarray take seconds, and a command that trains nothing needs none of them.
_HOMES = {
  "campaign": ("replay", "train", "work"),
  "compare": ("compare",),
  "errors": ("Failure", "Mistake", "UnknownField"),
  "imports": ("import_runs",),
  "lanes": ("conv_general_dilated", "spread"),
  "merge": ("merge",),
  "recipe": ("Recipe", "recipe"),
  "report": ("report",),
  "results": ("errors", "open_results", "prediction_blocks"),
  "runs": ("Runs",),
  "variables": ("load_networks", "load_params"),
  "store.verify": ("verify",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
  if name == "__version__":
    from importlib.metadata import version

    return version("vmapseeds")
  if name not in __all__:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  module = importlib.import_module(f"{__name__}.{_HOME.get(name, name)}")
  globals()[name] = found = getattr(module, name) if name in _HOME else module
  return found


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})


class _Package(types.ModuleType):
  """In which `train`, `recipe` and others are functions, though the modules that hold them have the same names."""

  def __setattr__(self, name: str, value: Any) -> None:
    # Whoever imports a submodule makes it an attribute of the package.
    if not (name in _HOME and isinstance(value, types.ModuleType)):
      super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
