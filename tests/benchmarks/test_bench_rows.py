"""The table of lowerings and lane widths: of invented timings, and measured."""

import types

import pytest

import vmapseeds as vs
from experiments.benchmarks import bench
from vmapseeds.campaign import execution
from vmapseeds.convolutions import LOWERINGS
from vmapseeds.lanes import memory
from vmapseeds.training import supervised
from vmapseeds.training.task import lanes_of


@pytest.mark.parametrize("fastest", LOWERINGS)
def test_the_fastest_is_what_campaigns_take(fastest, monkeypatch, tmp_path):
  def measure(task, execution):
    seconds = 1.0 if execution.lowering == fastest else 2.0
    return types.SimpleNamespace(seconds=seconds, memory_bytes=1, compile_seconds=1.0)

  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  monkeypatch.setattr(bench, "measure_speed", measure)
  recipe = vs.recipe("digits_cnn", batch_size=4, model="linear")
  rows = bench.bench(recipe, [1])
  assert [row["lowering"] for row in rows if row["chosen"]] == [fastest]
  assert {row["lowering"] for row in rows if not row["chosen"]} == {
    name for name in LOWERINGS if name != fastest
  }


def test_slow_networks_have_a_speed(monkeypatch, tmp_path, capsys):
  def measure(task, execution):
    return types.SimpleNamespace(seconds=32.0, memory_bytes=1, compile_seconds=1.0)

  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  monkeypatch.setattr(bench, "measure_speed", measure)
  bench.bench(vs.recipe("digits_cnn", batch_size=4, model="linear"), [1])
  assert capsys.readouterr().out.count(" 0.0312 ") == len(LOWERINGS)


@pytest.mark.slow
def test_bench(capsys, monkeypatch, tmp_path):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  monkeypatch.setenv("COLUMNS", "80")
  monkeypatch.setattr(execution, "REPETITIONS", 1)
  monkeypatch.setattr(supervised, "TRIAL_STEPS", 2)
  recipe = vs.recipe("digits_cnn", batch_size=4, model="linear")
  rows = bench.bench(recipe, [1])
  assert [row["lowering"] for row in rows] == list(LOWERINGS)
  assert all(
    row["model_steps_per_second"] > 0 and row["compile_seconds"] > 0 for row in rows
  )
  (chosen,) = (row for row in rows if row["chosen"])
  assert chosen["model_steps_per_second"] == max(
    row["model_steps_per_second"] for row in rows
  )
  out, _ = capsys.readouterr()
  assert "model steps/s" in out
  assert all(len(line) <= 80 for line in out.splitlines())
  assert all(lowering in out for lowering in LOWERINGS)
  assert f"campaigns take {chosen['lowering']}, lane width 1" in " ".join(out.split())

  # Campaigns find it, and what does not fit in memory is a row too.
  one = vs.Runs.independent(1)
  task = supervised.load_recipe_task(recipe, one)
  lane, some = lanes_of(task, one), {"model_steps": 1, "most": 8, "progress": False}
  assert execution.choose_execution(task, lane, **some) == (chosen["lowering"], 1)
  monkeypatch.setattr(memory, "free_memory", lambda device: 1e4)
  argv = "digits_cnn --lowerings grouped --widths 1 2 --set model=linear batch_size=4"
  bench.main(argv.split())
  assert capsys.readouterr().out.split().count("no") == 2


@pytest.mark.parametrize(
  ("argv", "message"),
  [
    ("--widths 0", "lane width is 0"),
    ("--lowerings fast", "unknown lowering 'fast'"),
    ("--json no/such/folder/t.json", "cannot be written: give another file"),
    ("--set width=1000", "more than there is memory for, give a smaller width"),
    ("--set batch_size=100000000", "batch_size 100000000 with 1000 training examples"),
  ],
)
def test_mistakes(argv, message):
  with pytest.raises(vs.UserError, match=message):
    bench.main(["digits_cnn", *argv.split()])
