"""Examples on the device, and how a network sees them: fetched, augmented, normalised."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float, Int, Num, PyTree, Real

from vmapseeds.mistakes import Mistake, at_least
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
    inputs = (
      jax.lax.optimization_barrier(inputs)
      if platform() == "tpu" and inputs.ndim == 4
      else inputs
    )
    return normalize(inputs, self.mean, self.std).reshape(
      len(inputs), *(self.shape or inputs.shape[1:])
    )


def batch_like(data: DeviceExamples, size: int) -> jax.ShapeDtypeStruct:
  """Return the shape and dtype of a batch as the network sees it."""
  dtype = data.inputs.dtype if data.mean is None else jnp.float32
  return jax.ShapeDtypeStruct((size, *(data.shape or data.inputs.shape[1:])), dtype)


def steps_per_epoch(recipe: Recipe, data: DeviceExamples, run: Run) -> int:
  """Return how many whole batches the run's training examples make."""
  subset = run.get("subset")
  return (len(data) if subset is None else len(subset)) // recipe.batch_size


def epoch_order(run: Run, epoch: Int[Array, ""], size: int) -> Int[Array, " examples"]:
  """Return the order in which an epoch shows the run's training examples: a function of
  the order seed.

  It equals `jax.random.permutation`, but the rounds of sorting are a loop: TPU compilers
  take seconds per sort.
  """

  def shuffled(_, at):
    (key, own), order = jax.random.split(at[0]), at[1]
    return key, jax.lax.sort_key_val(jax.random.bits(own, (size,), np.uint32), order)[1]

  rounds = math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))
  begun = jax.random.fold_in(run.key("order"), epoch), jnp.arange(size)
  return jax.lax.fori_loop(0, rounds, shuffled, begun)[1]


def batches(
  run: Run, epoch: Int[Array, ""] | int, n: int, batch_size: int
) -> Int[Array, "steps batch"]:
  """Return which of `n` examples each step of an epoch shows, in the order in which
  recipes show them: a function of the order seed. The last, smaller batch is dropped.

  Raises:
    Mistake: the batch size is no whole number from 1 to `n`.
  """
  if at_least("batch_size", batch_size, 1) > n:
    raise Mistake(f"batch_size is {batch_size} with {n} examples: give at most as many")
  steps = n // batch_size
  order = epoch_order(run, jnp.asarray(epoch), n)
  return order[: steps * batch_size].reshape(steps, batch_size)


def targets_of(data: DeviceExamples, run: Run) -> Num[Array, "examples ..."]:
  """Return the examples' targets, mapped by the run's label map if it has one."""
  label_map = run.get("label_map")
  return data.targets if label_map is None else label_map[data.targets]


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
  mean, std = (jnp.expand_dims(moment, axes) for moment in (mean, std))
  return (inputs.astype(jnp.float32) - mean) / std


def as_vectors(data: DeviceExamples) -> DeviceExamples:
  """Return the same examples with each input stored as one vector."""
  inputs = data.inputs.reshape(len(data), -1)
  mean, std = (
    m if m is None else jnp.tile(m, inputs.shape[1] // len(m))
    for m in (data.mean, data.std)
  )
  return dataclasses.replace(
    data, inputs=inputs, mean=mean, std=std, shape=data.inputs.shape[1:]
  )


def stored_rows(inputs: Real[Array, "examples ..."]) -> Real[Array, "examples ..."]:
  """Return images in a layout that accelerators gather fast: a row of pixels is one
  vector, and an image is contiguous.
  """
  if inputs.ndim not in (2, 4):
    return inputs
  # One vector for a whole image, if it fits in one register of a TPU, which is 128
  # numbers wide.
  one = inputs.ndim == 2 or (platform() == "tpu" and math.prod(inputs.shape[1:]) <= 128)
  rows = inputs.reshape(*inputs.shape[: 1 if one else 2], -1)
  return with_layout_constraint(rows, Layout(tuple(range(rows.ndim))))


def gather_rows(
  data: DeviceExamples,
  rows: Real[Array, "examples ..."],
  examples: Int[Array, " batch"],
) -> Real[Array, "batch ..."]:
  """Return the stored inputs of `examples`, given all rows. On a TPU whole tiles are
  fetched, or it would move lanes one by one.
  """
  more = -len(examples) % TILE if platform() == "tpu" and rows.ndim == 2 else 0
  return rows[jnp.pad(examples, (0, more))][: len(examples)].reshape(
    len(examples), *data.inputs.shape[1:]
  )


def draw_augmentation(
  recipe: Recipe,
  data: DeviceExamples,
  run: Run,
  epoch: Int[Array, ""],
  examples: Int[Array, "*shown"],
  repeats: Int[Array, "*shown"] | None = None,
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

  def drawn_with(key, example, repeat):
    own = jax.random.fold_in(key, example)
    if repeat is not None:
      own = jax.lax.select(repeat > 0, jax.random.fold_in(own, repeat), own)
    return augment.draws(recipe.augment, own, shape)

  def one(example, repeat):
    drawn = drawn_with(key, example, repeat)
    if not augment.alternates(recipe.augment):
      return drawn
    first = drawn_with(jax.random.fold_in(run.key("augment"), 0), example, repeat)
    return augment.alternated(recipe.augment, drawn, first, epoch)

  drawn = jax.vmap(one)(examples.ravel(), None if repeats is None else repeats.ravel())
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

  def one(single, drawn):
    if own and data.mean is not None:
      single = single.astype(jnp.float32)
    return normalize(
      augment.apply(recipe.augment, single, drawn, fill), data.mean, data.std
    )

  # Cutout fills with the mean rounded down to whole pixel values, as in the published
  # script.
  mean = jnp.zeros(inputs.shape[-1:]) if data.mean is None else data.mean
  fill = (jnp.floor(mean) if data.inputs.dtype == jnp.uint8 else mean).astype(
    data.inputs.dtype
  )
  own = not is_name(recipe.augment)
  # On accelerators the batch is the last axis: three channels would leave vector
  # registers almost empty.
  axis = 0 if platform() == "cpu" else -1
  return jax.vmap(one, in_axes=(axis, 0))(jnp.moveaxis(inputs, 0, axis), drawn)
