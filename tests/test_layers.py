"""Pooling: maxima and their gradients, in the forms for CPUs and for accelerators."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmapseeds import lanes
from vmapseeds.models.layers import max_pool, relu_and_pool

# Few different values, so that most tiles have ties; odd sizes, whose remainder is dropped.
SHAPES = [((2, 5, 7, 3), 2), ((1, 2, 2, 1), 2), ((0, 4, 4, 2), 2), ((3, 2, 6, 9, 2), 3), ((4, 6, 2), 2)]


def value_and_gradient(pool, x, size):
  """The pooled images, and the gradient of a sum that weighs each of them differently."""
  y, vjp = jax.vjp(lambda x: pool(x, size), x)
  return y, vjp(jnp.arange(1.0, y.size + 1).reshape(y.shape))[0]


def library(x, size):
  return nn.max_pool(x, (size, size), (size, size))


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize(("shape", "size"), SHAPES)
def test_max_pool_is_that_of_flax(platform, shape, size):
  x = jnp.asarray(np.random.default_rng(0).integers(0, 3, shape), jnp.float32)
  with lanes.compiling_for(platform):
    ours = value_and_gradient(max_pool, x, size)
    lanewise = jax.vmap(lambda x: value_and_gradient(max_pool, x, size))(jnp.stack([x, -x]))
  first, second = (jax.tree.map(lambda a, i=i: a[i], lanewise) for i in (0, 1))
  for images, found in ((x, ours), (x, first), (-x, second)):
    if x.ndim > 3 and x.size:
      jax.tree.map(np.testing.assert_array_equal, found, value_and_gradient(library, images, size))
    else:
      assert found[1].shape == x.shape


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_relu_and_pooling_are_the_same_in_either_order(platform):
  """Values and gradients, bit for bit: of ties, zeros and tiles without a positive pixel too."""
  x = jnp.asarray(np.random.default_rng(0).integers(-3, 2, (4, 8, 8, 3)), jnp.float32)
  expected = value_and_gradient(lambda x, size: library(nn.relu(x), size), x, 2)
  with lanes.compiling_for(platform):
    found = value_and_gradient(lambda x, size: relu_and_pool(x), x, 2)
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  assert (expected[0] == 0).any()
