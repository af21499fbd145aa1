"""Fully connected networks, as in Jiang et al. 2022, appendix C.1."""

import flax.linen as nn

from vmapseeds.models.layers import Classifier, Inputs, Logits, flatten, scale_channels


class MLP(Classifier):
  """`depth` hidden layers of 128 units with ReLU, and a linear layer."""

  depth: int = 1

  @nn.compact
  def __call__(self, x: Inputs, train: bool) -> Logits:
    x = flatten(x)
    for _ in range(self.depth):
      x = nn.relu(nn.Dense(scale_channels(128, self.width), dtype=self.dtype)(x))
    return self.last(x, train)
