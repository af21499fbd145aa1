"""Jordan 2024, figure 7 and sections 3.4, 4.1, 4.2: trainings with little variance,
with more, and with much.

A regularised linear model converges to the same predictions every time. Without
augmentation, runs vary more than with a fixed fifth of the data, and gain more from an
ensemble. One of two finetunings varies only on the test set, the other on the
distribution too.
"""

import math
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from experiments import estimates, frame
from experiments.estimates import Estimate
from experiments.frame import (
  Row,
  Spread,
  Trained,
  format_percent,
  row,
  rows_of,
  spread_of,
  sqrt_with_se,
)
from experiments.jordan2024 import paper
from experiments.jordan2024.campaigns import ABLATIONS
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 7: a linear model, no augmentation beside a fifth of the data, two finetunings"
PANELS = 4
MISSING = (
  "BERT on MRPC is stood in for: a network trained on half of the classes is finetuned on few examples of the others, "
  "in two groups, with a new last layer, at a small and at a large learning rate."
)
TOP = 0.15  # share of runs that are chosen as best on the validation half


class AblatedEnsemble(NamedTuple):
  """Runs of one configuration, and the accuracy of their plurality vote."""

  accuracy: Spread
  ensemble: float


class AblationNumbers(NamedTuple):
  """Two configurations, and how the first compares with the second."""

  without: AblatedEnsemble  # without augmentation
  fifth: AblatedEnsemble  # on a fifth of the data
  ratio: float  # of their variances
  ratio_interval: tuple[float, float]
  gain: float  # of the first's ensemble over its mean accuracy, less the second's gain
  gain_se: float  # over test examples


class Finetuned(NamedTuple):
  """Runs that start from one stored network, with accuracies on both halves of the test
  examples.
  """

  rate: float
  accuracy: Spread
  validation: np.ndarray  # accuracies on the examples of even index
  test: np.ndarray  # on those of odd index
  correlation: float  # of these two
  interval: tuple[float, float]
  distribution: float  # root of equation 3; NaN where that is not positive
  distribution_se: float
  gain: float  # on the test half, of the runs best on the validation half
  gain_se: float


class Ablated(NamedTuple):
  linear: Spread
  linear_interval: tuple[float, float]  # of the standard deviation
  ablations: AblationNumbers
  finetuned: tuple[Finetuned, Finetuned]


def compute(trained: Trained) -> Ablated:
  without = trained("no_augmentation")
  fifth = trained("fifth_of_data")
  kept = [
    results.predictions.values[~results.diverged.values] for results in (without, fifth)
  ]
  finetuned = trained("finetuned")
  linear = spread_of(trained.errors("linear"))
  wrong = finetuned.predictions.values != finetuned.labels.values
  rates = finetuned.lr.values
  return Ablated(
    linear,
    tuple(
      math.sqrt(end) for end in stats.variance_over_runs(linear.accuracies).interval
    ),
    ablate(*kept, without.labels.values),
    tuple(
      finetune(rate, wrong[(rates == rate) & ~finetuned.diverged.values])
      for rate in ABLATIONS[trained.scale].finetune_rates
    ),
  )


def ablate(
  without: Int[np.ndarray, "a examples"],
  fifth: Int[np.ndarray, "b examples"],
  labels: Int[np.ndarray, " examples"],
) -> AblationNumbers:
  """Compares the two configurations, from their predictions."""
  classes = int(labels.max()) + 1
  votes = [
    stats.plurality(predictions, classes) == labels for predictions in (without, fifth)
  ]
  both = [
    AblatedEnsemble(spread_of(predictions != labels), right.mean())
    for predictions, right in zip((without, fifth), votes, strict=True)
  ]
  ratio = stats.variance_ratio(
    both[0].accuracy.accuracies,
    both[1].accuracy.accuracies,
    paired=False,
  )
  of_runs = [(predictions == labels).mean(0) for predictions in (without, fifth)]
  gains = (votes[0] - of_runs[0]) - (votes[1] - of_runs[1])
  gain_se = gains.std(ddof=1) / math.sqrt(len(labels))
  return AblationNumbers(*both, ratio.value, ratio.interval, gains.mean(), gain_se)


def finetune(rate: float, errors: Bool[np.ndarray, "runs examples"]) -> Finetuned:
  validation = 1 - errors[:, ::2].mean(1)
  test = 1 - errors[:, 1::2].mean(1)
  variance = stats.distribution_variance(errors)
  excess = sqrt_with_se(variance.value, variance.se)
  gain = stats.top_fraction_gain(errors, TOP).even_to_odd
  gain_se = stats.top_fraction_gain_bootstrap(errors, TOP, key=jax.random.key(0)).se
  correlation = stats.split_correlation(errors)
  return Finetuned(
    rate,
    spread_of(errors),
    validation,
    test,
    correlation.value,
    correlation.interval,
    *excess,
    gain,
    gain_se,
  )


