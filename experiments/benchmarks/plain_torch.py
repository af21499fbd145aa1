"""The recipes as a PyTorch user trains them: one network at a time, or stacked under
`torch.func.vmap`.

The data set lies in memory as uint8, and each batch is augmented at once by tensor
operations, as the fastest public CIFAR-10 scripts do
(github.com/KellerJordan/cifar10-loader). Precision and arithmetic are those of the
recipe.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.banerjee2024.network import BanerjeeCNN
from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.recipes import Recipe

Step = Callable[[Tensor, Tensor], None]


def scaled(channels: int, width: float) -> int:
  return max(1, round(channels * width))


def convolved(shape: tuple[int, ...], a: int, b: int) -> list[nn.Module]:
  """Two convolutions, each pooled, and the vectors of b · pixels numbers they end in."""
  layers: list[nn.Module] = []
  channels = shape[-1]
  for inputs, outputs in ((channels, a), (a, b)):
    layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
    layers.append(nn.ReLU())
    layers.append(nn.MaxPool2d(2))
  layers.append(nn.Flatten())
  return layers


def pooled_pixels(shape: tuple[int, ...]) -> int:
  """How many pixels two poolings leave of an image."""
  height, width, _ = shape
  return (height // 4) * (width // 4)


def small_cnn(shape: tuple[int, ...], num_classes: int, width: float) -> nn.Module:
  a = scaled(16, width)
  b = scaled(32, width)
  layers = convolved(shape, a, b)
  head = nn.Linear(b * pooled_pixels(shape), num_classes)
  return nn.Sequential(*layers, head)


def banerjee_cnn(shape: tuple[int, ...], num_classes: int, width: float) -> nn.Module:
  a = scaled(32, width)
  b = scaled(16, width)
  hidden = scaled(64, width)
  layers = convolved(shape, a, b)
  layers.append(nn.Linear(b * pooled_pixels(shape), hidden))
  layers.append(nn.ReLU())
  layers.append(nn.Linear(hidden, num_classes))
  return nn.Sequential(*layers)


class TorchResNet9(nn.Module):
  """The network of Jordan 2024, appendix A.1."""

  def __init__(self, shape: tuple[int, ...], num_classes: int, width: float):
    super().__init__()
    a = scaled(64, width)
    b = scaled(128, width)
    c = scaled(256, width)
    channels = shape[-1]
    self.stem = nn.Sequential(
      self.block(channels, a),
      self.block(a, b, kernel=5, stride=2, padding=2),
    )
    self.first = nn.Sequential(self.block(b, b), self.block(b, b))
    self.middle = nn.Sequential(self.block(b, c), nn.MaxPool2d(2))
    self.second = nn.Sequential(self.block(c, c), self.block(c, c))
    self.last = nn.Sequential(
      self.block(c, b, padding=0),
      nn.AdaptiveMaxPool2d(1),
      nn.Flatten(),
    )
    self.head = nn.Linear(b, num_classes, bias=False)

  @staticmethod
  def block(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 1,
  ) -> nn.Module:
    return nn.Sequential(
      nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
      nn.BatchNorm2d(outputs),
      nn.ReLU(),
    )

  def forward(self, x: Tensor) -> Tensor:
    x = self.stem(x)
    x = x + self.first(x)
    x = self.middle(x)
    x = x + self.second(x)
    return 0.2 * self.head(self.last(x))


MODELS = {"small_cnn": small_cnn, BanerjeeCNN: banerjee_cnn, "resnet9": TorchResNet9}


class Input:
  """The data set, and batches of it: augmented, normalised images (n, channels, height,
  width) and labels.
  """

  def __init__(
    self,
    recipe: Recipe,
    data: DeviceExamples,
    device: str,
    channels_last: bool,
  ):
    self.recipe = recipe
    self.format = torch.contiguous_format
    if channels_last:
      self.format = torch.channels_last

    def on_device(array) -> Tensor:
      return torch.from_numpy(np.array(array)).to(device)

    # PyTorch has channels first.
    images = on_device(data.inputs).permute(0, 3, 1, 2)
    self.images = images.contiguous()
    self.labels = on_device(data.targets).long()
    self.mean = on_device(data.mean).view(-1, 1, 1)
    self.std = on_device(data.std).view(-1, 1, 1)

  def order(self) -> tuple[Tensor, ...]:
    """The batches of one epoch, as indices of their examples."""
    size = self.recipe.batch_size
    order = torch.randperm(len(self.images), device=self.images.device)
    # The recipes leave out what fills no batch.
    whole = len(order) // size
    return order.split(size)[:whole]

  def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
    x = self.images[chosen].float()
    for word in self.recipe.augment.split():
      name, _, size = word.partition("=")
      augment = getattr(self, name)
      x = augment(x, int(size or 0))
    normalised = (x - self.mean) / self.std
    return normalised.contiguous(memory_format=self.format), self.labels[chosen]

  def flip(self, x: Tensor, size: int) -> Tensor:
    mirrored = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return torch.where(mirrored, x.flip(-1), x)

  def translate(self, x: Tensor, size: int, mode: str = "constant") -> Tensor:
    n, _, height, width = x.shape
    padded = F.pad(x, (size,) * 4, mode=mode)
    topmost, leftmost = torch.randint(0, 2 * size + 1, (2, n, 1), device=x.device)
    rows = topmost + torch.arange(height, device=x.device)
    columns = leftmost + torch.arange(width, device=x.device)
    image = torch.arange(n, device=x.device).view(-1, 1, 1)
    # Indexing so puts the channels last.
    cropped = padded[image, :, rows[:, :, None], columns[:, None, :]]
    return cropped.permute(0, 3, 1, 2)

  def reflect(self, x: Tensor, size: int) -> Tensor:
    return self.translate(x, size, "reflect")

  def cutout(self, x: Tensor, size: int) -> Tensor:
    n, _, height, width = x.shape

    def in_square(length: int) -> Tensor:
      """Which rows or columns a square of that size covers, for each image."""
      first = torch.randint(0, length - size + 1, (n, 1), device=x.device)
      place = torch.arange(length, device=x.device) - first
      return (place >= 0) & (place < size)

    rows = in_square(height)
    columns = in_square(width)
    inside = rows[:, None, :, None] & columns[:, None, None, :]
    return torch.where(inside, self.mean.floor(), x)


def single(recipe: Recipe, model: nn.Module, mode: str | None = None) -> Step:
  """A training step of one network: autograd and a fused optimizer; `mode` is that of
  `torch.compile`, if any.
  """
  device = next(model.parameters()).device.type
  if recipe.optimizer == "adam":
    betas = (recipe.momentum, 0.999)
    optimizer = torch.optim.Adam(
      model.parameters(),
      recipe.lr,
      betas,
      weight_decay=recipe.weight_decay,
      fused=True,
    )
  else:
    sgd = functools.partial(
      torch.optim.SGD,
      momentum=recipe.momentum,
      weight_decay=recipe.weight_decay,
      fused=True,
    )
    optimizer = sgd(model.parameters(), recipe.lr)
  forward = model
  if mode is not None:
    forward = torch.compile(model, mode=mode)
  in_bfloat16 = recipe.precision == "bfloat16"

  def step(x: Tensor, y: Tensor) -> None:
    with torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
      loss = F.cross_entropy(forward(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()

  return step


def stacked(recipe: Recipe, models: list[nn.Module]) -> tuple[dict[str, Tensor], Step]:
  """Parameters of many networks, stacked along a first lane axis, and a step of all
  under `torch.func.vmap`.

  Batch norm keeps no running statistics here, because vmap cannot write them in place.
  """
  for model in models:
    for module in model.modules():
      if isinstance(module, nn.BatchNorm2d):
        module.track_running_stats = False
        module.running_mean = None
        module.running_var = None
        module.num_batches_tracked = None
  stacked_params, _ = torch.func.stack_module_state(models)
  params = {name: p.detach() for name, p in stacked_params.items()}
  device = next(iter(params.values())).device.type
  first = {name: torch.zeros_like(p) for name, p in params.items()}
  second = {name: torch.zeros_like(p) for name, p in params.items()}
  taken = 0
  in_bfloat16 = recipe.precision == "bfloat16"

  def loss(params, x, y):
    with torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
      logits = torch.func.functional_call(models[0], params, (x,))
      return F.cross_entropy(logits, y)

  gradients = torch.func.vmap(torch.func.grad(loss), randomness="different")

  @torch.no_grad()
  def step(x: Tensor, y: Tensor) -> None:
    nonlocal taken
    taken += 1
    for name, gradient in gradients(params, x, y).items():
      p = params[name]
      g = gradient.add(p, alpha=recipe.weight_decay)
      if recipe.optimizer == "sgd":
        momentum = first[name].mul_(recipe.momentum).add_(g)
        p.add_(momentum, alpha=-recipe.lr)
      else:
        # Adam, with the names and the order of its paper's algorithm 1.
        first[name].lerp_(g, 1 - recipe.momentum)
        second[name].mul_(0.999).addcmul_(g, g, value=0.001)
        unbiased = math.sqrt(1 - 0.999**taken)
        scale = second[name].sqrt().div_(unbiased).add_(1e-8)
        rate = recipe.lr / (1 - recipe.momentum**taken)
        p.addcdiv_(first[name], scale, value=-rate)

  return params, step


def trainer(
  recipe: Recipe,
  data: DeviceExamples,
  *,
  lanes: int,
  threads: int,
  channels_last: bool = False,
  mode: str | None = None,
) -> Callable[[], None]:
  """A function that trains one network (`lanes=1`) or `lanes` stacked networks, with a
  batch each, for one epoch. They train on a GPU if there is one.
  """
  torch.set_num_threads(threads)
  torch.backends.cudnn.benchmark = True
  device = "cuda" if torch.cuda.is_available() else "cpu"
  build = functools.partial(
    MODELS[recipe.model],
    data.inputs.shape[1:],
    data.num_classes,
    recipe.width,
  )
  models = [build().to(device).train() for _ in range(lanes)]
  inputs = Input(recipe, data, device, channels_last)
  if lanes == 1:
    model = models[0].to(memory_format=inputs.format)
    step = single(recipe, model, mode)
  else:
    _, step = stacked(recipe, models)

  def epoch() -> None:
    # Each lane has an order of its own.
    orders = [inputs.order() for _ in range(lanes)]
    for examples in zip(*orders, strict=True):
      x, y = inputs.batch(torch.cat(examples))
      if lanes > 1:
        x = x.unflatten(0, (lanes, -1))
        y = y.unflatten(0, (lanes, -1))
      step(x, y)
    if device == "cuda":
      torch.cuda.synchronize()

  return epoch
