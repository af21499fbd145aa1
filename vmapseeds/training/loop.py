"""One training, written for one lane: `train(recipe, data, run) -> Trained`, pure and jit-able."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, Real

from vmapseeds import models
from vmapseeds.mistakes import Mistake
from vmapseeds.target import platform
from vmapseeds.training import augment
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

Drawn = tuple[Bool[Array, "*shown"] | Int[Array, "*shown 2"], ...]  # what each augmentation step draws for each image


class DeviceExamples(NamedTuple):
  """Examples on the device, shared by all lanes, and the training set's mean and deviation of pixels a channel."""

  images: Real[Array, "examples height width channels"]  # as stored: uint8, or float32
  labels: Int[Array, " examples"]
  mean: Float[Array, " channels"]
  std: Float[Array, " channels"]


class Trained(NamedTuple):
  """A trained network, and whether its loss or its parameters ever stopped being finite."""

  variables: PyTree[Float[Array, "..."]]
  diverged: Bool[Array, ""]


def network(recipe: Recipe, num_classes: int):
  """The recipe's Flax module."""
  return models.build(recipe.model, num_classes=num_classes, width=recipe.width, precision=recipe.precision)


def check_size(recipe: Recipe, image: Sequence[int], num_classes: int, memory: float) -> None:
  """`Mistake` where a network is larger than its weights can be counted, or than so many bytes can train."""
  model = network(recipe, num_classes)
  params = jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((1, *image)), train=False))["params"]
  count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
  # At least parameters, their gradient and the optimiser's moments, all in float32.
  needed = 4 * count * {"sgd": 3, "adam": 4}[recipe.optimizer]
  if count >= 2**31 or needed > memory:
    given = f"{recipe.model} of width {recipe.width:g} has {count:,} parameters, in training {needed / 1e9:.3g} GB"
    raise Mistake(f"{given}: more than there is memory for, give a smaller width")


def normalize(images: Array, mean: Float[Array, " channels"], std: Float[Array, " channels"]) -> Float[Array, "..."]:
  """Pixel values as the network sees them."""
  return (images.astype(jnp.float32) - mean) / std


def initialize(recipe: Recipe, data: DeviceExamples, run: Run, num_classes: int) -> PyTree[Float[Array, "..."]]:
  """The variables before training: a function of the init seed."""
  image = jnp.zeros((1, *data.images.shape[1:]))
  return network(recipe, num_classes).init(run.key("init"), image, train=False)


def epoch_order(run: Run, epoch: Int[Array, ""], size: int) -> Int[Array, " examples"]:
  """The order in which an epoch shows the run's training examples: a function of the order seed."""
  return jax.random.permutation(jax.random.fold_in(run.key("order"), epoch), size)


def draw_augmentation(
  recipe: Recipe, data: DeviceExamples, run: Run, epoch: Int[Array, ""], examples: Int[Array, "*shown"]
) -> Drawn:
  """What an epoch's augmentation draws for each example: a function of the augment seed, whatever the order."""
  key = jax.random.fold_in(run.key("augment"), epoch)
  height, width = data.images.shape[1:3]

  def one(example):
    return augment.draws(recipe.augment, jax.random.fold_in(key, example), height, width)

  drawn = jax.vmap(one)(examples.ravel())
  return jax.tree.map(lambda draw: draw.reshape(*examples.shape, *draw.shape[1:]), drawn)


def training_images(
  recipe: Recipe, data: DeviceExamples, images: Real[Array, "batch height width channels"], drawn: Drawn
) -> Float[Array, "batch height width channels"]:
  """Images of the training set, augmented and normalised, given what `draw_augmentation` drew for them."""
  # Cutout is filled with the mean in whole pixel values, as in the published script.
  fill = jnp.floor(data.mean) if data.images.dtype == jnp.uint8 else data.mean

  def one(image, drawn):
    return normalize(augment.apply(recipe.augment, image, drawn, fill.astype(image.dtype)), data.mean, data.std)

  # On accelerators side by side, not one after another: three channels would leave a vector register almost empty.
  axis = 0 if platform() == "cpu" else -1
  return jax.vmap(one, in_axes=(axis, 0))(jnp.moveaxis(images, 0, axis), drawn)


def stored_rows(images: Real[Array, "examples height width channels"]) -> Real[Array, "examples height pixels"]:
  """The images as an accelerator fetches them fast: a row of pixels is one vector, and an image is in one place."""
  rows = images.reshape(*images.shape[:2], -1)
  return with_layout_constraint(rows, Layout(major_to_minor=(0, 1, 2)))


def make_optimizer(recipe: Recipe, run: Run, num_steps: int) -> optax.GradientTransformation:
  """SGD with momentum or Adam, L2 weight decay on every parameter; the run's own values, so a sweep compiles once."""
  ramp = {"linear": lambda step: 1 - step / num_steps, "constant": lambda step: 1.0}[recipe.schedule]
  moments = {"sgd": lambda decay: optax.trace(decay), "adam": lambda decay: optax.scale_by_adam(b1=decay)}
  return optax.chain(
    optax.add_decayed_weights(run.weight_decay),
    moments[recipe.optimizer](run.momentum),
    optax.scale_by_schedule(lambda step: -run.lr * ramp(step)),
  )


def poke_place(params: PyTree[Float[Array, "..."]], key: Key[Array, ""]) -> Int[Array, ""]:
  """Which weight a poke changes, counted through all of them; biases, which begin at 0, are no weights here."""
  return jax.random.randint(key, (), 0, sum(leaf.size for leaf in jax.tree.leaves(params) if leaf.ndim > 1))


