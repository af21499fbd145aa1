"""Programs that JAX has traced: their equations, and the programs within them.

This module alone knows JAX's two classes of programs. Until JAX 0.10 a closed program
wraps an open one and holds its constants; from JAX 0.11 on both are one class.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import jax
from jax.extend import core
from jax.extend.core import Jaxpr, Var

from vmapseeds.mistakes import Mistake

# JAX keeps the second name only for those who still use it.
ClosedJaxpr = getattr(core, "ClosedJaxpr", Jaxpr)
# Not typed: JAX's annotations do not say that variables have shapes.
Program: TypeAlias = Any
Equation: TypeAlias = Any
# Returns the equations to put in the place of one, or None to keep it and to look into
# it. The second argument has the equations of the same program by their results.
Replace = Callable[[Equation, dict[Var, Equation]], list[Equation] | None]


def is_program(value: Any) -> bool:
  return isinstance(value, Jaxpr | ClosedJaxpr)


def open_program(program: Program) -> Program:
  """Return the program that has the equations, without its constants where JAX keeps
  them apart.
  """
  if isinstance(program, Jaxpr):
    return program
  return program.jaxpr


def compute(program: Program, *args: Any) -> list[Any]:
  """Return the results of a program.

  `jax.extend.core.jaxpr_as_fun` computes the same, but not what `jax_debug_nans` asks
  for.
  """
  return jax.core.eval_jaxpr(open_program(program), program.consts, *args)


def inner_programs(equation: Equation) -> Iterator[Program]:
  """Yield the programs that an equation calls, such as the body of a loop."""
  yield from _programs_in(equation.params.values())


def _programs_in(values: Iterable[Any]) -> Iterator[Program]:
  for value in values:
    if is_program(value):
      yield value
    elif isinstance(value, tuple | list):
      yield from _programs_in(value)


# Operations that only call a program of their own inputs.
CALLS = frozenset(
  {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint"}
  | {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
)


class FlatEquation(NamedTuple):
  """An equation outside of all calls. Values have numbers; None is a literal."""

  equation: Equation
  inputs: list[int | None]
  outputs: list[int]


def flat_equations(
  program: Program,
) -> tuple[list[FlatEquation], list[int], list[int | None]]:
  """Return a program's equations with those of the programs that it calls in the place
  of the calls, and the numbers of its inputs and of its outputs.
  """
  flat: list[FlatEquation] = []
  numbers = itertools.count()

  def flatten(program, inputs):
    values = dict(zip(program.invars, inputs, strict=True))
    for constant in getattr(program, "constvars", ()):
      values.setdefault(constant, next(numbers))

    def number_of(variable):
      return values[variable] if isinstance(variable, Var) else None

    for equation in program.eqns:
      read = [number_of(variable) for variable in equation.invars]
      inner = [open_program(one) for one in inner_programs(equation)]
      is_call = equation.primitive.name in CALLS and len(inner) == 1
      if is_call and len(inner[0].invars) == len(read):
        written = flatten(inner[0], read)
      else:
        written = [next(numbers) for _ in equation.outvars]
        flat.append(FlatEquation(equation, read, written))
      values.update(zip(equation.outvars, written, strict=True))
    return [number_of(variable) for variable in program.outvars]

  opened = open_program(program)
  inputs = [next(numbers) for _ in opened.invars]
  outputs = flatten(opened, inputs)
  return flat, inputs, outputs


def equations(program: Program) -> list[Equation]:
  """Return the equations of a program, and those of the programs within, each program's
  once.
  """
  programs = [open_program(program)]
  seen = {id(programs[0])}
  all_equations: list[Equation] = []
  for current in programs:  # which grows
    all_equations += current.eqns
    for equation in current.eqns:
      for inner in map(open_program, inner_programs(equation)):
        if id(inner) not in seen:
          seen.add(id(inner))
          programs.append(inner)
  return all_equations


# Operations that compute on several devices.
DIVIDING = frozenset({"shard_map", "xla_pmap"})


def check_divides_nothing(equation: Equation, what: str) -> None:
  """Raise `Mistake` if an equation computes on several devices."""
  if equation.primitive.name in DIVIDING:
    raise Mistake(
      f"{what} divides its work among devices (jax.pmap or jax.shard_map): it has one "
      "device, as lanes are divided among all, use jax.vmap there"
    )


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
  equations: list[Equation] = []
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
  function: Callable, inputs: Iterable[Any], equation: Equation
) -> list[Equation]:
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
