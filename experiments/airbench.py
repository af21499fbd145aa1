"""airbench94 (Jordan 2024, arXiv 2404.00498): 94 % on CIFAR-10 in 10 epochs, as a recipe
through the package's public door; and its later form with Muon, which takes 8.

    vmapseeds train experiments.airbench:airbench94_cifar10 --set width=0.25 --runs 8 --out results/airbench
    vmapseeds train experiments.airbench:airbench94_muon_cifar10 --set width=0.25 --runs 8 --out results/muon

Section and appendix numbers are the paper's; none of its code is here. What differs:
recipes train for whole epochs, 10 instead of 9.9; batch statistics are not averaged with
the parameters by lookahead; on accelerators numbers are bfloat16 instead of float16. With
Muon, gradients are made orthogonal in float32, not bfloat16, and patches are whitened
about their mean, the largest variance first, as without it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

import vmapseeds as vs
from vmapseeds.models.pooling import max_pool  # no select-and-scatter, slow on CPUs

# Appendix A, and the hyperparameters of the published script `airbench94`.
WHITENED = (
  24  # features of the first layer: 2×2 patches of 3 channels, and their negatives
)
BLOCKS = (64, 256, 256)  # features of the convolutions of each block
NORM = dict(momentum=0.6, epsilon=1e-12, use_scale=False)
OUTPUT_SCALE = 1 / 9
TRIANGLE = (0.2, 1.0, 0.07)  # of the learning rate: at the start, the peak, the end
PEAK = 0.23  # share of the training before the peak
WHITENING_IMAGES = 5000  # from which patches are taken
WHITENING_EPSILON = 5e-4  # added to the variances of whitened patches
SYNC_PERIOD = 5  # steps between two averages of lookahead
SLOWEST = 0.95**SYNC_PERIOD  # weight of the average so far, at the end of training

# Of `airbench94_muon`, as published: github.com/KellerJordan/cifar10-airbench, commit
# 096d14d. Its losses are sums over a batch, ours are means.
MUON_BATCH = 2000
# Of the polynomial that brings singular values near 1 (kellerjordan.github.io/posts/muon),
# and how many times it is applied
QUINTIC = (3.4445, -4.7750, 2.0315)
QUINTICS = 3
MUON_EPSILON = 1e-7  # added to the norm of a gradient

# PyTorch's default of convolutions and linear layers.
torch_init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def unit_init(key, shape: tuple[int, ...], dtype=jnp.float32) -> Array:
  """Return numbers drawn as by PyTorch, divided by their standard deviation."""
  kernel = torch_init(key, shape, dtype)
  return kernel / kernel.std(ddof=1)


def partly_identity(key, shape: tuple[int, ...], dtype=jnp.float32) -> Array:
  """Return a kernel (height, width, inputs, outputs) whose first outputs are the inputs,
  the rest drawn as by PyTorch (section 3.3).
  """
  height, width, inputs, outputs = shape
  kernel = torch_init(key, shape, dtype)
  same = min(inputs, outputs)
  # As many outputs as there are inputs are zeros but for the identity.
  kernel = kernel.at[..., :inputs].set(0)
  return kernel.at[height // 2, width // 2, :same, :same].set(
    jnp.eye(same, dtype=dtype)
  )


@jax.custom_vjp
def gelu(x: Float[Array, "..."]) -> Float[Array, "..."]:
  """Return x·Φ(x), Φ the standard normal distribution function: by erf, which on CPUs
  takes half the time of Flax's erfc, as do sums over the gradient where it is one array.
  """
  return x * normal_cdf(x)


def normal_cdf(x):
  return (1 + jax.lax.erf(x * 0.5**0.5)) / 2


def gelu_gradient(x, dy):
  density = jnp.exp(-x * x / 2) * (2 * jnp.pi) ** -0.5
  dx = dy * (normal_cdf(x) + x * density).astype(dy.dtype)
  return (jax.lax.optimization_barrier(dx),)


gelu.defvjp(lambda x: (gelu(x), x), gelu_gradient)


class Airbench(nn.Module):
  """The network of appendix A: a whitening layer, three blocks of two convolutions with
  batch norm, pooling, a linear layer.

  In evaluation logits are a weighted mean over six views of an image (section 3.5),
  unless `views` is False. With `unit_head` the kernel of the linear layer begins with a
  standard deviation of 1, and outputs are divided by 256: at other widths by as much as
  keeps the outputs, and what a step changes in them, as large.
  """

  num_classes: int
  width: float = 1.0
  dtype: Any = jnp.float32
  views: bool = True
  unit_head: bool = False

  @nn.compact
  def __call__(
    self,
    x: Float[Array, "batch height width channels"],
    train: bool,
  ) -> Float[Array, "batch classes"]:
    count = len(x)
    if self.views and not train:
      images, weights = views_of(x)
      x = jnp.concatenate(images)
    x = Whitening(name="whitening")(x.astype(self.dtype))
    x = gelu(x)
    for block, features in enumerate(BLOCKS):
      features = max(1, round(features * self.width))
      for place in (0, 1):
        name = f"{block}_{place}"
        x = nn.Conv(
          features,
          (3, 3),
          use_bias=False,
          kernel_init=partly_identity,
          dtype=self.dtype,
          name=f"conv_{name}",
        )(x)
        if place == 0:
          x = max_pool(x, 2)
        x = nn.BatchNorm(use_running_average=not train, name=f"norm_{name}", **NORM)(x)
        x = gelu(x.astype(self.dtype))
    x = max_pool(x, 3).reshape(len(x), -1)
    x = nn.Dense(
      self.num_classes,
      use_bias=False,
      kernel_init=unit_init if self.unit_head else torch_init,
      dtype=self.dtype,
      name="linear",
    )(x)
    x = x * ((BLOCKS[-1] * features) ** -0.5 if self.unit_head else OUTPUT_SCALE)
    if len(x) > count:
      x = jnp.tensordot(
        jnp.asarray(weights, x.dtype),
        x.reshape(-1, count, x.shape[-1]),
        1,
      )
    return x


class Whitening(nn.Module):
  """A 2×2 convolution whose kernel is no parameter; its bias is one (section 3.2).
  `whiten` sets the kernel.
  """

  @nn.compact
  def __call__(self, x):
    inputs = 4 * x.shape[-1]
    kernel = self.variable("whitening", "kernel", jnp.zeros, (inputs, WHITENED))
    bias = self.param("bias", bias_init(inputs), (WHITENED,))
    return pixels_beside(x) @ kernel.value.astype(x.dtype) + bias.astype(x.dtype)


def pixels_beside(
  x: Float[Array, "batch height width channels"],
) -> Float[Array, "batch h w pixels"]:
  """Return the pixels of all 2×2 patches, row by row, as channels."""
  height = x.shape[1] - 1
  width = x.shape[2] - 1
  corners = [(i, j) for i in (0, 1) for j in (0, 1)]
  return jnp.concatenate([x[:, i : i + height, j : j + width] for i, j in corners], -1)


def bias_init(inputs: int) -> Callable:
  """Return PyTorch's default of the bias of a layer: uniform in ±1/√inputs."""

  def drawn(key, shape, dtype=jnp.float32):
    return jax.random.uniform(key, shape, dtype, -1, 1) * inputs**-0.5

  return drawn


