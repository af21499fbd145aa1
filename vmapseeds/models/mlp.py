"""Fully connected networks, as Jiang et al. 2022, appendix C.1, have them."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

from vmapseeds.models.layers import dropped, flatten, scaled


class MLP(nn.Module):
  """`depth` hidden layers of 128 units with ReLU, and a linear layer."""

  num_classes: int
  width: float = 1.0
  depth: int = 1
  dtype: jnp.dtype = jnp.dtype("float32")
  dropout: float = 0.0

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch classes"]:
    x = flatten(x)
    for _ in range(self.depth):
      x = nn.relu(nn.Dense(scaled(128, self.width), dtype=self.dtype)(x))
    return nn.Dense(self.num_classes, dtype=self.dtype)(dropped(x, self.dropout, train))
