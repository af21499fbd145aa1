"""What the networks share: the convolution and the pooling that are fast under lanes."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vmapseeds.lanes.convolution import conv_general_dilated
from vmapseeds.target import platform

Conv = functools.partial(nn.Conv, conv_general_dilated=conv_general_dilated)

# PyTorch's default for convolutions and linear layers: uniform in ±1/√fan_in.
torch_init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def scaled(channels: int, width: float) -> int:
  """`channels` times the recipe's width factor, at least 1."""
  return max(1, round(channels * width))


def max_pool(x: Float[Array, "*batch height width channels"], size: int = 2) -> Float[Array, "*batch h w channels"]:
  """Maximum over size × size tiles, dropping a remainder. The gradient goes to the first maximum of a tile, as that of
  `nn.max_pool` does, in one loop over pixels instead of XLA's select-and-scatter."""
  *batch, height, width, channels = x.shape
  x = x[..., : height // size * size, : width // size * size, :]
  return _max(size, x.reshape(*batch, height // size, size, width // size, size, channels))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max(size: int, tiles: Float[Array, "*batch h s w s channels"]) -> Float[Array, "*batch h w channels"]:
  return _max_forward(size, tiles)[0]


def _max_forward(size, tiles):
  """The maxima, and which pixel of its tile each is."""
  largest, which = tiles[..., 0, :, 0, :], jnp.int8(0)
  for i in range(1, size * size):
    pixel = tiles[..., i // size, :, i % size, :]
    which = jnp.where(pixel > largest, jnp.int8(i), which)
    largest = jnp.maximum(largest, pixel)
  return largest, jnp.broadcast_to(which, largest.shape)


def _max_backward(size, which, gradient):
  pixels = jnp.arange(size * size, dtype=jnp.int8).reshape(size, 1, size, 1)
  which, gradient = (jnp.expand_dims(a, (-4, -2)) for a in (which, gradient))
  if platform() == "cpu":
    return (jnp.where(pixels == which, gradient, 0),)
  # Rows and columns outermost, where they can be interleaved without moving data, and written at once: XLA would write
  # what is repeated, `which` and `gradient`, before it compares them.
  batch = which.ndim - 5
  ahead, behind = tuple(range(batch)), tuple(range(4, 4 + batch))
  which, gradient = (jnp.moveaxis(a, ahead, behind) for a in (which, gradient))
  tiles = jnp.where(pixels.reshape(size, 1, size, *(1,) * (batch + 1)) == which, gradient, 0)
  return (jnp.moveaxis(jax.lax.optimization_barrier(tiles), behind, ahead),)


_max.defvjp(_max_forward, _max_backward)


def relu_and_pool(x: Float[Array, "batch height width channels"]) -> Float[Array, "batch h w channels"]:
  """ReLU and 2×2 pooling. Their order changes no bit; on a CPU ReLU goes with the convolution, elsewhere it has fewer
  pixels to go over after pooling."""
  return max_pool(nn.relu(x)) if platform() == "cpu" else nn.relu(max_pool(x))


def flatten(x: Float[Array, "batch height width channels"]) -> Float[Array, "batch features"]:
  """One row an image."""
  return jax.lax.collapse(x, 1)
