"""Convolutions of half precision on a CPU, with matrix units and without."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds import lanes
from vmapseeds.lanes import fast_convolutions, forward, half
from vmapseeds.lanes.convolution import PARTS, Window
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
  for least in ("SUMMED", "MADE", "PRODUCTS", "PIXELS"):
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
def test_convolutions_are_sums_in_float32_rounded_once(
  request, monkeypatch, here, images, spatial, kernel, stride, padding, groups
):
  """All three parts, on processors with and without the units, are XLA's in float32 of
  what is given, up to the last rounding of what comes out.
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
  window = Window((1, 1), ((1, 1), (1, 1)), (1, 1), 1, half.BFLOAT16)
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
  window = Window((1, 1), ((1, 1), (1, 1)), (1, 1), 1, half.BFLOAT16)
  x, w = random(0, 8, 8, 8, channels), random(1, 3, 3, channels, features)
  assert half.fits(part, window, x, w) == gains
  assert not half.fits(part, window, x[:4], w), "too few pixels"
  monkeypatch.setattr(half, "has_units", lambda: False)
  assert not half.fits(part, window, x, w)


def test_bits_are_those_of_bfloat16():
  numbers = np.float32([0, -0.0, 1, -2.5, 3.1415927, 1e-40, 3e38, np.inf, np.nan])
  numbers = jnp.concatenate([numbers, random(0, 999, dtype=WIDE)]).astype(NARROW)
  bits = jax.lax.bitcast_convert_type(numbers, jnp.uint16)
  np.testing.assert_array_equal(jax.jit(half._bits)(numbers.astype(WIDE)), bits)
  np.testing.assert_array_equal(half._numbers(bits).astype(WIDE), numbers.astype(WIDE))


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
