"""The measurements for a borrowed accelerator, made small on the CPU; and the document
of what campaigns cost.
"""

import io
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from PIL import Image

import vmapseeds as vs
from experiments.airbench import airbench94_cifar10
from experiments.benchmarks import carried, contenders, cost, on_device
from experiments.benchmarks.abstract import abstract_task
from experiments.benchmarks.carried import Archive
from experiments.jordan2024 import real
from vmapseeds import machine
from vmapseeds.campaign import execution
from vmapseeds.errors import UserError
from vmapseeds.lanes import Execution, choice
from vmapseeds.lanes.memory import MemoryFit
from vmapseeds.training import supervised
from vmapseeds.training.task import lanes_of

SHAPE = (12, 12, 3)


def pixels(seed, count, shape=SHAPE):
  return np.random.default_rng(seed).integers(0, 256, (count, *shape), np.uint8)


@pytest.fixture
def data(tmp_path):
  arrays = {f"x_{name}": pixels(0, n) for name, n in (("train", 8), ("test", 6))}
  arrays |= {f"y_{name}": np.arange(n) % 2 for name, n in (("train", 8), ("test", 6))}
  np.savez(tmp_path / "images.npz", **arrays)
  return tmp_path / "images.npz"


def jpegs(images):
  """The bytes of each image as a JPEG file."""
  files = []
  for image in images:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=75)
    files.append(buffer.getvalue())
  return files


def save_jpegs(path, counts, shape):
  """Write images as `cifar10_jpeg.npz` has them, and return their files by split."""
  arrays = {}
  files = {split: jpegs(pixels(n, n, shape)) for split, n in counts.items()}
  for split, each in files.items():
    arrays[f"{split}_bytes"] = np.frombuffer(b"".join(each), np.uint8)
    arrays[f"{split}_offsets"] = np.cumsum([0, *map(len, each)])
    arrays[f"{split}_labels"] = (np.arange(len(each)) % 2).astype(np.uint8)
  np.savez_compressed(path, **arrays)
  return files


