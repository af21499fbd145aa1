"""Campaigns by the workers of executors: threads and processes, Ray and Dask, whose workers,
nodes and drivers are killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.cli import main
from vmapseeds.errors import Failure

pytestmark = pytest.mark.optimized
RUNS, EPOCHS = 24, 4
LIMIT = 600  # seconds that anything may take, on a machine that does much else
TRAIN = (
  f"train digits_cnn --set epochs={EPOCHS} width=0.25 --seed-batch 4 --lane-width 1 --lowering sequential"
).split()
RECIPE = vs.recipe("digits_cnn", epochs=EPOCHS, width=0.25)
QUICK = RECIPE.replace(model="linear", width=1)
HOW = dict(seed_batch=4, lane_width=1, lowering="sequential", progress=False)


@pytest.mark.parametrize(
  ("flags", "said"),
  [
    ("--workers 2 --ray local", "--workers with --ray: give one of them"),
    ("--ray a:1 --dask a:1", "--ray with --dask: give one of them"),
    ("--workers 0", "workers is 0: give a whole number of at least 1"),
    ("--engine ray", "--engine is gone: give --workers N, --ray ADDRESS or --dask"),
    ("--coordinator a:1", "--coordinator is gone: start vmapseeds work DIR on each"),
  ],
)
def test_mistakes(flags, said, tmp_path, capsys):
  with pytest.raises(SystemExit) as end:
    main([*TRAIN, "--out", str(tmp_path / "out"), *flags.split()])
  assert end.value.code == 2
  assert said in capsys.readouterr().err
  assert not (tmp_path / "out").exists()


class Ended:
  """A call that has ended: what submitit's jobs have of a future."""

  def __init__(self, function, *arguments):
    self.value = function(*arguments)

  def done(self):
    return True

  def result(self):
    return self.value


class AtOnce:
  """Calls a function at once, here."""

  def submit(self, function, *arguments):
    return Ended(function, *arguments)


class Elsewhere(AtOnce):
  """Calls it as a machine would that has other disks: the files given are not there."""

  def submit(self, function, *arguments):
    for argument in arguments:
      if str(argument).endswith(".partial"):
        Path(argument).unlink()
    return super().submit(function, *arguments)


class Dying(AtOnce):
  def submit(self, function, *arguments):
    raise_later = Ended(lambda: None)
    raise_later.result = lambda: {}["lost"]
    return raise_later


def test_threads_train_every_run_once_and_extend_the_folder(tmp_path):
  expected = vs.train(QUICK, RUNS, tmp_path / "alone", **HOW).predictions.values
  with ThreadPoolExecutor(2) as executor:
    vs.train(QUICK, 8, tmp_path / "r", executor=executor, **HOW)
    results = vs.train(QUICK, RUNS, tmp_path / "r", executor=executor, **HOW)
  np.testing.assert_array_equal(results.predictions.values, expected)
  check(tmp_path / "r", expected)


def test_an_executor_is_anything_with_submit(tmp_path, capsys):
  how = HOW | {"progress": True}
  results = vs.train(QUICK, 4, executor=AtOnce(), **how)
  assert results.sizes["run"] == 4
  assert "4/4 runs" in capsys.readouterr().err


def test_a_folder_that_workers_do_not_share_is_refused(tmp_path):
  with pytest.raises(vs.UserError, match=r"the worker on .* does not have the folder "):
    vs.train(QUICK, 4, tmp_path / "r", executor=Elsewhere(), **HOW)
  assert not (tmp_path / "r").exists()


def test_a_worker_that_fails_is_one_line(tmp_path):
  with pytest.raises(Failure, match=r"a worker failed \(KeyError: .*lost.*\): what"):
    vs.train(QUICK, 4, tmp_path / "r", executor=Dying(), **HOW)


def test_mistakes_of_workers_are_those_of_train(tmp_path):
  vs.train(QUICK, 4, tmp_path / "r", **HOW)
  with pytest.raises(vs.UserError, match="belongs to another campaign"):
    vs.train(QUICK.replace(lr=0.1), 4, tmp_path / "r", executor=AtOnce(), **HOW)


