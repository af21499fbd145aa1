"""Train a campaign on a Ray cluster: each accelerator has an actor, which trains one
block of runs after another.

Everything a worker needs is in the results folder, which all nodes must see. The driver
only hands out blocks.
"""

import collections
import contextlib
import dataclasses
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from vmapseeds.campaign import block_loop, block_training, starting
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.progress import Progress
from vmapseeds.errors import Failure, UserError, check_at_least, say
from vmapseeds.results.description import check_folder
from vmapseeds.results.opening import open_results
from vmapseeds.store import folders
from vmapseeds.store.claims import abandon
from vmapseeds.store.files import (
  Folder,
  Place,
  as_folder,
  exists,
  is_remote,
  short_message,
  write,
)
from vmapseeds.store.folders import removed_if_unused
from vmapseeds.store.results import Results
from vmapseeds.training.recipe_or_task import (
  check_importable,
  from_description,
  origin_of,
  resolve_task,
  spec_of,
)
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs
from vmapseeds.training.task import Task

POLL = 1.0  # seconds between two looks at the folder
REACH = 4.0  # seconds in which a cluster must answer
# A block, or the beginning, is given up when this many workers have died of it.
TRIES = 3


class Worker:
  """What runs in an actor: a process with an accelerator of its own, which loads the
  data once.
  """

  campaign: starting.Campaign | None = None

  def begin(
    self,
    task: str,
    origin: str,
    runs: Runs,
    out: str,
    options: Options,
    token: str,
  ) -> None:
    """Create or extend the folder. The worker does this, because it has the devices."""
    check_shared(out, token)
    self.campaign = starting.open_campaign(
      from_description(task, origin), runs, out, options
    )

  def work(self, out: str, block: int, options: Options, token: str) -> None:
    """Train what is left of a block."""
    check_shared(out, token)
    self.campaign = self.campaign or starting.resume_campaign(out, options)
    block_loop.train_blocks(self.campaign, range(block, block + 1), wait=False)


def check_shared(out: str, token: str) -> None:
  """Check that this node has the folder that the driver has.

  Raises:
    UserError: the driver's token is not there.
  """
  if not exists(as_folder(token)):
    import ray

    node = f"{socket.gethostname()} ({ray.util.get_node_ip_address()})"
    raise UserError(
      f"Ray's node {node} does not have the folder {out} of the driver: give one that all "
      "nodes share"
    )


