"""One network's convolution on a CPU, with gradients that are forward convolutions too.

On CPUs XLA has a fast kernel for the plain forward convolution only. The gradients that
JAX derives from it, reversed or with the batch as channels, run 5 to 160 times slower
(experiments/benchmarks/RESULTS.md). So here the gradients are plain convolutions of
rearranged arrays. Convolutions of many channels are matrix products (`winograd`).
Images are (n, *spatial, in), kernels (*kernel, in per group, out).
"""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp

from vmapseeds.lanes import depthwise, im2col, winograd
from vmapseeds.lanes.xla import OnCPU

# With fewer input channels × output features than this, XLA's kernel has too little to
# do at once.
FEW_PRODUCTS = 256
# With groups, of at most this many channels × features in all, zeros in place of other
# groups cost less than smaller products.
DENSE_PRODUCTS = 64 * 64
# Forms that have operations for each element of the kernel are compiled for at most so
# many, and those that have some for each pixel of a stride for so many.
MOST_ELEMENTS, MOST_PHASES = 49, 16
# A depthwise convolution makes each of a channel's features by itself, for each element:
# at most so many of them.
MOST_SUMS = 256
# From version 0.12 on XLA's own kernels gain on more shapes.
NEW_KERNELS = jax.__version_info__ >= (0, 12)
# With at least this many channels × features, Winograd's form saves more in products
# than its transforms cost.
MANY_PRODUCTS = {"images": 64 * 32, "kernel": 64 * 64 if NEW_KERNELS else 128 * 128}
# Kernel gradients gain while rows of the kernel are this long at most, and not dilated:
# else a row of them has more pixels than the kernel.
GRADIENT_WIDTH = 4 if NEW_KERNELS else 16
# Pairs of pixels with so many features lose for rows so long, with new kernels, and those
# of so many channels if strided.
PAIRED_FEATURES, PAIRED_ROW, PAIRED_CHANNELS = 64, 32, 8
# Most bytes of `dy` in a block of a kernel gradient, so that the rearranged arrays stay
# in cache. Yet a block may have MANY_IMAGES images in any case, or FEW_IMAGES with at
# least MANY_FEATURES features. Numbers of images that are no multiple of TOGETHER may
# take three times as long.
GRADIENT_BYTES = 256 * 1024
MANY_IMAGES = 32
MANY_FEATURES = 32
# For kernel gradients of so many features XLA's kernel takes up to three times as long as
# for a few more: zeros fill them up.
MISSING_FEATURES = range(17, 32) if NEW_KERNELS else range(0)
# In version 0.11 XLA's kernel changed: it is slow for short rows, so rows are joined,
# but not those of arrays of more bytes than this, as joining them costs more than it
# saves.
# Nor are they with kernels wider than this, or dilated ones, or with few features, or
# without as many channels or features, or with fewer features while rows have so many
# pixels.
JOINED_WIDTH, LEAST_JOINED = 16, 16
JOINED_FEATURES, LONG_ROW = 32, 16
JOINED_BYTES, FEW_IMAGES, TOGETHER = (
  (2**22, 10, 2) if jax.__version_info__ >= (0, 11) else (0, 4, 4)
)


def forward(window, x, w):
  """Return the convolution of images and kernel."""
  if window.groups > 1:
    return _apply_to_groups(forward, window, x, w)
  if x.ndim > 4:
    _, images, kernels, flat = _in_two_dimensions(window, x, w)
    y = forward(flat, images(x), kernels(w))
    return y.reshape(len(x), *window.out_spatial(x, w), w.shape[-1])
  if x.shape[-1] * w.shape[-1] < FEW_PRODUCTS:
    if NEW_KERNELS and _pairs_lose(window, x, w):
      return window.lax(x, w)
    if window.dilation[-1] == 1:
      return _pairs(window, x, w)
    if _elements(w) <= MOST_ELEMENTS:
      return im2col.forward(window, x, w)
    return window.lax(x, w)
  return _plain(window, x, w)


def _pairs_lose(window, x, w):
  """Return whether XLA's new kernels take a convolution in less time than pairs do."""
  *_, channels, features = w.shape
  is_long = features >= PAIRED_FEATURES and x.shape[-2] >= PAIRED_ROW
  strided = channels >= PAIRED_CHANNELS and window.strides[-1] > 1
  return is_long or strided or _is_apart(window, w)


def _is_apart(window, w):
  """Return whether the kernel sees each pixel once at most, as it does of patches."""
  return all(k <= s for k, s in zip(w.shape, window.strides, strict=False))


