"""Max pooling with its own derivative rule, and the parts of such rules.

Tiles are (*ahead, h, size, w, size, *behind, channels), with the batch ahead on CPUs
and behind elsewhere: with rows and columns outermost, an accelerator splits images into
pixels and interleaves pixels without moving data.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vmapseeds.target import platform

PLACES = 128  # numbers in a TPU's register along an array's last axis in memory


def of_channels(vector, x):
  """Return one number per channel with as many axes as `x`, as
  `jax_numpy_rank_promotion=raise` wants.
  """
  return vector.reshape((1,) * (x.ndim - 1) + vector.shape)


def leading_axes(x):
  """Return how many axes of images come before the rows when they are tiles."""
  return x.ndim - 3 if platform() == "cpu" else 0


def rows_first(ahead, images):
  """Move the row and column axes of images to axis `ahead`."""
  return jnp.moveaxis(images, (-3, -2), (ahead, ahead + 1))


def as_images(pixels, ahead):
  """Move row and column axes from axis `ahead` to before the channels: the inverse of
  `rows_first`.
  """
  return jnp.moveaxis(pixels, (ahead, ahead + 1), (-3, -2))


def as_tiles(x, size, ahead):
  """Reshape images of whole tiles to tiles."""
  x = rows_first(ahead, x)
  height, width = x.shape[ahead : ahead + 2]
  tiles = (height // size, size, width // size, size)
  return x.reshape(*x.shape[:ahead], *tiles, *x.shape[ahead + 2 :])


def pixels_of(x, size, ahead):
  """Return the pixels of images of whole tiles, row by row: the first of each tile, the
  second of each, and so on.
  """
  tiles = as_tiles(x, size, ahead)
  everything = (slice(None),) * ahead
  pixels = []
  for row in range(size):
    for column in range(size):
      pixels.append(tiles[*everything, :, row, :, column])
  return pixels


def largest_of(pixels):
  """Return the elementwise maximum of some arrays, and the number of the array it is
  from: the first of equal ones.
  """
  dtype = np.min_scalar_type(-len(pixels)).type
  largest = pixels[0]
  which = jnp.zeros_like(pixels[0], dtype)
  for number, pixel in enumerate(pixels[1:], 1):
    which = jnp.where(pixel > largest, dtype(number), which)
    largest = jnp.maximum(largest, pixel)
  if platform() == "gpu":
    # XLA would store partial maxima that are read twice; this makes one kernel. The
    # first of equal ones comes last, and stays.
    for number, pixel in reversed(list(enumerate(pixels))):
      which = jnp.where(pixel == largest, dtype(number), which)
  return largest, which


def place_values(values, which, size, ahead):
  """Return tiles that are zero except for one value each, at the pixel `which`."""
  axes_before = (1,) * (ahead + 1)
  axes_behind = (1,) * (values.ndim - ahead - 2)
  pixels = jnp.arange(size * size, dtype=which.dtype)
  pixels = pixels.reshape(*axes_before, size, 1, size, *axes_behind)
  axes_in_tiles = (ahead + 1, ahead + 3)
  which = jnp.expand_dims(which, axes_in_tiles)
  values = jnp.expand_dims(values, axes_in_tiles)
  return jnp.where(pixels == which, values, 0)


def tiles_to_images(tiles, ahead):
  """Reshape tiles to images. On a TPU the barrier makes XLA write tiles, and not the
  arrays broadcast in them.
  """
  if platform() == "tpu":
    tiles = jax.lax.optimization_barrier(tiles)
  h, size, w, _ = tiles.shape[ahead : ahead + 4]
  before = tiles.shape[:ahead]
  behind = tiles.shape[ahead + 4 :]
  pixels = tiles.reshape(*before, h * size, w * size, *behind)
  return as_images(pixels, ahead)


def max_pool(
  x: Float[Array, "*batch height width channels"], size: int = 2
) -> Float[Array, "*batch h w channels"]:
  """Return the maximum over size × size tiles, dropping a remainder. The gradient goes
  to the first maximum of a tile, as in `nn.max_pool`, but in one loop over pixels instead of
  XLA's select-and-scatter.
  """
  height, width = x.shape[-3:-1]
  whole_tiles = x[..., : height // size * size, : width // size * size, :]
  return _max(size, whole_tiles)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max(size, x):
  return _max_forward(size, x)[0]


def _max_forward(size, x):
  ahead = leading_axes(x)
  largest, which = largest_of(pixels_of(x, size, ahead))
  return as_images(largest, ahead), which


def _max_backward(size, which, gradient):
  ahead = leading_axes(gradient)
  values = rows_first(ahead, gradient)
  tiles = place_values(values, which, size, ahead)
  return (tiles_to_images(tiles, ahead),)


_max.defvjp(_max_forward, _max_backward)
