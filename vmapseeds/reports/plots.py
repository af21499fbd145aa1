"""Draw figures of finished numbers; nothing is trained or estimated here.

Rates, accuracies and standard deviations come in as fractions and are drawn in percent;
where `of` says so, other numbers of runs are drawn in their own unit.
Each function draws on the given axes, labels them and returns them, so that figures can
be composed; `figure` makes axes without pyplot. `plt.rcParams` are kept as they are.
"""

import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Real
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from vmapseeds.results.formatting import (
  ACCURACY,
  Quantity,
  count_of,
  run_count,
  scale_and_suffix,
  show,
)
from vmapseeds.stats import performance_profile
from vmapseeds.training.runs import format_value

Scalar = float | int | np.number | Real[np.ndarray, ""]
OfRuns = Real[np.ndarray, " runs"] | Sequence[float]
OfPairs = Real[np.ndarray, " pairs"] | Sequence[float]
Point = tuple[Any, Any, Any, Any]  # of a line: value, mean, low, high
Interval = tuple[float | None, float | None, float | None]  # a number, low, high
OfBins = Real[np.ndarray, " bins"] | Sequence[float]

# Okabe & Ito's palette: people with any common colour blindness can tell its colours
# apart.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION = PALETTE
INK = "#3d3d3d"
DOTTED: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": ":"}
CURVES: list[dict[str, Any]] = [
  {"color": VERMILION, "linestyle": "-"},
  {"color": INK, "linestyle": "--"},
  {"color": BLUE, "linestyle": ":"},
]
# From few to many runs. The first colour is dark enough to be seen on white.
COUNT_COLORS = LinearSegmentedColormap.from_list("counts", ("#7db8e0", BLUE, "#08213d"))
MOST_BINS = 60
MOST_POINTS = 1000
WIDTH = 6.4  # inches, of a figure on a page
COLUMN_WIDTH = 4.5  # inches; narrower figures stand in a column of a paper
COLUMN_TEXT = 8.0  # points, of all text there
LETTER_WIDTH = 0.55  # of a letter, on average, in sizes of the text


def figure(height: float | None = None, *, width: float = WIDTH) -> tuple[Figure, Axes]:
  """Return a figure with one set of axes. Without pyplot it needs no closing and no
  display.

  Args:
    height: in inches; by default what suits the width.
    width: in inches, such as 3.3 for a column of a paper. Figures narrower than 4.5 inches
      have text of 8 points, or of `plt.rcParams["font.size"]` if that was changed.
  """
  if height is None:
    # Legends need as much room in a narrow figure.
    height = max(width / 1.6, 2.6)
  drawing = Figure(figsize=(width, height), layout="constrained")
  return drawing, drawing.add_subplot()


def _text_size(ax: Axes) -> float:
  """Return the size of labels, in points."""
  size = matplotlib.rcParams["font.size"]
  is_changed = size != matplotlib.rcParamsDefault["font.size"]
  if _in_column(ax) and not is_changed:
    return COLUMN_TEXT
  return size


def _in_column(ax: Axes) -> bool:
  return ax.figure.get_figure(root=True).get_figwidth() < COLUMN_WIDTH


