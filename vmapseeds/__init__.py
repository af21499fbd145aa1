"""Train hundreds of small networks at once and read their variance off the runs × examples tensor."""

# Modules first: `recipe` and `train` are also the names of modules, and the functions must win.
from vmapseeds import campaign, stats
from vmapseeds.campaign import replay, train, work
from vmapseeds.errors import Failure, Mistake, UnknownField
from vmapseeds.imports import import_runs
from vmapseeds.lanes import conv_general_dilated
from vmapseeds.recipe import Recipe, recipe
from vmapseeds.results import errors, open_results, prediction_blocks
from vmapseeds.runs import Runs
from vmapseeds.variables import load_params
from vmapseeds.verify import verify

__all__ = [
  "Failure",
  "Mistake",
  "Recipe",
  "Runs",
  "UnknownField",
  "campaign",
  "conv_general_dilated",
  "errors",
  "import_runs",
  "load_params",
  "open_results",
  "prediction_blocks",
  "recipe",
  "replay",
  "stats",
  "train",
  "verify",
  "work",
]
