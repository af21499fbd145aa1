"""What the figures train, by name, at each scale: runs that differ in one source of
randomness or in all.
"""

from typing import NamedTuple

import vmapseeds as vs
from experiments.frame import Campaign

DIGITS = vs.recipe("digits_cnn", epochs=2, classes=(0,) * 5 + (1,) * 5)
CIFAR10 = vs.recipe("cnn_cifar10_binary")


class Scale(NamedTuple):
  """Recipe and sizes of the campaigns."""

  recipe: vs.Recipe  # of two classes
  runs: int  # of each source of randomness: half of them the reference, half candidates
  pool: int  # runs of S_all: half of them the reference, half members of ensembles


SCALES = {
  "smoke": Scale(DIGITS, 16, 16),
  "laptop": Scale(CIFAR10.replace(epochs=1), 200, 200),
  "gpu": Scale(CIFAR10, 200, 1600),
  "paper": Scale(CIFAR10, 200, 1600),
}


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale. Sources that do not vary have seed 0."""
  recipe, runs, pool = SCALES[scale]
  return {
    "S_init": Campaign(recipe, vs.Runs.vary("init", runs), ("logits",)),
    "S_batch": Campaign(recipe, vs.Runs.vary("order", runs), ("logits",)),
    "S_all": Campaign(recipe, pool, ("logits",)),
  }
