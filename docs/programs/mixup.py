"""Mixup in a recipe: each step trains on a mixture of its batch and a shuffled copy."""

import sys

import jax

import vmapseeds as vs


def mixup(model, params, batch, run):
  key = jax.random.fold_in(run.key("mixup"), batch.step)
  beta, shuffle = jax.random.split(key)
  share = jax.random.beta(beta, run["alpha"], run["alpha"])
  other = jax.random.permutation(shuffle, len(batch.inputs))
  mixed = share * batch.inputs + (1 - share) * batch.inputs[other]
  outputs, updates = model.apply(params, mixed)
  losses = share * model.loss(outputs, batch.targets)
  losses += (1 - share) * model.loss(outputs, batch.targets[other])
  return losses.mean(), updates


recipe = vs.recipe(
  "digits_cnn",
  name="digits_mixup",
  objective=mixup,
  sources=("mixup",),
  values={"alpha": 0.4},
  epochs=4,
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/mixup"
  # The mixtures alone differ between these runs.
  results = vs.train(recipe, vs.Runs.vary("mixup", 32), out)
  accuracy = 100 * results.accuracy
  print(f"accuracy {accuracy.mean():.2f} %, sd {accuracy.std(ddof=1):.2f} %")
  # One line: how much the choice of mixtures alone moves accuracy.
