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

from vmapseeds.lanes import im2col

TILES = 128  # in a block
LEAST = 32  # channels, and features


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
    and min(w.shape[2:]) >= LEAST
  )


def forward(window, x, w):
  """Return the convolution of images and kernel."""
  out = window.out_spatial(x, w)
  tiles = _tiles(out)
  kernels = jnp.einsum("kij,ijco->kco", _KERNEL.astype(w.dtype), w, precision="highest")

  def block(x):
    images = _planes(_both(_of_images, _pixels(window, x, tiles)))
    y = jnp.einsum(
      "knc,kco->kno",
      images.reshape(16, -1, x.shape[-1]),
      kernels,
      precision=window.precision,
    )
    parts = _both(_to_outputs, y.reshape(4, 4, len(x), *tiles, -1))
    y = jnp.stack([jnp.stack(row, 3) for row in parts], 2)
    return y.reshape(len(x), 2 * tiles[0], 2 * tiles[1], -1)[
      :, : out[0], : out[1]
    ].astype(window.dtype or x.dtype)

  return im2col.map_blocks(_blocks(x, tiles), block, x)


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel, given that of the output."""
  tiles = _tiles(dy.shape[1:3])

  def block(x, dy):
    images = _planes(_both(_of_images, _pixels(window, x, tiles)))
    dy = jnp.pad(
      dy,
      (
        (0, 0),
        *((0, 2 * t - n) for t, n in zip(tiles, dy.shape[1:3], strict=True)),
        (0, 0),
      ),
    )
    gradients = _planes(
      _both(_of_gradients, [[dy[:, i::2, j::2] for j in range(2)] for i in range(2)])
    )
    images, gradients = (a.reshape(16, -1, a.shape[-1]) for a in (images, gradients))
    return jnp.einsum("knc,kno->kco", images, gradients, precision=window.precision)

  sums = im2col.sum_blocks(_blocks(x, tiles), block, x, dy)
  return jnp.einsum(
    "kij,kco->ijco", _KERNEL.astype(sums.dtype), sums, precision="highest"
  ).astype(w.dtype)


_G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
_KERNEL = np.einsum("ai,bj->abij", _G, _G).reshape(16, 3, 3)


def _tiles(out):
  return tuple(-(-n // 2) for n in out)


def _blocks(x, tiles):
  return im2col.blocks(len(x), TILES // math.prod(tiles))


def _pixels(window, x, tiles):
  """Return the 4×4 pixels of all tiles: 4 lists of 4 arrays, each with one pixel of
  every tile.
  """
  edges = [
    (low, 2 * t + 2 - n - low, 0)
    for t, n, (low, _) in zip(tiles, x.shape[1:], window.padding, strict=False)
  ]
  x = jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *edges, (0, 0, 0)])
  rows, columns = (2 * t - 1 for t in tiles)
  return [
    [x[:, i : i + rows : 2, j : j + columns : 2] for j in range(4)] for i in range(4)
  ]


def _planes(parts):
  """Stack 4×4 arrays into one with a leading axis of 16."""
  return jnp.stack([part for row in parts for part in row])


def _both(transform, parts):
  """Apply a transform to the columns of a list of rows, then to the rows."""
  rows = zip(*(transform(*column) for column in zip(*parts, strict=True)), strict=True)
  return [transform(*row) for row in rows]


# Products with the paper's matrices B transposed, A transposed and A.


def _of_images(a, b, c, d):
  return a - c, b + c, c - b, b - d


def _to_outputs(a, b, c, d):
  return a + b + c, b - c - d


def _of_gradients(a, b):
  return a, a + b, a - b, -b
