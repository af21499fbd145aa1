"""Traced programs: their equations at any depth, and exchanging some of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core.primitives import sin_p

from vmapseeds.jaxprs import (
  equations,
  equations_of,
  evaluate_program,
  inner_programs,
  is_program,
  open_program,
  rewrite_program,
)

TABLE = np.arange(3, dtype=np.float32)


@jax.jit
def waves(x):
  return jnp.sin(x) + TABLE


def in_jit(x):
  return waves(x) * waves(x + 1)


def in_scan(x):
  return jax.lax.scan(lambda carry, _: (waves(carry), None), x, length=3)[0]


def in_cond(x):
  return jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)


def in_while(x):
  def unfinished(state):
    return state[0] < 3

  def step(state):
    return state[0] + 1, jnp.sin(state[1])

  return jax.lax.while_loop(unfinished, step, (0, x))[1]


def in_remat_and_gradient(x):
  return jax.grad(lambda x: jax.checkpoint(waves)(x).sum())(x)


@jax.custom_jvp
def custom(x):
  return jnp.sin(x)


custom.defjvp(lambda xs, ts: (custom(*xs), ts[0] * jnp.cos(*xs)))
PROGRAMS = [in_jit, in_scan, in_cond, in_while, in_remat_and_gradient, custom]
X = jnp.array([0.25, 1.0, -0.5])


def with_cubes_for_sines(equation, makers):
  if equation.primitive is not sin_p:
    return None
  return equations_of(lambda x: x**3, equation.invars, equation)


@pytest.mark.parametrize("function", PROGRAMS)
def test_equations_are_exchanged_at_any_depth(function, monkeypatch):
  program = jax.make_jaxpr(function)(X)
  before = str(program)
  names = [equation.primitive.name for equation in equations(program)]
  assert "sin" in names
  exchanged = rewrite_program(program, with_cubes_for_sines)
  assert "sin" not in [equation.primitive.name for equation in equations(exchanged)]
  assert str(program) == before
  (value,) = evaluate_program(exchanged, X)
  monkeypatch.setattr(jnp, "sin", lambda x: x**3)
  jax.clear_caches()
  if function is in_remat_and_gradient:
    # The derivative was taken before: only the sine of the forward pass, which no
    # result needs, is exchanged.
    np.testing.assert_allclose(value, np.cos(X), rtol=1e-6)
  else:
    with jax.disable_jit():
      np.testing.assert_allclose(value, function(X), rtol=1e-6)


@pytest.mark.parametrize("function", PROGRAMS)
def test_a_program_without_exchanges_is_returned_as_it_is(function):
  program = jax.make_jaxpr(function)(X)
  assert rewrite_program(program, lambda equation, makers: None) is program


def test_a_program_that_is_called_twice_stays_one():
  exchanged = rewrite_program(jax.make_jaxpr(in_jit)(X), with_cubes_for_sines)
  called = [
    open_program(inner)
    for equation in exchanged.eqns
    for inner in inner_programs(equation)
  ]
  assert len(called) == 2
  assert called[0] is called[1]


def test_equations_count_each_program_once():
  names = [e.primitive.name for e in equations(jax.make_jaxpr(in_jit)(X))]
  assert names.count("sin") == 1
  assert names.count("mul") == 1


def test_programs_of_all_branches_are_seen():
  names = {e.primitive.name for e in equations(jax.make_jaxpr(in_cond)(X))}
  assert {"sin", "cos"} <= names


def test_what_is_a_program():
  program = jax.make_jaxpr(in_jit)(X)
  assert is_program(program)
  assert is_program(open_program(program))
  assert open_program(open_program(program)) is open_program(program)
  assert not is_program(program.eqns)
  assert equations(jax.make_jaxpr(lambda x: x)(X)) == []
