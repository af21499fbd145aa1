"""One training, written for one lane: `train(recipe, data, run) -> Trained`, pure and
jit-able.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from vmapseeds.training.evaluation import reaches
from vmapseeds.training.inputs import (
  DeviceExamples,
  draw_augmentation,
  epoch_order,
  steps_per_epoch,
  stored_rows,
  taken,
  targets_of,
  training_inputs,
)
from vmapseeds.training.losses import loss_of
from vmapseeds.training.networks import (
  Trained,
  as_fetched,
  initialize,
  network,
  poke,
  poke_place,
)
from vmapseeds.training.optimizers import apart, joined, optimizer_of
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run


class State(NamedTuple):
  """A network in training, between two epochs."""

  params: PyTree[Float[Array, "..."]]  # perhaps `Joined`
  batch_stats: PyTree[Float[Array, "..."]]
  opt_state: PyTree[Array]
  diverged: Bool[Array, ""]  # whether its loss ever stopped being finite
  epochs: Int[
    Array, ""
  ]  # how many it trains in all: the recipe's, or the number after which it reached `stop_at`


def train(recipe: Recipe, data: DeviceExamples, run: Run) -> Trained:
  """Trains one network from its run's seeds.

  Args:
    recipe: static; everything but the randomness.
    data: the training set on the device.
    run: one row of the runs table, traced.
  """
  return finish(advance(recipe, data, run, start(recipe, data, run), 0, recipe.epochs))


def start(recipe: Recipe, data: DeviceExamples, run: Run) -> State:
  """The network before its first epoch."""
  variables = initialize(recipe, data, run)
  params, batch_stats = joined(recipe, variables.pop("params")), variables
  opt_state = optimizer_of(recipe, data, run, params).init(params)
  return State(
    params, batch_stats, opt_state, jnp.array(False), jnp.array(recipe.epochs)
  )


def stepping(
  recipe: Recipe, data: DeviceExamples, run: Run, begun: State
) -> Callable[..., State]:
  """The function of one training step: (state, step number, inputs as the network sees
  them, targets) -> state.

  `begun` is any state of the network: only the structure and shapes of its parameters
    are used.
  """
  model, loss_of_each = network(recipe, data.num_classes), loss_of(recipe)
  optimizer = optimizer_of(recipe, data, run, begun.params)
  poked = poke_place(begun.params, jax.random.fold_in(run.key("init"), 1))

  def loss(params, batch_stats, inputs, targets, key):
    outputs, updates = model.train(
      {"params": apart(params), **batch_stats}, inputs, key
    )
    return loss_of_each(outputs.astype(jnp.float32), targets).mean(), updates

  def take_step(state, number, inputs, targets):
    params, batch_stats, opt_state, diverged, epochs = state
    params = poke(
      params, poked, jnp.where(number == run.poke_step, run.poke_factor, 1.0)
    )
    dropout_key = jax.random.fold_in(run.key("dropout"), number)
    (value, batch_stats), gradient = jax.value_and_grad(loss, has_aux=True)(
      params, batch_stats, inputs, targets, dropout_key
    )
    updates, opt_state = optimizer.update(gradient, opt_state, params)
    params, diverged = (
      optax.apply_updates(params, updates),
      diverged | ~jnp.isfinite(value),
    )
    return State(params, batch_stats, opt_state, diverged, epochs)

  return take_step


def advance(
  recipe: Recipe,
  data: DeviceExamples,
  run: Run,
  state: State,
  first: Int[Array, ""] | int,
  last: Int[Array, ""] | int,
) -> State:
  """Trains a network from its run's seeds for the epochs from `first`, counted from 0,
  to `last`, not included.

  It stops after the first epoch that ends with the accuracy `recipe.stop_at`.
  """
  take_step = stepping(recipe, data, run, state)
  data = as_fetched(recipe, data)
  rows, targets = stored_rows(data.inputs), targets_of(data, run)
  size = len(data) if run.subset is None else len(run.subset)
  epoch_steps = steps_per_epoch(recipe, data, run)

  def step(state, batch):
    number, examples, drawn = batch
    inputs = training_inputs(recipe, data, taken(data, rows, examples), drawn)
    return take_step(state, number, inputs, targets[examples]), None

  def one_epoch(at):
    epoch, state = at
    order = epoch_order(run, epoch, size)[: epoch_steps * recipe.batch_size]
    examples = (order if run.subset is None else run.subset[order]).reshape(
      epoch_steps, recipe.batch_size
    )
    drawn = draw_augmentation(recipe, data, run, epoch, examples)
    numbers = epoch * epoch_steps + jnp.arange(epoch_steps)
    state = jax.lax.scan(step, state, (numbers, examples, drawn))[0]
    if recipe.stop_at is not None:
      right = reaches(recipe, data, run, finish(state), recipe.stop_at)
      state = state._replace(epochs=jnp.where(right, epoch + 1, state.epochs))
    return epoch + 1, state

  def goes_on(at):
    epoch, state = at
    return epoch < (last if recipe.stop_at is None else jnp.minimum(last, state.epochs))

  return jax.lax.while_loop(goes_on, one_epoch, (first, state))[1]


def finish(state: State) -> Trained:
  """The trained network of a state after its last epoch."""
  variables = {"params": apart(state.params), **state.batch_stats}
  finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(variables)])
  return Trained(variables, state.diverged | ~finite.all())