def accuracy_histogram(
  accuracies: OfRuns,
  ax: Axes,
  *,
  examples: int | None = None,
  edges: Real[np.ndarray, " edges"] | None = None,
  label: str | None = None,
  color: str | None = None,
  sds: Mapping[str, Scalar | None] | None = None,
  of: Quantity = ACCURACY,
) -> Axes:
  """Draw the distribution of test accuracy over runs, or of another number of runs or of
  pairs of runs, beside normal curves of its mean.

  Jordan 2024, figures 1 and 3 (with the independent-errors curve), 13 (with the binomial
  one) and appendix D.2 (disagreement of pairs).

  Args:
    accuracies: (runs,), fractions or what else `of` says; at least one.
    ax: where to draw; a second call adds another histogram.
    examples: test examples n. Each bin then holds equally many of the possible values
      k/n; without it a bin may hold one possible value more than its neighbour, which
      looks like structure.
    edges: of the bins, such as several histograms share: see `bin_edges`.
    label: text in the legend; by default the number of runs and their standard
      deviation.
    color: of the bars; by default the next of the palette.
    sds: label -> standard deviation of a normal curve. None, NaN and 0 draw nothing.
    of: what the numbers are.
  """
  values = np.asarray(accuracies, np.float64)
  runs = len(values)
  if label is None:
    label = run_count(runs)
    # A single run has no standard deviation.
    if runs > 1:
      label += f": sd {show(values.std(ddof=1), None, of.unit)}"
  if edges is None:
    edges = bin_edges([values], examples, of)
  # Axes count the histograms that were drawn on them before.
  color = color or PALETTE[len(ax.patches) % len(PALETTE)]
  heights, _ = np.histogram(of.scale * values, of.scale * edges, density=True)
  # Matplotlib 3.10.0 draws the transparent bars of `hist` opaque.
  ax.stairs(
    heights,
    of.scale * edges,
    fill=True,
    facecolor=(color, 0.35),
    edgecolor=color,
    linewidth=1.2,
    label=label,
  )
  for (name, sd), style in zip((sds or {}).items(), CURVES, strict=False):
    # NaN, which is not above 0, draws nothing.
    if sd is not None and sd > 0:
      curve_label = f"{name}: sd {show(sd, None, of.unit)}"
      law = scipy.stats.norm(of.scale * values.mean(), of.scale * sd)
      # Beyond 4 standard deviations a normal curve cannot be told from the axis.
      x = law.mean() + law.std() * np.linspace(-4, 4, 201)
      ax.plot(x, law.pdf(x), linewidth=1.8, label=curve_label, **style)

  unit = unit_text(of).replace("%", "percentage point")
  return finish_axes(ax, of.label, f"density (per {unit or 'unit'})")


def split_scatter(
  first: OfRuns,
  second: OfRuns,
  ax: Axes,
  *,
  correlation: Scalar | None = None,
  of: Quantity = ACCURACY,
) -> Axes:
  """Draw each run's accuracy, or another number, on one half of the test examples
  against that on the other half.

  Runs that coincide are one point, coloured by how many they are: accuracies on few
  examples take few values, and neither jitter nor transparency would show how many runs
  lie on each. With more points than can be told apart, cells of equally many possible
  values are coloured instead. Jordan 2024, figure 2.

  Args:
    first: (runs,), accuracies on the examples of even index, fractions.
    second: (runs,), those on the odd ones.
    ax: where to draw.
    correlation: Pearson's r, for the legend.
    of: what the numbers are.
  """
  pairs = np.stack([first, second], axis=1).astype(np.float64)
  points, runs = np.unique(pairs, axis=0, return_counts=True)
  label = run_count(len(pairs))
  if correlation is not None and np.isfinite(correlation):
    label += f": r = {float(correlation):.3f}, r² = {float(correlation) ** 2:.3f}"
  if len(points) > MOST_POINTS:
    edges = [of.scale * bin_edges([half], _grid(half), of) for half in pairs.T]
    runs, marks = _draw_cells(ax, of.scale * pairs, edges, label)
    scale_label = "runs in a cell"
  else:
    marks = _draw_points(ax, of.scale * points, runs, label)
    scale_label = "runs at a point"
  # Without coinciding runs all points have one colour, which needs no scale.
  if np.nanmax(runs) > 1:
    _add_scale_of_counts(ax, marks, scale_label)

  mean_first, mean_second = of.scale * pairs.mean(0)
  ax.axvline(mean_first, **DOTTED, zorder=0)
  ax.axhline(mean_second, **DOTTED, zorder=0)
  even = of._replace(name=f"{of.name} on even examples").label
  odd = of._replace(name=f"{of.name} on odd examples").label
  return finish_axes(ax, even, odd, above=1)


def _draw_points(
  ax: Axes, points: np.ndarray, runs: np.ndarray, label: str
) -> PathCollection:
  """Draw a point for each row of `points`, coloured by how many runs lie on it."""
  # Points of many runs are drawn last, so that none of few runs hides them.
  few_first = np.argsort(runs, kind="stable")
  x, y = points[few_first].T
  return ax.scatter(
    x,
    y,
    s=26,
    c=runs[few_first],
    cmap=COUNT_COLORS,
    vmin=1,
    vmax=float(runs.max(initial=2)),
    linewidths=0,
    label=label,
  )


