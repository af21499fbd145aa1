"""The three functions of a recipe's task: start, advance and finish of one run."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from vmapseeds import models
from vmapseeds.training import loop
from vmapseeds.training.evaluation import evaluate
from vmapseeds.training.holding_out import HeldOutEvaluation
from vmapseeds.training.inputs import DeviceExamples, Sets, targets_of
from vmapseeds.training.metrics import measure_all
from vmapseeds.training.moments import KEPT_MOMENTS, with_own_moments
from vmapseeds.training.names import INPUT_MEAN
from vmapseeds.training.networks import TrainedNetwork, product_precision
from vmapseeds.training.objects import is_object
from vmapseeds.training.outputs import Keep, sibling
from vmapseeds.training.recipe_outputs import (
  EPOCH,
  VARIABLES,
  evaluated_epochs,
  variable_name,
)
from vmapseeds.training.recipes import FIELDS, Recipe
from vmapseeds.training.runs import Run

Stages = tuple[Callable, Callable, Callable]  # start, advance and finish
Measured = dict[str, Array]  # what a run has of its sets, by name
# A network in training, with zeros for the evaluations to come, where there are any.
State = loop.State | tuple[loop.State, Measured]


def recipe_stages(
  recipe: Recipe,
  keep: Keep,
  held_out: HeldOutEvaluation | None = None,
  whole_loss: bool = False,
) -> Stages:
  """Return the three functions of a recipe's task: for equal recipes of registered names
  the same ones, which JAX then traces once a process.
  """
  precision = models.resolve_precision(recipe.precision)
  # Compiled programs outlive a task: they must not keep its data in memory.
  recipe = recipe.replace(dataset="any", precision=precision)
  # What a user's objects read may change.
  has_objects = any(is_object(getattr(recipe, field)) for field in FIELDS)
  if has_objects or recipe.metrics or held_out is not None:
    return RecipeStages(recipe, keep, held_out, whole_loss).functions
  return cached_stages(recipe, keep)


@functools.lru_cache(maxsize=64)
def cached_stages(recipe: Recipe, keep: Keep) -> Stages:
  """Return the three functions of a recipe that nothing else changes."""
  return RecipeStages(recipe, keep).functions


@dataclasses.dataclass(frozen=True, eq=False)
class RecipeStages:
  """The three functions of the task of a recipe whose precision is resolved.

  Attributes:
    recipe: what is trained.
    keep: what is kept of each run.
    held_out: the examples that runs hold out, if any.
    whole_loss: whether the loss depends on its batch.
  """

  recipe: Recipe
  keep: Keep
  held_out: HeldOutEvaluation | None = None
  whole_loss: bool = False

  @property
  def functions(self) -> Stages:
    """Return the functions, in the recipe's precision and with each run's own moments."""

    def precisely(stage):
      def computed(sets, run, *args):
        with product_precision(self.recipe.precision):
          return stage(with_own_moments(sets, run), run, *args)

      return computed

    return precisely(self.start), precisely(self.advance), precisely(self.finish)

  def start(self, sets: Sets, run: Run) -> State:
    """Return the state before the first epoch, and zeros in place of what evaluations
    in training will give.
    """
    train, _ = sets
    state = loop.start(self.recipe, train, run)
    if self.recipe.evaluate_every is None:
      return state
    measured = jax.eval_shape(functools.partial(self.measure_state, sets, run), state)
    count = len(evaluated_epochs(self.recipe))
    series = jax.tree.map(lambda a: jnp.zeros((count, *a.shape), a.dtype), measured)
    return state, series

  def advance(
    self,
    sets: Sets,
    run: Run,
    state: PyTree,
    first: Int[Array, ""] | int,
    last: Int[Array, ""] | int,
  ) -> State:
    """Return the state after the epochs from `first` to `last`, not included."""
    train, _ = sets
    every = self.recipe.evaluate_every
    if every is None:
      return loop.advance(self.recipe, train, run, state, first, last)

    def advance_to_evaluation(number, state_and_series):
      """Train the epochs of these that are before evaluation `number`, and make it."""
      state, series = state_and_series
      end = (number + 1) * every
      begin = jnp.maximum(first, end - every)
      stop = jnp.minimum(last, end)
      state = loop.advance(self.recipe, train, run, state, begin, stop)

      def with_evaluation():
        measured = self.measure_state(sets, run, state)
        return jax.tree.map(lambda a, one: a.at[number].set(one), series, measured)

      # The condition does not depend on the lane, so vmap keeps the branch. `finish`
      # makes the last evaluation.
      is_due = (end <= last) & (end < self.recipe.epochs)
      return state, jax.lax.cond(is_due, with_evaluation, lambda: series)

    first_evaluation = first // every
    last_evaluation = -(-last // every)  # rounded up
    return jax.lax.fori_loop(
      first_evaluation, last_evaluation, advance_to_evaluation, state
    )

  def finish(self, sets: Sets, run: Run, state: PyTree) -> Measured:
    """Return what is stored of a run, by name."""
    series: Measured = {}
    if self.recipe.evaluate_every is not None:
      state, series = state
    trained = loop.finish(self.recipe, state)
    measured, is_sound = self.measure(sets, run, trained)
    results = {
      "diverged": trained.diverged | ~is_sound,
      "nonfinite_steps": state.nonfinite_steps,
      **measured,
    }
    if self.recipe.stop_at is not None:
      results["trained_epochs"] = state.epochs
    for name, values in series.items():
      array = name.rpartition("/")[2]
      # The last evaluation is that of the trained network.
      results[sibling(name, array, EPOCH)] = values.at[-1].set(measured[name])
    if self.keep.params:
      results |= self.kept_variables(run, trained)
    return results

  def kept_variables(self, run: Run, trained: TrainedNetwork) -> Measured:
    """Return the arrays of a network, and the moments that only its run has."""
    variables = {}
    for path, leaf in jax.tree.leaves_with_path(trained.variables):
      variables[variable_name(path)] = leaf
    if run.get(INPUT_MEAN) is not None:
      for name, column in KEPT_MOMENTS.items():
        variables[f"{VARIABLES}/{name}"] = run[column]
    return variables

  def measure_state(self, sets: Sets, run: Run, state: loop.State) -> Measured:
    """Return what a run has of its sets, in the middle of training."""
    measured, _ = self.measure(sets, run, loop.finish(self.recipe, state))
    return measured

  def measure(
    self, sets: Sets, run: Run, trained: TrainedNetwork
  ) -> tuple[Measured, Bool[Array, ""]]:
    """Return what a run has of its sets, by name, and whether the network's outputs are
    sound on all of them.
    """
    train, tests = sets
    results: Measured = {}
    all_sound: list[Any] = []
    for name, data in tests.items():
      measured, is_sound = self.measure_test_set(name, data, run, trained)
      results |= measured
      all_sound.append(is_sound)
    if self.held_out is not None:
      network = self.recipe, train, run, trained
      for name in self.held_out.names:
        measured, is_sound = self.held_out.measure(name, *network, self.keep)
        results |= measured
        all_sound.append(is_sound)
      if self.held_out.out_of_bag:
        results |= self.held_out.measure_out_of_bag(*network, self.keep)
    if self.recipe.training_metrics:
      results |= self.measure_training_set(train, run, trained)
    return results, jnp.array(all_sound).all()

  def measure_training_set(
    self, train: DeviceExamples, run: Run, trained: TrainedNetwork
  ) -> Measured:
    """Return what a run has of the examples that it was trained on."""
    evaluation = evaluate(
      self.recipe, train, run, trained, run.get("subset"), whole_loss=self.whole_loss
    )
    results = {"train_loss": evaluation.losses.mean()}
    if train.num_classes is not None:
      results["train_accuracy"] = evaluation.correct
    return results

  def measure_test_set(
    self, name: str, data: DeviceExamples, run: Run, trained: TrainedNetwork
  ) -> tuple[Measured, Bool[Array, ""]]:
    """Return what a run has of the test set `name`, and whether the network's outputs
    are sound there.
    """
    recipe = self.recipe
    whole_loss = self.whole_loss and data.num_classes is None
    evaluation = evaluate(
      recipe,
      data,
      run,
      trained,
      keep_outputs=self.keep.logits or bool(recipe.metrics),
      whole_loss=whole_loss,
    )
    results: Measured = {f"{name}/predictions": evaluation.predictions}
    if recipe.metrics and evaluation.outputs is not None:
      targets = jnp.asarray(targets_of(data, run))
      values = measure_all(recipe, evaluation.outputs, targets)
      for metric, value in values.items():
        results[f"{name}/{metric}"] = value
    if whole_loss:
      results[f"{name}/loss"] = evaluation.losses.mean()
    elif data.num_classes is None:
      results[f"{name}/losses"] = evaluation.losses
    if self.keep.logits and evaluation.outputs is not None:
      results[f"{name}/logits"] = evaluation.outputs
    return results, evaluation.sound
