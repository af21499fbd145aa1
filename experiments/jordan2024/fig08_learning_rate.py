"""Jordan 2024, figure 8 and section 4.3: the variance between runs at thirteen learning
rates.

The paper's best learning rate is the largest at which the variance hardly exceeds that
of independent errors.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from experiments import frame
from experiments.frame import Row, Spread, Trained, number, of_runs, percent, spread
from experiments.jordan2024 import paper
from vmapseeds import stats
from vmapseeds.reports import plots

TITLE = "Figure 8: accuracy and variance at thirteen learning rates"
PANELS = 2


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
  return by_rate(results.lr.values, wrong, results.diverged.values)


def by_rate(
  rates: np.ndarray,
  wrong: Bool[np.ndarray, "runs examples"],
  diverged: Bool[np.ndarray, " runs"],
) -> list[Rate]:
  """The numbers of each learning rate at which at least three runs did not diverge."""
  found = []
  for rate in np.unique(rates):
    errors = wrong[(rates == rate) & ~diverged]
    if len(errors) >= 3:
      independent = math.sqrt(stats.independent_errors_variance(errors))
      excess = (
        stats.distribution_variance(errors),
        stats.distribution_variance_se(errors),
      )
      left_out = diverged[rates == rate].sum()
      found.append(
        Rate(rate, len(errors), left_out, spread(errors), independent, *excess)
      )
  return found


def apart(a: tuple[float, float], b: tuple[float, float]) -> bool:
  """Whether the first number is above the second by more than two standard errors of
  their difference.
  """
  return a[0] - b[0] > 2 * math.hypot(a[1], b[1])


def rows(numbers: Sequence[Rate]) -> list[Row]:
  best = max(numbers, key=lambda n: n.accuracy.mean)
  alike = [n for n in numbers if not apart(best.accuracy[2:4], n.accuracy[2:4])]
  least = min(numbers, key=lambda n: n.accuracy.sd)
  narrow = not apart(best.accuracy[4:6], least.accuracy[4:6])
  above = [n for n in numbers if n.rate > best.rate]
  # At very large rates all runs fail alike and vary little again: so stop at the first
  # rate that varies more.
  alike_above = list(itertools.takewhile(lambda n: not apart(n[5:7], best[5:7]), above))
  edge = above and not alike_above
  lines = of_runs(
    best.runs,
    (
      "best learning rate",
      paper.BEST_RATE,
      f"{best.rate:g}; within two standard errors: {listed(alike)}",
    ),
    ("mean accuracy at the best", None, percent(*best.accuracy[2:4])),
    (
      "sd of accuracy at the best",
      paper.SD_BEST_RATE,
      percent(*best.accuracy[4:6]),
      narrow,
      "" if narrow else f"it is {percent(*least.accuracy[4:6])} at {least.rate:g}",
    ),
  )
  twice = next(
    (n for n in numbers if math.isclose(n.rate, 2 * best.rate, rel_tol=1e-5)), None
  )
  if twice:
    more, less = apart(twice[5:7], best[5:7]), apart(best[5:7], twice[5:7])
    holds = True if more else False if less else None
    why = {
      False: "it is less",
      None: f"too few runs tell {twice.rate:g} from {best.rate:g}",
    }
    difference = (twice.distribution - best.distribution) / best.accuracy.sd**2
    error = (
      math.hypot(twice.distribution_se, best.distribution_se) / best.accuracy.sd**2
    )
    ratio = (
      f"{twice.distribution / best.distribution:,.1f}" if best.distribution > 0 else "—"
    )
    said = f"{ratio}; the difference is {number(difference, error)} times the best's variance on the test set"
    lines += of_runs(
      twice.runs,
      (
        "sd of accuracy at twice the best",
        paper.SD_TWICE_BEST_RATE,
        percent(*twice.accuracy[4:6]),
      ),
      (
        "variance on the distribution, twice the best over the best",
        paper.TWICE_OVER_BEST,
        said,
        holds,
        why,
      ),
    )
  said = f"{(alike_above or [best])[-1].rate:g}; the best is {best.rate:g}"
  why = (
    ""
    if edge
    else "larger ones have no more of it"
    if above
    else "no larger one has runs that did not diverge"
  )
  diverged = ", ".join(f"{n.diverged} at {n.rate:g}" for n in numbers if n.diverged)
  return lines + of_runs(
    sum(n.runs for n in numbers),
    (
      "largest learning rate without more variance on the distribution than the best",
      paper.LARGEST_WITHOUT_EXCESS,
      said,
      edge,
      why,
    ),
    ("runs that diverged, left out", None, diverged or "0"),
  )


def listed(numbers: Sequence[Rate]) -> str:
  return ", ".join(f"{n.rate:g}" for n in numbers)


def plot(numbers: Sequence[Rate], axes: np.ndarray) -> None:
  left, right = axes
  rates = [n.rate for n in numbers]
  mean, mean_se, sd, sd_se = 100 * np.array([n.accuracy[2:6] for n in numbers]).T
  distribution, se = np.array([frame.root(*n[5:7]) for n in numbers]).T * 100
  left.errorbar(rates, mean, 2 * mean_se, color=plots.BLUE, marker="o", capsize=3)
  left.set(xlabel="learning rate", ylabel="mean test accuracy (%)")
  right.errorbar(
    rates, sd, 2 * sd_se, color=plots.BLUE, marker="o", capsize=3, label="test set"
  )
  right.plot(
    rates,
    [100 * n.independent for n in numbers],
    color=plots.VERMILION,
    linestyle="--",
    marker=".",
    label="errors independent",
  )
  right.errorbar(
    rates,
    distribution,
    np.minimum(2 * se, 0.999 * distribution),
    color=plots.GREEN,
    marker="s",
    capsize=3,
    label="distribution (equation 3)",
  )
  right.set(
    xlabel="learning rate", ylabel="standard deviation of accuracy (%)", yscale="log"
  )
  right.legend()
  for ax in axes:
    ax.set_xscale("log", base=2)
    ax.grid(True)