def poke(params: PyTree[Float[Array, "..."]], place: Int[Array, ""], factor: Float[Array, ""]) -> PyTree:
  """`params` with the weight at `place` multiplied by `factor`."""
  leaves, structure = jax.tree.flatten(params)
  for i, leaf in enumerate(leaves):
    if leaf.ndim > 1:
      # Not an indexed update, for which a TPU would lay every weight out anew.
      here = jnp.arange(leaf.size).reshape(leaf.shape) == place
      leaves[i] = jnp.where(here, leaf * factor, leaf)
      place -= leaf.size
  return jax.tree.unflatten(structure, leaves)


class State(NamedTuple):
  """A network in training, between two epochs."""

  params: PyTree[Float[Array, "..."]]
  batch_stats: PyTree[Float[Array, "..."]]
  opt_state: PyTree[Array]
  diverged: Bool[Array, ""]  # whether its loss ever stopped being finite


def steps_per_epoch(recipe: Recipe, data: DeviceExamples, run: Run) -> int:
  """How many whole batches the run's training examples make."""
  return (len(data.labels) if run.subset is None else len(run.subset)) // recipe.batch_size


def start(recipe: Recipe, data: DeviceExamples, run: Run, num_classes: int) -> State:
  """The network before its first epoch."""
  variables = initialize(recipe, data, run, num_classes)
  params, batch_stats = variables.pop("params"), variables
  optimizer = make_optimizer(recipe, run, recipe.epochs * steps_per_epoch(recipe, data, run))
  return State(params, batch_stats, optimizer.init(params), jnp.array(False))


def advance(
  recipe: Recipe, data: DeviceExamples, run: Run, num_classes: int, state: State, first: Int[Array, ""] | int,
  last: Int[Array, ""] | int,
) -> State:  # fmt: skip
  """Trains a network from its run's seeds for the epochs from `first`, counted from 0, to `last`, not included."""
  model = network(recipe, num_classes)
  rows = stored_rows(data.images)
  size = len(data.labels) if run.subset is None else len(run.subset)
  epoch_steps = steps_per_epoch(recipe, data, run)
  optimizer = make_optimizer(recipe, run, recipe.epochs * epoch_steps)
  poked = poke_place(state.params, jax.random.fold_in(run.key("init"), 1))

  def loss(params, batch_stats, images, labels, key):
    logits, updates = model.apply(
      {"params": params, **batch_stats}, images, train=True, mutable=["batch_stats"], rngs={"dropout": key}
    )
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean(), updates

  def step(state, batch):
    params, batch_stats, opt_state, diverged = state
    number, examples, drawn = batch
    params = poke(params, poked, jnp.where(number == run.poke_step, run.poke_factor, 1.0))

    images = rows[examples].reshape(recipe.batch_size, *data.images.shape[1:])
    images = training_images(recipe, data, images, drawn)
    labels = data.labels[examples] if run.label_map is None else run.label_map[data.labels[examples]]
    dropout_key = jax.random.fold_in(run.key("dropout"), number)
    (value, batch_stats), gradient = jax.value_and_grad(loss, has_aux=True)(
      params, batch_stats, images, labels, dropout_key
    )
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    return State(optax.apply_updates(params, updates), batch_stats, opt_state, diverged | ~jnp.isfinite(value)), None

  def one_epoch(epoch, state):
    order = epoch_order(run, epoch, size)[: epoch_steps * recipe.batch_size]
    examples = (order if run.subset is None else run.subset[order]).reshape(epoch_steps, recipe.batch_size)
    drawn = draw_augmentation(recipe, data, run, epoch, examples)
    numbers = epoch * epoch_steps + jnp.arange(epoch_steps)
    return jax.lax.scan(step, state, (numbers, examples, drawn))[0]

  return jax.lax.fori_loop(first, last, one_epoch, state)


def finish(state: State) -> Trained:
  """What a state is when nothing more is trained."""
  variables = {"params": state.params, **state.batch_stats}
  finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(variables)])
  return Trained(variables, state.diverged | ~finite.all())


def train(recipe: Recipe, data: DeviceExamples, run: Run, num_classes: int) -> Trained:
  """Trains one network from its run's seeds.

  Args:
    recipe: static; everything but the randomness.
    data: the training set on the device.
    run: one row of the runs table, traced.
    num_classes: how many classes the network tells apart.
  """
  state = start(recipe, data, run, num_classes)
  return finish(advance(recipe, data, run, num_classes, state, 0, recipe.epochs))


def reads(recipe: Recipe, data: DeviceExamples, run: Run, num_classes: int, columns: Sequence[str]) -> bool:
  """Whether a network depends on some columns of the runs table. The training is traced, and nothing computed.

  Args:
    recipe: static.
    data: the training set, of which the shapes count.
    run: one row of the runs table, of which the shapes count.
    num_classes: how many classes the network tells apart.
    columns: fields of `Run`.
  """

  def network(data, run):
    state = start(recipe, data, run, num_classes)
    return advance(recipe, data, run, num_classes, state, 0, recipe.epochs).params if recipe.epochs else state.params

  # What a batch axis does not reach does not depend on what has one.
  axes = Run(**{name: 0 if name in columns else None for name in Run._fields})
  batched = run._replace(**{name: jax.tree.map(lambda a: a[None], getattr(run, name)) for name in columns})
  try:
    jax.eval_shape(jax.vmap(network, in_axes=(None, axes), out_axes=None), data, batched)
  except ValueError:
    return True
  return False
