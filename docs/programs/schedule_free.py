"""Schedule-free AdamW beside AdamW with a cosine schedule. It is evaluated at the average
of its parameters, which the optimizer's state has.
"""

import sys

import optax
from optax import contrib

import vmapseeds as vs


def free(run, steps):
  return contrib.schedule_free_adamw(run["lr"], warmup_steps=steps // 10)


def cosine(run, steps):
  return optax.adamw(optax.cosine_decay_schedule(run["lr"], steps))


recipes = {
  optimizer.__name__: vs.recipe(
    "digits_cnn",
    name=optimizer.__name__,
    optimizer=optimizer,
    schedule="constant",
    lr=1e-2,
    epochs=4,
  )
  for optimizer in (free, cosine)
}

if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/schedule_free"
  for name, recipe in recipes.items():
    vs.train(recipe, 64, f"{out}/{name}")
  vs.report([f"{out}/free", f"{out}/cosine"]).print()
  vs.compare(f"{out}/free", f"{out}/cosine").print()
  # Both side by side, and with which probability a run of one beats a run of the other.
