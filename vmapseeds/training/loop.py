"""One training, written for one lane: `train(recipe, data, run) -> Trained`, pure and jit-able."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Bool, Float, Int, Key, Num, PyTree, Real

from vmapseeds.mistakes import Mistake
from vmapseeds.target import platform
from vmapseeds.training import augment
from vmapseeds.training.losses import loss_of, predict_of
from vmapseeds.training.networks import last_layer, network, path_of
from vmapseeds.training.objects import is_name, name_of, told
from vmapseeds.training.optimizers import make_optimizer
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

Drawn = PyTree[Array]  # what augmentation draws for each input


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeviceExamples:
  """Examples on the device, shared by all lanes, and the training set's mean and deviation a channel.

  Arrays of JAX or NumPy, or what they look like.
  """

  inputs: Any  # (examples, ...), as stored: uint8 images (examples, height, width, channels), or numbers of any shape
  targets: Any  # (examples, ...)
  mean: Any  # (channels,); None: inputs are not normalised
  std: Any
  num_classes: int | None = dataclasses.field(metadata=dict(static=True))  # None: targets are no classes

  def __len__(self) -> int:
    return len(self.targets)


class Trained(NamedTuple):
  """A trained network, and whether its loss or its parameters ever stopped being finite."""

  variables: PyTree[Float[Array, "..."]]
  diverged: Bool[Array, ""]


def batch_like(data: DeviceExamples, size: int) -> jax.ShapeDtypeStruct:
  """What a batch looks like to the network."""
  dtype = data.inputs.dtype if data.mean is None else jnp.float32
  return jax.ShapeDtypeStruct((size, *data.inputs.shape[1:]), dtype)


def variables_of(recipe: Recipe, data: DeviceExamples) -> PyTree[jax.ShapeDtypeStruct]:
  """What one run's parameters and batch statistics look like. `Mistake` where the network cannot take the inputs."""
  inputs, key = batch_like(data, 3), jax.random.key(0)
  model = f"model {name_of(recipe.model)}"
  try:
    made = network(recipe, data.num_classes)
    variables = jax.eval_shape(made.init, key, inputs)
    outputs = jax.eval_shape(made.apply, variables, inputs)
  except Mistake:
    raise
  except Exception as error:  # whatever the user's network does
    shape = "×".join(map(str, data.inputs.shape[1:]))
    raise Mistake(f"{model} on inputs of {shape} fails ({told(error)}): give another") from error
  if "params" not in variables:
    raise Mistake(f"{model} has no parameters to train: give another")
  if not isinstance(outputs, jax.ShapeDtypeStruct) or outputs.shape[:1] != (3,):
    given = getattr(outputs, "shape", type(outputs).__name__)
    raise Mistake(f"{model} gives {given} for a batch of 3: give one array, its first axis the example")
  if data.num_classes is not None and outputs.shape[1:] != (data.num_classes,):
    raise Mistake(f"{model} gives outputs of shape {outputs.shape[1:]}: give {data.num_classes}, one a class")
  return variables


def check_size(recipe: Recipe, data: DeviceExamples, memory: float) -> None:
  """`Mistake` where a network cannot take the inputs, is larger than its weights can be counted, or than so many bytes
  can train."""
  count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(variables_of(recipe, data)["params"]))
  # At least parameters, their gradient and the optimiser's moments, all in float32.
  moments = {"sgd": 1, "nesterov": 1, "adam": 2, "adamw": 2}
  needed = 4 * count * (2 + (moments.get(recipe.optimizer, 0) if isinstance(recipe.optimizer, str) else 0))
  if count >= 2**31 or needed > memory:
    given = f"{recipe.model} of width {recipe.width:g} has {count:,} parameters, in training {needed / 1e9:.3g} GB"
    raise Mistake(f"{given}: more than there is memory for, give a smaller width")


def normalize(
  inputs: Array, mean: Float[Array, " channels"] | None, std: Float[Array, " channels"] | None
) -> Real[Array, "..."]:
  """Inputs as the network sees them."""
  return inputs if mean is None or std is None else (inputs.astype(jnp.float32) - mean) / std


