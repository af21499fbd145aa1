"""The accuracy of airbench94 (arXiv 2404.00498) in PyTorch alone, after every second epoch.

    python -m experiments.benchmarks.torch_airbench --width 0.25 --seed 0

It is what `experiments.airbench` is held against on the same images: written by the
paper's description and by its published hyperparameters, with none of its code. Images
are read by tensorflow-datasets, from `TFDS_DATA_DIR`.
"""

import argparse
import time

import numpy as np
import tensorflow_datasets as tfds
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(1, 3, 1, 1)
BATCH = 1024
RATE, MOMENTUM, DECAY, BIAS_FACTOR = 11.5, 0.85, 0.0153, 64


def images_of(split: str) -> tuple[Tensor, Tensor]:
  examples = list(tfds.data_source("cifar10", split=split))
  arrays = np.stack([example["image"] for example in examples])
  labels = torch.tensor([int(example["label"]) for example in examples])
  # PyTorch has channels first.
  images = torch.from_numpy(arrays).permute(0, 3, 1, 2)
  scaled = images.float() / 255
  return (scaled - MEAN) / STD, labels


class Block(nn.Sequential):
  """Two convolutions with batch norm, the first of them pooled."""

  def __init__(self, inputs: int, outputs: int):
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
      conv = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
      nn.init.dirac_(conv.weight.data[:channels])
      # As published, batch norm has no scale of its own.
      norm = nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
      norm.weight.requires_grad = False
      is_first = not layers
      layers.append(conv)
      if is_first:
        layers.append(nn.MaxPool2d(2))
      layers.append(norm)
      layers.append(nn.GELU())
    super().__init__(*layers)


class Network(nn.Module):
  def __init__(self, width: float, images: Tensor):
    super().__init__()
    a = round(64 * width)
    b = round(256 * width)
    self.whitening = nn.Conv2d(3, 24, 2)
    self.whitening.weight.data = self.whitened(images)
    self.whitening.weight.requires_grad = False
    self.blocks = nn.Sequential(Block(24, a), Block(a, b), Block(b, b))
    self.head = nn.Linear(b, 10, bias=False)

  @staticmethod
  def whitened(images: Tensor) -> Tensor:
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)
    variances, vectors = torch.linalg.eigh(torch.cov(patches.T))
    scaled = vectors / (variances + 5e-4).sqrt()
    kernel = scaled.T.reshape(12, 3, 2, 2)
    # Both signs, because GELU hardly lets negative values through.
    return torch.cat([kernel, -kernel])

  def forward(self, x: Tensor) -> Tensor:
    whitened = F.gelu(self.whitening(x))
    features = self.blocks(whitened)
    pooled = F.max_pool2d(features, 3).flatten(1)
    return self.head(pooled) / 9

  def of_views(self, x: Tensor) -> Tensor:
    """Logits over an image, two translations of it, and their mirror images."""
    size = x.shape[-1]
    bordered = F.pad(x, (1,) * 4, "reflect")
    first = bordered[..., :size, :size]
    last = bordered[..., 2:, 2:]
    views = [(x, 0.5), (first, 0.25), (last, 0.25)]
    logits = torch.zeros(())
    for view, weight in views:
      both_sides = self(view) + self(view.flip(-1))
      logits = logits + weight * both_sides / 2
    return logits


def translated(images: Tensor, border: int = 2) -> Tensor:
  """Each image moved by up to `border` pixels, its border reflected."""
  count = len(images)
  size = images.shape[-1]
  bordered = F.pad(images, (border,) * 4, "reflect")
  down, right = torch.randint(2 * border + 1, (2, count))
  rows = (down[:, None] + torch.arange(size))[:, None, :, None]
  columns = (right[:, None] + torch.arange(size))[:, None, None, :]
  image = torch.arange(count)[:, None, None, None]
  channels = torch.arange(images.shape[1])[None, :, None, None]
  return bordered[image, channels, rows, columns]


