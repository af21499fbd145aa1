"""Pairs of examples: which two do runs tend to get right, or wrong, together (Jordan
2024, section 3.2)?
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from vmapseeds.mistakes import at_least
from vmapseeds.stats._arrays import Array, Given, ratio
from vmapseeds.stats.counts import Counts, counts_of_errors
from vmapseeds.stats.reading import read_number, read_reals, read_within

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
  least = _least_deviation(counts, threshold)
  among = _varying(counts)
  found = [_NONE]
  for rows, columns, deviation in _deviations(counts, among):
    a, b = np.nonzero(np.abs(deviation) > least)
    found.append((among[a + rows], among[b + columns], deviation[a, b]))
  i, j, deviation = map(np.concatenate, zip(*found, strict=True))
  order = np.lexsort((j, i))
  return _pairs(counts, i[order], j[order], deviation[order])


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
  return scan_pairs(counts_of_errors(errors), k=k).most_dependent


class PairScan(NamedTuple):
  """What one pass over all pairs of examples finds."""

  dependent: int  # how many pairs `dependent_pairs` returns
  most_dependent: DependentPairs


def scan_pairs(counts: Counts, threshold: float = 0.02, k: int = 10) -> PairScan:
  """Return how many `dependent_pairs` there are, and the `most_dependent_pairs`. Takes
  the memory of a block of pairs, however many pairs there are.
  """
  k, beyond = at_least("k", k, 1), _least_deviation(counts, threshold)
  among, dependent = _varying(counts), 0
  best, n = _NONE, counts.examples
  # The least deviation of the k best so far, and the place of the last of them.
  least, last = 1, n**2
  for rows, columns, signed in _deviations(counts, among):
    deviation = np.abs(signed)
    largest = deviation.max()
    if largest > beyond:
      dependent += int(np.count_nonzero(deviation > beyond))
    if largest < least:
      continue
    # Of equal deviations only pairs before the last count.
    may_tie = among[rows] * n + among[columns] < last
    if largest == least and not may_tie:
      continue
    a, b = np.nonzero(deviation >= least if may_tie else deviation > least)
    i, j, found = among[a + rows], among[b + columns], signed[a, b]
    better = (np.abs(found) > least) | (i * n + j < last)
    new = i[better], j[better], found[better]
    i, j, found = map(np.concatenate, zip(best, new, strict=True))
    order = np.lexsort((j, i, -np.abs(found)))[:k]
    best = i[order], j[order], found[order]
    if len(order) == k:
      least, last = abs(best[2][-1]), best[0][-1] * n + best[1][-1]
  i, j, found = best
  more = _first_pairs(n, k - len(i), {*zip(i.tolist(), j.tolist(), strict=True)})
  i, j = np.append(i, more[0]), np.append(j, more[1])
  found = np.append(found, np.zeros(len(more[0]), np.int64))
  return PairScan(dependent, _pairs(counts, i, j, found))


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


_NONE = (np.zeros(0, np.int64),) * 3


def _least_deviation(counts: Counts, threshold: float) -> float:
  """Return the threshold for R² |P(C_i, C_j) - P(C_i) P(C_j)|."""
  # The factor keeps the threshold itself out where the product is rounded down.
  return read_number("threshold", threshold, "[0, inf]") * counts.runs**2 * (1 + 1e-15)


def _varying(counts: Counts) -> Int[np.ndarray, "varying"]:
  """Return the examples that some runs have right and others wrong: no pair of another
  example deviates.
  """
  return np.flatnonzero((counts.wrong > 0) & (counts.wrong < counts.runs))


def _first_pairs(
  examples: int, count: int, but: set[tuple[int, int]]
) -> Int[np.ndarray, "2 pairs"]:
  """Return the first pairs i < j that are not among some others."""
  first = itertools.islice(
    itertools.combinations(range(examples), 2), count + len(but) if count else 0
  )
  pairs = [pair for pair in first if pair not in but][:count]
  return np.array(pairs, np.int64).reshape(-1, 2).T


def _pairs(
  counts: Counts, i: np.ndarray, j: np.ndarray, deviation: np.ndarray
) -> DependentPairs:
  """Return pairs from their R² (P(C_i, C_j) - P(C_i) P(C_j))."""
  right = counts.runs - counts.wrong
  expected, squared = right[i] * right[j], counts.runs**2
  joint = ratio(expected + deviation, squared)
  return DependentPairs(i, j, joint, ratio(expected, squared))


def _deviations(
  counts: Counts, among: Int[np.ndarray, "among"]
) -> Iterator[tuple[int, int, Int[np.ndarray, "rows columns"]]]:
  """Yield the first row and column of each block of pairs of the examples `among` on
  and above the diagonal, and the block's R² (P(C_i, C_j) - P(C_i) P(C_j)), whole
  numbers; 0 in diagonal blocks for the pairs that are not i < j.
  """
  runs = counts.runs
  # The difference is also that of wrong ones, R n_ij - n_i n_j. Numbers of 32 bits are
  # twice as fast.
  wrong = counts.wrong[among].astype(np.int32 if runs**2 < 2**31 else np.int64)
  for rows, columns, both in counts.joint_blocks(among):
    deviation = both.astype(wrong.dtype)
    deviation *= runs
    deviation -= wrong[rows, None] * wrong[None, columns]
    if rows == columns:
      deviation = np.triu(deviation, 1)
    yield rows.start, columns.start, deviation
