"""Convolutions and products of half precision on a CPU, by oneDNN and without it."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

import vmapseeds as vs
from experiments.benchmarks.bench import describe_precision
from vmapseeds import lanes, machine
from vmapseeds.convolutions import calls_onednn, fast_convolutions, onednn
from vmapseeds.convolutions.xla import Window
from vmapseeds.jaxprs import equations
from vmapseeds.lanes.one_lane import prepare_lane
from vmapseeds.store.results import Results
from vmapseeds.target import compiling_for
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.loop import train
from vmapseeds.training.recipe_runs import recipe_lanes

NARROW, WIDE = jnp.bfloat16, jnp.float32
# Where the calls do nothing else than end the process, these tests have nothing to see.
HAS_ONEDNN = (
  sys.platform == "linux"
  and bool(onednn.EXTENSIONS.intersection(machine.instruction_set().split()))
  and jax.__version_info__ >= onednn.OLDEST_JAX
)
needs_onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="no instructions of bfloat16")


def random(seed, *shape, dtype=NARROW):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


@pytest.fixture
def calls(monkeypatch):
  """A machine that may call oneDNN, for which any convolution is large enough. JAX stores
  programs again afterwards.
  """
  setting = "jax_persistent_cache_min_compile_time_secs"
  before = jax.config.values[setting]
  monkeypatch.setattr(onednn, "is_usable", lambda: True)
  monkeypatch.setattr(onednn, "PRODUCTS", dict.fromkeys(onednn.PRODUCTS, 1))
  monkeypatch.setattr(onednn, "PIXELS", 1)
  yield
  jax.config.update(setting, before)


def parts(conv, x, w):
  """Outputs and both gradients of a random projection."""
  y, vjp = jax.vjp(conv, x, w)
  return y, *vjp(random(7, *y.shape, dtype=y.dtype))


def convolution(spatial, stride, padding, groups=1):
  axes = "DHW"[-spatial:]
  return lambda x, w: jax.lax.conv_general_dilated(
    x,
    w,
    (stride,) * spatial,
    padding,
    dimension_numbers=(f"N{axes}C", f"{axes}IO", f"N{axes}C"),
    feature_group_count=groups,
  )


@pytest.mark.parametrize(
  ("images", "spatial", "kernel", "stride", "padding", "groups"),
  [
    (3, (6, 5), (3, 3), 1, "SAME", 1),
    (2, (8, 7), (5, 4), 1, ((0, 3), (2, 1)), 1),
    (2, (9, 8), (5, 5), 2, ((2, 2), (2, 2)), 1),  # strides
    (36, (5, 4), (3, 3), 1, "SAME", 1),  # kernel gradients of 18 images and of 18
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in [
        (1, (6, 6), (3, 3), 1, "VALID", 1),
        (2, (7, 6), (3, 3), 1, ((3, 0), (1, 1)), 1),  # more zeros than needed
        (2, (9,), (3,), 1, "SAME", 1),
        (2, (4, 3, 5), (2, 1, 3), 1, "SAME", 1),
        (2, (6, 6), (1, 1), 1, "SAME", 1),
        (2, (9, 8), (1, 1), 2, "SAME", 1),  # too many zeros
        (2, (5, 6), (3, 3), 1, "SAME", 2),
      ]
    ),
  ],
)
@pytest.mark.parametrize("by_onednn", [pytest.param(True, marks=needs_onednn), False])
def test_convolutions_are_sums_in_float32_rounded_once(
  request, by_onednn, images, spatial, kernel, stride, padding, groups
):
  """All three parts, by oneDNN and without it, are XLA's in float32 of what is given, up
  to the last rounding of what comes out.
  """
  if by_onednn:
    request.getfixturevalue("calls")
  conv = convolution(len(spatial), stride, padding, groups)
  x = random(0, images, *spatial, 4)
  w = random(1, *kernel, 4 // groups, 6)
  ours = jax.jit(fast_convolutions(functools.partial(parts, conv)))(x, w)
  y, vjp = jax.jit(functools.partial(jax.vjp, conv))(x.astype(WIDE), w.astype(WIDE))
  theirs = y, *vjp(random(7, *y.shape).astype(WIDE))
  for a, b in zip(ours, theirs, strict=True):
    assert a.dtype == NARROW
    np.testing.assert_allclose(
      a.astype(WIDE), b, rtol=2**-8, atol=4e-6 * np.abs(b).max()
    )


def window_of(rank, **changed):
  fields = dict(strides=(1,) * rank, padding=((1, 1),) * rank, dilation=(1,) * rank)
  return Window(**fields | dict(groups=1, precision=None) | changed)


@pytest.mark.parametrize(
  ("part", "images", "kernel", "changed", "fits"),
  [
    ("forward", (9, 9, 1), (3, 3, 1, 2), {}, True),
    ("forward", (9, 9, 1), (3, 3, 1, 2), dict(strides=(2, 2)), True),
    ("forward", (9, 9, 4), (3, 3, 2, 4), dict(groups=2), False),
    ("forward", (9, 9, 1), (3, 3, 1, 2), dict(padding=((3, 1), (1, 1))), False),
    ("forward", (9, 9, 1), (3, 3, 1, 2), dict(padding=((1, -1), (1, 1))), False),
    ("forward", (9, 9, 1), (3, 3, 1, 0), {}, False),
    ("input_gradient", (9, 9, 1), (3, 3, 1, 2), {}, True),
    ("input_gradient", (9, 9, 1), (3, 3, 1, 2), dict(strides=(1, 2)), False),
    ("kernel_gradient", (9, 9, 16), (3, 3, 16, 32), {}, True),
    ("kernel_gradient", (9, 9, 1), (3, 3, 1, 16), {}, True),
    ("kernel_gradient", (9, 9, 5), (3, 3, 5, 3), {}, False),
    ("kernel_gradient", (11, 9, 16), (3, 3, 16, 32), dict(dilation=(2, 1)), True),
    ("kernel_gradient", (11, 11, 16), (3, 3, 16, 32), dict(dilation=(1, 2)), False),
    ("kernel_gradient", (7, 9, 16), (3, 3, 16, 32), {}, False),
    ("kernel_gradient", (9, 9, 16), (9, 9, 16, 32), dict(padding=((4, 4),) * 2), False),
    ("kernel_gradient", (9, 9, 9, 16), (3, 3, 2, 16, 32), {}, True),
  ],
)
def test_parts_that_gain(monkeypatch, part, images, kernel, changed, fits):
  monkeypatch.setattr(onednn, "is_usable", lambda: True)
  window = window_of(len(images) - 1, **changed)
  x, w = (jax.ShapeDtypeStruct(n, NARROW) for n in ((8, *images), kernel))
  dy = jax.ShapeDtypeStruct((8, *window.out_spatial(x, w), kernel[-1]), NARROW)
  arrays = [x, w, dy]
  like = arrays.pop(["input_gradient", "kernel_gradient", "forward"].index(part))
  assert onednn.fits(part, window, like, *arrays) == fits
  wide = [jax.ShapeDtypeStruct(a.shape, WIDE) for a in arrays]
  assert not onednn.fits(part, window, like, *wide)
  monkeypatch.setattr(onednn, "is_usable", lambda: False)
  assert not onednn.fits(part, window, like, *arrays)


@pytest.fixture
def float32_calls(calls, monkeypatch):
  """A machine where calls of float32 are as fast as where they were measured, for which
  any convolution is large enough.
  """
  monkeypatch.setattr(onednn, "FLOAT32_JAX", onednn.OLDEST_JAX)
  monkeypatch.setattr(onednn, "FLOAT32_EXTENSIONS", onednn.EXTENSIONS)
  monkeypatch.setattr(onednn, "MULTIPLICATIONS", 1)


@needs_onednn
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_of_float32_by_calls(float32_calls, stride):
  """With 16 channels and strides, input gradients are made phase by phase."""
  conv = convolution(2, stride, [(2, 2), (2, 2)])
  x = random(0, 3, 8, 10, 16, dtype=WIDE)
  w = random(1, 5, 5, 16, 7, dtype=WIDE)
  program = jax.jit(fast_convolutions(functools.partial(parts, conv)))
  calls = program.lower(x, w).as_text().count("__onednn$convolution")
  assert calls == {1: 3, 2: 6}[stride]
  ours = program(x, w)
  y, vjp = jax.vjp(conv, x, w)
  for a, b in zip(ours, (y, *vjp(random(7, *y.shape, dtype=WIDE))), strict=True):
    assert a.dtype == WIDE
    np.testing.assert_allclose(a, b, atol=3e-6 * np.abs(b).max())


@pytest.mark.parametrize(
  ("part", "images", "kernel", "gains"),
  [
    ("forward", (32, 32, 3), (3, 3, 3, 32), True),
    (
      "forward",
      (4, 4, 3),
      (3, 3, 3, 32),
      False,
    ),  # a small one, whose program is stored
    ("forward", (16, 16, 32), (3, 3, 32, 64), True),
    ("forward", (16, 16, 64), (3, 3, 64, 64), False),  # by Winograd's form
    ("forward", (16, 16, 64), (1, 1, 64, 64), True),
    ("input_gradient", (16, 16, 32), (3, 3, 32, 64), True),
    ("input_gradient", (16, 16, 64), (3, 3, 64, 64), False),
    ("kernel_gradient", (16, 16, 32), (3, 3, 32, 32), True),
    ("kernel_gradient", (16, 16, 32), (3, 3, 32, 64), True),
    ("kernel_gradient", (16, 16, 64), (3, 3, 64, 64), False),
    ("kernel_gradient", (32, 32, 8), (3, 3, 8, 16), True),
    ("kernel_gradient", (32, 32, 3), (3, 3, 3, 16), False),
  ],
)
def test_parts_of_float32_that_gain(monkeypatch, part, images, kernel, gains):
  monkeypatch.setattr(onednn, "is_usable", lambda: True)
  monkeypatch.setattr(onednn, "FLOAT32_JAX", onednn.OLDEST_JAX)
  padding = tuple((k // 2, k // 2) for k in kernel[:2])
  window = window_of(2, padding=padding)
  x, w = (jax.ShapeDtypeStruct(n, WIDE) for n in ((100, *images), kernel))
  dy = jax.ShapeDtypeStruct((100, *images[:2], kernel[-1]), WIDE)
  arrays = [x, w, dy]
  like = arrays.pop(["input_gradient", "kernel_gradient", "forward"].index(part))
  for processor, fits in (("avx512_bf16 amx_bf16", gains), ("avx512_bf16", False)):
    monkeypatch.setattr(onednn, "instruction_set", lambda p=processor: p)
    assert onednn.fits(part, window, like, *arrays) == fits


def dense(x, w):
  """A dense layer and both gradients: each factor turned and not."""
  y, vjp = jax.vjp(lambda x, w: x @ w, x, w)
  return y, *vjp(jnp.cos(y))


@needs_onednn
@pytest.mark.parametrize("sums", [NARROW, WIDE], ids=str)
@pytest.mark.parametrize("examples", [1, 6])
def test_products_of_lanes_are_sums_in_float32_rounded_once(calls, examples, sums):
  def product(x, w):
    return jnp.matmul(x, w, preferred_element_type=sums)

  x, w = random(0, examples, 37), random(1, 37, 5)
  program = jax.jit(prepare_lane(product))
  assert "__onednn$matmul" in program.lower(x, w).as_text()
  exact = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
  y = program(x, w)
  assert y.dtype == sums
  rounded = exact.astype(sums).astype(np.float64)
  tolerance = 1e-5 if sums == WIDE else 2**-8
  y = np.asarray(y, np.float64)
  np.testing.assert_allclose(y, rounded, rtol=tolerance, atol=1e-5)


@needs_onednn
def test_gradients_of_dense_layers_are_xlas(calls):
  x, w = random(0, 6, 37), random(1, 37, 5)
  program = jax.jit(prepare_lane(dense))
  assert program.lower(x, w).as_text().count("@__onednn$matmul") == 3
  for ours, theirs in zip(program(x, w), jax.jit(dense)(x, w), strict=True):
    assert ours.dtype == NARROW
    np.testing.assert_allclose(
      ours.astype(WIDE), theirs.astype(WIDE), rtol=2**-6, atol=0.02
    )


@needs_onednn
@pytest.mark.parametrize("lane_count", [1, 3])
@pytest.mark.parametrize("shared", [False, True], ids=["", "shared examples"])
def test_products_of_lanes_beside_each_other_are_xlas(calls, lane_count, shared):
  x, w = random(0, lane_count, 6, 37), random(1, lane_count, 37, 5)
  x = x[0] if shared else x
  together = jax.jit(jax.vmap(prepare_lane(dense), (None if shared else 0, 0)))
  assert ("__onednn$matmul" in together.lower(x, w).as_text()) == (lane_count == 1)
  for lane, outputs in enumerate(zip(*together(x, w), strict=True)):
    theirs = jax.jit(dense)(x if shared else x[lane], w[lane])
    for ours, alone in zip(outputs, theirs, strict=True):
      np.testing.assert_allclose(
        ours.astype(WIDE), alone.astype(WIDE), rtol=2**-6, atol=0.02
      )


@pytest.mark.parametrize(
  ("x", "w", "options"),
  [
    ((6, 37), (37, 5), {"dtype": WIDE}),
    ((0, 37), (37, 5), {}),
    ((6, 0), (0, 5), {}),
    ((2, 6, 37), (37, 5), {}),
    ((37,), (37, 5), {}),
    ((6, 37), (37, 5), {"precision": "F64_F64_F64"}),
  ],
)
def test_other_products_stay_xlas(calls, x, w, options):
  options = dict(options)
  dtype = options.pop("dtype", NARROW)
  x, w = random(0, *x, dtype=dtype), random(1, *w, dtype=dtype)
  program = jax.make_jaxpr(prepare_lane(lambda x, w: jnp.matmul(x, w, **options)))(x, w)
  assert "dot_general" in str(program)
  assert "ffi_call" not in str(program)


def test_products_for_other_platforms_stay_xlas(calls):
  x, w = random(0, 6, 37), random(1, 37, 5)
  for platform, here in (("tpu", True), ("cpu", False)):
    with compiling_for(platform, here=here):
      assert "ffi_call" not in str(jax.make_jaxpr(prepare_lane(dense))(x, w))


def test_bench_says_who_convolves(monkeypatch):
  recipe = vs.recipe("digits_cnn")
  assert describe_precision(recipe, "cpu") == "float32"
  recipe = recipe.replace(precision="bfloat16")
  assert describe_precision(recipe, "tpu") == "bfloat16"
  monkeypatch.setattr(onednn, "is_usable", lambda: False)
  assert describe_precision(recipe, "cpu") == "bfloat16 without oneDNN"
  monkeypatch.setattr(onednn, "is_usable", lambda: True)
  assert describe_precision(recipe, "cpu") == "bfloat16 by oneDNN"


@pytest.mark.parametrize(
  "by_onednn", [pytest.param(True, marks=[needs_onednn, pytest.mark.slow]), False]
)
def test_a_block_records_who_convolved(request, monkeypatch, tmp_path, by_onednn):
  if by_onednn:
    request.getfixturevalue("calls")
  rng = np.random.default_rng(0)
  examples = rng.integers(0, 256, (8, 6, 6, 1), np.uint8), np.arange(8) % 2
  recipe = vs.Recipe(
    name="small",
    dataset=vs.Dataset(train=examples, test=examples, num_classes=2),
    model=SmallNetwork,
    precision="bfloat16",
    lr=0.1,
    epochs=1,
    batch_size=4,
  )
  how = dict(progress=False, lowering="sequential", lane_width=1, seed_batch=1)
  results = vs.train(recipe, 1, tmp_path / "r", **how)
  assert results.attrs["onednn"] == by_onednn
  assert Results(tmp_path / "r").record(0)["onednn"] == by_onednn
  identity = results.attrs["identity"]
  # The same runs where it is otherwise
  monkeypatch.setattr(onednn, "is_usable", lambda: False)
  results = vs.train(recipe, 2, tmp_path / "r", **how)
  assert results.attrs["identity"] == identity
  if by_onednn:
    assert json.loads(results.attrs["kinds"]) == {"onednn": [True, False]}


class SmallNetwork(nn.Module):
  num_classes: int
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(self, x):
    x = nn.relu(nn.Conv(4, (3, 3), dtype=self.dtype)(x))
    return nn.Dense(self.num_classes, dtype=self.dtype)(x.mean((1, 2)))


def may_call(function, *args):
  return calls_onednn(equations(jax.make_jaxpr(function)(*args)))


def test_small_programs_in_float32_ask_for_no_trial(monkeypatch):
  def conv(x, w):
    return convolution(2, 1, "SAME")(x, w)

  def square(x):
    return x @ x.T

  monkeypatch.setattr(onednn, "is_usable", lambda: True)
  x, w = random(0, 2, 5, 5, 3), random(1, 3, 3, 3, 4)
  assert may_call(jax.jit(conv), x, w)
  assert may_call(square, x[0, 0])

  def refuse():
    raise AssertionError

  monkeypatch.setattr(onednn, "is_usable", refuse)
  x, w = x.astype(WIDE), w.astype(WIDE)
  assert not may_call(conv, x, w)
  assert not may_call(square, x[0, 0])
  jax.jit(fast_convolutions(conv))(x, w)


def test_large_convolutions_of_float32_may_be_calls(monkeypatch):
  """As many multiplications as are counted, forward and backward."""
  monkeypatch.setattr(onednn, "is_usable", lambda: True)
  monkeypatch.setattr(onednn, "FLOAT32_JAX", onednn.OLDEST_JAX)
  monkeypatch.setattr(onednn, "instruction_set", lambda: "amx_bf16")
  conv = convolution(2, 1, "SAME")
  x, w = random(0, 2, 5, 6, 3, dtype=WIDE), random(1, 3, 3, 3, 4, dtype=WIDE)
  for argument in (0, 1):
    gradient = jax.grad(lambda *a: conv(*a).sum(), argument)
    for least, may in (
      (2 * 5 * 6 * 4 * 9 * 3, True),
      (2 * 5 * 6 * 4 * 9 * 3 + 1, False),
    ):
      monkeypatch.setattr(onednn, "MULTIPLICATIONS", least)
      assert may_call(gradient, x, w) == may


@needs_onednn
def test_no_program_with_a_call_is_stored(calls, monkeypatch, tmp_path):
  """XLA would read memory that is not its own."""
  stored = []
  monkeypatch.setattr(
    jax._src.compilation_cache,
    "put_executable_and_time",
    lambda *a: stored.append(a[1]),
  )
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
  # A size that no other test has, as JAX keeps what it compiled
  x, w = random(0, 3, 7, 11, 2), random(1, 2, 2, 2, 5)
  jax.jit(lambda a: a * 3)(x[0, 0]).block_until_ready()
  assert stored
  stored.clear()
  conv = fast_convolutions(convolution(2, 1, "SAME"))
  assert "__onednn$convolution" in jax.jit(conv).lower(x, w).as_text()
  jax.jit(conv)(x, w).block_until_ready()
  assert not stored


def test_the_identity_of_a_task_is_the_same_on_all_machines(monkeypatch):
  """It is taken from programs without calls of oneDNN."""

  def program(here):
    with compiling_for("cpu", here=here):
      conv = fast_convolutions(convolution(2, 1, "SAME"))
      traced = jax.jit(conv).trace(random(0, 2, 5, 5, 3), random(1, 3, 3, 3, 4))
    return traced.lower(lowering_platforms=("cpu",)).as_text()

  setting = "jax_persistent_cache_min_compile_time_secs"
  before = jax.config.values[setting]
  monkeypatch.setattr(onednn, "is_usable", lambda: True)
  assert "onednn" not in program(here=False)
  assert "onednn" in program(here=True)
  jax.config.update(setting, before)


# The trial


@pytest.fixture
def trial(monkeypatch, tmp_path):
  """A processor with instructions of bfloat16 that was not tried yet. Returns the results
  of trials to come, and of those asked for.
  """
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.delenv(onednn.SWITCH, raising=False)
  monkeypatch.setattr(onednn, "instruction_set", lambda: "x86_64 avx512_bf16")
  monkeypatch.setattr(onednn.platform, "machine", lambda: "x86_64")
  monkeypatch.setattr(onednn.sys, "platform", "linux")
  monkeypatch.setattr(onednn.jax, "__version_info__", onednn.OLDEST_JAX)
  results = []
  asked = []

  def passes():
    asked.append(results[0])
    return results.pop(0)

  monkeypatch.setattr(onednn, "_passes_trial", passes)
  return results, asked


def ask_anew():
  """Ask as a new process does."""
  onednn.is_usable.cache_clear()
  usable = onednn.is_usable()
  onednn.is_usable.cache_clear()
  return usable


@pytest.mark.parametrize("passes", [True, False])
def test_calls_are_tried_once_for_a_version_and_a_processor(trial, monkeypatch, passes):
  results, asked = trial
  results += [passes, not passes, passes]
  assert ask_anew() == ask_anew() == passes
  assert asked == [passes]
  monkeypatch.setattr(jaxlib, "__version__", "99.0")
  assert ask_anew() == ask_anew() == (not passes)
  monkeypatch.setattr(onednn, "instruction_set", lambda: "x86_64 avx512_bf16 amx_bf16")
  assert ask_anew() == passes
  assert len(asked) == 3
  kept = json.loads((machine.cache_folder() / "onednn.json").read_text())
  assert [*kept.values()] == [passes, not passes, passes]


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("instruction_set", lambda: "x86_64 avx2 avx512f"),
    ("platform.machine", lambda: "aarch64"),
    ("sys.platform", "win32"),
    ("jax.__version_info__", (0, 7, 2)),
  ],
)
def test_other_machines_are_not_tried(trial, monkeypatch, name, value):
  monkeypatch.setattr(f"vmapseeds.convolutions.onednn.{name}", value)
  assert not ask_anew()


def test_calls_can_be_turned_off(trial, monkeypatch):
  results, _ = trial
  results.append(True)
  monkeypatch.setenv(onednn.SWITCH, "0")
  assert not ask_anew()
  monkeypatch.setenv(onednn.SWITCH, "1")
  assert ask_anew()


def test_a_result_that_cannot_be_kept_counts_as_none(trial, monkeypatch):
  """Else processes of one campaign might differ."""
  results, asked = trial
  results += [True, True]
  Path(machine.cache_folder().parent).write_text("a file where the folder would be")
  assert not ask_anew()
  assert asked == [True]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"jaxlib": 3}'])
def test_a_damaged_file_of_results_is_written_anew(trial, text):
  results, asked = trial
  results.append(True)
  machine.cache_folder().mkdir(parents=True)
  (machine.cache_folder() / "onednn.json").write_text(text)
  assert ask_anew()
  assert ask_anew()
  assert asked == [True]


@pytest.mark.parametrize(
  "executable",
  [
    "#!/bin/sh\nexit 1\n",
    "#!/bin/sh\nkill -ABRT $$\n",
    "#!/bin/sh\nkill -SEGV $$\n",
    "#!/bin/sh\nsleep 9\n",
    None,
  ],
)
def test_a_child_process_that_fails_is_no_harm(
  monkeypatch, tmp_path, capfd, executable
):
  monkeypatch.setattr(onednn, "PATIENCE", 0.5)
  path = tmp_path / "python"
  if executable is not None:
    path.write_text(executable)
    path.chmod(0o700)
  monkeypatch.setattr(sys, "executable", str(path))
  assert not onednn._passes_trial()
  assert capfd.readouterr() == ("", "")


def test_a_child_process_that_may_not_be_started_is_no_harm(monkeypatch):
  monkeypatch.setattr(sys, "executable", None)
  assert not onednn._passes_trial()

  def refuse(*_, **__):
    raise PermissionError

  monkeypatch.setattr(subprocess, "run", refuse)
  assert not onednn._passes_trial()


@needs_onednn
@pytest.mark.slow
def test_this_machine_passes():
  assert onednn._passes_trial()


def test_a_wrong_result_fails_the_trial(monkeypatch):
  def zeros(name, kind, config, like, *args):
    return jnp.zeros(like.shape, like.dtype)

  monkeypatch.setattr(onednn, "_call", zeros)
  with pytest.raises(AssertionError, match="Not equal to tolerance"):
    onednn.compare_with_xla()


# Runs


@pytest.mark.parametrize("width", [1, 2], ids="width {}".format)
@needs_onednn
@pytest.mark.slow
@pytest.mark.optimized
def test_a_run_depends_on_its_row_alone(calls, width):
  """Its neighbours and its place change no bit, by oneDNN too."""
  rng = np.random.default_rng(0)
  data = DeviceExamples(
    rng.integers(0, 256, (16, 8, 8, 1), np.uint8),
    rng.integers(0, 10, 16, np.int32),
    np.array([128], np.float32),
    np.array([64], np.float32),
    10,
  )
  recipe = vs.recipe("digits_cnn", epochs=1, batch_size=8, precision="bfloat16")
  runs = recipe_lanes(recipe, vs.Runs.independent(4), 16)
  order = np.array([3, 1])
  some = jax.tree.map(lambda a: np.asarray(a)[order], runs)
  step = lanes.spread(
    lambda data, run: train(recipe, data, run), width=width, devices=jax.devices()[:1]
  )
  all_runs, chosen = (
    [
      np.concatenate([np.asarray(part) for part in parts])
      for parts in zip(
        *(jax.tree.leaves(out) for _, out in step(data, of)), strict=True
      )
    ]
    for of in (runs, some)
  )
  for a, b in zip(chosen, all_runs, strict=True):
    np.testing.assert_array_equal(a, b[order])
  assert any(np.issubdtype(a.dtype, np.floating) for a in all_runs)
