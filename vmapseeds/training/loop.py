"""Train one network: `train(recipe, data, run) -> Trained`, a pure function of one lane
that can be jitted.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Inexact, Int, Num, PyTree

from vmapseeds.errors import UserError
from vmapseeds.training.evaluation import reaches_training_accuracy
from vmapseeds.training.inputs import (
  DeviceExamples,
  batches,
  draw_augmentation,
  gather_rows,
  steps_per_epoch,
  stored_rows,
  targets_of,
  training_inputs,
)
from vmapseeds.training.losses import Loss, loss_of
from vmapseeds.training.networks import (
  TrainedNetwork,
  as_fetched,
  initialize,
  make_network,
)
from vmapseeds.training.objects import (
  before_training,
  calling,
  is_object,
  name_of,
  resolve_object,
)
from vmapseeds.training.optimizers import (
  ascent_direction,
  evaluated_params,
  extra_args,
  initial_params,
  optimizer_of,
  pack_vectors,
  unpack_vectors,
)
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run


class State(NamedTuple):
  """A network in training, between two epochs."""

  params: PyTree[Inexact[Array, "..."]]  # perhaps `PackedParams`, or `LookaheadParams`
  batch_stats: PyTree[Inexact[Array, "..."]]
  opt_state: PyTree[Array]
  nonfinite_steps: Int[Array, ""]  # steps whose loss was not finite
  # How many it trains in all: the recipe's, or the number after which it reached
  # `stop_at`
  epochs: Int[Array, ""]


def train(recipe: Recipe, data: DeviceExamples, run: Run) -> TrainedNetwork:
  """Train one network from its run's seeds.

  Args:
    recipe: everything but the randomness, static.
    data: the training set on the device.
    run: one row of the runs table, traced.
  """
  state = advance(recipe, data, run, start(recipe, data, run), 0, recipe.epochs)
  return finish(recipe, state)


def start(recipe: Recipe, data: DeviceExamples, run: Run) -> State:
  """Return the network before its first epoch."""
  variables = initialize(recipe, data, run)
  params = pack_vectors(recipe, variables.pop("params"))
  batch_stats = variables
  optimizer = optimizer_of(recipe, data, run, params)
  params = initial_params(optimizer, params)
  with calling("optimizer", recipe.optimizer):
    opt_state = optimizer.init(params)
  return State(params, batch_stats, opt_state, jnp.int32(0), jnp.int32(recipe.epochs))


class Batch(NamedTuple):
  """What a training step sees."""

  inputs: Num[Array, "batch ..."]  # augmented and normalised, as the network takes them
  targets: Num[Array, "batch ..."]
  examples: Int[Array, " batch"]  # their places in the training set
  step: Int[Array, ""]  # counted from 0


class Model(NamedTuple):
  """The network in training, as an objective sees it.

  `apply(params, inputs) -> (outputs, updates)` gives the float32 outputs in training
  mode, and the updated collections, such as `batch_stats`, with what the network sows, as
  `updates["intermediates"]`. What is sown is not carried to the next step.
  `loss(outputs, targets)` is the recipe's loss, one number per example.
  """

  apply: Callable[[PyTree, Num[Array, "batch ..."]], tuple[Array, PyTree]]
  loss: Loss

  def mean_loss(
    self, params: PyTree[Inexact[Array, "..."]], batch: Batch
  ) -> tuple[Float[Array, ""], PyTree]:
    """Return the mean loss of a batch and the updated batch statistics."""
    outputs, updates = self.apply(params, batch.inputs)
    return self.loss(outputs, batch.targets).mean(), updates


def default_objective(
  model: Model, params: PyTree[Inexact[Array, "..."]], batch: Batch, run: Run
) -> tuple[Float[Array, ""], PyTree]:
  """Return the mean loss of a batch and the updated batch statistics.

  This is the objective of a recipe that has none of its own. Its gradient in `params`
  is what the optimizer gets.
  """
  return model.mean_loss(params, batch)


def objective_of(recipe: Recipe):
  """Return the recipe's objective, checked: it raises `UserError` if it does not return one
  number and the updates.
  """
  if recipe.objective is None:
    return default_objective
  objective = resolve_object("objective", recipe.objective)

  def checked(model, params, batch, run):
    with calling("objective", recipe.objective):
      pair = objective(model, params, batch, run)
    if not isinstance(pair, tuple) or len(pair) != 2 or jnp.shape(pair[0]) != ():
      raise UserError(
        f"objective {name_of(recipe.objective)} gives {type(pair).__name__}: give "
        "(one number, the updates of model.apply)"
      )
    return pair

  return checked


def make_train_step(
  recipe: Recipe, data: DeviceExamples, run: Run, start: State
) -> Callable[[State, Batch], State]:
  """Return the function of one training step.

  Only the structure and shapes of the parameters of `start` are used.
  """
  objective = make_objective(recipe, data, run)
  optimizer = optimizer_of(recipe, data, run, moved_params(start.params))

  def train_step(state: State, batch: Batch) -> State:
    def objective_at(moved):
      return objective(moved, state.batch_stats, batch)

    def value_at(moved):
      value, _ = objective_at(moved)
      return value

    # Gradients are taken when the user's functions have returned.
    with watching_objects(recipe):
      differentiate = jax.value_and_grad(objective_at, has_aux=True)
      (value, updates), gradient = differentiate(moved_params(state.params))

    batch_stats = keep_first_collections(recipe, state.batch_stats, updates)
    params = state.params
    if "params" in updates:  # which the network wrote itself
      written = pack_vectors(recipe, updates["params"])
      params = with_moved_params(params, written)

    gradient = ascent_direction(gradient)
    extra = extra_args(optimizer, value, gradient, value_at)
    with calling("optimizer", recipe.optimizer):
      steps, opt_state = optimizer.update(gradient, state.opt_state, params, **extra)
      params = optax.apply_updates(params, steps)

    is_nonfinite = (~jnp.isfinite(value)).astype(jnp.int32)
    nonfinite_steps = state.nonfinite_steps + is_nonfinite
    after = State(params, batch_stats, opt_state, nonfinite_steps, state.epochs)
    check_step(recipe, state, after)
    return after

  return train_step


def make_objective(
  recipe: Recipe, data: DeviceExamples, run: Run
) -> Callable[[PyTree, PyTree, Batch], tuple[Float[Array, ""], PyTree]]:
  """Return the objective as a function of packed parameters, batch statistics and batch:
  its value and the updates.
  """
  net = make_network(recipe, data.num_classes, run.get("dropout"))
  loss = loss_of(recipe, run)
  objective = objective_of(recipe)

  def objective_value(packed, batch_stats, batch):
    key = jax.random.fold_in(run.key("dropout"), batch.step)

    def apply(params, inputs):
      outputs, updates = net.train({"params": params} | batch_stats, inputs, key)
      return outputs.astype(jnp.float32), updates

    return objective(Model(apply, loss), unpack_vectors(packed), batch, run)

  return objective_value


def watching_objects(recipe: Recipe) -> contextlib.AbstractContextManager[None]:
  """Return the context in which faults are said to be of the user's objects, if the
  recipe has such for what a gradient is taken of.
  """
  parts = (recipe.objective, recipe.loss, recipe.model, recipe.augment)
  if any(map(is_object, parts)):
    return before_training(recipe.name)
  return contextlib.nullcontext()


def moved_params(params: PyTree) -> PyTree:
  """Return the parameters that steps move: of `optax.lookahead`'s two copies, the fast
  one.
  """
  if isinstance(params, optax.LookaheadParams):
    return params.fast
  return params


def with_moved_params(params: PyTree, moved: PyTree) -> PyTree:
  """Return parameters with others in place of those that steps move."""
  if isinstance(params, optax.LookaheadParams):
    return params._replace(fast=moved)
  return moved


def check_step(recipe: Recipe, before: State, after: State) -> None:
  """Raise `UserError` unless a step leaves shapes and dtypes as they were, as the next one
  needs.
  """
  check_shapes_kept("model", recipe.model, before.batch_stats, after.batch_stats)
  check_shapes_kept(
    "optimizer",
    recipe.optimizer,
    (before.params, before.opt_state),
    (after.params, after.opt_state),
  )


def check_shapes_kept(what: str, value, before: PyTree, after: PyTree) -> None:
  """Raise `UserError` unless shapes and dtypes are as before."""

  def as_texts(tree):
    return jax.tree.map(lambda leaf: f"{leaf.dtype}{[*jnp.shape(leaf)]}", tree)

  types_before = as_texts(before)
  types_after = as_texts(after)
  if types_before != types_after:
    raise UserError(
      f"{what} {name_of(value)} makes {types_after!s:.300} of {types_before!s:.300} in a "
      "step: give one that keeps shapes and dtypes"
    )


def keep_first_collections(
  recipe: Recipe, collections: PyTree, updates: PyTree
) -> PyTree:
  """Return those updates that are of the collections which a network began with: not what
  it sows.

  Raises:
    UserError: an objective left some out.
  """
  if not isinstance(collections, Mapping):
    return updates
  if not isinstance(updates, Mapping) or not collections.keys() <= updates.keys():
    objective = recipe.objective and name_of(recipe.objective)
    raise UserError(
      f"objective {objective} gives no updates of {', '.join(map(str, collections))}: "
      "give (one number, the updates of model.apply)"
    )
  return {
    name: keep_first_collections(recipe, inner, updates[name])
    for name, inner in collections.items()
  }


def advance(
  recipe: Recipe,
  data: DeviceExamples,
  run: Run,
  state: State,
  first: Int[Array, ""] | int,
  last: Int[Array, ""] | int,
) -> State:
  """Train a network for the epochs from `first`, counted from 0, to `last`, not
  included.

  It stops after the first epoch that ends with the accuracy `recipe.stop_at`.
  """
  train_step = make_train_step(recipe, data, run, state)
  data = as_fetched(recipe, data)
  rows = stored_rows(data.inputs)
  targets = targets_of(data, run)
  subset = run.get("subset")
  size = len(data) if subset is None else len(subset)
  epoch_steps = steps_per_epoch(recipe, data, run)

  def step(state, step_inputs):
    number, examples, drawn = step_inputs
    fetched = gather_rows(data, rows, examples)
    inputs = training_inputs(recipe, data, fetched, drawn)
    return train_step(state, Batch(inputs, targets[examples], examples, number)), None

  def one_epoch(carry):
    epoch, state = carry
    places = batches(run, epoch, size, recipe.batch_size)
    examples, repeats = places, None
    if subset is not None:
      examples, repeats = subset[places], run["repeats"][places]
    # All draws of an epoch at once: a call for each batch would cost more than the draws.
    drawn = draw_augmentation(recipe, data, run, epoch, examples, repeats)
    numbers = epoch * epoch_steps + jnp.arange(epoch_steps)
    state, _ = jax.lax.scan(step, state, (numbers, examples, drawn))
    if recipe.stop_at is not None:
      is_reached = reaches_training_accuracy(
        recipe, data, run, finish(recipe, state), recipe.stop_at
      )
      epochs = jnp.where(is_reached, epoch + 1, state.epochs)
      state = state._replace(epochs=epochs.astype(jnp.int32))
    return epoch + 1, state

  def is_unfinished(carry):
    epoch, state = carry
    if recipe.stop_at is None:
      return epoch < last
    return epoch < jnp.minimum(last, state.epochs)

  _, state = jax.lax.while_loop(is_unfinished, one_epoch, (first, state))
  return state


def finish(recipe: Recipe, state: State) -> TrainedNetwork:
  """Return the trained network of a state after its last epoch."""
  params = evaluated_params(recipe, state.opt_state, state.params)
  variables = {"params": unpack_vectors(params)} | state.batch_stats
  finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(variables)])
  return TrainedNetwork(variables, ~finite.all())