def _add_scale_of_counts(ax: Axes, marks: Any, label: str) -> None:
  bar = ax.figure.colorbar(marks, ax=ax, fraction=0.045, pad=0.02)
  bar.set_label(label)
  if _in_column(ax):
    bar.ax.yaxis.label.set_fontsize(_text_size(ax))
    bar.ax.tick_params(labelsize=_text_size(ax))
  bar.outline.set_visible(False)
  # Counts of runs are whole numbers.
  bar.locator = MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True)


def accuracies_side_by_side(
  groups: Mapping[str, OfRuns], ax: Axes, *, of: Quantity = ACCURACY
) -> Axes:
  """Draw box plots of the accuracies of groups of runs, or of another number of a run, the
  first on top: quartiles, mean, lowest and highest.

  Args:
    groups: name -> (runs,), fractions or what else `of` says; at least one each.
    ax: where to draw.
    of: what the numbers are.
  """
  samples = [of.scale * np.asarray(values, np.float64) for values in groups.values()]
  ax.boxplot(
    samples,
    positions=range(len(groups)),
    orientation="horizontal",
    whis=(0, 100),
    widths=0.5,
    showmeans=True,
    patch_artist=True,
    boxprops={"facecolor": (BLUE, 0.35)},
    medianprops={"color": INK},
    meanprops={"marker": "D", "markersize": 5, "markerfacecolor": VERMILION},
    manage_ticks=False,
  )
  names = [f"{name}\n{run_count(len(values))}" for name, values in groups.items()]
  return _rows(ax, names, of)


def learning_curves(
  groups: Mapping[str, tuple[Real[np.ndarray, " _"], Real[np.ndarray, "_ _"]]],
  ax: Axes,
  *,
  of: Quantity = ACCURACY,
) -> Axes:
  """Draw the mean over runs after each epoch, with the 95 % t-interval of the mean. For a
  single group also the middle 95 % of the runs.

  Args:
    groups: name -> the numbers of the epochs, and (runs, epochs), fractions or what else
      `of` says.
    ax: where to draw.
    of: what the numbers are.
  """
  for (name, (x, of_group)), color in zip(groups.items(), PALETTE, strict=False):
    values = of.scale * np.asarray(of_group, np.float64)
    runs = len(values)
    mean = values.mean(0)
    if runs > 1:
      quantile = scipy.stats.t.ppf(0.975, runs - 1)
      standard_error = values.std(0, ddof=1) / np.sqrt(runs)
      low = mean - quantile * standard_error
      high = mean + quantile * standard_error
      ax.fill_between(x, low, high, color=color, alpha=0.35, lw=0)
    # Bands of runs of several groups would hide each other.
    if len(groups) == 1 and runs > 1:
      low, high = np.quantile(values, [0.025, 0.975], axis=0)
      ax.fill_between(x, low, high, color=INK, alpha=0.12, lw=0)
    ax.plot(x, mean, color=color, marker="o", markersize=3, label=name or None)
  ax.xaxis.set_major_locator(MaxNLocator(integer=True))
  return finish_axes(ax, "epoch", of.label)


def step_curves(table: pd.DataFrame, step: str, ax: Axes, *, of: Quantity) -> Axes:
  """Draw interquartile means at each step, with their intervals (Agarwal 2021).

  Args:
    table: `iqm`, `low` and `high` by name and step.
    step: what the steps are called.
    ax: where to draw.
    of: what the numbers are.
  """
  for k, (name, curve) in enumerate(table.groupby(level="name", sort=False)):
    color = PALETTE[k % len(PALETTE)]
    x = curve.index.get_level_values("step")
    scaled = of.scale * curve
    ax.fill_between(x, scaled.low, scaled.high, color=color, alpha=0.25, lw=0)
    ax.plot(x, scaled.iqm, color=color, label=str(name))
  return finish_axes(ax, step, f"interquartile mean of {of.label}")


