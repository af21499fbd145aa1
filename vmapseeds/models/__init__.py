"""Networks by name: Flax Linen modules whose convolutions run as many lanes at once."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from vmapseeds.models.linear import Linear
from vmapseeds.models.resnet9 import ResNet9
from vmapseeds.models.small import BanerjeeCNN, SmallCNN

MODELS: dict[str, Callable[..., nn.Module]] = {
  "small_cnn": SmallCNN,
  "resnet9": ResNet9,
  "banerjee_cnn": BanerjeeCNN,
  "linear": Linear,
}
NAMES = tuple(MODELS)


def build(name: str, *, num_classes: int, width: float, precision: str) -> nn.Module:
  """The network `name`, called as `model.apply(variables, images, train=...)` on (batch, height, width, channels)."""
  return MODELS[name](num_classes=num_classes, width=width, dtype=jnp.dtype(precision))
