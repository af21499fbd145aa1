"""Optimizers and schedules by name. Hyperparameters are traced values of the run, so
that a sweep compiles once.
"""

import dataclasses
import inspect
import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core.primitives import convert_element_type_p
from jaxtyping import Array, Float, Inexact, Int, PyTree
from optax import contrib

from vmapseeds.errors import UserError
from vmapseeds.target import platform
from vmapseeds.training.inputs import DeviceExamples, steps_per_epoch
from vmapseeds.training.networks import path_of, trainable_paths, variables_of
from vmapseeds.training.objects import calling, is_name, name_of, resolve_object
from vmapseeds.training.recipes import HYPERPARAMETERS, Recipe
from vmapseeds.training.runs import Run

LearningRateSchedule = Callable[[Int[Array, ""]], Float[Array, ""] | float]

# Gradient transformations that come before the learning rate, given the momentum: of
# each of `names.OPTIMIZERS`.
UPDATE_RULES: dict[str, Callable[[Float[Array, ""]], optax.GradientTransformation]] = {
  "sgd": lambda momentum: optax.trace(momentum),
  "nesterov": lambda momentum: optax.trace(momentum, nesterov=True),
  "adam": lambda momentum: optax.scale_by_adam(b1=momentum),
  "adamw": lambda momentum: optax.scale_by_adam(b1=momentum),
}
# Those whose weight decay does not pass through the moments (Loshchilov and Hutter 2019).
WITH_DECOUPLED_DECAY = ("adamw",)
# Those that look at whole arrays, such as their norms, as LARS and Muon do: their vectors
# must not be packed into one.
OF_WHOLE_ARRAYS: tuple[str, ...] = ()


