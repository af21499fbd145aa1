"""Train a campaign on a Ray cluster: each accelerator has an actor, which trains one
block of runs after another.

Everything a worker needs is in the results folder, which all nodes must see. The driver
only hands out blocks.
"""

import collections
import dataclasses
import logging
from typing import Any

import numpy as np
import xarray as xr

from vmapseeds.campaign import loop
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import from_description, resolve_task
from vmapseeds.campaign.progress import Progress
from vmapseeds.mistakes import Failure, Mistake, at_least, say
from vmapseeds.results.opening import open_results
from vmapseeds.store.claims import abandon
from vmapseeds.store.files import Folder, is_remote, place
from vmapseeds.store.folders import removed_if_unused
from vmapseeds.store.results import Results
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs
from vmapseeds.training.task import Task, describe

POLL = 1.0  # seconds between two looks at the folder
TRIES = (
  3  # a block, or the beginning, is given up when this many workers have died of it
)


class Worker:
  """What runs in an actor: a process with an accelerator of its own, which loads the
  data once.
  """

  campaign: loop.Campaign | None = None

  def begin(
    self, task: str, origin: str, runs: Runs, out: str, options: Options
  ) -> None:
    """Create or extend the folder. The worker does this, because it has the devices."""
    self.campaign = loop.open_campaign(
      from_description(task, origin), runs, out, options
    )

  def work(self, out: str, block: int, options: Options) -> None:
    """Train what is left of a block."""
    self.campaign = self.campaign or loop.resume(out, options)
    loop.train_blocks(self.campaign, range(block, block + 1), wait=False)


def train(
  task: Recipe | Task | str,
  runs: Runs,
  out: Folder,
  *,
  workers: int | None = None,
  **options: Any,
) -> xr.Dataset:
  """Run `vs.train` on the workers of a Ray cluster: the one that RAY_ADDRESS names, else
  one on this machine.

  Args:
    task: what to train; workers must be able to import its parts by name.
    runs: the runs table.
    out: the results folder, at a path that every node sees.
    workers: how many actors; by default one per accelerator, or one per node of a
      cluster without accelerators.
    **options: those of `vs.train`.

  Raises:
    Mistake: Ray is not installed, or as `vs.train`.
    Failure: several workers died at the beginning, or of the same block.
  """
  if workers is not None:
    at_least("workers", workers, 1)
  task = resolve_task(task)
  options = Options.of(**options)
  if isinstance(task, Recipe):
    task.check_found("Ray")
  elif not task.origin:
    raise Mistake(
      f"task {task.name} is an object of this program: Ray needs it in a module, as package.module:name"
    )
  try:
    import ray
  except ImportError:
    raise Mistake(
      "Ray is not installed: pip install 'vmapseeds[ray]', or take another engine"
    ) from None
  out = place(out)
  out = str(out if is_remote(out) else out.absolute())
  ours = not ray.is_initialized()
  if ours:
    ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
  try:
    with removed_if_unused(out):
      return _train(ray, task, runs, out, workers, options)
  finally:
    if ours:
      ray.shutdown()


def _train(ray, task, runs, out, workers, options):
  progress = options.progress
  quiet = dataclasses.replace(options, progress=False)
  spec = task.to_json() if isinstance(task, Recipe) else describe(task)
  placement, count = _placement(ray, workers)
  actor = ray.remote(max_restarts=0)(Worker).options(**placement)
  idle = collections.deque(actor.remote() for _ in range(count))
  for _ in range(TRIES):
    if _lived(ray, idle[0].begin.remote(spec, task.origin, runs, out, quiet)):
      break
    # The dead worker's claim stays. The next worker takes it over, and so knows that the
    # folder is half made.
    idle[0] = actor.remote()
    if progress:
      say(f"a worker died while it created {out}: trying another")
  else:
    raise Failure(f"{TRIES} workers died while they created {out}: see Ray's logs")
  results = Results(out)
  shown = results.root["shown"]
  pending = collections.deque(_left(results, len(runs)))
  running: dict[Any, tuple[Any, int]] = {}
  deaths = collections.Counter[int]()
  done = results.done[: len(runs)]
  values = loop.stored_values(results, shown, np.flatnonzero(done))
  with Progress(len(runs), int(done.sum()), values, shown, progress) as bar:
    while pending or running:
      while pending and idle:
        worker = idle.popleft()
        block = pending.popleft()
        running[worker.work.remote(out, block, quiet)] = worker, block
      ended, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
      for future in ended:
        worker, block = running.pop(future)
        if _lived(ray, future):
          idle.append(worker)
          continue
        deaths[block] += 1
        if deaths[block] == TRIES:
          raise Failure(
            f"block {block} of {out} made {TRIES} workers die: see Ray's logs, and run "
            "the same command again to resume"
          )
        abandon(out, block)
        pending.append(block)
        idle.append(actor.remote())
        if progress:
          say(f"a worker died; block {block} is trained by another one")
      now = results.done[: len(runs)]
      new = np.flatnonzero(now & ~done)
      bar.trained_more(len(new), loop.stored_values(results, shown, new))
      done = now
      if not pending and not running:
        # Blocks that another process held are tried again.
        pending.extend(_left(results, len(runs)))
  return open_results(out, *results.root["test_sets"][:1])


def _placement(ray, workers):
  """Return what an actor asks the cluster for, and the number of actors."""
  resources = ray.cluster_resources()
  for kind in ("GPU", "TPU"):
    if resources.get(kind):
      options = {"num_gpus": 1} if kind == "GPU" else {"resources": {"TPU": 1}}
      return options, workers or int(resources[kind])
  nodes = len([node for node in ray.nodes() if node["Alive"]])
  count = workers or nodes
  # A worker takes all cores of its machine, or its share where there are several on
  # one.
  cores = max(1, int(resources.get("CPU", 1)) // count)
  environment = {"env_vars": {"JAX_NUM_CPU_DEVICES": str(cores)}}
  return {
    "num_cpus": 0,
    "scheduling_strategy": "SPREAD",
    "runtime_env": environment,
  }, count


def _left(results, runs):
  """Return the blocks in which runs are left to train."""
  finished = results.finished_blocks()
  return [
    block
    for block, rows in enumerate(results.blocks)
    if rows.start < runs and block not in finished
  ]


def _lived(ray, future):
  """Return whether a worker finished its call, False if it died. Raise what the worker
  raised.
  """
  try:
    ray.get(future)
  except ray.exceptions.RayTaskError as error:
    cause = getattr(error, "cause", None)
    raise (cause if isinstance(cause, Mistake | Failure) else error) from None
  except ray.exceptions.RayError:
    return False
  return True
