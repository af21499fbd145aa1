"""The linear model: logistic regression on pixels."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

from vmapseeds.models.layers import flatten


class Linear(nn.Module):
  """One linear layer; `width` has nothing to widen and must stay 1."""

  num_classes: int
  width: float = 1.0
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch classes"]:
    return nn.Dense(self.num_classes, dtype=self.dtype)(flatten(x))
