"""One network's convolution on a CPU, in the form that takes XLA the least time inside a
loop, where networks train.

There XLA has a fast kernel for forward convolutions of channels-last images alone, so
gradients are forward convolutions of rearranged arrays, too (`OnCPU`). The forms here
give that kernel more to do at once; convolutions of many channels are matrix products
(`winograd`). Each was measured in loops (experiments/benchmarks/RESULTS.md). Images are
(n, *spatial, in), kernels (*kernel, in per group, out).
"""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp

from vmapseeds.convolutions import depthwise, im2col, winograd
from vmapseeds.convolutions.xla import OnCPU, of_kernel_gradient, of_longer_rows, turned

# From version 0.11 on XLA's kernel is slow for short rows, from 0.12 on it is faster for
# long ones.
SHORT_ROWS_ARE_SLOW = jax.__version_info__ >= (0, 11)
LONG_ROWS_ARE_FAST = jax.__version_info__ >= (0, 12)

# With fewer channels × features, XLA's kernel has too little to do at once: it gets pairs
# of pixels, unless there are many features.
FEW_PRODUCTS = 256
PAIRED_FEATURES = 64

# Rows are joined where there are so many features, so many of them or of channels, and
# in arrays of at most so many bytes: else joining them costs more than it saves.
JOINED_FEATURES, JOINED_CHANNELS = 16, 32
JOINED_BYTES = 2**22 if SHORT_ROWS_ARE_SLOW else 0

# With so many channels × features, Winograd's form saves more in products than its
# transforms cost.
MANY_PRODUCTS = {
  "images": 64 * 32,
  "kernel": 64 * 64 if LONG_ROWS_ARE_FAST else 128 * 128,
}

# Strided input gradients are made phase by phase if the kernel has so many elements ×
# channels, as XLA's computes products with the zeros between pixels. Each phase has
# operations to compile.
PHASED_ELEMENTS, MOST_PHASES = 9 * 32, 16

# Kernel gradients as rows gain while the kernel's are this long at most: else a row of
# them has more pixels than the kernel.
GRADIENT_WIDTH = 4 if LONG_ROWS_ARE_FAST else 16
# Most bytes of `dy` in a block of a kernel gradient, so that the rearranged arrays stay
# in cache. Yet a block may have MANY_IMAGES images in any case, or FEW_IMAGES with at
# least MANY_FEATURES features. Numbers of images that are no multiple of TOGETHER may
# take three times as long.
GRADIENT_BYTES = 256 * 1024
MANY_IMAGES = 32
MANY_FEATURES = 32
FEW_IMAGES, TOGETHER = (10, 2) if SHORT_ROWS_ARE_SLOW else (4, 4)

# With groups, of at most this many channels × features in all, zeros in place of other
# groups cost less than smaller products.
DENSE_PRODUCTS = 128 * 128
# A depthwise convolution has a sum to compile for each feature of a channel and each
# element of the kernel.
MOST_SUMS = 256


def forward(window, x, w):
  """Return the convolution of images and kernel."""
  if window.groups > 1:
    return _apply_to_groups(forward, window, x, w)
  if x.ndim > 4:
    flat = _Flat(window, x, w)
    y = forward(flat.window, flat.images(x), flat.kernels(w))
    return y.reshape(len(x), *window.out_spatial(x, w), w.shape[-1])
  *_, channels, features = w.shape
  if channels * features >= FEW_PRODUCTS:
    return _forward_of_many(window, x, w)
  dilated = window.dilation[-1] > 1
  if features >= PAIRED_FEATURES or dilated or _sees_pixels_once(window, w):
    return window.lax(x, w)
  return _pairs(window, x, w)


