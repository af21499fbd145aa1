"""Programs that JAX has traced: their equations, and the programs within them.

This module alone knows JAX's two classes of programs. Until JAX 0.10 a closed program
wraps an open one and holds its constants; from JAX 0.11 on both are one class.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import jax
from jax.extend import core
from jax.extend.core import Jaxpr, Var

from vmapseeds.errors import UserError

# JAX keeps the second name only for those who still use it.
ClosedJaxpr = getattr(core, "ClosedJaxpr", Jaxpr)
PROGRAMS = (Jaxpr, ClosedJaxpr)
# Not typed: JAX's annotations do not say that variables have shapes.
Program: TypeAlias = Any
Equation: TypeAlias = Any
Function = TypeVar("Function", bound=Callable[..., Any])
# Returns the equations to put in the place of one, or None to keep it and to look into
# it. The second argument has the equations of the same program by their results.
Replace = Callable[[Equation, dict[Var, Equation]], list[Equation] | None]


def is_program(value: Any) -> bool:
  return isinstance(value, PROGRAMS)


def open_program(program: Program) -> Program:
  """Return the program that has the equations, without its constants where JAX keeps
  them apart.
  """
  # From JAX 0.11 on this is every program.
  if isinstance(program, Jaxpr):
    return program
  return program.jaxpr


def evaluate_program(program: Program, *args: Any) -> list[Any]:
  """Return the results of a program.

  `jax.extend.core.jaxpr_as_fun` computes the same, but not what `jax_debug_nans` asks
  for.
  """
  return jax.core.eval_jaxpr(open_program(program), program.consts, *args)


def inner_programs(equation: Equation) -> list[Program]:
  """Return the programs that an equation calls, such as the body of a loop."""
  programs = []
  waiting = [*equation.params.values()]
  for value in waiting:
    if isinstance(value, PROGRAMS):
      programs.append(value)
    elif isinstance(value, tuple | list):
      waiting += value
  return programs


def equations(program: Program) -> list[Equation]:
  """Return the equations of a program, and those of the programs within, each program's
  once.
  """
  waiting = [open_program(program)]
  # By identity: programs cannot be hashed by what they compute.
  seen = {id(waiting[0])}
  all_equations: list[Equation] = []
  while waiting:
    current = waiting.pop(0)
    all_equations += current.eqns
    for inner in _programs_within(current):
      if id(inner) not in seen:
        seen.add(id(inner))
        waiting.append(inner)
  return all_equations


def _programs_within(program: Program) -> Iterator[Program]:
  for equation in program.eqns:
    for inner in inner_programs(equation):
      yield open_program(inner)


# Operations that compute on several devices.
DIVIDING = frozenset({"shard_map", "xla_pmap"})


def check_divides_nothing(of_program: Iterable[Equation], what: str) -> None:
  """Raise `UserError` if one of a program's equations computes on several devices."""
  if DIVIDING & {equation.primitive.name for equation in of_program}:
    raise UserError(
      f"{what} divides its work among devices (jax.pmap or jax.shard_map): it has one "
      "device, as lanes are divided among all, use jax.vmap there"
    )


def rewrite_program(program: Program, replace: Replace) -> Program:
  """Return a program in which `replace` has exchanged equations, at any depth.

  A program in which nothing is exchanged is returned as it is, and one that is called
  twice stays one.
  """
  return _rewrite_parameter(program, replace, {})


def rewrite_function(function: Function, replace: Replace) -> Function:
  """Return a function that traces `function` when called, and computes its program as
  rewritten by `replace`.
  """

  @functools.wraps(function)
  def rewritten(*args, **kwargs):
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*args, **kwargs)
    program = rewrite_program(program, replace)
    found = evaluate_program(program, *jax.tree.leaves((args, kwargs)))
    return jax.tree.unflatten(jax.tree.structure(shapes), found)

  return rewritten  # type: ignore[return-value]


def _rewrite_parameter(value, replace, done):
  """Return a parameter of an equation with its programs rewritten. `done` has the new
  programs by the identity of the old ones.
  """
  if isinstance(value, tuple):
    parts = [_rewrite_parameter(part, replace, done) for part in value]
    if all(new is old for new, old in zip(parts, value, strict=True)):
      return value
    # Named tuples, too, are made of their parts again.
    make = getattr(value, "_make", tuple)
    return make(parts)
  if not is_program(value):
    return value

  program = open_program(value)
  if id(program) not in done:
    done[id(program)] = _with_replaced_equations(program, replace, done)
  new = done[id(program)]
  if new is program:
    return value
  if value is program:
    return new
  # Until JAX 0.10 a closed program wraps the open one.
  return value.replace(jaxpr=new)


def _with_replaced_equations(program, replace, done):
  makers = {}
  for equation in program.eqns:
    for result in equation.outvars:
      makers[result] = equation

  equations: list[Equation] = []
  changed = False
  for equation in program.eqns:
    replacement = replace(equation, makers)
    if replacement is None:
      replacement = [_with_rewritten_programs(equation, replace, done)]
    changed |= replacement[0] is not equation
    equations += replacement
  if not changed:
    return program
  return program.replace(eqns=equations)


def _with_rewritten_programs(equation, replace, done):
  parameters = {}
  changed = False
  for name, value in equation.params.items():
    parameters[name] = _rewrite_parameter(value, replace, done)
    changed |= parameters[name] is not value
  if not changed:
    return equation
  return equation.replace(params=parameters)


def equations_of(
  function: Callable,
  inputs: Iterable[Any],
  equation: Equation,
) -> list[Equation]:
  """Return equations that compute the results of `equation` with a function of the
  variables `inputs`.
  """
  inputs = list(inputs)
  shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in inputs]
  program = open_program(jax.make_jaxpr(function)(*shapes))
  # The new program's variables, by those of the program that it becomes a part of.
  names = dict(zip(program.invars, inputs, strict=True))
  names |= dict(zip(program.outvars, equation.outvars, strict=True))

  def renamed(variables):
    # Literals cannot be hashed.
    return [names.get(v, v) if isinstance(v, Var) else v for v in variables]

  new_equations = []
  for new_equation in program.eqns:
    # With the place of the old one in the user's source, which error messages show.
    new_equations.append(
      new_equation.replace(
        invars=renamed(new_equation.invars),
        outvars=renamed(new_equation.outvars),
        source_info=equation.source_info,
        ctx=equation.ctx,
      )
    )
  return new_equations
