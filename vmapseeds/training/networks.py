"""A recipe's network as pure functions: modules of Linen and NNX, with or without batch
statistics, dropout, or a mode, and those of `training.modules`.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.extend.random import define_prng_impl, threefry_prng_impl
from jaxtyping import Array, Bool, Float, Inexact, PyTree

from vmapseeds import models
from vmapseeds.errors import UserError
from vmapseeds.jaxprs import (
  equations,
  open_program,
)
from vmapseeds.target import platform
from vmapseeds.training.inputs import DeviceExamples, as_vectors, batch_like
from vmapseeds.training.modules import (
  Network,
  Variables,
  from_equinox,
  from_pair,
  has_fixed_init,
  is_equinox,
  modes,
  nest,
  unnest,
)
from vmapseeds.training.names import OPTIMIZERS
from vmapseeds.training.objects import (
  before_training,
  describe_exception,
  is_name,
  is_ours,
  is_pair,
  mistake_in_code,
  name_of,
  resolve_object,
)
from vmapseeds.training.recipes import MODELS, Recipe
from vmapseeds.training.runs import Run

# Recipe fields passed to a model that accepts them. A field with this value is not
# passed, so the model's own default applies.
MODEL_DEFAULTS = {"width": 1, "dropout": 0, "depth": None}


def _as_vector(key, bit_width, shape):
  size = math.prod(shape)
  return threefry_prng_impl.random_bits(key, bit_width, (size,)).reshape(shape)


# Draws the same bits as Threefry, but as one vector: XLA compiles that for CPUs in less
# than half the time.
VECTORS = define_prng_impl(
  **threefry_prng_impl._asdict()
  | {"random_bits": _as_vector, "name": "vectors", "tag": "v"}
)


ESCAPES = {"~": "~0", "/": "~1", ".": "~2"}  # the first two as in JSON pointers


def path_of(leaf: tuple) -> str:
  """Return a leaf's name in a folder: its path with dots, `params.Conv_0.kernel`.

  A dot, a slash, or a tilde before a digit in a layer's own name is escaped.
  """
  names = (jax.tree_util.keystr((key,), simple=True) for key in leaf)
  # A tilde alone is a name of Haiku's.
  return ".".join(
    re.sub(r"~(?=[012])|[/.]", lambda special: ESCAPES[special[0]], name)
    for name in names
  )


def layers_of(path: str) -> tuple[str, ...]:
  """Return the names of which `path_of` made a leaf's name in a folder."""
  own = {escape: character for character, escape in ESCAPES.items()}
  return tuple(
    re.sub("~[012]", lambda escape: own[escape[0]], name) for name in path.split(".")
  )


def make_network(
  recipe: Recipe,
  num_classes: int | None,
  dropout: Float[Array, ""] | None = None,
) -> Network:
  """Return the recipe's network.

  Args:
    recipe: what is trained.
    num_classes: None if targets are not classes.
    dropout: a traced rate in place of the recipe's.
  """
  precision = models.resolve_precision(recipe.precision)
  trained = _network_of_any_library(recipe, num_classes, precision, dropout)
  if recipe.eval_model is not None:
    other = recipe.replace(model=recipe.eval_model, eval_model=None)
    evaluated = _network_of_any_library(other, num_classes, precision, dropout)
    trained = dataclasses.replace(trained, apply=evaluated.apply)
  if recipe.trainable == "all":
    return trained

  def train(variables, inputs, key):
    # Frozen layers run in evaluation mode, so the batch statistics stay as they are.
    outputs = trained.apply(variables, inputs)
    statistics = {name: tree for name, tree in variables.items() if name != "params"}
    return outputs, statistics

  return dataclasses.replace(trained, train=train)


def product_precision(precision: str) -> contextlib.AbstractContextManager:
  """Trace matrix products and convolutions in this context so that they have a recipe's
  precision on every device. By default a TPU multiplies float32 numbers as bfloat16, and
  a GPU as TensorFloat-32.
  """
  jax_names = {"float32": "highest", "tensorfloat32": "tensorfloat32"}
  if precision not in jax_names:
    return contextlib.nullcontext()
  return jax.default_matmul_precision(jax_names[precision])


