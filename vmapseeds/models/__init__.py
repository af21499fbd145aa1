"""Networks by name: Flax Linen modules whose convolutions run as many lanes at once."""

import importlib
from typing import Any

from vmapseeds.mistakes import Mistake

# Imported when one is built: recipes need no more than their names, and Flax takes a second.
MODELS = {
  "small_cnn": "small.SmallCNN",
  "resnet9": "resnet9.ResNet9",
  "banerjee_cnn": "small.BanerjeeCNN",
  "linear": "linear.Linear",
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
  from vmapseeds.target import platform

  return "bfloat16" if platform() in ("gpu", "tpu") else "float32"


def build(name: str, *, num_classes: int, width: float, precision: str) -> Any:
  """The network `name`, a Flax module: `model.apply(variables, images, train=...)` on (batch, height, width, channels).

  It computes in `precision` (`auto`, `float32`, `bfloat16`); parameters and batch statistics are float32 in each.
  """
  import jax.numpy as jnp

  module, _, network = MODELS[name].partition(".")
  made = getattr(importlib.import_module(f"vmapseeds.models.{module}"), network)
  return made(num_classes=num_classes, width=width, dtype=jnp.dtype(resolved(precision)))
