"""The linear model: logistic regression on pixels."""

import flax.linen as nn
import jax.numpy as jnp

from vmapseeds.models.layers import Images, Logits, flatten


class Linear(nn.Module):
  """One linear layer."""

  num_classes: int
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    return nn.Dense(self.num_classes, dtype=self.dtype)(flatten(x))