def initialize(recipe: Recipe, data: DeviceExamples, run: Run) -> PyTree[Float[Array, "..."]]:
  """The variables before training: a function of the init seed, but for those that the run starts from."""
  variables = network(recipe, data.num_classes).init(run.key("init"), jnp.zeros_like(batch_like(data, 1)))
  stored = run.start or {}
  return jax.tree.map_with_path(lambda path, fresh: stored.get(path_of(path), fresh), variables)


def epoch_order(run: Run, epoch: Int[Array, ""], size: int) -> Int[Array, " examples"]:
  """The order in which an epoch shows the run's training examples: a function of the order seed."""
  return jax.random.permutation(jax.random.fold_in(run.key("order"), epoch), size)


def draw_augmentation(
  recipe: Recipe, data: DeviceExamples, run: Run, epoch: Int[Array, ""], examples: Int[Array, "*shown"]
) -> Drawn:
  """What an epoch's augmentation draws for each example: a function of the augment seed, whatever the order."""
  key = jax.random.fold_in(run.key("augment"), epoch)

  def one(example):
    return augment.draws(recipe.augment, jax.random.fold_in(key, example), data.inputs.shape[1:])

  drawn = jax.vmap(one)(examples.ravel())
  return jax.tree.map(lambda draw: draw.reshape(*examples.shape, *draw.shape[1:]), drawn)


def training_inputs(
  recipe: Recipe, data: DeviceExamples, inputs: Real[Array, "batch ..."], drawn: Drawn
) -> Real[Array, "batch ..."]:
  """Inputs of the training set, augmented and normalised, given what `draw_augmentation` drew for them."""
  if not recipe.augment:
    # XLA for TPUs would make images of the stored rows as float32, not as bytes.
    inputs = jax.lax.optimization_barrier(inputs) if platform() == "tpu" else inputs
    return normalize(inputs, data.mean, data.std)

  def one(single, drawn):
    if own and data.mean is not None:
      single = single.astype(jnp.float32)
    return normalize(augment.apply(recipe.augment, single, drawn, fill), data.mean, data.std)

  # Cutout is filled with the mean in whole pixel values, as in the published script.
  mean = jnp.zeros(inputs.shape[-1:]) if data.mean is None else data.mean
  fill = (jnp.floor(mean) if data.inputs.dtype == jnp.uint8 else mean).astype(data.inputs.dtype)
  own = not is_name(recipe.augment)
  # On accelerators side by side, not one after another: three channels would leave a vector register almost empty.
  axis = 0 if platform() == "cpu" else -1
  return jax.vmap(one, in_axes=(axis, 0))(jnp.moveaxis(inputs, 0, axis), drawn)


def stored_rows(inputs: Real[Array, "examples ..."]) -> Real[Array, "examples ..."]:
  """Images as an accelerator fetches them fast: a row of pixels is one vector, and an image is in one place."""
  if inputs.ndim != 4:
    return inputs
  rows = inputs.reshape(*inputs.shape[:2], -1)
  return with_layout_constraint(rows, Layout(major_to_minor=(0, 1, 2)))


def poke_place(params: PyTree[Float[Array, "..."]], key: Key[Array, ""]) -> Int[Array, ""]:
  """Which weight a poke changes, counted through all of them; biases, which begin at 0, are no weights here."""
  return jax.random.randint(key, (), 0, sum(leaf.size for leaf in jax.tree.leaves(params) if leaf.ndim > 1))


def poke(params: PyTree[Float[Array, "..."]], place: Int[Array, ""], factor: Float[Array, ""]) -> PyTree:
  """`params` with the weight at `place` multiplied by `factor`."""
  leaves, structure = jax.tree.flatten(params)
  before = 0
  for i, leaf in enumerate(leaves):
    if leaf.ndim > 1:
      # Not an indexed update, for which a TPU would lay every weight out anew.
      here = before + jnp.arange(leaf.size).reshape(leaf.shape) == place
      leaves[i] = jnp.where(here, leaf * factor, leaf)
      before += leaf.size
  return jax.tree.unflatten(structure, leaves)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Joined:
  """Parameters whose vectors, such as biases, are one, so that an optimizer goes over all of them at once."""

  others: Any  # a list of those that are no vectors
  vectors: Any  # (numbers,), after the axis of lanes where there is one
  sizes: tuple[int | None, ...] = dataclasses.field(metadata=dict(static=True))  # of each parameter; None: no vector
  structure: Any = dataclasses.field(metadata=dict(static=True))

  def apart(self) -> PyTree[Float[Array, "..."]]:
    """The parameters as they were."""
    others, ends = iter(self.others), np.cumsum([size or 0 for size in self.sizes]).tolist()
    # Slices, not `split`, whose gradient XLA does not fuse with what reads it.
    return self.structure.unflatten([
      next(others) if size is None else self.vectors[end - size : end]
      for size, end in zip(self.sizes, ends, strict=True)
    ])