def optimizer_of(net: Network) -> torch.optim.SGD:
  """Coefficients are decoupled, and losses are sums over a batch."""
  biases = [m.bias for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
  of_norms = {id(bias) for bias in biases}
  others = [p for p in net.parameters() if p.requires_grad and id(p) not in of_norms]
  # The published coefficients are of one example, at momentum's limit.
  reach = 1024 * (1 + 1 / (1 - MOMENTUM))
  rate = RATE / reach
  decay = DECAY * BATCH / reach
  groups = []
  for parameters, factor in ((biases, BIAS_FACTOR), (others, 1)):
    own_rate = factor * rate
    # SGD multiplies the decay by the rate: divided here, it is decoupled.
    groups.append(
      {"params": parameters, "lr": own_rate, "weight_decay": decay / own_rate}
    )
  return torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True)


@torch.no_grad()
def look_ahead(net: Network, slow: dict[str, Tensor], weight: float) -> None:
  """Average the parameters into `slow`, of this weight, and go on from there."""
  for name, parameter in net.named_parameters():
    slow[name].lerp_(parameter, 1 - weight)
    parameter.copy_(slow[name])


def train_network(
  net: Network,
  images: Tensor,
  labels: Tensor,
  epochs: int,
  after_epoch,
) -> None:
  optimizer = optimizer_of(net)
  in_epoch = len(images) // BATCH
  steps = epochs * in_epoch
  knots = [0, int(0.23 * steps), steps]
  schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer,
    lambda step: np.interp(step, knots, [0.2, 1, 0.07]),
  )
  slow = {name: p.detach().clone() for name, p in net.named_parameters()}
  mirrored = torch.rand(len(images)) < 0.5
  step = 0
  for epoch in range(epochs):
    net.train()
    # The bias of the whitening layer is trained in the first epochs alone.
    if epoch >= 0.3 * epochs:
      net.whitening.bias.requires_grad = False
      net.whitening.bias.grad = None
    order = torch.randperm(len(images))[: in_epoch * BATCH]
    for batch in order.split(BATCH):
      # An image is mirrored in every second epoch.
      is_odd = epoch % 2 == 1
      flips = mirrored[batch] ^ is_odd
      inputs = translated(images[batch])
      inputs = torch.where(flips[:, None, None, None], inputs.flip(-1), inputs)
      loss = F.cross_entropy(
        net(inputs),
        labels[batch],
        label_smoothing=0.2,
        reduction="sum",
      )
      optimizer.zero_grad()
      loss.backward()
      optimizer.step()
      schedule.step()
      step += 1
      if step % 5 == 0:
        look_ahead(net, slow, 0.95**5 * (step / steps) ** 3)
    if epoch == epochs - 1:
      look_ahead(net, slow, 1.0)
    after_epoch(epoch + 1)


@torch.no_grad()
def measure_accuracy(net: Network, images: Tensor, labels: Tensor) -> float:
  net.eval()
  right = []
  for x, y in zip(images.split(1000), labels.split(1000), strict=True):
    predictions = net.of_views(x).argmax(1)
    right.append((predictions == y).float())
  return torch.cat(right).mean().item()


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    "--width",
    type=float,
    default=1.0,
    help="of the network (default: 1)",
  )
  parser.add_argument("--epochs", type=int, default=10, help="to train (default: 10)")
  parser.add_argument("--seed", type=int, default=0, help="of PyTorch (default: 0)")
  args = parser.parse_args()
  torch.manual_seed(args.seed)
  images, labels = images_of("train")
  tests = images_of("test")
  net = Network(args.width, images[:5000])
  start = time.perf_counter()

  def report(epoch: int) -> None:
    if epoch % 2 == 0:
      seconds = time.perf_counter() - start
      accuracy = measure_accuracy(net, *tests)
      print(f"epoch {epoch}: {accuracy:.2%}, {seconds:.0f} s", flush=True)

  train_network(net, images, labels, args.epochs, report)


if __name__ == "__main__":
  main()