def _in_two_dimensions(window, x, w):
  """Turn a convolution of more dimensions into one of two, as XLA's fast kernel has no
  more: what the kernel's layers see become channels, and the outputs' layers images.
  Return the functions that rearrange outputs, images and kernel, and the plain window.
  """
  layers = w.ndim - 4
  out = window.out_spatial(x, w)[:layers]
  one_pixel = dataclasses.replace(
    window,
    strides=(*window.strides[:layers], 1, 1),
    padding=(*window.padding[:layers], (0, 0), (0, 0)),
    dilation=(*window.dilation[:layers], 1, 1),
  )
  columns = jax.ShapeDtypeStruct((*w.shape[:layers], 1, 1, *w.shape[-2:]), w.dtype)

  def images(x):
    seen = jnp.concatenate(im2col.kernel_views(one_pixel, x, columns), -1)
    return seen.reshape(len(x) * math.prod(out), *seen.shape[-3:])

  def kernels(w):
    w = jnp.moveaxis(w, range(layers), range(2, 2 + layers))
    return w.reshape(*w.shape[:2], -1, w.shape[-1])

  def outputs(y):
    return y.reshape(-1, *y.shape[-3:])

  flat = dataclasses.replace(
    window,
    strides=window.strides[layers:],
    padding=window.padding[layers:],
    dilation=window.dilation[layers:],
  )
  return outputs, images, kernels, flat


def _apply_to_groups(part, window, *args):
  """Apply a part of a convolution whose channels are in groups."""
  *_, channels, features = args[1].shape
  single = dataclasses.replace(window, groups=1)
  many = _elements(args[1]) > MOST_ELEMENTS
  if channels == 1:
    sums = _elements(args[1]) * features // window.groups
    form = OnCPU if many or sums > MOST_SUMS else depthwise
    return getattr(form, part.__name__)(window, *args)
  few = channels * features // window.groups < FEW_PRODUCTS
  if few and window.groups * channels * features <= DENSE_PRODUCTS:
    # All channels at once, with zeros in the kernel.
    x, w, *dy = args
    whole = functools.partial(_whole_kernel, window.groups)
    if _is_array(w):
      return part(single, x, whole(w), *dy)
    dw = part(single, x, jax.eval_shape(whole, w), *dy)
    return jax.linear_transpose(whole, w)(dw)[0]
  if few:
    return getattr(OnCPU if many else im2col, part.__name__)(window, *args)

  def of_one(a):
    return a.reshape(*a.shape[:-1], window.groups, -1)[..., 0, :]

  def group(arrays):
    arrays = iter(arrays)
    return part(
      single,
      *(next(arrays) if _is_array(a) else jax.eval_shape(of_one, a) for a in args),
    )

  # One group after another, as lanes.
  arrays = [
    jnp.moveaxis(a.reshape(*a.shape[:-1], window.groups, -1), -2, 0)
    for a in args
    if _is_array(a)
  ]
  out = jnp.moveaxis(jax.lax.map(group, arrays), 0, -2)
  return jax.lax.collapse(out, out.ndim - 2)


def _elements(w):
  """Return how many elements a kernel has for each pair of channel and feature."""
  return math.prod(w.shape[:-2])


