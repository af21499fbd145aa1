"""Convolutions of programs that others write: a model-step in lanes, beside the same
network with `conv_general_dilated` by hand, and beside the program alone.

    taskset -c 0 python -m experiments.benchmarks.convolutions              (10 minutes on one CPU core)
    python -m experiments.benchmarks.convolutions --only "Linen" "2 strides" --rounds 3
    python -m experiments.benchmarks.convolutions --shapes --only depthwise patches

    in lanes  the program as it is, by `vs.spread`, as campaigns run it
    by hand   the same network, channels last, calling `conv_general_dilated`
    alone     `jax.jit` of the program: XLA's own convolutions

Times are processor times, a model-step; alone, of one call. Each trains a network of three 3×3 convolutions (16, 32 and 32 channels) and a linear
layer for a few steps on a batch of random images, with its own gradients, or as a
recipe. "Differ by" is the largest difference of the losses in lanes and alone, relative
to their size; of recipes, that of the trained parameters.

With `--shapes`: single convolutions of 215 shapes and their two gradients, in loops as
trainings have them, beside their plain form: a forward convolution of XLA. `--only` then
chooses families of shapes. Each row is written when it is measured; with `--resume` a
run that was stopped measures only what it lacks. The last table has the rows that lose:
over 1.2 of the plain form's time, or 3 times its compilation.
"""

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple
from unittest import mock

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

import vmapseeds as vs
from experiments.benchmarks import common
from experiments.benchmarks.common import Count, Table
from vmapseeds import lanes
from vmapseeds.cli import one_line_errors
from vmapseeds.convolutions import conv_general_dilated, cpu, onednn, primitive
from vmapseeds.convolutions.primitive import PARTS
from vmapseeds.convolutions.xla import OnCPU, Window
from vmapseeds.errors import check_one_of
from vmapseeds.flags import metavar
from vmapseeds.training.supervised import load_recipe_task
from vmapseeds.training.task import lanes_of

BATCH = 64
FEATURES = (16, 32, 32)
CLASSES = 10


class Program(NamedTuple):
  """A network: `init(key) -> params`, `apply(params, images) -> logits`."""

  init: Callable[[Any], Any]
  apply: Callable[[Any, Any], Any]


