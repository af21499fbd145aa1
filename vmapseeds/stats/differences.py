"""The difference of two algorithms, with intervals that need no normal runs and a rate
of errors that is kept at every number of runs.
"""

import functools
import itertools
import math
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Bool, Float, Real

from vmapseeds.errors import UserError, check_at_least
from vmapseeds.stats._arrays import Array, Given, as_float64, safe_divide
from vmapseeds.stats.comparison import read_performances, student
from vmapseeds.stats.reading import (
  pair_by_index,
  read_key,
  read_level,
  read_numbers,
  read_reals,
  read_series,
  read_within,
)
from vmapseeds.stats.uncertainty import Estimate

# Rearrangements that are drawn at random where there are more. One more, the runs as
# they are, makes 10,000.
DRAWN = 9_999
# With more runs of both, Student's and Welch's errors are within the simulations'.
MOST_REARRANGED = 1000
# Of the drawn rearrangements: where fewer are as far out, they are all counted.
FEW_DRAWN = 100
# Runs of both sides of which all rearrangements can be counted.
MOST_COUNTED = 200
# Parts into which sums are rounded to be counted.
_PARTS_OF_PAIRS, _PARTS_OF_RUNS = 2**16, 2**11
# Numbers that are analysed together: 32 MB in float64.
_AT_ONCE = 2**22

Numbers: TypeAlias = (
  Real[np.ndarray, "runs examples"] | Bool[np.ndarray, "runs examples"]
)


class Difference(NamedTuple):
  """mean A - mean B, its interval, and the two-sided p-value of no difference."""

  difference: Float[Array, ""]
  low: Float[Array, ""]
  high: Float[Array, ""]
  p_value: Float[Array, ""]


def compare_means(
  a: Given["runs"],
  b: Given["runs"],
  paired: bool = True,
  *,
  key: jax.Array | None = None,
  level: float = 0.95,
) -> Difference:
  """Return mean A - mean B with an interval and a p-value by rearranging the runs.

  If A and B have the same law, an interval of 95 % leaves 0 out in at most 5 % of
  cases, whatever the law and however few the runs.

  Pairs: their differences are symmetric about the true one, so the means of all 2^k - 1
  subsets of them cut the line into 2^k parts that hold it with equal probability
  (Hartigan's typical values). The ends are the order statistics that leave out as many
  parts as `level` allows; p is that of the test that changes signs. 6 pairs are the
  fewest that have an interval of 95 %.

  Unpaired: likewise with mean_S A - mean_T B for all subsets of equally many runs of
  each, as in a permutation test of the means. That one errs where the variances and
  numbers of runs differ, as Welch's interval does where the runs are few and skewed. So
  the interval holds both, and p is the larger one. 4 runs of each are the fewest.

  Of more than 10,000 rearrangements 9,999 are drawn. Where fewer than 100 of these are as
  far out as the runs, all are counted, with their sums rounded so that p is never too
  small; of more than 200 unpaired runs Welch's p is taken there. With more than 1,000
  runs of both there is Student's or Welch's interval alone.

  Args:
    a: (runs,) performances of A.
    b: (runs,) performances of B, run i under the same seeds as a's where `paired`. Two
      series of pandas are paired by their index.
    paired: False for runs that are not paired.
    key: a JAX random key for the rearrangements; by default a fixed one.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `difference`, `low`, `high`, `p_value`, 0-d. With runs that are too few the ends are
    infinite; without runs the difference is NaN.

  Source: Hartigan 1969; Fisher 1935; Welch 1947.

  >>> result = compare_means([5, 4, 6, 7, 5, 8], [3, 3, 4, 6, 4, 4])
  >>> print(result.difference.round(3), result.low, result.high, result.p_value)
  1.833 1.0 4.0 0.03125
  """
  a, b = read_performances(a, b, paired)
  outside, _ = read_level(level)
  seed = seed_of(key)
  rng = np.random.default_rng(seed)
  normal = Difference(*student(a, b, paired, level))
  few = min(len(a), len(b))
  if few > MOST_REARRANGED:
    return normal
  if few < 2:
    # A single run of one side says nothing of its spread.
    return Difference(
      normal.difference, as_float64(-np.inf), as_float64(np.inf), as_float64(1.0)
    )
  if normal.difference < 0:
    # The same rearrangements, in whatever order A and B are given.
    mirrored = compare_means(b, a, paired, key=key, level=level)
    return Difference(
      difference=as_float64(-mirrored.difference),
      low=as_float64(-mirrored.high),
      high=as_float64(-mirrored.low),
      p_value=as_float64(mirrored.p_value),
    )

  if paired:
    values = _means_of_subsets(np.sort(a - b), rng)
  else:
    values = _differences_of_subsets(
      _rearranged_runs(a, rng), _rearranged_runs(b, rng), seed
    )
  # Sums that are 0 but for rounding are ties.
  largest = np.abs(np.r_[a, b]).max()
  values[np.abs(values) < 1e-12 * largest] = 0

  low, high, p = typical_interval(values, outside)
  if p * (len(values) + 1) < 2 * FEW_DRAWN and len(values) == DRAWN:
    # So few of those drawn tell the share of all only roughly.
    if paired:
      p = _share_of_signs(a - b)
    elif len(a) + len(b) <= MOST_COUNTED:
      p = _share_of_rearrangements(a, b)
    else:
      p = 0.0
  if not paired:
    # Welch's ends are NaN where neither side varies.
    low = np.fmin(low, normal.low)
    high = np.fmax(high, normal.high)
    p = max(p, normal.p_value)
  return Difference(normal.difference, as_float64(low), as_float64(high), as_float64(p))


