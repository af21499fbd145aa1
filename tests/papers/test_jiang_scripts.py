"""The scripts of Jiang's figures, beside loops and SciPy."""

import itertools

import jax
import numpy as np
import pytest
import scipy.stats

from experiments import measures
from experiments.jiang2022 import fig01, fig06, fig11

SWEPT = {"weight_decay": [1e-3, 0.0, 1e-4], "lr": [0.1, 0.01]}


def predicted(runs: int, examples: int = 997) -> tuple[np.ndarray, np.ndarray]:
  """Return predictions of three classes, each right with its example's own chance."""
  rng = np.random.default_rng(0)
  labels = rng.integers(0, 3, examples)
  is_right = rng.random((runs, examples)) < rng.uniform(0.3, 1, examples)
  return np.where(is_right, labels, rng.integers(0, 3, (runs, examples))), labels


def test_a_scatter_plot_equals_loops_and_leaves_out_what_diverged():
  predictions, labels = predicted(6 * 6)
  predictions[5 * 6 + 2] = -1  # the third setting's SameData diverged
  numbers = fig01.measure(predictions, labels, SWEPT)
  rows = {row["quantity"]: row["value"] for row in numbers["rows"]}
  assert numbers["settings"]["lr"] == [0.1, 0.01] * 3
  for i, group in enumerate(fig01.PARTNERS, 1):
    error, apart = [], []
    for setting in (0, 2, 4):  # of rate 0.1
      if group == "SameData" and setting == 2:
        continue
      first, other = predictions[setting], predictions[6 * i + setting]
      error.append(np.mean(first != labels))
      apart.append(np.mean(first != other))
    ratio = np.sum(error) / np.sum(apart)
    assert rows[f"error ÷ disagreement at rate 0.1, {group}"] == pytest.approx(ratio)
    r = scipy.stats.pearsonr(apart, error).statistic
    assert rows[f"R² at rate 0.1, {group}"] == pytest.approx(r**2)


def test_partners_differ_in_what_their_group_says():
  runs = fig01.stars(100, 20, 2, {"lr": [0.1]})
  shape = 2, 1 + len(fig01.PARTNERS)
  for source in ("init", "order"):
    seeds = np.reshape(runs.seeds[source], shape)
    for i, varied in enumerate(fig01.PARTNERS.values(), 1):
      assert ((seeds[:, i] != seeds[:, 0]) == (source in varied)).all()


def test_a_group_equals_loops():
  predictions, labels = predicted(7)
  numbers = fig06.measure(dict.fromkeys(fig06.GROUPS, (predictions, labels, 3)))
  rows = {row["quantity"]: row["value"] for row in numbers["rows"]}
  pairs = [np.mean(a != b) for a, b in itertools.combinations(predictions, 2)]
  error = np.mean(predictions != labels)
  assert rows["disagreement, DiffInit"] == pytest.approx(100 * np.mean(pairs))
  assert rows["gap, DiffInit"] == pytest.approx(100 * abs(error - np.mean(pairs)))
  assert rows["CACE on one training set ÷ on several"] == pytest.approx(1)


def test_cace_of_a_calibrated_law_is_that_of_the_simulation_by_votes():
  fractions = np.random.default_rng(3).dirichlet([0.5, 0.3, 0.2], 500)
  mean, sd = fig06.cace_if_calibrated(fractions, 4, draws=60)
  expected = measures.finite_ensemble_calibration(
    fractions, 4, key=jax.random.key(0), replicates=60
  )
  assert mean == pytest.approx(
    expected.cace, abs=4 * expected.cace_sd * (2 / 60) ** 0.5
  )
  assert sd == pytest.approx(expected.cace_sd, rel=0.4)


def test_counts_of_a_beta_law_are_near_it_and_those_of_easy_and_hard_are_not():
  counts = np.random.default_rng(0).multinomial(
    5000, scipy.stats.betabinom.pmf(np.arange(21), 20, 0.4, 2.0)
  )
  fitted, distance = fig11.fit_beta(counts)
  assert distance < 0.02
  law = scipy.stats.betabinom.pmf(np.arange(21), 20, 0.4, 2.0)
  np.testing.assert_allclose(fitted, law, atol=0.02)
  hard = scipy.stats.binom.pmf(np.arange(21), 20, 0.9)
  two_peaks = np.rint(4000 * np.eye(21)[0] + 1000 * hard).astype(int)
  assert fig11.fit_beta(two_peaks)[1] > 0.03
