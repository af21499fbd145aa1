"""Trains a stored run once more, to see whether its results come out the same."""

import os
from typing import NamedTuple

import numpy as np

from vmapseeds import lanes
from vmapseeds.campaign.loop import spread_task
from vmapseeds.campaign.preparing import prepared_again
from vmapseeds.mistakes import Mistake, at_least
from vmapseeds.results import description
from vmapseeds.store.layout import readable


class Replay(NamedTuple):
  """A run that was trained again. For each test set: its number of examples, and how
  many predictions differ.

  For a task without a recipe: the entries of each stored array, and how many differ. If
  predictions were not kept, `compared` is "half_errors": the numbers of errors on
  examples of even and of odd index.
  """

  run: int
  examples: dict[str, int]
  differing: dict[str, int]
  compared: str = "predictions"

  @property
  def same(self) -> bool:
    """Whether all that is compared agrees."""
    return not any(self.differing.values())


def replay(
  out: str | os.PathLike, run: int, *, dataset: str | os.PathLike | None = None
) -> Replay:
  """Trains one run of a results folder again, as it was trained, and compares the
  predictions. Nothing is written.

  For a task without a recipe all stored arrays are compared. If predictions were not
  kept, numbers of errors are.

  Args:
    out: a results folder that `train` made.
    run: the run's row in the folder.
    dataset: where the data are, as for `work`.

  Raises:
    Mistake: there is no such run, it is not done, or its data have changed.
  """
  runs, results = description.campaign_of(out)
  if at_least("run", run, 0) >= len(runs):
    raise Mistake(
      f"run {run} of a folder with {len(runs)}: the last is {len(runs) - 1}"
    )
  writes = results.record(run // results.block_runs)
  write = next((w for w in writes if run in range(*w["rows"])), None)
  if write is None:
    raise Mistake(
      f"run {run} of {out} is not done: `vmapseeds train` or `work` trains it"
    )
  root = results.root
  predictions = description.kept_of(root)["predictions"]
  compared = "half_errors" if predictions == "none" else "predictions"
  names = {name: f"{name}/{compared}" for name in root["test_sets"]} or {
    name: name for name in results.outputs
  }
  with readable(out):
    theirs = {name: results.array(path)[run] for name, path in names.items()}
  # The recorded precision, because `auto` may mean another one on the devices here.
  kept = {"precision": write["precision"], "predictions": predictions}
  task = prepared_again(out, root, write["recipe"], runs, dataset, **kept)
  description.check_arrays(results, task, runs, {*names.values()})
  how = lanes.Execution(write["lowering"], write["lane_width"])
  ((_, outputs),) = spread_task(task, how)(
    task.data, task.lanes(runs[slice(run, run + 1)])
  )
  outputs = {name: outputs[path][0] for name, path in names.items()}
  differing = {name: differing_entries(outputs[name], theirs[name]) for name in names}
  return Replay(
    run,
    {name: len(np.atleast_1d(row)) for name, row in theirs.items()},
    differing,
    compared,
  )


def differing_entries(mine: np.ndarray, theirs: np.ndarray) -> int:
  """How many entries along the first axis are not equal; NaN equals NaN."""
  differ = np.atleast_1d((mine != theirs) & ((mine == mine) | (theirs == theirs)))
  return int(differ.reshape(len(differ), -1).any(1).sum())
