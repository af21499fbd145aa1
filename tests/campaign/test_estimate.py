"""Compilers' estimates of lanes: read correctly, made for absent devices too, and used
by campaigns.
"""

import dataclasses
import json
import math
import re
import textwrap

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import vmapseeds as vs
from experiments.benchmarks import bench, estimates, target
from experiments.benchmarks.abstract import abstract_task
from experiments.benchmarks.estimates import (
  TARGETS,
  absent,
  estimate_candidates,
  fastest_estimate,
  make_estimator,
)
from experiments.benchmarks.hlo import Program, size
from vmapseeds.campaign import execution
from vmapseeds.convolutions import conv_general_dilated
from vmapseeds.errors import Failure
from vmapseeds.lanes import (
  Execution,
  choice,
  narrower_width,
  parse_oom_message,
  spreading,
)
from vmapseeds.lanes.memory import MemoryFit
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.recipe_data import random_examples
from vmapseeds.training.runs import Runs
from vmapseeds.training.supervised import load_recipe_task
from vmapseeds.training.task import bind_runs, lanes_of, trace, trial_of

CHIP = TARGETS["v5e"].chip._replace(clock=1e9, flops=1e12, bandwidth=1e9)
FAST = CHIP._replace(bandwidth=math.inf)
ONE = Runs.independent(1)
BINARY = "experiments.banerjee2024.network:CNN_CIFAR10_BINARY"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


# Reading programs.


@pytest.mark.parametrize(
  ("shape", "bytes", "main"),
  [
    ("f32[3,4]", 48, 48),
    ("(pred[8], bf16[2,2]{1,0}, u32[])", 8 + 8 + 4, 20),
    ("f32[64,10]{1,0:T(8,128)}", 64 * 128 * 4, 64 * 128 * 4),
    ("f32[64,10]{0,1:T(8,128)}", 16 * 128 * 4, 16 * 128 * 4),
    ("u8[2,32,32,3]{3,2,1,0:T(8,128)(4,1)S(1)}", 2 * 32 * 32 * 128, 0),
    ("f32[5,3,3,1,16]{4,3,0,2,1:T(1,128)}", 5 * 9 * 128 * 4, 5 * 9 * 128 * 4),
    ("s4[16]", 8, 8),
    ("()", 0, 0),
  ],
)
def test_arrays_take_the_bytes_of_their_tiles(shape, bytes, main):
  assert (size(shape), size(shape, main=True)) == (bytes, main)


def program(body, others="", chip=CHIP, rounds=1):
  """The cost of an entry computation of these lines, and of others that they call."""
  entry = (
    "ENTRY %main (a: f32[1000]) -> f32[1000] {\n  %a = f32[1000]{0} parameter(0)\n"
    + textwrap.indent(body, "  ")
  )
  return Program(f"HloModule m\n\n{others}\n{entry}\n}}\n", chip, rounds).total()


ESTIMATED = 'backend_config={"window_config":{"estimated_cycles":"500"}}'
FUSED = """
%scale (p: f32[1000]) -> f32[1000] {
  %p = f32[1000]{0} parameter(0)
  ROOT %twice = f32[1000]{0} add(%p, %p)
}

%row (p: f32[100,1000], i: s32[]) -> f32[1,1000] {
  %p = f32[100,1000]{1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %slice = f32[1,1000]{1,0} dynamic-slice(%p, %i, %i), dynamic_slice_sizes={1,1000}
}

%put (p: f32[100,1000], r: f32[1,1000], i: s32[]) -> f32[100,1000] {
  %p = f32[100,1000]{1,0} parameter(0)
  %r = f32[1,1000]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %update = f32[100,1000]{1,0} dynamic-update-slice(%p, %r, %i, %i)
}
"""


def test_estimated_operations_take_their_cycles_and_others_are_charged():
  estimated = f"%f = f32[1000]{{0}} fusion(%a), kind=kLoop, calls=%scale, {ESTIMATED}"
  assert program(estimated, FUSED, FAST) == (500 / 1e9, 8000, 1)
  assert program(estimated, FUSED) == (8000 / 1e9, 8000, 1), "as long as the bytes take"
  cost = program("%f = f32[1000]{0} fusion(%a), kind=kLoop, calls=%scale", FUSED)
  assert cost == (pytest.approx(2 * 8000 / 1e9), 8000, 1)
  # Twice the larger time of bytes and products, and at least a launch.
  product = "%b = f32[1000,1000]{1,0} parameter(1)\n%c = f32[1000,1000]{1,0} dot(%b, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
  assert program(product).seconds == pytest.approx(2 * 12e6 / 1e9)
  assert program(product, chip=CHIP._replace(flops=1e9)).seconds == pytest.approx(
    2 * 2e9 / 1e9
  )
  assert program(product, chip=CHIP._replace(launch=9.0)).seconds == 9.0
  assert program("%g = (f32[1000]{0}) tuple(%a)") == (0, 0, 0)


