"""Functions that draw figures. They are given finished numbers; nothing is trained or
estimated here.

Rates, accuracies and standard deviations come in as fractions and are drawn in percent;
where `name` and `unit` say so, other numbers of runs are drawn in their own unit.
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

from vmapseeds.results.formatting import finite, run_count, scale_and_sign, show

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
  name: str = "test accuracy",
  unit: str = "fraction",
) -> Axes:
  """The distribution of test accuracy over runs, or of another number of a run, beside
  what independence between examples would give.

  Jordan 2024, figures 1 and 3 (with the independent-errors curve) and 13 (with the
  binomial one).

  Args:
    accuracies: (runs,), fractions or numbers of another unit; at least one.
    ax: where to draw; a second call adds another histogram.
    examples: test examples n. Each bin then holds equally many of the possible values
      k/n; without it a bin may hold one possible value more than its neighbour, which
      looks like structure.
    label: text in the legend; by default the number of runs and their standard
      deviation.
    color: of the bars; by default the next of the palette.
    independent_sd: the standard deviation if examples were independent, drawn as a
      normal curve around the mean. None, NaN and 0 draw nothing.
    binomial_sd: likewise the prediction for errors that are independent and equally
      likely on all examples.
    normal: whether to draw the normal curve of the accuracies' own mean and standard
      deviation.
    name: what the numbers are.
    unit: their unit.
  """
  values = np.asarray(accuracies, np.float64)
  color, scale = color or _next_color(ax), scale_and_sign(unit)[0]
  runs, sd = len(values), values.std(ddof=1) if len(values) > 1 else 0
  if label is None:
    label = run_count(runs) + (f": sd {_text(sd, unit)}" if runs > 1 else "")
  _bars(ax, values, bin_edges([values], examples, unit), color, label, scale)
  independent = "errors" if unit == "fraction" else "examples"
  z = np.linspace(-4, 4, 201)
  for what, spread, line_color, style in (
    (f"{independent} independent", independent_sd, VERMILION, "-"),
    ("binomial", binomial_sd, INK, "--"),
    ("normal", sd if normal else None, color, ":"),
  ):
    if spread is not None and spread > 0:
      ax.plot(
        scale * (values.mean() + spread * z),
        np.exp(-(z**2) / 2) / (np.sqrt(2 * np.pi) * scale * spread),
        color=line_color,
        linestyle=style,
        linewidth=1.8,
        label=what if what == "normal" else f"{what}: sd {_text(spread, unit)}",
      )
  return finish(ax, axis_label(name, unit), _density(unit))


def accuracy_histograms(
  groups: Mapping[str, OfRuns | OfPairs],
  ax: Axes,
  *,
  examples: int | None = None,
  name: str = "test accuracy",
  unit: str = "fraction",
) -> Axes:
  """Histograms of a number of runs, or of pairs of runs, in common bins.

  Args:
    groups: name -> (runs,), fractions or numbers of another unit; at least one each.
    ax: where to draw.
    examples: test examples n; bins then hold equally many of the possible values k/n.
    name: what the numbers are.
    unit: their unit.
  """
  values = {group: np.asarray(of, np.float64) for group, of in groups.items()}
  edges = bin_edges(list(values.values()), examples, unit)
  for group, of in values.items():
    label = f"{group}: mean {_text(of.mean(), unit)}"
    _bars(ax, of, edges, _next_color(ax), label, scale_and_sign(unit)[0])
  return finish(ax, axis_label(name, unit), _density(unit))


def split_scatter(
  first: OfRuns,
  second: OfRuns,
  ax: Axes,
  *,
  correlation: Scalar | None = None,
  name: str = "accuracy",
  unit: str = "fraction",
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
    name: what the numbers are.
    unit: their unit.
  """
  pairs, scale = (
    np.stack([first, second], axis=1).astype(float),
    scale_and_sign(unit)[0],
  )
  points, runs = np.unique(pairs, axis=0, return_counts=True)
  label = run_count(len(pairs))
  if correlation is not None and np.isfinite(correlation):
    label += f": r = {float(correlation):.3f}, r² = {float(correlation) ** 2:.3f}"
  if len(points) > MOST_POINTS:
    edges = [scale * bin_edges([half], _grid(half), unit) for half in pairs.T]
    runs, _, _, drawn = ax.hist2d(*scale * pairs.T, bins=edges, cmin=1, cmap=COUNTS)
    ax.plot([], [], linestyle="none", marker="s", color=BLUE, label=label)
  else:
    few_first = np.argsort(runs, kind="stable")
    drawn = ax.scatter(
      *scale * points[few_first].T,
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
  for line, mean in zip((ax.axvline, ax.axhline), scale * pairs.mean(0), strict=True):
    line(mean, color=INK, linewidth=0.8, linestyle=":", zorder=0)
  halves = (
    axis_label(f"{name} on {half} test examples", unit) for half in ("even", "odd")
  )
  return finish(ax, *halves, above=1)


def disagreement_histogram(
  groups: Mapping[str, OfPairs], ax: Axes, *, examples: int | None = None
) -> Axes:
  """Histograms over pairs of runs of how many predictions the two runs differ in, one
  histogram per group: `accuracy_histograms`.

  Jordan 2024, appendix D.2: pairs with equal seeds in which one run was poked, beside
    pairs with distinct seeds.
  """
  name = "test predictions that differ between two runs"
  return accuracy_histograms(groups, ax, examples=examples, name=name)


def accuracies_side_by_side(
  groups: Mapping[str, OfRuns],
  ax: Axes,
  *,
  name: str = "test accuracy",
  unit: str = "fraction",
) -> Axes:
  """Box plots of the accuracies of groups of runs, or of another number of a run, the
  first on top: quartiles, mean, lowest and highest.

  Args:
    groups: name -> (runs,), fractions or numbers of another unit; at least one each.
    ax: where to draw.
    name: what the numbers are.
    unit: their unit.
  """
  y = np.arange(len(groups))
  values = [
    scale_and_sign(unit)[0] * np.asarray(v, np.float64) for v in groups.values()
  ]
  names = [
    f"{group}\n{run_count(len(v))}" for group, v in zip(groups, values, strict=True)
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
  return finish(ax, axis_label(name, unit), "")


def sds_side_by_side(
  names: Sequence[str],
  series: Mapping[str, Sequence[tuple[float | None, float | None, float | None]]],
  ax: Axes,
  *,
  below: Sequence[bool] = (),
  name: str = "accuracy",
  unit: str = "fraction",
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
    name: of what the standard deviations are.
    unit: their unit.
  """
  y = np.arange(len(names))
  for k, (label, rows) in enumerate(series.items()):
    sd, low, high = (
      scale_and_sign(unit)[0] * np.array(rows, np.float64).reshape(-1, 3).T
    )
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
  return finish(ax, axis_label(f"standard deviation of {name}", unit), "", above=3)


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


def loss_histogram(
  losses: Real[np.ndarray, " examples"], ax: Axes, *, unit: str = "number"
) -> Axes:
  """A histogram of the examples' mean losses over the runs, with a logarithmic axis of
  counts.
  """
  label = f"{len(losses)} examples: largest {_text(losses.max(), unit)}"
  bars = {"facecolor": (BLUE, 0.55), "edgecolor": "white", "linewidth": 0.8}
  ax.hist(losses, bins=40, log=True, label=label, **bars)
  ax.set_ylim(bottom=0.7)
  return finish(ax, axis_label("mean loss of an example", unit), "test examples")


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
  groups: Sequence[Real[np.ndarray, " _"]],
  examples: int | None,
  unit: str = "fraction",
) -> Real[np.ndarray, " edges"]:
  """Edges of equal bins, that hold all values of all groups, at most 60
  bins.

  The width follows the rule of Freedman and Diaconis for the narrowest group. With n
  `examples`, edges lie halfway between possible values k/n, and each bin holds a whole
  number of these. Numbers of another unit are on a grid of whole numbers, or as fine as
  is needed.
  """
  grid: float = examples or 10_000
  if unit != "fraction":
    every = np.concatenate(groups)
    spread = np.ptp(every)
    whole = spread < 10_000 and (every == np.rint(every)).all()
    grid = 1 if whole or not spread else 10_000 / spread
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


def _next_color(ax: Axes) -> str:
  return PALETTE[len(ax.patches) % len(PALETTE)]


def _bars(
  ax: Axes,
  values: np.ndarray,
  edges: np.ndarray,
  color: str,
  label: str,
  scale: float,
) -> None:
  ax.hist(
    scale * values,
    bins=list(scale * edges),
    density=True,
    histtype="stepfilled",
    facecolor=(color, 0.35),
    edgecolor=color,
    linewidth=1.2,
    label=label,
  )


def axis_label(name: str, unit: str) -> str:
  """Return the label of an axis: "test accuracy (%)"."""
  sign = scale_and_sign(unit)[1].strip()
  return f"{name} ({sign})" if sign else name


def _density(unit: str) -> str:
  sign = scale_and_sign(unit)[1].strip()
  return f"density (per {'percentage point' if sign == '%' else sign or 'unit'})"


def _text(value: Scalar, unit: str) -> str:
  return percent(value) if unit == "fraction" else show(finite(value), None, unit)


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
