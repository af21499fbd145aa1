"""One training against a plain Flax + optax script, and each source of randomness on
the arrays themselves.
"""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest

import vmapseeds as vs
from vmapseeds import lanes
from vmapseeds.training import optimizers
from vmapseeds.training.evaluation import reaches_training_accuracy
from vmapseeds.training.inputs import (
  DeviceExamples,
  draw_augmentation,
  epoch_order,
  stored_rows,
  training_inputs,
)
from vmapseeds.training.loop import State, advance, finish, start, train
from vmapseeds.training.losses import argmax, smoothed_cross_entropy
from vmapseeds.training.names import SOURCES
from vmapseeds.training.networks import (
  initialize,
  make_network,
)
from vmapseeds.training.optimizers import PackedParams
from vmapseeds.training.recipe_runs import recipe_lanes
from vmapseeds.training.recipe_setup import RecipeSetup
from vmapseeds.training.supervised import make_task
from vmapseeds.training.task import bind_runs, depends_on_input, trace


def examples(height=8, channels=1, n=24, classes=10, seed=0):
  rng = np.random.default_rng(seed)
  images = rng.integers(0, 256, (n, height, height, channels), np.uint8)
  labels = rng.integers(0, classes, n).astype(np.int32)
  mean = images.mean((0, 1, 2)).astype(np.float32)
  return jax.tree.map(
    jnp.asarray,
    DeviceExamples(
      images, labels, mean, images.std((0, 1, 2)).astype(np.float32), classes
    ),
  )


@functools.cache
def training(recipe, width):
  return lanes.spread(lambda data, run: train(recipe, data, run), width=width)


def trained(recipe, data, runs, classes=10, width=2):
  """Every run trained through lanes, stacked."""
  step, data = training(recipe, width), dataclasses.replace(data, num_classes=classes)
  parts = [out for _, out in step(data, recipe_lanes(recipe, runs, len(data.targets)))]
  return jax.tree.map(lambda *p: np.concatenate(p), *parts)


initialized = jax.jit(initialize, static_argnums=0)


def lane(tree, i):
  return jax.tree.map(lambda a: a[i], tree)


# Rounding errors grow with every step, and fast at ResNet-9's own learning rate of 0.5:
# hence a smaller one.
CASES = {
  "digits_cnn": (plain.SmallCNN(), {}, 8, 1, [("cutout", 2)]),
  "narrow_cifar10": (plain.NarrowCNN(), {}, 17, 3, [("flip", 0), ("translate", 2)]),
  "resnet9_cifar10": (
    plain.ResNet9(1 / 8),
    {"width": 1 / 8, "lr": 0.2},
    32,
    3,
    [("flip", 0), ("translate", 2), ("cutout", 12)],
  ),
  "mlp_cifar10": (plain.MLP(1 / 16), {"width": 1 / 16, "lr": 0.02}, 4, 3, []),
  "linear_cifar10": (plain.Linear(), {}, 32, 3, []),
}


def test_every_recipe_has_a_plain_script():
  from vmapseeds.training.recipes import RECIPES

  # Three recipes have none. The published runs' recipe differs from resnet9_cifar10
  # only in its input, which the next test covers. narrow_mnist is narrow_cifar10 with
  # fewer pixels and steps. ResNet-18 takes a minute to compile: its network has a test
  # of its own.
  assert {
    *CASES,
    "resnet9_cifar10_published",
    "narrow_mnist",
    "resnet18_cifar10",
  } == set(RECIPES)


@functools.partial(jax.jit, static_argnums=0)
def augmented_images(recipe, data, run, epoch, shown):
  return training_inputs(
    recipe,
    data,
    data.inputs[shown],
    draw_augmentation(recipe, data, run, jnp.array(epoch), shown),
  )


@pytest.mark.parametrize(
  ("name", "steps"),
  [
    ("digits_cnn", [("cutout", 2)]),
    ("resnet9_cifar10", [("flip", 0), ("translate", 2), ("cutout", 12)]),
    ("resnet9_cifar10_published", [("flip", 0), ("cutout", 12), ("reflect", 2)]),
  ],
)
def test_training_images_are_those_of_the_plain_script(name, steps):
  recipe = vs.recipe(name)
  data = examples(*((8, 1) if name == "digits_cnn" else (32, 3)), n=6)
  mean, std = (
    jnp.asarray(own if given is None else given)
    for given, own in ((recipe.mean, data.mean), (recipe.std, data.std))
  )
  run = lane(recipe_lanes(recipe, vs.Runs.independent(4), 6), 3)
  ours = augmented_images(
    recipe, dataclasses.replace(data, mean=mean, std=std), run, 5, jnp.arange(6)
  )
  key = jax.random.fold_in(plain.key("augment", 3), 5)
  images = np.asarray(data.inputs)
  theirs = [
    plain.augmented(
      images[i], steps, jax.random.fold_in(key, i), np.floor(np.asarray(mean))
    )
    for i in range(6)
  ]
  np.testing.assert_allclose(ours, (np.stack(theirs) - mean) / std, atol=1e-5)
  assert not np.allclose(ours, (images - mean) / std, atol=0.1)


