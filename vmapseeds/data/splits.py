"""The examples that a run is trained on, as indices: subsets and bootstrap samples."""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Int32, Integer, Key

from vmapseeds.errors import UserError


def subset(
  key: Key[Array, ""],
  n: int,
  size: int,
) -> Int32[Array, " size"]:
  """Draw `size` of `n` examples without replacement, in random order; every subset is
  equally likely.

  Works under `jit` and under `vmap` over keys; `n` and `size` are static, 1 <= size <=
  n.
  """
  return jax.random.permutation(key, n)[:size].astype("int32")


def draw_bootstrap_sample(
  key: Key[Array, ""],
  n: int,
  size: int | None = None,
) -> Int32[Array, " size"]:
  """Draw `size` (by default `n`) of `n` examples, independently and with replacement.

  Equation 11 of Bouthillier et al. 2021. Works under `jit` and under `vmap` over keys;
  `n` and `size` are static, at least 1.
  """
  if size is None:
    size = n
  return jax.random.randint(key, (size,), 0, n, "int32")


class Split(NamedTuple):
  """Indices of the examples of three sets; no example is in two of them."""

  train: Int32[Array, " train"]
  valid: Int32[Array, " held_out"]
  test: Int32[Array, " held_out"]


def out_of_bootstrap(
  key: Key[Array, ""],
  n: int,
  size: int | None = None,
) -> Split:
  """Draw `size` of `n` examples to train on, with replacement, and from those that are
  left as many validation as test examples, half as many as `n - size` each.

  Validation examples are drawn with replacement from what training leaves, test
  examples from what both leave. By default `size` is two thirds of `n`: so Bouthillier
  et al. 2021, appendices B and D.1, draw 40,000, 10,000 and 10,000 of 60,000 examples.
  Works under `jit` and under `vmap` over keys; `n` and `size` are static, 1 <= size <=
  n - 2.
  """
  if size is None:
    size = 2 * n // 3
  held_out = (n - size) // 2

  undrawn = jnp.ones(n, bool)
  parts = []
  for number, count in enumerate((size, held_out, held_out)):
    part_key = jax.random.fold_in(key, number)
    places = jax.random.randint(part_key, (count,), 0, undrawn.sum(), "int32")
    # Shapes cannot depend on values under `jit`: examples that were drawn already are
    # sorted to the end, where no place is.
    candidates = jnp.argsort(~undrawn, stable=True)
    part = candidates[places].astype("int32")
    parts.append(part)
    undrawn = undrawn.at[part].set(False)
  return Split(*parts)


def k_fold(
  key: Key[Array, ""],
  n: int,
  k: int,
  *,
  labels: Integer[np.ndarray, " examples"] | None = None,
  groups: Integer[np.ndarray, " examples"] | None = None,
) -> Int[np.ndarray, " examples"]:
  """Draw a partition of `n` examples into `k` folds, and return each example's fold.

  Folds differ in size by one at most. With `labels` each class does so, too. With
  `groups`, numbered from 0, examples of one group are in one fold: groups are taken from
  the largest to the smallest, in random order where they are as large, and each goes to
  the smallest fold. With both, folds are those of scikit-learn's `StratifiedGroupKFold`:
  as equal in their shares of the classes as groups allow, and of different sizes. On the
  host.

  Raises:
    UserError: a fold of groups and classes would have no example.
  """
  folds = np.empty(n, np.int32)
  if groups is not None and labels is not None:
    return _stratified_groups(key, k, labels, groups)
  # Whole groups, so that none is on both sides of a split.
  if groups is not None:
    sizes = np.bincount(groups)
    order = np.asarray(jax.random.permutation(key, len(sizes)))
    # The largest first; a stable sort keeps the random order of equal ones.
    order = order[np.argsort(-sizes[order], kind="stable")]
    return _greedy(sizes, order, k)[groups]

  order = np.asarray(jax.random.permutation(key, n))
  if labels is not None:
    # Dealing out class after class gives each fold its share of each.
    order = order[np.argsort(labels[order], kind="stable")]
  folds[order] = np.arange(n) % k
  return folds


def _stratified_groups(key, k, labels, groups):
  """Return the folds of scikit-learn's `StratifiedGroupKFold`."""
  from sklearn.model_selection import StratifiedGroupKFold  # takes a while

  seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
  divide = StratifiedGroupKFold(k, shuffle=True, random_state=seed)
  folds = np.empty(len(labels), np.int32)
  with warnings.catch_warnings():
    # Of a class with fewer examples than folds, some folds have none.
    warnings.simplefilter("ignore", UserWarning)
    for fold, (_, held_out) in enumerate(divide.split(labels, labels, groups)):
      folds[held_out] = fold
  sizes = np.bincount(folds, minlength=k)
  if not sizes.all():
    raise UserError(
      f"{k} stratified folds of {len(np.unique(groups))} groups: one would have no "
      "example, give fewer folds"
    )
  return folds


def fold_sizes(
  n: int,
  k: int,
  groups: Integer[np.ndarray, " examples"] | None = None,
) -> tuple[int, ...]:
  """Return how many examples folds of `k_fold` have, ascending, each number once: the
  same numbers in every partition.
  """
  if groups is None:
    smallest = n // k
    largest = -(-n // k)
    return tuple(sorted({smallest, largest}))

  # The order of groups of one size, which `k_fold` draws, does not change the sizes.
  sizes = np.bincount(groups)
  order = np.argsort(-sizes, kind="stable")
  folds = _greedy(sizes, order, k)
  filled = np.bincount(folds, weights=sizes, minlength=k).astype(int)
  return tuple(np.unique(filled).tolist())


def _greedy(sizes, order, k):
  """Return the fold of each group: in turn the one that is smallest so far."""
  folds = np.empty(len(sizes), np.int32)
  filled = np.zeros(k, int)
  for group in order:
    emptiest = filled.argmin()
    folds[group] = emptiest
    filled[emptiest] += sizes[group]
  return folds
