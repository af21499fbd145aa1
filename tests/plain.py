"""A plain training of one network with Flax and optax, as a single-run script has it:
no code of vmapseeds.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

SOURCES = ["init", "order", "augment", "dropout", "data"]


def key(source, seed):
  return jax.random.fold_in(jax.random.key(SOURCES.index(source)), seed)


class SmallCNN(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    for features in (16, 32):
      x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
    return nn.Dense(10)(x.reshape(len(x), -1))


class BanerjeeCNN(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    x = nn.max_pool(nn.relu(nn.Conv(32, (3, 3))(x)), (2, 2), (2, 2))
    x = nn.max_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
    x = nn.relu(nn.Dense(64)(x.reshape(len(x), -1)))
    return nn.Dense(2)(x)


class NarrowCNN(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    n, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    x = jnp.concatenate([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], -1)
    for features in (16, 32, 64):
      x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
    return nn.Dense(10)(x.reshape(n, -1))


class Linear(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    return nn.Dense(10)(x.reshape(len(x), -1))


class MLP(nn.Module):
  width: float

  @nn.compact
  def __call__(self, x, train):
    x = nn.relu(nn.Dense(int(128 * self.width))(x.reshape(len(x), -1)))
    return nn.Dense(10)(x)


class ConvBlock(nn.Module):
  features: int
  kernel: int = 3
  stride: int = 1
  padding: int = 1
  relu: bool = True

  @nn.compact
  def __call__(self, x, train):
    x = nn.Conv(
      self.features,
      (self.kernel, self.kernel),
      self.stride,
      self.padding,
      use_bias=False,
    )(x)
    x = nn.BatchNorm(use_running_average=not train, momentum=0.9, epsilon=1e-5)(x)
    return nn.relu(x) if self.relu else x


class ResNet9(nn.Module):
  width: float

  @nn.compact
  def __call__(self, x, train):
    c = lambda n: int(n * self.width)  # noqa: E731
    x = ConvBlock(c(64))(x, train)
    x = ConvBlock(c(128), 5, 2, 2)(x, train)
    inner = ConvBlock(c(128))(x, train)
    x = x + ConvBlock(c(128))(inner, train)
    x = nn.max_pool(ConvBlock(c(256))(x, train), (2, 2), (2, 2))
    inner = ConvBlock(c(256))(x, train)
    x = x + ConvBlock(c(256))(inner, train)
    x = ConvBlock(c(128), padding=0)(x, train)
    x = nn.max_pool(x, x.shape[1:3])
    return 0.2 * nn.Dense(10, use_bias=False)(x.reshape(len(x), -1))


class BasicBlock(nn.Module):
  features: int
  stride: int

  @nn.compact
  def __call__(self, x, train):
    y = ConvBlock(self.features, 3, self.stride)(x, train)
    y = ConvBlock(self.features, relu=False)(y, train)
    same = self.stride == 1
    return nn.relu(
      y
      + (
        x if same else ConvBlock(self.features, 1, self.stride, 0, relu=False)(x, train)
      )
    )


class ResNet18(nn.Module):
  width: float

  @nn.compact
  def __call__(self, x, train):
    c = lambda n: int(n * self.width)  # noqa: E731
    x = ConvBlock(c(64))(x, train)
    for features in (64, 128, 256, 512):
      x = BasicBlock(c(features), 1 if features == 64 else 2)(x, train)
      x = BasicBlock(c(features), 1)(x, train)
    return nn.Dense(10)(x.mean(axis=(1, 2)))


class NiN(nn.Module):
  width: float

  @nn.compact
  def __call__(self, x, train):
    for _ in range(2):
      x = ConvBlock(int(128 * self.width), 3, 2, 1)(x, train)
      x = ConvBlock(int(128 * self.width), 1, 1, 0)(x, train)
      x = ConvBlock(int(128 * self.width), 1, 1, 0)(x, train)
    return nn.Conv(10, (1, 1))(x).mean(axis=(1, 2))


def augmented(image, steps, image_key, fill):
  """One uint8 image after flips, shifts and cutouts, in NumPy."""
  image = image.astype(np.float32)
  height, width, _ = image.shape
  words = np.asarray(jax.random.bits(image_key, (len(steps), 2)))
  for (name, size), two in zip(steps, words, strict=True):
    if name == "flip" and two[0] % 2:
      image = image[:, ::-1]
    if name in ("translate", "reflect"):
      top, left = (int(word) % (2 * size + 1) for word in two)
      mode = {"translate": "constant", "reflect": "reflect"}[name]
      image = np.pad(image, [(size, size), (size, size), (0, 0)], mode)[
        top : top + height, left : left + width
      ]
    if name == "cutout":
      top, left = int(two[0]) % (height - size + 1), int(two[1]) % (width - size + 1)
      image = image.copy()
      image[top : top + size, left : left + size] = fill
  return image


def cross_entropy(logits, labels):
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@functools.partial(jax.jit, static_argnums=(0, 1))
def gradient(model, loss, params, stats, x, y):
  def value(params):
    outputs, new = model.apply(
      {"params": params, "batch_stats": stats}, x, train=True, mutable=["batch_stats"]
    )
    return loss(outputs, y), new.get("batch_stats", {})

  return jax.grad(value, has_aux=True)(params)


def train(
  model,
  images,
  labels,
  *,
  seed,
  steps,
  epochs,
  batch,
  lr,
  momentum,
  weight_decay,
  mean,
  std,
  augmentation=(),
  kind="sgd",
  linear=True,
  variables=None,
  optimizer=None,
  loss=cross_entropy,
):
  """The variables after `steps` steps of a Python loop. `optimizer` replaces the one
  that `kind` and the numbers describe.
  """
  images, labels = np.asarray(images), np.asarray(labels)
  fill = np.floor(np.array(mean, np.float32))
  if variables is None:
    variables = jax.jit(functools.partial(model.init, train=False))(
      key("init", seed), jnp.zeros((1, *images.shape[1:]))
    )
  params, stats = variables["params"], variables.get("batch_stats", {})
  epoch_steps = len(images) // batch
  schedule = optax.linear_schedule(lr, 0.0, epochs * epoch_steps) if linear else lr
  adam, nesterov = kind == "adam", kind == "nesterov"
  inner = (
    optax.adam(schedule, b1=momentum)
    if adam
    else optax.sgd(schedule, momentum, nesterov)
  )
  optimizer = optimizer or optax.chain(optax.add_decayed_weights(weight_decay), inner)
  state = optimizer.init(params)

  for step in range(steps):
    epoch, position = divmod(step, epoch_steps)
    order = jax.random.permutation(
      jax.random.fold_in(key("order", seed), epoch), len(images)
    )
    chosen = np.asarray(order)[position * batch : (position + 1) * batch]
    epoch_key = jax.random.fold_in(key("augment", seed), epoch)
    x = [
      augmented(images[i], augmentation, jax.random.fold_in(epoch_key, i), fill)
      for i in chosen
    ]
    x = (np.stack(x) - np.array(mean, np.float32)) / np.array(std, np.float32)
    grads, stats = gradient(
      model, loss, params, stats, jnp.asarray(x), jnp.asarray(labels[chosen])
    )
    updates, state = optimizer.update(grads, state, params)
    params = optax.apply_updates(params, updates)
  return {"params": params, **({"batch_stats": stats} if stats else {})}
