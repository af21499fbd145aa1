"""Modules of Flax as users write them, beside the loops that they would write for one
network.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import plain
import pytest
from cases import mostly_slow
from flax import nnx

import vmapseeds as vs
from vmapseeds import models
from vmapseeds.convolutions import conv_general_dilated
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.loop import train
from vmapseeds.training.networks import VECTORS, make_network, variables_of
from vmapseeds.training.recipe_runs import recipe_lanes

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 4)).astype(np.float32), (np.arange(12) % 3).astype(np.int32)
DATA = DeviceExamples(jnp.asarray(X), jnp.asarray(Y), None, None, 3)
ARRAYS = vs.Dataset(train=(X, Y), test=(X, Y))


class Modeless(nn.Module):
  """A module that takes `num_classes` but no `train`."""

  num_classes: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(self.num_classes)(x)


class Moded(nn.Module):
  num_classes: int
  dropout: float = 0.0
  width: float = 1.0
  dtype: jnp.dtype = jnp.float32

  @nn.compact
  def __call__(self, x, train):
    x = nn.Dense(int(8 * self.width), dtype=self.dtype)(x)
    x = nn.Dropout(self.dropout, deterministic=not train)(x)
    return nn.Dense(self.num_classes, dtype=self.dtype)(x)


class Normed(nnx.Module):
  def __init__(self, num_classes, *, rngs):
    self.inner = nnx.Linear(4, 6, rngs=rngs)
    self.norm = nnx.BatchNorm(6, rngs=rngs)
    self.dropout = nnx.Dropout(0.5, rngs=rngs)
    self.out = nnx.Linear(6, num_classes, rngs=rngs)

  def __call__(self, x):
    return self.out(self.dropout(nnx.relu(self.norm(self.inner(x)))))


@pytest.mark.parametrize(
  "shape",
  mostly_slow(map(pytest.param, [(2, 1), (), (3, 0, 2), (1,), (5, 6, 7)]), fast=2),
)
def test_vectors_draws_the_bits_of_threefry(shape):
  @jax.jit
  def drawn(key):
    of = jax.random.split(jax.random.fold_in(key, 5), 3)[2]
    return [
      jax.random.bits(of, shape, dtype) for dtype in (np.uint8, np.uint16, np.uint32)
    ]

  plain = jax.random.key(3, impl="threefry2x32")
  ours = jax.random.wrap_key_data(jax.random.key_data(plain), impl=VECTORS)
  for a, b in zip(drawn(ours), drawn(plain), strict=True):
    np.testing.assert_array_equal(a, b, strict=True)


def recipe(model, **changes):
  fields = dict(
    name="own",
    dataset=ARRAYS,
    model=model,
    lr=0.1,
    epochs=2,
    batch_size=4,
    normalize=False,
  )
  return vs.Recipe(**fields | changes)


def test_an_nnx_module_is_trained_as_a_plain_loop_trains_it():
  own, seed = recipe(Normed), 3
  run = jax.tree.map(
    lambda column: column[0],
    recipe_lanes(own, vs.Runs.independent(1, start=seed), len(X)),
  )
  trained = jax.jit(lambda run: train(own, DATA, run))(run).variables

  model = Normed(3, rngs=nnx.Rngs(plain.key("init", seed)))
  optimizer = nnx.Optimizer(model, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

  @nnx.jit
  def step(model, optimizer, x, y):
    def loss(model):
      return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    optimizer.update(model, nnx.grad(loss)(model))

  for epoch in range(2):
    order = jax.random.permutation(
      jax.random.fold_in(plain.key("order", seed), epoch), len(X)
    )
    for position in range(3):
      chosen = order[4 * position : 4 * position + 4]
      # The module's random streams begin from the step's key.
      key = jax.random.fold_in(plain.key("dropout", seed), 3 * epoch + position)
      nnx.update(model, nnx.state(Normed(3, rngs=nnx.Rngs(key)), nnx.RngState))
      model.train()
      step(model, optimizer, X[chosen], Y[chosen])
  expected = (
    nnx.to_pure_dict(nnx.state(model, nnx.Param)),
    nnx.to_pure_dict(nnx.state(model, nnx.BatchStat)),
  )
  for kind, tree in zip(("params", "batch_stats"), expected, strict=True):
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5),
      trained[kind],
      tree,
    )
  model.eval()
  np.testing.assert_allclose(
    make_network(own, 3).apply(trained, X), model(X), rtol=2e-4, atol=1e-5
  )


@pytest.mark.parametrize(
  "model",
  [
    Modeless,
    Modeless(3),
    lambda num_classes: Modeless(num_classes),
    "test_networks:Modeless",
  ],
)
def test_a_linen_module_may_be_a_class_an_instance_a_function_or_a_name(model):
  made, key = make_network(recipe(model), 3), jax.random.key(7)
  variables = made.init(key, X)
  expected = Modeless(3).init(key, X)
  jax.tree.map(np.testing.assert_array_equal, variables, expected)
  np.testing.assert_array_equal(
    made.apply(variables, X), Modeless(3).apply(expected, X)
  )
  outputs, updates = made.train(variables, X, key)
  np.testing.assert_array_equal(outputs, Modeless(3).apply(expected, X))
  assert jax.tree.leaves(updates) == []


@pytest.mark.slow
def test_dropout_is_drawn_in_training_alone():
  made, key = make_network(recipe(Moded, dropout=0.5), 3), jax.random.key(7)
  variables = made.init(key, X)
  model = Moded(3, 0.5)
  np.testing.assert_array_equal(
    made.apply(variables, X), model.apply(variables, X, train=False)
  )
  drawn = model.apply(variables, X, train=True, rngs={"dropout": key})
  np.testing.assert_array_equal(made.train(variables, X, key)[0], drawn)
  assert np.abs(drawn - made.apply(variables, X)).max() > 0.1


class Deterministic(nn.Module):
  @nn.compact
  def __call__(self, x, deterministic=True):
    return nn.Dense(3)(nn.Dropout(0.5, deterministic=deterministic)(x))


class Training(nn.Module):
  @nn.compact
  def __call__(self, x, training):
    return nn.Dense(3)(nn.Dropout(0.5, deterministic=not training)(x))


@pytest.mark.parametrize(
  ("model", "on"),
  [(Deterministic, {"deterministic": False}), (Training, {"training": True})],
)
def test_other_names_that_tell_a_module_whether_it_trains(model, on):
  made, key = make_network(recipe(model), 3), jax.random.key(7)
  variables = made.init(key, X)
  drawn = model().apply(variables, X, **on, rngs={"dropout": key})
  np.testing.assert_array_equal(made.train(variables, X, key)[0], drawn)
  assert np.abs(drawn - made.apply(variables, X)).max() > 0.1


class Noisy(nn.Module):
  """Noise of a stream of its own, beside dropout."""

  @nn.compact
  def __call__(self, x, train=False):
    x = nn.Dropout(0.5, deterministic=not train)(x)
    x = x + jax.random.normal(self.make_rng("noise"), x.shape) if train else x
    return nn.Dense(3)(x)


class TwoStreams(nn.Module):
  """The draws of two streams."""

  @nn.compact
  def __call__(self, x, train=False):
    self.param("unused", nn.initializers.zeros, (1,))
    if not train:
      return x
    streams = [self.make_rng(name) for name in ("dropout", "noise")]
    return jnp.stack([jax.random.normal(stream, x.shape) for stream in streams])


def test_streams_of_other_names_do_not_draw_what_dropout_draws():
  made = make_network(recipe(TwoStreams()), 3)
  of_dropout, of_noise = made.train(
    made.init(jax.random.key(0), X), X, jax.random.key(7)
  )[0]
  assert abs(np.corrcoef(of_dropout.ravel(), of_noise.ravel())[0, 1]) < 0.6
  assert (of_dropout != of_noise).all()


class NoisyNNX(nnx.Module):
  def __init__(self, num_classes, *, rngs):
    self.out = nnx.Linear(4, num_classes, rngs=rngs)

  def __call__(self, x, train, rngs):
    return self.out(x + jax.random.normal(rngs.noise(), x.shape) if train else x)


@pytest.mark.parametrize("model", [Noisy, NoisyNNX])
def test_noise_of_any_stream_is_drawn_from_the_key_of_dropout(model):
  made, key = make_network(recipe(model), 3), jax.random.key(7)
  variables = made.init(key, X)
  once, again, other = (
    made.train(variables, jnp.zeros_like(X), key)[0]
    for key in (key, key, jax.random.key(8))
  )
  np.testing.assert_array_equal(once, again)
  assert (once != other).all(), "of inputs that are 0, only noise is left"


class Default(nn.Module):
  """A module with defaults of its own."""

  num_classes: int = 3
  width: float = 0.5
  dropout: float = 0.25
  depth: int = 2

  @nn.compact
  def __call__(self, x, train=False):
    for _ in range(self.depth):
      x = nn.Dense(int(8 * self.width))(x)
    return nn.Dense(self.num_classes)(
      nn.Dropout(self.dropout, deterministic=not train)(x)
    )


@pytest.mark.parametrize(
  ("changes", "same"),
  [
    ({}, Default()),
    ({"width": 2}, Default(width=2)),
    ({"dropout": 0.5, "depth": 1}, Default(dropout=0.5, depth=1)),
    (
      {
        "model": lambda num_classes, width, dropout: Default(
          num_classes, width, dropout
        )
      },
      Default(width=1, dropout=0),
    ),
    (
      {"model": lambda num_classes=3, width=0.25: Default(num_classes, width)},
      Default(width=0.25),
    ),
  ],
)
def test_defaults_of_a_model_count_where_the_recipe_sets_nothing(changes, same):
  made = make_network(recipe(Default).replace(**changes), 3)

  @jax.jit
  def computed(key):
    variables = made.init(key, X)
    drawn = same.apply(variables, X, train=True, rngs={"dropout": key})
    ours = made.apply(variables, X), made.train(variables, X, key)[0]
    return ours, (same.apply(same.init(key, X), X), drawn)

  for one, other in zip(*computed(jax.random.key(7)), strict=True):
    np.testing.assert_array_equal(one, other)


def test_a_model_has_as_many_outputs_as_it_says_if_there_are_no_classes():
  made = make_network(recipe(Default, loss="squared_error", predict="outputs"), None)
  assert made.apply(made.init(jax.random.key(0), X), X).shape == (12, 3)


def test_what_a_model_has_parameters_for_it_gets():
  made = make_network(recipe(Moded, width=0.5, precision="bfloat16"), 3)
  variables = made.init(jax.random.key(0), X)
  assert variables["params"]["Dense_0"]["kernel"].shape == (4, 4)
  assert made.apply(variables, X).dtype == jnp.bfloat16
  assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {np.dtype("float32")}


class Unbatched(Modeless):
  def __call__(self, x):
    return x.mean(0)


class Pair(Modeless):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(x), x


class Broken(Modeless):
  def __call__(self, x):
    return no_such_name(x)  # noqa: F821


class Hidden(nn.Module):
  hidden: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(self.hidden)(x)


def smaller(num_classes):
  return Modeless(num_classes - 1)


@pytest.mark.parametrize(
  ("model", "changes", "message"),
  [
    (
      Modeless,
      {"width": 2},
      "width is 2.0: the model test_networks:Modeless takes none, give 1",
    ),
    (
      Modeless,
      {"depth": 2},
      "depth is 2: the model test_networks:Modeless takes none, give none",
    ),
    (
      Modeless,
      {"dropout": 0.5},
      "dropout is 0.5: the model test_networks:Modeless takes none, give 0",
    ),
    (
      Modeless,
      {"precision": "bfloat16"},
      "precision is bfloat16: the model test_networks:Modeless takes no dtype, give auto",
    ),
    (
      Moded(3),
      {"precision": "bfloat16"},
      r"precision is bfloat16: the model test_networks:Moded\(\) takes no dtype, give auto",
    ),
    (
      Normed(3, rngs=nnx.Rngs(0)),
      {},
      "model is a Normed with parameters of its own: give the class, of which each run makes its own module",
    ),
    (
      smaller,
      {},
      r"model test_networks:smaller gives outputs of shape \(2,\): give 3, one a class",
    ),
    (Pair, {}, "model test_networks:Pair gives tuple for a batch of 3: give one array"),
    (
      Broken,
      {},
      r"model test_networks:Broken on inputs of 4 fails \(NameError: .*test_networks.py line \d+\): give another",
    ),
    (
      Hidden,
      {},
      "model test_networks:Hidden on inputs of 4 fails .TypeError: .* missing 1 required positional argument: 'hidden'",
    ),
    (
      Unbatched,
      {},
      "model test_networks:Unbatched has no parameters to train: give another",
    ),
    (
      "test_networks:Modles",
      {},
      "'test_networks:Modles' cannot be imported .AttributeError: .*: give package.module:attribute",
    ),
    ("test_networks:X", {}, "model test_networks:X on inputs of 4 fails"),
  ],
)
def test_wrong_models_are_one_line(model, changes, message):
  with pytest.raises(vs.UserError, match=message):
    variables_of(recipe(model, **changes), DATA)


class Embedded(nn.Module):
  num_classes: int

  @nn.compact
  def __call__(self, x):
    return nn.Dense(self.num_classes)(nn.Embed(9, 2)(x).reshape(len(x), -1))


def test_a_network_of_whole_numbers_needs_them_as_they_are():
  tokens, one = jnp.arange(48).reshape(12, 4) % 9, np.ones(1, np.float32)
  with pytest.raises(
    vs.UserError,
    match=r"on inputs of 4 fails \(ValueError: .*\): give another, or normalize=False if it takes",
  ):
    variables_of(
      recipe(Embedded, normalize=True),
      DeviceExamples(tokens, jnp.asarray(Y), one, one, 3),
    )
  assert variables_of(
    recipe(Embedded), DeviceExamples(tokens, jnp.asarray(Y), None, None, 3)
  )


@pytest.mark.parametrize(
  ("shape", "remedy"),
  [
    ((8, 8), r"give inputs\[..., None\] if they are images"),
    ((5,), "give mlp or linear, or a model of your own"),
  ],
)
def test_models_of_images_refuse_other_inputs(shape, remedy):
  with pytest.raises(
    vs.UserError,
    match=rf"model 'resnet18' on inputs .*: it is of images \(height, width, channels\), {remedy}$",
  ):
    models.check_size("resnet18", shape)
  for flat in ("linear", "mlp"):
    models.check_size(flat, shape)


class Convolved(nn.Module):
  """A network as scripts for MNIST have it, which takes a batch for one image."""

  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.Conv(4, (3, 3))(x).reshape(x.shape[0], -1))


class Pooled(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.avg_pool(nn.Conv(4, (3, 3))(x), (2, 2)).mean((1, 2)))


class ByHand(nn.Module):
  @nn.compact
  def __call__(self, x):
    x = nn.Conv(4, (3, 3), conv_general_dilated=conv_general_dilated)(x)
    return nn.Dense(3)(x.reshape(x.shape[0], -1))


class Sequences(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.Conv(4, (3,))(x).mean(1))


class Widened(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.Conv(4, (3, 3))(x[..., None]).mean((1, 2)))


@pytest.mark.parametrize("model", [Convolved, Pooled, ByHand])
def test_images_without_channels_are_told_so(model):
  images = DeviceExamples(np.ones((12, 8, 8), np.float32), Y, None, None, 3)
  with pytest.raises(
    vs.UserError,
    match=r"on inputs of 8×8: images have no channel axis: use x\[\.\.\., None\]$",
  ):
    variables_of(recipe(model), images)


@pytest.mark.parametrize("model", [Sequences, Widened])
def test_inputs_of_two_axes_need_not_be_images(model):
  data = DeviceExamples(np.ones((12, 8, 8), np.float32), Y, None, None, 3)
  assert "params" in variables_of(recipe(model), data)
