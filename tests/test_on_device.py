"""The measurements for a borrowed accelerator, made small on the CPU; and the document
of what campaigns cost.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vmapseeds as vs
from experiments import gallery
from experiments.airbench import airbench94_cifar10
from experiments.benchmarks import contenders, cost, on_device
from experiments.jordan2024 import real
from vmapseeds.campaign import execution
from vmapseeds.lanes import Execution
from vmapseeds.training import supervised


@pytest.fixture
def data(tmp_path):
  rng = np.random.default_rng(0)
  arrays = {
    f"x_{name}": rng.integers(0, 256, (n, 12, 12, 3), np.uint8)
    for name, n in (("train", 8), ("test", 6))
  }
  arrays |= {f"y_{name}": np.arange(n) % 2 for name, n in (("train", 8), ("test", 6))}
  np.savez(tmp_path / "images.npz", **arrays)
  return tmp_path / "images.npz"


@pytest.mark.slow
def test_parts_are_written_as_they_end_and_not_run_again(
  tmp_path, data, monkeypatch, capsys
):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  monkeypatch.setattr(execution, "REPETITIONS", 1)
  monkeypatch.setattr(supervised, "TRIAL_STEPS", 2)
  monkeypatch.setattr(on_device, "elsewhere", lambda function, *args: function(*args))
  monkeypatch.setattr(on_device.spreading, "OPTIONS", {**on_device.spreading.OPTIONS})
  chosen = []
  monkeypatch.setattr(
    execution,
    "choose_execution",
    lambda *args, **options: chosen.append(options) or Execution("sequential", 2),
  )
  small = [
    "--out",
    str(tmp_path / "out"),
    "--data",
    str(data),
    "--most",
    "1",
    "--runs",
    "3",
    "--examples",
    "20",
  ]
  what = [
    "--recipes",
    "digits_cnn",
    "--epochs",
    "1",
    "--set",
    '{"model": "linear", "batch_size": 4, "augment": ""}',
  ]
  on_device.main(
    [*small, *what, "--parts", "estimates", "training", "tallies", "repeats"]
  )
  said = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
  assert said == [
    "estimates digits_cnn",
    "training 1",
    "tallies errors",
    "tallies pairs",
    "repeats digits_cnn",
  ]
  rows = json.loads((tmp_path / "out" / "repeats-digits_cnn.json").read_text())["rows"]
  assert [(row["operations"], row["equal"], row["runs"]) for row in rows] == [
    ("deterministic", 1, 1),
    ("XLA's choice", 1, 1),
  ]
  rows = json.loads((tmp_path / "out" / "estimates-digits_cnn.json").read_text())[
    "rows"
  ]
  assert {(row["lowering"], row["width"]) for row in rows} == {
    ("sequential", 1),
    ("im2col", 1),
  }
  assert all(
    row["measured_us"] > 0 and row["memory_bytes"] > 0 and row["estimate_us"] is None
    for row in rows
  )
  (row,) = json.loads((tmp_path / "out" / "training-1.json").read_text())["rows"]
  assert (row["runs"], row["width"], len(chosen)) == (3, 2, 1)
  assert 0 <= row["accuracy"] <= 1
  # A campaign with the same seeds gives the same accuracy.
  options = dict(dataset=str(data), epochs=1, model="linear", batch_size=4, augment="")
  results = vs.train(
    vs.recipe("resnet9_cifar10", **options),
    vs.Runs.independent(3),
    tmp_path / "r",
    lane_width=2,
    lowering="sequential",
    progress=False,
  )
  assert row["accuracy"] == pytest.approx(results.accuracy.values.mean())
  on_device.main([*small, *what, "--parts", "estimates", "training"])
  assert capsys.readouterr().out == ""
  # Writing twice puts the tables into the document once.
  document = tmp_path / "RESULTS.md"
  document.write_text("# Results\n\nMeasured.\n")
  for _ in range(2):
    on_device.main([*small, "--write", str(document)])
  text = document.read_text()
  assert text.startswith(
    "# Results\n\nMeasured.\n\n<!-- on_device -->\n### On a device: estimates\n"
  )
  assert text.count("### On a device: ") == 4
  assert text.count("| sequential 2 |") == 1


@pytest.mark.slow
def test_a_part_that_fails_does_not_stop_the_others(tmp_path, capsys):
  on_device.main(
    [
      "--out",
      str(tmp_path),
      "--parts",
      "training",
      "tallies",
      "--epochs",
      "4",
      "--counts",
      "pairs",
      "--runs",
      "2",
      "--examples",
      "5",
    ]
  )
  failed, done = capsys.readouterr().out.splitlines()
  assert failed == "training 4: FileNotFoundError: no --data cifar10.npz was given"
  assert done.startswith("tallies pairs: ")
  assert [path.name for path in sorted(tmp_path.glob("*.json"))] == [
    "tallies-pairs.json"
  ]


def test_the_race_is_told_with_those_that_failed(tmp_path, monkeypatch):
  ways = on_device.contenders(
    contenders.WORKLOADS["digits"], "gpu", Execution("im2col", 64)
  )
  assert [way.kind for way in ways] == ["ours", "jax.vmap", *["PyTorch"] * 7]
  assert {way.options.get("mode") for way in ways} == {
    None,
    "default",
    "reduce-overhead",
  }
  row = dict(
    workload="digits",
    device_bytes=None,
    error=None,
    speeds=[2.0],
    speed=2.0,
    kind="ours",
    label="im2col",
  )
  other = row | dict(
    kind="PyTorch", label="one at a time", speeds=[0.5], speed=0.5, device_bytes=3e6
  )
  failed = other | dict(
    speeds=[], speed=float("nan"), error="torch is not installed", device_bytes=None
  )
  shown = [
    list(on_device.cells("race", r, [row, other, failed]).values())[2:]
    for r in (row, other, failed)
  ]
  assert shown == [
    ["2.00", "1.00", "—"],
    ["0.500", "4.00", "3"],
    ["torch is not installed", "—", "—"],
  ]


@pytest.mark.slow
def test_it_runs_without_zarr_tensorflow_datasets_and_tyro():
  hidden = "import sys; sys.modules.update(dict.fromkeys(('zarr', 'tensorflow_datasets', 'tyro', 'upath')));"
  code = f"{hidden} from experiments.benchmarks import on_device; on_device.parse([])"
  subprocess.run(
    [sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1]
  )


@pytest.mark.slow
def test_costs_are_seconds_times_steps(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(
    cost,
    "seconds_here",
    lambda recipe: {"seconds": 1e-3, "lowering": "sequential", "width": 1, "load": 0.5},
  )
  asked = []
  monkeypatch.setattr(
    cost,
    "seconds_on",
    lambda recipe, target: (
      asked.append(target) or {"seconds": 1e-6, "lowering": "grouped", "width": 8}
    ),
  )
  monkeypatch.setattr(cost.jax.config, "update", lambda *args: None)
  arguments = [
    "--out",
    str(tmp_path),
    "--doc",
    str(tmp_path / "cost.md"),
    "--recipes",
    "resnet9_cifar10",
    "--targets",
    "v5e",
  ]
  for _ in range(2):
    cost.main(arguments)
  assert asked == ["v5e"]
  lines = (tmp_path / "cost.md").read_text().splitlines()
  # 64 epochs of 100 steps of 500 images, each 290.7 million multiplications forwards and
  # twice that backwards: 6.4 s a run here; the paper's 58.5 s.
  assert [line for line in lines if line.startswith("| resnet9")] == [
    "| resnet9_cifar10 | 6,400 steps, 5.58 PFLOP | 1.78 | 0.00178 | 16.2 |",
    "| resnet9_cifar10 | 6,400 steps, 5.58 PFLOP | 107 | 0.107 | 975 |",
    "| resnet9_cifar10 | sequential 1: 1,000 µs | grouped 8: 1.00 µs |",
  ]


@pytest.mark.slow
def test_predictions_of_the_study_are_drawn_from(tmp_path, data, monkeypatch):
  monkeypatch.setattr(
    execution, "choose_execution", lambda *_, **__: Execution("sequential", 2)
  )
  plain = {"initialize": None, "predict": "argmax", "optimizer": "nesterov"}
  small = {"model": "mlp", "batch_size": 4, "augment": "", "eval_params": None}
  flags = on_device.parse(
    ["--out", str(tmp_path), "--data", str(data), "--runs", "3"]
    + ["--set", json.dumps(plain | small)]
  )
  (row,) = on_device.study(flags, "airbench_quarter-2")
  monkeypatch.setattr(real.frame, "examples_of", lambda *_: 8)
  stored = real.Stored(tmp_path / "airbench_quarter", "airbench_quarter")
  assert row["accuracy"] == pytest.approx(1 - stored.errors("short").mean())
  assert stored.tallies("short").runs == stored.used["short"]["runs"] == 3
  assert gallery.provenance(stored.used.values())
  recipe = airbench94_cifar10.replace(width=0.25, epochs=2, dataset=str(data))
  results = vs.train(recipe.replace(**plain, **small), 3, tmp_path / "r")
  np.testing.assert_array_equal(
    stored("short")["predictions"].T, results.predictions.values
  )
