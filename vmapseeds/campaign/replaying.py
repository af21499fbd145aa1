"""Train a stored run again, to check that its results are the same."""

from typing import NamedTuple

import numpy as np

from vmapseeds import lanes
from vmapseeds.campaign.block_training import put_data_on_devices, spread_task
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import Plan, reload_task
from vmapseeds.errors import UserError, check_at_least, hide_own_frames
from vmapseeds.results import description
from vmapseeds.results.description import check_arrays, describe_difference
from vmapseeds.store.files import Folder
from vmapseeds.store.layout import Description
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training.identity import are_same
from vmapseeds.training.outputs import sibling
from vmapseeds.training.task import lanes_of


class Replay(NamedTuple):
  """A run that was trained again. For each test set: its number of examples, and how
  many predictions differ.

  Without outputs of role class: the entries of each stored array, and how many differ.
  If predictions were not kept, `compared` is "half_errors": the numbers of errors on
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


@hide_own_frames
@moves_data
def replay(out: Folder, run: int, *, dataset: Folder | None = None) -> Replay:
  """Train one run of a results folder again, as it was trained, and compare its
  predictions. Nothing is written.

  Without outputs of role class, all stored arrays are compared. If predictions were not
  kept, numbers of errors are.

  Args:
    out: a results folder that `train` made.
    run: the run's row in the folder.
    dataset: where the data are, as for `work`.

  Raises:
    UserError: there is no such run, it is not done, or its data have changed.
  """
  runs, results = description.campaign_of(out)
  record = record_of_run(results, run, len(runs))
  # The blocks of a folder may differ in recipe and precision.
  root = results.root | {"precision": record["precision"]}
  options = Options(**root["kept"])
  checked = reload_task(out, root, record["recipe"], runs, options, dataset)
  # As the run was trained: another lane width may change its last bits.
  execution = lanes.Execution(record["lowering"], record["lane_width"])
  plan = checked.planned(execution, results.block_runs)
  if not are_same(plan.identity, record["identity"]):
    difference = describe_difference(results.root, plan.provenance)
    raise UserError(f"{out}: its {difference}; undo the change")

  paths = compared_arrays(plan)
  # Read first: a run whose values are damaged need not be trained.
  stored = {name: results.read(path, run) for name, path in paths.items()}
  check_arrays(results, plan.contents, set(paths.values()))
  outputs = train_alone(plan, run)

  examples = {}
  differing = {}
  for name, path in paths.items():
    examples[name] = len(np.atleast_1d(stored[name]))
    differing[name] = differing_entries(outputs[path][0], stored[name])
  kinds = {path.rpartition("/")[2] for path in paths.values()}
  compared = kinds.pop() if len(kinds) == 1 else "arrays"
  return Replay(run, examples, differing, compared)


def record_of_run(results: Results, run: int, count: int) -> Description:
  """Return the record of the block that a run is in, of `count` runs.

  Raises:
    UserError: there is no such run, or it is not done.
  """
  if check_at_least("run", run, 0) >= count:
    raise UserError(f"run {run} of a folder with {count}: the last is {count - 1}")
  record = results.record(results.block_of(run))
  if record is None:
    raise UserError(
      f"run {run} of {results.path} is not done: `vmapseeds train` or `work` trains it"
    )
  return record


def train_alone(plan: Plan, run: int):
  """Train one run of a plan. Return its outputs by their names, each of one lane."""
  table = plan.runs[slice(run, run + 1)]
  traced = plan.traced_for(table)
  spread = spread_task(plan, traced)
  ((_, outputs, _),) = spread(put_data_on_devices(plan), lanes_of(traced.task, table))
  return outputs


def compared_arrays(plan: Plan) -> dict[str, str]:
  """Return the arrays that a replay compares. Of classes: the predictions by their test
  sets, or numbers of errors if predictions are not kept. Else all, by their names.
  """
  classes = plan.traced.classes
  if not classes:
    # The folder has counts as fractions of their totals.
    return {name: name for name, output in plan.stored.items() if not output.total}
  paths = {}
  for name in classes:
    test_set = name.rpartition("/")[0]
    is_stored = name in plan.stored
    paths[test_set or name] = name if is_stored else sibling(name, "half_errors")
  return paths


def differing_entries(mine: np.ndarray, theirs: np.ndarray) -> int:
  """Return how many entries along the first axis are not equal; NaN equals NaN."""
  mine = np.atleast_1d(mine)
  theirs = np.atleast_1d(theirs)
  both_nan = (mine != mine) & (theirs != theirs)  # NaN alone differs from itself
  differ = (mine != theirs) & ~both_nan
  return int(differ.reshape(len(differ), -1).any(1).sum())
