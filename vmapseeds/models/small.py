"""Small CNNs without batch norm."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

from vmapseeds.models.layers import ConvReluPool, dropped, flatten, patches, scaled


class SmallCNN(nn.Module):
  """Two 3×3 convolutions of 16 and 32 features, each pooled, and a linear layer."""

  num_classes: int
  width: float = 1.0
  dtype: jnp.dtype = jnp.dtype("float32")
  dropout: float = 0.0

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch classes"]:
    for number, features in enumerate((16, 32)):
      x = ConvReluPool(scaled(features, self.width), self.dtype, name=f"Conv_{number}")(x)
    return nn.Dense(self.num_classes, dtype=self.dtype)(dropped(flatten(x), self.dropout, train))


class BanerjeeCNN(nn.Module):
  """Banerjee et al. 2024, figure 15: 71,250 parameters for 32×32×3 images and two classes."""

  num_classes: int
  width: float = 1.0
  dtype: jnp.dtype = jnp.dtype("float32")
  dropout: float = 0.0

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch classes"]:
    for number, features in enumerate((32, 16)):
      x = ConvReluPool(scaled(features, self.width), self.dtype, name=f"Conv_{number}")(x)
    x = nn.relu(nn.Dense(scaled(64, self.width), dtype=self.dtype)(flatten(x)))
    return nn.Dense(self.num_classes, dtype=self.dtype)(dropped(x, self.dropout, train))


class NarrowCNN(nn.Module):
  """Patches of 2×2 pixels as channels, three 3×3 convolutions of 16, 32 and 64 features, each pooled, and a linear
  layer: 27,450 parameters for 32×32×3 images and ten classes."""

  num_classes: int
  width: float = 1.0
  dtype: jnp.dtype = jnp.dtype("float32")
  dropout: float = 0.0

  @nn.compact
  def __call__(
    self, x: Real[Array, "batch height width channels"], train: bool
  ) -> Float[Array, "batch classes"]:
    x = patches(x, 2)
    for number, features in enumerate((16, 32, 64)):
      x = ConvReluPool(scaled(features, self.width), self.dtype, name=f"Conv_{number}")(x)
    return nn.Dense(self.num_classes, dtype=self.dtype)(dropped(flatten(x), self.dropout, train))
