"""What the networks share: convolutions and blocks of them that are fast with many
lanes.
"""

import functools
import itertools
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

# Least pixels for this; with 64 the digits' network takes 12 µs by the compiler's
# estimate, instead of 7
LARGE = 256


def _neighbours(width, inside):
  """Return how many blocks of `inside` pixels a kernel of this width reaches to the left
  and to the right.
  """
  return -(-((width - 1) // 2) // inside), -(-(width // 2) // inside)


def _beside(images, kernel):
  """Return how many pooled pixels of a row come out side by side, given the shapes; 0
  where the convolution stays as it is.

  There are as many as fill the registers, while the kernel is at most twice as large as
  the output. A large batch needs only one, because its images fill the registers.
  """
  batch, height, columns, together = images
  rows, width, channels, features = kernel
  inside = together // channels
  if inside == 1 and height * columns < LARGE:
    return 0
  beside = max(1, inside // 2)
  while (
    columns * inside // 2 % (2 * beside) == 0
    and 2 * beside * features <= PLACES >= 4 * batch
    and (rows + 1)
    * (sum(_neighbours(width, inside)) * inside + 4 * beside)
    * channels
    * 4
    * beside
    <= batch * height * columns * inside
  ):
    beside *= 2
  return beside


def _widen(kernel, inside, beside):
  """Return the kernel from `inside` pixels side by side to channels in the order (pixel
  of the tile, pooled pixel, feature); its strides and its padding.
  """
  height, width, channels, features = kernel.shape
  left, right = _neighbours(width, inside)
  strides = (2, 2 * beside // inside)
  padding = [((height - 1) // 2, height // 2), (left, right)]
  # A product with ones and zeros, which is exact, places the columns in one pass over a
  # large array; pads need many.
  rows = jnp.stack(
    [jnp.pad(kernel, ((i, 1 - i), (0, 0), (0, 0), (0, 0))) for i in (0, 1)], -2
  )
  blocks = left + right + strides[1]
  k, column, j, pixel = np.ogrid[:width, : blocks * inside, :2, :beside]
  there = column == left * inside - (width - 1) // 2 + k + 2 * pixel + j
  ones = np.einsum("kcjp,ab,fg->kafcbjpg", there, np.eye(2), np.eye(features))
  ones = jnp.asarray(
    ones.reshape(width, 2, features, blocks * inside, -1), kernel.dtype
  )
  wide = jnp.einsum("rkiaf,kafco->rcio", rows, ones, precision="highest")
  return wide.reshape(height + 1, blocks, inside * channels, -1), strides, padding


def _strips(images, kernel):
  """Return how many strips of rows images of these shapes are cut into, so that a small
  batch fills a TPU's registers.

  There is more than one only if images have far fewer numbers than the output, as
  strips overlap and are joined again.
  """
  (batch, height, _, channels), features = images, kernel[-1]
  rows = height // 2 if 4 * channels <= features else 1
  return max(
    (n for n in range(1, rows + 1) if rows % n == 0 and n * batch <= PLACES), default=1
  )


def _cut_strips(x, strips, above, below):
  """Cut images into strips, as a batch: every image's first strip first, each with
  `above` and `below` more rows.
  """
  rows = x.shape[1] // 2 // strips * 2
  x = jnp.pad(x, ((0, 0), (above, below), (0, 0), (0, 0)))
  return jnp.concatenate(
    [x[:, i * rows : (i + 1) * rows + above + below] for i in range(strips)]
  )


def _join_strips(x, strips):
  """Join strips to images."""
  batch = len(x) // strips
  rows = x.shape[1]
  return jnp.moveaxis(x.reshape(strips, batch, *x.shape[1:]), 0, 1).reshape(
    batch, strips * rows, *x.shape[2:]
  )


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
  numbers = ("NHWC", "HWIO", "NHWC")
  device = platform()
  if device == "tpu" and (beside := _beside(x.shape, kernel.shape)):
    wide, strides, padding = _widen(kernel, x.shape[-1] // kernel.shape[2], beside)
    x = jax.lax.conv_general_dilated(
      x, wide, strides, padding, dimension_numbers=numbers
    )
    pooled = _largest_part(4, x)
    beside_bias = jnp.tile(bias.astype(x.dtype), beside)
    return nn.relu(pooled + of_channels(beside_bias, pooled))
  padding = [((size - 1) // 2, size // 2) for size in kernel.shape[:2]]
  if (strips := _strips(x.shape, kernel.shape) if device == "tpu" else 1) > 1:
    x, padding[0] = _cut_strips(x, strips, *padding[0]), (0, 0)
  x = jax.lax.conv_general_dilated(
    x, kernel, (1, 1), padding, dimension_numbers=numbers
  )
  x = x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2]
  if device == "cpu":
    return _relu_pool(x, bias.astype(x.dtype))
  # The bias stays in float32, because its conversion would be one more kernel on a GPU.
  x = _pool_relu(x, bias)
  return _join_strips(x, strips) if strips > 1 else x


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
  y = functools.reduce(jnp.maximum, [y[:, i::2, j::2] for i in (0, 1) for j in (0, 1)])
  return y, (x, y)


def _relu_pool_backward(residuals, gradient):
  x, y = residuals
  d = jnp.where(y > 0, gradient, 0)
  return tiles_to_images(
    place_values(d, largest_of(pixels_of(x, 2, 1))[1], 2, 1), 1
  ), d.sum((0, 1, 2))


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
  return tiles_to_images(place_values(d, which, 2, 0), 0), dbias


_pool_relu.defvjp(_pool_relu_forward, _pool_relu_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _largest_part(parts, x):
  """Return the maximum over `parts` equal parts of the channels."""
  return largest_of(jnp.split(x, parts, -1))[0]


def _largest_part_backward(parts, which, gradient):
  return (
    jnp.concatenate(
      [jnp.where(which == part, gradient, 0) for part in range(parts)], -1
    ),
  )


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
  tiles = x[:, : height * size, : width * size].reshape(
    len(x), height, size, width, size, -1
  )
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
  return jnp.concatenate([x[:, i, j] for i, j in np.ndindex(shape[1:3])], -1)


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
    channels = (
      x.shape[-1],
      *(scale_channels(wanted, self.width) for wanted in features),
    )
    for number, pair in enumerate(itertools.pairwise(channels)):
      x = ConvReluPool(*pair, self.dtype, name=f"Conv_{number}")(x)
    return flatten(x)

  def last(self, x: Float[Array, "batch features"], train: bool, **options) -> Logits:
    """Return the logits of features, by dropout and a linear layer."""
    kept = x
    if isinstance(self.dropout, jax.Array):
      kept = TracedDropout(self.dropout, name="Dropout_0")(x) if train else x
    elif self.dropout:
      # A Python float would draw float64 numbers under `jax_enable_x64`.
      rate: Any = np.float32(self.dropout)
      kept = nn.Dropout(rate, deterministic=not train)(x)
    return nn.Dense(self.num_classes, dtype=self.dtype, **options)(kept)
