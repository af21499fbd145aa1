"""Every figure, as wide as a column of a paper and as wide as a page: its letters are
large enough, and none lies on another or beyond the edge.
"""

import inspect
import itertools
from collections.abc import Iterator

import matplotlib
import numpy as np
import pandas as pd
import pytest
from cases import mostly_slow
from matplotlib.text import Text

from vmapseeds.reports import plots

COLUMN, PAGE = 3.3, plots.WIDTH
POINTS = 8.0
LONG = "digits_cnn, weight_decay=0.0005, 16_epochs"
GROUPS = {LONG: 0.96 + 0.001 * np.arange(9), "1_epochs": 0.97 + 0.002 * np.arange(9)}
MEANS = [(0.96, 0.95, 0.97), (0.97, 0.965, 0.975)]
RNG = np.random.default_rng(0)


def draw_histogram(ax):
  sds = {"independent errors": 0.004, "binomial": 0.003}
  return plots.accuracy_histogram(RNG.binomial(797, 0.96, 99) / 797, ax, sds=sds)


def draw_learning_curves(ax):
  curves = {
    name: (np.arange(1, 4), values[:, None] + [0, 0.01, 0.02])
    for name, values in GROUPS.items()
  }
  return plots.learning_curves(curves, ax)


def draw_differences(ax):
  rows = [
    (f"{LONG}\nless 1_epochs", 0.01 * np.arange(9), (0.04, 0.01, 0.07), (0, 0.08))
  ]
  return plots.differences(rows, ax, margin=0.002)


def draw_response(ax):
  points = [
    (name, 0.9, 0.88, 0.91) for name in ("sgd_momentum", "adam_w", "lion", "muon")
  ]
  return plots.response_curve({LONG: points}, ax, name="update_rule")


def draw_calibration(ax):
  bins = np.linspace(0, 1, 10)
  return plots.calibration_plot(bins, bins**2, ax, low=bins / 2, high=bins)


def draw_step_curves(ax):
  names, steps = np.repeat([*GROUPS], 3), np.tile([10, 20, 30], 2)
  iqm = np.linspace(0.9, 0.95, 6)
  index = pd.MultiIndex.from_arrays([names, steps], names=["name", "step"])
  table = pd.DataFrame({"iqm": iqm, "low": iqm - 0.01, "high": iqm + 0.01}, index)
  return plots.step_curves(table, "training_step", ax, of=plots.ACCURACY)


DRAWN = {
  "accuracy_histogram": draw_histogram,
  "split_scatter": lambda ax: plots.split_scatter(
    *RNG.integers(380, 398, (2, 500)) / 398, ax, correlation=0.12
  ),
  "accuracies_side_by_side": lambda ax: plots.accuracies_side_by_side(GROUPS, ax),
  "learning_curves": draw_learning_curves,
  "step_curves": draw_step_curves,
  "differences": draw_differences,
  "paired_lines": lambda ax: plots.paired_lines(GROUPS, ax),
  "response_curve": draw_response,
  "performance_profiles": lambda ax: plots.performance_profiles(
    {name: values[:, None] for name, values in GROUPS.items()}, ax
  ),
  "critical_difference": lambda ax: plots.critical_difference(
    {LONG: 1.2, "1_epochs": 1.8, "a": 3.0}, 1.1, ax
  ),
  "means_side_by_side": lambda ax: plots.means_side_by_side([*GROUPS], MEANS, ax),
  "sds_side_by_side": lambda ax: plots.sds_side_by_side(
    [*GROUPS], {"test set": MEANS, "independent errors": MEANS, "real": MEANS}, ax
  ),
  "error_rate_histogram": lambda ax: plots.error_rate_histogram(RNG.random(9999), ax),
  "loss_histogram": lambda ax: plots.loss_histogram(RNG.exponential(size=999), ax),
  "calibration_plot": draw_calibration,
  "disagreement_against_error": lambda ax: plots.disagreement_against_error(
    *RNG.uniform(0.02, 0.05, (2, 99)), ax
  ),
}


def draw(name: str, width: float):
  figure, ax = plots.figure(width=width)
  DRAWN[name](ax)
  figure.draw_without_rendering()
  return figure


def shown_texts(figure) -> list[Text]:
  texts = figure.findobj(Text)
  return [text for text in texts if text.get_visible() and text.get_text().strip()]


def tick_labels(figure) -> Iterator[list]:
  """Boxes of the tick labels of each axis, in order."""
  for ax in figure.axes:
    for axis in (ax.xaxis, ax.yaxis):
      low, high = sorted(axis.get_view_interval())
      ticks = [t for t in axis.get_major_ticks() if low <= t.get_loc() <= high]
      labels = [label for t in ticks for label in (t.label1, t.label2)]
      shown = [x for x in labels if x.get_visible() and x.get_text()]
      yield [label.get_window_extent() for label in shown]


def test_these_are_all_figures():
  functions = inspect.getmembers(plots, inspect.isfunction)
  public = {name for name, function in functions if takes_axes(name, function)}
  assert public == {*DRAWN, "finish_axes"}


def takes_axes(name, function):
  here = function.__module__ == plots.__name__
  return here and name[0] != "_" and "ax" in inspect.signature(function).parameters


@pytest.mark.parametrize("width", mostly_slow([COLUMN, PAGE]))
@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_can_be_read(name, width):
  settings = dict(matplotlib.rcParams)
  figure = draw(name, width)
  assert dict(matplotlib.rcParams) == settings
  assert figure.get_figwidth() == width
  texts = shown_texts(figure)
  assert not [text for text in texts if "_" in text.get_text()]
  sizes = {text.get_fontsize() for text in texts}
  assert min(sizes) >= POINTS
  if width == COLUMN:
    assert sizes == {POINTS}

  edges = figure.bbox.padded(1)
  for boxes in tick_labels(figure):
    assert all(contains(edges, box) for box in boxes)
    for first, second in itertools.combinations(boxes, 2):
      assert not first.overlaps(second)
  for ax in figure.axes:
    parts = (ax.xaxis.label, ax.yaxis.label, ax.get_legend())
    boxes = [part.get_window_extent() for part in parts if part]
    # Labels without text have no width.
    assert all(contains(edges, box) for box in boxes if box.width and box.height)


def contains(edges, box) -> bool:
  return edges.contains(box.x0, box.y0) and edges.contains(box.x1, box.y1)


def test_a_size_that_was_set_is_kept():
  with matplotlib.rc_context({"font.size": 9, "font.family": "serif"}):
    figure = draw("accuracy_histogram", COLUMN)
    assert {text.get_fontsize() for text in shown_texts(figure)} == {9}
    families = {tuple(text.get_fontfamily()) for text in shown_texts(figure)}
  assert families == {("serif",)}


def test_a_narrow_figure_keeps_the_height_of_its_rows():
  rows = plots.figure(5.0, width=COLUMN)[0]
  assert tuple(rows.get_size_inches()) == (COLUMN, 5.0)
  other = plots.figure(width=PAGE)[0]
  assert tuple(other.get_size_inches()) == (PAGE, 4.0)
