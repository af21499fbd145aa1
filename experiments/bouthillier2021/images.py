"""A quarter of CIFAR-10, and a network so small that a laptop trains a thousand of them:
`experiments.bouthillier2021.images:cifar10_quarter` in a recipe's `dataset`.
"""

import functools

import flax.linen as nn

import vmapseeds as vs
from vmapseeds.data import load_dataset
from vmapseeds.models.layers import Classifier, Images, Logits, patches, scale_channels


class PatchCNN(Classifier):
  """Patches of 4×4 pixels as 16 channels, two 3×3 convolutions of 16 and 32 features,
  each pooled, and a linear layer.
  """

  @nn.compact
  def __call__(self, x: Images, train: bool) -> Logits:
    tiles = patches(x, 4).astype(self.dtype)
    x = nn.relu(nn.Dense(scale_channels(16, self.width), dtype=self.dtype)(tiles))
    return self.last(self.convolved(x, 16, 32), train)


PATCHES = vs.Recipe(
  name="patches_cifar10",
  dataset=f"{__name__}:cifar10_quarter",
  model=PatchCNN,
  width=0.5,
  epochs=2,
  batch_size=100,
  lr=0.05,
  momentum=0.9,
  weight_decay=5e-4,
  optimizer="nesterov",
  schedule="linear",
  augment="flip",
)


@functools.cache
def load_quarter() -> vs.Dataset:
  """Return the first quarter of CIFAR-10's training set, and of its test set."""
  whole = load_dataset("cifar10")

  def quarter(part):
    size = len(part) // 4
    return part.inputs[:size], part.targets[:size]

  return vs.Dataset(
    train=quarter(whole.train),
    test=quarter(whole.tests["test"]),
    name="a quarter of cifar10",
  )


def __getattr__(name: str) -> vs.Dataset:
  """Load the data set when a recipe asks for it."""
  if name != "cifar10_quarter":
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return load_quarter()
