"""Functions that draw figures. They are given finished numbers; nothing is trained or
estimated here.

Rates, accuracies and standard deviations come in as fractions and are drawn in percent.
Each function draws on the given axes, labels them and returns them, so that figures can
be composed; `figure` makes axes without pyplot.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Real
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vmapseeds.reports.groups import run_count

Scalar = float | int | np.number | Real[np.ndarray, ""]
OfRuns = Real[np.ndarray, " runs"] | Sequence[float]
OfPairs = Real[np.ndarray, " pairs"] | Sequence[float]
OfBins = Real[np.ndarray, " bins"] | Sequence[float]

# Okabe & Ito's palette: people with any common colour blindness can tell its colours
# apart.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#E69F00",
  "#56B4E9",
)
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION)
INK = "#3d3d3d"
# From few to many runs. The first colour is dark enough to be seen on white.
COUNTS = LinearSegmentedColormap.from_list("counts", ("#7db8e0", BLUE, "#08213d"))
MOST_BINS = 60
MOST_POINTS = 1000
MOST_CURVES = 100


def figure(height: float = 4.0) -> tuple[Figure, Axes]:
  """A figure with one set of axes, its height in inches. Without pyplot it needs no
  closing and no display.
  """
  made = Figure(figsize=(6.4, height), layout="constrained")
  return made, made.add_subplot()


def accuracy_histogram(
  accuracies: OfRuns,
  ax: Axes,
  *,
  examples: int | None = None,
  label: str | None = None,
  color: str | None = None,
  independent_sd: Scalar | None = None,
  binomial_sd: Scalar | None = None,
  normal: bool = False,
) -> Axes:
  """The distribution of test accuracy over runs, beside what independent errors would
  give.

  Jordan 2024, figures 1 and 3 (with the independent-errors curve) and 13 (with the
  binomial one).

  Args:
    accuracies: (runs,), fractions; at least one.
    ax: where to draw; a second call adds another histogram.
    examples: test examples n. Each bin then holds equally many of the possible values
      k/n; without it a bin may hold one possible value more than its neighbour, which
      looks like structure.
    label: text in the legend; by default the number of runs and their standard
      deviation.
    color: of the bars; by default the next of the palette.
    independent_sd: the independent-errors prediction, a fraction, drawn as a normal
      curve around the mean. None, NaN and 0 draw nothing.
    binomial_sd: likewise the prediction for errors that are independent and equally
      likely on all examples.
    normal: whether to draw the normal curve of the accuracies' own mean and standard
      deviation.
  """
  values = np.asarray(accuracies, np.float64)
  color = color or _next_color(ax)
  _bars(ax, values, bin_edges([values], examples), color, label or _runs_and_sd(values))
  curves = (
    ("errors independent", independent_sd, VERMILION, "-"),
    ("binomial", binomial_sd, INK, "--"),
  )
  for name, sd, line_color, style in curves:
    if sd is not None and sd > 0:
      label = f"{name}: sd {percent(sd)}"
      _normal_curve(
        ax, values.mean(), float(sd), color=line_color, linestyle=style, label=label
      )
  if normal and len(values) > 1 and values.std():
    _normal_curve(
      ax, values.mean(), values.std(ddof=1), color=color, linestyle=":", label="normal"
    )
  return finish(ax, "test accuracy (%)", "density (per percentage point)")


def accuracy_histograms(
  groups: Mapping[str, OfRuns], ax: Axes, *, examples: int | None = None
) -> Axes:
  """Histograms of the accuracies of groups of runs, name -> (runs,), in common bins: as
  `disagreement_histogram`.
  """
  return _histograms(groups, ax, examples, "test accuracy (%)")


def split_scatter(
  first: OfRuns, second: OfRuns, ax: Axes, *, correlation: Scalar | None = None
) -> Axes:
  """Each run's accuracy on one half of the test examples against that on the other
  half.

  Runs that coincide are one point, coloured by how many they are: accuracies on few
  examples take few values, and neither jitter nor transparency would show how many runs
  lie on each. With more points than can be told apart, cells of equally many possible
  values are coloured instead. Jordan 2024, figure 2.

  Args:
    first: (runs,), accuracies on the examples of even index, fractions.
    second: (runs,), those on the odd ones.
    ax: where to draw.
    correlation: Pearson's r, for the legend.
  """
  pairs = np.stack(
    [np.asarray(first, np.float64), np.asarray(second, np.float64)], axis=1
  )
  points, runs = np.unique(pairs, axis=0, return_counts=True)
  label = run_count(len(pairs))
  if correlation is not None and np.isfinite(correlation):
    label += f": r = {float(correlation):.3f}, r² = {float(correlation) ** 2:.3f}"
  few_first = np.argsort(runs, kind="stable")
  if len(points) > MOST_POINTS:
    edges = [100 * bin_edges([half], _grid(half)) for half in pairs.T]
    runs, _, _, drawn = ax.hist2d(
      100 * pairs[:, 0], 100 * pairs[:, 1], bins=edges, cmin=1, cmap=COUNTS
    )
    ax.plot([], [], linestyle="none", marker="s", color=BLUE, label=label)
  else:
    drawn = ax.scatter(
      100 * points[few_first, 0],
      100 * points[few_first, 1],
      c=runs[few_first],
      cmap=COUNTS,
      vmin=1,
      vmax=max(2, runs.max(initial=1)),
      s=26,
      linewidths=0,
      label=label,
    )
  if np.nanmax(runs) > 1:
    where = "in a cell" if len(points) > MOST_POINTS else "at a point"
    bar = ax.figure.colorbar(
      drawn, ax=ax, label=f"runs {where}", fraction=0.045, pad=0.02
    )
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True)
  for line, mean in zip((ax.axvline, ax.axhline), 100 * pairs.mean(0), strict=True):
    line(mean, color=INK, linewidth=0.8, linestyle=":", zorder=0)
  return finish(
    ax,
    "accuracy on even test examples (%)",
    "accuracy on odd test examples (%)",
    above=1,
  )


def disagreement_histogram(
  groups: Mapping[str, OfPairs], ax: Axes, *, examples: int | None = None
) -> Axes:
  """Histograms over pairs of runs of how many predictions the two runs differ in, one
  histogram per group.

  Jordan 2024, appendix D.2: pairs with equal seeds in which one run was poked, beside
    pairs with distinct seeds.

  Args:
    groups: name -> (pairs,), fractions of the test examples; at least one pair each.
    ax: where to draw.
    examples: test examples n; bins then hold equally many of the possible values k/n.
  """
  return _histograms(
    groups, ax, examples, "test predictions that differ between two runs (%)"
  )


def accuracies_side_by_side(groups: Mapping[str, OfRuns], ax: Axes) -> Axes:
  """Box plots of the accuracies of groups of runs, the first on top: quartiles, mean,
  lowest and highest.

  Args:
    groups: name -> (runs,), fractions; at least one run each.
    ax: where to draw.
  """
  y = np.arange(len(groups))
  values = [100 * np.asarray(v, np.float64) for v in groups.values()]
  names = [
    f"{name}\n{run_count(len(v))}" for name, v in zip(groups, values, strict=True)
  ]
  ax.boxplot(
    values,
    positions=y,
    orientation="horizontal",
    whis=(0, 100),
    widths=0.5,
    showmeans=True,
    patch_artist=True,
    boxprops={"facecolor": (BLUE, 0.35), "edgecolor": BLUE},
    medianprops={"color": BLUE},
    meanprops={
      "marker": "D",
      "markersize": 5,
      "markerfacecolor": VERMILION,
      "markeredgecolor": VERMILION,
    },
    whiskerprops={"color": BLUE},
    capprops={"color": BLUE},
    manage_ticks=False,
  )
  ax.set_yticks(y, names)
  ax.set_ylim(len(groups) - 0.5, -0.5)
  return finish(ax, "test accuracy (%)", "")


def sds_side_by_side(
  names: Sequence[str],
  series: Mapping[str, Sequence[tuple[float | None, float | None, float | None]]],
  ax: Axes,
  *,
  below: Sequence[bool] = (),
) -> Axes:
  """Standard deviations of groups of runs. Each group is a row, the first on top, with
  its series one above the other.

  Args:
    names: names of the groups.
    series: label -> (standard deviation, low, high) of each group, fractions; low and
      high are the ends of an interval. None is not drawn.
    ax: where to draw.
    below: for each group, whether the variance behind the last series is estimated
      below 0. It is then drawn as an open marker at 0, with a bar from there to `high`.
  """
  y = np.arange(len(names))
  for k, (label, rows) in enumerate(series.items()):
    sd, low, high = 100 * np.array(rows, np.float64).reshape(-1, 3).T
    at = y + (k - (len(series) - 1) / 2) * 0.22
    color, marker = (BLUE, VERMILION, GREEN)[k % 3], "oDs"[k % 3]
    # Where an interval has no width, its ends may be a rounding error on the wrong
    # side.
    bars = np.maximum(np.nan_to_num(np.stack([sd - low, high - sd])), 0)
    style: dict[str, Any] = {
      "color": color,
      "marker": marker,
      "linestyle": "none",
      "markersize": 6,
    }
    ax.errorbar(sd, at, xerr=bars, capsize=3, label=label, **style)
  if any(below):
    label, at, high = (
      f"{label}: variance estimate below 0",
      at[np.array(below)],
      np.nan_to_num(high[np.array(below)]),
    )
    bars = np.stack([np.zeros_like(high), high])
    style |= {"markerfacecolor": "white", "clip_on": False}
    ax.errorbar(np.zeros(len(at)), at, xerr=bars, capsize=3, label=label, **style)
  ax.set_yticks(y, list(names))
  ax.set_ylim(len(names) - 0.5, -0.5)
  ax.set_xlim(left=0)
  return finish(ax, "standard deviation of accuracy (%)", "", above=3)


def error_rate_histogram(
  example_error_rates: Real[np.ndarray, " examples"] | Sequence[float], ax: Axes
) -> Axes:
  """A histogram of the test examples' error rates over the runs.

  Args:
    example_error_rates: (examples,), each example's fraction of runs that have it
      wrong.
    ax: where to draw; its counts get a logarithmic axis, as most examples are right in
      nearly all runs.
  """
  rates = np.asarray(example_error_rates, np.float64)
  # The tiny shift puts rates such as 3/20 into the bin that starts there, whatever
  # their rounding.
  edges = np.linspace(0, 1, 21) + np.r_[np.full(20, -1e-9), 1e-9]
  never, always = int((rates == 0).sum()), int((rates == 1).sum())
  ax.hist(
    100 * rates,
    bins=100 * edges,
    log=True,
    facecolor=(BLUE, 0.55),
    edgecolor="white",
    linewidth=0.8,
    label=f"{len(rates)} examples: {never} never wrong, {always} always",
  )
  ax.set_ylim(bottom=0.7)
  ax.set_xlim(-1, 101)
  return finish(ax, "runs that have the example wrong (%)", "test examples")


def calibration_curve(
  confidence: OfBins,
  accuracy: OfBins,
  ax: Axes,
  *,
  low: Real[np.ndarray, " bins"] | None = None,
  high: Real[np.ndarray, " bins"] | None = None,
  label: str = "votes",
) -> Axes:
  """How often a prediction is right against its confidence, beside the line of perfect
  calibration.

  Jiang 2022, figure 6. A second call adds another curve.

  Args:
    confidence: (bins,), the mean confidence in each bin, a fraction; NaN where a bin is
      empty.
    accuracy: (bins,), likewise the fraction that is right.
    ax: where to draw.
    low, high: (bins,), the ends of an interval of `accuracy`, drawn as a band.
    label: in the legend.
  """
  color = PALETTE[max(0, len(ax.lines) - 1) % len(PALETTE)]
  if not ax.lines:
    ax.plot(
      [0, 100],
      [0, 100],
      color=INK,
      linewidth=0.9,
      linestyle=":",
      label="perfect calibration",
    )
  x, y = (100 * np.asarray(v, np.float64) for v in (confidence, accuracy))
  known = ~np.isnan(x)
  ax.plot(x[known], y[known], color=color, marker="o", markersize=5, label=label)
  if low is not None and high is not None:
    ax.fill_between(
      x[known],
      100 * low[known],
      100 * high[known],
      color=color,
      alpha=0.25,
      linewidth=0,
    )
  ax.set_xlim(-2, 102)
  ax.set_ylim(-2, 102)
  return finish(
    ax,
    "confidence: runs that vote for the class (%)",
    "examples of which it is the class (%)",
  )


def disagreement_against_error(error: OfPairs, disagreement: OfPairs, ax: Axes) -> Axes:
  """Disagreement of pairs of runs against their test error, beside the line where the
  two are equal.

  Jiang 2022, figures 1 to 4.

  Args:
    error: (pairs,), fractions.
    disagreement: (pairs,), fractions.
    ax: where to draw.
  """
  x, y = (100 * np.asarray(v, np.float64) for v in (error, disagreement))
  label = f"{len(x)} pair{'s' * (len(x) != 1)} of runs"
  ax.scatter(x, y, s=14, color=BLUE, alpha=0.35, linewidths=0, label=label)
  if len(x):
    ax.axline(
      (x.mean(), x.mean()),
      slope=1,
      color=INK,
      linewidth=0.9,
      linestyle=":",
      label="disagreement = error",
    )
  return finish(
    ax,
    "test error, mean of the two runs (%)",
    "test predictions that differ between them (%)",
  )


def ecdf_band(
  gaps: Real[np.ndarray, "runs examples"], ax: Axes, *, threshold: float
) -> Axes:
  """Empirical distribution functions of the runs' logit gaps, with the pooled one and a
  band of ± threshold around it.

  At most 100 runs are drawn. Banerjee 2024, equations 8 and 16.

  Args:
    gaps: (runs, examples), logit gaps.
    ax: where to draw.
    threshold: half the height of the band, such as `stats.ks_threshold(examples)`.
  """
  pooled = np.sort(gaps, axis=None)
  # As many points as can be seen, whatever the number of runs.
  at = pooled[np.unique(np.linspace(0, pooled.size - 1, 1000).astype(int))]
  reference = np.searchsorted(pooled, at, side="right") / pooled.size
  for run in np.sort(gaps[:MOST_CURVES], axis=1):
    ax.plot(
      at,
      np.searchsorted(run, at, side="right") / len(run),
      color=SKY,
      linewidth=0.5,
      alpha=0.5,
    )
  band = np.clip(reference - threshold, 0, 1), np.clip(reference + threshold, 0, 1)
  ax.fill_between(
    at, *band, color=ORANGE, alpha=0.3, linewidth=0, label=f"± {threshold:.4f}"
  )
  ax.plot(
    at, reference, color=INK, linewidth=1.4, label=f"all {len(gaps)} runs together"
  )
  return finish(ax, "logit gap", "fraction of test examples at or below")


def bin_edges(
  groups: Sequence[Real[np.ndarray, " _"]], examples: int | None
) -> Real[np.ndarray, " edges"]:
  """Edges of equal bins, in fractions, that hold all values of all groups, at most 60
  bins.

  The width follows the rule of Freedman and Diaconis for the narrowest group. With n
  `examples`, edges lie halfway between possible values k/n, and each bin holds a whole
  number of these.
  """
  grid = examples or 10_000
  counts = [v * grid for v in groups]
  low, high = min(c.min() for c in counts), max(c.max() for c in counts)
  widths = [
    2 * np.subtract(*np.percentile(c, [75, 25])) / len(c) ** (1 / 3) for c in counts
  ]
  width = min((w for w in widths if w > 0), default=1.0)
  width = max(1, round(width), int(np.ceil((high - low + 1) / MOST_BINS)))
  start = width * np.floor((np.rint(low) + 0.25) / width) - 0.5
  bins = int(np.floor((np.rint(high) - start) / width)) + 1
  return (start + width * np.arange(bins + 1)) / grid


def percent(fraction: Scalar) -> str:
  """A fraction as percent with three significant digits, without exponents: 0.00123 ->
  '0.123 %'.

  >>> percent(0.00123), percent(0.9), percent(float("nan"))
  ('0.123 %', '90.0 %', 'n/a')
  """
  value = 100 * float(fraction)
  if not np.isfinite(value):
    return "n/a"
  places = 2 - int(np.floor(np.log10(abs(value)))) if value else 2
  return f"{value:.{min(6, max(0, places))}f} %"


def _grid(values: Real[np.ndarray, " runs"]) -> int:
  """The n for which values are multiples of 1/n, from the smallest gap between them."""
  gaps = np.diff(np.unique(values))
  return round(1 / gaps[gaps > 1e-9].min(initial=1))


def _runs_and_sd(values: Real[np.ndarray, " runs"]) -> str:
  return run_count(len(values)) + (
    f": sd {percent(values.std(ddof=1))}" if len(values) > 1 else ""
  )


def _normal_curve(ax: Axes, mean: float, sd: float, **line) -> None:
  z = np.linspace(-4, 4, 201)
  ax.plot(
    100 * (mean + sd * z),
    np.exp(-(z**2) / 2) / (np.sqrt(2 * np.pi) * 100 * sd),
    linewidth=1.8,
    **line,
  )


def _next_color(ax: Axes) -> str:
  return PALETTE[len(ax.patches) % len(PALETTE)]


def _histograms(
  groups: Mapping[str, OfRuns | OfPairs], ax: Axes, examples: int | None, xlabel: str
) -> Axes:
  fractions = {name: np.asarray(values, np.float64) for name, values in groups.items()}
  edges = bin_edges(list(fractions.values()), examples)
  for name, values in fractions.items():
    _bars(ax, values, edges, _next_color(ax), f"{name}: mean {percent(values.mean())}")
  return finish(ax, xlabel, "density (per percentage point)")


def _bars(
  ax: Axes, values: np.ndarray, edges: np.ndarray, color: str, label: str
) -> None:
  ax.hist(
    100 * values,
    bins=list(100 * edges),
    density=True,
    histtype="stepfilled",
    facecolor=(color, 0.35),
    edgecolor=color,
    linewidth=1.2,
    label=label,
  )


def finish(ax: Axes, xlabel: str, ylabel: str, above: int = 0) -> Axes:
  """Adds labels, grid and legend. The legend is inside the axes, or above them in
  `above` columns.
  """
  ax.set_xlabel(xlabel)
  ax.set_ylabel(ylabel)
  ax.spines[["top", "right"]].set_visible(False)
  ax.grid(alpha=0.25, linewidth=0.7)
  ax.set_axisbelow(True)
  if ax.get_legend_handles_labels()[1]:
    place: dict[str, Any] = dict(
      loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=above
    )
    ax.legend(frameon=False, fontsize="small", **(place if above else {}))
  return ax
