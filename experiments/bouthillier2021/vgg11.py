"""VGG11 (Simonyan and Zisserman 2014) for images of 32×32 pixels, and its recipe
(Bouthillier et al. 2021, appendix D.1, table 2).
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

import vmapseeds as vs

STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


class VGG11(nn.Module):
  """Eight 3×3 convolutions with batch norm, pooling after each stage, a linear layer. No
  convolution has a bias, which batch norm would take away.
  """

  num_classes: int
  width: float = 1.0
  dtype: Any = jnp.float32

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "batch height width channels"],
    train: bool,
  ) -> Float[Array, "batch classes"]:
    init = nn.initializers.glorot_uniform()
    for stage in STAGES:
      for features in stage:
        features = max(1, round(features * self.width))
        conv = nn.Conv(
          features,
          (3, 3),
          use_bias=False,
          kernel_init=init,
          dtype=self.dtype,
        )
        norm = nn.BatchNorm(use_running_average=not train, momentum=0.9)
        x = nn.relu(norm(conv(x.astype(self.dtype))))
      x = nn.max_pool(x, (2, 2), (2, 2))
    x = x.reshape(len(x), -1).astype(self.dtype)
    return nn.Dense(self.num_classes, kernel_init=init, dtype=self.dtype)(x)


vgg11_cifar10 = vs.Recipe(
  name="vgg11_cifar10",
  dataset="cifar10",
  model=VGG11,
  epochs=120,  # ours: the paper does not print it
  batch_size=128,
  lr=0.03,
  momentum=0.9,
  weight_decay=0.002,
  schedule="exponential",
  gamma=0.97,
  augment="flip translate=4",
)
