"""Half precision on a CPU: products of rounded factors, and programs kept in float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds import lanes
from vmapseeds.lanes import compiling_for, fast_convolutions, forward, half
from vmapseeds.lanes.convolution import PARTS, Window
from vmapseeds.lanes.widening import widened
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.loop import train
from vmapseeds.training.supervised import recipe_lanes

NARROW, WIDE = jnp.bfloat16, jnp.float32


def random(seed, *shape, dtype=NARROW):
  return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


@pytest.fixture
def units(monkeypatch):
  """A processor that has the units, for which any number of channels is enough."""
  monkeypatch.setattr(half, "has_units", lambda: True)
  for least in ("SUMMED", "MADE", "PRODUCTS", "PIXELS", "ROWS"):
    monkeypatch.setattr(half, least, 1)


def parts(conv, x, w):
  """Outputs and both gradients of a random projection."""
  y, vjp = jax.vjp(conv, x, w)
  return y, *vjp(random(7, *y.shape, dtype=y.dtype))


def convolution(spatial, stride, padding, groups=1):
  axes = "DHW"[-spatial:]
  return lambda x, w: jax.lax.conv_general_dilated(
    x,
    w,
    (stride,) * spatial,
    padding,
    dimension_numbers=(f"N{axes}C", f"{axes}IO", f"N{axes}C"),
    feature_group_count=groups,
  )


@pytest.mark.parametrize(
  ("images", "spatial", "kernel", "stride", "padding", "groups"),
  [
    (3, (6, 5), (3, 3), 1, "SAME", 1),
    (2, (8, 7), (5, 4), 1, ((0, 3), (2, 1)), 1),
    (2, (9, 8), (5, 5), 2, ((2, 2), (2, 2)), 1),  # tiles of pixels
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in [
        (1, (6, 6), (3, 3), 1, "VALID", 1),
        (2, (7, 6), (3, 3), 1, ((3, 0), (1, 1)), 1),  # more zeros than needed
        (2, (9,), (3,), 1, "SAME", 1),
        (2, (4, 3, 5), (2, 1, 3), 1, "SAME", 1),
        (2, (6, 6), (1, 1), 1, "SAME", 1),
        (2, (9, 8), (1, 1), 2, "SAME", 1),  # too many zeros
        (2, (5, 6), (3, 3), 1, "SAME", 2),
      ]
    ),
  ],
)
@pytest.mark.parametrize("here", [True, False])
def test_convolutions_are_products_of_rounded_factors(
  request, monkeypatch, here, images, spatial, kernel, stride, padding, groups
):
  """All three parts, on processors with and without the units, are XLA's in float32 of
  what is given, which is rounded, up to the last rounding of what comes out.
  """
  if here:
    request.getfixturevalue("units")
  monkeypatch.setattr(half, "PRODUCT_BYTES", 2000)  # several blocks
  conv = convolution(len(spatial), stride, padding, groups)
  x = random(0, images, *spatial, 4)
  w = random(1, *kernel, 4 // groups, 6)
  ours = jax.jit(fast_convolutions(functools.partial(parts, conv)))(x, w)
  y, vjp = jax.jit(functools.partial(jax.vjp, conv))(x.astype(WIDE), w.astype(WIDE))
  theirs = y, *vjp(random(7, *y.shape).astype(WIDE))
  for a, b in zip(ours, theirs, strict=True):
    assert a.dtype == NARROW
    np.testing.assert_allclose(
      a.astype(WIDE), b, rtol=2**-8, atol=4e-6 * np.abs(b).max()
    )


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_no_images_and_of_one(units, name):
  window = half.rounding(Window((1, 1), ((1, 1), (1, 1)), (1, 1), 1, None))
  w = jnp.ones((3, 3, 3, 2))
  for images in (0, 1):
    x, dy = (jnp.ones((images, 2, 2, n)) for n in (3, 2))
    given = (x, w) if name == "forward" else (x, w, dy)
    part = jax.jit(functools.partial(getattr(forward, name), window))(*given)
    # Each pixel meets four elements of the kernel; the middle one meets all pixels.
    met = np.outer([1, 2, 1], [1, 2, 1])[..., None, None]
    shape, expected = {
      "forward": (dy.shape, 4 * 3),
      "input_gradient": (x.shape, 4 * 2),
      "kernel_gradient": (w.shape, images * met),
    }[name]
    assert part.dtype == WIDE
    np.testing.assert_array_equal(part, np.broadcast_to(expected, shape))


@pytest.mark.parametrize(
  ("part", "channels", "features", "gains"),
  [
    ("forward", 32, 16, True),
    ("forward", 16, 16, True),
    ("forward", 16, 32, False),
    ("forward", 64, 8, False),
    ("input_gradient", 16, 32, True),
    ("input_gradient", 32, 16, False),
    ("kernel_gradient", 32, 32, True),
    ("kernel_gradient", 16, 32, False),
    ("kernel_gradient", 8, 256, False),
  ],
)
def test_parts_gain_with_enough_channels(monkeypatch, part, channels, features, gains):
  monkeypatch.setattr(half, "has_units", lambda: True)
  window = Window((1, 1), ((1, 1), (1, 1)), (1, 1), 1, half.ROUNDED)
  x, w = random(0, 8, 8, 8, channels), random(1, 3, 3, channels, features)
  assert half.fits(part, window, x, w) == gains
  assert not half.fits(part, window, x[:4], w), "too few pixels"
  monkeypatch.setattr(half, "has_units", lambda: False)
  assert not half.fits(part, window, x, w)


def test_numbers_are_rounded_as_jax_rounds_them():
  numbers = np.float32([0, -0.0, 1, -2.5, 3.1415927, 1e-40, -1e-45, 3e38, np.inf])
  halfway = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF], np.uint32)
  numbers = np.concatenate(
    [numbers, halfway.view(np.float32), random(0, 999, dtype=WIDE)]
  )
  expected = jnp.asarray(numbers).astype(NARROW)
  np.testing.assert_array_equal(jax.jit(half._whole)(numbers), expected.astype(WIDE))
  bits = jax.lax.bitcast_convert_type(expected, jnp.uint16)
  np.testing.assert_array_equal(jax.jit(half._bits)(numbers), bits)
  nan = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
  assert np.isnan(half._whole(nan)).all()
  assert jnp.isnan(half._numbers(half._bits(nan))).all()


@pytest.mark.parametrize("here", [True, False])
def test_matrix_products_round_their_factors_and_sum_in_float32(request, here):
  if here:
    request.getfixturevalue("units")
  a, b = random(0, 3, 70, 40, dtype=WIDE), random(1, 3, 40, 33, dtype=WIDE)

  def narrow(a, b):
    return jnp.einsum("nij,njk->nik", a.astype(NARROW), b.astype(NARROW)).astype(WIDE)

  ours = jax.jit(fast_convolutions(narrow))(a, b)
  a, b = (np.asarray(n.astype(NARROW), np.float64) for n in (a, b))
  np.testing.assert_allclose(ours, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_programs_are_kept_in_float32_whatever_they_are_made_of():
  """Loops, branches, own derivatives, random bits: the program computes as in float32,
  and gives the types that it gave.
  """

  @jax.custom_vjp
  def doubled(x):
    return x + x

  doubled.defvjp(lambda x: (x + x, None), lambda _, dy: (3 * dy,))

  def program(x, key):
    total, each = jax.lax.scan(
      lambda sum, x: (sum + jnp.tanh(x), sum * x), jnp.zeros((), x.dtype), x
    )
    total = jax.lax.fori_loop(0, 3, lambda _, a: a * x.dtype.type(1.5), total)
    branch = jax.lax.cond(
      total > 0, jnp.sin, lambda a: a.astype(WIDE).astype(a.dtype), total
    )
    slope = jax.grad(lambda x: doubled(jnp.square(x)).sum())(x)
    halves = jax.jit(lambda a: jnp.sort(a) / 2)(x)
    return {
      "branch": branch,
      "each": each,
      "slope": slope,
      "halves": halves,
      "drawn": jax.random.normal(key, (3,), x.dtype),
      "bits": jax.lax.bitcast_convert_type(x, jnp.uint16),
      "whole": jnp.round(x).astype(jnp.int32),
    }

  x, key = random(0, 5), jax.random.key(1)
  given = jax.jit(fast_convolutions(program))(x, key)
  plain = jax.jit(program)(x, key)
  for name, a in given.items():
    assert a.dtype == plain[name].dtype, name
  for name in ("bits", "whole"):
    np.testing.assert_array_equal(given[name], plain[name])
  # As they were drawn, but less rounded.
  np.testing.assert_allclose(
    *(np.asarray(of["drawn"], WIDE) for of in (given, plain)), rtol=0.05
  )
  wide = jax.jit(program)(x.astype(WIDE), key)
  for name in ("branch", "each", "slope", "halves"):
    np.testing.assert_array_equal(given[name], wide[name].astype(NARROW))
  assert "f32[] = tanh" in str(jax.make_jaxpr(fast_convolutions(program))(x, key))


def test_programs_without_bfloat16_and_for_accelerators_stay_as_they_are():
  program = jax.make_jaxpr(lambda x: jnp.sin(x @ x))(jnp.ones((2, 2)))
  assert widened(program) is program
  for platform in ("gpu", "tpu"):
    with compiling_for(platform):
      text = str(jax.make_jaxpr(fast_convolutions(jnp.sin))(random(0, 3)))
    assert "bf16[3] = sin" in text
  assert "f32[3] = sin" in str(jax.make_jaxpr(fast_convolutions(jnp.sin))(random(0, 3)))


@pytest.mark.parametrize("width", [1, 2], ids="width {}".format)
@pytest.mark.slow
@pytest.mark.optimized
def test_a_run_depends_on_its_row_alone(units, width):
  """Its neighbours and its place change no bit, with products of bfloat16 too."""
  rng = np.random.default_rng(0)
  data = DeviceExamples(
    rng.integers(0, 256, (16, 8, 8, 1), np.uint8),
    rng.integers(0, 10, 16, np.int32),
    np.array([128], np.float32),
    np.array([64], np.float32),
    10,
  )
  recipe = vs.recipe("digits_cnn", epochs=1, batch_size=8, precision="bfloat16")
  runs = recipe_lanes(recipe, vs.Runs.independent(4), 16)
  order = np.array([3, 1])
  some = jax.tree.map(lambda a: np.asarray(a)[order], runs)
  step = lanes.spread(
    lambda data, run: train(recipe, data, run), width=width, devices=jax.devices()[:1]
  )
  all_runs, chosen = (
    [
      np.concatenate([np.asarray(part) for part in parts])
      for parts in zip(
        *(jax.tree.leaves(out) for _, out in step(data, of)), strict=True
      )
    ]
    for of in (runs, some)
  )
  for a, b in zip(chosen, all_runs, strict=True):
    np.testing.assert_array_equal(a, b[order])
  assert any(np.issubdtype(a.dtype, np.floating) for a in all_runs)
