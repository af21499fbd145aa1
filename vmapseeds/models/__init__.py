"""Networks by name: Flax Linen modules whose convolutions run as many lanes at once."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from vmapseeds.errors import Mistake
from vmapseeds.lanes.target import platform
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
LEAST_PIXELS = {"small_cnn": 4, "resnet9": 11, "banerjee_cnn": 4, "linear": 1}  # of height and width


def check_size(name: str, height: int, width: int) -> None:
  """`Mistake` unless images are large enough for the network `name`, which makes them smaller in steps."""
  least = LEAST_PIXELS[name]
  if min(height, width) < least:
    given = f"model {name!r} on images of {height}×{width} pixels"
    raise Mistake(f"{given}: give at least {least}×{least}, or another model")


def resolved(precision: str) -> str:
  """What a recipe's precision means here: `auto` is bfloat16 where matrix units have it, float32 on a CPU."""
  if precision != "auto":
    return precision
  return "bfloat16" if platform() in ("gpu", "tpu") else "float32"


def build(name: str, *, num_classes: int, width: float, precision: str) -> nn.Module:
  """The network `name`, called as `model.apply(variables, images, train=...)` on (batch, height, width, channels).

  It computes in `precision` (`auto`, `float32`, `bfloat16`); parameters and batch statistics are float32 in each.
  """
  return MODELS[name](num_classes=num_classes, width=width, dtype=jnp.dtype(resolved(precision)))
