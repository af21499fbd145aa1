"""The race is fair, because all contenders take the same steps, and it reports what
happened to each of them.
"""

import dataclasses
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import words_of
from flax.traverse_util import flatten_dict, unflatten_dict
from test_train import examples

import vmapseeds as vs
from experiments.banerjee2024.network import CNN_CIFAR10_BINARY
from experiments.benchmarks import (
  common,
  contenders,
  convolutions,
  overheads,
  sound,
  tallies,
  training_step,
)
from experiments.benchmarks.contenders import WORKLOADS, Contender, Way, flops, race
from vmapseeds import lanes
from vmapseeds.campaign import block_training
from vmapseeds.campaign.options import Options
from vmapseeds.campaign.planning import check_task, load_task
from vmapseeds.errors import UserError
from vmapseeds.training.inputs import normalize
from vmapseeds.training.loop import train
from vmapseeds.training.networks import initialize, make_network
from vmapseeds.training.recipe_runs import recipe_lanes
from vmapseeds.training.task import lanes_of

# A recipe of each network and optimizer, in the precision that is compared, and its
# images.
RECIPES = {
  "digits": (
    vs.recipe("digits_cnn", precision="float32", schedule="constant"),
    dict(height=8),
  ),
  # Adam's first step divides a gradient by its own size; decay keeps tiny ones, which
  # are rounding, from mattering.
  "binary": (
    CNN_CIFAR10_BINARY.replace(precision="float32", width=0.25, weight_decay=0.1),
    dict(height=16, channels=3, classes=2),
  ),
  "resnet": (
    vs.recipe(
      "resnet9_cifar10", precision="float32", schedule="constant", width=1 / 16, lr=0.05
    ),
    dict(height=16, channels=3),
  ),
}


def setting(name, **changes):
  recipe, shape = RECIPES[name]
  return recipe.replace(**changes), examples(n=12, **shape)


def by_kind(params):
  """Parameters in the order of their layers, for each kind of layer and leaf."""
  found = {}
  for path, leaf in sorted(flatten_dict(params).items()):
    found.setdefault((path[-2].split("_")[0], path[-1]), []).append((path, leaf))
  return found


def renamed(params, like):
  """`params` by the names that `like` has for the same layers."""
  mine, theirs = by_kind(params), by_kind(like)
  return unflatten_dict(
    {
      p: leaf
      for k in theirs
      for (p, _), (_, leaf) in zip(theirs[k], mine[k], strict=True)
    }
  )


def close(got, wanted):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, wanted)


@functools.cache
def trained_digits():
  """Two runs' parameters before and after six steps by vmapseeds."""
  recipe, data = setting("digits", batch_size=4, epochs=2)
  spread = lanes.spread(
    lambda data, run: (
      initialize(recipe, data, run),
      train(recipe, data, run).variables,
    ),
    width=2,
    devices=jax.devices()[:1],
  )
  ((_, variables),) = spread(
    data, recipe_lanes(recipe, vs.Runs.independent(2), len(data))
  )
  return [v["params"] for v in variables]


@pytest.mark.parametrize(("count", "scan"), [(2, True), (1, False)])
@pytest.mark.slow
def test_plain_jax_takes_the_steps_of_vmapseeds(count, scan):
  from experiments.benchmarks.plain_jax import Trainer

  recipe, data = setting("digits", batch_size=4, epochs=2)
  begin, expected = trained_digits()
  if count == 1:
    begin, expected = (jax.tree.map(lambda a: a[0], tree) for tree in (begin, expected))
  trainer = Trainer(recipe, data, lanes=count, scan=scan)
  trainer.state = trainer.state._replace(
    params=renamed(jax.tree.map(jnp.asarray, begin), trainer.state.params)
  )
  for _ in range(recipe.epochs):
    trainer()
  close(trainer.state.params, renamed(expected, trainer.state.params))


def some_state(recipe, data):
  """Random parameters of the plain network, its statistics and its optimizer's state
  before training.
  """
  from experiments.benchmarks.plain_jax import training_functions

  plain = training_functions(recipe, data)
  run = jax.tree.map(
    lambda a: jnp.asarray(a[0]), recipe_lanes(recipe, vs.Runs.independent(1), len(data))
  )
  rng = np.random.default_rng(0)
  shapes = jax.eval_shape(plain.init, run)
  params = jax.tree.map(
    lambda p: (rng.standard_normal(p.shape) * p.size**-0.25).astype(p.dtype),
    shapes.params,
  )
  stats, optimizer = (
    jax.tree.map(lambda p: np.zeros(p.shape, p.dtype), tree) for tree in shapes[1:]
  )
  return (
    plain,
    run,
    shapes._replace(params=params, batch_stats=stats, optimizer=optimizer),
  )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["binary", "resnet"])
