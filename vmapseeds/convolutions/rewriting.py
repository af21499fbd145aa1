"""Convolutions of any program, made fast: `fast_convolutions`.

The program of one lane is traced. Each `conv_general_dilated` in it, at any depth, is
brought into one form, channels last, and replaced by the part of a convolution that it
is: forward, input gradient or kernel gradient. A program that differentiates itself has
all three. Which part a convolution is called decides speed alone, because each is the
same sum of products under another name. What is not recognised stays XLA's.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Var
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p, rev_p
from jax.sharding import AxisType

from vmapseeds.convolutions import bfloat16, onednn
from vmapseeds.convolutions.primitive import (
  Window,
  convolve,
  convolve_p,
  current_lane_parameters,
  sizes_of,
)
from vmapseeds.convolutions.xla import turned
from vmapseeds.errors import say
from vmapseeds.jaxprs import Equation, equations_of, rewrite_function

# What a convolution is, rewritten or not
CONVOLUTIONS = (convolve_p, conv_general_dilated_p)
Function = TypeVar("Function", bound=Callable[..., Any])


def fast_convolutions(function: Function) -> Function:
  """Return `function` with its convolutions made fast, on CPUs and under `jax.vmap`
  over kernels; values are the same up to rounding.

  Convolutions may be in any layout, of any library, inside `jit`, `scan`, `cond`,
  `vmap`, `remat`. Apply this to a whole training step: then gradients are made fast,
  too. What cannot be made fast stays as it is, and a line on stderr names it.

  >>> lines, kernel = jnp.ones((2, 1, 8)), jnp.ones((4, 1, 3))
  >>> convolved = fast_convolutions(lambda x, w: jax.lax.conv(x, w, (1,), "VALID"))
  >>> jax.jit(convolved)(lines, kernel).shape
  (2, 4, 6)
  """
  return rewrite_function(function, fast_equations)


def conv_general_dilated(lhs, rhs, window_strides, padding, *args, **options):
  """Convolve as `jax.lax.conv_general_dilated` does, but fast, on CPUs and under
  `jax.vmap` over kernels.

  `fast_convolutions` makes convolutions fast without this function, and campaigns do.
  Elsewhere pass it to `nn.Conv(conv_general_dilated=...)` of Linen or NNX.
  """

  def convolve_plainly(lhs, rhs):
    return jax.lax.conv_general_dilated(
      lhs, rhs, window_strides, padding, *args, **options
    )

  return fast_convolutions(convolve_plainly)(lhs, rhs)


def fast_equations(
  equation: Equation, made: dict[Var, Equation]
) -> list[Equation] | None:
  """Return the equations to compute a convolution with, None for any other equation.

  Args:
    equation: of any program.
    made: the equations of the same program, by their results.
  """
  if equation.primitive is convolve_p:
    return [equation.replace(params=equation.params | current_lane_parameters())]
  if bfloat16.is_slow(equation):
    function = bfloat16.in_float32(equation)
    return equations_of(function, equation.invars, equation)
  if equation.primitive is not conv_general_dilated_p:
    return None
  lhs, rhs = equation.invars
  out = equation.outvars[0].aval
  if 0 in (*lhs.aval.shape, *rhs.aval.shape, *out.shape):
    return None
  form = _form_of(equation)
  obstacle = _obstacle(form, lhs.aval, rhs.aval, out)
  if obstacle:
    _say_what_is_left(lhs.aval.shape, rhs.aval.shape, obstacle)
    return None
  unreversed = _unreversed_kernel(rhs, form, made)
  function = _function_of_part(form, lhs.aval, rhs.aval, out, unreversed is not None)
  if function is _input_gradient and unreversed is not None:
    rhs = unreversed
    function = functools.partial(function, is_reversed=False)
  return equations_of(functools.partial(function, form, out), (lhs, rhs), equation)


def calls_onednn(equations: Iterable[Equation]) -> bool:
  """Return whether convolutions or products among the equations of a lane may be calls
  of oneDNN here.
  """
  of_calls = [
    one for one in equations if one.primitive in (*CONVOLUTIONS, dot_general_p)
  ]
  # Asked last: the first process that asks tries the calls, which takes seconds.
  return any(map(_may_gain_by_a_call, of_calls)) and onednn.is_usable()


def _may_gain_by_a_call(equation):
  dtype = equation.invars[0].aval.dtype
  if equation.primitive is dot_general_p:
    return dtype == jnp.bfloat16
  return onednn.may_gain(dtype, multiplications(equation))


def multiplications(equation: Equation) -> int:
  """Return how many numbers a convolution multiplies, those of padding included."""
  if equation.primitive is convolve_p:
    _, kernel, outputs = sizes_of(equation)
    return math.prod((*outputs, *kernel[:-1]))
  inputs, kernel = (v.aval.shape for v in equation.invars)
  outputs = equation.outvars[0].aval.shape
  numbers = equation.params["dimension_numbers"]
  batch, feature, *space = numbers.out_spec
  # An input gradient has as many products as its convolution: no more pixels than the
  # gradient that it is made from.
  pixels = min(
    math.prod([outputs[axis] for axis in space]),
    math.prod([inputs[axis] for axis in numbers.lhs_spec[2:]]),
  )
  products_a_pixel = math.prod(kernel) // kernel[numbers.rhs_spec[0]]
  return outputs[batch] * outputs[feature] * pixels * products_a_pixel


def _form_of(equation):
  form = ConvolutionForm(
    **{name: equation.params[name] for name in ConvolutionForm._fields}
  )
  padding = tuple((int(low), int(high)) for low, high in form.padding)
  return form._replace(padding=padding)


def _unreversed_kernel(kernel, form, made):
  """Return the kernel before its pixels were reversed, None if they were not.

  JAX's input gradients reverse them just before. Without strides that is all that tells
  them from forward convolutions.
  """
  before = made.get(kernel) if isinstance(kernel, Var) else None
  if before is None or before.primitive is not rev_p:
    return None
  pixels = form.dimension_numbers.rhs_spec[2:]
  if set(before.params["dimensions"]) != set(pixels):
    return None
  return before.invars[0]


@functools.cache
def _say_what_is_left(images, kernel, why):
  say(
    f"a convolution of {images} with {kernel} stays XLA's own, and may be slow: it has "
    f"{why}"
  )


class ConvolutionForm(NamedTuple):
  """The parameters of `jax.lax.conv_general_dilated`."""

  window_strides: tuple[int, ...]
  padding: tuple[tuple[int, int], ...]
  lhs_dilation: tuple[int, ...]
  rhs_dilation: tuple[int, ...]
  dimension_numbers: jax.lax.ConvDimensionNumbers
  feature_group_count: int
  batch_group_count: int
  precision: Any
  preferred_element_type: Any


def _obstacle(form, lhs, rhs, out):
  """Return what keeps a convolution from being one of the parts; empty if nothing does."""
  dtypes = {lhs.dtype, rhs.dtype}
  if len(dtypes) > 1 or not jnp.issubdtype(lhs.dtype, jnp.floating):
    return f"numbers of type {lhs.dtype} and {rhs.dtype}"
  if AxisType.Explicit in out.sharding.mesh.axis_types:
    return "explicit sharding"
  if not _has_zeros_between_pixels(form) or _is_kernel_gradient_of_transposed(
    form, rhs, out
  ):
    return ""
  if math.prod(form.window_strides) > 1 or form.batch_group_count > 1:
    return "dilated images, and strides or batch groups"
  return ""


def _function_of_part(form, lhs, rhs, out, is_reversed):
  """Return the function of the part that a convolution is.

  Args:
    form: the parameters of the convolution.
    lhs, rhs, out: the shapes of its arrays.
    is_reversed: whether the kernel's pixels have just been reversed.
  """
  if _has_zeros_between_pixels(form):
    if _is_kernel_gradient_of_transposed(form, rhs, out):
      return _kernel_gradient_of_transposed
    return _input_gradient
  if _has_examples_for_channels(form, rhs, out) or form.batch_group_count > 1:
    return _kernel_gradient
  if is_reversed and math.prod(form.window_strides) == 1:
    return _input_gradient
  return _forward


def _has_zeros_between_pixels(form):
  """Return whether a convolution is of images with zeros between their pixels."""
  return math.prod(form.lhs_dilation) > 1


def _has_examples_for_channels(form, rhs, out):
  """Return whether examples take the place of channels, as in a kernel gradient.

  Nearly everywhere they are an array's first axis; else a kernel larger than the output
  tells.
  """
  numbers = form.dimension_numbers
  examples, channels, *_ = numbers.lhs_spec
  kernel_pixels = math.prod(rhs.shape[axis] for axis in numbers.rhs_spec[2:])
  out_pixels = math.prod(out.shape[axis] for axis in numbers.out_spec[2:])
  return channels == 0 or (examples != 0 and kernel_pixels > out_pixels)


def _is_kernel_gradient_of_transposed(form, rhs, out):
  """Return whether a convolution with zeros between pixels is a kernel gradient: of a
  transposed convolution.
  """
  groups = form.batch_group_count * form.feature_group_count
  is_dilated = math.prod(form.rhs_dilation) > 1
  return groups == 1 and not is_dilated and _has_examples_for_channels(form, rhs, out)


def _forward(form, out, lhs, rhs):
  numbers = form.dimension_numbers
  window = Window(
    form.window_strides,
    form.padding,
    form.rhs_dilation,
    form.feature_group_count,
    form.precision,
    form.preferred_element_type,
  )
  order = _images(numbers.out_spec)
  x = _ordered(lhs, _images(numbers.lhs_spec))
  w = _ordered(rhs, _kernel(numbers.rhs_spec))
  return _placed(convolve("forward", window, x, w, _ordered(out, order)), order)


def _input_gradient(form, out, lhs, rhs, is_reversed=True):
  """Compute an input gradient from the outputs' and the kernel. `is_reversed`: whether
  the kernel's pixels are reversed, as XLA takes it.
  """
  numbers, groups = form.dimension_numbers, form.feature_group_count
  dy = _ordered(lhs, _images(numbers.lhs_spec))
  w = _ordered(rhs, _kernel(_swapped(numbers.rhs_spec)))
  like = _ordered(out, _images(numbers.out_spec))
  *pixels, channels, features = w.shape
  if is_reversed:
    w = jnp.flip(w, range(len(pixels)))
  if groups > 1:
    w = w.reshape(*pixels, groups, channels // groups, features)
    w = jnp.swapaxes(w, -3, -2).reshape(*pixels, channels // groups, groups * features)
  low = [
    (k - 1) * d - low
    for k, d, (low, _) in zip(pixels, form.rhs_dilation, form.padding, strict=True)
  ]
  window = _fitting(
    form, groups, form.lhs_dilation, form.rhs_dilation, low, like, w, dy
  )
  return _placed(
    convolve("input_gradient", window, w, dy, like), _images(numbers.out_spec)
  )


def _kernel_gradient(form, out, lhs, rhs):
  numbers, copies = form.dimension_numbers, form.feature_group_count
  # Examples and channels have changed places; so has what is made of them.
  x = _ordered(lhs, _images(_swapped(numbers.lhs_spec)))
  dy = _ordered(rhs, _images(_swapped(numbers.rhs_spec)))
  order = _kernel(_swapped(numbers.out_spec))
  *shape, features = _ordered(out, order).shape
  like = jax.ShapeDtypeStruct((*shape, features // copies), out.dtype)
  low = [low for low, _ in form.padding]
  steps = form.rhs_dilation, form.window_strides
  window = _fitting(form, form.batch_group_count, *steps, low, x, like, dy)
  gradient = functools.partial(convolve, "kernel_gradient", window, like=like)
  if copies == 1:
    return _placed(gradient(x, dy), order)
  # An inner `vmap` over both.
  x = x.reshape(copies, -1, *x.shape[1:])
  dy = jnp.moveaxis(dy.reshape(*dy.shape[:-1], copies, -1), -2, 0)
  dw = jnp.moveaxis(jax.vmap(gradient)(x, dy), 0, -2)
  return _placed(dw.reshape(*shape, features), order)


def _kernel_gradient_of_transposed(form, out, lhs, rhs):
  """The kernel gradient of a transposed convolution: images and outputs have changed
  places, and the kernel is turned.
  """
  numbers = form.dimension_numbers
  dy = _ordered(lhs, _images(_swapped(numbers.lhs_spec)))
  x = _ordered(rhs, _images(_swapped(numbers.rhs_spec)))
  order = _kernel(_swapped(numbers.out_spec))
  like = _ordered(out, order)
  *pixels, channels, features = like.shape
  like = jax.ShapeDtypeStruct((*pixels, features, channels), like.dtype)
  low = [
    (k - 1) * d - low
    for k, d, (low, _) in zip(pixels, form.window_strides, form.padding, strict=True)
  ]
  window = _fitting(form, 1, form.lhs_dilation, form.window_strides, low, x, like, dy)
  dw = convolve("kernel_gradient", window, x, dy, like)
  return _placed(turned(dw), order)


def _fitting(form, groups, strides, dilation, low, x, w, dy):
  """Return the window of the convolution of images of the shape of `x` that has outputs
  of the shape of `dy`, from its padding before the first pixels.
  """
  padding = []
  sizes = x.shape[1:-1], dy.shape[1:-1], w.shape, strides, dilation, low
  for n, outputs, k, s, d, first in zip(*sizes, strict=False):
    least = (outputs - 1) * s + (k - 1) * d + 1 - n - first
    # Where the stride leaves a choice, as most programs choose.
    last = next(p for p in (first, 0, least) if least <= p < least + s)
    padding.append((first, last))
  return Window(tuple(strides), tuple(padding), tuple(dilation), groups, form.precision)


# An order of axes: of images (n, *spatial, channels), of a kernel (*kernel, in, out).
# XLA drops transposes.


def _images(spec):
  return (spec[0], *spec[2:], spec[1])


def _kernel(spec):
  return (*spec[2:], spec[1], spec[0])


def _swapped(spec):
  return (spec[1], spec[0], *spec[2:])


def _ordered(a, order):
  """Return an array, or the shape of one, with its axes in `order`."""
  if isinstance(a, jax.Array):
    return jnp.transpose(a, order)
  return jax.ShapeDtypeStruct([a.shape[axis] for axis in order], a.dtype)


def _placed(a, order):
  """Return an array with its axes at the places `order`."""
  return jnp.transpose(a, np.argsort(order).tolist())
