"""What runs make of the examples that they hold out of all that a data set has."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from vmapseeds.training.evaluation import evaluate
from vmapseeds.training.inputs import DeviceExamples, targets_of
from vmapseeds.training.losses import loss_of
from vmapseeds.training.metrics import measure_all
from vmapseeds.training.names import HELD_OUT
from vmapseeds.training.networks import Trained
from vmapseeds.training.outputs import Output
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run


@dataclasses.dataclass(frozen=True)
class HeldOut:
  """Which examples runs hold out, and whether more than their mean is kept.

  Attributes:
    validates: whether there are validation examples beside the test examples.
    kept: whether predictions, losses and logits of the test examples are kept.
    sizes: how many test examples runs may have, ascending.
    whole_loss: whether the loss depends on its batch, and so is one number of all.
    out_of_bag: whether they are those of the training set that the run did not draw, of
      which nothing else is measured.
  """

  validates: bool
  kept: bool
  sizes: Sequence[int]
  whole_loss: bool = False
  out_of_bag: bool = False

  @property
  def names(self) -> Sequence[str]:
    """Return the parts of the examples that are held out."""
    if self.out_of_bag:
      return ()
    return ("test", "valid") if self.validates else ("test",)

  def measure(
    self,
    name: str,
    recipe: Recipe,
    data: DeviceExamples,
    run: Run,
    trained: Trained,
    predictions: bool,
    logits: bool,
  ) -> tuple[dict[str, Array], Array]:
    """Return what a run has of the part `name` of its held-out examples, and whether the
    network's outputs are sound there. Places that are `len(data)` are of no example.
    """
    places = run[f"{name}_examples"]
    kept = self.kept and name == "test"
    there = places < len(data)
    shown = jnp.minimum(places, len(data) - 1)
    keep = bool(recipe.metrics) or self.whole_loss or (kept and logits)
    found = evaluate(recipe, data, run, trained, shown, keep_outputs=keep)
    targets = jnp.asarray(targets_of(data, run))[shown]
    out = {}
    if data.num_classes is not None:
      right = found.predictions == targets
      out[f"{name}_accuracy"] = (right & there).sum() / there.sum()
    elif not self.whole_loss:
      out[f"{name}_loss"] = jnp.where(there, found.losses, 0).sum() / there.sum()
    # The places of no example come last. A metric is of those before, and their number
    # is known when it is compiled.
    of_whole = recipe.metrics or (self.whole_loss and data.num_classes is None)
    for size in self.sizes if of_whole else ():
      outputs = jnp.asarray(found.outputs)[:size]
      values = measure_all(recipe, outputs, targets[:size])
      if self.whole_loss and data.num_classes is None:
        values["loss"] = loss_of(recipe, run)(outputs, targets[:size]).mean()
      for metric, value in values.items():
        other = out.get(f"{name}_{metric}", value)
        out[f"{name}_{metric}"] = jnp.where(there.sum() == size, value, other)
    if not kept:
      return out, found.sound

    def of_all(values: Array, nothing: Any) -> Array:
      every = jnp.full((len(data), *values.shape[1:]), nothing, values.dtype)
      return every.at[places].set(values, mode="drop")

    none = -1 if found.predictions.dtype.kind == "i" else jnp.nan
    out[f"{HELD_OUT}/mask"] = of_all(there, False)
    if not self.whole_loss:
      out[f"{HELD_OUT}/losses"] = of_all(found.losses, jnp.nan)
    if predictions:
      out[f"{HELD_OUT}/predictions"] = of_all(found.predictions, none)
    if logits and found.outputs is not None:
      out[f"{HELD_OUT}/logits"] = of_all(found.outputs, jnp.nan)
    return out, found.sound

  def measure_out_of_bag(
    self,
    recipe: Recipe,
    data: DeviceExamples,
    run: Run,
    trained: Trained,
    predictions: bool,
    logits: bool,
  ) -> dict[str, Array]:
    """Return what is kept of the training examples that a run did not draw."""
    whole = self.whole_loss
    evaluation = evaluate(
      recipe, data, run, trained, keep_outputs=logits, whole_loss=whole
    )
    mask = jnp.ones(len(data), bool).at[run["subset"]].set(False)

    def where_held_out(values: Array) -> Array:
      nothing = -1 if values.dtype.kind == "i" else jnp.nan
      of_values = mask.reshape(-1, *[1] * (values.ndim - 1))
      return jnp.where(of_values, values, jnp.asarray(nothing, values.dtype))

    out = {f"{HELD_OUT}/mask": mask}
    if not whole:
      out[f"{HELD_OUT}/losses"] = where_held_out(evaluation.losses)
    if predictions:
      out[f"{HELD_OUT}/predictions"] = where_held_out(evaluation.predictions)
    if logits and evaluation.outputs is not None:
      out[f"{HELD_OUT}/logits"] = where_held_out(evaluation.outputs)
    return out

  def outputs(
    self,
    predicted: Sequence[str],
    given: Sequence[str],
    predictions: bool,
    logits: bool,
  ) -> dict[str, Output]:
    """Return what the kept arrays mean, given the axes of predictions and of the
    network's outputs.
    """
    found = {f"{HELD_OUT}/mask": Output(("example",))}
    if not self.whole_loss:
      found[f"{HELD_OUT}/losses"] = Output(("example",))
    if predictions:
      found[f"{HELD_OUT}/predictions"] = Output(tuple(predicted))
    if logits:
      found[f"{HELD_OUT}/logits"] = Output(tuple(given))
    return found