def trainable_paths(
  recipe: Recipe, data: DeviceExamples, variables: Variables
) -> set[str]:
  """Return the paths of the parameters that a recipe trains, such as
  `params.Dense_0.kernel`.

  Raises:
    UserError: no parameters are trained.
  """
  prefix = "params."
  paths = [path_of(path) for path, _ in jax.tree.leaves_with_path(variables)]
  params = [path for path in paths if path.startswith(prefix)]
  if recipe.trainable == "all":
    return set(params)
  all_names = ", ".join(path.removeprefix(prefix) for path in params)
  if isinstance(recipe.trainable, tuple):
    chosen = set[str]()
    for name in recipe.trainable:
      # A dot after both, so that "head" is not the beginning of "heads".
      start = f"{prefix}{name}."
      below = {path for path in params if f"{path}.".startswith(start)}
      if not below:
        raise UserError(
          f"trainable has {name!r}: give names of parameters, of {all_names}"
        )
      chosen |= below
    return chosen
  predicate = resolve_object("trainable", recipe.trainable)
  with before_training(f"trainable {name_of(recipe.trainable)}"):
    chosen = {path for path in params if predicate(path.removeprefix(prefix))}
  if not chosen:
    raise UserError(
      f"trainable {name_of(recipe.trainable)} is true of no parameter: it is asked for "
      f"each of {all_names}"
    )
  return chosen


def describe_trainable(recipe: Recipe, data: DeviceExamples) -> str:
  """Return which parameters a recipe trains, in a line."""
  variables = variables_of(recipe, data)
  chosen = trainable_paths(recipe, data, variables)
  sizes = {
    path_of(path): math.prod(leaf.shape)
    for path, leaf in jax.tree.leaves_with_path(variables)
    if path_of(path).startswith("params.")
  }
  names = ", ".join(path.removeprefix("params.") for path in sizes if path in chosen)
  numbers = sum(sizes[path] for path in chosen)
  return f"trains: {names} ({numbers:,} of {sum(sizes.values()):,})"


def _network_of_any_library(recipe, num_classes, precision, dropout):
  if is_name(recipe.model):
    model = models.load(recipe.model)
  else:
    model = resolve_object("model", recipe.model)
  if isinstance(model, nnx.Module):
    raise UserError(
      f"model is a {type(model).__name__} with parameters of its own: give the class, "
      "of which each run makes its own module"
    )
  options = {
    "num_classes": num_classes,
    "dtype": jnp.dtype("bfloat16" if precision == "bfloat16" else "float32"),
  }
  if isinstance(model, nn.Module):
    return from_linen(_make(recipe, lambda: model, options, dropout))
  if is_pair(model):
    init, apply = _make(recipe, lambda: model, options, dropout)
    return from_pair(init, apply)
  if is_equinox(model):
    del options["dtype"]  # Equinox has no dtype of computation, only of parameters
    make_module = model
    if has_fixed_init(model):
      make_module = lambda key: model  # noqa: E731
    return from_equinox(
      lambda key: _make(recipe, make_module, options, dropout, key=key)
    )
  make = functools.partial(_make, recipe, model, options, dropout)
  if "rngs" in _parameters(model):
    # Its parameters are not drawn only to see of what kind it is.
    module = nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0)))
  else:
    module = make()
  if isinstance(module, nnx.Module):
    return from_nnx(make)
  if not isinstance(module, nn.Module):
    raise UserError(
      f"model {name_of(recipe.model)} makes a {type(module).__name__}: give {MODELS}"
    )
  return from_linen(module)


def _parameters(model):
  is_class = isinstance(model, type)
  return inspect.signature(model.__init__ if is_class else model).parameters