def typical_interval(
  values: Float[np.ndarray, "subsets"],
  outside: float,
) -> tuple[float, float, float]:
  """Return the ends that leave out a share `outside` on either side, and the two-sided
  p-value of 0, from typical values of the difference; NaN changes nothing.
  """
  # A rearrangement that changes nothing, drawn by chance, lies on both sides.
  changes_nothing = np.isnan(values)
  rising = np.sort(np.where(changes_nothing, -np.inf, values))
  falling = np.sort(np.where(changes_nothing, np.inf, values))

  # So many values cut the line into one part more.
  parts = len(values) + 1
  # The tolerance keeps a share that is a whole number of parts at that number.
  parts_outside = math.floor(outside * parts + 1e-9)
  low, high = -np.inf, np.inf
  if parts_outside:
    low = rising[parts_outside - 1]
    high = falling[-parts_outside]

  below = (rising <= 0).sum()
  above = (falling >= 0).sum()
  p = min(1.0, 2 * (min(below, above) + 1) / parts)
  return low, high, p


def _share_of_signs(differences: np.ndarray) -> float:
  """Return the two-sided p-value of the test that changes signs, of a mean above 0: how
  often the sum of a random subset of the sizes is at most that of the negative ones.
  """
  sizes = np.abs(differences)
  most = sizes[differences < 0].sum()
  # Rounded down, so that no subset is missed.
  costs = _rounded(sizes, most, _PARTS_OF_PAIRS)
  share = np.zeros(_PARTS_OF_PAIRS + 1)
  share[0] = 1.0
  for cost in costs:
    with_it = np.zeros_like(share)
    if cost < len(share):
      with_it[cost:] = share[: len(share) - cost]
    share = (share + with_it) / 2
  return min(1.0, 2 * float(share.sum()))


def _share_of_rearrangements(a: np.ndarray, b: np.ndarray) -> float:
  """Return the two-sided p-value of the permutation test of the means, mean A above mean
  B: the share of the rearrangements whose sum of A's runs is at least as large.
  """
  runs = len(a)
  ordered = np.sort(np.r_[a, b])[::-1]
  # What it costs to take a run away from the largest sum, and to add another one.
  between = ordered[runs - 1]
  away, added = ordered[:runs] - between, between - ordered[runs:]
  most = max(0.0, ordered[:runs].sum() - a.sum())
  ways_away = _ways(_rounded(away, most, _PARTS_OF_RUNS), _PARTS_OF_RUNS)
  ways_added = _ways(_rounded(added, most, _PARTS_OF_RUNS), _PARTS_OF_RUNS)
  exchanged = min(len(ways_away), len(ways_added))
  # As many are added as are taken away, for no more than the runs cost as they are.
  up_to = ways_added[:exchanged].cumsum(axis=1)[:, ::-1]
  count = (ways_away[:exchanged] * up_to).sum()
  return min(1.0, 2 * count / scipy.special.comb(len(ordered), runs))