def learning_rate_factor(recipe: Recipe, run: Run, steps: int) -> LearningRateSchedule:
  """Return the factor on the learning rate as a function of the step, for a training of
  `steps` steps.

  `linear`, `cosine` and `exponential` count steps from the end of the warm-up.
  Milestones count from the start of the training, as in PyTorch's `MultiStepLR`.
  """
  an_epoch = max(1, steps // max(1, recipe.epochs))
  warmup_steps = round(recipe.warmup * an_epoch)
  other_steps = steps - warmup_steps
  milestones = jnp.array(recipe.milestones, jnp.int32) * an_epoch

  def cosine(step):
    return 0.5 * (1 + jnp.cos(jnp.pi * (step - warmup_steps) / other_steps))

  ramps: dict[str, LearningRateSchedule] = {
    "constant": lambda step: 1.0,
    "linear": lambda step: 1 - (step - warmup_steps) / other_steps,
    "cosine": cosine,
    "step": lambda step: run["gamma"] ** (step >= milestones).sum(),
    "exponential": lambda step: run["gamma"] ** ((step - warmup_steps) // an_epoch),
  }
  height = ramps[recipe.schedule]

  def factor(step):
    # Whole numbers become float64 under `jax_enable_x64`.
    step = jnp.asarray(step, jnp.float32)
    if not warmup_steps:
      return height(step)
    is_warmup = step < warmup_steps
    rising = (step + 1) / warmup_steps
    return jnp.where(is_warmup, rising, height(step))

  return factor


def make_optimizer(
  recipe: Recipe, run: Run, steps: int
) -> optax.GradientTransformation:
  """Return the recipe's optimizer for a training of `steps` steps, with the run's own
  values.

  Weight decay applies to every parameter. It is added to the gradient (L2), or with
  `adamw` to the update (Loshchilov & Hutter 2019), as in `optax.adamw`.
  """
  if not is_name(recipe.optimizer):
    return call_own_optimizer(recipe, run, steps)
  rate = learning_rate(recipe, run, steps)
  moments = UPDATE_RULES[recipe.optimizer](run["momentum"])
  decay = optax.add_decayed_weights(run["weight_decay"])
  scale = optax.scale_by_learning_rate(rate)
  if recipe.optimizer in WITH_DECOUPLED_DECAY:
    return optax.chain(moments, decay, scale)
  return optax.chain(decay, moments, scale)


def call_own_optimizer(
  recipe: Recipe, run: Run, steps: int
) -> optax.GradientTransformation:
  """Return what a user's function gives as the optimizer.

  Raises:
    UserError: it gives something else.
  """
  make = resolve_object("optimizer", recipe.optimizer)
  with calling("optimizer", recipe.optimizer):
    optimizer = make(run, steps)
  if isinstance(optimizer, optax.MultiSteps):
    optimizer = optimizer.gradient_transformation()
  if not isinstance(optimizer, optax.GradientTransformation):
    raise UserError(
      f"optimizer {name_of(recipe.optimizer)} gives {type(optimizer).__name__}: give an "
      "optax.GradientTransformation"
    )
  return optimizer


def learning_rate(recipe: Recipe, run: Run, steps: int) -> optax.Schedule | Array:
  """Return the learning rate of a built-in optimizer, or the function of the step that
  gives it.

  Raises:
    UserError: a user's schedule gives something else.
  """
  if recipe.schedule == "constant" and not recipe.warmup:
    return run["lr"]
  if is_name(recipe.schedule):
    height = learning_rate_factor(recipe, run, steps)

    def rate(step: Any) -> Any:
      return run["lr"] * height(step)

    return rate
  make = resolve_object("schedule", recipe.schedule)
  with calling("schedule", recipe.schedule):
    schedule = make(run, steps)
  if not callable(schedule):
    raise UserError(
      f"schedule {name_of(recipe.schedule)} gives {type(schedule).__name__}: give a "
      "function of the step, such as an optax schedule"
    )
  return schedule


def optimizer_of(
  recipe: Recipe, data: DeviceExamples, run: Run, params: PyTree
) -> optax.GradientTransformation:
  """Return the run's optimizer, which changes only the parameters that are trained."""
  has_other_dtypes = any(leaf.dtype != jnp.float32 for leaf in jax.tree.leaves(params))
  values = run
  if has_other_dtypes and is_name(recipe.optimizer):
    values = _with_weak_types(run)
  # A user's optimizer is made for at least one epoch: many refuse a training of no
  # steps.
  steps = max(1, recipe.epochs) * steps_per_epoch(recipe, data, run)
  optimizer = make_optimizer(recipe, values, steps)
  if recipe.trainable == "all":
    return optimizer
  trained = trainable_paths(recipe, data, variables_of(recipe, data))
  frozen = jax.tree.map_with_path(
    lambda path, _: f"params.{path_of(path)}" not in trained, params
  )
  return optax.selective_transform(optimizer, freeze_mask=frozen)


def ascent_direction(gradient: PyTree[Array]) -> PyTree[Array]:
  """Return the direction of steepest ascent, as optax takes it, from what `jax.grad`
  returns: of a complex parameter that is the conjugate.
  """

  def conjugate(leaf):
    if jnp.iscomplexobj(leaf):
      return jnp.conj(leaf)
    return leaf

  return jax.tree.map(conjugate, gradient)


def _with_weak_types(run):
  """Return the run with hyperparameters that, as numbers of Python do, leave arrays of
  half precision in half precision.
  """

  def weak(value):
    return convert_element_type_p.bind(
      jnp.asarray(value), new_dtype=np.dtype(np.float32), weak_type=True, sharding=None
    )

  weakened = {}
  for name in HYPERPARAMETERS:
    if run.get(name) is not None:
      weakened[name] = weak(run[name])
  fixed = tuple(pair for pair in run.fixed if pair[0] not in weakened)
  return dataclasses.replace(run, values={**run.values, **weakened}, fixed=fixed)


def extra_args(
  optimizer: optax.GradientTransformation,
  value: Float[Array, ""],
  gradient: PyTree[Inexact[Array, "..."]],
  value_fn: Callable[[PyTree[Inexact[Array, "..."]]], Float[Array, ""]],
) -> dict[str, Any]:
  """Return what an update of the optimizer takes beside the gradient, under the names
  that optax has for it: the value of the objective on the batch, and the functions that
  give value or gradient at other parameters.
  """

  # Line searches refuse arguments that neither they nor `value_fn` take.
  def value_of(params, obj_fn=None, grad_fn=None):
    return value_fn(params)

  args = {
    "value": value,
    "grad": gradient,
    "value_fn": value_of,
    "obj_fn": value_fn,  # of Sophia
    "grad_fn": lambda params, _=0: ascent_direction(
      jax.grad(value_fn)(params)
    ),  # of SAM
  }
  parameters = inspect.signature(optimizer.update).parameters
  if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
    return args
  return {name: value for name, value in args.items() if name in parameters}


def initial_params(
  optimizer: optax.GradientTransformation, params: PyTree[Inexact[Array, "..."]]
) -> PyTree[Inexact[Array, "..."]]:
  """Return parameters in the form that the optimizer begins with: for `optax.lookahead`
  a fast and a slow copy.
  """

  def drop_record(record):
    return False

  # It warns that it gets one copy.
  logger = logging.getLogger("absl")
  logger.addFilter(drop_record)
  try:
    state = jax.eval_shape(optimizer.init, params)
  finally:
    logger.removeFilter(drop_record)
  if _states(state, optax.LookaheadState):
    return optax.LookaheadParams.init_synced(params)
  return params


def evaluated_params(
  recipe: Recipe, opt_state: PyTree[Array], params: PyTree[Inexact[Array, "..."]]
) -> PyTree[Inexact[Array, "..."]]:
  """Return the parameters that are evaluated and kept: those that training moves, unless
  the optimizer or `recipe.eval_params` says others.

  Raises:
    UserError: `recipe.eval_params` gives others than parameters.
  """
  if recipe.eval_params is not None:
    return own_eval_params(recipe, opt_state, params)
  if isinstance(params, optax.LookaheadParams):
    params = params.slow
  for state in _states(opt_state, contrib.ScheduleFreeState):
    params = _averaged(state, params)
  for state in _states(opt_state, contrib.SAMState):
    # Between two steps it may stand at a sharper place, and caches where it came from.
    if state.cache is not None:
      is_synced = state.steps_since_sync == 0
      params = jax.tree.map(
        lambda param, cached, is_synced=is_synced: jnp.where(is_synced, param, cached),
        params,
        state.cache,
      )
  return params


def own_eval_params(
  recipe: Recipe, opt_state: PyTree[Array], params: PyTree[Inexact[Array, "..."]]
) -> PyTree[Inexact[Array, "..."]]:
  """Return the parameters that `recipe.eval_params` gives.

  Raises:
    UserError: it gives others than parameters.
  """
  with calling("eval_params", recipe.eval_params):
    average = resolve_object("eval_params", recipe.eval_params)
    evaluated = average(opt_state, params)
  trained = params
  if isinstance(params, optax.LookaheadParams):
    trained = params.fast
  if _shapes(evaluated) != _shapes(trained):
    raise UserError(
      f"eval_params {name_of(recipe.eval_params)} gives {_shapes(evaluated)!s:.100}: give "
      "parameters of the names and shapes of those that it gets"
    )
  return evaluated


def _averaged(state, params):
  """Return the average that schedule-free training keeps. What a mask leaves out stays
  as it is.
  """

  def is_masked(leaf):
    return isinstance(leaf, optax.MaskedNode)

  def average(z, param):
    if is_masked(z):
      return param
    return contrib.schedule_free_eval_params(state._replace(z=z), param)

  return jax.tree.map(average, state.z, params, is_leaf=is_masked)


def _states(opt_state, kind):
  """Return the states of one kind of optimizer, wherever others wrap it."""
  leaves = jax.tree.leaves(opt_state, is_leaf=lambda leaf: isinstance(leaf, kind))
  return [leaf for leaf in leaves if isinstance(leaf, kind)]


def _shapes(tree):
  return jax.tree.map(jnp.shape, tree)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PackedParams:
  """Parameters with all vectors, such as biases, packed into one, so that an optimizer
  updates all of them at once.
  """

  others: Any  # a list of the parameters that are not vectors
  vectors: Any  # (numbers,), after the lane axis if there is one
  # Of each parameter; None: not a vector
  sizes: tuple[int | None, ...] = dataclasses.field(metadata=dict(static=True))
  structure: Any = dataclasses.field(metadata=dict(static=True))

  def unpack(self) -> PyTree[Inexact[Array, "..."]]:
    """Return the parameters as they were before packing."""
    others = iter(self.others)
    leaves = []
    begin = 0
    for size in self.sizes:
      if size is None:
        leaves.append(next(others))
        continue
      # Slices, not `split`: XLA does not fuse the gradient of `split` with the
      # operations that read it.
      leaves.append(self.vectors[begin : begin + size])
      begin += size
    return self.structure.unflatten(leaves)


def pack_vectors(
  recipe: Recipe, params: PyTree[Inexact[Array, "..."]]
) -> PyTree[Inexact[Array, "..."]]:
  """Return parameters in the form that the optimizer takes.

  On accelerators each operation has a cost, so vectors are packed if the optimizer is a
  built-in one: all but `OF_WHOLE_ARRAYS` update each number by itself, whatever array it
  is in.
  """
  is_elementwise = is_name(recipe.optimizer) and recipe.optimizer not in OF_WHOLE_ARRAYS
  treats_all_alike = is_elementwise and recipe.trainable == "all"
  if platform() == "cpu" or not treats_all_alike:
    return params
  leaves, structure = jax.tree.flatten(params)
  vectors = []
  others = []
  sizes: list[int | None] = []
  for leaf in leaves:
    if leaf.ndim == 1 and leaf.dtype == jnp.float32:
      vectors.append(leaf)
      sizes.append(leaf.size)
    else:
      others.append(leaf)
      sizes.append(None)
  if len(vectors) < 2:
    return params
  return PackedParams(others, jnp.concatenate(vectors), tuple(sizes), structure)


def unpack_vectors(
  params: PyTree[Inexact[Array, "..."]],
) -> PyTree[Float[Array, "..."]]:
  """Return parameters in the form that the network takes."""
  if isinstance(params, PackedParams):
    return params.unpack()
  return params
