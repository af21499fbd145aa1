"""Subsets, bootstrap samples and out-of-bootstrap splits."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.bouthillier2021.splits import out_of_bootstrap
from vmapseeds.data import splits
from vmapseeds.mistakes import Mistake


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
  drawn = np.asarray(splits.bootstrap(jax.random.key(0), n, size))
  assert drawn.dtype == np.int32
  assert drawn.shape == (n if size is None else size,)
  assert set(drawn.tolist()) <= set(range(n))


def test_bootstrap_is_uniform_and_leaves_out_a_share_of_one_over_e():
  n = 200
  drawn = np.asarray(jax.vmap(lambda key: splits.bootstrap(key, n))(keys(500)))
  counts = np.bincount(drawn.ravel(), minlength=n)
  assert abs(counts - 500).max() < 5 * np.sqrt(500)
  seen = np.mean([len(np.unique(row)) / n for row in drawn])
  assert seen == pytest.approx(1 - (1 - 1 / n) ** n, abs=0.005)


@pytest.mark.parametrize(
  "draw", [lambda k: splits.subset(k, 9, 4), lambda k: splits.bootstrap(k, 9)]
)
def test_under_jit_and_vmap_each_key_draws_what_it_draws_alone(draw):
  many = jax.jit(jax.vmap(draw))(keys(3))
  for key, row in zip(keys(3), many, strict=True):
    np.testing.assert_array_equal(row, draw(key))
  assert not np.array_equal(many[0], many[1])


def test_out_of_bootstrap_by_a_slow_loop():
  labels = np.array([0, 1, 1, 0, 1, 0, 1, 1, 0, 0] * 4)
  drawn = out_of_bootstrap(
    labels, 3, train_per_class=10, valid_per_class=4, test_per_class=5
  )
  rng = np.random.default_rng(3)
  expected = {"train": [], "valid": [], "test": []}
  for label in (0, 1):
    left = [i for i in range(40) if labels[i] == label]
    for name, size in (("train", 10), ("valid", 4), ("test", 5)):
      chosen = [left[j] for j in rng.integers(0, len(left), size)]
      expected[name] += chosen
      left = [i for i in left if i not in chosen]
  for name, indices in expected.items():
    np.testing.assert_array_equal(getattr(drawn, name), indices)


@given(
  st.lists(st.integers(0, 3), min_size=1, max_size=60),
  st.integers(0, 2**40),
  st.integers(1, 12),
  st.integers(0, 4),
  st.integers(1, 4),
)
def test_out_of_bootstrap_sets_are_disjoint_and_balanced(
  labels, seed, train, valid, test
):
  labels = np.array(labels)
  try:
    drawn = out_of_bootstrap(labels, seed, train, valid, test)
  except Mistake:  # A class was too small; the message has its own test.
    return
  for indices, size in zip(drawn, (train, valid, test), strict=True):
    assert indices.dtype == np.int32
    assert {*np.unique(labels[indices], return_counts=True)[1]} <= {size}
    assert len(indices) == size * len(set(labels.tolist()))
  sets = [set(indices.tolist()) for indices in drawn]
  assert len(sets[0] | sets[1] | sets[2]) == sum(map(len, sets))


@pytest.mark.parametrize(
  ("labels", "sizes", "message"),
  [
    (
      [0, 0, 1],
      (9, 1, 1),
      "class 0 has 2 examples, and none is left to draw its valid set from: ask for fewer",
    ),
    ([], (1, 1, 1), "there are no labels to split: at least one example is needed"),
    ([0, 0], (0, 1, 1), "train_per_class is 0: give a whole number of at least 1"),
    ([0, 0], (1, -1, 1), "valid_per_class is -1: give a whole number of at least 0"),
    ([0, 0], (1, 1, 0), "test_per_class is 0: give a whole number of at least 1"),
  ],
)
def test_out_of_bootstrap_refuses(labels, sizes, message):
  with pytest.raises(Mistake, match=message):
    out_of_bootstrap(np.array(labels, int), 1, *sizes)


def test_out_of_bootstrap_refuses_a_negative_seed():
  with pytest.raises(
    Mistake, match="the seed is -1: give a whole number of at least 0"
  ):
    out_of_bootstrap(np.zeros(9, int), -1, 1, 1, 1)
