"""What very many runs teach that some hundred cannot: how good intervals are, and how
many runs each claim needs.

Everything is computed from tallies. Groups of runs are drawn from the numbers of errors
that real runs make on both halves of the test set. The variance that independent errors
would give is that of all runs; intervals take it as known.
"""

import bisect
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np
import scipy.stats
from jaxtyping import Float, Int

from vmapseeds import stats

LEVEL = 0.95
DRAWS = 200
Ends = tuple[float, float]


class Intervals(NamedTuple):
  """Intervals of 95 % from some runs."""

  mean: Ends
  variance: Ends
  distribution: Ends  # equation 3
  correlation: Ends  # of the halves


def intervals_of_halves(
  halves: Int[np.ndarray, "2 runs"],
  independent: float,
  examples: int,
) -> Intervals:
  """Intervals from the runs' numbers of errors on both halves and the variance that
  independent errors would give.
  """
  rates = halves.sum(0) / examples
  variance = stats.variance_over_runs(rates).interval
  scale = examples / (examples - 1)
  # As in `stats.distribution_variance`. No variance of a rate exceeds 1/4.
  distribution = [min(scale * (end - independent), 0.25) for end in variance]
  return Intervals(
    tuple(stats.mean_over_runs(rates).interval),
    tuple(variance),
    tuple(distribution),
    tuple(stats.correlation_over_runs(*halves).interval),
  )


def true_values(tallies: stats.Tallies) -> Intervals:
  """The true values that the intervals estimate, from all runs; both ends are the
  value.
  """
  mean = tallies.example_error_rates().mean()
  variance = tallies.test_set_variance().value
  distribution = tallies.distribution_variance().value
  correlation = tallies.split_correlation().value
  return Intervals(
    (mean, mean),
    (variance, variance),
    (distribution, distribution),
    (correlation, correlation),
  )


class Coverage(NamedTuple):
  """How many of some disjoint groups of real runs have intervals that contain the value
  from all runs.
  """

  groups: int
  held: dict[str, int]


def groups_of_runs(
  tallies: stats.Tallies,
  size: int,
) -> list[Int[np.ndarray, "2 size"]]:
  """The numbers of errors on both halves of disjoint groups of `size` runs."""
  order = np.random.default_rng(0).permutation(tallies.runs)
  shuffled = tallies.halves[:, order]
  starts = range(0, tallies.runs - size + 1, size)
  return [shuffled[:, start : start + size] for start in starts]


def coverage_of_groups(tallies: stats.Tallies, size: int) -> Coverage:
  """The coverage over disjoint groups of `size` runs.

  Equation 3's interval is left out: it is the variance's, moved by a constant, and
  holds when that does.
  """
  independent = tallies.independent_errors_variance().value
  truth = true_values(tallies)
  drawn = groups_of_runs(tallies, size)
  by_group = [
    intervals_of_halves(group, independent, tallies.examples) for group in drawn
  ]
  ends = {"gain": [gain_interval(tallies, group) for group in drawn]}
  for name in ("mean", "variance", "correlation"):
    ends[name] = [getattr(group, name) for group in by_group]

  values = {name: value for name, (value, _) in truth._asdict().items()}
  values["gain"] = tallies.top_fraction_gain().mean
  held = {}
  for name in ("mean", "variance", "correlation", "gain"):
    held[name] = sum(low <= values[name] <= high for low, high in ends[name])
  return Coverage(len(drawn), held)


def gain_interval(tallies: stats.Tallies, halves: Int[np.ndarray, "2 runs"]) -> Ends:
  """The interval of the top quarter's gain from some of the runs."""
  # The gain does not read the votes.
  some = stats.Tallies.from_counts(tallies.labels, tallies.votes, halves)
  gain = some.top_fraction_gain_bootstrap(key=jax.random.key(0))
  return float(gain.low), float(gain.high)


def half_width(tallies: stats.Tallies, size: int) -> float:
  """Half the width of equation 3's interval from `size` runs, relative to the value
  from all runs: the median over disjoint groups.
  """
  independent = tallies.independent_errors_variance().value
  interval_ends = [
    intervals_of_halves(group, independent, tallies.examples).distribution
    for group in groups_of_runs(tallies, size)
  ]
  if not interval_ends:
    return math.nan
  widths = [high - low for low, high in interval_ends]
  return np.median(widths) / 2 / true_values(tallies).distribution[0]


class Skewness(NamedTuple):
  """The skewness of accuracy over runs, and the p-value of no skew."""

  skewness: float
  p_value: float


def skewness_of_accuracy(halves: Int[np.ndarray, "2 runs"]) -> Skewness:
  """The p-value is by the normal approximation with the variance of the skewness's
  influence function, so that tails need not be a normal distribution's; NaN if all runs
  are as accurate.
  """
  right = -halves.sum(0)
  if not np.ptp(right):
    return Skewness(math.nan, math.nan)
  z = (right - right.mean()) / right.std()
  skewness = (z**3).mean()
  # What one run adds: by the third moment, by the mean, and by the variance.
  influence = z**3 - 3 * z - skewness - 1.5 * skewness * (z**2 - 1)
  se = influence.std() / math.sqrt(len(z))
  p_value = 2 * scipy.stats.norm.sf(abs(skewness) / se)
  return Skewness(skewness, p_value)


