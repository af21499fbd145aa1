"""Max pooling with its own derivative rule, and the parts of such rules.

Tiles are (*ahead, h, size, w, size, *behind, channels), with the batch ahead on CPUs
and behind elsewhere: with rows and columns outermost, an accelerator splits images into
pixels and interleaves pixels without moving data.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float

from vmapseeds.target import platform

PLACES = 128  # numbers in a TPU's register along an array's last axis in memory


def ahead_of(x):
  """How many axes of images come before the rows when they are tiles."""
  return x.ndim - 3 if platform() == "cpu" else 0


def rows_at(ahead, images):
  """Images with their row and column axes moved to axis `ahead`."""
  return jnp.moveaxis(images, (-3, -2), (ahead, ahead + 1))


def as_images(pixels, ahead):
  """The inverse of `rows_at`: row and column axes moved from axis `ahead` to before the
  channels.
  """
  return jnp.moveaxis(pixels, (ahead, ahead + 1), (-3, -2))


def as_tiles(x, size, ahead):
  """Images of whole tiles, as tiles."""
  x = rows_at(ahead, x)
  height, width = x.shape[ahead : ahead + 2]
  return x.reshape(
    *x.shape[:ahead], height // size, size, width // size, size, *x.shape[ahead + 2 :]
  )


def pixels_of(x, size, ahead):
  """The pixels of images of whole tiles, row by row: the first of each tile, the second
  of each, and so on.
  """
  tiles, everything = as_tiles(x, size, ahead), (slice(None),) * ahead
  return [tiles[*everything, :, i, :, j] for i in range(size) for j in range(size)]


@custom_vmap
def in_registers(x):
  """Arrays (..., batch, features) unchanged. In a TPU's memory the larger of these axes
  comes last, lanes before both.

  Otherwise XLA puts lanes last, and moves all data between that layout and the one of
  convolutions.
  """
  return x


@in_registers.def_vmap
def _(size, in_batched, x):
  if platform() != "tpu":
    return x, True
  *outer, batch, features = range(1, x.ndim)
  inner = (features, batch) if x.shape[batch] > x.shape[features] else (batch, features)
  return with_layout_constraint(x, Layout((*outer, 0, *inner))), True


def largest_of(pixels, *, at_once=True):
  """The elementwise maximum of some arrays, and the number of the array it is from: the
  first of equal ones.

  A TPU finds both in one pass if they have the same dtype and `at_once` is set.
  """
  # bfloat16 cannot represent 257.
  tpu = platform() == "tpu" and len(pixels) <= 256
  number = pixels[0].dtype.type if tpu else np.min_scalar_type(-len(pixels)).type
  largest, which = pixels[0], jnp.zeros_like(pixels[0], number)
  for i, pixel in enumerate(pixels[1:], 1):
    which = jnp.where(pixel > largest, number(i), which)
    largest = jnp.maximum(largest, pixel)
  if (
    platform() == "gpu"
  ):  # XLA would store partial maxima that are read twice; this makes one kernel
    for i, pixel in reversed([*enumerate(pixels)]):
      which = jnp.where(pixel == largest, number(i), which)
  return (
    jax.lax.optimization_barrier((largest, which))
    if tpu and at_once
    else (largest, which)
  )


def placed(values, which, size, ahead):
  """Tiles that are zero except for one value each, at the pixel that `which` gives."""
  pixels = jnp.arange(size * size, dtype=which.dtype).reshape(
    size, 1, size, *(1,) * (values.ndim - ahead - 2)
  )
  which, values = (jnp.expand_dims(a, (ahead + 1, ahead + 3)) for a in (which, values))
  return jnp.where(pixels == which, values, 0)


def joined(tiles, ahead):
  """Tiles as images. On a TPU the barrier makes XLA write tiles, and not the arrays
  broadcast in them.
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
  """Maximum over size × size tiles, dropping a remainder. The gradient goes to the
  first maximum of a tile, as in `nn.max_pool`, but in one loop over pixels instead of
  XLA's select-and-scatter.
  """
  height, width = x.shape[-3:-1]
  return _max(size, x[..., : height // size * size, : width // size * size, :])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _max(
  size: int, x: Float[Array, "*batch height width channels"]
) -> Float[Array, "*batch h w channels"]:
  return _max_forward(size, x)[0]


def _max_forward(size, x):
  ahead = ahead_of(x)
  largest, which = largest_of(pixels_of(x, size, ahead))
  return as_images(largest, ahead), which


def _max_backward(size, which, gradient):
  ahead = ahead_of(gradient)
  return (joined(placed(rows_at(ahead, gradient), which, size, ahead), ahead),)


_max.defvjp(_max_forward, _max_backward)
