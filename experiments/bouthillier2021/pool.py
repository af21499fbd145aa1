"""Training and test examples pooled: each run is trained on a bootstrap sample of the
pool and tested on the rest.

`experiments.bouthillier2021.pool:digits` in a recipe's `dataset` has the pool as its
training set and as its test set.
"""

import functools

import numpy as np

import vmapseeds as vs
from vmapseeds.data import load

SIZES = {"digits": 1797, "cifar10": 60_000}


@functools.cache
def pooled(name: str) -> vs.Dataset:
  data = load(name)
  sets = data.train, data.tests["test"]
  pool = (
    np.concatenate([s.inputs for s in sets]),
    np.concatenate([s.targets for s in sets]),
  )
  return vs.Dataset(
    train=pool, test=pool, name=f"{name}_pool", num_classes=data.num_classes
  )


def __getattr__(name: str) -> vs.Dataset:
  """Loads a pool when a recipe asks for it."""
  if name not in SIZES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return pooled(name)