def _make(recipe, model, options, dropout, **arguments):
  """Make the model with those options that it accepts, and these arguments.

  Options that the recipe does not set keep the model's own defaults, if it has any.

  Raises:
    UserError: the recipe sets an option that the model does not accept.
  """
  accepted = _parameters(model)
  of_recipe = {name: getattr(recipe, name) for name in MODEL_DEFAULTS}
  if dropout is not None:
    of_recipe["dropout"] = dropout
  for name, value in of_recipe.items():
    if name not in accepted and not _is_default(name, value):
      refused = f"{name} is {value}: the model {name_of(recipe.model)} takes none"
      raise UserError(f"{refused}, give {str(MODEL_DEFAULTS[name]).lower()}")
  if recipe.precision == "bfloat16" and "dtype" not in accepted:
    raise UserError(
      f"precision is bfloat16: the model {name_of(recipe.model)} takes no dtype, give auto or float32"
    )
  for name in recipe.model_args:
    if name not in accepted:
      raise UserError(
        f"model_args has {name}: the model {name_of(recipe.model)} takes "
        f"{', '.join(accepted) or 'none, as it is made already'}"
      )

  passed = {}
  for name, value in (options | of_recipe).items():
    if name not in accepted:
      continue
    has_own_default = accepted[name].default is not inspect.Parameter.empty
    if has_own_default and _is_default(name, value):
      continue
    passed[name] = value
  passed |= recipe.model_args
  return model(**passed, **arguments)


def _is_default(name, value):
  # A traced value has no truth.
  return not isinstance(value, jax.Array) and value == MODEL_DEFAULTS.get(name)


def model_takes(recipe: Recipe, name: str) -> bool:
  """Return whether the recipe's model, a built-in one, takes an argument."""
  return is_name(recipe.model) and name in _parameters(models.load(recipe.model))


def from_linen(model: nn.Module) -> Network:
  """Return a Linen module as pure functions."""
  evaluation = _mode(model, False)
  training = _mode(model, True)

  def init(key, inputs):
    with recorded_sowing() as sown:
      variables = model.init({"params": key, "dropout": key}, inputs, **evaluation)
    leaves = flatten_dict(variables)
    return unflatten_dict({path: leaves[path] for path in leaves if path not in sown})

  def apply(variables, inputs):
    return model.apply(variables, inputs, **evaluation)

  def train(variables, inputs, key):
    # A random stream of any other name is derived from that of `params`.
    rngs = {"dropout": key, "params": jax.random.fold_in(key, 1)}
    outputs, updates = model.apply(
      variables, inputs, mutable=nn.DenyList("params"), rngs=rngs, **training
    )
    return outputs, dict(updates)

  return Network(init, apply, train)


@contextlib.contextmanager
def recorded_sowing() -> Iterator[set[tuple[str, ...]]]:
  """Yield the paths of what Linen modules sow meanwhile, `("losses", "Dense_0", "l2")`."""
  paths = set[tuple[str, ...]]()
  sow = nn.Module.sow

  def recorded(module, collection, name, *args, **options):
    if module.scope is not None:
      paths.add((collection, *module.scope.path, name))
    return sow(module, collection, name, *args, **options)

  nn.Module.sow = recorded  # type: ignore[assignment,method-assign]
  try:
    yield paths
  finally:
    nn.Module.sow = sow  # type: ignore[method-assign]


def from_nnx(make: Callable[..., nnx.Module]) -> Network:
  """Return an NNX module as pure functions. Each builds the module again, so that its
  random streams start from the key.
  """

  def init(key, inputs):
    params, others = _states(make(rngs=nnx.Rngs(key)))
    variables = {"params": nnx.to_pure_dict(params)}
    if others:
      variables["batch_stats"] = nnx.to_pure_dict(others)
    return variables

  def call(variables, inputs, key, training):
    model = make(rngs=nnx.Rngs(key))
    states = _states(model)
    for state, kind in zip(states, ("params", "batch_stats"), strict=True):
      # Stored networks have all keys as texts.
      names = nest(variables.get(kind, {}))
      nnx.replace_by_pure_dict(state, unnest(nnx.to_pure_dict(state), names))
      nnx.update(model, state)
    before = jax.tree.leaves(nnx.to_pure_dict(_states(model)[0]))
    if training:
      model.train()
    else:
      model.eval()
    with warnings.catch_warnings():
      # What newer versions ask for instead needs the types of all that is sown.
      warnings.filterwarnings("ignore", "Using 'Module", DeprecationWarning)
      outputs = model(inputs, **_mode(model, training, rngs=nnx.Rngs(key)))
    updates = _collections(model, set(dict(nnx.to_flat_state(states[1]))))
    # Some modules write parameters when they are called, as `nnx.SpectralNorm` does.
    params = nnx.to_pure_dict(_states(model)[0])
    after = jax.tree.leaves(params)
    if any(new is not old for new, old in zip(after, before, strict=True)):
      updates["params"] = params
    return outputs, updates

  def apply(variables, inputs):
    outputs, _ = call(variables, inputs, jax.random.key(0), False)
    return outputs

  def train(variables, inputs, key):
    return call(variables, inputs, key, True)

  return Network(init, apply, train)


