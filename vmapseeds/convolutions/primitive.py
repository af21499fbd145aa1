"""The convolution of one lane as a primitive: its forward pass and both gradients, fast
when every lane has its own kernel.

`jax.vmap` turns a convolution over kernels into a grouped convolution, and its gradient
into one with `batch_group_count`; XLA runs both slower than one network after another.
Here a convolution whose kernels have a lane axis runs as batched matrix products over
patches (`im2col`), or one lane after another (`sequential`). On a CPU one lane's
gradients are forward convolutions (`cpu`).

Images, kernel and outputs meet in one trilinear form. Each part of it takes two of
them, and gives what belongs to the third. So a derivative of a part is a part again.
"""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from vmapseeds.convolutions import cpu, im2col, onednn
from vmapseeds.convolutions.xla import XLA, OnCPU, Window
from vmapseeds.errors import check_one_of
from vmapseeds.target import compiling_for, is_for_this_machine, platform

# What sums in float32 in any case
HALVES = jnp.bfloat16, jnp.float16
LOWERINGS = ("im2col", "grouped", "sequential")
# What a part leaves out of (images, kernel, outputs) is at its place.
PARTS = ("input_gradient", "kernel_gradient", "forward")
_lowering = contextvars.ContextVar[str | None]("lowering", default=None)


@contextlib.contextmanager
def lowering(name: str | None) -> Iterator[None]:
  """Make convolutions in this context so that they run their lanes by `name`: matrix
  products over patches (`im2col`, the default except on CPUs), one lane after another
  (`sequential`, the default on CPUs), or XLA's own grouped convolution (`grouped`).
  """
  if name is not None:
    check_one_of("lowering", name, LOWERINGS)
  token = _lowering.set(name)
  try:
    yield
  finally:
    _lowering.reset(token)


convolve_p = Primitive("convolve")


def current_lane_parameters() -> dict[str, Any]:
  """Return the parameters of `convolve_p` that say how lanes are run here."""
  return {
    "platform": platform(),
    "lowering": _lowering.get(),
    "here": is_for_this_machine(),
  }


def convolve(part: str, window: Window, left, right, like) -> jax.Array:
  """Apply one of `PARTS` to the two others of images (n, *spatial, in), kernel
  (*kernel, in per group, out) and outputs (n, *spatial, out), in this order.

  Args:
    part: one of `PARTS`.
    window: how the kernel moves over the images.
    left, right: the two arrays.
    like: the shape and dtype of the result.
  """
  like = jax.ShapeDtypeStruct(like.shape, like.dtype)
  return convolve_p.bind(
    left, right, part=part, window=window, like=like, **current_lane_parameters()
  )


def sizes_of(equation) -> list[tuple[int, ...]]:
  """Return the shapes of images, kernel and outputs, given an equation of
  `convolve_p`.
  """
  shapes = [v.aval.shape for v in equation.invars]
  parameters = equation.params
  shapes.insert(PARTS.index(parameters["part"]), parameters["like"].shape)
  return shapes


def _apply_to_one_lane(left, right, *, part, window, like, platform, lowering, here):
  """Apply a part to one lane."""
  if platform != "cpu":
    return _apply_form(XLA, part, window, like, platform, left, right)
  with compiling_for(platform, here=here):
    return _apply_on_cpu(part, window, like, left, right)


def _apply_on_cpu(part, window, like, left, right):
  if onednn.fits(part, window, like, left, right):
    window = dataclasses.replace(window, dtype=like.dtype)
    return _call_part(onednn, part, window, like, left, right).astype(like.dtype)
  if part == "input_gradient" and cpu.has_fast_phases(window, left):

    def of_phase(window, x, w, dy):
      return _apply_on_cpu(part, window, x, w, dy)

    return sum(cpu.gradients_of_phases(of_phase, window, like, left, right))
  return _apply_form(cpu, part, window, like, "cpu", left, right)


def _apply_form(form, part, window, like, platform, *arrays):
  """Apply a part as `form`, a module or class, has it."""
  call = functools.partial(_call_part, form, part)
  return _sum_in_float32(call, window, like, platform, *arrays)


def _sum_in_float32(call, window, like, platform, *arrays):
  """Return `call(window, like, *arrays)`, on a CPU of half precision's arrays in float32:
  sums are in float32 anyway, and XLA has no fast kernel for other factors.
  """
  dtype = like.dtype
  if platform == "cpu" and arrays[0].dtype in HALVES:
    window = dataclasses.replace(window, precision=None, dtype=None)
    like = jax.ShapeDtypeStruct(like.shape, jnp.float32)
    arrays = [a.astype(jnp.float32) for a in arrays]
  return call(window, like, *arrays).astype(dtype)


def _call_part(form, part, window, like, left, right):
  """Call a part with all three arrays, of the one that is asked for only the shape."""
  # Profiles show the name.
  with jax.named_scope(part):
    if part == "forward":
      return form.forward(window, left, right)
    if part == "input_gradient":
      return form.input_gradient(window, like, left, right)
    return form.kernel_gradient(window, left, like, right)


