"""Pairs of examples: which two do runs tend to get right, or wrong, together (Jordan
2024, section 3.2)?
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from vmapseeds.errors import check_at_least
from vmapseeds.stats._arrays import Array, Given, safe_divide
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
  errors: Given["runs examples"] | Counts,
  threshold: float = 0.02,
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
    UserError: 2^24 runs or more.

  Source: jordan2024, section 3.2, figures 4 and 14.

  >>> pairs = dependent_pairs([[0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 1, 0]])
  >>> print(pairs.i, pairs.j, pairs.joint, pairs.product)
  [0] [1] [0.5] [0.25]
  """
  counts = counts_of_errors(errors)
  least = _least_deviation(counts, threshold)
  among = _varying(counts)
  parts = [_NONE]
  for first_row, first_column, deviation in _deviations(counts, among):
    row, column = np.nonzero(np.abs(deviation) > least)
    part = _Deviating(
      i=among[first_row + row],
      j=among[first_column + column],
      deviation=deviation[row, column],
    )
    parts.append(part)
  deviating = _joined(parts)
  # Blocks come in another order than the pairs of all their rows.
  order = np.lexsort((deviating.j, deviating.i))
  return _pairs(counts, deviating.take(order))


def most_dependent_pairs(
  errors: Given["runs examples"] | Counts,
  k: int = 10,
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


def scan_pairs(
  counts: Counts,
  threshold: float = 0.02,
  k: int = 10,
) -> PairScan:
  """Return how many `dependent_pairs` there are, and the `most_dependent_pairs`. Takes
  the memory of a block of pairs, however many pairs there are.
  """
  k = check_at_least("k", k, 1)
  beyond = _least_deviation(counts, threshold)
  among = _varying(counts)
  n = counts.examples
  dependent = 0
  best = _NONE
  # The least deviation of the k best so far, and the place of the last of them.
  least = 1
  last = n**2
  for first_row, first_column, signed in _deviations(counts, among):
    deviation = np.abs(signed)
    largest = deviation.max()
    if largest > beyond:
      dependent += int(np.count_nonzero(deviation > beyond))

    # Most blocks end here. Of equal deviations only pairs before the last count.
    first_place = among[first_row] * n + among[first_column]
    may_tie = first_place < last
    if largest < least or (largest == least and not may_tie):
      continue
    is_candidate = deviation >= least if may_tie else deviation > least
    row, column = np.nonzero(is_candidate)
    candidates = _Deviating(
      i=among[first_row + row],
      j=among[first_column + column],
      deviation=signed[row, column],
    )
    places = candidates.i * n + candidates.j
    better = (np.abs(candidates.deviation) > least) | (places < last)
    joined = _joined([best, candidates.take(better)])
    # The farthest first, then in order.
    distance = np.abs(joined.deviation)
    order = np.lexsort((joined.j, joined.i, -distance))
    best = joined.take(order[:k])
    if len(best.i) == k:
      least = abs(best.deviation[-1])
      last = best.i[-1] * n + best.j[-1]

  # Pairs that do not deviate are not looked at, and stand last, in their order.
  known = set(zip(best.i.tolist(), best.j.tolist(), strict=True))
  i, j = _first_pairs(n, k - len(best.i), known)
  without_deviation = _Deviating(i, j, np.zeros(len(i), np.int64))
  return PairScan(dependent, _pairs(counts, _joined([best, without_deviation])))


def expected_false_pairs(
  rates: Given["examples"],
  runs: int,
  threshold: float = 0.02,
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
  runs = check_at_least("runs", runs, 1)
  threshold = read_number("threshold", threshold, "[0, inf]")

  # All examples of a bin get its mean deviation; a bin is only 1/2000 wide.
  spread = np.sqrt(rates * (1 - rates))
  place = np.minimum(2 * _BINS * spread, _BINS - 1).astype(int)
  size = np.bincount(place, np.ones_like(spread), _BINS)
  total = np.bincount(place, spread, _BINS)
  mean = total / np.maximum(size, 1)
  sd = mean[:, None] * mean / runs**0.5
  # No pair passes of an example that is always right or always wrong.
  passes = scipy.special.erfc(safe_divide(threshold, 2**0.5 * sd))
  passes = np.nan_to_num(passes)
  # Both orders of each pair, less each example with itself.
  ordered = (size[:, None] * size * passes).sum()
  with_itself = (size * np.diagonal(passes)).sum()
  return np.asarray((ordered - with_itself) / 2)


class _Deviating(NamedTuple):
  """Pairs i, j of examples, and their R² (P(C_i, C_j) - P(C_i) P(C_j))."""

  i: Int[np.ndarray, "pairs"]
  j: Int[np.ndarray, "pairs"]
  deviation: Int[np.ndarray, "pairs"]

  def take(self, places: np.ndarray) -> "_Deviating":
    return _Deviating(self.i[places], self.j[places], self.deviation[places])


_NO_EXAMPLES = np.zeros(0, np.int64)
_NONE = _Deviating(_NO_EXAMPLES, _NO_EXAMPLES, _NO_EXAMPLES)


def _joined(parts: list[_Deviating]) -> _Deviating:
  return _Deviating(
    i=np.concatenate([part.i for part in parts]),
    j=np.concatenate([part.j for part in parts]),
    deviation=np.concatenate([part.deviation for part in parts]),
  )


def _least_deviation(counts: Counts, threshold: float) -> float:
  """Return the threshold for R² |P(C_i, C_j) - P(C_i) P(C_j)|."""
  threshold = read_number("threshold", threshold, "[0, inf]")
  # The factor keeps the threshold itself out where the product is rounded down.
  return threshold * counts.runs**2 * (1 + 1e-15)


def _varying(counts: Counts) -> Int[np.ndarray, "varying"]:
  """Return the examples that some runs have right and others wrong: no pair of another
  example deviates.
  """
  some_wrong = counts.wrong > 0
  some_right = counts.wrong < counts.runs
  return np.flatnonzero(some_wrong & some_right)


def _first_pairs(
  examples: int,
  count: int,
  known: set[tuple[int, int]],
) -> Int[np.ndarray, "2 pairs"]:
  """Return the first pairs i < j that are not among those known."""
  pairs: list[tuple[int, int]] = []
  for pair in itertools.combinations(range(examples), 2):
    if len(pairs) == count:
      break
    if pair not in known:
      pairs.append(pair)
  return np.array(pairs, np.int64).reshape(-1, 2).T


def _pairs(counts: Counts, deviating: _Deviating) -> DependentPairs:
  right = counts.runs - counts.wrong
  expected = right[deviating.i] * right[deviating.j]
  squared = counts.runs**2
  return DependentPairs(
    i=deviating.i,
    j=deviating.j,
    joint=safe_divide(expected + deviating.deviation, squared),
    product=safe_divide(expected, squared),
  )


def _deviations(
  counts: Counts,
  among: Int[np.ndarray, "among"],
) -> Iterator[tuple[int, int, Int[np.ndarray, "rows columns"]]]:
  """Yield the first row and column of each block of pairs of the examples `among` on
  and above the diagonal, and the block's R² (P(C_i, C_j) - P(C_i) P(C_j)), whole
  numbers; 0 in diagonal blocks for the pairs that are not i < j.
  """
  runs = counts.runs
  # The difference is also that of wrong ones, R n_ij - n_i n_j. Numbers of 32 bits are
  # twice as fast.
  dtype = np.int32 if runs**2 < 2**31 else np.int64
  wrong = counts.wrong[among].astype(dtype)
  for rows, columns, both in counts.joint_blocks(among):
    deviation = both.astype(wrong.dtype)
    deviation *= runs
    deviation -= wrong[rows, None] * wrong[None, columns]
    if rows == columns:
      deviation = np.triu(deviation, 1)
    yield rows.start, columns.start, deviation
