"""Adversarial training in a recipe: each step trains on inputs moved against the network
(Madry et al. 2018), as far as a swept radius allows.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import vmapseeds as vs

ATTACKS = 3  # steps of the attack


def adversarial(model, params, batch, run):
  fixed = jax.lax.stop_gradient(params)

  def loss_at(moved):
    return model.mean_loss(fixed, batch._replace(inputs=batch.inputs + moved))[0]

  def attack(_, moved):
    up = jnp.sign(jax.grad(loss_at)(moved))
    return jnp.clip(moved + run["radius"] / 2 * up, -run["radius"], run["radius"])

  moved = jax.lax.fori_loop(0, ATTACKS, attack, jnp.zeros_like(batch.inputs))
  return model.mean_loss(params, batch._replace(inputs=batch.inputs + moved))


digits = vs.load_dataset("digits")
test = digits.tests["test"]
images = test.inputs
noise = 0.08 * np.ptp(images) * np.random.default_rng(0).normal(size=images.shape)
noisy = (images + noise).clip(images.min(), images.max()).round().astype(images.dtype)

recipe = vs.recipe(
  "digits_cnn",
  name="adversarial",
  objective=adversarial,
  values={"radius": 0.2},  # in standard deviations of a pixel
  dataset=vs.Dataset(
    train=digits.train, tests={"test": test, "noisy": (noisy, test.targets)}
  ),
  test_sets=("test", "noisy"),
  lr=0.02,
  epochs=4,
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/adversarial"
  vs.train(recipe, vs.Runs.sweep(radius=[0.0, 0.2], seeds=32), out)
  vs.report(out).print()
  attacked, plain = {"radius": 0.2}, {"radius": 0.0}
  vs.compare(out, where=attacked, against=plain, test_set="noisy").print()
  # Accuracy with and without attacks on the test set and with noise added to it, and how
  # likely an adversarially trained run is the better one there.