def differences(
  rows: Sequence[
    tuple[str, OfRuns | None, Sequence[Scalar], tuple[Scalar, Scalar] | None]
  ],
  ax: Axes,
  *,
  of: Quantity = ACCURACY,
  margin: float | None = None,
) -> Axes:
  """Draw differences of means with their intervals, a row each, the first on top, beside
  the line of no difference.

  Args:
    rows: name, the differences of paired runs (None if there are no pairs), the
      difference of means with the ends of its interval over runs, and the ends of that
      over runs and examples (None if unknown). Infinite ends are not drawn.
    ax: where to draw.
    of: what differs.
    margin: differences up to this do not matter; drawn as a band.
  """
  ax.axvline(0, **DOTTED)
  if margin:
    end = of.scale * margin
    ax.axvspan(-end, end, color=GREEN, alpha=0.12, linewidth=0, label="margin")
  for y, (_, dots, (middle, *ends), wide) in enumerate(rows):
    if dots is not None:
      _draw_dots(ax, dots, y, of.scale)
    # The thin line first, so that the thick one lies on it.
    if wide is not None:
      _draw_interval(ax, of.scale * np.array(wide, np.float64), y, 1.4)
    _draw_interval(ax, of.scale * np.array(ends, np.float64), y, 5.0)
    ax.plot(of.scale * float(middle), y, "o", color=VERMILION, markersize=6)

  names = [name for name, *_ in rows]
  title = f"difference of {of.name}"
  # A difference of percentages is not a percentage.
  unit = unit_text(of).replace("%", "percentage points")
  if unit:
    title += f" ({unit})"
  return _rows(ax, names, Quantity(title, "number"), above=1)


def _draw_dots(ax: Axes, values: OfRuns, y: float, scale: float) -> None:
  """Draw values below a row, larger where several coincide."""
  # Equal differences of accuracies are not equal in their last bits.
  points, runs = np.unique(np.round(values, 12), return_counts=True)
  size = 8 + 60 * runs / runs.max()
  places = np.full(len(points), y + 0.24)
  ax.scatter(scale * points, places, size, SKY, alpha=0.6, linewidths=0)


def _draw_interval(ax: Axes, ends: np.ndarray, y: float, width: float) -> None:
  # Too few runs have no interval: its ends are infinite.
  if np.isfinite(ends).all():
    ax.plot(ends, [y, y], color=BLUE, linewidth=width, solid_capstyle="butt")


def paired_lines(
  sides: Mapping[str, OfRuns], ax: Axes, *, of: Quantity = ACCURACY
) -> Axes:
  """Draw a line for each pair of runs from its number on one side to that on the other,
  and a thick one between the means.

  Args:
    sides: name -> (pairs,), fractions or what else `of` says, of two sides; those of a
      pair at the same place.
    ax: where to draw.
    of: what the numbers are.
  """
  values = np.array(list(sides.values()), np.float64)
  values *= of.scale
  ax.plot([0, 1], values, color=SKY, linewidth=0.8, alpha=0.6)
  ax.plot([0, 1], values.mean(1), "o-", color=VERMILION, linewidth=2.2, label="mean")
  _name_ticks(ax, [0, 1], list(sides))
  ax.set_xlim(-0.3, 1.3)
  return finish_axes(ax, "", of.label)


def response_curve(
  lines: Mapping[str, Sequence[Point]],
  ax: Axes,
  *,
  name: str,
  of: Quantity = ACCURACY,
) -> Axes:
  """Draw a number of runs against a value of theirs, with intervals.

  Args:
    lines: name of a line -> (value, mean, low, high) of each of its points; ends that are
      None are not drawn.
    ax: where to draw. Values are placed on a logarithmic axis if all are above 0 and the
      largest is at least 20 times the smallest, and side by side if they are names.
    name: of the values.
    of: what the numbers are.
  """
  all_points = itertools.chain(*lines.values())
  # Lines need not have all values, nor the same ones.
  values = list(dict.fromkeys(value for value, *_ in all_points))
  named = any(isinstance(x, str) for x in values)
  if named:
    places = {x: float(k) for k, x in enumerate(values)}
  else:
    places = {x: float(x) for x in values}
  ticks = np.sort(list(places.values()))
  logarithmic = not named and ticks[0] > 0 and ticks[-1] >= 20 * ticks[0]

  # On a logarithmic axis equal distances are equal ratios.
  axis = np.log(ticks) if logarithmic else ticks
  step = np.ptp(axis) / max(1, len(ticks) - 1)
  for k, (line, points) in enumerate(lines.items()):
    ordered = sorted(points, key=lambda point: places[point[0]])
    x = np.array([places[value] for value, *_ in ordered])
    # Side by side, so that intervals do not hide each other.
    shift = (k - (len(lines) - 1) / 2) * 0.1 / len(lines) * step
    if logarithmic:
      x = x * np.exp(shift)
    else:
      x = x + shift
    numbers = np.array([point[1:] for point in ordered], np.float64)
    mean, low, high = of.scale * numbers.T
    ax.errorbar(
      x,
      mean,
      yerr=_bars(mean, low, high),
      # Names have no order, so no line joins them.
      fmt="o" if named else "o-",
      color=PALETTE[k % len(PALETTE)],
      markersize=5,
      linewidth=1.2,
      capsize=3,
      label=line or None,
    )

  if logarithmic:
    ax.set_xscale("log")
  # Few values are named one by one; of many the axis chooses ticks.
  if named or len(ticks) <= 8:
    names = [format_value(value) for value in places]
    _name_ticks(ax, list(places.values()), names)
    ax.minorticks_off()
  return finish_axes(ax, name, f"mean {of.label}")


