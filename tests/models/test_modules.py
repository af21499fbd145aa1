"""Equinox modules, Haiku transforms and pairs of functions as models of recipes: each
trains as its own script does.
"""

import functools
import re

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest

import vmapseeds as vs
from vmapseeds.training import loop
from vmapseeds.training.modules import nest
from vmapseeds.training.runs import Runs
from vmapseeds.training.supervised import load_recipe_task
from vmapseeds.training.task import bind_runs, lanes_of, trace

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(32, 6)).astype(np.float32)
LABELS = RNG.integers(0, 3, 32).astype(np.int32)
LABELS[:3] = range(3)
DATA = vs.Dataset(train=(INPUTS, LABELS), test=(INPUTS, LABELS))
BATCH = 8
LR = 0.1


def recipe_of(model, **changes):
  fields = dict(name="r", dataset=DATA, epochs=1, batch_size=BATCH, lr=LR)
  fields |= dict(momentum=0.0, normalize=False, model=model)
  return vs.Recipe(**fields | changes)


def trained(recipe):
  """The variables of a recipe's first run, and its predictions."""
  task = load_recipe_task(recipe, Runs.independent(1), says=True)
  run = jax.tree.map(lambda column: column[0], lanes_of(task, Runs.independent(1)))
  state = jax.jit(functools.partial(loop.train, recipe))(task.data[0], run)
  return state.variables


def plain_steps(params, state, gradient):
  """Plain gradient steps through the batches of the recipe's first epoch:
  `gradient(params, state, inputs, labels, step) -> (gradient, state)`.
  """
  key = jax.random.fold_in(plain.key("order", 0), 0)
  examples = np.asarray(jax.random.permutation(key, len(INPUTS)))
  for step, chosen in enumerate(examples.reshape(-1, BATCH)):
    given, state = gradient(params, state, INPUTS[chosen], LABELS[chosen], step)
    params = jax.tree.map(lambda p, g: p - LR * g, params, given)
  return params, state


def same(ours, theirs):
  assert jax.tree.structure(ours) == jax.tree.structure(theirs)
  for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def loss(logits, labels):
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class Blocks(eqx.Module):
  """With dropout, batch statistics, a list, a function and a table of whole numbers."""

  layers: list
  norm: eqx.nn.BatchNorm
  dropout: eqx.nn.Dropout
  table: jax.Array

  def __init__(self, num_classes, key):
    one, two = jax.random.split(key)
    first = eqx.nn.Linear(6, 5, key=one)
    self.layers = [first, jax.nn.relu, eqx.nn.Linear(5, num_classes, key=two)]
    self.norm = eqx.nn.BatchNorm(5, "batch", mode="batch")
    self.dropout = eqx.nn.Dropout(0.5)
    self.table = jnp.arange(6)

  def __call__(self, x, state, key=None):
    first, relu, last = self.layers
    x, state = self.norm(first(x[self.table]), state)
    return last(self.dropout(relu(x), key=key)), state


@pytest.mark.slow
def test_an_equinox_module_is_its_own_loop():
  model, state = eqx.nn.make_with_state(Blocks)(3, plain.key("init", 0))

  @eqx.filter_jit
  def gradient(model, state, inputs, labels, step):
    def value(model):
      keys = jax.random.split(jax.random.fold_in(plain.key("dropout", 0), step), BATCH)
      call = jax.vmap(model, (0, None, 0), (0, None), axis_name="batch")
      logits, after = call(inputs, state, keys)
      return loss(logits, labels), after

    return eqx.filter_grad(value, has_aux=True)(model)

  def steps(model, state):
    params, rest = eqx.partition(model, eqx.is_inexact_array)

    def some(params, state, *batch):
      whole = eqx.combine(params, rest)
      found, state = gradient(whole, state, *batch)
      return eqx.filter(found, eqx.is_inexact_array), state

    return plain_steps(params, state, some)

  params, state = steps(model, state)
  ours = trained(recipe_of(Blocks))
  same(ours["params"], nest(params))
  same(ours["batch_stats"], nest(state))
  assert jax.tree.leaves(ours["buffers"])[0].tolist() == [*range(6)]


def tiny(key):
  return eqx.nn.MLP(6, 3, 4, 1, key=key)


def haiku_net(x, is_training):
  x = hk.BatchNorm(True, True, 0.9)(hk.Linear(5)(x), is_training)
  x = hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x
  return hk.nets.MLP([4, 3])(x)


