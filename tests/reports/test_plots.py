"""The figures, tested on what is plotted: bar heights, points, curves and labels."""

import io
import sys

import numpy as np
import pytest

from vmapseeds.reports import plots
from vmapseeds.results.formatting import show


@pytest.fixture
def ax():
  return plots.figure()[1]


def bars(patch):
  """Edges and heights of a filled step histogram."""
  heights, edges, _ = patch.get_data()
  return edges, heights


def legend(ax):
  return [text.get_text() for text in ax.get_legend().get_texts()]


def test_no_pyplot():
  plots.figure()
  assert (
    "matplotlib.pyplot" not in sys.modules
    or not sys.modules["matplotlib.pyplot"].get_fignums()
  )


@pytest.mark.parametrize("examples", [100, 797, 10_000])
def test_bins_hold_equally_many_possible_accuracies(ax, examples):
  counts = np.random.default_rng(0).binomial(examples, 0.9, size=500)
  accuracies = (counts / examples).astype(np.float32)
  assert plots.accuracy_histogram(accuracies, ax, examples=examples) is ax
  edges, heights = bars(ax.patches[0])
  possible = 100 * np.arange(examples + 1) / examples
  per_bin = np.histogram(possible, edges)[0]
  inside = (edges[:-1] >= 0) & (edges[1:] <= 100)
  assert set(per_bin[inside]) == {round(np.diff(edges)[0] * examples / 100)}
  to_nearest = np.abs(edges[:, None] - possible).min(1)
  np.testing.assert_allclose(to_nearest[edges <= 100], 50 / examples, rtol=1e-6)
  expected = np.histogram(100 * counts / examples, edges)[0] / 500 / np.diff(edges)
  np.testing.assert_allclose(heights, expected, rtol=1e-9)
  assert (heights * np.diff(edges)).sum() == pytest.approx(1)
  assert 5 < len(heights) <= 61


def test_accuracy_curves_are_normal_densities_in_percent(ax):
  accuracies = np.array([0.90, 0.92, 0.93, 0.95])
  plots.accuracy_histogram(
    accuracies,
    ax,
    sds={
      "independent": 0.01,
      "binomial": np.float64(0.03),
      "normal": accuracies.std(ddof=1),
    },
    color="k",
  )
  for line, sd in zip(ax.lines, (1.0, 3.0, 100 * accuracies.std(ddof=1)), strict=True):
    x, y = line.get_data()
    np.testing.assert_allclose(
      y, np.exp(-(((x - 92.5) / sd) ** 2) / 2) / sd / np.sqrt(2 * np.pi), rtol=1e-9
    )
    assert np.trapezoid(y, x) == pytest.approx(1, abs=1e-3)
  labels = [
    "independent: sd 1.00 %",
    "binomial: sd 3.00 %",
    "normal: sd 2.08 %",
    "4 runs: sd 2.08 %",
  ]
  assert sorted(legend(ax)) == sorted(labels)
  assert ax.get_xlabel() == "test accuracy (%)"
  assert ax.get_ylabel() == "density (per percentage point)"


@pytest.mark.parametrize("sd", [None, np.nan, 0.0])
def test_no_curve_without_a_standard_deviation(ax, sd):
  plots.accuracy_histogram(
    [0.5, 0.75], ax, examples=4, sds={"independent": sd, "binomial": sd}
  )
  assert not ax.lines


@pytest.mark.parametrize("accuracies", [[0.75], [0.75, 0.75], [0.0, 1.0]])
def test_histogram_of_one_and_two_runs(ax, accuracies):
  plots.accuracy_histogram(accuracies, ax, examples=4)
  edges, heights = bars(ax.patches[0])
  assert (heights * np.diff(edges)).sum() == pytest.approx(1)
  runs = (
    "1 run"
    if len(accuracies) == 1
    else f"2 runs: sd {show(np.std(accuracies, ddof=1), None, 'fraction')}"
  )
  assert legend(ax) == [runs]