@pytest.mark.parametrize("target", ["tpu_custom_call", "Sharding"])
def test_what_the_compiler_does_not_know_is_never_free(target):
  cost = program(f'%c = f32[10]{{0}} custom-call(%a), custom_call_target="{target}"')
  assert cost == (pytest.approx(2 * 4040 / 1e9), 4040, 1)
  assert program(
    '%c = f32[10]{0} custom-call(%a), custom_call_target="ConcatBitcast"'
  ) == (0, 0, 0), "but this is a bitcast"
  sort = program("%s = f32[1000]{0} sort(%a), dimensions={0}, to_apply=%less")
  assert sort.seconds == pytest.approx(2 * 8000 / 1e9)


def test_slices_gathers_and_updates_move_what_they_take():
  many = "%m = f32[100,1000]{1,0} parameter(1)\n%i = s32[] parameter(2)\n"
  row = program(
    many + "%r = f32[1,1000]{1,0} fusion(%m, %i), kind=kLoop, calls=%row", FUSED
  )
  assert row.traffic == 4000 + 4000 + 4
  put = program(
    many
    + "%n = f32[1,1000]{1,0} parameter(3)\n%u = f32[100,1000]{1,0} fusion(%m, %n, %i), kind=kLoop, calls=%put",
    FUSED,
  )
  assert put.traffic == 4000 + 4000 + 4
  gather = program(many + "%g = f32[7,1000]{1,0} gather(%m, %i), slice_sizes={1,1000}")
  assert gather.traffic == 2 * 28000
  # A copy that runs beside the rest moves bytes, once of the two memories.
  start = "%s = (f32[1000]{0:T(128)S(1)}, f32[1000]{0:T(128)}, u32[]) copy-start(%a)\n%d = f32[1000]{0:T(128)S(1)} copy-done(%s)"
  assert program(start) == (4096 / 1e9, 4096, 0)
  assert program(start, chip=FAST) == (0, 4096, 0)


LOOP = """
%body (p: (s32[], f32[1000])) -> (s32[], f32[1000]) {{
  %p = (s32[], f32[1000]{{0}}) parameter(0)
  %x = f32[1000]{{0}} get-tuple-element(%p), index=1
  %f = f32[1000]{{0}} fusion(%x), kind=kLoop, calls=%scale, {estimated}
  ROOT %t = (s32[], f32[1000]{{0}}) tuple(%x, %f)
}}

%condition (p: (s32[], f32[1000])) -> pred[] {{
  %p = (s32[], f32[1000]{{0}}) parameter(0)
  {limit}
  ROOT %l = pred[] constant(true)
}}
"""


@pytest.mark.parametrize(
  ("limit", "known", "times"),
  [
    ("%c = s32[] constant(7)", "", 7),
    ("%c = s32[] constant(7)", ', backend_config={"known_trip_count":{"n":"12"}}', 12),
    ("", "", 3),
  ],
)
def test_loops_count_as_often_as_they_run(limit, known, times):
  others = FUSED + LOOP.format(limit=limit, estimated=ESTIMATED)
  loop = (
    f"%w = (s32[], f32[1000]{{0}}) while(%a), condition=%condition, body=%body{known}"
  )
  assert program(loop, others, FAST, rounds=3) == pytest.approx(
    (times * 500 / 1e9, times * 8000, times)
  )


@pytest.mark.parametrize(
  ("kind", "operands", "output"),
  [
    ("convolution", ("x", "w"), "y"),
    ("__cudnn$convForward", ("x", "w"), "y"),
    ("__cudnn$convBackwardInput", ("y", "w"), "x"),
    ("__cudnn$convBackwardFilter", ("x", "y"), "w"),
  ],
)
def test_convolutions_cost_their_products_in_each_direction(kind, operands, output):
  shapes = {
    "x": "bf16[5,8,8,16]{3,2,1,0}",
    "w": "bf16[3,3,16,32]{3,2,1,0}",
    "y": "bf16[5,8,8,32]{3,2,1,0}",
  }
  given = "\n".join(
    f"%{o} = {shapes[o]} parameter({i})" for i, o in enumerate(operands, 1)
  )
  call = "convolution" if kind == "convolution" else "custom-call"
  line = f'%c = {shapes[output]} {call}(%{operands[0]}, %{operands[1]}), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f, custom_call_target="{kind}"'
  cost = program(f"{given}\n{line}", chip=FAST)
  assert cost.seconds == pytest.approx(2 * (2 * 5 * 8 * 8 * 32 * 3 * 3 * 16) / 1e12)


