"""The classes that the paper's two groups leave out, to train a network on before: cats
and deer of CIFAR-10, upright and upside down, which makes four classes.

`experiments.banerjee2024.others:cifar10` in a recipe's `dataset`.
"""

import functools

import numpy as np

import vmapseeds as vs
from vmapseeds.data import load_dataset

NAMES = ("digits", "cifar10")
LEFT_OUT = (3, 4)


@functools.cache
def others(name: str) -> vs.Dataset:
  data = load_dataset(name)

  def turned(part) -> tuple[np.ndarray, np.ndarray]:
    inputs, targets = map(np.asarray, (part.inputs, part.targets))
    kept = np.isin(targets, LEFT_OUT)
    inputs = inputs[kept]
    targets = targets[kept] - min(LEFT_OUT)
    both = np.concatenate([inputs, inputs[:, ::-1]])
    return both, np.concatenate([targets, targets + len(LEFT_OUT)])

  return vs.Dataset(
    train=turned(data.train),
    test=turned(data.tests["test"]),
    name=f"{name}_others",
  )


def __getattr__(name: str) -> vs.Dataset:
  """Loads a data set when a recipe asks for it."""
  if name not in NAMES:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return others(name)
