"""Out-of-bootstrap splits of labelled examples, as indices."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Integer

from vmapseeds.mistakes import Mistake, at_least


class OutOfBootstrap(NamedTuple):
  """Indices of the examples of three sets, class after class; no example is in two of
  the sets.
  """

  train: Int32[np.ndarray, " train"]
  valid: Int32[np.ndarray, " valid"]
  test: Int32[np.ndarray, " test"]


def out_of_bootstrap(
  labels: Integer[np.ndarray, " n"],
  seed: int,
  train_per_class: int,
  valid_per_class: int,
  test_per_class: int,
) -> OutOfBootstrap:
  """Split the examples S as in Bouthillier et al. 2021, appendix B (equations 11 and
  12) and D.1.

  Each class is split on its own. The training set is drawn from S, the validation set
  from S without the training set, and the test set from S without both, all with
  replacement. So a set may hold an example more than once, but no two sets share one.
  For CIFAR-10 the paper takes the 60,000 examples of its training and test sets
  together, and draws 4,000, 1,000 and 1,000 per class.

  Args:
    labels: class of each example of S.
    seed: seed of `numpy.random.default_rng`, the only randomness here.
    train_per_class, valid_per_class, test_per_class: draws per class;
      `valid_per_class` may be 0.

  Raises:
    Mistake: for a size or seed out of range, or when the draws for one set leave no
      examples of a class for the next set.
  """
  sizes = {
    "train": at_least("train_per_class", train_per_class, 1),
    "valid": at_least("valid_per_class", valid_per_class, 0),
    "test": at_least("test_per_class", test_per_class, 1),
  }
  rng = np.random.default_rng(at_least("the seed", seed, 0))
  labels = np.asarray(labels)
  if not len(labels):
    raise Mistake("there are no labels to split: at least one example is needed")
  drawn: dict[str, list] = {name: [] for name in sizes}
  for label in np.unique(labels):
    left = np.flatnonzero(labels == label)
    for name, size in sizes.items():
      if size and not len(left):
        raise Mistake(
          f"class {label} has {np.sum(labels == label)} examples, and none is left to draw its "
          f"{name} set from: ask for fewer per class"
        )
      drawn[name].append(rng.choice(left, size) if size else left[:0])
      left = np.setdiff1d(left, drawn[name][-1])
  return OutOfBootstrap(
    **{name: np.concatenate(parts).astype(np.int32) for name, parts in drawn.items()}
  )
