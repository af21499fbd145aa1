"""One lane's convolution by im2col: matrix products over patches, which `vmap` turns
into batched matrix products.

Patches are made block by block, a few images at a time, so that they stay in cache, and
are made again in the backward pass rather than kept. Images are (n, *spatial, in),
kernels (*kernel, in per group, out).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from vmapseeds.target import platform

# Bytes of the patches of one block: on a CPU as many as a core's L2 cache holds;
# elsewhere enough for a large product.
BLOCK_BYTES = {"cpu": 512 * 1024}
LARGE_BLOCK_BYTES = 256 * 1024 * 1024


def forward(window, x, w):
  """Return the convolution of images and kernel."""
  out_spatial = window.out_spatial(x, w)
  matrix = _matrix(w, window)

  def block(x):
    y = _product("npgk,kgo->npgo", _patches(x, w, window), matrix, window)
    return y.reshape(len(x), *out_spatial, w.shape[-1]).astype(window.dtype or x.dtype)

  return map_blocks(_blocks(x, w, window), block, x)


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel, given that of the output."""

  def block(x, dy):
    return _product(
      "npgk,npgo->kgo", _patches(x, w, window), _rows(dy, w, window), window
    )

  return (
    sum_blocks(_blocks(x, w, window), block, x, dy).reshape(w.shape).astype(w.dtype)
  )


def input_gradient(window, x, w, dy):
  """Return the gradient with respect to the images, given that of the output."""
  matrix = _matrix(w, window)

  def block(dy):
    product = _product("npgo,kgo->npgk", _rows(dy, w, window), matrix, window)
    images = jax.ShapeDtypeStruct((len(dy), *x.shape[1:]), x.dtype)
    transposed = jax.linear_transpose(lambda x: _patches(x, w, window), images)
    return transposed(product.astype(x.dtype))[0]

  return map_blocks(_blocks(x, w, window), block, dy)


def map_blocks(blocks, function, a):
  """Compute `function(a)`, one block of images after another."""
  if blocks == 1:
    return function(a)
  images = len(a) // blocks

  def part(block):
    return function(jax.lax.dynamic_slice_in_dim(a, block * images, images))

  like = jax.eval_shape(part, 0)
  # Not zeros: XLA would share one array of zeros between loops, and copy it for each.
  out = jnp.full((len(a), *like.shape[1:]), a[(0,) * a.ndim], like.dtype)
  return jax.lax.fori_loop(
    0,
    blocks,
    lambda block, out: jax.lax.dynamic_update_slice_in_dim(
      out, part(block), block * images, 0
    ),
    out,
  )


def sum_blocks(blocks, function, x, dy):
  """Sum `function(x, dy)`, an array or several, over blocks of images."""
  if blocks == 1:
    return function(x, dy)
  images = len(x) // blocks

  def part(block):
    # Slice the arrays here, because XLA would write an extra copy of arrays that are
    # split before the loop.
    return function(
      *(jax.lax.dynamic_slice_in_dim(a, block * images, images) for a in (x, dy))
    )

  zeros = jax.tree.map(jnp.zeros_like, jax.eval_shape(part, 0))
  return jax.lax.fori_loop(
    0, blocks, lambda block, sum: jax.tree.map(jnp.add, sum, part(block)), zeros
  )


def kernel_views(window, x, w):
  """Return what each kernel element sees: a list of (n, *out spatial, in), in the order
  of the kernel's rows.
  """
  edges = [(0, 0, 0), *((*ends, 0) for ends in window.padding), (0, 0, 0)]
  out_spatial = window.out_spatial(x, w)
  x = jax.lax.pad(x, jnp.zeros((), x.dtype), edges)

  def view(index):
    starts = [i * d for i, d in zip(index, window.dilation, strict=True)]
    sizes = zip(starts, out_spatial, window.strides, strict=True)
    here = [slice(first, first + (n - 1) * s + 1, s) for first, n, s in sizes]
    return x[:, *here]

  # Made from the last: the transpose adds them up from the first.
  return [view(index) for index in reversed([*np.ndindex(w.shape[:-2])])][::-1]


# Without groups there is no group axis, because XLA would choose a layout of the
# products that suits it.


def _groups(window):
  return () if window.groups == 1 else (window.groups,)


def _patches(x, w, window):
  """Rearrange images to patches (n, pixels, groups, kernel · in per group)."""
  pixels = math.prod(window.out_spatial(x, w))
  shape = (len(x), pixels, *_groups(window), x.shape[-1] // window.groups)
  return jnp.concatenate(
    [v.reshape(shape) for v in kernel_views(window, x, w)], axis=-1
  )


def _matrix(w, window):
  """Reshape a kernel to (kernel · in per group, groups, out per group)."""
  return w.reshape(-1, *_groups(window), w.shape[-1] // window.groups)


def _rows(y, w, window):
  """Reshape outputs to (n, pixels, groups, out per group)."""
  return y.reshape(
    len(y), math.prod(y.shape[1:-1]), *_groups(window), w.shape[-1] // window.groups
  )


def _product(equation, a, b, window):
  if not _groups(window):
    equation = equation.replace("g", "")
  accumulated = jnp.promote_types(a.dtype, jnp.float32)
  return jnp.einsum(
    equation, a, b, precision=window.precision, preferred_element_type=accumulated
  )


def _blocks(x, w, window):
  """Return how many blocks of images: the fewest that divide the batch and keep a
  block's patches in cache.
  """
  a_image = (
    math.prod(window.out_spatial(x, w))
    * math.prod(w.shape[:-1])
    * window.groups
    * x.dtype.itemsize
  )
  return blocks(
    len(x), BLOCK_BYTES.get(platform(), LARGE_BLOCK_BYTES) // max(1, a_image)
  )


def blocks(images, most):
  """Return the fewest equal blocks of at most `most` images each (at least one image)."""
  return next(
    (
      b for b in range(1, images + 1) if images % b == 0 and images // b <= max(1, most)
    ),
    1,
  )
