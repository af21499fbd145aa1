"""A data set in memory, and the checks that every source of one shares."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int32, Integer, UInt8

from vmapseeds.mistakes import Mistake


@dataclass(frozen=True, eq=False)
class Examples:
  """Images with their labels; the order is the source's and never changes."""

  images: UInt8[np.ndarray, "n height width channels"] | Float32[np.ndarray, "n height width channels"]
  labels: Int32[np.ndarray, " n"]

  def __len__(self) -> int:
    return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
  """A training set and one or more test sets of the same image shape, dtype and classes."""

  name: str
  train: Examples
  tests: dict[str, Examples]
  num_classes: int


def wanted(test_sets: Sequence[str], available: Sequence[str], name: str) -> tuple[str, ...]:
  """`test_sets` as a tuple, or a `Mistake` when one of them is not among the `available` splits of `name`."""
  if isinstance(test_sets, str) or not test_sets:
    raise Mistake(f"test_sets is {test_sets!r}: give a list of names from {', '.join(available)}")
  for given in test_sets:
    if given not in available:
      hint = "; there is no 'test' here, ask for 'validation'" if "validation" in available else ""
      raise Mistake(f"unknown test set {given!r} of {name!r}: choose from {', '.join(available)}"
                    + (hint if given == "test" else ""))
  if len(set(test_sets)) < len(test_sets):
    raise Mistake(f"test_sets is {', '.join(test_sets)}: name each set once")
  return tuple(test_sets)


def check_labels(labels: Integer[np.ndarray, " n"], num_classes: int, where: str) -> Int32[np.ndarray, " n"]:
  """`labels` as int32, or a `Mistake` unless there are some and all lie in 0 to `num_classes` - 1."""
  if not len(labels):
    raise Mistake(f"{where} holds no examples: at least one is needed")
  low, high = int(labels.min()), int(labels.max())
  if low < 0 or high >= num_classes:
    raise Mistake(f"labels of {where} go from {low} to {high}: they must lie in 0 to {num_classes - 1}, "
                  "the classes of the training set")
  return labels.astype(np.int32)


def relabel(dataset: Dataset, classes: Sequence[int]) -> Dataset:
  """The data set with class `c` renamed to `classes[c]` in every set, and dropped where that is -1.

  For example (1, 1, 0, -1, -1, 0, 0, 0, 1, 1) makes two classes of CIFAR-10, without cats and deer.

  Raises:
    Mistake: unless `classes` has one whole number for each class and those kept are 0 to K-1 without gaps,
      or when a set is left without examples.
  """
  try:
    new = [operator.index(c) for c in classes]
  except TypeError:
    raise Mistake(f"classes is {classes!r}: give one whole number for each class, -1 to drop it") from None
  given = ", ".join(map(str, new))
  if len(new) != dataset.num_classes:
    raise Mistake(f"classes is {given}, {len(new)} numbers: give one for each of the {dataset.num_classes} "
                  f"classes of {dataset.name!r}, -1 to drop it")
  kept = set(new) - {-1}
  if not kept or kept != set(range(len(kept))):
    raise Mistake(f"classes is {given}: those kept must be 0 to K-1 without gaps, -1 drops a class")

  table = np.array(new, np.int32)

  def renamed(examples: Examples, where: str) -> Examples:
    labels = table[examples.labels]
    keep = labels >= 0
    if not keep.any():
      raise Mistake(f"classes is {given}, which leaves no examples in the {where} set of {dataset.name!r}: "
                    "keep a class that it has")
    return Examples(examples.images[keep], labels[keep])

  return Dataset(
    name=dataset.name,
    train=renamed(dataset.train, "train"),
    tests={name: renamed(examples, name) for name, examples in dataset.tests.items()},
    num_classes=len(kept),
  )
