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

from vmapseeds.training.inputs import DeviceExamples
from vmapseeds.training.recipes import Recipe

Step = Callable[[Tensor, Tensor], None]


def scaled(channels: int, width: float) -> int:
  return max(1, round(channels * width))


def convolved(shape: tuple[int, ...], a: int, b: int) -> list[nn.Module]:
  """Two convolutions, each pooled, and the vectors of b · pixels numbers they end in."""
  layers: list[nn.Module] = []
  for inputs, outputs in ((shape[-1], a), (a, b)):
    layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
  return [*layers, nn.Flatten()]


def small_cnn(shape: tuple[int, ...], num_classes: int, width: float) -> nn.Module:
  a = scaled(16, width)
  b = scaled(32, width)
  pixels = (shape[0] // 4) * (shape[1] // 4)
  return nn.Sequential(*convolved(shape, a, b), nn.Linear(b * pixels, num_classes))


def banerjee_cnn(shape: tuple[int, ...], num_classes: int, width: float) -> nn.Module:
  a = scaled(32, width)
  b = scaled(16, width)
  hidden = scaled(64, width)
  return nn.Sequential(
    *convolved(shape, a, b),
    nn.Linear(b * (shape[0] // 4) * (shape[1] // 4), hidden),
    nn.ReLU(),
    nn.Linear(hidden, num_classes),
  )


class TorchResNet9(nn.Module):
  """The network of Jordan 2024, appendix A.1."""

  def __init__(self, shape: tuple[int, ...], num_classes: int, width: float):
    super().__init__()
    a = scaled(64, width)
    b = scaled(128, width)
    c = scaled(256, width)
    self.stem = nn.Sequential(self.block(shape[-1], a), self.block(a, b, 5, 2, 2))
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


MODELS = {"small_cnn": small_cnn, "banerjee_cnn": banerjee_cnn, "resnet9": TorchResNet9}


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
    self.format = torch.channels_last if channels_last else torch.contiguous_format
    self.images = (
      torch.from_numpy(np.array(data.inputs))
      .permute(0, 3, 1, 2)
      .contiguous()
      .to(device)
    )
    self.labels = torch.from_numpy(np.array(data.targets)).long().to(device)
    self.mean = torch.from_numpy(np.array(data.mean)).view(-1, 1, 1).to(device)
    self.std = torch.from_numpy(np.array(data.std)).view(-1, 1, 1).to(device)

  def order(self) -> tuple[Tensor, ...]:
    """The batches of one epoch, as indices of their examples."""
    order = torch.randperm(len(self.images), device=self.images.device)
    return order.split(self.recipe.batch_size)[: len(order) // self.recipe.batch_size]

  def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
    x = self.images[chosen].float()
    for word in self.recipe.augment.split():
      name, _, size = word.partition("=")
      x = getattr(self, name)(x, int(size or 0))
    return ((x - self.mean) / self.std).contiguous(
      memory_format=self.format
    ), self.labels[chosen]

  def flip(self, x: Tensor, size: int) -> Tensor:
    return torch.where(
      torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5,
      x.flip(-1),
      x,
    )

  def translate(self, x: Tensor, size: int, mode: str = "constant") -> Tensor:
    n, _, height, width = x.shape
    padded = F.pad(x, (size,) * 4, mode=mode)
    topmost, leftmost = torch.randint(0, 2 * size + 1, (2, n, 1), device=x.device)
    rows = topmost + torch.arange(height, device=x.device)
    columns = leftmost + torch.arange(width, device=x.device)
    image = torch.arange(n, device=x.device).view(-1, 1, 1)
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

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
  forward = model if mode is None else torch.compile(model, mode=mode)

  def step(x: Tensor, y: Tensor) -> None:
    with torch.autocast(device, torch.bfloat16, enabled=recipe.precision == "bfloat16"):
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
        module.running_mean = module.running_var = module.num_batches_tracked = None
  params = {
    name: p.detach() for name, p in torch.func.stack_module_state(models)[0].items()
  }
  device = next(iter(params.values())).device.type
  first = {name: torch.zeros_like(p) for name, p in params.items()}
  second = {name: torch.zeros_like(p) for name, p in params.items()}
  taken = 0

  def loss(params, x, y):
    with torch.autocast(device, torch.bfloat16, enabled=recipe.precision == "bfloat16"):
      return F.cross_entropy(torch.func.functional_call(models[0], params, (x,)), y)

  gradients = torch.func.vmap(torch.func.grad(loss), randomness="different")

  @torch.no_grad()
  def step(x: Tensor, y: Tensor) -> None:
    nonlocal taken
    taken += 1
    for name, gradient in gradients(params, x, y).items():
      p = params[name]
      g = gradient.add(params[name], alpha=recipe.weight_decay)
      if recipe.optimizer == "sgd":
        p.add_(first[name].mul_(recipe.momentum).add_(g), alpha=-recipe.lr)
      else:
        first[name].lerp_(g, 1 - recipe.momentum)
        second[name].mul_(0.999).addcmul_(g, g, value=0.001)
        scale = second[name].sqrt().div_(math.sqrt(1 - 0.999**taken)).add_(1e-8)
        p.addcdiv_(first[name], scale, value=-recipe.lr / (1 - recipe.momentum**taken))

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
    for examples in zip(*(inputs.order() for _ in range(lanes)), strict=True):
      x, y = inputs.batch(torch.cat(examples))
      if lanes > 1:
        x = x.unflatten(0, (lanes, -1))
        y = y.unflatten(0, (lanes, -1))
      step(x, y)
    if device == "cuda":
      torch.cuda.synchronize()

  return epoch