def views_of(x: Float[Array, "batch height width channels"]):
  """Return six views of images and their weights: as they are, moved by one pixel up and
  left, and down and right, with a reflecting border; each also mirrored.
  """
  height, width = x.shape[1:3]
  bordered = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
  moved = [bordered[:, i : i + height, i : i + width] for i in (0, 2)]
  images = [x, *moved]
  weights = [0.25, 0.125, 0.125]
  return [*images, *(image[:, :, ::-1] for image in images)], weights * 2


def whiten(variables: Mapping[str, Any], data: Any, run: Any) -> dict[str, Any]:
  """Return the variables with a whitening kernel: the eigenvectors of the covariance of
  2×2 patches of the first training images, each divided by the root of its eigenvalue,
  and their negatives (section 3.2).
  """
  images = data.preprocess(jnp.asarray(data.inputs[:WHITENING_IMAGES]))
  patches = pixels_beside(images).reshape(-1, 4 * images.shape[-1])
  variances, vectors = jnp.linalg.eigh(jnp.cov(patches, rowvar=False))
  # The largest variance first.
  vectors = (vectors / jnp.sqrt(variances + WHITENING_EPSILON))[:, ::-1]
  kernel = jnp.concatenate([vectors, -vectors], axis=1)
  return {**variables, "whitening": {"whitening": {"kernel": kernel}}}