def test_what_no_worker_can_import_is_refused(tmp_path):
  def loss(outputs, targets):
    return abs(outputs - targets)

  recipe = vs.recipe("digits_cnn", loss=loss)
  with pytest.raises(vs.UserError, match="no other process can import: an executor"):
    vs.train(recipe, 2, tmp_path / "out", executor=AtOnce())
  assert not (tmp_path / "out").exists()


def test_a_folder_is_created_without_training(tmp_path):
  vs.create(QUICK, 8, tmp_path / "r", **HOW)
  assert vs.open_results(tmp_path / "r").sizes["run"] == 0
  vs.work(tmp_path / "r", (0, 1), progress=False)
  assert vs.open_results(tmp_path / "r").sizes["run"] == 4
  with pytest.raises(TypeError, match="lanes"):
    vs.create(QUICK, 8, tmp_path / "s", lanes=1)


def start(out, *flags, recipe=TRAIN[1], modules=""):
  environment = os.environ | {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
  }
  environment["PYTHONPATH"] = os.pathsep.join([str(modules), *sys.path])
  runs = () if "--runs" in flags else ("--runs", str(RUNS))
  command = [
    sys.executable,
    "-m",
    "vmapseeds.cli",
    "train",
    recipe,
    *TRAIN[2:],
    "--out",
    str(out),
    *runs,
    *flags,
  ]
  return subprocess.Popen(
    command,
    env=environment,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    start_new_session=True,
  )


def first_claim(out, *processes):
  """Waits until one of the processes trains and returns its id, from the claim of its
  block."""
  until = time.monotonic() + LIMIT
  while time.monotonic() < until:
    for process in processes:
      if process.poll() is not None:
        raise AssertionError(process.communicate()[0])
    for claim in Path(out, "blocks").glob("[0-9]*.claim"):
      try:
        return json.loads(claim.read_text())["pid"]
      except (OSError, ValueError):
        pass
    time.sleep(0.05)
  raise AssertionError("nothing was trained in ten minutes")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
  """The predictions of an undisturbed campaign of one process."""
  out = tmp_path_factory.mktemp("alone") / "out"
  return vs.train(RECIPE, RUNS, out, **HOW).predictions.values


def check(out, alone):
  np.testing.assert_array_equal(vs.open_results(out).predictions.values, alone)
  records = [
    json.loads(record.read_text()) for record in Path(out, "blocks").glob("[0-9]*.json")
  ]
  assert sum(record["runs"] for record in records) == len(alone)


# In a process of its own. Each node of Ray and each worker of Dask has one core. A driver
# belongs to the node that has its address, the head.
RAY = """
import sys

from ray.cluster_utils import Cluster

head = {"num_cpus": 1, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
others = [cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{i}") for i in (2, 3)]
print("address", cluster.address, flush=True)
if sys.stdin.readline():
  cluster.remove_node(others[1], allow_graceful=False)
  print("removed", flush=True)
  sys.stdin.readline()
cluster.shutdown()
"""
DASK = """
import sys

from distributed import LocalCluster

if __name__ == "__main__":
  cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
  print("address", cluster.scheduler_address, flush=True)
  sys.stdin.readline()
  cluster.close()
"""


@contextlib.contextmanager
def cluster(kind, tmp_path, modules=""):
  """Flags for a driver, and the process of the cluster that the test has started."""
  pytest.importorskip({"ray": "ray", "dask": "distributed"}[kind])
  script = tmp_path / "cluster.py"
  script.write_text({"ray": RAY, "dask": DASK}[kind])
  environment = os.environ | {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": os.pathsep.join([str(modules), *sys.path]),
  }
  with subprocess.Popen(
    [sys.executable, str(script)],
    env=environment,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
    start_new_session=True,
  ) as process:
    try:
      line = next(line for line in process.stdout if line.startswith("address"))
      yield (f"--{kind}", line.split()[1]), process
    finally:
      process.stdin.close()  # what waits for a line ends
      with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(60)
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ray", "dask"])
def test_a_worker_of_a_cluster_is_killed(kind, tmp_path, alone):
  out = tmp_path / "out"
  with cluster(kind, tmp_path) as (flags, _):
    driver = start(out, *flags)
    os.kill(first_claim(out, driver), signal.SIGKILL)
    said = driver.communicate(timeout=LIMIT)[0]
  assert driver.returncode == 0, said
  check(out, alone)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ray", "dask"])
