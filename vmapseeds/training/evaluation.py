"""Evaluation of trained networks on every example of a set."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num

from vmapseeds.mistakes import Mistake
from vmapseeds.training.inputs import (
  DeviceExamples,
  gather_rows,
  stored_rows,
  targets_of,
)
from vmapseeds.training.losses import loss_of, predict_of
from vmapseeds.training.networks import Trained, network
from vmapseeds.training.objects import name_of
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

BATCH = 500  # examples in a step; the last step is padded, and the padding is dropped


class Evaluation(NamedTuple):
  """One network's results on one set of examples."""

  predictions: Num[Array, "examples ..."]  # the recipe's `predict` of the outputs
  correct: Int[Array, ""]  # how many predictions are right
  losses: Float[Array, " examples"]  # the recipe's loss of each example
  outputs: Float[Array, "examples ..."]  # logits for a classifier


def evaluate(
  recipe: Recipe,
  data: DeviceExamples,
  run: Run,
  trained: Trained,
  subset: Int[Array, " examples"] | None = None,
) -> Evaluation:
  """Return one trained network's results on all examples, or on `subset`, in evaluation
  mode and without test-time augmentation. A label map of the run is applied to the
  labels.

  Raises:
    Mistake: the targets are classes, and `predict` does not return one per example.
  """
  model = network(recipe, data.num_classes)
  predict = predict_of(recipe)

  # Predictions are made batch by batch, so that all outputs are in memory only if they
  # are kept.
  def batch(shown):
    inputs = shown if subset is None else data.inputs[shown]
    outputs = model.apply(trained.variables, data.preprocess(inputs)).astype(
      jnp.float32
    )
    return predict(outputs), outputs

  shown = data.inputs if subset is None else subset
  examples = len(shown)
  size = min(BATCH, examples)
  steps = -(-examples // size)
  padding = [(0, steps * size - examples), *((0, 0) for _ in shown.shape[1:])]
  batches = jax.lax.map(
    batch, jnp.pad(shown, padding).reshape(steps, size, *shown.shape[1:])
  )
  predictions, outputs = (of.reshape(-1, *of.shape[2:])[:examples] for of in batches)
  targets = targets_of(data, run) if subset is None else targets_of(data, run)[subset]
  if data.num_classes is not None and (
    predictions.shape != targets.shape or predictions.dtype.kind not in "iu"
  ):
    given = f"predict {name_of(recipe.predict)} gives {predictions.dtype} {predictions.shape}, the targets are classes"
    raise Mistake(
      f"{given}: give whole numbers {targets.shape}, or data with num_classes=None"
    )
  right = predictions == targets if predictions.shape == targets.shape else False
  losses = loss_of(recipe)(outputs, targets)
  return Evaluation(predictions, jnp.sum(right), losses, outputs)


def reaches(
  recipe: Recipe, data: DeviceExamples, run: Run, trained: Trained, share: float
) -> Bool[Array, ""]:
  """Return whether a network in evaluation mode is right on at least `share` of its
  training examples, without augmentation.

  Wrong predictions are counted batch by batch, until there are too many.
  """
  subset = run.get("subset")
  shown = jnp.arange(len(data)) if subset is None else subset
  # The factor takes off less than one example: in floating point, 0.07 * 100 is
  # slightly above 7, and must give 7.
  most = len(shown) - math.ceil(share * len(shown) * (1 - 1e-12))
  rows = stored_rows(data.inputs)
  targets = targets_of(data, run)
  apply = network(recipe, data.num_classes).apply
  predict = predict_of(recipe)

  def count(counted):
    first, wrong = counted
    places = first + jnp.arange(recipe.batch_size)
    examples = shown[jnp.minimum(places, len(shown) - 1)]
    inputs = data.preprocess(gather_rows(data, rows, examples))
    predictions = predict(apply(trained.variables, inputs).astype(jnp.float32))
    mistaken = (predictions != targets[examples]) & (places < len(shown))
    return first + recipe.batch_size, wrong + mistaken.sum()

  none = jnp.array(0)
  return (
    jax.lax.while_loop(
      lambda at: (at[0] < len(shown)) & (at[1] <= most), count, (none, none)
    )[1]
    <= most
  )