def _transpose(argument, cotangent, *args, part, window, **_):
  """Return the derivative of a part for one of its two arguments: the part that takes
  the cotangent and the other argument.
  """
  # Places in (images, kernel, outputs)
  result = PARTS.index(part)
  places = [place for place in range(3) if place != result]
  other = args[1 - argument].astype(cotangent.dtype)
  arrays = {result: cotangent, places[1 - argument]: other}
  left, right = (arrays[place] for place in sorted(arrays))
  return convolve(PARTS[places[argument]], window, left, right, args[argument].aval)


def _apply_to_all_lanes(args, axes, **parameters):
  """Apply a part to all lanes: as one batch if they share the kernel, else as the
  lowering says. Of arguments without an axis of lanes, all lanes have the same.
  """
  has_lanes = [axis is not None for axis in axes]
  arrays = []
  for a, axis in zip(args, axes, strict=True):
    arrays.append(jnp.asarray(a) if axis is None else jnp.moveaxis(a, axis, 0))
  if len(arrays[has_lanes.index(True)]) == 1:
    one_lane = _map_lanes(lambda a: a[0], arrays, has_lanes)
    return convolve_p.bind(*one_lane, **parameters)[None], 0
  part = parameters["part"]
  has_one_kernel = part != "kernel_gradient" and not has_lanes[part == "forward"]
  # As far as measured
  fastest = "sequential" if parameters["platform"] == "cpu" else "im2col"
  lowering = parameters["lowering"] or fastest
  if has_one_kernel:
    apply = _apply_as_one_batch
  elif lowering == "sequential" and not _is_of_few_products(
    arrays, has_lanes, parameters
  ):
    apply = _apply_one_by_one
  else:
    apply = functools.partial(_apply_beside_each_other, lowering)
  return apply(arrays, has_lanes, parameters), 0


def _map_lanes(function, arrays, has_lanes):
  """Apply a function to the arrays that have lanes."""
  pairs = zip(arrays, has_lanes, strict=True)
  return [function(a) if has else a for a, has in pairs]


def _apply_as_one_batch(arrays, has_lanes, parameters):
  like = parameters["like"]
  lanes = len(arrays[has_lanes.index(True)])
  images, *of_an_image = like.shape
  batch = jax.ShapeDtypeStruct((lanes * images, *of_an_image), like.dtype)
  flat = _map_lanes(lambda a: jax.lax.collapse(a, 0, 2), arrays, has_lanes)
  return convolve_p.bind(*flat, **parameters | {"like": batch}).reshape(
    lanes, *like.shape
  )


def _apply_one_by_one(arrays, has_lanes, parameters):
  def apply_to_one(own):
    own = iter(own)
    args = _map_lanes(lambda _: next(own), arrays, has_lanes)
    return convolve_p.bind(*args, **parameters)

  pairs = zip(arrays, has_lanes, strict=True)
  return jax.lax.map(apply_to_one, [a for a, has in pairs if has])


def _apply_beside_each_other(lowering, arrays, has_lanes, parameters):
  part, window, like, platform = (
    parameters[name] for name in ("part", "window", "like", "platform")
  )
  axes = [0 if has else None for has in has_lanes]
  form: Any = XLA
  if lowering == "im2col":
    form = im2col
  elif platform == "cpu":
    form = OnCPU
  if form is not XLA or (part, lowering) != ("kernel_gradient", "grouped"):
    one = functools.partial(_apply_form, form, part, window, like, platform)
    return jax.vmap(one, in_axes=axes)(*arrays)

  def gradients(window, like, x, dy):
    return XLA.kernel_gradients(axes[0], window, x, like, dy)

  x, dy = arrays
  lanes = len(arrays[has_lanes.index(True)])
  if not has_lanes[1]:
    dy = jnp.broadcast_to(dy, (lanes, *dy.shape))
  kernels = jax.ShapeDtypeStruct((lanes, *like.shape), like.dtype)
  return _sum_in_float32(gradients, window, kernels, platform, x, dy)


# Kernel gradients of one image each are XLA's own, all at once, for fewer channels ×
# features: a program's gradients by example.
EXAMPLE_PRODUCTS = 16 * 32


def _is_of_few_products(arrays, has_lanes, parameters):
  """Return whether lanes are kernel gradients of one small image each."""
  *_, channels, features = parameters["like"].shape
  return (
    parameters["part"] == "kernel_gradient"
    and all(has_lanes)
    and arrays[0].shape[1] == 1
    and channels * features < EXAMPLE_PRODUCTS
  )


convolve_p.def_abstract_eval(
  lambda left, right, *, like, **_: jax.core.ShapedArray(like.shape, like.dtype)
)
convolve_p.def_impl(
  jax.jit(
    _apply_to_one_lane,
    static_argnames=("part", "window", "like", "platform", "lowering", "here"),
  )
)
mlir.register_lowering(
  convolve_p, mlir.lower_fun(_apply_to_one_lane, multiple_results=False)
)
batching.primitive_batchers[convolve_p] = _apply_to_all_lanes
ad.defbilinear(
  convolve_p,
  functools.partial(_transpose, 0),
  functools.partial(_transpose, 1),
)
