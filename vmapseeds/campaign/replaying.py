"""Train a stored run again, to check that its results are the same."""

from typing import NamedTuple

import numpy as np

from vmapseeds import lanes
from vmapseeds.campaign.loop import on_devices, provenance, spread_task
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import Plan, contents_of, reload_plan
from vmapseeds.mistakes import Mistake, at_least, door
from vmapseeds.results import description
from vmapseeds.results.description import check_arrays, describe_difference
from vmapseeds.store.files import Folder
from vmapseeds.target import moves_data
from vmapseeds.training.identity import are_same
from vmapseeds.training.outputs import sibling, tested
from vmapseeds.training.task import lanes_of, source_texts


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


@door
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
    Mistake: there is no such run, it is not done, or its data have changed.
  """
  runs, results = description.campaign_of(out)
  if at_least("run", run, 0) >= len(runs):
    raise Mistake(
      f"run {run} of a folder with {len(runs)}: the last is {len(runs) - 1}"
    )
  record = results.record(results.block_of(run))
  if record is None:
    raise Mistake(
      f"run {run} of {out} is not done: `vmapseeds train` or `work` trains it"
    )
  root = results.root | {"precision": record["precision"]}
  options = Options(**root["kept"])
  plan = reload_plan(out, root, record["recipe"], runs, options, dataset)
  if not are_same(plan.identity, record["identity"]):
    given = {**provenance(plan, lanes.Execution("", 0))}
    changed = describe_difference(results, given, source_texts(plan.task))
    raise Mistake(f"{out}: its {changed}; undo the change")
  names = compared_arrays(plan)
  theirs = {name: results.read(path, run) for name, path in names.items()}
  check_arrays(results, contents_of(plan, results.block_runs), {*names.values()})
  execution = lanes.Execution(record["lowering"], record["lane_width"])
  alone = plan.runs[slice(run, run + 1)]
  traced = plan.traced_for(alone)
  spread = spread_task(plan, execution, traced)
  table = lanes_of(traced.task, alone)
  ((_, outputs, _),) = spread(on_devices(plan), table)
  outputs = {name: outputs[path][0] for name, path in names.items()}
  differing = {name: differing_entries(outputs[name], theirs[name]) for name in names}
  entries = {name: len(np.atleast_1d(row)) for name, row in theirs.items()}
  kinds = {path.rpartition("/")[2] for path in names.values()}
  return Replay(run, entries, differing, kinds.pop() if len(kinds) == 1 else "arrays")


def compared_arrays(plan: Plan):
  """Return the arrays that a replay compares. Of classes: the predictions by their test
  sets, or numbers of errors if predictions are not kept. Else all, by their names.
  """
  if classes := tested(plan.traced.outputs):
    return {
      name.rpartition("/")[0] or name: name
      if name in plan.stored
      else sibling(name, "half_errors")
      for name in classes
    }
  return {name: name for name, output in plan.stored.items() if not output.total}


def differing_entries(mine: np.ndarray, theirs: np.ndarray) -> int:
  """Return how many entries along the first axis are not equal; NaN equals NaN."""
  differ = np.atleast_1d((mine != theirs) & ((mine == mine) | (theirs == theirs)))
  return int(differ.reshape(len(differ), -1).any(1).sum())
