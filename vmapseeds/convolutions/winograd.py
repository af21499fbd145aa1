"""One network's convolution with a 3×3 kernel on a CPU by Winograd's F(2×2, 3×3): 16
products for four outputs, not 36.

Tiles of 4×4 pixels and the kernel are transformed, multiplied elementwise and summed
over channels: 16 matrix products over all tiles. These are transformed to tiles of 2×2
outputs (Lavin & Gray 2016, section 4.1). A few images are done at a time, so that the
transformed arrays stay in cache. Images are (n, height, width, in), kernels (3, 3, in,
out).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from vmapseeds.convolutions import im2col

TILES = 128  # in a block
# XLA's loops over fewer channels at a time take twice as long.
CHANNELS, FEATURES = 64, 32  # at least


def fits(window, x, w, products) -> bool:
  """Return whether this form suits a convolution, and it has at least `products`
  channels × features.
  """
  if (
    {*window.strides, *window.dilation, window.groups} != {1}
    or w.shape[:-2] != (3, 3)
    or x.dtype.itemsize < 4
  ):
    return False
  out = window.out_spatial(x, w)
  # A tile that reaches over an edge is computed whole, so that less is saved.
  saved = 16 * math.prod(_tiles(out)) < 0.7 * 9 * math.prod(out)
  return (
    saved
    and x.shape[0] * math.prod(_tiles(out)) >= TILES
    and math.prod(w.shape[2:]) >= products
    and w.shape[2] >= CHANNELS
    and w.shape[3] >= FEATURES
  )


def forward(window, x, w):
  """Return the convolution of images and kernel."""
  out = window.out_spatial(x, w)
  tiles = _tiles(out)
  kernels = jnp.einsum("kij,ijco->kco", _KERNEL.astype(w.dtype), w, precision="highest")

  def block(x):
    planes = _planes(_of_images, _padded(window, x, tiles), 4, tiles)
    sums = jnp.einsum("knc,kco->kno", planes, kernels, precision=window.precision)
    y = _outputs(sums.reshape(4, 4, len(x), *tiles, -1))
    return y[:, : out[0], : out[1]].astype(window.dtype or x.dtype)

  return im2col.map_blocks(_blocks(x, tiles), block, x)


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel, given that of the output."""
  rows, columns = tiles = _tiles(dy.shape[1:3])

  def block(x, dy):
    _, height, width, _ = dy.shape
    missing = (0, 2 * rows - height), (0, 2 * columns - width)
    dy = jnp.pad(dy, ((0, 0), *missing, (0, 0)))
    images = _planes(_of_images, _padded(window, x, tiles), 4, tiles)
    gradients = _planes(_of_gradients, dy, 2, tiles)
    return jnp.einsum("knc,kno->kco", images, gradients, precision=window.precision)

  sums = im2col.sum_blocks(_blocks(x, tiles), block, x, dy)
  dw = jnp.einsum("kij,kco->ijco", _KERNEL.astype(w.dtype), sums, precision="highest")
  return dw.astype(w.dtype)


_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_KERNEL = np.einsum("ai,bj->abij", _G, _G).reshape(16, 3, 3)


def _tiles(out):
  return tuple(-(-n // 2) for n in out)


def _blocks(x, tiles):
  return im2col.blocks(len(x), TILES // math.prod(tiles))


def _padded(window, x, tiles):
  """Return images with the padding of all tiles' pixels."""
  edges = [(0, 0, 0)]
  for count, size, (low, _) in zip(tiles, x.shape[1:3], window.padding, strict=True):
    edges.append((low, 2 * count + 2 - size - low, 0))
  return jax.lax.pad(x, jnp.zeros((), x.dtype), [*edges, (0, 0, 0)])


def _planes(transform, a, pixels, tiles):
  """Transform the columns of all tiles of `pixels` × `pixels`, 2 pixels apart, then the
  rows, to 4 × 4 each; return (16, tiles of all images, channels).

  One after the other: at once, 16 sums of four rows and columns take XLA twice as long
  to compile.
  """
  ends = [2 * count - 1 for count in tiles]
  rows = [a[:, i : i + ends[0] : 2] for i in range(pixels)]
  a = jnp.stack(transform(*rows))
  columns = [a[:, :, :, i : i + ends[1] : 2] for i in range(pixels)]
  return jnp.stack(transform(*columns), 1).reshape(16, -1, a.shape[-1])


def _outputs(sums):
  """Transform (4, 4, images, *tiles, features) to outputs."""
  _, _, images, rows, columns, features = sums.shape
  of_columns = [_to_outputs(*sums[:, column]) for column in range(4)]
  of_rows = [_to_outputs(*row) for row in zip(*of_columns, strict=True)]
  y = jnp.stack([jnp.stack(row, 3) for row in of_rows], 2)
  return y.reshape(images, 2 * rows, 2 * columns, features)


# Products with the paper's matrices B transposed, A transposed and A.


def _of_images(a, b, c, d):
  return a - c, b + c, c - b, b - d


def _to_outputs(a, b, c, d):
  return a + b + c, b - c - d


def _of_gradients(a, b):
  return a, a + b, a - b, -b
