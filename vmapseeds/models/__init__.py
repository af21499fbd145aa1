"""Networks by name: Flax Linen modules whose convolutions can run many lanes at once."""

import importlib
from collections.abc import Sequence
from typing import Any

from vmapseeds.errors import UserError

# The place of each class, and the least height and width of its images; 0 if it takes
# inputs of any shape, which it flattens. Classes are
# imported when they are used: recipes need only the names, and importing Flax takes a
# second.
MODELS = {
  "small_cnn": ("small.SmallCNN", 4),
  "resnet9": ("resnet9.ResNet9", 11),
  "resnet18": ("resnet18.ResNet18", 1),
  "narrow_cnn": ("small.NarrowCNN", 16),
  "mlp": ("mlp.MLP", 0),
  "linear": ("linear.Linear", 0),
}
NAMES = tuple(MODELS)


def check_size(name: str, shape: Sequence[int]) -> None:
  """Check that the network `name` takes inputs of this shape: most need images, large
  enough for layers that make them smaller.

  Raises:
    UserError: they are not.
  """
  _, least = MODELS[name]
  if not least:
    return
  if len(shape) != 3:
    remedy = "give mlp or linear, or a model of your own"
    if len(shape) == 2:
      remedy = "give inputs[..., None] if they are images"
    raise UserError(
      f"model {name!r} on inputs {tuple(shape)}: it is of images (height, width, channels), {remedy}"
    )
  height, width = shape[:2]
  if min(height, width) < least:
    raise UserError(
      f"model {name!r} on images of {height}×{width} pixels: give at least "
      f"{least}×{least}, or another model"
    )


def resolve_precision(precision: str) -> str:
  """Return what a recipe's precision means here: `auto` is bfloat16 where matrix units
  have it, float32 on a CPU.
  """
  if precision != "auto":
    return precision
  from vmapseeds.target import platform

  return "bfloat16" if platform() in ("gpu", "tpu") else "float32"


def load(name: str):
  """Return the class of the network `name`: a Flax module on (batch, height, width,
  channels) that computes in its `dtype`; parameters and batch statistics are float32.
  """
  place, _ = MODELS[name]
  module_name, _, class_name = place.partition(".")
  module = importlib.import_module(f"vmapseeds.models.{module_name}")
  return getattr(module, class_name)
