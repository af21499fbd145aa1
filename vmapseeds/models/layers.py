"""What the networks share: convolutions and blocks of them that are fast with many
lanes.
"""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from vmapseeds.models.norm import NormReluPool
from vmapseeds.models.pooling import (
  PLACES,
  as_images,
  largest_of,
  of_channels,
  pixels_of,
  place_values,
  rows_first,
  tiles_to_images,
)
from vmapseeds.target import platform

Images = Real[Array, "batch height width channels"]
Inputs = Real[Array, "batch ..."]
Logits = Float[Array, "batch classes"]

# PyTorch's default for convolutions and linear layers: uniform in ±1/√fan_in.
torch_init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def scale_channels(channels: int, width: float) -> int:
  """Return `channels` times the recipe's width factor, at least 1."""
  return max(1, round(channels * width))


# Convolution and pooling on a TPU. Its registers hold 128 numbers along the last axis:
# features alone leave them nearly empty. So channels also hold pixels: the four of a
# pooling tile, over which the maximum is taken, and `beside` pooled pixels of a row.
# The next layer takes this form as it is, so no data moves; a reshape gives images.

CHANNELS_LAST = ("NHWC", "HWIO", "NHWC")

# Least pixels for this; with 64 the digits' network takes 12 µs by the compiler's
# estimate, instead of 7
LARGE = 256


