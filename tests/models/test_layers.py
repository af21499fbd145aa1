"""The networks' layers beside Flax's, in the forms for CPUs and for accelerators."""

import functools
import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmapseeds import lanes
from vmapseeds.convolutions import lowering
from vmapseeds.models import layers
from vmapseeds.models.layers import conv_relu_pool, flatten
from vmapseeds.models.norm import NormReluPool
from vmapseeds.models.pooling import largest_of, max_pool

# Few different values, so that most tiles have ties; odd sizes, whose remainder is
# dropped.
SHAPES = [
  ((2, 5, 7, 3), 2),
  ((1, 2, 2, 1), 2),
  ((0, 4, 4, 2), 2),
  ((3, 2, 6, 9, 2), 3),
  ((4, 6, 2), 2),
]


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def value_and_gradient(pool, x, size, platform="cpu"):
  """The pooled images, and the gradient of a sum that weighs each of them differently."""
  with lanes.compiling_for(
    platform
  ):  # inside, because JAX does not trace the same function again
    y, vjp = jax.vjp(lambda x: pool(x, size), x)
    return y, vjp(jnp.arange(1.0, y.size + 1, dtype=x.dtype).reshape(y.shape))[0]


def library(x, size):
  return nn.max_pool(x, (size, size), (size, size))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("platform", "dtype"), [("cpu", "float32"), ("tpu", "float32"), ("tpu", "bfloat16")]
)
@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_max_pool_is_that_of_flax(platform, dtype, shape, size):
  x = np.random.default_rng(0).integers(0, 3, shape).astype(jnp.dtype(dtype))
  ours = value_and_gradient(max_pool, x, size, platform)
  lanewise = jax.vmap(lambda x: value_and_gradient(max_pool, x, size, platform))(
    np.stack([x, -x])
  )
  first, second = (
    jax.tree.map(lambda a, i=i: np.asarray(a)[i], lanewise) for i in (0, 1)
  )
  for images, found in ((x, ours), (x, first), (-x, second)):
    if x.ndim > 3 and x.size:
      jax.tree.map(
        np.testing.assert_array_equal, found, value_and_gradient(library, images, size)
      )
    else:
      assert found[1].shape == x.shape


@pytest.mark.parametrize(
  "shape", [(0, 2, 2, 3), (1, 1, 1, 1), (2, 3, 5, 2), (2, 5, 5, 1)]
)
def test_flattened_images_are_rows_of_pixels(shape):
  x = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape) + 1
  rows, back = jax.vjp(flatten, x)
  np.testing.assert_array_equal(rows, np.reshape(x, (len(x), np.prod(shape[1:]))))
  np.testing.assert_array_equal(back(2 * rows)[0], 2 * x)