def _ways(costs: np.ndarray, parts: int) -> Float[np.ndarray, "sizes costs"]:
  """Return how many sets of each size have each cost, up to `parts`."""
  affordable = int((np.sort(costs).cumsum() <= parts).sum())
  ways = np.zeros((affordable + 1, parts + 1))
  ways[0, 0] = 1.0
  for cost in costs[costs <= parts]:
    ways[1:, cost:] += ways[:-1, : parts + 1 - cost].copy()
  return ways


def _rounded(costs: np.ndarray, most: float, parts: int) -> np.ndarray:
  """Return costs as whole numbers of parts of `most`, rounded down; those above it as
  more than all parts.
  """
  # Sums that are equal but for rounding are ties.
  slack = 1e-12 * np.abs(costs).sum()
  if most <= slack:
    return np.where(costs <= slack, 0, parts + 1)
  units = np.floor((costs - slack) / (most + slack) * parts)
  return np.clip(units, 0, parts + 1).astype(int)


def compare_networks(
  a: Given["examples"],
  b: Given["examples"],
  *,
  key: jax.Array | None = None,
  level: float = 0.95,
) -> Difference:
  """Return mean A - mean B of two trained networks on the same examples, with an interval
  and a p-value over examples.

  It says what these two networks would give on other examples of the same kind, and
  nothing of other runs of their recipes. The interval is that of `compare_means` with
  examples as pairs. Of networks that are right or wrong p is McNemar's exact one: if
  they are equally good, an example that one alone has right is either's with probability
  ½.

  Args:
    a: (examples,) A's performance on each: bool or 0/1 for right, or its loss with the
      sign changed.
    b: (examples,) B's performance on the same examples.
    key: a JAX random key for the rearrangements; by default a fixed one.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    `difference`, `low`, `high`, `p_value`, 0-d.

  Source: McNemar 1947, its exact form; Hartigan 1969.

  >>> a = np.r_[np.ones(90), np.zeros(10)]
  >>> b = np.r_[np.ones(78), np.zeros(12), np.ones(2), np.zeros(8)]
  >>> found = compare_networks(a, b)
  >>> print(found.difference.round(3), found.p_value.round(4))
  0.1 0.0129
  """
  a, b = read_series("examples", a=a, b=b)
  found = compare_means(a, b, key=key, level=level)
  if not (np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all()):
    return found
  a_alone = int((a > b).sum())
  differing = int((a != b).sum())
  p = 1.0
  if differing:
    p = scipy.stats.binomtest(a_alone, differing).pvalue
  return found._replace(p_value=as_float64(p))


def probability_of_best(
  *performances: Given["runs"],
  paired: bool = True,
  key: jax.Array | None = None,
  replicates: int = 10_000,
) -> Float[Array, " algorithms"]:
  """Return how probable it is that each algorithm has the highest mean of all, by a
  bootstrap over runs.

  A replicate is m_j + t Σ_i g_i (x_ij - m_j) / √(R (R - 1)) with the means m, normal g_i
  and t² = (R - 1) / χ²_{R-1}; the result is how often it is the highest. Paired runs
  share g and t. It is the posterior probability for normal performances whose means have
  a flat prior: of two algorithms 1 less half the p-value of Student's test. Resampled
  runs, without t, would be too sure of themselves where runs are few.

  Args:
    *performances: (runs,) of each algorithm, higher is better; run i of all under the
      same seeds if `paired`.
    paired: False for runs that are not paired.
    key: a JAX random key; by default a fixed one.
    replicates: how many there are.

  Returns:
    (algorithms,), from 0 to 1, their sum 1; NaN if an algorithm has fewer than two runs.

  Source: ours; the multiplier bootstrap is Rubin's 1981 with normal weights.

  >>> probability_of_best([5, 4, 6, 7], [3, 3, 4, 6], [1, 2, 1, 3]).round(2)
  array([0.99, 0.01, 0.  ])
  """
  if paired:
    numbered = {f"performances[{i}]": x for i, x in enumerate(performances)}
    performances = tuple(pair_by_index(**numbered))
  rows = [read_reals("performances", x, "runs") for x in performances]
  check_at_least("algorithms", len(rows), 1)
  sizes = [len(x) for x in rows]
  if paired and len(set(sizes)) > 1:
    listed = ", ".join(map(str, sizes))
    raise UserError(
      f"performances of {listed} runs: give as many of each, or paired=False"
    )
  replicates = check_at_least("replicates", replicates, 1)
  if min(sizes) < 2:
    return np.full(len(rows), np.nan)

  rng = np.random.default_rng(seed_of(key))
  means = np.empty((len(rows), replicates))
  for j, x in enumerate(rows):
    runs = len(x)
    freedom = runs - 1
    is_first = j == 0
    if is_first or not paired:
      # g and t of the equation above; paired algorithms share those of the first.
      weights = rng.standard_normal((replicates, runs))
      weights *= np.sqrt(freedom / rng.chisquare(freedom, (replicates, 1)))
    mean = x.mean()
    means[j] = mean + weights @ (x - mean) / np.sqrt(runs * freedom)
  # Algorithms that are best together share the replicate.
  is_best = means == means.max(0)
  return safe_divide(is_best, is_best.sum(0)).mean(1)