def triangle(steps: int) -> optax.Schedule:
  """Return the factor on the learning rate: linearly up to the peak, linearly down."""
  peak = int(PEAK * steps)

  def height(step):
    return jnp.interp(step, jnp.array([0, peak, steps]), jnp.array(TRIANGLE))

  return height


class Lookahead(NamedTuple):
  """The state of `lookahead`."""

  inner: Any
  slow: PyTree[Float[Array, "..."]]  # the average
  step: Int[Array, ""]


def lookahead(
  inner: optax.GradientTransformation,
  steps: int,
) -> optax.GradientTransformation:
  """Average parameters every few steps, and go on from the average (section 3.4). The
  weight of the average so far grows with the cube of the step.
  """

  def init(params):
    return Lookahead(inner.init(params), params, jnp.zeros((), jnp.int32))

  def update(gradients, state, params):
    updates, inner_state = inner.update(gradients, state.inner, params)
    step = state.step + 1
    weight = SLOWEST * (step / steps) ** 3
    due = step % SYNC_PERIOD == 0

    def averaged(slow, param, update):
      return jnp.where(due, weight * slow + (1 - weight) * (param + update), slow)

    slow = jax.tree.map(averaged, state.slow, params, updates)
    updates = jax.tree.map(
      lambda update, new, old: jnp.where(due, new - old, update),
      updates,
      slow,
      params,
    )
    return updates, Lookahead(inner_state, slow, step)

  return optax.GradientTransformation(init, update)


def slow_params(opt_state: Lookahead, params):
  """Return the average of lookahead."""
  return opt_state.slow


def kind_of(path: tuple, _: Any) -> str:
  """Return which rate a parameter has."""
  names = [str(getattr(key, "key", key)) for key in path]
  if names[-2] == "whitening":
    return "whitening"
  return "bias" if names[-1] == "bias" else "weight"


def optimizer(run: Any, steps: int) -> optax.GradientTransformation:
  """Nesterov momentum with a triangular schedule and lookahead.

  Learning rate, weight decay and momentum are decoupled: the rate is that of a whole
  step where gradients are constant, the decay is that of a step at rate 1, and biases of
  batch norm have their own rate but no stronger decay (section 3.4).
  """
  # How far a constant gradient of 1 moves parameters in a step
  reach = 1 + 1 / (1 - run["momentum"])
  rate = run["lr"] / reach
  height = triangle(steps)
  trained = run["whitening_share"] * steps

  def nesterov(factor):
    return optax.chain(
      optax.add_decayed_weights(run["weight_decay"] / run["lr"] / factor),
      optax.trace(run["momentum"], nesterov=True),
      optax.scale_by_schedule(lambda step: -rate * factor * height(step)),
    )

  frozen = optax.scale_by_schedule(lambda step: jnp.where(step < trained, 1.0, 0.0))
  kinds = {
    "weight": nesterov(1.0),
    "bias": nesterov(run["bias_factor"]),
    "whitening": optax.chain(nesterov(1.0), frozen),
  }
  labels = lambda params: jax.tree.map_with_path(kind_of, params)  # noqa: E731
  return lookahead(optax.partition(kinds, labels), steps)


