"""Subsets and bootstrap samples."""

import jax
import numpy as np
import pytest

from vmapseeds.data import splits


def keys(n, seed=0):
  return jax.random.split(jax.random.key(seed), n)


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 1), (2, 2), (7, 3), (100, 100)])
def test_subset_draws_without_replacement(n, size):
  drawn = np.asarray(splits.subset(jax.random.key(0), n, size))
  assert drawn.dtype == np.int32
  assert drawn.shape == (size,)
  assert len(set(drawn.tolist())) == size
  assert set(drawn.tolist()) <= set(range(n))


def test_every_subset_is_equally_likely():
  drawn = jax.vmap(lambda key: splits.subset(key, 4, 2))(keys(6000))
  _, counts = np.unique(np.sort(drawn, axis=1), axis=0, return_counts=True)
  # Each of the 6 pairs: 1,000 expected, standard deviation 29.
  assert len(counts) == 6
  assert abs(counts - 1000).max() < 5 * 29


@pytest.mark.parametrize(("n", "size"), [(1, None), (1, 3), (2, 1), (7, None), (7, 20)])
def test_bootstrap_draws_with_replacement(n, size):
  drawn = np.asarray(splits.draw_bootstrap_sample(jax.random.key(0), n, size))
  assert drawn.dtype == np.int32
  assert drawn.shape == (n if size is None else size,)
  assert set(drawn.tolist()) <= set(range(n))


def test_bootstrap_is_uniform_and_leaves_out_a_share_of_one_over_e():
  n = 200
  drawn = np.asarray(
    jax.vmap(lambda key: splits.draw_bootstrap_sample(key, n))(keys(500))
  )
  counts = np.bincount(drawn.ravel(), minlength=n)
  assert abs(counts - 500).max() < 5 * np.sqrt(500)
  seen = np.mean([len(np.unique(row)) / n for row in drawn])
  assert seen == pytest.approx(1 - (1 - 1 / n) ** n, abs=0.005)


@pytest.mark.parametrize(
  "draw",
  [lambda k: splits.subset(k, 9, 4), lambda k: splits.draw_bootstrap_sample(k, 9)],
)
def test_under_jit_and_vmap_each_key_draws_what_it_draws_alone(draw):
  many = jax.jit(jax.vmap(draw))(keys(3))
  for key, row in zip(keys(3), many, strict=True):
    np.testing.assert_array_equal(row, draw(key))
  assert not np.array_equal(many[0], many[1])
