"""One lane's convolutions and matrix products of bfloat16 on a CPU, by the oneDNN that
jaxlib holds.

XLA for CPUs computes convolutions of bfloat16 in float32, and turns the factors of
kernel gradients slowly. oneDNN multiplies bfloat16 by the processor's own instructions,
and sums in float32. XLA executes calls of oneDNN, but
jaxlib leaves out the pass that makes them, so they are made here. Images are
(n, *spatial, in), kernels (*kernel, in, out).

oneDNN ends the process if it cannot do what a call asks for. So a child process tries
such calls, once for a version of jaxlib and a kind of processor: `is_usable`.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import platform
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax.extend.core.primitives import dot_general_p

from vmapseeds.convolutions import im2col, winograd
from vmapseeds.convolutions.xla import (
  XLA,
  Window,
  of_kernel_gradient,
  of_longer_rows,
  turned,
)
from vmapseeds.machine import cache_folder, instruction_set
from vmapseeds.target import is_for_this_machine

# With 0 in it, no call of oneDNN is made.
SWITCH = "VMAPSEEDS_ONEDNN"
# Extensions of processors that multiply bfloat16
EXTENSIONS = {"avx512_bf16", "amx_bf16"}
# Earlier versions refuse such calls when they compile.
OLDEST_JAX = (0, 8)
# What the trial tries: what an earlier version kept says nothing of other calls.
TRIED = "convolutions, their gradients, products"
# Seconds that the trial may take on a busy machine; it needs about 2.
PATIENCE = 60
# Types of factors, each with those of results
TYPES = {
  jnp.dtype(jnp.bfloat16): (jnp.bfloat16, jnp.float32),
  jnp.dtype(jnp.float32): (jnp.float32,),
}
# Kernel gradients gain with at least so many channels × features, and so many pixels of
# the outputs of a batch. They are compiled for at most so many elements of the kernel.
PRODUCTS = {jnp.dtype(jnp.bfloat16): 16, jnp.dtype(jnp.float32): 8 * 16}
PIXELS, MOST_ELEMENTS = 512, 25

# float32 gains since XLA's own kernels changed, as far as measured on processors with
# AMX, with so many multiplications, as no program with a call is stored. Winograd's form
# is faster from so many channels × features on, other kernel gradients from so many.
FLOAT32_JAX, FLOAT32_EXTENSIONS = (0, 12), {"amx_bf16"}
MULTIPLICATIONS = 2**24
WINOGRAD_PRODUCTS, MOST_PRODUCTS = 64 * 64, 32 * 64
# Kernel gradients are fastest of at most so many examples at once: for every few elements
# of the result oneDNN reads all of `dy`, which so stays in cache.
TOGETHER = {jnp.dtype(jnp.bfloat16): 20, jnp.dtype(jnp.float32): 16}


def fits(part, window, like, left, right) -> bool:
  """Return whether a part of a convolution is faster in this form, on this machine.

  Args:
    part: `forward`, `input_gradient`, `kernel_gradient`.
    window: how the kernel moves over the images.
    like: the shape and dtype of the result.
    left, right: the arrays that it is made of.
  """
  arrays = (like, left, right)
  if (
    left.dtype != right.dtype
    or like.dtype not in TYPES.get(left.dtype, ())
    or window.groups > 1
    or any(0 in a.shape for a in arrays)
  ):
    return False
  kernel = {"forward": right, "input_gradient": left, "kernel_gradient": like}[part]
  *pixels, channels, features = kernel.shape
  sizes = zip(pixels, window.dilation, window.padding, strict=True)
  if not all(0 <= min(ends) <= max(ends) <= (k - 1) * d for k, d, ends in sizes):
    return False
  if part == "input_gradient" and set(window.strides) != {1}:
    return False
  if part == "kernel_gradient" and (
    window.dilation[-1] > 1
    or math.prod(pixels) > MOST_ELEMENTS
    or channels * features < PRODUCTS[left.dtype]
    or math.prod(right.shape[:-1]) < PIXELS
  ):
    return False
  if left.dtype == jnp.float32 and not _gains_in_float32(part, window, *arrays):
    return False
  return is_for_this_machine() and is_usable()


def _gains_in_float32(part, window, like, left, right):
  """Return whether a part of a convolution of float32 is faster in this form."""
  if part == "forward":
    kernel, outputs = right, like
    seen, images, turned_kernel = window, left, right
  elif part == "input_gradient":
    kernel, outputs = left, right
    seen, images = window.mirrored(left), right
    turned_kernel = jax.eval_shape(turned, left)
  else:
    kernel, outputs = like, right
  if not may_gain(left.dtype, math.prod((*kernel.shape[:-1], *outputs.shape))):
    return False
  if part == "kernel_gradient":
    return math.prod(kernel.shape[-2:]) <= MOST_PRODUCTS
  return not winograd.fits(seen, images, turned_kernel, WINOGRAD_PRODUCTS)


def may_gain(dtype, multiplications: int) -> bool:
  """Return whether calls of so many multiplications of a type may be faster here."""
  if dtype == jnp.float32:
    return (
      multiplications >= MULTIPLICATIONS
      and jax.__version_info__ >= FLOAT32_JAX
      and bool(FLOAT32_EXTENSIONS.intersection(instruction_set().split()))
    )
  return dtype == jnp.bfloat16


def multiplies(equation) -> bool:
  """Return whether an equation is a product of two matrices, which is faster as a call,
  on this machine.
  """
  if equation.primitive is not dot_general_p:
    return False
  arrays = [v.aval for v in (*equation.invars, *equation.outvars)]
  contracted, _ = equation.params["dimension_numbers"][0]
  return (
    all(a.ndim == 2 and 0 not in a.shape for a in arrays)
    and len(contracted) == 1
    and {a.dtype for a in arrays[:2]} == {jnp.dtype(jnp.bfloat16)}
    and arrays[2].dtype in TYPES[arrays[0].dtype]
    # An algorithm may ask for other sums.
    and isinstance(equation.params["precision"], tuple | types.NoneType)
    and is_for_this_machine()
    and is_usable()
  )


def product(equation):
  """Return the function of two matrices that computes an equation: XLA's own products
  where lanes are beside each other.
  """
  (a_axes, b_axes), _ = equation.params["dimension_numbers"]
  transposed = a_axes == (0,), b_axes == (1,)
  out = equation.outvars[0].aval

  @jax.custom_batching.custom_vmap
  def multiply(a, b):
    return _product(*transposed, jax.ShapeDtypeStruct(out.shape, out.dtype), a, b)

  @multiply.def_vmap
  def of_lanes(size, has_lanes, a, b):
    if size > 1:
      in_axes = [0 if has else None for has in has_lanes]
      plain = functools.partial(dot_general_p.bind, **equation.params)
      return jax.vmap(plain, in_axes)(a, b), True
    one = [x[0] if has else x for x, has in zip((a, b), has_lanes, strict=True)]
    return multiply(*one)[None], True

  return multiply


def forward(window, x, w):
  """Return the convolution of images and kernel."""
  *pixels, channels, features = range(w.ndim)
  out = window.out_spatial(x, w)
  like = jax.ShapeDtypeStruct((len(x), *out, w.shape[-1]), window.dtype or x.dtype)
  return _convolution(window, like, x, w, (pixels, channels, features))


def input_gradient(window, x, w, dy):
  """Return the gradient with respect to the images, given that of the output: a
  convolution of `dy` with the kernel turned, its channels swapped. Strides are 1.
  """
  mirrored = dataclasses.replace(window.mirrored(w), dtype=x.dtype)
  return forward(mirrored, dy, turned(w))


def kernel_gradient(window, x, w, dy):
  """Return the gradient with respect to the kernel, given that of the output, in float32:
  a convolution whose channels are the examples and whose kernel is `dy`, as it lies.

  The channels of a pixel are laid out as pixels of a longer row, over which that kernel
  moves with a dilation of as many. So an output row has the gradients of a whole row of
  the kernel, and nothing is multiplied in vain.
  """
  if w.shape[-1] < w.shape[-2] and set(window.strides) == {1}:
    # The narrower factor is the one that is turned.
    turned_kernel = jax.eval_shape(turned, w)
    return turned(kernel_gradient(window.mirrored(w), dy, turned_kernel, x))
  *kernel, width, channels, features = w.shape
  window = of_kernel_gradient(window, x, w, dy)
  # With strides the last pixels may be seen by no kernel element, and calls have no
  # padding below 0.
  seen = [slice(min(high, 0) or None) for _, high in window.padding]
  padding = tuple((low, max(high, 0)) for low, high in window.padding)
  window = of_longer_rows(dataclasses.replace(window, padding=padding), channels)
  like = jax.ShapeDtypeStruct((1, *kernel, width * channels, features), jnp.float32)
  examples, *pixels, last = range(dy.ndim)
  axes = pixels, examples, last

  def block(x, dy):
    return _convolution(window, like, _examples_last(x[:, *seen]), dy, axes)

  return im2col.sum_blocks(_blocks_of_examples(dy), block, x, dy).reshape(w.shape)


def _blocks_of_examples(dy):
  """Return how many blocks of examples a kernel gradient is made in."""
  most = TOGETHER[dy.dtype]
  blocks = im2col.blocks(len(dy), most)
  # Very small blocks cost more than a large one.
  return blocks if 2 * (len(dy) // blocks) >= most else 1


def _examples_last(x):
  """Return images (n, *rows, width, channels) as (1, *rows, width · channels, n)."""
  images, *rows, width, channels = x.shape
  # XLA for CPUs converts bfloat16 to move it, but not its bits.
  bits = jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}")
  turned_bits = bits.reshape(images, -1).T.reshape(1, *rows, width * channels, images)
  return jax.lax.bitcast_convert_type(turned_bits, x.dtype)


def _convolution(window, like, x, w, kernel_axes):
  """Convolve images with a kernel whose axes of pixels, channels and features are given."""
  pixels, channels, features = kernel_axes
  images = {
    "dims": str(x.ndim),
    "data": {
      "batch_dim": "0",
      "feature_dim": str(x.ndim - 1),
      "spatial_dims": _texts(range(1, x.ndim - 1)),
    },
  }
  kernel = {
    "dims": str(w.ndim),
    "filter": {
      "input_feature_dim": str(channels),
      "output_feature_dim": str(features),
      "spatial_dims": _texts(pixels),
    },
  }
  moves = {
    "size": [],
    "pad_left": _texts(low for low, _ in window.padding),
    "pad_right": _texts(high for _, high in window.padding),
    "strides": _texts(window.strides),
    "window_dilations": _texts(window.dilation),
  }
  config = {
    "dims": str(x.ndim),
    "input": images,
    "output": images,
    "kernel": kernel,
    "window": moves,
    "feature_groups": "1",
  }
  return _call("convolution", "conv", config, like, x, w)


def _product(a_transposed, b_transposed, like, a, b):
  config = {"transpose_a": a_transposed, "transpose_b": b_transposed}
  return _call("matmul", "matmul", config, like, a, b)


def _call(name, kind, config, like, *args):
  """Call oneDNN. The configuration is XLA's `onednn_config.proto`, as JSON."""
  # XLA takes such a call for another kind when it stores a compiled program, and reads
  # memory that is not its own. So from now on this process stores none.
  jax.config.update("jax_persistent_cache_min_compile_time_secs", math.inf)
  config = {"outer_dimension_partitions": [], f"onednn_{kind}_config": config}
  call = jax.ffi.ffi_call(
    f"__onednn${name}",
    like,
    custom_call_api_version=2,
    legacy_backend_config=json.dumps(config),
  )
  return call(*args)


