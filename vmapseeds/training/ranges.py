"""Between which whole numbers the results of a traced program lie: the classes that a
run may predict are known before it is trained.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jax.extend.core import Var

from vmapseeds.jaxprs import CALLS, Equation, Program, inner_programs, open_program

# The least and the largest number, infinite where it is not known.
Range: TypeAlias = tuple[float, float]
UNKNOWN = (-math.inf, math.inf)

# Results are among the numbers of the first input.
CHOOSING = frozenset(
  {"reshape", "transpose", "squeeze", "broadcast_in_dim", "expand_dims", "copy"}
  | {"copy_p", "rev", "slice", "dynamic_slice", "reduce_max", "reduce_min"}
  | {"stop_gradient", "convert_element_type"}
)
LARGEST_CONSTANT = 10**6  # numbers of a constant that is looked at


def ranges_of(program: Program, inputs: Sequence[Range] = ()) -> list[Range]:
  """Return between which numbers each result of a program lies, given those of its first
  inputs. Of floating-point numbers nothing is known.
  """
  opened = open_program(program)
  constants = map(_range_of_constant, getattr(program, "consts", ()))
  known: dict[Any, Range] = dict(zip(opened.constvars, constants, strict=False))
  known |= zip(opened.invars, inputs, strict=False)

  def read(value):
    if isinstance(value, Var):
      return known.get(value, UNKNOWN)
    return _range_of_constant(value.val)

  for equation in opened.eqns:
    results = _results(equation, [read(value) for value in equation.invars])
    for variable, result in zip(equation.outvars, results, strict=True):
      known[variable] = _representable(variable.aval, result)
  return [read(value) for value in opened.outvars]


def _range_of_constant(value) -> Range:
  kind = np.dtype(getattr(value, "dtype", type(value))).kind
  if kind not in "iub" or not 0 < np.size(value) <= LARGEST_CONSTANT:
    return UNKNOWN
  array = np.asarray(value)
  return int(array.min()), int(array.max())


def _representable(aval, given: Range) -> Range:
  """Return a range, or that nothing is known if the dtype lacks some of its numbers."""
  kind = getattr(getattr(aval, "dtype", None), "kind", "")
  if kind == "b":
    return 0, 1
  if kind not in ("i", "u"):
    return UNKNOWN
  limits = np.iinfo(aval.dtype)
  ends = [end for end in given if math.isfinite(end)]
  return given if all(limits.min <= end <= limits.max for end in ends) else UNKNOWN


def _union(ranges: Sequence[Range]) -> Range:
  lows, highs = zip(*ranges, strict=True)
  return min(lows), max(highs)


def _sum(a: Range, b: Range) -> Range:
  result = a[0] + b[0], a[1] + b[1]
  # What is not known may be so large that the sum begins again below.
  return result if all(map(math.isfinite, result)) else UNKNOWN


def _maximum(a: Range, b: Range) -> Range:
  return max(a[0], b[0]), max(a[1], b[1])


def _negative(a: Range) -> Range:
  return -a[1], -a[0]


def _minimum(a: Range, b: Range) -> Range:
  return min(a[0], b[0]), min(a[1], b[1])


RULES: dict[str, Callable[..., Range]] = {
  "add": _sum,
  "sub": lambda a, b: _sum(a, _negative(b)),
  "max": _maximum,
  "min": _minimum,
  "clamp": lambda least, a, most: _minimum(_maximum(least, a), most),
  "select_n": lambda which, *cases: _union(cases),
  "concatenate": lambda *parts: _union(parts),
  **dict.fromkeys(CHOOSING, lambda a, *others: a),
}


def _results(equation: Equation, inputs: list[Range]) -> list[Range]:
  """Return between which numbers the results of an equation lie."""
  name = equation.primitive.name
  programs = list(inner_programs(equation))
  if name in CALLS and len(programs) == 1:
    return ranges_of(programs[0], inputs)
  if name == "scan":  # whatever it carries
    return ranges_of(programs[0])
  if name == "cond":
    branches = [ranges_of(program, inputs[1:]) for program in programs]
    return [_union(cases) for cases in zip(*branches, strict=True)]
  if name in ("argmax", "argmin"):
    shape = equation.invars[0].aval.shape
    return [(0, math.prod(shape[axis] for axis in equation.params["axes"]) - 1)]
  if name == "iota":
    return [(0, equation.params["shape"][equation.params["dimension"]] - 1)]
  if name in RULES and len(equation.outvars) == 1:
    return [RULES[name](*inputs)]
  return [UNKNOWN] * len(equation.outvars)
