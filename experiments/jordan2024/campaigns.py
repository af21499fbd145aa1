"""What the figures train, by name, at each scale."""

from typing import NamedTuple

import vmapseeds as vs
from experiments.frame import Campaign, duration

DURATIONS = ("untrained", "short", "medium", "long")
PRINTED_EPOCHS = dict(zip(DURATIONS, (0, 4, 16, 64), strict=True))  # the paper's


class Scale(NamedTuple):
  """What the sizes of campaigns follow from."""

  recipe: vs.Recipe  # of the main campaigns
  epochs: tuple[int, int, int, int]  # of the four durations
  runs: int  # of each


SCALES = {
  "smoke": Scale(vs.recipe("digits_cnn"), (0, 1, 2, 4), 16),
  "laptop": Scale(vs.recipe("narrow_cifar10"), (0, 1, 2, 8), 64),
  "gpu": Scale(vs.recipe("resnet9_cifar10"), (0, 4, 16, 64), 1000),
  "paper": Scale(vs.recipe("resnet9_cifar10"), (0, 4, 16, 64), 60_000),
}


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale."""
  return durations(SCALES[scale])


def durations(scale: Scale) -> dict[str, Campaign]:
  """Independent runs of four durations: figures 1 to 5, 13 and 14."""
  return {
    name: Campaign(scale.recipe.replace(epochs=epochs), scale.runs)
    for name, epochs in zip(DURATIONS, scale.epochs, strict=True)
  }


def said(name: str, epochs: int) -> str:
  """A duration in words: ours, and the paper's that it stands for."""
  printed = PRINTED_EPOCHS[name]
  return f"{name}: {duration(epochs)}" + (f", the paper's {printed}" if epochs != printed else "")
