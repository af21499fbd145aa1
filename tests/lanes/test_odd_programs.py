"""Programs that are not written as most are: without `jit`, in strict modes, with
parameters in half precision, or wrong in a way that shows while they are traced.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.convolutions import conv_general_dilated
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.optimizers import optimizer_of

DIMENSIONS = ("NHWC", "HWIO", "NHWC")


def convolve(convolution, x, w, **options):
  return convolution(x, w, (1, 1), "SAME", dimension_numbers=DIMENSIONS, **options)


def images_and_kernel():
  rng = np.random.default_rng(0)
  return jnp.float32(rng.normal(size=(2, 6, 6, 3))), jnp.float32(
    rng.normal(size=(3, 3, 3, 4))
  )


def test_convolutions_without_jit():
  x, w = images_and_kernel()

  def loss(w, convolution):
    return (convolve(convolution, x, w) ** 2).sum()

  expected = jax.value_and_grad(loss)(w, jax.lax.conv_general_dilated)
  with jax.disable_jit():
    found = jax.value_and_grad(loss)(w, conv_general_dilated)
  for a, b in zip(found, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4)


def test_nan_checks_name_the_primitive():
  x, w = images_and_kernel()
  with jax.debug_nans(True):
    expected = convolve(jax.lax.conv_general_dilated, x, w)
    np.testing.assert_allclose(
      convolve(conv_general_dilated, x, w), expected, rtol=1e-5, atol=1e-5
    )
    with pytest.raises(FloatingPointError, match="conv_general_dilated"):
      convolve(conv_general_dilated, jnp.full_like(x, jnp.inf), w)


@pytest.mark.parametrize("width", [1, 2], ids="width {}".format)
def test_nan_checks_of_lanes_name_the_primitive(width):
  def scaled(shared, lane):
    return jnp.log(lane) * shared

  lanes = np.float32([1, 2, 4])
  with jax.debug_nans(True):
    parts = [out for _, out in vs.spread(scaled, width=width)(2.0, lanes)]
    np.testing.assert_allclose(np.concatenate(parts), 2 * np.log(lanes), rtol=1e-6)
    with pytest.raises(FloatingPointError, match=" log"):
      list(vs.spread(scaled, width=width)(2.0, -lanes))


@pytest.mark.parametrize("part", ["forward", "input", "kernel"])
@pytest.mark.parametrize(
  ("x", "w", "options"),
  [
    ((2, 12, 12, 4), (3, 3, 4, 4), {"rhs_dilation": (4, 4)}),
    ((1, 18, 18, 8), (17, 17, 1, 8), {"feature_group_count": 8}),
    ((2, 3, 24, 4), (2, 20, 4, 4), {}),
    ((2, 8, 8, 2), (5, 5, 1, 32), {"feature_group_count": 2}),
  ],
  ids=["dilated", "many elements", "wide", "many features a channel"],
)
def test_shapes_that_no_form_knows_are_left_to_xla(part, x, w, options):
  """Values are XLA's; grouped kernels have no operations for each element."""
  rng = np.random.default_rng(0)
  x, w = (jnp.float32(rng.normal(size=shape)) for shape in (x, w))

  def of(convolution):
    def convolved(x, w):
      return convolve(convolution, x, w, **options)

    if part == "forward":
      return convolved
    place = int(part == "kernel")
    return jax.grad(lambda x, w: (convolved(x, w) ** 2).sum(), place)

  ours, plain = of(conv_general_dilated), of(jax.lax.conv_general_dilated)
  np.testing.assert_allclose(ours(x, w), plain(x, w), rtol=1e-4, atol=1e-4)
  if part == "forward" and "feature_group_count" in options:
    compiled = jax.jit(ours).lower(x, w).as_text()
    assert compiled.count("stablehlo.convolution") == 1
    assert compiled.count("stablehlo.slice") + compiled.count("stablehlo.pad") == 0


class Half(nn.Module):
  num_classes: int

  @nn.compact
  def __call__(self, x):
    x = x.reshape(len(x), -1)
    return nn.Dense(self.num_classes, param_dtype=jnp.bfloat16)(x)


