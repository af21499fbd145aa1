"""Jordan 2024, figure 6 and section 3.4: what the mean error alone says of the
variance, over binary tasks.

A class-wise calibrated binary classifier that varies little on the distribution has a
variance of err/(2n) on a test set of n examples (equation 6). The tasks are the 511
ways to split ten classes into two groups, or every few of them. Standard errors are by
the bootstrap over tasks.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes

import vmapseeds as vs
from experiments import estimates, frame, measures
from experiments.frame import Row, Trained, format_number, format_percent, row, rows_of
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import STUDIES, label_maps
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 6: the variance of binary tasks from their mean errors"
PANELS = 2
REPLICATES = 300
FITS = {
  "r_squared": "R²",
  "r_squared_sd": "R² on standard deviations",
  "identity_r_squared": "R² about y = x",
  "identity_r_squared_sd": "R² about y = x, on standard deviations",
}


class Counts(NamedTuple):
  """The counts from which the variances are computed; runs that diverged are left out."""

  error_rates: Float[np.ndarray, "runs tasks"]  # NaN for a run that diverged
  wrong: Int[np.ndarray, "tasks examples"]  # how many runs have the example wrong


class FitEstimate(NamedTuple):
  """A number and its standard error: the standard deviation over bootstrap samples of
  the tasks.
  """

  value: float
  se: float


class Cap(NamedTuple):
  """What a number would be if equation 6 were exactly true: mean and 95 % range over
  simulated campaigns.
  """

  mean: float
  low: float
  high: float


class Tasks(NamedTuple):
  """The variances of the tasks and how well predictions fit them. A fit has the fields
  of `measures.VarianceFit`.
  """

  runs: int  # of each task
  examples: int
  error: Float[np.ndarray, " tasks"]
  variance: Float[np.ndarray, " tasks"]  # observed on the test set, ddof = 1
  independent: Float[np.ndarray, " tasks"]  # if errors were independent, unbiased
  distribution: Float[np.ndarray, " tasks"]  # equation 3, unbiased and signed
  # This and the next two: each prediction's fit to `variance`
  equation_6: dict[str, FitEstimate]
  binomial: dict[str, FitEstimate]
  theorem_3: dict[str, FitEstimate]
  mse_ratio: FitEstimate  # binomial over equation 6
  cap: dict[str, Cap]  # of `equation_6`
  mse_ratio_cap: Cap
  independent_equation_6: dict[str, FitEstimate]  # equation 6's fit to `independent`
  independent_mse_ratio: FitEstimate


def compute(trained: Trained) -> Tasks:
  tasks = len(label_maps()[:: STUDIES[trained.scale].every_task])
  return fit_tasks(count(trained("binary_tasks"), tasks))


def count(results: xr.Dataset, tasks: int) -> Counts:
  """Counts from results with every task at one seed, then every task at the next. Reads
  one seed's runs at a time.
  """
  runs = results.sizes["run"] // tasks
  examples = results.sizes["example"]
  error_rates = np.full((runs, tasks), np.nan)
  wrong = np.zeros((tasks, examples), np.int64)
  counts = Counts(error_rates, wrong)
  for run in range(runs):
    first = run * tasks
    part = results.isel(run=slice(first, first + tasks)).load()
    kept = ~part.diverged.values
    errors = vs.error_matrix(part)
    counts.error_rates[run, kept] = stats.error_rates(errors)
    counts.wrong[kept] += errors
  return counts


def fit_tasks(counts: Counts) -> Tasks:
  """Variances and fits over the tasks. Tasks with fewer than two runs are left out."""
  kept = np.isfinite(counts.error_rates).sum(0) >= 2
  rates = counts.error_rates[:, kept]
  wrong = counts.wrong[kept]
  runs = np.isfinite(rates).sum(0)
  n = wrong.shape[1]
  error = np.nanmean(rates, 0)
  variance = np.nanvar(rates, 0, ddof=1)
  # Each example's variance over runs, unbiased, as if no two were wrong together.
  disagreeing_pairs = (wrong * (runs[:, None] - wrong)).sum(1)
  independent = disagreeing_pairs / (runs * (runs - 1) * n**2)
  # Equation 3.
  distribution = n / (n - 1) * (variance - independent)
  equation_6 = measures.calibration_variance(error, n)
  binomial = stats.binomial_variance(error, n)
  # Theorem 3: no variance is negative, but its unbiased estimate may be.
  theorem_3 = np.maximum(0, equation_6 + (1 - 1 / n) * distribution)

  predicted = {"equation_6": equation_6, "binomial": binomial, "theorem_3": theorem_3}
  fitted, ratio = fits(variance, predicted)
  cap, ratio_cap = caps(equation_6, binomial, runs)
  independent_fitted, independent_ratio = fits(independent, predicted)
  return Tasks(
    runs=len(rates),
    examples=n,
    error=error,
    variance=variance,
    independent=independent,
    distribution=distribution,
    **fitted,
    mse_ratio=ratio,
    cap=cap,
    mse_ratio_cap=ratio_cap,
    independent_equation_6=independent_fitted["equation_6"],
    independent_mse_ratio=independent_ratio,
  )


def fits(
  observed: Float[np.ndarray, " tasks"],
  predicted: Mapping[str, Float[np.ndarray, " tasks"]],
) -> tuple[dict[str, dict[str, FitEstimate]], FitEstimate]:
  """The fit of each prediction, and the mean squared error of "binomial" over that of
  "equation_6".
  """
  resampled_tasks = np.random.default_rng(0).integers(
    0,
    len(observed),
    (REPLICATES, len(observed)),
  )
  fit = {name: measures.variance_fit(observed, p) for name, p in predicted.items()}
  refits = {
    name: replicates(observed[resampled_tasks], p[resampled_tasks])
    for name, p in predicted.items()
  }
  estimates: dict[str, dict[str, FitEstimate]] = {}
  for name in predicted:
    estimates[name] = {}
    for field, value in fit[name]._asdict().items():
      se = getattr(refits[name], field).std(ddof=1)
      estimates[name][field] = FitEstimate(value, se)

  def error_ratio(fits: Mapping[str, measures.VarianceFit]) -> Any:
    return fits["binomial"].mean_squared_error / fits["equation_6"].mean_squared_error

  return estimates, FitEstimate(error_ratio(fit), error_ratio(refits).std(ddof=1))


def caps(
  equation_6: Float[np.ndarray, " tasks"],
  binomial: Float[np.ndarray, " tasks"],
  runs: Int[np.ndarray, " tasks"],
) -> tuple[dict[str, Cap], Cap]:
  """How well equation 6 would fit, with this many runs of each task, if it were exact
  and accuracies were normal.
  """
  rng = np.random.default_rng(1)
  # A variance of normal values is a χ² over its degrees of freedom.
  freedom = runs - 1
  observed = equation_6 * rng.chisquare(freedom, (REPLICATES, len(runs))) / freedom
  fit = replicates(observed, np.broadcast_to(equation_6, observed.shape))
  rival = replicates(observed, np.broadcast_to(binomial, observed.shape))

  def cap(values: Float[np.ndarray, " replicates"]) -> Cap:
    return Cap(values.mean(), *np.quantile(values, (0.025, 0.975)))

  by_field = {field: cap(values) for field, values in fit._asdict().items()}
  return by_field, cap(rival.mean_squared_error / fit.mean_squared_error)


def replicates(
  observed: Float[np.ndarray, "replicates tasks"],
  predicted: Float[np.ndarray, "replicates tasks"],
) -> measures.VarianceFit:
  """`measures.variance_fit` of every row."""
  of_rows = []
  for observed_row, predicted_row in zip(observed, predicted, strict=True):
    of_rows.append(measures.variance_fit(observed_row, predicted_row))
  return measures.VarianceFit(*np.transpose(of_rows))


def rows(n: Tasks) -> list[Row]:
  tasks = f"{len(n.error)} × {n.runs}"
  claim = paper.STATED["equation 6"]
  apart = "... to the variance that independent errors give"
  most = "... the most that so many runs allow"
  span = f"{format_percent(n.error.min())} to {format_percent(n.error.max())}"
  ratio = format_number(*n.mse_ratio)
  of_apart = format_number(*n.independent_mse_ratio)
  lines = rows_of(
    tasks,
    ("mean error, least to most", None, span),
    (claim.statistic, claim, over_equation_6(n.error, n.variance, n.examples)),
    ("mean squared error, binomial over equation 6", None, ratio),
    (apart, None, of_apart),
    (most, None, estimates.format_interval(*n.mse_ratio_cap)),
  )
  for name, fit in FITS.items():
    ours = n.equation_6[name]
    of_apart = n.independent_equation_6[name]
    lines += rows_of(
      tasks,
      (f"{fit}, equation 6", paper.CALIBRATION_FIT, format_number(*ours)),
      (apart, None, format_number(*of_apart)),
      (most, None, estimates.format_interval(*n.cap[name])),
      ("... binomial", None, format_number(*n.binomial[name])),
    )
  quantity = "R² about y = x, theorem 3: equation 6 and the genuine variance"
  fit = n.theorem_3["identity_r_squared"]
  return [*lines, row(quantity, None, format_number(*fit), tasks)]


def over_equation_6(
  error: Float[np.ndarray, " tasks"],
  variance: Float[np.ndarray, " tasks"],
  examples: int,
) -> estimates.Estimate:
  """The sum of the tasks' variances over the sum that equation 6 predicts; its error is
  over tasks.
  """
  predicted = measures.calibration_variance(error, examples)
  ratio = variance.sum() / predicted.sum()
  tasks = len(error)
  # The standard error of a ratio of sums, by the delta method.
  apart = variance - ratio * predicted
  se = np.sqrt(tasks / (tasks - 1) * (apart**2).sum()) / predicted.sum()
  return estimates.positive_estimate(ratio, se)


def plot(n: Tasks, axes: np.ndarray) -> None:
  """Observed standard deviations, and those of independent errors, against the
  predicted ones.
  """
  left_ax, right_ax = axes
  draw_tasks(left_ax, n, n.variance, "sd of accuracy on the test set (%)")
  draw_tasks(right_ax, n, n.independent, "sd if errors were independent (%)")
  left_ax.set_title("what is observed")
  right_ax.set_title("without the genuine variance")


def draw_tasks(
  ax: Axes,
  n: Tasks,
  variance: Float[np.ndarray, " tasks"],
  label: str,
) -> None:
  predictions = {
    "binomial: err(1 − err)/n": (
      stats.binomial_variance(n.error, n.examples),
      plots.ORANGE,
    ),
    "equation 6: err/(2n)": (
      measures.calibration_variance(n.error, n.examples),
      plots.BLUE,
    ),
  }
  for name, (predicted, color) in predictions.items():
    ax.scatter(
      100 * predicted**0.5,
      100 * variance**0.5,
      s=9,
      color=color,
      alpha=0.6,
      linewidths=0,
      label=name,
    )

  def limit(variances: Float[np.ndarray, " tasks"]) -> float:
    """A little above the largest standard deviation, in per cent."""
    return 105 * max(variances.max(), 1e-9) ** 0.5

  ax.axline((0, 0), slope=1, color=plots.INK, linewidth=1, label="as predicted")
  ax.set(
    xlim=(0, limit(stats.binomial_variance(n.error, n.examples))),
    ylim=(0, limit(variance)),
    xlabel="predicted sd of accuracy (%)",
    ylabel=label,
  )
  frame.legend_above(ax)
