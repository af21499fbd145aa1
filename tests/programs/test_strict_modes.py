"""Campaigns under JAX's stricter modes give the bits that they give without."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, 8, 8, 1), np.uint8)
LABELS = np.arange(40) % 10
SETS = {"train": (IMAGES, LABELS), "test": (IMAGES[:20], LABELS[:20])}
RECIPE = vs.recipe(
  "digits_cnn",
  dataset=vs.Dataset(**SETS, name="forty"),
  model="mlp",
  width=1 / 16,
  augment="flip translate=1 reflect=1 cutout=2",
  dropout=0.3,
  label_smoothing=0.1,
  stop_at=0.9,
  batch_size=10,
  epochs=1,
)
X64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
MODES = {
  "rank promotion": lambda: jax.numpy_rank_promotion("raise"),
  "transfer guard": lambda: jax.transfer_guard("disallow"),
  "64 bits": lambda: X64(True),
}


def logits(out):
  options = {"lowering": "sequential", "lane_width": 1, "progress": False}
  return vs.train(RECIPE, 2, out, logits=True, **options).logits.values


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
  return logits(tmp_path_factory.mktemp("usual") / "r")


@pytest.mark.parametrize("mode", mostly_slow(MODES))
def test_a_strict_mode_changes_no_bit(mode, usual, tmp_path):
  with MODES[mode]():
    strict = logits(tmp_path / "r")
  assert strict.dtype == np.float32
  np.testing.assert_array_equal(strict, usual)


def study(folder):
  """Train two campaigns, and return the numbers of their reports and comparison."""
  small = RECIPE.replace(model="linear", width=1, dropout=0, augment="flip")
  options = {"lowering": "sequential", "lane_width": 2, "progress": False}
  for name, lr in (("a", 0.1), ("b", 0.03)):
    vs.train(small.replace(lr=lr), 4, folder / name, **options)
  vs.report(folder / "a").save()
  (comparison,) = vs.compare(folder / "a", folder / "b")
  written = json.loads((folder / "a" / "report" / "report.json").read_text())
  return json.dumps(written["statistics"]), repr(comparison)


@pytest.fixture(scope="module")
def usual_study(tmp_path_factory):
  return study(tmp_path_factory.mktemp("study"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*MODES, "nans"])
def test_a_study_works_in_a_strict_mode(mode, usual_study, tmp_path):
  """Training, report and comparison give the numbers that they give without the mode."""
  modes = MODES | {"nans": lambda: jax.debug_nans(True)}
  with modes[mode]():
    assert study(tmp_path) == usual_study


@pytest.mark.parametrize("command", mostly_slow([["recipes"], ["train", "digits_cnn"]]))
def test_a_device_that_is_absent_is_one_line_or_not_needed(command, tmp_path):
  if command[0] == "train":
    command = [*command, "--out", str(tmp_path / "r"), "--runs", "2"]
  ended = subprocess.run(
    [sys.executable, "-m", "vmapseeds", *command],
    env={**os.environ, "JAX_PLATFORMS": "cuda"},
    capture_output=True,
    text=True,
    check=False,
  )
  if command[0] == "recipes":
    assert ended.returncode == 0
    return
  assert ended.returncode == 2
  assert ended.stderr.startswith("error: JAX_PLATFORMS is cuda: no such device")
  assert ended.stderr.count("\n") == 1