def rows(n: Ablated) -> list[Row]:
  stable, unstable = n.finetuned
  return [
    linear_row(n),
    *ensemble_rows(n.ablations),
    *finetuned_rows("small", stable),
    *finetuned_rows("large", unstable),
  ]


def linear_row(n: Ablated) -> Row:
  # Runs that end alike have no interval on the logarithmic scale.
  interval = n.linear_interval if n.linear.sd else (0.0, 0.0)
  sd = Estimate(n.linear.sd, *interval, unit="%")
  return row("linear model: sd of accuracy", paper.STATED["linear"], sd, n.linear.runs)


def ensemble_rows(a: AblationNumbers) -> list[Row]:
  """Runs without augmentation beside those with a fifth of the data."""
  lines = []
  for change, e in (
    ("without augmentation", a.without),
    ("with a fifth of the data", a.fifth),
  ):
    printed = paper.ENSEMBLES[change]
    mean = format_percent(e.accuracy.mean, e.accuracy.mean_se)
    lines += rows_of(
      e.accuracy.runs,
      (f"mean accuracy {change}", paper.ABLATED_MEAN, mean),
      (f"accuracy of the ensemble {change}", printed, format_percent(e.ensemble)),
    )
  augmentation = paper.STATED["augmentation"]
  ratio = Estimate(a.ratio, *a.ratio_interval)
  ensembles = paper.STATED["ensembles"]
  gain = estimates.student_estimate(a.gain, a.gain_se, unit="%")
  lines += rows_of(
    f"{a.without.accuracy.runs}, {a.fifth.accuracy.runs}",
    (augmentation.statistic, augmentation, ratio),
    (ensembles.statistic, ensembles, gain),
  )
  return lines


def finetuned_rows(name: str, f: Finetuned) -> list[Row]:
  """Runs finetuned at a small or a large learning rate."""
  what = f"finetuned at a {name} learning rate"
  printed = paper.FINETUNED[name]
  best = "best 15 % on the validation half"
  return rows_of(
    f.accuracy.runs,
    (
      f"sd of accuracy, {what}",
      printed["sd"],
      format_percent(f.accuracy.sd, f.accuracy.sd_se),
    ),
    (
      f"sd on the distribution, {what}",
      printed["distribution"],
      format_percent(f.distribution, f.distribution_se),
    ),
    (
      f"correlation of validation and test half, {what}",
      paper.STATED[f"finetuned {name}"],
      Estimate(f.correlation, *f.interval),
    ),
    (
      f"gain on the test half of the {best}, {what}",
      printed["gain"],
      format_percent(f.gain, f.gain_se),
    ),
  )


def plot(n: Ablated, axes: np.ndarray) -> None:
  plots.accuracy_histogram(n.linear.accuracies, axes[0], examples=n.linear.examples)
  axes[0].set_title("linear model")
  axes[0].xaxis.get_major_locator().set_params(nbins=4)
  frame.legend_above(axes[0])
  draw_accuracies_and_ensembles(
    axes[1],
    {"no augmentation": n.ablations.without, "a fifth of the data": n.ablations.fifth},
  )
  axes[1].set_title("augmentation and data")
  for ax, f in zip(axes[2:], n.finetuned, strict=True):
    plots.split_scatter(f.validation, f.test, ax, correlation=f.correlation)
    ax.set(
      xlabel="accuracy on the validation half (%)",
      ylabel="accuracy on the test half (%)",
    )
    ax.set_title(f"finetuned at learning rate {f.rate:.3g}", pad=22)


def draw_accuracies_and_ensembles(
  ax: frame.Axes,
  ensembles: dict[str, AblatedEnsemble],
) -> None:
  """Accuracies, and a line at the accuracy of each ensemble."""
  for color, (name, e) in zip(
    (plots.BLUE, plots.ORANGE),
    ensembles.items(),
    strict=True,
  ):
    label = f"{name}: sd {format_percent(e.accuracy.sd)}"
    plots.accuracy_histogram(
      e.accuracy.accuracies,
      ax,
      examples=e.accuracy.examples,
      label=label,
      color=color,
    )
    ax.axvline(
      100 * e.ensemble,
      ymax=0.6,  # below the legend
      color=color,
      linestyle="--",
      label=f"its ensemble: {format_percent(e.ensemble)}",
    )
  frame.legend_above(ax)