# Memory.


def test_the_compiler_says_how_much_it_needs():
  used = "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 74.21G of 15.75G hbm. Exceeded hbm capacity by 58.46G."
  assert parse_oom_message(ValueError(used)) == (74.21 * 2**30, 15.75 * 2**30)
  total = "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (64.00G) exceeds available HBM (512.5M)."
  assert parse_oom_message(ValueError(total)) == (64 * 2**30, 512.5 * 2**20)
  assert parse_oom_message(
    ValueError("RESOURCE_EXHAUSTED: Out of memory allocating 99 bytes.")
  ) == (
    None,
    None,
  )


def test_the_next_width_ought_to_fit():
  assert narrower_width(64, 74e9, 16e9) == 8, "64 * 16 / 74 is 13.8"
  assert narrower_width(64, 17e9, 16e9) == 32
  assert narrower_width(100, 17e9, 16e9) == 32, "at most half, though 95 ought to fit"
  assert narrower_width(2, 17e9, 16e9) == narrower_width(2, 1e15, 16e9) == 1
  assert (narrower_width(64, None, None), narrower_width(5, None, None)) == (32, 2)


def speaking(bytes_a_lane, available=100.0):
  """A fake compiler that says what fits, and the list of what it was asked about."""
  asked = []

  def check(execution):
    asked.append(execution)
    needed = bytes_a_lane * execution.width
    return MemoryFit(needed <= available, needed, available)

  return asked, check


WANTED = [Execution("grouped", 64), Execution("sequential", 1), Execution("im2col", 64)]


def test_candidates_are_compiled_when_they_are_asked_for():
  asked, check = speaking(1.0)
  assert next(choice.fitting_candidates(WANTED, check)) == WANTED[0]
  assert asked == WANTED[:1]
  asked, check = speaking(10.0)
  assert next(choice.fitting_candidates(WANTED, check)) == ("grouped", 8)
  assert asked == [Execution("grouped", 64), Execution("grouped", 8)], (
    "no width between them was compiled"
  )


def test_no_candidate_is_compiled_twice():
  asked, check = speaking(10.0)
  wanted = [*WANTED, Execution("grouped", 8), WANTED[0]]
  fitting = list(choice.fitting_candidates(wanted, check))
  assert fitting == [("grouped", 8), ("sequential", 1), ("im2col", 8)]
  assert len(asked) == len(set(asked)) == 5
  asked, check = speaking(1000.0)
  assert list(choice.fitting_candidates(WANTED, check)) == []
  assert Execution("grouped", 1) in asked
  asked, check = speaking(10.0)
  assert list(choice.fitting_candidates(WANTED[:1], check, narrow=False)) == []
  assert asked == WANTED[:1]


@pytest.mark.parametrize(
  ("speed", "model_steps", "compiled"),
  [(1e-3, 10**6, 1), (1.0, 10**6, 3), (1e-3, 1, 1)],
)
def test_compiling_ends_with_the_budget(monkeypatch, speed, model_steps, compiled):
  monkeypatch.setattr(choice, "SHORT_CAMPAIGN", 0.0)
  now = [0.0]
  monkeypatch.setattr(choice.time, "monotonic", lambda: now[0])
  asked, check = speaking(1.0)

  def slow(execution):
    now[0] += 25.0
    return check(execution)

  monkeypatch.setattr(choice, "BUDGET", 20.0)
  choice.time_candidates(
    choice.fitting_candidates(WANTED, slow), {}, lambda _: speed, model_steps
  )
  assert len(asked) == compiled


@pytest.fixture
def choose(monkeypatch):
  """A function that chooses on a GPU that is not here, where `refuse` may raise for a
  candidate that is compiled or measured; the others take one second more each.
  """
  task = abstract_task(vs.recipe("digits_cnn"))
  monkeypatch.setitem(choice.CANDIDATES, "gpu", tuple(WANTED))

  def chosen(compiling=lambda how: None, measuring=lambda how: None, **options):
    def measure(task, how):
      measuring(how)
      return execution.Speed(1.0 + WANTED.index(how), 0.0)

    def check(how):
      compiling(how)
      return MemoryFit(True, 1.0, 2.0)

    monkeypatch.setattr(execution, "measure_speed", measure)
    run = lanes_of(task, ONE)
    fixed = dict(model_steps=10**9, most=64, check=check, platform="gpu")
    return execution.choose_execution(task, run, **fixed | options)

  return chosen


