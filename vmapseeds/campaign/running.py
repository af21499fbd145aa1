"""Train a campaign: `train`, `create` and `work`, which users call. They can stop,
resume, and share a folder with other processes.
"""

import atexit
import shutil
import tempfile
from typing import Any, Literal

import jax
import xarray as xr

from vmapseeds.campaign.block_loop import train_blocks
from vmapseeds.campaign.estimating import estimate_folder
from vmapseeds.campaign.executors import Executor, train_by
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.starting import Campaign, open_campaign, resume_campaign
from vmapseeds.errors import UserError, hide_own_frames, say, whole_number
from vmapseeds.results.formatting import count_of, run_count
from vmapseeds.results.opening import open_results
from vmapseeds.store.files import Folder
from vmapseeds.store.folders import removed_if_unused
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs
from vmapseeds.training.task import Task


@hide_own_frames
@moves_data
def train(
  task: Recipe | Task | str,
  runs: Runs | int = 256,
  out: Folder | None = None,
  *,
  executor: Executor | None = None,
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
) -> xr.Dataset:
  """Train and evaluate the runs that `out` does not hold yet, and return its results, as
  `open_results` does. Call it again to resume.

  Several processes may do so at once, on one machine or on several that share the
  folder: each trains blocks of runs that no other is training, and all return when
  every run is done.

  Args:
    task: what to train: a recipe or a task, the name of a recipe, or an import string
      "package.module:attribute".
    runs: the runs table, or how many independent runs; a longer table than last time
      extends the results.
    out: the results folder, created if absent. None: the results are returned in memory,
      and their folder, which `results.encoding["source"]` names, is removed when Python
      ends.
    executor: whose workers train, each a block after another: anything with the `submit`
      of `concurrent.futures`, such as a `ProcessPoolExecutor`, the `get_executor()` of
      Dask's client, or those of mpi4py, submitit and loky. Workers must see the folder,
      and import what is trained by name. None: this process trains, on all its devices.
    seed_batch: how many runs are trained and written together, and in a new folder form
      a block; an interruption loses at most these. None: 256, or what fits in memory.
    lane_width: lanes that a device advances together, at most the seed batch; results
      depend on it by rounding, so a folder keeps one; it is reduced if the devices'
      memory is too small. None: the folder's, else the fastest as measured.
    lowering: how convolutions run their lanes: "im2col", "grouped" or "sequential";
      results depend on it by rounding. None: the folder's, else the fastest as measured.
    checkpoint_every: save runs in training every so many epochs, or rounds of a task;
      "auto" chooses the interval so that saving takes at most 2 % of the time. None:
      "auto" where a seed batch trains for longer than a minute, else "never".
    predictions: "all", or "none" to keep only tallies, accuracies and numbers of errors:
      then no prediction leaves the devices, and a run takes a few bytes.
    logits: keep logits beside predictions.
    keep_params: keep the trained parameters and batch statistics of all runs, for
      `load_networks`.
    tallies: whether a new folder's votes and errors are counted on the devices, one set
      for each combination of swept values, so that `tally` and reports need not read
      predictions; only for classifiers without label maps.
    pairs: in a new folder, also count the joint errors of all pairs of n examples: n²
      numbers per seed batch and combination.
    force_mixed: resume even where recipe, package versions, device kind, lane width,
      lowering or precision differ from the folder's; the folder records that.
    progress: print on stderr what was chosen and how far the training is.

  Raises:
    UserError: an argument is not valid; then nothing has been trained or changed. Or the
      devices run out of memory, and the lane width cannot be reduced.
    Failure: the disk is full, or cannot be written any more, or a worker of the executor
      failed. What was written stays.
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
  folder = out
  if folder is None:
    folder = temporary_folder()
  if executor is not None:
    train_by(executor, task, runs, folder, options)
    stored = Results(folder)
  else:
    # A mistake that only the training shows leaves no empty folder behind.
    with removed_if_unused(folder):
      campaign = open_campaign(task, runs, folder, options)
      if options.progress:
        say_estimate(campaign)
      train_blocks(campaign, wait=True)
    stored = campaign.results
  results = open_dataset(stored)
  if out is None:
    results.load()
  return results


@hide_own_frames
@moves_data
def create(
  task: Recipe | Task | str, runs: Runs | int, out: Folder, **options: Any
) -> None:
  """Create a results folder, or extend it, and train nothing: `work` trains its runs, in
  any number of processes.

  Args:
    task, runs, out: as for `train`.
    **options: as for `train`: `lane_width`, `logits` and so on.

  Raises:
    UserError: as `train`.
  """
  open_campaign(task, runs, out, Options(**options))


def temporary_folder() -> str:
  """Return a new folder for results that is removed when Python ends."""
  folder = tempfile.mkdtemp(prefix="vmapseeds-")
  atexit.register(shutil.rmtree, folder, ignore_errors=True)
  return folder


def say_estimate(campaign: Campaign) -> None:
  """Say on stderr what is left to train."""
  due = estimate_folder(campaign)
  if due.runs:
    say(
      f"training {run_count(due.runs)} of {campaign.plan.task.name} on "
      f"{devices_in_words()} into {campaign.results.path}: {due.cost}. Ctrl-C stops it, "
      "the same command resumes."
    )


def devices_in_words() -> str:
  """Return the devices that train, as "2 devices (cpu)"."""
  devices = jax.local_devices()
  return f"{count_of(len(devices), 'device')} ({devices[0].device_kind})"


@hide_own_frames
@moves_data
def work(
  out: Folder,
  blocks: tuple[int | None, int | None] | None = None,
  *,
  dataset: Folder | None = None,
  seed_batch: int | None = None,
  checkpoint_every: int | Literal["auto", "never"] | None = None,
  force_mixed: bool = False,
  progress: bool = True,
) -> xr.Dataset:
  """Train the runs that are left in a results folder, or in some of its blocks, and
  return its results, as `open_results` does.

  All it needs is in the folder. It may be started many times, at once and on several
  machines. It skips blocks that other processes are training.

  Args:
    out: a results folder that `train` made.
    blocks: (first, one past the last) block to train, None in either place for the
      folder's own; None for all blocks.
    dataset: where the data are, if they have moved; their digest must be the same.
    seed_batch, checkpoint_every, force_mixed, progress: as for `train`.

  Raises:
    UserError: as `train`; or there are no such blocks.
  """
  first, last = check_block_range(blocks)
  options = Options(
    seed_batch=seed_batch,
    checkpoint_every=checkpoint_every,
    force_mixed=force_mixed,
    progress=progress,
  )
  campaign = resume_campaign(out, options, dataset=dataset)
  count = len(campaign.results.blocks)
  if first is None:
    first = 0
  if last is None:
    last = count
  if not 0 <= first < last <= count:
    raise UserError(
      f"blocks {first}:{last} of a folder with {count}: give some from 0:{count}"
    )
  blocks_of_others = train_blocks(campaign, range(first, last), wait=False)
  if blocks_of_others and campaign.plan.options.progress:
    say(
      f"{count_of(len(blocks_of_others), 'block')} left to other processes, which train them; the first "
      f"is block {blocks_of_others[0]}"
    )
  return open_dataset(campaign.results)


def check_block_range(
  blocks: tuple[int | None, int | None] | None,
) -> tuple[int | None, int | None]:
  """Return the first block and the one past the last; None for the folder's own.

  Raises:
    UserError: they are not two whole numbers or None.
  """
  if blocks is None:
    return None, None
  is_pair = isinstance(blocks, tuple) and len(blocks) == 2
  if is_pair and all(end is None or whole_number(end) is not None for end in blocks):
    return blocks
  raise UserError(
    f"blocks is {blocks!r:.100}: give (first, one past the last), e.g. (0, 10)"
  )


def open_dataset(stored: Results) -> xr.Dataset:
  """Return the results of a campaign."""
  # With several test sets, the first.
  return open_results(stored.path, *stored.root["test_sets"][:1])
