"""The 9-layer ResNet of Jordan 2023/24 (appendix A.1), after Page 2019 and Ilyas et al. 2022."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

from vmapseeds.models.layers import ConvBlock, dropped, scaled, torch_init


class ResNet9(nn.Module):
  """Eight convolutions and a linear layer; the second is 5×5 with stride 2; logits are scaled by 0.2."""

  num_classes: int
  width: float = 1.0
  dtype: jnp.dtype = jnp.dtype("float32")
  dropout: float = 0.0

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch classes"]:
    def block(x, features, **options):
      return ConvBlock(scaled(features, self.width), dtype=self.dtype, **options)(x, train)

    x = block(x, 64)
    x = block(x, 128, kernel=5, stride=2, padding=2)
    x = x + block(block(x, 128), 128)
    x = block(x, 256, pool=2)
    x = x + block(block(x, 256), 256)
    x = block(x, 128, padding=0)
    x = dropped(jnp.max(x, axis=(1, 2)), self.dropout, train)
    x = nn.Dense(self.num_classes, use_bias=False, kernel_init=torch_init, dtype=self.dtype)(x)
    return 0.2 * x