def refuse(*refused, error="CUDNN_STATUS_NOT_SUPPORTED in cudnn_frontend"):
  def raising(how):
    if how in refused:
      raise jax.errors.JaxRuntimeError(f"INTERNAL: {error}\n{how}")

  return raising


def test_a_candidate_that_is_refused_does_not_end_a_campaign(choose, capsys):
  first, second, third = WANTED
  assert choose(measuring=refuse(first)) == second
  lines = capsys.readouterr().err.splitlines()
  assert [line for line in lines if "not run" in line] == [
    "grouped 64 does not run here: INTERNAL: CUDNN_STATUS_NOT_SUPPORTED in "
    "cudnn_frontend grouped 64"
  ]
  # It is not stored, so it is tried again.
  assert choose() == first
  # A short campaign measures none, and takes the first that compiles.
  kept = choice.timings_file()
  kept.unlink()
  assert choose(compiling=refuse(first), model_steps=1) == second
  assert choose(compiling=refuse(first, second)) == third


def test_if_every_candidate_is_refused_one_line_says_so(choose, capsys):
  for given in ({"compiling": refuse(*WANTED)}, {"measuring": refuse(*WANTED)}):
    with pytest.raises(Failure) as failed:
      choose(**given)
    assert str(failed.value) == (
      "digits_cnn does not run on cpu in any of the 3 lowerings and lane widths that were "
      "tried: give another lowering= or lane_width=; im2col 64: INTERNAL: "
      "CUDNN_STATUS_NOT_SUPPORTED in cudnn_frontend im2col 64"
    )
    assert isinstance(failed.value.__cause__, jax.errors.JaxRuntimeError)
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_errors_of_the_users_own_are_raised(choose, capsys):
  def typo(how):
    raise TypeError("my_loss() got an unexpected argument")

  for given in ({"compiling": typo}, {"measuring": typo}):
    with pytest.raises(TypeError, match="my_loss"):
      choose(**given)
  called_back = "CpuCallback error: Traceback (most recent call last): ValueError: mine"
  with pytest.raises(jax.errors.JaxRuntimeError, match="ValueError: mine"):
    choose(measuring=refuse(*WANTED, error=called_back))
  assert capsys.readouterr().err == ""


def test_bench_shows_what_is_refused_as_what_does_not_fit(monkeypatch, capsys):
  refused, runs = Execution("im2col", 1), Execution("sequential", 1)

  def measure(task, how):
    refuse(refused)(how)
    return execution.Speed(1.0, 0.0, 1e6)

  monkeypatch.setattr(bench, "measure_speed", measure)
  recipe = vs.recipe("digits_cnn")
  rows = bench.bench(recipe, widths=[1], lowerings=["im2col", "sequential"])
  assert [(row["fits"], row["chosen"]) for row in rows] == [
    (False, False),
    (True, True),
  ]
  assert "im2col 1 does not run here: INTERNAL: CUDNN_" in capsys.readouterr().err
  stored = choice.read_timings(execution.cache_key(abstract_task(recipe)))
  assert stored == {runs: 1.0}
  with pytest.raises(Failure, match="digits_cnn does not run on cpu in any of the 1 "):
    bench.bench(recipe, widths=[1], lowerings=["im2col"])


def test_a_campaign_measures_what_fits(monkeypatch, capsys):
  measured = []
  speeds = {
    Execution("grouped", 8): 5.0,
    Execution("sequential", 1): 4.0,
    Execution("im2col", 8): 3.0,
  }
  monkeypatch.setattr(
    execution,
    "measure_speed",
    lambda task, how: measured.append(how) or execution.Speed(speeds[how], 0.0),
  )
  monkeypatch.setitem(choice.CANDIDATES, "tpu", tuple(WANTED))
  asked, check = speaking(10.0)
  task = abstract_task(vs.recipe("digits_cnn"))

  def choose(model_steps, **options):
    return execution.choose_execution(
      task,
      lanes_of(task, ONE),
      model_steps=model_steps,
      most=64,
      check=check,
      platform="tpu",
      **options,
    )

  assert choose(10**9) == ("im2col", 8)
  assert measured == list(speeds)
  # The execution known to be fastest is taken again if it fits; a short campaign
  # compiles no other.
  asked.clear()
  assert choose(1) == ("im2col", 8)
  assert asked == [Execution("im2col", 8)]
  # A given width is kept, or refused as too large.
  assert choose(1, width=10, progress=False).width == 10
  with pytest.raises(
    vs.UserError,
    match=r"digits_cnn lane_width=11 needs 0 MB of 0 MB of memory: give a smaller lane width, batch",
  ):
    choose(1, width=11)


