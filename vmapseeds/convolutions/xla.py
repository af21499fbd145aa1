"""XLA's own convolution of channels-last images, and its derivatives by JAX."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike


@dataclasses.dataclass(frozen=True)
class Window:
  """The static parameters of a convolution of channels-last images."""

  strides: tuple[int, ...]
  padding: tuple[tuple[int, int], ...]
  dilation: tuple[int, ...]
  groups: int
  precision: jax.lax.PrecisionLike
  dtype: DTypeLike | None = None

  def lax(self, x, w, apart=None):
    """Apply XLA's own convolution, to images whose pixels are moved `apart` if given."""
    spatial = "DHW"[-len(self.strides) :]
    return jax.lax.conv_general_dilated(
      x,
      w,
      self.strides,
      self.padding,
      lhs_dilation=apart,
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

  def mirrored(self, w) -> "Window":
    """Return the window of the convolution of `dy` with `turned(w)` that gives the
    images' gradient, where strides are 1.
    """
    padding = []
    for k, dilation, (low, high) in zip(
      w.shape[:-2], self.dilation, self.padding, strict=True
    ):
      reach = (k - 1) * dilation
      padding.append((reach - low, reach - high))
    return dataclasses.replace(self, padding=tuple(padding))


def turned(w):
  """Return a kernel with its pixels reversed, and channels and features swapped."""
  return jnp.swapaxes(jnp.flip(w, range(w.ndim - 2)), -1, -2)


class XLA:
  """The three parts of a convolution as XLA has them."""

  forward: Callable[..., jax.Array] = staticmethod(Window.lax)

  @staticmethod
  def input_gradient(window, x, w, dy):
    """Return the gradient with respect to the images, given that of the output."""
    return jax.linear_transpose(lambda x: window.lax(x, w), x)(dy)[0]

  @staticmethod
  def kernel_gradient(window, x, w, dy):
    """Return the gradient with respect to the kernel, given that of the output."""
    return jax.linear_transpose(lambda w: window.lax(x, w), w)(dy)[0]

  @staticmethod
  def kernel_gradients(axis, window, x, w, dy):
    """Return the kernel gradients of lanes: the transpose of one grouped convolution.

    XLA makes cuDNN's filter gradient of it. Of the lanes' transposes under `vmap` it
    makes a forward convolution whose windows are as large as the images.

    Args:
      axis: the lane axis of the images; None if all lanes share them.
      window: how each lane's kernel moves over its images.
      x, w, dy: images, the shape of the kernels, and the gradients of the outputs, the
        last two with a leading lane axis.
    """
    of_lanes = jax.vmap(window.lax, (axis, 0))
    return jax.linear_transpose(lambda w: of_lanes(x, w), w)(dy)[0]


class OnCPU:
  """The three parts of a convolution as XLA has them, each a forward convolution of
  channels-last images.

  Inside a loop, XLA for CPUs has a fast kernel for that order of dimensions alone. The
  derivatives by JAX have other orders, and take 5 to 400 times as long there, though not
  outside of loops.
  """

  forward: Callable[..., jax.Array] = staticmethod(Window.lax)

  @staticmethod
  def input_gradient(window, x, w, dy):
    """Return the gradient with respect to the images, given that of the output: the
    convolution of `dy`, its pixels a stride apart, with the kernel flipped.
    """
    *kernel, channels, features = w.shape
    kernel_axes = range(len(kernel))
    by_group = (*kernel, channels, window.groups, features // window.groups)
    flipped = jnp.swapaxes(jnp.flip(w, kernel_axes).reshape(by_group), -1, -3)
    flipped = flipped.reshape(*kernel, -1, window.groups * channels)
    padding = []
    for size, low, reach, spread_out in _extents(window, x, w, dy):
      padding.append((reach - low, size + low - spread_out))
    plain = dataclasses.replace(
      window, strides=(1,) * len(kernel), padding=tuple(padding)
    )
    return plain.lax(dy, flipped, window.strides)

  @staticmethod
  def kernel_gradient(window, x, w, dy):
    """Return the gradient with respect to the kernel, given that of the output: the
    convolution of images whose channels are the batch, with `dy` as the kernel.
    """
    channels = w.shape[-2]
    images = x.reshape(*x.shape[:-1], window.groups, channels)
    # The batch of each group becomes its channels.
    images = jnp.moveaxis(images, (-1, -2, 0), (0, -2, -1))
    images = images.reshape(*images.shape[:-2], window.groups * len(x))
    window = of_kernel_gradient(window, x, w, dy)
    gradient = window.lax(images, jnp.moveaxis(dy, 0, -2))
    return jnp.moveaxis(gradient, 0, -2)


def of_kernel_gradient(window, x, w, dy):
  """Return the window of the convolution that is the kernel gradient: of images whose
  channels are the examples, with `dy` as the kernel.
  """
  padding = []
  for size, low, reach, spread_out in _extents(window, x, w, dy):
    padding.append((low, reach + spread_out - size - low))
  return dataclasses.replace(
    window, strides=window.dilation, dilation=window.strides, padding=tuple(padding)
  )


def of_longer_rows(window, channels):
  """Return the window of a convolution without strides in rows, where the channels of a
  pixel are laid out as pixels of a longer row.
  """
  *rows, (low, high) = window.padding
  *dilation, apart = window.dilation
  return dataclasses.replace(
    window,
    padding=(*rows, (channels * low, channels * high)),
    dilation=(*dilation, channels * apart),
  )


def _extents(window, x, w, dy):
  """Yield for each axis the pixels of the images and those of padding before them, how
  far the kernel reaches beyond its first element, and the pixels from the first to the
  last that outputs begin at.
  """
  sizes = zip(x.shape[1:-1], dy.shape[1:-1], w.shape[:-2], strict=True)
  for (size, out, k), stride, dilation, (low, _) in zip(
    sizes, window.strides, window.dilation, window.padding, strict=True
  ):
    yield size, low, (k - 1) * dilation, (out - 1) * stride + 1
