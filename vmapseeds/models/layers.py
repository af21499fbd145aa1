"""What the networks share: the convolution and the pooling that are fast under lanes, batch norm."""

import functools
import itertools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from vmapseeds.lanes.convolution import conv_general_dilated
from vmapseeds.target import platform

Images = Real[Array, "batch height width channels"]
Logits = Float[Array, "batch classes"]
Conv = functools.partial(nn.Conv, conv_general_dilated=conv_general_dilated)

# PyTorch's default for convolutions and linear layers: uniform in ±1/√fan_in.
torch_init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def scaled(channels: int, width: float) -> int:
  """`channels` times the recipe's width factor, at least 1."""
  return max(1, round(channels * width))


# Pooling. Tiles are (*ahead, h, size, w, size, *behind, channels), with the batch ahead on CPUs and behind elsewhere:
# with rows and columns outermost an accelerator takes images apart and interleaves them without moving data.


def _ahead(x):
  """How many axes of images stand ahead of those of tiles."""
  return x.ndim - 3 if platform() == "cpu" else 0


def _rows_at(ahead, images):
  """Images with rows and columns at an axis."""
  return jnp.moveaxis(images, (-3, -2), (ahead, ahead + 1))


def _images(pixels, ahead):
  """The same back."""
  return jnp.moveaxis(pixels, (ahead, ahead + 1), (-3, -2))


