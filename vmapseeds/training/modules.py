"""Networks that are no Flax modules as pure functions: Equinox modules, Haiku transforms,
and pairs of functions `init, apply`.
"""

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact, Key, PyTree

from vmapseeds.training.objects import is_pair

# `params` and, where there are some, `batch_stats` and others
Variables = dict[str, PyTree[Inexact[Array, "..."]]]


@dataclasses.dataclass(frozen=True)
class Network:
  """A network without its variables.

  `init(key, inputs)` returns them. `apply(variables, inputs)` returns the outputs of a
  batch in evaluation mode. `train(variables, inputs, key)` returns those in training
  mode, with the updated batch statistics.
  """

  init: Callable[[Key[Array, ""], Array], Variables]
  apply: Callable[[Variables, Array], Array]
  train: Callable[[Variables, Array, Key[Array, ""]], tuple[Array, Variables]]


def modes(training: bool) -> dict[str, bool]:
  """Return the mode of a network under the names that its call may have for it."""
  return {
    "train": training,
    "training": training,
    "is_training": training,
    "deterministic": not training,
  }


def is_equinox(model) -> bool:
  """Return whether a model is an Equinox module, its class, or a function of a key that
  makes one.
  """
  equinox = sys.modules.get("equinox")
  if equinox is None or is_pair(model):
    return False
  if isinstance(model, type):
    return issubclass(model, equinox.Module)
  if isinstance(model, equinox.Module):
    return True
  return "key" in inspect.signature(model).parameters


def has_fixed_init(model) -> bool:
  """Return whether a model is an Equinox module with arrays of its own, with which every
  run begins.
  """
  equinox = sys.modules.get("equinox")
  return equinox is not None and isinstance(model, equinox.Module)


def from_pair(init: Callable, apply: Callable) -> Network:
  """Return a pair of functions as a network.

  `init(key, inputs)` makes the parameters, and `apply(params, inputs)` the outputs of a
  batch. Each gets by name what it takes of the mode, and `apply` a key, `rng` or `key`,
  None in evaluation. If `apply` takes `state` after the parameters, as Haiku's
  `transform_with_state` does, `init` gives (params, state) and `apply` (outputs, state).
  """
  pair = Pair.of(init, apply)
  return Network(pair.start, pair.evaluate, pair.train)


