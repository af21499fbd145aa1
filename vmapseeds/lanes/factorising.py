"""Factorisations of matrices, kept from waiting for themselves."""

import math

import jax
import jaxlib

from vmapseeds.jaxprs import Program, equations_of, rewrite_program

# The axes of the first operand of one call, of all that JAX gives to LAPACK on CPUs.
AXES = {
  "cholesky": 2,
  "eig": 2,
  "eigh": 2,
  "geqp3": 2,
  "geqrf": 2,
  "hessenberg": 2,
  "householder_product": 2,
  "lu": 2,
  "ormqr": 2,
  "qr": 2,
  "schur": 2,
  "svd": 2,
  "triangular_solve": 2,
  "tridiagonal": 2,
  "tridiagonal_solve": 1,
}
# There a call for several matrices hands them to the threads that it runs on, and waits
# for them. As many such calls at once as there are threads wait for ever.
SEVERAL_AT_ONCE_WAIT = (0, 10) <= jaxlib.version.__version_info__ < (0, 12)


def factorise_one_by_one(program: Program) -> Program:
  """Return a program with a loop over matrices in the place of each call that factorises
  several, at any depth. With a JAX that is not affected, return it as it is.
  """
  if not SEVERAL_AT_ONCE_WAIT:
    return program
  return rewrite_program(program, _equations_of_a_loop)


def _equations_of_a_loop(equation, _):
  axes = AXES.get(equation.primitive.name)
  many = axes and equation.invars[0].aval.shape[:-axes]
  if not many or math.prod(many) == 1:
    return None

  def one(matrices):
    return equation.primitive.bind(*matrices, **equation.params)

  def loop(*matrices):
    flat = [a.reshape(-1, *a.shape[len(many) :]) for a in matrices]
    found = jax.tree.leaves(jax.lax.map(one, flat))
    return [a.reshape(*many, *a.shape[1:]) for a in found]

  return equations_of(loop, equation.invars, equation)
