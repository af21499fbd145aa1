"""The examples that a run is trained on, as indices: subsets and bootstrap samples."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, Key


def subset(key: Key[Array, ""], n: int, size: int) -> Int32[Array, " size"]:
  """Draw `size` of `n` examples without replacement, in random order; every subset is
  equally likely.

  Works under `jit` and under `vmap` over keys; `n` and `size` are static, 1 <= size <=
  n.
  """
  return jax.random.permutation(key, n)[:size].astype("int32")


def bootstrap(
  key: Key[Array, ""], n: int, size: int | None = None
) -> Int32[Array, " size"]:
  """Draw `size` (by default `n`) of `n` examples, independently and with replacement.

  Equation 11 of Bouthillier et al. 2021. Works under `jit` and under `vmap` over keys;
  `n` and `size` are static, at least 1.
  """
  return jax.random.randint(key, (n if size is None else size,), 0, n, "int32")


class Split(NamedTuple):
  """Indices of the examples of three sets; no example is in two of them."""

  train: Int32[Array, " train"]
  valid: Int32[Array, " held_out"]
  test: Int32[Array, " held_out"]


def out_of_bootstrap(key: Key[Array, ""], n: int, size: int | None = None) -> Split:
  """Draw `size` of `n` examples to train on, with replacement, and from those that are
  left as many validation as test examples, half as many as `n - size` each.

  Validation examples are drawn with replacement from what training leaves, test
  examples from what both leave. By default `size` is two thirds of `n`: so Bouthillier
  et al. 2021, appendices B and D.1, draw 40,000, 10,000 and 10,000 of 60,000 examples.
  Works under `jit` and under `vmap` over keys; `n` and `size` are static, 1 <= size <=
  n - 2.
  """
  size = 2 * n // 3 if size is None else size
  held_out = (n - size) // 2
  left = jnp.ones(n, bool)
  drawn = []
  for number, count in enumerate((size, held_out, held_out)):
    places = jax.random.randint(
      jax.random.fold_in(key, number), (count,), 0, left.sum(), "int32"
    )
    drawn.append(jnp.argsort(~left, stable=True)[places].astype("int32"))
    left = left.at[drawn[-1]].set(False)
  return Split(*drawn)