@pytest.mark.parametrize(
  ("platform", "dtype"), [("cpu", "float32"), ("tpu", "bfloat16")]
)
def test_tiles_may_have_more_pixels_than_a_byte_or_bfloat16_counts(platform, dtype):
  pixels = np.zeros((300, 1), dtype)
  pixels[[291, 297]] = 1
  with lanes.compiling_for(platform):
    largest, which = largest_of(list(pixels))
  assert (largest.item(), which.item()) == (1, 291)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("platform", "shape", "features", "beside"),
  [
    *(
      (platform, (7, 9, 16, 1), (4, 3, 2), [1, 1, 1])
      for platform in ("cpu", "gpu", "tpu")
    ),
    ("tpu", (3, 5, 6, 2), (4,), [1]),
    ("tpu pixels as channels", (3, 5, 6, 2), (4,), [1]),
    ("tpu pixels as channels", (7, 9, 16, 1), (4, 3, 2), [4, 2, 1]),
  ],
)
def test_convolutions_relu_and_pooling_are_those_of_flax(
  platform, shape, features, beside, monkeypatch
):
  """Values and gradients are exact on small whole numbers. Ties, zeros and odd sizes
  occur.
  """
  platform, _, large = platform.partition(" ")
  monkeypatch.setattr(layers, "LARGE", 1 if large else 256)
  rng = np.random.default_rng(0)
  whole = lambda *shape: jnp.asarray(rng.integers(-2, 3, shape), jnp.float32)  # noqa: E731
  pairs = itertools.pairwise((shape[-1], *features))
  x, params = (
    whole(*shape),
    [{"kernel": whole(3, 3, *pair), "bias": whole(pair[1])} for pair in pairs],
  )
  weigh = whole(len(x), *(n >> len(features) for n in shape[1:3]), features[-1])

  def library_layer(x, kernel, bias):
    y = nn.Conv(len(bias), (3, 3)).apply(
      {"params": {"kernel": kernel, "bias": bias}}, x
    )
    return library(nn.relu(y), 2)

  def of(layer):
    outputs = []

    def loss(x, params):
      for i, given in enumerate(params):
        x = layer(x, **given)
        outputs.append(x.shape[-1] // features[i])
      return (weigh * x.reshape(weigh.shape)).sum()

    return jax.jit(jax.value_and_grad(loss, (0, 1)))(x, params), outputs

  with lanes.compiling_for(platform):
    found, outputs = of(conv_relu_pool)
  assert outputs == (beside if platform == "tpu" else [1] * len(features))
  jax.tree.map(np.testing.assert_array_equal, found, of(library_layer)[0])
  assert (library_layer(x, **params[0]) == 0).any()


@pytest.mark.slow
def test_strips_of_images_keep_lanes_apart():
  """Values and kernel gradients of two lanes, one of which has an infinity."""
  x = jnp.asarray(
    np.random.default_rng(0).integers(-2, 3, (2, 3, 4, 4, 1)), jnp.float32
  )
  kernels, bias = jnp.ones((2, 3, 3, 1, 4)).at[1, 0, 0, 0, 0].set(jnp.inf), jnp.zeros(4)
  assert layers._strips(x.shape[1:], kernels.shape[1:]) == 2

  def of(layer):
    return lambda x, kernel: jax.value_and_grad(
      lambda kernel: layer(x, kernel, bias).sum()
    )(kernel)

  def plain(x, kernel, bias):
    return library(
      nn.relu(
        nn.Conv(4, (3, 3)).apply({"params": {"kernel": kernel, "bias": bias}}, x)
      ),
      2,
    )

  with lanes.compiling_for("tpu"), lowering("grouped"):
    found = jax.jit(jax.vmap(of(conv_relu_pool)))(x, kernels)
  assert np.isfinite(found[0]).tolist() == [True, False]
  jax.tree.map(
    lambda a, b: np.testing.assert_array_equal(a[0], b),
    found,
    of(plain)(x[0], kernels[0]),
  )


@pytest.mark.parametrize(
  ("images", "kernel", "strips"),
  [
    ((32, 8, 8, 1), (3, 3, 1, 16), 4),
    ((64, 8, 8, 1), (3, 3, 1, 16), 2),  # digits_cnn
    ((32, 4, 4, 16), (3, 3, 16, 32), 1),  # its second layer
    ((1, 9, 8, 1), (3, 3, 1, 16), 4),
    ((0, 8, 8, 1), (3, 3, 1, 16), 4),
    ((30, 14, 8, 1), (3, 3, 1, 16), 1),
    ((32, 1, 8, 1), (3, 3, 1, 16), 1),
  ],
)
def test_as_many_strips_as_fill_a_tpu_with_a_small_batch(images, kernel, strips):
  assert layers._strips(images, kernel) == strips


@pytest.mark.parametrize(
  ("images", "kernel", "beside"),
  [
    ((32, 32, 32, 3), (3, 3, 3, 32), 4),
    ((32, 16, 4, 128), (3, 3, 32, 16), 2),  # cnn_cifar10_binary
    ((64, 8, 8, 1), (3, 3, 1, 16), 0),  # digits_cnn, whose kernels outweigh its images
    (
      (100, 16, 16, 12),
      (3, 3, 12, 16),
      1,
    ),  # narrow_cifar10, whose batches fill the registers
    ((64, 32, 32, 3), (3, 3, 3, 16), 1),
    ((0, 32, 32, 3), (3, 3, 3, 16), 1),
    ((32, 28, 28, 1), (3, 3, 1, 16), 2),
    ((32, 14, 7, 32), (3, 3, 16, 32), 1),  # an odd number of blocks
  ],
)
def test_as_many_pixels_side_by_side_as_a_tpu_has_room_for(images, kernel, beside):
  assert layers._pixels_side_by_side(images, kernel) == beside


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize(
  ("size", "shape"),
  [(1, (6, 3, 2, 4)), (2, (5, 4, 6, 4)), (2, (3, 5, 4, 4)), (2, (2, 2, 2, 4))],
)
def test_norm_relu_and_pooling_are_those_of_flax(platform, size, shape):
  """Outputs, gradients and running moments, with scales of both signs and for lanes."""
  rng = np.random.default_rng(0)
  x = np.float32(3 + 2 * rng.normal(size=shape))
  params = {
    "scale": jnp.array([1.0, -0.5, 0.7, 2.0]),
    "bias": jnp.array([0.1, 0.2, 0.3, -0.4]),
  }
  moments = {"mean": jnp.full(4, 0.3), "var": jnp.full(4, 2.0)}
  options = dict(momentum=0.9, epsilon=1e-5)

  def flax(variables, x, train):
    y, updates = nn.BatchNorm(use_running_average=not train, **options).apply(
      variables, x, mutable=["batch_stats"]
    )
    return library(nn.relu(y), size), updates

  def ours(variables, x, train):
    return NormReluPool(size=size, **options).apply(
      variables, x, train, mutable=["batch_stats"]
    )

  @functools.partial(jax.jit, static_argnums=(0, 2))
  def of(layer, x, train=True):
    def loss(params, x):
      y, updates = layer({"params": params, "batch_stats": moments}, x, train)
      return (jnp.cos(jnp.arange(y.size)).reshape(y.shape) * y).sum(), (y, updates)

    return jax.value_and_grad(loss, (0, 1), has_aux=True)(params, x)

  with lanes.compiling_for(platform):
    found = of(ours, x), of(ours, x, False)
    lanewise = jax.vmap(lambda x: of(ours, x))(np.stack([x, -x]))
  expected = of(flax, x), of(flax, x, False)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), found, expected
  )
  for lane, images in enumerate((x, -x)):
    lane = jax.tree.map(lambda a, lane=lane: np.asarray(a)[lane], lanewise)
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5),
      lane,
      of(flax, images),
    )


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_largest_part_is_that_of_numpy_with_and_without_a_gradient(parts):
  """Its gradient goes to the first part that has the maximum."""
  x = np.random.default_rng(parts).integers(0, 3, (5, 7, parts * 3)).astype(np.float32)
  by_part = x.reshape(5, 7, parts, 3)
  expected = by_part.max(2)
  np.testing.assert_array_equal(layers._largest_part(parts, x), expected)
  value, pullback = jax.vjp(lambda x: layers._largest_part(parts, x), jnp.asarray(x))
  np.testing.assert_array_equal(value, expected)
  (gradient,) = pullback(jnp.ones_like(value))
  first = np.arange(parts)[:, None] == by_part.argmax(2)[:, :, None]
  np.testing.assert_array_equal(gradient.reshape(by_part.shape), first)
