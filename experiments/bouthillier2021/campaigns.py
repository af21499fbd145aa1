"""What the figures train, by name, at each scale: A, B with another learning rate, and A with some seeds in common."""

from typing import NamedTuple

import numpy as np

import vmapseeds as vs
from experiments.frame import Campaign


class Scale(NamedTuple):
  """What the sizes of campaigns follow from."""

  recipe: vs.Recipe  # of A
  lr: float  # of B
  pairs: int  # of runs of A and B
  repetitions: int  # of each estimator
  measures: int  # of a repetition


SCALES = {
  "smoke": Scale(vs.recipe("digits_cnn", epochs=1, width=0.25), 0.002, 16, 4, 4),
  "laptop": Scale(vs.recipe("digits_cnn", epochs=16), 0.025, 400, 20, 20),
  "gpu": Scale(vs.recipe("resnet9_cifar10", epochs=16), 0.25, 400, 20, 20),
  "paper": Scale(vs.recipe("resnet9_cifar10"), 0.25, 400, 20, 100),
}


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale. Run i of A and of B has the same seeds and the same training set."""
  recipe, lr, pairs, *size = SCALES[scale]
  everything = vs.Runs.independent(pairs).bootstrap()
  return {
    "A": Campaign(recipe, everything),
    "B": Campaign(recipe.replace(lr=lr), everything),
    **{f"A_{varied}": Campaign(recipe, repeated(varied, *size)) for varied in ("init", "data")},
  }


def repeated(varied: str, repetitions: int, measures: int) -> vs.Runs:
  """Runs whose source `varied` is new in each; its other seeds run i has from repetition i modulo `repetitions`."""
  each = np.arange(repetitions * measures, dtype=np.uint32)
  seeds = {source: each if source == varied else each % repetitions for source in vs.Runs.independent(1).seeds}
  return vs.Runs(seeds).bootstrap()
