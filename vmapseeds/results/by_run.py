"""A table of the runs, as a frame of pandas."""

import contextlib
from typing import Any

import pandas as pd
import xarray as xr

from vmapseeds.errors import UserError, hide_own_frames
from vmapseeds.results.measured_runs import roles, values_of_runs
from vmapseeds.results.opening import open_results
from vmapseeds.results.roles import REPORTED_ROLES
from vmapseeds.store.files import Folder
from vmapseeds.training.names import DIVERGED


@hide_own_frames
def run_table(
  results: xr.Dataset | Folder, *, test_set: str = "test", epoch: int | None = None
) -> pd.DataFrame:
  """Return a frame of pandas with a row for each finished run.

  Its columns are the seeds and values of the run, then `accuracy`, where runs predict
  classes, or `disagreement` with the other runs, where these have no labels, `mean_<loss>`
  for each loss and each score by its name, what else there is of
  one number for each run, and `diverged`. Accuracies are fractions. Runs that diverged
  keep their rows, with whatever they ended in.

  ::

    vs.run_table("results/a").groupby("lr").accuracy.agg(["mean", "std", "count"])

  Args:
    results: a results folder, or what `open_results` returned for it, or some of its
      runs.
    test_set: which test set, if `results` is a folder.
    epoch: after which epoch, if `results` is a folder; None for the end.
  """
  if isinstance(results, Folder):
    results = open_results(results, test_set, epoch)
  columns = {
    str(name): variable.values
    for name, variable in results.variables.items()
    if variable.dims == ("run",)
  }
  frame = pd.DataFrame(columns)
  # Without that column, runs that diverged keep their numbers.
  all_runs = results.drop_vars(DIVERGED, errors="ignore")
  outputs: dict[str, Any] = {}
  with contextlib.suppress(UserError):  # nothing has such a role
    outputs = dict(roles(results))
  for name, attributes in outputs.items():
    column = REPORTED_ROLES[attributes["role"]].column.format(name)
    if column not in frame:
      frame[column] = values_of_runs(all_runs, name)
  first = [str(name) for name in results.coords if name in frame]
  last = [name for name in (DIVERGED,) if name in frame]
  between = [name for name in frame if name not in first + last]
  return frame[first + between + last].rename_axis("run")
