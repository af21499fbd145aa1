"""Sharpness-aware steps in a recipe: the gradient of the loss at the worst point nearby
(Foret et al. 2021).
"""

import sys

import jax
import optax

import vmapseeds as vs


def sharpness_aware(model, params, batch, run):
  fixed = jax.lax.stop_gradient(params)
  gradient, _ = jax.grad(model.mean_loss, has_aux=True)(fixed, batch)
  scale = run["rho"] / optax.tree.norm(gradient)
  worst = jax.tree.map(lambda p, g: p + scale * g, params, gradient)
  return model.mean_loss(worst, batch)


recipe = vs.recipe(
  "digits_cnn",
  name="digits_sam",
  objective=sharpness_aware,
  values={"rho": 0.02},
  epochs=4,
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/sam"
  results = vs.train(recipe, vs.Runs.sweep(rho=[0, 0.02], seeds=16), out)
  print(results.accuracy.groupby("rho").mean())
  vs.compare(out, where={"rho": 0.02}, against={"rho": 0}).print()
  # Mean accuracies for each rho, and whether 0.02 is better than plain SGD.
