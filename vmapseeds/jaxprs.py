"""Programs that JAX has traced: their equations, and the programs within them.

This module alone knows JAX's two classes of programs. Until JAX 0.10 a closed program
wraps an open one and holds its constants; from JAX 0.11 on both are one class.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

Program = Jaxpr | ClosedJaxpr
# Returns the equations to put in the place of one, or None to keep it and to look into
# it. The second argument has the equations of the same program by their results.
Replace = Callable[[JaxprEqn, dict[Var, JaxprEqn]], list[JaxprEqn] | None]


def is_program(value: Any) -> bool:
  return isinstance(value, Program)


def open_program(program: Program) -> Jaxpr:
  """Return the program that has the equations, without its constants where JAX keeps
  them apart.
  """
  if isinstance(program, Jaxpr):
    return program
  return program.jaxpr


def closed_program(program: Program) -> ClosedJaxpr:
  """Return the program with its constants; it must not need any if it is open."""
  if isinstance(program, ClosedJaxpr):
    return program
  return ClosedJaxpr(program, ())


def compute(program: ClosedJaxpr, *args: Any) -> list[Any]:
  """Return the results of a program.

  `jax.extend.core.jaxpr_as_fun` computes the same, but not what `jax_debug_nans` asks
  for.
  """
  return jax.core.eval_jaxpr(open_program(program), program.consts, *args)


def inner_programs(equation: JaxprEqn) -> Iterator[Program]:
  """Yield the programs that an equation calls, such as the body of a loop."""
  yield from _programs_in(equation.params.values())


def _programs_in(values: Iterable[Any]) -> Iterator[Program]:
  for value in values:
    if is_program(value):
      yield value
    elif isinstance(value, tuple | list):
      yield from _programs_in(value)


def equations(program: Program) -> list[JaxprEqn]:
  """Return the equations of a program, and those of the programs within, each program's
  once.
  """
  programs = [open_program(program)]
  seen = {id(programs[0])}
  all_equations: list[JaxprEqn] = []
  for current in programs:  # which grows
    all_equations += current.eqns
    for equation in current.eqns:
      for inner in map(open_program, inner_programs(equation)):
        if id(inner) not in seen:
          seen.add(id(inner))
          programs.append(inner)
  return all_equations


def rewritten(program: Program, replace: Replace) -> Program:
  """Return a program in which `replace` has exchanged equations, at any depth.

  A program in which nothing is exchanged is returned as it is, and one that is called
  twice stays one.
  """
  return _rewritten(program, replace, {})


def _rewritten(value, replace, done):
  if isinstance(value, tuple):
    parts = [_rewritten(part, replace, done) for part in value]
    same = all(new is old for new, old in zip(parts, value, strict=True))
    return value if same else getattr(value, "_make", tuple)(parts)
  if not is_program(value):
    return value
  program = open_program(value)
  if id(program) not in done:
    done[id(program)] = _with_replaced_equations(program, replace, done)
  new = done[id(program)]
  if value is program or new is program:
    return value if new is program else new
  return value.replace(jaxpr=new)


def _with_replaced_equations(program, replace, done):
  makers = {
    result: equation for equation in program.eqns for result in equation.outvars
  }
  equations: list[JaxprEqn] = []
  changed = False
  for equation in program.eqns:
    replacement = replace(equation, makers)
    if replacement is None:
      replacement = [_with_rewritten_programs(equation, replace, done)]
    changed |= replacement[0] is not equation
    equations += replacement
  return program.replace(eqns=equations) if changed else program


def _with_rewritten_programs(equation, replace, done):
  parameters = {
    name: _rewritten(value, replace, done) for name, value in equation.params.items()
  }
  if all(parameters[name] is value for name, value in equation.params.items()):
    return equation
  return equation.replace(params=parameters)


def equations_of(
  function: Callable, inputs: Iterable[Var], equation: JaxprEqn
) -> list[JaxprEqn]:
  """Return equations that compute the results of `equation` with a function of the
  variables `inputs`.
  """
  inputs = list(inputs)
  program = open_program(
    jax.make_jaxpr(function)(
      *(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in inputs)
    )
  )
  names = dict(zip(program.invars, inputs, strict=True))
  names |= dict(zip(program.outvars, equation.outvars, strict=True))

  def renamed(variables):
    return [names.get(v, v) if isinstance(v, Var) else v for v in variables]

  return [
    e.replace(
      invars=renamed(e.invars),
      outvars=renamed(e.outvars),
      source_info=equation.source_info,
      ctx=equation.ctx,
    )
    for e in program.eqns
  ]
