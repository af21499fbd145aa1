"""One lane's convolutions on a CPU with matrix units, which multiply bfloat16 several times
as fast as float32, and sum in float32.

XLA reaches these units by matrix products alone, if sums are float32 and the left
matrix has its contraction last. For a convolution images are joined to one long row of
pixels, with zeros between them: an element of the kernel then sees this row, shifted.
One product multiplies all pixels by all elements, and its parts are added, shifted. For
the kernel gradient the row is turned, by a product with ones, which is exact and faster
than XLA's transpose. Images are (n, *spatial, in), kernels (*kernel, in, out), numbers
of bfloat16 kept in float32.

Numbers are moved by their bits, because XLA for CPUs converts bfloat16 for that.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from vmapseeds import machine
from vmapseeds.lanes import im2col

# The units save more than larger arrays cost with at least so many numbers summed for an
# output (or as many as are made, as XLA's own kernel wants many), so many made at each
# pixel, so many channels × features of a kernel gradient, and so many pixels in a batch.
SUMMED, MADE, PRODUCTS, PIXELS = 32, 16, 32 * 32, 512
# Bytes of a block's products and of its turned images: they stay in a core's L2 cache.
PRODUCT_BYTES, TURNED_BYTES = 2**20, 384 * 1024

# What sums in float32 in any case
TYPES = jnp.bfloat16, jnp.float16
# The precision of a convolution whose factors are numbers of bfloat16, kept in float32
BFLOAT16 = jax.lax.DotAlgorithmPreset.BF16_BF16_F32
barrier = jax.lax.optimization_barrier


@functools.cache
def has_units() -> bool:
  """Return whether the processor has matrix units that XLA uses."""
  return "amx_bf16" in machine.instruction_set() and jax.__version_info__ >= (0, 10)


def fits(part, window, x, w, times=1) -> bool:
  """Return whether a part of a convolution is faster in this form.
  `times`: how many times as many products a kernel gradient then needs.
  """
  *kernel, channels, features = w.shape
  if part == "kernel_gradient":
    many = min(channels, features) >= MADE and channels * features >= times * PRODUCTS
  else:
    summed, made = (channels, features) if part == "forward" else (features, channels)
    many = summed >= min(SUMMED, made) and made >= MADE
  return (
    many
    and has_units()
    and {*window.strides, *window.dilation, window.groups} == {1}
    and all(
      0 <= min(ends) <= max(ends) < k
      for k, ends in zip(kernel, window.padding, strict=True)
    )
    and len(x) * math.prod(window.out_spatial(x, w)) >= PIXELS
  )


def _itself(x):
  return x


def forward(window, x, w, images=_itself):
  """Return the convolution of `images(x)` and kernel, in float32."""
  *_, channels, features = w.shape
  seen = jax.eval_shape(images, x)
  out = window.out_spatial(seen, w)
  row = _row(window, seen, w)
  matrix = barrier(_bits(jnp.moveaxis(w, -2, 0).reshape(channels, -1)))

  def block(x):
    pixels = len(x) * math.prod(row.sizes)
    products = barrier(_product(row.of(images(x)), matrix))
    y = sum(
      products[shift : shift + pixels, i * features : (i + 1) * features]
      for i, shift in enumerate(row.shifts)
    )
    y = y.reshape(len(x), *row.sizes, features)
    return y[:, *map(slice, out)]

  an_image = math.prod(row.sizes) * len(row.shifts) * features * 4
  blocks = im2col.blocks(len(x), PRODUCT_BYTES // an_image)
  return im2col.in_turn(blocks, block, barrier(_bits(x)))


def input_gradient(window, x, w, dy):
  """Return the gradient with respect to the images, given that of the output: a
  convolution of `dy` with the kernel turned, its channels swapped.
  """
  padding = tuple(
    (k - 1 - low, k - 1 - high)
    for k, (low, high) in zip(w.shape, window.padding, strict=False)
  )
  w = jnp.swapaxes(jnp.flip(w, range(w.ndim - 2)), -1, -2)
  return forward(dataclasses.replace(window, padding=padding), dy, w)


def kernel_gradient(window, x, w, dy, images=_itself):
  """Return the gradient with respect to the kernel of `images(x)`, given that of the
  output.
  """
  *_, width, channels, _ = w.shape
  row = _row(window, jax.eval_shape(images, x), w)
  ones = _bits(jnp.eye(channels))

  # Shifting `dy` back moves less than shifting what the kernel sees.
  rows = row.shifts[::width]

  def block(x, dy):
    turned = _product(ones, row.of(images(x)), last=1)
    turned = barrier((_words(turned) >> 16).astype(jnp.uint16))  # exact
    length = turned.shape[1] - width + 1
    # What the elements of a row of the kernel see.
    seen = jnp.zeros((width * channels, length), turned.dtype)
    for i in range(width):
      part = turned[:, i : i + length]
      seen = barrier(jax.lax.dynamic_update_slice(seen, part, (i * channels, 0)))
    gradients = barrier(jnp.pad(row.joined(dy), [(rows[-1], rows[-1]), (0, 0)]))
    return jnp.stack(
      [
        _product(seen, barrier(gradients[rows[-1] - shift :][:length]))
        for shift in rows
      ]
    )

  an_image = math.prod(row.sizes) * width * channels * 2
  blocks = im2col.blocks(len(x), TURNED_BYTES // an_image)
  x, dy = barrier((_bits(x), _bits(dy)))
  return im2col.sum_over(blocks, block, x, dy).reshape(w.shape)


@dataclasses.dataclass(frozen=True)
class _Row:
  """Images joined to one row of pixels."""

  sizes: tuple[int, ...]  # of an image with the zeros after its pixels
  shifts: list[int]  # from the row of what the first element of the kernel sees
  ends: tuple[int, int]  # zeros before and after

  def joined(self, x):
    """Join images, without zeros at the ends."""
    edges = [(0, size - n) for size, n in zip(self.sizes, x.shape[1:], strict=False)]
    return jnp.pad(x, [(0, 0), *edges, (0, 0)]).reshape(-1, x.shape[-1])

  def of(self, x):
    """Join images."""
    return barrier(jnp.pad(self.joined(x), [self.ends, (0, 0)]))


def _row(window, x, w):
  sizes = tuple(
    n + max(ends) for n, ends in zip(x.shape[1:], window.padding, strict=False)
  )
  steps = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
  shifts = [int(np.dot(element, steps)) for element in np.ndindex(w.shape[:-2])]
  before = int(np.dot([low for low, _ in window.padding], steps))
  return _Row(sizes, shifts, (before, shifts[-1] - before))


def _bits(a):
  """Return the bits of numbers of bfloat16 that are kept in float32, in a quarter of the
  time that XLA for CPUs takes to convert them.
  """
  return (_words(a) >> 16).astype(jnp.uint16)


def _words(a):
  return jax.lax.bitcast_convert_type(a, jnp.uint32)


def _numbers(bits):
  return jax.lax.bitcast_convert_type(bits, jnp.bfloat16)


def _product(a, b, last=0):
  """Multiply matrices of bits; `last` is 1 if `b` has its contraction last, too."""
  return jax.lax.dot_general(
    _numbers(a),
    _numbers(b),
    (((1,), (last,)), ((), ())),
    preferred_element_type=jnp.float32,
  )
