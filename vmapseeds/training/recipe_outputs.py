"""What the arrays of a recipe's runs mean, and what results hold once for all runs."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from vmapseeds.training.inputs import DeviceExamples, batch_like
from vmapseeds.training.losses import predict_of
from vmapseeds.training.metrics import metric_of
from vmapseeds.training.moments import KEPT_MOMENTS
from vmapseeds.training.names import EXAMPLE_ID, HELD_OUT, TWINS
from vmapseeds.training.networks import make_network, path_of, variables_of
from vmapseeds.training.objects import before_training
from vmapseeds.training.outputs import Constants, Output, sibling
from vmapseeds.training.recipe_setup import RecipeSetup
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import as_bytes

VARIABLES = "variables"  # the group of a folder's arrays with the networks' variables
EPOCH = "epoch"  # the axis of what is evaluated in training


def recipe_outputs(setup: RecipeSetup) -> dict[str, Output]:
  """Return what the outputs of a recipe's task mean."""
  outputs = {"diverged": Output(), "nonfinite_steps": Output()}
  measured = measured_outputs(setup)
  outputs |= measured
  if setup.recipe.evaluate_every:
    outputs |= series_of(measured)
  if setup.recipe.stop_at is not None:
    outputs["trained_epochs"] = Output()
  if setup.keep.params:
    outputs |= variable_outputs(setup)
  return outputs


def measured_outputs(setup: RecipeSetup) -> dict[str, Output]:
  """Return what evaluations of a network give, in training and at its end."""
  recipe, train, held_out = setup.recipe, setup.train, setup.held_out
  measured: dict[str, Output] = {}
  if held_out is not None:
    for name in held_out.names:
      measured |= held_out_scores(recipe, train, name)
  if recipe.training_metrics:
    measured["train_loss"] = Output()
    if train.num_classes is not None:
      measured["train_accuracy"] = Output(role="count", total=setup.num_train)
  for name in setup.tests:
    measured |= set_outputs(setup, name)
  if held_out is not None:
    predicted, network_dims = dims_of_predictions(recipe, train)
    measured |= held_out.outputs(
      train, predicted, network_dims, setup.keep, setup.class_names
    )
  return measured


def held_out_scores(
  recipe: Recipe, train: DeviceExamples, name: str
) -> dict[str, Output]:
  """Return what the scores of the part `name` of held-out examples mean."""
  if train.num_classes is None:
    scores = {f"{name}_loss": Output(role="score", higher_is_better=False)}
  else:
    scores = {f"{name}_accuracy": Output(role="score", unit="fraction")}
  return scores | metric_outputs(recipe, f"{name}_")


def set_outputs(setup: RecipeSetup, name: str) -> dict[str, Output]:
  """Return what the outputs of the test set `name` mean."""
  recipe, keep, data = setup.recipe, setup.keep, setup.tests[name]
  predicted, network_dims = dims_of_predictions(recipe, data)
  outputs: dict[str, Output] = {}
  if data.num_classes is None:
    outputs[f"{name}/predictions"] = Output(predicted, kept=keep.predictions)
    if setup.whole_loss:
      outputs[f"{name}/loss"] = Output(role="score", higher_is_better=False)
    else:
      outputs[f"{name}/losses"] = Output(("example",), "loss")
  else:
    outputs[f"{name}/predictions"] = Output(
      predicted,
      "class",
      labels=data.targets,
      num_classes=data.num_classes,
      class_names=setup.class_names,
      label_map="label_map",
      kept=keep.predictions,
    )
  if keep.logits:
    outputs[f"{name}/logits"] = Output(network_dims, "logits")
  return outputs | metric_outputs(recipe, f"{name}/")


def variable_outputs(setup: RecipeSetup) -> dict[str, Output]:
  """Return what the kept arrays of the networks mean."""
  outputs = {}
  for path, _ in jax.tree.leaves_with_path(variables_of(setup.recipe, setup.train)):
    outputs[variable_name(path)] = Output(role="variable")
  if setup.own_moments:
    for name in KEPT_MOMENTS:
      outputs[f"{VARIABLES}/{name}"] = Output(role="variable")
  return outputs


def series_of(outputs: Mapping[str, Output]) -> dict[str, Output]:
  """Return what the values of these outputs in the course of training mean."""
  series = {}
  for name, output in outputs.items():
    array = name.rpartition("/")[2]
    # A score is one number of a run, a series is several.
    role = "value" if output.role == "score" else output.role
    series[sibling(name, array, EPOCH)] = dataclasses.replace(
      output, dims=(EPOCH, *output.dims), role=role, series=EPOCH, of=array
    )
  return series


def metric_outputs(recipe: Recipe, before: str) -> dict[str, Output]:
  """Return what a recipe's metrics mean, with what is `before` their names."""
  return {
    f"{before}{name}": Output(
      role="score", higher_is_better=metric_of(name, metric).higher_is_better
    )
    for name, metric in recipe.metrics.items()
  }


def dims_of_predictions(
  recipe: Recipe, data: DeviceExamples
) -> tuple[tuple[str, ...], tuple[str, ...]]:
  """Return the names of the axes of predictions, and of the network's outputs."""
  if data.num_classes is not None:
    return ("example",), ("example", "class")

  def predict(variables):
    inputs = jnp.zeros_like(batch_like(data, len(data)))
    outputs = make_network(recipe, None).apply(variables, inputs).astype(jnp.float32)
    return predict_of(recipe, None)(outputs), outputs

  def dims_of(array):
    # Xarray subtracts entry by entry along axes of the same name, and every pair along
    # others.
    if array.shape[1:] == data.targets.shape[1:]:
      return example_dims("target", array.ndim)
    return example_dims("output", array.ndim)

  with before_training(recipe.name):
    predictions, outputs = jax.eval_shape(predict, variables_of(recipe, data))
  return dims_of(predictions), dims_of(outputs)


def example_dims(name: str, ndim: int) -> tuple[str, ...]:
  """Return the names of the axes of an array whose first axis is the example.

  >>> example_dims("target", 3)
  ('example', 'target', 'target.1')
  """
  numbered = [f"{name}.{axis}" for axis in range(1, ndim)]
  return ("example", name, *numbered)[:ndim]


def recipe_constants(setup: RecipeSetup) -> Constants:
  """Return what results of a recipe hold once for all runs, beside labels."""
  constants: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
  train, held_out = setup.train, setup.held_out
  evaluated = dict(setup.tests)
  if held_out is not None:
    evaluated[HELD_OUT] = train
    if train.num_classes is not None:
      constants[f"{HELD_OUT}/labels"] = ("example",), train.targets
  for name, data in evaluated.items():
    if data.num_classes is None:
      dims = example_dims("target", data.targets.ndim)
      constants[f"{name}/targets"] = dims, data.targets
  for name, places in setup.twins.items():
    constants[f"{name}/{TWINS}"] = ("example",), places
  for name, texts in setup.ids.items():
    constants[f"{name}/{EXAMPLE_ID}"] = ("example", "id_letter"), as_bytes(texts)
  if setup.recipe.evaluate_every:
    constants[EPOCH] = (EPOCH,), np.array(evaluated_epochs(setup.recipe))
  return constants


def variable_name(path: tuple) -> str:
  """Return the name of a variable's array in a folder."""
  return f"{VARIABLES}/{path_of(path)}"


def evaluated_epochs(recipe: Recipe) -> list[int]:
  """Return the numbers of epochs after which runs are evaluated."""
  every = recipe.evaluate_every or max(1, recipe.epochs)
  return [*range(every, recipe.epochs, every), recipe.epochs]
