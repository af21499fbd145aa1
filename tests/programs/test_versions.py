"""What must work with each JAX and Python: the demo, a task of one's own, a campaign in
bfloat16 and one that was killed. `.ci/run` calls this file in three environments.
"""

import json
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.lanes import spreading


@pytest.mark.slow
def test_the_demo(tmp_path):
  command = [sys.executable, "-m", "vmapseeds", "demo", "--runs", "32"]
  demo = subprocess.run(
    [*command, "--out", tmp_path], capture_output=True, text=True, timeout=600
  )
  assert demo.returncode == 0, demo.stderr
  results = vs.open_results(tmp_path / "16_epochs")
  assert results.sizes["run"] == 32
  assert 0.94 < results["accuracy"].mean() < 0.98
  for page in ("", "1_epochs", "16_epochs"):
    report = json.loads((tmp_path / "report" / page / "report.json").read_text())
    assert report


def start(data, run):
  return jax.random.normal(run.key("init"), data["target"].shape)


def advance(data, run, state, first, last):
  def step(_, state):
    return state - run["lr"] * (state - data["target"])

  return jax.lax.fori_loop(first, last, step, state)


def finish(data, run, state):
  return {"distance": abs(state - data["target"]).sum()}


def test_a_task_of_ones_own(tmp_path):
  target = np.array([1.0, -2.0, 0.5], np.float32)
  task = vs.Task(
    name="descent",
    start=start,
    advance=advance,
    finish=finish,
    data={"target": target},
    rounds=5,
    sources=("init",),
    values={"lr": 0.25},
    outputs={"distance": vs.Output(role="score")},
  )
  runs = vs.Runs.sweep(lr=[0.125, 0.5], seeds=3)
  results = vs.train(task, runs, tmp_path / "out", progress=False)
  for row, distance in enumerate(results["distance"].to_numpy()):
    one = vs.single_run(
      task, int(results["seed_init"][row]), lr=float(results["lr"][row])
    )
    state = np.asarray(start({"target": target}, one))
    for _ in range(5):
      state = state - float(results["lr"][row]) * (state - target)
    np.testing.assert_allclose(distance, abs(state - target).sum(), rtol=1e-5)


@pytest.mark.slow
def test_a_campaign_in_bfloat16(tmp_path):
  recipe = vs.recipe("digits_cnn", epochs=2, precision="bfloat16")
  narrow = vs.train(recipe, 4, tmp_path / "narrow", progress=False)
  wide = vs.train(
    recipe.replace(precision="float32"), 4, tmp_path / "wide", progress=False
  )
  assert not narrow["diverged"].any()
  gap = narrow["accuracy"].to_numpy() - wide["accuracy"].to_numpy()
  # The same seeds: rounded products move each accuracy a little, and each run's.
  assert (abs(gap) < 0.05).all()
  assert (narrow["predictions"] != wide["predictions"]).any()


@pytest.mark.slow
def test_a_campaign_that_was_killed_is_resumed(tmp_path):
  arguments = ["digits_cnn", "--runs", "6", "--seed-batch", "1", "--logits"]
  command = [sys.executable, "-m", "vmapseeds", "train", *arguments]
  killed = subprocess.Popen([*command, "--out", tmp_path / "killed"])
  patience = time.monotonic() + 300
  while finished_runs(tmp_path / "killed") == 0:
    assert killed.poll() is None
    assert time.monotonic() < patience
    time.sleep(0.02)
  killed.send_signal(signal.SIGKILL)
  killed.wait()
  assert finished_runs(tmp_path / "killed") < 6
  for folder in ("killed", "whole"):
    subprocess.run([*command, "--out", tmp_path / folder], check=True, timeout=300)
  resumed, whole = (vs.open_results(tmp_path / name) for name in ("killed", "whole"))
  assert resumed.sizes["run"] == 6
  np.testing.assert_array_equal(resumed["logits"], whole["logits"])


def finished_runs(folder):
  """Return how many runs a folder holds; it may not be there yet."""
  try:
    return int(vs.open_results(folder).sizes["run"])
  except vs.UserError:
    return 0


@pytest.mark.parametrize("newer", [True, False])
def test_a_newer_jax_is_said_once(newer, monkeypatch, capsys):
  version = (0, 99, 1) if newer else (0, 12, 0)
  monkeypatch.setattr(jax, "__version_info__", version)
  monkeypatch.setattr(jax, "__version__", ".".join(map(str, version)))
  spreading._warn_about_newer_jax.cache_clear()
  for _ in range(2):
    spreading.start_jax()
  lines = [line for line in capsys.readouterr().err.splitlines() if "newer" in line]
  assert len(lines) == int(newer)
  assert all("jax 0.99.1 is newer than 0.12.0" in line for line in lines)
