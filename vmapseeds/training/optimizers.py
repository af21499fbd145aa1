"""Optimizers and schedules by name. Their numbers are values of the run, traced, so that a sweep compiles once."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from vmapseeds.mistakes import Mistake
from vmapseeds.training.objects import is_name, name_of, resolved
from vmapseeds.training.recipes import Recipe
from vmapseeds.training.runs import Run

Schedule = Callable[[Int[Array, ""]], Float[Array, ""] | float]

# What is made of a gradient before the learning rate, given the momentum.
MOMENTS: dict[str, Callable[[Float[Array, ""]], optax.GradientTransformation]] = {
  "sgd": lambda momentum: optax.trace(momentum),
  "nesterov": lambda momentum: optax.trace(momentum, nesterov=True),
  "adam": lambda momentum: optax.scale_by_adam(b1=momentum),
  "adamw": lambda momentum: optax.scale_by_adam(b1=momentum),
}


def ramp(recipe: Recipe, run: Run, steps: int) -> Schedule:
  """What the learning rate is multiplied with at a step, of `steps` in all.

  A warm-up goes before `linear`, `cosine` and `exponential`, whose steps count from its end; milestones count from the
  start of the training, as PyTorch's `MultiStepLR` has them.
  """
  an_epoch = max(1, steps // max(1, recipe.epochs))
  rising = round(recipe.warmup * an_epoch)
  left, milestones = steps - rising, jnp.array(recipe.milestones, jnp.int32) * an_epoch
  ramps: dict[str, Schedule] = {
    "constant": lambda step: 1.0,
    "linear": lambda step: 1 - (step - rising) / left,
    "cosine": lambda step: 0.5 * (1 + jnp.cos(jnp.pi * (step - rising) / left)),
    "step": lambda step: run["gamma"] ** (step >= milestones).sum(),
    "exponential": lambda step: run["gamma"] ** ((step - rising) // an_epoch),
  }
  height = ramps[recipe.schedule]
  if not rising:
    return height
  return lambda step: jnp.where(step < rising, (step + 1) / rising, height(step))


def make_optimizer(recipe: Recipe, run: Run, steps: int) -> optax.GradientTransformation:
  """The recipe's optimizer for a training of `steps` steps, with the run's own values.

  Weight decay is on every parameter: added to the gradient (L2), or with `adamw` to the update (Loshchilov & Hutter
  2019), as `optax.adamw` has it.
  """
  if not is_name(recipe.optimizer):
    optimizer = resolved("optimizer", recipe.optimizer)
    try:
      made = optimizer(run, steps)
    except jax.errors.ConcretizationTypeError:
      # It asks in Python what a value is, as optax does of some: the value is compiled in, and a sweep of it refused.
      fixed = {name: np.float32(value) for name, value in recipe.hyperparameters.items()}
      made = optimizer(dataclasses.replace(run, values=fixed), steps)
    if not isinstance(made, optax.GradientTransformation):
      given = f"optimizer {name_of(recipe.optimizer)} gives {type(made).__name__}"
      raise Mistake(f"{given}: give an optax.GradientTransformation")
    return made
  if recipe.schedule == "constant" and not recipe.warmup:
    rate = run["lr"]
  elif is_name(recipe.schedule):
    height = ramp(recipe, run, steps)
    rate = lambda step: run["lr"] * height(step)  # noqa: E731
  elif not callable(rate := resolved("schedule", recipe.schedule)(run, steps)):
    given = f"schedule {name_of(recipe.schedule)} gives {type(rate).__name__}"
    raise Mistake(f"{given}: give a function of the step, such as an optax schedule")
  moments, decay = MOMENTS[recipe.optimizer](run["momentum"]), optax.add_decayed_weights(run["weight_decay"])
  parts = (moments, decay) if recipe.optimizer == "adamw" else (decay, moments)
  return optax.chain(*parts, optax.scale_by_learning_rate(rate))
