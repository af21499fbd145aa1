"""The 9-layer ResNet of Jordan 2024 (appendix A.1), after Page 2019 and Ilyas et al.
2022.
"""

import flax.linen as nn

from vmapseeds.models.layers import (
  Classifier,
  ConvBlock,
  Images,
  Logits,
  scale_channels,
  torch_init,
)


class ResNet9(Classifier):
  """Eight convolutions and a linear layer; the second is 5×5 with stride 2; logits are
  scaled by 0.2.
  """

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    def block(x, features, **options):
      return ConvBlock(
        scale_channels(features, self.width), dtype=self.dtype, **options
      )(x, train)

    x = block(x, 64)
    x = block(x, 128, kernel=5, stride=2, padding=2)
    x = x + block(block(x, 128), 128)
    x = block(x, 256, pool=2)
    x = x + block(block(x, 256), 256)
    x = block(x, 128, padding=0)
    return 0.2 * self.last(x.max((1, 2)), train, use_bias=False, kernel_init=torch_init)
