"""Steps that never end are given up; those that are slow are not."""

import collections
import contextlib
import signal
import subprocess
import sys
import time

import pytest
from cases import mostly_slow

from vmapseeds.errors import Failure
from vmapseeds.lanes import watching


@pytest.fixture
def ended(monkeypatch):
  """The exit statuses with which a watch ends the process. Here it does not end."""
  statuses = []
  monkeypatch.setattr(watching.os, "_exit", statuses.append)
  return statuses


@pytest.fixture
def watch(monkeypatch, ended):
  """A watch with little patience, which may not end the process."""
  monkeypatch.setattr(watching, "POLL", 0.05)
  monkeypatch.setattr(watching, "PATIENCE", 0.5)
  monkeypatch.setattr(watching, "LEAST", 0.25)
  monkeypatch.setattr(watching, "TIMES", 2)
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield lambda platform="cpu": contextlib.closing(watching.Watch(platform))
  signal.signal(signal.SIGINT, before)
  assert ended == []


def compute(seconds):
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    pass


def test_a_step_in_which_nothing_runs_is_given_up(watch):
  begun = time.monotonic()
  with watch() as waiting, pytest.raises(Failure, match="with lane_width=1"), waiting:
    time.sleep(60)
  assert 0.4 < time.monotonic() - begun < 30


@pytest.mark.slow
def test_a_step_that_needs_a_while_to_end_after_its_interrupt_ends(watch):
  """As on a machine whose processors others have: the process is not ended meanwhile."""
  with watch() as waiting, pytest.raises(Failure, match="stands still"), waiting:
    try:
      time.sleep(60)
    except KeyboardInterrupt:
      compute(1)
      raise


def test_a_thread_that_waits_for_a_processor_is_none_that_stands_still(
  monkeypatch, tmp_path
):
  """Against files as Linux writes them, of a thread that seldom gets a processor."""
  monkeypatch.setattr(watching, "TASKS", tmp_path)
  monkeypatch.setattr(watching, "PATIENCE", 50.0)
  task = tmp_path / "7"
  task.mkdir()
  (task / "stat").write_text("7 (a name) S) S 1 7 7 0 -1 0 0 0 0 0 100 50 0 0 20")

  def wants(ran, waited, looks=10):
    """Whether it is found standing still, with so many seconds more in each look."""
    (task / "schedstat").write_text("0 0 0\n")
    others = watching._OtherThreads()
    found = collections.deque(maxlen=looks)
    for i in range(1, looks + 1):
      (task / "schedstat").write_text(f"{int(i * ran * 1e9)} {int(i * waited * 1e9)} 9")
      found.append(others.look())
    assert sum(seconds for _, seconds in found) == pytest.approx(looks * (ran + waited))
    return watching._nothing_runs(found)

  assert wants(0.01, 0.0)
  assert not wants(0.01, 4.9)
  assert not wants(1.0, 0.0)
  (task / "schedstat").unlink()  # as of a kernel without these statistics
  ticks = watching.os.sysconf("SC_CLK_TCK")
  assert watching._wanted_seconds(task) == pytest.approx(150 / ticks)


def test_time_for_which_the_process_is_stopped_does_not_count(watch, monkeypatch):
  """As by SIGSTOP, or on a suspended machine: the clock jumps, and no look is made."""
  monkeypatch.setattr(watching, "PATIENCE", 20.0)
  clock = time.monotonic
  with watch() as waiting, waiting:
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock() + 3600)
    time.sleep(0.3)


@pytest.mark.parametrize("platform", mostly_slow(["cpu", "gpu"]))
def test_a_step_that_computes_is_not_given_up(platform, watch, capsys):
  """Nor one of another device, for which this process only waits."""
  with watch(platform) as waiting:
    for _ in range(2):
      with waiting:
        compute(0.01)
    with waiting:
      compute(1) if platform == "cpu" else time.sleep(1)
  said = capsys.readouterr().err
  assert said.startswith("a step has taken 0.0 min, and none before it more than 0.")
  assert said.count("\n") == 1


def test_the_wait_in_which_the_first_step_only_starts_is_no_measure(watch, capsys):
  with watch() as waiting:
    for seconds in (0.01, 1):
      with waiting:
        compute(seconds)
  assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_time_between_steps_does_not_count(watch, capsys):
  with watch() as waiting:
    for _ in range(3):
      with waiting:
        compute(0.01)
      time.sleep(0.6)
  assert capsys.readouterr().err == ""


def test_a_ctrl_c_stays_one(watch):
  with watch() as waiting, pytest.raises(KeyboardInterrupt), waiting:
    signal.raise_signal(signal.SIGINT)


HANGS = """
import threading, jax, vmapseeds as vs
from vmapseeds.lanes import watching

watching.POLL, watching.PATIENCE = 0.1, 1.0

def wait(x):
  threading.Event().wait()
  return x

task = vs.Task(
  name="hangs",
  start=lambda data, run: jax.random.normal(run.key("init")),
  advance=lambda data, run, state, first, last: jax.pure_callback(wait, state, state),
  finish=lambda data, run, state: {"value": state},
  rounds=1,
  version="1",
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("--lane-width", "1")])
def test_a_campaign_that_hangs_ends_with_a_line(given, tmp_path):
  """Also while lane widths are measured."""
  (tmp_path / "module.py").write_text(HANGS)
  begin = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
  ended = subprocess.run(
    [sys.executable, "-c", begin + "from vmapseeds.cli import run; run()", "train"]
    + ["module:task", "--runs", "4", "--out", "r", "--quiet", *given],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=600,
  )
  assert (ended.returncode, ended.stdout) == (1, "")
  assert ended.stderr.startswith("error: a step stands still: nothing has run")
  assert ended.stderr.count("\n") == 1
