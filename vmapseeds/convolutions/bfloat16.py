"""Operations of bfloat16 that XLA for CPUs has no fast code for, by way of float32."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.extend.core.primitives import reduce_sum_p, select_n_p

from vmapseeds.jaxprs import Equation
from vmapseeds.target import platform

# Sums become trees of windows, selections a branch for each number.
SLOW = (reduce_sum_p, select_n_p)


def is_slow(equation: Equation) -> bool:
  """Return whether an equation is faster in float32."""
  return (
    platform() == "cpu"
    and equation.primitive in SLOW
    and equation.outvars[0].aval.dtype == jnp.bfloat16
  )


def in_float32(equation: Equation) -> Callable[..., jax.Array]:
  """Return the function that computes an equation in float32, and rounds once."""

  def computed(*arrays):
    wide = []
    for a in arrays:
      if a.dtype == jnp.bfloat16:
        a = a.astype(jnp.float32)
      wide.append(a)
    return equation.primitive.bind(*wide, **equation.params).astype(jnp.bfloat16)

  return computed