def test_plain_jax_has_the_networks_of_vmapseeds(name):
  from experiments.benchmarks.plain_jax import plain_model

  recipe, data = setting(name)
  _, run, state = some_state(recipe, data)
  plain, ours = (
    plain_model(recipe, data.num_classes),
    make_network(recipe, data.num_classes),
  )
  shapes = jax.eval_shape(lambda: initialize(recipe, data, run))
  mine = {"params": renamed(state.params, shapes["params"])}
  if state.batch_stats:
    stats = state.batch_stats["batch_stats"]
    mine["batch_stats"] = renamed(stats, shapes["batch_stats"])
  images = normalize(data.inputs, data.mean, data.std)
  mutable = ["batch_stats"]
  logits, new = jax.jit(lambda v: plain.apply(v, images, mutable=mutable))(
    {"params": state.params, **state.batch_stats}
  )
  expected, wanted = jax.jit(lambda v: ours.train(v, images, jax.random.key(0)))(mine)
  close(logits, expected)
  if state.batch_stats:
    close(new["batch_stats"], renamed(wanted["batch_stats"], new["batch_stats"]))


def torch_layers(params, image, model):
  """Flax parameters as the tensors of a PyTorch model, by name: other axes, and images
  flattened channels first.
  """
  import torch
  from torch import nn

  names = {"kernel": "weight", "scale": "weight", "bias": "bias"}
  kinds = {nn.Conv2d: "Conv", nn.Linear: "Dense", nn.BatchNorm2d: "BatchNorm"}
  leaves = {
    kind: [leaf for _, leaf in found] for kind, found in by_kind(params).items()
  }
  tensors = {}
  channels, flat = None, True
  for path, module in model.named_modules():
    for (kind, leaf), arrays in leaves.items():
      if kinds.get(type(module)) != kind:
        continue
      array = np.asarray(arrays.pop(0))
      if array.ndim == 4:
        array, channels = array.transpose(3, 2, 0, 1), array.shape[-1]
      elif array.ndim == 2 and flat:
        side = round((len(array) / channels) ** 0.5)
        array, flat = (
          array.reshape(side, side, channels, -1)
          .transpose(3, 2, 0, 1)
          .reshape(array.shape[1], -1),
          False,
        )
      elif array.ndim == 2:
        array = array.T
      tensors[f"{path}.{names[leaf]}"] = torch.from_numpy(array.copy())
  assert not any(leaves.values())
  return tensors


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_plain_torch_takes_the_step_of_plain_jax(name):
  torch = pytest.importorskip("torch")
  from experiments.benchmarks.plain_torch import MODELS, single, stacked

  recipe, data = setting(name, batch_size=12, epochs=1, augment="")
  plain, run, state = some_state(recipe, data)
  begin = state.params
  expected = jax.jit(plain.step)(data, run, state, jnp.arange(12), ()).params

  def build():
    model = MODELS[recipe.model](data.inputs.shape[1:], data.num_classes, recipe.width)
    assert not model.load_state_dict(
      torch_layers(begin, data.inputs.shape, model), strict=False
    ).unexpected_keys
    return model

  x = np.asarray(normalize(data.inputs, data.mean, data.std)).transpose(0, 3, 1, 2)
  x, y = torch.from_numpy(x.copy()), torch.from_numpy(np.array(data.targets)).long()
  model = build()
  wanted = torch_layers(expected, data.inputs.shape, model)
  assert {name for name, _ in model.named_parameters()} == set(wanted)
  single(recipe, model)(x, y)
  for name, parameter in model.named_parameters():
    torch.testing.assert_close(parameter.detach(), wanted[name], atol=1e-5, rtol=0)

  params, step = stacked(recipe, [build(), build()])
  step(torch.stack([x, x]), torch.stack([y, y]))
  for name, parameter in params.items():
    torch.testing.assert_close(
      parameter, torch.stack([wanted[name]] * 2), atol=1e-5, rtol=0
    )


