"""Evaluation of trained networks on every example of a set."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from vmapseeds.jaxprs import equations
from vmapseeds.mistakes import Mistake
from vmapseeds.training.inputs import (
  DeviceExamples,
  batch_like,
  gather_rows,
  stored_rows,
  targets_of,
)
from vmapseeds.training.losses import loss_of, predict_of
from vmapseeds.training.networks import Trained, network, variables_of
from vmapseeds.training.objects import before_training, is_name, name_of
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

MOST_EXAMPLES = 500  # in a step
MOST_BYTES = 2**28  # of the largest array in a step of one lane


class Evaluation(NamedTuple):
  """One network's results on one set of examples."""

  predictions: Num[Array, "examples ..."]  # the recipe's `predict` of the outputs
  correct: Int[Array, ""]  # how many predictions are right
  losses: Float[Array, " examples"]  # the recipe's loss of each example
  # If kept, or needed for `losses`; logits for a classifier
  outputs: Float[Array, "examples ..."] | None
  sound: Bool[Array, ""]  # whether all outputs are numbers, see `are_sound`


def evaluate(
  recipe: Recipe,
  data: DeviceExamples,
  run: Run,
  trained: Trained,
  subset: Int[Array, " examples"] | None = None,
  *,
  keep_outputs: bool = False,
  whole_loss: bool = False,
) -> Evaluation:
  """Return one trained network's results on all examples, or on `subset`, in evaluation
  mode and without test-time augmentation. A label map of the run is applied to the
  labels. With `whole_loss`, the loss is called once, with all examples.

  Raises:
    Mistake: the targets are classes, and `predict` does not return one per example.
  """
  model = network(recipe, data.num_classes)
  predict = predict_of(recipe, data.num_classes)
  loss = loss_of(recipe, run)
  targets = targets_of(data, run)
  targets = jnp.asarray(targets if subset is None else targets[subset])
  shown = jnp.asarray(data.inputs if subset is None else subset)

  def outputs_of(inputs):
    return model.apply(trained.variables, inputs).astype(jnp.float32)

  examples = len(shown)
  size = recipe.eval_batch_size or fitting_batch(outputs_of, data, examples)
  size = min(size, examples)

  # Batch by batch, so that all outputs are in memory only if they are kept.
  def batch(first):
    rows = jax.lax.dynamic_slice_in_dim(shown, first, size)
    inputs = rows if subset is None else jnp.asarray(data.inputs)[rows]
    outputs = outputs_of(data.preprocess(inputs))
    losses = None
    if not whole_loss:
      losses = loss(outputs, jax.lax.dynamic_slice_in_dim(targets, first, size))
    kept = outputs if keep_outputs or whole_loss else None
    return predict(outputs), losses, kept, are_sound(outputs, data.num_classes)

  # The last batch begins earlier instead of being padded: a network that mixes its batch
  # sees nothing but examples.
  steps = -(-examples // size)
  again = steps * size - examples  # examples that are in the last two batches
  firsts = jnp.arange(steps) * size
  batches = jax.lax.map(batch, jnp.minimum(firsts, examples - size))

  def joined(parts):
    whole = parts[: steps - 1].reshape(-1, *parts.shape[2:])
    return jnp.concatenate([whole, parts[steps - 1, again:]])

  *batches, sound = batches
  predictions, losses, outputs = jax.tree.map(joined, tuple(batches))
  if whole_loss:
    losses = loss(outputs, targets)
  if data.num_classes is not None and (
    predictions.shape != targets.shape or predictions.dtype.kind not in "iu"
  ):
    given = f"predict {name_of(recipe.predict or 'argmax')} gives {predictions.dtype} {predictions.shape}, the targets are classes"
    raise Mistake(
      f"{given}: give whole numbers {targets.shape}, or data with num_classes=None"
    )
  right = predictions == targets if predictions.shape == targets.shape else False
  correct = jnp.sum(right, dtype=jnp.int32)
  return Evaluation(predictions, correct, losses, outputs, sound.all())


def depends_on_batch(recipe: Recipe, data: DeviceExamples) -> bool:
  """Return whether the loss of an example depends on those beside it, as Cox's partial
  likelihood does: whether it differs between a batch of some examples and its two halves,
  for random outputs.
  """
  if is_name(recipe.loss) or len(data) < 2:
    return False

  def outputs_of(variables):
    model = network(recipe, data.num_classes)
    return model.apply(variables, jnp.zeros_like(batch_like(data, 1)))

  count = min(len(data), MOST_EXAMPLES)
  places = np.linspace(0, len(data) - 1, count).astype(int)
  targets = np.asarray(data.targets)[places]
  loss = loss_of(recipe, Run({}, recipe.hyperparameters))
  with before_training(recipe.name):
    like = jax.eval_shape(outputs_of, variables_of(recipe, data))
    shape = (count, *like.shape[1:])
    outputs = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    whole, *halves = (
      np.asarray(loss(jnp.asarray(outputs[rows]), jnp.asarray(targets[rows])))
      for rows in (slice(None), slice(count // 2), slice(count // 2, None))
    )
  return not np.allclose(whole, np.concatenate(halves), 1e-3, 1e-5, equal_nan=True)


def are_sound(
  outputs: Float[Array, "batch ..."], num_classes: int | None
) -> Bool[Array, ""]:
  """Return whether a network's outputs are finite. A logit may be minus infinity, with
  which a network rules a class out.
  """
  if num_classes is None:
    return jnp.isfinite(outputs).all()
  return (outputs < jnp.inf).all()


def fitting_batch(
  apply: Callable[[Num[Array, "batch ..."]], Float[Array, "batch ..."]],
  data: DeviceExamples,
  examples: int,
) -> int:
  """Return how many of the examples to evaluate at once: at most 500, and so many that
  no array of a step takes more than 256 MiB.
  """
  size = min(MOST_EXAMPLES, examples)
  program = jax.make_jaxpr(apply)(batch_like(data, size))
  made = (variable.aval for e in equations(program) for variable in e.outvars)
  largest = max((array.size * array.dtype.itemsize for array in made), default=1)
  return max(1, min(size, MOST_BYTES * size // max(1, largest)))


def reaches(
  recipe: Recipe, data: DeviceExamples, run: Run, trained: Trained, share: float
) -> Bool[Array, ""]:
  """Return whether a network in evaluation mode is right on at least `share` of its
  training examples, without augmentation.

  Wrong predictions are counted batch by batch, until there are too many. The last batch
  begins earlier than it would if there are not enough examples for it.
  """
  subset = run.get("subset")
  shown = jnp.arange(len(data)) if subset is None else subset
  # The factor takes off less than one example: in floating point, 0.07 * 100 is
  # slightly above 7, and must give 7.
  most = len(shown) - math.ceil(share * len(shown) * (1 - 1e-12))
  rows = stored_rows(data.inputs)
  targets = targets_of(data, run)
  apply = network(recipe, data.num_classes).apply
  predict = predict_of(recipe, data.num_classes)

  def count(counted):
    first, wrong = counted
    places = jnp.minimum(first, len(shown) - recipe.batch_size) + jnp.arange(
      recipe.batch_size
    )
    examples = shown[places]
    inputs = data.preprocess(gather_rows(data, rows, examples))
    predictions = predict(apply(trained.variables, inputs).astype(jnp.float32))
    mistaken = (predictions != targets[examples]) & (places >= first)
    return first + recipe.batch_size, wrong + mistaken.sum(dtype=jnp.int32)

  none = jnp.int32(0)
  return (
    jax.lax.while_loop(
      lambda at: (at[0] < len(shown)) & (at[1] <= most), count, (none, none)
    )[1]
    <= most
  )
