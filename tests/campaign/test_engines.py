"""Campaigns by several processes: under `jax.distributed`, and by a Ray cluster whose
worker is killed.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.campaign import ray_engine
from vmapseeds.cli import main

pytestmark = pytest.mark.optimized
RUNS, EPOCHS = 24, 4
LIMIT = 600  # seconds that anything may take, on a machine that does much else
TRAIN = (
  f"train digits_cnn --set epochs={EPOCHS} width=0.25 --seed-batch 4 --lane-width 1 --lowering sequential"
).split()


@pytest.mark.parametrize(
  ("flags", "said"),
  [
    (
      "--engine rai",
      "unknown engine 'rai': choose one of local, ray; did you mean 'ray'",
    ),
    ("--workers 2", "--workers 2 without --engine ray"),
    ("--engine ray --workers 0", "workers is 0: give a whole number of at least 1"),
    ("--engine ray --coordinator a:1", "give one of them"),
    (
      "--coordinator a:1 --until sd_accuracy",
      "--until 'sd_accuracy': write STATISTIC rel X%",
    ),
    (
      "--processes 2",
      "--process I, the number of this one from 0: give all of them, or none",
    ),
    (
      "--coordinator here --processes 1 --process 0",
      "--coordinator 'here': give HOST:PORT",
    ),
    (
      "--coordinator a:1 --processes 2",
      "--coordinator HOST:PORT, --processes N and --process I, the number",
    ),
    ("--coordinator a:1 --processes 2 --process 2", "--process 2 of 2: give 0 to 1"),
    ("--coordinator a:1 --processes 0 --process 0", "processes is 0"),
  ],
)
def test_mistakes(flags, said, tmp_path, capsys):
  with pytest.raises(SystemExit) as end:
    main([*TRAIN, "--out", str(tmp_path / "out"), *flags.split()])
  assert end.value.code == 2
  assert said in capsys.readouterr().err
  assert not (tmp_path / "out").exists()


def test_what_no_worker_can_import_is_refused_before_ray_is_asked_for(tmp_path):
  def loss(outputs, targets):
    return abs(outputs - targets)

  recipe = vs.recipe("digits_cnn", loss=loss)
  with pytest.raises(vs.UserError, match="no other process can import: Ray needs it"):
    ray_engine.train_on_ray(recipe, vs.Runs.independent(2), tmp_path / "out")
  with pytest.raises(vs.UserError, match="workers is 0"):
    ray_engine.train_on_ray("digits_cnn", vs.Runs.independent(2), tmp_path, workers=0)
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
  ("cores", "workers", "expected"),
  [
    ({"a": 4, "b": 4, "c": 4}, 3, "abc"),  # one a node
    ({"a": 4, "b": 4, "c": 4}, 1, "a"),
    ({"a": 8, "b": 2}, 5, "aaaab"),  # as many as the cores allow
    ({"a": 2, "b": 2}, 4, "aabb"),
    ({"a": 1}, 3, "aaa"),
    ({"a": 1}, 0, ""),
  ],
)
def test_placement_of_ray_workers(cores, workers, expected):
  assert "".join(sorted(ray_engine.place_workers(cores, workers))) == expected


@pytest.mark.parametrize("what", ["closed", "silent", "other", "text"])
def test_a_wrong_address_of_ray_is_one_line(what, tmp_path, monkeypatch):
  """Without Ray, which is heavy to start: a server that is closed, says nothing, or
  speaks something else.
  """
  monkeypatch.setattr(ray_engine, "REACH", 0.5)
  with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"
    if what != "closed":
      server.listen()
    if what == "other":

      def answer():
        with server.accept()[0] as client:
          client.sendall(b"SSH-2.0-x\r\n")
          client.recv(100)

      threading.Thread(target=answer, daemon=True).start()
    given = "my cluster" if what == "text" else address
    monkeypatch.setenv("RAY_ADDRESS", given)
    expected = {
      "closed": "cannot be reached .*refused",
      "silent": "cannot be reached .timed out",
      "other": "cannot be reached .something else than Ray answers",
      "text": "is no address",
    }
    said = (
      f"RAY_ADDRESS={given} {expected[what]}.*: give HOST:PORT of a running cluster"
    )
    with pytest.raises(vs.UserError, match=said):
      ray_engine._connect(None)


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


def hosts(out, *flags):
  """Two processes under one coordinator."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    coordinator = f"127.0.0.1:{free.getsockname()[1]}"
  each = ("--coordinator", coordinator, "--processes", "2", "--process")
  return [start(out, *each, str(i), *flags) for i in range(2)]


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
  recipe = vs.recipe("digits_cnn", epochs=EPOCHS, width=0.25)
  how = dict(seed_batch=4, lane_width=1, lowering="sequential", progress=False)
  return vs.train(recipe, vs.Runs.independent(RUNS), out, **how).predictions.values