@pytest.mark.slow
def test_stacked_torch_goes_on_as_its_optimizers_do():
  torch = pytest.importorskip("torch")
  from experiments.benchmarks.plain_torch import MODELS, single, stacked

  x, y = torch.randn(4, 1, 8, 8), torch.arange(4)
  for changes in ({}, {"optimizer": "adam", "lr": 1e-3}):
    recipe = RECIPES["digits"][0].replace(width=0.25, weight_decay=0.1, **changes)
    models = [MODELS[recipe.model]((8, 8, 1), 10, recipe.width) for _ in range(2)]
    params, many = stacked(recipe, models)
    one = single(recipe, models[1])
    for _ in range(4):
      many(torch.stack([x, x]), torch.stack([y, y]))
      one(x, y)
    for name, parameter in models[1].named_parameters():
      torch.testing.assert_close(params[name][1], parameter.detach(), atol=1e-5, rtol=0)


@pytest.mark.slow
def test_torch_augmentation():
  torch = pytest.importorskip("torch")
  from experiments.benchmarks.plain_torch import Input, trainer

  recipe, data = setting("digits", batch_size=4, augment="")
  inputs = Input(recipe, data, "cpu", channels_last=False)
  x = torch.arange(200 * 3 * 36.0).reshape(200, 3, 6, 6) + 1000
  mean, inputs.mean = inputs.mean, torch.full((3, 1, 1), 7.5)
  cut = inputs.cutout(x, 2)
  changed = cut != x
  assert (cut[changed] == 7).all()
  # Four pixels, in two neighbouring rows and columns, in every channel; every corner
  # comes up.
  assert (changed.sum((2, 3)) == 4).all()
  places = {tuple(image[0].nonzero()[0].tolist()) for image in changed}
  assert places == {(i, j) for i in range(5) for j in range(5)}
  assert all(
    image[:, i : i + 2, j : j + 2].all()
    for image in changed
    for i, j in [image[0].nonzero()[0]]
  )

  for mode, padded in (("translate", {}), ("reflect", {"mode": "reflect"})):
    wide = torch.nn.functional.pad(x, (1,) * 4, **padded)
    windows = {
      (i, j): wide[:, :, i : i + 6, j : j + 6] for i in range(3) for j in range(3)
    }
    moved = getattr(inputs, mode)(x, 1)
    assert moved.shape == x.shape
    shifts = [
      {s for s, w in windows.items() if torch.equal(w[n], moved[n])} for n in range(200)
    ]
    assert all(len(s) == 1 for s in shifts)
    assert set().union(*shifts) == set(windows)

  mirrored = inputs.flip(x, 0)
  flips = [torch.equal(m, o.flip(-1)) for m, o in zip(mirrored, x, strict=True)]
  assert 50 < sum(flips) < 150
  assert all(
    torch.equal(m, o) for m, o, f in zip(mirrored, x, flips, strict=True) if not f
  )

  inputs.mean = mean
  batch, labels = inputs.batch(inputs.order()[0])
  assert batch.shape == (4, 1, 8, 8)
  assert labels.shape == (4,)
  assert len(inputs.order()) == 3
  for options in ({"lanes": 1, "channels_last": True}, {"lanes": 2}):
    trainer(recipe.replace(augment="flip cutout=2"), data, threads=1, **options)()


# Contenders that train nothing. They run in processes that import this module.


def quick(way, workload, data):
  return lambda: time.sleep(0.1)


def slow(way, workload, data):
  return lambda: time.sleep(1)


def failing(way, workload, data):
  raise ValueError("no\nsuch thing")


def without_torch(way, workload, data):
  raise ModuleNotFoundError("No module named 'torch'", name="torch")


def killed(way, workload, data):
  os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.seldom
def test_a_race_times_in_turn_skips_slow_ones_and_reports_failures():
  starts = (quick, slow, failing, without_torch, killed)
  ways = [
    Way(
      "b",
      start.__name__,
      start,
      lanes=3,
      processes=1 + (start is quick),
      precision="float32",
    )
    for start in starts
  ]
  two, late, error, absent, gone = race(ways, WORKLOADS["digits"], 2)
  # Two processes, each 3 lanes of 15 steps in a tenth of a second.
  assert two.speed == pytest.approx(2 * 3 * 15 / 0.1, rel=0.1)
  assert len(two.speeds) == 2
  assert not two.skipped
  assert two.host_bytes > 2 * 2**20
  assert late.skipped
  assert late.speeds == [pytest.approx(3 * 15, rel=0.1)]
  assert error.error == "ValueError: no such thing"
  assert absent.error == "torch is not installed: pip install -e '.[bench]'"
  assert gone.error == "killed: out of memory?"
  assert not any(c.running for c in (two, late, error, absent, gone))
  table = training_step.race_table(
    "digits",
    WORKLOADS["digits"],
    [two, late, error, absent, gone],
    10**6,
    {"float32": 10**9},
  )
  assert "(b) slow, timed once" in [row[0] for row in table.rows]
  assert common.markdown(table).count("\n|") == 2 + 5


