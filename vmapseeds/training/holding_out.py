"""What runs make of the examples that they hold out of all that a data set has."""

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array

from vmapseeds.training.evaluation import Evaluation, evaluate
from vmapseeds.training.inputs import DeviceExamples, targets_of
from vmapseeds.training.losses import loss_of
from vmapseeds.training.metrics import measure_all
from vmapseeds.training.names import HELD_OUT, NOT_ASKED
from vmapseeds.training.networks import TrainedNetwork
from vmapseeds.training.outputs import Keep, Output
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run


@dataclasses.dataclass(frozen=True)
class HeldOutEvaluation:
  """Which examples runs hold out.

  Attributes:
    validates: whether there are validation examples beside the test examples.
    sizes: how many test examples runs may have, ascending.
    whole_loss: whether the loss depends on its batch, and so is one number of all.
    out_of_bag: whether they are those of the training set that the run did not draw, of
      which nothing else is measured.
  """

  validates: bool
  sizes: Sequence[int]
  whole_loss: bool = False
  out_of_bag: bool = False

  @property
  def names(self) -> Sequence[str]:
    """Return the parts of the examples that are held out."""
    if self.out_of_bag:
      return ()
    if self.validates:
      return ("test", "valid")
    return ("test",)

  def measure(
    self,
    name: str,
    recipe: Recipe,
    data: DeviceExamples,
    run: Run,
    trained: TrainedNetwork,
    keep: Keep,
  ) -> tuple[dict[str, Array], Array]:
    """Return what a run has of the part `name` of its held-out examples, and whether the
    network's outputs are sound there. Places that are `len(data)` are of no example.
    """
    places = run[f"{name}_examples"]
    is_example = places < len(data)
    examples = jnp.minimum(places, len(data) - 1)
    # Of validation examples nothing but their mean is kept.
    is_kept = name == "test"
    needs_outputs = bool(recipe.metrics) or self.whole_loss
    evaluation = evaluate(
      recipe,
      data,
      run,
      trained,
      examples,
      keep_outputs=needs_outputs or (is_kept and keep.logits),
    )

    targets = jnp.asarray(targets_of(data, run))[examples]
    results = {}
    if data.num_classes is not None:
      is_right = evaluation.predictions == targets
      results[f"{name}_accuracy"] = (is_right & is_example).sum() / is_example.sum()
    elif not self.whole_loss:
      losses = jnp.where(is_example, evaluation.losses, 0)
      results[f"{name}_loss"] = losses.sum() / is_example.sum()
    wholes = self._measure_wholes(
      recipe, data, run, evaluation.outputs, targets, is_example
    )
    for metric, value in wholes.items():
      results[f"{name}_{metric}"] = value
    if not is_kept:
      return results, evaluation.sound

    def of_all(values: Array) -> Array:
      shape = (len(data), *values.shape[1:])
      every = jnp.full(shape, missing_value_of(values), values.dtype)
      # Places of no example are beyond the last one.
      return every.at[places].set(values, mode="drop")

    mask = jnp.full(len(data), False).at[places].set(is_example, mode="drop")
    results |= self._by_example(mask, evaluation, of_all, keep)
    return results, evaluation.sound

  def _by_example(
    self,
    mask: Array,
    evaluation: Evaluation,
    of_all: Callable[[Array], Array],
    keep: Keep,
  ) -> dict[str, Array]:
    """Return what is kept of all examples of a data set. `of_all` makes, of an array of
    those evaluated, one of all, with missing values where the run held none out.
    """
    results = {f"{HELD_OUT}/mask": mask}
    if not self.whole_loss:
      results[f"{HELD_OUT}/losses"] = of_all(evaluation.losses)
    if keep.predictions:
      results[f"{HELD_OUT}/predictions"] = of_all(evaluation.predictions)
    if keep.logits and evaluation.outputs is not None:
      results[f"{HELD_OUT}/logits"] = of_all(evaluation.outputs)
    return results

  def _measure_wholes(
    self,
    recipe: Recipe,
    data: DeviceExamples,
    run: Run,
    outputs: Array | None,
    targets: Array,
    is_example: Array,
  ) -> dict[str, Array]:
    """Return the numbers of all held-out examples together, by name: the metrics, and a
    loss that depends on its batch.
    """
    has_whole_loss = self.whole_loss and data.num_classes is None
    results: dict[str, Array] = {}
    if not recipe.metrics and not has_whole_loss:
      return results
    # The places of no example come last. A metric is of those before, and their number
    # is known when it is compiled.
    for size in self.sizes:
      outputs_of_size = jnp.asarray(outputs)[:size]
      values = measure_all(recipe, outputs_of_size, targets[:size])
      if has_whole_loss:
        losses = loss_of(recipe, run)(outputs_of_size, targets[:size])
        values["loss"] = losses.mean()
      for metric, value in values.items():
        of_other_sizes = results.get(metric, value)
        results[metric] = jnp.where(is_example.sum() == size, value, of_other_sizes)
    return results

  def measure_out_of_bag(
    self,
    recipe: Recipe,
    data: DeviceExamples,
    run: Run,
    trained: TrainedNetwork,
    keep: Keep,
  ) -> dict[str, Array]:
    """Return what is kept of the training examples that a run did not draw."""
    evaluation = evaluate(
      recipe,
      data,
      run,
      trained,
      keep_outputs=keep.logits,
      whole_loss=self.whole_loss,
    )
    mask = jnp.ones(len(data), bool).at[run["subset"]].set(False)

    def where_held_out(values: Array) -> Array:
      other_axes = (1,) * (values.ndim - 1)
      is_held_out = mask.reshape(-1, *other_axes)
      nothing = jnp.asarray(missing_value_of(values), values.dtype)
      return jnp.where(is_held_out, values, nothing)

    return self._by_example(mask, evaluation, where_held_out, keep)

  def outputs(
    self,
    data: DeviceExamples,
    prediction_dims: Sequence[str],
    network_dims: Sequence[str],
    keep: Keep,
    class_names: Sequence[str] | None,
  ) -> dict[str, Output]:
    """Return what the kept arrays mean, given the axes of predictions and of the
    network's outputs.
    """
    are_classes = data.num_classes is not None
    outputs = {f"{HELD_OUT}/mask": Output(("example",))}
    if not self.whole_loss:
      losses = Output(("example",))
      if not are_classes:
        losses = Output(("example",), "loss", partial=True)
      outputs[f"{HELD_OUT}/losses"] = losses
    if keep.predictions:
      predictions = Output(tuple(prediction_dims))
      if are_classes:
        predictions = Output(
          tuple(prediction_dims),
          "class",
          labels=data.targets,
          num_classes=data.num_classes,
          class_names=class_names,
          label_map="label_map",
          partial=True,
        )
      outputs[f"{HELD_OUT}/predictions"] = predictions
    if keep.logits:
      outputs[f"{HELD_OUT}/logits"] = Output(tuple(network_dims), "logits")
    return outputs


def missing_value_of(predictions: Array) -> float:
  """Return what stands for an example that a run was not asked for: `NOT_ASKED` of
  classes, else NaN.
  """
  return NOT_ASKED if predictions.dtype.kind == "i" else jnp.nan