@pytest.mark.parametrize(
  ("platform", "shape", "stored"),
  [
    ("tpu", (8, 8, 1), (64,)),
    ("tpu", (8, 8, 2), (128,)),
    ("tpu", (9, 5, 3), (9, 15)),
    ("gpu", (8, 8, 1), (8, 8)),
    ("tpu", (5,), (5,)),
  ],
)
def test_images_are_stored_as_rows_that_fill_registers(platform, shape, stored):
  inputs = np.arange(3 * np.prod(shape)).reshape(3, *shape)
  with lanes.compiling_for(platform):
    rows = jax.jit(lambda inputs: stored_rows(inputs))(inputs)
  np.testing.assert_array_equal(rows, inputs.reshape(3, *stored))


@pytest.mark.slow
@pytest.mark.parametrize("height", [1, 2, 7])
@pytest.mark.parametrize(
  "text",
  [
    "",
    "flip translate=1 cutout=1",
    "flip translate=5 cutout=6",
    "reflect=6 cutout=3 translate=2",
  ],
)
@pytest.mark.optimized
def test_accelerators_and_cpus_make_the_same_images(height, text):
  """They use different operations, but the images are equal bit for bit, also images of
  one row.
  """
  text = " ".join(
    word for word in text.split() if not word[-1].isdigit() or int(word[-1]) < height
  )
  recipe, data = vs.recipe("digits_cnn", augment=text), examples(7, 3, n=5)
  data = dataclasses.replace(data, inputs=data.inputs[:, :height])
  run = lane(recipe_lanes(recipe, vs.Runs.independent(2), 5), 1)
  drawn = draw_augmentation(recipe, data, run, jnp.array(0), jnp.arange(5))

  def prepared(platform):
    with lanes.compiling_for(platform):
      made = jax.jit(lambda *given: training_inputs(recipe, data, *given)).lower(
        data.inputs, drawn
      )
    return made.compile()(data.inputs, drawn), "stablehlo.gather" in made.as_text()

  (here, sliced), (there, still_sliced) = prepared("cpu"), prepared("tpu")
  np.testing.assert_array_equal(here, there)
  assert sliced == ("translate" in text or "reflect" in text)
  assert not still_sliced, "there a slice for each image is a loop over images"


# ResNet-9 is compiled as users compile it, because its tolerance was found that way.
LONGER = {
  "resnet9_cifar10": [pytest.mark.optimized],
  "linear_cifar10": [],
  "mlp_cifar10": [],
  "narrow_cifar10": [],
}
COMPILED = [
  pytest.param(name, marks=[pytest.mark.slow, *LONGER[name]] if name in LONGER else [])
  for name in CASES
]


@pytest.mark.parametrize("name", COMPILED)
def test_a_lane_is_the_plain_script(name):
  model, changes, height, channels, augmentation = CASES[name]
  # Two epochs of two steps; the 25th example is dropped by each.
  recipe = vs.recipe(name, epochs=2, batch_size=12, **changes)
  data = examples(height, channels, 25)
  mean = recipe.mean or data.mean
  std = recipe.std or data.std
  data = dataclasses.replace(
    data, mean=np.array(mean, np.float32), std=np.array(std, np.float32)
  )
  ours = trained(recipe, data, vs.Runs.independent(3))
  for seed in (0, 2):
    start = initialized(
      recipe, data, lane(recipe_lanes(recipe, vs.Runs.independent(3), 25), seed)
    )
    theirs = plain.train(
      model,
      data.inputs,
      data.targets,
      seed=seed,
      steps=4,
      epochs=2,
      batch=12,
      lr=recipe.lr,
      momentum=recipe.momentum,
      weight_decay=recipe.weight_decay,
      mean=mean,
      std=std,
      augmentation=augmentation,
      kind=recipe.optimizer,
      linear=recipe.schedule == "linear",
      variables=start
      if "ConvBlock_0" in start["params"]
      else None,  # PyTorch's initialisation, which has a test of its own
    )
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), theirs, start)
    assert min(jax.tree.leaves(moved)) > 1e-4, (
      "a test on parameters that do not move could not fail"
    )
    # Equal to 1e-7, unless rounding tips a maximum over to another pixel; a wrong draw
    # of any kind is far above.
    close = 4e-4 if "resnet9" in name else 1e-4
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a[seed], b, atol=close, rtol=1e-3),
      ours.variables,
      theirs,
    )


