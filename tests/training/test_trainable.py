"""Which parameters a recipe trains, and the names of layers in a folder."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vmapseeds as vs
from vmapseeds.errors import UserError
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.networks import describe_trainable, layers_of, path_of
from vmapseeds.training.outputs import Keep
from vmapseeds.training.recipe_runs import recipe_lanes
from vmapseeds.training.stages import recipe_stages

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(12, 5)).astype(np.float32)
LABELS = np.arange(12) % 3
DATA = DeviceExamples(jnp.asarray(INPUTS), jnp.asarray(LABELS), None, None, 3)


def flat_init(key, inputs):
  keys = jax.random.split(key, 2)
  return {
    "a_out": jax.random.normal(keys[0], (4, 3)),
    "a_bias": jnp.zeros(3),
    "w_in": jax.random.normal(keys[1], (5, 4)),
    "b_in": jnp.zeros(4),
    "temperature": jnp.ones(()),
  }


def flat_apply(params, inputs):
  hidden = jax.nn.relu(inputs @ params["w_in"] + params["b_in"])
  logits = hidden @ params["a_out"] + params["a_bias"]
  return logits / params["temperature"]


class Tempered(nn.Module):
  """A temperature comes after the head."""

  @nn.compact
  def __call__(self, x):
    x = nn.Dense(3, name="head")(nn.relu(nn.Dense(4, name="body")(x)))
    return x * self.param("temperature", nn.initializers.ones, ())


def recipe(model, trainable):
  return vs.Recipe(
    name="some",
    dataset=vs.Dataset(train=(INPUTS, LABELS), test=(INPUTS, LABELS), name="twelve"),
    model=model,
    epochs=1,
    batch_size=4,
    lr=0.1,
    normalize=False,
    trainable=trainable,
  )


def moved(recipe):
  """Return the names of the parameters that an epoch changes."""
  start, advance, _ = recipe_stages(recipe, Keep())
  lanes = recipe_lanes(recipe, vs.Runs.independent(1), len(INPUTS))
  run = jax.tree.map(lambda column: column[0], lanes)
  before = start((DATA, {}), run)
  after = jax.jit(lambda state: advance((DATA, {}), run, state, 0, 1))(before)
  leaves = jax.tree.leaves_with_path(before.params)
  return {
    jax.tree_util.keystr(path, simple=True, separator=".")
    for (path, old), new in zip(leaves, jax.tree.leaves(after.params), strict=True)
    if (old != new).any()
  }


@pytest.mark.parametrize(
  ("model", "trainable", "names"),
  [
    ((flat_init, flat_apply), ["a_out", "a_bias"], {"a_out", "a_bias"}),
    (Tempered, ["head"], {"head.kernel", "head.bias"}),
    (Tempered, ["body", "temperature"], {"body.kernel", "body.bias", "temperature"}),
    (Tempered, lambda name: name.endswith("bias"), {"head.bias", "body.bias"}),
  ],
)
def test_these_parameters_move_and_no_others(model, trainable, names):
  assert moved(recipe(model, trainable)) == names


def test_it_is_described():
  description = describe_trainable(recipe(Tempered, ["head"]), DATA)
  assert description == "trains: head.bias, head.kernel (15 of 40)"


@pytest.mark.parametrize(
  ("model", "trainable", "message"),
  [
    (
      Tempered,
      ["tail"],
      "trainable has 'tail': give names of parameters, of body.bias",
    ),
    (Tempered, lambda name: False, "is true of no parameter: it is asked for each of"),
  ],
)
def test_what_names_no_parameter_is_refused(model, trainable, message):
  with pytest.raises(UserError, match=message):
    describe_trainable(recipe(model, trainable), DATA)
  for unknown in (3, "last"):
    with pytest.raises(UserError, match=f"trainable is {unknown!r}: give all, a list"):
      recipe(model, unknown)


@given(st.lists(st.text(alphabet="a~012/.", min_size=1), min_size=1, max_size=3))
def test_a_name_in_a_folder_leads_to_its_layer(names):
  path = path_of(tuple(map(jax.tree_util.DictKey, names)))
  assert layers_of(path) == tuple(names)
  assert "/" not in path


def test_usual_names_stay_as_they_are():
  names = ["params", "net", "~", "linear_1", "('kernel', 'u')"]
  assert path_of(tuple(map(jax.tree_util.DictKey, names))) == ".".join(names)
