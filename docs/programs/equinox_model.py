"""An Equinox module in a recipe: it takes one image, channels first, and a key for its
dropout.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp

import vmapseeds as vs


class CNN(eqx.Module):
  layers: list
  dropout: eqx.nn.Dropout

  def __init__(self, num_classes, key):
    one, two = jax.random.split(key)
    self.layers = [
      eqx.nn.Conv2d(1, 8, 3, key=one),
      eqx.nn.MaxPool2d(2, 2),
      jax.nn.relu,
      jnp.ravel,
      eqx.nn.Linear(72, num_classes, key=two),
    ]
    self.dropout = eqx.nn.Dropout(0.1)

  def __call__(self, image, key=None):
    x = jnp.moveaxis(image, -1, 0)  # (8, 8, 1), as the data have it
    for layer in self.layers[:-1]:
      x = layer(x)
    return self.layers[-1](self.dropout(x, key=key))


recipe = vs.recipe("digits_cnn", name="equinox", model=CNN, augment="", epochs=4)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/equinox"
  # The seed of `init` is the key of the module, that of `dropout` the key of its calls.
  vs.train(recipe, vs.Runs.vary(["init", "dropout"], 32), out)
  vs.report(out).print()
  # Accuracy, and how much of its variance comes from initialisation and dropout.
