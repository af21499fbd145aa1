"""Convolutions of other people's programs, made fast, against XLA's own."""

import collections
import functools
import itertools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import mostly_slow
from flax import nnx
from jax import lax

import vmapseeds as vs
from vmapseeds.convolutions import LOWERINGS, conv_general_dilated
from vmapseeds.convolutions import lowering as lowered_by
from vmapseeds.target import compiling_for

LAYOUTS = {
  "last": ("NHWC", "HWIO", "NHWC"),
  "first": ("NCHW", "OIHW", "NCHW"),
  "examples last": ("CHWN", "IHWO", "CHWN"),
}


def random(seed, *shape):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def parts(function, *args):
  """Return how many convolutions of each kind a program has; "xla" are XLA's own."""
  found = collections.Counter()

  def look(program):
    for equation in program.eqns:
      name = equation.primitive.name
      if name == "convolve":
        found[equation.params["part"]] += 1
      elif name == "conv_general_dilated":
        found["xla"] += 1
      for value in jax.tree.leaves([*equation.params.values()]):
        inner = getattr(value, "jaxpr", value)
        if hasattr(inner, "eqns"):
          look(inner)

  look(jax.make_jaxpr(function)(*args).jaxpr)
  return dict(found)


def equal(function, *args):
  """Compare a function with itself made fast. Return the parts of the fast one."""
  fast = vs.fast_convolutions(function)
  ours, theirs = (jax.tree.leaves(jax.jit(f)(*args)) for f in (fast, function))
  for a, b in zip(ours, theirs, strict=True):
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    np.testing.assert_allclose(a, b, atol=3e-6 * max(1.0, np.abs(b).max()))
  return parts(fast, *args)


def with_gradients(convolve, value):
  """Return a function of images and kernel: outputs, and both gradients of a sum that
  weighs them.
  """
  weights = random(7, *value.shape)

  def function(x, w):
    y, vjp = jax.vjp(convolve, x, w)
    return y, *vjp(jnp.asarray(weights, y.dtype))

  return function


ALL = {"forward": 1, "input_gradient": 1, "kernel_gradient": 1}