def test_bars_are_transparent(ax):
  plots.accuracy_histogram([0.5, 0.6], ax)
  (bars_of_runs,) = ax.patches
  assert bars_of_runs.get_facecolor()[3] == 0.35
  assert bars_of_runs.get_edgecolor()[3] == 1


def test_two_histograms_differ_in_color(ax):
  plots.accuracy_histogram([0.5, 0.6], ax)
  plots.accuracy_histogram([0.7, 0.6], ax)
  assert ax.patches[0].get_edgecolor() != ax.patches[1].get_edgecolor()


def test_split_scatter_counts_coinciding_runs(ax):
  first, second = np.array([0.5, 0.5, 0.75, 0.5]), np.array([0.25, 0.25, 0.5, 1.0])
  plots.split_scatter(first, second, ax, correlation=np.float64(0.3))
  drawn = ax.collections[0]
  found = {
    tuple(xy): c
    for xy, c in zip(drawn.get_offsets().tolist(), drawn.get_array(), strict=True)
  }
  assert found == {(50, 25): 2, (75, 50): 1, (50, 100): 1}
  assert legend(ax) == ["4 runs: r = 0.300, r² = 0.090"]
  assert ax.lines[0].get_xdata()[0] == pytest.approx(56.25)
  assert ax.lines[1].get_ydata()[0] == pytest.approx(50)
  assert ax.figure.axes[1].get_ylabel() == "runs at a point"


def test_split_scatter_of_one_run(ax):
  plots.split_scatter([0.5], [0.25], ax, correlation=np.nan)
  assert legend(ax) == ["1 run"]
  assert len(ax.figure.axes) == 1


def test_split_scatter_of_many_runs_counts_cells(ax):
  first, second = np.random.default_rng(3).binomial(5000, 0.8, (2, 3000)) / 5000
  plots.split_scatter(first, second, ax)
  cells = ax.collections[0]
  corners = cells.get_coordinates()
  x, y = corners[0, :, 0], corners[:, 0, 1]
  assert set(np.histogram(np.arange(5001) / 50, x)[0]) == {round(np.diff(x)[0] * 50)}
  expected = np.histogram2d(100 * first, 100 * second, (x, y))[0].T
  np.testing.assert_array_equal(
    np.ma.filled(cells.get_array(), 0).reshape(expected.shape), expected
  )
  assert expected.sum() == 3000
  assert legend(ax) == ["3,000 runs"]
  assert ax.figure.axes[1].get_ylabel() == "runs in a cell"


def test_histograms_of_pairs_share_bins(ax):
  rng = np.random.default_rng(1)
  groups = {
    "poked": rng.binomial(200, 0.1, 50) / 200,
    "distinct": rng.binomial(200, 0.3, 400) / 200,
  }
  edges = plots.bin_edges([*groups.values()], 200)
  for name, values in groups.items():
    plots.accuracy_histogram(values, ax, edges=edges, label=name)
  (edges_a, heights_a), (edges_b, heights_b) = map(bars, ax.patches)
  np.testing.assert_array_equal(edges_a, edges_b)
  np.testing.assert_allclose(
    heights_a, np.histogram(100 * groups["poked"], edges_a, density=True)[0]
  )
  np.testing.assert_allclose(
    heights_b, np.histogram(100 * groups["distinct"], edges_a, density=True)[0]
  )
  assert legend(ax) == [*groups]


def test_means_are_drawn_with_what_is_known_of_their_intervals(ax):
  means = [(0.9, 0.89, 0.92), (0.8, None, None), (None, None, None)]
  plots.means_side_by_side(["a", "b", "c"], means, ax)
  (drawn,) = ax.containers
  points, _, (bars,) = drawn
  np.testing.assert_allclose(points.get_xdata(), [90, 80, np.nan])
  low, high = np.array(bars.get_segments()[0])[:, 0]
  np.testing.assert_allclose([low, high], [89, 92])
  np.testing.assert_allclose(np.array(bars.get_segments()[1])[:, 0], [80, 80])
  assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b", "c"]


