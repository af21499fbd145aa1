"""Learning curves with their intervals, as plotted."""

import numpy as np
import pytest
import scipy.stats

import vmapseeds as vs
from vmapseeds.reports import plots


@pytest.mark.parametrize("runs", [2, 5])
def test_the_band_is_the_t_interval_of_the_mean(runs):
  values = np.random.default_rng(runs).uniform(0.5, 0.9, (runs, 3))
  ax = plots.learning_curves({"": (np.arange(1, 4), values)}, plots.figure()[1])
  (line,) = ax.lines
  np.testing.assert_allclose(line.get_ydata(), 100 * values.mean(0))
  corners = ax.collections[0].get_paths()[0].vertices
  for epoch in range(1, 4):
    heights = corners[corners[:, 0] == epoch, 1]
    shown = 100 * values[:, epoch - 1]
    low, high = scipy.stats.t.interval(
      0.95, runs - 1, shown.mean(), scipy.stats.sem(shown)
    )
    np.testing.assert_allclose((heights.min(), heights.max()), (low, high))


def test_one_run_has_no_band():
  ax = plots.learning_curves(
    {"": (np.arange(1, 4), np.ones((1, 3)))}, plots.figure()[1]
  )
  assert len(ax.lines) == 1
  assert not ax.collections


def test_groups_may_be_of_different_lengths():
  short = np.array([1, 2]), np.full((3, 2), 0.5)
  long = np.arange(1, 5), np.full((3, 4), 0.6)
  ax = plots.learning_curves({"short": short, "long": long}, plots.figure()[1])
  assert [line.get_xdata().tolist() for line in ax.lines] == [[1, 2], [1, 2, 3, 4]]


def test_a_report_of_recipes_of_different_lengths_has_their_curves(tmp_path):
  folders = []
  for epochs in (2, 3):
    recipe = vs.recipe("digits_cnn", model="linear", epochs=epochs, evaluate_every=1)
    folders.append(tmp_path / f"{epochs}_epochs")
    vs.train(recipe, 2, folders[-1], progress=False)
  drawing = vs.report(folders).figures["learning_curves"]
  lengths = [len(line.get_xdata()) for line in drawing.axes[0].lines]
  assert lengths == [2, 3]