def test_a_contender_that_does_not_answer_is_given_up():
  contender = Contender(Way("b", "slow", slow), WORKLOADS["digits"], limit=0.5)
  assert contender.error == "not done in 0.5 s"
  assert not contender.running


def test_flops_of_a_step_by_hand():
  first, second, dense = 64 * 9 * 1 * 16 * 64, 16 * 9 * 16 * 32 * 64, 128 * 10 * 64
  assert flops(WORKLOADS["digits"]) == 2 * (2 * first + 3 * second + 3 * dense)
  convolutions = (
    256 * 25 * 16 * 32
    + 2 * 256 * 9 * 32 * 32
    + 256 * 9 * 32 * 64
    + 2 * 64 * 9 * 64 * 64
    + 36 * 9 * 64 * 32
  )
  image = 2 * (2 * 1024 * 9 * 3 * 16 + 3 * convolutions + 3 * 32 * 10)
  assert flops(WORKLOADS["resnet_quarter"]) == 100 * image


@pytest.mark.slow
def test_the_profile_of_a_step_as_a_command():
  """Most of the time that the profilers name is that of a step without them."""
  pytest.importorskip("torch")
  command = [sys.executable, *words_of("-m experiments.benchmarks.step_profile digits")]
  ended = subprocess.run(
    command, cwd=Path(__file__).parents[2], capture_output=True, text=True
  )
  assert ended.returncode == 0, ended.stderr
  rows = [line.strip("| ").split(" | ") for line in ended.stdout.splitlines()]
  numbers = {name: (float(ours), float(theirs)) for name, ours, theirs in rows[2:]}
  ours, theirs = zip(*numbers.values(), strict=True)
  for times, gradients in (
    (ours, numbers["convolutions: kernel gradients"][0]),
    (theirs, numbers["convolutions: both gradients"][1]),
  ):
    *kinds, total, plain = times
    assert total == pytest.approx(sum(kinds), abs=0.1)
    assert 0.3 * plain < total < 10 * plain
    assert gradients > 0


@pytest.mark.seldom
def test_the_race_as_a_command(tmp_path):
  command = [
    sys.executable,
    *words_of("-m experiments.benchmarks.training_step --workloads digits --steps 1"),
  ]
  command += [
    *words_of("--rounds 1 --only ours --lowerings sequential --out"),
    str(tmp_path),
  ]
  ended = subprocess.run(
    command, cwd=Path(__file__).parents[2], capture_output=True, text=True
  )
  assert ended.returncode == 0, ended.stderr
  record = json.loads((tmp_path / "training_step.json").read_text())
  (mine,) = record["numbers"]["digits"]["contenders"]
  assert mine["speed"] > 0
  assert mine["kind"] == "ours"
  assert record["numbers"]["digits"]["peak_flops_per_second"]["float32"] > 1e9
  text = (tmp_path / "training_step.md").read_text()
  assert "### digits: small_cnn, width 1, 8×8×1, batch 64, float32" in text
  assert "| ours sequential, width 1, 64 lanes |" in text
  assert record["machine"]["versions"]["jax"] == jax.__version__


@pytest.mark.parametrize(
  ("argv", "said"),
  [
    (["--rounds", "0"], "--rounds is 0"),
    (["--steps", "0"], "--steps is 0"),
    (["--widths", "0"], "lane width is 0"),
    (["--limit", "0"], "--limit is 0"),
    (["--only", "a", "--skip", "a"], "leave no contender"),
  ],
)
def test_wrong_flags_are_mistakes_before_any_work(argv, said, tmp_path):
  with pytest.raises(UserError, match=said):
    training_step.main([*argv, "--out", str(tmp_path)])
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ("argv", "words"),
  [
    (["--workloads", "digit"], ["--workloads", "'digit'", "digits", "binary"]),
    (["--lowerings", "fast"], ["--lowerings", "'fast'"]),
    (["--skip", "f"], ["--skip", "'f'", "ours", " e "]),
    (["--round", "1"], ["--rounds"]),
  ],
)
def test_wrong_flags_are_refused_before_any_work(argv, words, tmp_path):
  with pytest.raises(UserError) as mistake:
    training_step.main([*argv, "--out", str(tmp_path)])
  assert [word for word in words if word not in str(mistake.value)] == []
  assert not list(tmp_path.iterdir())