def _texts(numbers):
  # JSON has 64-bit integers of protocol buffers as text.
  return [str(int(n)) for n in numbers]


@functools.cache
def is_usable() -> bool:
  """Return whether calls of oneDNN do what they should on this machine. The first
  process that asks tries them, and what it finds is kept in the cache folder.
  """
  if (
    os.environ.get(SWITCH) == "0"
    or (sys.platform, platform.machine()) != ("linux", "x86_64")
    or not EXTENSIONS.intersection(instruction_set().split())
    or jax.__version_info__ < OLDEST_JAX
  ):
    return False
  key = f"{TRIED}, jaxlib {jaxlib.__version__}, {instruction_set()}"
  kept = _kept_results()
  if key not in kept:
    kept |= {key: _passes_trial()}
    draft = _results_file().with_name(f"{_results_file().name}.{os.getpid()}")
    try:
      draft.parent.mkdir(parents=True, exist_ok=True)
      draft.write_text(json.dumps(kept, indent=1) + "\n")
      draft.replace(_results_file())
    except OSError:
      # Without a result that is kept, processes of one campaign might differ.
      return False
  return kept[key] is True


def _results_file() -> Path:
  return cache_folder() / "onednn.json"


def _kept_results() -> dict[str, bool]:
  with contextlib.suppress(OSError, ValueError):
    kept = json.loads(_results_file().read_text())
    if isinstance(kept, dict):
      return kept
  return {}


