"""A recipe and a task of a user's own, which `test_identity` edits in every way."""

MODULE = """
import dataclasses
import functools
import os

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import lab_helper
import vmapseeds as vs

SCALE = 1.0
CLIP = 1.0
NOISE = 0.1
UNUSED = 3
WEIGHTS = np.array([1.0, 2.0, 1.5], np.float32)
TABLE = {"gain": 1.0}


@dataclasses.dataclass(frozen=True)
class Config:
  slope: float = 0.1


class Block(nn.Module):
  features: int

  @nn.compact
  def __call__(self, x):
    return nn.relu(nn.Dense(self.features)(x)) * SCALE


class Net(nn.Module):
  config: Config = Config()

  @nn.compact
  def __call__(self, x, train=False):
    hidden = lab_helper.squash(Block(5)(x.reshape(len(x), -1)))
    gain = TABLE["gain"] * float(os.environ.get("LAB_GAIN", "1"))
    return gain * nn.Dense(3)(nn.leaky_relu(hidden, self.config.slope))


@functools.cache
def cached_gain():
  return 1.0


@jax.jit
def jitted(x):
  return x * 1.0


def power(x, exponent=2.0):
  return x**exponent


class Penalty:
  def __init__(self, weight):
    self.weight = weight

  def __call__(self, outputs):
    return self.weight * power(outputs).sum(-1)


def smoothed(amount):
  def loss(outputs, targets):
    return amount * outputs.sum(-1)

  return loss


penalty = Penalty(0.01)
smooth = smoothed(0.001)
scaled = functools.partial(jnp.multiply, 0.5)


def losses(outputs, targets):
  plain = optax.softmax_cross_entropy_with_integer_labels(outputs, targets)
  weighted = jnp.asarray(WEIGHTS)[targets] * jitted(plain) * cached_gain()
  return scaled(weighted) + penalty(outputs) + smooth(outputs, targets)


def rate(run, steps):
  return optax.linear_schedule(run["lr"], 0.0, steps)


def optimizer(run, steps):
  chain = optax.clip(CLIP), optax.sgd(rate(run, steps), momentum=run["momentum"])
  return optax.chain(*chain)


def noisy(key, x):
  return x + NOISE * jax.random.normal(key, x.shape)


def predicted(outputs):
  return outputs.argmax(-1)


def images(seed=0, n=24):
  rng = np.random.default_rng(seed)
  return rng.normal(size=(n, 4, 2, 1)).astype(np.float32), np.arange(n) % 3


RECIPE = vs.Recipe(
  name="lab",
  dataset=vs.Dataset(train=images(), test=images(1), name="lab"),
  model=Net,
  loss=losses,
  optimizer=optimizer,
  augment=noisy,
  predict=predicted,
  lr=0.1,
  epochs=2,
  batch_size=8,
)


def start(data, run):
  return jax.random.normal(run.key("init"), (3,))


def inner(state, x):
  return state - 0.1 * lab_helper.pull(state, x)


def advance(data, run, state, first, last):
  return jax.lax.fori_loop(first, last, lambda _, s: inner(s, data["x"]), state)


def finish(data, run, state):
  distance = jnp.abs(state - data["x"]).sum() + jnp.vdot(state, state)
  return {"distance": distance * run["factor"]}


TASK = vs.Task(
  name="lab_task",
  start=start,
  advance=advance,
  finish=finish,
  data={"x": np.array([1.0, 2.0, 3.0], np.float32)},
  rounds=4,
  sources=("init",),
  values={"factor": 1.0},
  outputs={"distance": vs.Output(role="score")},
)
"""

HELPER = """
import jax.numpy as jnp

STRENGTH = 1.0


def squash(x):
  return jnp.tanh(x)


def pull(state, x):
  return STRENGTH * (state - x)


def unused(x):
  return x
"""
