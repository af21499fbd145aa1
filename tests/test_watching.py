"""Steps that never end are given up; those that are slow are not."""

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from vmapseeds.lanes import watching
from vmapseeds.mistakes import Failure


@pytest.fixture
def watch(monkeypatch):
  """A watch with little patience."""
  monkeypatch.setattr(watching, "POLL", 0.05)
  monkeypatch.setattr(watching, "PATIENCE", 1.0)
  monkeypatch.setattr(watching, "LEAST", 0.5)
  monkeypatch.setattr(watching, "TIMES", 2)
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield lambda platform="cpu": contextlib.closing(watching.Watch(platform))
  signal.signal(signal.SIGINT, before)


def compute(seconds):
  end = time.monotonic() + seconds
  while time.monotonic() < end:
    pass


def test_a_step_in_which_nothing_runs_is_given_up(watch):
  begun = time.monotonic()
  with watch() as waiting, pytest.raises(Failure, match="with --lane-width 1"), waiting:
    time.sleep(60)
  assert 0.9 < time.monotonic() - begun < 30


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_step_that_computes_is_not_given_up(platform, watch, capsys):
  """Nor one of another device, for which this process only waits."""
  with watch(platform) as waiting:
    for _ in range(2):
      with waiting:
        compute(0.01)
    with waiting:
      compute(2) if platform == "cpu" else time.sleep(2)
  said = capsys.readouterr().err
  assert said.startswith("a step has taken 0.0 min, and none before it more than 0.")
  assert said.count("\n") == 1


def test_the_wait_in_which_the_first_step_only_starts_is_no_measure(watch, capsys):
  with watch() as waiting:
    for seconds in (0.01, 2):
      with waiting:
        compute(seconds)
  assert capsys.readouterr().err == ""


def test_time_between_steps_does_not_count(watch, capsys):
  with watch() as waiting:
    for _ in range(3):
      with waiting:
        compute(0.01)
      time.sleep(1.2)
  assert capsys.readouterr().err == ""


def test_a_ctrl_c_stays_one(watch):
  with watch() as waiting, pytest.raises(KeyboardInterrupt), waiting:
    signal.raise_signal(signal.SIGINT)


HANGS = """
import threading, jax, vmapseeds as vs
from vmapseeds.lanes import watching

watching.POLL, watching.PATIENCE = 0.1, 2.0

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
