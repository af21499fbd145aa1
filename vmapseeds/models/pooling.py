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
  return x.reshape(
    *x.shape[:ahead], height // size, size, width // size, size, *x.shape[ahead + 2 :]
  )


def pixels_of(x, size, ahead):
  """Return the pixels of images of whole tiles, row by row: the first of each tile, the
  second of each, and so on.
  """
  tiles = as_tiles(x, size, ahead)
  everything = (slice(None),) * ahead
  return [tiles[*everything, :, i, :, j] for i in range(size) for j in range(size)]


def largest_of(pixels):
  """Return the elementwise maximum of some arrays, and the number of the array it is
  from: the first of equal ones.
  """
  number = np.min_scalar_type(-len(pixels)).type
  largest = pixels[0]
  which = jnp.zeros_like(pixels[0], number)
  for i, pixel in enumerate(pixels[1:], 1):
    which = jnp.where(pixel > largest, number(i), which)
    largest = jnp.maximum(largest, pixel)
  # XLA would store partial maxima that are read twice; this makes one kernel.
  for i, pixel in reversed([*enumerate(pixels)]) if platform() == "gpu" else ():
    which = jnp.where(pixel == largest, number(i), which)
  return largest, which


def place_values(values, which, size, ahead):
  """Return tiles that are zero except for one value each, at the pixel `which`."""
  pixels = jnp.arange(size * size, dtype=which.dtype).reshape(
    *(1,) * (ahead + 1), size, 1, size, *(1,) * (values.ndim - ahead - 2)
  )
  which, values = (jnp.expand_dims(a, (ahead + 1, ahead + 3)) for a in (which, values))
  return jnp.where(pixels == which, values, 0)


def tiles_to_images(tiles, ahead):
  """Reshape tiles to images. On a TPU the barrier makes XLA write tiles, and not the
  arrays broadcast in them.
  """
  tiles = jax.lax.optimization_barrier(tiles) if platform() == "tpu" else tiles
  h, size, w, _ = tiles.shape[ahead : ahead + 4]
  return as_images(
    tiles.reshape(*tiles.shape[:ahead], h * size, w * size, *tiles.shape[ahead + 4 :]),
    ahead,
  )


def max_pool(
  x: Float[Array, "*batch height width channels"], size: int = 2
) -> Float[Array, "*batch h w channels"]:
  """Return the maximum over size × size tiles, dropping a remainder. The gradient goes
  to the first maximum of a tile, as in `nn.max_pool`, but in one loop over pixels instead of
  XLA's select-and-scatter.
  """
  height, width = x.shape[-3:-1]
  return _max(size, x[..., : height // size * size, : width // size * size, :])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max(size, x):
  return _max_forward(size, x)[0]


def _max_forward(size, x):
  ahead = leading_axes(x)
  largest, which = largest_of(pixels_of(x, size, ahead))
  return as_images(largest, ahead), which


def _max_backward(size, which, gradient):
  ahead = leading_axes(gradient)
  return (
    tiles_to_images(
      place_values(rows_first(ahead, gradient), which, size, ahead), ahead
    ),
  )


_max.defvjp(_max_forward, _max_backward)