def _passes_trial() -> bool:
  """Return whether a child process can make such calls, and finds what XLA finds."""
  environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
  program = f"from {__name__} import compare_with_xla as compare; compare()"
  try:
    child = subprocess.run(
      [sys.executable, "-c", program],
      env=environment,
      stdin=subprocess.DEVNULL,
      capture_output=True,
      timeout=PATIENCE,
    )
  except (OSError, ValueError, TypeError, subprocess.SubprocessError):
    return False
  return child.returncode == 0


# Shapes of images and kernels, and padding and dilation
TRIALS = (
  ((2, 9, 3), (3, 3, 5), [(0, 2)], [1]),
  ((33, 8, 8, 16), (3, 3, 16, 32), [(1, 1), (1, 1)], [1, 1]),
  ((2, 9, 7, 3), (3, 2, 3, 20), [(1, 1), (0, 1)], [2, 1]),
  ((2, 4, 5, 6, 8), (3, 1, 2, 8, 4), [(2, 1), (0, 0), (1, 0)], [1, 1, 1]),
)


def compare_with_xla() -> None:
  """Compare the parts of a few convolutions, and products, with XLA's own in float32.

  Raises:
    AssertionError: they differ by more than rounding.
  """
  rng = np.random.default_rng(0)

  def parts():
    ours, theirs = [], []
    for (images, kernel, padding, dilation), dtype in itertools.product(TRIALS, TYPES):
      window = Window((1,) * len(padding), tuple(padding), tuple(dilation), 1, None)
      strided = dataclasses.replace(window, strides=(2,) * len(padding))
      x, w = (jnp.asarray(rng.normal(size=n), dtype) for n in (images, kernel))
      dy, of_strided = (
        jnp.asarray(
          rng.normal(size=(len(x), *moved.out_spatial(x, w), kernel[-1])), dtype
        )
        for moved in (window, strided)
      )
      ours += [
        forward(window, x, w),
        forward(strided, x, w),
        input_gradient(window, x, w, dy),
        kernel_gradient(window, x, w, dy),
        kernel_gradient(strided, x, w, of_strided),
      ]
      x, w, dy, of_strided = (a.astype(jnp.float32) for a in (x, w, dy, of_strided))
      theirs += [
        XLA.forward(window, x, w),
        XLA.forward(strided, x, w),
        XLA.input_gradient(window, x, w, dy),
        XLA.kernel_gradient(window, x, w, dy),
        XLA.kernel_gradient(strided, x, w, of_strided),
      ]
    for a_transposed, b_transposed in itertools.product((False, True), repeat=2):
      a, b = (
        jnp.asarray(rng.normal(size=n), jnp.bfloat16) for n in ((5, 37), (37, 20))
      )
      sums = jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32))
      factors = a.T if a_transposed else a, b.T if b_transposed else b
      for dtype in TYPES[a.dtype]:
        like = jax.ShapeDtypeStruct(sums.shape, dtype)
        ours.append(_product(a_transposed, b_transposed, like, *factors))
        theirs.append(sums)
    return ours, theirs

  for a, b in zip(*jax.jit(parts)(), strict=True):
    tolerance = 2.0**-16 * np.abs(b).max()
    np.testing.assert_allclose(a.astype(jnp.float32), b, rtol=2.0**-7, atol=tolerance)