def test_a_terminated_driver_ends_as_without_a_cluster(kind, tmp_path, alone):
  out = tmp_path / "out"
  with cluster(kind, tmp_path) as (flags, _):
    driver = start(out, *flags, "--quiet")
    first_claim(out, driver)
    driver.terminate()
    said = driver.communicate(timeout=LIMIT)[0]
  assert driver.returncode == 143, said
  assert said.splitlines()[-1].startswith("terminated: what was written stays")
  again = start(out)
  assert again.communicate(timeout=LIMIT)[0]
  check(out, alone)


@pytest.mark.slow
def test_processes_of_this_machine_and_one_of_them_is_killed(tmp_path, alone):
  """The pool is broken, and the same command resumes."""
  out = tmp_path / "out"
  driver = start(out, "--workers", "2")
  os.kill(first_claim(out, driver), signal.SIGKILL)
  said = driver.communicate(timeout=LIMIT)[0]
  assert driver.returncode == 1, said
  assert "error: a worker failed (BrokenProcessPool: " in said.splitlines()[-1]
  again = start(out, "--workers", "2")
  said = again.communicate(timeout=LIMIT)[0]
  assert again.returncode == 0, said
  check(out, alone)


@pytest.mark.slow
def test_workers_end_at_the_same_number_of_runs(tmp_path):
  """They end at the number at which one process alone ends."""
  how = ("--runs", "8", "--until", "sd_accuracy rel 50%")
  processes = [
    start(tmp_path / "out", "--workers", "2", *how),
    start(tmp_path / "alone", *how),
  ]
  said = [p.communicate(timeout=LIMIT)[0] for p in processes]
  assert [p.returncode for p in processes] == [0, 0], said
  one, other = (vs.open_results(tmp_path / name) for name in ("out", "alone"))
  assert 8 < one.sizes["run"] < 200
  np.testing.assert_array_equal(one.predictions.values, other.predictions.values)


DYING = """
import os, pathlib, signal
import vmapseeds as vs
from vmapseeds.store import folders

recipe = vs.recipe("digits_cnn")
fill = folders.write_plan


def die_once(path, *args):
  fill(path, *args)
  died = pathlib.Path(__file__).with_name("died")
  if not died.exists():
    died.write_text(" ".join(file.name for file in path.rglob("*")))
    os.kill(os.getpid(), signal.SIGKILL)


folders.write_plan = die_once
"""


@pytest.mark.seldom
@pytest.mark.parametrize("kind", ["ray", "dask"])
def test_a_worker_is_killed_while_it_makes_the_folder(kind, tmp_path, alone):
  out, module = tmp_path / "out", tmp_path / "dying.py"
  module.write_text(DYING)
  with cluster(kind, tmp_path, tmp_path) as (flags, _):
    driver = start(out, *flags, recipe="dying:recipe", modules=tmp_path)
    said = driver.communicate(timeout=LIMIT)[0]
  assert driver.returncode == 0, said
  assert "folder.claim" in (tmp_path / "died").read_text()
  check(out, alone)


def nodes_in_training(out):
  """The nodes that train a block now: a worker's parent is its node's raylet."""
  nodes = set()
  for claim in Path(out, "blocks").glob("[0-9]*.claim"):
    with contextlib.suppress(OSError, ValueError):
      pid = json.loads(claim.read_text())["pid"]
      nodes.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
  return nodes


@pytest.mark.seldom
def test_a_node_of_three_dies(tmp_path):
  """Each node has a worker; without one of them, the others train every run once."""
  out, runs = tmp_path / "out", 256
  with cluster("ray", tmp_path) as (flags, nodes):
    driver = start(out, *flags, "--runs", str(runs))
    until = time.monotonic() + LIMIT
    while len(nodes_in_training(out)) < 3:
      assert time.monotonic() < until
      assert driver.poll() is None, driver.communicate()[0]
      time.sleep(0.02)
    print(file=nodes.stdin, flush=True)
    assert "removed\n" in nodes.stdout
    said = driver.communicate(timeout=LIMIT)[0]
  assert driver.returncode == 0, said
  alone = vs.train(RECIPE, runs, tmp_path / "alone", **HOW)
  check(out, alone.predictions.values)