def orthogonal(gradient: Float[Array, "*kernel outputs"]) -> Float[Array, "..."]:
  """Return a gradient, as a matrix of as many columns as outputs, with its singular values
  brought near 1.
  """
  x = gradient.reshape(-1, gradient.shape[-1])
  x = x / (jnp.linalg.norm(x) + MUON_EPSILON)
  first, third, fifth = QUINTIC
  for _ in range(QUINTICS):
    # Kernels have fewer outputs than numbers for each, so this product is the smaller.
    square = x.T @ x
    x = first * x + x @ (third * square + fifth * square @ square)
  return x.reshape(gradient.shape)


def muon(momentum, rate: Callable) -> optax.GradientTransformation:
  """Nesterov momentum made orthogonal. Kernels first get a norm of one an output, whose
  scale batch norm takes out.
  """
  moments = optax.trace(momentum, nesterov=True)

  def update(gradients, state, params):
    step, state = state
    gradients, state = moments.update(gradients, state)

    def moved(gradient, kernel):
      norm = kernel.shape[-1] ** 0.5 / jnp.linalg.norm(kernel)
      return kernel * (norm - 1) - rate(step) * orthogonal(gradient)

    return jax.tree.map(moved, gradients, params), (step + 1, state)

  def init(params):
    return jnp.zeros((), jnp.int32), moments.init(params)

  return optax.GradientTransformation(init, update)


def muon_kind(path: tuple, leaf: Any) -> str:
  """Return which optimizer a parameter has."""
  kind = kind_of(path, leaf)
  linear = kind == "weight" and getattr(path[-2], "key", None) == "linear"
  return "linear" if linear else kind


def muon_optimizer(run: Any, steps: int) -> optax.GradientTransformation:
  """Muon for the kernels of convolutions, Nesterov momentum for all else, with rates that
  fall linearly to 0: that of the whitening layer's bias in a part of the training.
  """

  def falling(rate, until):
    return lambda step: rate * jnp.maximum(1 - step / until, 0)

  def nesterov(rate, until):
    return optax.chain(
      optax.add_decayed_weights(run["weight_decay"] / rate),
      optax.trace(run["others_momentum"], nesterov=True),
      optax.scale_by_learning_rate(falling(rate, until)),
    )

  biases = run["bias_lr"]
  linear = run["linear_lr"]
  kinds = {
    "weight": muon(run["momentum"], falling(run["lr"], steps)),
    "bias": nesterov(biases, steps),
    "linear": nesterov(linear, steps),
    "whitening": nesterov(biases, jnp.ceil(run["whitening_share"] * steps)),
  }
  labels = lambda params: jax.tree.map_with_path(muon_kind, params)  # noqa: E731
  return optax.partition(kinds, labels)


airbench94_cifar10 = vs.Recipe(
  name="airbench94_cifar10",
  dataset="cifar10",
  model=Airbench,
  initialize=whiten,
  optimizer=optimizer,
  eval_params=slow_params,
  epochs=10,
  batch_size=1024,
  lr=11.5,  # for batches of 1,024
  momentum=0.85,
  weight_decay=0.0153,
  values={"bias_factor": 64.0, "whitening_share": 0.3},
  label_smoothing=0.2,
  augment="alternate reflect=2",
  # In pixel values; published as 0.4914, 0.4822, 0.4465 and 0.2470, 0.2435, 0.2616.
  mean=(0.4914 * 255, 0.4822 * 255, 0.4465 * 255),
  std=(0.2470 * 255, 0.2435 * 255, 0.2616 * 255),
)
airbench94_muon_cifar10 = airbench94_cifar10.replace(
  name="airbench94_muon_cifar10",
  model_args={"unit_head": True},
  optimizer=muon_optimizer,
  eval_params=None,
  epochs=8,
  batch_size=MUON_BATCH,
  lr=0.24,
  momentum=0.6,
  weight_decay=2e-6 * MUON_BATCH,
  values={
    "bias_lr": 0.053 * MUON_BATCH,
    "linear_lr": 0.67 * MUON_BATCH,
    "others_momentum": 0.85,
    "whitening_share": 3 / 8,
  },
)
