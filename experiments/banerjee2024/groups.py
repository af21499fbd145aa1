"""The paper's two classes: airplane, automobile, ship and truck of CIFAR-10 against bird,
dog, frog and horse, and the digits of the same numbers.

`experiments.banerjee2024.groups:cifar10` in a recipe's `dataset`.
"""

import functools

import vmapseeds as vs
from experiments.merging import merged

NAMES = ("digits", "cifar10")
GROUPS = (1, 1, 0, -1, -1, 0, 0, 0, 1, 1)


@functools.cache
def in_groups(name: str) -> vs.Dataset:
  return merged(vs.load_dataset(name), GROUPS)


def __getattr__(name: str) -> vs.Dataset:
  """Load a data set when a recipe asks for it."""
  if name not in NAMES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return in_groups(name)
