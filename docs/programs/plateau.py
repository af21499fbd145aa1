"""A learning rate that is reduced when the loss stops falling: optax's optimizers get the
loss if they need it.
"""

import sys

import optax
from optax import contrib

import vmapseeds as vs

STEPS = 31  # of an epoch: 1,000 examples in batches of 32


def reduced(run, steps):
  return optax.chain(
    optax.sgd(run["lr"], 0.9),
    contrib.reduce_on_plateau(factor=0.3, patience=1, accumulation_size=STEPS),
  )


recipe = vs.recipe(
  "digits_cnn",
  name="plateau",
  optimizer=reduced,
  schedule="constant",
  evaluate_every=4,
)

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/plateau"
  results = vs.train(recipe, vs.Runs.sweep(lr=[0.02, 0.05], seeds=32), out)
  vs.report(out).print()
  print(results.epoch_accuracy.groupby("lr").mean().round(3).values)
  # Accuracy and its variance by the learning rate that training begins with; mean
  # accuracy after 4, 8, 12 and 16 epochs.