def joined(recipe: Recipe, params: PyTree[Float[Array, "..."]]) -> PyTree[Float[Array, "..."]]:
  """Parameters as the optimizer has them.

  On accelerators, where each operation costs, they are joined if it is one of ours, which treat all numbers alike.
  """
  leaves, structure = jax.tree.flatten(params)
  sizes = tuple(leaf.size if leaf.ndim == 1 and leaf.dtype == jnp.float32 else None for leaf in leaves)
  vectors = [leaf for leaf, size in zip(leaves, sizes, strict=True) if size is not None]
  alike = is_name(recipe.optimizer) and recipe.trainable == "all"
  if platform() == "cpu" or not alike or len(vectors) < 2:
    return params
  others = [leaf for leaf, size in zip(leaves, sizes, strict=True) if size is None]
  return Joined(others, jnp.concatenate(vectors), sizes, structure)


def apart(params: PyTree[Float[Array, "..."]]) -> PyTree[Float[Array, "..."]]:
  """Parameters as the network has them."""
  return params.apart() if isinstance(params, Joined) else params


class State(NamedTuple):
  """A network in training, between two epochs."""

  params: PyTree[Float[Array, "..."]]  # perhaps `Joined`
  batch_stats: PyTree[Float[Array, "..."]]
  opt_state: PyTree[Array]
  diverged: Bool[Array, ""]  # whether its loss ever stopped being finite
  epochs: Int[Array, ""]  # that it trains in all: the recipe's, or those after which it reached `stop_at`


def steps_per_epoch(recipe: Recipe, data: DeviceExamples, run: Run) -> int:
  """How many whole batches the run's training examples make."""
  return (len(data) if run.subset is None else len(run.subset)) // recipe.batch_size


def targets_of(data: DeviceExamples, run: Run) -> Num[Array, "examples ..."]:
  """The examples' targets, through the run's label map, if it has one."""
  return data.targets if run.label_map is None else run.label_map[data.targets]


def optimizer_of(recipe: Recipe, data: DeviceExamples, run: Run, params: PyTree) -> optax.GradientTransformation:
  """The run's optimizer, of those parameters that are trained."""
  optimizer = make_optimizer(recipe, run, recipe.epochs * steps_per_epoch(recipe, data, run))
  if recipe.trainable == "all":
    return optimizer
  last = last_layer(network(recipe, data.num_classes).apply, variables_of(recipe, data), batch_like(data, 1))
  frozen = jax.tree.map_with_path(lambda path, _: f"params.{path_of(path)}" not in last, params)
  return optax.selective_transform(optimizer, freeze_mask=frozen)


def start(recipe: Recipe, data: DeviceExamples, run: Run) -> State:
  """The network before its first epoch."""
  variables = initialize(recipe, data, run)
  params, batch_stats = joined(recipe, variables.pop("params")), variables
  opt_state = optimizer_of(recipe, data, run, params).init(params)
  return State(params, batch_stats, opt_state, jnp.array(False), jnp.array(recipe.epochs))


def stepping(recipe: Recipe, data: DeviceExamples, run: Run, begun: State) -> Callable[..., State]:
  """What a training step does: (state, number of the step, inputs as the network sees them, targets) -> state.

  `begun` is a state of the network, which says what its parameters look like.
  """
  model, loss_of_each = network(recipe, data.num_classes), loss_of(recipe)
  optimizer = optimizer_of(recipe, data, run, begun.params)
  poked = poke_place(begun.params, jax.random.fold_in(run.key("init"), 1))

  def loss(params, batch_stats, inputs, targets, key):
    outputs, updates = model.train({"params": apart(params), **batch_stats}, inputs, key)
    return loss_of_each(outputs.astype(jnp.float32), targets).mean(), updates

  def take_step(state, number, inputs, targets):
    params, batch_stats, opt_state, diverged, epochs = state
    params = poke(params, poked, jnp.where(number == run.poke_step, run.poke_factor, 1.0))
    dropout_key = jax.random.fold_in(run.key("dropout"), number)
    (value, batch_stats), gradient = jax.value_and_grad(loss, has_aux=True)(
      params, batch_stats, inputs, targets, dropout_key
    )
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    params, diverged = optax.apply_updates(params, updates), diverged | ~jnp.isfinite(value)
    return State(params, batch_stats, opt_state, diverged, epochs)

  return take_step


