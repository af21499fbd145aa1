"""Banerjee's network and its training, beside a plain script's; classes merged."""

import jax
import jax.numpy as jnp
import numpy as np
import plain

import vmapseeds as vs
from experiments.banerjee2024 import groups
from experiments.banerjee2024.network import CNN_CIFAR10_BINARY, BanerjeeCNN
from experiments.merging import merged
from vmapseeds.training import recipe_data


def test_it_has_71250_parameters():
  network = BanerjeeCNN(2)
  params = jax.eval_shape(
    lambda: network.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)), False)
  )
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 71_250


def test_its_runs_are_the_plain_script(tmp_path):
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (25, 8, 8, 3), np.uint8)
  labels = np.arange(25) % 2
  data = vs.Dataset(train=(images, labels), test=(images, labels))
  # Two epochs of two steps; the 25th example is dropped by each.
  recipe = CNN_CIFAR10_BINARY.replace(dataset=data, epochs=2, batch_size=12)
  vs.train(recipe, 3, tmp_path / "r", keep_params=True, progress=False)
  ours = vs.load_networks(tmp_path / "r").variables["params"]
  for seed in (0, 2):
    theirs = plain.train(
      plain.BanerjeeCNN(),
      images,
      labels,
      seed=seed,
      steps=4,
      epochs=2,
      batch=12,
      lr=1e-3,
      momentum=0.9,
      weight_decay=0,
      mean=images.mean((0, 1, 2)),
      std=images.std((0, 1, 2)),
      kind="adam",
      linear=False,
    )["params"]
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a[seed], b, atol=1e-4, rtol=1e-3),
      ours,
      theirs,
    )


def test_classes_are_merged_and_left_out_of_every_set():
  digits = vs.load_dataset("digits")
  classes = (1, 1, 0, -1, -1, 0, 0, 0, 2, 1)
  three = merged(digits, classes)
  assert three.num_classes == 3
  for before, after in (
    (digits.train, three.train),
    (digits.tests["test"], three.tests["test"]),
  ):
    kept = [i for i, label in enumerate(before.targets) if label not in (3, 4)]
    np.testing.assert_array_equal(after.inputs, before.inputs[kept])
    assert after.targets.tolist() == [classes[before.targets[i]] for i in kept]


def test_groups_of_classes_are_a_data_set_by_name():
  recipe = CNN_CIFAR10_BINARY.replace(dataset="experiments.banerjee2024.groups:digits")
  data = recipe_data.dataset_of(recipe)
  whole = vs.load_dataset("digits")
  first_group = np.isin(whole.train.targets, (0, 1, 8, 9)).sum()
  second_group = np.isin(whole.train.targets, (2, 5, 6, 7)).sum()
  assert np.bincount(data.train.targets).tolist() == [second_group, first_group]
  assert not hasattr(groups, "mnist")