def _collections(model, kept):
  """Return an NNX module's state but its parameters: what it had from the beginning, at
  the paths `kept`, as `batch_stats`, and what it sowed under the names that Linen has for
  these types, such as `intermediates`.
  """
  collections: dict[str, dict] = {}
  for path, variable in nnx.to_flat_state(_states(model)[1]):
    name = "batch_stats"
    if path not in kept:
      name = nnx.variable_name_from_type(type(variable), allow_register=True)
    collections.setdefault(name, {})[path] = variable
  return {
    name: nnx.to_pure_dict(nnx.from_flat_state(variables))
    for name, variables in collections.items()
  }


def _mode(model, training, **others):
  """Return the keyword arguments that set a module's mode, training or evaluation, and
  `others`: those that the module accepts.
  """
  accepted = inspect.signature(type(model).__call__).parameters
  arguments = modes(training) | others
  return {name: value for name, value in arguments.items() if name in accepted}


def _states(model):
  """Return the module's parameters, and its other state without random streams."""
  _, *states = nnx.split(model, nnx.Param, nnx.RngState, ...)
  return states[0], states[2]


class TrainedNetwork(NamedTuple):
  """A trained network, and whether its variables end not finite."""

  variables: PyTree[Inexact[Array, "..."]]
  diverged: Bool[Array, ""]


def variables_of(recipe: Recipe, data: DeviceExamples) -> PyTree[jax.ShapeDtypeStruct]:
  """Return the shapes and dtypes of one run's parameters and batch statistics.

  Raises:
    UserError: the network does not accept the inputs.
  """
  inputs = batch_like(data, 3)
  key = jax.random.key(0)
  model = f"model {name_of(recipe.model)}"
  pure = None
  try:
    pure = make_network(recipe, data.num_classes)
    variables = jax.eval_shape(pure.init, key, inputs)
    traced = jax.jit(pure.apply).trace(variables, inputs)
    outputs = traced.out_info
  except UserError:
    raise
  except Exception as error:  # whatever the user's network does
    if pure is not None:
      check_channels(pure, inputs, model)
      if is_ours(error):
        raise
    shape = "×".join(map(str, data.inputs.shape[1:]))
    remedy = "give another"
    if recipe.normalize and data.inputs.dtype.kind == "i":
      remedy += ", or normalize=False if it takes whole numbers"
    raise mistake_in_code(
      f"{model} on inputs of {shape} fails ({describe_exception(error)}): {remedy}"
    ) from error
  if inputs.ndim == 3 and any(map(_convolves_one, equations(traced.jaxpr))):
    check_channels(pure, inputs, model)
  if "params" not in variables:
    raise UserError(f"{model} has no parameters to train: give another")
  if not isinstance(outputs, jax.ShapeDtypeStruct) or outputs.shape[:1] != (3,):
    shape_or_type = getattr(outputs, "shape", type(outputs).__name__)
    raise UserError(
      f"{model} gives {shape_or_type} for a batch of 3: give one array, its first axis the example"
    )
  if 0 in outputs.shape:
    raise UserError(
      f"{model} gives outputs of shape {outputs.shape[1:]}: give at least one number an "
      "example"
    )
  if data.num_classes is not None and outputs.shape[1:] != (data.num_classes,):
    raise UserError(
      f"{model} gives outputs of shape {outputs.shape[1:]}: give {data.num_classes}, one a class from 0 on"
    )
  return variables


def check_channels(pure: Network, inputs: jax.ShapeDtypeStruct, model: str) -> None:
  """Check that inputs are not images without the axis of channels that a network needs.

  Raises:
    UserError: they are: it accepts them with one.
  """
  if inputs.ndim != 3:
    return
  images = jax.ShapeDtypeStruct((*inputs.shape, 1), inputs.dtype)
  try:
    variables = jax.eval_shape(pure.init, jax.random.key(0), images)
    jax.eval_shape(pure.apply, variables, images)
  except Exception:  # whatever the user's network does
    return
  raise UserError(
    f"{model} on inputs of {inputs.shape[1]}×{inputs.shape[2]}: images have no channel "
    "axis: use x[..., None]"
  )


