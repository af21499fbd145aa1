"""Examples on the device, and how a network sees them: fetched, augmented, normalised."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Int, Num, PyTree, Real

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.target import platform
from vmapseeds.training import augment
from vmapseeds.training.objects import is_name
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

TILE = 32  # rows of bytes in one tile of a TPU's memory; larger dtypes have fewer

Drawn = PyTree[Array]  # what augmentation draws for each input


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DeviceExamples:
  """Examples on the device, shared by all lanes, and the training set's mean and
  standard deviation per channel.

  The arrays are JAX's or NumPy's, or `jax.ShapeDtypeStruct`s in their place.
  """

  # (examples, ...), as stored: uint8 images (examples, height, width, channels), or
  # numbers of any shape
  inputs: Any
  targets: Any  # (examples, ...)
  mean: Any  # (channels,); None: inputs are not normalised
  std: Any
  num_classes: int | None = dataclasses.field(
    metadata=dict(static=True)
  )  # None: targets are not classes
  # The shape of one input as the network sees it, if inputs are stored in another
  # shape.
  shape: tuple[int, ...] | None = dataclasses.field(
    default=None, metadata=dict(static=True)
  )

  def __len__(self) -> int:
    return len(self.targets)

  def preprocess(self, inputs: Real[Array, "batch ..."]) -> Real[Array, "batch ..."]:
    """Return stored inputs as the network sees them."""
    # Without the barrier, XLA for TPUs makes images of stored rows in float32 instead
    # of in bytes.
    if platform() == "tpu" and inputs.ndim == 4:
      inputs = jax.lax.optimization_barrier(inputs)
    shape = self.shape or inputs.shape[1:]
    normalized = normalize(inputs, self.mean, self.std)
    return normalized.reshape(len(inputs), *shape)


# What all runs share: the training set, and the test sets.
Sets = tuple[DeviceExamples, dict[str, DeviceExamples]]


def batch_like(data: DeviceExamples, size: int) -> jax.ShapeDtypeStruct:
  """Return the shape and dtype of a batch as the network sees it."""
  is_normalized = data.mean is not None
  dtype = jnp.float32 if is_normalized else data.inputs.dtype
  shape = data.shape or data.inputs.shape[1:]
  return jax.ShapeDtypeStruct((size, *shape), dtype)


def steps_per_epoch(recipe: Recipe, data: DeviceExamples, run: Run) -> int:
  """Return how many whole batches the run's training examples make."""
  subset = run.get("subset")
  examples = len(data) if subset is None else len(subset)
  return examples // recipe.batch_size


def epoch_order(run: Run, epoch: Int[Array, ""], size: int) -> Int[Array, " examples"]:
  """Return the order in which an epoch shows the run's training examples: a function of
  the order seed.

  It equals `jax.random.permutation`, but the rounds of sorting are a loop: TPU compilers
  take seconds per sort.
  """

  def shuffle(_, state):
    key, order = state
    key, sort_key = jax.random.split(key)
    words = jax.random.bits(sort_key, (size,), np.uint32)
    _, order = jax.lax.sort_key_val(words, order)
    return key, order

  # As many rounds as in JAX: of equal words, sorting keeps the order.
  rounds = math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))
  key = jax.random.fold_in(run.key("order"), epoch)
  _, order = jax.lax.fori_loop(0, rounds, shuffle, (key, jnp.arange(size)))
  return order


def batches(
  run: Run, epoch: Int[Array, ""] | int, n: int, batch_size: int
) -> Int[Array, "steps batch"]:
  """Return which of `n` examples each step of an epoch shows, in the order in which
  recipes show them: a function of the order seed. The last, smaller batch is dropped.

  Raises:
    UserError: the batch size is no whole number from 1 to `n`.
  """
  if check_at_least("batch_size", batch_size, 1) > n:
    raise UserError(
      f"batch_size is {batch_size} with {n} examples: give at most as many"
    )
  steps = n // batch_size
  order = epoch_order(run, jnp.asarray(epoch), n)
  return order[: steps * batch_size].reshape(steps, batch_size)


def targets_of(data: DeviceExamples, run: Run) -> Num[Array, "examples ..."]:
  """Return the examples' targets, mapped by the run's label map if it has one."""
  label_map = run.get("label_map")
  if label_map is None:
    return data.targets
  return label_map[data.targets]


def normalize(
  inputs: Array,
  mean: Float[Array, " channels"] | None,
  std: Float[Array, " channels"] | None,
) -> Real[Array, "..."]:
  """Return `(inputs - mean) / std` in float32, or `inputs` unchanged if `mean` or `std`
  is None.
  """
  if mean is None or std is None:
    return inputs
  # Explicit axes, which work under `jax_numpy_rank_promotion=raise`.
  axes = tuple(range(inputs.ndim - 1))
  mean = jnp.expand_dims(mean, axes)
  std = jnp.expand_dims(std, axes)
  return (inputs.astype(jnp.float32) - mean) / std


