"""One lane's depthwise convolution on a CPU, where each channel is its own group: sums
of what each kernel element sees, times the element.

A matrix product would have a single row for each channel. Barriers keep XLA from
computing images anew for each kernel element, and sums for each use. Images are (n, *spatial, in),
kernels (*kernel, 1, out).
"""

import jax
import jax.numpy as jnp
import numpy as np

from vmapseeds.convolutions import im2col

# Bytes of `dy` in a block of a kernel gradient, which passes over them once for each
# kernel element: they stay in cache.
GRADIENT_BYTES = 128 * 1024


def forward(window, x, w):
  """Return the convolution of images and kernel."""
  elements = _at_least_float32(w.reshape(-1, w.shape[-1]))
  seen = _seen_by_elements(window, jax.lax.optimization_barrier(x), w)
  y = sum(one * element for one, element in zip(seen, elements, strict=True))
  return jax.lax.optimization_barrier(y.astype(window.dtype or x.dtype))


def input_gradient(window, x, w, dy):
  """Return the gradient with respect to the images, given that of the output."""

  def seen(x):
    return [*_seen_by_elements(window, x, w)]

  dy = jax.lax.optimization_barrier(dy)
  elements = _at_least_float32(w.reshape(-1, w.shape[-1]))
  of_seen = [_at_least_float32(dy) * element for element in elements]
  # What elements see is linear in the images.
  (dx,) = jax.linear_transpose(seen, x)(of_seen)
  return jax.lax.optimization_barrier(dx)


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel, given that of the output."""
  features = w.shape[-1] // window.groups
  edges = [(0, 0, 0), *((*ends, 0) for ends in window.padding), (0, 0, 0)]
  x, dy = jax.lax.optimization_barrier((x, dy))
  out = zip(dy.shape[1:-1], window.strides, strict=True)
  sizes = [(n - 1) * s + 1 for n, s in out]
  steps = [slice(None, None, s) for s in window.strides]
  # What a kernel element sees starts here.
  starts = np.array([*np.ndindex(w.shape[:-2])], np.int32)
  starts = starts * np.array(window.dilation, np.int32)

  def block(x, dy):
    x = jax.lax.pad(jnp.repeat(x, features, -1), jnp.zeros((), x.dtype), edges)
    x = jax.lax.optimization_barrier(x)

    def of_element(start):
      shape = (len(x), *sizes, x.shape[-1])
      seen = jax.lax.dynamic_slice(x, (0, *start, 0), shape)[:, *steps]
      return (_at_least_float32(seen) * _at_least_float32(dy)).sum(range(dy.ndim - 1))

    # A loop, because XLA takes seconds to compile a sum for each element.
    return jax.lax.map(of_element, starts)

  an_image = dy.size * dy.dtype.itemsize // len(dy)
  blocks = im2col.blocks(len(dy), GRADIENT_BYTES // max(1, an_image))
  return im2col.sum_blocks(blocks, block, x, dy).reshape(w.shape).astype(w.dtype)


def _seen_by_elements(window, x, w):
  """Return what each kernel element sees, a channel for each feature that it makes."""
  features = w.shape[-1] // window.groups
  return map(
    _at_least_float32, im2col.kernel_views(window, jnp.repeat(x, features, -1), w)
  )


def _at_least_float32(a):
  return a.astype(jnp.promote_types(a.dtype, jnp.float32))
