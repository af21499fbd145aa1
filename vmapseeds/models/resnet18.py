"""The 18-layer ResNet of He et al. 2016 in its usual form for CIFAR: a 3×3 stem and no
pooling before the blocks.
"""

import flax.linen as nn
import jax.numpy as jnp

from vmapseeds.models.layers import (
  Classifier,
  ConvBlock,
  Images,
  Logits,
  scale_channels,
  torch_init,
)


class BasicBlock(nn.Module):
  """Two 3×3 convolutions and a shortcut, which is a 1×1 convolution where the block has
  a stride.
  """

  features: int
  stride: int = 1
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(self, x, train):
    y = ConvBlock(self.features, stride=self.stride, dtype=self.dtype)(x, train)
    y = ConvBlock(self.features, relu=False, dtype=self.dtype)(y, train)
    if self.stride > 1:
      x = ConvBlock(
        self.features,
        kernel=1,
        stride=self.stride,
        padding=0,
        relu=False,
        dtype=self.dtype,
      )(x, train)
    return nn.relu(x + y)


class ResNet18(Classifier):
  """A convolution, eight blocks of two convolutions in four stages of 64 to 512
  features, and a linear layer.
  """

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    x = ConvBlock(scale_channels(64, self.width), dtype=self.dtype)(x, train)
    for features, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
      for block_stride in (stride, 1):
        x = BasicBlock(scale_channels(features, self.width), block_stride, self.dtype)(
          x, train
        )
    return self.last(x.mean((1, 2)), train, kernel_init=torch_init)
