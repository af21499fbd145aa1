"""Jordan 2024, figure 8 and section 4.3: the variance between runs at many learning
rates.

The paper conjectures that the best learning rate is the largest at which the variance
hardly exceeds that of independent errors.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from experiments import estimates, frame
from experiments.frame import (
  Row,
  Spread,
  Trained,
  format_percent,
  row,
  rows_of,
  spread_of,
)
from experiments.jordan2024 import paper
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 8: accuracy and variance by learning rate"
PANELS = 2
FAR = 2.5  # times the best learning rate, where runs still learn


class Rate(NamedTuple):
  """The runs at one learning rate; those that diverged are left out."""

  rate: float
  runs: int
  diverged: int
  accuracy: Spread
  independent: float  # standard deviation that independent errors would give
  distribution: float  # equation 3, signed
  distribution_se: float


def compute(trained: Trained) -> list[Rate]:
  results = trained("learning_rates")
  wrong = results.predictions.values != results.labels.values
  rates = trained.campaigns["learning_rates"].runs.values["lr"][: len(wrong)]
  return by_rate(rates, wrong, results.diverged.values)


def by_rate(
  rates: np.ndarray,
  wrong: Bool[np.ndarray, "runs examples"],
  diverged: Bool[np.ndarray, " runs"],
) -> list[Rate]:
  """The numbers of each learning rate at which at least three runs did not diverge."""
  numbers = []
  for rate in np.unique(rates):
    errors = wrong[(rates == rate) & ~diverged]
    if len(errors) >= 3:
      independent = math.sqrt(stats.independent_errors_variance(errors))
      excess = stats.distribution_variance(errors)
      left_out = diverged[rates == rate].sum()
      numbers.append(
        Rate(
          rate,
          len(errors),
          left_out,
          spread_of(errors),
          independent,
          excess.value,
          excess.se,
        )
      )
  return numbers


def rows(numbers: Sequence[Rate]) -> list[Row]:
  best = max(numbers, key=lambda n: n.accuracy.mean)
  doubled = paper.STATED["rate doubled"]
  alone = paper.STATED["rate best"]
  lines = rows_of(
    best.runs,
    ("best learning rate", paper.BEST_RATE, f"{best.rate:g}"),
    ("mean accuracy at the best", None, format_percent(*best.accuracy[2:4])),
    (
      "sd of accuracy at the best",
      paper.SD_BEST_RATE,
      format_percent(*best.accuracy[4:6]),
    ),
    (alone.statistic, alone, variance_over_independent(best)),
  )
  twice = next(
    (n for n in numbers if math.isclose(n.rate, 2 * best.rate, rel_tol=1e-5)), None
  )
  if twice:
    ratio = estimates.ratio_of(
      estimates.positive_estimate(twice.accuracy.sd, twice.accuracy.sd_se),
      estimates.positive_estimate(best.accuracy.sd, best.accuracy.sd_se),
    )
    lines += rows_of(
      twice.runs,
      ("mean accuracy at twice the best", None, format_percent(*twice.accuracy[2:4])),
      (
        "sd of accuracy at twice the best",
        paper.SD_TWICE_BEST_RATE,
        format_percent(*twice.accuracy[4:6]),
      ),
      (doubled.statistic, doubled, ratio),
    )
  far = next((n for n in numbers if n.rate > FAR * best.rate), None)
  if far:
    claim = paper.STATED["rate far"]
    quantity = f"{claim.statistic}, {far.rate:g}"
    lines += rows_of(far.runs, (quantity, claim, variance_over_independent(far)))
  diverged = ", ".join(f"{n.diverged} at {n.rate:g}" for n in numbers if n.diverged)
  runs = sum(n.runs for n in numbers)
  return [*lines, row("runs that diverged, left out", None, diverged or "0", runs)]


def variance_over_independent(n: Rate) -> estimates.Estimate:
  """The variance over that of independent errors, which is taken as known."""
  ratio = (n.accuracy.sd / n.independent) ** 2 if n.independent else math.nan
  return estimates.positive_estimate(
    ratio, 2 * ratio * n.accuracy.sd_se / n.accuracy.sd
  )


def plot(numbers: Sequence[Rate], axes: np.ndarray) -> None:
  mean_ax, sd_ax = axes
  rates = [n.rate for n in numbers]
  mean, mean_se, sd, sd_se = 100 * np.array([n.accuracy[2:6] for n in numbers]).T
  distribution, se = np.array([frame.sqrt_with_se(*n[5:7]) for n in numbers]).T * 100
  mean_ax.errorbar(rates, mean, 2 * mean_se, color=plots.BLUE, marker="o", capsize=3)
  mean_ax.set(xlabel="learning rate", ylabel="mean test accuracy (%)")
  sd_ax.errorbar(
    rates,
    sd,
    2 * sd_se,
    color=plots.BLUE,
    marker="o",
    capsize=3,
    label="test set",
  )
  sd_ax.plot(
    rates,
    [100 * n.independent for n in numbers],
    color=plots.VERMILION,
    linestyle="--",
    marker=".",
    label="errors independent",
  )
  sd_ax.errorbar(
    rates,
    distribution,
    np.minimum(2 * se, 0.999 * distribution),
    color=plots.GREEN,
    marker="s",
    capsize=3,
    label="distribution; none if equation 3 is below 0",
  )
  sd_ax.set(
    xlabel="learning rate",
    ylabel="standard deviation of accuracy (%)",
    yscale="log",
  )
  sd_ax.legend()
  # Intervals of the distribution may reach down to 0.
  sd_ax.set_ylim(bottom=15 * min(n.independent for n in numbers))
  ticks = rates
  if len(rates) > 16:
    ticks = rates[::2]
  for ax in axes:
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [f"{rate:.2g}" for rate in ticks], rotation=60)
    ax.minorticks_off()
    ax.grid(True)
