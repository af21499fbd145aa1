"""Label noise in a recipe: each run has some wrong training labels, and its own seed
says which.
"""

import sys

import jax
import jax.numpy as jnp

import vmapseeds as vs


def noisy_labels(key, labels, examples, share, num_classes=10):
  """Labels of which a share is wrong: the same ones whenever an example is seen."""

  def of_one(label, example):
    wrong, shift = jax.random.split(jax.random.fold_in(key, example))
    other = (label + jax.random.randint(shift, (), 1, num_classes)) % num_classes
    return jnp.where(jax.random.bernoulli(wrong, share), other, label)

  return jax.vmap(of_one)(labels, examples)


def label_noise(model, params, batch, run):
  key, share = run.key("label_noise"), run["share"]
  noisy = noisy_labels(key, batch.targets, batch.examples, share)
  return model.mean_loss(params, batch._replace(targets=noisy))


recipe = vs.recipe(
  "digits_cnn",
  name="digits_label_noise",
  objective=label_noise,
  sources=("label_noise",),
  values={"share": 0.2},
  epochs=4,
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/label_noise"
  # Only which labels are wrong differs between the runs of a share.
  table = vs.Runs.vary("label_noise", 32)
  results = vs.train(recipe, vs.Runs.sweep(share=[0.1, 0.4], seeds=table), out)
  for share, group in results.accuracy.groupby("share"):
    print(
      f"share {share}: {100 * group.mean():.2f} %, sd {100 * group.std(ddof=1):.2f} %"
    )
  # Two lines: more wrong labels make accuracy lower, and more variable.