def test_error_rates_fall_into_the_bin_they_start(ax):
  rates = np.array([0, 0, 1 / 20, 3 / 20, 0.6000000000000001, 0.7, 0.95, 1.0])
  plots.error_rate_histogram(rates, ax)
  heights = bars(ax.patches[0])[1]
  expected = np.bincount(np.minimum(np.rint(rates * 20), 19).astype(int), minlength=20)
  assert heights.tolist() == expected.tolist()
  assert legend(ax) == ["8 examples: 2 never wrong, 1 always"]
  assert ax.get_yscale() == "log"


def test_calibration_curve_leaves_out_empty_bins(ax):
  confidence, accuracy = np.array([0.1, np.nan, 0.9]), np.array([0.2, np.nan, 0.8])
  low, high = np.array([0.1, np.nan, 0.7]), np.array([0.3, np.nan, 0.9])
  plots.calibration_plot(confidence, accuracy, ax, low=low, high=high)
  plots.calibration_plot([0.5], [0.6], ax, label="other")
  plots.calibration_plot([0.5], [0.4], ax, label="third")
  identity, curve, other, third = ax.lines
  np.testing.assert_allclose(identity.get_xydata(), [[0, 0], [100, 100]])
  np.testing.assert_allclose(curve.get_xydata(), [[10, 20], [90, 80]])
  np.testing.assert_allclose(other.get_xydata(), [[50, 60]])
  assert len({line.get_color() for line in (curve, other, third)}) == 3
  (band,) = ax.collections
  for corner in ([10, 10], [10, 30], [90, 70], [90, 90]):
    assert np.isclose(band.get_paths()[0].vertices, corner).all(1).any()
  assert legend(ax) == ["perfect calibration", "votes", "other", "third"]


def test_disagreement_against_error(ax):
  plots.disagreement_against_error([0.1, 0.2], [0.15, 0.1], ax)
  np.testing.assert_allclose(ax.collections[0].get_offsets(), [[10, 15], [20, 10]])
  (line,) = ax.lines
  assert line.get_slope() == 1
  assert line.get_xy1()[0] == line.get_xy1()[1]
  assert legend(ax) == ["2 pairs of runs", "disagreement = error"]


def test_everything_can_be_saved(tmp_path):
  rng = np.random.default_rng(2)
  for i, draw in enumerate(
    (
      lambda ax: plots.accuracy_histogram(rng.random(9), ax, sds={"independent": 0.1}),
      lambda ax: plots.split_scatter(
        rng.integers(0, 3, 9) / 4, rng.integers(0, 3, 9) / 4, ax
      ),
      lambda ax: plots.error_rate_histogram([0.0], ax),
      lambda ax: plots.calibration_plot(
        [np.nan], [np.nan], ax, low=np.array([np.nan]), high=np.array([np.nan])
      ),
      lambda ax: plots.disagreement_against_error([], [], ax),
    )
  ):
    figure, ax = plots.figure()
    draw(ax)
    figure.savefig(tmp_path / f"{i}.png")
    assert (tmp_path / f"{i}.png").stat().st_size > 1000


def test_dollars_in_names_are_no_formula(ax):
  name = r"a$\no_command$"
  plots.accuracies_side_by_side({name: [0.5, 0.6]}, ax)
  ax.figure.savefig(io.BytesIO())  # a formula that there is not would raise
  assert ax.get_yticklabels()[0].get_text().startswith(name.replace("_", " "))

  _, lines = plots.figure()
  plots.paired_lines({name: [0.5, 0.6], "b": [0.4, 0.6]}, lines)
  plots.performance_profiles({name: np.array([[0.1, 0.2]])}, lines)
  lines.figure.savefig(io.BytesIO())