@dataclasses.dataclass(frozen=True)
class Net:
  """The network in bare `jax.lax`; images come channels last."""

  space: tuple[int, ...] = (20, 20)
  channels: int = 3
  first: bool = False  # channels first
  strides: tuple[int, ...] = (1, 1, 1)
  dilation: int = 1
  # Channels of a group in the second and third convolution; 0: all
  group: int = 0
  transposed: bool = False  # the third is a transposed convolution of stride 2
  bias: bool = False

  def program(self, convolve) -> Program:
    """Return the network with a function for `lax.conv_general_dilated`."""
    rank, names = len(self.space), "DHW"[-len(self.space) :]
    images, kernels = f"N{names}C", f"{names}IO"
    if self.first:
      images, kernels = f"NC{names}", f"OI{names}"
    counts = (self.channels, *FEATURES)
    groups = [1, *(n // self.group if self.group else 1 for n in counts[1:3])]

    def shape(i):
      sizes = dict(I=counts[i] // groups[i], O=counts[i + 1], **dict.fromkeys(names, 3))
      return tuple(sizes[name] for name in kernels)

    def init(key):
      *keys, last = jax.random.split(key, 4)
      fan_in = (3**rank * counts[i] // groups[i] for i in range(3))
      return [
        *(
          jax.random.normal(k, shape(i)) * (2 / n) ** 0.5
          for i, (k, n) in enumerate(zip(keys, fan_in, strict=True))
        ),
        jax.random.normal(last, (FEATURES[-1], CLASSES)) / 4,
        *(jnp.zeros((n, *[1] * (rank if self.first else 0))) for n in FEATURES),
      ]

    def apply(params, x):
      x = jnp.moveaxis(x, -1, 1) if self.first else x
      for i, kernel in enumerate(params[:3]):
        stride = (self.strides[i],) * rank
        options = dict(rhs_dilation=(self.dilation,) * rank)
        padding = [(self.dilation, self.dilation)] * rank
        if self.transposed and i == 2:
          stride, padding = (1,) * rank, [(1, 2)] * rank
          options = dict(lhs_dilation=(2,) * rank)
        x = convolve(
          x,
          kernel,
          stride,
          padding,
          dimension_numbers=(images, kernels, images),
          feature_group_count=groups[i],
          **options,
        )
        x = nn.relu(x + params[4 + i] if self.bias else x)
      return x.mean([i for i, name in enumerate(images) if name in names]) @ params[3]

    return Program(init, apply)


def linen_net(convolve=None):
  class Network(nn.Module):
    num_classes: int = CLASSES

    @nn.compact
    def __call__(self, x):
      for features in FEATURES:
        x = nn.relu(nn.Conv(features, (3, 3), conv_general_dilated=convolve)(x))
      return nn.Dense(self.num_classes)(x.mean((1, 2)))

  return Network


def nnx_net(convolve=lax.conv_general_dilated):
  class Network(nnx.Module):
    def __init__(self, num_classes=CLASSES, *, rngs):
      pairs = zip((3, *FEATURES), FEATURES, strict=False)
      self.convolutions = nnx.List(
        nnx.Conv(*pair, (3, 3), conv_general_dilated=convolve, rngs=rngs)
        for pair in pairs
      )
      self.last = nnx.Linear(FEATURES[-1], num_classes, rngs=rngs)

    def __call__(self, x):
      for layer in self.convolutions:
        x = nnx.relu(layer(x))
      return self.last(x.mean((1, 2)))

  return Network


def of_linen(network) -> Program:
  net = network()
  return Program(lambda key: net.init(key, jnp.ones((1, 20, 20, 3))), net.apply)


def of_nnx(network) -> Program:
  graph = nnx.graphdef(nnx.eval_shape(lambda: network(rngs=nnx.Rngs(0))))
  return Program(
    lambda key: nnx.state(network(rngs=nnx.Rngs(key)), nnx.Param),
    lambda params, x: nnx.merge(graph, params, copy=True)(x),
  )


def of_equinox() -> Program:
  import equinox as eqx

  def network(key):
    keys = jax.random.split(key, 4)
    layers = []
    for pair, k in zip(zip((3, *FEATURES), FEATURES, strict=False), keys, strict=False):
      layers += [
        eqx.nn.Conv2d(*pair, 3, padding=1, key=k),
        eqx.nn.Lambda(jax.nn.relu),
      ]
    mean = eqx.nn.Lambda(lambda x: x.mean((1, 2)))
    return eqx.nn.Sequential(
      [*layers, mean, eqx.nn.Linear(FEATURES[-1], CLASSES, key=keys[3])]
    )

  rest = eqx.partition(network(jax.random.key(0)), eqx.is_array)[1]

  def apply(params, x):
    return jax.vmap(eqx.combine(params, rest))(jnp.moveaxis(x, -1, 1))

  return Program(lambda key: eqx.filter(network(key), eqx.is_array), apply)


def of_haiku() -> Program:
  import haiku as hk

  def forward(x):
    for features in FEATURES:
      x = jax.nn.relu(hk.Conv2D(features, 3)(x))
    return hk.Linear(CLASSES)(x.mean((1, 2)))

  net = hk.without_apply_rng(hk.transform(forward))
  return Program(lambda key: net.init(key, jnp.ones((1, 20, 20, 3))), net.apply)


def ensemble(program: Program) -> Program:
  """Return two networks side by side in one lane, by an inner `jax.vmap`."""
  return Program(
    lambda key: jax.vmap(program.init)(jax.random.split(key)),
    lambda params, x: jax.vmap(program.apply, (0, None))(params, x).mean(0),
  )


def steps_of(program: Program, space: tuple[int, ...], channels: int, steps: int):
  """Return a task's function of one lane, which takes its own gradients, and its data."""
  rng = np.random.default_rng(0)
  images = rng.normal(size=(BATCH, *space, channels)).astype(np.float32)
  data = images, rng.integers(0, CLASSES, BATCH)

  def one(data, seed):
    images, labels = data

    def loss(params):
      logits = jax.nn.log_softmax(program.apply(params, images))
      return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    def step(params, _):
      value, gradient = jax.value_and_grad(loss)(params)
      return jax.tree.map(lambda p, g: p - 0.05 * g, params, gradient), value

    return lax.scan(step, program.init(jax.random.key(seed)), length=steps)[1]

  return one, data, np.zeros(1, np.uint32)


def recipe_of(network, steps: int):
  """Return the same as `steps_of`, for the task that a recipe makes."""
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (BATCH * steps, 20, 20, 3), np.uint8)
  examples = images, rng.integers(0, CLASSES, len(images))
  dataset = vs.Dataset(train=examples, test=examples, num_classes=CLASSES)
  recipe = vs.Recipe(
    name="convolutions",
    dataset=dataset,
    model=network,
    lr=0.05,
    epochs=1,
    batch_size=BATCH,
  )
  runs = vs.Runs.independent(1)
  task = load_recipe_task(recipe, runs)

  def one(data, run):
    return task.advance(data, run, task.start(data, run), 0, 1).params

  return one, task.data, lanes_of(task, runs)


def cases() -> dict[str, Callable[[int], tuple[Any, Any]]]:
  """Return functions of the number of steps, which give the plain function of one lane
  and the one with convolutions by hand, each with its data and one lane.
  """
  by_hand, plain = conv_general_dilated, lax.conv_general_dilated

  def task(program, hand=None, net=Net()):
    hand = hand or dataclasses.replace(net, bias=True).program(by_hand)
    return lambda steps: tuple(
      steps_of(
        p() if p in (of_equinox, of_haiku) else p, net.space, net.channels, steps
      )
      for p in (program, hand)
    )

  def bare(**options):
    net = Net(**options)
    last = dataclasses.replace(net, first=False)
    return task(net.program(plain), last.program(by_hand), net)

  def recipe(network):
    return lambda steps: (
      recipe_of(network(), steps),
      recipe_of(network(by_hand), steps),
    )

  return {
    "Linen, recipe": recipe(linen_net),
    "NNX, recipe": recipe(nnx_net),
    "Linen": task(of_linen(linen_net()), of_linen(linen_net(by_hand))),
    "NNX": task(of_nnx(nnx_net()), of_nnx(nnx_net(by_hand))),
    "Equinox": task(of_equinox),
    "Haiku": task(of_haiku),
    "channels last": bare(),
    "channels first": bare(first=True),
    "2 strides": bare(first=True, strides=(1, 2, 2)),
    "dilated": bare(first=True, dilation=2),
    "groups of 4": bare(first=True, group=4),
    "depthwise": bare(first=True, group=1),
    "transposed": bare(first=True, strides=(2, 2, 1), transposed=True),
    "1-D": bare(first=True, space=(400,)),
    "3-D": bare(first=True, space=(8, 8, 8), channels=2),
    "two networks a lane": task(
      ensemble(Net(first=True).program(plain)), ensemble(Net().program(by_hand))
    ),
  }


NAMES = tuple(cases())


class Shape(NamedTuple):
  """A convolution, channels last, with padding that keeps sizes but for strides."""

  examples: int
  space: tuple[int, ...]
  channels: int
  features: int
  kernel: int
  stride: int = 1
  dilation: int = 1
  groups: int = 1
  outer: int = 0  # an inner `vmap` over so many kernels, or of each example

  def __str__(self) -> str:
    rank = len(self.space)
    text = f"{self.examples}×{'×'.join(map(str, self.space))}, {self.channels} → "
    text += f"{self.features}, {'×'.join([str(self.kernel)] * rank)}"
    names = {"stride": "/", "dilation": " dilated ", "groups": " groups "}
    return text + "".join(
      f"{sign}{getattr(self, name)}"
      for name, sign in names.items()
      if getattr(self, name) > 1
    )


def shapes() -> dict[str, list[Shape]]:
  """Return families of shapes, by name."""
  square = [(n, (n, n)) for n in (4, 8, 16, 32)]
  pairs = [(1, 8), (3, 16), (3, 64), (8, 8), (16, 32), (32, 32), (64, 64), (64, 128)]
  dense = [
    Shape(32, space, *pair, kernel)
    for _, space in square
    for pair in (*pairs, (128, 128))
    for kernel in (1, 3)
  ]
  strided = [
    Shape(16, (2 * n, 2 * n), *pair, kernel, stride=2)
    for n, _ in square[1:]
    for pair in pairs[1:7]
    for kernel in (1, 3)
  ]
  large = [
    Shape(8, (32, 32), *pair, kernel, stride)
    for pair in ((3, 16), (3, 64), (16, 32))
    for kernel, stride in ((5, 1), (7, 1), (7, 2), (11, 4))
  ]
  patches = [
    Shape(8, (64, 64), 3, features, size, stride=size)
    for size in (4, 8, 16)
    for features in (32, 96, 192)
  ]
  dilated = [
    Shape(8, (32, 32), *pair, 3, dilation=d)
    for pair in ((8, 8), (16, 32), (64, 64))
    for d in (2, 4, 12)
  ]
  grouped = [
    Shape(16, (16, 16), channels, channels, kernel, groups=groups)
    for channels, groups in ((16, 4), (64, 4), (64, 16), (128, 2), (256, 8))
    for kernel in (1, 3)
  ]
  depthwise = [
    Shape(16, (n, n), channels, channels, kernel, groups=channels)
    for n in (8, 32)
    for channels in (16, 64)
    for kernel in (3, 7)
  ]
  lines = [
    Shape(16, (256,), *pair, kernel, dilation=d)
    for pair in ((1, 16), (16, 16), (64, 64))
    for kernel, d in ((3, 1), (7, 1), (31, 1), (2, 16))
  ]
  volumes = [
    Shape(4, (12, 12, 12), *pair, 3, stride=s)
    for pair in ((1, 8), (16, 16), (32, 32))
    for s in (1, 2)
  ]
  each = [
    Shape(16, (n, n), *pair, 3, outer=16)
    for n in (8, 16)
    for pair in ((3, 8), (8, 16), (16, 16), (32, 32))
  ]
  recipes = [
    # digits_cnn
    Shape(64, (8, 8), 1, 16, 3),
    Shape(64, (4, 4), 16, 32, 3),
    # cnn_cifar10_binary
    Shape(32, (32, 32), 3, 32, 3),
    Shape(32, (16, 16), 32, 16, 3),
    # narrow_cifar10
    Shape(100, (16, 16), 12, 16, 3),
    Shape(100, (8, 8), 16, 32, 3),
    Shape(100, (4, 4), 32, 64, 3),
    # experiments/jordan2024/fashion.py
    Shape(100, (14, 14), 4, 16, 3),
    Shape(100, (7, 7), 16, 32, 3),
    Shape(100, (3, 3), 32, 64, 3),
    # ResNet-9 of width 1/4, 1/2 and 1
    Shape(100, (32, 32), 3, 16, 3),
    Shape(100, (32, 32), 16, 32, 5, stride=2),
    Shape(100, (16, 16), 32, 32, 3),
    Shape(100, (16, 16), 32, 64, 3),
    Shape(100, (8, 8), 64, 64, 3),
    Shape(100, (8, 8), 64, 32, 3),
    Shape(100, (32, 32), 3, 32, 3),
    Shape(100, (32, 32), 32, 64, 5, stride=2),
    Shape(100, (16, 16), 64, 64, 3),
    Shape(100, (16, 16), 64, 128, 3),
    Shape(100, (8, 8), 128, 128, 3),
    Shape(50, (16, 16), 128, 128, 3),
    Shape(50, (8, 8), 256, 256, 3),
    # airbench94 of width 1/4
    Shape(256, (31, 31), 24, 16, 3),
    Shape(256, (15, 15), 16, 16, 3),
    Shape(256, (15, 15), 16, 64, 3),
    Shape(256, (7, 7), 64, 64, 3),
    # ResNet-18 of width 1/4
    Shape(50, (32, 32), 16, 16, 3),
    Shape(50, (32, 32), 16, 32, 3, stride=2),
    Shape(50, (16, 16), 32, 64, 1, stride=2),
    Shape(50, (4, 4), 128, 128, 3),
    # nin_cifar10 of width 1/4
    Shape(100, (32, 32), 3, 32, 3, stride=2),
    Shape(100, (16, 16), 32, 32, 1),
  ]
  return {
    "recipes": recipes,
    "dense": dense,
    "strided": strided,
    "large": large,
    "patches": patches,
    "dilated": dilated,
    "grouped": grouped,
    "depthwise": depthwise,
    "lines": lines,
    "volumes": volumes,
    "per example": each,
  }


def parts_of(
  shape: Shape, dtype: Any = np.float32
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
  """Return the convolution and its gradients, each with its arguments."""
  rank = len(shape.space)
  names = "DHW"[-rank:]
  reach = (shape.kernel - 1) * shape.dilation
  padding = [(0, 0) if shape.stride == shape.kernel else (reach // 2, -(-reach // 2))]

  def convolve(x, w):
    return lax.conv_general_dilated(
      x,
      w,
      (shape.stride,) * rank,
      padding * rank,
      rhs_dilation=(shape.dilation,) * rank,
      dimension_numbers=(f"N{names}C", f"{names}IO", f"N{names}C"),
      feature_group_count=shape.groups,
    )

  rng = np.random.default_rng(0)
  kernel = (*[shape.kernel] * rank, shape.channels // shape.groups, shape.features)
  x = rng.normal(size=(shape.examples, *shape.space, shape.channels))
  x, w = jnp.asarray(x, dtype), jnp.asarray(rng.normal(size=kernel), dtype)
  if shape.outer:  # of each example, as differential privacy has them
    gradient = jax.grad(lambda w, x: (convolve(x[None], w) ** 2).sum())
    return {"gradients": (jax.vmap(gradient, (None, 0)), (w, x))}
  dy = jnp.ones_like(convolve(x, w))

  def of_images(w, dy):
    return jax.linear_transpose(lambda x: convolve(x, w), x)(dy)[0]

  def of_kernel(x, dy):
    return jax.linear_transpose(lambda w: convolve(x, w), w)(dy)[0]

  return {
    "forward": (convolve, (x, w)),
    "images": (of_images, (w, dy)),
    "kernel": (of_kernel, (x, dy)),
  }


# A shape loses if it takes more than these of the plain form's time and compilation.
MOST_TIME, MOST_COMPILATION = 1.2, 3.0
# Rows that seem to lose by less than noise makes are measured in so many more rounds.
NOISY_TIME, FURTHER_ROUNDS = 1.1, 5
# What a result adds to the next call's arguments
TINY = 1e-30
# Calls in a loop, and the seconds that a loop should take
LEAST_CALLS, MOST_CALLS, ROUND_SECONDS = 3, 300, 0.03
# A form gains where leaving it out takes so many times its time.
FORM_GAIN = 1.05


@contextlib.contextmanager
def plainly():
  """Let lanes have the plain form of convolutions alone, in this context."""
  with (
    mock.patch.object(primitive, "cpu", OnCPU),
    mock.patch.object(onednn, "is_usable", return_value=False),
  ):
    yield


def forms() -> dict[str, Callable[[], Any]]:
  """Return the forms of convolutions that lanes have on CPUs, by name: contexts in which
  each is left out.
  """
  without = mock.patch.object

  def of_volumes():
    def parts(name):
      ours = getattr(cpu, name)

      def part(window, x, w, *dy):
        form = getattr(OnCPU, name) if x.ndim > 4 else ours
        return form(window, x, w, *dy)

      part.__name__ = name
      return part

    return mock.patch.multiple(cpu, **{name: parts(name) for name in PARTS})

  def of_groups(part, window, *arrays):
    return getattr(OnCPU, part.__name__)(window, *arrays)

  few = cpu.MANY_PRODUCTS
  return {
    "oneDNN": lambda: without(onednn, "is_usable", return_value=False),
    "joined rows": lambda: without(cpu, "JOINED_BYTES", 0),
    "pairs": lambda: without(cpu, "_pairs", Window.lax),
    "Winograd": lambda: without(cpu, "MANY_PRODUCTS", few | {"images": np.inf}),
    "Winograd, kernel": lambda: without(cpu, "MANY_PRODUCTS", few | {"kernel": np.inf}),
    "phases": lambda: without(cpu, "MOST_PHASES", 0),
    "turned": lambda: without(cpu, "input_gradient", OnCPU.input_gradient),
    "rows, kernel": lambda: without(cpu, "GRADIENT_WIDTH", 0),
    "blocks, kernel": lambda: without(cpu, "GRADIENT_BYTES", 2**40),
    "volumes": of_volumes,
    "depthwise": lambda: without(cpu, "MOST_SUMS", 0),
    "zeros": lambda: without(cpu, "DENSE_PRODUCTS", 0),
    "groups": lambda: without(cpu, "_apply_to_groups", of_groups),
  }


def repeated(function: Callable[..., Any]) -> Callable[..., Any]:
  """Return a function that calls `function` a number of times in a loop, as a training
  does: XLA for CPUs has other code for convolutions in loops.

  Each call's arguments depend on the last call's result, and the whole result is kept,
  so that no call is left out.
  """

  def repeat(times, *args):
    def again(_, carry):
      args, result = carry
      nudge = result[(0,) * result.ndim] * TINY
      changed = []
      for a in args:
        first = (0,) * a.ndim
        changed.append(a.at[first].add(nudge.astype(a.dtype)))
      return changed, function(*changed)

    result = jax.eval_shape(function, *args)
    empty = jnp.zeros(result.shape, result.dtype)
    return lax.fori_loop(0, times, again, ([*args], empty))[1]

  return repeat


def measure_shape(function, args, rounds: int, each: bool = False) -> dict[str, Any]:
  """Return processor milliseconds of ours and of the plain form, in loops and in turn,
  the median of `rounds`, and seconds of compilation; with `each` also of ours without
  each form whose absence changes the program.
  """
  contexts = {"ours": contextlib.nullcontext, "plain": plainly}
  if each:
    contexts |= {f"without {name}": context for name, context in forms().items()}
  programs, numbers = {}, {}
  texts = dict[str, str]()
  for name, context in contexts.items():
    with context():
      fast = vs.fast_convolutions(function)
      # Another function each time: JAX keeps what it traced before.
      lowered = jax.jit(repeated(functools.partial(fast))).lower(1, *args)
    texts[name] = lowered.as_text()
    if name.startswith("without") and texts[name] == texts["ours"]:
      continue
    began = time.process_time()
    programs[name] = lowered.compile()
    numbers[f"{name} compiles"] = time.process_time() - began
    jax.block_until_ready(programs[name](1, *args))

  def seconds(program, times):
    began = time.process_time()
    jax.block_until_ready(program(times, *args))
    return time.process_time() - began

  slowest = 0.0
  for program in programs.values():
    slowest = max(slowest, seconds(program, 1))
  calls = min(MOST_CALLS, max(LEAST_CALLS, int(ROUND_SECONDS / slowest)))

  def medians(rounds):
    taken = {name: list[float]() for name in programs}
    for _ in range(rounds):
      for name, program in programs.items():
        taken[name].append(1e3 * seconds(program, calls) / calls)
    return {name: float(np.median(times)) for name, times in taken.items()}

  times = medians(rounds)
  if times["ours"] > NOISY_TIME * min(times.values()):
    further = medians(FURTHER_ROUNDS)
    times = {name: min(time, further[name]) for name, time in times.items()}
  return numbers | times


def rows_of_shapes(flags: "Flags") -> dict[str, dict[str, Any]]:
  """Return what was measured of each part of each shape; add each to a file at once."""
  dtype = jnp.bfloat16 if flags.bfloat16 else np.float32
  path = flags.out / f"shapes_{np.dtype(dtype).name}.jsonl"
  path.parent.mkdir(parents=True, exist_ok=True)
  rows: dict[str, dict[str, Any]] = {}
  if flags.resume and path.exists():
    rows = {row["name"]: row for row in map(json.loads, path.read_text().splitlines())}
  elif path.exists():
    path.unlink()
  for family, of_family in shapes().items():
    if flags.only and family not in flags.only:
      continue
    for shape in of_family:
      for part, (function, args) in parts_of(shape, dtype).items():
        name = f"{family}: {shape} {part}"
        if name in rows:
          continue
        began = time.process_time()
        row = {"name": name, "family": family, "shape": str(shape), "part": part}
        row |= measure_shape(function, args, flags.rounds, flags.forms)
        row["processor seconds"] = time.process_time() - began
        rows[name] = row
        with path.open("a", encoding="utf-8") as file:
          print(json.dumps(row), file=file)
        if flags.shown:
          print(*_cells(row), sep="\t", flush=True)
      # Programs of one shape are never called again.
      jax.clear_caches()
  return rows


HEAD = ("family", "convolution", "part", "ms", "÷ plain", "compilation, s", "÷ plain")


def _ratios(row) -> tuple[float, float]:
  """Return the time and the seconds of compilation, ÷ those of the plain form."""
  return row["ours"] / row["plain"], row["ours compiles"] / row["plain compiles"]


def _cells(row) -> tuple[str, ...]:
  time_ratio, compile_ratio = _ratios(row)
  cells = (row["family"], row["shape"], row["part"], f"{row['ours']:.3f}")
  cells += (f"{time_ratio:.2f}", f"{row['ours compiles']:.2f}", f"{compile_ratio:.1f}")
  return cells


def tables_of_shapes(rows: dict[str, dict[str, Any]]) -> list[Table]:
  """Return tables of all rows, of families, and of the rows that lose."""
  every = Table("single convolutions", HEAD, [_cells(row) for row in rows.values()])
  groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
  losing = []
  for row in rows.values():
    ratios = _ratios(row)
    groups.setdefault((row["family"], row["part"]), []).append(ratios)
    if ratios[0] > MOST_TIME or ratios[1] > MOST_COMPILATION:
      losing.append(row)
  families = []
  for names, pairs in groups.items():
    times, compilations = zip(*pairs, strict=True)
    cells = (f"{np.median(times):.2f}", f"{max(times):.2f}")
    cells += (f"{np.median(compilations):.1f}", f"{max(compilations):.1f}")
    families.append((*names, str(len(pairs)), *cells))
  family_head = ("family", "part", "shapes", "time ÷ plain", "most")
  family_head += ("compilation ÷ plain", "most")
  losing.sort(key=lambda row: max(np.divide(_ratios(row), _BARS)), reverse=True)
  title = f"{len(losing)} of {len(rows)} rows lose, the worst first"
  return [
    every,
    Table("families, medians", family_head, families),
    table_of_forms(rows),
    Table(title, HEAD, [_cells(row) for row in losing]),
  ]


_BARS = MOST_TIME, MOST_COMPILATION


def table_of_forms(rows: dict[str, dict[str, Any]]) -> Table:
  """Return how much each form gains: the time of ours, of that without the form."""
  cells = []
  for form in forms():
    name = f"without {form}"
    taking = [row for row in rows.values() if name in row]
    if not taking:
      continue
    times = [row["ours"] / row[name] for row in taking]
    seconds = [row["ours compiles"] - row[f"{name} compiles"] for row in taking]
    gaining = sum(ratio < 1 / FORM_GAIN for ratio in times)
    losing = sum(ratio > FORM_GAIN for ratio in times)
    numbers = (f"{np.median(times):.2f}", f"{min(times):.2f} – {max(times):.2f}")
    counts = (str(len(taking)), str(gaining), str(losing))
    cells.append((form, *counts, *numbers, f"{np.median(seconds):.2f}"))
  head = ("form", "programs", "gains", "loses", "time ÷ without", "range")
  return Table("forms", (*head, "further seconds of compilation"), cells)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flags(common.Flags):
  only: Annotated[tuple[str, ...], metavar("NAME", "all")] = ()
  """rows of the table"""

  steps: Count = 4
  """training steps that are timed together"""

  shapes: bool = False
  """single convolutions of many shapes, in loops"""

  bfloat16: bool = False
  """with --shapes: of bfloat16"""

  shown: bool = False
  """with --shapes: print each row when it is measured"""

  forms: bool = False
  """with --shapes: leave out each of our forms, too, where it is taken"""

  resume: bool = False
  """with --shapes: measure only the rows that an earlier run in this folder lacks"""


def measure(case, flags: Flags) -> dict[str, Any]:
  """Return the milliseconds of a model-step for each way, and how far values differ."""
  devices = lanes.start_jax()[:1]
  (plain, data, lane), (hand, hand_data, hand_lane) = case(flags.steps)

  def in_lanes(one, data, lane):
    spread = vs.spread(one, width=1, devices=devices)
    data = lanes.replicate(data, devices)
    return lambda: next(spread(data, lane))[1]

  alone = jax.jit(plain)
  one_lane = jax.tree.map(lambda a: a[0], lane)
  ours = in_lanes(plain, data, lane)
  calls = {"in lanes": ours, "by hand": in_lanes(hand, hand_data, hand_lane)}
  theirs = jax.tree.leaves(jax.block_until_ready(alone(data, one_lane)))
  timed = common.in_turn(
    {way: functools.partial(lambda call: call, call) for way, call in calls.items()},
    flags.rounds,
  )
  per_step = 1e3 / flags.steps
  found = {way: [per_step * s for _, s in taken] for way, taken in timed.items()}
  began = time.process_time()
  jax.block_until_ready(alone(data, one_lane))
  found["alone"] = [per_step * (time.process_time() - began)]
  ours = jax.tree.leaves(ours())
  scale = max(np.abs(b).max() for b in theirs)
  pairs = zip(ours, theirs, strict=True)
  found["difference"] = max(float(np.abs(a[0] - b).max() / scale) for a, b in pairs)
  return found


def main(argv: list[str] | None = None) -> None:
  flags, command = common.arguments(Flags, __doc__, "convolutions", argv)
  for name in flags.only:
    check_one_of("row", name, tuple(shapes()) if flags.shapes else NAMES)
  where = common.machine()
  if flags.shapes:
    lanes.start_jax()
    # What is read from the cache is not compiled.
    jax.config.update("jax_enable_compilation_cache", False)
    rows = rows_of_shapes(flags)
    common.write_results(flags, command, where, tables_of_shapes(rows), rows)
    return
  numbers = {name: measure(cases()[name], flags) for name in flags.only or NAMES}
  rows = []
  for name, found in numbers.items():
    ours, hand, alone = (found[way] for way in ("in lanes", "by hand", "alone"))
    rows.append(
      (
        name,
        *common.spread(ours, "{:.2f}"),
        common.spread(np.divide(ours, hand), "{:.2f}")[0],
        common.spread(alone, "{:.1f}")[0],
        common.spread(np.divide(alone, ours), "{:.1f}")[0],
        f"{found['difference']:.0e}",
      )
    )
  head = ("program", "ms of processor", "least – most", "÷ by hand", "alone, ms")
  head += ("alone ÷ in lanes", "differ by")
  table = Table("convolutions of other programs, in lanes", head, rows)
  common.write_results(flags, command, where, [table], numbers)


if __name__ == "__main__":
  with one_line_errors():
    main()