# Targets.


def test_a_target_that_cannot_be_compiled_for_is_a_mistake(monkeypatch):
  with pytest.raises(
    vs.UserError, match="unknown target 'v7': choose one of v5e, v6e, v4, v3, v2, h100"
  ):
    absent("v7")

  def missing(*_, **__):
    raise RuntimeError("JAX TPU support not installed;\ncannot generate TPU topology.")

  monkeypatch.setattr(estimates.topologies, "get_topology_desc", missing)
  with pytest.raises(
    vs.UserError,
    match=re.escape(
      "topology.): pip install 'vmapseeds[aot]', and start with JAX_PLATFORMS=cpu"
    ),
  ):
    absent("v5e")
  with pytest.raises(
    vs.UserError, match=re.escape("pip install 'vmapseeds[aot]' 'jax>=0.10', and")
  ):
    absent("h100")


def test_devices_are_known_by_their_kind():
  kinds = {
    "TPU v5 lite": "v5e",
    "TPU v6 lite": "v6e",
    "NVIDIA H100 80GB HBM3": "h100",
    "TPU v2": "v2",
  }
  assert {kind: estimates.target_of(kind) for kind in kinds} == {
    kind: TARGETS[name] for kind, name in kinds.items()
  }
  assert estimates.target_of(jax.devices("cpu")[0].device_kind) is None


def test_what_examples_look_like_is_known_without_the_data():
  task = abstract_task(vs.recipe(BINARY))
  train, tests = task.data
  assert (train.inputs.shape, train.inputs.dtype, tests["test"].targets.shape) == (
    (40_000, 32, 32, 3),
    "uint8",
    (8_000,),
  )
  assert (
    train.num_classes,
    tests["test"].num_classes,
    task.outputs["test/predictions"].num_classes,
    task.steps,
  ) == (2, 2, 2, 1250)
  train, tests = abstract_task(
    vs.recipe("digits_cnn", test_sets=("train", "test"))
  ).data
  assert (
    train.inputs.shape,
    tests["test"].inputs.shape,
    tests["train"].targets.shape,
  ) == ((1000, 8, 8, 1), (797, 8, 8, 1), (1000,))
  assert train.num_classes == 10
  assert {type(leaf) for leaf in jax.tree.leaves((train, tests))} == {
    jax.ShapeDtypeStruct
  }


@pytest.mark.parametrize(
  ("inputs", "dtype", "targets", "classes"),
  [
    ((4, 4, 3), "uint8", (), 5),
    ((4, 4, 3), "float32", (2,), None),
    ((7,), "int32", (7,), 5),
    ((), "float32", (), None),
  ],
)
def test_trials_are_on_examples_that_look_like_the_data(
  inputs, dtype, targets, classes
):
  moment = None if dtype == "int32" else np.zeros(3, np.float32)
  kind = "float32" if classes is None else "int32"
  like = DeviceExamples(
    jax.ShapeDtypeStruct((1, *inputs), dtype),
    jax.ShapeDtypeStruct((1, *targets), kind),
    moment,
    moment,
    classes,
  )
  drawn = random_examples(like, 6)
  assert (
    drawn.inputs.shape,
    drawn.inputs.dtype,
    drawn.targets.shape,
    drawn.targets.dtype,
  ) == ((6, *inputs), dtype, (6, *targets), kind)
  assert len(np.unique(drawn.inputs)) > 1
  assert classes is None or (drawn.targets.min() >= 0 and drawn.targets.max() < classes)
  assert (drawn.mean is None, drawn.num_classes) == (moment is None, classes)


