"""Trained networks on every example of every test set."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vmapseeds.recipe import Recipe
from vmapseeds.runs import Run
from vmapseeds.train import DeviceExamples, Trained, network, normalize

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
