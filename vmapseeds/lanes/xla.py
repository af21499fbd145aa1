"""XLA's own convolution of channels-last images, and its derivatives by JAX."""

import dataclasses
from collections.abc import Callable

import jax
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
