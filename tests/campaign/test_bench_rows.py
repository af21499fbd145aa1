"""The table of `vmapseeds bench`, of invented timings."""

import types

import pytest

import vmapseeds as vs
from vmapseeds.campaign import bench
from vmapseeds.convolutions import LOWERINGS


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