def test_accuracies_side_by_side(ax):
  groups = {"lr=0.1": [0.5, 0.6, 0.7, 0.8, 1.0], "lr=0.2": [0.25]}
  plots.accuracies_side_by_side(groups, ax)
  for box, values, y in zip(ax.patches, groups.values(), (0, 1), strict=True):
    first, third = 100 * np.percentile(values, [25, 75])
    extents = box.get_path().get_extents()
    assert (extents.x0, extents.x1) == pytest.approx((first, third))
    assert (extents.y0 + extents.y1) / 2 == pytest.approx(y)
  drawn = {tuple(sorted(np.round(line.get_xdata(), 6))) for line in ax.lines}
  assert {(72.0,), (70.0, 70.0), (50.0, 60.0), (80.0, 100.0), (25.0,)} <= drawn
  assert [t.get_text() for t in ax.get_yticklabels()] == [
    "lr=0.1\n5 runs",
    "lr=0.2\n1 run",
  ]
  assert ax.get_ylim() == (1.5, -0.5), "the first on top"


def test_standard_deviations_side_by_side(ax):
  series = {
    "seen": [(0.01, 0.005, 0.02), (0.02, None, None)],
    "root": [(0.004, 0.0, 0.01), (None, 0.0, 0.007)],
  }
  plots.sds_side_by_side(["a", "b"], series, ax)
  seen, root = (container.lines for container in ax.containers)
  np.testing.assert_allclose(seen[0].get_xdata(), [1, 2])
  np.testing.assert_allclose(root[0].get_xdata(), [0.4, 0])
  assert (seen[0].get_ydata() < root[0].get_ydata()).all()
  np.testing.assert_allclose(seen[2][0].get_segments()[0][:, 0], [0.5, 2.0])
  np.testing.assert_allclose(root[2][0].get_segments()[1][:, 0], [0, 0.7])
  assert list(legend(ax)) == ["seen", "root"]


def test_an_interval_without_width_may_end_beside_its_middle(ax):
  """100 * 0.07 and the end that lies below it differ by rounding."""
  plots.sds_side_by_side(["a"], {"seen": [(0.07, 0.07 * (1 + 1e-16 * 2), 0.07)]}, ax)
  np.testing.assert_allclose(
    ax.containers[0].lines[2][0].get_segments()[0][:, 0], [7, 7]
  )


def test_response_curves_show_means_and_intervals_of_each_value():
  lines = {
    "a": [(1.0, 0.9, 0.88, 0.91), (0.01, 0.5, 0.45, 0.6), (0.1, 0.7, None, None)],
    "b": [(0.01, 0.4, 0.3, 0.5)],
  }
  ax = plots.response_curve(lines, plots.figure()[1], name="lr")
  assert (ax.get_xscale(), ax.get_xlabel()) == ("log", "lr")
  assert ax.get_ylabel() == "mean test accuracy (%)"
  a, b = ax.containers
  np.testing.assert_allclose(a.lines[0].get_ydata(), [50, 70, 90])
  np.testing.assert_allclose(a.lines[0].get_xdata(), [0.01, 0.1, 1], rtol=0.2)
  ends = [segment[:, 1] for segment in a.lines[2][0].get_segments()]
  np.testing.assert_allclose(ends, [[45, 60], [70, 70], [88, 91]])
  np.testing.assert_allclose(b.lines[0].get_ydata(), [40])
  named = {"": [("sgd", 0.5, 0.4, 0.6), ("adam", 0.6, 0.5, 0.7)]}
  ax = plots.response_curve(named, plots.figure()[1], name="optimizer")
  assert [tick.get_text() for tick in ax.get_xticklabels()] == ["sgd", "adam"]
  assert ax.get_xscale() == "linear"
  alone = {"": [(3.0, 0.5, 0.4, 0.6)]}
  assert plots.response_curve(alone, plots.figure()[1], name="width").containers
