"""One network's convolution on a CPU, with gradients that are forward convolutions too.

XLA has a fast kernel on CPUs for the plain forward convolution only. What differentiation makes of it, reversed or with
the batch as channels, runs 5 to 160 times slower (experiments/benchmarks/RESULTS.md). So here the gradients are
written as plain convolutions of rearranged arrays. Images are (n, *spatial, in), kernels (*kernel, in per group, out).
"""

import dataclasses
import itertools

import jax.numpy as jnp

from vmapseeds.lanes import im2col

# With fewer input channels than this the kernel has too little to load at once, and im2col is faster.
FEW_CHANNELS = 8
# Images a block of the kernel gradient: as many as fill a vector register, so that what is rearranged stays in cache.
GRADIENT_IMAGES = 16


def forward(window, x, w):
  """The convolution of images and kernel."""
  if x.shape[-1] == 1:
    return _one_channel(window, x, w)
  if x.shape[-1] < FEW_CHANNELS:
    return im2col.forward(window, x, w)
  return window.lax(x, w)


def _one_channel(window, x, w):
  """One product a kernel element, all in one loop over pixels."""

  def block(x):
    taps = zip(im2col.views(window, x, w), w.reshape(-1, w.shape[-1]), strict=True)
    return sum(view * tap for view, tap in taps).astype(window.dtype or x.dtype)

  # In blocks, because XLA would repeat a plain sum in every loop that reads it.
  return im2col.in_turn(im2col.blocks(len(x), len(x) // 2), block, x)


def input_gradient(window, x, w, dy):
  """The gradient with respect to the images: a convolution of `dy` with the kernel flipped, its channels swapped."""
  strided = set(window.strides) != {1}
  if window.groups > 1 or (strided and set(window.dilation) != {1}):
    return im2col.input_gradient(window, x, w, dy)
  if strided:
    return _strided_input_gradient(window, x, w, dy)
  extents = [(k - 1) * d for k, d in zip(w.shape, window.dilation, strict=False)]
  padding = tuple((e - low, e - high) for e, (low, high) in zip(extents, window.padding, strict=True))
  return dataclasses.replace(window, padding=padding, dtype=x.dtype).lax(dy, _turned(w))


def _turned(w):
  return jnp.swapaxes(jnp.flip(w, range(w.ndim - 2)), -1, -2)


def _strided_input_gradient(window, x, w, dy):
  """Pixels whose place has the same remainder by the stride, a phase, see the same kernel elements: one convolution
  for each phase, and the results interleaved."""
  strides, rank, n, channels = window.strides, len(window.strides), len(x), x.shape[-1]
  places = [-(-size // s) for size, s in zip(x.shape[1:-1], strides, strict=True)]
  parts = []
  for phase in itertools.product(*map(range, strides)):
    # How far beyond its own place a pixel's first kernel element sees, and which element that is.
    leads, firsts = zip(*(divmod(p + low, s) for p, (low, _), s in zip(phase, window.padding, strides, strict=True)))
    kernel = w[tuple(slice(first, None, s) for first, s in zip(firsts, strides, strict=True))]
    if kernel.size == 0:
      parts.append(jnp.zeros((n, *places, channels), x.dtype))
      continue
    sizes = zip(kernel.shape, leads, places, dy.shape[1:-1], strict=False)
    padding = tuple((k - 1 - lead, p - o + lead) for k, lead, p, o in sizes)
    plain = dataclasses.replace(window, strides=(1,) * rank, padding=padding, dtype=x.dtype)
    parts.append(plain.lax(dy, _turned(kernel)))
  # (phases..., n, places..., channels) to (n, place, phase, place, phase, ..., channels)
  phased = jnp.stack(parts).reshape(*strides, n, *places, channels)
  interleaved = [axis for d in range(rank) for axis in (rank + 1 + d, d)]
  pixels = phased.transpose(rank, *interleaved, 2 * rank + 1)
  pixels = pixels.reshape(n, *(p * s for p, s in zip(places, strides, strict=True)), channels)
  return pixels[:, *(slice(size) for size in x.shape[1:-1])]


def kernel_gradient(window, x, w, dy):
  """The gradient with respect to the kernel: channels become images, images channels, and `dy` is the kernel."""
  if window.groups > 1 or set(window.strides) != {1}:
    return im2col.kernel_gradient(window, x, w, dy)
  accumulated = jnp.promote_types(x.dtype, jnp.float32)
  swapped = dataclasses.replace(window, strides=window.dilation, dilation=window.strides, dtype=accumulated)

  def block(x, dy):
    images = jnp.moveaxis(jnp.moveaxis(x, -1, 0), 1, -1)
    return swapped.lax(images, jnp.moveaxis(dy, 0, -2))

  blocks = im2col.blocks(len(x), GRADIENT_IMAGES)
  blocks = blocks if len(x) // blocks >= GRADIENT_IMAGES // 4 else 1
  return jnp.moveaxis(im2col.sum_over(blocks, block, x, dy), 0, -2).astype(w.dtype)
