"""Classes of a data set, merged and left out."""

from collections.abc import Sequence

import numpy as np

import vmapseeds as vs
from vmapseeds.data import Examples


def merged(data: vs.Dataset, classes: Sequence[int]) -> vs.Dataset:
  """Return a data set whose class `c` is `classes[c]`, without the examples where that
  is -1. For example (1, 1, 0, -1, -1, 0, 0, 0, 1, 1) makes two classes of CIFAR-10,
  without cats and deer.
  """
  new = np.array(classes)

  def relabelled(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    labels = new[examples.targets]
    kept = labels >= 0
    return examples.inputs[kept], labels[kept]

  return vs.Dataset(
    train=relabelled(data.train),
    tests={name: relabelled(examples) for name, examples in data.tests.items()},
    name=data.name,
  )
