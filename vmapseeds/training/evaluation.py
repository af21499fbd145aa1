"""Trained networks on every example of every test set."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vmapseeds import lanes
from vmapseeds.training.loop import DeviceExamples, Trained, advance, finish, network, normalize, start
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

BATCH = 500  # images a step; the last step is padded, and the padding dropped


class Evaluation(NamedTuple):
  """What one network says of one test set."""

  predictions: Int[Array, " examples"]  # the most likely class (lowest of ties), -1 where a logit is NaN
  correct: Int[Array, ""]  # how many predictions are right: an exact count
  logits: Float[Array, "examples classes"]


def logits(
  recipe: Recipe, data: DeviceExamples, trained: Trained, num_classes: int
) -> Float[Array, "examples classes"]:
  """The network's outputs, in evaluation mode and without test-time augmentation."""
  model = network(recipe, num_classes)

  def batch(images):
    return model.apply(trained.variables, normalize(images, data.mean, data.std), train=False)

  examples = len(data.images)
  size = min(BATCH, examples)
  steps = -(-examples // size)
  padding = [(0, steps * size - examples), (0, 0), (0, 0), (0, 0)]
  images = jnp.pad(data.images, padding).reshape(steps, size, *data.images.shape[1:])
  return jax.lax.map(batch, images).reshape(-1, num_classes)[:examples].astype(jnp.float32)


def evaluate(recipe: Recipe, data: DeviceExamples, run: Run, trained: Trained, num_classes: int) -> Evaluation:
  """What one trained network says; labels go through the run's label map, if it has one."""
  outputs = logits(recipe, data, trained, num_classes)
  predictions = jnp.where(jnp.isnan(outputs).any(-1), -1, outputs.argmax(-1))
  labels = data.labels if run.label_map is None else run.label_map[data.labels]
  dtype = jnp.int8 if num_classes <= 127 else jnp.int16
  return Evaluation(predictions.astype(dtype), (predictions == labels).sum(), outputs)


def stages(
  recipe: Recipe, num_classes: int, lowering: str, *, logits: bool = False, keep_params: bool = False
) -> lanes.Stages:
  """Training and evaluation of one run, given (training set, test sets by name): what a campaign spreads over lanes.

  It ends with whether the run diverged, an `Evaluation` of each test set, and the variables, where they are kept.
  """

  def first_state(shared, run: Run):
    with lanes.lowering(lowering):
      return start(recipe, shared[0], run, num_classes)

  def some_epochs(shared, run: Run, state, first, last):
    with lanes.lowering(lowering):
      return advance(recipe, shared[0], run, num_classes, state, first, last)

  def outcome(shared, run: Run, state):
    trained = finish(state)
    with lanes.lowering(lowering):
      evaluations = {n: evaluate(recipe, s, run, trained, num_classes) for n, s in shared[1].items()}
    if not logits:
      evaluations = {n: e._replace(logits=None) for n, e in evaluations.items()}
    return trained.diverged, evaluations, trained.variables if keep_params else None

  return lanes.Stages(first_state, some_epochs, outcome, recipe.epochs)
