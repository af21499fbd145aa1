"""Network in Network (Lin et al. 2013) as in Jiang et al. 2022, appendix C.1: batch
norm and no dropout.

vmapseeds train experiments.jiang2022.nin:NIN_CIFAR10 --out results/nin
"""

import flax.linen as nn
import jax.numpy as jnp

import vmapseeds as vs
from vmapseeds.models.layers import (
  ConvBlock,
  Images,
  Logits,
  scale_channels,
  torch_init,
)


class NiN(nn.Module):
  """Blocks of a 3×3 convolution of stride 2 and two 1×1 ones, a 1×1 convolution to the
  classes, and the mean over
  pixels. `depth` counts the convolutions: 7 makes two blocks.
  """

  num_classes: int
  width: float = 1.0
  depth: int = 7
  dtype: jnp.dtype = jnp.dtype("float32")

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    blocks, rest = divmod(self.depth - 1, 3)
    if rest or not blocks:
      raise vs.UserError(
        f"depth is {self.depth}: nin has blocks of three layers and one more, give 4, 7, 10, 13 or so"
      )
    features = scale_channels(128, self.width)
    for _ in range(blocks):
      x = ConvBlock(features, stride=2, dtype=self.dtype)(x, train)
      for _ in range(2):
        x = ConvBlock(features, kernel=1, padding=0, dtype=self.dtype)(x, train)
    x = nn.Conv(self.num_classes, (1, 1), kernel_init=torch_init, dtype=self.dtype)(x)
    return x.mean((1, 2))


# The paper also has depths 10 and 13, widths 2 and 3, no weight decay, and batches of 100
# and 300.
NIN_CIFAR10 = vs.recipe(
  "resnet18_cifar10", name="nin_cifar10", model=NiN, weight_decay=1e-3
)
