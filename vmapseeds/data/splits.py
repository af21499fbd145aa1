"""The examples that a run is trained on: subsets, bootstrap samples, out-of-bootstrap
splits, all as indices.
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int32, Integer, Key

from vmapseeds.mistakes import Mistake, at_least


def subset(key: Key[Array, ""], n: int, size: int) -> Int32[Array, " size"]:
  """`size` of `n` examples without replacement, in random order; every subset is
  equally likely.

  Works under `jit` and under `vmap` over keys; `n` and `size` are static, 1 <= size <=
  n.
  """
  return jax.random.permutation(key, n)[:size].astype("int32")


def bootstrap(
  key: Key[Array, ""], n: int, size: int | None = None
) -> Int32[Array, " size"]:
  """`size` (by default `n`) of `n` examples, independently and with replacement.

  Equation 11 of Bouthillier et al. 2021. Works under `jit` and under `vmap` over keys;
  `n` and `size` are static, at least 1.
  """
  return jax.random.randint(key, (n if size is None else size,), 0, n, "int32")


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
  """Splits the examples S as in Bouthillier et al. 2021, appendix B (equations 11 and
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