def _neighbours(width, inside):
  """Return how many blocks of `inside` pixels a kernel of this width reaches to the left
  and to the right.
  """
  to_left = math.ceil((width - 1) // 2 / inside)
  to_right = math.ceil(width // 2 / inside)
  return to_left, to_right


def _pixels_side_by_side(images, kernel):
  """Return how many pooled pixels of a row come out side by side, given the shapes; 0
  where the convolution stays as it is.

  There are as many as fill the registers, while the kernel is at most twice as large as
  the output. A large batch needs only one, because its images fill the registers.
  """
  batch, height, columns, inside_channels = images
  rows, width, channels, features = kernel
  inside = inside_channels // channels
  if inside == 1 and height * columns < LARGE:
    return 0
  is_small_batch = 4 * batch <= PLACES
  pooled_columns = columns * inside // 2
  pixels_of_neighbours = sum(_neighbours(width, inside)) * inside
  numbers = batch * height * columns * inside

  def is_better(beside):
    """Return whether so many are better than half as many."""
    kernel_columns = pixels_of_neighbours + 2 * beside
    kernel_size = (rows + 1) * kernel_columns * channels * 2 * beside
    fits_register = beside * features <= PLACES
    return pooled_columns % beside == 0 and fits_register and kernel_size <= numbers

  beside = max(1, inside // 2)
  while is_small_batch and is_better(2 * beside):
    beside *= 2
  return beside


def _widen(kernel, inside, beside):
  """Return the kernel from `inside` pixels side by side to channels in the order (pixel
  of the tile, pooled pixel, feature); its strides and its padding.
  """
  height, width, channels, features = kernel.shape
  to_left, to_right = _neighbours(width, inside)
  strides = (2, 2 * beside // inside)
  padding = [((height - 1) // 2, height // 2), (to_left, to_right)]
  # Where the columns of a kernel of width 3 go, of two pooled pixels side by side, each
  # the maximum over a left and a right column:
  #
  #   columns of the images   0  1  2  3  4  5
  #   pixel 0, left           k  k  k
  #            right             k  k  k
  #   pixel 1, left                 k  k  k
  #            right                   k  k  k
  #
  # A product with ones and zeros, which is exact, places the columns in one pass over a
  # large array; pads need many.
  no_padding = (0, 0)
  rows = jnp.stack(
    [
      jnp.pad(kernel, (row_padding, no_padding, no_padding, no_padding))
      for row_padding in ((0, 1), (1, 0))
    ],
    -2,
  )
  blocks = to_left + to_right + strides[1]
  # Indices: k of the kernel's columns, j of a tile's two, `pixel` of those pooled.
  k, column, j, pixel = np.ogrid[:width, : blocks * inside, :2, :beside]
  first = to_left * inside - (width - 1) // 2
  is_place = column == first + k + 2 * pixel + j
  ones = np.einsum("kcjp,ab,fg->kafcbjpg", is_place, np.eye(2), np.eye(features))
  ones = ones.reshape(width, 2, features, blocks * inside, -1)
  placing = jnp.asarray(ones, kernel.dtype)
  wide = jnp.einsum("rkiaf,kafco->rcio", rows, placing, precision="highest")
  wide = wide.reshape(height + 1, blocks, inside * channels, -1)
  return wide, strides, padding


def _strips(images, kernel):
  """Return how many strips of rows images of these shapes are cut into, so that a small
  batch fills a TPU's registers.

  There is more than one only if images have far fewer numbers than the output, as
  strips overlap and are joined again.
  """
  batch, height, _, channels = images
  features = kernel[-1]
  if 4 * channels > features:
    return 1
  rows = height // 2
  strips = 1
  for number in range(1, rows + 1):
    if rows % number == 0 and number * batch <= PLACES:
      strips = number
  return strips


def _cut_strips(x, strips, above, below):
  """Cut images into strips, as a batch: every image's first strip first, each with
  `above` and `below` more rows.
  """
  rows = x.shape[1] // 2 // strips * 2
  x = jnp.pad(x, ((0, 0), (above, below), (0, 0), (0, 0)))
  parts = []
  for first in range(0, strips * rows, rows):
    parts.append(x[:, first : first + rows + above + below])
  return jnp.concatenate(parts)


def _join_strips(x, strips):
  """Join strips to images."""
  batch = len(x) // strips
  rows = x.shape[1]
  apart = x.reshape(strips, batch, *x.shape[1:])
  of_images = jnp.moveaxis(apart, 0, 1)
  return of_images.reshape(batch, strips * rows, *x.shape[2:])


def conv_relu_pool(
  x: Float[Array, "batch height columns inside_channels"],
  kernel: Float[Array, "h w channels features"],
  bias: Float[Array, " features"],
) -> Float[Array, "batch rows pooled_columns beside_features"]:
  """Apply a convolution that keeps the images' size, bias, ReLU and 2×2 pooling.

  On a CPU bias and ReLU follow the convolution; elsewhere they follow pooling, which
  leaves fewer pixels. On a TPU several pixels of a row may come in and go out side by
  side as channels, by one convolution with a larger kernel, and strips of small images
  may form a larger batch. The result is the same except for rounding, and for which of
  the pixels that rounding makes equal gets the gradient.
  """
  device = platform()
  strips = 1
  if device == "tpu":
    beside = _pixels_side_by_side(x.shape, kernel.shape)
    if beside:
      return _conv_relu_pool_beside(x, kernel, bias, beside)
    strips = _strips(x.shape, kernel.shape)
  padding = [((size - 1) // 2, size // 2) for size in kernel.shape[:2]]
  if strips > 1:
    x = _cut_strips(x, strips, *padding[0])
    padding[0] = (0, 0)
  x = jax.lax.conv_general_dilated(
    x, kernel, (1, 1), padding, dimension_numbers=CHANNELS_LAST
  )
  rows, columns = x.shape[1:3]
  whole_tiles = x[:, : rows // 2 * 2, : columns // 2 * 2]
  if device == "cpu":
    return _relu_pool(whole_tiles, bias.astype(x.dtype))
  # The bias stays in float32, because its conversion would be one more kernel on a GPU.
  pooled = _pool_relu(whole_tiles, bias)
  if strips > 1:
    return _join_strips(pooled, strips)
  return pooled


def _conv_relu_pool_beside(x, kernel, bias, beside):
  """Do the same with `beside` pooled pixels side by side as channels."""
  inside = x.shape[-1] // kernel.shape[2]
  wide, strides, padding = _widen(kernel, inside, beside)
  x = jax.lax.conv_general_dilated(
    x, wide, strides, padding, dimension_numbers=CHANNELS_LAST
  )
  pooled = _largest_part(4, x)  # the four pixels of a tile
  beside_bias = jnp.tile(bias.astype(x.dtype), beside)
  return nn.relu(pooled + of_channels(beside_bias, pooled))


@jax.custom_vjp
def _relu_pool(x, bias):
  """Apply bias, ReLU and pooling to images of whole tiles. The gradient is computed on
  the pooled pixels, and its last operation places them in their tiles.
  """
  return _relu_pool_forward(x, bias)[0]


def _relu_pool_forward(x, bias):
  # Before pooling, because of how XLA makes loops: after pooling bias and ReLU take
  # four times as long.
  y = nn.relu(x + of_channels(bias, x))
  # Slices, because with a reshape between `y` and the next convolution the gradient
  # would compute `y` again.
  pixels = [y[:, row::2, column::2] for row in (0, 1) for column in (0, 1)]
  y = functools.reduce(jnp.maximum, pixels)
  return y, (x, y)


def _relu_pool_backward(residuals, gradient):
  x, y = residuals
  d = jnp.where(y > 0, gradient, 0)
  _, which = largest_of(pixels_of(x, 2, 1))
  dx = tiles_to_images(place_values(d, which, 2, 1), 1)
  return dx, d.sum((0, 1, 2))


_relu_pool.defvjp(_relu_pool_forward, _relu_pool_backward)


@jax.custom_vjp
def _pool_relu(x, bias):
  """Do the same as `_relu_pool`, but pool first. The gradient reads only the pixel it
  goes to (-1: none).
  """
  return _pool_relu_forward(x, bias)[0]


def _pool_relu_forward(x, bias):
  largest, which = largest_of(pixels_of(x, 2, 0))
  y = nn.relu(largest + of_channels(bias, largest)).astype(x.dtype)
  # The barrier makes both at once: otherwise XLA goes over all pixels a second time for
  # the residuals.
  y, which = jax.lax.optimization_barrier((y, jnp.where(y > 0, which, -1)))
  return as_images(y, 0), which


def _pool_relu_backward(which, gradient):
  d = rows_first(0, gradient)
  dbias = jnp.where(which >= 0, d, 0).sum((0, 1, 2), jnp.float32)
  dx = tiles_to_images(place_values(d, which, 2, 0), 0)
  return dx, dbias


_pool_relu.defvjp(_pool_relu_forward, _pool_relu_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _largest_part(parts, x):
  """Return the maximum over `parts` equal parts of the channels."""
  return largest_of(jnp.split(x, parts, -1))[0]


def _largest_part_backward(parts, which, gradient):
  gradients = [jnp.where(which == part, gradient, 0) for part in range(parts)]
  return (jnp.concatenate(gradients, -1),)


_largest_part.defvjp(
  lambda parts, x: largest_of(jnp.split(x, parts, -1)), _largest_part_backward
)


class ConvReluPool(nn.Module):
  """`conv_relu_pool` with a 3×3 kernel, for images with `channels` channels."""

  channels: int
  features: int
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height columns inside_channels"]
  ) -> Float[Array, "batch rows pooled_columns beside_features"]:
    shape = (3, 3, self.channels, self.features)
    # Without a dtype these would be float64 under `jax_enable_x64`.
    kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
    return conv_relu_pool(x.astype(self.dtype), kernel.astype(self.dtype), bias)


def patches(x: Images, size: int) -> Real[Array, "batch h w pixels"]:
  """Return the pixels of size × size tiles as channels, row by row, dropping a remainder."""
  height = x.shape[1] // size
  width = x.shape[2] // size
  whole_tiles = x[:, : height * size, : width * size]
  tiles = whole_tiles.reshape(len(x), height, size, width, size, -1)
  return tiles.swapaxes(2, 3).reshape(len(x), height, width, -1)


class ConvBlock(nn.Module):
  """A convolution without bias, then batch norm, and then ReLU and pooling unless
  `relu` is False.
  """

  features: int
  kernel: int = 3
  stride: int = 1
  padding: int = 1
  pool: int = 1
  relu: bool = True
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Float[Array, "batch h w features"]:
    x = nn.Conv(
      self.features,
      (self.kernel, self.kernel),
      strides=self.stride,
      padding=self.padding,
      use_bias=False,
      kernel_init=torch_init,
      dtype=self.dtype,
    )(x)
    options: dict[str, Any] = dict(
      momentum=0.9, epsilon=1e-5, dtype=self.dtype, name="BatchNorm_0"
    )
    if self.relu:
      return NormReluPool(size=self.pool, **options)(x, train)
    return nn.BatchNorm(use_running_average=not train, **options)(x)


def flatten(x: Inputs) -> Real[Array, "batch features"]:
  """Flatten inputs, such as images, to vectors, a row for each."""
  if platform() == "cpu" and x.ndim == 4 and x.shape[1] * x.shape[2] <= FEW_PIXELS:
    return _side_by_side(x.shape, x)
  return jax.lax.collapse(x, 1)


# XLA for CPUs writes reshaped images number by number, in the loop that makes them: in
# 20 µs instead of 4 for 64 images of 2×2×32. It writes a concatenation of single pixels
# in vectors.
FEW_PIXELS = 16


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _side_by_side(shape, x):
  pixels = [x[:, row, column] for row, column in np.ndindex(shape[1:3])]
  return jnp.concatenate(pixels, -1)


_side_by_side.defvjp(
  lambda shape, x: (_side_by_side(shape, x), None),
  lambda shape, _, gradient: (gradient.reshape(shape),),
)


class TracedDropout(nn.Module):
  """Dropout in training, as `nn.Dropout`, with a rate that is traced."""

  rate: Float[Array, ""]

  @nn.compact
  def __call__(
    self, x: Float[Array, "batch features"]
  ) -> Float[Array, "batch features"]:
    """Return the features, each 0 with probability `rate`, others 1 / (1 - rate) larger."""
    kept = 1 - self.rate
    mask = jax.random.bernoulli(self.make_rng("dropout"), kept, x.shape)
    return jnp.where(mask, x / kept.astype(x.dtype), 0)


class Classifier(nn.Module):
  """The common part of networks that end in dropout and a linear layer."""

  num_classes: int
  width: float = 1.0
  dtype: jnp.dtype = jnp.dtype("float32")
  dropout: float | Float[Array, ""] = 0.0

  def convolved(self, x: Images, *features: int) -> Float[Array, "batch pixels"]:
    """Apply one `ConvReluPool` for each number of features (times the width factor), and
    flatten.
    """
    channels = x.shape[-1]
    for number, wanted in enumerate(features):
      scaled = scale_channels(wanted, self.width)
      x = ConvReluPool(channels, scaled, self.dtype, name=f"Conv_{number}")(x)
      # Not of `x`, whose channels may hold pixels.
      channels = scaled
    return flatten(x)

  def last(self, x: Float[Array, "batch features"], train: bool, **options) -> Logits:
    """Return the logits of features, by dropout and a linear layer."""
    kept = x
    if isinstance(self.dropout, jax.Array):
      if train:
        kept = TracedDropout(self.dropout, name="Dropout_0")(x)
    elif self.dropout:
      # A Python float would draw float64 numbers under `jax_enable_x64`.
      rate: Any = np.float32(self.dropout)
      kept = nn.Dropout(rate, deterministic=not train)(x)
    return nn.Dense(self.num_classes, dtype=self.dtype, **options)(kept)
