"""Train a campaign by the workers of an executor: anything with the `submit` of
`concurrent.futures`, such as a pool of processes, Dask, Ray, MPI or Slurm.

A call trains one block. All that a worker needs is in the results folder, which all of
them must see. The executor starts workers and, if it can, calls again where one died.
"""

import contextlib
import dataclasses
import functools
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Protocol

import numpy as np

from vmapseeds.campaign import block_loop, block_training, starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.progress import Progress
from vmapseeds.errors import Failure, UserError, check_at_least
from vmapseeds.machine import cores
from vmapseeds.results.description import check_folder
from vmapseeds.store.files import (
  Folder,
  as_folder,
  exists,
  is_remote,
  short_message,
  write,
)
from vmapseeds.store.folders import presence_file, removed_if_unused
from vmapseeds.store.results import Results
from vmapseeds.target import moves_data
from vmapseeds.training.recipe_or_task import (
  check_importable,
  from_description,
  origin_of,
  resolve_task,
  spec_of,
)
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs, as_runs
from vmapseeds.training.task import Task

POLL = 0.5  # seconds between two looks at the folder


class Future(Protocol):
  """What an executor returns of a call."""

  def done(self) -> bool: ...
  def result(self) -> Any: ...


class Executor(Protocol):
  """What calls functions elsewhere, as `concurrent.futures.Executor` does."""

  def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any: ...


# In the process that asks.


def train_by(
  executor: Executor,
  task: Recipe | Task | str,
  runs: Runs | int,
  out: Folder,
  options: Options,
) -> None:
  """Let workers create or extend the folder, and train what it lacks of the runs.

  Raises:
    UserError: workers cannot import the task, or do not have the folder; or as
      `vs.train`.
    Failure: workers died, more often than the executor calls again.
  """
  task = resolve_task(task)
  runs = as_runs(runs)
  check_importable(task, "an executor")
  out = as_folder(out)
  # Workers may have another working folder.
  path = str(out if is_remote(out) else out.absolute())
  check_folder(path)
  # This process says what happens.
  quiet = dataclasses.replace(options, progress=False)
  with removed_if_unused(path), presence_file(path) as token:
    arguments = spec_of(task), origin_of(task), runs
    # A worker has the devices by which lanes are chosen. One that dies while it creates
    # the folder may have cleared the token.
    creation = executor.submit(_call, _create, path, str(token), quiet, *arguments)
    _wait_for([creation], meanwhile=lambda: write(token, b""))
    _train_blocks(executor, path, len(runs), options, (path, str(token), quiet))


def _train_blocks(executor, path, count, options, arguments):
  """Let workers train the blocks that hold the first `count` runs."""
  results = Results(path)
  count = starting.runs_in_whole_blocks(results, count, says=options.progress)
  displayed = results.root["shown"]
  done = results.done[:count]

  def values_of(is_new):
    rows = np.flatnonzero(is_new)
    return block_training.read_values_for_progress(results, displayed, rows)

  with Progress(count, done.sum(), values_of(done), displayed, options.progress) as bar:

    def look():
      nonlocal done
      before, done = done, results.done[:count]
      bar.trained_more(int((done & ~before).sum()), values_of(done & ~before))

    # Blocks that another process held are tried again.
    while blocks := _unfinished_blocks(results, count):
      calls = [
        executor.submit(_call, _train_block, *arguments, block) for block in blocks
      ]
      _wait_for(calls, meanwhile=look)
    look()


def _unfinished_blocks(results, count):
  finished = results.finished_blocks()
  return [
    block
    for block, rows in enumerate(results.blocks)
    if rows.start < count and block not in finished
  ]


def _wait_for(calls: Sequence[Future], meanwhile: Callable[[], None]) -> None:
  """Wait until calls are done, and raise the mistake of the first that made one."""
  waiting = list(calls)
  try:
    while waiting:
      for call in [call for call in waiting if call.done()]:
        waiting.remove(call)
        _raise_mistake(call)
      meanwhile()
      if waiting:
        time.sleep(POLL)
  finally:
    for call in waiting:
      # Those that have begun go on, and end their block.
      with contextlib.suppress(Exception):
        call.cancel()  # type: ignore[attr-defined]


