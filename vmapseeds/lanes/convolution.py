"""The seed-batched convolution: `lax.conv_general_dilated`, fast when every lane has
its own kernel.

`jax.vmap` turns a convolution over kernels into a grouped convolution, and its gradient
into one with `batch_group_count`; XLA runs both slower than one network after another.
Here a convolution whose kernels have a lane axis runs, forwards and backwards, as
batched matrix products over patches (`im2col`), or one lane after another
(`sequential`), each with gradients that are fast on its device.

The derivative rule is the outer one, and each of its parts has a batching rule, because
JAX cannot differentiate `custom_vmap`.
"""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.layout import Layout, with_layout_constraint
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from vmapseeds.lanes import forward, im2col
from vmapseeds.mistakes import one_of
from vmapseeds.target import platform

LOWERINGS = ("im2col", "grouped", "sequential")
_lowering = contextvars.ContextVar[str | None]("lowering", default=None)


@contextlib.contextmanager
def lowering(name: str) -> Iterator[None]:
  """Trace convolutions in this context so that they run their lanes by `name`: matrix
  products over patches (`im2col`, the default except on CPUs), one lane after another
  (`sequential`, the default on CPUs), or XLA's own grouped convolution (`grouped`).
  `lowering(name)(function)` is `function`, always traced in this context.
  """
  one_of("lowering", name, LOWERINGS)
  token = _lowering.set(name)
  try:
    yield
  finally:
    _lowering.reset(token)


@dataclasses.dataclass(frozen=True)
class Window:
  """The static parameters of a convolution of channels-last images."""

  strides: tuple[int, ...]
  padding: tuple[tuple[int, int], ...]
  dilation: tuple[int, ...]
  groups: int
  precision: jax.lax.PrecisionLike
  dtype: DTypeLike | None

  def lax(self, x, w):
    """Apply XLA's own convolution."""
    spatial = "DHW"[-len(self.strides) :]
    return jax.lax.conv_general_dilated(
      x,
      w,
      self.strides,
      self.padding,
      rhs_dilation=self.dilation,
      dimension_numbers=(f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"),
      feature_group_count=self.groups,
      precision=self.precision,
      preferred_element_type=self.dtype,
    )

  def out_spatial(self, x, w) -> tuple[int, ...]:
    """Return the spatial shape of the output."""
    sizes = zip(
      x.shape[1:-1],
      self.padding,
      w.shape[:-2],
      self.dilation,
      self.strides,
      strict=True,
    )
    return tuple(
      (n + low + high - (k - 1) * d - 1) // s + 1 for n, (low, high), k, d, s in sizes
    )


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
  """Convolve as `jax.lax.conv_general_dilated` does. Pass this function to
  `nn.Conv(conv_general_dilated=...)` of Linen or NNX.

  It is fast under `jax.vmap` over kernels for channels-last arrays, which Flax uses:
  images `(batch, *spatial, in)`, kernels `(*kernel, in per group, out)`; with any
  kernel size, stride, padding, kernel dilation and groups. Calls with another layout, input
  dilation, batch groups or explicit output sharding go to `jax.lax` unchanged. It can
  be differentiated once, in reverse mode.
  """
  rank = lhs.ndim - 2
  numbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
  last = (0, rank + 1, *range(1, rank + 1))
  channels_last = numbers == jax.lax.ConvDimensionNumbers(
    last, (rank + 1, rank, *range(rank)), last
  )
  dilated = any(d != 1 for d in lhs_dilation or ())
  sharding = {
    name: value for name, value in explicit_sharding.items() if value is not None
  }
  if not channels_last or dilated or batch_group_count != 1 or sharding:
    return jax.lax.conv_general_dilated(
      lhs,
      rhs,
      window_strides,
      padding,
      lhs_dilation,
      rhs_dilation,
      dimension_numbers,
      feature_group_count,
      batch_group_count,
      precision,
      preferred_element_type,
      **sharding,
    )
  strides = (1,) * rank if window_strides is None else tuple(window_strides)
  dilation = (1,) * rank if rhs_dilation is None else tuple(rhs_dilation)
  if isinstance(padding, str):
    extent = [(k - 1) * d + 1 for k, d in zip(rhs.shape, dilation, strict=False)]
    padding = jax.lax.padtype_to_pads(lhs.shape[1:-1], extent, strides, padding)
  padding = tuple((int(low), int(high)) for low, high in padding)
  window = Window(
    strides, padding, dilation, feature_group_count, precision, preferred_element_type
  )
  return _conv(window, lhs, rhs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _conv(window, x, w):
  return _lanes("forward", window)(x, w)


def _conv_fwd(window, x, w):
  return _conv(window, x, w), (x, w)


def _conv_bwd(window, residuals, dy):
  # The two gradients are separate calls, so that XLA drops the unused input gradient of
  # a first layer.
  return _lanes("input_gradient", window)(*residuals, dy), _lanes(
    "kernel_gradient", window
  )(*residuals, dy)


_conv.defvjp(_conv_fwd, _conv_bwd)


def _lanes(part, window):
  """Return the function of one part: "forward", "input_gradient" or "kernel_gradient".
  Under `vmap` it runs all lanes.
  """
  one = functools.partial(
    getattr(forward, part) if platform() == "cpu" else XLA[part], window
  )

  @custom_vmap
  def call(*args):
    return one(*args)

  @call.def_vmap
  def rule(size, in_batched, *args):
    own_kernels = in_batched[1] or part == "kernel_gradient"
    fastest = "sequential" if platform() == "cpu" else "im2col"  # as far as measured
    chosen = (_lowering.get() or fastest) if own_kernels else "grouped"
    if chosen == "sequential":
      args = [
        a if b else jnp.broadcast_to(a, (size, *a.shape))
        for a, b in zip(args, in_batched, strict=True)
      ]
      if size == 1:
        return one(*(a[0] for a in args))[None], True
      return jax.lax.map(lambda lane: one(*lane), args), True
    batched = functools.partial(
      getattr(im2col, part) if chosen == "im2col" else XLA[part], window
    )
    of_lanes = jax.vmap(batched, in_axes=[0 if b else None for b in in_batched])
    if (part, chosen, platform()) != ("kernel_gradient", "grouped", "gpu"):
      return of_lanes(*args), True
    # Put the lane axis where XLA's convolution has it, so that no operation before or
    # after has to transpose.
    x, w, dy = args
    if in_batched[2]:
      dy = with_layout_constraint(dy, Layout((*range(1, dy.ndim - 1), 0, dy.ndim - 1)))
    dw = of_lanes(x, w, dy)
    dw = with_layout_constraint(
      dw, Layout((dw.ndim - 2, *range(1, dw.ndim - 2), 0, dw.ndim - 1))
    )
    # The barrier is there because JAX misreads a program's output that has a layout of
    # its own.
    return jax.lax.optimization_barrier(dw), True

  return call


# XLA's own convolution and its derivatives by JAX.
XLA: dict[str, Callable[..., jax.Array]] = {
  "forward": Window.lax,
  "input_gradient": lambda window, x, w, dy: jax.vjp(lambda x: window.lax(x, w), x)[1](
    dy
  )[0],
  "kernel_gradient": lambda window, x, w, dy: jax.vjp(lambda w: window.lax(x, w), w)[1](
    dy
  )[0],
}
