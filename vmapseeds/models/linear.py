"""The linear model: logistic regression on pixels."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from vmapseeds.models.layers import Inputs, Logits, flatten
from vmapseeds.target import platform


class Linear(nn.Module):
  """One linear layer."""

  num_classes: int
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(self, x: Inputs, train: bool) -> Logits:
    dot_general = _product if platform() == "cpu" else None
    dense = nn.Dense(self.num_classes, dtype=self.dtype, dot_general=dot_general)
    return dense(flatten(x))


def _product(x, kernel, dimensions, precision=None):
  return _of_few_features(precision, x, kernel)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _of_few_features(precision, x, kernel):
  """Multiply matrices; compute the kernel gradient transposed. With many pixels and few
  features XLA for CPUs takes five times as long for the tall and narrow gradient.
  """
  return _forward(precision, x, kernel)[0]


def _forward(precision, x, kernel):
  return jnp.matmul(x, kernel, precision=precision), (x, kernel)


def _backward(precision, residuals, gradient):
  x, kernel = residuals
  # The barrier keeps XLA from undoing the transposition.
  turned = jax.lax.optimization_barrier(jnp.matmul(gradient.T, x, precision=precision))
  return jnp.matmul(gradient, kernel.T, precision=precision), turned.T


_of_few_features.defvjp(_forward, _backward)
