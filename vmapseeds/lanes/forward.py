"""One network's convolution on a CPU, with gradients that are forward convolutions too.

XLA has a fast kernel on CPUs for the plain forward convolution only. What differentiation makes of it, reversed or with
the batch as channels, runs 5 to 160 times slower (experiments/benchmarks/RESULTS.md). So here the gradients are
written as plain convolutions of rearranged arrays. Images are (n, *spatial, in), kernels (*kernel, in per group, out).
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp

from vmapseeds.lanes import im2col

# With fewer input channels than this the kernel has too little to load at once.
FEW_CHANNELS = 8
# Images a block of the kernel gradient: as many as fill a vector register, so that what is rearranged stays in cache.
GRADIENT_IMAGES = 16


def forward(window, x, w):
  """The convolution of images and kernel."""
  if x.shape[-1] == 1:
    return _one_channel(window, x, w)
  if x.shape[-1] < FEW_CHANNELS:
    return (_pairs if window.groups == window.dilation[-1] == 1 else im2col.forward)(window, x, w)
  return window.lax(x, w)


def _one_channel(window, x, w):
  """One product a kernel element, all in one loop over pixels."""

  def block(x):
    taps = zip(im2col.views(window, x, w), w.reshape(-1, w.shape[-1]), strict=True)
    return sum(view * tap for view, tap in taps).astype(window.dtype or x.dtype)

  # In blocks, because XLA would repeat a plain sum in every loop that reads it.
  return im2col.in_turn(im2col.blocks(len(x), len(x) // 2), block, x)


def _pairs(window, x, w):
  """With two pixels of an output row as channels of one: more of them for the kernel to compute at once, worth the
  zeros in it."""
  *strides, stride = window.strides
  *rows, (low, _) = window.padding
  *kernel, width, channels, features = w.shape
  out = window.out_spatial(x, w)
  pairs, size = -(-out[-1] // 2), 2 * stride  # of outputs in a row, and how many pixels lie between two of them
  taps = -(-(stride + width) // size)
  edges = [(low, (pairs + taps - 1) * size - low - x.shape[-2], 0), (0, 0, 0)]
  x = jax.lax.pad(x, jnp.zeros((), x.dtype), [*[(0, 0, 0)] * len(out), *edges])
  x = x.reshape(*x.shape[:-2], pairs + taps - 1, size * channels)
  ends = [(begin, taps * size - width - begin) for begin in (0, stride)]
  w = jnp.concatenate([jnp.pad(w, (*[(0, 0)] * len(kernel), end, (0, 0), (0, 0))) for end in ends], -1)
  w = w.reshape(*kernel, taps, size * channels, 2 * features)
  y = dataclasses.replace(window, strides=(*strides, 1), padding=(*rows, (0, 0))).lax(x, w)
  return y.reshape(len(x), *out[:-1], 2 * pairs, features)[..., : out[-1], :]


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
  """That of each phase, interleaved."""
  strides, rank, n, channels = window.strides, len(window.strides), len(x), x.shape[-1]
  places = [-(-size // s) for size, s in zip(x.shape[1:-1], strides, strict=True)]
  parts = [
    jnp.zeros((n, *places, channels), x.dtype) if w[elements].size == 0
    else input_gradient(plain, x, w[elements], dy)
    for _, elements, plain in _phases(window, x, w)
  ]  # fmt: skip
  # (phases..., n, places..., channels) to (n, place, phase, place, phase, ..., channels)
  phased = jnp.stack(parts).reshape(*strides, n, *places, channels)
  interleaved = [axis for d in range(rank) for axis in (rank + 1 + d, d)]
  pixels = phased.transpose(rank, *interleaved, 2 * rank + 1)
  pixels = pixels.reshape(n, *(p * s for p, s in zip(places, strides, strict=True)), channels)
  return pixels[:, *(slice(size) for size in x.shape[1:-1])]


def _phases(window, x, w):
  """A strided convolution as a sum of plain ones, as pixels whose place has the same remainder by the stride see the
  same kernel elements: the slices of pixels and of elements, and the window, for each remainder."""
  for phase in itertools.product(*map(range, window.strides)):
    pixels, elements, padding = [], [], []
    sizes = zip(x.shape[1:-1], window.out_spatial(x, w), w.shape, window.dilation, window.padding, strict=False)
    for p, s, (size, out, k, d, (low, _)) in zip(phase, window.strides, sizes, strict=True):
      # A pixel is first seen from as many places ahead of its own, by that element.
      ahead, first = divmod(p + low, s)
      pixels.append(slice(p, None, s))
      elements.append(slice(first, None, s))
      padding.append((ahead, out + ((k - first - 1) // s) * d - ahead - -(-size // s)))
    yield tuple(pixels), tuple(elements), dataclasses.replace(window, strides=(1,) * len(phase), padding=tuple(padding))


def kernel_gradient(window, x, w, dy):
  """The gradient with respect to the kernel: channels become images, images channels, and `dy` is the kernel."""
  strided = set(window.strides) != {1}
  if window.groups > 1 or (strided and set(window.dilation) != {1}):
    return im2col.kernel_gradient(window, x, w, dy)
  accumulated = jnp.promote_types(x.dtype, jnp.float32)
  ends = [(0, -size % s) for size, s in zip(x.shape[1:-1], window.strides, strict=True)]
  phases = [phase for phase in _phases(window, x, w) if w[phase[1]].size]

  def block(x, dy):
    images = jnp.pad(jnp.moveaxis(jnp.moveaxis(x, -1, 0), 1, -1), ((0, 0), *ends, (0, 0)))
    dy = jnp.moveaxis(dy, 0, -2)
    swapped = dict(strides=window.dilation, dilation=(1,) * len(ends), dtype=accumulated)
    return [dataclasses.replace(plain, **swapped).lax(images[:, *pixels], dy) for pixels, _, plain in phases]

  blocks = im2col.blocks(len(x), GRADIENT_IMAGES)
  blocks = blocks if len(x) // blocks >= GRADIENT_IMAGES // 4 else 1
  parts = im2col.sum_over(blocks, block, x, dy)
  # Each part where its elements are, and zeros elsewhere.
  dw = []
  for part, (_, elements, _) in zip(parts, phases, strict=True):
    edges = zip(elements, w.shape, part.shape[1:], window.strides, strict=False)
    edges = [(e.start, k - e.start - (taps - 1) * s - 1, s - 1) for e, k, taps, s in edges]
    dw.append(jax.lax.pad(jnp.moveaxis(part, 0, -2), jnp.zeros((), part.dtype), [*edges, (0, 0, 0), (0, 0, 0)]))
  return sum(dw).astype(w.dtype)
