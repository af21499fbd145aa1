"""Two variants of a small network on digits, for the command line:

    vmapseeds train variants:averaged --runs 10 --out results/averaged
    vmapseeds train variants:largest --runs 10 --out results/largest

docs/howto/improvement.md goes on from here to a decision.
"""

import flax.linen as nn

import vmapseeds as vs


class Network(nn.Module):
  """Two convolutions and a dense layer; between them the `largest` of 2 by 2 pixels, or
  their average.
  """

  num_classes: int
  largest: bool = False

  @nn.compact
  def __call__(self, images, train: bool = False):
    x = nn.relu(nn.Conv(8, (3, 3))(images))
    pool = nn.max_pool if self.largest else nn.avg_pool
    x = pool(x, (2, 2), (2, 2))
    x = nn.relu(nn.Conv(16, (3, 3))(x))
    return nn.Dense(self.num_classes)(x.reshape(len(x), -1))


averaged = vs.Recipe(
  name="averaged",
  dataset="digits",
  model=Network,
  augment="",
  epochs=6,
  batch_size=50,
  lr=0.05,
)
largest = averaged.replace(name="largest", model_args={"largest": True})
