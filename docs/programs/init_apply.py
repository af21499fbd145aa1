"""A network of plain functions, `init` and `apply`, in a recipe. Transforms of Haiku are
such pairs.
"""

import sys

import jax
import jax.numpy as jnp

import vmapseeds as vs

WIDTHS = (64, 32, 10)


def init(key, images):
  keys = jax.random.split(key, len(WIDTHS) - 1)
  return [
    {"w": jax.random.normal(key, (n, m)) * jnp.sqrt(2 / n), "b": jnp.zeros(m)}
    for key, n, m in zip(keys, WIDTHS[:-1], WIDTHS[1:], strict=True)
  ]


def apply(params, images, train, key):
  x = images.reshape(len(images), -1)
  for layer in params[:-1]:
    x = jax.nn.relu(x @ layer["w"] + layer["b"])
  if train:  # the key is None in evaluation
    x = jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)
  return x @ params[-1]["w"] + params[-1]["b"]


recipe = vs.recipe("digits_cnn", name="plain", model=(init, apply), augment="")

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/plain"
  results = vs.train(recipe, 64, out, keep_params=True)
  vs.report(out).print()
  first = vs.load_networks(out, 0).variables["params"]  # in dictionaries by their paths
  print(first["0"]["w"].shape)
  # Accuracy and its variance, and (64, 32).
