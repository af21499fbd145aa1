"""Batch norm, ReLU and pooling as one operation."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vmapseeds.models.pooling import (
  as_images,
  as_tiles,
  largest_of,
  leading_axes,
  max_pool,
  of_channels,
  pixels_of,
  place_values,
  rows_first,
  tiles_to_images,
)


class NormReluPool(nn.BatchNorm):
  """Batch norm, ReLU and size × size pooling.

  Training uses its own derivative rule, with as few passes over the pixels as possible.
  It pools first, because norm and ReLU keep the order of pixels (a negative scale
  reverses it). Norm, ReLU and the sums of the gradient then go over fewer pixels.
  """

  size: int = 1

  @nn.compact
  def __call__(  # type: ignore[override]  # `train` alone, in place of what BatchNorm takes
    self, x: Float[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch h w channels"]:
    whole = x.shape[1] % self.size == x.shape[2] % self.size == 0
    if not (train and whole) or self.is_initializing():
      x = nn.relu(super().__call__(x, use_running_average=not train))
      if self.size > 1:
        x = max_pool(x, self.size)
      return x
    params = self.variables["params"]
    stats = self.variables["batch_stats"]
    y, mean, var = _norm_relu_pool(
      self.size, self.epsilon, x, params["scale"], params["bias"]
    )
    for name, moment in (("mean", mean), ("var", var)):
      running = self.momentum * stats[name] + (1 - self.momentum) * moment
      self.put_variable("batch_stats", name, running)
    return y


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _norm_relu_pool(size, epsilon, x, scale, bias):
  """Return the images, and the mean and variance of the batch. No gradient goes through
  these two.
  """
  return _norm_relu_pool_forward(size, epsilon, x, scale, bias)[0]


def _norm_relu_pool_forward(size, epsilon, x, scale, bias):
  axes = tuple(range(x.ndim - 1))
  values = x.astype(jnp.float32)
  spread = functools.partial(of_channels, x=x)
  mean = values.mean(axes)
  var = jnp.maximum(0.0, jnp.square(values).mean(axes) - jnp.square(mean))
  reciprocal = jax.lax.rsqrt(var + epsilon)
  slope = reciprocal * scale
  shift = bias - mean * slope
  pooled, which = x, None
  if size > 1:
    # With a negative scale the smallest pixel becomes the largest.
    sign = jnp.where(scale < 0, -1, 1).astype(x.dtype)
    ahead = leading_axes(x)
    pixels = pixels_of(x, size, ahead)
    signed = [pixel * of_channels(sign, pixel) for pixel in pixels]
    largest, which = largest_of(signed)
    pooled = as_images(largest * of_channels(sign, largest), ahead)
  y = nn.relu((pooled * spread(slope) + spread(shift)).astype(x.dtype))
  return (y, mean, var), (x, pooled, which, scale, mean, reciprocal, shift)


def _norm_relu_pool_backward(size, epsilon, residuals, gradients):
  x, pooled, which, scale, mean, reciprocal, shift = residuals
  spread = functools.partial(of_channels, x=pooled)
  slope = reciprocal * scale
  d = jnp.where(pooled * spread(slope) + spread(shift) > 0, gradients[0], 0)
  axes = tuple(range(x.ndim - 1))
  n = x.size // x.shape[-1]
  dbias = d.sum(axes, jnp.float32)
  dscale = ((d * pooled.astype(jnp.float32)).sum(axes) - mean * dbias) * reciprocal
  # dx = slope · (d - dbias / n - (x - mean) · reciprocal · dscale / n), in as few
  # operations per pixel as possible.
  line = slope * reciprocal * dscale / n
  offset = slope * dbias / n - line * mean
  ahead = leading_axes(x)
  if size > 1:
    x = as_tiles(x, size, ahead)
    d = place_values(rows_first(ahead, d), which, size, ahead)
  slope = of_channels(slope, d)
  line = of_channels(line, x)
  offset = of_channels(offset, x)
  dx = (slope * d - line * x - offset).astype(x.dtype)
  if size > 1:
    dx = tiles_to_images(dx, ahead)
  return dx, dscale, dbias


_norm_relu_pool.defvjp(_norm_relu_pool_forward, _norm_relu_pool_backward)
