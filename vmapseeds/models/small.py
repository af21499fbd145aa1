"""Small CNNs without batch norm."""

import flax.linen as nn

from vmapseeds.models.layers import Classifier, ConvReluPool, Images, Logits, flatten, patches, scaled


class SmallCNN(Classifier):
  """Two 3×3 convolutions of 16 and 32 features, each pooled, and a linear layer."""

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    for number, features in enumerate((16, 32)):
      x = ConvReluPool(scaled(features, self.width), self.dtype, name=f"Conv_{number}")(x)
    return self.last(flatten(x), train)


class BanerjeeCNN(Classifier):
  """Banerjee et al. 2024, figure 15: 71,250 parameters for 32×32×3 images and two classes."""

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    for number, features in enumerate((32, 16)):
      x = ConvReluPool(scaled(features, self.width), self.dtype, name=f"Conv_{number}")(x)
    x = nn.relu(nn.Dense(scaled(64, self.width), dtype=self.dtype)(flatten(x)))
    return self.last(x, train)


class NarrowCNN(Classifier):
  """Patches of 2×2 pixels as channels, three 3×3 convolutions of 16, 32 and 64 features, each pooled, and a linear
  layer: 27,450 parameters for 32×32×3 images and ten classes."""

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    x = patches(x, 2)
    for number, features in enumerate((16, 32, 64)):
      x = ConvReluPool(scaled(features, self.width), self.dtype, name=f"Conv_{number}")(x)
    return self.last(flatten(x), train)
