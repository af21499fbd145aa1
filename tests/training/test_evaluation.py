"""Evaluation: which examples a network sees together, and how many at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.training.evaluation import (
  MOST_BYTES,
  evaluate,
  fitting_batch,
  reaches_training_accuracy,
)
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.networks import TrainedNetwork

RNG = np.random.default_rng(0)
RUN = vs.single_run("digits_cnn")


def init(key, inputs):
  return {"w": jax.random.normal(key, (inputs.shape[1], 3))}


def mixing(params, inputs):
  """Its outputs depend on which examples are in the batch."""
  return (inputs - inputs.mean(0)) @ params["w"]


def recipe_of(model=(init, mixing), **changes):
  data = vs.Dataset(train=(np.eye(3), [0, 1, 2]), test=(np.eye(3), [0, 1, 2]))
  fields = dict(name="r", dataset=data, model=model, epochs=1, batch_size=3, lr=0.1)
  return vs.Recipe(**fields | {"normalize": False} | changes)


def examples_of(n, features=4):
  x = RNG.normal(size=(n, features)).astype(np.float32)
  y = RNG.integers(0, 3, n).astype(np.int32)
  return DeviceExamples(jnp.asarray(x), jnp.asarray(y), None, None, 3)


def evaluated(recipe, data, params, subset=None, **options):
  trained = TrainedNetwork({"params": params}, jnp.array(False))
  call = functools.partial(evaluate, recipe, **options)
  return jax.jit(call)(data, RUN, trained, subset)


@pytest.mark.parametrize("chosen", [None, [4, 4, 0, 6, 1]])
@pytest.mark.parametrize(
  ("n", "size"),
  mostly_slow([(7, 3), (7, None), (1, 5), (7, 7), (7, 99), (6, 3), (2, 1)], fast=3),
)
def test_a_network_that_mixes_its_batch_sees_nothing_but_examples(n, size, chosen):
  if chosen and n < 7:
    return
  data = examples_of(n)
  params = init(jax.random.key(0), data.inputs)
  subset = None if chosen is None else jnp.array(chosen)
  recipe = recipe_of(eval_batch_size=size)
  found = evaluated(recipe, data, params, subset, keep_outputs=True)
  rows = np.arange(n) if chosen is None else np.array(chosen)
  x, y = np.asarray(data.inputs)[rows], np.asarray(data.targets)[rows]
  count = len(rows)
  step = min(size or 500, count)
  expected = np.zeros((count, 3), np.float32)
  for first in range(0, count, step):
    # The last batch is full: it begins with examples of the one before.
    batch = slice(min(first, count - step), min(first, count - step) + step)
    expected[first : first + step] = np.asarray(mixing(params, x[batch]))[
      first - min(first, count - step) :
    ]
  np.testing.assert_allclose(found.outputs, expected, rtol=1e-5, atol=1e-6)
  np.testing.assert_array_equal(found.predictions, expected.argmax(1))
  assert int(found.correct) == (expected.argmax(1) == y).sum()
  shifted = expected - expected.max(1, keepdims=True)
  logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
  np.testing.assert_allclose(found.losses, -logs[np.arange(count), y], rtol=1e-4)


@pytest.mark.parametrize("n", [3, 4, 7])
def test_a_run_stops_by_full_batches_of_examples(n):
  """Each example is counted once, whatever is shown with it."""
  data = examples_of(n)
  params = init(jax.random.key(1), data.inputs)
  recipe = recipe_of((init, lambda params, inputs: inputs @ params["w"]))
  trained = TrainedNetwork({"params": params}, jnp.array(False))
  outputs = np.asarray(data.inputs) @ np.asarray(params["w"])
  right = (outputs.argmax(1) == np.asarray(data.targets)).sum()
  for least in range(1, n + 1):
    found = jax.jit(
      functools.partial(reaches_training_accuracy, recipe, share=least / n)
    )(data, RUN, trained)
    assert bool(found) == (right >= least)


@pytest.mark.parametrize(
  ("wide", "most"), [(10, 500), (2**17, 500), (2**18, 256), (2**27, 1)]
)
def test_a_step_of_evaluation_has_arrays_of_at_most_256_mib(wide, most):
  data = examples_of(2000)

  def apply(inputs):
    return jnp.broadcast_to(inputs[:, :1], (len(inputs), wide)) + 1.0

  size = fitting_batch(apply, data, 2000)
  assert size == most
  assert size == 1 or 4 * wide * size <= MOST_BYTES

  def nested(inputs):
    return jax.jit(lambda x: apply(x).sum(1))(inputs)

  assert fitting_batch(nested, data, 2000) == most


def test_losses_on_training_examples_keep_no_outputs():
  """As many outputs as 24 MB, of which a step has 4."""
  wide, n = 2000, 3000
  data = examples_of(n)
  recipe = recipe_of((init, lambda params, inputs: inputs @ params["w"]))
  trained = {"w": jax.ShapeDtypeStruct((4, wide), jnp.float32)}

  def loss(data, params):
    state = TrainedNetwork({"params": params}, jnp.array(False))
    return evaluate(recipe, data, RUN, state).losses.mean()

  program = jax.jit(loss).lower(data, trained).compile()
  assert program.memory_analysis().temp_size_in_bytes < 12e6
