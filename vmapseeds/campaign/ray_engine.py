"""Ray as the engine of a campaign: one actor an accelerator, a block of runs at a time, blocks of a dead worker again.

Everything a worker needs is in the results folder, which all nodes must see; the driver only hands out blocks.
"""

import collections
import logging
import os
import sys
from typing import Any

import numpy as np
import xarray as xr

from vmapseeds.campaign import loop
from vmapseeds.campaign.progress import Progress
from vmapseeds.mistakes import Failure, Mistake, at_least
from vmapseeds.results.opening import open_results
from vmapseeds.store.claims import abandon
from vmapseeds.store.files import is_remote, place
from vmapseeds.store.folders import removed_if_unused
from vmapseeds.store.results import Results
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs

POLL = 1.0  # seconds between two looks at the folder
TRIES = 3  # workers that may die of a block before it is given up


class Worker:
  """What runs in an actor: a process with an accelerator of its own, which loads the data once."""

  begun: loop.Begun | None = None

  def begin(self, recipe: str, runs: Runs, out: str, how: dict[str, Any]) -> None:
    """Makes the folder, or extends it, here, where the devices are."""
    self.begun = loop.begin(Recipe.from_json(recipe), runs, out, progress=False, **how)

  def work(self, out: str, block: int, how: dict[str, Any]) -> None:
    """Trains what is left of a block."""
    self.begun = self.begun or loop.resume(out, progress=False, **how)
    force_mixed = how.get("force_mixed", False)
    loop.train_blocks(*self.begun, range(block, block + 1), wait=False, force_mixed=force_mixed, progress=False)


def train(
  recipe: Recipe, runs: Runs, out: str | os.PathLike, *, workers: int | None = None, progress: bool = True, **how: Any
) -> xr.Dataset:
  """`vs.train` by the workers of a Ray cluster: the one that RAY_ADDRESS names, else one on this machine.

  Args:
    recipe: what to train.
    runs: the runs table.
    out: the results folder, at a path that every node sees.
    workers: how many actors; by default one an accelerator, or one a node of a cluster without accelerators.
    progress: whether to say on stderr how far it is.
    how: what `vs.train` takes besides.

  Raises:
    Mistake: Ray is not installed, or as `vs.train`.
    Failure: no worker is left, or a block made several workers die.
  """
  try:
    import ray
  except ImportError:
    raise Mistake("Ray is not installed: pip install 'vmapseeds[ray]', or take another engine") from None
  if workers is not None:
    at_least("workers", workers, 1)
  out = place(out)
  out = str(out if is_remote(out) else out.absolute())
  ours = not ray.is_initialized()
  if ours:
    ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
  try:
    with removed_if_unused(out):
      return _train(ray, recipe, runs, out, workers, progress, how)
  finally:
    if ours:
      ray.shutdown()


def _train(ray: Any, recipe: Recipe, runs: Runs, out: str, workers: int | None, progress: bool, how: dict[str, Any]):
  actor = ray.remote(max_restarts=0)(Worker)
  options, count = _placement(ray, workers)
  idle = collections.deque(actor.options(**options).remote() for _ in range(count))
  for left in reversed(range(TRIES)):
    try:
      ray.get(idle[0].begin.remote(recipe.to_json(), runs, out, how))
      break
    except ray.exceptions.RayTaskError as error:
      raise _cause(error) from None
    except ray.exceptions.RayError:
      if not left:
        raise Failure(f"{TRIES} workers died while they began {out}: see Ray's logs") from None
      # Its claim stays: it says that what lies there is a folder half made, and the next worker takes it over.
      idle[0] = actor.options(**options).remote()
      if progress:
        print(f"a worker died while it began {out}: another one does", file=sys.stderr)
  of_work = {name: how[name] for name in ("seed_batch", "checkpoint_every", "force_mixed") if name in how}
  results = Results(out)
  pending = collections.deque(_left(results, len(runs)))
  running: dict[Any, tuple[Any, int]] = {}
  deaths = collections.Counter[int]()
  done = results.done[: len(runs)]
  accuracies = loop.accuracies(results, recipe, np.flatnonzero(done))
  with Progress(len(runs), int(done.sum()), accuracies, progress) as bar:
    while pending or running:
      while pending and idle:
        worker, block = idle.popleft(), pending.popleft()
        running[worker.work.remote(out, block, of_work)] = worker, block
      ended, _ = ray.wait(list(running), num_returns=1, timeout=POLL)
      for future in ended:
        worker, block = running.pop(future)
        try:
          ray.get(future)
          idle.append(worker)
        except ray.exceptions.RayTaskError as error:
          raise _cause(error) from None
        except ray.exceptions.RayError:
          deaths[block] += 1
          if deaths[block] == TRIES:
            raise Failure(
              f"block {block} of {out} made {TRIES} workers die: see Ray's logs; the same command goes on"
            ) from None
          abandon(out, block)
          pending.append(block)
          idle.append(actor.options(**options).remote())
          if progress:
            print(f"a worker died; block {block} is trained by another one", file=sys.stderr)
      now = results.done[: len(runs)]
      new = np.flatnonzero(now & ~done)
      bar.trained_more(len(new), loop.accuracies(results, recipe, new))
      done = now
      if not pending and not running:
        # A block that another campaign process held when it was its turn.
        pending.extend(_left(results, len(runs)))
  return open_results(out, recipe.test_sets[0])


def _placement(ray: Any, workers: int | None) -> tuple[dict[str, Any], int]:
  """What an actor asks the cluster for, and how many there are."""
  resources = ray.cluster_resources()
  for kind in ("GPU", "TPU"):
    if resources.get(kind):
      options = {"num_gpus": 1} if kind == "GPU" else {"resources": {"TPU": 1}}
      return options, workers or int(resources[kind])
  nodes = len([node for node in ray.nodes() if node["Alive"]])
  count = workers or nodes
  # A worker takes all cores of its machine, or its share where there are several on one.
  cores = max(1, int(resources.get("CPU", 1)) // count)
  environment = {"env_vars": {"JAX_NUM_CPU_DEVICES": str(cores)}}
  return {"num_cpus": 0, "scheduling_strategy": "SPREAD", "runtime_env": environment}, count


def _left(results: Results, runs: int) -> list[int]:
  done = results.done[:runs]
  return sorted(set((np.flatnonzero(~done) // results.block_runs).tolist()))


def _cause(error: Any) -> Exception:
  """What a worker raised, where it is an error of ours."""
  cause = getattr(error, "cause", None)
  return cause if isinstance(cause, Mistake | Failure) else error