@pytest.mark.parametrize("layout", mostly_slow(LAYOUTS))
@pytest.mark.parametrize(
  ("kernel", "options"),
  [
    (3, dict(window_strides=(1, 1), padding="SAME")),
    (3, dict(window_strides=(2, 1), padding=[(1, 1), (0, 2)])),
    (3, dict(window_strides=(1, 1), padding="SAME", feature_group_count=2)),
    (3, dict(window_strides=(2, 2), padding="VALID", feature_group_count=4)),
    (3, dict(window_strides=(1, 2), padding="SAME", rhs_dilation=(2, 3))),
    (1, dict(window_strides=(3, 2), padding="VALID")),  # pixels that no output has
    (7, dict(window_strides=(1, 1), padding="VALID")),  # a kernel as large as the image
    (2, dict(window_strides=(1, 1), padding=[(-1, 2), (1, -2)])),
  ],
)
def test_forward_and_gradients_in_any_layout(layout, kernel, options):
  images, kernels, _ = LAYOUTS[layout]
  groups = options.get("feature_group_count", 1)
  sizes = dict(N=3, C=4, H=8, W=7) | dict(I=4 // groups, O=8)
  x = random(0, *(sizes[axis] for axis in images))
  sizes |= dict(H=kernel, W=kernel)
  w = random(1, *(sizes[axis] for axis in kernels))
  convolve = functools.partial(
    lax.conv_general_dilated, dimension_numbers=LAYOUTS[layout], **options
  )
  found = equal(with_gradients(convolve, jax.eval_shape(convolve, x, w)), x, w)
  # With the examples last, sizes alone tell a kernel gradient: values hold anyway.
  assert found == ALL or layout == "examples last"
  # Kernel gradients of one image each, as they seem there, are XLA's.
  assert "xla" not in found or layout == "examples last"


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_one_and_three_dimensions(rank, stride):
  letters = "DHW"[-rank:]
  x, w = random(0, 2, 3, *(9, 5, 6)[:rank]), random(1, 4, 3, *[3] * rank)
  convolve = functools.partial(
    lax.conv_general_dilated,
    window_strides=[stride] * rank,
    padding="SAME",
    dimension_numbers=(f"NC{letters}", f"OI{letters}", f"NC{letters}"),
  )
  assert equal(with_gradients(convolve, jax.eval_shape(convolve, x, w)), x, w) == ALL


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("transposed_kernel", [False, True])
def test_transposed_convolutions(stride, transposed_kernel):
  x = random(0, 2, 5, 4, 3)
  w = random(1, 3, 4, *((6, 3) if transposed_kernel else (3, 6)))
  convolve = functools.partial(
    lax.conv_transpose,
    strides=(stride, stride),
    padding="SAME",
    transpose_kernel=transposed_kernel,
  )
  found = equal(with_gradients(convolve, jax.eval_shape(convolve, x, w)), x, w)
  assert "xla" not in found
  if stride == 2:  # an input gradient, whose input gradient is a forward convolution
    assert found == ALL


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_dtypes(dtype):
  x, w = (jnp.ones(shape, dtype) for shape in [(2, 5, 5, 8), (3, 3, 8, 4)])
  convolve = functools.partial(
    lax.conv_general_dilated,
    window_strides=(1, 1),
    padding="SAME",
    dimension_numbers=LAYOUTS["last"],
    preferred_element_type=jnp.float32,
  )
  assert equal(convolve, x, w) == {"forward": 1}
  gradient = jax.grad(lambda w: vs.fast_convolutions(convolve)(x, w).sum())(w)
  assert gradient.dtype == dtype
  expected = jax.grad(lambda w: convolve(x.astype("f4"), w).sum())(w.astype("f4"))
  np.testing.assert_array_equal(gradient.astype("f4"), expected)


def conv(x, w):
  return lax.conv_general_dilated(x, w, (1, 1), "SAME")


def loss(convolve, x, w):
  return (jnp.tanh(convolve(convolve(x, w), w)) ** 2).sum()


@jax.custom_vjp
def clipped(x, w):
  return conv(x, w)


clipped.defvjp(
  lambda x, w: (conv(x, w), (x, w)),
  lambda saved, g: tuple(jnp.clip(d, -9, 9) for d in jax.vjp(conv, *saved)[1](g)),
)


@jax.custom_jvp
def scaled(x, w):
  return conv(x, w)


scaled.defjvp(lambda given, along: (conv(*given), 2 * conv(along[0], given[1])))


def in_scan(x, w):
  return lax.scan(lambda x, _: (jnp.tanh(conv(x, w)), None), x, length=3)[0]


def in_cond(x, w):
  return lax.cond(x.sum() > w.sum(), conv, lambda x, w: x * 2, x, w)


def in_switch(x, w):
  return lax.switch(2, [lambda x, w: x, lambda x, w: -x, conv], x, w)


def in_vmap_over_both(x, w):
  return jax.vmap(conv)(jnp.stack([x, 2 * x]), jnp.stack([w, -w, 3 * w])[1:]).sum(0)


def in_vmap_over_examples(x, w):
  return jax.vmap(lambda x: conv(x[None], w)[0])(x)


KEPT = {"forward", "input_gradient", "kernel_gradient"}


@pytest.mark.slow
@pytest.mark.parametrize(
  ("convolve", "expected"),
  [
    (jax.jit(conv), KEPT),
    (jax.checkpoint(conv), KEPT),
    (clipped, KEPT),
    (scaled, {"forward", "input_gradient"}),
    (in_scan, KEPT),
    (in_cond, KEPT),
    (in_switch, KEPT),
    (in_vmap_over_both, None),
    (in_vmap_over_examples, KEPT),
  ],
)
def test_inside_what_programs_are_made_of(convolve, expected):
  """Gradients are taken inside the function, as a training step does, and the function
  is vmapped over kernels, as lanes do.
  """
  x, w = random(0, 2, 2, 6, 5), random(1, 2, 2, 3, 3) / 3
  step = jax.grad(functools.partial(loss, convolve), (0, 1))
  found = equal(step, x, w)
  assert "xla" not in found
  assert expected is None or found.keys() == expected
  lanes_of_kernels = jnp.stack([w, 2 * w, -w])
  ours = jax.jit(jax.vmap(vs.fast_convolutions(step), (None, 0)))(x, lanes_of_kernels)
  theirs = [jax.jit(step)(x, w) for w in lanes_of_kernels]
  for a, b in zip(ours, map(np.stack, zip(*theirs, strict=True)), strict=True):
    np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max())