def _whole_kernel(groups, w):
  """Return the kernel of a convolution without groups that is one with groups."""
  *pixels, channels, features = w.shape
  w = w.reshape(*pixels, 1, channels, groups, features // groups)
  same = jnp.eye(groups, dtype=w.dtype)[:, None, :, None]
  return (w * same).reshape(*pixels, groups * channels, features)


def _is_array(a):
  return isinstance(a, jax.Array)


def _plain(window, x, w):
  many = MANY_PRODUCTS["images"]
  if NEW_KERNELS and x.ndim == 3:  # lines, which XLA's new kernels are faster for
    return window.lax(x, w)
  return (
    winograd.forward(window, x, w)
    if winograd.fits(window, x, w, many)
    else _joined(window, x, w)
  )


def _joined(window, x, w):
  """Apply XLA's own convolution. Small images are joined to one, in whose rows every
  image's first pixel comes before every image's second. So neighbours in an image are
  as many pixels apart as there are images, and the kernel is dilated.
  """
  n = len(x)
  out = window.out_spatial(x, w)
  largest = max(x.size, n * math.prod(out) * w.shape[-1]) * x.dtype.itemsize
  if (
    window.strides[-1] > 1
    or {*window.dilation} != {1}
    or w.shape[-3] > JOINED_WIDTH
    or w.shape[-1] < LEAST_JOINED
    or max(w.shape[-2:]) < JOINED_FEATURES
    or (w.shape[-1] < JOINED_FEATURES and x.shape[-2] >= LONG_ROW)
    or not 0 < largest <= JOINED_BYTES
  ):
    return window.lax(x, w)
  *padding, (low, high) = window.padding
  *dilation, apart = window.dilation
  wide = dataclasses.replace(
    window, padding=(*padding, (n * low, n * high)), dilation=(*dilation, n * apart)
  )
  one = jax.lax.collapse(jnp.moveaxis(x, 0, -2), x.ndim - 3, x.ndim - 1)[None]
  return jnp.moveaxis(wide.lax(one, w).reshape(*out, n, w.shape[-1]), -2, 0)


def _pairs(window, x, w):
  """Return the convolution, with each pair of pixels in an output row computed as one
  pixel of twice the features. This gives XLA's kernel more to do at once, which is
  worth the zeros that pad `w`.
  """
  *strides, stride = window.strides
  *rows, (low, _) = window.padding
  *kernel, width, channels, features = w.shape
  out = window.out_spatial(x, w)
  pairs, size = (
    -(-out[-1] // 2),
    2 * stride,
  )  # pairs in an output row, and the input pixels from one to the next
  taps = -(-(stride + width) // size)
  edges = [(low, (pairs + taps - 1) * size - low - x.shape[-2], 0), (0, 0, 0)]
  x = jax.lax.pad(x, jnp.zeros((), x.dtype), [*[(0, 0, 0)] * len(out), *edges])
  x = x.reshape(*x.shape[:-2], pairs + taps - 1, size * channels)
  ends = [(begin, taps * size - width - begin) for begin in (0, stride)]
  w = jnp.concatenate(
    [jnp.pad(w, (*[(0, 0)] * len(kernel), end, (0, 0), (0, 0))) for end in ends], -1
  )
  w = w.reshape(*kernel, taps, size * channels, 2 * features)
  y = _joined(
    dataclasses.replace(window, strides=(*strides, 1), padding=(*rows, (0, 0))), x, w
  )
  return y.reshape(len(x), *out[:-1], 2 * pairs, features)[..., : out[-1], :]


def input_gradient(window, x, w, dy):
  """Return the gradient with respect to the images: a convolution of `dy` with the
  kernel flipped, its channels swapped.
  """
  if window.groups > 1:
    return _apply_to_groups(input_gradient, window, x, w, dy)
  if x.ndim > 4:
    outputs, images, kernels, flat = _in_two_dimensions(window, x, w)
    seen = jax.eval_shape(images, x)
    dx = input_gradient(flat, seen, kernels(w), outputs(dy))
    return jax.linear_transpose(images, x)(dx)[0]
  strided = set(window.strides) != {1}
  if strided and set(window.dilation) != {1}:
    form = im2col if _elements(w) <= MOST_ELEMENTS else OnCPU
    return form.input_gradient(window, x, w, dy)
  phases = math.prod(window.strides)
  own = NEW_KERNELS and _is_apart(window, w)
  if strided and (own or phases > MOST_PHASES):
    return OnCPU.input_gradient(window, x, w, dy)
  if strided:  # each phase's gradient, at the phase's pixels
    return sum(
      _put(
        input_gradient(plain, x, w[elements], dy),
        (slice(None), *pixels, slice(None)),
        x.shape,
      )
      for pixels, elements, plain in _phases(window, x, w)
    )
  extents = [(k - 1) * d for k, d in zip(w.shape, window.dilation, strict=False)]
  padding = tuple(
    (e - low, e - high) for e, (low, high) in zip(extents, window.padding, strict=True)
  )
  return _plain(
    dataclasses.replace(window, padding=padding, dtype=x.dtype), dy, _turned(w)
  )


def _turned(w):
  return jnp.swapaxes(jnp.flip(w, range(w.ndim - 2)), -1, -2)


def _put(part, slices, shape):
  """Return an array of zeros of `shape`, with `part` at `slices`."""
  places = [
    (*s.indices(size), size, k)
    for s, size, k in zip(slices, shape, part.shape, strict=True)
  ]
  edges = [
    (start, size - start - (k - 1) * step - 1, step - 1)
    for start, _, step, size, k in places
  ]
  return jax.lax.pad(part, jnp.zeros((), part.dtype), edges)


def _phases(window, x, w):
  """Split a strided convolution into a sum of plain ones. The pixels of a phase, whose
  indices have the same remainder modulo the stride, meet the same kernel elements.
  Yield, for each phase that meets any, the slices of its pixels and of its kernel
  elements, and the window of the plain convolution.
  """
  for phase in itertools.product(*map(range, window.strides)):
    pixels = []
    elements = []
    padding = []
    sizes = zip(
      x.shape[1:-1],
      window.out_spatial(x, w),
      w.shape,
      window.dilation,
      window.padding,
      strict=False,
    )
    for p, s, (size, out, k, d, (low, _)) in zip(
      phase, window.strides, sizes, strict=True
    ):
      # Kernel element `first` is the lowest that meets the phase. It meets the phase's
      # pixel q for output q + ahead.
      ahead, first = divmod(p + low, s)
      pixels.append(slice(p, None, s))
      elements.append(slice(first, None, s))
      padding.append((ahead, out + ((k - first - 1) // s) * d - ahead - -(-size // s)))
    if w[tuple(elements)].size:
      plain = dataclasses.replace(
        window, strides=(1,) * len(phase), padding=tuple(padding)
      )
      yield tuple(pixels), tuple(elements), plain


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel: a convolution with the batch as
  input channels and `dy` as the kernel.

  The channels of a pixel are laid out as pixels of a longer row, so that output rows
  are long, too. An output row is the gradient of a whole row of the kernel.
  """
  if window.groups > 1:
    return _apply_to_groups(kernel_gradient, window, x, w, dy)
  if x.ndim > 4:
    outputs, images, kernels, flat = _in_two_dimensions(window, x, w)
    like = jax.eval_shape(kernels, w)
    dw = kernel_gradient(flat, images(x), like, outputs(dy))
    return jax.linear_transpose(kernels, w)(dw)[0]
  if winograd.fits(window, x, w, MANY_PRODUCTS["kernel"]):
    return winograd.kernel_gradient(window, x, w, dy)
  if window.dilation[-1] > 1 or w.shape[-3] > GRADIENT_WIDTH:
    return OnCPU.kernel_gradient(window, x, w, dy)
  reach = [(k - 1) * d + 1 for k, d in zip(w.shape, window.dilation, strict=False)]
  turned = tuple(
    (n - 1 - low, n - 1 - high)
    for n, (low, high) in zip(reach, window.padding, strict=True)
  )
  *_, channels, features = w.shape
  if (
    features < channels
    and {*window.strides, *window.dilation} == {1}
    and turned == window.padding
  ):
    # Swap `x` and `dy`, because the fast kernel wants many features. It takes no
    # padding that makes images larger.
    return _turned(kernel_gradient(window, dy, jax.eval_shape(_turned, w), x))
  sizes = zip(
    reach, dy.shape[1:], window.strides, x.shape[1:], window.padding, strict=False
  )
  padding = [
    (low, (out - 1) * s + n - size - low) for n, out, s, size, (low, _) in sizes
  ]
  swapped = dataclasses.replace(
    window,
    strides=(*window.dilation[:-1], 1),
    padding=(*padding[:-1], tuple(channels * n for n in padding[-1])),
    dilation=(*window.strides[:-1], channels * window.strides[-1]),
    dtype=jnp.promote_types(x.dtype, jnp.float32),
  )

  filled = features
  if features in MISSING_FEATURES and channels > 1:
    filled = MISSING_FEATURES.stop

  def block(x, dy):
    images = jnp.moveaxis(jax.lax.collapse(x, x.ndim - 2), 0, -1)[None]
    dy = jnp.moveaxis(dy, 0, -2)
    dy = jnp.pad(dy, [*[(0, 0)] * (dy.ndim - 1), (0, filled - features)])
    return swapped.lax(images, dy)[..., :features]

  least = FEW_IMAGES if filled >= MANY_FEATURES else MANY_IMAGES
  most = max(least, GRADIENT_BYTES * len(dy) // max(1, dy.size * dy.dtype.itemsize))
  together = math.gcd(len(x), TOGETHER)
  whole = len(x) // together
  most = most // together
  blocks = im2col.blocks(whole, most)
  if 2 * (whole // blocks) < most:
    blocks = im2col.blocks(
      whole, 2 * most
    )  # a few images in a block cost more than a block too large
  dw = im2col.sum_blocks(blocks, block, x, dy)
  dw = dw.reshape(*w.shape[: w.ndim - 3], reach[-1], channels, features)
  return dw.astype(w.dtype)
