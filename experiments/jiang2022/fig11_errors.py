"""Jiang 2022, figure 11: how many of the runs have an example wrong, beside a Beta
distribution.

If all examples were either easy, right in every run, or hard, guessed by each run at
random, disagreement would equal the error on each of them. Error rates have no such two
peaks: a Beta distribution fits them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Bool, Float, Int

from experiments.estimates import Estimate, student_estimate
from experiments.frame import Row, format_number, rows_of
from experiments.jiang2022 import groups, paper
from experiments.jiang2022.fig06_calibration import PANEL
from experiments.jiang2022.groups import COLORS, Group
from experiments.measures import BetaFit
from vmapseeds import stats

TITLE = "Figure 11: distribution of error rates over test examples, and Beta fits"
PANELS = 2
BINS = 10
RESAMPLES = 100


class Share(NamedTuple):
  """A fraction of the test examples, with its interval."""

  value: float
  low: float
  high: float


class ErrorRates(NamedTuple):
  """Error rates of the test examples. Standard errors are over test examples, by the
  bootstrap.
  """

  runs: int
  # Examples that no run, one run, ... all runs have wrong
  counts: Int[np.ndarray, " counts"]
  fit: BetaFit
  a_se: float
  b_se: float
  # The largest between the distribution functions of error counts and of the fit
  distance: float
  distance_se: float
  neither: Share  # examples wrong in some runs, but in fewer than if each run guessed
  more: (
    Share  # examples on which runs disagree more often than they err, by at least 0.1
  )
  less: (
    Share  # examples on which they disagree less often than they err, by at least 0.1
  )


def error_rates(group: Group) -> ErrorRates:
  (runs, examples), classes = group.predictions.shape, group.num_classes
  wrong = (group.predictions != group.labels).sum(0)
  counts = np.bincount(wrong, minlength=runs + 1)
  fit, distance = fit_beta(counts)
  resampled = np.random.default_rng(0).multinomial(
    examples,
    counts / examples,
    RESAMPLES,
  )
  ses = np.std(
    [(*fit, distance) for fit, distance in map(fit_beta, resampled)],
    axis=0,
    ddof=1,
  )
  # At most 1 guessed example in 1000 has fewer errors
  guessed = scipy.stats.binom(runs, 1 - 1 / classes).ppf(0.001)
  votes = runs * stats.vote_fractions(group.predictions, classes)
  disagreement = 1 - (votes * (votes - 1)).sum(1) / (runs * (runs - 1))
  excess = disagreement - wrong / runs
  shares = (
    share_of(which)
    for which in ((wrong > 0) & (wrong < guessed), excess >= 0.1, excess <= -0.1)
  )
  return ErrorRates(runs, counts, fit, *ses[:2], distance, ses[2], *shares)


compute = groups.computed("cifar10", error_rates)


def fit_beta(counts: Int[np.ndarray, " counts"]) -> tuple[BetaFit, float]:
  """The Beta distribution of error rates under which the counts are likeliest, and how
  far the counts it predicts are from the observed ones.
  """
  runs = len(counts) - 1
  wrong = np.arange(runs + 1)

  def loss(log_parameters: np.ndarray) -> float:
    law = scipy.stats.betabinom(runs, *np.exp(log_parameters))
    return -(counts @ law.logpmf(wrong)) / counts.sum()

  start = np.log([0.1, 1.0])
  found = scipy.optimize.minimize(loss, start, method="Nelder-Mead")
  fit = BetaFit(*np.exp(found.x))
  return fit, abs(counts.cumsum() / counts.sum() - law(fit, runs).cumsum()).max()


def law(fit: BetaFit, runs: int) -> Float[np.ndarray, " counts"]:
  """Probabilities of error counts when error rates follow a Beta distribution."""
  return scipy.stats.betabinom.pmf(np.arange(runs + 1), runs, fit.a, fit.b)


def share_of(which: Bool[np.ndarray, " examples"]) -> Share:
  return Share(
    which.mean(), *stats.proportion_over_examples(which.mean(), len(which)).interval
  )


def rows(numbers: Mapping[str, ErrorRates]) -> list[Row]:
  lines = []
  for name, n in numbers.items():
    parameters = (
      f"a = {format_number(n.fit.a, n.a_se)}, b = {format_number(n.fit.b, n.b_se)}"
    )
    lines += rows_of(
      n.runs,
      (f"Beta fit, {name}", None, parameters),
      (
        f"distance from the Beta fit, {name}",
        paper.STATED["beta"],
        student_estimate(n.distance, n.distance_se),
      ),
    )
    shares = {
      "neither right in all runs nor guessed": n.neither,
      "runs disagree more than they err": n.more,
      "runs disagree less than they err": n.less,
    }
    lines += rows_of(
      n.runs,
      *(
        (
          f"examples, {which}, {name}",
          paper.STATED["some examples"],
          Estimate(*estimate, unit="%"),
        )
        for which, estimate in shares.items()
      ),
    )
  return lines


def plot(numbers: Mapping[str, ErrorRates], axes: np.ndarray) -> None:
  """Left: groups with different training sets. Right: groups with one. Dashed: the
  fits' counts for as many runs.
  """
  for name, n in numbers.items():
    ax = axes[PANEL[name]]
    color = COLORS[name]
    bins = min(BINS, n.runs + 1)
    bin_of = np.minimum(bins * np.arange(n.runs + 1) // n.runs, bins - 1)
    # With 100 runs, bins hold ten counts of runs but one holds eleven: so heights are
    # means over a bin's counts.
    counts_in_bin = np.bincount(bin_of)
    examples = np.bincount(bin_of, n.counts) / counts_in_bin
    expected = n.counts.sum() * law(n.fit, n.runs)
    fitted = np.bincount(bin_of, expected) / counts_in_bin
    edges = np.linspace(0, 100, bins + 1)
    ax.stairs(examples, edges, color=color, fill=True, alpha=0.25)
    ax.stairs(
      examples,
      edges,
      color=color,
      linewidth=1.5,
      label=f"{name}, {n.runs} runs",
    )
    ax.plot(
      (edges[1:] + edges[:-1]) / 2,
      fitted,
      "o--",
      color=color,
      markersize=4,
      label=f"Beta({n.fit.a:.2f}, {n.fit.b:.2f})",
    )
  for ax in axes:
    ax.set(
      xlabel="runs that have the example wrong (%)",
      ylabel="test examples per number of runs",
      yscale="log",
    )
    ax.set_ylim(top=4 * ax.get_ylim()[1])
    ax.legend(loc="upper center")
