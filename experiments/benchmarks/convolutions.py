"""Times of one network's convolutions on this machine, part by part: as XLA
differentiates them, and as we write them.

    python -m experiments.benchmarks.convolutions                                            (1 minute on two CPU cores)

xla      `lax.conv_general_dilated` and what JAX's differentiation makes of it
im2col   matrix products over patches, block by block
forward  forward convolutions of rearranged arrays (`vmapseeds.lanes.forward`)
"""

import statistics
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import common
from experiments.benchmarks.common import Table, significant
from vmapseeds.cli import mistakes
from vmapseeds.lanes import convolution, forward, im2col

PARTS = ("forward", "input_gradient", "kernel_gradient")
FORMS = {"xla": convolution.XLA, "im2col": vars(im2col), "forward": vars(forward)}
REPEATS = 4


class Layer(NamedTuple):
  """A convolution of square images by a square kernel."""

  network: str
  batch: int
  size: int
  inputs: int
  outputs: int
  kernel: int = 3
  stride: int = 1


LAYERS = (
  Layer("digits_cnn, first", 64, 8, 1, 16),
  Layer("digits_cnn, second", 64, 4, 16, 32),
  Layer("cnn_cifar10_binary, first", 32, 32, 3, 32),
  Layer("cnn_cifar10_binary, second", 32, 16, 32, 16),
  Layer("ResNet-9 width ¼, second", 100, 32, 16, 32, kernel=5, stride=2),
  Layer("ResNet-9 width ¼, third", 100, 16, 32, 32),
  Layer("ResNet-9 width ¼, sixth", 100, 8, 64, 64),
)


def seconds(layer: Layer, part: str, form: str, rounds: int) -> float:
  """The median time of one part in seconds. The part is repeated inside one program,
  each time on another input.
  """
  rng = np.random.default_rng(0)
  pad = layer.kernel // 2
  window = convolution.Window(
    (layer.stride,) * 2, ((pad, pad),) * 2, (1, 1), 1, None, None
  )
  x = jnp.asarray(
    rng.normal(size=(layer.batch, layer.size, layer.size, layer.inputs)), jnp.float32
  )
  w = jnp.asarray(
    rng.normal(size=(layer.kernel, layer.kernel, layer.inputs, layer.outputs)),
    jnp.float32,
  )
  dy = jnp.asarray(rng.normal(size=window.lax(x, w).shape), jnp.float32)
  compute = FORMS[form][part]

  def once(arrays, _):
    out = compute(window, *(arrays if part != "forward" else arrays[:2]))
    # The next input depends on this output. Otherwise XLA would compute the part only
    # once.
    return jax.tree.map(lambda a: a + 1e-9 * out.ravel()[0], arrays), None

  repeated = jax.jit(
    lambda *arrays: jax.lax.scan(once, arrays, None, length=REPEATS)[0]
  )
  jax.block_until_ready(repeated(x, w, dy))
  taken = []
  for _ in range(rounds):
    began = time.perf_counter()
    jax.block_until_ready(repeated(x, w, dy))
    taken.append((time.perf_counter() - began) / REPEATS)
  return statistics.median(taken)


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(common.Flags, __doc__, "convolutions", argv)
  where, rows, numbers = common.machine(), [], []
  for layer in LAYERS:
    for part in PARTS:
      times = {form: seconds(layer, part, form, flags.rounds) for form in FORMS}
      shape = (
        f"{layer.batch}×{layer.size}×{layer.size}×{layer.inputs} → {layer.outputs}"
      )
      rows.append(
        (
          layer.network,
          shape,
          part.replace("_", " "),
          *(significant(1e6 * t) for t in times.values()),
        )
      )
      numbers.append(layer._asdict() | {"part": part, "seconds": times})
  table = Table(
    "microseconds of each part of a convolution",
    ("layer", "images", "part", *FORMS),
    rows,
  )
  common.write(flags, command, where, [table], numbers)


if __name__ == "__main__":
  with mistakes():
    main()