def _bars(middle: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
  """Return how far intervals reach down and up: 0 where an end is unknown."""
  # An end on the wrong side of the middle is a rounding error.
  return np.maximum(np.nan_to_num([middle - low, high - middle]), 0)


def performance_profiles(
  scores: Mapping[str, Real[np.ndarray, "runs tasks"]], ax: Axes
) -> Axes:
  """Draw the fraction of scores above each value (Agarwal 2021, figure 5).

  Args:
    scores: name -> (runs, tasks).
    ax: where to draw.
  """
  all_scores = np.concatenate([x.ravel() for x in scores.values()])
  thresholds = np.linspace(all_scores.min(), all_scores.max(), 400)
  for (name, x), color in zip(scores.items(), itertools.cycle(PALETTE), strict=False):
    above = 100 * performance_profile(x, thresholds)
    ax.step(thresholds, above, where="post", color=color, label=name)
  return finish_axes(ax, "score", "scores above it (%)")


def critical_difference(ranks: Mapping[str, float], distance: float, ax: Axes) -> Axes:
  """Draw mean ranks, the best on top, with bars that join those that differ by less than
  the critical difference, which is drawn above them (Demšar 2006, figure 1).

  Args:
    ranks: name -> mean rank.
    distance: by how much mean ranks must differ.
    ax: where to draw.
  """
  names = sorted(ranks, key=lambda name: ranks[name])
  ordered = np.array([ranks[name] for name in names])
  ax.plot(ordered, range(len(names)), "o", color=BLUE, markersize=6)
  last = -1
  for first, rank in enumerate(ordered):
    end = int(np.searchsorted(ordered, rank + distance, side="right")) - 1
    # A bar within a longer one says nothing.
    if end > first and end > last:
      middle = (first + end) / 2
      ax.plot(
        [rank, ordered[end]], [middle, middle], color=VERMILION, linewidth=3, alpha=0.7
      )
      last = end
  ax.plot([1, 1 + distance], [-0.7, -0.7], "|-", color=INK)
  words = f"critical difference {distance:.2f}"
  ax.annotate(words, (1, -0.8), fontsize=_text_size(ax))
  _rows(ax, names, Quantity("mean rank", "number"))
  ax.set_ylim(len(names) - 0.5, -1.4)
  return ax


def means_side_by_side(
  names: Sequence[str], means: Sequence[Interval], ax: Axes, *, of: Quantity = ACCURACY
) -> Axes:
  """Draw means of groups of runs with their intervals, a row each, the first on top.

  Args:
    names: names of the groups.
    means: (mean, low, high) of each group, fractions or what else `of` says. None is not
      drawn.
    ax: where to draw.
    of: of what they are the means.
  """
  _draw_intervals(ax, np.arange(len(names)), means, of, color=BLUE, fmt="o")
  return _rows(ax, names, of._replace(name=f"mean {of.name}"))


def sds_side_by_side(
  names: Sequence[str],
  series: Mapping[str, Sequence[Interval]],
  ax: Axes,
  *,
  of: Quantity = ACCURACY,
) -> Axes:
  """Draw standard deviations of groups of runs. Each group is a row, the first on top,
  with its series one above the other.

  Args:
    names: names of the groups.
    series: label -> (standard deviation, low, high) of each group, fractions; low and
      high are the ends of an interval. None is not drawn; a standard deviation of None
      with an interval is at 0, as where the variance is estimated below 0.
    ax: where to draw.
    of: of what they are the standard deviations.
  """
  for k, (label, rows) in enumerate(series.items()):
    y = np.arange(len(names)) + (k - (len(series) - 1) / 2) * 0.22
    color, marker = (BLUE, VERMILION, GREEN)[k % 3], "oDs"[k % 3]
    _draw_intervals(
      ax, y, rows, of, label=label, color=color, fmt=marker, clip_on=False
    )
  _rows(ax, names, of._replace(name=f"standard deviation of {of.name}"), above=3)
  ax.set_xlim(left=0)
  return ax


def _draw_intervals(
  ax: Axes, y: np.ndarray, rows: Sequence[Interval], of: Quantity, **style: Any
) -> None:
  """Draw a number with its interval at each height."""
  middle, low, high = of.scale * np.array(rows, np.float64).reshape(-1, 3).T
  # 0 where there is an interval, NaN (which is not drawn) where there is none.
  middle = np.where(np.isnan(middle), 0 * high, middle)
  bars = _bars(middle, low, high)
  ax.errorbar(middle, y, xerr=bars, markersize=6, capsize=3, **style)


def error_rate_histogram(
  example_error_rates: Real[np.ndarray, " examples"] | Sequence[float], ax: Axes
) -> Axes:
  """Draw a histogram of the test examples' error rates over the runs.

  Args:
    example_error_rates: (examples,), each example's fraction of runs that have it
      wrong.
    ax: where to draw; its counts get a logarithmic axis, as most examples are right in
      nearly all runs.
  """
  rates = np.asarray(example_error_rates, np.float64)
  # The tiny shift puts rates such as 3/20 into the bin that starts there, whatever
  # their rounding.
  edges = np.linspace(0, 1, 21)
  edges[:-1] -= 1e-9
  # All examples are in some bin: the last edge goes the other way.
  edges[-1] += 1e-9
  label = f"{(rates == 0).sum():,} never wrong, {(rates == 1).sum():,} always"
  ax.set_xlim(-1, 101)
  name = "runs that have the example wrong"
  return _of_examples(ax, rates, edges, label, Quantity(name))


def loss_histogram(
  losses: Real[np.ndarray, " examples"], ax: Axes, *, unit: str = "number"
) -> Axes:
  """Draw a histogram of the examples' mean losses over the runs, with a logarithmic axis
  of counts.
  """
  label = f"largest {show(losses.max(), None, unit)}"
  quantity = Quantity("mean loss of an example", unit)
  return _of_examples(ax, losses, even_edges(losses, 40), label, quantity)


def calibration_plot(
  confidence: OfBins,
  accuracy: OfBins,
  ax: Axes,
  *,
  low: Real[np.ndarray, " bins"] | None = None,
  high: Real[np.ndarray, " bins"] | None = None,
  label: str = "votes",
) -> Axes:
  """Draw how often a prediction is right against its confidence, beside the line of
  perfect calibration.

  Jiang 2022, figure 6. A second call adds another curve.

  Args:
    confidence: (bins,), the mean confidence in each bin, a fraction; NaN where a bin is
      empty.
    accuracy: (bins,), likewise the fraction that is right.
    ax: where to draw.
    low, high: (bins,), the ends of an interval of `accuracy`, drawn as a band.
    label: in the legend.
  """
  # The first line of the axes is that of perfect calibration.
  curves_so_far = max(0, len(ax.lines) - 1)
  color = PALETTE[curves_so_far % len(PALETTE)]
  if not ax.lines:
    ax.plot([0, 100], [0, 100], label="perfect calibration", **DOTTED)
  x, y = 100 * np.array([confidence, accuracy], np.float64)
  # No point, and no gap in the line, where a bin is empty.
  known = ~np.isnan(x)
  ax.plot(x[known], y[known], "o-", color=color, markersize=5, label=label)
  if low is not None and high is not None:
    band = 100 * np.stack([low, high])[:, known]
    ax.fill_between(x[known], *band, color=color, alpha=0.25, linewidth=0)
  ax.set(xlim=(-2, 102), ylim=(-2, 102))
  votes = "confidence: runs that vote for the class (%)"
  return finish_axes(ax, votes, "examples of which it is the class (%)")


def disagreement_against_error(error: OfPairs, disagreement: OfPairs, ax: Axes) -> Axes:
  """Draw disagreement of pairs of runs against their test error, beside the line where
  the two are equal.

  Jiang 2022, figures 1 to 4.

  Args:
    error: (pairs,), fractions.
    disagreement: (pairs,), fractions.
    ax: where to draw.
  """
  x, y = 100 * np.array([error, disagreement], np.float64)
  label = f"{count_of(len(x), 'pair')} of runs"
  ax.scatter(x, y, 14, BLUE, alpha=0.35, linewidths=0, label=label)
  # A line through no point has no place.
  if len(x):
    middle = (x.mean(), x.mean())
    ax.axline(middle, slope=1, label="disagreement = error", **DOTTED)
  return finish_axes(
    ax,
    "test error, mean of the two runs (%)",
    "test predictions that differ between them (%)",
  )


def bin_edges(
  groups: Sequence[Real[np.ndarray, " _"]],
  examples: int | None,
  of: Quantity = ACCURACY,
) -> Real[np.ndarray, " edges"]:
  """Return the edges of equal bins that hold all values of all groups, at most 60 bins.

  The width follows the rule of Freedman and Diaconis for the narrowest group. With n
  `examples`, edges lie halfway between possible values k/n, and each bin holds a whole
  number of these. Numbers that are no fractions are on a grid of whole numbers, or as
  fine as is needed.
  """
  is_fraction = of.unit == "fraction"
  grid: float = examples or 10_000
  base = 0.0
  if not is_fraction:
    all_values = np.concatenate(groups).astype(np.float64)
    grid = _grid_of_numbers(all_values, grid)
    # Differences are exact where numbers are large beside their spread.
    base = all_values.min()

  # From here on one is the distance between possible values.
  counts = [(np.asarray(values, np.float64) - base) * grid for values in groups]
  low = min(count.min() for count in counts)
  high = max(count.max() for count in counts)
  widths = [2 * scipy.stats.iqr(count) / len(count) ** (1 / 3) for count in counts]
  width = min((w for w in widths if w > 0), default=1.0)
  least_width = int(np.ceil((high - low + 1) / MOST_BINS))
  width = max(1, round(width), least_width)
  # Halfway between possible values, on which no edge may lie: a value's rounding would
  # decide which bin it is in.
  start = width * np.floor((np.rint(low) + 0.25) / width) - 0.5
  bins = int(np.floor((np.rint(high) - start) / width)) + 1
  edges = base + (start + width * np.arange(bins + 1)) / grid
  # Of numbers that hardly differ, neighbouring edges may be the same float.
  if not is_fraction and not (np.diff(edges) > 0).all():
    return even_edges(all_values, bins)
  return edges


def _grid_of_numbers(values: np.ndarray, most: float) -> float:
  """Return how many possible values there are in one unit, of numbers that are no
  fractions: 1 if they are whole numbers, or `most` in the range of all.
  """
  spread = np.ptp(values)
  is_whole = spread < most and (values == np.rint(values)).all()
  if is_whole or not spread:
    return 1
  return 10_000 / spread


def even_edges(values: Real[np.ndarray, " _"], bins: int) -> Real[np.ndarray, " edges"]:
  """Return the edges of equal bins that hold all values: so many, or as many as there
  are numbers between values that hardly differ.
  """
  low, high = float(values.min()), float(values.max())
  if low == high:
    half = max(0.5, 4 * np.spacing(abs(low)))
    return np.array([low - half, low + half])
  edges = np.unique(np.linspace(low, high, bins + 1))
  # Rounded edges are not all equally far apart, which matplotlib does not ask for.
  edges[0], edges[-1] = low, high
  return edges


def _draw_cells(
  ax: Axes, pairs: np.ndarray, edges: list[np.ndarray], label: str
) -> tuple[np.ndarray, Any]:
  """Colour cells by how many pairs lie in them; return these numbers, and the cells."""
  x, y = pairs.T
  counts, *_, cells = ax.hist2d(x, y, edges, cmin=1, cmap=COUNT_COLORS)
  # Cells have no mark of their own in a legend.
  ax.plot([], [], "s", color=BLUE, label=label)
  return counts, cells


def _grid(values: Real[np.ndarray, " runs"]) -> int:
  """Return the n for which values are multiples of 1/n, from the smallest gap between them."""
  gaps = np.diff(np.unique(values))
  # Smaller gaps are rounding errors between equal values.
  return round(1 / gaps[gaps > 1e-9].min(initial=1))


def unit_text(of: Quantity) -> str:
  """Return the unit of a quantity as it is shown, "%" or "nats"; empty if it has none."""
  return scale_and_suffix(of.unit)[1].strip()


def _of_examples(
  ax: Axes, values: np.ndarray, edges: np.ndarray, label: str, of: Quantity
) -> Axes:
  """Draw a histogram of a number of each example, with a logarithmic axis of counts."""
  counts, _ = np.histogram(of.scale * values, of.scale * edges)
  ax.stairs(
    counts,
    of.scale * edges,
    fill=True,
    facecolor=(BLUE, 0.45),
    edgecolor=BLUE,
    linewidth=0.8,
    label=f"{len(values):,} examples: {label}",
  )
  ax.set_yscale("log")
  ax.set_ylim(bottom=0.7)
  # Numbers are read, and drawn, faster than powers of ten.
  ax.yaxis.set_major_formatter("{x:,.0f}")
  ax.yaxis.set_minor_formatter(NullFormatter())
  return finish_axes(ax, of.label, "test examples")


def _rows(ax: Axes, names: Sequence[str], of: Quantity, above: int = 0) -> Axes:
  """Name the rows of axes, the first on top."""
  # The names get two fifths of the figure.
  width = ax.figure.get_figure(root=True).get_figwidth()
  labels = [_wrapped(name, ax, 0.4 * width) for name in names]
  # A dollar in the name of a folder begins no formula.
  ax.set_yticks(range(len(names)), labels, parse_math=False)
  ax.set_ylim(len(names) - 0.5, -0.5)
  return finish_axes(ax, _wrapped(of.label, ax, 0.5 * width), "", above)


def _name_ticks(ax: Axes, places: Sequence[float], names: Sequence[str]) -> None:
  """Name the ticks of the horizontal axis."""
  inches = _inches(ax)[0] / len(names)
  labels = [_wrapped(name, ax, inches) for name in names]
  ax.set_xticks(places, labels, parse_math=False)


def _inches(ax: Axes) -> tuple[float, float]:
  """Return about how wide and how high axes are."""
  box = ax.get_window_extent()
  return box.width / ax.figure.dpi, box.height / ax.figure.dpi


def _wrapped(text: str, ax: Axes, inches: float) -> str:
  """Return a name in lines of about so many inches."""
  letters = int(inches * 72 / (LETTER_WIDTH * _text_size(ax)))
  lines = []
  # No line breaks between a number or a name and its unit.
  text = re.sub(r" (?=%|\(%)", "\N{NO-BREAK SPACE}", _words(text))
  for line in text.split("\n"):
    lines += textwrap.wrap(line, max(letters, 6)) or [""]
  return "\n".join(lines)


def _words(name: str) -> str:
  """Return the name of an output or a folder as a figure shows it."""
  return name.replace("_", " ")


def finish_axes(ax: Axes, xlabel: str, ylabel: str, above: int = 0) -> Axes:
  """Add labels, grid and legend. The legend is inside the axes, or above them in
  `above` columns; in a figure for a column of a paper always above, in one column.
  """
  size = _text_size(ax)
  width, height = _inches(ax)
  place: dict[str, Any] = {"fontsize": "small"}
  if _in_column(ax):
    xlabel = _wrapped(xlabel, ax, width)
    ylabel = _wrapped(ylabel, ax, height)
    ax.xaxis.label.set_fontsize(size)
    ax.yaxis.label.set_fontsize(size)
    ax.tick_params(which="both", labelsize=size)
    place = {"fontsize": size}
    above = 1
  ax.set(xlabel=_words(xlabel), ylabel=_words(ylabel), axisbelow=True)
  ax.spines[["top", "right"]].set_visible(False)
  ax.grid(alpha=0.25, linewidth=0.7)
  # Where marks fill the axes, a legend inside them would hide some.
  if above:
    place |= {
      "loc": "lower left",
      "bbox_to_anchor": (0, 1),
      "borderaxespad": 0.2,
      "ncols": above,
    }
  # Matplotlib warns of a legend without entries.
  if ax.get_legend_handles_labels()[1]:
    legend = ax.legend(frameon=False, **place)
    for text in legend.get_texts():
      text.set_parse_math(False)
      label = _words(text.get_text())
      if _in_column(ax):
        # Beside its text a legend has marks, of about four letters.
        label = _wrapped(label, ax, width - 4 * size / 72)
      text.set_text(label)
  return ax
