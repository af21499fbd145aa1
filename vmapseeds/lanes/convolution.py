"""The convolution of one lane as a primitive: its forward pass and both gradients, fast
when every lane has its own kernel.

`jax.vmap` turns a convolution over kernels into a grouped convolution, and its gradient
into one with `batch_group_count`; XLA runs both slower than one network after another.
Here a convolution whose kernels have a lane axis runs as batched matrix products over
patches (`im2col`), or one lane after another (`sequential`). On a CPU one lane's
gradients are forward convolutions (`forward`).

Images, kernel and outputs meet in one trilinear form. Each part of it takes two of
them, and gives what belongs to the third. So a derivative of a part is a part again.
"""

import contextlib
import contextvars
import dataclasses
import functools
import types
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from vmapseeds.errors import check_one_of
from vmapseeds.lanes import forward, im2col, onednn
from vmapseeds.lanes.xla import XLA, OnCPU, Window
from vmapseeds.target import is_for_this_machine, platform

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
  parts: Any = forward if platform == "cpu" else XLA
  if platform == "cpu" and here and onednn.fits(part, window, like, left, right):
    window = dataclasses.replace(window, dtype=like.dtype)
    return _called(onednn, part, window, like, left, right).astype(like.dtype)
  return _applied(parts, part, window, like, platform, left, right)


def _applied(parts, part, window, like, platform, *args):
  """Apply a part as the module or class `parts` has it."""
  dtype = args[0].dtype
  if platform != "cpu" or dtype not in HALVES:
    return _called(parts, part, window, like, *args).astype(like.dtype)
  # Sums are in float32 anyway, and XLA has no fast kernel for other factors.
  window = dataclasses.replace(window, precision=None, dtype=None)
  wide = jax.ShapeDtypeStruct(like.shape, jnp.float32)
  args = [a.astype(jnp.float32) for a in args]
  return _called(parts, part, window, wide, *args).astype(like.dtype)


def _called(parts, part, window, like, *args):
  place = PARTS.index(part)
  given = (*args[:place], like, *args[place:])
  function = getattr(parts, part)
  return function(window, *given[: 2 if part == "forward" else 3])


def _transposed(which, cotangent, *args, part, window, **_):
  """Return the part that belongs to the argument `which`, given the cotangent."""
  left_out = PARTS.index(part)
  places = [place for place in range(3) if place != left_out]
  wanted, other = args[which], args[1 - which].astype(cotangent.dtype)
  pair = {left_out: cotangent, places[1 - which]: other}
  left, right = (pair[place] for place in sorted(pair))
  return convolve(PARTS[places[which]], window, left, right, wanted.aval)


# Kernel gradients of one image each are XLA's own, all at once, for fewer channels ×
# features: a program's gradients by example.
EXAMPLE_PRODUCTS = 32 * 32


def _is_of_few_products(part, args, own, like):
  """Return whether lanes are kernel gradients of one small image each."""
  *_, channels, features = like.shape
  return (
    part == "kernel_gradient"
    and all(own)
    and args[0].shape[1] == 1
    and channels * features < EXAMPLE_PRODUCTS
  )


def _apply_to_all_lanes(args, axes, **parameters):
  """Apply a part to all lanes at once."""
  part, window, like = (parameters[name] for name in ("part", "window", "like"))
  own = [axis is not None for axis in axes]
  size = next(
    a.shape[axis] for a, axis in zip(args, axes, strict=True) if axis is not None
  )
  args = [
    jnp.moveaxis(a, i, 0) if b else jnp.asarray(a)
    for a, i, b in zip(args, axes, own, strict=True)
  ]
  one = functools.partial(convolve_p.bind, **parameters)
  if size == 1:
    return one(*(a[0] if b else a for a, b in zip(args, own, strict=True)))[None], 0
  if part != "kernel_gradient" and not own[part == "forward"]:
    # Lanes with the same kernel are one large batch.
    args = [
      jax.lax.collapse(a, 0, 2) if b else a for a, b in zip(args, own, strict=True)
    ]
    batch = size * like.shape[0]
    like = jax.ShapeDtypeStruct((batch, *like.shape[1:]), like.dtype)
    out = convolve_p.bind(*args, **parameters | {"like": like})
    return out.reshape(size, batch // size, *like.shape[1:]), 0
  fastest = "sequential" if parameters["platform"] == "cpu" else "im2col"
  chosen = parameters["lowering"] or fastest  # as far as measured
  if chosen == "sequential" and not _is_of_few_products(part, args, own, like):

    def of_lane(lane):
      lane = iter(lane)
      return one(*(next(lane) if b else a for a, b in zip(args, own, strict=True)))

    return jax.lax.map(of_lane, [a for a, b in zip(args, own, strict=True) if b]), 0
  platform = parameters["platform"]
  parts: Any = XLA
  if chosen == "im2col":
    parts = im2col
  elif platform == "cpu":
    parts = OnCPU
  batched = functools.partial(_applied, parts, part, window, like, platform)
  if (part, chosen) == ("kernel_gradient", "grouped") and parts is XLA:
    x, dy = args
    if not own[1]:
      dy = jnp.broadcast_to(dy, (size, *dy.shape))
    kernels = jax.ShapeDtypeStruct((size, *like.shape), like.dtype)
    gradients = functools.partial(XLA.kernel_gradients, 0 if own[0] else None)
    together = types.SimpleNamespace(kernel_gradient=gradients)
    return _applied(together, part, window, kernels, platform, x, dy), 0
  return jax.vmap(batched, in_axes=[0 if b else None for b in own])(*args), 0


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
  functools.partial(_transposed, 0),
  functools.partial(_transposed, 1),
)
