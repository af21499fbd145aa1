"""The examples that a run is trained on, as indices: subsets and bootstrap samples."""

import jax
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