@dataclasses.dataclass(frozen=True, eq=False)
class Pair:
  """A pair of functions, and how `apply` is called.

  Attributes:
    init, apply: the functions.
    is_stateful: whether both have a state beside the parameters.
    params_name, inputs_name: the names of these parameters of `apply`; None if it takes
      `*args`.
    key_name: likewise of the key; None if it takes none.
  """

  init: Callable
  apply: Callable
  is_stateful: bool
  params_name: str | None
  inputs_name: str | None
  key_name: str | None

  @classmethod
  def of(cls, init: Callable, apply: Callable) -> "Pair":
    """Read from the signature of `apply` how it is called."""
    parameters = inspect.signature(apply).parameters
    named = [
      name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    keys = [name for name in named if name in ("rng", "key", "rng_key")]
    others = {"state"}.union(keys, modes(True))
    rest = [name for name in named[1:] if name not in others]
    params_name, inputs_name = None, None
    if rest:
      params_name, inputs_name = named[0], rest[0]
    return cls(
      init,
      apply,
      is_stateful=named[1:2] == ["state"],
      params_name=params_name,
      inputs_name=inputs_name,
      key_name=next(iter(keys), None),
    )

  def make_variables(self, key, inputs):
    params = self.init(key, inputs, **_taken(self.init, modes(True)))
    state = ()
    if self.is_stateful:
      params, state = params
    return {"params": params, "batch_stats": state}

  @functools.cached_property
  def template(self) -> Callable:
    """Return the function that gives the structure of the variables for inputs of a
    shape and dtype, traced once for each.
    """

    @functools.cache
    def template(shape, dtype):
      inputs = jax.ShapeDtypeStruct((1, *shape), dtype)
      return jax.eval_shape(self.make_variables, jax.random.key(0), inputs)

    return template

  def call(self, variables, inputs, key, training: bool):
    """Return the outputs, and the new state if there is one."""
    structure = self.template(inputs.shape[1:], inputs.dtype)
    own_variables = unnest(structure, variables)
    params, state = own_variables["params"], own_variables["batch_stats"]
    options = _taken(self.apply, modes(training))
    if self.key_name is not None:
      options[self.key_name] = key
    if self.inputs_name is None:  # it takes *args
      outputs = self.apply(params, inputs, **options)
    else:
      options |= {self.params_name: params, self.inputs_name: inputs}
      if self.is_stateful:
        options["state"] = state
      outputs = self.apply(**options)
    return outputs if self.is_stateful else (outputs, ())

  def start(self, key, inputs):
    return nest(self.make_variables(key, inputs))

  def evaluate(self, variables, inputs):
    outputs, _ = self.call(variables, inputs, None, training=False)
    return outputs

  def train(self, variables, inputs, key):
    outputs, state = self.call(variables, inputs, key, training=True)
    if not self.is_stateful:
      return outputs, {}
    return outputs, nest({"batch_stats": state})


def from_equinox(make: Callable[..., Any]) -> Network:
  """Return the Equinox module that `make(key)` makes as a network.

  It takes one example, and is mapped over a batch whose axis has the name "batch". Its
  call gets what it takes of `state` and `key`. Its arrays of floats are trained.
  """
  module = EquinoxModule(make)
  return Network(module.init, module.apply, module.train)


class EquinoxModule:
  """The functions of a network that is an Equinox module.

  Attributes:
    make: makes the module, given a key.
    state: shapes of the state that it begins with.
    shapes: of its variables, by collection.
    rest: all of it but arrays.
    parameters: of its call after itself and the example, by name.
    is_stateful: whether its call takes and returns the state.
  """

  def __init__(self, make: Callable[..., Any]):
    import equinox

    self.make = make
    model, self.state = equinox.filter_eval_shape(self.make_parts, jax.random.key(0))
    # After itself and the example, however that is called.
    parameters = inspect.signature(type(model).__call__).parameters
    self.parameters = dict(list(parameters.items())[2:])
    self.is_stateful = False
    if "state" in self.parameters:
      needs_state = self.parameters["state"].default is inspect.Parameter.empty
      self.is_stateful = needs_state or bool(jax.tree.leaves(self.state))
    self.shapes = split_equinox(model, self.state)
    self.rest = equinox.filter(model, is_array, inverse=True)

  def make_parts(self, key):
    """Return the module and its state."""
    import equinox

    model, state = equinox.nn.make_with_state(self.make)(key)

    # Without weak types, which a loop would change.
    def with_strong_type(leaf):
      if equinox.is_array(leaf):
        return jnp.asarray(leaf, leaf.dtype)
      return leaf

    return jax.tree.map(with_strong_type, (model, state))

  def init(self, key, inputs):
    """Return the variables."""
    return nest(split_equinox(*self.make_parts(key)))

  def apply(self, variables, inputs):
    """Return the outputs of a batch in evaluation mode."""
    outputs, _ = self.call(variables, inputs, None, False)
    return outputs

  def train(self, variables, inputs, key):
    """Return the outputs of a batch in training mode, and the updated collections."""
    outputs, state = self.call(variables, inputs, key, True)
    updates = {name: tree for name, tree in variables.items() if name != "params"}
    if jax.tree.leaves(state):
      updates |= nest({"batch_stats": state})
    return outputs, updates

  def call(self, variables, inputs, key, training):
    """Return the outputs of a batch, and the state; () without one."""
    import equinox

    collections = unnest(self.shapes, variables)
    arrays = [collections[n] for n in ("params", "buffers") if n in collections]
    whole = equinox.combine(*arrays, self.rest)
    model = equinox.nn.inference_mode(whole, not training)
    keys = None
    if "key" in self.parameters and key is not None:
      keys = jax.random.split(key, len(inputs))

    # The state is one of the batch, as layers average it over the axis "batch".
    def call_one(example, key):
      options = _taken(model, {"key": key})
      if not self.is_stateful:
        return model(example, **options), ()
      state = collections.get("batch_stats", self.state)
      return model(example, state, **options)

    key_axis = None if keys is None else 0
    call_all = jax.vmap(call_one, (0, key_axis), (0, None), axis_name="batch")
    return call_all(inputs, keys)


def split_equinox(model, state) -> dict[str, PyTree]:
  """Return the arrays of an Equinox module and its state, by collection."""
  import equinox

  params, others = equinox.partition(model, is_inexact_array)
  buffers, _ = equinox.partition(others, is_array)
  collections = {"params": params, "batch_stats": state, "buffers": buffers}
  return {name: tree for name, tree in collections.items() if jax.tree.leaves(tree)}


def is_array(leaf) -> bool:
  """Return whether a leaf is an array, or the shape of one."""
  return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def is_inexact_array(leaf) -> bool:
  """Return whether a leaf is an array of floats or of complex numbers."""
  return is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def nest(tree: PyTree) -> dict[str, Any]:
  """Return the leaves of a tree in dictionaries by their paths, as Flax has parameters.
  Haiku's `net/~/linear` is a path.
  """
  nested: dict[str, Any] = {}
  for path, leaf in jax.tree.leaves_with_path(tree):
    *parents, name = _names(path)
    inner = nested
    for parent in parents:
      inner = inner.setdefault(parent, {})
    inner[name] = leaf
  return nested


def unnest(template: PyTree, nested: dict[str, Any]) -> PyTree:
  """Return a tree like `template` with the leaves that `nest` put into dictionaries."""

  def leaf(path, _):
    return functools.reduce(lambda inner, name: inner[name], _names(path), nested)

  return jax.tree.map_with_path(leaf, template)


def _names(path):
  keys = (jax.tree_util.keystr((key,), simple=True) for key in path)
  return [name for key in keys for name in key.split("/")]


def _taken(function, arguments):
  """Return the keyword arguments that a function takes."""
  call = function
  if hasattr(function, "__dataclass_fields__"):
    call = type(function).__call__
  parameters = inspect.signature(call).parameters
  return {name: value for name, value in arguments.items() if name in parameters}
