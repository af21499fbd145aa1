"""What the networks share: the convolution and the pooling that are fast under lanes."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vmapseeds.lanes.convolution import conv_general_dilated

Conv = functools.partial(nn.Conv, conv_general_dilated=conv_general_dilated)

# PyTorch's default for convolutions and linear layers: uniform in ±1/√fan_in.
torch_init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def scaled(channels: int, width: float) -> int:
  """`channels` times the recipe's width factor, at least 1."""
  return max(1, round(channels * width))


def max_pool(x: Float[Array, "*batch height width channels"], size: int = 2) -> Float[Array, "*batch h w channels"]:
  """Maximum over size × size tiles, dropping a remainder: reshape and max, whose gradient is no select-and-scatter."""
  *batch, height, width, channels = x.shape
  x = x[..., : height // size * size, : width // size * size, :]
  return jnp.max(x.reshape(*batch, height // size, size, width // size, size, channels), axis=(-4, -2))


def flatten(x: Float[Array, "batch height width channels"]) -> Float[Array, "batch features"]:
  """One row an image."""
  return jax.lax.collapse(x, 1)