def _tiles(x, size, ahead):
  """Images of whole tiles, as tiles."""
  x = _rows_at(ahead, x)
  height, width = x.shape[ahead : ahead + 2]
  return x.reshape(*x.shape[:ahead], height // size, size, width // size, size, *x.shape[ahead + 2 :])


def _pixels(tiles, ahead):
  """The pixels of tiles, row by row: the first of each tile, the second of each, and so on."""
  size, everything = tiles.shape[ahead + 1], (slice(None),) * ahead
  return [tiles[*everything, :, i, :, j] for i in range(size) for j in range(size)]


def _largest(pixels):
  """The largest of some arrays, and which it is of: the first of equal ones."""
  # A TPU finds both in one pass if they have one type and are wanted at once. In bfloat16 257 is not a number.
  tpu = platform() == "tpu" and len(pixels) <= 256
  number = pixels[0].dtype.type if tpu else np.min_scalar_type(-len(pixels)).type
  largest, which = pixels[0], jnp.zeros_like(pixels[0], number)
  for i, pixel in enumerate(pixels[1:], 1):
    which = jnp.where(pixel > largest, number(i), which)
    largest = jnp.maximum(largest, pixel)
  if platform() == "gpu":  # in one kernel, as XLA writes a maximum of some that several others are made from
    for i, pixel in reversed([*enumerate(pixels)]):
      which = jnp.where(pixel == largest, number(i), which)
  return jax.lax.optimization_barrier((largest, which)) if tpu else (largest, which)


def _placed(values, which, size, ahead):
  """Tiles of zeros but for a value each, at the pixel that `which` says."""
  pixels = jnp.arange(size * size, dtype=which.dtype).reshape(size, 1, size, *(1,) * (values.ndim - ahead - 2))
  which, values = (jnp.expand_dims(a, (ahead + 1, ahead + 3)) for a in (which, values))
  return jnp.where(pixels == which, values, 0)


def _joined(tiles, ahead):
  """Tiles as images. For a TPU they are written at once, or XLA writes what is repeated in them first."""
  tiles = jax.lax.optimization_barrier(tiles) if platform() == "tpu" else tiles
  h, size, w, _ = tiles.shape[ahead : ahead + 4]
  return _images(tiles.reshape(*tiles.shape[:ahead], h * size, w * size, *tiles.shape[ahead + 4 :]), ahead)


def max_pool(x: Float[Array, "*batch height width channels"], size: int = 2) -> Float[Array, "*batch h w channels"]:
  """Maximum over size × size tiles, dropping a remainder. The gradient goes to the first maximum of a tile, as that of
  `nn.max_pool` does, in one loop over pixels instead of XLA's select-and-scatter."""
  height, width = x.shape[-3:-1]
  return _max(size, x[..., : height // size * size, : width // size * size, :])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max(size: int, x: Float[Array, "*batch height width channels"]) -> Float[Array, "*batch h w channels"]:
  return _max_forward(size, x)[0]


def _max_forward(size, x):
  ahead = _ahead(x)
  largest, which = _largest(_pixels(_tiles(x, size, ahead), ahead))
  return _images(largest, ahead), which


def _max_backward(size, which, gradient):
  ahead = _ahead(gradient)
  return (_joined(_placed(_rows_at(ahead, gradient), which, size, ahead), ahead),)


_max.defvjp(_max_forward, _max_backward)


# A convolution with its pooling on a TPU, whose registers are 128 places wide along the last axis: features alone leave
# them empty. There pixels are channels, too: the four of a pooling tile, over which the maximum is taken, and `beside`
# pooled pixels of a row. So they come out and go into the next layer: nothing is moved, and reshaped they are images.

LARGE = 256  # pixels; at 64 the digits' network takes 12 µs by the compiler's estimate, instead of 7
PLACES = 128


def _neighbours(width, inside):
  """How many blocks of `inside` pixels a kernel of this width reaches to the left and to the right."""
  return -(-((width - 1) // 2) // inside), -(-(width // 2) // inside)


def _beside(images, kernel):
  """How many pooled pixels of a row come out side by side, by the shapes; 0 where the convolution stays as it is.

  As many as fill the registers, while the kernel is no larger than twice what it makes. Of a large batch one, as the
  images then lie side by side there.
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
    and (rows + 1) * (sum(_neighbours(width, inside)) * inside + 4 * beside) * channels * 4 * beside
    <= batch * height * columns * inside
  ):
    beside *= 2
  return beside


def _widened(kernel, inside, beside):
  """The kernel that makes such channels, in the order (pixel of the tile, pooled pixel, feature), of `inside` pixels
  side by side; its strides and its padding."""
  height, width, channels, features = kernel.shape
  left, right = _neighbours(width, inside)
  strides, padding = (2, 2 * beside // inside), [((height - 1) // 2, height // 2), (left, right)]
  if inside == beside == 1:
    each = [jnp.pad(kernel, ((i, 1 - i), (j, 1 - j), (0, 0), (0, 0))) for i in (0, 1) for j in (0, 1)]
    return jnp.concatenate(each, -1), strides, padding
  # The columns by a product with ones and zeros, which is exact: one pass over a large array, padded to be joined many.
  rows = jnp.stack([jnp.pad(kernel, ((i, 1 - i), (0, 0), (0, 0), (0, 0))) for i in (0, 1)], -2)
  blocks = left + right + strides[1]
  k, column, j, pixel = np.ogrid[:width, : blocks * inside, :2, :beside]
  there = column == left * inside - (width - 1) // 2 + k + 2 * pixel + j
  ones = np.einsum("kcjp,ab,fg->kafcbjpg", there, np.eye(2), np.eye(features))
  ones = jnp.asarray(ones.reshape(width, 2, features, blocks * inside, -1), kernel.dtype)
  wide = jnp.einsum("rkiaf,kafco->rcio", rows, ones, precision="highest")
  return wide.reshape(height + 1, blocks, inside * channels, -1), strides, padding


def conv_relu_pool(
  x: Float[Array, "batch height columns inside_channels"], kernel: Float[Array, "h w channels features"],
  bias: Float[Array, " features"],
) -> Float[Array, "batch rows pooled_columns beside_features"]:  # fmt: skip
  """A convolution that keeps the images' size, bias, ReLU and 2×2 pooling.

  Bias and ReLU go with the convolution on a CPU; elsewhere they have fewer pixels to go over after pooling. On a TPU
  several pixels of a row may come and go side by side as channels, and one convolution with a larger kernel makes them.
  It is the same but for rounding, and for which of the pixels that rounding makes equal gets the gradient.
  """
  numbers = ("NHWC", "HWIO", "NHWC")
  bias = bias if platform() == "gpu" else bias.astype(x.dtype)  # there a convert would be a kernel of its own
  if platform() == "tpu" and (beside := _beside(x.shape, kernel.shape)):
    wide, strides, padding = _widened(kernel, x.shape[-1] // kernel.shape[2], beside)
    x = conv_general_dilated(x, wide, strides, padding, dimension_numbers=numbers)
    return nn.relu(_largest_part(4, x) + jnp.tile(bias, beside))
  x = conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
  if platform() == "cpu":
    return _relu_pool(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2], bias)
  if platform() == "gpu":
    return _pool_relu(x[:, : x.shape[1] // 2 * 2, : x.shape[2] // 2 * 2], bias)
  return nn.relu(max_pool(x) + bias)


@jax.custom_vjp
def _relu_pool(x, bias):
  """ReLU and pooling of images of whole tiles, given their bias, with a gradient that leaves all but the largest pixels
  to the last operation."""
  return _relu_pool_forward(x, bias)[0]


def _relu_pool_forward(x, bias):
  # As early as this for the sake of XLA's loops: after pooling bias and ReLU take four times the time.
  y = nn.relu(x + bias)
  y = _images(functools.reduce(jnp.maximum, _pixels(_tiles(y, 2, 1), 1)), 1)
  return y, (x, y)


def _relu_pool_backward(residuals, gradient):
  x, y = residuals
  d = jnp.where(y > 0, gradient, 0)
  return _joined(_placed(d, _largest(_pixels(_tiles(x, 2, 1), 1))[1], 2, 1), 1), d.sum((0, 1, 2))


_relu_pool.defvjp(_relu_pool_forward, _relu_pool_backward)


@jax.custom_vjp
def _pool_relu(x, bias):
  """The same in another order, with a gradient that reads nothing but which pixel it goes to, -1 for none."""
  return _pool_relu_forward(x, bias)[0]


def _pool_relu_forward(x, bias):
  largest, which = _largest(_pixels(_tiles(x, 2, 0), 0))
  y = nn.relu(largest + bias).astype(x.dtype)
  # Both at once, or XLA goes over all pixels a second time for what is kept.
  y, which = jax.lax.optimization_barrier((y, jnp.where(y > 0, which, -1)))
  return _images(y, 0), which


def _pool_relu_backward(which, gradient):
  d = _rows_at(0, gradient)
  dbias = jnp.where(which >= 0, d, 0).sum((0, 1, 2), jnp.float32)
  return _joined(_placed(d, which, 2, 0), 0), dbias


_pool_relu.defvjp(_pool_relu_forward, _pool_relu_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _largest_part(parts, x):
  """The maxima over so many equal parts of the channels."""
  return _largest(jnp.split(x, parts, -1))[0]


def _largest_part_backward(parts, which, gradient):
  return (jnp.concatenate([jnp.where(which == part, gradient, 0) for part in range(parts)], -1),)


_largest_part.defvjp(lambda parts, x: _largest(jnp.split(x, parts, -1)), _largest_part_backward)


class ConvReluPool(nn.Module):
  """`conv_relu_pool` with a 3×3 kernel, of images with so many channels."""

  channels: int
  features: int
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height columns inside_channels"]
  ) -> Float[Array, "batch rows pooled_columns beside_features"]:
    kernel = self.param("kernel", nn.initializers.lecun_normal(), (3, 3, self.channels, self.features))
    bias = self.param("bias", nn.initializers.zeros, (self.features,))
    return conv_relu_pool(x.astype(self.dtype), kernel.astype(self.dtype), bias)


class NormReluPool(nn.BatchNorm):
  """Batch norm, ReLU and size × size pooling.

  In training with a derivative rule of its own that goes over the pixels as few times as there can be. Pooling comes
  first there, as norm and ReLU keep the order of pixels (a negative scale turns it round): they and the sums of the
  gradient have fewer pixels to go over.
  """

  size: int = 1

  @nn.compact
  def __call__(  # type: ignore[override]  # `train` alone, in place of what BatchNorm takes
    self, x: Float[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch h w channels"]:
    whole = x.shape[1] % self.size == x.shape[2] % self.size == 0
    if not (train and whole) or self.is_initializing():
      x = nn.relu(super().__call__(x, use_running_average=not train))
      return max_pool(x, self.size) if self.size > 1 else x
    params, stats = self.variables["params"], self.variables["batch_stats"]
    y, *moments = _norm_relu_pool(self.size, self.epsilon, x, params["scale"], params["bias"])
    for name, moment in zip(("mean", "var"), moments, strict=True):
      running = stats[name]
      self.put_variable("batch_stats", name, self.momentum * running + (1 - self.momentum) * moment)
    return y


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _norm_relu_pool(size, epsilon, x, scale, bias):
  """The images, and the moments of the batch, through which no gradient goes."""
  return _norm_relu_pool_forward(size, epsilon, x, scale, bias)[0]


def _norm_relu_pool_forward(size, epsilon, x, scale, bias):
  axes, values = tuple(range(x.ndim - 1)), x.astype(jnp.float32)
  mean = values.mean(axes)
  var = jnp.maximum(0.0, jnp.square(values).mean(axes) - jnp.square(mean))
  reciprocal = jax.lax.rsqrt(var + epsilon)
  slope = reciprocal * scale
  shift = bias - mean * slope
  pooled, which = x, None
  if size > 1:
    sign = jnp.where(scale < 0, -1, 1).astype(x.dtype)
    ahead = _ahead(x)
    largest, which = _largest([pixel * sign for pixel in _pixels(_tiles(x, size, ahead), ahead)])
    pooled = _images(largest * sign, ahead)
  y = nn.relu((pooled * slope + shift).astype(x.dtype))
  return (y, mean, var), (x, pooled, which, scale, mean, reciprocal, shift)


def _norm_relu_pool_backward(size, epsilon, residuals, gradients):
  x, pooled, which, scale, mean, reciprocal, shift = residuals
  slope = reciprocal * scale
  d = jnp.where(pooled * slope + shift > 0, gradients[0], 0)
  axes, n = tuple(range(x.ndim - 1)), x.size // x.shape[-1]
  dbias = d.sum(axes, jnp.float32)
  dscale = ((d * pooled.astype(jnp.float32)).sum(axes) - mean * dbias) * reciprocal
  # dx = slope · (d - dbias / n - (x - mean) · reciprocal · dscale / n), as few operations a pixel as there can be.
  line = slope * reciprocal * dscale / n
  ahead = _ahead(x)
  if size > 1:
    x, d = _tiles(x, size, ahead), _placed(_rows_at(ahead, d), which, size, ahead)
  dx = (slope * d - line * x - (slope * dbias / n - line * mean)).astype(x.dtype)
  return _joined(dx, ahead) if size > 1 else dx, dscale, dbias


_norm_relu_pool.defvjp(_norm_relu_pool_forward, _norm_relu_pool_backward)


def patches(x: Images, size: int) -> Real[Array, "batch h w pixels"]:
  """The pixels of size × size tiles as channels, row by row, dropping a remainder."""
  height, width = x.shape[1] // size, x.shape[2] // size
  tiles = x[:, : height * size, : width * size].reshape(len(x), height, size, width, size, -1)
  return tiles.swapaxes(2, 3).reshape(len(x), height, width, -1)


class ConvBlock(nn.Module):
  """Convolution without bias, batch norm, ReLU unless said otherwise, pooling."""

  features: int
  kernel: int = 3
  stride: int = 1
  padding: int = 1
  pool: int = 1
  relu: bool = True
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Float[Array, "batch h w features"]:
    x = Conv(
      self.features,
      (self.kernel, self.kernel),
      strides=self.stride,
      padding=self.padding,
      use_bias=False,
      kernel_init=torch_init,
      dtype=self.dtype,
    )(x)
    options: dict[str, Any] = dict(momentum=0.9, epsilon=1e-5, dtype=self.dtype, name="BatchNorm_0")
    if self.relu:
      return NormReluPool(size=self.pool, **options)(x, train)
    return nn.BatchNorm(use_running_average=not train, **options)(x)


def flatten(x: Float[Array, "batch height width channels"]) -> Float[Array, "batch features"]:
  """One row an image."""
  return jax.lax.collapse(x, 1)


class Classifier(nn.Module):
  """What networks have in common whose last layer is linear, dropout before it."""

  num_classes: int
  width: float = 1.0
  dtype: jnp.dtype = jnp.dtype("float32")
  dropout: float = 0.0

  def convolved(self, x: Images, *features: int) -> Float[Array, "batch pixels"]:
    """Images after one `ConvReluPool` after another, of so many features times the width factor, one row an image."""
    channels = (x.shape[-1], *(scaled(wanted, self.width) for wanted in features))
    for number, pair in enumerate(itertools.pairwise(channels)):
      x = ConvReluPool(*pair, self.dtype, name=f"Conv_{number}")(x)
    return flatten(x)

  def last(self, x: Float[Array, "batch features"], train: bool, **options: Any) -> Logits:
    """The logits that follow from the features."""
    kept = nn.Dropout(self.dropout, deterministic=not train)(x) if self.dropout else x
    return nn.Dense(self.num_classes, dtype=self.dtype, **options)(kept)
