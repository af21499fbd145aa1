"""Losses and predictions by name: functions of a batch of float32 outputs with one
loss, or prediction, per example.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Num

from vmapseeds.errors import UserError
from vmapseeds.training.objects import calling, name_of, resolve_object
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

Loss = Callable[
  [Float[Array, "batch ..."], Num[Array, "batch ..."]], Float[Array, " batch"]
]


def smoothed_cross_entropy(
  logits: Float[Array, "batch classes"],
  labels: Int[Array, " batch"],
  smoothing: float | Float[Array, ""] = 0.0,
) -> Float[Array, " batch"]:
  """Return the cross entropy of each example. A share `smoothing` of each label is
  spread over all classes (Szegedy et al. 2016, section 7).
  """
  if isinstance(smoothing, float) and not smoothing:
    # optax indexes by labels, which is slow on accelerators. Here labels are compared
    # with the classes.
    at_label = labels[:, None] == jnp.arange(logits.shape[-1])[None]
    return jax.nn.logsumexp(logits, -1) - jnp.where(at_label, logits, 0).sum(-1)
  one_hot = jax.nn.one_hot(labels, logits.shape[-1], dtype=logits.dtype)
  return optax.softmax_cross_entropy(logits, optax.smooth_labels(one_hot, smoothing))


def squared_error(
  outputs: Float[Array, "batch ..."], targets: Num[Array, "batch ..."]
) -> Float[Array, " batch"]:
  """Return the squared error, averaged over the targets of each example.

  Raises:
    UserError: outputs have another shape than targets, axes of length 1 apart.
  """
  squares = (shaped_as_targets(outputs, targets) - targets) ** 2
  return squares.reshape(len(targets), -1).mean(-1)


def shaped_as_targets(
  outputs: Num[Array, "examples ..."], targets: Num[Array, "examples ..."]
) -> Num[Array, "examples ..."]:
  """Return outputs in the shape of their targets, which may have other axes of length 1.

  Raises:
    UserError: their other axes differ. Reshaped, entries would stand beside wrong ones.
  """

  def longer_axes(array):
    return [length for length in array.shape[1:] if length != 1]

  if len(outputs) != len(targets) or longer_axes(outputs) != longer_axes(targets):
    raise UserError(
      f"outputs {outputs.shape} for targets {targets.shape}: give the same shape, in "
      "which axes of length 1 may be left out"
    )
  return outputs.reshape(targets.shape)


def argmax(logits: Float[Array, "batch classes"]) -> Int[Array, " batch"]:
  """Return the class of the largest logit, the lowest of tied ones; -1 if a logit is
  NaN.
  """
  classes = jnp.where(jnp.isnan(logits).any(-1), -1, logits.argmax(-1))
  # Predictions of all runs are stored, so they are as narrow as they can be.
  dtype = jnp.int8 if logits.shape[-1] <= 127 else jnp.int16
  return classes.astype(dtype)


def loss_of(recipe: Recipe, run: Run) -> Loss:
  """Return the loss of a recipe's run, checked: it raises `UserError` if it does not return
  one number per example.
  """
  smoothing = run.get("label_smoothing")
  if smoothing is None:
    smoothing = recipe.label_smoothing
  loss: Loss
  if recipe.loss == "cross_entropy":
    loss = functools.partial(smoothed_cross_entropy, smoothing=smoothing)
  elif recipe.loss == "squared_error":
    loss = squared_error
  else:
    loss = resolve_object("loss", recipe.loss)

  def checked(outputs, targets):
    with calling("loss", recipe.loss):
      each = loss(outputs, targets)
    shape = jnp.shape(each)
    size = len(outputs)
    if shape != (size,):
      raise UserError(
        f"loss {name_of(recipe.loss)} gives shape {shape} for a batch of {size}: give "
        f"one number an example, ({size},)"
      )
    return each

  return checked


def predict_of(
  recipe: Recipe, num_classes: int | None
) -> Callable[[Float[Array, "batch ..."]], Num[Array, "batch ..."]]:
  """Return the recipe's `predict` for so many classes, or None where targets are none,
  checked: it raises `UserError` if it does not return one row per example.
  """
  name_or_function = recipe.predict
  if name_or_function is None:
    name_or_function = "outputs" if num_classes is None else "argmax"
  if name_or_function == "argmax":
    predict = argmax
  elif name_or_function == "outputs":
    predict = lambda outputs: outputs  # noqa: E731
  else:
    predict = resolve_object("predict", name_or_function)

  def checked(outputs):
    with calling("predict", name_or_function):
      kept = predict(outputs)
    shape = jnp.shape(kept)
    size = len(outputs)
    if shape[:1] != (size,) or 0 in shape:
      raise UserError(
        f"predict {name_of(name_or_function)} gives shape {shape} for {size} examples: "
        f"give ({size}, ...), at least one number each"
      )
    return kept

  return checked
