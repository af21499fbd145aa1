"""The program of one lane, prepared to run beside others: `prepare_lane`."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from vmapseeds.convolutions import fast_equations, onednn
from vmapseeds.jaxprs import (
  check_divides_nothing,
  equations_of,
  rewrite_function,
  rewrite_program,
)
from vmapseeds.target import platform

Function = TypeVar("Function", bound=Callable[..., Any])

# What draws, and the kinds of keys for which JAX's batching rule draws for all lanes by
# the first lane's key
DRAWS = {"random_bits", "random_split", "random_fold_in"}
BATCHED_KEYS = {"key<rbg>", "key<urbg>"}


def prepare_lane(function: Function) -> Function:
  """Return a lane's function with fast convolutions and products, on the lane's device,
  drawing by its own keys.

  Raises:
    UserError: when called, if it computes on several devices.
  """
  return rewrite_function(function, _equations_of_lane)


def _equations_of_lane(equation, made):
  check_divides_nothing([equation], "a lane")
  if platform() == "cpu" and onednn.multiplies(equation):
    return equations_of(onednn.product(equation), equation.invars, equation)
  if equation.primitive.name in DRAWS and _draws_by_neighbours(equation):
    one_by_one = jax.custom_batching.sequential_vmap(
      functools.partial(equation.primitive.bind, **equation.params)
    )
    return equations_of(one_by_one, equation.invars, equation)
  return fast_equations(equation, made) or _on_one_device(equation)


def _draws_by_neighbours(equation):
  return str(equation.invars[0].aval.dtype) in BATCHED_KEYS


def _on_one_device(equation):
  """Return what stands for an equation that says on which devices arrays lie: a lane is
  on one, and lanes are divided among them. None for any other equation.
  """
  if equation.primitive.name == "sharding_constraint":
    return equations_of(jnp.copy, equation.invars, equation)
  shardings = ("in_shardings", "out_shardings")
  given = [one for name in shardings for one in equation.params.get(name, ())]
  if not given or all(one is unspecified() for one in given):
    return None
  changed = {name: (unspecified(),) * len(equation.params[name]) for name in shardings}
  inner = rewrite_program(equation.params["jaxpr"], _equations_of_lane)
  return [equation.replace(params=equation.params | changed | {"jaxpr": inner})]


@functools.cache
def unspecified():
  """Return what JAX writes where a call says nothing about devices."""
  (call,) = jax.make_jaxpr(jax.jit(lambda x: x))(0.0).eqns
  return call.params["in_shardings"][0]