def check(out, alone):
  np.testing.assert_array_equal(vs.open_results(out).predictions.values, alone)
  records = [
    json.loads(record.read_text()) for record in Path(out, "blocks").glob("[0-9]*.json")
  ]
  assert sum(record["runs"] for record in records) == len(alone)


@pytest.mark.slow
def test_two_hosts_train_every_run_once(tmp_path, alone):
  processes = hosts(tmp_path / "out")
  said = [p.communicate(timeout=LIMIT)[0] for p in processes]
  assert [p.returncode for p in processes] == [0, 0], said
  check(tmp_path / "out", alone)


@pytest.mark.slow
def test_a_terminated_host_finishes_its_write(tmp_path, alone):
  """Not the coordinator: when that ends, JAX ends the others."""
  coordinator, other = hosts(tmp_path / "out")
  first_claim(tmp_path / "out", coordinator, other)
  other.terminate()
  said = other.communicate(timeout=LIMIT)[0]
  assert other.returncode == 143, said
  assert "terminated: what was written stays" in said
  assert coordinator.communicate(timeout=LIMIT)[0]
  assert coordinator.returncode == 0
  check(tmp_path / "out", alone)


@pytest.mark.parametrize(
  "engine",
  [
    pytest.param("hosts", marks=pytest.mark.slow),
    pytest.param("ray", marks=pytest.mark.seldom),
  ],
)
def test_several_processes_end_at_the_same_number_of_runs(tmp_path, engine):
  """They end at the number at which one process alone ends."""
  how = ("--runs", "8", "--until", "sd_accuracy rel 50%")
  if engine == "ray":
    pytest.importorskip("ray")
    processes = [start(tmp_path / "out", "--engine", "ray", "--workers", "2", *how)]
  else:
    processes = hosts(tmp_path / "out", *how)
  said = [p.communicate(timeout=LIMIT)[0] for p in processes]
  assert [p.returncode for p in processes] == [0] * len(processes), said
  alone = start(tmp_path / "alone", *how)
  assert alone.communicate(timeout=LIMIT)[0]
  one, other = (vs.open_results(tmp_path / name) for name in ("out", "alone"))
  assert 8 < one.sizes["run"] < 200
  np.testing.assert_array_equal(one.predictions.values, other.predictions.values)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_host_is_killed(tmp_path, alone, killed, monkeypatch):
  monkeypatch.setenv("VMAPSEEDS_BARRIER", "5")
  out = tmp_path / "out"
  processes = hosts(out)
  first_claim(out, *processes)
  os.killpg(processes[killed].pid, signal.SIGKILL)
  said = processes[1 - killed].communicate(timeout=LIMIT)[0]
  processes[killed].communicate()
  if killed == 1:
    assert processes[0].returncode == 0, said
    assert "all runs are done: waiting up to 5 s for the other processes under" in said
  else:
    # Without the coordinator the other process stops and says so; a new process goes on
    # with the folder.
    assert processes[1].returncode == 1, said
    assert "is gone, or it was killed; what was written stays" in said.splitlines()[-1]
    again = start(out)
    assert again.communicate(timeout=LIMIT)[0]
    assert again.returncode == 0
  check(out, alone)


@pytest.mark.slow
def test_a_worker_of_a_ray_cluster_is_killed(tmp_path, alone):
  pytest.importorskip("ray")
  out = tmp_path / "out"
  driver = start(out, "--engine", "ray", "--workers", "2")
  os.kill(first_claim(out, driver), signal.SIGKILL)
  said = driver.communicate(timeout=LIMIT)[0]
  assert driver.returncode == 0, said
  assert "a worker died; block" in said
  check(out, alone)


