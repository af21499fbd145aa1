"""Train hundreds of small networks at once and read their variance off the runs × examples tensor."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from vmapseeds import stats
  from vmapseeds.campaign.loop import train, work
  from vmapseeds.campaign.options import Options
  from vmapseeds.campaign.replaying import replay
  from vmapseeds.data import Dataset
  from vmapseeds.lanes import conv_general_dilated, spread
  from vmapseeds.mistakes import Failure, Mistake, UnknownField
  from vmapseeds.reports.comparison_page import compare
  from vmapseeds.reports.results_page import report
  from vmapseeds.results.imports import import_runs
  from vmapseeds.results.merging import merge
  from vmapseeds.results.networks import load_networks, load_params
  from vmapseeds.results.opening import errors, open_results, prediction_blocks, tally
  from vmapseeds.store.verification import verify
  from vmapseeds.training.recipes import Recipe, recipe
  from vmapseeds.training.runs import Runs
  from vmapseeds.training.task import Task

# Imported on first use: JAX, SciPy and xarray take seconds, and a command that trains nothing needs none of them.
_HOMES = {
  "campaign.options": ("Options",),
  "campaign.loop": ("train", "work"),
  "campaign.replaying": ("replay",),
  "data": ("Dataset",),
  "lanes": ("conv_general_dilated", "spread"),
  "mistakes": ("Failure", "Mistake", "UnknownField"),
  "reports.comparison_page": ("compare",),
  "reports.results_page": ("report",),
  "results.imports": ("import_runs",),
  "results.merging": ("merge",),
  "results.networks": ("load_networks", "load_params"),
  "results.opening": ("errors", "open_results", "prediction_blocks", "tally"),
  "store.verification": ("verify",),
  "training.recipes": ("Recipe", "recipe"),
  "training.runs": ("Runs",),
  "training.task": ("Task",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted([*_HOME, "stats"])


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

