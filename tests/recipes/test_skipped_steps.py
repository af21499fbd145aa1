"""A step whose loss is not finite, which an optimizer skips."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import mostly_slow

import vmapseeds as vs
from vmapseeds.reports.summaries import summarize

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(12, 5)).astype(np.float32)
LABELS = np.arange(12) % 3
BROKEN = INPUTS.copy()
BROKEN[3] = 3e38  # ten times that is infinite, and the loss of its batch no number


class Head(nn.Module):
  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(10 * x)


def skipping(run, steps):
  return optax.apply_if_finite(optax.sgd(run["lr"]), 3)


@pytest.mark.parametrize(
  ("optimizer", "diverges"), mostly_slow([(skipping, False), ("sgd", True)])
)
def test_a_network_that_ends_sound_has_not_diverged(optimizer, diverges, tmp_path):
  recipe = vs.Recipe(
    name="skips",
    dataset=vs.Dataset(train=(BROKEN, LABELS), test=(INPUTS, LABELS), name="twelve"),
    model=Head,
    epochs=2,
    batch_size=4,
    lr=0.1,
    optimizer=optimizer,
    normalize=False,
  )
  results = vs.train(recipe, 2, tmp_path / "r", keep_params=True, progress=False)
  assert results.diverged.values.tolist() == [diverges] * 2
  skipped = results.nonfinite_steps.values
  if diverges:
    assert (skipped >= 2).all()  # the broken batch of each epoch, and all that follow
    return
  assert skipped.tolist() == [2, 2]
  warnings = "\n".join(summarize(results)["warnings"])
  assert "In 2 runs that ended finite, the loss of 2 steps was not" in warnings
  params = vs.load_networks(tmp_path / "r").variables["params"]
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(params))
  assert jnp.isfinite(results.accuracy.values).all()