@pytest.mark.slow
def test_a_haiku_transform_is_its_own_loop():
  net = hk.transform_with_state(haiku_net)
  params, state = net.init(plain.key("init", 0), INPUTS[:1], True)

  @jax.jit
  def gradient(params, state, inputs, labels, step):
    def value(params):
      key = jax.random.fold_in(plain.key("dropout", 0), step)
      logits, after = net.apply(params, state, key, inputs, True)
      return loss(logits, labels), after

    return jax.grad(value, has_aux=True)(params)

  params, state = plain_steps(params, state, gradient)
  ours = trained(recipe_of(net))
  same(ours["params"], nest(params))
  same(ours["batch_stats"], nest(state))
  assert {*ours["params"]} == {"linear", "batch_norm", "mlp"}


def start(key, inputs):
  one, two = jax.random.split(key)
  return [jax.random.normal(one, (6, 4)), jax.random.normal(two, (4, 3))]


def forward(params, inputs):
  return jnp.tanh(inputs @ params[0]) @ params[1]


PAIR = start, forward


@pytest.mark.slow
@pytest.mark.parametrize("model", [tiny, "test_modules:PAIR"])
def test_networks_of_any_kind_are_stored_and_applied(model, tmp_path):
  out = tmp_path / "r"
  results = vs.train(
    recipe_of(model), 2, out, keep_params=True, logits=True, progress=False
  )
  networks = vs.load_networks(out)
  logits = jax.vmap(networks.apply, (0, None))(networks.variables, INPUTS)
  np.testing.assert_allclose(logits, results.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_pair_of_functions_is_its_own_loop():
  def gradient(params, state, inputs, labels, step):
    return jax.grad(lambda params: loss(forward(params, inputs), labels))(params), ()

  params, _ = plain_steps(start(plain.key("init", 0), INPUTS), (), gradient)
  same(trained(recipe_of(PAIR)), {"params": nest(params)})


class Moded(nn.Module):
  deterministic: bool

  @nn.compact
  def __call__(self, x):
    x = nn.Dropout(0.5, deterministic=self.deterministic)(nn.Dense(64)(x))
    return nn.Dense(3)(x)


@pytest.mark.slow
def test_a_mode_in_the_modules_fields():
  both = recipe_of(Moded(False), eval_model=Moded(True), epochs=0)
  with pytest.raises(vs.UserError, match=r"needs PRNG for|dropout"):
    trace_of(recipe_of(Moded(False)))
  task, found = trace_of(both)
  run = jax.tree.map(lambda column: column[0], lanes_of(task, Runs.independent(1)))
  state = jax.jit(task.start)(task.data, run)
  predictions = jax.jit(task.finish)(task.data, run, state)["test/predictions"]
  logits = Moded(True).apply({"params": state.params}, INPUTS)
  np.testing.assert_array_equal(predictions, logits.argmax(-1))


class Configured(nn.Module):
  config: dict

  @nn.compact
  def __call__(self, x):
    for width in self.config["widths"]:
      x = nn.tanh(nn.Dense(width)(x))
    return nn.Dense(3)(x)


@pytest.mark.slow
def test_a_module_with_a_dict_and_a_list_needs_no_hash():
  recipe = recipe_of(Configured({"widths": [5, 4]}))
  params = trained(recipe)["params"]
  assert [params[f"Dense_{i}"]["bias"].size for i in range(3)] == [5, 4, 3]
  assert recipe == recipe_of(Configured({"widths": [5, 4]}))
  assert recipe != recipe_of(Configured({"widths": [5, 5]}))


@pytest.mark.slow
def test_an_equinox_instance_is_where_every_run_begins(capsys):
  module = eqx.nn.MLP(6, 3, 4, 1, key=jax.random.key(3))
  begun = trained(recipe_of(module, epochs=0))
  same(begun["params"], nest(eqx.filter(module, eqx.is_inexact_array)))
  line = (
    "every run begins with the parameters that the model equinox.* has: give its class"
  )
  assert re.search(line, capsys.readouterr().err)
  assert not np.allclose(
    trained(recipe_of(module))["params"]["layers"]["0"]["weight"],
    module.layers[0].weight,
  )


def trace_of(recipe):
  task = load_recipe_task(recipe, Runs.independent(1))
  return task, trace(task, bind_runs(task, Runs.independent(1)))


@pytest.mark.parametrize(
  ("model", "said"),
  [
    (
      3,
      r"model is 3: give a name .*or a module of Flax or Equinox, its class, a Haiku",
    ),
    ((start, 3), "or a module of Flax or Equinox, its class, a Haiku transform, or"),
    (dict, "model builtins:dict makes a dict: give a module of Flax or Equinox"),
  ],
)
def test_what_is_no_model_is_said_by_name(model, said):
  with pytest.raises(vs.UserError, match=said):
    trace_of(recipe_of(model))
