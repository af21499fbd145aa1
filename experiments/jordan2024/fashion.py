"""Two networks on Fashion-MNIST, so small that two cores train thousands. That with batch
norm is right on 91 % of the test set after 12 epochs.
"""

import flax.linen as nn

import vmapseeds as vs
from vmapseeds.models.layers import (
  Classifier,
  ConvBlock,
  Images,
  Logits,
  flatten,
  patches,
  scale_channels,
)


class NormCNN(Classifier):
  """Patches of 2×2 pixels as channels, three 3×3 convolutions of 16, 32 and 64 features
  with batch norm and ReLU, of which two are pooled, and a linear layer: 29,610 parameters
  for 28×28×1 images and ten classes.
  """

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    x = patches(x, 2)
    for features, pool in ((16, 2), (32, 2), (64, 1)):
      channels = scale_channels(features, self.width)
      x = ConvBlock(channels, pool=pool, dtype=self.dtype)(x, train)
    return self.last(flatten(x), train)


class PlainCNN(Classifier):
  """The same patches and convolutions without batch norm, all pooled, a layer of 128
  units, and a linear layer: 33,338 parameters.
  """

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    x = self.convolved(patches(x, 2), 16, 32, 64)
    x = nn.relu(nn.Dense(scale_channels(128, self.width), dtype=self.dtype)(x))
    return self.last(x, train)


FASHION = vs.Recipe(
  name="norm_cnn_fashion_mnist",
  dataset="fashion_mnist",
  model=NormCNN,
  augment="flip",
  epochs=12,
  batch_size=100,
  lr=0.1,
  momentum=0.9,
  weight_decay=5e-4,
  optimizer="nesterov",
  schedule="linear",
)
PLAIN_FASHION = FASHION.replace(name="plain_cnn_fashion_mnist", model=PlainCNN, lr=0.05)
