"""The seed-batched convolution: `lax.conv_general_dilated`, fast when every lane has its own kernel.

`jax.vmap` turns a convolution over kernels into a grouped convolution, and its gradient into one with
`batch_group_count`; XLA runs both slower than one network after another. Here a convolution whose kernels have a lane
axis becomes a batched matrix product over patches (im2col), forwards and backwards. Patches are made block by block,
a few images at a time, so that they stay in cache, and are made again in the backward pass rather than kept.

The derivative rules stand outside and the batching rule inside each of them, because `custom_vmap` has no derivative.
"""

import contextlib
import contextvars
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from vmapseeds.errors import one_of

LOWERINGS = ("im2col", "grouped", "sequential")
_lowering = contextvars.ContextVar("lowering", default="im2col")

# Patches of one block: on a CPU what a core's second-level cache holds; elsewhere enough for a large product.
BLOCK_BYTES = {"cpu": 512 * 1024}
LARGE_BLOCK_BYTES = 256 * 1024 * 1024


@contextlib.contextmanager
def lowering(name: str) -> Iterator[None]:
  """Convolutions traced inside run their lanes by `name`: matrix products over patches (`im2col`, the default), XLA's
  own grouped convolution (`grouped`), or one lane after another (`sequential`)."""
  one_of("lowering", name, LOWERINGS)
  token = _lowering.set(name)
  try:
    yield
  finally:
    _lowering.reset(token)