def test_while_loops():
  """JAX differentiates no `while_loop`; a convolution may be in its condition too."""

  def train(x, w):
    def go_on(at):
      return (at[0] < 4) & (conv(x, at[1]).sum() < 1e9)

    def step(at):
      number, w = at
      return number + 1, w - 0.01 * jax.grad(loss, 2)(conv, x, w)

    return lax.while_loop(go_on, step, (0, w))[1]

  found = equal(train, random(0, 2, 2, 6, 5), random(1, 2, 2, 3, 3) / 3)
  assert found == {"forward": 3, "input_gradient": 1, "kernel_gradient": 2}


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2])
def test_it_can_be_differentiated_again(stride):
  """In both modes, twice, and with a rule of the user's own."""

  def convolve(x, w):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME")

  def value(x, w):
    return (jnp.tanh(convolve(x, w)) ** 2).sum()

  x, w = random(0, 2, 2, 6, 5), random(1, 3, 2, 3, 3) / 3
  fast = vs.fast_convolutions(value)
  for derivative in (
    lambda f: jax.grad(f, (0, 1)),
    lambda f: lambda x, w: jax.jvp(f, (x, w), (w.sum() * x, w)),
    lambda f: jax.grad(lambda x, w: (jax.grad(f, 1)(x, w) ** 3).sum(), (0, 1)),
    lambda f: lambda x, w: jax.jvp(jax.grad(f, 1), (x, w), (x, w)),
  ):
    ours, theirs = (jax.jit(derivative(f))(x, w) for f in (fast, value))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
  ours, theirs = (
    jax.jit(jax.grad(lambda x, w, f=f: (f(clipped)(x, w) ** 2).sum()))(x, w[:2])
    for f in (vs.fast_convolutions, lambda f: f)
  )
  np.testing.assert_allclose(ours, theirs, atol=1e-5)


