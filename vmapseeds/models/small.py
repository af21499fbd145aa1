"""Small CNNs without batch norm."""

import flax.linen as nn

from vmapseeds.models.layers import Classifier, Images, Logits, patches


class SmallCNN(Classifier):
  """Two 3×3 convolutions of 16 and 32 features, each pooled, and a linear layer."""

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    return self.last(self.convolved(x, 16, 32), train)


class NarrowCNN(Classifier):
  """Patches of 2×2 pixels as channels, three 3×3 convolutions of 16, 32 and 64
  features, each pooled, and a linear
  layer: 27,450 parameters for 32×32×3 images and ten classes.
  """

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    return self.last(self.convolved(patches(x, 2), 16, 32, 64), train)
