"""Jordan 2024, figure 3 and section 3.2: the accuracies beside what independent errors
on the examples would give.

If each example went wrong with its own probability, independently of the others, the
accuracy's variance would be Σ ε (1 - ε)/n². Short trainings vary more than that; the
paper's long ones do not.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from experiments import frame, measures
from experiments.estimates import Estimate
from experiments.frame import Row, Spread, Trained, format_percent, sqrt_with_se
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import DURATIONS, by_duration
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 3: test-set accuracy beside independent errors"
PANELS = 5


class Independence(NamedTuple):
  """Observed accuracies, and as many simulated ones with independent errors at each
  example's own rate.
  """

  epochs: int
  observed: Spread
  predicted: float  # standard deviation
  predicted_se: float
  ratio: float  # of the variances, observed over predicted
  interval: tuple[float, float]  # 95 % over runs, the prediction taken as known
  simulated: Float[np.ndarray, " runs"]  # accuracies, in descending order

  @property
  def runs(self) -> int:
    return self.observed.runs


def compute(trained: Trained) -> dict[str, Independence]:
  numbers = {}
  for name in DURATIONS:
    se = stats.independent_errors_variance(trained.errors(name)).se
    numbers[name] = independence(trained.epochs(name), trained.tallies(name), se)
  return numbers


def independence(
  epochs: int,
  tallies: stats.Tallies,
  variance_se: float = math.nan,
) -> Independence:
  observed = frame.spread_of(tallies)
  variance = tallies.independent_errors_variance().value
  ratio = math.nan
  interval = (math.nan, math.nan)
  if variance:
    low, high = stats.variance_over_runs(observed.accuracies).interval
    ratio = observed.sd**2 / variance
    interval = (low / variance, high / variance)
  predicted, se = sqrt_with_se(variance, variance_se)
  return Independence(
    epochs,
    observed,
    predicted,
    se,
    ratio,
    interval,
    simulated(tallies),
  )


def simulated(tallies: stats.Tallies) -> Float[np.ndarray, " runs"]:
  """Accuracies of as many simulated runs with independent errors, drawn from their
  exact distribution.
  """
  law = measures.poisson_binomial_pmf(tallies.example_error_rates())
  runs = np.random.default_rng(0).multinomial(tallies.runs, law / law.sum())
  return 1 - np.repeat(np.arange(len(law)), runs) / tallies.examples


def rows(numbers: Mapping[str, Independence]) -> list[Row]:
  return by_duration(
    numbers,
    (
      "sd of accuracy",
      paper.SD,
      lambda n: format_percent(n.observed.sd, n.observed.sd_se),
    ),
    (
      "sd if errors were independent",
      paper.INDEPENDENT_SD,
      lambda n: format_percent(n.predicted, n.predicted_se),
    ),
    (
      "variance, observed over independent",
      {name: paper.STATED[f"independence {name}"] for name in ("short", "long")},
      lambda n: Estimate(n.ratio, *n.interval),
    ),
  )


def plot(numbers: Mapping[str, Independence], axes: np.ndarray) -> None:
  """Two histograms for each duration; the last panel has both standard deviations
  against the duration.
  """
  *histogram_axes, right = axes
  for ax, n in zip(histogram_axes, numbers.values(), strict=True):
    draw_histograms(
      {
        "observed": (n.observed.accuracies, n.observed.sd),
        "independent": (n.simulated, n.predicted),
      },
      ax,
      n.observed.examples,
    )
    ax.set_title(frame.format_duration(n.epochs))
  durations = list(numbers.values())
  for label, color, marker, sd in (
    ("observed", plots.BLUE, "o", [n.observed.sd for n in durations]),
    ("independent errors", plots.VERMILION, "s", [n.predicted for n in durations]),
  ):
    right.plot(
      range(len(durations)),
      100 * np.array(sd),
      color=color,
      marker=marker,
      label=label,
    )
  right.set(
    xlabel="training duration (epochs)",
    ylabel="standard deviation of accuracy (%)",
    ylim=(0, None),
  )
  right.set_xticks(range(len(durations)), [str(n.epochs) for n in durations])
  right.grid(True)
  right.legend()


def draw_histograms(
  groups: Mapping[str, tuple[Float[np.ndarray, " _"], float]],
  ax: Axes,
  examples: int,
) -> None:
  """Accuracies of several kinds in the same bins, with the standard deviation of each,
  which is exact where as many runs are simulated.
  """
  edges = 100 * plots.bin_edges([values for values, _ in groups.values()], examples)
  for (label, (values, sd)), color in zip(
    groups.items(),
    (plots.BLUE, plots.VERMILION, plots.INK),
    strict=False,
  ):
    heights, _ = np.histogram(100 * values, edges, density=True)
    ax.stairs(
      heights,
      edges,
      fill=True,
      facecolor=(color, 0.25),
      edgecolor=color,
      label=f"{label}: sd {format_percent(sd)}",
    )
  ax.set(xlabel="test accuracy (%)", ylabel="density (per percentage point)")
  frame.legend_above(ax)