class Linen(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Conv(5, (3, 3))(nn.relu(nn.Conv(4, (3, 3), strides=2)(x)))


class NNX(nnx.Module):
  def __init__(self, rngs):
    self.first = nnx.Conv(3, 4, (3, 3), strides=2, rngs=rngs)
    self.second = nnx.Conv(4, 5, (3, 3), rngs=rngs)

  def __call__(self, x):
    return self.second(nnx.relu(self.first(x)))


def linen(x):
  return Linen().init(jax.random.key(0), x), Linen().apply


def of_nnx(x):
  graph, state = nnx.split(NNX(nnx.Rngs(0)))
  return state, lambda state, x: nnx.merge(graph, state)(x)


def equinox(x):
  eqx = pytest.importorskip("equinox")
  keys = jax.random.split(jax.random.key(0))
  network = eqx.nn.Sequential(
    [
      eqx.nn.Conv2d(3, 4, 3, stride=2, padding=1, key=keys[0]),
      eqx.nn.Lambda(jax.nn.relu),
      eqx.nn.Conv2d(4, 5, 3, padding=1, key=keys[1]),
    ]
  )
  params, rest = eqx.partition(network, eqx.is_array)
  return params, lambda params, x: jax.vmap(eqx.combine(params, rest))(
    jnp.moveaxis(x, -1, 1)
  )


def haiku(x):
  hk = pytest.importorskip("haiku")

  def forward(x):
    return hk.Conv2D(5, 3)(jax.nn.relu(hk.Conv2D(4, 3, stride=2)(x)))

  network = hk.without_apply_rng(hk.transform(forward))
  return network.init(jax.random.key(0), x), network.apply


@pytest.mark.parametrize("library", mostly_slow([linen, of_nnx, equinox, haiku]))
def test_networks_of_every_library(library):
  x = random(0, 2, 8, 8, 3)
  params, apply = library(x)
  step = jax.value_and_grad(lambda params, x: (apply(params, x) ** 2).mean())
  found = equal(step, params, x)
  assert found == {"forward": 2, "input_gradient": 1, "kernel_gradient": 2}


def test_what_is_not_recognised_stays_and_is_named(capsys):
  def both(x, w):
    padding = [(1, 2), (2, 1)]
    return lax.conv_general_dilated(x, w, (2, 2), padding, lhs_dilation=(3, 3))

  x, w = random(0, 2, 2, 6, 11), random(1, 2, 2, 3, 3)
  for _ in range(2):
    assert equal(both, x, w) == {"xla": 1}
  assert capsys.readouterr().err == (
    "a convolution of (2, 2, 6, 11) with (2, 2, 3, 3) stays XLA's own, and may be slow: it "
    "has dilated images, and strides or batch groups\n"
  )
  assert equal(lambda x, w: both(conv(x, w), w), x, w) == {"forward": 1, "xla": 1}
  whole = np.ones((1, 1, 4, 13), np.int32)
  assert equal(conv, whole, whole[..., :3, :3]) == {"xla": 1}
  assert "it has numbers of type int32" in capsys.readouterr().err


def test_programs_without_convolutions_and_other_types_pass_through():
  def function(key, tree, *, scale):
    return jax.random.split(key), {"a": tree["a"] * scale, "none": None}, 3

  key, tree = jax.random.key(0), {"a": jnp.arange(3)}
  keys, found, three = vs.fast_convolutions(function)(key, tree, scale=2)
  np.testing.assert_array_equal(
    jax.random.key_data(keys), jax.random.key_data(jax.random.split(key))
  )
  assert found["a"].tolist() == [0, 2, 4]
  assert found["none"] is None
  assert three == 3


@pytest.mark.parametrize(
  ("lowering", "width"), [*itertools.product(LOWERINGS, (1, 3)), (None, 2)]
)
def test_lanes_make_convolutions_fast_as_their_lowering_says(lowering, width):
  x, w = random(0, 2, 2, 6, 5), random(1, 5, 2, 2, 3, 3) / 3
  step = jax.grad(functools.partial(loss, conv), 1)
  spread = vs.spread(step, width=width, lowering=lowering)
  found = np.concatenate([values for _, values in spread(x, w)])
  for ours, kernel in zip(found, w, strict=True):
    theirs = jax.jit(step)(x, kernel)
    np.testing.assert_allclose(ours, theirs, atol=1e-5 * np.abs(theirs).max())


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("lowering", LOWERINGS)
def test_accelerators_get_the_products_of_convolutions_by_hand(platform, lowering):
  """Each convolution and matrix product of the program for an accelerator, whether
  gradients are recognised or are the rule's own.
  """
  x, (w, v) = random(0, 2, 8, 8, 3), (random(i, 3, 3, 3, 3, 3) for i in (1, 2))

  def gradient(convolve, w, v):
    def value(w, v):
      y = convolve(x, w, (2, 2), "SAME", dimension_numbers=LAYOUTS["last"])
      y = convolve(jnp.tanh(y), v, (1, 1), "SAME", dimension_numbers=LAYOUTS["last"])
      return (y**2).sum()

    return jax.grad(value, (0, 1))(w, v)

  def products(convolve):
    fast = vs.fast_convolutions(functools.partial(gradient, convolve))
    with compiling_for(platform), lowered_by(lowering):
      program = jax.jit(jax.vmap(fast)).trace(w, v)
    target = {"gpu": "cuda"}.get(platform, platform)
    text = program.lower(lowering_platforms=(target,)).as_text()
    found = re.findall(r"stablehlo\.(?:convolution|dot_general).*", text)
    return collections.Counter(re.sub(r"%\w+", "", each) for each in found)

  plain, by_hand = map(products, (lax.conv_general_dilated, conv_general_dilated))
  assert plain == by_hand
  assert plain.total() == 5


def test_a_hand_placed_convolution_takes_the_lowering_of_its_lanes():
  """Also when the function was traced before, without lanes."""
  x, w = random(0, 2, 6, 5, 2), random(1, 2, 3, 3, 2, 2)

  @jax.jit
  def convolve(x, w):
    return conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUTS["last"])

  assert parts(convolve, x, w[0]) == {"forward": 1}
  fast = jax.vmap(vs.fast_convolutions(convolve), (None, 0))
  for lowering, expected in (
    ("sequential", {"forward": 1}),
    ("im2col", {}),
    ("grouped", {"xla": 1}),
  ):
    with lowered_by(lowering):
      assert parts(lambda x, w: fast(x, w), x, w) == expected
