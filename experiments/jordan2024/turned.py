"""Data sets turned round: runs train on the test set and are tested on the training
set, which has more examples.

`experiments.jordan2024.turned:mnist` in a recipe's `dataset` is MNIST, trained on
10,000 examples and tested on 60,000.
"""

import functools

import vmapseeds as vs
from vmapseeds.data import load_dataset

NAMES = ("digits", "mnist")


@functools.cache
def turned(name: str) -> vs.Dataset:
  data = load_dataset(name)
  return vs.Dataset(
    train=data.tests["test"],
    test=data.train,
    name=f"{name}_turned",
    num_classes=data.num_classes,
  )


def __getattr__(name: str) -> vs.Dataset:
  """Loads a data set when a recipe asks for it."""
  if name not in NAMES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return turned(name)
