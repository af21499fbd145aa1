"""Programs in bfloat16 on CPUs: `widened`.

CPUs compute bfloat16 as float32, and converting takes them longer than computing. So
all that a program has in bfloat16 is kept in float32. Products alone, matrix products
and convolutions, round their two factors to bfloat16, and sum in float32: what a TPU
does with float32 arrays by default.
"""

import functools

import jax
import jax.numpy as jnp
from jax.extend.core import Literal, jaxpr_as_fun
from jax.extend.core.primitives import dot_general_p

from vmapseeds.jaxprs import (
  Program,
  closed_program,
  inner_programs,
  is_program,
  open_program,
)
from vmapseeds.lanes import half
from vmapseeds.lanes.convolution import convolve_p

NARROW, WIDE = jnp.dtype("bfloat16"), jnp.dtype("float32")
# What depends on how numbers are stored, or is not of JAX alone: computed as it is.
KEPT = {
  "bitcast_convert_type",
  "ffi_call",
  "io_callback",
  "nextafter",
  "pure_callback",
  "pallas_call",
}
TYPES = ("new_dtype", "dtype", "preferred_element_type")


def widened(program: Program) -> Program:
  """Return a program with what it has in bfloat16 in float32, but for what goes in and
  comes out; the same one if it has nothing in bfloat16.
  """
  if not _has_narrow(program):
    return program
  wide = jaxpr_as_fun(_wide(program, {}))

  def as_before(*args):
    results = wide(*map(_widen, args))
    return [
      r.astype(v.aval.dtype) if _is_narrow(v.aval) else r
      for r, v in zip(results, open_program(program).outvars, strict=True)
    ]

  return jax.make_jaxpr(as_before)(*program.in_avals)


def _is_narrow(a):
  return getattr(a, "dtype", None) == NARROW


def _widen(a):
  return a.astype(WIDE) if _is_narrow(a) else a


def _has_narrow(program):
  program = open_program(program)
  return any(_is_narrow(v.aval) for v in (*program.invars, *program.constvars)) or any(
    any(_is_narrow(v.aval) for v in equation.outvars)
    or any(_has_narrow(inner) for inner in inner_programs(equation))
    for equation in program.eqns
  )


def _wide(program, done):
  """Return a program with all in float32, its arguments and results too. A program that
  is used twice stays one.
  """
  if isinstance(program, tuple):
    parts = [_wide(part, done) for part in program]
    same = all(new is old for new, old in zip(parts, program, strict=True))
    return program if same else getattr(program, "_make", tuple)(parts)
  if not is_program(program) or not _has_narrow(program):
    return program
  closed = closed_program(program)
  if closed is not program:
    return open_program(_wide(closed, done))
  if id(program) not in done:
    of = functools.partial(_computed, program, done)
    like = (a.update(dtype=WIDE) if _is_narrow(a) else a for a in program.in_avals)
    # The program itself is kept, because its id is that of another once it is gone.
    done[id(program)] = program, jax.make_jaxpr(of)(*like)
  return done[id(program)][1]


def _computed(program, done, *args):
  values = dict(zip(open_program(program).invars, args, strict=True))
  values |= zip(
    open_program(program).constvars, map(_widen, program.consts), strict=True
  )

  def read(v):
    return _widen(v.val) if isinstance(v, Literal) else values[v]

  for equation in program.eqns:
    given = [*map(read, equation.invars)]
    with equation.ctx.manager:
      results = _result(equation, given, done)
    values |= zip(equation.outvars, results, strict=True)
  return [*map(read, open_program(program).outvars)]


def _result(equation, given, done):
  """Return the results of an equation for arguments in float32."""
  primitive, parameters = equation.primitive, dict(equation.params)
  factors = [_is_narrow(v.aval) for v in equation.invars]
  if primitive.name in ("custom_jvp_call", "custom_vjp_call"):
    inner = next(inner_programs(equation))
    return jaxpr_as_fun(_wide(inner, done))(*given)
  if primitive.name in KEPT:
    given = [
      a.astype(NARROW) if narrow else a
      for a, narrow in zip(given, factors, strict=True)
    ]
    results = primitive.bind(*given, **parameters)
    return [*map(_widen, results if primitive.multiple_results else [results])]
  for name in TYPES:
    if parameters.get(name) == NARROW:
      parameters[name] = WIDE
  parameters = {name: _wide(p, done) for name, p in parameters.items()}
  if primitive is convolve_p:
    like = parameters["like"]
    if like.dtype == NARROW:
      parameters["like"] = jax.ShapeDtypeStruct(like.shape, WIDE)
    if any(factors):
      parameters["window"] = half.rounding(parameters["window"])
  if primitive is dot_general_p and all(factors):
    parameters["preferred_element_type"] = WIDE
    left, right = given
    given = half.factors(left, right, parameters["dimension_numbers"])
  results = primitive.bind(*given, **parameters)
  return results if primitive.multiple_results else [results]
