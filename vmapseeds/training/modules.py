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


def begins_as_it_is(model) -> bool:
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
  taken = inspect.signature(apply).parameters
  named = [n for n, p in taken.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
  stateful = named[1:2] == ["state"]
  keys = [name for name in named if name in ("rng", "key", "rng_key")]
  others = {"state"}.union(keys, modes(True))
  rest = [name for name in named[1:] if name not in others]

  def make_variables(key, inputs):
    params = init(key, inputs, **_taken(init, modes(True)))
    state = ()
    if stateful:
      params, state = params
    return {"params": params, "batch_stats": state}

  @functools.cache
  def template(shape, dtype):
    inputs = jax.ShapeDtypeStruct((1, *shape), dtype)
    return jax.eval_shape(make_variables, jax.random.key(0), inputs)

  def called(variables, inputs, key, training):
    held = unnest(template(inputs.shape[1:], inputs.dtype), variables)
    options = _taken(apply, modes(training))
    if keys:
      options[keys[0]] = key
    if not rest:  # it takes *args
      outputs = apply(held["params"], inputs, **options)
    else:
      options[named[0]] = held["params"]
      options[rest[0]] = inputs
      if stateful:
        options["state"] = held["batch_stats"]
      outputs = apply(**options)
    return outputs if stateful else (outputs, ())

  def start(key, inputs):
    return nest(make_variables(key, inputs))

  def evaluate(variables, inputs):
    outputs, _ = called(variables, inputs, None, False)
    return outputs

  def train(variables, inputs, key):
    outputs, state = called(variables, inputs, key, True)
    if not stateful:
      return outputs, {}
    return outputs, nest({"batch_stats": state})

  return Network(start, evaluate, train)


def from_equinox(make: Callable[..., Any]) -> Network:
  """Return the Equinox module that `make(key)` makes as a network.

  It takes one example, and is mapped over a batch whose axis has the name "batch". Its
  call gets what it takes of `state` and `key`. Its arrays of floats are trained.
  """
  import equinox

  def parts(key):
    model, state = equinox.nn.make_with_state(make)(key)

    # Without weak types, which a loop would change.
    def with_strong_type(leaf):
      if equinox.is_array(leaf):
        return jnp.asarray(leaf, leaf.dtype)
      return leaf

    return jax.tree.map(with_strong_type, (model, state))

  model, state = equinox.filter_eval_shape(parts, jax.random.key(0))
  # After itself and the example, however that is called.
  parameters = inspect.signature(type(model).__call__).parameters
  taken = dict(list(parameters.items())[2:])
  stateful = False
  if "state" in taken:
    needs_state = taken["state"].default is inspect.Parameter.empty
    stateful = needs_state or bool(jax.tree.leaves(state))

  def arrays(leaf):
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")

  def floats(leaf):
    return arrays(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)

  def split(model, state):
    params, rest = equinox.partition(model, floats)
    buffers, _ = equinox.partition(rest, arrays)
    kinds = {"params": params, "batch_stats": state, "buffers": buffers}
    return {name: tree for name, tree in kinds.items() if jax.tree.leaves(tree)}

  shapes = split(model, state)
  rest = equinox.filter(model, arrays, inverse=True)

  def init(key, inputs):
    return nest(split(*parts(key)))

  def called(variables, inputs, key, training):
    held = unnest(shapes, variables)
    kept = [held[name] for name in ("params", "buffers") if name in held]
    whole = equinox.nn.inference_mode(equinox.combine(*kept, rest), not training)
    keys = None
    if "key" in taken and key is not None:
      keys = jax.random.split(key, len(inputs))

    # The state is one of the batch, as layers average it over the axis "batch".
    def call_one(example, key):
      options = _taken(whole, {"key": key})
      if not stateful:
        return whole(example, **options), ()
      return whole(example, held.get("batch_stats", state), **options)

    key_axis = None if keys is None else 0
    call_all = jax.vmap(call_one, (0, key_axis), (0, None), axis_name="batch")
    return call_all(inputs, keys)

  def apply(variables, inputs):
    outputs, _ = called(variables, inputs, None, False)
    return outputs

  def train(variables, inputs, key):
    outputs, after = called(variables, inputs, key, True)
    updates = {name: tree for name, tree in variables.items() if name != "params"}
    if jax.tree.leaves(after):
      updates |= nest({"batch_stats": after})
    return outputs, updates

  return Network(init, apply, train)


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
