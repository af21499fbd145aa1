"""Programs of one lane, kept on the lane's device: `on_one_device`."""

import functools

import jax
import jax.numpy as jnp

from vmapseeds.jaxprs import (
  Equation,
  Replace,
  check_divides_nothing,
  equations_of,
  rewrite_program,
)


def on_one_device(equation: Equation, replace: Replace) -> list[Equation] | None:
  """Return what stands for an equation that says on which devices arrays lie: a lane is
  on one, and lanes are divided among them. None for any other equation.

  Args:
    equation: of a lane's program.
    replace: what else is exchanged in the programs that it calls.

  Raises:
    UserError: the equation computes on several devices.
  """
  check_divides_nothing(equation, "a lane")
  if equation.primitive.name == "sharding_constraint":
    return equations_of(jnp.copy, equation.invars, equation)
  shardings = ("in_shardings", "out_shardings")
  given = [one for name in shardings for one in equation.params.get(name, ())]
  if not given or all(one is unspecified() for one in given):
    return None
  changed = {name: (unspecified(),) * len(equation.params[name]) for name in shardings}
  inner = rewrite_program(equation.params["jaxpr"], replace)
  return [equation.replace(params=equation.params | changed | {"jaxpr": inner})]


@functools.cache
def unspecified():
  """Return what JAX writes where a call says nothing about devices."""
  (call,) = jax.make_jaxpr(jax.jit(lambda x: x))(0.0).eqns
  return call.params["in_shardings"][0]
