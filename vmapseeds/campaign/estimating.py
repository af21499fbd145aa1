"""What a campaign will take, before it is trained."""

import dataclasses
import math
from datetime import timedelta
from typing import Literal, NamedTuple

from vmapseeds.campaign.execution import known_speed
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import Plan
from vmapseeds.campaign.starting import (
  Campaign,
  check_campaign,
  make_plan,
  runs_in_whole_blocks,
  with_whole_blocks,
)
from vmapseeds.errors import hide_own_frames
from vmapseeds.results import description
from vmapseeds.results.formatting import run_count, show
from vmapseeds.store.files import Folder
from vmapseeds.store.layout import bytes_of, read_verified_metadata
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs
from vmapseeds.training.task import Task


class CostEstimate(NamedTuple):
  """What a campaign will take.

  Attributes:
    runs: how many are left to train.
    seconds: of their training on all devices of this process, without compilation and
      evaluation, as measured of the training step; None if it was not measured.
    disk_bytes: of what they store, before compression.
  """

  runs: int
  seconds: float | None
  disk_bytes: int

  @property
  def cost(self) -> str:
    """Return the time and the space that the runs take, as a text."""
    duration = "time not measured"
    if self.seconds is not None:
      total = timedelta(seconds=max(1, round(self.seconds)))
      each = show(self.seconds / max(1, self.runs), None, "count")
      duration = f"{each} s each, {total} in all"
    megabytes = self.disk_bytes / 1e6
    size = f"{megabytes:,.2f}" if megabytes < 10 else f"{megabytes:,.0f}"
    return f"{duration}; {size} MB on disk"

  def __str__(self) -> str:
    return f"{run_count(self.runs)}; {self.cost}"


@hide_own_frames
@moves_data
def estimate(
  task: Recipe | Task | str,
  runs: Runs | int = 256,
  out: Folder | None = None,
  *,
  seed_batch: int | None = None,
  lane_width: int | None = None,
  lowering: str | None = None,
  checkpoint_every: int | Literal["auto", "never"] | None = None,
  predictions: Literal["all", "none"] = "all",
  logits: bool = False,
  keep_params: bool = False,
  tallies: bool = True,
  pairs: bool = False,
  force_mixed: bool = False,
  progress: bool = True,
) -> CostEstimate:
  """Return what `train` would take with these arguments. It checks them as `train` does,
  times the training step for a few seconds, and trains and writes no runs.

  Args:
    task, runs: as for `train`.
    out: the results folder, whose finished runs are left out; None for a new one. A block
      that was begun with more runs is counted whole, as it is trained.
    seed_batch, lane_width, lowering, checkpoint_every: as for `train`.
    predictions, logits, keep_params, tallies, pairs: as for `train`.
    force_mixed, progress: as for `train`.

  Raises:
    UserError: as `train`.
  """
  options = Options(
    seed_batch=seed_batch,
    lane_width=lane_width,
    lowering=lowering,
    checkpoint_every=checkpoint_every,
    predictions=predictions,
    logits=logits,
    keep_params=keep_params,
    tallies=tallies,
    pairs=pairs,
    force_mixed=force_mixed,
    progress=progress,
  )
  plan = make_plan(check_campaign(task, runs, out, options), out)
  root = None
  if out is not None:
    root = read_verified_metadata(out)
  if out is None or not root:
    # `estimate_plan` takes timings that are there.
    known_speed(plan.task, plan.execution, measured=True)
    return estimate_plan(plan, done=0)

  results = Results(out, root)
  description.check_same_campaign(
    results,
    plan.contents,
    plan.contents.description | plan.provenance,
    plan.options.force_mixed,
  )
  known_speed(plan.task, plan.execution, measured=True)
  return estimate_folder(Campaign(plan, results))


def estimate_folder(campaign: Campaign) -> CostEstimate:
  """Return what the runs that a folder lacks will take, from timings made earlier: those
  of whole blocks, of which fewer may be asked for than when they were begun.
  """
  plan, results = campaign
  says = plan.options.progress
  total = runs_in_whole_blocks(results, len(plan.runs), says=says)
  if total > len(plan.runs):
    whole = with_whole_blocks(campaign).plan
    plan = dataclasses.replace(whole, runs=whole.runs[:total])
  done = int(results.done[:total].sum())
  return estimate_plan(plan, done)


def estimate_plan(plan: Plan, done: int) -> CostEstimate:
  """Return what the runs that are left will take, from timings made earlier."""
  remaining = len(plan.runs) - done
  blocks = math.ceil(remaining / plan.block_runs)
  contents = plan.contents
  size = sum(column.nbytes for column in contents.columns.values())
  size += remaining * sum(map(bytes_of, contents.outputs.values()))
  size += blocks * sum(map(bytes_of, contents.counts.values()))

  seconds = None
  seconds_a_step = known_speed(plan.task, plan.execution)
  if seconds_a_step is not None:
    # Runs of several programs have different numbers of steps, and which are left is not
    # looked at.
    steps = plan.model_steps(plan.runs) * remaining / len(plan.runs)
    seconds = seconds_a_step * steps
  return CostEstimate(remaining, seconds, size)