def skewed(tallies: stats.Tallies, size: int, level: float) -> float:
  """The share of disjoint groups of `size` runs whose skewness has p below `level`."""
  are_skewed = []
  for group in groups_of_runs(tallies, size):
    are_skewed.append(skewness_of_accuracy(group).p_value < level)
  return np.mean(are_skewed)


# Claims: each takes the intervals of a short and a long training, and the
# independent-errors variance of each.

Claim = Callable[[Intervals, Intervals, float, float], bool]
CLAIMS: dict[str, Claim] = {
  "figure 1: sd of accuracy falls": lambda short, long, *_: (
    long.variance[1] < short.variance[0]
  ),
  "figure 2: correlation of the halves falls": lambda short, long, *_: (
    long.correlation[1] < short.correlation[0]
  ),
  # The ratio of test-set to distribution-wise variance rises exactly when this ratio
  # falls.
  "figures 3, 5: variance over independent errors' falls": (
    lambda short, long, of_short, of_long: (
      long.variance[1] / of_long < short.variance[0] / of_short
    )
  ),
  "equation 3 is above 0 after the long training": lambda short, long, *_: (
    long.distribution[0] > 0
  ),
}


def claim_shares(
  short: stats.Tallies,
  long: stats.Tallies,
  size: int,
) -> dict[str, float]:
  """The share of draws of `size` runs of each training that show each claim: their
  intervals leave no doubt.
  """
  rng = np.random.default_rng(size)
  trainings = (short, long)
  independent = [each.independent_errors_variance().value for each in trainings]
  times_seen = dict.fromkeys(CLAIMS, 0)
  for _ in range(DRAWS):
    drawn = []
    for tallies, own_variance in zip(trainings, independent, strict=True):
      chosen = rng.choice(tallies.runs, size, replace=False)
      halves = tallies.halves[:, chosen]
      drawn.append(intervals_of_halves(halves, own_variance, tallies.examples))
    for name, claim in CLAIMS.items():
      times_seen[name] += bool(claim(*drawn, *independent))
  return {name: count / DRAWS for name, count in times_seen.items()}


def group_sizes(runs: int) -> list[int]:
  """Powers of 2 from 8 on, at most a quarter of all runs, so that draws are not all the
  same.
  """
  return [2**k for k in range(3, 30) if 2**k <= runs / 4]


def smallest(by_size: Mapping[int, float]) -> int | None:
  """The least number of runs from which on at least 95 % of the draws show a claim;
  None if there is none.
  """
  enough = None
  for size in sorted(by_size, reverse=True):
    if by_size[size] < LEVEL:
      break
    enough = size
  return enough


def pairs_seen(
  tallies: stats.Tallies,
  runs: Int[np.ndarray, " sizes"],
) -> Float[np.ndarray, " sizes"]:
  """The share of pairs of examples, right in 30 to 70 % of the runs, whose χ² test with
  so many runs has p < 5 %.

  The power is by the non-central χ² distribution with parameter runs · φ². φ² is that
  of all runs, less what chance adds to it.
  """
  wrong = tallies.wrong.astype(float)
  total = tallies.runs
  middle = middling(tallies)
  first, second = np.triu_indices(len(middle), 1)
  i = middle[first]
  j = middle[second]
  # φ² of a table of two by two, from its counts.
  covariance = total * tallies.joint_errors[i, j] - wrong[i] * wrong[j]
  variance_i = wrong[i] * (total - wrong[i])
  variance_j = wrong[j] * (total - wrong[j])
  phi_squared = covariance**2 / (variance_i * variance_j)
  beyond_chance = np.maximum(phi_squared - 1 / total, 0)

  limit = scipy.stats.chi2.isf(0.05, 1)
  shares = []
  for count in runs:
    # SciPy's law has no parameter of 0.
    parameter = np.maximum(count * beyond_chance, 1e-9)
    shares.append(scipy.stats.ncx2.sf(limit, 1, parameter).mean())
  return np.array(shares)


def middling(tallies: stats.Tallies) -> Int[np.ndarray, " chosen"]:
  """The examples that 30 to 70 % of the runs get right."""
  rates = tallies.wrong / tallies.runs
  return np.flatnonzero((rates >= 0.3) & (rates <= 0.7))


def half_seen(tallies: stats.Tallies) -> tuple[int | None, int, int]:
  """The least number of runs with which half of the pairs of `pairs_seen` are seen, None
  if all runs are too few; how many pairs there are, and of how many examples.
  """
  chosen = len(middling(tallies))
  grid = range(1, tallies.runs + 1)

  def share_seen(runs: int) -> float:
    return pairs_seen(tallies, np.array([runs]))[0]

  # More runs see more pairs.
  least = bisect.bisect_left(grid, 0.5, key=share_seen)
  needed = None
  if chosen > 1 and least < len(grid):
    needed = grid[least]
  return needed, chosen * (chosen - 1) // 2, chosen