# Four epochs of three steps. Each entry: recipe fields, the values of two lanes, and
# optax's equivalent for a value.
STEPS, EPOCH, LR = 12, 3, 0.2
OPTAX = {
  "cosine": (
    {"schedule": "cosine"},
    {"lr": [0.1, 0.3]},
    lambda lr: optax.sgd(optax.cosine_decay_schedule(lr, STEPS), 0.9),
  ),
  "exponential": (
    {"schedule": "exponential"},
    {"gamma": [0.5, 0.9]},
    lambda gamma: optax.sgd(
      optax.exponential_decay(LR, EPOCH, gamma, staircase=True), 0.9
    ),
  ),
  "step": (
    {"schedule": "step", "milestones": (1, 3)},
    {"gamma": [0.1, 0.5]},
    lambda gamma: optax.sgd(
      optax.piecewise_constant_schedule(LR, {EPOCH: gamma, 3 * EPOCH: gamma}), 0.9
    ),
  ),
  "warm-up and linear": (
    {"schedule": "linear", "warmup": 1.4},
    {"lr": [0.1, 0.3]},
    # 1.4 epochs are 4 steps.
    lambda lr: optax.sgd(
      optax.join_schedules(
        [optax.linear_schedule(lr / 4, lr, 3), optax.linear_schedule(lr, 0, STEPS - 4)],
        [4],
      ),
      0.9,
    ),
  ),
  "warm-up and cosine": (
    {"schedule": "cosine", "warmup": 2},
    {"lr": [0.1, 0.3]},
    lambda lr: optax.sgd(
      optax.join_schedules(
        [
          optax.linear_schedule(lr / 6, lr, 5),
          optax.cosine_decay_schedule(lr, STEPS - 6),
        ],
        [6],
      ),
      0.9,
    ),
  ),
  "warm-up and steps": (
    {"schedule": "step", "warmup": 2, "milestones": (3,)},
    {"gamma": [0.1, 0.5]},
    lambda gamma: optax.sgd(
      optax.join_schedules(
        [
          optax.linear_schedule(LR / 6, LR, 5),
          optax.piecewise_constant_schedule(LR, {EPOCH: gamma}),
        ],
        [6],
      ),
      0.9,
    ),
  ),
  "nesterov": (
    {"optimizer": "nesterov"},
    {"momentum": [0.5, 0.9]},
    lambda momentum: optax.sgd(LR, momentum, nesterov=True),
  ),
  "adamw": (
    {"optimizer": "adamw", "lr": 0.01},
    {"weight_decay": [0.1, 1.0]},
    lambda weight_decay: optax.adamw(0.01, weight_decay=weight_decay),
  ),
  "label smoothing": (
    {"label_smoothing": 0.2},
    {"lr": [0.1, 0.3]},
    lambda lr: optax.sgd(lr, 0.9),
  ),
  "squared error": (
    {"loss": "squared_error", "predict": "outputs"},
    {"lr": [0.1, 0.3]},
    lambda lr: optax.sgd(lr, 0.9),
  ),
}


def smoothed(logits, labels):
  return optax.softmax_cross_entropy(
    logits, optax.smooth_labels(jax.nn.one_hot(labels, 10), 0.2)
  ).mean()


def squared_error(outputs, targets):
  return 2 * optax.l2_loss(outputs, targets).mean()


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTAX)
def test_schedules_optimizers_and_losses_are_those_of_optax(name):
  changes, swept, optimizer = OPTAX[name]
  recipe = vs.recipe(
    "digits_cnn",
    model=plain.Linear(),
    augment="",
    weight_decay=0,
    epochs=4,
    batch_size=8,
    **{"schedule": "constant", "lr": LR, **changes},
  )
  loss, data, classes = (
    {"label smoothing": smoothed}.get(name, plain.cross_entropy),
    examples(4, n=25),
    10,
  )
  if name == "squared error":
    targets = np.random.default_rng(1).normal(size=(25, 10)).astype(np.float32)
    loss, data, classes = (
      squared_error,
      dataclasses.replace(data, targets=targets),
      None,
    )
  ours = trained(recipe, data, vs.Runs.sweep(seeds=1, **swept), classes).variables[
    "params"
  ]
  ((key, values),) = swept.items()
  theirs = [
    plain.train(
      plain.Linear(),
      data.inputs,
      data.targets,
      seed=0,
      steps=STEPS,
      epochs=4,
      batch=8,
      lr=0,
      momentum=0,
      weight_decay=0,
      mean=data.mean,
      std=data.std,
      optimizer=optimizer(**{key: value}),
      loss=loss,
    )["params"]
    for value in values
  ]
  theirs = jax.tree.map(lambda *leaves: np.stack(leaves), *theirs)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5, rtol=1e-4), ours, theirs
  )
  assert (
    np.abs(theirs["Dense_0"]["kernel"][0] - theirs["Dense_0"]["kernel"][1]).max() > 1e-3
  ), "the value matters"


@pytest.mark.slow
def test_a_prediction_is_the_class_of_the_largest_logit():
  logits = jnp.array([[1.0, 3.0, 3.0], [jnp.nan, 1.0, 0.0], [0.0, jnp.inf, 1.0]])
  assert argmax(logits).tolist() == [1, -1, 1]
  for classes in (127, 128, 129, 300):
    assert argmax(jnp.eye(classes)[-1:]).tolist() == [classes - 1]