def _convolves_one(equation):
  """Return whether an operation is a convolution that takes a batch for one image."""
  name = equation.primitive.name
  if name not in ("conv_general_dilated", "convolve"):
    return False
  batch = 0
  if name == "conv_general_dilated":
    batch = equation.params["dimension_numbers"].lhs_spec[0]
  return equation.invars[0].aval.shape[batch] == 1


def flattens_inputs(recipe: Recipe, data: DeviceExamples) -> bool:
  """Return whether the network uses its inputs only as vectors, one per example."""
  inputs = batch_like(data, 1)
  if inputs.ndim <= 2:
    return False
  apply = make_network(recipe, data.num_classes).apply
  program = open_program(jax.make_jaxpr(apply)(variables_of(recipe, data), inputs))
  argument = program.invars[-1]
  for equation in program.eqns:
    if argument not in equation.invars:
      continue
    if equation.primitive.name != "reshape" or equation.outvars[0].aval.ndim != 2:
      return False
  return True


def as_fetched(recipe: Recipe, data: DeviceExamples) -> DeviceExamples:
  """Return training examples in the form in which batches are fetched: as vectors on a
  TPU, if the network flattens them anyway.

  A TPU would move images pixel by pixel. This takes three times as long as everything
  else.
  """
  if platform() == "tpu" and not recipe.augment and flattens_inputs(recipe, data):
    return as_vectors(data)
  return data


def check_network(recipe: Recipe, data: DeviceExamples, memory: float) -> None:
  """Check that a network can be trained.

  Raises:
    UserError: it does not accept the inputs, has more weights than 32 bits can count, or
      needs more than `memory` bytes.
  """
  params = jax.tree.leaves(variables_of(recipe, data)["params"])
  count = sum(math.prod(leaf.shape) for leaf in params)
  # At least the parameters, their gradient and the optimizer's moments, in float32. What
  # a user's optimizer keeps is not known.
  moments = OPTIMIZERS[recipe.optimizer] if is_name(recipe.optimizer) else 0
  needed = 4 * count * (2 + moments)
  if count >= 2**31 or needed > memory:
    model = f"{name_of(recipe.model)} of width {recipe.width:g}"
    size = f"{model} has {count:,} parameters, in training {needed / 1e9:.3g} GB"
    raise UserError(f"{size}: more than there is memory for, give a smaller width")


def own_examples(data: DeviceExamples, run: Run) -> DeviceExamples:
  """Return the examples of a training set that the run is trained on."""
  subset = run.get("subset")
  if subset is None:
    return data
  inputs = jnp.asarray(data.inputs)[subset]
  targets = jnp.asarray(data.targets)[subset]
  return dataclasses.replace(data, inputs=inputs, targets=targets)


def initialize(
  recipe: Recipe, data: DeviceExamples, run: Run
) -> PyTree[Inexact[Array, "..."]]:
  """Return the variables before training: a function of the init seed and, with
  `recipe.initialize`, of the run's training examples, except those that are loaded from a stored
  network.

  Raises:
    UserError: `recipe.initialize` gives others than variables.
  """
  key = jax.random.wrap_key_data(jax.random.key_data(run.key("init")), impl=VECTORS)
  variables = make_network(recipe, data.num_classes).init(
    key, jnp.zeros_like(batch_like(data, 1))
  )
  if recipe.initialize is not None:
    data = own_examples(data, run)
    with before_training(f"initialize {name_of(recipe.initialize)}"):
      initialized = resolve_object("initialize", recipe.initialize)(
        variables, data, run
      )
    shapes = jax.tree.map(jnp.shape, initialized)
    if shapes != jax.tree.map(jnp.shape, variables):
      raise UserError(
        f"initialize {name_of(recipe.initialize)} gives {shapes!s:.100}: give variables of "
        "the names and shapes of those that it gets"
      )
    variables = initialized
  stored = run.get("start") or {}
  return jax.tree.map_with_path(
    lambda path, fresh: stored.get(path_of(path), fresh), variables
  )
