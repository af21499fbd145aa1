"""The recipes as a JAX user trains them: Flax layers and pooling as they come, one
network jitted or many vmapped.

The input pipeline is vmapseeds' own (data set on the device, augmentation inside the
step), so that what differs is how networks run beside each other.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from experiments.banerjee2024.network import BanerjeeCNN
from vmapseeds.models import layers
from vmapseeds.training.inputs import (
  DeviceExamples,
  draw_augmentation,
  epoch_order,
  training_inputs,
)
from vmapseeds.training.optimizers import make_optimizer
from vmapseeds.training.recipe_runs import recipe_lanes
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Runs


class SmallCNN(nn.Module):
  features: tuple[int, ...]
  hidden: tuple[int, ...]
  num_classes: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x):
    for features in self.features:
      x = nn.Conv(features, (3, 3), dtype=self.dtype)(x)
      x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
    x = x.reshape(len(x), -1)
    for features in self.hidden:
      x = nn.Dense(features, dtype=self.dtype)(x)
      x = nn.relu(x)
    return nn.Dense(self.num_classes, dtype=self.dtype)(x)


class ResNet9(nn.Module):
  width: float
  num_classes: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x):
    def block(x, features, kernel=3, stride=1, padding=1):
      x = nn.Conv(
        layers.scale_channels(features, self.width),
        (kernel, kernel),
        stride,
        padding,
        use_bias=False,
        dtype=self.dtype,
      )(x)
      x = nn.BatchNorm(
        use_running_average=False,
        momentum=0.9,
        epsilon=1e-5,
        dtype=self.dtype,
      )(x)
      return nn.relu(x)

    # Jordan 2024, appendix A.1.
    x = block(x, 64)
    x = block(x, 128, kernel=5, stride=2, padding=2)
    x = x + block(block(x, 128), 128)
    x = nn.max_pool(block(x, 256), (2, 2), (2, 2))
    x = x + block(block(x, 256), 256)
    x = block(x, 128, padding=0)
    x = nn.max_pool(x, x.shape[1:3]).reshape(len(x), -1)
    return 0.2 * nn.Dense(self.num_classes, use_bias=False, dtype=self.dtype)(x)


def plain_model(recipe: Recipe, num_classes: int) -> nn.Module:
  """The recipe's network of Flax's own layers."""
  dtype = jnp.dtype(recipe.precision)
  scaled = functools.partial(layers.scale_channels, width=recipe.width)
  return {
    "small_cnn": SmallCNN((scaled(16), scaled(32)), (), num_classes, dtype),
    BanerjeeCNN: SmallCNN(
      (scaled(32), scaled(16)),
      (scaled(64),),
      num_classes,
      dtype,
    ),
    "resnet9": ResNet9(recipe.width, num_classes, dtype),
  }[recipe.model]


# More than any race takes: a learning rate schedule ramps down over so many.
STEPS = 10**6


class State(NamedTuple):
  params: PyTree
  batch_stats: PyTree
  optimizer: PyTree


class Training(NamedTuple):
  """One network's training as pure functions of its run: `init(run)`, `step(data, run,
  state, examples, drawn)`.
  """

  init: Callable
  step: Callable


def training_functions(recipe: Recipe, data: DeviceExamples) -> Training:
  """The functions that start and advance one network."""
  model = plain_model(recipe, data.num_classes)

  def init(run):
    one_image = jnp.zeros((1, *data.inputs.shape[1:]))
    variables = model.init(run.key("init"), one_image)
    params = variables.pop("params")
    optimizer = make_optimizer(recipe, run, STEPS)
    return State(params, variables, optimizer.init(params))

  def step(data, run, state, examples, drawn):
    images = training_inputs(recipe, data, data.inputs[examples], drawn)
    labels = data.targets[examples]

    def loss(params):
      logits, stats = model.apply(
        {"params": params, **state.batch_stats},
        images,
        mutable=["batch_stats"],
      )
      losses = optax.softmax_cross_entropy_with_integer_labels(
        logits.astype(jnp.float32),
        labels,
      )
      return losses.mean(), stats

    gradient, stats = jax.grad(loss, has_aux=True)(state.params)
    optimizer = make_optimizer(recipe, run, STEPS)
    updates, opt_state = optimizer.update(gradient, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return State(params, stats, opt_state)

  return Training(init, step)


class Trainer:
  """Epochs of one network (`lanes=1`) or of `lanes` under `jax.vmap`; steps in a scan,
  or one jitted call each.
  """

  def __init__(self, recipe: Recipe, data: DeviceExamples, *, lanes: int, scan: bool):
    size = len(data)
    self.steps = size // recipe.batch_size
    self.scan = scan
    self.lanes = lanes
    self.epoch = 0
    self.data = jax.device_put(jax.tree.map(np.asarray, data))
    table = recipe_lanes(recipe, Runs.independent(lanes), size)
    self.runs = jax.tree.map(jnp.asarray, table)
    if lanes == 1:
      self.runs = jax.tree.map(lambda a: a[0], self.runs)
    init, step = training_functions(recipe, data)

    def order(run, epoch):
      # What fills no batch is left out.
      used = self.steps * recipe.batch_size
      return epoch_order(run, epoch, size)[:used].reshape(self.steps, -1)

    def whole(data, run, state, epoch):
      examples = order(run, epoch)
      drawn = draw_augmentation(recipe, data, run, epoch, examples)

      def one_step(state, batch):
        return step(data, run, state, *batch), None

      state, _ = jax.lax.scan(one_step, state, (examples, drawn))
      return state

    def single(data, run, state, epoch, examples):
      drawn = draw_augmentation(recipe, data, run, epoch, examples)
      return step(data, run, state, examples, drawn)

    def jitted(f, in_axes, **options):
      if lanes > 1:
        f = jax.vmap(f, in_axes)
      return jax.jit(f, **options)

    self.order = jitted(order, (0, None))
    self.whole = jitted(whole, (None, 0, 0, None), donate_argnums=2)
    self.step = jitted(single, (None, 0, 0, None, 0), donate_argnums=2)
    self.state = jitted(init, 0)(self.runs)

  def __call__(self) -> None:
    """One epoch."""
    if self.scan:
      self.state = self.whole(self.data, self.runs, self.state, self.epoch)
    else:
      order = self.order(self.runs, self.epoch)
      for i in range(self.steps):
        self.state = self.step(
          self.data,
          self.runs,
          self.state,
          self.epoch,
          order[..., i, :],
        )
    self.epoch += 1
    jax.block_until_ready(self.state)