def _raise_mistake(call):
  try:
    mistake = call.result()
  except Exception as error:
    raise Failure(
      f"a worker failed ({type(error).__name__}: {short_message(error)}): what was "
      "written stays, rerun the same command to resume"
    ) from error
  if mistake is not None:
    raise mistake


# In a worker.

# One block at a time in a process, whose devices it takes. Workers of Dask are threads.
_one_at_a_time = threading.Lock()


@moves_data
def _call(function, path, token, *arguments):
  """Call a function of a folder. Return the mistake that it made, as each executor raises
  errors of workers in its own way.
  """
  try:
    if not exists(as_folder(token)):
      raise UserError(
        f"the worker on {socket.gethostname()} does not have the folder {path}: give one "
        "that all workers share"
      )
    with _one_at_a_time:
      function(path, *arguments)
  except (UserError, Failure) as mistake:
    return type(mistake)(str(mistake))
  return None


def _create(path, options, spec, origin, runs):
  starting.open_campaign(from_description(spec, origin), runs, path, options)


def _train_block(path, options, block):
  campaign = _resumed(path, options, len(Results(path)))
  block_loop.train_blocks(campaign, range(block, block + 1), wait=False)


@functools.lru_cache(maxsize=1)
def _resumed(path, options, runs):
  """Return the campaign of a folder that has so many runs. Its data are loaded once."""
  return starting.resume_campaign(path, options)


# Executors for the command line.


@contextlib.contextmanager
def open_executor(
  workers: int | None, ray: str | None, dask: str | None
) -> Iterator[Executor | None]:
  """Return the executor that one of these asks for; None if none is given.

  Args:
    workers: how many processes of this machine, which share its cores.
    ray: the address of a Ray cluster, or "local" for one that is started here.
    dask: the address of Dask's scheduler.

  Raises:
    UserError: two are given, or a cluster cannot be reached.
  """
  given = [
    flag
    for flag, value in (("--workers", workers), ("--ray", ray), ("--dask", dask))
    if value is not None
  ]
  if len(given) > 1:
    raise UserError(f"{' with '.join(given)}: give one of them")
  if workers is not None:
    # Children read it when they import JAX.
    devices = max(1, cores() // check_at_least("workers", workers, 1))
    os.environ["JAX_NUM_CPU_DEVICES"] = str(devices)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
      yield pool
  elif ray is not None:
    with _connected_to_ray(ray) as cluster:
      yield cluster
  elif dask is not None:
    with _connected_to_dask(dask) as client:
      yield client.get_executor(pure=False)
  else:
    yield None


def _connected_to_dask(address):
  try:
    from distributed import Client
  except ImportError:
    raise UserError("Dask is not installed: pip install 'vmapseeds[dask]'") from None
  try:
    return Client(address)
  except (OSError, ValueError, TypeError) as error:
    raise UserError(
      f"--dask {address} cannot be reached ({short_message(error)}): give the address "
      "of a running scheduler"
    ) from None


class RayExecutor:
  """Calls functions on the workers of the Ray cluster that `ray` is connected to: on an
  accelerator each, or on all cores of a node. If a worker dies, Ray calls again.
  """

  def __init__(self, ray: Any):
    resources = ray.cluster_resources()
    self._needs: dict[str, Any]
    if resources.get("GPU"):
      # Without `max_calls`, Ray ends a worker after each call.
      self._needs = {"num_gpus": 1, "max_calls": 0}
    elif resources.get("TPU"):
      self._needs = {"resources": {"TPU": 1}}
    else:
      nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
      self._needs = {"num_cpus": min(node.get("CPU", 1) for node in nodes)}
    self._ray = ray

  def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
    remote = self._ray.remote(max_retries=3, **self._needs)(function)
    return remote.remote(*arguments).future()


@contextlib.contextmanager
def _connected_to_ray(address):
  try:
    import ray
  except ImportError:
    raise UserError("Ray is not installed: pip install 'vmapseeds[ray]'") from None
  before = signal.getsignal(signal.SIGTERM)
  try:
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
  except (OSError, RuntimeError, ValueError) as error:
    raise UserError(
      f"--ray {address} cannot be reached ({short_message(error)}): give HOST:PORT of a "
      "running cluster, or local to start one here"
    ) from None
  # Ray's own handler would end this process with another status.
  if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGTERM, before)
  try:
    yield RayExecutor(ray)
  finally:
    ray.shutdown()