def seed_of(key: jax.Array | None) -> tuple[int, ...]:
  # A fixed one by default, so that the same runs give the same interval.
  if key is None:
    return 0, 0
  words = np.asarray(jax.random.key_data(read_key(key)))
  return tuple(words.tolist())


def _means_of_subsets(
  differences: np.ndarray,
  rng: np.random.Generator,
) -> Float[np.ndarray, "subsets"]:
  """Return the means of all subsets of the differences, or of many; NaN for an empty
  one.
  """
  pairs = len(differences)
  if 2**pairs <= DRAWN + 1:
    # The bits of each number but 0 say which differences a subset has.
    numbers = np.arange(1, 2**pairs)
    chosen = numbers[:, None] >> np.arange(pairs) & 1
  else:
    chosen = rng.integers(0, 2, (DRAWN, pairs), np.int8)
  return safe_divide(chosen @ differences, chosen.sum(1))


def _differences_of_subsets(
  a: np.ndarray,
  b: np.ndarray,
  seed: tuple[int, ...],
) -> Float[np.ndarray, "subsets"]:
  """Return mean_S a - mean_T b for all subsets S and T of equally many runs, or for
  many; NaN for empty ones.
  """
  from_a, from_b = _exchanged_runs(len(a), len(b), seed)
  return safe_divide(from_a @ a - from_b @ b, from_a.sum(1))


# Comparisons of many algorithms have as many runs of each.
@functools.lru_cache(maxsize=1)
def _exchanged_runs(
  n: int, m: int, seed: tuple[int, ...]
) -> tuple[Bool[np.ndarray, "rearrangements n"], Bool[np.ndarray, "rearrangements m"]]:
  """Return which of n and of m runs change sides, as many of each, in all or many
  rearrangements.
  """
  runs = n + m
  rearrangements = math.comb(runs, n)
  # Which of all runs, those of A first, a rearrangement calls A's.
  if rearrangements <= DRAWN + 1:
    is_a = np.zeros((rearrangements, runs), bool)
    combinations = itertools.combinations(range(runs), n)
    for row, places in enumerate(combinations):
      is_a[row, list(places)] = True
    # The first is the runs as they are.
    is_a = is_a[1:]
  else:
    as_they_are = np.arange(runs) < n
    rng = np.random.default_rng(seed)
    is_a = rng.permuted(np.tile(as_they_are, (DRAWN, 1)), axis=1)
  return ~is_a[:, :n], is_a[:, n:]


