"""What the figures train, by name, at each scale: A, B with another learning rate, and
A with some seeds in common.

A run is trained on a bootstrap sample with two thirds as many examples as the pool has,
as the paper's 40,000 of 60,000, and tested on the examples that the sample left out. A
has dropout, so that it has every source of randomness.
"""

from typing import NamedTuple

import numpy as np

import vmapseeds as vs
from experiments.bouthillier2021 import pool
from experiments.frame import Campaign

POOL = f"{pool.__name__}:"
SOURCES = ("data", "augment", "order", "init", "dropout")
NOISE = "nothing"  # in place of the name of a source: no seed varies


class Scale(NamedTuple):
  """Recipe and sizes of the campaigns."""

  recipe: vs.Recipe  # of A
  lr: float  # of B
  pairs: int  # of runs of A and B
  repetitions: int  # of each estimator
  measures: int  # of a repetition


DIGITS = vs.recipe("digits_cnn", dataset=f"{POOL}digits", dropout=0.1)
RESNET = vs.recipe("resnet9_cifar10", dataset=f"{POOL}cifar10", dropout=0.1)
SCALES = {
  "smoke": Scale(DIGITS.replace(epochs=1, width=0.25), 0.002, 16, 4, 4),
  "laptop": Scale(DIGITS.replace(epochs=16), 0.025, 400, 20, 20),
  "gpu": Scale(RESNET.replace(epochs=16), 0.25, 400, 20, 20),
  "paper": Scale(RESNET, 0.25, 400, 20, 100),
}


def campaigns(scale: str) -> dict[str, Campaign]:
  """Every campaign of the paper's at a scale. Run i of A and of B has the same seeds
  and the same examples.
  """
  recipe, lr, pairs, *size = SCALES[scale]
  tables = {
    "A": vs.Runs.independent(pairs),
    **{f"A_{varied}": repeated(varied, *size) for varied in SOURCES},
  }
  tables[f"A_{NOISE}"] = repeated(NOISE, size[0], 2)
  train = pool.SIZES[recipe.dataset.removeprefix(POOL)] * 2 // 3
  found = {
    name: Campaign(recipe, runs.bootstrap(train)) for name, runs in tables.items()
  }
  return {**found, "B": Campaign(recipe.replace(lr=lr), found["A"].runs)}


def repeated(varied: str, repetitions: int, measures: int) -> vs.Runs:
  """Runs that each have a new seed for `varied`. Run i has the other seeds of
  repetition i modulo `repetitions`.
  """
  each = np.arange(repetitions * measures, dtype=np.uint32)
  return vs.Runs(
    {source: each if source == varied else each % repetitions for source in SOURCES}
  )
