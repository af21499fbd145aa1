"""Evaluation of trained networks on every example of a set."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, PyTree

from vmapseeds.errors import UserError
from vmapseeds.jaxprs import equations
from vmapseeds.training.inputs import (
  DeviceExamples,
  batch_like,
  gather_rows,
  stored_rows,
  targets_of,
)
from vmapseeds.training.losses import loss_of, predict_of
from vmapseeds.training.networks import TrainedNetwork, make_network, variables_of
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
  sound: Bool[Array, ""]  # whether all outputs are numbers, see `are_usable_outputs`


def evaluate(
  recipe: Recipe,
  data: DeviceExamples,
  run: Run,
  trained: TrainedNetwork,
  subset: Int[Array, " examples"] | None = None,
  *,
  keep_outputs: bool = False,
  whole_loss: bool = False,
) -> Evaluation:
  """Return one trained network's results on all examples, or on `subset`, in evaluation
  mode and without test-time augmentation. A label map of the run is applied to the
  labels. With `whole_loss`, the loss is called once, with all examples.

  Raises:
    UserError: the targets are classes, and `predict` does not return one per example.
  """
  model = make_network(recipe, data.num_classes)
  predict = predict_of(recipe, data.num_classes)
  loss = loss_of(recipe, run)
  targets = targets_of(data, run)
  if subset is not None:
    targets = targets[subset]
  targets = jnp.asarray(targets)
  # What a step takes its slice of: inputs, or the places of some.
  rows = jnp.asarray(data.inputs if subset is None else subset)

  def outputs_of(inputs):
    return model.apply(trained.variables, inputs).astype(jnp.float32)

  examples = len(rows)
  size = recipe.eval_batch_size or fitting_batch(outputs_of, data, examples)
  size = min(size, examples)

  # Batch by batch, so that all outputs are in memory only if they are kept.
  def evaluate_batch(first):
    inputs = jax.lax.dynamic_slice_in_dim(rows, first, size)
    if subset is not None:
      inputs = jnp.asarray(data.inputs)[inputs]
    outputs = outputs_of(data.preprocess(inputs))
    losses = None
    if not whole_loss:
      losses = loss(outputs, jax.lax.dynamic_slice_in_dim(targets, first, size))
    kept = outputs if keep_outputs or whole_loss else None
    by_example = predict(outputs), losses, kept
    return by_example, are_usable_outputs(outputs, data.num_classes)

  (predictions, losses, outputs), sound = map_batches(evaluate_batch, examples, size)
  if whole_loss:
    losses = loss(outputs, targets)
  if data.num_classes is not None:
    check_predicted_classes(recipe, predictions, targets)
  is_right: Any = False
  if predictions.shape == targets.shape:
    is_right = predictions == targets
  correct = jnp.sum(is_right, dtype=jnp.int32)
  return Evaluation(predictions, correct, losses, outputs, sound.all())


def map_batches(
  function: Callable[[Int[Array, ""]], tuple[PyTree, PyTree]], examples: int, size: int
) -> tuple[PyTree, PyTree]:
  """Return what a function gives of batches of `size` of the examples, of which it is
  given the first: arrays (examples, ...), and others (batches, ...).

  The last batch begins earlier instead of being padded: a network that mixes its batch
  sees nothing but examples.
  """
  steps = math.ceil(examples / size)
  overlap = steps * size - examples  # examples that are in the last two batches
  firsts = jnp.arange(steps) * size
  by_example, by_batch = jax.lax.map(function, jnp.minimum(firsts, examples - size))

  def join(batches):
    before_last = batches[: steps - 1].reshape(-1, *batches.shape[2:])
    return jnp.concatenate([before_last, batches[steps - 1, overlap:]])

  return jax.tree.map(join, by_example), by_batch


def check_predicted_classes(recipe: Recipe, predictions: Array, targets: Array) -> None:
  """Raise `UserError` unless predictions are classes, as the targets are."""
  are_whole = predictions.dtype.kind in "iu"
  if are_whole and predictions.shape == targets.shape:
    return
  what = (
    f"predict {name_of(recipe.predict or 'argmax')} gives {predictions.dtype} "
    f"{predictions.shape}, the targets are classes"
  )
  raise UserError(
    f"{what}: give whole numbers {targets.shape}, or data with num_classes=None"
  )


def depends_on_batch(recipe: Recipe, data: DeviceExamples) -> bool:
  """Return whether the loss of an example depends on those beside it, as Cox's partial
  likelihood does: whether it differs between a batch of some examples and its two halves,
  for random outputs.
  """
  if is_name(recipe.loss) or len(data) < 2:
    return False

  def outputs_of(variables):
    model = make_network(recipe, data.num_classes)
    return model.apply(variables, jnp.zeros_like(batch_like(data, 1)))

  count = min(len(data), MOST_EXAMPLES)
  places = np.linspace(0, len(data) - 1, count).astype(int)
  targets = np.asarray(data.targets)[places]
  loss = loss_of(recipe, Run({}, recipe.hyperparameters))
  half = count // 2
  with before_training(recipe.name):
    like = jax.eval_shape(outputs_of, variables_of(recipe, data))
    shape = (count, *like.shape[1:])
    outputs = np.random.default_rng(0).normal(size=shape).astype(np.float32)

    def losses_of(rows):
      return np.asarray(loss(jnp.asarray(outputs[rows]), jnp.asarray(targets[rows])))

    together = losses_of(slice(None))
    apart = np.concatenate([losses_of(slice(half)), losses_of(slice(half, None))])
  # Not bit for bit: sums of other lengths round in other ways.
  return not np.allclose(together, apart, rtol=1e-3, atol=1e-5, equal_nan=True)


def are_usable_outputs(
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
  largest = 1  # bytes
  for equation in equations(program):
    for variable in equation.outvars:
      array = variable.aval
      largest = max(largest, array.size * array.dtype.itemsize)
  fitting = MOST_BYTES * size // largest
  return max(1, min(size, fitting))


def reaches_training_accuracy(
  recipe: Recipe, data: DeviceExamples, run: Run, trained: TrainedNetwork, share: float
) -> Bool[Array, ""]:
  """Return whether a network in evaluation mode is right on at least `share` of its
  training examples, without augmentation.

  Wrong predictions are counted batch by batch, until there are too many. The last batch
  begins earlier than it would if there are not enough examples for it.
  """
  subset = run.get("subset")
  trained_on = jnp.arange(len(data)) if subset is None else subset
  total = len(trained_on)
  # The factor takes off less than one example: in floating point, 0.07 * 100 is
  # slightly above 7, and must give 7.
  most_wrong = total - math.ceil(share * total * (1 - 1e-12))
  batch_size = recipe.batch_size
  rows = stored_rows(data.inputs)
  targets = targets_of(data, run)
  apply = make_network(recipe, data.num_classes).apply
  predict = predict_of(recipe, data.num_classes)

  def count_batch(counted):
    first, wrong = counted
    places = jnp.minimum(first, total - batch_size) + jnp.arange(batch_size)
    examples = trained_on[places]
    inputs = data.preprocess(gather_rows(data, rows, examples))
    predictions = predict(apply(trained.variables, inputs).astype(jnp.float32))
    # Of the last batch, only examples that no batch before had.
    is_wrong = (predictions != targets[examples]) & (places >= first)
    return first + batch_size, wrong + is_wrong.sum(dtype=jnp.int32)

  def is_undecided(counted):
    first, wrong = counted
    return (first < total) & (wrong <= most_wrong)

  none = jnp.int32(0)
  _, wrong = jax.lax.while_loop(is_undecided, count_batch, (none, none))
  return wrong <= most_wrong