def _rearranged_runs(runs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
  """Return the runs that are rearranged: all, or many drawn without looking at them."""
  # Sorted, so that the order in which runs are given does not matter.
  return rng.permutation(np.sort(runs))[:MOST_REARRANGED]


def compare_means_on_other_examples(
  a: Given["runs examples"],
  b: Given["runs examples"],
  paired: bool = True,
  *,
  level: float = 0.95,
) -> Estimate:
  """Return mean A - mean B with its interval over runs and examples: what other runs on
  other examples of the same kind would give.

      d ± t_ν √V,    V = V_runs + V_examples - V_both

  V_runs is the variance of the mean over runs, V_examples that over the examples of
  their mean differences A - B, and V_both the part that both contain: the interactions
  of runs and examples, by the two-way analysis of variance. V is at least V_runs and at
  least V_examples. ν is Satterthwaite's. A and B have the same examples, so examples
  that are hard for both do not count. It takes examples as drawn independently.

  Args:
    a: (runs, examples) performances of A on each example: bool or 0/1 for right, or the
      losses with their sign changed.
    b: (runs, examples) performances of B on the same examples.
    paired: False for runs that are not paired.
    level: the coverage of the interval, between 0 and 1.

  Returns:
    An `Estimate` with se = √V. For fewer than two runs or examples there is no standard
    error (NaN), and the ends are infinite.

  Source: ours; the two-way random effects model, Cornfield and Tukey 1956;
    Satterthwaite 1946.

  >>> a = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [1, 0, 1, 1]])
  >>> b = np.array([[1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0]])
  >>> compare_means_on_other_examples(a, b)
  0.50 ± 0.22 [-0.18, 1.18]
  """
  _, upper = read_level(level)
  a = read_numbers("a", a, "runs examples")
  b = read_numbers("b", b, "runs examples")
  if a.shape[1] != b.shape[1] or (paired and a.shape != b.shape):
    raise UserError(
      f"a has shape {a.shape} and b {b.shape}: give the same examples, and as many runs "
      "or paired=False"
    )
  if min(*a.shape, *b.shape) < 2:
    difference = safe_divide(a.sum(dtype=np.float64), a.size)
    difference = difference - safe_divide(b.sum(dtype=np.float64), b.size)
    return Estimate(difference, low=-np.inf, high=np.inf, level=level)

  if paired:
    parts = [_two_way(a, b)]
    by_example = parts[0].of_examples
  else:
    parts = [_two_way(a), _two_way(b)]
    by_example = parts[0].of_examples - parts[1].of_examples
  examples = len(by_example)
  of_examples = by_example.var(ddof=1) / examples
  of_runs = 0
  of_both = 0
  # Satterthwaite's terms: the square of each variance over its degrees of freedom.
  terms = 0
  for part in parts:
    runs = len(part.of_runs)
    of_side = part.of_runs.var(ddof=1) / runs
    of_runs += of_side
    of_both += part.interaction
    terms += of_side**2 / (runs - 1)

  # An estimate of the interactions may be above the variances that contain them.
  variance = max(of_runs, of_examples, of_runs + of_examples - of_both)
  freedom = safe_divide(variance**2, terms + of_examples**2 / (examples - 1))
  se = np.sqrt(variance)
  reach = 0.0
  if variance:
    reach = scipy.special.stdtrit(freedom, upper) * se
  difference = by_example.mean()
  return Estimate(difference, se, difference - reach, difference + reach, level)


class _TwoWay(NamedTuple):
  """Means of runs and of examples, and the part of the variance of the mean of all that
  is from the interactions of both.
  """

  of_runs: Float[np.ndarray, "runs"]
  of_examples: Float[np.ndarray, "examples"]
  interaction: float


def _two_way(a: Numbers, minus: Numbers | None = None) -> _TwoWay:
  """Analyse an array, or a - minus, a block of runs at a time: as float64 all of it may
  be larger than memory.
  """
  runs, n = a.shape
  of_runs = np.empty(runs)
  of_examples = np.zeros(n)
  squares = 0.0
  step = max(1, _AT_ONCE // n)
  for start in range(0, runs, step):
    rows = slice(start, start + step)
    x = as_float64(a[rows])
    if minus is not None:
      x = x - as_float64(minus[rows])
    of_runs[rows] = x.mean(1)
    of_examples += x.sum(0) / runs
    squares += (x**2).sum()

  # The sum of squares of what neither runs nor examples explain, 0 up to rounding.
  mean = of_runs.mean()
  rest = squares - n * (of_runs**2).sum() - runs * (of_examples**2).sum()
  rest = max(0.0, rest + n * runs * mean**2)
  interaction = rest / ((runs - 1) * (n - 1)) / (runs * n)
  return _TwoWay(of_runs, of_examples, interaction)


def holm(p_values: Given["comparisons"]) -> Float[Array, "comparisons"]:
  """Return p-values of several comparisons adjusted by Holm's method: if those up to α
  are called significant, the chance of any error among all is at most α.

  Args:
    p_values: (comparisons,), from 0 to 1.

  Returns:
    (comparisons,), in the same order.

  Source: Holm 1979.

  >>> holm([0.01, 0.04, 0.03])
  array([0.03, 0.06, 0.06])
  """
  p = np.atleast_1d(read_within("p_values", p_values, "[0, 1]"))
  order = np.argsort(p, kind="stable")
  scaled = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
  adjusted = np.empty_like(p)
  adjusted[order] = np.minimum(scaled, 1)
  return adjusted