def test_every_kind_of_contender_on_each_platform():
  flags = training_step.Flags()
  cpu = {"platform": "cpu", "cores": 2, "devices": 2}
  ways = training_step.ways_to_train(WORKLOADS["digits"], cpu, flags)
  assert {way.kind for way in ways} == set(training_step.KINDS)
  assert all(
    way.options["width"] == 1 and way.devices == 2 for way in ways if way.kind == "ours"
  )
  raced = dataclasses.replace(flags, precisions=("float32", "bfloat16"))
  both = training_step.ways_to_train(WORKLOADS["digits"], cpu, raced)
  assert {way.precision for way in both} == {*raced.precisions}
  assert len({(way.kind, way.label) for way in both}) == len(both) == 2 * len(ways)
  gpu = training_step.ways_to_train(
    WORKLOADS["digits"], {"platform": "gpu", "cores": 16, "devices": 1}, flags
  )
  assert {way.lanes for way in gpu if way.kind == "a"} == {16, 64, 256}
  assert {way.options["mode"] for way in gpu if way.kind == "c"} == {
    None,
    "default",
    "reduce-overhead",
  }
  assert contenders.workload_on("digits", "gpu").recipe.precision == "bfloat16"


def test_the_parts_of_a_campaign_add_up():
  seconds = {
    "frozen": [4, 5, 9],
    "trained": [6],
    "evaluated": [7],
    "campaign": [10],
    "writing": [1],
    "statistics": [2],
  }
  parts = overheads.seconds_by_part(seconds)
  assert parts == {
    "training": 5,
    "input": 1,
    "evaluation": 1,
    "writing": 1,
    "statistics": 2,
    "start": 2,
  }
  assert sum(parts.values()) == 10 + 2


@pytest.mark.slow
def test_frozen_training_uses_no_order_and_no_augmentation():
  recipe, data = setting("digits", batch_size=4, epochs=2)
  runs = vs.Runs.concat(
    [vs.Runs.vary("order", 2), vs.Runs.vary("augment", 2), vs.Runs.vary("init", 2)]
  )
  arrays = data.inputs, data.targets
  options = Options(keep_params=True)
  dataset = vs.Dataset(train=arrays, test=arrays, num_classes=10)
  task, runs = load_task(recipe.replace(dataset=dataset), runs, options)
  # A plan refuses runs that vary what the task does not read, so it is of one of them.
  frozen = check_task(overheads.frozen(recipe, task), runs[:1], options)
  plan = frozen.planned(lanes.Execution("sequential", 3), block_runs=1)
  spread = block_training.spread_task(plan, plan.traced_for(plan.runs))
  ((_, trained, _),) = spread(
    block_training.put_data_on_devices(plan), lanes_of(task, runs)
  )
  kernels = trained["variables/params.Dense_0.kernel"]
  assert (kernels[:4] == kernels[0]).all()
  assert (kernels[4] == kernels[0]).all()
  assert (kernels[5] != kernels[0]).any()
  # It takes as many steps, all on the first batch, as if the training set held nothing
  # else.
  recipe = recipe.replace(augment="", schedule="constant", epochs=6, batch_size=4)
  first = dataclasses.replace(data, inputs=data.inputs[:4], targets=data.targets[:4])
  ((_, alone),) = lanes.spread(
    lambda data, run: train(recipe, data, run).variables, width=1
  )(first, lanes_of(task, runs[:1]))
  close(alone["params"]["Dense_0"]["kernel"][0], kernels[0])


def test_numbers_in_tables():
  assert [
    contenders.significant(x) for x in (0, 0.012345, 1.5, 12345.6, float("nan"))
  ] == [
    *words_of("0 0.0123 1.50 12,346"),
    "—",
  ]
  text = common.markdown(common.Table("t", ("a", "b"), [("x|y", "1")], ["note"]))
  assert text == "### t\n\n| a | b |\n| --- | --- |\n| x\\|y | 1 |\n\nnote\n"


