"""Spreading a function over lanes: any count, any number of devices, no communication,
one compilation.
"""

import importlib
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec, get_abstract_mesh

import vmapseeds as vs
from vmapseeds import lanes
from vmapseeds.convolutions import LOWERINGS, conv_general_dilated
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.loop import train
from vmapseeds.training.recipe_runs import recipe_lanes


def collected(function, shared, stacked, **options):
  return brought_together(lanes.spread(function, **options), shared, stacked)


def brought_together(step, shared, stacked):
  parts = list(step(shared, stacked))
  return np.concatenate(
    [np.arange(rows.start, rows.stop) for rows, _ in parts]
  ), jax.tree.map(lambda *p: np.concatenate(p), *(out for _, out in parts))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_every_lane_comes_back_once_and_in_order(count, width):
  numbers = np.arange(count, dtype=np.float32)
  rows, out = collected(
    lambda a, lane: {"x": lane["n"] * a}, np.float32(3), {"n": numbers}, width=width
  )
  assert rows.tolist() == list(range(count))
  assert out["x"].tolist() == (3 * numbers).tolist()


def test_functions_of_users_are_spread_over_all_devices():
  parts = vs.spread(lambda scale, lane: scale * lane**2, width=2)(10, np.arange(7))
  rows, values = zip(*parts, strict=True)
  step = 2 * len(jax.local_devices())
  assert rows == tuple(slice(i, min(i + step, 7)) for i in range(0, 7, step))
  np.testing.assert_array_equal(np.concatenate(values), [10 * i * i for i in range(7)])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
  ("lowering", "convolve"),
  [
    *((name, conv_general_dilated) for name in LOWERINGS),
    ("grouped", jax.lax.conv_general_dilated),
  ],
)
def test_convolutions_are_spread_with_their_gradients(lowering, convolve, groups):
  rng = np.random.default_rng(0)
  images, kernels = (
    rng.normal(size=shape).astype(np.float32)
    for shape in [(3, 2, 5, 5, 2), (3, 3, 3, 2 // groups, 4)]
  )

  def gradients(convolve):
    options = {
      "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
      "feature_group_count": groups,
    }
    return jax.grad(
      lambda lane: (convolve(*lane, (1, 1), "SAME", **options) ** 2).sum()
    )

  _, ours = collected(
    lambda _, lane: gradients(convolve)(lane),
    0,
    (images, kernels),
    width=2,
    lowering=lowering,
  )
  alone = jax.jit(gradients(jax.lax.conv_general_dilated))
  for i in range(3):
    for a, b in zip(ours, alone((images[i], kernels[i])), strict=True):
      np.testing.assert_allclose(a[i], b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
  ("width", "stacked", "message"),
  [
    (0, np.arange(3), "width is 0: .*at least 1"),
    (-1, np.arange(3), "width is -1: .*at least 1"),
    (
      2,
      {"a": np.arange(3), "b": np.ones((2, 3))},
      r"lanes are arrays of shapes \[\(3,\), \(2, 3\)\]: give at least one, each with",
    ),
    (2, (3, np.arange(3)), r"lanes are arrays of shapes \[\(\), \(3,\)\]: give"),
    (2, {}, r"lanes are arrays of shapes \[\]: give at least one"),
  ],
)
def test_lanes_that_cannot_be_spread(width, stacked, message):
  with pytest.raises(vs.UserError, match=message):
    vs.spread(lambda shared, lane: lane, width=width)(0, stacked)


def test_any_number_of_lanes_is_one_compilation():
  traces = []
  step = lanes.spread(lambda a, lane: traces.append(1) or lane + a, width=2)
  for count in (1, 5, 9):
    list(step(np.float32(1), np.arange(count, dtype=np.float32)))
  assert len(traces) == 1


def test_a_compiled_step_runs_and_says_what_memory_it_needs():
  numbers = np.zeros((2, 1000), np.float32)
  step, needed = lanes.compile_step_to_measure(
    lambda a, lane: lane + a, np.float32(1), numbers, devices=jax.devices()
  )
  assert needed >= 2 * 4 * 1000, "a row in and a row out on each device"
  assert np.array_equal(step(), numbers + 1)


@pytest.fixture(scope="module")
def training():
  rng = np.random.default_rng(0)
  data = DeviceExamples(
    rng.integers(0, 256, (32, 8, 8, 1), np.uint8),
    rng.integers(0, 10, 32, np.int32),
    np.array([128], np.float32),
    np.array([64], np.float32),
    10,
  )
  recipe = vs.recipe("digits_cnn", epochs=3, batch_size=8)
  return (
    lambda data, run: train(recipe, data, run),
    data,
    recipe_lanes(recipe, vs.Runs.independent(8), 32),
  )


@pytest.mark.slow
@pytest.mark.parametrize("lowering", ["sequential", "im2col"])
@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.optimized
def test_a_run_depends_on_its_row_alone(training, lowering, width):
  """Its place, its neighbours and the number of devices change no bit (DESIGN's promise
  for one width).
  """
  train_one, data, runs = training

  order = np.array([5, 0, 7, 3, 2])
  some = jax.tree.map(lambda a: np.asarray(a)[order], runs)
  on_one, on_all = (
    lanes.spread(train_one, width=width, devices=jax.devices()[:n], lowering=lowering)
    for n in (1, 2)
  )
  _, reference = brought_together(on_all, data, runs)
  for step in (on_one, on_all):
    _, out = brought_together(step, data, some)
    jax.tree.map(
      lambda a, b: np.testing.assert_array_equal(a, b[order]), out, reference
    )


@pytest.mark.slow
def test_no_value_of_a_run_compiles_again(training, caplog):
  function, data, _ = training
  step = lanes.spread(function, width=2)
  tables = [
    vs.Runs.independent(4),
    vs.Runs.vary("order", 3, fixed=9),
    vs.Runs.sweep(lr=[0.1, 0.2], momentum=[0.5], weight_decay=[0.0, 0.1], seeds=1),
    vs.Runs.independent(4).with_label_map(np.arange(10)),
    vs.Runs.independent(4).with_label_map(np.arange(10)[::-1]),
  ]
  compiled = []
  for table in tables:
    with jax.log_compiles(), caplog.at_level("WARNING"):
      caplog.clear()
      list(step(data, recipe_lanes(vs.recipe("digits_cnn"), table, 32)))
      compiled.append(
        sum("Finished XLA compilation" in message for message in caplog.messages)
      )
  assert compiled == [1, 0, 0, 1, 0], "a table with label maps is another program"


@pytest.mark.slow
def test_training_lanes_do_not_communicate(training):
  train_one, data, runs = training
  module, devices = importlib.import_module("vmapseeds.lanes.spreading"), jax.devices()
  mesh = module._mesh(devices)
  sharded = NamedSharding(mesh, PartitionSpec("lanes"))
  rows = jax.tree.map(lambda a: jax.device_put(np.asarray(a)[:4], sharded), runs)

  def communication(program):
    """The words for communication in a program of all lanes."""
    text = program.lower(lanes.replicate(data, devices), rows).compile().as_text()
    return [
      word
      for word in ("all-reduce", "all-gather", "all-to-all", "collective")
      if word in text
    ]

  assert len(devices) == 2
  assert communication(jax.jit(lambda _, runs: runs.seeds["init"].sum())) == [
    "all-reduce"
  ]
  assert communication(module._compile_step(train_one, mesh)) == []


@pytest.mark.parametrize("width", [1, 2])
def test_a_function_of_a_lane_is_traced_as_by_jit_of_vmap(width):
  # Some libraries compare types: Diffrax's neural ODEs do not train in `shard_map`.
  kept = jax.numpy.arange(3.0)  # lies on one device
  seen = []

  def solve(rate, lane):
    def loss(x):
      total, _ = jax.lax.scan(lambda sum, k: (sum + k * x**2 * kept[1], k), 0.0, kept)
      return rate * total

    gradient = jax.grad(loss)(lane)
    seen.append((jax.typeof(lane), jax.typeof(gradient), get_abstract_mesh()))
    return gradient

  numbers = np.array([1.0, 2.0, -0.5, 3.0, 0.25], np.float32)
  _, out = collected(solve, 0.5, numbers, width=width)
  np.testing.assert_array_equal(out, jax.jit(jax.vmap(solve, (None, 0)))(0.5, numbers))
  of_spread, of_vmap = seen
  assert of_spread == of_vmap


@pytest.mark.slow
@pytest.mark.parametrize(
  ("begin", "cores", "devices"),
  [
    ("import jax; jax.devices()", 3, 1),
    ("import jax; jax.devices()", 1, 1),
    ("import jax", 3, 3),
    ("import vmapseeds, jax; jax.numpy.ones(3)", 3, 1),
    ("import jax; jax.config.update('jax_num_cpu_devices', 2)", 3, 2),
    # What reads results starts JAX too, and a training may follow.
    ("import jax, vmapseeds.target; vmapseeds.target.moves_data(jax.devices)()", 3, 3),
  ],
)
def test_a_jax_that_started_with_too_few_devices_is_told(begin, cores, devices):
  program = f"""
import os
os.sched_getaffinity = lambda process: set(range({cores}))
{begin}
from vmapseeds import lanes
from vmapseeds.convolutions import LOWERINGS
print(len(lanes.start_jax()), len(lanes.start_jax()))
"""
  unset = {
    name: value
    for name, value in os.environ.items()
    if name not in ("JAX_NUM_CPU_DEVICES", "XLA_FLAGS")
  }
  done = subprocess.run(
    [sys.executable, "-c", program], env=unset, capture_output=True, text=True
  )
  assert done.stdout.split() == [str(devices)] * 2
  lines = []
  if devices == 1 < cores:
    lines = [
      "JAX has already started, with 1 CPU device(s): training uses about 1 of 3 cores. To use all, train before JAX computes anything, or set JAX_NUM_CPU_DEVICES=3"
    ]
  assert done.stderr.splitlines() == lines


@pytest.mark.slow
def test_asking_for_devices_sets_nothing():
  program = """
import jax
from vmapseeds import lanes
from vmapseeds.convolutions import LOWERINGS
from vmapseeds.training.recipe_runs import recipe_lanes
before = dict(jax.config.values)
assert lanes.devices() == jax.local_devices()
assert dict(jax.config.values) == before
lanes.start_jax()
print(sorted(name for name, value in jax.config.values.items() if value != before[name]))
"""
  unset = {
    name: value
    for name, value in os.environ.items()
    if name != "JAX_COMPILATION_CACHE_DIR"
  }
  done = subprocess.run(
    [sys.executable, "-c", program], env=unset, capture_output=True, text=True
  )
  assert done.stdout == "['jax_compilation_cache_dir']\n", done.stderr