class Words(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(2)(nn.Embed(9, 3)(x).mean(1))


@pytest.mark.parametrize(
  ("model", "inputs"),
  [
    (Words(), np.ones((4, 5), np.int32)),
    ("small_cnn", np.ones((4, 8, 8, 1), np.uint8)),
  ],
)
def test_inputs_that_are_not_normalised_reach_the_network_as_they_are(model, inputs):
  """This holds where shapes are checked, products are counted, and the network is
  tried.
  """
  given, runs = (inputs, np.array([0, 1, 0, 1])), Runs.independent(1)
  data = vs.Dataset(train=given, test=given)
  recipe = vs.recipe(
    "digits_cnn", model=model, dataset=data, batch_size=2, normalize=False, augment=""
  )
  task = load_recipe_task(recipe, runs)
  assert trace(task, bind_runs(task, runs)).shapes["test/predictions"].shape == (4,)
  trial = trial_of(task)
  assert trace(trial, bind_runs(trial, runs)).shapes.keys() == {"diverged"}
  if isinstance(model, Words):
    assert flops(task) == 3 * 2 * (2 * 3 * 2)


def flops(task):
  return execution.product_flops(task, lanes_of(task, ONE))


def flops_of(recipe):
  return flops(abstract_task(recipe))


def test_products_of_small_networks():
  # Two convolutions of 3×3 and a dense layer; the first convolution has no input
  # gradient.
  first, second, dense = 2 * 64 * 9 * 16, 2 * 16 * 9 * 16 * 32, 2 * 128 * 10
  assert flops_of(vs.recipe("digits_cnn", batch_size=10)) == 10 * (
    2 * first + 3 * second + 3 * dense
  )
  first, second = 2 * 32**2 * 27 * 32, 2 * 16**2 * 9 * 32 * 16
  dense = 2 * (8 * 8 * 16 * 64 + 64 * 2)
  assert flops_of(vs.recipe(BINARY, batch_size=10)) == 10 * (
    2 * first + 3 * second + 3 * dense
  )


@pytest.mark.parametrize("stride", [1, 2])
def test_products_of_convolutions_by_hand_are_those_of_xla(stride):
  x, w = np.zeros((2, 6, 6, 4), np.float32), np.zeros((3, 3, 2, 8), np.float32)

  def gradients(convolve):
    numbers = ("NHWC", "HWIO", "NHWC")
    options = dict(dimension_numbers=numbers, feature_group_count=2)
    return jax.make_jaxpr(
      jax.value_and_grad(
        lambda x, w: (convolve(x, w, (stride,) * 2, "SAME", **options) ** 2).sum(),
        (0, 1),
      )
    )(x, w).jaxpr

  ours, theirs = (
    sorted(execution.yield_product_flops(gradients(convolve)))
    for convolve in (conv_general_dilated, jax.lax.conv_general_dilated)
  )
  one = 2 * 2 * (6 // stride) ** 2 * 8 * 9 * 2
  assert ours == [one] * 3
  # XLA's kernel gradient has more, with the groups' other channels.
  assert theirs[:2] == [one] * 2


@pytest.mark.slow
def test_products_of_the_flagship():
  assert flops_of(vs.recipe("resnet9_cifar10")) == pytest.approx(796e9, rel=0.1), (
    "XLA leaves out padding"
  )


def test_products_count_as_often_as_they_run():
  x, w = np.zeros((3, 5), np.float32), np.zeros((5, 5), np.float32)

  def recurrent(x, w):
    x = jax.lax.scan(
      lambda x, _: (jax.jit(jax.checkpoint(jax.nn.relu))(x @ w), None), x, length=7
    )[0]
    return jax.lax.map(lambda row: row @ w[:, :2], x)

  assert (
    sum(execution.yield_product_flops(jax.make_jaxpr(recurrent)(x, w).jaxpr))
    == 7 * 2 * 3 * 5 * 5 + 3 * 2 * 5 * 2
  )


def test_products_of_a_task_of_ones_own():
  x = np.zeros((7, 5), np.float32)

  def advance(data, run, state, first, last):
    unused = data @ data.T  # no product of the training
    step = lambda _, w: w - data.T @ (data @ w) * (1 + 0 * unused.shape[0])  # noqa: E731
    return jax.lax.fori_loop(0, 3, step, state)

  task = vs.Task(
    name="mine",
    start=lambda data, run: jnp.zeros((5, 2)),
    advance=advance,
    finish=lambda data, run, state: {"w": state},
    data=x,
    steps=3,
    rounds=4,
    sources=(),
  )
  assert flops(task) == 2 * (2 * 7 * 5 * 2)
  assert flops(dataclasses.replace(task, rounds=0)) == 0


@pytest.mark.slow
def test_large_networks_need_few_lanes():
  # These widths let the flagship fit into 16 GB by default, and save compiling what
  # does not fit.
  def width(name, platform):
    task = abstract_task(vs.recipe(name))
    return execution.filling_width(task, lanes_of(task, ONE), platform)

  assert width("resnet9_cifar10", "tpu") == 2
  assert width(BINARY, "gpu") > 256
  assert width("resnet9_cifar10", "cpu") > 10**6
  asked, check = speaking(1.0)
  flagship = abstract_task(vs.recipe("resnet9_cifar10"))
  chosen = execution.choose_execution(
    flagship,
    lanes_of(flagship, ONE),
    model_steps=1,
    most=100,
    check=check,
    platform="tpu",
  )
  assert chosen == ("sequential", 1)
  assert asked == [chosen], "a short campaign compiles one form"


LINEAR = vs.recipe("digits_cnn", model="linear", batch_size=100)


def asking(recipe, name):
  task = abstract_task(recipe)
  return make_estimator(task, lanes_of(task, ONE), name)


@pytest.fixture(scope="module")
def tpu():
  pytest.importorskip("libtpu", reason="needs vmapseeds[aot]")


@pytest.fixture
def compiled_programs(tmp_path):
  """JAX's cache of compiled programs, in a folder of its own."""
  before = {
    name: getattr(jax.config, name)
    for name in (
      "jax_compilation_cache_dir",
      "jax_persistent_cache_min_compile_time_secs",
    )
  }
  jax.config.update("jax_compilation_cache_dir", str(tmp_path / "xla"))
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
  compilation_cache.reset_cache()
  yield tmp_path / "xla"
  for name, value in before.items():
    jax.config.update(name, value)
  compilation_cache.reset_cache()


@pytest.mark.slow
@pytest.mark.optimized
def test_a_tpu_that_is_not_here_is_compiled_for(tpu, compiled_programs):
  jax.jit(lambda x: x + 2)(1).block_until_ready()
  kept = len(list(compiled_programs.iterdir()))
  few = asking(LINEAR, "v5e")(Execution("grouped", 4))
  assert few.fits
  assert len(list(compiled_programs.iterdir())) == kept > 0, (
    "what cannot be read again is not kept"
  )
  # Images, whose rows of 8 pixels take tiles of 128, and parameters and momentum.
  assert 2e5 < few.memory_bytes < 5e6
  assert 0 < few.traffic_bytes / TARGETS["v5e"].chip.bandwidth < few.seconds < 1e-3
  # By its count of products the program cannot be faster than the roof.
  assert few.seconds > flops_of(LINEAR) / TARGETS["v5e"].chip.flops


@pytest.mark.slow
@pytest.mark.optimized
def test_no_campaign_starts_with_a_width_that_does_not_fit(tpu, monkeypatch, capsys):
  monkeypatch.setitem(
    choice.CANDIDATES, "tpu", (("grouped", 65536), ("sequential", 65536))
  )
  recipe = LINEAR.replace(batch_size=1000)
  asked, estimator = [], asking(recipe, "v2")

  def check(how):
    asked.append((how, MemoryFit(*estimator(how)[:3])))
    return asked[-1][1]

  task = abstract_task(recipe)
  how = execution.choose_execution(
    task, lanes_of(task, ONE), model_steps=1, most=10**5, check=check, platform="tpu"
  )
  (first, large), (second, fitting) = asked
  assert (first.width, how) == (65536, second)
  assert 7.48 * 2**30 < large.memory_bytes < 1e12
  assert not large.fits
  assert fitting.fits
  assert fitting.memory_bytes < 7.48 * 2**30
  # As wide as memory allows, up to the factor of two that rounding to powers of two may
  # cost.
  assert how.width > 0.95 * 65536 * 7.48 * 2**30 / large.memory_bytes / 2


@pytest.mark.slow
@pytest.mark.optimized
def test_the_command_estimates_a_recipe_and_a_task(tpu, tmp_path, capsys, monkeypatch):
  monkeypatch.setenv("COLUMNS", "80")
  few = ["--widths", "2", "--lowerings", "grouped", "--set", "model=linear"]
  file = tmp_path / "t.json"
  target.main(["digits_cnn", "v5e", *few, "--json", str(file)])
  out = capsys.readouterr().out
  assert "digits_cnn on v5e" in out
  assert all(len(line) <= 80 for line in out.splitlines())
  record = json.loads(file.read_text())
  assert (record["recipe"], record["target"]) == ("digits_cnn", "v5e")
  (row,) = record["candidates"]
  assert (row["lowering"], row["width"], row["fits"]) == ("grouped", 2, True)
  assert 0 < row["roofline_us"] < row["estimate_us"]
  assert 0 < row["traffic_us"] < row["estimate_us"]
  assert row["chosen"]
  task = vs.Task(
    name="walk",
    start=lambda data, run: jax.random.normal(run.key("init"), (4, 4)),
    advance=lambda data, run, state, first, last: state @ state,
    finish=lambda data, run, state: {"x": state},
    sources=("init",),
  )
  (row,) = target.print_estimates(task, "v5e", [2], ["sequential"])
  assert row["fits"]
  assert row["estimate_us"] > 0


def test_the_best_estimate_is_the_fastest_that_fits():
  def estimator(how):
    fits = how.width < 64
    return estimates.StepEstimate(
      fits, 2.0 * how.width, 100.0, float(how.width) if fits else None
    )

  found = estimate_candidates(WANTED, estimator)
  assert fastest_estimate(found) == ("sequential", 1)
  assert fastest_estimate({}) is None
  assert {how.width for how in found} == {64, 32, 1}


@pytest.fixture
def h100():
  pytest.importorskip("jax_cuda12_plugin", reason="needs vmapseeds[aot]")
  if jax.__version_info__ < (0, 10):
    pytest.skip("JAX compiles for a GPU that is not there from 0.10 on")
  if jax.config.jax_platforms != "cpu":
    pytest.skip(
      "JAX leaves the compiler out where there is no GPU, unless JAX_PLATFORMS=cpu"
    )


@pytest.mark.optimized
def test_an_h100_that_is_not_here_is_compiled_for(h100):
  said = asking(LINEAR, "h100")(Execution("grouped", 4))
  assert said.fits
  assert said.launches * TARGETS["h100"].chip.launch <= 4 * said.seconds < 1e-2


@pytest.mark.slow
def test_sums_at_equal_places_have_an_order_on_an_h100(h100):
  """Atomic additions would come in another order each time."""
  devices = [absent("h100")]
  step = spreading._compile_step(
    lambda places, lane: jnp.zeros((50, 7)).at[places].add(lane),
    spreading._mesh(devices),
  )
  places = spreading.shapes_on_devices(
    np.zeros(1000, np.int32), devices, of_lanes=False
  )
  rows = spreading.shapes_on_devices(
    np.zeros((64, 1000, 7), np.float32), devices, of_lanes=True
  )
  assert " sort(" in step.lower(places, rows).compile().as_text()


@pytest.mark.slow
@pytest.mark.optimized
def test_a_step_of_small_networks_is_few_kernels_on_an_h100(h100):
  said = asking(vs.recipe(BINARY), "h100")(Execution("grouped", 64))
  most = (
    41 if jax.__version_info__ >= (0, 11) else 40
  )  # cuBLAS's products come with a copy
  assert 11 < said.launches < most + 0.5, (
    "its five convolutions and six products among them"
  )
  assert said.traffic_bytes / TARGETS["h100"].chip.bandwidth < 7e-6


def test_one_lane_keeps_its_axis_on_a_tpu_alone(tpu):
  """There layouts are chosen by it: ResNet-9's step is estimated 2 % longer without."""
  for devices, kept in ((jax.devices()[:1], False), ([absent("v5e")], True)):
    step = spreading._compile_step(
      lambda shared, lane: shared @ lane, spreading._mesh(devices)
    )
    shared = spreading.shapes_on_devices(
      np.zeros((5, 7), np.float32), devices, of_lanes=False
    )
    lane = spreading.shapes_on_devices(
      np.zeros((1, 7, 3), np.float32), devices, of_lanes=True
    )
    (product,) = (
      line
      for line in step.lower(shared, lane).as_text().splitlines()
      if "dot_general" in line
    )
    assert ("tensor<1x7x3xf32>" in product) is kept, product


# Timing programs.


@pytest.mark.parametrize("width", [1, 2])
def test_a_trial_is_timed_as_it_is_trained(width):
  """What is timed starts, advances and finishes the runs on the data of the task."""
  seen = []

  def start(data, run):
    return data["target"] + jax.random.normal(run.key("init"), (3,))

  def advance(data, run, state, first, last):
    seen.append((data["target"].shape, jnp.shape(run["lr"])))
    return state - run["lr"] * (last - first) * (state - data["target"])

  task = vs.Task(
    name="descent",
    start=start,
    advance=advance,
    finish=lambda data, run, state: {"distance": abs(state - data["target"]).sum()},
    data={"target": np.ones(3, np.float32)},
    rounds=5,
    sources=("init",),
    values={"lr": 0.25},
    outputs={"distance": vs.Output(role="score")},
  )
  speed = execution.measure_speed(task, Execution("sequential", width))
  assert 0 < speed.seconds < 1
  assert 0 < speed.compile_seconds < 60
  assert set(seen) == {((3,), ())}
