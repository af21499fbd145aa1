"""Domains that stand for PACS: the images of a data set, each domain under a shift of
its own.

`experiments.jiang2022.domains:mnist_blur` in a recipe's `dataset` is MNIST with blurred
training images and a test set for each domain. All domains have the same images.
"""

import functools

import numpy as np

import vmapseeds as vs
from vmapseeds.data import shifts, sources

# Shifts by their names
DOMAINS = {
  "clean": None,
  "blur": "blur-5",
  "noise": "noise-5",
  "inversion": "inversion",
}


@functools.cache
def __getattr__(name: str) -> vs.Dataset:
  data, _, domain = name.rpartition("_")
  if domain not in DOMAINS or data.startswith("_"):
    raise AttributeError(f"no domain {name}")
  loaded = sources.load_dataset(data)
  train = loaded.train
  test = loaded.tests["test"]
  low = train.inputs.min()
  high = train.inputs.max()

  def shifted(images: np.ndarray, domain: str) -> np.ndarray:
    shift = DOMAINS[domain]
    if shift is None:
      return images
    return shifts.apply_shift(images, shift, low, high)

  tests = {other: (shifted(test.inputs, other), test.targets) for other in DOMAINS}
  return vs.Dataset(
    train=(shifted(train.inputs, domain), train.targets),
    tests=tests,
    name=name,
  )