def input_gradient(window, x, w, dy):
  """Return the gradient with respect to the images: a convolution of `dy` with the
  kernel turned.
  """
  if window.groups > 1:
    return _apply_to_groups(input_gradient, window, x, w, dy)
  if x.ndim > 4:
    flat = _Flat(window, x, w)
    seen = jax.eval_shape(flat.images, x)
    of_seen = input_gradient(flat.window, seen, flat.kernels(w), flat.outputs(dy))
    return jax.linear_transpose(flat.images, x)(of_seen)[0]
  if math.prod(window.strides) == 1:
    mirrored = dataclasses.replace(window.mirrored(w), dtype=x.dtype)
    return _forward_of_many(mirrored, dy, turned(w))
  if has_fast_phases(window, w):
    return sum(gradients_of_phases(input_gradient, window, x, w, dy))
  return OnCPU.input_gradient(window, x, w, dy)


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel."""
  if window.groups > 1:
    return _apply_to_groups(kernel_gradient, window, x, w, dy)
  if x.ndim > 4:
    flat = _Flat(window, x, w)
    like = jax.eval_shape(flat.kernels, w)
    dw = kernel_gradient(flat.window, flat.images(x), like, flat.outputs(dy))
    return jax.linear_transpose(flat.kernels, w)(dw)[0]
  if winograd.fits(window, x, w, MANY_PRODUCTS["kernel"]):
    return winograd.kernel_gradient(window, x, w, dy)
  # Lines have long rows already.
  is_line = x.ndim == 3
  if is_line or window.dilation[-1] > 1 or w.shape[-3] > GRADIENT_WIDTH:
    return OnCPU.kernel_gradient(window, x, w, dy)
  *_, channels, features = w.shape
  is_plain = math.prod((*window.strides, *window.dilation)) == 1
  # The fast kernel takes no padding that makes images larger.
  keeps_sizes = window.mirrored(w).padding == window.padding
  if features < channels and is_plain and keeps_sizes:
    # Swap `x` and `dy`, because the fast kernel wants many features.
    return turned(kernel_gradient(window, dy, jax.eval_shape(turned, w), x))
  return _kernel_gradient_by_rows(window, x, w, dy)


def _forward_of_many(window, x, w):
  """Return a convolution of many channels × features."""
  if winograd.fits(window, x, w, MANY_PRODUCTS["images"]):
    return winograd.forward(window, x, w)
  return _joined(window, x, w)


def _sees_pixels_once(window, w):
  """Return whether the kernel sees each pixel once at most, as it does of patches."""
  return all(k <= s for k, s in zip(w.shape, window.strides, strict=False))


# Forms of forward convolutions


def _joined(window, x, w):
  """Apply XLA's own convolution. Small images are joined to one, in whose rows every
  image's first pixel comes before every image's second. So neighbours in an image are
  as many pixels apart as there are images, and the kernel is dilated.
  """
  images = len(x)
  *_, width, channels, features = w.shape
  out = window.out_spatial(x, w)
  largest = x.dtype.itemsize * max(x.size, images * math.prod(out) * features)
  if (
    x.ndim == 3
    or width == 1
    or window.strides[-1] > 1
    or math.prod(window.dilation) > 1
    or features < JOINED_FEATURES
    or max(channels, features) < JOINED_CHANNELS
    or not 0 < largest <= JOINED_BYTES
  ):
    return window.lax(x, w)
  *padding, (low, high) = window.padding
  *dilation, _ = window.dilation
  wide = dataclasses.replace(
    window,
    padding=(*padding, (images * low, images * high)),
    dilation=(*dilation, images),
  )
  joined = jax.lax.collapse(jnp.moveaxis(x, 0, -2), x.ndim - 3, x.ndim - 1)
  y = wide.lax(joined[None], w).reshape(*out, images, features)
  return jnp.moveaxis(y, -2, 0)


def _pairs(window, x, w):
  """Return the convolution, with each pair of pixels in an output row computed as one
  pixel of twice the features. This gives XLA's kernel more to do at once, which is
  worth the zeros that pad `w`.
  """
  *strides, stride = window.strides
  *rows, (low, _) = window.padding
  *kernel, width, channels, features = w.shape
  out = window.out_spatial(x, w)
  pairs = -(-out[-1] // 2)
  # Input pixels from a pair to the next become one pixel; the kernel sees `taps` of them.
  size = 2 * stride
  taps = -(-(stride + width) // size)

  high = (pairs + taps - 1) * size - low - x.shape[-2]
  edges = [(0, 0, 0)] * len(out) + [(low, high, 0), (0, 0, 0)]
  x = jax.lax.pad(x, jnp.zeros((), x.dtype), edges)
  x = x.reshape(*x.shape[:-2], pairs + taps - 1, size * channels)

  of_pixels = []
  for begin in (0, stride):
    ends = begin, taps * size - width - begin
    edges = [(0, 0)] * len(kernel) + [ends, (0, 0), (0, 0)]
    of_pixels.append(jnp.pad(w, edges))
  w = jnp.concatenate(of_pixels, -1)
  w = w.reshape(*kernel, taps, size * channels, 2 * features)

  of_pairs = dataclasses.replace(window, strides=(*strides, 1), padding=(*rows, (0, 0)))
  y = _joined(of_pairs, x, w)
  return y.reshape(len(x), *out[:-1], 2 * pairs, features)[..., : out[-1], :]


class _Flat:
  """A convolution of more than two dimensions as one of two, as XLA's fast kernel has no
  more: what the kernel's layers see become channels, and the outputs' layers images.
  """

  def __init__(self, window, x, w):
    self.layers = layers = w.ndim - 4
    self.out_layers = window.out_spatial(x, w)[:layers]
    self.window = dataclasses.replace(
      window,
      strides=window.strides[layers:],
      padding=window.padding[layers:],
      dilation=window.dilation[layers:],
    )
    self._of_a_pixel = dataclasses.replace(
      window,
      strides=(*window.strides[:layers], 1, 1),
      padding=(*window.padding[:layers], (0, 0), (0, 0)),
      dilation=(*window.dilation[:layers], 1, 1),
    )
    self._columns = jax.ShapeDtypeStruct(
      (*w.shape[:layers], 1, 1, *w.shape[-2:]), w.dtype
    )

  def images(self, x):
    seen = jnp.concatenate(im2col.kernel_views(self._of_a_pixel, x, self._columns), -1)
    return seen.reshape(len(x) * math.prod(self.out_layers), *seen.shape[-3:])

  def kernels(self, w):
    w = jnp.moveaxis(w, range(self.layers), range(2, 2 + self.layers))
    return w.reshape(*w.shape[:2], -1, w.shape[-1])

  def outputs(self, y):
    return y.reshape(-1, *y.shape[-3:])


# Strided input gradients


def has_fast_phases(window, w) -> bool:
  """Return whether the input gradient of a strided convolution is made phase by phase."""
  elements = math.prod(w.shape[:-1])
  return (
    math.prod((window.groups, *window.dilation)) == 1
    and 1 < math.prod(window.strides) <= MOST_PHASES
    and elements >= PHASED_ELEMENTS
    and not _sees_pixels_once(window, w)
  )


def gradients_of_phases(of_phase, window, x, w, dy):
  """Yield the input gradient of each phase of a strided convolution: of the pixels whose
  indices have the same remainder modulo the stride, with zeros elsewhere.

  They meet the same kernel elements, so that each phase is a convolution without
  strides, whose input gradient `of_phase` computes.
  """
  for phase in itertools.product(*map(range, window.strides)):
    pixels, elements, padding = _phase(phase, window, x, w)
    if w[elements].size:
      plain = dataclasses.replace(window, strides=(1,) * len(phase), padding=padding)
      # Of the pixels' shape alone: the gradient does not need what they hold.
      part = of_phase(plain, x, w[elements], dy)
      yield _spread_out(part, pixels, x.shape)


def _phase(phase, window, x, w):
  """Return slices of a phase's pixels and of its kernel elements, and the padding of the
  convolution of both.
  """
  pixels, elements, padding = [], [], []
  sizes = zip(x.shape[1:-1], window.out_spatial(x, w), w.shape[:-2], strict=True)
  moves = zip(phase, window.strides, window.padding, strict=True)
  for (first_pixel, stride, (low, _)), (size, out, k) in zip(moves, sizes, strict=True):
    # The lowest kernel element that meets the phase meets its pixel q for output
    # q + ahead.
    ahead, lowest = divmod(first_pixel + low, stride)
    reach = (k - lowest - 1) // stride
    count = -(-size // stride)
    pixels.append(slice(first_pixel, None, stride))
    elements.append(slice(lowest, None, stride))
    padding.append((ahead, out + reach - ahead - count))
  return tuple(pixels), tuple(elements), tuple(padding)


def _spread_out(part, pixels, shape):
  """Return an array of zeros of `shape`, with `part` at the slices `pixels`."""
  edges = [(0, 0, 0)]
  for places, size, count in zip(pixels, shape[1:-1], part.shape[1:-1], strict=True):
    end = places.start + (count - 1) * places.step + 1
    edges.append((places.start, size - end, places.step - 1))
  return jax.lax.pad(part, jnp.zeros((), part.dtype), [*edges, (0, 0, 0)])


# Kernel gradients


def _kernel_gradient_by_rows(window, x, w, dy):
  """Return the kernel gradient as a convolution with the batch as input channels and
  `dy` as the kernel.

  The channels of a pixel are laid out as pixels of a longer row, so that output rows
  are long, too. An output row is the gradient of a whole row of the kernel.
  """
  *kernel, width, channels, features = w.shape
  rows = of_longer_rows(of_kernel_gradient(window, x, w, dy), channels)
  rows = dataclasses.replace(rows, dtype=jnp.promote_types(x.dtype, jnp.float32))

  def block(x, dy):
    longer_rows = jax.lax.collapse(x, x.ndim - 2)
    images = jnp.moveaxis(longer_rows, 0, -1)[None]
    return rows.lax(images, jnp.moveaxis(dy, 0, -2))

  dw = im2col.sum_blocks(_blocks_of_images(dy), block, x, dy)
  return dw.reshape(*kernel, width, channels, features).astype(w.dtype)


def _blocks_of_images(dy):
  """Return how many blocks of images a kernel gradient by rows is made in."""
  images, features = len(dy), dy.shape[-1]
  image_bytes = max(1, dy.size * dy.dtype.itemsize // max(1, images))
  least = FEW_IMAGES if features >= MANY_FEATURES else MANY_IMAGES
  together = math.gcd(images, TOGETHER)
  whole = images // together
  most = max(least, GRADIENT_BYTES // image_bytes) // together
  blocks = im2col.blocks(whole, most)
  if 2 * (whole // blocks) < most:
    # A few images in a block cost more than a block too large.
    return im2col.blocks(whole, 2 * most)
  return blocks


# Groups


def _apply_to_groups(part, window, *args):
  """Apply a part of a convolution whose channels are in groups."""
  *elements, channels, features = args[1].shape
  features_of_group = features // window.groups
  if channels == 1:
    sums = math.prod(elements) * features_of_group
    form = depthwise if sums <= MOST_SUMS else OnCPU
    return getattr(form, part.__name__)(window, *args)
  single = dataclasses.replace(window, groups=1)
  has_few = channels * features_of_group < FEW_PRODUCTS
  if has_few and window.groups * channels * features <= DENSE_PRODUCTS:
    return _apply_to_whole_kernel(part, single, window.groups, *args)
  return _apply_group_by_group(part, single, window.groups, *args)


def _apply_to_whole_kernel(part, window, groups, x, w, *dy):
  """Apply a part to all groups at once, with zeros in the kernel."""
  whole = functools.partial(_whole_kernel, groups)
  if _is_array(w):
    return part(window, x, whole(w), *dy)
  dw = part(window, x, jax.eval_shape(whole, w), *dy)
  return jax.linear_transpose(whole, w)(dw)[0]


def _whole_kernel(groups, w):
  """Return the kernel of a convolution without groups that is one with groups."""
  *pixels, channels, features = w.shape
  w = w.reshape(*pixels, 1, channels, groups, features // groups)
  same = jnp.eye(groups, dtype=w.dtype)[:, None, :, None]
  return (w * same).reshape(*pixels, groups * channels, features)


def _apply_group_by_group(part, window, groups, *args):
  """Apply a part to one group after another, as lanes."""

  def by_group(a):
    # The kernel has the channels of one group, and the features of all.
    return a.reshape(*a.shape[:-1], groups, -1)

  def of_one_group(a):
    return by_group(a)[..., 0, :]

  def apply(arrays_of_group):
    given = iter(arrays_of_group)
    one_group = []
    for a in args:
      if _is_array(a):
        one_group.append(next(given))
      else:
        # What the part computes has a shape alone.
        one_group.append(jax.eval_shape(of_one_group, a))
    return part(window, *one_group)

  arrays = [jnp.moveaxis(by_group(a), -2, 0) for a in args if _is_array(a)]
  out = jnp.moveaxis(jax.lax.map(apply, arrays), 0, -2)
  return jax.lax.collapse(out, out.ndim - 2)


def _is_array(a):
  return isinstance(a, jax.Array)
