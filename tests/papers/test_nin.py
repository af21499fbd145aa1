"""Jiang's Network in Network, beside a plain script's."""

import jax
import jax.numpy as jnp
import numpy as np
import plain
import pytest

import vmapseeds as vs
from experiments.jiang2022.nin import NIN_CIFAR10, NiN


def test_it_computes_what_the_plain_network_does():
  images = jax.random.normal(jax.random.key(1), (5, 8, 8, 3))
  ours, theirs = NiN(10, width=1 / 32), plain.NiN(1 / 32)
  variables = ours.init(jax.random.key(0), images, False)
  for train in (False, True):
    mutable = ["batch_stats"] if train else False
    found, due = (
      network.apply(variables, images, train, mutable=mutable)
      for network in (ours, theirs)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, due)


@pytest.mark.parametrize("depth", [4, 10])
def test_depth_counts_convolutions(depth):
  network = NiN(3, width=1 / 32, depth=depth)
  params = jax.eval_shape(
    lambda: network.init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)), False)
  )["params"]
  paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(params)]
  assert sum(path.endswith("['kernel']") for path in paths) == depth


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_depths_that_it_cannot_have(depth):
  with pytest.raises(vs.UserError, match=f"depth is {depth}: nin has blocks of three"):
    NiN(3, depth=depth).init(jax.random.key(0), jnp.zeros((1, 8, 8, 1)), False)


def test_its_recipe_trains_by_its_name(tmp_path):
  recipe = vs.recipe(
    "experiments.jiang2022.nin:NIN_CIFAR10", dataset="digits", width=1 / 32, epochs=1
  )
  results = vs.train(recipe, 2, tmp_path / "r", progress=False)
  assert results.sizes["run"] == 2
  assert NIN_CIFAR10.weight_decay == recipe.weight_decay == 1e-3
