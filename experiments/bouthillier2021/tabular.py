"""Scikit-learn's breast cancer data, in place of the paper's peptides:
`experiments.bouthillier2021.tabular:breast_cancer` in a recipe's `dataset`.
"""

import functools

import numpy as np

import vmapseeds as vs


@functools.cache
def load_breast_cancer() -> vs.Dataset:
  """Return 569 tumours with 30 features each, a channel a feature. Two thirds are called
  the training set; runs out of bootstrap draw from all.
  """
  import sklearn.datasets

  x, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
  inputs = x.astype(np.float32)[:, None, None]
  targets = y.astype(np.int32)
  cut = 2 * len(y) // 3
  return vs.Dataset(
    train=(inputs[:cut], targets[:cut]),
    test=(inputs[cut:], targets[cut:]),
    name="breast_cancer",
  )


def __getattr__(name: str) -> vs.Dataset:
  """Load the data set when a recipe asks for it."""
  if name != "breast_cancer":
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return load_breast_cancer()
