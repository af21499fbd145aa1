"""Sums and selections of bfloat16, which a program made fast computes by way of float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.jaxprs import equations
from vmapseeds.target import compiling_for

NARROW = jnp.bfloat16


def dtypes_of(function, name, *args):
  """Return the types that equations of this name compute in, in the fast program."""
  program = jax.make_jaxpr(vs.fast_convolutions(function))(*args)
  return {
    str(equation.outvars[0].aval.dtype)
    for equation in equations(program)
    if equation.primitive.name == name
  }


def numbers(*shape):
  return jnp.asarray(np.random.default_rng(0).normal(size=shape), NARROW)


def bias_gradient(x, bias):
  """The sum that a layer's bias has for a gradient, which JAX takes in bfloat16."""
  return jax.grad(lambda b: jnp.sum(jnp.sin(x + b), dtype=jnp.float32))(bias)


def test_a_sum_is_wide_and_rounded_once():
  x, bias = numbers(50, 8, 8, 3), jnp.zeros(3, NARROW)
  found = jax.jit(vs.fast_convolutions(bias_gradient))(x, bias)
  assert found.dtype == NARROW
  expected = np.asarray(jnp.cos(x), np.float64).sum((0, 1, 2))
  np.testing.assert_allclose(found.astype(jnp.float32), expected, rtol=2**-8)
  assert dtypes_of(bias_gradient, "reduce_sum", x, bias) == {"float32"}


def test_a_selection_is_exact():
  x = (
    numbers(6, 7).at[0, :4].set(jnp.asarray([jnp.nan, jnp.inf, -jnp.inf, -0.0], NARROW))
  )

  def mask(x, dy):
    return jnp.where(x > 0, dy, -dy)

  found = jax.jit(vs.fast_convolutions(mask))(x, x)
  np.testing.assert_array_equal(
    *(np.asarray(a.astype(jnp.float32)) for a in (found, mask(x, x)))
  )
  assert found.dtype == NARROW
  assert dtypes_of(mask, "select_n", x, x) == {"float32"}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16, jnp.int16])
def test_other_types_stay(dtype):
  x = jnp.arange(12).astype(dtype)
  name = jnp.dtype(dtype).name
  assert dtypes_of(lambda x: jnp.where(x > 3, x, 0), "select_n", x) == {name}


def test_accelerators_keep_bfloat16():
  x, bias = numbers(5, 3), jnp.zeros(3, NARROW)
  with compiling_for("tpu"):
    assert dtypes_of(bias_gradient, "reduce_sum", x, bias) == {"bfloat16", "float32"}


def test_gradients_pass_through():
  x = numbers(4, 5)

  def loss(x):
    return jax.lax.reduce(jnp.where(x > 0, x * x, x), NARROW(0), jax.lax.add, (0, 1))

  ours = jax.grad(vs.fast_convolutions(loss))(x)
  np.testing.assert_array_equal(ours, jax.grad(loss)(x))