def reaches(recipe: Recipe, data: DeviceExamples, run: Run, state: State, share: float) -> Bool[Array, ""]:
  """Whether a network is right on such a share of its training examples, as evaluation shows them.

  Mistakes are counted a batch at a time, and no further than there may be.
  """
  shown = jnp.arange(len(data)) if run.subset is None else run.subset
  # Less than any example, so that 0.07 of 100, which is rounded up, is 7.
  most = len(shown) - math.ceil(share * len(shown) * (1 - 1e-12))
  rows, targets = stored_rows(data.inputs), targets_of(data, run)
  apply, predict = network(recipe, data.num_classes).apply, predict_of(recipe)
  variables = {"params": apart(state.params), **state.batch_stats}

  def count(counted):
    first, wrong = counted
    places = first + jnp.arange(recipe.batch_size)
    examples = shown[jnp.minimum(places, len(shown) - 1)]
    inputs = rows[examples].reshape(recipe.batch_size, *data.inputs.shape[1:])
    predictions = predict(apply(variables, normalize(inputs, data.mean, data.std)).astype(jnp.float32))
    mistaken = (predictions != targets[examples]) & (places < len(shown))
    return first + recipe.batch_size, wrong + mistaken.sum()

  none = jnp.array(0)
  return jax.lax.while_loop(lambda at: (at[0] < len(shown)) & (at[1] <= most), count, (none, none))[1] <= most


def advance(
  recipe: Recipe, data: DeviceExamples, run: Run, state: State, first: Int[Array, ""] | int, last: Int[Array, ""] | int
) -> State:
  """Trains a network from its run's seeds for the epochs from `first`, counted from 0, to `last`, not included.

  It stops after the first of them in which it reaches `recipe.stop_at`.
  """
  take_step = stepping(recipe, data, run, state)
  rows, targets = stored_rows(data.inputs), targets_of(data, run)
  size = len(data) if run.subset is None else len(run.subset)
  epoch_steps = steps_per_epoch(recipe, data, run)

  def step(state, batch):
    number, examples, drawn = batch
    inputs = rows[examples].reshape(recipe.batch_size, *data.inputs.shape[1:])
    return take_step(state, number, training_inputs(recipe, data, inputs, drawn), targets[examples]), None

  def one_epoch(at):
    epoch, state = at
    order = epoch_order(run, epoch, size)[: epoch_steps * recipe.batch_size]
    examples = (order if run.subset is None else run.subset[order]).reshape(epoch_steps, recipe.batch_size)
    drawn = draw_augmentation(recipe, data, run, epoch, examples)
    numbers = epoch * epoch_steps + jnp.arange(epoch_steps)
    state = jax.lax.scan(step, state, (numbers, examples, drawn))[0]
    if recipe.stop_at is not None:
      right = reaches(recipe, data, run, state, recipe.stop_at)
      state = state._replace(epochs=jnp.where(right, epoch + 1, state.epochs))
    return epoch + 1, state

  def goes_on(at):
    epoch, state = at
    return epoch < (last if recipe.stop_at is None else jnp.minimum(last, state.epochs))

  return jax.lax.while_loop(goes_on, one_epoch, (first, state))[1]


def finish(state: State) -> Trained:
  """What a state is when nothing more is trained."""
  variables = {"params": apart(state.params), **state.batch_stats}
  finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(variables)])
  return Trained(variables, state.diverged | ~finite.all())


def train(recipe: Recipe, data: DeviceExamples, run: Run) -> Trained:
  """Trains one network from its run's seeds.

  Args:
    recipe: static; everything but the randomness.
    data: the training set on the device.
    run: one row of the runs table, traced.
  """
  return finish(advance(recipe, data, run, start(recipe, data, run), 0, recipe.epochs))