@pytest.mark.parametrize(
  ("batch", "classes"), [(0, 3), (1, 1), (1, 2), (9, 2), (9, 10)]
)
def test_cross_entropy_is_that_of_optax(batch, classes):
  """Values and gradients agree, also for logits that are equal, large, infinite or NaN."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, classes, batch).astype(np.int32)
  logits = (3 * rng.normal(size=(batch, classes))).astype(np.float32)
  for row, value in enumerate(
    (0, 1e4, -1e4, 3e38, -3e38, np.inf, -np.inf, np.nan)[: max(0, batch - 1)]
  ):
    logits[row, :2] = [value, value / 2]

  @functools.partial(jax.jit, static_argnums=0)
  def both(loss):
    each, pull = jax.vjp(lambda logits: loss(logits, labels), logits)
    return each, pull(jnp.arange(1.0, batch + 1, dtype=jnp.float32))[0]

  ours, theirs = (
    both(smoothed_cross_entropy),
    both(optax.softmax_cross_entropy_with_integer_labels),
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), ours, theirs
  )


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["nesterov", "adamw"])
def test_vectors_that_are_joined_are_trained_as_those_apart(optimizer, monkeypatch):
  """Accelerators join them."""
  recipe = vs.recipe(
    "digits_cnn",
    model="mlp",
    width=1 / 32,
    depth=3,
    epochs=2,
    batch_size=6,
    optimizer=optimizer,
    augment="",
  )
  data = examples(4)
  runs = vs.Runs.independent(4)
  apart = trained(recipe, data, runs)
  training.cache_clear()
  monkeypatch.setattr(optimizers, "platform", lambda: "tpu")
  joined = trained(recipe, data, runs)
  training.cache_clear()
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), joined, apart
  )
  run = lane(recipe_lanes(recipe, runs, 24), 0)
  packed = start(recipe, data, run).params
  assert isinstance(packed, PackedParams)
  numbers = dataclasses.replace(packed, vectors=jnp.arange(packed.vectors.size))
  vectors = [leaf for leaf in jax.tree.leaves(numbers.unpack()) if leaf.ndim == 1]
  np.testing.assert_array_equal(np.concatenate(vectors), numbers.vectors)
  for own in (
    {"optimizer": lambda run, steps: optax.sgd(0.1), "schedule": "constant"},
    {"trainable": lambda name: "bias" in name},
  ):
    assert not isinstance(start(recipe.replace(**own), data, run).params, PackedParams)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("model", "height"),
  [("small_cnn", 4), ("narrow_cnn", 16), ("resnet9", 12)],
)
def test_dropout_is_before_the_last_layer(model, height):
  plain_one, dropping = (
    make_network(vs.recipe("digits_cnn", model=model, width=1 / 8, dropout=d), 3)
    for d in (0.0, 0.5)
  )
  inputs = jnp.linspace(-1, 1, 2 * height**2).reshape(2, height, height, 1)
  variables, same = (
    jax.jit(made.init)(jax.random.key(0), inputs) for made in (plain_one, dropping)
  )
  jax.tree.map(np.testing.assert_array_equal, variables, same)
  np.testing.assert_array_equal(
    *(jax.jit(made.apply)(variables, inputs) for made in (plain_one, dropping))
  )
  # An identity as last layer shows the features: with dropout each is either 0 or
  # doubled.
  *_, last = variables["params"]
  kernel = variables["params"][last]["kernel"]
  seen = lambda made, key: made.train(  # noqa: E731
    {
      **variables,
      "params": {
        **variables["params"],
        last: {"kernel": jnp.eye(*kernel.shape), "bias": jnp.zeros(3)},
      },
    },
    inputs,
    key,
  )[0]
  keys = jax.random.split(jax.random.key(1), 8)
  whole, kept = (
    np.asarray(jax.jit(jax.vmap(functools.partial(seen, made)))(keys))
    for made in (plain_one, dropping)
  )
  assert {*np.round(kept[whole != 0] / whole[whole != 0], 3).ravel().tolist()} == {0, 2}


@pytest.mark.slow
def test_resnet9_is_as_jordan_describes_it():
  recipe = vs.recipe("resnet9_cifar10")
  run = lane(recipe_lanes(recipe, vs.Runs.independent(1), 10), 0)
  variables = initialized(recipe, examples(32, 3, 10), run)
  kernels = {
    tuple(a.shape) for a in jax.tree.leaves(variables["params"]) if a.ndim == 4
  }
  assert kernels == {
    (3, 3, 3, 64),
    (5, 5, 64, 128),
    (3, 3, 128, 128),
    (3, 3, 128, 256),
    (3, 3, 256, 256),
    (3, 3, 256, 128),
  }
  assert sum(a.size for a in jax.tree.leaves(variables["params"])) == 2_274_880
  # PyTorch's default: uniform in ±1/√fan_in, so sd = bound/√3.
  for kernel in jax.tree.leaves(variables["params"]):
    if kernel.ndim > 1:
      bound = 1 / np.sqrt(np.prod(kernel.shape[:-1]))
      assert bound * 0.95 < np.abs(kernel).max() <= bound * 1.000001
      np.testing.assert_allclose(kernel.std(), bound / np.sqrt(3), rtol=0.1)


@pytest.mark.slow
def test_resnet18_is_the_plain_one():
  """Equal outputs in training and evaluation, and equal batch statistics; the published
  number of parameters.
  """
  ours, inputs = (
    make_network(vs.recipe("resnet18_cifar10", width=1 / 32), 10),
    jnp.linspace(-2, 2, 6 * 16**2 * 3).reshape(6, 16, 16, 3),
  )
  variables = jax.jit(ours.init)(jax.random.key(0), jnp.sin(7 * inputs))

  def both(variables):
    outputs, stats = ours.train(variables, jnp.sin(7 * inputs), jax.random.key(1))
    return outputs, stats, ours.apply(variables | stats, jnp.cos(inputs))

  def plain_both(variables):
    outputs, stats = plain.ResNet18(1 / 32).apply(
      variables, jnp.sin(7 * inputs), True, mutable="batch_stats"
    )
    return (
      outputs,
      stats,
      plain.ResNet18(1 / 32).apply(variables | stats, jnp.cos(inputs), False),
    )

  found, expected = jax.jit(both)(variables), jax.jit(plain_both)(variables)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, expected
  )
  assert np.ptp(found[0], axis=0).max() > 0.1
  sizes = jax.eval_shape(
    make_network(vs.recipe("resnet18_cifar10"), 10).init,
    jax.random.key(0),
    jnp.zeros((1, 32, 32, 3)),
  )
  assert sum(a.size for a in jax.tree.leaves(sizes["params"])) == 11_173_962


def test_depth_counts_layers():
  made = make_network(vs.recipe("digits_cnn", model="mlp", depth=3, width=1 / 32), 3)
  params = jax.eval_shape(made.init, jax.random.key(0), jnp.zeros((1, 8, 8, 1)))[
    "params"
  ]
  kernels = sum(
    jax.tree_util.keystr(path).endswith("['kernel']")
    for path, _ in jax.tree.leaves_with_path(params)
  )
  assert kernels == 4


@pytest.mark.slow
def test_a_run_stops_where_the_plain_script_is_right_on_its_own_examples():
  """Some of its lanes go on. The other lanes change no bit of a run."""
  recipe = vs.recipe(
    "digits_cnn",
    model="linear",
    augment="",
    epochs=12,
    batch_size=4,
    lr=0.02,
    stop_at=0.7,
  )
  data, runs = examples(4, n=25), vs.Runs.independent(8).subset(18)
  step = lanes.spread(
    lambda data, run: advance(
      recipe, data, run, start(recipe, data, run), 0, recipe.epochs
    ),
    width=4,
  )

  def ended(runs):
    ((_, state),) = step(data, recipe_lanes(recipe, runs, 25))
    return state

  ours, table = ended(runs), recipe_lanes(recipe, runs, 25)
  for seed in (0, 3, 5):
    images, labels = (
      np.asarray(a)[table["subset"][seed]] for a in (data.inputs, data.targets)
    )
    for epochs in range(1, 13):
      theirs = plain.train(
        plain.Linear(),
        images,
        labels,
        seed=seed,
        steps=4 * epochs,
        epochs=12,
        batch=4,
        lr=0.02,
        momentum=0.9,
        weight_decay=5e-4,
        mean=data.mean,
        std=data.std,
      )
      logits = plain.Linear().apply(
        theirs, (images - data.mean) / data.std, train=False
      )
      if (logits.argmax(-1) == labels).sum() >= 13:  # 0.7 of 18 is 12.6
        break
    assert (seed, ours.epochs[seed]) == (seed, epochs)
    jax.tree.map(
      lambda a, b, i=seed: np.testing.assert_allclose(a[i], b, atol=1e-5),
      ours.params,
      theirs["params"],
    )
  assert len({*ours.epochs.tolist()}) > 3, "lanes stop at different times"
  again = ended(runs[[3, 0, 5, 3, 3, 1, 0, 0]])
  jax.tree.map(
    lambda a, b: np.testing.assert_array_equal(a[[3, 0, 5, 3, 3, 1, 0, 0]], b),
    ours,
    again,
  )


@pytest.mark.parametrize(
  ("stop_at", "right"), [(1.0, 25), (0.97, 25), (0.96, 24), (0.28, 7), (1e-9, 1)]
)
def test_how_many_examples_are_the_share_to_stop_at(stop_at, right):
  """Rounding of the share, as of 0.28 · 25, changes nothing. The last batch of 12 is
  one example and padding.
  """
  data = dataclasses.replace(
    examples(1, n=25), inputs=jnp.arange(25.0)[:, None, None, None], mean=None, std=None
  )

  class IsPositive(nn.Module):
    @nn.compact
    def __call__(self, x):
      fixed = dict(
        kernel_init=lambda *_: jnp.array([[0.0, 1.0]]),
        bias_init=lambda *_: jnp.array([0.5, 0.0]),
      )
      return nn.Dense(2, **fixed)(x.reshape(len(x), 1))

  recipe = vs.recipe(
    "digits_cnn", model=IsPositive(), batch_size=12, stop_at=stop_at, normalize=False
  )
  run = lane(recipe_lanes(recipe, vs.Runs.independent(1), 25), 0)
  begun = start(recipe, data, run)
  for wrong in (25 - right, 26 - right):
    targets = ((jnp.arange(25) > 0) ^ (jnp.arange(25) >= 25 - wrong)).astype(jnp.int32)
    assert reaches_training_accuracy(
      recipe,
      dataclasses.replace(data, targets=targets),
      run,
      finish(recipe, begun),
      recipe.stop_at,
    ) == (wrong == 25 - right)


class Bright(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(10)(x.reshape(len(x), -1)) + x.mean((1, 2, 3))[:, None]


@pytest.mark.parametrize(
  ("model", "images"),
  [pytest.param("mlp", False, marks=pytest.mark.slow), (Bright(), True)],
)
@pytest.mark.slow
def test_on_a_tpu_a_network_that_flattens_images_never_has_any(model, images):
  """A TPU would move images pixel by pixel. The network is trained, and stops, as on a
  CPU.
  """
  changes = dict(
    epochs=9, batch_size=12, lr=0.1, weight_decay=0, stop_at=0.9, precision="float32"
  )
  recipe, data = vs.recipe("linear_cifar10", model=model, **changes), examples(9, 3, 25)
  table = recipe_lanes(recipe, vs.Runs.independent(3), 25)

  def made(platform):
    def one(run):
      state = advance(recipe, data, run, start(recipe, data, run), 0, recipe.epochs)
      return finish(recipe, state), state.epochs

    with lanes.compiling_for(platform):
      program = jax.jit(jax.vmap(one)).lower(table)
    return program.compile()(table), "12x9x9x3xui8" in program.as_text()

  (here, _), (there, seen) = made("cpu"), made("tpu")
  assert seen == images
  assert here[1].min() < recipe.epochs
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), there, here
  )


@pytest.mark.slow
@pytest.mark.optimized
def test_zero_epochs_is_initialisation():
  recipe = vs.recipe("digits_cnn", model="linear", epochs=0, augment="")
  data, runs = examples(n=40), vs.Runs.independent(2)
  table = recipe_lanes(recipe, runs, 40)

  def begin(data, run):
    return start(recipe, data, run)

  def go_on(data, run, state, first, last):
    return advance(recipe, data, run, state, first, last)

  # Campaigns run the stages in programs of their own: equal bit for bit.
  stages = lanes.Stages(
    begin, go_on, lambda data, run, state: finish(recipe, state), recipe.epochs
  )
  ((_, ours, _),) = lanes.spread_stages(stages, width=2)(data, table)
  ((_, begun),) = lanes.spread(begin, width=2)(data, table)
  jax.tree.map(np.testing.assert_array_equal, ours.variables["params"], begun.params)
  # Within a larger program some versions of JAX round the last bit of an initial weight
  # differently.
  for variables in (ours.variables, trained(recipe, data, runs).variables):
    for i in range(2):
      by_itself = initialized(recipe, data, lane(table, i))
      jax.tree.map(
        lambda a, b, i=i: np.testing.assert_array_max_ulp(a[i], b, maxulp=4),
        variables,
        by_itself,
      )


# The sources of randomness, on the arrays themselves.


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, None, 0))
def arrays_of(recipe, data, run):
  """Initial parameters, the orders of two epochs, and the augmented images of two
  epochs by example.
  """
  order = jnp.stack([epoch_order(run, jnp.array(e), len(data.targets)) for e in (0, 1)])
  images = jnp.stack(
    [
      augmented_images(recipe, data, run, e, jnp.arange(len(data.targets)))
      for e in (0, 1)
    ]
  )
  return {"init": initialize(recipe, data, run), "order": order, "augment": images}


@pytest.mark.parametrize(
  "size", [0, 1, 2, 2000]
)  # 1,626 and more take two rounds of sorting
def test_the_order_of_an_epoch_is_a_permutation_of_jax(size):
  run = lane(recipe_lanes(vs.recipe("digits_cnn"), vs.Runs.independent(3), 40), 2)
  theirs = jax.random.permutation(jax.random.fold_in(plain.key("order", 2), 5), size)
  np.testing.assert_array_equal(epoch_order(run, jnp.array(5), size), theirs)


@pytest.mark.parametrize("source", ["init", "order", "augment"])
def test_varying_one_source_changes_that_source_alone(source):
  recipe, data = vs.recipe("digits_cnn"), examples()
  arrays = arrays_of(
    recipe, data, recipe_lanes(recipe, vs.Runs.vary(source, 3, fixed=5), 24)
  )
  for name, tree in arrays.items():
    equal = [
      np.array_equal(leaf[0], leaf[1])
      for leaf in jax.tree.leaves(tree)
      if leaf[0].any()
    ]
    assert equal == [name != source] * len(equal), name


class Dropping(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    return nn.Dense(10)(nn.Dropout(0.5, deterministic=not train)(x.reshape(len(x), -1)))


def traced(recipe, data, runs):
  """The training alone, without evaluation."""
  task = make_task(RecipeSetup.on_sets(recipe, (data, {})))
  return trace(task, bind_runs(task, runs))


LINEAR = vs.recipe(
  "digits_cnn", name="linear", model="linear", batch_size=8, epochs=1, augment=""
)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("recipe", "bootstrap", "read"),
  [
    (LINEAR.replace(augment="cutout=2"), False, ["init", "order", "augment"]),
    (LINEAR.replace(epochs=0), False, ["init"]),
    (
      LINEAR.replace(name="dropping", model=Dropping()),
      True,
      ["init", "order", "dropout", "data"],
    ),
    (
      LINEAR.replace(name="own", model=Dropping, dropout=0.0),
      False,
      ["init", "order", "dropout"],
    ),
    (
      LINEAR.replace(name="last", model=Dropping(), trainable=["Dense_0"]),
      False,
      ["init", "order"],
    ),
  ],
)
def test_what_a_training_reads_is_what_changes_its_network(recipe, bootstrap, read):
  data = examples()
  runs = vs.Runs.concat([vs.Runs.vary(source, 2) for source in SOURCES])
  runs = runs.bootstrap() if bootstrap else runs
  kernels = (
    trained(recipe, data, runs)
    .variables["params"]["Dense_0"]["kernel"]
    .reshape(len(SOURCES), 2, -1)
  )
  assert [
    source
    for source, (one, other) in zip(SOURCES, kernels, strict=True)
    if (one != other).any()
  ] == read
  one = traced(recipe, data, runs)
  assert [source for source in SOURCES if depends_on_input(one, source)] == read


def test_the_order_of_a_full_batch_is_read():
  """The order changes rounding errors, which grow in training."""
  recipe = LINEAR.replace(batch_size=24)
  assert depends_on_input(traced(recipe, examples(), vs.Runs.independent(1)), "order")


def test_epochs_differ_in_order_and_augmentation():
  recipe = vs.recipe("digits_cnn")
  arrays = arrays_of(
    recipe, examples(), recipe_lanes(recipe, vs.Runs.independent(3), 24)
  )
  for name in ("order", "augment"):
    assert not np.array_equal(arrays[name][0, 0], arrays[name][0, 1])
  assert sorted(arrays["order"][0, 1].tolist()) == list(range(24))


@pytest.mark.slow
@pytest.mark.optimized
def test_augmentation_of_an_example_does_not_depend_on_its_place():
  recipe, data = vs.recipe("digits_cnn"), examples()
  run = lane(recipe_lanes(recipe, vs.Runs.independent(1), 24), 0)
  order = np.random.default_rng(0).permutation(24)
  straight = augmented_images(recipe, data, run, 3, jnp.arange(24))
  np.testing.assert_array_equal(
    augmented_images(recipe, data, run, 3, jnp.asarray(order)), straight[order]
  )
  assert not np.array_equal(straight[0], straight[1])


@pytest.mark.slow
def test_the_data_seed_draws_the_training_examples():
  recipe = vs.recipe("digits_cnn")
  fixed = recipe_lanes(recipe, vs.Runs.vary("init", 4, fixed=9).bootstrap(), 50)[
    "subset"
  ]
  varied = recipe_lanes(recipe, vs.Runs.vary("data", 4).bootstrap(30), 50)["subset"]
  assert fixed.shape == (4, 50)
  assert varied.shape == (4, 30)
  assert (fixed == fixed[0]).all()
  assert len({tuple(row) for row in varied.tolist()}) == 4
  assert all(len(set(row.tolist())) < 30 for row in varied), (
    "thirty draws with replacement from fifty repeat"
  )
  without = recipe_lanes(recipe, vs.Runs.vary("data", 4).subset(30), 50)["subset"]
  assert all(len(set(row.tolist())) == 30 for row in without)


@pytest.mark.parametrize("size", [1, 2, 30])
def test_repeats_of_bootstrap_samples_are_counted_in_each_run(size):
  entries = recipe_lanes(
    vs.recipe("digits_cnn"), vs.Runs.vary("data", 4).bootstrap(size), 50
  )
  for sample, repeats in zip(entries["subset"], entries["repeats"], strict=True):
    counts = [sample[:place].tolist().count(sample[place]) for place in range(size)]
    assert repeats.tolist() == counts


@pytest.mark.slow
def test_each_repeat_of_an_example_has_its_own_augmentation():
  """The first place of an example draws what it draws without repeats."""
  recipe, data = vs.recipe("digits_cnn", augment="translate=2 cutout=2"), examples()
  subset = np.array([[3, 5, 3, 3, 7, 5], [1, 1, 1, 1, 1, 1], [6, 5, 4, 3, 2, 1]])
  run = recipe_lanes(recipe, vs.Runs.independent(3).subset(subset), 24)
  assert run["repeats"].tolist() == [
    [0, 0, 1, 2, 0, 1],
    [0, 1, 2, 3, 4, 5],
    [0, 0, 0, 0, 0, 0],
  ]
  shown, repeats = jnp.asarray(subset[0]), jnp.asarray(run["repeats"][0])
  drawn = draw_augmentation(recipe, data, lane(run, 0), jnp.array(1), shown, repeats)
  plain = draw_augmentation(recipe, data, lane(run, 0), jnp.array(1), shown)
  rows = [
    tuple(np.concatenate([np.ravel(a[i]) for a in jax.tree.leaves(drawn)]))
    for i in range(6)
  ]
  assert len({*rows}) == 6
  for one, other in zip(jax.tree.leaves(drawn), jax.tree.leaves(plain), strict=True):
    np.testing.assert_array_equal(
      np.asarray(one)[[0, 1, 4]], np.asarray(other)[[0, 1, 4]]
    )
    np.testing.assert_array_equal(other[0], other[2])


@pytest.mark.slow
def test_a_run_sees_its_subset_alone():
  # Examples outside the subset are poisoned: a single one of them in a batch would make
  # the loss NaN.
  recipe = vs.recipe("digits_cnn", model="linear", epochs=2, batch_size=4, augment="")
  data = examples(n=20)
  data = dataclasses.replace(
    data, inputs=data.inputs.astype(jnp.float32).at[12:].set(jnp.nan)
  )
  inside, outside = np.arange(12), np.arange(4, 16)
  out = trained(
    recipe, data, vs.Runs.independent(2).subset(np.stack([inside, outside]))
  )
  assert out.diverged.tolist() == [False, True]


@pytest.mark.slow
@pytest.mark.optimized
def test_a_sweep_gives_each_lane_its_own_values_and_compiles_once():
  recipe, data = (
    vs.recipe("digits_cnn", model="linear", epochs=1, batch_size=6),
    examples(),
  )
  runs = vs.Runs.sweep(lr=[0.0, 0.1], seeds=2)
  traces = []

  def one(data, run):
    traces.append(1)
    return train(recipe, data, run)

  step = lanes.spread(one, width=1)
  parts = [out for _, out in step(data, recipe_lanes(recipe, runs, 24))]
  list(
    step(
      data,
      recipe_lanes(
        recipe.replace(lr=0.7), vs.Runs.sweep(lr=[0.3], momentum=[0.5], seeds=3), 24
      ),
    )
  )
  list(step(data, recipe_lanes(recipe, vs.Runs.independent(5), 24)))
  assert len(traces) == 1
  ours = jax.tree.map(lambda *p: np.concatenate(p), *parts)
  separately = trained(recipe.replace(lr=0.1), data, vs.Runs.independent(2), width=1)
  for row, (seed, lr) in enumerate([(0, 0.0), (0, 0.1), (1, 0.0), (1, 0.1)]):
    if lr:
      jax.tree.map(
        lambda a, b, r=row, s=seed: np.testing.assert_array_equal(a[r], b[s]),
        ours,
        separately,
      )
    else:
      start = initialize(recipe, data, lane(recipe_lanes(recipe, runs, 24), row))
      jax.tree.map(
        lambda a, b, r=row: np.testing.assert_array_equal(a[r], b),
        ours.variables,
        start,
      )


@pytest.mark.slow
@pytest.mark.optimized
def test_label_maps_are_trained_a_run():
  recipe, data = (
    vs.recipe("digits_cnn", model="linear", epochs=2, batch_size=6, augment=""),
    examples(),
  )
  maps = np.array([[0] * 5 + [1] * 5, [0, 1] * 5])
  ours = trained(recipe, data, vs.Runs.independent(2).with_label_map(maps), classes=2)
  for i in range(2):
    relabelled = dataclasses.replace(data, targets=maps[i][data.targets])
    one = trained(recipe, relabelled, vs.Runs.independent(2), classes=2)
    jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b[i]), ours, one)


@pytest.mark.parametrize("part", ["kernel", "bias", "mean"])
def test_one_number_that_is_not_finite_is_divergence(part):
  values = {"kernel": jnp.ones(3), "bias": jnp.ones(3), "mean": jnp.ones(3)}

  def ended(values, nonfinite_steps=0):
    params = {name: values[name] for name in ("kernel", "bias")}
    stats = {"batch_stats": {"mean": values["mean"]}}
    steps = jnp.array(nonfinite_steps)
    return bool(
      finish(
        vs.recipe("digits_cnn"), State(params, stats, (), steps, jnp.array(1))
      ).diverged
    )

  assert not ended(values)
  assert not ended(values, nonfinite_steps=3), "the optimizer left those steps out"
  assert ended({**values, part: values[part].at[1].set(jnp.inf)})


def test_a_lane_that_diverges_is_marked_and_its_neighbours_are_untouched():
  linear = vs.recipe("digits_cnn", model="linear", epochs=2, batch_size=6)
  recipe, data = linear, examples()
  runs = vs.Runs.sweep(lr=[0.05, 1e36], seeds=2)
  ours = trained(recipe, data, runs)
  calm = trained(recipe, data, vs.Runs.sweep(lr=[0.05, 0.01], seeds=2))
  assert ours.diverged.tolist() == [False, True, False, True]
  for row in (0, 2):
    jax.tree.map(
      lambda a, b, r=row: np.testing.assert_array_equal(a[r], b[r]), ours, calm
    )


@pytest.mark.slow
def test_bfloat16_computes_in_bfloat16_and_keeps_float32():
  recipe = vs.recipe("digits_cnn", epochs=1, batch_size=6, precision="bfloat16")
  data = examples()
  half = trained(recipe, data, vs.Runs.independent(2))
  full = trained(recipe.replace(precision="float32"), data, vs.Runs.independent(2))
  assert {str(a.dtype) for a in jax.tree.leaves(half.variables)} == {"float32"}
  differences = jax.tree.map(
    lambda a, b: float(np.abs(a - b).max()), half.variables, full.variables
  )
  assert 1e-5 < max(jax.tree.leaves(differences)) < 0.05


def test_batch_statistics_stay_float32_in_bfloat16():
  recipe = vs.recipe("resnet9_cifar10", width=1 / 16, precision="bfloat16")
  data, run = (
    examples(32, 3, 500),
    lane(recipe_lanes(recipe, vs.Runs.independent(1), 500), 0),
  )
  traced = jax.make_jaxpr(lambda data, run: train(recipe, data, run), return_shape=True)
  program, out = traced(data, run)
  assert {str(a.dtype) for a in jax.tree.leaves(out.variables)} == {"float32"}
  assert "batch_stats" in out.variables
  assert "bf16[500,32,32,4]" in str(program), (
    "the first convolution's output is bfloat16"
  )