@pytest.fixture
def here(monkeypatch, tmp_path):
  """Parts run in this process, and are measured briefly."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  monkeypatch.setattr(execution, "REPETITIONS", 1)
  monkeypatch.setattr(supervised, "TRIAL_STEPS", 2)
  monkeypatch.setattr(on_device, "elsewhere", lambda function, *args: function(*args))
  monkeypatch.setattr(on_device.spreading, "OPTIONS", {**on_device.spreading.OPTIONS})


def rows_of(archive, name):
  record = Archive(archive).read_json(f"{name}.json")
  assert record["done"]
  return record["rows"]


def test_images_are_decoded(tmp_path):
  path = tmp_path / "images.npz"
  files = save_jpegs(path, {"train": 5, "test": 2}, (8, 16, 3))
  found = carried.read_images(path)
  for examples, each in (
    (found.train, files["train"]),
    (found.tests["test"], files["test"]),
  ):
    own = [np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in each]
    np.testing.assert_array_equal(examples.inputs, np.stack(own))
    np.testing.assert_array_equal(examples.targets, np.arange(len(each)) % 2)
  np.savez(path, x_train=np.zeros(3))
  with pytest.raises(
    UserError, match="has x_train: give x_train, y_train, x_test, y_test"
  ):
    carried.read_images(path)


def test_the_commit_is_that_of_git_or_of_a_file_or_unknown(tmp_path, monkeypatch):
  assert carried.commit_of_source() == (machine.commit() or "unknown")
  monkeypatch.setattr(machine, "commit", lambda: None)
  assert carried.commit_of_source(tmp_path) == "unknown"
  (tmp_path / ".commit").write_text("0123abc-dirty\n")
  assert carried.commit_of_source(tmp_path) == "0123abc-dirty"


def test_an_archive_is_whole_at_any_time(tmp_path, monkeypatch):
  archive = Archive(tmp_path / "results.zip")
  archive.write_json("a.json", {"rows": [1]})
  archive.write_arrays("b.npz", numbers=np.arange(3))
  monkeypatch.setattr(carried.os, "replace", lambda *_: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    archive.write("a.json", b"half a file")
  again = Archive(tmp_path / "results.zip")
  assert again.read_json("a.json") == {"rows": [1]}
  assert again.read_arrays("b.npz")["numbers"].tolist() == [0, 1, 2]
  assert (again.read_json("c.json"), again.read_arrays("c.npz")) == ({}, {})
  monkeypatch.undo()
  again.write("b.npz", None)
  assert [*Archive(tmp_path / "results.zip").members] == ["a.json"]


def test_a_call_has_defaults_that_flags_change():
  flags = on_device.parse_arguments(["--call", "1"])
  assert flags.parts == ["tallies", "estimates", "race"]
  assert flags.recipes == ["digits_cnn", on_device.BINARY]
  flags = on_device.parse_arguments(
    ["--call", "1", "--recipes", "linear", "--commit", "abc"]
  )
  assert (flags.recipes, flags.workloads) == (["linear"], ["digits", "binary"])
  assert flags.commit == "abc"
  flags = on_device.parse_arguments(
    ["--parts", "tallies", "--execution", "grouped", "8"]
  )
  assert flags.execution == Execution("grouped", 8)
  parts = [part for call in on_device.CALLS.values() for part in call["parts"]]
  assert {*parts} == {*on_device.PARTS}


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (
      ["--call", "3", "--data", "absent.npz"],
      "--data absent.npz is not there: give the .npz of the images",
    ),
    (
      ["--parts", "tallies", "--execution", "grouped", "0"],
      "--execution is grouped 0: give one of im2col, grouped, sequential and a lane "
      "width, such as sequential 1",
    ),
    (
      ["--call", "1", "--set", "epochs"],
      "'epochs' is no FIELD=VALUE, such as epochs=4",
    ),
    (
      ["--out", "absent.zip", "--write", "RESULTS.md"],
      "--out absent.zip is not there: give the archive of the results",
    ),
  ],
)
def test_mistakes_come_before_the_device(
  tmp_path, monkeypatch, capsys, arguments, message
):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(SystemExit) as stopped:
    on_device.main(arguments)
  assert stopped.value.code == 2
  assert message in capsys.readouterr().err


def test_help_is_of_complete_sentences(capsys):
  with pytest.raises(SystemExit):
    on_device.parse_arguments(["--help"])
  text = capsys.readouterr().out
  assert on_device.__doc__.strip().splitlines()[-1] in text
  assert all(options["help"].endswith(".") for options in on_device.FLAGS.values())


def test_epochs_that_are_set_replace_the_items():
  flags = on_device.parse_arguments(
    ["--parts", "tallies", "--set", "epochs=3", "batch_size=4"]
  )
  assert dict(flags.set) == {"epochs": 3, "batch_size": 4}
  assert on_device.items_of(flags, "training") == [3]
  lengths = ["airbench_quarter-3", "airbench_half-3"]
  assert on_device.items_of(flags, "study") == lengths
  assert on_device.items_of(flags, "tallies") == flags.counts


def test_candidates_are_those_that_a_campaign_tries(monkeypatch):
  """A network of which two lanes fill the device, on a GPU that is not here."""
  monkeypatch.setattr(
    on_device.lanes, "start_jax", lambda: [SimpleNamespace(platform="gpu")]
  )
  monkeypatch.setattr(execution, "filling_width", lambda *_: 2)
  tried = []
  monkeypatch.setattr(
    execution,
    "measure_speed",
    lambda task, how: tried.append(how) or execution.Speed(1.0, 0.0),
  )
  monkeypatch.setattr(choice, "read_timings", lambda key: {})
  monkeypatch.setattr(choice, "write_timings", lambda *_: None)
  task = abstract_task(vs.recipe("digits_cnn"))
  execution.choose_execution(
    task,
    lanes_of(task, vs.Runs.independent(1)),
    model_steps=10**9,
    most=256,
    check=lambda _: MemoryFit(True, 1.0, 2.0),
    platform="gpu",
    progress=False,
  )
  flags = on_device.parse_arguments(["--parts", "tallies"])
  assert on_device.execution_candidates(flags, task) == tried
  assert tried[0] == ("sequential", 1)


@pytest.mark.slow
def test_parts_are_written_as_they_end_and_not_run_again(
  tmp_path, data, here, monkeypatch, capsys
):
  options = []
  monkeypatch.setattr(
    execution,
    "choose_execution",
    lambda *_, **given: options.append(given) or Execution("sequential", 2),
  )
  out = tmp_path / "out.zip"
  small = ["--out", str(out), "--data", str(data), "--most", "1", "--runs", "3"]
  small += ["--examples", "20", "--commit", "0123abc"]
  what = ["--recipes", "digits_cnn", "--repeated", "digits_cnn", "--epochs", "1"]
  what += ["--set", "model=linear", "batch_size=4", "augment="]
  on_device.main(
    [*small, *what, "--parts", "estimates", "training", "tallies", "repeats"]
  )
  printed = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
  assert printed == [
    "estimates digits_cnn",
    "training 1",
    "tallies errors",
    "tallies pairs",
    "repeats digits_cnn",
  ]
  rows = rows_of(out, "repeats-digits_cnn")
  assert [
    (row["lowering"], row["operations"], row["equal"], row["runs"]) for row in rows
  ] == [
    ("sequential", "deterministic", 1, 1),
    ("sequential", "XLA's choice", 1, 1),
    ("grouped", "deterministic", 1, 1),
    ("grouped", "XLA's choice", 1, 1),
  ]
  assert {row["commit"] for row in rows} == {"0123abc"}
  rows = rows_of(out, "estimates-digits_cnn")
  assert {(row["lowering"], row["width"]) for row in rows} == {
    ("sequential", 1),
    ("im2col", 1),
  }
  assert all(
    row["measured_us"] > 0 and row["memory_bytes"] > 0 and row["estimate_us"] is None
    for row in rows
  )
  (row,) = rows_of(out, "training-1")
  assert (row["runs"], row["width"], len(options)) == (3, 2, 1)
  assert options[0]["model_steps"] == 3 * 2, "3 runs of 2 batches"
  assert 0 <= row["accuracy"] <= 1
  # A campaign with the same seeds gives the same accuracy.
  fields = dict(dataset=str(data), epochs=1, model="linear", batch_size=4, augment="")
  results = vs.train(
    vs.recipe("resnet9_cifar10", **fields),
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
    "# Results\n\nMeasured.\n\n<!-- on_device -->\n### On a device: "
  )
  assert text.count("### On a device: ") == 4
  assert text.count("| sequential 2 |") == 1


@pytest.mark.slow
def test_training_resumes_inside_an_item(tmp_path, data, here, monkeypatch):
  arguments = ["--data", str(data), "--runs", "5", "--execution", "sequential", "1"]
  arguments += ["--parts", "training"]
  arguments += ["--set", "epochs=1", "model=linear", "batch_size=4", "augment="]
  whole, stopped = tmp_path / "whole.zip", tmp_path / "stopped.zip"
  on_device.main(["--out", str(whole), *arguments])
  trained = []

  def spread_stages(*args, **options):
    spread = lanes_spread_stages(*args, **options)

    def some(data, runs):
      for which, out, carry in spread(data, runs):
        trained.append(which.stop - which.start)
        yield which, out, carry
        if stop:
          raise KeyboardInterrupt

    return some

  lanes_spread_stages = on_device.lanes.spread_stages
  monkeypatch.setattr(on_device.lanes, "spread_stages", spread_stages)
  stop = True
  with pytest.raises(KeyboardInterrupt):
    on_device.main(["--out", str(stopped), *arguments])
  assert trained == [2], "a lane on each of two devices"
  kept = Archive(stopped).read_arrays("training-1.part.npz")
  assert len(kept["predictions"]) == 2
  stop = False
  on_device.main(["--out", str(stopped), *arguments])
  assert trained == [2, 2, 1]
  assert [*Archive(stopped).members] == ["training-1.json"]
  rows = [rows_of(out, "training-1")[0] for out in (whole, stopped)]
  for row in rows:
    row.pop("seconds")
  assert rows[0] == rows[1]


@pytest.mark.slow
def test_estimates_go_on_after_a_candidate_that_does_not_run(
  tmp_path, here, monkeypatch, capsys
):
  measure, calls = execution.measure_speed, []

  def refusing(task, how):
    calls.append(how)
    if how.lowering == "sequential":
      raise jax.errors.JaxRuntimeError("CUDNN_STATUS_NOT_SUPPORTED")
    return measure(task, how)

  monkeypatch.setattr(execution, "measure_speed", refusing)
  out = tmp_path / "out.zip"
  arguments = ["--out", str(out), "--parts", "estimates", "--recipes", "digits_cnn"]
  on_device.main([*arguments, "--most", "1", "--set", "model=linear"])
  rows = rows_of(out, "estimates-digits_cnn")
  assert [(row["lowering"], row["error"]) for row in rows] == [
    ("sequential", "CUDNN_STATUS_NOT_SUPPORTED"),
    ("im2col", None),
  ]
  shown = [on_device.cells("estimates", row, rows)["measured, µs"] for row in rows]
  assert shown[0] == "does not run: CUDNN_STATUS_NOT_SUPPORTED"
  assert float(shown[1].replace(",", "")) > 0


@pytest.mark.slow
def test_a_part_that_fails_does_not_stop_the_others(tmp_path, capsys):
  images = tmp_path / "images.npz"
  np.savez(images, x=np.zeros(1))
  out = tmp_path / "out.zip"
  arguments = ["--out", str(out), "--data", str(images), "--epochs", "4"]
  arguments += ["--counts", "pairs", "--runs", "2", "--examples", "5"]
  on_device.main([*arguments, "--parts", "training", "tallies"])
  failed, done = capsys.readouterr().out.splitlines()
  assert failed.startswith(
    f"training 4: UserError: --data {images} has x: give x_train, "
  )
  assert done.startswith("tallies pairs: ")
  assert [*Archive(out).members] == ["tallies-pairs.json"]


@pytest.mark.slow
def test_children_end_when_their_parent_is_killed():
  """They would keep the memory of a GPU."""
  code = (
    "import os, time\nfrom experiments.benchmarks import contenders\n"
    "from tests.benchmarks.test_on_device import print_and_sleep\n"
    "if __name__ == '__main__': contenders.elsewhere(print_and_sleep)"
  )
  parent = subprocess.Popen(
    [sys.executable, "-c", code],
    cwd=Path(__file__).parents[2],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  )
  child = int(parent.stdout.readline())
  os.kill(child, 0)  # it is there
  parent.kill()
  parent.wait()
  until = time.monotonic() + 20
  while is_running(child) and time.monotonic() < until:
    time.sleep(0.05)
  assert not is_running(child)
  parent.stdout.close()


def print_and_sleep():
  print(os.getpid(), flush=True)
  time.sleep(120)


def is_running(process):
  """Whether a process is there, other than as a zombie that nobody waits for."""
  try:
    status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
  except FileNotFoundError:
    return False
  return status != "Z"


def test_the_race_is_told_with_those_that_failed(tmp_path, monkeypatch):
  ways = on_device.contenders(
    contenders.WORKLOADS["digits"], "gpu", Execution("im2col", 64)
  )
  assert [way.kind for way in ways] == ["ours", "jax.vmap", *["PyTorch"] * 4]
  assert {way.options.get("mode") for way in ways} == {None, "reduce-overhead"}
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
  ]


@pytest.mark.slow
def test_predictions_of_the_study_are_drawn_from(tmp_path, data, monkeypatch):
  monkeypatch.setattr(
    execution, "choose_execution", lambda *_, **__: Execution("sequential", 2)
  )
  plain = {"initialize": None, "predict": "argmax", "optimizer": "nesterov"}
  small = {"model": "mlp", "batch_size": 4, "augment": "", "eval_params": None}
  fields = [f"{name}={value}" for name, value in (plain | small).items()]
  out = tmp_path / "out.zip"
  flags = on_device.parse_arguments(
    ["--out", str(out), "--data", str(data), "--runs", "3", "--set", *fields]
    + ["--parts", "study"]
  )
  on_device.run_item(flags, "study", "airbench_quarter-2")
  (row,) = rows_of(out, "study-airbench_quarter-2")
  with zipfile.ZipFile(out) as file:
    file.extractall(tmp_path)
  ((arrays, record),) = real.kept_parts(tmp_path / "airbench_quarter", 2)
  errors = arrays["predictions"] != arrays["labels"][:, None]
  assert row["accuracy"] == pytest.approx(1 - errors.mean())
  assert errors.shape[1] == record["runs"] == 3
  recipe = airbench94_cifar10.replace(width=0.25, epochs=2, dataset=str(data))
  results = vs.train(recipe.replace(**plain, **small), 3, tmp_path / "r")
  np.testing.assert_array_equal(arrays["predictions"].T, results.predictions.values)