OPTIMIZERS = {
  "sgd": lambda lr, momentum: optax.sgd(lr, momentum),
  "nesterov": lambda lr, momentum: optax.sgd(lr, momentum, nesterov=True),
  "adam": lambda lr, momentum: optax.adam(lr, b1=momentum),
  "adamw": lambda lr, momentum: optax.adamw(lr, b1=momentum, weight_decay=0.0),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_parameters_in_half_precision_are_trained_as_by_optax(name):
  """Three updates equal those of optax with numbers of Python, bit for bit."""
  rng = np.random.default_rng(0)
  params = {
    "a": jnp.asarray(rng.normal(size=(3, 4)), jnp.bfloat16),
    "b": jnp.float32(rng.normal(size=4)),
  }
  examples = rng.integers(0, 256, (4, 2, 2, 1), np.uint8), np.arange(4) % 2
  recipe = vs.Recipe(
    name="half",
    lr=0.1,
    dataset=vs.Dataset(train=examples, test=examples, num_classes=2),
    model=Half,
    optimizer=name,
    epochs=1,
    batch_size=2,
    schedule="constant",
    warmup=0,
  )
  ours = theirs = params
  run = vs.single_run(recipe, lr=0.1, momentum=0.5, weight_decay=0.0)
  optimizer = optimizer_of(recipe, four_examples(), run, params)
  plain = OPTIMIZERS[name](0.1, 0.5)
  states = [optimizer.init(ours), plain.init(theirs)]
  for _ in range(3):
    gradient = jax.tree.map(
      lambda p: jnp.asarray(rng.normal(size=p.shape), p.dtype), params
    )
    updates, new = optimizer.update(gradient, states[0], ours)
    for before, after in zip(
      jax.tree.leaves(states[0]), jax.tree.leaves(new), strict=True
    ):
      assert before.dtype == after.dtype
    ours, states[0] = optax.apply_updates(ours, updates), new
    updates, states[1] = plain.update(gradient, states[1], theirs)
    theirs = optax.apply_updates(theirs, updates)
  np.testing.assert_array_equal(ours["a"], theirs["a"])
  np.testing.assert_allclose(ours["b"], theirs["b"], rtol=1e-6)


def four_examples():
  return DeviceExamples(
    np.zeros((4, 2, 2, 1), np.uint8),
    np.zeros(4, np.int32),
    np.array([128], np.float32),
    np.array([64], np.float32),
    2,
  )


def walk(data, run, state, first, last):
  return jax.lax.fori_loop(first, last, lambda _, x: x + 1, state)


def drawn(data, run):
  return jax.random.normal(run.key("init"))


def test_runs_that_would_be_equal_are_refused(tmp_path):
  task = vs.Task(
    name="constant",
    start=lambda data, run: jnp.float32(0),
    advance=walk,
    finish=lambda data, run, state: {"x": state},
    rounds=2,
  )
  with pytest.raises(vs.UserError, match="reads no seed and no value: its 3 runs"):
    vs.train(task, vs.Runs.independent(3), tmp_path / "a", progress=False)


def until(last):
  return jax.lax.fori_loop(0, last, lambda i, x: x + i, jnp.float32(0))


@pytest.mark.parametrize(
  ("advance", "message"),
  [
    (lambda state, first, last: state + 1, "does not read its last argument"),
    (lambda state, first, last: state + first, "does not read its last argument"),
    (
      lambda state, first, last: jax.jit(lambda state, *unread: state)(state, last),
      "does not read its last argument",
    ),
    (
      lambda state, first, last: state + until(last),
      "does not read its argument first, and 3 rounds called one by one give another",
    ),
    (
      lambda state, first, last: jax.lax.scan(
        lambda x, i: (jnp.where(i < last, x + 1, x), None), state, jnp.arange(3)
      )[0],
      "does not read its argument first",
    ),
  ],
)
def test_rounds_that_are_not_counted_are_refused(advance, message, tmp_path):
  task = vs.Task(
    name="uncounted",
    start=drawn,
    advance=lambda data, run, *args: advance(*args),
    finish=lambda data, run, state: {"x": state},
    rounds=3,
  )
  with pytest.raises(vs.UserError, match=message):
    vs.train(task, vs.Runs.independent(3), tmp_path / "a", progress=False)
  assert not (tmp_path / "a").exists()


def test_rounds_may_be_counted_in_the_state(tmp_path):
  def advance(data, run, state, first, last):
    return jax.lax.while_loop(
      lambda state: state[1] < last, lambda s: (s[0] * 1.25, s[1] + 1), state
    )

  task = vs.Task(
    name="counted",
    start=lambda data, run: (drawn(data, run), jnp.int32(0)),
    advance=advance,
    finish=lambda data, run, state: {"x": state[0]},
    rounds=3,
  )
  results = [
    vs.train(task, 3, tmp_path / str(every), progress=False, checkpoint_every=every)
    for every in ("never", 1)
  ]
  np.testing.assert_array_equal(results[0].x, results[1].x)


MESH = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
OVER_DEVICES = jax.sharding.NamedSharding(MESH, jax.sharding.PartitionSpec("d"))
SHARDED = {
  "constraint": lambda x: jax.lax.with_sharding_constraint(x, OVER_DEVICES),
  "jit": jax.jit(lambda x: x, in_shardings=OVER_DEVICES, out_shardings=OVER_DEVICES),
  "within a loop": lambda x: jax.lax.map(
    lambda row: jax.lax.with_sharding_constraint(row, OVER_DEVICES), x[None]
  )[0],
  "device_put": lambda x: jax.device_put(x, OVER_DEVICES),
}


@pytest.mark.parametrize("how", SHARDED)
@pytest.mark.parametrize("width", [1, 3])
def test_a_lane_may_say_on_which_devices_it_lies(how, width):
  lanes = np.arange(5 * 4.0, dtype=np.float32).reshape(5, 4)
  found = all_of(
    vs.spread(lambda _, lane: 2 * SHARDED[how](lane + 1), width=width)((), lanes)
  )
  np.testing.assert_array_equal(found, 2 * (lanes + 1))


@pytest.mark.parametrize(
  "divided",
  [
    lambda x: jax.pmap(lambda y: 2 * y)(x[None])[0],
    jax.shard_map(
      lambda y: 2 * y,
      mesh=MESH,
      in_specs=jax.sharding.PartitionSpec(),
      out_specs=jax.sharding.PartitionSpec(),
    ),
  ],
)
def test_a_lane_that_divides_its_work_is_refused(divided, tmp_path):
  task = vs.Task(
    name="divided",
    start=lambda data, run: divided(jax.random.normal(run.key("init"), (2,))),
    advance=lambda data, run, state, first, last: state,
    finish=lambda data, run, state: {"x": state},
  )
  said = "divides its work among devices .*: it has one device, as lanes are divided"
  with pytest.raises(vs.UserError, match=f"task divided {said}"):
    vs.train(task, 2, tmp_path / "a", progress=False)
  with pytest.raises(vs.UserError, match=f"a lane {said}"):
    list(vs.spread(lambda _, x: divided(x), width=2)((), np.ones((3, 2))))


def all_of(steps):
  return np.concatenate([out for _, out in steps])


def test_lanes_may_be_keys():
  def draw(_, key):
    return jax.random.normal(key, (2,))

  keys = jax.random.split(jax.random.key(0), 5)
  found = all_of(vs.spread(draw, width=2)((), keys))
  np.testing.assert_array_equal(found, [draw((), key) for key in keys])


@pytest.mark.parametrize("kind", mostly_slow(["unsafe_rbg", "rbg", "threefry2x32"]))
def test_a_lane_draws_by_its_own_key_of_any_kind(kind):
  """Also by keys split and folded from it, whatever its neighbours."""

  def draw(_, seed):
    first, second = jax.random.split(jax.random.key(seed, impl=kind))
    folded = jax.random.fold_in(second, 3)
    return jax.random.uniform(first, (3,)) + jax.random.normal(folded, (3,))

  seeds = np.uint32([5, 6, 7, 8, 5])
  found = all_of(vs.spread(draw, width=3)((), seeds))
  expected = [jax.jit(draw)((), seed) for seed in seeds]
  np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_mesh_is_refused():
  mesh = jax.make_mesh((1,), ("x",))
  refused = pytest.raises(vs.UserError, match="call this outside of it")
  with jax.set_mesh(mesh), refused:
    list(vs.spread(lambda _, x: x, width=1)((), np.arange(3.0)))
