"""Runs that draw their training, validation and test examples of all that a data set has."""

import math

import jax
import numpy as np
import pytest

import vmapseeds as vs
from vmapseeds.data import load_dataset


@pytest.mark.slow
def test_validation_and_test_examples_are_out_of_the_bootstrap():
  n = 1797
  seeds = vs.Runs.independent(40).out_of_bootstrap()
  splits = [*zip(*seeds.split_examples(n).values(), strict=True)]
  drawn, held = np.zeros(n), np.zeros((2, n))
  for train, valid, test in splits:
    assert (len(train), len(valid), len(test)) == (1198, 299, 299)
    assert not {*train} & {*valid}
    assert not ({*train} | {*valid}) & {*test}
    drawn += np.bincount(train, minlength=n)
    held += [np.bincount(of, minlength=n) for of in (valid, test)]
  distinct = np.array([len({*train}) / n for train, _, _ in splits])
  assert distinct.mean() == pytest.approx(1 - math.exp(-1198 / n), abs=0.005)
  # Draws with replacement from what is left: as often as from as many urns.
  left = [n - len({*train}) for train, _, _ in splits]
  twice = [len(valid) - len({*valid}) for _, valid, _ in splits]
  expected = [299 - m * (1 - (1 - 1 / m) ** 299) for m in left]
  assert np.mean(twice) == pytest.approx(np.mean(expected), rel=0.05)
  assert drawn.var() == pytest.approx(40 * 1198 / n, rel=0.15)  # nearly Poisson
  for counts, of in ((drawn, 1198), (held[0], 299), (held[1], 299)):
    assert counts.mean() == pytest.approx(40 * of / n)
  few = vs.Runs.independent(2).out_of_bootstrap(2).split_examples(5)
  assert [of.shape for of in few.values()] == [(2, 2), (2, 1), (2, 1)]


# What is stored.


@pytest.mark.slow
def test_accuracies_are_of_the_examples_that_were_left_out(tmp_path):
  """Against networks that are kept and applied by hand."""
  recipe = vs.recipe("digits_cnn", model="linear", epochs=2, augment="", lr=0.01)
  seeds = vs.Runs.independent(2).out_of_bootstrap()
  results = vs.train(
    recipe,
    vs.Runs.sweep(lr=[0.001, 0.1], seeds=seeds),
    tmp_path / "r",
    keep_params=True,
    lane_width=4,
    lowering="sequential",
    progress=False,
  )
  parts = seeds.split_examples(1797)
  data = load_dataset("digits")
  inputs, labels = (
    np.concatenate([getattr(of, what) for of in (data.train, data.tests["test"])])
    for what in ("inputs", "targets")
  )
  for run, seed in enumerate(results.seed_data.values):
    own = inputs[parts["subset"][seed]]
    scaled = (inputs - own.mean((0, 1, 2))) / own.std((0, 1, 2))
    leaves = jax.tree.leaves(vs.load_networks(tmp_path / "r", run).variables["params"])
    bias, kernel = sorted(map(np.asarray, leaves), key=np.ndim)
    logits = scaled.reshape(1797, -1) @ kernel + bias
    right = logits.argmax(1) == labels
    for what in ("valid", "test"):
      examples = parts[f"{what}_examples"][seed]
      assert results[f"{what}_accuracy"].values[run] == pytest.approx(
        right[examples].mean(), abs=1.5 / len(examples)
      )