@pytest.mark.seldom
def test_overheads_of_all_ways(tmp_path, monkeypatch):
  monkeypatch.setattr(common, "elsewhere", lambda function: function())
  small = ["--set", "model=linear", "epochs=2", "--runs", "6", "--rounds", "1"]
  few = ["--seed-batch", "4", "--checkpoint-every", "1"]
  overheads.main([*small, *few, "--out", str(tmp_path)])
  seconds = json.loads((tmp_path / "overheads.json").read_text())["numbers"]["seconds"]
  ways = ("frozen", "trained", "evaluated", "campaign", "statistics")
  assert {*seconds} == {*ways, "parameters", "checkpoints", "writing", "first"}
  assert all(time > 0 for (time,) in seconds.values())


@pytest.mark.seldom
def test_convolutions_of_other_programs_are_timed(tmp_path, monkeypatch):
  monkeypatch.setattr(convolutions, "BATCH", 2)
  few = ["--rounds", "1", "--steps", "2", "--only", "1-D", "depthwise", "Linen, recipe"]
  convolutions.main([*few, "--out", str(tmp_path)])
  numbers = json.loads((tmp_path / "convolutions.json").read_text())["numbers"]
  assert list(numbers) == few[-3:]
  for found in numbers.values():
    assert 0 <= found["difference"] < 1e-5
    assert all(found[way][0] > 0 for way in ("in lanes", "by hand", "alone"))
  assert len(convolutions.cases()) == len(convolutions.NAMES) == 16
  with pytest.raises(vs.UserError, match="unknown row '4-D'"):
    convolutions.main(["--only", "4-D", "--out", str(tmp_path)])


def test_single_convolutions_are_timed_in_a_loop():
  shape = convolutions.Shape(2, (6, 6), 3, 4, 3)
  function, args = convolutions.parts_of(shape)["forward"]
  program = jax.jit(convolutions.repeated(function)).lower(3, *args)
  loop = program.as_text().split("stablehlo.while")[1]
  assert "stablehlo.convolution" in loop
  np.testing.assert_allclose(program.compile()(3, *args), function(*args), rtol=1e-5)
  numbers = convolutions.measure_shape(function, args, rounds=1, each=True)
  ways = ("ours", "plain", "without pairs")
  assert set(numbers) == {*ways, *(f"{way} compiles" for way in ways)}, (
    "forms that such a convolution does not take are not timed"
  )
  assert all(numbers[way] > 0 for way in ways)


@pytest.mark.slow
def test_counts_are_of_the_evaluation(tmp_path, monkeypatch, capsys):
  linear = tallies.recipes(50)["random images"].replace(model="linear")
  monkeypatch.setattr(tallies, "recipes", lambda _: {"random images": linear})
  small = ["--runs", "4", "--rounds", "1", "--pairs"]
  tallies.main([*small, "--out", str(tmp_path)])
  assert "pairs counted too" in capsys.readouterr().out
  numbers = json.loads((tmp_path / "tallies.json").read_text())["numbers"]
  found = {row["way"]: row for row in numbers["random images"]}
  plain, counted, pairs = (
    found[f"all, {what}"] for what in ("not counted", "counted", "pairs counted too")
  )
  # Two steps of three programs, and one that sums up; of each run diverged, accuracy,
  # half errors and predictions.
  assert [row["dispatches"] for row in (plain, counted, pairs)] == [6, 7, 7]
  assert plain["fetched"] >= 4 * 50
  votes = 2 * 4 * (50 * 10 + 1)  # of both devices
  assert counted["fetched"] - plain["fetched"] == votes
  assert pairs["fetched"] - counted["fetched"] == 2 * 4 * 50**2
  assert counted["fetched"] - found["none, counted"]["fetched"] == 4 * 50


@pytest.mark.slow
def test_sound_folders_get_no_line(tmp_path, monkeypatch):
  train = sound.trained_folders
  monkeypatch.setattr(sound, "trained_folders", lambda: itertools.islice(train(), 1))
  sound.main(["--imports", "3", "--out", str(tmp_path)])
  numbers = json.loads((tmp_path / "sound.json").read_text())["numbers"]
  assert numbers["wrong"] == {}
  assert any("standard deviation" in line for line in numbers["warning"])
  labels = np.arange(60) % 3
  shifted = functools.partial(
    vs.import_runs, predictions=[labels] * 2, labels=(labels + 1) % 3
  )
  notes, _ = sound.lines_of(shifted, tmp_path / "r")
  assert len(notes) == 1
  assert "no better than chance" in notes[0]