@pytest.mark.slow
def test_a_terminated_ray_driver_ends_as_without_ray(tmp_path, alone):
  pytest.importorskip("ray")
  out = tmp_path / "out"
  driver = start(out, "--engine", "ray", "--workers", "2", "--quiet")
  first_claim(out, driver)
  driver.terminate()
  said = driver.communicate(timeout=LIMIT)[0]
  assert (driver.returncode, said.count("\n")) == (143, 1), said
  assert said.startswith("terminated: what was written stays")
  assert not list((out / "blocks").glob("*.claim"))
  again = start(out)
  assert again.communicate(timeout=LIMIT)[0]
  check(out, alone)


@pytest.mark.seldom
def test_a_folder_that_a_ray_node_does_not_share(tmp_path, monkeypatch):
  """The worker looks for the driver's token where it is not."""
  pytest.importorskip("ray")
  module = tmp_path / "elsewhere.py"
  module.write_text(ELSEWHERE)
  out = tmp_path / "out"
  driver = start(
    out, "--engine", "ray", "--quiet", recipe="elsewhere:recipe", modules=tmp_path
  )
  said = driver.communicate(timeout=LIMIT)[0]
  assert (driver.returncode, said.count("\n")) == (2, 1), said
  assert f"does not have the folder {out} of the driver: give one that all" in said
  assert not out.exists()


ELSEWHERE = """
import contextlib
import vmapseeds as vs
from vmapseeds.campaign import ray_engine
from vmapseeds.store import folders

recipe = vs.recipe("digits_cnn")
token = folders.presence_file
ray_engine.write = lambda *_: None


@contextlib.contextmanager
def elsewhere(out):
  with token(out) as file:
    yield file.with_name("in another folder")


folders.presence_file = elsewhere
"""

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
def test_a_worker_of_a_ray_cluster_is_killed_while_it_makes_the_folder(tmp_path, alone):
  pytest.importorskip("ray")
  out, module = tmp_path / "out", tmp_path / "dying.py"
  module.write_text(DYING)
  driver = start(
    out, "--engine", "ray", "--workers", "2", recipe="dying:recipe", modules=tmp_path
  )
  said = driver.communicate(timeout=LIMIT)[0]
  assert driver.returncode == 0, said
  assert f"a worker died while it created {out}" in said
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


# In a process of its own, because Ray forks. The driver belongs to the node that has its
# address, the head.
CLUSTER = """
from ray.cluster_utils import Cluster

head = {"num_cpus": 1, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=head)
addresses = ("127.0.0.2", "127.0.0.3")
_, third = [cluster.add_node(num_cpus=1, node_ip_address=ip) for ip in addresses]
print("address", cluster.address, flush=True)
input()
cluster.remove_node(third, allow_graceful=False)
print("removed", flush=True)
input()
cluster.shutdown()
"""


@pytest.mark.seldom
def test_a_node_of_three_dies(tmp_path, monkeypatch):
  """Each node has a worker; without one of them, the others train every run once."""
  pytest.importorskip("ray")
  out, runs = tmp_path / "out", 256
  script = [sys.executable, "-c", CLUSTER]
  environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
  pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
  with subprocess.Popen(script, env=environment, text=True, **pipes) as cluster:
    line = next(line for line in cluster.stdout if line.startswith("address"))
    monkeypatch.setenv("RAY_ADDRESS", line.split()[1])
    driver = start(out, "--engine", "ray", "--runs", str(runs))
    until = time.monotonic() + LIMIT
    while len(nodes_in_training(out)) < 3:
      assert time.monotonic() < until
      assert driver.poll() is None, driver.communicate()[0]
      time.sleep(0.02)
    print(file=cluster.stdin, flush=True)
    assert "removed\n" in cluster.stdout
    said = driver.communicate(timeout=LIMIT)[0]
    print(file=cluster.stdin, flush=True)
  assert driver.returncode == 0, said
  assert "a worker died; block" in said
  recipe = vs.recipe("digits_cnn", epochs=EPOCHS, width=0.25)
  how = dict(seed_batch=4, lane_width=1, lowering="sequential", progress=False)
  alone = vs.train(recipe, vs.Runs.independent(runs), tmp_path / "alone", **how)
  check(out, alone.predictions.values)
