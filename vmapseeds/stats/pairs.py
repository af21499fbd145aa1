"""Pairs of examples: which two do runs tend to get right, or wrong, together (Jordan
2024, section 3.2)?
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from vmapseeds.mistakes import at_least
from vmapseeds.stats._arrays import Array, Given, ratio
from vmapseeds.stats.counts import Counts, counts_of_errors
from vmapseeds.stats.reading import read_number, read_reals, read_within

Joint = Int[np.ndarray, "rows columns"]

# `expected_false_pairs` bins examples by standard deviation, into bins so fine that the
# result hardly changes.
_BINS = 1000


class DependentPairs(NamedTuple):
  """Pairs i < j of examples, the probability that a run has both right, and the product
  of the two's own.
  """

  i: Int[Array, "pairs"]
  j: Int[Array, "pairs"]
  joint: Float[Array, "pairs"]
  product: Float[Array, "pairs"]


def dependent_pairs(
  errors: Given["runs examples"] | Counts, threshold: float = 0.02
) -> DependentPairs:
  """Return the pairs of examples whose being right is far from independent over the
  runs.

      |P(C_i, C_j) - P(C_i) P(C_j)| > threshold

  C_i: the run has example i right (not wrong). P is the fraction of the runs, so a
  pair's deviation has a standard deviation of up to 0.25/√R by chance alone. Take
  10,000 independent examples with error rates like CIFAR-10's (Beta(0.1, 1.5), mean 6
  %): of their 5·10⁷ pairs about 20,000 pass 0.02 at 500 runs, and about one at 3,000.
  See `expected_false_pairs`. Counts are compared exactly, block by block of examples.

  Args:
    errors: (runs, examples), bool or 0/1.
    threshold: an absolute difference of probabilities, 0 or more; pairs exactly at it
      are left out.

  Returns:
    `i` < `j` (from 0, in order), `joint` = P(C_i, C_j) and `product` = P(C_i) P(C_j),
    (pairs,) each. Empty for a single run or a single example.

  Raises:
    Mistake: 2^24 runs or more.

  Source: jordan2024, section 3.2, figures 4 and 14.

  >>> pairs = dependent_pairs([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
  >>> print(pairs.i, pairs.j, pairs.joint, pairs.product)
  [0] [1] [0.5] [0.25]
  """
  counts = counts_of_errors(errors)
  # The factor keeps the threshold itself out where the product is rounded down.
  least = read_number("threshold", threshold, "[0, inf]")
  least *= counts.runs**2 * (1 + 1e-15)
  found = [_NONE]
  for rows, columns, both, expected in _blocks(counts):
    a, b = np.nonzero(np.abs(both - expected) > least)
    found.append((a + rows, b + columns, both[a, b], expected[a, b]))
  i, j, both, expected = map(np.concatenate, zip(*found, strict=True))
  order = np.lexsort((j, i))
  return _pairs(i[order], j[order], both[order], expected[order], runs=counts.runs)


def most_dependent_pairs(
  errors: Given["runs examples"] | Counts, k: int = 10
) -> DependentPairs:
  """Return the k pairs of examples whose being right is farthest from independent over
  the runs, the farthest first.

      |P(C_i, C_j) - P(C_i) P(C_j)| = (R - 1)/R |Cov(err_i, err_j)|

  C_i: the run has example i right (not wrong), P is the fraction of the runs and the
  covariance has ddof = 1: these are also the pairs of largest |covariance|. Deviations
  are compared exactly; of equal ones the pair of lower i, then lower j, comes first.
  Takes the memory of a block of pairs and of 2k more.

  Args:
    errors: (runs, examples), bool or 0/1.
    k: how many pairs, at least 1.

  Returns:
    `i` < `j` (from 0), `joint` = P(C_i, C_j) and `product` = P(C_i) P(C_j), (pairs,)
    each: all pairs where there are fewer than k, so none for a single example. With a
    single run no pair deviates and the first ones come back.

  Source: jordan2024, section 3.2, figures 4 and 14, which show all pairs beyond a
    threshold.

  >>> pairs = most_dependent_pairs([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]], k=1)
  >>> print(pairs.i, pairs.j, pairs.joint, pairs.product)
  [0] [1] [0.5] [0.25]
  """
  k, counts = at_least("k", k, 1), counts_of_errors(errors)
  best, n = _NONE, counts.examples
  # The least deviation of the k best so far, and the place of the last of them.
  least, last = 0, n**2
  for rows, columns, both, expected in _blocks(counts):
    deviation = np.abs(both - expected)
    if deviation.max() < least:
      continue
    near = deviation >= least
    a, b = np.nonzero(np.triu(near, 1) if rows == columns else near)
    better = (deviation[a, b] > least) | ((a + rows) * n + b + columns < last)
    a, b = a[better], b[better]
    new = a + rows, b + columns, both[a, b], expected[a, b]
    i, j, both, expected = map(np.concatenate, zip(best, new, strict=True))
    order = np.lexsort((j, i, -np.abs(both - expected)))[:k]
    best = i[order], j[order], both[order], expected[order]
    if len(order) == k:
      least, last = abs(best[2][-1] - best[3][-1]), best[0][-1] * n + best[1][-1]
  return _pairs(*best, runs=counts.runs)


def expected_false_pairs(
  rates: Given["examples"], runs: int, threshold: float = 0.02
) -> Float[Array, ""]:
  """Return how many pairs would pass the threshold of `dependent_pairs` by chance if
  all examples were independent.

      Σ_{i<j} P(|Z| √(ε_i (1 - ε_i) ε_j (1 - ε_j)/R) > threshold), Z standard normal

  If this is not far below the number of pairs found, few of them mean anything. Rates
  may be estimated from the same runs. Examples of nearly the same ε (1 - ε) are
  grouped, which changes the sum by about a thousandth.

  Args:
    rates: (examples,), probabilities of being wrong, or of being right: for example
      `example_error_rates(errors)`.
    runs: R, at least 1.
    threshold: an absolute difference of probabilities, 0 or more.

  Returns:
    0-d, from 0 to n (n - 1)/2.

  Source: ours; with the paper's 60,000 runs none is expected.

  >>> print(expected_false_pairs([0.5] * 10_000, runs=500).round())
  3681545.0
  """
  rates = read_within("rates", read_reals("rates", rates, "examples"), "[0, 1]")
  runs, threshold = (
    at_least("runs", runs, 1),
    read_number("threshold", threshold, "[0, inf]"),
  )
  spread = np.sqrt(rates * (1 - rates))
  # All examples of a bin get its mean deviation; a bin is only 1/2000 wide.
  place = np.minimum(2 * _BINS * spread, _BINS - 1).astype(int)
  held, total = (
    np.bincount(place, weights, _BINS) for weights in (np.ones_like(spread), spread)
  )
  mean = total / np.maximum(held, 1)
  sd = mean[:, None] * mean / runs**0.5
  # No pair passes of an example that is always right or always wrong.
  passes = np.nan_to_num(scipy.special.erfc(ratio(threshold, 2**0.5 * sd)))
  ordered = (held[:, None] * held * passes).sum() - (held * np.diagonal(passes)).sum()
  return np.asarray(ordered / 2)


_NONE = (np.zeros(0, np.int64),) * 4


def _pairs(
  i: np.ndarray, j: np.ndarray, both: np.ndarray, expected: np.ndarray, *, runs: int
) -> DependentPairs:
  return DependentPairs(i, j, ratio(both, runs**2), ratio(expected, runs**2))


def _blocks(counts: Counts) -> Iterator[tuple[int, int, Joint, Joint]]:
  """Yield the first i and j of each block of pairs on and above the diagonal, and the
  block's R² P(C_i, C_j) and R² P(C_i) P(C_j), whole numbers.

  In diagonal blocks the pairs that are not i < j are made to look independent.
  """
  runs, right = counts.runs, counts.runs - counts.wrong
  for rows, columns, wrong in counts.joint_blocks():
    expected = right[rows, None] * right[None, columns]
    both = runs * (right[rows, None] + right[None, columns] - runs + wrong)
    if rows == columns:
      both = np.where(np.triu(np.ones(both.shape, bool), 1), both, expected)
    yield rows.start, columns.start, both, expected
