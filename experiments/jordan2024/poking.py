"""One weight of a network, multiplied by a factor before some training step: what figure
11 changes.

It is the objective of a recipe. An objective sees the number of the step and the run, and
parameters that it returns among its updates are those that the optimizer then moves.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Inexact, Int, Key, PyTree

import vmapseeds as vs
from vmapseeds.training.loop import Batch, Model
from vmapseeds.training.runs import Run

FACTOR = 1.001  # the paper's, appendix D.2


def poked(recipe: vs.Recipe, step: int, factor: float = FACTOR) -> vs.Recipe:
  """Return the recipe with one random weight multiplied by `factor` before training step
  `step`, counted from 0. The init seed chooses the weight.

  Source: jordan2024, appendix D.2; Summers and Dinneen 2021.
  """
  values = {"poke_step": float(step), "poke_factor": factor}
  return recipe.replace(objective=poked_objective, values=recipe.values | values)


def poked_objective(
  model: Model,
  params: PyTree[Inexact[Array, "..."]],
  batch: Batch,
  run: Run,
) -> tuple[Float[Array, ""], PyTree]:
  """Return the mean loss of a batch and the updates, the poked parameters among them."""
  place = poke_place(params, jax.random.fold_in(run.key("init"), 1))
  factor = jnp.where(batch.step == run["poke_step"], run["poke_factor"], 1.0)
  params = poke_weight(params, place, factor)
  loss, updates = model.mean_loss(params, batch)
  return loss, updates | {"params": params}


def poke_place(
  params: PyTree[Inexact[Array, "..."]],
  key: Key[Array, ""],
) -> Int[Array, ""]:
  """Return the index, among all weights, of the one that a poke changes. Vectors are not
  counted: a factor leaves biases at 0.
  """
  weights = [leaf for leaf in jax.tree.leaves(params) if leaf.ndim > 1]
  count = sum(leaf.size for leaf in weights)
  return jax.random.randint(key, (), 0, count, jnp.int32)


@jax.custom_jvp
def poke_weight(
  params: PyTree[Inexact[Array, "..."]],
  place: Int[Array, ""],
  factor: Float[Array, ""],
) -> PyTree:
  """Return `params` with the weight at `place` multiplied by `factor`.

  Its derivative is that of no change: the gradient is taken in the weight as it is after
  the poke.
  """
  leaves, structure = jax.tree.flatten(params)
  before = 0
  for i, leaf in enumerate(leaves):
    if leaf.ndim > 1:
      # A mask, because for an indexed update a TPU would change the layout of every
      # weight.
      here = before + jnp.arange(leaf.size).reshape(leaf.shape) == place
      leaves[i] = jnp.where(here, leaf * factor, leaf)
      before += leaf.size
  return jax.tree.unflatten(structure, leaves)


@poke_weight.defjvp
def _derivative_of_no_change(primals, tangents):
  change_of_params, _, _ = tangents
  return poke_weight(*primals), change_of_params


def with_first_step(recipe: vs.Recipe) -> vs.Recipe:
  """Return the recipe, of SGD and a linear schedule, with a value `first_step` that says
  what happens to the first gradient.
  """
  nesterov = recipe.optimizer == "nesterov"
  return recipe.replace(
    optimizer=partial(other_first_step, nesterov=nesterov),
    schedule="constant",
    values={"first_step": 0.0},
  )


def other_first_step(
  run: Run,
  steps: int,
  nesterov: bool,
) -> optax.GradientTransformation:
  """Return the recipes' SGD and linear schedule. The first gradient is, by
  `run["first_step"]`, 0: unchanged; 1: rounded to half precision; 2: replaced by zeros, as
  if there were no first batch.
  """

  def update(gradients, step, params=None):
    def first(gradient):
      half = gradient.astype(jnp.float16).astype(gradient.dtype)
      other = jnp.where(run["first_step"] == 1, half, 0.0)
      return jnp.where((step == 0) & (run["first_step"] > 0), other, gradient)

    return jax.tree.map(first, gradients), step + 1

  return optax.chain(
    optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update),
    optax.add_decayed_weights(run["weight_decay"]),
    optax.trace(run["momentum"], nesterov),
    optax.scale_by_schedule(lambda step: -run["lr"] * (1 - step / steps)),
  )
