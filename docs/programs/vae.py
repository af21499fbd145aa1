"""A variational autoencoder as a recipe: its targets are the images themselves, and its
loss is the negative evidence lower bound.
"""

import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import vmapseeds as vs

PIXELS, LATENT = 64, 4


class VAE(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    mean, log_variance = jnp.split(nn.Dense(2 * LATENT)(nn.relu(nn.Dense(32)(x))), 2, 1)
    z = mean
    if train:  # evaluation takes the mean
      noise = jax.random.normal(self.make_rng("sample"), mean.shape)
      z += noise * jnp.exp(log_variance / 2)
    logits = nn.Dense(PIXELS)(nn.relu(nn.Dense(32)(z)))
    return jnp.concatenate([logits, mean, log_variance], 1)


def negative_bound(outputs, images):
  logits, mean, log_variance = jnp.split(outputs, [PIXELS, PIXELS + LATENT], 1)
  likelihood = -optax.sigmoid_binary_cross_entropy(logits, images).sum(1)
  divergence = (jnp.exp(log_variance) + mean**2 - 1 - log_variance).sum(1) / 2
  return divergence - likelihood


def reconstruction(outputs):
  return jax.nn.sigmoid(outputs[:, :PIXELS])


images = (load_digits().data / 16).astype(np.float32)
recipe = vs.Recipe(
  name="vae",
  dataset=vs.Dataset(
    train=(images[:1000], images[:1000]), test=(images[1000:], images[1000:])
  ),
  model=VAE,
  loss=negative_bound,
  predict=reconstruction,
  normalize=False,
  optimizer="adam",
  lr=3e-3,
  epochs=20,
  batch_size=50,
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/vae"
  results = vs.train(recipe, vs.Runs.sweep(lr=[1e-3, 3e-3], seeds=16), out)
  vs.report(out).print()
  vs.compare(out, where={"lr": 3e-3}, against={"lr": 1e-3}).print()
  print(results.losses.groupby("lr").mean(...))
  # The loss of an image and its variance by learning rate, and which of the two is better.
