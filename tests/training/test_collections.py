"""Collections of Flax beside parameters and batch statistics: carried from step to step,
sown and read by an objective, kept and applied again.
"""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from flax import nnx

import vmapseeds as vs

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(24, 8)).astype(np.float32)
LABELS = (np.arange(24) % 3).astype(np.int32)
DATA = vs.Dataset(train=(INPUTS, LABELS), test=(INPUTS, LABELS))
BATCH = 8
LR = 0.1
PENALTY = 0.01


class Linen(nn.Module):
  """With spectral norm, a collection of its own, and what it sows in two ways."""

  @nn.compact
  def __call__(self, x, train: bool):
    x = nn.SpectralNorm(nn.Dense(5))(x, update_stats=train)
    calls = self.variable("counters", "calls", jnp.zeros, (), jnp.int32)
    if train:
      calls.value += 1
    x = nn.relu(x)
    self.sow("intermediates", "hidden", x)
    total = {"init_fn": lambda: 0.0, "reduce_fn": lambda before, now: before + now}
    self.sow("losses", "size", (x**2).sum(), **total)
    self.sow("losses", "size", jnp.float32(1.0), **total)
    return nn.Dense(3)(x)


class NNX(nnx.Module):
  def __init__(self, rngs):
    self.first = nnx.SpectralNorm(nnx.Linear(8, 5, rngs=rngs), rngs=rngs)
    self.last = nnx.Linear(5, 3, rngs=rngs)

  def __call__(self, x):
    x = nnx.relu(self.first(x))
    self.sow(nnx.Intermediate, "hidden", x)
    return self.last(x)


def penalty(updates):
  """What is added to the loss, of what a network sowed in one batch."""
  (hidden,) = updates["intermediates"]["hidden"]
  size = updates["losses"]["size"] - 1 if "losses" in updates else (hidden**2).sum()
  return PENALTY * (size + jnp.abs(hidden).sum())


def penalised(model, params, batch, run):
  loss, updates = model.mean_loss(params, batch)
  return loss + penalty(updates), updates


def recipe_of(model, **changes):
  fields = dict(name="own", dataset=DATA, epochs=2, batch_size=BATCH, lr=LR)
  fields |= dict(momentum=0.0, normalize=False, model=model, objective=penalised)
  return vs.Recipe(**fields | changes)


def batches():
  """The batches of the first run of a recipe, with their steps."""
  for epoch in range(2):
    key = jax.random.fold_in(plain.key("order", 0), epoch)
    yield from np.asarray(jax.random.permutation(key, len(INPUTS))).reshape(-1, BATCH)


def plain_linen():
  """Train by a plain loop of Flax and optax: variables, and logits of all inputs."""
  model = Linen()
  variables = model.init(plain.key("init", 0), INPUTS[:1], train=False)
  variables = {n: of for n, of in variables.items() if n != "losses"}

  @jax.jit
  def step(variables, inputs, labels):
    params = variables["params"]
    others = {name: of for name, of in variables.items() if name != "params"}

    def loss(params):
      mutable = ["batch_stats", "counters", "losses", "intermediates"]
      logits, updates = model.apply(
        {"params": params, **others}, inputs, train=True, mutable=mutable
      )
      each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
      return each.mean() + penalty(updates), updates

    gradient, updates = jax.grad(loss, has_aux=True)(params)
    params = jax.tree.map(lambda p, g: p - LR * g, params, gradient)
    return {"params": params} | {name: updates[name] for name in others}

  for chosen in batches():
    variables = step(variables, INPUTS[chosen], LABELS[chosen])
  return variables, model.apply(variables, INPUTS, train=False)


def plain_nnx():
  model = NNX(nnx.Rngs(plain.key("init", 0)))
  optimizer = nnx.Optimizer(model, optax.sgd(LR), wrt=nnx.Param)

  @nnx.jit
  def step(model, optimizer, inputs, labels):
    def loss(model):
      logits, sown = nnx.capture(model, nnx.Intermediate)(inputs)
      each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
      updates = {"intermediates": nnx.to_pure_dict(sown)}
      return each.mean() + penalty(updates)

    optimizer.update(model, nnx.grad(loss)(model))

  model.train()
  for chosen in batches():
    step(model, optimizer, INPUTS[chosen], LABELS[chosen])
  model.eval()
  state = nnx.to_pure_dict(nnx.state(model))
  return state, nnx.capture(model, nnx.Intermediate)(INPUTS)[0]


def kept(model, out):
  """Train a campaign of two runs, and return its first network."""
  recipe = recipe_of(model)
  results = vs.train(recipe, 2, out, keep_params=True, logits=True, progress=False)
  networks = vs.load_networks(out)
  logits = jax.vmap(networks.apply, (0, None))(networks.variables, INPUTS)
  np.testing.assert_allclose(logits, results.logits, rtol=1e-4, atol=1e-5)
  return vs.load_networks(out, 0)


@pytest.mark.slow
def test_linen_collections_are_carried_sown_kept_and_applied(tmp_path):

  ours = kept(Linen, tmp_path / "r")
  expected, logits = plain_linen()
  assert ours.variables["counters"]["calls"] == expected["counters"]["calls"] == 6
  assert "losses" not in ours.variables
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5),
    ours.variables,
    expected,
  )
  applied = ours.apply(ours.variables, INPUTS)
  np.testing.assert_allclose(applied, logits, rtol=2e-4, atol=1e-5)

  logits = Linen().apply(ours.variables, INPUTS, train=False)
  np.testing.assert_allclose(applied, logits, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(nnx, "SpectralNorm"), reason="an older Flax")
def test_nnx_collections_are_carried_sown_kept_and_applied(tmp_path):
  ours = kept(NNX, tmp_path / "r")
  state, logits = plain_nnx()
  applied = ours.apply(ours.variables, INPUTS)
  np.testing.assert_allclose(applied, logits, rtol=2e-4, atol=1e-5)
  kernel = ours.variables["params"]["first"]["layer_instance"]["kernel"]
  np.testing.assert_allclose(
    kernel, state["first"]["layer_instance"]["kernel"], rtol=2e-4, atol=1e-5
  )
  sigma = ours.variables["batch_stats"]["first"]["batch_stats"]["('kernel', 'sigma')"]
  np.testing.assert_allclose(
    sigma, state["first"]["batch_stats"]["kernel", "sigma"], rtol=2e-4
  )


def forgets(model, params, batch, run):
  return model.mean_loss(params, batch)[0], {}


def test_an_objective_that_forgets_the_updates_is_one_line(tmp_path):
  said = "objective test_collections:forgets gives no updates of batch_stats, counters"
  with pytest.raises(vs.UserError, match=re.escape(said)):
    vs.train(recipe_of(Linen, objective=forgets), 1, tmp_path / "r", progress=False)
