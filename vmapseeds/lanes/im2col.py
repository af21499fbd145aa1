"""One lane's convolution by im2col: matrix products over patches, which `vmap` turns
into batched matrix products.

Patches are made block by block, a few images at a time, so that they stay in cache, and
are made again in the backward pass rather than kept. Images are (n, *spatial, in),
kernels (*kernel, in per group, out).
"""

import itertools
import math

import jax
import jax.numpy as jnp

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

  return in_turn(_blocks(x, w, window), block, x)


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel, given that of the output."""

  def block(x, dy):
    return _product(
      "npgk,npgo->kgo", _patches(x, w, window), _rows(dy, w, window), window
    )

  return sum_over(_blocks(x, w, window), block, x, dy).reshape(w.shape).astype(w.dtype)


def input_gradient(window, x, w, dy):
  """Return the gradient with respect to the images, given that of the output."""
  matrix = _matrix(w, window)
  out_spatial = window.out_spatial(x, w)
  padded = tuple(
    n + low + high for n, (low, high) in zip(x.shape[1:-1], window.padding, strict=True)
  )

  def block(dy):
    patches = _product("npgo,kgo->npgk", _rows(dy, w, window), matrix, window).astype(
      x.dtype
    )
    views = jnp.split(patches, math.prod(w.shape[:-2]), axis=-1)
    dx = jnp.zeros((len(dy), *padded, x.shape[-1]), x.dtype)
    # Add each view back where it was sliced from: the transpose of `_patches`.
    for view, (starts, limits, strides) in zip(
      views, _views(dx.shape, w, window, out_spatial), strict=True
    ):
      view = view.reshape(len(dy), *out_spatial, x.shape[-1])
      edges = zip(starts, limits, strides, dx.shape, strict=True)
      dx += jax.lax.pad(
        view, jnp.zeros((), x.dtype), [(a, n - b, s - 1) for a, b, s, n in edges]
      )
    return jax.lax.pad(
      dx,
      jnp.zeros((), x.dtype),
      [(-low, -high, 0) for low, high, _ in _padding(window)],
    )

  return in_turn(_blocks(x, w, window), block, dy)


def in_turn(blocks, function, a):
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


def sum_over(blocks, function, x, dy):
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


def _views(x_shape, w, window, out_spatial):
  """Yield the (starts, limits, strides) of the slice of the padded images that each
  kernel element sees, row by row.
  """
  for index in itertools.product(*(range(k) for k in w.shape[:-2])):
    offset = [i * d for i, d in zip(index, window.dilation, strict=True)]
    limits = [
      o + (n - 1) * s + 1
      for o, n, s in zip(offset, out_spatial, window.strides, strict=True)
    ]
    yield (0, *offset, 0), (x_shape[0], *limits, x_shape[-1]), (1, *window.strides, 1)


def _padding(window):
  return [(0, 0, 0), *((low, high, 0) for low, high in window.padding), (0, 0, 0)]


def views(window, x, w):
  """Return what each kernel element sees: a list of (n, *out spatial, in), in the order
  of the kernel's rows.
  """
  out_spatial = window.out_spatial(x, w)
  x = jax.lax.pad(x, jnp.zeros((), x.dtype), _padding(window))
  return [jax.lax.slice(x, *view) for view in _views(x.shape, w, window, out_spatial)]


# Without groups there is no group axis, because XLA would choose a layout of the
# products that suits it.


def _groups(window):
  return () if window.groups == 1 else (window.groups,)


def _patches(x, w, window):
  """Rearrange images to patches (n, pixels, groups, kernel · in per group)."""
  pixels = math.prod(window.out_spatial(x, w))
  shape = (len(x), pixels, *_groups(window), x.shape[-1] // window.groups)
  return jnp.concatenate([v.reshape(shape) for v in views(window, x, w)], axis=-1)


def _matrix(w, window):
  """Reshape a kernel to (kernel · in per group, groups, out per group)."""
  return w.reshape(-1, *_groups(window), w.shape[-1] // window.groups)


def _rows(y, w, window):
  """Reshape outputs to (n, pixels, groups, out per group)."""
  return y.reshape(
    len(y), math.prod(y.shape[1:-1]), *_groups(window), w.shape[-1] // window.groups
  )


def _product(equation, a, b, window):
  equation = equation if _groups(window) else equation.replace("g", "")
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