def train_on_ray(
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
    UserError: Ray is not installed, or as `vs.train`.
    Failure: several workers died at the beginning, or of the same block.
  """
  if workers is not None:
    check_at_least("workers", workers, 1)
  task = resolve_task(task)
  options = Options(**options)
  check_importable(task, "Ray")
  try:
    import ray
  except ImportError:
    raise UserError(
      "Ray is not installed: pip install 'vmapseeds[ray]', or take another engine"
    ) from None
  out = as_folder(out)
  # Workers have another working folder.
  out = str(out if is_remote(out) else out.absolute())
  check_folder(out)
  if ray.is_initialized():
    return _train_on_cluster(ray, task, runs, out, options, workers)
  handler = signal.getsignal(signal.SIGTERM)
  _connect(ray)
  try:
    with _handling_sigterm(handler):
      return _train_on_cluster(ray, task, runs, out, options, workers)
  finally:
    ray.shutdown()


def _train_on_cluster(ray, task, runs, out, options, workers):
  """Return the results of a training on the cluster that `ray` is connected to."""
  driver = Driver(ray, out, options, workers)
  try:
    with removed_if_unused(out), folders.presence_file(out) as driver.token:
      driver.create_folder(task, runs)
      return driver.train(len(runs))
  finally:
    # After an interruption, the claims of workers that are killed are given back.
    driver.kill_workers()


@contextlib.contextmanager
def _handling_sigterm(handler):
  """Call a handler of SIGTERM, in the main thread, in place of Ray's own, which would end
  the process with another status, and leave claims.
  """
  if not callable(handler) or threading.current_thread() is not threading.main_thread():
    yield
    return
  terminated = threading.Event()

  def terminate(*arguments):
    terminated.set()
    handler(*arguments)

  signal.signal(signal.SIGTERM, terminate)
  try:
    yield
  except KeyboardInterrupt:
    # While Ray waits, it raises this for whatever a handler raises.
    if terminated.is_set():
      handler(signal.SIGTERM, None)
    raise


def _connect(ray):
  """Connect to the cluster that RAY_ADDRESS names, or start one on this machine.

  Raises:
    UserError: there is no such cluster.
  """
  address = os.environ.get("RAY_ADDRESS", "")
  variable = f"RAY_ADDRESS={address}"
  allowed = "give HOST:PORT of a running cluster, or unset it to start one here"
  if address not in ("", "auto", "local"):
    match = re.fullmatch(r"(?:ray://)?([^\s/]+):(\d{1,5})", address)
    if not match:
      raise UserError(f"{variable} is no address: {allowed}")
    host, port = match.groups()
    fault = _fault_of_server(host.strip("[]"), int(port))
    if fault:
      raise UserError(f"{variable} cannot be reached ({fault}): {allowed}")
  try:
    ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
  except (OSError, RuntimeError, ValueError) as error:
    raise UserError(f"{variable}: Ray says {short_message(error)}: {allowed}") from None


def _fault_of_server(host, port):
  """Return why a server does not speak gRPC, None if it does. Ray itself would wait for it
  without end.
  """
  # The first bytes of HTTP/2, which gRPC speaks: a client's greeting, and an empty frame
  # of settings, which the server answers with one of its own.
  greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
  settings = b"\0\0\0\4" + bytes(5)
  kind_of_frame = slice(3, 4)
  try:
    with socket.create_connection((host, port), timeout=REACH) as server:
      server.settimeout(REACH)
      # With TLS, a certificate would be needed to say anything.
      if os.environ.get("RAY_USE_TLS", "0") != "0":
        return None
      server.sendall(greeting + settings)
      answer = server.recv(9)
  except (OSError, OverflowError, UnicodeError) as error:
    return short_message(error)
  if answer[kind_of_frame] != settings[kind_of_frame]:
    return "something else than Ray answers"
  return None


class Driver:
  """Hands blocks to workers, and those of a worker that dies to another one.

  Args:
    ray: the module, connected to a cluster.
    out: the folder.
    options: those of the campaign.
    workers: how many; None for one per accelerator or node.
  """

  # A file in the folder, by which workers know that they have the same folder
  token: Place

  def __init__(self, ray, out: str, options: Options, workers: int | None):
    self.ray = ray
    self.out = out
    self.progress = options.progress
    # The driver says what happens.
    self.options = dataclasses.replace(options, progress=False)
    placements = _placements(ray, workers)
    self.idle = collections.deque(map(self._start_worker, placements))
    self.in_flight: dict[Any, tuple[Any, int]] = {}  # future -> worker, block
    self.pending = collections.deque[int]()  # blocks
    self.deaths = collections.Counter[int]()  # of workers, by block

  def _start_worker(self, placement):
    actor = self.ray.remote(max_restarts=0)(Worker).options(**placement)
    return actor.remote(), placement

  def create_folder(self, task: Recipe | Task, runs: Runs) -> None:
    """Let a worker create or extend the folder, and another if it dies.

    Raises:
      Failure: several died.
    """
    spec = spec_of(task)
    for _ in range(TRIES):
      write(self.token, b"")  # who creates a folder clears it first, and may die then
      actor, placement = self.idle[0]
      future = actor.begin.remote(
        spec, origin_of(task), runs, self.out, self.options, str(self.token)
      )
      if _has_finished_call(self.ray, future):
        write(self.token, b"")
        return
      # The dead worker's claim stays. The next worker takes it over, and so knows that
      # the folder is half made.
      self.idle[0] = self._start_worker(_place_on_any_node(placement))
      if self.progress:
        say(f"a worker died while it created {self.out}: trying another")
    raise Failure(f"{TRIES} workers died while they created {self.out}: see Ray's logs")

  def train(self, count: int) -> xr.Dataset:
    """Train the first `count` runs of the folder. Return its results.

    Raises:
      Failure: several workers died of the same block.
    """
    results = Results(self.out)
    displayed = results.root["shown"]

    def values_of(rows):
      return block_training.read_values_for_progress(results, displayed, rows)

    self.pending.extend(_unfinished_blocks(results, count))
    done = results.done[:count]
    values = values_of(np.flatnonzero(done))
    with Progress(count, int(done.sum()), values, displayed, self.progress) as bar:
      while self.pending or self.in_flight:
        self._hand_out_blocks()
        self._take_back_blocks()
        done_now = results.done[:count]
        new = np.flatnonzero(done_now & ~done)
        bar.trained_more(len(new), values_of(new))
        done = done_now
        if not self.pending and not self.in_flight:
          # Blocks that another process held are tried again.
          self.pending.extend(_unfinished_blocks(results, count))
    return open_results(self.out, *results.root["test_sets"][:1])

  def _hand_out_blocks(self):
    """Give each idle worker a block."""
    while self.pending and self.idle:
      worker = self.idle.popleft()
      block = self.pending.popleft()
      actor, _ = worker
      future = actor.work.remote(self.out, block, self.options, str(self.token))
      self.in_flight[future] = worker, block

  def _take_back_blocks(self):
    """Wait a moment for a worker that ends a block, or dies of it."""
    # Not without end: the folder is looked at meanwhile, for the progress line.
    futures = list(self.in_flight)
    ended, _ = self.ray.wait(futures, num_returns=1, timeout=POLL)
    for future in ended:
      worker, block = self.in_flight.pop(future)
      if _has_finished_call(self.ray, future):
        self.idle.append(worker)
      else:
        self._replace_dead(worker, block)

  def _replace_dead(self, worker, block):
    """Start another worker in the place of one that died, and let its block be trained."""
    self.deaths[block] += 1
    if self.deaths[block] == TRIES:
      raise Failure(
        f"block {block} of {self.out} made {TRIES} workers die: see Ray's logs, and rerun "
        "the same command to resume"
      )
    # Otherwise the next worker would wait for the end of the lease.
    abandon(self.out, block)
    self.pending.append(block)
    _, placement = worker
    self.idle.append(self._start_worker(_place_on_any_node(placement)))
    if self.progress:
      say(f"a worker died; block {block} is trained by another one")

  def kill_workers(self) -> None:
    """End the workers that are training, and give their claims back."""
    for (actor, _), block in self.in_flight.values():
      self.ray.kill(actor)
      abandon(self.out, block)


def _placements(ray, workers):
  """Return what each actor asks the cluster for: an accelerator, or all cores of a node,
  or its share of them where a node has several workers.
  """
  resources = ray.cluster_resources()
  for kind, needs in (("GPU", {"num_gpus": 1}), ("TPU", {"resources": {"TPU": 1}})):
    if resources.get(kind):
      count = workers or int(resources[kind])
      return [needs for _ in range(count)]
  cores = {}
  for node in ray.nodes():
    if node["Alive"]:
      cores[node["NodeID"]] = int(node["Resources"].get("CPU", 0))
  with_cores = {node: count for node, count in cores.items() if count}
  # A cluster may be started without saying how many cores it has.
  cores = with_cores or dict.fromkeys(cores, 1)
  places = place_workers(cores, workers or len(cores))
  workers_of = collections.Counter(places)
  affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
  placements = []
  for node in places:
    devices = max(1, cores[node] // workers_of[node])
    placements.append(
      {
        "num_cpus": 0,
        # Ray may place an actor elsewhere if affinity is soft, also while the node lives.
        "scheduling_strategy": affinity(node, soft=False),
        "runtime_env": {"env_vars": {"JAX_NUM_CPU_DEVICES": str(devices)}},
      }
    )
  return placements


def _unfinished_blocks(results, runs):
  """Return the blocks in which runs are left to train."""
  finished = results.finished_blocks()
  return [
    block
    for block, rows in enumerate(results.blocks)
    if rows.start < runs and block not in finished
  ]


def _place_on_any_node(placement):
  """Return a placement that may be on another node: its own may be gone."""
  strategy = placement.get("scheduling_strategy")
  if strategy is None:
    return placement
  soft = type(strategy)(strategy.node_id, soft=True)
  return placement | {"scheduling_strategy": soft}


def place_workers(cores: Mapping[str, int], workers: int) -> list[str]:
  """Return the node of each worker: one a node, then more where there are most cores for
  each.

  >>> place_workers({"a": 8, "b": 4}, 5)
  ['a', 'b', 'a', 'a', 'a']
  """
  places = list(cores)[:workers]
  while len(places) < workers:
    places.append(max(cores, key=lambda node: cores[node] / (places.count(node) + 1)))
  return places


def _has_finished_call(ray, future):
  """Return whether a worker finished its call, False if it died. Raise what the worker
  raised.
  """
  try:
    ray.get(future)
  except ray.exceptions.RayTaskError as error:
    cause = getattr(error, "cause", None)
    if isinstance(cause, UserError | Failure):
      raise cause from None
    raise error from None
  except ray.exceptions.RayError:
    return False
  return True