@dataclasses.dataclass(frozen=True)
class _Window:
  """The static part of a convolution of channels-last images."""

  strides: tuple[int, ...]
  padding: tuple[tuple[int, int], ...]
  dilation: tuple[int, ...]
  groups: int
  precision: object
  dtype: object

  def lax(self, x, w):
    """XLA's own convolution."""
    spatial = "DHW"[-len(self.strides) :]
    return jax.lax.conv_general_dilated(
      x, w, self.strides, self.padding,
      rhs_dilation=self.dilation,
      dimension_numbers=(f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"),
      feature_group_count=self.groups,
      precision=self.precision,
      preferred_element_type=self.dtype,
    )  # fmt: skip


def conv_general_dilated(
  lhs: Float[Array, "..."],
  rhs: Float[Array, "..."],
  window_strides,
  padding,
  lhs_dilation=None,
  rhs_dilation=None,
  dimension_numbers=None,
  feature_group_count: int = 1,
  batch_group_count: int = 1,
  precision=None,
  preferred_element_type=None,
  **explicit_sharding,
) -> Float[Array, "..."]:
  """`jax.lax.conv_general_dilated`, to be given to `nn.Conv(conv_general_dilated=...)` of Linen or NNX.

  Channels-last convolutions, as Flax calls them: images (batch, *spatial, in), kernels (*kernel, in per group, out).
  Those of any kernel size, stride, padding, kernel dilation and groups are fast under `jax.vmap` over kernels. Any
  other layout, input dilation, batch group or explicit output sharding goes to `jax.lax` as it is.
  """
  rank = lhs.ndim - 2
  numbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
  last = (0, rank + 1, *range(1, rank + 1))
  channels_last = numbers == jax.lax.ConvDimensionNumbers(last, (rank + 1, rank, *range(rank)), last)
  dilated = any(d != 1 for d in lhs_dilation or ())
  sharding = {name: value for name, value in explicit_sharding.items() if value is not None}
  if not channels_last or dilated or batch_group_count != 1 or sharding:
    return jax.lax.conv_general_dilated(
      lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
      feature_group_count, batch_group_count, precision, preferred_element_type, **sharding,
    )  # fmt: skip
  strides = (1,) * rank if window_strides is None else tuple(window_strides)
  dilation = (1,) * rank if rhs_dilation is None else tuple(rhs_dilation)
  if isinstance(padding, str):
    extent = [(k - 1) * d + 1 for k, d in zip(rhs.shape, dilation, strict=False)]
    padding = jax.lax.padtype_to_pads(lhs.shape[1:-1], extent, strides, padding)
  padding = tuple((int(low), int(high)) for low, high in padding)
  window = _Window(strides, padding, dilation, feature_group_count, precision, preferred_element_type)
  return _conv(window, lhs, rhs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _conv(window, x, w):
  return _lanes(_forward, lambda c, x, w: c.lax(x, w), window)(x, w)


def _conv_fwd(window, x, w):
  return _conv(window, x, w), (x, w)


def _conv_bwd(window, residuals, dy):
  x, w = residuals
  # Each gradient on its own, so that XLA drops the input gradient of a first layer.
  dx = _lanes(_input_gradient, lambda c, x, w, dy: jax.vjp(lambda x: c.lax(x, w), x)[1](dy)[0], window)(x, w, dy)
  dw = _lanes(_kernel_gradient, lambda c, x, w, dy: jax.vjp(lambda w: c.lax(x, w), w)[1](dy)[0], window)(x, w, dy)
  return dx, dw


_conv.defvjp(_conv_fwd, _conv_bwd)


def _lanes(batched, single, window):
  """`single` for one network; under `vmap` over kernels or their gradients, `batched` for each lane."""

  @custom_vmap
  def call(*args):
    return single(window, *args)

  @call.def_vmap
  def rule(size, in_batched, *args):
    own_kernels = in_batched[1] or batched is _kernel_gradient
    chosen = _lowering.get() if own_kernels else "grouped"
    if chosen == "sequential":
      args = [a if b else jnp.broadcast_to(a, (size, *a.shape)) for a, b in zip(args, in_batched, strict=True)]
      return jax.lax.map(lambda lane: single(window, *lane), args), True
    one_lane = functools.partial(batched if chosen == "im2col" else single, window)
    return jax.vmap(one_lane, in_axes=[0 if b else None for b in in_batched])(*args), True

  return call


# One lane by im2col. Under `vmap` every product below becomes a batched matrix product.


def _offsets(w, window):
  """Where each kernel element looks, in pixels, in the order of the kernel's rows."""
  return [
    [i * d for i, d in zip(index, window.dilation, strict=True)]
    for index in itertools.product(*(range(k) for k in w.shape[:-2]))
  ]


def _views(x_shape, w, window, out_spatial):
  """The (starts, limits, strides) of the slice of the padded images that each kernel element sees."""
  for offset in _offsets(w, window):
    starts = (0, *offset, 0)
    limits = [o + (n - 1) * s + 1 for o, n, s in zip(offset, out_spatial, window.strides, strict=True)]
    yield starts, (x_shape[0], *limits, x_shape[-1]), (1, *window.strides, 1)


def _out_spatial(x, w, window):
  return tuple(
    (n + low + high - (k - 1) * d - 1) // s + 1
    for n, (low, high), k, d, s in zip(
      x.shape[1:-1], window.padding, w.shape[:-2], window.dilation, window.strides, strict=True
    )
  )


def _padding(window):
  return [(0, 0, 0), *((low, high, 0) for low, high in window.padding), (0, 0, 0)]


def _patches(x, w, window):
  """Images (n, ..., in) as patches (n, pixels, groups, kernel · in per group)."""
  out_spatial = _out_spatial(x, w, window)
  x = jax.lax.pad(x, jnp.zeros((), x.dtype), _padding(window))
  views = [jax.lax.slice(x, *view) for view in _views(x.shape, w, window, out_spatial)]
  views = [v.reshape(len(x), math.prod(out_spatial), window.groups, -1) for v in views]
  return jnp.concatenate(views, axis=-1)


def _matrix(w, window):
  """A kernel as (kernel · in per group, groups, out per group)."""
  return w.reshape(-1, window.groups, w.shape[-1] // window.groups)


def _blocks(x, w, window):
  """How many blocks of images: the fewest that divide the batch and keep a block's patches in cache."""
  a_image = math.prod(_out_spatial(x, w, window)) * math.prod(w.shape[:-1]) * window.groups * x.dtype.itemsize
  images = max(1, BLOCK_BYTES.get(jax.default_backend(), LARGE_BLOCK_BYTES) // max(1, a_image))
  return next(b for b in range(1, len(x) + 1) if len(x) % b == 0 and len(x) // b <= images) if len(x) else 1


def _split(a, blocks):
  return a.reshape(blocks, -1, *a.shape[1:])


def _product(equation, a, b, window):
  return jnp.einsum(equation, a, b, precision=window.precision, preferred_element_type=jnp.float32)


def _forward(window, x, w):
  out_spatial, matrix = _out_spatial(x, w, window), _matrix(w, window)

  def block(x):
    y = _product("npgk,kgo->npgo", _patches(x, w, window), matrix, window)
    return y.reshape(len(x), *out_spatial, w.shape[-1]).astype(window.dtype or x.dtype)

  blocks = _blocks(x, w, window)
  if blocks == 1:
    return block(x)
  y = jax.lax.map(block, _split(x, blocks))
  return y.reshape(len(x), *y.shape[2:])


def _kernel_gradient(window, x, w, dy):
  def block(x, dy):
    dy = dy.reshape(len(dy), -1, window.groups, w.shape[-1] // window.groups)
    return _product("npgk,npgo->kgo", _patches(x, w, window), dy, window)

  blocks = _blocks(x, w, window)
  if blocks == 1:
    total = block(x, dy)
  else:
    zeros = jnp.zeros(_matrix(w, window).shape, jnp.float32)
    parts = (_split(x, blocks), _split(dy, blocks))
    total, _ = jax.lax.scan(lambda sum, part: (sum + block(*part), None), zeros, parts)
  return total.reshape(w.shape).astype(w.dtype)


def _input_gradient(window, x, w, dy):
  matrix, out_spatial = _matrix(w, window), _out_spatial(x, w, window)
  padded = tuple(n + low + high for n, (low, high) in zip(x.shape[1:-1], window.padding, strict=True))

  def block(dy):
    rows = dy.reshape(len(dy), -1, window.groups, w.shape[-1] // window.groups)
    patches = _product("npgo,kgo->npgk", rows, matrix, window).astype(x.dtype)
    views = jnp.split(patches, math.prod(w.shape[:-2]), axis=-1)
    dx = jnp.zeros((len(dy), *padded, x.shape[-1]), x.dtype)
    # Add each view back where it was sliced from: the transpose of `_patches`.
    for view, (starts, limits, strides) in zip(views, _views(dx.shape, w, window, out_spatial), strict=True):
      view = view.reshape(len(dy), *out_spatial, x.shape[-1])
      edges = zip(starts, limits, strides, dx.shape, strict=True)
      dx += jax.lax.pad(view, jnp.zeros((), x.dtype), [(a, n - b, s - 1) for a, b, s, n in edges])
    return jax.lax.pad(dx, jnp.zeros((), x.dtype), [(-low, -high, 0) for low, high, _ in _padding(window)])

  blocks = _blocks(x, w, window)
  if blocks == 1:
    return block(dy)
  return jax.lax.map(block, _split(dy, blocks)).reshape(x.shape)