def as_vectors(data: DeviceExamples) -> DeviceExamples:
  """Return the same examples with each input stored as one vector."""
  inputs = data.inputs.reshape(len(data), -1)
  shape = data.inputs.shape[1:]
  vectors = dataclasses.replace(data, inputs=inputs, shape=shape)
  if data.mean is None:
    return vectors
  # Channels are the last axis of an input.
  repeats = inputs.shape[1] // len(data.mean)
  mean = jnp.tile(data.mean, repeats)
  std = jnp.tile(data.std, repeats)
  return dataclasses.replace(vectors, mean=mean, std=std)


def stored_rows(inputs: Real[Array, "examples ..."]) -> Real[Array, "examples ..."]:
  """Return images in a layout that accelerators gather fast: a row of pixels is one
  vector, and an image is contiguous.
  """
  if inputs.ndim not in (2, 4):
    return inputs
  # One vector for a whole image, if it fits in one register of a TPU, which is 128
  # numbers wide.
  fits_register = platform() == "tpu" and math.prod(inputs.shape[1:]) <= 128
  if inputs.ndim == 2 or fits_register:
    rows = inputs.reshape(inputs.shape[0], -1)
  else:
    rows = inputs.reshape(*inputs.shape[:2], -1)
  row_major = Layout(tuple(range(rows.ndim)))
  return with_layout_constraint(rows, row_major)


def gather_rows(
  data: DeviceExamples,
  rows: Real[Array, "examples ..."],
  examples: Int[Array, " batch"],
) -> Real[Array, "batch ..."]:
  """Return the stored inputs of `examples`, given all rows. On a TPU whole tiles are
  fetched, or it would move lanes one by one.
  """
  count = len(examples)
  padding = 0
  if platform() == "tpu" and rows.ndim == 2:
    padding = -count % TILE
  padded = jnp.pad(examples, (0, padding))
  fetched = rows[padded][:count]
  return fetched.reshape(count, *data.inputs.shape[1:])


def draw_augmentation(
  recipe: Recipe,
  data: DeviceExamples,
  run: Run,
  epoch: Int[Array, ""],
  examples: Int[Array, "*places"],
  repeats: Int[Array, "*places"] | None = None,
) -> Drawn:
  """Draw an epoch's augmentation for each example: a function of the augment seed,
  independent of the order.

  Args:
    recipe: what is trained.
    data: the training set.
    run: one row of the runs table.
    epoch: counted from 0.
    examples: their places in the training set.
    repeats: how many times before its place the run's sample has the same example. Each
      of them is drawn for apart, as where all examples differ.
  """
  key = jax.random.fold_in(run.key("augment"), epoch)
  shape = data.inputs.shape[1:]

  def draw_with(key, example, repeat):
    example_key = jax.random.fold_in(key, example)
    if repeat is not None:
      is_repeated = repeat > 0
      repeat_key = jax.random.fold_in(example_key, repeat)
      example_key = jax.lax.select(is_repeated, repeat_key, example_key)
    return augment.draw_steps(recipe.augment, example_key, shape)

  def draw_one(example, repeat):
    drawn = draw_with(key, example, repeat)
    if not augment.alternates(recipe.augment):
      return drawn
    first_key = jax.random.fold_in(run.key("augment"), 0)
    first = draw_with(first_key, example, repeat)
    return augment.alternated(recipe.augment, drawn, first, epoch)

  flat_examples = examples.ravel()
  flat_repeats = None if repeats is None else repeats.ravel()
  drawn = jax.vmap(draw_one)(flat_examples, flat_repeats)
  return jax.tree.map(
    lambda draw: draw.reshape(*examples.shape, *draw.shape[1:]), drawn
  )


def training_inputs(
  recipe: Recipe, data: DeviceExamples, inputs: Real[Array, "batch ..."], drawn: Drawn
) -> Real[Array, "batch ..."]:
  """Return inputs of the training set, augmented and normalised, given what
  `draw_augmentation` drew for them.
  """
  if not recipe.augment:
    return data.preprocess(inputs)

  fill = jnp.zeros(inputs.shape[-1:]) if data.mean is None else data.mean
  # Cutout fills with the mean rounded down to whole pixel values, as in the published
  # script.
  if data.inputs.dtype == jnp.uint8:
    fill = jnp.floor(fill)
  fill = fill.astype(data.inputs.dtype)

  # A user's own function gets the numbers that will be normalised, in float32.
  gets_floats = not is_name(recipe.augment) and data.mean is not None

  def augment_one(single, drawn):
    if gets_floats:
      single = single.astype(jnp.float32)
    augmented = augment.apply_steps(recipe.augment, single, drawn, fill)
    return normalize(augmented, data.mean, data.std)

  # On accelerators the batch is the last axis: three channels would leave vector
  # registers almost empty.
  axis = 0 if platform() == "cpu" else -1
  batched_last = jnp.moveaxis(inputs, 0, axis)
  return jax.vmap(augment_one, in_axes=(axis, 0))(batched_last, drawn)
